//! The cost of feedback, relative to the received bytes.

use super::record::Limit;
use crate::ground::Reported;

/// The key of the greatest cost in any cell, in per cent.
pub(super) const MOST: &str = "feedback_percent_max";
/// The greatest cost: the README promises at most a hundredth of the traffic on full links.
pub(super) const PERCENT_MAX: f64 = 1.0;

/// The limit on full links.
pub(super) fn limit() -> Limit {
    Limit::at_most(MOST, PERCENT_MAX)
}

/// The cost between two moments, in per cent: layer-3 bytes of datagrams with nothing but feedback,
/// relative to the received UDP payload, which is a little less than the bytes on the wire. `None`
/// if nothing arrived, or nobody counted.
pub(super) fn percent(before: &[Reported], after: &[Reported]) -> Option<f64> {
    let sum = |all: &[Reported], of: fn(&Reported) -> u64| all.iter().map(of).sum::<u64>();
    let grown = |of| sum(after, of).saturating_sub(sum(before, of)) as f64;
    let came = grown(|it| it.came_bytes);
    (came > 0.0).then(|| grown(|it| it.feedback_bytes) * 100.0 / came)
}

#[cfg(test)]
mod tests {
    use super::percent;
    use crate::ground::Reported;

    const fn path(path: u64, came_bytes: u64, feedback_bytes: u64) -> Reported {
        Reported {
            path,
            came_bytes,
            feedback_bytes,
            left_bytes: 0,
            left_datagrams: 0,
            left_again: 0,
            fallback_ns: None,
        }
    }

    #[test]
    fn all_paths_count_also_new_ones() {
        let before = [path(1, 1_000_000, 500_000), path(2, 0, 0)];
        let after = [path(1, 2_000_000, 508_000), path(2, 100_000, 900), path(3, 5_000, 5_000)];
        assert_eq!(percent(&before, &after), Some(13_900.0 * 100.0 / 1_105_000.0));
        assert_eq!(percent(&before, &before), None);
        assert_eq!(percent(&[], &[]), None);
    }
}
