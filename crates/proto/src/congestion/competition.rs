//! Beside somebody who fills the queue.
//!
//! Who wants a short queue takes little beside a sender that sends until the queue runs over: each
//! time that one grows, this one gives way. So where somebody else keeps the queue long, it is sent
//! as others do, by CUBIC's window, for as long as that one is there (Copa's competitive mode:
//! Arun and Balakrishnan, NSDI 2018, section 5; Nimbus: Goyal and others, SIGCOMM 2022).
//!
//! That somebody is there is found as whose the queue is, by sending less for a moment: who holds
//! all of the queue shortens it by all of that, who holds a part by that part. A way that became
//! longer is no queue, and does not become shorter either; but what others fill varies. While it is
//! sent by a window, the same tells that nobody else is there any more.
//!
//! Two senders of this kind would each take the other for one that fills the queue. They cannot
//! talk to each other, but both see the queue, and it falls whenever one of them gives way: so they
//! try a moment after it has fallen, and by that at one moment. If nobody else is there, it falls
//! for both as it would for one that is alone, and both send as one alone does. Who sends otherwise
//! takes no part in that. (Nimbus' senders follow one of them likewise, by its pulses.)

use super::cubic::Cubic;
use super::queue;
use super::trial::{self, Trial};
use crate::recovery::AckSample;
use crate::recovery::feedback::PACED_BYTES_MAX;
use crate::time::{Duration, Instant};

/// A trial tells something in a queue of at least so many seconds, and times what is wanted.
const TRIED: (f64, f64) = (0.003, 2.0);
/// Somebody else takes more than this end where less than this part of the expected is felt,
const LESSER: f64 = 0.5;
/// in so many trials,
const TRIALS: u8 = 3;
/// none of which is older than this when the next comes, which is
const TRIALS_OLD: Duration = Duration::from_secs(8);
/// so soon, or after so many round trips.
const TRIALS_EVERY: (Duration, u32) = (Duration::from_millis(500), 6);
/// A trial leaves this part of the greatest rate of late, if it is less now.
const RATE_KEPT: f64 = 0.9;
/// It begins with this part of that at least.
const ENTRY: f64 = 0.5;
/// And what stayed of the queue varied by so many seconds, and times what is wanted.
const VARIES: (f64, f64) = (0.004, 1.0);

/// The pace, times what the window makes of it: the window is what holds.
const PACE: f64 = 1.25;
/// Of the bytes after which feedback comes half have arrived already, on the average. Of
/// many paths each is slower, and told of sooner than that: all together have what one has.
const UNTOLD: f64 = PACED_BYTES_MAX as f64 / 2.0;
/// Datagrams that leave beyond the window on the average, since a whole one does as soon as there
/// is any room: of many paths, too, no more than of one.
const BEYOND: f64 = 0.5;
/// Weight of a round trip in their mean.
const TRIP_WEIGHT: f64 = 1.0 / 8.0;
/// Whether somebody else is still there is tried so often,
const OTHERS_TRIED_EVERY: Duration = Duration::from_secs(5);
/// and so soon where it seems that nobody is.
const TRIAL_AGAIN: Duration = Duration::from_secs(1);
/// In a queue of at least so many seconds,
const TRIAL_QUEUE: f64 = 0.008;
/// that becomes shorter by this part of what it would without anybody else,
const ALONE: f64 = 0.85;
/// so often in a row,
const ALONE_TRIALS: u8 = 3;
/// or by this part,
const NEARLY: f64 = 0.7;
/// so often in a row: then there is nobody else but one who gives way.
const NEARLY_TRIALS: u8 = 6;
/// Where the queue fell by so many seconds, and by this part,
const FALLS: (f64, f64) = (0.004, 0.12);
/// from the longest that it was in so long a time, and a round trip, it is tried
const FALLS_WITHIN: Duration = Duration::from_millis(250);
/// so long after, when who gave way has done so,
const FALLS_AFTER: Duration = Duration::from_millis(300);
/// but no sooner than this after the last trial began.
const FALLS_EVERY: Duration = Duration::from_secs(2);
/// Where nothing told for so long that somebody is there, nobody is.
const UNPROVED: Duration = Duration::from_secs(10);
/// Rounds in a row without a queue after which nobody else is there.
const ROUNDS: u8 = 8;

