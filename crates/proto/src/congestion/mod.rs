//! How fast a path is sent on: as fast as it carries, with hardly anything waiting on it.
//!
//! Two things are measured: what arrives, by the receiver's clock, and how long it waited on its
//! way. A sender that is faster than the path makes a queue, one that is slower makes none, so
//! the rate is what keeps a short queue standing: the pace follows the queue's distance from its
//! target, divided by the time after which a change is seen, and the rate follows the pace slowly
//! (a PI controller of an integrator with dead time). Where there is no queue at all the rate
//! grows, by more each round trip; where the queue stands and less arrives than leaves, what
//! arrives is the rate. A new path is found as BBR does (draft-ietf-ccwg-bbr, Startup).
//!
//! Loss alone says little: a radio loses datagrams at any rate. So when much is lost, it is sent
//! less for a moment. If that helps, the path has a ceiling without a queue, and the lower rate
//! stays; if it does not, the path just loses so much.
//!
//! Several paths of a session may lead through one queue that others fill as well. They are to take
//! there together what one would (RFC 6356, section 3): so they find out together whose it is, and
//! want the queue that one would want (docs/decisions/0028-paths-through-one-queue.md).
//!
//! Decides when the next datagram may leave and how much may be on its way. Knows nothing of
//! single datagrams, of their numbers or of what waits to be sent.

mod ceiling;
mod competition;
mod cubic;
mod emptying;
mod estimate;
mod fast;
mod guess;
mod late;
#[cfg(test)]
mod model;
mod pace;
mod policed;
mod queue;
mod round;
pub mod status;
mod variation;

use crate::ablation::{Ablation, Heuristic};
use crate::recovery::{AckSample, RateSample};
use crate::time::{Duration, Instant};
use ceiling::Ceiling;
use competition::{Competition, Suspicion};
use emptying::Emptying;
use fast::Fast;
use late::{CREDIT_LATE, Late};
use policed::Policed;
use queue::Queue;
use round::Round;
use variation::Variation;

/// Bytes of a datagram before any was sent.
const DATAGRAM: f64 = 1_400.0;
/// Datagrams that may leave before anything is known (RFC 6928).
const WINDOW_FIRST: f64 = 10.0;
/// Bytes on their way beyond what the path holds: feedback comes after 11,000 of them, and one
/// may get lost.
const WINDOW_SLACK: f64 = 36_000.0;
/// The window is so many times what the path holds; more is never on its way without feedback.
const WINDOW_GAIN: f64 = 2.0;
/// The same, and the pace, on a new path: 4 ln 2, which doubles what is known in each round trip.
const STARTUP_GAIN: f64 = 2.77;
/// A round trip in which the rate of a new path grows by less than this ...
const STARTUP_GROWTH: f64 = 1.25;
/// ... so often means that it has been found.
const STARTUP_ROUNDS: u8 = 3;
/// If the loss in a round without growth exceeds this (`BBRLossThresh`: draft-ietf-ccwg-bbr, 2.7)
const STARTUP_LOSS: f64 = 0.02;
/// and so many feedbacks report losses (`BBRStartupFullLossCnt`), the rate is found at once.
const STARTUP_LOSSES: u32 = 6;
/// If this part is lost, feedbacks of several rounds in a row count together: where little arrives,
/// a round has few.
const STARTUP_LOSS_HEAVY: f64 = 0.5;
/// A queue of half a round trip on a new path is one, but of no less and no more seconds than
/// these.
const STARTUP_QUEUE: (f64, f64) = (0.008, 0.040);
/// What a path carried counts only in this part if a beginning with it found nothing.
const DOUBTED: f64 = 0.5;
/// Round trip that is assumed where none was measured.
const TRIP: Duration = Duration::from_millis(100);
/// The least round trip is that of this long a time, or of twice as long.
const TRIP_FRESH: Duration = Duration::from_secs(10);
/// And the rate, in each round.
const RATE_GAIN: f64 = 0.1;
/// The growth of the rate becomes so much larger in each round.
const GROWTH_GROWTH: f64 = 1.5;
/// Where less than this part of what leaves arrives in the same time, it is too much.
const CUT: f64 = 0.95;
/// The same, but it is not waited for a whole round.
const CUT_SUDDEN: f64 = 0.5;
/// It is not sent at more than this multiple of what arrives.
const BEYOND: f64 = 2.0;
/// Whether a queue is this end's is tried no more often than this, or than in 20 round trips.
const TRIAL_EVERY: Duration = Duration::from_secs(5);
/// A path by which nothing left for so long is not what it was.
const IDLE: Duration = Duration::from_secs(10);
/// How long the queue stays short after a realtime packet.
const CALM: Duration = Duration::from_millis(500);
/// So late something may leave and still count as on time: timers have a grain.
pub const CREDIT: Duration = Duration::from_millis(1);
/// What leaves regardless of the pace holds up the rest for no longer than this.
const DEBT: Duration = Duration::from_millis(250);
/// The rate, bytes per second: 64 kbit/s to 100 Gbit/s.
const RATE_RANGE: (f64, f64) = (8_000.0, 12.5e9);

