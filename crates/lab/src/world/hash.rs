//! A hash that is the same everywhere and for ever: FNV-1a (Fowler, Noll, Vo; 64 bits), by words of
//! eight bytes, each turned so that its upper bits count in all that follow.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Words of some bytes are taken in turn by so many, which need not wait for each other.
const LANES: usize = 4;

/// The hash of some bytes: word by word, several at a time, since every datagram of a world is
/// hashed twice.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut lanes = [TraceHash(OFFSET ^ bytes.len() as u64); LANES];
    let (words, rest) = bytes.as_chunks::<8>();
    let (rounds, more) = words.as_chunks::<LANES>();
    for round in rounds {
        let each = lanes.iter_mut().zip(round);
        each.for_each(|(lane, word)| lane.add(&[u64::from_le_bytes(*word)]));
    }
    let [first, others @ ..] = lanes;
    let mut trace = first;
    trace.add(&others.map(TraceHash::value));
    more.iter().for_each(|word| trace.add(&[u64::from_le_bytes(*word)]));
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
