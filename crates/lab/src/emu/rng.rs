//! The one source of chance: SplitMix64.
//!
//! Small, fast, and the same on every machine for ever, which a seed printed in a report needs
//! more than it needs statistical perfection.

/// What the state grows by with each number: the golden ratio's.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A seeded generator: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator whose whole future follows from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// An independent generator for one part of the whole, named by `label`.
    ///
    /// Parts that draw from their own stream do not disturb each other: adding a link to a
    /// network leaves the losses of the other links as they were.
    pub fn fork(&self, label: u64) -> Self {
        let mut mixed = Self::new(self.state ^ label.wrapping_mul(0xd1b5_4a32_d192_ed03));
        Self::new(mixed.next_u64())
    }

    /// Leaves out the next `count` calls of [`Self::next_u64`].
    pub const fn skip(&mut self, count: u64) {
        self.state = self.state.wrapping_add(STEP.wrapping_mul(count));
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `[0, 1)`, with all 53 bits of a double's precision.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with probability `p`; draws nothing for 0 and below, or 1 and above.
    pub fn chance(&mut self, p: f64) -> bool {
        if p <= 0.0 {
            return false;
        }
        p >= 1.0 || self.unit() < p
    }

    /// A number in `[0, n)`; 0 when `n` is 0. The bias is below `n / 2^64`.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
