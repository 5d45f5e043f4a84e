//! Whether what a path carries changes by the tenth of a second, as on mobile networks.
//!
//! Told by how much arrives from one round trip to the next while something waits on the way, so
//! that it is the path that limits it. A link of one rate has next to none of that, also where it
//! loses, is long, or is shared; two recorded mobile networks have 1.2 % of change a round beyond
//! what counts as the same, and 5.5 % at times.
//!
//! What is not sent while such a path carries more is lost for good, and nobody can foresee when it
//! does. So something waits on it all the time, is sent at once when it carries more, and what it
//! carried before a fall is found again sooner. While something that is of no use late shares the
//! path, its queue is as short as any other's.

use super::Controller;
use crate::ablation::Heuristic;
use crate::time::{Duration, Instant};

/// Something waits: at least so many seconds of queue at the end of a round.
const QUEUED: f64 = 0.002;
/// The arrival rate may differ by this fraction from one round to the next and still count as the
/// same rate. Jitter and the hosts' lateness add their own fraction of the round.
const SAME: f64 = 0.1;
/// Of what it differs by beyond that no more than this counts: many changes make a path that
/// varies, not one that is large.
const MOST: f64 = 0.06;
/// Weight of a round in the mean of what it differed by beyond that.
const WEIGHT: f64 = 1.0 / 16.0;
/// A path varies whose mean is more than this.
const VARIES: f64 = 0.008;
/// And is taken to do so for so long after it last did: a train stops at stations.
const REMEMBERED: Duration = Duration::from_secs(10);
/// Who begins or ends to share a link changes what others have of it for a moment. A path that
/// varies by itself goes on with it for so long,
const LASTING: Duration = Duration::from_secs(4);
/// without a pause of this.
const PAUSE: Duration = Duration::from_secs(3);
/// So many seconds more wait there than elsewhere, to be sent when the path carries more.
const RESERVE: f64 = 0.080;
/// At most so many times its rate a path is sent at, to make a queue: usually, and where it varies,
const PACE_MOST: (f64, f64) = (1.1, 1.3);
/// and by this part at most its rate grows in the first round without one, and at least by this.
const GROWTH_MOST: (f64, f64) = (0.03, 0.2);
const GROWTH_LEAST: f64 = 0.002;

/// How much the rate of a path changes by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Variation {
    mean: f64,
    /// What arrived in the round before, bytes per second, if something waited all the time.
    before: Option<f64>,
    /// Since when it varies without a pause, and when it last did.
    varied: Option<(Instant, Instant)>,
    /// When somebody else last seemed to have a part of the queue.
    shared_at: Option<Instant>,
}

impl Variation {
    /// At the end of a round in which `arrived` bytes per second came, if that is known, at least
    /// `queue` seconds waited, and rates are the same that differ by the part `same`.
    fn round(&mut self, now: Instant, arrived: Option<f64>, queue: f64, same: f64) {
        let arrived = arrived.filter(|arrived| queue > QUEUED && *arrived > 0.0);
        if let (Some(before), Some(arrived)) = (self.before, arrived) {
            let change = (arrived - before).abs() / arrived.max(before);
            let change = (change - same).clamp(0.0, MOST);
            self.mean += (change - self.mean) * WEIGHT;
            if change > 0.0 && self.mean > VARIES {
                let since = self.varied.filter(|(_, last)| now < *last + PAUSE);
                self.varied = Some((since.map_or(now, |(since, _)| since), now));
            }
        }
        self.before = arrived;
    }

    /// Whether it does, or did a moment ago.
    fn is_varying(&self, now: Instant) -> bool {
        self.varied.is_some_and(|(_, last)| now < last + REMEMBERED)
    }

    /// Whether it does, and has done so for a while.
    fn lasts(&self, now: Instant) -> bool {
        let lasts = |(since, last): (Instant, Instant)| last.saturating_since(since) >= LASTING;
        self.varied.is_some_and(lasts) && self.is_varying(now)
    }

    /// Whether somebody else had a part of the queue a moment ago.
    fn is_shared(&self, now: Instant) -> bool {
        self.shared_at.is_some_and(|at| now < at + REMEMBERED)
    }
}

impl Controller {
    /// Whether what the path carries changes by the tenth of a second, or did a moment ago, and not
    /// by what others send there.
    pub(crate) fn is_varying(&self, now: Instant) -> bool {
        self.variation.is_varying(now) && !self.competes() && !self.is_suspicious()
    }

    /// Nobody wants to wait for the path to carry more.
    pub(crate) fn forget_variation(&mut self) {
        self.variation = Variation::default();
    }

    /// At the end of a round in which so much arrived, bytes per second, if that is known.
    pub(super) fn note_variation(&mut self, now: Instant, arrived: Option<f64>) {
        if self.ablation.is_off(Heuristic::Variation) {
            return;
        }
        let unsure = self.queue.jitter() + self.late_seconds();
        let same = SAME + unsure / self.round.age(now).max(1e-3);
        self.variation.round(now, arrived, self.queue.least(), same);
    }

    /// A trial was not felt: others fill the queue, or the way became longer.
    pub(super) const fn note_others(&mut self, now: Instant) {
        self.variation.shared_at = Some(now);
    }

    /// Whether more waits than elsewhere, for the path to carry more: not where somebody else has a
    /// part of the queue, who would have to wait as well, and may want the same.
    fn waits_for_more(&self) -> bool {
        let now = self.told_at;
        let is_shared = self.variation.is_shared(now) || self.queue.is_foreign();
        self.variation.lasts(now) && self.is_varying(now) && !is_shared
    }

    /// What is wanted to wait for a better moment, seconds.
    pub(super) fn reserve(&self) -> f64 {
        let is_calm = self.told_at < self.calm_until;
        if self.waits_for_more() && !is_calm { RESERVE } else { 0.0 }
    }

    /// At most so many times its rate the path is sent at.
    pub(super) fn pace_most(&self) -> f64 {
        let (usual, varying) = PACE_MOST;
        if self.waits_for_more() { varying } else { usual }
    }

    /// By what parts the rate may grow in the first round without a queue.
    pub(super) fn growth_range(&self) -> (f64, f64) {
        let (usual, varying) = GROWTH_MOST;
        (GROWTH_LEAST, if self.waits_for_more() { varying } else { usual })
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
            variation.round(now, Some(arrived), queue, SAME);
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
        // Ten seconds after it changed last.
        assert!((390..410).contains(&last.unwrap()), "{last:?}");
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
