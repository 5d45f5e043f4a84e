//! What one side of a connection has sent and the other has not acknowledged: its bytes, once, in
//! the pieces in which they left.
//!
//! Only payload is kept: what goes out again gets a header of its own. What comes in a super-packet
//! stays in the buffer that it came in, which is kept in its place; else bytes are copied.
//! Whether they are what their sender meant is not looked at until they matter: each piece keeps
//! the sum that its segment declared ([`Segment::declared_sum`](crate::wire::tcp::Segment)), and
//! one that turns out to be damaged counts as never seen. Pieces that come after a hole wait, some
//! of them, for it to be filled.

use std::collections::VecDeque;
use std::sync::Arc;

use super::memory::{Memory, NoRoom};
use crate::blocks::{BLOCK, Queue};
use crate::packet::Checksum;
use crate::wire::checksum::Sum;
use crate::wire::inner::{Home, InnerPacket, Pieces};
use crate::wire::tcp::{Flags, Segment, Seq};

/// Bytes that may wait behind holes,
const BEYOND_BYTES_MAX: usize = 1 << 18;
/// and pieces.
const BEYOND_PIECES_MAX: usize = 256;
/// What a piece counts as at least, in bytes: so much it takes to remember where it is.
const PIECE_MIN: usize = 64;
/// What is empty remembers no more places of pieces than this,
const RESTING_PIECES: usize = 16;
/// nor of buffers.
const RESTING_BUFFERS: usize = 4;

/// The bytes of one side of a connection.
#[derive(Debug, Default)]
pub(in crate::flow) struct Cache {
    /// The number of the first byte.
    base: Seq,
    /// The number after the last byte of those that follow without a hole.
    end: Seq,
    pieces: VecDeque<Piece>,
    /// What was copied, of pieces that follow without a hole.
    copied: Queue,
    /// How many bytes were in `copied` before those that are there.
    gone: u32,
    buffers: Buffers,
    /// How many of the first pieces were found to be what was declared.
    sound: usize,
    beyond: Vec<(Piece, Vec<u8>)>,
    /// Bytes in `beyond`.
    waiting: usize,
    /// What all pieces count as.
    held: usize,
    /// Why the hole before `beyond`, or the end, is where it is, if it is for want of room.
    no_room: Option<NoRoom>,
}

/// What left in one segment, or in several of one super-packet that lie in one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    seq: Seq,
    len: u32,
    /// Bytes of each segment but the last.
    segment: u16,
    /// The sum of its bytes, as it was declared; of those in a buffer, which are what was meant,
    /// nothing.
    sum: u16,
    push: bool,
    /// Whether the last of its segments is shorter: no more can follow.
    is_over: bool,
    place: Stored,
}

/// Where the bytes of a piece are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stored {
    /// After so many that were copied before.
    Copied(u32),
    /// In the buffer of this number, from there on.
    Buffer(u32, u32),
}

/// Buffers that pieces came in, in order.
#[derive(Debug, Default)]
struct Buffers {
    list: VecDeque<Buffer>,
    /// How many there were before those.
    gone: u32,
}

#[derive(Debug)]
struct Buffer {
    bytes: Arc<[u8]>,
    /// Pieces that lie in it.
    pieces: u16,
}

/// A segment's payload in the two pieces in which the shell hands it over.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct Payload<'a> {
    pub(in crate::flow) seq: Seq,
    pub(in crate::flow) bytes: (&'a [u8], &'a [u8]),
    /// Where it lies, all of it, if that may be kept.
    pub(in crate::flow) home: Option<Home<'a>>,
    /// Its sum, as it was declared, unless it has a home.
    pub(in crate::flow) sum: u16,
    pub(in crate::flow) push: bool,
}

impl<'a> Payload<'a> {
    /// The payload of a packet whose TCP header is `segment`.
    #[inline]
    pub(crate) fn of(packet: &InnerPacket<'a>, segment: &Segment) -> Self {
        let Pieces { head, tail, home, checksum } = packet.pieces;
        let from = segment.payload().start;
        let (bytes, home) = match head.get(from..) {
            Some(first) => ((first, tail), home.filter(|_| first.is_empty())),
            None => {
                let rest = tail.get(from - head.len()..);
                ((&[][..], rest.unwrap_or_default()), None)
            }
        };
        let sum = if home.is_some() {
            0
        } else if checksum == Checksum::LeftOut {
            sum_of(bytes.0, bytes.1) // it will be right
        } else {
            segment.declared_sum(packet)
        };
        Self { seq: segment.seq, bytes, home, sum, push: segment.flags.has(Flags::PSH) }
    }

