//! A moment of sending less, by which the queue should become none: its length is known then, and
//! what stays although less was sent is another's.

use crate::time::{Duration, Instant};

/// Part of the rate at which it is sent,
pub(super) const PACE: f64 = 0.8;
/// and where that was not felt: who fills a small part of a queue empties it little.
pub(super) const PACE_SURE: f64 = 0.5;
/// It is felt where the queue falls by this part of what it should.
const FELT: f64 = 0.3;
/// It lasts for a round trip, but no longer than this, seconds,
const TIME_TRIP: f64 = 0.050;
/// and until the queue should be empty, but no longer than this, seconds.
const TIME_MAX: f64 = 0.150;

/// The queue is being emptied, or it is waited for what that does. Queues in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Emptying {
    until: Instant,
    pace: f64,
    /// When its end has been seen.
    judged_at: Instant,
    before: f64,
    /// The least and the most since.
    least: f64,
    most: f64,
    /// By how much it should fall.
    fall: f64,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Outcome {
    /// The queue fell, or it changed by itself.
    Felt,
    /// It stayed as it was; to send still less may tell more.
    Doubtful,
    /// It stayed as it was, and is not this end's.
    Foreign,
}

impl Emptying {
    /// Begins, at the part `pace` of the rate, with a queue of `queue` seconds, on a path with a
    /// round trip of `trip` where a change is seen after `lag` seconds.
    pub(super) fn new(now: Instant, pace: f64, queue: f64, trip: Duration, lag: f64) -> Self {
        let needs = (queue / (1.0 - pace)).min(TIME_MAX);
        let time = needs.max(trip.as_secs_f64().min(TIME_TRIP));
        Self {
            until: now + Duration::from_secs_f64(time),
            pace,
            judged_at: now + Duration::from_secs_f64(time + lag),
            before: queue,
            least: queue,
            most: queue,
            fall: queue.min((1.0 - pace) * time),
        }
    }

    /// When the queue is again what it is without this.
    pub(super) fn is_over_at(&self, lag: f64) -> Instant {
        self.judged_at + Duration::from_secs_f64(lag)
    }

    /// The part of the rate at which it is sent at `now`, if it still lasts.
    pub(super) fn pace(&self, now: Instant) -> Option<f64> {
        (now < self.until).then_some(self.pace)
    }

    /// The queue is `queue` now. Returns what came of it, at its end.
    pub(super) fn watch(&mut self, now: Instant, queue: f64) -> Option<Outcome> {
        self.least = self.least.min(queue);
        self.most = self.most.max(queue);
        if now < self.judged_at {
            return None;
        }
        let felt = FELT * self.fall;
        if self.least <= self.before - felt || self.most >= self.before + felt {
            return Some(Outcome::Felt);
        }
        Some(if self.pace > PACE_SURE { Outcome::Doubtful } else { Outcome::Foreign })
    }
}