/// The congestion controller of one path, for what this end sends.
#[derive(Clone, Debug)]
pub struct Controller {
    phase: Phase,
    /// What the path is taken to carry, bytes per second; on a new path what it proved to carry.
    rate: f64,
    /// Bytes per second at which it is sent.
    pace: f64,
    /// When the next datagram may leave.
    next_at: Instant,
    sent_at: Option<Instant>,
    told_at: Instant,
    /// Bytes of the largest datagram so far.
    datagram: f64,
    /// Least round trip of late, and of the time since the instant.
    trip: Duration,
    trip_of_late: (Instant, Option<Duration>),
    queue: Queue,
    ceiling: Ceiling,
    policed: Policed,
    arrived: u64,
    round: Round,
    /// By what part the rate grows in the next round without a queue, and not before when.
    growth: f64,
    grows_at: Instant,
    /// By what factors it grew in the last two rounds, which cannot be seen in the queue yet.
    unseen: (f64, f64),
    /// Rounds until a changed rate is seen in the queue.
    settles: u8,
    /// The queue at the end of the last round, seconds.
    queue_before: f64,
    /// What left the queue in the last round, bytes per second; without bound if not known.
    arrives: f64,
    /// The queue is being emptied, or that is being judged.
    emptying: Option<Emptying>,
    /// It began to be with the last feedback, at this part of the rate.
    empties: Option<f64>,
    /// When it is emptied next.
    empties_at: Instant,
    /// And not earlier for being stubborn.
    tries_at: Instant,
    /// Something that is of no use late shares the path until then.
    calm_until: Instant,
    late: Late,
    /// What other paths of this peer that lead through the same queue are taken to carry, bytes
    /// per second.
    company: f64,
    /// Perhaps others fill the queue.
    suspicion: Option<Suspicion>,
    /// What a path before it carried, bytes per second: perhaps this one does as well.
    guess: Option<f64>,
    variation: Variation,
    fast: Fast,
    ablation: Ablation,
}

/// How much is known of the path.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// New, or not used for long. The rate proved so far, before this round; rounds since it grew;
    /// feedbacks with losses in the rounds in a row that lost much; what it carried before, if that
    /// is known; the rate at which it begins at least.
    Startup { best: f64, flat: u8, losses: u32, known: Option<f64>, first: f64 },
    /// Its queue is long from having sent too much; in so many rounds its rate shows fully.
    Drain { rounds: u8 },
    /// Its rate is known.
    Steady,
    /// Others fill its queue.
    Competes(Competition),
}

impl Controller {
    /// The controller of a path on which nothing was sent; `trip` is its round trip, if known.
    pub fn new(now: Instant, trip: Option<Duration>) -> Self {
        let mut new = Self {
            phase: Phase::Startup { best: 0.0, flat: 0, losses: 0, known: None, first: 0.0 },
            rate: 0.0,
            pace: 0.0,
            next_at: now,
            sent_at: None,
            told_at: now,
            datagram: DATAGRAM,
            trip: trip.unwrap_or(TRIP),
            trip_of_late: (now, trip),
            queue: Queue::default(),
            ceiling: Ceiling::default(),
            policed: Policed::default(),
            arrived: 0,
            round: Round::new(now, RATE_RANGE.1),
            growth: 0.0,
            unseen: (1.0, 1.0),
            settles: 0,
            queue_before: 0.0,
            grows_at: now,
            arrives: f64::INFINITY,
            emptying: None,
            empties: None,
            empties_at: now,
            tries_at: now,
            calm_until: now,
            late: Late::default(),
            company: 0.0,
            suspicion: None,
            guess: None,
            variation: Variation::default(),
            fast: Fast::default(),
            ablation: Ablation::default(),
        };
        new.set_pace();
        new
    }

    /// Goes without these heuristics from now on.
    pub const fn leave_out(&mut self, ablation: Ablation) {
        self.ablation = ablation;
    }

