//! Sends lost packets again: all that a dead path still owed, and the losses of working paths that
//! have a share (docs/spec/wire.md#repair).
//!
//! Each end keeps the inner packets that the other end has not acknowledged. A client that leaves a
//! path reports what arrived there, so that the gateway need not wait for silence. A path without a
//! share gets no repairs while it works: the senders behind it have to see its losses, because
//! nothing else slows them down.

use std::collections::VecDeque;

use super::Bonding;
use super::live::PLAY_OUT;
use crate::error::DropReason;
use crate::flow::classify::Class;
use crate::flow::{Flows, tuple};
use crate::outbox::REST;
use crate::recovery::sent_packets::{KEPT_TIME, KeptFrame};
use crate::time::Instant;
use crate::tunnel::lost::{Abandoned, is_small};
use crate::tunnel::{Context, Tunnel};
use crate::wire::frame;
use crate::wire::inner::InnerPacket;

/// A packet that working paths lost is sent again at most this often. Then the packets behind it
/// wait no longer. Losses by paths that died do not count.
const ATTEMPTS_MAX: u8 = 3;

/// A range has at most so many numbers (docs/spec/wire.md#feedback).
const ADVANCED_NUMBERS_MAX: u32 = (1 << 31) - 1;

impl Bonding {
    /// Sends what was collected, as far as there is room and, where several paths carry together,
    /// their pace allows it: it comes before what never left, but fills no queue. The rest later.
    pub(crate) fn send_lost(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        flows: &mut Flows,
    ) {
        if !tunnel.lost.is_empty() {
            self.send_frames_lost(cx, tunnel, flows);
        }
        tunnel.send_abandoned(cx);
    }

    fn send_frames_lost(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel, flows: &mut Flows) {
        tunnel.lost.due = None;
        let Some(choice) = tunnel.paths.list.choose() else { return };
        while let Some(mut owed) = tunnel.lost.pop() {
            let KeptFrame { at: left_at, first_at, attempts, .. } = owed.kept;
            if left_at + KEPT_TIME <= cx.now || attempts > ATTEMPTS_MAX {
                cx.drops.count(DropReason::NoRoute);
                tunnel.lost.leave_out(&owed);
                continue;
            }
            if !Self::complete(flows, &mut owed.kept) || Self::is_sent_again(flows, &owed.kept) {
                tunnel.lost.leave_out(&owed);
                continue;
            }
            let packet = frame::packet_of(&owed.kept.frame);
            if packet.is_some_and(|packet| self.is_too_late(flows, cx.now, first_at, packet)) {
                tunnel.lost.leave_out(&owed);
                continue;
            }
            let soonest = self.quickest_open(cx, tunnel, owed.kept.frame.len());
            let path = soonest.unwrap_or(choice.original);
            let due = if is_small(&owed.kept) { None } else { tunnel.paths.list.paces_at(path) };
            if let Some(due) = due.filter(|&due| due > cx.now) {
                tunnel.lost.due = Some(due);
                tunnel.lost.put_back(owed);
                return;
            }
            let sent = if cx.out.is_full() {
                Err(DropReason::QueueFull)
            } else {
                match tunnel.epochs.may_repair(owed.epoch) {
                    Some(true) => tunnel.retransmit(cx, path, &owed),
                    Some(false) => {
                        tunnel.lost.put_aside(owed);
                        continue;
                    }
                    None => Err(DropReason::NoRoute),
                }
            };
            match sent {
                Ok(()) => {}
                Err(reason @ (DropReason::QueueFull | DropReason::Amplification)) => {
                    let full = reason == DropReason::QueueFull;
                    tunnel.lost.due = Some(if full { cx.now + REST } else { left_at + KEPT_TIME });
                    tunnel.lost.put_back(owed);
                    return;
                }
                Err(reason) => {
                    cx.drops.count(reason);
                    tunnel.lost.leave_out(&owed);
                }
            }
        }
    }

    /// Fetches what is kept of the frame with its connection. Returns whether it is there: else it
    /// has arrived, or will be sent again by whoever sent it.
    fn complete(flows: &mut Flows, kept: &mut KeptFrame) -> bool {
        let len = std::mem::take(&mut kept.elsewhere);
        if len == 0 {
            return true;
        }
        let Some(head) = frame::packet_of(&kept.frame) else { return false };
        let payload = flows.payload(head, len);
        payload.is_some_and(|(front, back)| {
            kept.frame.extend_from_slice(front);
            kept.frame.extend_from_slice(back);
            true
        })
    }

    /// Whether what was kept is a piece of a connection that is sent on its own account, slower, or
    /// a question that is.
    fn is_sent_again(flows: &mut Flows, kept: &KeptFrame) -> bool {
        let Some(packet) = frame::packet_of(&kept.frame) else { return false };
        InnerPacket::whole(packet).is_ok_and(|packet| flows.sends_again(kept.at, &packet))
    }

    /// Packets that were overtaken long ago on a path with a share count as lost, and are repaired.
    pub(crate) fn give_up_late(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
        for epoch in tunnel.epochs.receiving() {
            for lane in &mut epoch.tx {
                let Some(path) = tunnel.paths.list.get(lane.path).filter(|path| path.has_share())
                else {
                    continue;
                };
                if lane.flight.late_due(&path.rtt).is_some_and(|due| due <= cx.now) {
                    let mut lost = VecDeque::new();
                    lane.flight.expire_late(cx.now, cx.memory.blocks(), &path.rtt, &mut lost);
                    tunnel.lost.extend_counted(cx.drops, (epoch.id, lane.seal.serial), lost);
                    self.multipath.looked = None; // there is room on it
                }
            }
        }
    }

    /// Connections whose way was lost are sent on from where they are known to be, not from what
    /// was on its way: the peer is not to wait for that, nor has what still waits here to leave.
    pub(crate) fn end_sequences(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        flows: &mut Flows,
    ) {
        let now = cx.now;
        let is_repeated = |packet: &[u8]| {
            InnerPacket::whole(packet).is_ok_and(|packet| flows.sends_again(now, &packet))
        };
        self.multipath.forget(cx.memory.blocks(), is_repeated);
        let Some(epoch) = &tunnel.epochs.current else { return };
        // What was given to a path and has yet to leave is waited for.
        let waiting = self.multipath.lines.firsts();
        for bucket in 0..=u8::MAX {
            let to = waiting[usize::from(bucket)].unwrap_or_else(|| epoch.numbers.taken(bucket));
            if to > 0 {
                let from = to.saturating_sub(ADVANCED_NUMBERS_MAX);
                tunnel.lost.abandoned.push(Abandoned { epoch: epoch.id, bucket, from, to });
            }
        }
        tunnel.send_abandoned(cx);
    }

    /// Whether what left at `at` is of no use any more.
    pub(crate) fn is_too_late(
        &self,
        flows: &Flows,
        now: Instant,
        at: Instant,
        packet: &[u8],
    ) -> bool {
        if !self.multipath.is_shared || now.saturating_since(at) <= PLAY_OUT {
            return false;
        }
        let Ok(packet) = InnerPacket::whole(packet) else { return false };
        let flow = flows.flow_of(&packet, tuple::Direction::Out);
        packet.is_udp() && flow.is_some_and(|flow| flow.class() == Class::RealTime)
    }
}
