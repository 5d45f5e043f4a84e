//! Sends lost packets again: all that a dead path still owed, and the losses of working paths that
//! have a share (docs/spec/wire.md#repair).
//!
//! Each end keeps the inner packets that the other end has not acknowledged. A client that leaves a
//! path reports what arrived there, so that the gateway need not wait for silence. A path without a
//! share gets no repairs while it works: the senders behind it have to see its losses, because
//! nothing else slows them down.

use super::{Peer, ways};
use crate::bonding::choice::PLAY_OUT;
use crate::error::DropReason;
use crate::flow::judge;
use crate::multipath::scheduler;
use crate::multipath::snapshot::PathSnapshot;
use crate::outbox::REST;
use crate::packet::PacketRecord;
use crate::recovery::queue::Abandoned;
use crate::recovery::sent_packets::KEPT_TIME;
use crate::tunnel::Context;
use crate::wire::inner::InnerPacket;

/// A range has at most so many numbers (docs/spec/wire.md#feedback).
const ADVANCED_NUMBERS_MAX: u32 = (1 << 31) - 1;

/// Sends what was collected, as far as there is room and, where several paths carry together, their
/// pace allows it: it comes before what never left, but fills no queue. The rest later.
pub(super) fn send_lost(peer: &mut Peer, cx: &mut Context<'_>) {
    if !peer.tunnel.recovery.queue.is_empty() {
        send_packets_lost(peer, cx);
    }
    peer.tunnel.send_abandoned(cx);
}

fn send_packets_lost(peer: &mut Peer, cx: &mut Context<'_>) {
    let Peer { bonding, tunnel, flows, .. } = peer;
    let Some(choice) = tunnel.paths.list.choose() else {
        return tunnel.recovery.queue.wait_for_path();
    };
    while let Some(mut lost) = tunnel.recovery.queue.next(cx.now, cx.drops) {
        let age = cx.now.saturating_since(lost.first_at);
        if !flows.needs(&mut lost, bonding.is_shared && age > PLAY_OUT) {
            tunnel.recovery.queue.leave_out(&lost);
            continue;
        }
        let (now, len) = (cx.now, lost.frame.len());
        let surest = |ways: &[PathSnapshot]| scheduler::surest_open(now, ways, len);
        let surest = ways::chosen(bonding, tunnel, now, surest);
        let path = surest.unwrap_or(choice.original);
        let due = if lost.is_small() { None } else { tunnel.paths.list.paces_at(path) };
        if let Some(due) = due.filter(|&due| due > cx.now) {
            return tunnel.recovery.queue.put_back(lost, due);
        }
        if cx.out.is_full() {
            return tunnel.recovery.queue.put_back(lost, cx.now + REST);
        }
        let sent = match tunnel.epochs.may_repair(lost.space.epoch) {
            Some(true) => {
                tunnel.retransmit(cx, path, &lost, judge::strength_again(flows, lost.flow))
            }
            Some(false) => {
                tunnel.recovery.queue.put_aside(lost);
                continue;
            }
            None => Err(DropReason::NoRoute),
        };
        let Err(reason) = sent else {
            tunnel.epochs.note_repair(lost.space.epoch);
            continue;
        };
        let due = if reason == DropReason::QueueFull {
            cx.now + REST
        } else if reason == DropReason::Amplification {
            lost.at + KEPT_TIME
        } else {
            cx.drops.count(reason);
            tunnel.recovery.queue.leave_out(&lost);
            continue;
        };
        return tunnel.recovery.queue.put_back(lost, due);
    }
}

/// Packets that were overtaken long ago on a path with a share count as lost, and are repaired.
pub(super) fn give_up_late(peer: &mut Peer, cx: &mut Context<'_>) {
    let Peer { bonding, tunnel, .. } = peer;
    let memory = (cx.memory.blocks(), &mut *cx.drops);
    if tunnel.recovery.lose_late(cx.now, memory, |id| tunnel.paths.list.repaired(id)) {
        bonding.look_anew(); // there is room on it
    }
}

/// Connections whose way was lost are sent on from where they are known to be, not from what was on
/// its way: the peer is not to wait for that, nor has what still waits here to leave.
pub(super) fn end_sequences(peer: &mut Peer, cx: &mut Context<'_>) {
    let Peer { bonding, tunnel, flows, .. } = peer;
    let now = cx.now;
    let is_repeated = |record: PacketRecord, packet: &[u8]| {
        let packet = InnerPacket::whole(packet);
        packet.is_ok_and(|packet| flows.sends_again(now, record.flow, &packet))
    };
    bonding.drop_useless(cx.memory.blocks(), is_repeated);
    let Some(epoch) = &tunnel.epochs.current else { return };
    // What was given to a path and has yet to leave is waited for.
    let waiting = bonding.first_numbers();
    for bucket in 0..=u8::MAX {
        let to = waiting[usize::from(bucket)].unwrap_or_else(|| epoch.numbers.taken(bucket));
        if to > 0 {
            let from = to.saturating_sub(ADVANCED_NUMBERS_MAX);
            tunnel.recovery.queue.abandon(Abandoned { epoch: epoch.id, bucket, from, to });
        }
    }
    tunnel.send_abandoned(cx);
}
