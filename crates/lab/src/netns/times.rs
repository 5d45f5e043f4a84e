//! How long something took, or how late it was, each time: a histogram.

/// Sub-steps of each power of two: values are known to within 1/16.
const STEPS: usize = 16;
/// Powers of two of nanoseconds: up to 2^40 ns, 18 minutes.
const POWERS: usize = 41;

/// Times, and how often there was each.
#[derive(Clone, Debug)]
pub struct Times {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { counts: vec![0; STEPS * POWERS], total: 0, max_ns: 0 }
    }
}

impl Times {
    /// Notes one of `ns` nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds what was noted elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.total += other.total;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many were noted.
    pub const fn count(&self) -> u64 {
        self.total
    }

    /// The longest of them, in nanoseconds.
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The time, in nanoseconds, that this share of them (in `[0, 1]`) did not exceed;
    /// up to 1/16 too large, 0 when nothing was noted.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = (share.clamp(0.0, 1.0) * self.total as f64).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank && seen > 0 {
                return upper_bound(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

/// Index of the bucket of a value: its power of two and the four bits below the leading one.
fn bucket(ns: u64) -> usize {
    let ns = ns.max(1);
    let power = ns.ilog2() as usize;
    let below_leading = (ns << (63 - power)) >> 59 & 0x0f;
    let index = power * STEPS + below_leading as usize;
    index.min(STEPS * POWERS - 1)
}

/// The largest value of a bucket.
fn upper_bound(index: usize) -> u64 {
    let (power, step) = (index / STEPS, (index % STEPS) as u64);
    let base = 1u64 << power;
    (base + ((base * (step + 1)) >> 4)).saturating_sub(1).max(base)
}

#[cfg(test)]
mod tests {
    use super::Times;

    #[test]
    fn quantiles_are_within_a_sixteenth() {
        let mut times = Times::default();
        for us in 1..=1000u64 {
            times.record(us * 1_000);
        }
        for (share, exact_ns) in [(0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let found = times.quantile_ns(share) as f64;
            assert!(found >= exact_ns && found <= exact_ns * 17.0 / 16.0, "{share}: {found}");
        }
        assert_eq!(times.max_ns(), 1_000_000);
        assert_eq!(Times::default().quantile_ns(0.99), 0);
    }
}
