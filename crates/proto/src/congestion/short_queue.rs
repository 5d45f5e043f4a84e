//! The controller in use: a path carries what it can, with hardly anything waiting on it.
//!
//! Two things are measured: what arrives, by the receiver's clock, and how long it waited on its
//! way. A sender that is faster than the path makes a queue, a slower one makes none. So the right
//! rate is the one that keeps a short queue standing: the pace follows the distance of the queue
//! from its target, divided by the time after which a change shows, and the rate follows slowly
//! (`growth`). A new path is searched as BBR does (`startup`).
//!
//! Loss alone says little: a radio loses datagrams at any rate. So if much is lost, less is sent
//! for a moment. If that helps, the path has a ceiling without a queue, and the lower rate stays
//! (`ceiling`; `policed`). Otherwise the path just loses so much. Where others fill the queue, the
//! path is sent on by a window as they do (`competition`), once `trial`s have shown that. A path
//! whose rate varies gets a longer queue (`variation`), a fast one is not paced (`fast`).
//!
//! Several paths of a session may share one bottleneck with others. Together they take there what
//! one would (RFC 6356, section 3; docs/decisions/0028-paths-through-one-queue.md).
//!
//! Each of these parts owns its state, is handed values and answers with values. This file alone
//! decides what follows from the answers. Numbers are bytes per second and seconds.

use super::ceiling::Ceiling;
use super::competition::{Competition, Suspected, Suspicion};
use super::controller::{Conditions, Controller, Findings};
use super::fast::{self, Fast};
use super::growth::{Change, Growth, SETTLES};
use super::pacer::Pacer;
use super::policed::Policed;
use super::queue::{self, Queue};
use super::round::{ROUND_MIN, Round};
use super::startup::{self, DOUBTED, Search, Startup};
use super::status::ControllerPhase;
use super::trial::{self, Outcome, Trial, Trials};
use super::trip::LeastTrip;
use super::variation::{self, Latitude, Variation};
use crate::ablation::Heuristic;
use crate::recovery::{AckSample, RateSample};
use crate::time::{Duration, Instant};

/// Bytes in flight beyond what the path holds: feedback comes after 11,000 of them, and one may get
/// lost.
const WINDOW_SLACK: f64 = 36_000.0;
/// The window is so many times what the path holds; more is never in flight without feedback.
const WINDOW_GAIN: f64 = 2.0;
/// If less than this part of what leaves arrives in the same time, the round is not waited for.
const CUT_SUDDEN: f64 = 0.5;
/// The rate is at most this multiple of what arrives.
const BEYOND: f64 = 2.0;
/// Gain of the pace correction: this part of the queue's error is corrected within a round. Above
/// 1/e the pace oscillates.
const PACE_GAIN: f64 = 0.35;
/// The lowest correction. [`Latitude::pace_most`] is the highest.
const PACE_LEAST: f64 = 0.3;
/// How long the queue stays short after a realtime packet.
const CALM: Duration = Duration::from_millis(500);
/// The rate: 64 kbit/s to 100 Gbit/s.
const RATE_RANGE: (f64, f64) = (8_000.0, 12.5e9);

/// Keeps a short queue standing on its path.
#[derive(Clone, Debug, Default)]
pub struct ShortQueue {
    phase: Phase,
    /// What the path is taken to carry; on a new path what it proved to carry.
    rate: f64,
    /// The rate at which datagrams leave.
    pace: f64,
    /// What left the queue in the last round; without bound if not known.
    arrives: f64,
    /// What other paths of this peer carry through the same bottleneck.
    company: f64,
    told_at: Instant,
    /// Bytes that arrived in all.
    arrived: u64,
    /// Realtime traffic shares the path until then.
    calm_until: Instant,
    conditions: Conditions,
    /// What was found since feedback began to be looked at.
    findings: Findings,
    pacer: Pacer,
    trip: LeastTrip,
    queue: Queue,
    round: Round,
    growth: Growth,
    trials: Trials,
    suspicion: Suspicion,
    ceiling: Ceiling,
    policed: Policed,
    variation: Variation,
    fast: Fast,
}

/// How much is known of the path.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    /// New, or not used for long.
    Startup(Startup),
    /// Its queue is long from having sent too much; in so many rounds its rate shows fully.
    Drain { rounds: u8 },
    /// Its rate is known.
    Steady,
    /// Others fill its queue.
    Competes(Competition),
}