/// Perhaps somebody else fills the queue.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Suspicion {
    /// Trials that suggest it so far, the last of them, and the least and the most that stayed,
    /// seconds.
    pub(super) trials: u8,
    tried_at: Instant,
    stayed: Option<(f64, f64)>,
    /// The greatest rate of late, bytes per second: who gives way asks no more of the queue for it.
    rate: f64,
}

/// What a trial led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Suspected {
    Nobody,
    /// Perhaps somebody: another trial will tell.
    Perhaps {
        next_at: Instant,
    },
    Somebody,
}

impl Suspicion {
    /// A trial is over, on a path with a round trip of `trip` that carries `rate` together with
    /// those that share its queue. Datagrams have so many bytes, jitter is in seconds.
    pub(super) fn trial(
        &mut self,
        now: Instant,
        trial: &Trial,
        trip: Duration,
        rate: f64,
        (datagram, jitter): (f64, f64),
    ) -> Suspected {
        let is_fresh = now.saturating_since(self.tried_at) < TRIALS_OLD;
        let Self { mut trials, mut stayed, rate: before, .. } =
            if is_fresh { *self } else { Self::default() };
        let rate = rate.max(before * RATE_KEPT);
        let wanted = queue::wanted(datagram / rate.max(1.0), jitter, false);
        let at_least = |(seconds, times): (f64, f64)| (times * wanted).max(seconds);
        if trial.before < at_least(TRIED) {
            return Suspected::Nobody;
        }
        let (felt, least) = (trial.felt(), trial.least);
        if felt < LESSER {
            trials = trials.saturating_add(1);
            let (low, high) = stayed.unwrap_or((least, least));
            stayed = Some((low.min(least), high.max(least)));
        } else if felt >= ALONE {
            trials = trials.saturating_sub(1);
        }
        *self = Self { trials, tried_at: now, stayed, rate };
        let varies = stayed.is_some_and(|(low, high)| high - low > at_least(VARIES));
        if trials >= TRIALS && varies {
            Suspected::Somebody
        } else if trials < 2 * TRIALS && felt < ALONE {
            Suspected::Perhaps { next_at: trial::after(now, TRIALS_EVERY, trip) }
        } else {
            Suspected::Nobody
        }
    }
}

/// Somebody else does: the path is sent on by a window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Competition {
    cubic: Cubic,
    /// Mean round trip, with all that waits, seconds.
    trip: f64,
    /// The least that waited since, seconds: the way may have become longer.
    floor: f64,
    told_at: Instant,
    /// What had arrived when something was lost last.
    recovers: u64,
    trial_at: Instant,
    /// When the last one began.
    tried_at: Instant,
    /// The longest queue of late, seconds, and when it was.
    longest: (f64, Instant),
    /// When a trial told last that somebody else is there.
    proved_at: Instant,
    /// Trials in a row in which nobody else seemed to be there,
    alone: u8,
    /// or nobody who takes much.
    nearly: u8,
    /// Rounds in a row without a queue.
    empty: u8,
}

impl Competition {
    /// It begins on a path that carries `rate`, a part of what those that lead through its queue
    /// do, with a round trip of `trip` seconds without the queue of `queue` seconds. If that gave
    /// way for long, it begins with half of what it had, as after one loss.
    pub(super) fn new(
        now: Instant,
        (rate, suspicion): (f64, Suspicion),
        (trip, queue): (f64, f64),
        arrived: u64,
        (datagram, part): (f64, f64),
    ) -> Self {
        let trip = trip + queue;
        let rate = rate.max(ENTRY * suspicion.rate * part);
        Self {
            cubic: Cubic::new(now, rate * trip / datagram),
            trip,
            floor: queue,
            told_at: now,
            recovers: arrived,
            trial_at: now + OTHERS_TRIED_EVERY,
            tried_at: now,
            longest: (queue, now),
            proved_at: now,
            alone: 0,
            nearly: 0,
            empty: 0,
        }
    }

    /// The part of a queue that this sender may have caused, in seconds.
    pub(super) fn own(&self, queue: f64) -> f64 {
        (queue - self.floor).max(0.0)
    }

    /// Bytes that may be in flight, in datagrams of so many, by what is such a part of all that
    /// lead through the queue.
    pub(super) fn window(&self, datagram: f64, part: f64) -> f64 {
        (self.cubic.window() - BEYOND * (1.0 - part)) * datagram + UNTOLD * part
    }

