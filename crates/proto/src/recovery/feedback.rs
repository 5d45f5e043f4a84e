//! Path feedback, where datagrams arrive: what was received and when to say so
//! (docs/spec/wire.md#feedback). What the other end makes of it is in `sent_packets`.

use super::decline::Decline;
use super::replay::ReplayWindow;
use crate::id::PathSerial;
use crate::time::{Duration, Instant};
use crate::wire::frame::Feedback;

/// How long the first datagram after a quiet time may wait for its feedback.
pub(crate) const DELAY_FIRST: Duration = Duration::from_millis(10);
/// How long feedback waits while datagrams keep coming: ten frames a second stay below one per
/// cent of a 1 Mbit/s flow.
pub(crate) const DELAY_STEADY: Duration = Duration::from_millis(100);
/// Feedback is due at once after this many datagrams without any.
pub const DATAGRAMS_MAX: u32 = 64;
/// Where the sender paces what it sends by what arrives, also after so many bytes: the datagram
/// that says so has 82 bytes at layer 3 and 2 or 3 more for each gap, less than a hundredth,
pub(crate) const PACED_BYTES_MAX: u64 = 11_000;
/// and after this time at the latest.
pub(crate) const DELAY_PACED: Duration = Duration::from_millis(10);

/// Where a slow path is filled, in which time less than [`PACED_BYTES_MAX`] arrives: such datagrams
/// may wait so long together. It is what so many bytes take at 2.2 Mbit/s.
pub(crate) const DELAY_SLOW: Duration = Duration::from_millis(40);
/// A path is filled by datagrams of at least this size in the mean,
const FILLING_BYTES: u64 = 1_000;
/// of which there are so many in [`DELAY_PACED`] at least, or one so soon after the last report,
const FILLING_DATAGRAMS: u32 = 2;
const FILLING_SOON: Duration = Duration::from_millis(12);
/// for so many reports: a fast one has little to carry for a moment now and then, and what its
/// sender hears too late makes a queue.
const FILLING_REPORTS: u8 = 16;
/// At most so many are counted, and a report at which it is not filled takes some away.
const FILLING_REPORTS_MAX: u8 = 32;
const UNFILLED_TAKES: u8 = 4;
/// So many feedbacks say of each datagram whether it arrived: all but one of them may be lost. What
/// is farther back costs more to say again than it is worth.
const TOLD_TIMES: usize = 6;

/// How long the other end waits until it tells of what fills a path, at most, if that carries so
/// many bytes per second.
pub fn wait(rate: f64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let seconds = PACED_BYTES_MAX as f64 / rate.max(1.0);
    Duration::from_secs_f64(seconds.min(DELAY_SLOW.as_secs_f64())).max(DELAY_PACED)
}

/// What left by a path to tell the peer what had arrived, and for nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reports {
    /// How many datagrams.
    pub datagrams: u64,
    /// Their UDP payload, in bytes.
    pub bytes: u64,
}

/// What a datagram calls for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Elicits {
    /// Nothing.
    Nothing,
    /// That the sender is told of it.
    Feedback,
    /// That it is told soon: it paces what it sends by that.
    Pace,
}

/// The receiving side of one path: what it owes the peer.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    received: u64,
    bytes: u64,
    largest_at: Instant,
    unreported: u32,
    /// When the first of those came.
    unreported_at: Instant,
    /// Bytes when the last report was made.
    reported: u64,
    due: Option<Instant>,
    reported_at: Option<Instant>,
    /// What the last report said: numbers up to it, and how many of them arrived.
    told: (u64, u64),
    /// Up to where the reports before it went, the oldest first.
    repeated: [u64; TOLD_TIMES - 1],
    /// Reports at which a slow path was being filled, less those at which it was not.
    slow: u8,
    /// Something came late since the last report: how far back it belongs is not known.
    is_late: bool,
    decline: Decline,
}