    /// Whether it is what its sender meant.
    pub(crate) fn is_sound(&self) -> bool {
        self.home.is_some() || sum_of(self.bytes.0, self.bytes.1) == self.sum
    }

    /// The same to be copied: its sum is declared.
    fn declared(self) -> Self {
        let sum = self.home.map_or(self.sum, |_| sum_of(self.bytes.0, self.bytes.1));
        Self { sum, ..self }
    }
}

/// A piece that is to go out again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::flow) struct Again<'a> {
    pub(in crate::flow) seq: Seq,
    pub(in crate::flow) bytes: (&'a [u8], &'a [u8]),
    pub(in crate::flow) push: bool,
}

impl Again<'_> {
    pub(crate) fn end(&self) -> Seq {
        self.seq.plus(length(self.bytes.0.len() + self.bytes.1.len()))
    }

    /// The part from `from` on, of so many bytes at most.
    pub(crate) fn cut(self, from: Seq, most: u32) -> Self {
        let (first, second) = self.bytes;
        let skip = from.beyond(self.seq.min(from)) as usize;
        let skipped = skip.min(first.len());
        let first = &first[skipped..];
        let second = &second[(skip - skipped).min(second.len())..];
        let most = most as usize;
        let second = &second[..second.len().min(most.saturating_sub(first.len()))];
        let first = &first[..first.len().min(most)];
        Self { seq: self.seq.max(from), bytes: (first, second), push: self.push }
    }
}

impl Cache {
    /// The first byte, and the one after the last of those that follow without a hole; `None` when
    /// there is nothing.
    pub(crate) fn span(&self) -> Option<(Seq, Seq)> {
        (!self.pieces.is_empty()).then_some((self.base, self.end))
    }

    /// Whether all bytes of `segment` lie in the [`Self::span`]; one without any does where it lies
    /// in it, or at its end.
    pub(crate) fn covers(&self, segment: &Segment) -> bool {
        let end = segment.seq.plus(u32::from(segment.len));
        self.span().is_some_and(|(from, to)| !segment.seq.is_before(from) && !to.is_before(end))
    }