    /// Bytes per second that leave.
    pub(super) fn pace(&self, datagram: f64) -> f64 {
        PACE * self.rate(datagram)
    }

    /// Bytes per second that it carries.
    pub(super) fn rate(&self, datagram: f64) -> f64 {
        self.cubic.window() * datagram / self.trip.max(1e-4)
    }

    /// Feedback came, and the queue is `queue` seconds long. Whether there was not always something
    /// to send, and whether less is sent now for a trial.
    #[expect(clippy::cast_precision_loss, reason = "less than 2^52 bytes are in flight")]
    pub(super) fn feedback(
        &mut self,
        now: Instant,
        sample: &AckSample,
        queue: f64,
        (datagram, part): (f64, f64),
        (is_limited, pauses): (bool, bool),
    ) {
        let since = now.saturating_since(self.told_at);
        self.told_at = now;
        if let Some(trip) = sample.trip {
            self.trip += (trip.as_secs_f64() - self.trip) * TRIP_WEIGHT;
        }
        let in_flight = sample.in_flight_before() as f64;
        let is_full = in_flight + 2.0 * datagram >= self.window(datagram, part);
        if sample.lost > 0 {
            // What left before that is of the same moment as the last loss.
            if sample.rate.is_some_and(|rate| rate.prior_delivered >= self.recovers) {
                self.recovers = sample.arrived;
                self.cubic.lost(now, part);
            }
        } else if !pauses && (is_full || !is_limited) {
            let trip = Duration::from_secs_f64(self.trip);
            self.cubic.arrived(now, sample.delivered as f64 / datagram, trip, part);
        } else {
            self.cubic.paused(since);
        }
        self.floor = self.floor.min(queue);
    }

    /// Whether a trial is to begin that tells whether somebody else is still there. The queue is
    /// `queue` seconds long; while a trial is running, it says nothing.
    pub(super) fn is_due(&mut self, now: Instant, queue: f64, is_tried: bool) -> bool {
        if is_tried {
            self.longest = (queue, now);
            return false;
        }
        self.watch_fall(now, queue);
        now >= self.trial_at && self.tries(now, queue)
    }

    /// The queue is `queue` seconds long now. If it falls, all that lead through it see that, and
    /// may try at one moment.
    fn watch_fall(&mut self, now: Instant, queue: f64) {
        let (longest, at) = self.longest;
        let within = FALLS_WITHIN + Duration::from_secs_f64(self.trip);
        if queue >= longest || now.saturating_since(at) > within {
            self.longest = (queue, now);
        } else if longest - queue > FALLS.0.max(FALLS.1 * longest)
            && now + FALLS_AFTER >= self.tried_at + FALLS_EVERY
        {
            self.trial_at = self.trial_at.min(now + FALLS_AFTER);
        }
    }

    /// Whether the queue is long enough for a trial. If so, the next is not due soon.
    pub(super) fn tries(&mut self, now: Instant, queue: f64) -> bool {
        let is_long = self.own(queue) > TRIAL_QUEUE;
        if is_long {
            (self.trial_at, self.tried_at) = (now + OTHERS_TRIED_EVERY, now);
        }
        is_long
    }

    /// A round is over, with a queue of `queue` seconds and a target of `target`. Returns whether
    /// nobody else is there.
    pub(super) fn end_round(&mut self, now: Instant, queue: f64, target: f64) -> bool {
        let is_empty = queue < target / 2.0;
        self.empty = if is_empty { self.empty.saturating_add(1) } else { 0 };
        now.saturating_since(self.proved_at) > UNPROVED || self.empty >= ROUNDS
    }

    /// A trial is over, of which the part `felt` was felt. Returns whether nobody else is there.
    pub(super) fn trial(&mut self, now: Instant, felt: f64) -> bool {
        if felt < ALONE {
            self.proved_at = now;
        }
        self.nearly = if felt < NEARLY { 0 } else { self.nearly + 1 };
        self.alone = if felt < ALONE { 0 } else { self.alone + 1 };
        if felt >= ALONE {
            self.trial_at = now.max(self.tried_at + TRIAL_AGAIN);
        } else if felt >= NEARLY {
            self.trial_at = now.max(self.tried_at + FALLS_EVERY);
        }
        self.alone >= ALONE_TRIALS || self.nearly >= NEARLY_TRIALS
    }
}

#[cfg(test)]
#[path = "competition_tests.rs"]
mod tests;