    /// `bytes` leave now, paced or not.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a datagram")]
    pub fn sent(&mut self, now: Instant, bytes: usize) {
        if self.sent_at.is_some_and(|at| now.saturating_since(at) >= IDLE) {
            self.restart(now, false);
        }
        self.sent_at = Some(now);
        self.datagram = self.datagram.max(bytes as f64);
        let credit = (CREDIT + self.late_bounded().min(CREDIT_LATE))
            .as_secs_f64()
            .max(self.datagram / self.pace);
        let from = self.next_at.max(now - seconds(credit));
        self.next_at = (from + seconds(bytes as f64 / self.pace)).min(now + DEBT);
    }

    /// When the next datagram may leave; a moment of the past while the pace is not used up.
    pub const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Bytes that the window has room for while `in_flight` are on their way; as soon as there is
    /// any, a whole datagram may leave.
    #[expect(clippy::cast_precision_loss, reason = "less than 2^52 bytes are on their way")]
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    #[expect(clippy::cast_sign_loss, reason = "the window is larger")]
    pub fn room(&self, in_flight: u64) -> u64 {
        (self.window() - in_flight as f64).max(0.0).ceil() as u64
    }

    /// Whether another datagram may leave while `in_flight` bytes are on their way.
    #[expect(clippy::cast_precision_loss, reason = "less than 2^52 bytes are on their way")]
    pub fn allows(&self, in_flight: u64) -> bool {
        (in_flight as f64) < self.window()
    }

    /// There is nothing to send although more could be, with `in_flight` bytes on their way.
    pub fn limited(&mut self, in_flight: u64) {
        self.round.is_limited |= self.allows(in_flight);
    }

    /// Something that is of no use late leaves by the path: for a while the queue is as short as it
    /// can be without the path being idle for long.
    pub fn keep_calm(&mut self, now: Instant) {
        if !self.ablation.is_off(Heuristic::Calm) {
            self.calm_until = now + CALM;
        }
    }

    /// The peer tells what arrived.
    pub fn told(&mut self, now: Instant, told: &AckSample) {
        self.arrived = told.arrived;
        self.round.add(told);
        let was_in_flight = told.in_flight.saturating_add(told.delivered).saturating_add(told.lost);
        self.round.is_full |= !self.allows(was_in_flight);
        if let Some(trip) = told.trip {
            self.note_trip(now, trip);
        }
        let beyond = told.trip.map(|trip| trip.saturating_sub(self.trip));
        if let Some(queue) = told.queue.or(beyond) {
            self.queue.sample(now, queue.as_secs_f64(), self.trip);
            if told.lost > 0 {
                self.policed.lost(queue.as_secs_f64());
            }
        }
        if let Some(rate) = &told.rate {
            self.note_rate(now, rate);
        }
        self.told_at = now;
        self.judge_emptying(now);
        self.heed_others(now, told, was_in_flight);
        self.follow(now);
        self.heed_fast(now);
        self.set_pace();
    }

    /// Nothing was told for so long that all that is on its way counts as lost, or the path comes
    /// back after a silence: it begins with a round trip of what it carried, no more than was on
    /// its way when it fell silent, and goes on as a new path does.
    pub fn lost_all(&mut self, now: Instant) {
        self.restart(now, true);
        self.next_at = now;
    }

    /// Bytes per second at which it is sent now.
    pub const fn pacing_rate(&self) -> f64 {
        self.pace
    }

    /// Begins anew, up to what the path carried; `at_once` with all of that. Where it was not found
    /// again since that was done last, it was perhaps too much: half of it is left.
    fn restart(&mut self, now: Instant, at_once: bool) {
        let known = match self.phase {
            Phase::Startup { known, .. } if at_once => known.map(|known| known * DOUBTED),
            Phase::Startup { known, .. } => known, // what was sent since perhaps says little
            Phase::Drain { .. } | Phase::Steady | Phase::Competes(_) => Some(self.rate),
        };
        let known = known.map(|rate| rate.max(RATE_RANGE.0));
        // What a new path proved to carry does not bound what it is tried with.
        let first = if at_once { known.unwrap_or(self.rate) } else { 0.0 };
        self.phase = Phase::Startup { best: 0.0, flat: 0, losses: 0, known, first };
        self.rate = 0.0;
        self.queue = Queue::default();
        self.fast.forget();
        self.emptying = None;
        self.suspicion = None;
        self.guess = None;
        self.ceiling.forget();
        self.round = self.round.next(now, self.arrived, RATE_RANGE.1);
        self.set_pace();
    }