    /// Whether nothing is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.beyond.is_empty()
    }

    /// Bytes held; small pieces count as more than they have.
    pub(crate) const fn len(&self) -> usize {
        self.held
    }

    /// Keeps what is sent. What is there already is not kept twice, and what there is no memory for
    /// is not kept. Returns how many of these very bytes [`Self::get`] has: all or none.
    pub(crate) fn push(&mut self, memory: &mut Memory, payload: Payload<'_>) -> usize {
        let len = payload.bytes.0.len() + payload.bytes.1.len();
        let seq = payload.seq;
        if self.is_empty() {
            (self.base, self.end) = (seq, seq);
        }
        match seq.since(self.end) {
            0 if self.append(memory, payload, len) => {
                self.no_room = None;
                if !self.beyond.is_empty() {
                    self.close_holes(memory);
                }
                return len;
            }
            ahead
                if ahead > 0
                    && self.waiting + len <= BEYOND_BYTES_MAX
                    && self.beyond.len() < BEYOND_PIECES_MAX =>
            {
                let known = self.beyond.iter().any(|(known, _)| known.seq == seq);
                if !known && self.takes(memory, price(len)) {
                    let payload = payload.declared();
                    let bytes = [payload.bytes.0, payload.bytes.1].concat();
                    self.beyond.push((Piece::new(&payload, len, Stored::Copied(0)), bytes));
                    self.waiting += len;
                }
            }
            _ => {}
        }
        0
    }

    /// Takes memory for so many bytes, if it may have as much.
    fn takes(&mut self, memory: &mut Memory, bytes: usize) -> bool {
        let taken = memory.take(self.held, bytes);
        self.no_room = taken.err().or(self.no_room);
        self.held += if taken.is_ok() { bytes } else { 0 };
        taken.is_ok()
    }

    /// Gives memory back for so many bytes.
    fn gives_back(&mut self, memory: &mut Memory, bytes: usize) {
        self.held -= bytes;
        memory.give_back(bytes);
    }

    /// Keeps the next piece, in the buffer that it lies in or copied. Returns whether there is
    /// room.
    fn append(&mut self, memory: &mut Memory, payload: Payload<'_>, len: usize) -> bool {
        if !self.takes(memory, price(len)) {
            return false;
        }
        if let Some(home) = payload.home
            && let Some(less) = self.extend(home, len, payload.push)
        {
            self.gives_back(memory, price(len) - less);
            return true;
        }
        let home = payload.home.and_then(|home| self.buffers.keep(memory, home));
        let payload = if home.is_none() { payload.declared() } else { payload };
        match home.map_or_else(|| self.copy(memory, payload.bytes), Ok) {
            Ok(place) => {
                self.pieces.push_back(Piece::new(&payload, len, place));
                self.end = self.end.plus(length(len));
                true
            }
            Err(no_room) => {
                self.gives_back(memory, price(len));
                self.no_room = Some(no_room);
                false
            }
        }
    }

    /// If the next piece lies behind the last in one buffer, it is a part of that. Returns by how
    /// much that counts as more then.
    fn extend(&mut self, home: Home<'_>, len: usize, push: bool) -> Option<usize> {
        let last = self.pieces.back_mut()?;
        let Stored::Buffer(number, at) = last.place else { return None };
        let follows = self.buffers.is_at(number, home)
            && at as usize + last.len as usize == home.at
            && !last.is_over
            && len <= usize::from(last.segment);
        if !follows {
            return None;
        }
        let before = last.price();
        last.len += length(len);
        last.push |= push;
        last.is_over = len < usize::from(last.segment);
        self.end = last.end();
        Some(last.price() - before)
    }

    fn copy(&mut self, memory: &mut Memory, bytes: (&[u8], &[u8])) -> Result<Stored, NoRoom> {
        memory.borrow(self.copied.blocks_for(bytes.0.len() + bytes.1.len()))?;
        let place = Stored::Copied(self.gone.wrapping_add(length(self.copied.len())));
        self.copied.push(&mut memory.blocks, bytes.0);
        self.copied.push(&mut memory.blocks, bytes.1);
        Ok(place)
    }

    /// Something is left to others that there is room for.
    pub(crate) const fn leave_out(&mut self) {
        self.no_room = Some(NoRoom::ForThis);
    }

    /// Why not all is kept that was to be, if it is for want of room.
    pub(crate) const fn no_room(&self) -> Option<NoRoom> {
        self.no_room
    }

    /// What waited for a hole to be filled follows.
    fn close_holes(&mut self, memory: &mut Memory) {
        while !self.beyond.is_empty() {
            let end = self.end;
            let next = self.beyond.iter().position(|(piece, _)| piece.seq == end);
            let Some(next) = next else { break };
            let (piece, bytes) = self.beyond.swap_remove(next);
            self.waiting -= bytes.len();
            match self.copy(memory, (&bytes, &[])) {
                Ok(place) => {
                    self.pieces.push_back(Piece { place, ..piece });
                    self.end = piece.end();
                }
                Err(no_room) => {
                    self.gives_back(memory, piece.price());
                    self.no_room = Some(no_room);
                    return;
                }
            }
        }
        self.forget_overtaken(memory);
    }

    /// What waited and came otherwise meanwhile is not waited for any more.
    fn forget_overtaken(&mut self, memory: &mut Memory) {
        let (end, mut bytes, mut prices) = (self.end, 0, 0);
        self.beyond.retain(|(piece, _)| {
            let waits = !piece.seq.is_before(end);
            if !waits {
                bytes += piece.len as usize;
                prices += piece.price();
            }
            waits
        });
        self.waiting -= bytes;
        self.gives_back(memory, prices);
    }

    /// The other side has everything before `ack`.
    pub(crate) fn acknowledged(&mut self, memory: &mut Memory, ack: Seq) {
        let mut copied = 0;
        let mut prices = 0;
        while let Some(&piece) = self.pieces.front()
            && !ack.is_before(piece.end())
        {
            self.base = piece.end();
            match piece.place {
                Stored::Copied(_) => copied += piece.len as usize,
                Stored::Buffer(number, _) => self.buffers.let_go(memory, number),
            }
            prices += piece.price();
            self.pieces.pop_front();
            self.sound = self.sound.saturating_sub(1);
        }
        if let Some(first) = self.pieces.front_mut() {
            let before = first.price();
            first.arrived(ack);
            prices += before - first.price();
            self.base = first.seq;
        }
        self.gives_back(memory, prices);
        if copied > 0 {
            let blocks = self.copied.blocks();
            self.copied.forget_first(&mut memory.blocks, copied);
            memory.returned(blocks - self.copied.blocks());
            self.gone = self.gone.wrapping_add(length(copied));
        }
        if self.pieces.is_empty() {
            self.base = self.base.max(ack);
            self.end = self.base;
            self.pieces.shrink_to(RESTING_PIECES);
            self.forget_overtaken(memory);
            self.close_holes(memory);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        self.truncate(memory, 0);
        *self = Self::default();
    }

    /// Looks whether the bytes that were not looked at yet are what was declared; forgets the first
    /// that are not, and all that follow them.
    pub(crate) fn verify(&mut self, memory: &mut Memory) {
        if self.sound == self.pieces.len() {
            return; // asked before each piece that is sent again
        }
        let sound = |piece: &&Piece| {
            let (front, back) = self.slices(piece);
            matches!(piece.place, Stored::Buffer(..)) || sum_of(front, back) == piece.sum
        };
        let pieces = self.sound + self.pieces.range(self.sound..).take_while(sound).count();
        self.sound = pieces;
        if pieces < self.pieces.len() {
            self.truncate(memory, pieces);
        }
    }

    /// Forgets all but the first so many pieces.
    fn truncate(&mut self, memory: &mut Memory, pieces: usize) {
        let mut copied = self.copied.len();
        let mut prices: usize = self.beyond.iter().map(|(piece, _)| piece.price()).sum();
        while self.pieces.len() > pieces
            && let Some(piece) = self.pieces.pop_back()
        {
            self.end = piece.seq;
            prices += piece.price();
            match piece.place {
                Stored::Copied(_) => copied -= piece.len as usize,
                Stored::Buffer(number, _) => self.buffers.let_go(memory, number),
            }
        }
        let blocks = self.copied.blocks();
        self.copied.truncate(&mut memory.blocks, copied);
        memory.returned(blocks - self.copied.blocks());
        self.beyond.clear();
        self.waiting = 0;
        self.gives_back(memory, prices);
    }

    /// The segments from the one that holds the byte `from` on, in order.
    pub(crate) fn from(&self, from: Seq) -> impl Iterator<Item = Again<'_>> {
        let pieces = self.pieces.range(self.place_of(from)..);
        let segments = pieces.flat_map(|piece| piece.segments());
        let segments = segments.skip_while(move |segment| !from.is_before(segment.end()));
        segments.map(|segment| Again {
            seq: segment.seq,
            bytes: self.slices(&segment),
            push: segment.push,
        })
    }

    /// The segment of `len` bytes that begins with `from`, if it is held, in the two parts in which
    /// it may lie.
    pub(crate) fn get(&self, from: Seq, len: usize) -> Option<(&[u8], &[u8])> {
        let piece = self.pieces.get(self.place_of(from))?;
        let segment = piece.segment_at(from.beyond(piece.seq));
        let is_whole = segment.seq == from && segment.len as usize == len;
        is_whole.then(|| self.slices(&segment))
    }

    /// Which piece holds the byte `from`, or would be the next.
    fn place_of(&self, from: Seq) -> usize {
        self.pieces.partition_point(|piece| !from.is_before(piece.end()))
    }

    /// The bytes of a segment, in the two parts in which they may lie.
    fn slices(&self, segment: &Piece) -> (&[u8], &[u8]) {
        let len = segment.len as usize;
        match segment.place {
            Stored::Copied(at) => self.copied.slices(at.wrapping_sub(self.gone) as usize, len),
            Stored::Buffer(number, at) => (self.buffers.get(number, at as usize, len), &[]),
        }
    }
}

