//! A rate that was right for a moment only, and that no round would put right.
//!
//! A token bucket lets its depth pass at the speed of the wire, and then no more than its own rate.
//! Who measured the first takes the path to carry more than anybody sends, so that there always
//! seems to be nothing to send, and what is sent says nothing. But it waits, and that tells.

use super::{Controller, Phase};
use crate::ablation::Heuristic;

/// Rounds in a row in which all waited too long, though there was not always something to send: a
/// burst is over sooner.
const WAITS_MAX: u32 = 3;
/// The part of the rate that is kept in each further one,
const KEPT: f64 = 0.8;
/// and never less than this many times the most that arrived.
const ARRIVED: f64 = 1.1;

impl Controller {
    /// At the end of a round in which what waited least did so for `queue` seconds.
    pub(super) fn doubt_rate(&mut self, queue: f64) {
        let waits = queue > 2.0 * self.target()
            && self.round.is_limited
            && !self.ablation.is_off(Heuristic::Stale);
        self.waits = if waits { self.waits.saturating_add(1) } else { 0 };
        if self.waits > WAITS_MAX && self.phase == Phase::Steady {
            let least = (self.rate * KEPT).max(self.round.rate_most * ARRIVED);
            self.rate = self.rate.min(least);
        }
    }
}
