//! What was given to which path: the lines in which packets wait until their path may carry them.
//!
//! A packet joins the line of the path that was chosen for it (`scheduler`). So the line of a short
//! path grows to as long as what a long one takes more, and what leaves by both arrives in the
//! order in which it was given, nearly. Path queues are filled no further than to keep every path
//! busy. Everything beyond that waits in the fair queue, where its flow is known.

use std::collections::VecDeque;

use super::bucket::BUCKETS;
use crate::blocks::Blocks;
use crate::blocks::parcel::Parcel;
use crate::multipath::snapshot::PathSnapshot;
use crate::packet::{Instance, PacketRecord};
use crate::path::PathId;

/// Bytes that one line holds at most: half a second at 130 Mbit/s, so much may one path be longer
/// than another.
pub(super) const LINE_BYTES_MAX: usize = 8 << 20;
/// And packets that all hold together, each in room for a full one: 100 MB, however short they are.
const PACKETS_MAX: usize = 1 << 16;

/// A packet that was given to a path, with its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// What is known of it.
    pub record: PacketRecord,
    /// Its number in the sequence of its bucket.
    pub sequence: u32,
    /// Whether that is the sequence of the keys before.
    pub is_earlier: bool,
}

impl Numbered {
    /// A packet with a number of the current sequence.
    pub const fn new(record: PacketRecord, sequence: u32) -> Self {
        Self { record, sequence, is_earlier: false }
    }
}

/// A packet that leaves by its path now.
#[derive(Debug)]
pub struct Job {
    /// The path.
    pub path: PathId,
    /// The packet's record and number.
    pub given: Numbered,
    /// The packet.
    pub packet: Parcel,
    /// The record of the packet that waits behind it, and the bytes of that.
    pub next: Option<(PacketRecord, usize)>,
}

/// The packets that were given to one path, in the order in which they leave.
#[derive(Clone, Debug)]
struct Line {
    path: PathId,
    /// Bytes of the packets.
    bytes: usize,
    given: VecDeque<(Numbered, Parcel)>,
}

/// The lines of all paths of one session.
#[derive(Clone, Debug, Default)]
pub struct PathQueues {
    lines: Vec<Line>,
    /// Packets that wait in all of them.
    len: usize,
}

