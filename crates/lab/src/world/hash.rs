//! A hash that is the same everywhere and for ever: FNV-1a (Fowler, Noll, Vo; 64 bits), by words of
//! eight bytes, each turned so that its upper bits count in all that follow.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The hash of some bytes: word by word, since every datagram of a world is hashed twice.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut trace = TraceHash(OFFSET ^ bytes.len() as u64);
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().for_each(|word| trace.add(&[u64::from_le_bytes(*word)]));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    trace.add(&[u64::from_le_bytes(last)]);
    trace.value()
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