impl Owed {
    /// Records an authentic datagram of `len` bytes.
    pub fn received(&mut self, now: Instant, len: usize, newest: bool, elicits: Elicits) {
        self.received += 1;
        self.bytes += len as u64;
        if newest {
            self.largest_at = now;
        } else {
            self.is_late = true;
        }
        if elicits == Elicits::Nothing {
            return;
        }
        self.unreported += 1;
        if self.unreported == 1 {
            self.unreported_at = now;
        }
        let steady = self.reported_at.is_some_and(|at| now.saturating_since(at) < 2 * DELAY_STEADY);
        let is_paced = elicits == Elicits::Pace;
        let delay = match steady {
            _ if is_paced => DELAY_PACED,
            true => DELAY_STEADY,
            false => DELAY_FIRST,
        };
        let mut due = self.due.map_or(now + delay, |due| due.min(now + delay));
        if is_paced && self.slow >= FILLING_REPORTS && self.is_filled() {
            due = self.unreported_at + DELAY_SLOW;
        }
        let is_much = is_paced && self.bytes - self.reported >= PACED_BYTES_MAX;
        let is_due = is_much || self.unreported >= DATAGRAMS_MAX;
        self.due = Some(if is_due { due.min(now) } else { due });
    }

    /// Whether the path has begun to lose much of what the peer sends: said once.
    pub(crate) const fn takes_decline(&mut self) -> bool {
        self.decline.takes_decline()
    }

    /// Whether what is not reported yet looks like all that the path can carry.
    fn is_filled(&self) -> bool {
        let bytes = self.bytes - self.reported;
        let is_soon = |at| self.unreported_at.saturating_since(at) < FILLING_SOON;
        let is_one_soon = self.unreported == 1 && self.reported_at.is_some_and(is_soon);
        let are_many = self.unreported >= FILLING_DATAGRAMS || is_one_soon;
        are_many && bytes >= u64::from(self.unreported) * FILLING_BYTES
    }

    /// Bytes received on this path so far, UDP payload.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When feedback must be sent at the latest; `None` while nothing is owed.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// As [`Self::report`], of a path on which nothing more arrives: all that is known.
    pub(crate) fn last_report(
        &mut self,
        now: Instant,
        serial: PathSerial,
        window: &ReplayWindow,
    ) -> Option<Feedback> {
        self.is_late = true;
        self.report(now, serial, window)
    }

    /// The frame to send now; what it reports is no longer owed.
    pub fn report(
        &mut self,
        now: Instant,
        serial: PathSerial,
        window: &ReplayWindow,
    ) -> Option<Feedback> {
        let largest = window.highest()?;
        let took = now.saturating_since(self.unreported_at);
        let is_slow = took >= DELAY_PACED && self.is_filled();
        self.slow = match self.slow {
            slow if is_slow => FILLING_REPORTS_MAX.min(slow + 1),
            slow => slow.saturating_sub(UNFILLED_TAKES),
        };
        self.due = None;
        self.unreported = 0;
        self.reported = self.bytes;
        self.reported_at = Some(now);
        let floor = if std::mem::take(&mut self.is_late) { 0 } else { self.repeated[0] };
        self.repeated.rotate_left(1);
        self.repeated[TOLD_TIMES - 2] = self.told.0;
        let (upto, received) = std::mem::replace(&mut self.told, (largest + 1, self.received));
        self.decline.sample(now, (largest + 1).saturating_sub(upto), self.received - received);
        let delay = now.saturating_since(self.largest_at).as_micros();
        Some(Feedback {
            serial,
            largest,
            delay_us: u32::try_from(delay).unwrap_or(u32::MAX),
            arrived_us: self.largest_at.wrapping_micros(),
            received: self.received,
            bytes: self.bytes,
            runs: window.runs(floor),
        })
    }
}

#[cfg(test)]
#[path = "feedback_tests.rs"]
mod tests;
