//! Pacing: computes the sending rate from the phase, the rate of the path and the queue.

use super::{Controller, Phase, RATE_RANGE, STARTUP_GAIN, WINDOW_FIRST, emptying};
use crate::time::Instant;

/// Gain of the pace correction: this part of the queue's error is corrected within a round. Above
/// 1/e the pace oscillates.
const PACE_GAIN: f64 = 0.35;
/// The lowest correction. [`Controller::pace_most`] is the highest.
const PACE_LEAST: f64 = 0.3;
/// A path that replaced another one is paced at this multiple of the rate of that path: enough to
/// measure whether it carries more.
const GUESS_GAIN: f64 = 1.25;

impl Controller {
    /// Ends startup: the rate of the path is known.
    pub(super) fn found(&mut self, now: Instant, rate: f64) {
        self.phase = Phase::Drain { rounds: 2 };
        self.rate = rate;
        self.settles = 2;
        self.unseen = (1.0, 1.0);
        self.queue_before = self.queue.least();
        self.growth = self.growth_first();
        self.grows_at = now;
        self.empties_at = now + emptying::EMPTY_EVERY;
    }

    /// Computes the pace again after an input has changed.
    pub(super) fn set_pace(&mut self) {
        let trip = self.trip.as_secs_f64().max(1e-4);
        self.pace = match self.phase {
            _ if self.fast.is_fast() => RATE_RANGE.1,
            Phase::Startup { known, first: at_least, .. } => {
                let first = WINDOW_FIRST * self.datagram / trip;
                let pace = first.max(self.rate * STARTUP_GAIN).max(at_least);
                let pace = pace.min(self.guess_most(first));
                known.map_or(pace, |known| pace.min(known.max(first / WINDOW_FIRST)))
            }
            Phase::Drain { .. } | Phase::Steady => {
                let error = (self.target() - self.queue.least()) / self.lag();
                let most = if self.ceiling.holds() { 1.0 } else { self.pace_most() };
                let gain = (1.0 + PACE_GAIN * error).clamp(PACE_LEAST, most);
                let pace = self.emptying.and_then(|emptying| emptying.pace(self.told_at));
                let most = pace.map_or(f64::INFINITY, |pace| pace * self.arrives.min(self.rate));
                (self.rate * gain).min(most)
            }
            Phase::Competes(competition) => {
                let pace = self.emptying.and_then(|emptying| emptying.pace(self.told_at));
                pace.map_or_else(|| competition.pace(self.datagram), |pace| pace * self.rate)
            }
        }
        .clamp(RATE_RANGE.0, RATE_RANGE.1);
        self.round.paced(self.pace);
    }

    /// The highest pace while the rate is a guess from the path before, in bytes per second. It is
    /// at least `first`.
    fn guess_most(&self, first: f64) -> f64 {
        self.guess.map_or(f64::INFINITY, |guess| (guess * GUESS_GAIN).max(first))
    }
}
