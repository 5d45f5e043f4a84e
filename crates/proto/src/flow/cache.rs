//! What one side of a connection has sent and the other has not acknowledged: its bytes, once, in
//! the pieces in which they left.
//!
//! Bytes are only copied in, and only payload: what goes out again gets a header of its own.
//! Whether they are what their sender meant is not looked at until they matter: each piece keeps
//! the sum that its segment declared ([`Segment::declared_sum`](crate::wire::tcp::Segment)), and
//! one that turns out to be damaged counts as never seen. Pieces that come after a hole wait, some
//! of them, for it to be filled.

use std::collections::VecDeque;

use crate::blocks::{BLOCK, Blocks, Queue};
use crate::time::Instant;
use crate::wire::checksum::Sum;
use crate::wire::tcp::Seq;

/// Bytes that may wait behind holes.
const BEYOND_BYTES_MAX: usize = 1 << 18;
/// What is empty remembers no more places of pieces than this.
const RESTING_PIECES: usize = 16;

/// How much memory all connections of a node may hold together, and the blocks that it comes in.
#[derive(Clone, Debug)]
pub struct Memory {
    blocks: Blocks,
    /// Blocks that connections have borrowed.
    lent: usize,
    used: usize,
    max: usize,
    share: usize,
    /// Connections that are known.
    flows: usize,
}

impl Memory {
    /// Of how many of `max` the share of one connection is.
    const SHARES: usize = 8;
    /// Connections that a node knows at most, whatever becomes of them: some 30 MB.
    pub const FLOWS_MAX: usize = 1 << 16;

    /// Blocks beyond those that `max` bytes fill: so many small things may be kept in any case.
    const BLOCKS_MIN: usize = 64;

    /// `max` bytes, of which one connection gets at most an eighth.
    pub fn new(max: usize) -> Self {
        let share = max / Self::SHARES;
        Self { blocks: Blocks::default(), lent: 0, used: 0, max, share, flows: 0 }
    }

    /// Blocks for whatever is kept.
    pub(crate) const fn blocks(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    /// When [`Self::release`] is to be called again.
    pub const fn due(&self) -> Option<Instant> {
        self.blocks.due()
    }

    /// Gives back to the system what was not needed for a while. To be called now and then, and
    /// when it is due.
    pub fn release(&mut self, now: Instant) {
        self.blocks.release(now);
    }

    /// Bytes held.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Whether more than half of it is taken: not everybody may get some of the rest.
    pub(super) const fn is_short(&self) -> bool {
        self.used > self.max / 2 || self.lent > self.blocks_max() / 2
    }

    /// Blocks that connections may borrow: a few bytes take a whole one.
    const fn blocks_max(&self) -> usize {
        self.max / BLOCK + Self::BLOCKS_MIN
    }

    /// Connections that are known.
    pub const fn flows(&self) -> usize {
        self.flows
    }

    /// Whether no more connections may be known.
    pub(super) const fn is_crowded(&self) -> bool {
        self.flows >= Self::FLOWS_MAX
    }

    pub(super) const fn one_flow_more(&mut self) {
        self.flows += 1;
    }

    pub(super) const fn flows_less(&mut self, count: usize) {
        self.flows = self.flows.saturating_sub(count);
    }

    /// Bytes that may be held.
    pub const fn max(&self) -> usize {
        self.max
    }

    /// Borrows so many blocks, if there are as many. Who gives them back says so to the queue that
    /// has them, and here.
    const fn borrow(&mut self, blocks: usize) -> Result<(), NoRoom> {
        if self.lent + blocks > self.blocks_max() {
            return Err(NoRoom::AtAll);
        }
        self.lent += blocks;
        Ok(())
    }

    /// Takes `bytes` for a connection that holds `held`, if its share and the whole allow it, less
    /// one share.
    pub(super) const fn take(&mut self, held: usize, bytes: usize) -> Result<(), NoRoom> {
        if held + bytes > self.share {
            return Err(NoRoom::InShare);
        }
        if self.used + bytes > self.max - self.share {
            return Err(NoRoom::AtAll);
        }
        self.used += bytes;
        Ok(())
    }

    /// The same for the oldest segments of a connection, for which as much as the share of one is
    /// left over: they matter most where there is no memory for more. Returns whether it fits.
    pub(super) const fn take_for_oldest(&mut self, bytes: usize) -> bool {
        let fits = self.used + bytes <= self.max;
        if fits {
            self.used += bytes;
        }
        fits
    }

    pub(super) const fn give_back(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }
}

/// Why something is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoRoom {
    /// The connection has its share already.
    InShare,
    /// All connections together have all that there is.
    AtAll,
    /// There is little, and others gain more by it.
    ForThis,
}

