//! Lost packets until they are sent again: losses of paths that carry, and everything that a dead
//! path still owed. Also the sequence numbers of packets that will not be sent again.

use std::collections::VecDeque;

use super::Context;
use crate::error::{DropReason, Drops};
use crate::flow::treatment::SMALL;
use crate::id::PathSerial;
use crate::recovery::sent_packets::{KEPT_BYTES_MAX, KEPT_TIME, KeptFrame};
use crate::session::index::EpochId;
use crate::session::space::TxSpace;
use crate::time::Instant;
use crate::wire::frame::Framing;

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

/// A packet that was lost, and where: under which keys and serial.
#[derive(Debug)]
pub(crate) struct Owed {
    pub(crate) epoch: EpochId,
    pub(crate) serial: PathSerial,
    pub(crate) kept: KeptFrame,
}

/// Packets that a path lost, or that were owed to one that died, in the order in which they left,
/// until they have left again.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Those that wait for nobody,
    small: VecDeque<Owed>,
    /// the others,
    frames: VecDeque<Owed>,
    /// and those that wait until it is known that the peer still has their keys.
    unheard: VecDeque<Owed>,
    /// Bytes of all, without payloads that connections keep.
    bytes: usize,
    pub(crate) due: Option<Instant>,
    /// Numbers whose packets are not sent again, until the peer is told.
    pub(crate) abandoned: Vec<Abandoned>,
}

impl Lost {
    /// Takes what is owed to the path of `lane`, of an epoch.
    pub(crate) fn collect(&mut self, cx: &mut Context<'_>, epoch: EpochId, lane: &mut TxSpace) {
        let serial = lane.seal.serial;
        while let Some(kept) = lane.flight.take(cx.memory.blocks(), cx.now) {
            self.push(cx.drops, Owed { epoch, serial, kept });
        }
    }

    /// Takes what was lost under the keys of `epoch` by the path of `serial`, which carries.
    pub(crate) fn extend(
        &mut self,
        drops: &mut Drops,
        (epoch, serial): (EpochId, PathSerial),
        kept: VecDeque<KeptFrame>,
    ) {
        kept.into_iter().for_each(|kept| self.push(drops, Owed { epoch, serial, kept }));
    }

    /// The same, where it carried all the time: it counts as an attempt.
    pub(crate) fn extend_counted(
        &mut self,
        drops: &mut Drops,
        lane: (EpochId, PathSerial),
        mut kept: VecDeque<KeptFrame>,
    ) {
        kept.iter_mut().for_each(|kept| kept.attempts = kept.attempts.saturating_add(1));
        self.extend(drops, lane, kept);
    }

    /// Takes one more; of more than one path may have had on its way the oldest are given up.
    fn push(&mut self, drops: &mut Drops, owed: Owed) {
        self.bytes += owed.kept.frame.len();
        self.queue(&owed).push_back(owed);
        while self.bytes > KEPT_BYTES_MAX {
            // Of keys that the peer may not have it hears nothing.
            let unheard = self.unheard.pop_front();
            let Some(oldest) = unheard.or_else(|| self.pop_known()) else { return };
            self.bytes -= oldest.kept.frame.len();
            drops.count(DropReason::QueueFull);
        }
    }

    /// The oldest under keys that the peer has will not leave, and the peer is told so.
    fn pop_known(&mut self) -> Option<Owed> {
        let oldest = self.frames.pop_front().or_else(|| self.small.pop_front())?;
        self.leave_out(&oldest);
        Some(oldest)
    }

    pub(crate) fn pop(&mut self) -> Option<Owed> {
        let next = self.small.pop_front().or_else(|| self.frames.pop_front())?;
        self.bytes -= next.kept.frame.len();
        Some(next)
    }

    pub(crate) fn put_back(&mut self, owed: Owed) {
        self.bytes += owed.kept.frame.len();
        self.queue(&owed).push_front(owed);
    }

    fn queue(&mut self, owed: &Owed) -> &mut VecDeque<Owed> {
        if is_small(&owed.kept) { &mut self.small } else { &mut self.frames }
    }

    /// It waits until it is known that the peer has its keys.
    pub(crate) fn put_aside(&mut self, owed: Owed) {
        self.bytes += owed.kept.frame.len();
        self.unheard.push_back(owed);
    }

    /// The peer has the keys of what waits for that.
    pub(crate) fn put_forward(&mut self) {
        for owed in std::mem::take(&mut self.unheard).into_iter().rev() {
            self.queue(&owed).push_front(owed);
        }
    }

    /// When what waits for its keys is of no use any more.
    pub(crate) fn unheard_due(&self) -> Option<Instant> {
        self.unheard.front().map(|owed| owed.kept.at + KEPT_TIME)
    }

    /// Forgets what waited for its keys until nobody needed it any more.
    pub(crate) fn forget_unheard(&mut self, now: Instant, drops: &mut Drops) {
        while self.unheard_due().is_some_and(|due| due <= now)
            && let Some(owed) = self.unheard.pop_front()
        {
            self.bytes -= owed.kept.frame.len();
            drops.count(DropReason::NoRoute);
        }
    }

    /// It does not leave again.
    pub(crate) fn leave_out(&mut self, owed: &Owed) {
        let Some(Framing::InOrder { bucket, sequence }) = Framing::of(&owed.kept.frame) else {
            return;
        };
        let new =
            Abandoned { epoch: owed.epoch, bucket, from: sequence, to: sequence.wrapping_add(1) };
        match self.abandoned.last_mut() {
            Some(last) if *last == (Abandoned { from: last.from, to: new.from, ..new }) => {
                last.to = new.to;
            }
            Some(_) | None => self.abandoned.push(new),
        }
    }

    /// Whether there is nothing that could leave.
    pub(crate) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.frames.is_empty()
    }
}

/// Whether it is a small packet, which leaves at once also where others keep a pace.
pub(crate) fn is_small(kept: &KeptFrame) -> bool {
    kept.whole_len() <= SMALL
}

#[cfg(test)]
#[path = "lost_tests.rs"]
mod tests;
