//! Sends lost packets again: all that a dead path still owed, and the losses of working paths that
//! have a share (docs/spec/wire.md#repair).
//!
//! Each end keeps the inner packets that the other end has not acknowledged. A client that leaves a
//! path reports what arrived there, so that the gateway need not wait for silence. A path without a
//! share gets no repairs while it works: the senders behind it have to see its losses, because
//! nothing else slows them down.

use super::Bonding;
use super::live::PLAY_OUT;
use crate::error::DropReason;
use crate::flow::classify::Class;
use crate::flow::{Flows, tuple};
use crate::outbox::REST;
use crate::recovery::packet::LostPacket;
use crate::recovery::queue::Abandoned;
use crate::recovery::sent_packets::KEPT_TIME;
use crate::time::Instant;
use crate::tunnel::{Context, Tunnel};
use crate::wire::frame;
use crate::wire::inner::InnerPacket;

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
        if tunnel.recovery.has_lost() {
            self.send_packets_lost(cx, tunnel, flows);
        }
        tunnel.send_abandoned(cx);
    }

    fn send_packets_lost(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel, flows: &mut Flows) {
        let Some(choice) = tunnel.paths.list.choose() else {
            return tunnel.recovery.wait_for_path();
        };
        while let Some(mut lost) = tunnel.recovery.next_lost(cx.now, cx.drops) {
            if !self.is_needed(flows, cx.now, &mut lost) {
                tunnel.recovery.leave_out(&lost);
                continue;
            }
            let soonest = self.quickest_open(cx, tunnel, lost.frame.len());
            let path = soonest.unwrap_or(choice.original);
            let due = if lost.is_small() { None } else { tunnel.paths.list.paces_at(path) };
            if let Some(due) = due.filter(|&due| due > cx.now) {
                return tunnel.recovery.put_back(lost, due);
            }
            let sent = if cx.out.is_full() {
                Err(DropReason::QueueFull)
            } else {
                match tunnel.epochs.may_repair(lost.space.epoch) {
                    Some(true) => tunnel.retransmit(cx, path, &lost),
                    Some(false) => {
                        tunnel.recovery.put_aside(lost);
                        continue;
                    }
                    None => Err(DropReason::NoRoute),
                }
            };
            match sent {
                Ok(()) => {}
                Err(DropReason::QueueFull) => return tunnel.recovery.put_back(lost, cx.now + REST),
                Err(DropReason::Amplification) => {
                    let due = lost.at + KEPT_TIME;
                    return tunnel.recovery.put_back(lost, due);
                }
                Err(reason) => {
                    cx.drops.count(reason);
                    tunnel.recovery.leave_out(&lost);
                }
            }
        }
    }

    /// Whether a lost packet is to be sent again. If so, its frame is made whole.
    fn is_needed(&self, flows: &mut Flows, now: Instant, lost: &mut LostPacket) -> bool {
        if !Self::complete(flows, lost) || Self::is_sent_again(flows, lost) {
            return false;
        }
        let packet = frame::packet_of(&lost.frame);
        !packet.is_some_and(|packet| self.is_too_late(flows, now, lost.first_at, packet))
    }

    /// Fetches what is kept of the frame with its connection. Returns whether it is there: else it
    /// has arrived, or will be sent again by whoever sent it.
    fn complete(flows: &mut Flows, kept: &mut LostPacket) -> bool {
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
    fn is_sent_again(flows: &mut Flows, kept: &LostPacket) -> bool {
        let Some(packet) = frame::packet_of(&kept.frame) else { return false };
        InnerPacket::whole(packet).is_ok_and(|packet| flows.sends_again(kept.at, &packet))
    }

    /// Packets that were overtaken long ago on a path with a share count as lost, and are repaired.
    pub(crate) fn give_up_late(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
        if tunnel.lose_late(cx) {
            self.multipath.looked = None; // there is room on it
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
                tunnel.recovery.abandon(Abandoned { epoch: epoch.id, bucket, from, to });
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
