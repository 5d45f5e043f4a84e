//! Trials: moments of sending less, by which the queue should become none. Then its length is
//! known, and what stays although less was sent is another sender's.
//!
//! Decides how long a trial lasts, what it tells, and when the next is due. Does not know what
//! follows from that.

use crate::time::{Duration, Instant};

/// The queue is emptied so often, for the least delay to stay known, or in so many round trips.
pub(super) const EVERY: (Duration, u32) = (Duration::from_secs(5), 12);
/// Whether a queue is this end's is tried no more often than this, or than in so many round trips.
const DOUBT_EVERY: (Duration, u32) = (Duration::from_secs(5), 20);
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

/// A queue is perhaps another's that is so many times as long as this end wants it to be.
pub(super) const DOUBTFUL: f64 = 1.5;

/// The trials of one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trials {
    /// One goes on, or its outcome is not known yet.
    pub(super) running: Option<Trial>,
    /// When the queue is emptied next.
    due: Instant,
    /// A queue that stays is not tried before.
    doubt_due: Instant,
}

impl Trials {
    /// The part of the rate at which is sent now, if less is sent.
    pub(super) fn pace(&self, now: Instant) -> Option<f64> {
        self.running.and_then(|trial| (now < trial.until).then_some(trial.pace))
    }

    /// The queue is `queue` now. Returns the trial that is over, and what came of it.
    pub(super) fn watch(&mut self, now: Instant, queue: f64) -> Option<(Trial, Outcome)> {
        let outcome = self.running.as_mut()?.watch(now, queue)?;
        self.running.take().map(|trial| (trial, outcome))
    }

    /// The next one is due at `at`.
    pub(super) const fn schedule(&mut self, at: Instant) {
        self.due = at;
    }

    /// Whether one is due, on a path with a round trip of `trip`. The next is due after a while.
    pub(super) fn is_due(&mut self, now: Instant, trip: Duration) -> bool {
        take(&mut self.due, now, EVERY, trip)
    }

    /// Whether a queue that stays may be tried. It may not be again for a while.
    pub(super) fn may_doubt(&mut self, now: Instant, trip: Duration) -> bool {
        take(&mut self.doubt_due, now, DOUBT_EVERY, trip)
    }

    /// Another path's trial stands for the next ones.
    pub(super) fn join(&mut self, now: Instant, trip: Duration) {
        (self.due, self.doubt_due) = (after(now, EVERY, trip), after(now, DOUBT_EVERY, trip));
    }
}

/// Whether it is time. Then it is again [`after`] a while.
fn take(due: &mut Instant, now: Instant, every: (Duration, u32), trip: Duration) -> bool {
    let is_due = now >= *due;
    if is_due {
        *due = after(now, every, trip);
    }
    is_due
}

/// So much time after `now`, or as many round trips, if that is longer.
pub(super) fn after(now: Instant, (time, trips): (Duration, u32), trip: Duration) -> Instant {
    now + time.max(trip * trips)
}

/// The queue is being emptied, or it is waited for what that does. Queues in seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Trial {
    until: Instant,
    pace: f64,
    /// When its end has been seen.
    judged_at: Instant,
    pub(super) before: f64,
    /// The least and the most since.
    pub(super) least: f64,
    most: f64,
    /// By how much it should fall.
    fall: f64,
    /// Whether it says whose the queue is. Otherwise the queue just has to become none.
    pub(super) tells: bool,
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

impl Trial {
    /// Begins, at the part `pace` of the rate, with a queue of so many seconds, of which so many
    /// may be this end's, on a path with a round trip of `rtt` where a change is seen after `lag`
    /// seconds.
    pub(super) fn new(now: Instant, pace: f64, queue: (f64, f64), rtt: Duration, lag: f64) -> Self {
        let (queue, own) = queue;
        let needs = (own / (1.0 - pace)).min(TIME_MAX);
        let time = needs.max(rtt.as_secs_f64().min(TIME_TRIP));
        Self {
            until: now + Duration::from_secs_f64(time),
            pace,
            judged_at: now + Duration::from_secs_f64(time + lag),
            before: queue,
            least: queue,
            most: queue,
            fall: own.min((1.0 - pace) * time),
            tells: true,
        }
    }

    /// One that says nothing, of a queue that may be longer than is known: it was not empty for so
    /// long that nobody knows its length.
    pub(super) fn of_unknown(now: Instant, queue: f64, lag: f64) -> Self {
        let most = (1.0 - PACE_SURE) * TIME_MAX;
        let new = Self::new(now, PACE_SURE, (queue, most), Duration::ZERO, lag);
        Self { fall: queue.min(most), tells: false, ..new }
    }

    /// When the queue is again what it is without this.
    pub(super) fn is_over_at(&self, lag: f64) -> Instant {
        self.judged_at + Duration::from_secs_f64(lag)
    }

    /// The part of what the queue was to become shorter by that it did.
    pub(super) fn felt(&self) -> f64 {
        (self.before - self.least) / self.fall.max(1e-6)
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