impl Buffers {
    /// Keeps the buffer that a piece lies in, if there is room for it.
    fn keep(&mut self, memory: &mut Memory, home: Home<'_>) -> Option<Stored> {
        let at = u32::try_from(home.at).ok()?;
        let is_last = |last: &&mut Buffer| Arc::ptr_eq(&last.bytes, home.buffer);
        if let Some(last) = self.list.back_mut().filter(is_last) {
            last.pieces = last.pieces.checked_add(1)?;
        } else {
            memory.borrow_spaciously(blocks_of(home.buffer)).ok()?;
            self.list.push_back(Buffer { bytes: home.buffer.clone(), pieces: 1 });
        }
        Some(Stored::Buffer(self.gone.wrapping_add(length(self.list.len() - 1)), at))
    }

    /// A piece in the buffer of this number is not kept any more.
    fn let_go(&mut self, memory: &mut Memory, number: u32) {
        if let Some(buffer) = self.list.get_mut(number.wrapping_sub(self.gone) as usize) {
            buffer.pieces -= 1;
        }
        let is_over = |buffer: Option<&Buffer>| buffer.is_some_and(|buffer| buffer.pieces == 0);
        while is_over(self.list.front())
            && let Some(oldest) = self.list.pop_front()
        {
            memory.returned(blocks_of(&oldest.bytes));
            self.gone = self.gone.wrapping_add(1);
        }
        while is_over(self.list.back())
            && let Some(newest) = self.list.pop_back()
        {
            memory.returned(blocks_of(&newest.bytes));
        }
        if self.list.is_empty() {
            self.list.shrink_to(RESTING_BUFFERS);
        }
    }

