//! The oldest segments of a connection that nobody answers for, kept as they came: sent again first
//! when there is a way, they let their sender go on.

use super::cache::Memory;
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::Seq;

/// Segments that are kept: the more of the oldest, the sooner their sender goes on (measured:
/// three).
const HEADS_MAX: usize = 3;

/// A few packets, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Heads(Vec<(Seq, Vec<u8>)>);

impl Heads {
    /// Keeps a copy of the packet that begins at `seq`, if it is one of the oldest and there is
    /// memory for it.
    pub(super) fn keep(&mut self, memory: &mut Memory, seq: Seq, packet: &InnerPacket<'_>) {
        let place = self.0.partition_point(|(known, _)| known.is_before(seq));
        let is_known = self.0.get(place).is_some_and(|&(known, _)| known == seq);
        if is_known || place >= HEADS_MAX || memory.take(self.len(), packet.len()).is_err() {
            return;
        }
        let mut bytes = Vec::with_capacity(packet.len());
        packet.copy_to(&mut bytes);
        self.0.insert(place, (seq, bytes));
        for (_, newest) in self.0.drain(HEADS_MAX.min(self.0.len())..) {
            memory.give_back(newest.len());
        }
    }

    /// Takes out the oldest.
    pub(super) fn take(&mut self, memory: &mut Memory) -> Option<Vec<u8>> {
        let oldest = (!self.0.is_empty()).then(|| self.0.remove(0).1)?;
        memory.give_back(oldest.len());
        Some(oldest)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        memory.give_back(self.len());
        self.0 = Vec::new();
    }

    /// Whether there is none.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their bytes.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(heads: &mut Heads, memory: &mut Memory, seq: u32) {
        heads.keep(memory, Seq(seq), &InnerPacket::whole(&[seq as u8; 100]));
    }

    #[test]
    fn the_oldest_stay_and_what_goes_gives_its_memory_back() {
        let (mut heads, mut memory) = (Heads::default(), Memory::new(1 << 20));
        for seq in [40, 30, 50, 30, 20, 10] {
            keep(&mut heads, &mut memory, seq);
        }
        assert_eq!((heads.len(), memory.used()), (300, 300));
        assert_eq!(heads.take(&mut memory), Some(vec![10; 100]));
        assert_eq!(heads.take(&mut memory), Some(vec![20; 100]));
        heads.clear(&mut memory);
        assert_eq!((heads.take(&mut memory), memory.used()), (None, 0));
    }

    #[test]
    fn where_there_is_no_memory_none_is_kept() {
        let (mut heads, mut memory) = (Heads::default(), Memory::new(8 * 150));
        keep(&mut heads, &mut memory, 10);
        keep(&mut heads, &mut memory, 20);
        assert_eq!((heads.len(), memory.used()), (100, 100));
    }
}
