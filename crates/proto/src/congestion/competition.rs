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
use super::emptying::{Emptying, Outcome, PACE_SURE};
use super::queue::QUEUE;
use super::{Controller, Phase, TRIAL_EVERY};
use crate::ablation::Heuristic;
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
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Suspicion {
    /// Trials so far, the last of them, and the least and the most that stayed, seconds.
    pub(super) trials: u8,
    tried_at: Instant,
    stayed: (f64, f64),
    /// The greatest rate of late, bytes per second: who gives way asks no more of the queue for it.
    rate: f64,
}

/// Somebody else does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Competition {
    cubic: Cubic,
    /// Mean round trip, with all that waits, seconds.
    trip: f64,
    /// The least that waited since, seconds: the way may have become longer.
    pub(super) floor: f64,
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
    /// Bytes that may be on their way, in datagrams of so many, by what is such a part of all that
    /// lead through the queue.
    pub(super) fn window(&self, datagram: f64, part: f64) -> f64 {
        (self.cubic.window() - BEYOND * (1.0 - part)) * datagram + UNTOLD * part
    }

    /// Bytes per second that leave.
    pub(super) fn pace(&self, datagram: f64) -> f64 {
        PACE * self.rate(datagram)
    }

    /// With every feedback: the queue is `queue` seconds long now. If it falls, all that lead
    /// through it see that, and may try at one moment.
    fn watch_fall(&mut self, now: Instant, queue: f64, trip: Duration) {
        let (longest, at) = self.longest;
        if queue >= longest || now.saturating_since(at) > FALLS_WITHIN + trip {
            self.longest = (queue, now);
        } else if longest - queue > FALLS.0.max(FALLS.1 * longest)
            && now + FALLS_AFTER >= self.tried_at + FALLS_EVERY
        {
            self.trial_at = self.trial_at.min(now + FALLS_AFTER);
        }
    }

    fn rate(&self, datagram: f64) -> f64 {
        self.cubic.window() * datagram / self.trip.max(1e-4)
    }
}

impl Controller {
    /// It was sent less for a moment; what stays of the queue is perhaps another's.
    pub(super) fn suspect(&mut self, now: Instant, emptying: &Emptying) {
        if self.ablation.is_off(Heuristic::Competition) {
            return;
        }
        let before = self.suspicion.filter(|it| now.saturating_since(it.tried_at) < TRIALS_OLD);
        let rate = (self.rate + self.company).max(before.map_or(0.0, |it| it.rate * RATE_KEPT));
        if emptying.before() < self.at_least(TRIED, rate) || self.round.is_limited {
            return;
        }
        let (trials, stayed) =
            before.map_or((0, (f64::INFINITY, 0.0)), |it| (it.trials, it.stayed));
        let least = emptying.least();
        let (trials, stayed) = match emptying.felt() {
            felt if felt < LESSER => {
                (trials.saturating_add(1), (stayed.0.min(least), stayed.1.max(least)))
            }
            felt if felt < ALONE => (trials, stayed),
            _ => (trials.saturating_sub(1), stayed),
        };
        self.suspicion = Some(Suspicion { trials, tried_at: now, stayed, rate });
        if trials >= TRIALS && stayed.1 - stayed.0 > self.at_least(VARIES, rate) {
            self.compete(now, self.queue.whole());
        } else if trials < 2 * TRIALS && emptying.felt() < ALONE {
            self.empties_at = now + TRIALS_EVERY.0.max(self.trip * TRIALS_EVERY.1);
        }
    }

    /// The part of this path of all that lead through its queue.
    pub(super) fn part(&self) -> f64 {
        self.rate / (self.rate + self.company).max(1.0)
    }

    /// So many seconds and no less than so many times what is wanted to wait at this rate.
    fn at_least(&self, (seconds, times): (f64, f64), rate: f64) -> f64 {
        let wanted = QUEUE.0 + QUEUE.1 * self.datagram / rate.max(1.0) + 2.0 * self.queue.jitter();
        seconds.max(times * wanted)
    }

    /// Nothing is known of anybody else who fills the queue.
    pub(crate) const fn forget_others(&mut self) {
        self.suspicion = None;
    }

    /// From now on it is sent by a window.
    fn compete(&mut self, now: Instant, queue: f64) {
        let trip = self.trip.as_secs_f64() + queue;
        // Who gave way for long begins with half of what it had, as after one loss.
        let most = self.suspicion.map_or(0.0, |it| it.rate);
        let rate = self.rate.max(ENTRY * most * self.part());
        self.suspicion = None;
        self.phase = Phase::Competes(Competition {
            cubic: Cubic::new(now, rate * trip / self.datagram),
            trip,
            floor: queue,
            told_at: now,
            recovers: self.arrived,
            trial_at: now + OTHERS_TRIED_EVERY,
            tried_at: now,
            longest: (queue, now),
            proved_at: now,
            alone: 0,
            nearly: 0,
            empty: 0,
        });
    }

    /// Nobody else is there: what waits is this end's.
    fn end_competition(&mut self, now: Instant) {
        self.phase = Phase::Steady;
        self.queue.own();
        let lag = self.lag();
        self.emptying = Some(Emptying::of_unknown(now, self.queue.whole(), lag));
        self.suspicion = None;
        self.rate = self.round.arrived().unwrap_or(self.rate).min(self.rate);
        self.growth = self.growth_first();
        self.unseen = (1.0, 1.0);
        self.settles = 3;
        self.grows_at = now + super::seconds(2.0 * lag);
        self.queue_before = self.queue.least();
    }