    fn get(&self, number: u32, at: usize, len: usize) -> &[u8] {
        let buffer = self.list.get(number.wrapping_sub(self.gone) as usize);
        buffer.and_then(|buffer| buffer.bytes.get(at..at + len)).unwrap_or_default()
    }

    /// Whether `home` is in the buffer of this number.
    fn is_at(&self, number: u32, home: Home<'_>) -> bool {
        let buffer = self.list.get(number.wrapping_sub(self.gone) as usize);
        buffer.is_some_and(|buffer| Arc::ptr_eq(&buffer.bytes, home.buffer))
    }
}

impl Piece {
    fn new(payload: &Payload<'_>, len: usize, place: Stored) -> Self {
        let &Payload { seq, sum, push, .. } = payload;
        Self { seq, len: length(len), segment: short(len), sum, push, is_over: false, place }
    }

    const fn end(&self) -> Seq {
        self.seq.plus(self.len)
    }

    /// What it counts as, in bytes.
    const fn price(&self) -> usize {
        price(self.len as usize)
    }

    /// Its segments, each as a piece.
    fn segments(self) -> impl Iterator<Item = Self> {
        let all = (0..self.len).step_by(usize::from(self.segment.max(1)));
        all.map(move |at| self.segment_at(at))
    }

    /// The segment that holds its byte `at`.
    fn segment_at(&self, at: u32) -> Self {
        let at = at - at % u32::from(self.segment.max(1));
        let len = (self.len - at).min(u32::from(self.segment));
        let place = match self.place {
            Stored::Copied(_) => self.place,
            Stored::Buffer(number, from) => Stored::Buffer(number, from + at),
        };
        let push = self.push && at + len == self.len;
        Self { seq: self.seq.plus(at), len, push, place, ..*self }
    }

    /// The other side has everything before `ack`: of several segments the rest is left.
    fn arrived(&mut self, ack: Seq) {
        let at = ack.beyond(self.seq).min(self.len);
        let at = at - at % u32::from(self.segment.max(1));
        if let Stored::Buffer(_, from) = &mut self.place {
            *from += at;
            self.seq = self.seq.plus(at);
            self.len -= at;
        }
    }
}

/// What a piece of so many bytes counts as.
const fn price(len: usize) -> usize {
    if len < PIECE_MIN { PIECE_MIN } else { len }
}

/// How many blocks a buffer is worth.
const fn blocks_of(buffer: &[u8]) -> usize {
    buffer.len().div_ceil(BLOCK)
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
