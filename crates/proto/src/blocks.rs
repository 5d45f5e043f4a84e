//! Memory for packets, lent by a node: queues of bytes for copies of what is in flight, made of
//! blocks, and [`Parcel`]s for what waits, of one packet each.
//!
//! What is kept of packets until they have arrived grows to megabytes and shrinks to nothing many
//! times a second. Were it asked of the allocator each time, every 4 KB would cost a page fault;
//! were it kept as a ring of the largest size, it would be walked through from end to end and never
//! lie in the processor's cache. Here the block that was given back last is lent first, and what
//! nobody needed for a while goes back to the system.

pub mod parcel;

use std::collections::VecDeque;

use crate::packet::Checksum;
use crate::time::{Duration, Instant};
use parcel::{PACKET_MAX, Parcel};

/// Bytes of a block. What is queued in one piece must not be longer.
pub const BLOCK: usize = 4_096;
/// How long a block is spare before the system gets it back, once at least and twice at most.
const SPARE_TIME: Duration = Duration::from_secs(10);
/// A queue that is empty remembers no more places of blocks than this.
const RESTING_BLOCKS: usize = 4;

type Block = [u8; BLOCK];

/// Memory that nobody uses at present: blocks, and what parcels lie in.
#[derive(Clone, Default)]
pub struct Blocks {
    blocks: Spare<BLOCK>,
    sheets: Spare<PACKET_MAX>,
    /// When they are counted again.
    due: Option<Instant>,
}

/// Pieces of memory of `SIZE` bytes that nobody uses at present.
#[derive(Clone, Default)]
struct Spare<const SIZE: usize> {
    list: Vec<Box<[u8; SIZE]>>,
    /// The fewest that there were since they were counted last: so many were not needed.
    fewest: usize,
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocks").field("spare", &self.blocks.list.len()).finish_non_exhaustive()
    }
}

impl Blocks {
    /// When [`Self::release`] is to be called again.
    pub const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Gives back to the system what was not needed for a while. To be called now and then, and
    /// when it is due.
    pub fn release(&mut self, now: Instant) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        self.blocks.release();
        self.sheets.release();
        let any = self.blocks.fewest + self.sheets.fewest > 0;
        self.due = any.then(|| now + SPARE_TIME);
    }

    /// A parcel with a packet in two parts; `None` if that is longer than [`PACKET_MAX`].
    pub fn parcel(&mut self, packet: (&[u8], &[u8]), checksum: Checksum) -> Option<Parcel> {
        let fits = packet.0.len() + packet.1.len() <= PACKET_MAX;
        fits.then(|| Parcel::new(self.sheets.lend(), packet, checksum))
    }

    /// A parcel that is of no use any more.
    pub fn discard(&mut self, parcel: Parcel) {
        self.sheets.take_back(parcel.sheet);
    }
}

impl<const SIZE: usize> Spare<SIZE> {
    fn lend(&mut self) -> Box<[u8; SIZE]> {
        let piece = self.list.pop();
        self.fewest = self.fewest.min(self.list.len());
        piece.unwrap_or_else(|| Box::new([0; SIZE]))
    }

    fn take_back(&mut self, piece: Box<[u8; SIZE]>) {
        self.list.push(piece);
    }

    /// Gives back to the system what was not needed since they were counted, and counts them.
    fn release(&mut self) {
        self.list.truncate(self.list.len() - self.fewest);
        self.list.shrink_to_fit();
        self.fewest = self.list.len();
    }
}

