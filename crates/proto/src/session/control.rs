//! Numbered control frames: sent on any path, repeated until acknowledged, delivered once and in
//! order (docs/spec/wire.md#4-control). Numbers start at 0 in every epoch, and with them all that
//! counts is said again: what was not acknowledged under the old one is no loss.

use std::collections::{BTreeMap, VecDeque};

use crate::error::DropReason;
use crate::time::{Duration, Instant};
use crate::wire::control::{BODY_MAX, Control};
use crate::wire::frame::ControlAck;

/// Control frames that may wait for acknowledgement; a further one pushes nothing out, it is
/// refused.
pub(crate) const QUEUE_MAX: usize = 64;
/// Control frames beyond a gap that a receiver keeps: as many as one acknowledgement can name.
pub(crate) const AHEAD_MAX: u32 = 32;
/// The longest pause between repeats of one frame.
const REPEAT_MAX: Duration = Duration::from_secs(4);

const _: () = assert!(QUEUE_MAX * BODY_MAX <= 64 * 1_024);

/// The sending side.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlSender {
    queue: VecDeque<Pending>,
    next: u32,
}

#[derive(Clone, Debug)]
struct Pending {
    number: u32,
    body: Vec<u8>,
    /// Whether it says where a gateway is reached.
    announces: bool,
    due: Instant,
    pause: Duration,
    acknowledged: bool,
}

impl Pending {
    /// Whether it is open and the receiver would keep it: it lies not too far beyond `first`, the
    /// oldest that is open.
    const fn may_leave(&self, first: u32) -> bool {
        !self.acknowledged && self.number.wrapping_sub(first) <= AHEAD_MAX
    }
}

impl ControlSender {
    /// Queues a message for sending at once. Returns whether there was room.
    pub(crate) fn push(&mut self, now: Instant, message: &Control) -> bool {
        if self.queue.len() >= QUEUE_MAX {
            return false;
        }
        let mut body = Vec::new();
        message.emit(&mut body);
        self.queue.push_back(Pending {
            number: self.next,
            body,
            announces: matches!(message, Control::Addresses(_)),
            due: now,
            pause: Duration::ZERO,
            acknowledged: false,
        });
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Whether addresses that were pushed wait for their acknowledgement.
    pub(crate) fn announces(&self) -> bool {
        self.queue.iter().any(|pending| pending.announces && !pending.acknowledged)
    }

    /// How many wait for acknowledgement.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The number of the next message that is pushed.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    /// All messages before this number have arrived, and the peer has acted on them: it takes them
    /// in order.
    pub(crate) fn delivered(&self) -> u32 {
        self.queue.front().map_or(self.next, |pending| pending.number)
    }

    /// Whether everything was acknowledged.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// When the next frame is due; `None` while all is acknowledged.
    pub(crate) fn due(&self) -> Option<Instant> {
        let first = self.queue.front()?.number;
        self.queue.iter().filter(|pending| pending.may_leave(first)).map(|p| p.due).min()
    }

    /// The next frame to send now: number and body, at most `room` bytes of body. It falls due
    /// again after `timeout`, doubled with each repeat.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        timeout: Duration,
        room: usize,
    ) -> Option<(u32, &[u8])> {
        let first = self.queue.front()?.number;
        let pending = self.queue.iter_mut().find(|pending| {
            pending.may_leave(first) && pending.due <= now && pending.body.len() <= room
        })?;
        pending.pause = if pending.pause.is_zero() { timeout } else { pending.pause * 2 };
        pending.pause = pending.pause.clamp(Duration::from_millis(1), REPEAT_MAX);
        pending.due = now + pending.pause;
        Some((pending.number, &pending.body))
    }

    /// Takes an acknowledgement.
    pub(crate) fn acknowledged(&mut self, ack: ControlAck) {
        for pending in &mut self.queue {
            let beyond = pending.number.wrapping_sub(ack.next.wrapping_add(1));
            let below = ack.next.wrapping_sub(pending.number).wrapping_sub(1) < u32::MAX / 2;
            if below || (beyond < 32 && ack.beyond & (1 << beyond) != 0) {
                pending.acknowledged = true;
            }
        }
        while self.queue.front().is_some_and(|pending| pending.acknowledged) {
            self.queue.pop_front();
        }
    }

    /// A path is back: what waits is due now, whatever its pause.
    pub(crate) fn hurry(&mut self, now: Instant) {
        for pending in &mut self.queue {
            (pending.due, pending.pause) = (now, Duration::ZERO);
        }
    }
}

/// The receiving side of one epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlReceiver {
    next: u32,
    ahead: BTreeMap<u32, Vec<u8>>,
    owes_ack: bool,
}

impl ControlReceiver {
    /// Takes a frame; what can be delivered now comes out of [`ControlReceiver::poll`].
    ///
    /// # Errors
    /// [`DropReason::TableFull`] when the frame lies too far beyond a gap, [`DropReason::BadFrame`]
    /// when it is longer than any sender may make it.
    pub(crate) fn receive(&mut self, number: u32, body: &[u8]) -> Result<(), DropReason> {
        if body.len() > BODY_MAX {
            return Err(DropReason::BadFrame);
        }
        let distance = number.wrapping_sub(self.next);
        if distance > u32::MAX / 2 {
            self.owes_ack = true; // a repeat: the acknowledgement was lost
            return Ok(());
        }
        if distance > AHEAD_MAX {
            return Err(DropReason::TableFull);
        }
        self.owes_ack = true;
        self.ahead.entry(number).or_insert_with(|| body.to_vec());
        Ok(())
    }

    /// The next message in order.
    pub(crate) fn poll(&mut self) -> Option<Vec<u8>> {
        let body = self.ahead.remove(&self.next)?;
        self.next = self.next.wrapping_add(1);
        Some(body)
    }

    /// The acknowledgement to send now; `None` when none is owed.
    pub(crate) fn take_ack(&mut self) -> Option<ControlAck> {
        if !std::mem::take(&mut self.owes_ack) {
            return None;
        }
        let mut beyond = 0;
        for number in self.ahead.keys() {
            let bit = number.wrapping_sub(self.next.wrapping_add(1));
            if bit < 32 {
                beyond |= 1 << bit;
            }
        }
        Some(ControlAck { next: self.next, beyond })
    }

    /// The acknowledgement that was taken could not be sent.
    pub(crate) const fn restore_ack(&mut self) {
        self.owes_ack = true;
    }

    /// Whether an acknowledgement is owed.
    pub(crate) const fn owes_ack(&self) -> bool {
        self.owes_ack
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
