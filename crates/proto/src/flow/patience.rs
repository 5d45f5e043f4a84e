//! How long the local side goes on repeating what nobody acknowledges, before it gives up.
//!
//! Linux measures the repetitions that it is set to (`tcp_retries2`) by time: as long as so many
//! would take from the shortest time-out on, and gives up when its timer fires next. When losses
//! before have made that timer slow, it fires once or twice.

use crate::time::{Duration, Instant};
use crate::wire::tcp::{Segment, Seq};

/// The first segment was repeated so often that its sender is taken to give up soon: six
/// repetitions are the fewest that anybody sets.
const REPEATS_MAX: u8 = 5;
/// Six take 25.4 s (`tcp_model_timeout`).
const TIME_MAX: Duration = Duration::from_secs(20);

/// What is known of the local side's patience.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Patience {
    /// Since when it repeats what it sent up to there.
    began: Option<(Instant, Seq)>,
    /// When its timer was set.
    set_at: Instant,
    /// How long that had run when it repeated its first segment, and how often it did so.
    ran: Duration,
    repeats: u8,
}

impl Patience {
    /// Whether it ends when the timer fires next, which takes twice as long each time.
    pub(super) fn ends(&self) -> bool {
        let next = self.set_at + self.ran * 2;
        let over = |(began, _)| next.saturating_since(began) >= TIME_MAX;
        self.repeats >= REPEATS_MAX || (self.repeats > 0 && self.began.is_some_and(over))
    }

    /// It sends a segment that takes up numbers, and was told of everything before `acked`.
    pub(super) fn sent(&mut self, now: Instant, segment: &Segment, acked: Seq, fresh: bool) {
        let is_first = segment.seq == acked;
        if !fresh {
            let (began, to) = self.began.unwrap_or((now, acked));
            self.began = Some((began, to.max(segment.end())));
            if is_first {
                self.repeats = self.repeats.saturating_add(1);
                self.ran = now.saturating_since(self.set_at);
            }
        }
        if is_first {
            self.set_at = now;
        }
    }

    /// It is told that everything before `acked` has arrived.
    pub(super) fn acknowledged(&mut self, now: Instant, acked: Seq) {
        let began = self.began.filter(|&(_, to)| acked.is_before(to));
        *self = Self { began, set_at: now, ..Self::default() };
    }
}