impl Default for Phase {
    fn default() -> Self {
        Self::Startup(Startup::default())
    }
}

impl Controller for ShortQueue {
    fn sent(&mut self, now: Instant, bytes: usize) {
        if self.pacer.is_idle(now) {
            self.restart(now, false);
        }
        self.pacer.sent(now, bytes, self.pace, self.late_turn());
    }

    fn on_ack(&mut self, now: Instant, sample: &AckSample, conditions: &Conditions) -> Findings {
        self.conditions = *conditions;
        self.fast.set_alone(conditions.is_alone);
        self.measure(now, sample);
        self.end_trial(now);
        self.compete_on(now, sample);
        self.look(now);
        let queue = if self.competes() { f64::INFINITY } else { self.queue.least() };
        let is_clear = matches!(self.phase, Phase::Startup(_) | Phase::Steady);
        let rate = Some(self.rate).filter(|_| is_clear);
        self.fast.feedback(now, queue, conditions.late_seconds(), rate);
        self.set_pace();
        if conditions.gives_way {
            self.suspicion = Suspicion::default();
        }
        if conditions.wants_short {
            self.variation = Variation::default();
        }
        std::mem::take(&mut self.findings)
    }

    fn limited(&mut self, in_flight: u64) {
        self.round.is_limited |= self.allows(in_flight);
    }

    /// The path begins with a round trip of what it carried, no more than was in flight when it
    /// fell silent, and goes on as a new path does.
    fn lost_all(&mut self, now: Instant) {
        self.restart(now, true);
        self.pacer.next_at = now;
    }

    fn next_at(&self) -> Instant {
        self.pacer.next_at
    }

    fn idle_from(&self) -> Instant {
        self.pacer.next_at + self.conditions.turns_late
    }

    fn window(&self) -> f64 {
        let (gain, rate) = match self.phase {
            Phase::Startup(search) => (startup::GAIN, search.first),
            Phase::Competes(it) => return it.window(self.pacer.datagram, self.part()),
            Phase::Drain { .. } | Phase::Steady => (WINDOW_GAIN, 0.0),
        };
        let trip = self.trip.least.as_secs_f64();
        let first = (startup::WINDOW_FIRST * self.pacer.datagram).max(rate * trip);
        if self.rate == 0.0 {
            return first;
        }
        // The round trip without this end's queue may have become longer.
        let of_late = self.round.trip().unwrap_or(self.trip.least).as_secs_f64();
        let trip = (of_late - self.queue.least()).max(trip);
        let late = self.conditions.reports_late.as_secs_f64();
        let holds = self.rate * (trip + self.queue.jitter + late);
        let window = first.max(gain * holds + WINDOW_SLACK);
        if self.fast.is_fast { window.max(fast::WINDOW) } else { window }
    }

    fn pacing_rate(&self) -> f64 {
        self.pace
    }

    fn rate(&self) -> Option<f64> {
        let known = if let Phase::Startup(search) = self.phase { search.known } else { None };
        known.or_else(|| (self.rate > 0.0).then_some(self.rate))
    }

    fn phase(&self) -> ControllerPhase {
        match self.phase {
            Phase::Startup(_) => ControllerPhase::Startup,
            Phase::Drain { .. } => ControllerPhase::Drain,
            Phase::Steady => ControllerPhase::Steady,
            Phase::Competes(_) => ControllerPhase::Competing,
        }
    }

    fn guess(&mut self, rate: f64) {
        if let Phase::Startup(search) = &mut self.phase
            && self.rate == 0.0
        {
            search.guess(rate);
            self.set_pace();
        }
    }

    fn keep_calm(&mut self, now: Instant) {
        self.calm_until = now + CALM;
    }

    fn is_varying(&self, now: Instant) -> bool {
        self.variation.is_varying(now) && !self.competes() && self.suspicion.trials == 0
    }

    fn set_company(&mut self, rate: f64) {
        self.company = rate;
    }

