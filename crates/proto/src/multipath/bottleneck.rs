//! Which of the paths that carry together lead through one queue that others fill.
//!
//! What waits on each path is measured by clocks that are the same two for all of them. Where
//! somebody else sends through the queue of a path, what waits there rises and falls by much more
//! than this end's own sending makes it, and not at this end's will. Of two paths through that
//! queue it does so by the same time at the same moments: their difference varies little. Of two
//! that share nothing it varies as much as both do together, also if both are in need. That is the
//! test of RFC 8382 (correlated delay) in the form that a sender can make who has the delays
//! themselves and not their statistics only.
//!
//! Paths that share a queue which nobody else fills need not be found: there is nobody to be fair
//! to.
//!
//! Decides which paths are companions; what follows from that each path's congestion controller
//! knows. Not seen: a queue that others keep at one length, and that of two ways which are told of
//! it at moments further apart than it takes to change.

use std::collections::BTreeMap;

use crate::path::{PATHS_MAX, PathId};
use crate::time::{Duration, Instant};

/// Delays are compared so often.
const EVERY: Duration = Duration::from_millis(50);
/// What was told before is not the delay of now.
const FRESH: Duration = Duration::from_millis(200);
/// Weight of one comparison in means and variances: they are those of about four seconds.
const WEIGHT: f64 = 1.0 / 80.0;
/// Comparisons before they say anything.
const ENOUGH: u32 = 60;
/// Queues vary by more than this, seconds, where others fill them.
const VARIES: f64 = 0.003;
/// Part of the sum of both variances up to which that of the difference is one queue's, and from
/// which on it is that of two.
const ONE: f64 = 0.2;
const TWO: f64 = 0.5;
/// For so long companions stay where nothing varies.
const REMEMBERED: Duration = Duration::from_secs(30);
/// The queues of all paths that carry together, and what is known of them.
#[derive(Debug, Default)]
pub(crate) struct Bottlenecks {
    paths: Vec<Seen>,
    /// By both paths, the lower number first.
    pairs: BTreeMap<(PathId, PathId), Pair>,
    next_at: Instant,
}

/// One path's queue, seconds.
#[derive(Clone, Copy, Debug)]
struct Seen {
    path: PathId,
    at: Instant,
    queue: f64,
    varying: Varying,
}

/// Two paths.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// The difference of their queues, seconds.
    varying: Varying,
    /// They were found to share one; when that was seen last.
    shared_at: Option<Instant>,
}

/// Mean and variance of late (exponentially weighted: T. Finch, "Incremental calculation of
/// weighted mean and variance", 2009, section 9).
#[derive(Clone, Copy, Debug, Default)]
struct Varying {
    number: u32,
    mean: f64,
    variance: f64,
}

impl Bottlenecks {
    /// What a datagram on `path` was just found to have waited for.
    pub(crate) fn note(&mut self, now: Instant, path: PathId, queue: Duration) {
        let queue = queue.as_secs_f64();
        if let Some(seen) = self.paths.iter_mut().find(|seen| seen.path == path) {
            (seen.at, seen.queue) = (now, queue);
        } else if self.paths.len() < PATHS_MAX {
            self.paths.push(Seen { path, at: now, queue, varying: Varying::default() });
        }
    }

    /// Compares the queues, if it is time to: whether it was.
    pub(crate) fn compare(&mut self, now: Instant) -> bool {
        if now < self.next_at {
            return false;
        }
        self.next_at = now + EVERY;
        self.paths.retain(|seen| now.saturating_since(seen.at) < REMEMBERED);
        let is_there = |path: PathId| self.paths.iter().any(|seen| seen.path == path);
        self.pairs.retain(|(a, b), _| is_there(*a) && is_there(*b));
        let fresh = |seen: &Seen| now.saturating_since(seen.at) < FRESH;
        for seen in self.paths.iter_mut().filter(|seen| fresh(seen)) {
            seen.varying.note(seen.queue);
        }
        for (place, one) in self.paths.iter().enumerate() {
            for other in self.paths[place + 1..].iter().filter(|other| fresh(one) && fresh(other)) {
                let key = (one.path.min(other.path), one.path.max(other.path));
                self.pairs.entry(key).or_default().compare(now, one, other);
            }
        }
        true
    }

    /// Whether two paths lead through one queue that others fill, or did until of late.
    pub(crate) fn are_companions(&self, now: Instant, one: PathId, other: PathId) -> bool {
        let pair = self.pairs.get(&(one.min(other), one.max(other)));
        let shared_at = pair.and_then(|pair| pair.shared_at);
        shared_at.is_some_and(|at| now.saturating_since(at) < REMEMBERED)
    }
}

impl Pair {
    fn compare(&mut self, now: Instant, one: &Seen, other: &Seen) {
        self.varying.note(one.queue - other.queue);
        let (a, b) = (one.varying.variance, other.varying.variance);
        let is_known = self.varying.number >= ENOUGH;
        if !is_known || a.max(b) < VARIES * VARIES {
            return;
        }
        let part = self.varying.variance / (a + b);
        if part < ONE {
            self.shared_at = Some(now);
        } else if part > TWO {
            self.shared_at = None;
        }
    }
}

impl Varying {
    fn note(&mut self, value: f64) {
        self.number = self.number.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.number));
        let beyond = value - self.mean;
        self.mean += weight * beyond;
        self.variance = (1.0 - weight) * (self.variance + weight * beyond * beyond);
    }
}

#[cfg(test)]
#[path = "bottleneck_tests.rs"]
mod tests;
