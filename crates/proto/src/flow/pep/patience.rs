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
pub(in crate::flow) struct Patience {
    /// Whether it repeats what it sent, since when, and what has to arrive before that is over: all
    /// that was sent when its timer fired last (`high_seq` of Linux).
    is_repeating: bool,
    began: Instant,
    to: Seq,
    /// How often it has repeated the first.
    repeats: u8,
    /// Whether it has repeated what has arrived, and was told nothing since.
    pub(in crate::flow) is_behind: bool,
    /// When its timer was set, and when it will fire, if it has doubled since it last did.
    set_at: Instant,
    fires_at: Instant,
}

impl Patience {
    /// Whether it ends when the timer fires next.
    pub(crate) fn ends(&self) -> bool {
        let is_over = self.fires_at.saturating_since(self.began) >= TIME_MAX;
        self.repeats >= REPEATS_MAX || (self.repeats > 0 && is_over)
    }

    /// It repeats a segment that takes up numbers, was told of everything before `acked`, and has
    /// sent everything before `next`.
    pub(crate) fn repeated(&mut self, now: Instant, segment: &Segment, acked: Seq, next: Seq) {
        if !self.is_repeating {
            (self.is_repeating, self.began, self.to) = (true, now, next);
        }
        self.is_behind |= segment.seq.is_before(acked);
        if segment.seq == acked {
            self.to = next;
            self.repeats = self.repeats.saturating_add(1);
            self.fires_at = now + now.saturating_since(self.set_at) * 2;
            self.set_at = now;
        }
    }

    /// It sends a segment that is new, and was told of everything before `acked`.
    pub(crate) fn sent(&mut self, now: Instant, segment: &Segment, acked: Seq) {
        if segment.seq == acked {
            self.set_at = now;
        }
    }

    /// It is told that everything before `acked` has arrived. Who has no selective acknowledgements
    /// goes on repeating until something beyond what it repeated has, since the next that tell it
    /// the same may be for that (`tcp_is_non_sack_preventing_reopen`).
    pub(crate) fn acknowledged(&mut self, now: Instant, acked: Seq, has_sack: bool) {
        self.is_repeating &= acked.is_before(self.to) || (acked == self.to && !has_sack);
        self.repeats = 0;
        self.set_at = now;
    }
}