    fn join_trial(&mut self, now: Instant, pace: f64) {
        let (queue, is_doubtful) = (self.queue.whole(), self.is_doubtful());
        let joins = match &mut self.phase {
            Phase::Competes(competition) => competition.tries(now, queue),
            Phase::Steady if is_doubtful && !self.round.is_limited => {
                self.trials.join(now, self.trip.least);
                true
            }
            Phase::Startup(_) | Phase::Drain { .. } | Phase::Steady => false,
        };
        if joins {
            self.try_less(now, pace);
            self.findings.trial = None;
        }
    }
}

impl ShortQueue {
    /// The controller of a path on which nothing was sent; `trip` is its round trip, if known.
    pub fn new(now: Instant, trip: Option<Duration>) -> Self {
        let mut new = Self {
            arrives: f64::INFINITY,
            pacer: Pacer::new(now),
            trip: LeastTrip::new(now, trip),
            round: Round::new(now, RATE_RANGE.1),
            ..Self::default()
        };
        new.set_pace();
        new
    }

    /// Begins anew, up to what the path carried; `at_once` with all of that. If it was not found
    /// again since that was done last, it was perhaps too much: half of it is left.
    fn restart(&mut self, now: Instant, at_once: bool) {
        let part = if at_once { DOUBTED } else { 1.0 };
        let known = match self.phase {
            // What was sent since perhaps says little.
            Phase::Startup(search) => search.known.map(|known| known * part),
            Phase::Drain { .. } | Phase::Steady | Phase::Competes(_) => Some(self.rate),
        };
        let known = known.map(|rate| rate.max(RATE_RANGE.0));
        // What a new path proved to carry does not bound what it is tried with.
        let first = if at_once { known.unwrap_or(self.rate) } else { 0.0 };
        self.phase = Phase::Startup(Startup::again(known, first));
        self.rate = 0.0;
        self.queue = Queue::default();
        self.fast.is_fast = false;
        self.trials = Trials::default();
        self.suspicion = Suspicion::default();
        self.ceiling.forget();
        self.round = self.round.next(now, self.arrived, RATE_RANGE.1);
        self.set_pace();
    }

    // What feedback tells.

    /// Passes the sample to all that measure.
    fn measure(&mut self, now: Instant, sample: &AckSample) {
        self.arrived = sample.arrived;
        self.round.add(sample);
        self.round.is_full |= !self.allows(sample.in_flight_before());
        if let Some(trip) = sample.trip {
            self.trip.sample(now, trip);
        }
        let least = self.trip.least;
        let beyond = sample.trip.map(|trip| trip.saturating_sub(least));
        if let Some(queue) = sample.queue.or(beyond) {
            self.queue.sample(now, queue.as_secs_f64(), least);
            if sample.lost > 0 {
                self.policed.lost(queue.as_secs_f64());
            }
        }
        if let Some(rate) = &sample.rate {
            self.measure_rate(now, rate);
        }
        self.told_at = now;
    }

    fn measure_rate(&mut self, now: Instant, sample: &RateSample) {
        // `max` also makes a number of what is none.
        let rate = sample.bytes_per_second.max(RATE_RANGE.0).min(RATE_RANGE.1);
        let left = sample.left_per_second.max(rate).min(RATE_RANGE.1);
        if let Phase::Startup(_) = self.phase {
            self.rate = self.rate.max(rate);
        }
        let is_over = self.round.sample(now, sample, (rate, left));
        if !sample.is_limited && self.is_sudden(now, rate, left) {
            self.cut(rate / (1.0 - self.round.loss()), SETTLES);
            self.growth.note_queue(self.queue.least());
            self.round = self.round.next(now, self.arrived, self.rate);
        } else if is_over {
            self.end_round(now);
            self.round = self.round.next(now, self.arrived, self.pace);
        }
    }

    /// If the path carries less than half all of a sudden, the round is not waited for: it is as
    /// long as the queue that grows in it.
    fn is_sudden(&self, now: Instant, rate: f64, left: f64) -> bool {
        let (queue, kept) = (self.queue.least(), rate / left);
        self.phase == Phase::Steady
            && self.is_on(Heuristic::Sudden)
            && kept < CUT_SUDDEN
            && queue > 2.0 * self.target()
            && self.growth.explains(queue, kept, self.round.age(now))
    }

    // What is done once per round.