    fn note_trip(&mut self, now: Instant, trip: Duration) {
        let (since, least) = &mut self.trip_of_late;
        let is_over = now.saturating_since(*since) >= TRIP_FRESH;
        let before = least.replace(least.map_or(trip, |least| least.min(trip)));
        if is_over {
            self.trip = before.unwrap_or(trip).min(trip);
            self.trip_of_late = (now, Some(trip));
        } else if before.is_none() {
            self.trip = trip;
        } else {
            self.trip = self.trip.min(trip);
        }
    }

    fn note_rate(&mut self, now: Instant, sample: &RateSample) {
        // `max` also makes a number of what is none.
        let rate = sample.bytes_per_second.max(RATE_RANGE.0).min(RATE_RANGE.1);
        let left = sample.left_per_second.max(rate).min(RATE_RANGE.1);
        if let Phase::Startup { .. } = self.phase {
            self.rate = self.rate.max(rate);
        }
        let is_over = self.round.sample(now, sample, (rate, left));
        if !sample.is_limited && self.is_sudden(now, rate, left) {
            self.cut(rate / (1.0 - self.round.loss()));
            self.queue_before = self.queue.least();
            self.round = self.round.next(now, self.arrived, self.rate);
        } else if is_over {
            self.end_round(now);
            self.round = self.round.next(now, self.arrived, self.pace);
        }
    }

    fn end_round(&mut self, now: Instant) {
        match self.phase {
            Phase::Startup { best, flat, losses, known, first } => {
                let has_grown = self.rate >= best * STARTUP_GROWTH;
                let flat = if has_grown || self.round.is_limited { 0 } else { flat + 1 };
                let best = if has_grown { self.rate } else { best };
                let is_heavy = self.round.loss() > STARTUP_LOSS_HEAVY;
                let losses = if is_heavy { losses + self.round.feedbacks.1 } else { 0 };
                self.phase = Phase::Startup { best, flat, losses, known, first };
                // A sender may have too little for a whole round and still overrun the path with
                // each of its bursts: they leave at a multiple of the rate.
                let is_overrun = !has_grown
                    && self.round.loss() > STARTUP_LOSS
                    && self.round.feedbacks.1 >= STARTUP_LOSSES;
                if flat >= STARTUP_ROUNDS || is_overrun {
                    self.found(now, self.with_usual_loss(self.rate / (1.0 - self.round.loss())));
                } else if self.round.is_limited && !has_grown && losses >= STARTUP_LOSSES {
                    let arrived = self.round.delivered_per_second(now);
                    let rate = self.ceiling.doubt_start(self.round.loss(), arrived);
                    self.found(now, rate);
                }
            }
            Phase::Drain { rounds } => {
                if !self.ceiling.tries() {
                    let left = self.round.rate_most / (1.0 - self.round.loss());
                    self.rate = self.rate.max(self.with_usual_loss(left));
                }
                self.queue_before = self.queue.least();
                let is_over = rounds <= 1 || self.queue.least() <= self.target();
                self.phase =
                    if is_over { Phase::Steady } else { Phase::Drain { rounds: rounds - 1 } };
            }
            Phase::Steady => self.adapt(now),
            Phase::Competes(_) => self.watch_others(now),
        }
    }

    /// Once per round of a path whose rate is known.
    fn adapt(&mut self, now: Instant) {
        let arrived = self.round.arrived();
        if let Some(arrived) = arrived.filter(|_| !self.ceiling.tries()) {
            self.rate = self.rate.max(arrived);
        }
        self.arrives = arrived.map_or(f64::INFINITY, |arrived| arrived / (1.0 - self.round.loss()));
        self.note_variation(now, arrived.map(|_| self.arrives));
        self.follow_queue(now);
        if self.queue.is_stubborn(emptying::DOUBTFUL * self.target())
            && now >= self.tries_at
            && arrived.is_some()
        {
            self.tries_at = now + TRIAL_EVERY.max(self.trip * 20);
            self.empty(now, emptying::PACE);
        }
        self.heed_ceiling(now, arrived);
        self.grows_at = self.grows_at.max(self.ceiling.holds_until());
        let most = arrived.map_or(RATE_RANGE.1, |arrived| arrived * BEYOND);
        if self.round.pace_least() > most {
            self.rate = self.rate.min(most);
        }
        self.rate = self.rate.clamp(RATE_RANGE.0, RATE_RANGE.1);
    }

