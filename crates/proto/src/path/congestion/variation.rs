//! Whether what a path carries changes by the tenth of a second, as on mobile networks.
//!
//! Told by how much arrives from one round trip to the next while something waits on the way, so
//! that it is the path that limits it. A link of one rate has next to none of that, also where it
//! loses, is long, or is shared; two recorded mobile networks have 1.2 % of change a round beyond
//! what counts as the same, and 5.5 % at times.

use super::Controller;
use crate::time::{Duration, Instant};

/// Something waits: at least so many seconds of queue at the end of a round.
const QUEUED: f64 = 0.002;
/// What arrives may differ by this part from one round to the next, and be the same rate.
const SAME: f64 = 0.1;
/// And of what it differs by beyond that no more than this counts: many changes make a path that
/// varies, not one that is large.
const MOST: f64 = 0.06;
/// Weight of a round in the mean of what it differed by beyond that.
const WEIGHT: f64 = 1.0 / 16.0;
/// A path varies whose mean is more than this.
const VARIES: f64 = 0.008;
/// And is taken to do so for so long after it last was: a train stops at stations.
const REMEMBERED: Duration = Duration::from_secs(10);

/// How much the rate of a path changes by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Variation {
    mean: f64,
    /// What arrived in the round before, bytes per second, if something waited all the time.
    before: Option<f64>,
    varied_at: Option<Instant>,
}

impl Variation {
    /// At the end of a round in which `arrived` bytes per second came, if that is known, and at
    /// least `queue` seconds waited.
    pub(super) fn round(&mut self, now: Instant, arrived: Option<f64>, queue: f64) {
        let arrived = arrived.filter(|arrived| queue > QUEUED && *arrived > 0.0);
        if let (Some(before), Some(arrived)) = (self.before, arrived) {
            let change = (arrived - before).abs() / arrived.max(before);
            self.mean += ((change - SAME).clamp(0.0, MOST) - self.mean) * WEIGHT;
        }
        self.before = arrived;
        if self.mean > VARIES {
            self.varied_at = Some(now);
        }
    }

    /// Whether it does, or did a moment ago.
    pub(super) fn is_varying(&self, now: Instant) -> bool {
        self.varied_at.is_some_and(|at| now < at + REMEMBERED)
    }
}

impl Controller {
    /// Whether what the path carries changes by the tenth of a second, or did a moment ago, and not
    /// by what others send there.
    pub fn is_varying(&self, now: Instant) -> bool {
        self.variation.is_varying(now) && !self.competes() && !self.is_suspicious()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of 50 ms, with what arrives in each and what waits: when it is taken to vary.
    fn varies(rounds: usize, of_round: impl Fn(usize) -> (f64, f64)) -> Vec<bool> {
        let mut variation = Variation::default();
        let told = (0..rounds).map(|round| {
            let now = Instant::ZERO + Duration::from_millis(50) * round as u32;
            let (arrived, queue) = of_round(round);
            variation.round(now, Some(arrived), queue);
            variation.is_varying(now)
        });
        told.collect()
    }

    #[test]
    fn a_rate_that_is_measured_a_little_differently_is_the_same() {
        let told = varies(600, |round| (1e6 * [1.0, 1.08, 0.99][round % 3], 0.01));
        assert!(!told.contains(&true));
    }

    #[test]
    fn one_that_changes_by_the_tenth_of_a_second_varies_until_it_has_been_steady_for_a_while() {
        let rate = |round: usize| {
            let is_over = round >= 200;
            if is_over { 1e6 } else { 1e6 * [1.0, 0.6, 1.4, 1.3][round / 2 % 4] }
        };
        let told = varies(600, |round| (rate(round), 0.01));
        let (first, last) = (told.iter().position(|it| *it), told.iter().rposition(|it| *it));
        assert!(first.unwrap() < 10, "{first:?}");
        // Ten seconds after what was seen has faded: 16 rounds is the mean's memory.
        assert!((400..480).contains(&last.unwrap()), "{last:?}");
    }

    #[test]
    fn one_that_became_slower_once_does_not_vary() {
        let told = varies(600, |round| (if round < 100 { 1e6 } else { 0.5e6 }, 0.01));
        assert!(!told.contains(&true));
    }

    #[test]
    fn what_nothing_waited_for_tells_nothing_of_the_path() {
        let told = varies(600, |round| (1e6 * [1.0, 0.3][round % 2], 0.001));
        assert!(!told.contains(&true));
    }
}