/// Bytes, first in, first out, in blocks.
#[derive(Clone, Default)]
pub struct Queue {
    blocks: VecDeque<Box<Block>>,
    /// Where the first byte lies in the first block.
    start: usize,
    len: usize,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Queue {
    /// Bytes in it.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Blocks that it has borrowed.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that it would borrow for so many bytes more.
    pub(crate) fn blocks_for(&self, more: usize) -> usize {
        (self.start + self.len + more).div_ceil(BLOCK) - self.blocks.len()
    }

    /// Appends bytes.
    pub fn push(&mut self, blocks: &mut Blocks, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = (self.start + self.len) % BLOCK;
            if self.start + self.len == self.blocks.len() * BLOCK {
                self.blocks.push_back(blocks.blocks.lend());
            }
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - at));
            if let Some(last) = self.blocks.back_mut() {
                last[at..at + now.len()].copy_from_slice(now);
            }
            self.len += now.len();
            bytes = later;
        }
    }

    /// Forgets the first `count` bytes, or all there are.
    pub(crate) fn forget_first(&mut self, blocks: &mut Blocks, count: usize) {
        let count = count.min(self.len);
        self.start += count;
        self.len -= count;
        while self.start >= BLOCK
            && let Some(first) = self.blocks.pop_front()
        {
            blocks.blocks.take_back(first);
            self.start -= BLOCK;
        }
        self.rest_if_empty(blocks);
    }

    /// Forgets all but the first `count` bytes.
    pub fn truncate(&mut self, blocks: &mut Blocks, count: usize) {
        self.len = self.len.min(count);
        let used = (self.start + self.len).div_ceil(BLOCK);
        while self.blocks.len() > used
            && let Some(last) = self.blocks.pop_back()
        {
            blocks.blocks.take_back(last);
        }
        self.rest_if_empty(blocks);
    }

    /// The bytes from `from` on, `count` of them and [`BLOCK`] at most, in the two parts in which
    /// they may lie; fewer where there are fewer.
    pub(crate) fn slices(&self, from: usize, count: usize) -> (&[u8], &[u8]) {
        let from = from.min(self.len);
        let count = count.min(self.len - from).min(BLOCK);
        let (number, at) = ((self.start + from) / BLOCK, (self.start + from) % BLOCK);
        let first = count.min(BLOCK - at);
        let part = |number: usize| self.blocks.get(number).map_or(&[][..], |block| &block[..]);
        let front = part(number).get(at..at + first).unwrap_or_default();
        let back = part(number + 1).get(..count - first).unwrap_or_default();
        (front, back)
    }

    /// A copy of the first `count` bytes, or of all there are.
    pub fn to_vec(&self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count.min(self.len));
        self.append_to(0, count, &mut bytes);
        bytes
    }

    /// Appends the bytes from `from` on to `out`, `count` of them or as many as there are.
    pub(crate) fn append_to(&self, mut from: usize, count: usize, out: &mut Vec<u8>) {
        let end = from.saturating_add(count).min(self.len);
        while from < end {
            let (front, back) = self.slices(from, end - from);
            out.extend_from_slice(front);
            out.extend_from_slice(back);
            from += front.len() + back.len();
        }
    }

    fn rest_if_empty(&mut self, blocks: &mut Blocks) {
        if self.len == 0 {
            self.start = 0;
            self.blocks.drain(..).for_each(|block| blocks.blocks.take_back(block));
            self.blocks.shrink_to(RESTING_BLOCKS);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_not_needed_for_a_while_goes_back() {
        let (mut blocks, mut queue) = (Blocks::default(), Queue::default());
        assert_eq!(blocks.due(), None);
        queue.push(&mut blocks, &vec![7; 10 * BLOCK]);
        queue.forget_first(&mut blocks, 10 * BLOCK);
        blocks.release(at(10));
        assert_eq!((blocks.blocks.list.len(), blocks.due()), (10, Some(at(20))), "it was needed");
        blocks.release(at(19));
        queue.push(&mut blocks, &vec![7; 3 * BLOCK]);
        queue.forget_first(&mut blocks, 3 * BLOCK);
        assert_eq!(blocks.blocks.list.len(), 10);
        blocks.release(at(20));
        assert_eq!(blocks.blocks.list.len(), 3);
        blocks.release(at(30));
        assert_eq!((blocks.blocks.list.len(), blocks.due()), (0, None));
    }

    #[test]
    fn a_parcel_holds_a_packet() {
        let mut blocks = Blocks::default();
        let too_long = (&[0; 1_000][..], &[0; parcel::PACKET_MAX - 999][..]);
        assert!(blocks.parcel(too_long, Checksum::Unchecked).is_none());
        let mut one = blocks.parcel((&[1; 700], &[2; 800]), Checksum::Right).unwrap();
        assert_eq!(one.checksum(), Checksum::Right);
        assert_eq!(
            (one.len(), one.packet()),
            (1_500, &[[1; 700].as_slice(), &[2; 800]].concat()[..])
        );
        one.packet_mut()[0] = 9;
        assert_eq!(one.packet()[..2], [9, 1]);
        // What is given back is lent again first, and nothing of it is seen.
        blocks.discard(one);
        let other = blocks.parcel((&[3; 5], &[]), Checksum::Unchecked).unwrap();
        assert_eq!((other.packet(), blocks.sheets.list.len()), (&[3; 5][..], 0));
        assert_eq!(other.checksum(), Checksum::Unchecked);
        blocks.discard(other);
        blocks.release(at(0));
        blocks.release(at(10));
        assert_eq!((blocks.sheets.list.len(), blocks.due()), (0, None));
    }

    proptest! {
        /// It is a queue, it says what it borrows, and gives everything back.
        #[test]
        fn it_holds_what_a_deque_holds(
            operations in proptest::collection::vec((0u8..4, 0usize..3 * BLOCK), 1..60)
        ) {
            let (mut blocks, mut queue) = (Blocks::default(), Queue::default());
            let mut model: VecDeque<u8> = VecDeque::new();
            let mut next = 0u32;
            for (what, count) in operations {
                match what {
                    0 | 1 => {
                        let bytes: Vec<u8> =
                            (0..count as u32).map(|at| ((next + at) % 251) as u8).collect();
                        next += count as u32;
                        let borrowed = queue.blocks() + queue.blocks_for(count);
                        queue.push(&mut blocks, &bytes);
                        model.extend(&bytes);
                        prop_assert_eq!(queue.blocks(), borrowed);
                    }
                    2 => {
                        queue.forget_first(&mut blocks, count);
                        model.drain(..count.min(model.len()));
                    }
                    _ => {
                        queue.truncate(&mut blocks, count);
                        model.truncate(count);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert!(queue.blocks() <= model.len().div_ceil(BLOCK) + 1);
                for from in (0..model.len()).step_by(1_000) {
                    let count = 1_400.min(model.len() - from);
                    let (front, back) = queue.slices(from, count);
                    let there: Vec<u8> = model.range(from..from + count).copied().collect();
                    prop_assert_eq!([front, back].concat(), there);
                    let mut rest = vec![7];
                    queue.append_to(from, usize::MAX, &mut rest);
                    prop_assert!(rest[1..].iter().eq(model.range(from..)));
                }
            }
            queue.truncate(&mut blocks, 0);
            prop_assert_eq!((queue.blocks(), queue.is_empty()), (0, true));
        }
    }
}
