//! A rate that changes at given moments, as that of a link which others begin and cease to share.

/// Rates of a link, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The rate until the first change, in bits per second.
    first: u64,
    /// When it changes, in nanoseconds on the emulator's clock and in order, and to what.
    later: Vec<(u64, u64)>,
}

impl Changes {
    /// A rate of `first` bits per second, and later ones with the moment at which each begins, in
    /// nanoseconds. The last one stays.
    pub fn new(first: u64, mut later: Vec<(u64, u64)>) -> Self {
        later.sort_unstable_by_key(|(at_ns, _)| *at_ns);
        Self { first, later }
    }

    /// The rate at a moment, in bits per second.
    pub fn at(&self, now_ns: u64) -> u64 {
        let begun = self.later.partition_point(|(at_ns, _)| *at_ns <= now_ns);
        begun.checked_sub(1).map_or(self.first, |last| self.later[last].1)
    }

    /// The mean rate between two moments, in bits per second.
    pub fn mean_between(&self, from_ns: u64, to_ns: u64) -> u64 {
        let inside = self.later.iter().map(|(at_ns, _)| *at_ns);
        let inside = inside.filter(|at_ns| (from_ns + 1..to_ns).contains(at_ns));
        let ends: Vec<u64> = inside.chain([to_ns]).collect();
        let begins = [from_ns].into_iter().chain(ends.iter().copied());
        let part = |(from_ns, to_ns): (u64, u64)| {
            u128::from(self.at(from_ns)) * u128::from(to_ns.saturating_sub(from_ns))
        };
        let bit_ns: u128 = begins.zip(ends.iter().copied()).map(part).sum();
        let length_ns = to_ns.saturating_sub(from_ns).max(1);
        u64::try_from(bit_ns / u128::from(length_ns)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::Changes;
    use crate::emu::SECOND;

    const fn at(seconds: u64) -> u64 {
        seconds * SECOND
    }

    #[test]
    fn each_rate_holds_until_the_next() {
        let changes = Changes::new(100, vec![(at(4), 50), (at(2), 400)]);
        let rates = [0, 1, 2, 3, 4, 9].map(|seconds| changes.at(at(seconds)));
        assert_eq!(rates, [100, 100, 400, 400, 50, 50]);
        assert_eq!(changes.mean_between(0, at(2)), 100);
        assert_eq!(changes.mean_between(at(1), at(5)), (100 + 2 * 400 + 50) / 4);
        assert_eq!(changes.mean_between(at(2), at(3)), 400);
    }
}
