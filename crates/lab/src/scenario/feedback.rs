//! What it costs to tell the other end of the tunnel what arrived, for each byte that did.

use super::record::Limit;
use super::statistics::max;
use crate::ground::Reported;

/// The key of the most that it costs in any cell, in per cent.
pub(super) const MOST: &str = "feedback_percent_max";
/// What it may cost: the issue's own limit.
const PERCENT_MAX: f64 = 1.0;
/// The part of all that came that must have come by a path for its share to count: by a path on
/// which nothing is sent there are probes, and what is said of those.
const COUNTS_FROM: f64 = 0.01;

/// What must hold by paths of 5 Mbit/s and more: of slower ones, who is told less often what
/// arrived learns too late that one died.
pub(super) fn limit() -> Limit {
    Limit::at_most(MOST, PERCENT_MAX)
}

/// The most that it cost by any path between two moments, in per cent: layer-3 bytes of datagrams
/// that only told what arrived, by the UDP payload that did, which is a little less than what there
/// was on the wire. None where nothing came, or nobody said so.
pub(super) fn percent(before: &[Reported], after: &[Reported]) -> Option<f64> {
    let grown = |now: &Reported| {
        let then = before.iter().find(|then| then.path == now.path).copied().unwrap_or_default();
        (now.came_bytes - then.came_bytes, now.feedback_bytes - then.feedback_bytes)
    };
    let grown: Vec<(u64, u64)> = after.iter().map(grown).collect();
    let all: u64 = grown.iter().map(|(came, _)| came).sum();
    let counts = |&&(came, _): &&(u64, u64)| came > 0 && came as f64 >= all as f64 * COUNTS_FROM;
    let shares = grown.iter().filter(counts).map(|&(came, said)| said as f64 * 100.0 / came as f64);
    max(&shares.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::percent;
    use crate::ground::Reported;

    const fn path(path: u64, came_bytes: u64, feedback_bytes: u64) -> Reported {
        Reported { path, came_bytes, feedback_bytes }
    }

    #[test]
    fn the_dearest_path_counts_unless_nothing_is_sent_by_it() {
        let before = [path(1, 1_000_000, 500_000), path(2, 0, 0)];
        let after = [path(1, 2_000_000, 508_000), path(2, 100_000, 900), path(3, 5_000, 5_000)];
        assert_eq!(percent(&before, &after), Some(0.9));
        let dear = [path(1, 2_000_000, 512_000), after[1], after[2]];
        assert_eq!(percent(&before, &dear), Some(1.2));
        assert_eq!(percent(&before, &before), None);
        assert_eq!(percent(&[], &[]), None);
    }
}
