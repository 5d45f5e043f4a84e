//! Whether a flow is compressed: compression has to show, in short samples, that it pays.
//!
//! After the text of Alshalan 2017, section 5.5.1. (Its Algorithm 9 differs from its text: it swaps
//! two branches, takes the maximum for the minimum, and clears its counters before it uses them.)
//!
//! - A new flow is compressed for a sample of [`SAMPLE`].
//! - After each sample, a flow that saved at least the threshold stays on for another one. Other
//!   flows go off for [`OFF_MIN`], and for twice as long each time in a row, up to [`OFF_MAX`].
//! - After that a flow is sampled anew. If it stays on, its next time off is [`OFF_MIN`] again.
//!
//! The threshold is 5 %. While the processor is busy it is higher, because compression then costs
//! speed. While a queue stands before the paths it is lower, because bytes then cost speed.
//!
//! Told the time and the lengths. Does not compress, and knows no packet.

use crate::time::{Duration, Instant};

/// How long a sample of one flow takes (Alshalan 2017, 5.5.1). At half of it a slow flow is judged
/// by one packet; at twice it, a flow that does not pay costs twice as many operations.
pub const SAMPLE: Duration = Duration::from_millis(200);
/// How long a sample of all flows without an entry of their own takes: as in `OpenVPN`, since they
/// are many.
pub const SAMPLE_GENERIC: Duration = Duration::from_secs(2);
/// How long a flow that did not pay is off at first.
pub const OFF_MIN: Duration = Duration::from_secs(2);
/// The longest time off.
pub const OFF_MAX: Duration = Duration::from_secs(16);

/// The share in percent that a sample must save, by what is short at this end.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Scarce {
    /// Neither of the two, or both.
    #[default]
    Nothing,
    /// The processor is busy.
    Processor,
    /// Packets wait in a standing queue.
    Bandwidth,
}

impl Scarce {
    /// What is short, if the processor `is_busy` and if packets wait (`is_queued`).
    pub const fn of(is_busy: bool, is_queued: bool) -> Self {
        match (is_busy, is_queued) {
            (true, false) => Self::Processor,
            (false, true) => Self::Bandwidth,
            (true, true) | (false, false) => Self::Nothing,
        }
    }

    /// The share in percent.
    pub const fn threshold(self) -> u64 {
        match self {
            Self::Nothing => 5, // Equation 5.4
            Self::Processor => 20,
            Self::Bandwidth => 2,
        }
    }
}

/// The decision about one flow, in 24 bytes: a session has up to 65,535.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// When this sample or this time off ends.
    until: Instant,
    /// Bytes of this sample before compression,
    total: u32,
    /// and after it.
    compressed: u32,
    /// How long the next time off is, in seconds.
    off_secs: u8,
    /// Whether packets are compressed.
    is_on: bool,
    /// Whether it is about all flows without an entry of their own.
    is_generic: bool,
}

const _: () = assert!(size_of::<Sampling>() <= 24);
const _: () = assert!(OFF_MAX.as_secs() <= u8::MAX as u64);

impl Sampling {
    /// A new flow: on, for one sample.
    pub fn new(now: Instant) -> Self {
        Self::sampled(now, false)
    }

    /// All flows without an entry of their own.
    pub fn generic(now: Instant) -> Self {
        Self::sampled(now, true)
    }

    fn sampled(now: Instant, is_generic: bool) -> Self {
        let mut new = Self {
            until: now,
            total: 0,
            compressed: 0,
            off_secs: seconds(OFF_MIN),
            is_on: true,
            is_generic,
        };
        new.turn_on(now);
        new
    }

    /// Whether the next packet is to be compressed.
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    /// A packet of `len` bytes left, in `compressed` bytes. One that did not get smaller, or was
    /// not compressed, left in `len` bytes. The decision changes here, if the time for it has come.
    pub fn left(&mut self, now: Instant, (len, compressed): (usize, usize), scarce: Scarce) {
        if self.is_on {
            self.total = self.total.saturating_add(bounded(len));
            self.compressed = self.compressed.saturating_add(bounded(compressed.min(len)));
        }
        if now < self.until {
            return;
        }
        if !self.is_on {
            self.turn_on(now);
        } else if self.pays(scarce) {
            self.off_secs = seconds(OFF_MIN);
            self.turn_on(now);
        } else {
            self.is_on = false;
            self.until = now + Duration::from_secs(self.off_secs.into());
            self.off_secs = self.off_secs.saturating_mul(2).min(seconds(OFF_MAX));
        }
    }

    /// Begins a sample.
    fn turn_on(&mut self, now: Instant) {
        self.is_on = true;
        self.until = now + if self.is_generic { SAMPLE_GENERIC } else { SAMPLE };
        (self.total, self.compressed) = (0, 0);
    }

    /// Whether the sample saved enough (Equations 5.3 and 5.4).
    const fn pays(&self, scarce: Scarce) -> bool {
        let (total, compressed) = (self.total as u64, self.compressed as u64);
        total.saturating_sub(compressed) * 100 >= total * scarce.threshold()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "asserted above")]
const fn seconds(time: Duration) -> u8 {
    time.as_secs() as u8
}

fn bounded(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "sampling_tests.rs"]
mod tests;