/// The bytes of one side of a connection.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// The number of the first byte.
    base: Seq,
    bytes: Queue,
    pieces: VecDeque<Piece>,
    /// How many of the first pieces were found to be what was declared.
    sound: usize,
    beyond: Vec<(Piece, Vec<u8>)>,
    /// Bytes in `beyond`.
    waiting: usize,
    /// Why the hole before `beyond`, or the end, is where it is, if it is for want of room.
    no_room: Option<NoRoom>,
}

/// What left in one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    seq: Seq,
    len: u16,
    /// The sum of its bytes, as it was declared.
    sum: u16,
    push: bool,
}

/// A segment's payload in the two pieces in which the shell hands it over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload<'a> {
    pub(super) seq: Seq,
    pub(super) bytes: (&'a [u8], &'a [u8]),
    pub(super) sum: u16,
    pub(super) push: bool,
}

/// A piece that is to go out again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Again<'a> {
    pub(super) seq: Seq,
    pub(super) bytes: (&'a [u8], &'a [u8]),
    pub(super) push: bool,
}

impl Again<'_> {
    pub(super) fn end(&self) -> Seq {
        self.seq.plus(length(self.bytes.0.len() + self.bytes.1.len()))
    }
}

impl Cache {
    /// The first byte, and the one after the last of those that follow without a hole; `None` when
    /// there is nothing.
    pub(super) fn span(&self) -> Option<(Seq, Seq)> {
        (!self.pieces.is_empty()).then(|| (self.base, self.end()))
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.beyond.is_empty()
    }

