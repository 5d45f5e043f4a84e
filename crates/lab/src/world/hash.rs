//! A hash that is the same everywhere and for ever: FNV-1a (Fowler, Noll, Vo; 64 bits).

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The hash of some bytes.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// The hash of everything that happened: two runs of one seed must agree in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self(OFFSET)
    }
}

impl TraceHash {
    /// Something happened.
    pub(super) fn add(&mut self, words: &[u64]) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(PRIME).rotate_left(23);
        }
    }

    /// The hash so far.
    pub(super) const fn value(self) -> u64 {
        self.0
    }
}
