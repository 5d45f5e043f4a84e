//! A moment of sending less, by which the queue should become none: its length is known then, and
//! what stays although less was sent is another's.

use super::Controller;
use crate::ablation::Heuristic;
use crate::time::{Duration, Instant};

/// The queue is emptied so often, for the least delay to stay known, or in so many round trips.
pub(super) const EMPTY_EVERY: Duration = Duration::from_secs(5);
const EMPTY_TRIPS: u32 = 12;
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
    /// Whether it says whose the queue is.
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

impl Emptying {
    /// Begins, at the part `pace` of the rate, with a queue of so many seconds, of which so many
    /// may be this end's, on a path with a round trip of `trip` where a change is seen after `lag`
    /// seconds.
    pub(super) fn new(
        now: Instant,
        pace: f64,
        queue: (f64, f64),
        trip: Duration,
        lag: f64,
    ) -> Self {
        let (queue, own) = queue;
        let needs = (own / (1.0 - pace)).min(TIME_MAX);
        let time = needs.max(trip.as_secs_f64().min(TIME_TRIP));
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

    /// The part of the rate at which it is sent at `now`, if it still lasts.
    pub(super) fn pace(&self, now: Instant) -> Option<f64> {
        (now < self.until).then_some(self.pace)
    }

    /// The part of what the queue was to become shorter by that it did.
    pub(super) fn felt(&self) -> f64 {
        (self.before - self.least) / self.fall.max(1e-6)
    }

    /// Whether it says whose the queue is; else the queue just has to become none.
    pub(super) const fn tells(&self) -> bool {
        self.tells
    }

    /// The queue at the beginning, seconds.
    pub(super) const fn before(&self) -> f64 {
        self.before
    }

    /// The least since.
    pub(super) const fn least(&self) -> f64 {
        self.least
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

impl Controller {
    /// How long it is until the queue is emptied again.
    pub(super) fn empty_every(&self) -> Duration {
        EMPTY_EVERY.max(self.trip * EMPTY_TRIPS)
    }

    /// Sends less for a moment.
    pub(super) fn empty(&mut self, now: Instant, pace: f64) {
        if self.emptying.is_some() || self.ablation.is_off(Heuristic::Emptying) {
            return;
        }
        let lag = self.lag();
        // Where others hold a part of the queue, how much shorter it becomes says which.
        let queue = (self.queue.whole(), self.perhaps_own());
        let trip = if self.competes() { Duration::ZERO } else { self.trip };
        let emptying = Emptying::new(now, pace, queue, trip, lag);
        self.grows_at = self.grows_at.max(emptying.is_over_at(lag));
        self.emptying = Some(emptying);
        self.settles = 3;
        self.empties = Some(pace).filter(|_| self.is_doubtful());
    }

    /// Whether more waits than this end wants to wait: somebody else may make it do so.
    pub(super) fn is_doubtful(&self) -> bool {
        self.queue.whole() > DOUBTFUL * self.needed()
    }

    /// Whether a queue that others may fill is being emptied since the last feedback, and at which
    /// part of the rate: other paths that may lead through it do the same then, by
    /// [`Self::empty_beside`].
    pub(crate) fn takes_emptying(&mut self) -> Option<f64> {
        self.empties.take()
    }

    /// Other paths of this peer lead through the same queue, and are taken to carry so many bytes
    /// per second: all of them together want the queue that one would.
    pub(crate) const fn set_company(&mut self, bytes_per_second: f64) {
        self.company = bytes_per_second;
    }
}
