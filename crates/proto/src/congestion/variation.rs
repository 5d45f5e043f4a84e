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

/// How a path is sent on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Latitude {
    /// So many seconds more wait than the target queue has else.
    pub(super) reserve: f64,
    /// At most so many times its rate it is paced at, to make a queue.
    pub(super) pace_most: f64,
    /// The least and the most by which its rate grows in the first round without a queue.
    pub(super) growth: (f64, f64),
}

/// How a path is sent on usually.
pub(super) const USUAL: Latitude = Latitude { reserve: 0.0, pace_most: 1.1, growth: (0.002, 0.03) };
/// How a path is sent on that varies: what waits there is sent when it carries more.
pub(super) const VARYING: Latitude =
    Latitude { reserve: 0.080, pace_most: 1.3, growth: (0.002, 0.2) };

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
    /// At the end of a round in which `arrived` bytes per second came, if that is known, and at
    /// least `queue` seconds waited. Jitter and late hosts make rates differ by the part `noise`.
    pub(super) fn end_round(&mut self, now: Instant, arrived: Option<f64>, queue: f64, noise: f64) {
        let same = SAME + noise;
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
    pub(super) fn is_varying(&self, now: Instant) -> bool {
        self.varied.is_some_and(|(_, last)| now < last + REMEMBERED)
    }

    /// A trial did not shorten the queue: others fill it, or the path became longer.
    pub(super) const fn note_others(&mut self, now: Instant) {
        self.shared_at = Some(now);
    }

    /// Whether it does, has done so for a while, and nobody else had a part of the queue a moment
    /// ago.
    pub(super) fn lasts_alone(&self, now: Instant) -> bool {
        let lasts = |(since, last): (Instant, Instant)| last.saturating_since(since) >= LASTING;
        let is_shared = self.shared_at.is_some_and(|at| now < at + REMEMBERED);
        self.varied.is_some_and(lasts) && self.is_varying(now) && !is_shared
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
            variation.end_round(now, Some(arrived), queue, 0.0);
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