    /// Bytes held.
    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.waiting
    }

    fn end(&self) -> Seq {
        self.base.plus(length(self.bytes.len()))
    }

    /// Keeps a copy of what is sent. What is there already is not kept twice, and what there is no
    /// memory for is not kept. Returns how many of these very bytes [`Self::get`] has: all or none.
    pub(super) fn push(&mut self, memory: &mut Memory, payload: Payload<'_>) -> usize {
        let len = payload.bytes.0.len() + payload.bytes.1.len();
        let Payload { seq, sum, push, .. } = payload;
        let piece = Piece { seq, len: short(len), sum, push };
        if self.pieces.is_empty() && self.beyond.is_empty() {
            self.base = seq;
        }
        match seq.since(self.end()) {
            0 if self.has_room(memory, len, self.bytes.blocks_for(len)) => {
                self.no_room = None;
                self.bytes.push(&mut memory.blocks, payload.bytes.0);
                self.bytes.push(&mut memory.blocks, payload.bytes.1);
                self.pieces.push_back(piece);
                if !self.beyond.is_empty() {
                    self.close_holes(memory);
                }
                return len;
            }
            ahead if ahead > 0 && self.waiting + len <= BEYOND_BYTES_MAX => {
                let known = self.beyond.iter().any(|(known, _)| known.seq == seq);
                if !known && self.has_room(memory, len, 0) {
                    let bytes = [payload.bytes.0, payload.bytes.1].concat();
                    self.beyond.push((piece, bytes));
                    self.waiting += len;
                }
            }
            _ => {}
        }
        0
    }

    fn has_room(&mut self, memory: &mut Memory, bytes: usize, blocks: usize) -> bool {
        let mut taken = memory.take(self.len(), bytes);
        if taken.is_ok() {
            taken = memory.borrow(blocks).inspect_err(|_| memory.give_back(bytes));
        }
        self.no_room = taken.err().or(self.no_room);
        taken.is_ok()
    }

    /// Something is left to others that there is room for.
    pub(super) const fn leave_out(&mut self) {
        self.no_room = Some(NoRoom::ForThis);
    }

    /// Why not all is kept that was to be, if it is for want of room.
    pub(super) const fn no_room(&self) -> Option<NoRoom> {
        self.no_room
    }

    /// What waited for a hole to be filled follows.
    fn close_holes(&mut self, memory: &mut Memory) {
        while !self.beyond.is_empty() {
            let end = self.end();
            let next = self.beyond.iter().position(|(piece, _)| piece.seq == end);
            let Some(next) = next else { return };
            let (piece, bytes) = self.beyond.swap_remove(next);
            self.waiting -= bytes.len();
            if let Err(no_room) = memory.borrow(self.bytes.blocks_for(bytes.len())) {
                memory.give_back(bytes.len());
                self.no_room = Some(no_room);
                return;
            }
            self.bytes.push(&mut memory.blocks, &bytes);
            self.pieces.push_back(piece);
        }
    }

    /// The other side has everything before `ack`.
    pub(super) fn acknowledged(&mut self, memory: &mut Memory, ack: Seq) {
        let (held, blocks) = (self.len(), self.bytes.blocks());
        let mut arrived = 0;
        while let Some(piece) = self.pieces.front()
            && !ack.is_before(piece.end())
        {
            self.base = piece.end();
            arrived += usize::from(piece.len);
            self.pieces.pop_front();
            self.sound = self.sound.saturating_sub(1);
        }
        self.bytes.forget_first(&mut memory.blocks, arrived);
        memory.lent -= blocks - self.bytes.blocks();
        if self.pieces.is_empty() {
            self.base = self.base.max(ack);
            self.pieces.shrink_to(RESTING_PIECES);
            let waiting = &mut self.waiting;
            self.beyond.retain(|(piece, bytes)| {
                let misses = !piece.seq.is_before(ack);
                if !misses {
                    *waiting -= bytes.len();
                }
                misses
            });
        }
        memory.give_back(held - self.len());
        if self.pieces.is_empty() {
            self.close_holes(memory);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, memory: &mut Memory) {
        memory.give_back(self.len());
        memory.lent -= self.bytes.blocks();
        self.bytes.truncate(&mut memory.blocks, 0);
        *self = Self::default();
    }

    /// Looks whether the bytes that were not looked at yet are what was declared; forgets the first
    /// that are not, and all that follow them.
    pub(super) fn verify(&mut self, memory: &mut Memory) {
        if self.sound == self.pieces.len() {
            return; // asked before each piece that is sent again
        }
        let held = self.len();
        let sound = |piece: &&Piece| {
            let (front, back) = self.slices(piece);
            sum_of(front, back) == piece.sum
        };
        let pieces = self.sound + self.pieces.range(self.sound..).take_while(sound).count();
        self.sound = pieces;
        if pieces < self.pieces.len() {
            let bytes = self.pieces.range(..pieces).map(|piece| usize::from(piece.len)).sum();
            self.pieces.truncate(pieces);
            memory.lent -= self.bytes.blocks();
            self.bytes.truncate(&mut memory.blocks, bytes);
            memory.lent += self.bytes.blocks();
            self.beyond.clear();
            self.waiting = 0;
        }
        memory.give_back(held - self.len());
    }

    /// The pieces from the one that holds the byte `from` on, in order.
    pub(super) fn from(&self, from: Seq) -> impl Iterator<Item = Again<'_>> {
        let first = self.pieces.partition_point(|piece| !from.is_before(piece.end()));
        self.pieces.range(first..).map(|piece| Again {
            seq: piece.seq,
            bytes: self.slices(piece),
            push: piece.push,
        })
    }

    /// The bytes of a piece, in the two parts in which they may lie.
    fn slices(&self, piece: &Piece) -> (&[u8], &[u8]) {
        self.bytes.slices(piece.seq.beyond(self.base) as usize, usize::from(piece.len))
    }

    /// The `len` bytes from `from` on, if all of them are held, in the two parts in which they may
    /// lie: of one segment at most.
    pub(super) fn get(&self, from: Seq, len: usize) -> Option<(&[u8], &[u8])> {
        let at = from.beyond(self.base) as usize;
        let is_held = !from.is_before(self.base) && at + len <= self.bytes.len();
        is_held.then(|| self.bytes.slices(at, len))
    }
}

impl Piece {
    const fn end(&self) -> Seq {
        self.seq.plus(self.len as u32)
    }
}

/// The sum of bytes in two parts, of which the first may be odd.
fn sum_of(front: &[u8], back: &[u8]) -> u16 {
    let sum = Sum::default().bytes(front);
    if front.len().is_multiple_of(2) {
        return sum.bytes(back).folded();
    }
    // Every byte of the second part stands in the other half of its word.
    sum.word(Sum::default().bytes(back).folded().swap_bytes()).folded()
}

#[expect(clippy::cast_possible_truncation, reason = "shares are far below 2^32 bytes")]
const fn length(bytes: usize) -> u32 {
    bytes as u32
}

#[expect(clippy::cast_possible_truncation, reason = "an inner packet has at most 1,500 bytes")]
const fn short(bytes: usize) -> u16 {
    bytes as u16
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