impl PathQueues {
    /// Whether nothing waits in any line.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.lines.iter().map(|line| line.bytes).sum()
    }

    /// Whether no more can be given to any path, however much it could carry.
    pub(crate) const fn are_full(&self) -> bool {
        self.len >= PACKETS_MAX
    }

    /// Gives each of `ways` a line, and says what waits there. Lines of others go when nothing
    /// waits in them.
    pub fn settle(&mut self, ways: &mut [PathSnapshot]) {
        let is_settled =
            |way: &PathSnapshot| self.lines.get(way.tally.line).is_some_and(|l| l.path == way.path);
        if self.lines.len() != ways.len() || !ways.iter().all(is_settled) {
            self.lines.retain(|line| {
                !line.given.is_empty() || ways.iter().any(|way| way.path == line.path)
            });
            for way in ways.iter_mut() {
                let place = self.lines.iter().position(|line| line.path == way.path);
                way.tally.line = place.unwrap_or(self.lines.len());
                if place.is_none() {
                    self.lines.push(Line { path: way.path, bytes: 0, given: VecDeque::new() });
                }
            }
        }
        for way in ways {
            way.waiting = self.lines[way.tally.line].bytes;
        }
    }

    /// Gives `packet` to the path of `way`, which is settled.
    pub fn push(&mut self, way: &mut PathSnapshot, given: Numbered, packet: Parcel) {
        let line = &mut self.lines[way.tally.line];
        line.bytes += packet.len();
        way.waiting += packet.len();
        line.given.push_back((given, packet));
        self.len += 1;
    }

    /// Takes out the next packet of a settled path: it leaves.
    pub fn pop(&mut self, way: &mut PathSnapshot) -> Option<Job> {
        let line = self.lines.get_mut(way.tally.line)?;
        let (given, packet) = line.pop()?;
        let next = line.given.front().map(|(given, packet)| (given.record, packet.len()));
        way.waiting -= packet.len();
        self.len -= 1;
        Some(Job { path: way.path, given, packet, next })
    }

    /// Whether [`Self::take_stranded`] would find something.
    pub(crate) fn has_stranded(&self, ways: &[PathSnapshot]) -> bool {
        let settled: usize = ways.iter().map(|way| self.lines[way.tally.line].given.len()).sum();
        settled < self.len
    }

    /// A packet in the line of a path that is none of `ways`, to be given to another.
    pub(crate) fn take_stranded(&mut self, ways: &[PathSnapshot]) -> Option<(Numbered, Parcel)> {
        let stranded = |line: &&mut Line| {
            !line.given.is_empty() && !ways.iter().any(|way| way.path == line.path)
        };
        let taken = self.lines.iter_mut().find(stranded)?.pop()?;
        self.len -= 1;
        Some(taken)
    }

    /// The first place under the current keys that waits in any line, of each bucket.
    pub(crate) fn firsts(&self) -> [Option<u32>; BUCKETS] {
        let mut firsts = [None; BUCKETS];
        let given = self.lines.iter().flat_map(|line| line.given.iter().map(|(given, _)| given));
        for given in given.filter(|given| !given.is_earlier) {
            let first = &mut firsts[usize::from(given.record.bucket)];
            let is_before = |at: u32| given.sequence.wrapping_sub(at).cast_signed() < 0;
            if first.is_none_or(is_before) {
                *first = Some(given.sequence);
            }
        }
        firsts
    }

    /// There are new keys: what waits has its place under those before. What had it under those
    /// before them, of which nothing is known any more, is numbered by `next`, in the order that
    /// it had. Copies of it go: their originals are numbered.
    pub fn renumber(&mut self, blocks: &mut Blocks, mut next: impl FnMut(u8) -> u32) {
        self.lines.iter_mut().for_each(|line| line.drop_copies(blocks));
        self.len = self.lines.iter().map(|line| line.given.len()).sum();
        let all = self.lines.iter_mut().flat_map(|line| line.given.iter_mut());
        let all = all.map(|(given, _)| given);
        let (mut all, later): (Vec<_>, Vec<_>) = all.partition(|given| given.is_earlier);
        later.into_iter().for_each(|given| given.is_earlier = true);
        all.sort_by(|a, b| {
            let ahead = a.sequence.wrapping_sub(b.sequence).cast_signed();
            (a.record.bucket, ahead).cmp(&(b.record.bucket, 0))
        });
        for given in all {
            (given.sequence, given.is_earlier) = (next(given.record.bucket), false);
        }
    }

    /// Forgets what `is_useless` says is of no use; what waits then is to be settled.
    pub fn forget(
        &mut self,
        blocks: &mut Blocks,
        mut is_useless: impl FnMut(PacketRecord, &[u8]) -> bool,
    ) {
        for line in &mut self.lines {
            for _ in 0..line.given.len() {
                let Some((given, packet)) = line.pop() else { break };
                if is_useless(given.record, packet.packet()) {
                    self.len -= 1;
                    blocks.discard(packet);
                } else {
                    line.bytes += packet.len();
                    line.given.push_back((given, packet));
                }
            }
        }
    }

    /// Forgets everything. Returns how many packets that were.
    pub fn clear(&mut self, blocks: &mut Blocks) -> usize {
        let packets = self.lines.drain(..).flat_map(|line| line.given);
        packets.for_each(|(_, packet)| blocks.discard(packet));
        std::mem::take(&mut self.len)
    }
}

impl Line {
    fn pop(&mut self) -> Option<(Numbered, Parcel)> {
        let (given, packet) = self.given.pop_front()?;
        self.bytes -= packet.len();
        Some((given, packet))
    }

    /// Forgets what has its place under earlier keys and another path answers for.
    fn drop_copies(&mut self, blocks: &mut Blocks) {
        for _ in 0..self.given.len() {
            let Some((given, packet)) = self.given.pop_front() else { break };
            if given.is_earlier && given.record.instance == Instance::Duplicate {
                self.bytes -= packet.len();
                blocks.discard(packet);
            } else {
                self.given.push_back((given, packet));
            }
        }
    }
}

#[cfg(test)]
#[path = "path_queues_tests.rs"]
mod tests;
