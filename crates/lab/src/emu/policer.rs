//! A policer: a token bucket that drops packets beyond a rate and delays none (RFC 2697, with one
//! bucket). Some networks put one on UDP and none on TCP.

use super::SECOND;

/// What a policer lets by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bits per second of layer-3 length.
    pub bits_per_second: u64,
    /// Bytes that pass at once after a pause.
    pub burst_bytes: u64,
}

/// The tokens of a policer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// Bytes that were taken out and have not flowed back, in units of a bit-nanosecond.
    used: u128,
    since_ns: u64,
}

impl Bucket {
    /// Whether a packet of so many bytes passes now.
    pub(super) fn admits(&mut self, now_ns: u64, policer: Policer, bytes: u64) -> bool {
        let units = |bytes: u64| u128::from(bytes) * 8 * u128::from(SECOND);
        let passed_ns = u128::from(now_ns.saturating_sub(self.since_ns));
        let flowed = passed_ns * u128::from(policer.bits_per_second);
        (self.used, self.since_ns) = (self.used.saturating_sub(flowed), now_ns);
        let passes = self.used + units(bytes) <= units(policer.burst_bytes);
        self.used += if passes { units(bytes) } else { 0 };
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, Policer};
    use crate::emu::{MS, SECOND};

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let policer = Policer { bits_per_second: 1_000_000, burst_bytes: 30_000 };
        let mut bucket = Bucket::default();
        let burst = (0..100).filter(|_| bucket.admits(SECOND, policer, 1_000)).count();
        assert_eq!(burst, 30);
        let second = (0..1_000).filter(|ms| bucket.admits(SECOND + ms * MS, policer, 1_000));
        assert_eq!(second.count(), 124, "125 kB in a second, the last of it after 999 ms");
        assert!((0..30).all(|_| bucket.admits(10 * SECOND, policer, 1_000)), "after a pause");
        assert!(!bucket.admits(10 * SECOND, policer, 1));
    }
}
