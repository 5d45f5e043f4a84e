//! The oldest segments of a connection that nobody answers for, kept as they came: sent again first
//! when there is a way, they let their sender go on. They stay until they are acknowledged, since
//! that way may be lost before they arrive. While there is a way, the one is kept that its sender
//! repeats: when the way is lost under it, that may have been the last time.

use super::memory::Memory;
use crate::wire::inner::Pieces;
use crate::wire::tcp::Seq;

/// Segments that are kept: the more of the oldest, the sooner their sender goes on (measured:
/// three).
const HEADS_MAX: usize = 3;

/// A few packets, the oldest first.
#[derive(Debug, Default)]
pub(in crate::flow) struct Heads {
    kept: Vec<(Seq, Vec<u8>)>,
    /// How many of them have left.
    left: usize,
}

impl Heads {
    /// Keeps a copy of the packet that begins at `seq`, if it is one of the oldest and there is
    /// memory for it. It leaves now if it `leaves`.
    pub(crate) fn keep(&mut self, memory: &mut Memory, seq: Seq, packet: Pieces<'_>, leaves: bool) {
        let place = self.kept.partition_point(|(known, _)| known.is_before(seq));
        let is_known = self.kept.get(place).is_some_and(|&(known, _)| known == seq);
        if is_known || place >= HEADS_MAX || !memory.take_for_oldest(packet.len()) {
            return;
        }
        let mut bytes = Vec::with_capacity(packet.len());
        packet.copy_to(&mut bytes);
        self.kept.insert(place, (seq, bytes));
        for (_, newest) in self.kept.drain(HEADS_MAX.min(self.kept.len())..) {
            memory.give_back(newest.len());
        }
        self.left = self.left.min(self.kept.len());
        self.left += usize::from(leaves && place <= self.left);
    }

    /// The place of the oldest that has not left yet, which leaves now.
    pub(crate) fn advance(&mut self) -> Option<usize> {
        let place = self.left;
        self.has_next().then(|| {
            self.left += 1;
            place
        })
    }

    /// The packet at a place.
    pub(crate) fn get(&self, place: usize) -> &[u8] {
        self.kept.get(place).map_or(&[], |(_, bytes)| bytes)
    }

    /// Whether any has not left yet.
    pub(crate) const fn has_next(&self) -> bool {
        self.left < self.kept.len()
    }

    /// The way is lost by which some have left.
    pub(crate) const fn rewind(&mut self) {
        self.left = 0;
    }

    /// The other side has everything before `ack`.
    pub(crate) fn acknowledged(&mut self, memory: &mut Memory, ack: Seq) {
        let arrived = self.kept.partition_point(|(seq, _)| seq.is_before(ack));
        for (_, oldest) in self.kept.drain(..arrived) {
            memory.give_back(oldest.len());
        }
        self.left = self.left.saturating_sub(arrived);
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        memory.give_back(self.len());
        *self = Self::default();
    }

    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Their bytes.
    pub(crate) fn len(&self) -> usize {
        self.kept.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(heads: &mut Heads, memory: &mut Memory, seq: u32) {
        heads.keep(memory, Seq(seq), Pieces::whole(&[seq as u8; 100]), false);
    }

    fn next(heads: &mut Heads) -> Option<&[u8]> {
        heads.advance().map(|place| heads.get(place))
    }

    #[test]
    fn the_oldest_stay_and_what_goes_gives_its_memory_back() {
        let (mut heads, mut memory) = (Heads::default(), Memory::new(1 << 20));
        for seq in [40, 30, 50, 30, 20, 10] {
            keep(&mut heads, &mut memory, seq);
        }
        assert_eq!((heads.len(), memory.used()), (300, 300));
        assert_eq!(next(&mut heads), Some(&[10; 100][..]));
        assert_eq!(next(&mut heads), Some(&[20; 100][..]));
        heads.acknowledged(&mut memory, Seq(11));
        assert_eq!((heads.len(), memory.used()), (200, 200));
        assert_eq!(next(&mut heads), Some(&[30; 100][..]));
        assert!(!heads.has_next());
        heads.rewind();
        assert_eq!(next(&mut heads), Some(&[20; 100][..]), "it may have been lost with the way");
        heads.clear(&mut memory);
        assert_eq!((next(&mut heads), memory.used()), (None, 0));
    }

    #[test]
    fn where_there_is_no_memory_none_is_kept() {
        let (mut heads, mut memory) = (Heads::default(), Memory::new(150));
        keep(&mut heads, &mut memory, 10);
        keep(&mut heads, &mut memory, 20);
        assert_eq!((heads.len(), memory.used()), (100, 100));
    }
}