    /// Whether it is sent by a window, and the queue is long enough to try whether somebody else is
    /// still there; if so that is not due again soon.
    pub(super) fn tries_others(&mut self, now: Instant) -> bool {
        let is_long = self.perhaps_own() > TRIAL_QUEUE;
        let Phase::Competes(competition) = &mut self.phase else { return false };
        if is_long {
            (competition.trial_at, competition.tried_at) = (now + OTHERS_TRIED_EVERY, now);
        }
        is_long
    }

    /// With every feedback, before which so many bytes were on their way.
    #[expect(clippy::cast_precision_loss, reason = "less than 2^52 bytes are on their way")]
    pub(super) fn heed_others(&mut self, now: Instant, told: &AckSample, was_in_flight: u64) {
        let queue = self.queue.whole();
        let pauses = self.emptying.is_some_and(|emptying| emptying.pace(now).is_some());
        let (datagram, part, is_limited) = (self.datagram, self.part(), self.round.is_limited);
        let Phase::Competes(competition) = &mut self.phase else { return };
        let since = now.saturating_since(competition.told_at);
        competition.told_at = now;
        if let Some(trip) = told.trip {
            competition.trip += (trip.as_secs_f64() - competition.trip) * TRIP_WEIGHT;
        }
        let trip = super::seconds(competition.trip);
        let is_full = was_in_flight as f64 + 2.0 * datagram >= competition.window(datagram, part);
        if told.lost > 0 {
            // What left before that is of the same moment as the last loss.
            if told.rate.is_some_and(|rate| rate.prior_delivered >= competition.recovers) {
                competition.recovers = told.arrived;
                competition.cubic.lost(now, part);
            }
        } else if !pauses && (is_full || !is_limited) {
            competition.cubic.arrived(now, told.delivered as f64 / datagram, trip, part);
        } else {
            competition.cubic.paused(since);
        }
        self.rate = competition.rate(datagram);
        competition.floor = competition.floor.min(queue);
        if self.emptying.is_none() {
            competition.watch_fall(now, queue, trip);
        } else {
            competition.longest = (queue, now);
        }
        let is_due = now >= competition.trial_at && self.emptying.is_none();
        if is_due && self.tries_others(now) {
            self.empty(now, PACE_SURE);
        }
    }

    /// At the end of a round in which it was sent by a window.
    pub(super) fn watch_others(&mut self, now: Instant) {
        let (queue, target) = (self.queue.whole(), self.target());
        if let Some(arrived) = self.round.arrived() {
            self.arrives = arrived / (1.0 - self.round.loss());
        }
        let Phase::Competes(competition) = &mut self.phase else { return };
        let is_empty = queue < target / 2.0;
        competition.empty = if is_empty { competition.empty.saturating_add(1) } else { 0 };
        let is_unproved = now.saturating_since(competition.proved_at) > UNPROVED;
        if is_unproved || competition.empty >= ROUNDS {
            self.end_competition(now);
        }
    }

    /// It was sent less for a moment, and that is what came of it.
    pub(super) fn judge_competition(&mut self, now: Instant, emptying: &Emptying) {
        let (felt, is_limited) = (emptying.felt(), self.round.is_limited);
        let Phase::Competes(competition) = &mut self.phase else { return };
        if is_limited {
            return; // What fell is not what was held back.
        }
        if felt < ALONE {
            competition.proved_at = now;
        }
        competition.nearly = if felt < NEARLY { 0 } else { competition.nearly + 1 };
        competition.alone = if felt < ALONE { 0 } else { competition.alone + 1 };
        if felt >= ALONE {
            competition.trial_at = now.max(competition.tried_at + TRIAL_AGAIN);
        } else if felt >= NEARLY {
            competition.trial_at = now.max(competition.tried_at + FALLS_EVERY);
        }
        if competition.alone >= ALONE_TRIALS || competition.nearly >= NEARLY_TRIALS {
            self.end_competition(now);
        }
    }

    /// Whether the queue became shorter when less was sent.
    pub(super) fn judge_emptying(&mut self, now: Instant) {
        let queue = self.queue.whole();
        let Some(outcome) = self.emptying.as_mut().and_then(|e| e.watch(now, queue)) else {
            return;
        };
        let Some(emptying) = self.emptying.take() else { return };
        if self.competes() {
            return self.judge_competition(now, &emptying);
        }
        if !emptying.tells {
            return;
        }
        self.suspect(now, &emptying);
        if self.competes() {
            return;
        }
        match outcome {
            Outcome::Felt => {}
            Outcome::Doubtful => self.empty(now, PACE_SURE),
            Outcome::Foreign => {
                self.note_others(now);
                self.queue.disown();
            }
        }
    }

    /// Empties this path's queue while another path empties its own, at this part of the rate. If
    /// both are one queue, the result tells how much of it all paths of the peer hold together.
    pub(crate) fn empty_beside(&mut self, now: Instant, pace: f64) {
        if self.tries_others(now) {
            self.empty(now, pace);
            self.empties = None;
        } else if self.phase == Phase::Steady && !self.round.is_limited && self.is_doubtful() {
            self.empties_at = now + self.empty_every();
            self.tries_at = now + TRIAL_EVERY.max(self.trip * 20);
            self.empty(now, pace);
            self.empties = None;
        }
    }
}

#[cfg(test)]
#[path = "competition_tests.rs"]
mod tests;