    fn end_round(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Startup(search) => {
                let search = search.end_round(self.rate, &self.round);
                self.go_on_searching(now, search);
            }
            Phase::Drain { rounds } => {
                let rounds = *rounds;
                if !self.ceiling.tries() {
                    let left = self.round.rate_most / (1.0 - self.round.loss());
                    self.rate = self.rate.max(self.with_usual_loss(left));
                }
                self.growth.note_queue(self.queue.least());
                let is_over = rounds <= 1 || self.queue.least() <= self.target();
                self.phase =
                    if is_over { Phase::Steady } else { Phase::Drain { rounds: rounds - 1 } };
            }
            Phase::Steady => self.adapt(now),
            Phase::Competes(_) => self.watch_others(now),
        }
    }

    fn go_on_searching(&mut self, now: Instant, search: Search) {
        let loss = self.round.loss();
        let rate = match search {
            Search::GoesOn => return,
            Search::Found => self.with_usual_loss(self.rate / (1.0 - loss)),
            Search::Confirmed { rate } => rate,
            Search::Drowned => self.ceiling.doubt_start(loss, self.round.delivered_per_second(now)),
        };
        self.phase = Phase::Drain { rounds: 2 };
        self.rate = rate;
        self.growth = Growth::found(now, self.queue.least(), self.growth_first());
        self.trials.schedule(now + trial::EVERY.0);
    }

    /// The rate of a known path follows its queue.
    fn adapt(&mut self, now: Instant) {
        let arrived = self.round.arrived();
        if let Some(arrived) = arrived.filter(|_| !self.ceiling.tries()) {
            self.rate = self.rate.max(arrived);
        }
        self.arrives = arrived.map_or(f64::INFINITY, |arrived| arrived / (1.0 - self.round.loss()));
        if self.is_on(Heuristic::Variation) {
            let unsure = (self.queue.jitter + self.conditions.late_seconds())
                / self.round.age(now).max(1e-3);
            let arrives = arrived.map(|_| self.arrives);
            self.variation.end_round(now, arrives, self.queue.least(), unsure);
        }
        self.follow_queue(now);
        let trip = self.trip.least;
        if self.queue.is_stubborn(trial::DOUBTFUL * self.target())
            && arrived.is_some()
            && self.trials.may_doubt(now, trip)
        {
            self.try_less(now, trial::PACE);
        }
        if self.is_on(Heuristic::Ceiling) {
            self.heed_ceiling(now);
        }
        self.growth.hold(self.ceiling.holds_until);
        let most = arrived.map_or(RATE_RANGE.1, |arrived| arrived * BEYOND);
        if self.round.pace_least() > most {
            self.rate = self.rate.min(most);
        }
        self.rate = self.rate.clamp(RATE_RANGE.0, RATE_RANGE.1);
    }

    fn follow_queue(&mut self, now: Instant) {
        let standing = (self.queue.least(), self.target(), self.lag());
        let most = Some(self.ceiling.growth_max(now)).filter(|_| !self.ceiling.tries());
        let accelerates = self.is_on(Heuristic::Acceleration);
        match self.growth.end_round(now, &self.round, standing, (most, accelerates)) {
            Change::Cut => self.cut(self.arrives, SETTLES - 1),
            Change::Times(by) => self.rate *= by,
            Change::Correct { undo, by } => {
                self.rate /= undo;
                self.growth.anew(self.growth_first());
                self.rate *= by;
            }
        }
    }

    /// The path carries no more than what leaves its queue at the rate of `arrives`, which shows in
    /// the queue after so many rounds.
    fn cut(&mut self, arrives: f64, rounds: u8) {
        self.rate = self.with_usual_loss(arrives);
        self.growth.cut(self.growth_first(), rounds);
        // A trial that tells whose the queue is, is void.
        self.trials.running = self.trials.running.filter(|trial| !trial.tells);
    }

    fn heed_ceiling(&mut self, now: Instant) {
        let datagram = self.pacer.datagram;
        if let Some((rate, found)) = self.ceiling.round(now, &self.round, datagram, self.rate) {
            self.rate = rate;
            self.growth.anew(self.growth_first());
            let (trip, jitter) = (self.trip.least, self.queue.jitter);
            if let Some(found) = found
                && self.policed.note(now, &found, trip, jitter)
            {
                self.findings.policed = Some(found.arrived);
            }
        }
        self.policed.end_round();
    }

    // What is done with every feedback.

    fn look(&mut self, now: Instant) {
        let trip = self.trip.least;
        match self.phase {
            Phase::Startup(mut startup) => {
                let queue = (self.queue.least(), self.target());
                let search = startup.told(self.rate, self.round.loss(), queue, trip.as_secs_f64());
                self.phase = Phase::Startup(startup);
                self.go_on_searching(now, search);
            }
            Phase::Steady if self.trials.is_due(now, trip) => {
                // It is empty already, or nobody knows how full it would be.
                let is_known = self.queue.whole() < self.target() / 4.0;
                if !is_known && !self.round.is_limited {
                    self.try_less(now, trial::PACE);
                }
            }
            Phase::Drain { .. } | Phase::Steady | Phase::Competes(_) => {}
        }
    }

    /// Computes the pace again after an input has changed.
    fn set_pace(&mut self) {
        let part = self.trials.pace(self.told_at);
        self.pace = match self.phase {
            _ if self.fast.is_fast => RATE_RANGE.1,
            Phase::Startup(search) => {
                let trip = self.trip.least.as_secs_f64().max(1e-4);
                search.pace(self.rate, self.pacer.datagram, trip)
            }
            Phase::Drain { .. } | Phase::Steady => {
                let error = (self.target() - self.queue.least()) / self.lag();
                let most = if self.ceiling.holds() { 1.0 } else { self.latitude().pace_most };
                let gain = (1.0 + PACE_GAIN * error).clamp(PACE_LEAST, most);
                let most = part.map_or(f64::INFINITY, |part| part * self.arrives.min(self.rate));
                (self.rate * gain).min(most)
            }
            Phase::Competes(competition) => {
                part.map_or_else(|| competition.pace(self.pacer.datagram), |it| it * self.rate)
            }
        }
        .clamp(RATE_RANGE.0, RATE_RANGE.1);
        self.round.paced(self.pace);
    }

    // Whose the queue is.

    /// Sends less for a moment, at the part `pace` of the rate. If others may fill the queue, other
    /// paths do the same then.
    fn try_less(&mut self, now: Instant, pace: f64) {
        if self.trials.running.is_some() || !self.is_on(Heuristic::Emptying) {
            return;
        }
        let lag = self.lag();
        // Where others hold a part of the queue, how much shorter it becomes says which.
        let queue = self.queue.whole();
        let (own, trip) = match self.phase {
            Phase::Competes(competition) => (competition.own(queue), Duration::ZERO),
            Phase::Startup(_) | Phase::Drain { .. } | Phase::Steady => (queue, self.trip.least),
        };
        let trial = Trial::new(now, pace, (queue, own), trip, lag);
        self.growth.pause(trial.is_over_at(lag));
        self.trials.running = Some(trial);
        self.findings.trial = Some(pace).filter(|_| self.is_doubtful());
    }

    /// Looks whether the queue became shorter when less was sent.
    fn end_trial(&mut self, now: Instant) {
        let queue = self.queue.whole();
        let Some((trial, outcome)) = self.trials.watch(now, queue) else { return };
        let is_limited = self.round.is_limited;
        if let Phase::Competes(competition) = &mut self.phase {
            // If the sender was limited, what fell is not what was held back.
            if !is_limited && competition.trial(now, trial.felt()) {
                self.end_competition(now);
            }
            return;
        }
        if !trial.tells {
            return;
        }
        if self.is_on(Heuristic::Competition) && !is_limited {
            let rate = self.rate + self.company;
            let kind = (self.pacer.datagram, self.queue.jitter);
            match self.suspicion.trial(now, &trial, self.trip.least, rate, kind) {
                Suspected::Nobody => {}
                Suspected::Perhaps { next_at } => self.trials.schedule(next_at),
                Suspected::Somebody => return self.compete(now, queue),
            }
        }
        match outcome {
            Outcome::Felt => {}
            Outcome::Doubtful => self.try_less(now, trial::PACE_SURE),
            Outcome::Foreign => {
                self.variation.note_others(now);
                self.queue.disown();
            }
        }
    }

    /// From now on the path is sent on by a window.
    fn compete(&mut self, now: Instant, queue: f64) {
        let rate = (self.rate, std::mem::take(&mut self.suspicion));
        let trip = (self.trip.least.as_secs_f64(), queue);
        let of = (self.pacer.datagram, self.part());
        self.phase = Phase::Competes(Competition::new(now, rate, trip, self.arrived, of));
    }

    /// The window follows each feedback.
    fn compete_on(&mut self, now: Instant, sample: &AckSample) {
        let (queue, datagram, part) = (self.queue.whole(), self.pacer.datagram, self.part());
        let Phase::Competes(competition) = &mut self.phase else { return };
        let sending = (self.round.is_limited, self.trials.pace(now).is_some());
        competition.feedback(now, sample, queue, (datagram, part), sending);
        let is_due = competition.is_due(now, queue, self.trials.running.is_some());
        self.rate = competition.rate(datagram);
        if is_due {
            self.try_less(now, trial::PACE_SURE);
        }
    }

    /// A round is over in which the path was sent on by a window.
    fn watch_others(&mut self, now: Instant) {
        let (queue, target) = (self.queue.whole(), self.target());
        if let Some(arrived) = self.round.arrived() {
            self.arrives = arrived / (1.0 - self.round.loss());
        }
        let Phase::Competes(competition) = &mut self.phase else { return };
        if competition.end_round(now, queue, target) {
            self.end_competition(now);
        }
    }

    /// Nobody else is there: what waits is this end's.
    fn end_competition(&mut self, now: Instant) {
        self.phase = Phase::Steady;
        self.queue.own();
        let lag = self.lag();
        self.trials.running = Some(Trial::of_unknown(now, self.queue.whole(), lag));
        self.suspicion = Suspicion::default();
        self.rate = self.round.arrived().unwrap_or(self.rate).min(self.rate);
        self.growth = Growth::found(now, self.queue.least(), self.growth_first());
        self.growth.pause(now + Duration::from_secs_f64(2.0 * lag));
    }

    // What follows from the state.

    /// The target queue.
    fn target(&self) -> f64 {
        let is_calm = self.told_at < self.calm_until;
        let reserve = if is_calm { 0.0 } else { self.latitude().reserve };
        self.needed() + reserve
    }

    /// The part of the target that keeps the path busy. It also covers the time of a late turn.
    fn needed(&self) -> f64 {
        let all = self.rate + self.company;
        let datagram = if self.rate > 0.0 { self.pacer.datagram / all } else { 0.0 };
        let is_calm = self.told_at < self.calm_until;
        let late = if is_calm { 0.0 } else { self.late_turn().as_secs_f64() };
        queue::wanted(datagram, self.queue.jitter, is_calm) + late
    }

    /// The usual lateness of a turn, limited by the room of the path: the buffers of routers hold
    /// about a whole round trip.
    fn late_turn(&self) -> Duration {
        self.conditions.turns_late.min(self.trip.least / 2)
    }

    /// The time until a change of the pace shows in the measured queue.
    fn lag(&self) -> f64 {
        let least = ROUND_MIN.as_secs_f64().max(self.trip.least.as_secs_f64());
        self.round.length.clamp(least, 2.0 * least + 0.2) + self.queue.span
    }

    /// Makes half of the wanted queue before it shows.
    fn growth_first(&self) -> f64 {
        let (least, most) = self.latitude().growth;
        (0.5 * self.target() / self.lag()).clamp(least, most)
    }

    /// More waits than elsewhere if the rate of the path varies; but not where somebody else has a
    /// part of the queue, who would have to wait as well, and may want the same.
    fn latitude(&self) -> Latitude {
        let now = self.told_at;
        let waits =
            self.variation.lasts_alone(now) && self.is_varying(now) && !self.queue.is_foreign();
        if waits { variation::VARYING } else { variation::USUAL }
    }

    /// Whether more waits than this end wants to wait: somebody else may make it do so.
    fn is_doubtful(&self) -> bool {
        self.queue.whole() > trial::DOUBTFUL * self.needed()
    }

    /// The part of this path of what all carry that lead through its queue.
    fn part(&self) -> f64 {
        self.rate / (self.rate + self.company).max(1.0)
    }

    /// Of a rate at which datagrams left the queue, lost or not, that at which to send.
    fn with_usual_loss(&self, rate: f64) -> f64 {
        self.ceiling.with_usual_loss(rate, self.round.loss())
    }

    fn is_on(&self, heuristic: Heuristic) -> bool {
        !self.conditions.ablation.is_off(heuristic)
    }
}

#[cfg(test)]
#[path = "short_queue_tests.rs"]
mod tests;
