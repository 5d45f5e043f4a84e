//! Lost packets until they are sent again, and the sequence numbers of those that will not be.
//!
//! Decides which lost packet is sent next, and which is too old or was lost too often. The caller
//! of [`RetransmissionQueue::next`] owns the packet. It sends it, or hands it back: by `put_back`
//! if there is no room, by `put_aside` if the peer may not have its keys, by `leave_out` if nobody
//! needs it. A packet that the caller only drops leaves a gap, for which the receiver waits.
//!
//! Small packets come first, then the others, each in the order in which they left. Packets under
//! keys that the peer may have lost wait aside until it is heard under them.
//!
//! Bounds: [`KEPT_BYTES_MAX`] bytes without payloads that connections keep; beyond it the oldest
//! are dropped. [`KEPT_TIME`] since a packet left, and [`ATTEMPTS_MAX`].

use std::collections::VecDeque;

use super::packet::LostPacket;
use super::sent_packets::{KEPT_BYTES_MAX, KEPT_TIME};
use crate::error::{DropReason, Drops};
use crate::id::EpochId;
use crate::time::Instant;
use crate::wire::frame::Framing;

/// A packet that working paths lost is sent again at most this often. Then the packets behind it
/// wait no longer. Losses by paths that died do not count.
pub(super) const ATTEMPTS_MAX: u8 = 3;

/// Numbers of a bucket that will not come: their packets are not sent again, because nobody needs
/// them any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Abandoned {
    /// Under which keys the packets left.
    pub(crate) epoch: EpochId,
    pub(crate) bucket: u8,
    /// The first number,
    pub(crate) from: u32,
    /// and the first after them that may still come.
    pub(crate) to: u32,
}

/// Lost packets in the order in which they are sent again.
#[derive(Debug, Default)]
pub(crate) struct RetransmissionQueue {
    /// Small packets, which wait for nobody,
    small: VecDeque<LostPacket>,
    /// the others,
    large: VecDeque<LostPacket>,
    /// and those that wait until it is known that the peer still has their keys.
    aside: VecDeque<LostPacket>,
    /// Bytes of all, without payloads that connections keep.
    bytes: usize,
    /// When there may be room for the next packet.
    due: Option<Instant>,
    /// Numbers whose packets are not sent again, until the peer is told.
    abandoned: Vec<Abandoned>,
}

impl RetransmissionQueue {
    /// Takes a packet that a path lost, or that was owed to one that died. Where this is more than
    /// one path may have had in flight, the oldest are given up.
    pub(crate) fn push(&mut self, drops: &mut Drops, lost: LostPacket) {
        self.bytes += lost.frame.len();
        self.part_of(&lost).push_back(lost);
        while self.bytes > KEPT_BYTES_MAX {
            let oldest = match self.aside.pop_front() {
                Some(oldest) => oldest, // the peer may not have its keys, and is told nothing
                None => {
                    let known = self.large.pop_front().or_else(|| self.small.pop_front());
                    let Some(oldest) = known else { return };
                    self.leave_out(&oldest);
                    oldest
                }
            };
            self.bytes -= oldest.frame.len();
            drops.count(DropReason::QueueFull);
        }
    }

    /// Takes out the packet that is sent next. Packets that are too old, or were lost too often,
    /// are dropped.
    pub(crate) fn next(&mut self, now: Instant, drops: &mut Drops) -> Option<LostPacket> {
        self.due = None;
        loop {
            let next = self.small.pop_front().or_else(|| self.large.pop_front())?;
            self.bytes -= next.frame.len();
            if next.at + KEPT_TIME > now && next.attempts <= ATTEMPTS_MAX {
                return Some(next);
            }
            drops.count(DropReason::NoRoute);
            self.leave_out(&next);
        }
    }

    /// There is no room for a packet until `due`: it is the next one again.
    pub(crate) fn put_back(&mut self, lost: LostPacket, due: Instant) {
        self.due = Some(due);
        self.bytes += lost.frame.len();
        self.part_of(&lost).push_front(lost);
    }

    /// No path carries: packets wait for one.
    pub(crate) const fn wait_for_path(&mut self) {
        self.due = None;
    }

    /// It waits until it is known that the peer has its keys.
    pub(crate) fn put_aside(&mut self, lost: LostPacket) {
        self.bytes += lost.frame.len();
        self.aside.push_back(lost);
    }

    /// The peer has the keys of the packets that wait for that.
    pub(crate) fn put_forward(&mut self) {
        for lost in std::mem::take(&mut self.aside).into_iter().rev() {
            self.part_of(&lost).push_front(lost);
        }
    }

    /// When there may be room again, or a packet that waits for its keys is too old.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due.into_iter().chain(self.aside_due()).min()
    }

    fn aside_due(&self) -> Option<Instant> {
        self.aside.front().map(|lost| lost.at + KEPT_TIME)
    }

    /// Forgets packets that waited for their keys until they were too old.
    pub(crate) fn expire(&mut self, now: Instant, drops: &mut Drops) {
        while self.aside_due().is_some_and(|due| due <= now)
            && let Some(lost) = self.aside.pop_front()
        {
            self.bytes -= lost.frame.len();
            drops.count(DropReason::NoRoute);
        }
    }

    /// The packet is not sent again: the peer need not wait for its number.
    pub(crate) fn leave_out(&mut self, lost: &LostPacket) {
        if let Some(Framing::InOrder { bucket, sequence }) = Framing::of(&lost.frame) {
            let (epoch, to) = (lost.space.epoch, sequence.wrapping_add(1));
            self.abandon(Abandoned { epoch, bucket, from: sequence, to });
        }
    }

    /// The peer need not wait for these numbers. A range that follows the last one extends it.
    pub(crate) fn abandon(&mut self, new: Abandoned) {
        match self.abandoned.last_mut() {
            Some(last) if *last == (Abandoned { from: last.from, to: new.from, ..new }) => {
                last.to = new.to;
            }
            Some(_) | None => self.abandoned.push(new),
        }
    }

    /// Takes out at most `count` ranges of one epoch, to tell the peer of them.
    pub(crate) fn take_abandoned(&mut self, count: usize) -> Option<(EpochId, Vec<Abandoned>)> {
        let epoch = self.abandoned.first()?.epoch;
        let same = self.abandoned.iter().take_while(|it| it.epoch == epoch).count();
        Some((epoch, self.abandoned.drain(..same.min(count)).collect()))
    }

    /// The peer is not told of the rest, and waits for those numbers as for any other gap.
    pub(crate) fn forget_abandoned(&mut self) {
        self.abandoned.clear();
    }

    /// Whether there is nothing that could leave.
    pub(crate) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    fn part_of(&mut self, lost: &LostPacket) -> &mut VecDeque<LostPacket> {
        if lost.is_small() { &mut self.small } else { &mut self.large }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
