//! The rate of a known path follows its queue: a PI controller of an integrator with dead time.
//!
//! If there is no queue, the rate grows, by more each round. If the queue stands and less arrives
//! than leaves, the path became slower. Otherwise the rate follows the distance of the queue from
//! its target slowly; the pace follows it at once.
//!
//! Answers what is to become of the rate after a round. Knows nothing of what else holds it.

use super::round::Round;
use crate::time::Instant;

/// Part of the queue's error by which the rate is corrected in each round.
const RATE_GAIN: f64 = 0.1;
/// The growth of the rate becomes so much larger in each round.
const GROWTH_GROWTH: f64 = 1.5;
/// If less than this part of what leaves arrives in the same time, the rate is too high.
const CUT: f64 = 0.95;
/// Rounds until a changed rate shows in the queue.
pub(super) const SETTLES: u8 = 2;
/// The same after a moment of sending less.
const SETTLES_LONG: u8 = 3;

/// How the rate changes from round to round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Growth {
    /// By what part the rate grows in the next round without a queue, and not before when.
    step: f64,
    at: Instant,
    /// By what factors it grew in the last two rounds, which cannot be seen in the queue yet.
    unseen: (f64, f64),
    /// Rounds until a changed rate shows in the queue.
    settles: u8,
    /// The queue at the end of the last round, seconds.
    queue_before: f64,
}

/// What is to become of the rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Change {
    /// The path carries no more than what arrived.
    Cut,
    /// It grows by this factor, or stays.
    Times(f64),
    /// It is divided by what the queue shows only now. Then growth [begins anew](Growth::anew), and
    /// the rate changes by the factor `by`.
    Correct { undo: f64, by: f64 },
}

impl Growth {
    /// The rate was just found, with a queue of so many seconds. The first step is `first`.
    pub(super) const fn found(now: Instant, queue: f64, first: f64) -> Self {
        let unseen = (1.0, 1.0);
        Self { step: first, at: now, unseen, settles: SETTLES, queue_before: queue }
    }

    /// The first step is `first` again.
    pub(super) const fn anew(&mut self, first: f64) {
        self.step = first;
    }

    /// The rate was cut, which shows in the queue after so many rounds. The first step is `first`
    /// again.
    pub(super) const fn cut(&mut self, first: f64, rounds: u8) {
        (self.step, self.settles) = (first, rounds);
    }

    /// Less is sent for a moment: the rate does not grow before `until`.
    pub(super) fn pause(&mut self, until: Instant) {
        self.hold(until);
        self.settles = SETTLES_LONG;
    }

    /// The rate does not grow before `until`.
    pub(super) fn hold(&mut self, until: Instant) {
        self.at = self.at.max(until);
    }

    /// A round ends with a queue of so many seconds.
    pub(super) const fn note_queue(&mut self, queue: f64) {
        self.queue_before = queue;
    }

    /// Whether the queue grew since the last round as it does in `time` seconds if only the part
    /// `kept` of what leaves arrives.
    pub(super) fn explains(&self, queue: f64, kept: f64, time: f64) -> bool {
        queue - self.queue_before > 0.25 * (1.0 - kept) * time
    }

    /// A round is over. The seconds are those of the queue, of its target, and until a change of
    /// the pace shows in it. The step grows up to `most` if the growth `accelerates`; without
    /// `most` the rate may not grow.
    pub(super) fn end_round(
        &mut self,
        now: Instant,
        round: &Round,
        (queue, target, lag): (f64, f64, f64),
        (most, accelerates): (Option<f64>, bool),
    ) -> Change {
        let kept = round.kept();
        let is_cut =
            kept < CUT && queue > 2.0 * target && self.explains(queue, kept, round.age(now));
        let before = std::mem::replace(&mut self.queue_before, queue);
        let unseen = self.unseen;
        self.unseen = (1.0, unseen.0);
        let is_settled = self.settles == 0;
        self.settles = self.settles.saturating_sub(1);
        if is_cut {
            return Change::Cut;
        }
        if queue < target / 2.0 {
            let tells = !round.is_limited && !round.is_full && now >= self.at;
            let Some(most) = most.filter(|_| tells) else { return Change::Times(1.0) };
            self.unseen.0 = 1.0 + self.step;
            self.step = (self.step * if accelerates { GROWTH_GROWTH } else { 1.0 }).min(most);
            return Change::Times(self.unseen.0);
        }
        // What grew before makes a queue already.
        self.unseen = (1.0, 1.0);
        // A queue that is on its way to its target needs no other rate.
        let error = ((target - queue) / lag).clamp(-1.0, 1.0);
        let nears = (queue < before) == (error < 0.0);
        let corrects = is_settled && !nears && !round.is_limited;
        let by = if corrects { 1.0 + RATE_GAIN * error } else { 1.0 };
        Change::Correct { undo: unseen.0 * unseen.1, by }
    }
}
