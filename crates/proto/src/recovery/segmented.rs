//! What became of runs of datagrams that were sent in one call, beside runs of the same size that
//! were sent one call a datagram.
//!
//! A run's datagrams have a [`Tag`] in `sent_packets`. When their fates are known, the run counts
//! for or against segmented sends. This is a test by betting (Shafer 2021, "Testing by betting"):
//! which way a run is sent was drawn like a coin, so a run that lost something was as likely sent
//! either way if that makes no difference. Whoever bets a part of his capital on "it was
//! segmented", in proportion to what was lost, wins nothing in the long run, whatever loses the
//! datagrams: a policer, a full queue, bursts of radio errors. By Ville's inequality his capital
//! reaches a multiple M with a probability of at most 1/M, however often he looks.
//!
//! Knows neither paths nor time: `path::offload` decides what runs are compared, and when.

/// The part of the capital that is bet on a run that was lost whole. With more, one run of the
/// other kind that was lost by chance costs more than three wins bring.
const STAKE: f64 = 0.9;
/// Ways to bet: by the part of a run that was lost, and by the fate of its last datagram. Each has
/// its own half of the capital.
const BETS: usize = 2;
/// Numbers of runs that tags tell apart.
const NUMBERS: u8 = 32;

/// Marks the datagrams of one run: which comparison it belongs to and how it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tag(u8);

impl Tag {
    /// Datagrams that nothing is compared by.
    pub(crate) const NONE: Self = Self(0);
    const SEGMENTED: u8 = 1;
    const SECOND: u8 = 2;
    const NUMBER: u8 = 4;

    /// The tag of a run. Runs that follow each other have different numbers, and comparisons that
    /// follow each other differ in `is_second`.
    pub(crate) const fn new(number: u8, is_second: bool, is_segmented: bool) -> Self {
        let flags = Self::SEGMENTED * is_segmented as u8 + Self::SECOND * is_second as u8;
        Self((number % NUMBERS + 1) * Self::NUMBER + flags)
    }

    const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    const fn is_segmented(self) -> bool {
        self.0 & Self::SEGMENTED != 0
    }

    const fn is_second(self) -> bool {
        self.0 & Self::SECOND != 0
    }
}

/// What the runs of one comparison say so far.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Evidence {
    /// Runs of both kinds.
    pub(crate) runs: u32,
    /// The comparison that they belong to.
    pub(crate) is_second: bool,
    /// Natural logarithms of the capital that each way to bet has made of its share.
    logs: [f64; BETS],
}

impl Evidence {
    /// Adds what other runs of the same comparison say.
    pub(crate) fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        for (log, other) in self.logs.iter_mut().zip(other.logs) {
            *log += other;
        }
    }

    /// What the whole capital was multiplied by. If segmented sends lose no more than others, this
    /// ever reaches M with a probability of at most 1/M.
    pub(crate) fn capital(&self) -> f64 {
        self.logs.iter().map(|log| log.exp()).sum::<f64>() / BETS as f64
    }

    fn bet(&mut self, run: &Run) {
        let part = f64::from(run.lost) / f64::from(run.datagrams);
        let last = f64::from(u8::from(run.is_last_lost));
        let side = if run.tag.is_segmented() { STAKE } else { -STAKE };
        self.runs += 1;
        for (log, stake) in self.logs.iter_mut().zip([part, last]) {
            *log += (side * stake).ln_1p();
        }
    }
}

/// A run of which not every fate is known yet.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    tag: Tag,
    datagrams: u8,
    lost: u8,
    is_last_lost: bool,
}

/// The runs of one packet number space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Runs {
    current: Run,
    evidence: Evidence,
}

impl Runs {
    /// Takes the fate of the next datagram in the order of numbers.
    #[inline]
    pub(crate) fn settle(&mut self, tag: Tag, is_lost: bool) {
        if self.current.tag.is_none() && tag.is_none() {
            return;
        }
        self.count(tag, is_lost);
    }

    fn count(&mut self, tag: Tag, is_lost: bool) {
        if tag != self.current.tag {
            self.close();
            self.current = Run { tag, ..Run::default() };
        }
        let run = &mut self.current;
        run.datagrams = run.datagrams.saturating_add(1);
        run.lost = run.lost.saturating_add(is_lost.into());
        run.is_last_lost = is_lost;
    }

    fn close(&mut self) {
        let run = &self.current;
        // One datagram is sent alone in any case.
        if run.tag.is_none() || run.datagrams < 2 {
            return;
        }
        if run.tag.is_second() != self.evidence.is_second {
            self.evidence = Evidence { is_second: run.tag.is_second(), ..Evidence::default() };
        }
        self.evidence.bet(run);
    }

    /// What the runs say whose fate became known since the last call; `None` while there are none.
    pub(crate) fn take(&mut self) -> Option<Evidence> {
        if self.evidence.runs == 0 {
            return None;
        }
        Some(std::mem::take(&mut self.evidence))
    }
}

#[cfg(test)]
#[path = "segmented_tests.rs"]
mod tests;