    /// The rate is what keeps the queue at its target.
    fn follow_queue(&mut self, now: Instant) {
        let (queue, target) = (self.queue.least(), self.target());
        let before = std::mem::replace(&mut self.queue_before, queue);
        let unseen = self.unseen;
        self.unseen = (1.0, unseen.0);
        let kept = self.round.kept();
        if kept < CUT && queue > 2.0 * target && grows(queue - before, kept, self.round.age(now)) {
            self.cut(self.arrives);
        } else if queue < target / 2.0 {
            let tells = !self.round.is_limited && !self.round.is_full;
            if tells && now >= self.grows_at && !self.ceiling.tries() {
                self.rate *= 1.0 + self.growth;
                self.unseen.0 = 1.0 + self.growth;
                let faster = if self.ablation.is_off(Heuristic::Acceleration) {
                    self.growth
                } else {
                    self.growth * GROWTH_GROWTH
                };
                self.growth = faster.min(self.ceiling.growth_max(now));
            }
        } else {
            // What grew before makes a queue already.
            self.rate /= unseen.0 * unseen.1;
            self.unseen = (1.0, 1.0);
            self.growth = self.growth_first();
            // A queue that is on its way to its target needs no other rate.
            let error = ((target - queue) / self.lag()).clamp(-1.0, 1.0);
            let nears = (queue < before) == (error < 0.0);
            if self.settles == 0 && !nears && !self.round.is_limited {
                self.rate *= 1.0 + RATE_GAIN * error;
            }
        }
        self.settles = self.settles.saturating_sub(1);
    }

    /// The path carries no more than what leaves its queue at the rate of `arrives`.
    fn cut(&mut self, arrives: f64) {
        self.rate = self.with_usual_loss(arrives);
        self.growth = self.growth_first();
        self.settles = 2;
        self.emptying = self.emptying.filter(|emptying| !emptying.tells());
    }

    /// When the path carries less than half all of a sudden, the round is not waited for: it is as
    /// long as the queue that grows in it.
    fn is_sudden(&self, now: Instant, rate: f64, left: f64) -> bool {
        let (queue, kept) = (self.queue.least(), rate / left);
        self.phase == Phase::Steady
            && !self.ablation.is_off(Heuristic::Sudden)
            && kept < CUT_SUDDEN
            && queue > 2.0 * self.target()
            && grows(queue - self.queue_before, kept, self.round.age(now))
    }

    /// What is looked at with every feedback.
    fn follow(&mut self, now: Instant) {
        let trip = self.trip.as_secs_f64();
        match self.phase {
            Phase::Startup { known, .. } => {
                let long = (trip / 2.0).clamp(STARTUP_QUEUE.0, STARTUP_QUEUE.1) + self.target();
                if self.rate > 0.0 && self.queue.least() > long {
                    self.found(now, self.with_usual_loss(self.rate / (1.0 - self.round.loss())));
                } else if let Some(known) = known.filter(|known| self.rate * 1.1 >= *known) {
                    self.found(now, known);
                } else {
                    self.judge_guess(now);
                }
            }
            Phase::Steady if now >= self.empties_at => {
                self.empties_at = now + self.empty_every();
                // It is empty already, or nobody knows how full it would be.
                let is_known = self.queue.whole() < self.target() / 4.0;
                if !is_known && !self.round.is_limited {
                    self.empty(now, emptying::PACE);
                }
            }
            Phase::Drain { .. } | Phase::Steady | Phase::Competes(_) => {}
        }
    }

    /// Bytes that may be on their way.
    pub fn window(&self) -> f64 {
        let (gain, rate) = match self.phase {
            Phase::Startup { first, .. } => (STARTUP_GAIN, first),
            Phase::Competes(competition) => return competition.window(self.datagram, self.part()),
            Phase::Drain { .. } | Phase::Steady => (WINDOW_GAIN, 0.0),
        };
        let first = (WINDOW_FIRST * self.datagram).max(rate * self.trip.as_secs_f64());
        if self.rate == 0.0 {
            return first;
        }
        let late = self.late.reports.as_secs_f64();
        let holds = self.rate * (self.trip_now() + self.queue.jitter() + late);
        let window = first.max(gain * holds + WINDOW_SLACK);
        if self.fast.is_fast() { window.max(fast::WINDOW) } else { window }
    }

    /// The round trip without this end's queue: it may have become longer, seconds.
    fn trip_now(&self) -> f64 {
        let of_late = self.round.trip().unwrap_or(self.trip);
        (of_late.as_secs_f64() - self.queue.least()).max(self.trip.as_secs_f64())
    }
}

/// Whether a queue grew as it does in `time` seconds where the part `kept` of what leaves arrives.
fn grows(grown: f64, kept: f64, time: f64) -> bool {
    grown > 0.25 * (1.0 - kept) * time
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 1e6))
}

#[cfg(test)]
mod tests;
