//! Packets leave by the paths with a share: urgent ones at once, the others in their turn.
//!
//! `bonding` owns the queues and the snapshots of the paths, and answers with values. This file
//! tells it the time and the numbers, sends what it hands out, and has it book what left.

use super::{Peer, ways};
use crate::bonding::Bonding;
use crate::congestion::Controller;
use crate::error::DropReason;
use crate::flow::Entrance;
use crate::multipath::path_queues::Numbered;
use crate::multipath::scheduler;
use crate::packet::{Instance, PacketRecord};
use crate::path::PathId;
use crate::time::{Duration, Instant};
use crate::tunnel::datagram::send_datagram;
use crate::tunnel::{Context, Tunnel, saving};
use crate::wire::frame::Framing;
use crate::wire::inner::{InnerPacket, Pieces};

/// How much of what is assisted waits at the entry, by the time that the paths take for it.
const ASSISTED_QUEUE: Duration = Duration::from_millis(15);

/// What became of a packet that leaves in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// It has left.
    Left,
    /// It waits in the queue. A timer or feedback calls [`serve`].
    Queued,
    /// It waits in the queue, and [`serve`] must be called now.
    Due,
}

/// Sends a packet that somebody waits for now, by the path that has it there first; `None` where it
/// has to wait all the same.
pub(super) fn send_urgent(
    peer: &mut Peer,
    cx: &mut Context<'_>,
    record: PacketRecord,
    packet: &InnerPacket<'_>,
) -> Option<Result<(), DropReason>> {
    let Peer { bonding, tunnel, .. } = peer;
    let (now, len) = (cx.now, packet.len());
    let path = ways::chosen(bonding, tunnel, now, |ways| scheduler::quickest(now, ways, len))?;
    if !bonding.may_hurry(now, len) {
        return None;
    }
    Some(if bonding.settings.scheduler.copies() {
        send_by_all(bonding, tunnel, cx, path, record, packet.pieces)
    } else {
        tunnel.send_packet(cx, path, record, Framing::Plain, packet.pieces)
    })
}

/// Something that somebody waits for leaves by every path that has room, and is delivered once.
fn send_by_all(
    bonding: &Bonding,
    tunnel: &mut Tunnel,
    cx: &mut Context<'_>,
    first: PathId,
    mut record: PacketRecord,
    packet: Pieces<'_>,
) -> Result<(), DropReason> {
    let framing = tunnel.epochs.number_once(record.bucket).ok_or(DropReason::NoRoute)?;
    let duplicate = record.copied(Instance::Duplicate);
    for way in bonding.ways().iter().filter(|way| way.path != first && way.is_open()) {
        // What fails here is no loss: the first answers for it.
        if tunnel.send_packet(cx, way.path, duplicate, framing, packet).is_ok() {
            record.instance = Instance::Original;
        }
    }
    tunnel.send_packet(cx, first, record, framing, packet)
}

/// Sends a packet that is part of much: in its turn, if others wait.
pub(super) fn send_in_turn(
    peer: &mut Peer,
    cx: &mut Context<'_>,
    record: PacketRecord,
    packet: &InnerPacket<'_>,
) -> Result<Sent, DropReason> {
    let Peer { bonding, tunnel, .. } = peer;
    // What leaves again comes before what never left.
    let repairs = !tunnel.recovery.queue.is_empty();
    if !repairs && bonding.gives_at_once(cx.now) {
        return send_first(bonding, tunnel, cx, record, packet.pieces).map(|()| Sent::Left);
    }
    let (dropped, is_due) = bonding.enter(cx.now, cx.memory.blocks(), record, packet);
    (0..dropped).for_each(|_| cx.drops.count(DropReason::QueueFull));
    Ok(if is_due || repairs { Sent::Due } else { Sent::Queued })
}

/// A packet before which none waits leaves at once, if the path that it is given to may carry it;
/// else it waits for that.
fn send_first(
    bonding: &mut Bonding,
    tunnel: &mut Tunnel,
    cx: &mut Context<'_>,
    record: PacketRecord,
    packet: Pieces<'_>,
) -> Result<(), DropReason> {
    let chosen = bonding.choose(cx.now, record.bucket, packet.len());
    let (Some(place), Some(epoch)) = (chosen, &mut tunnel.epochs.current) else {
        return Err(DropReason::QueueFull); // one that has need has room
    };
    let given = Numbered::new(record, epoch.numbers.in_order(record.bucket));
    let path = bonding.ways()[place].path;
    let seals = tunnel.paths.list.get(path).is_some_and(|path| epoch.has_lane_for(path));
    if bonding.is_free(cx.now, place) && !cx.out.is_full() && seals {
        return tunnel.send_ordered(cx, path, given, packet);
    }
    let packet = cx.memory.blocks().parcel((packet.head, packet.tail), packet.checksum);
    bonding.line_up(cx.now, place, given, packet.ok_or(DropReason::QueueFull)?);
    Ok(())
}

/// Gives the paths what they have need of, and lets leave what may. Returns whether something waits
/// and no path carries a share any more: it is for the one path that there is.
pub(super) fn serve(peer: &mut Peer, cx: &mut Context<'_>) -> bool {
    let Peer { bonding, tunnel, .. } = peer;
    if !bonding.begin_turn(cx.now) {
        note_wanted(bonding, tunnel, cx.now);
        return false;
    }
    ways::look(bonding, tunnel, cx.now);
    if !bonding.give_stranded(cx.now, cx.memory.blocks()) {
        return true;
    }
    if !drain(bonding, tunnel, cx) {
        bonding.rest(cx.now);
        return false;
    }
    note_wanted(bonding, tunnel, cx.now);
    bonding.end_turn(cx.now);
    false
}

/// Lets leave what may, and gives the paths what they need then. Returns whether the outbox had
/// room for all of it.
fn drain(bonding: &mut Bonding, tunnel: &mut Tunnel, cx: &mut Context<'_>) -> bool {
    loop {
        if let Some(epoch) = &mut tunnel.epochs.current {
            let memory = (cx.memory.blocks(), &mut *cx.drops);
            bonding.fill_lines(cx.now, memory, &mut epoch.numbers);
        }
        let mut any = false;
        for place in 0..bonding.ways().len() {
            while bonding.may_leave(cx.now, place) {
                if cx.out.is_full() {
                    saving::flush_due(tunnel, cx);
                    return false;
                }
                send_next(bonding, tunnel, cx, place);
                any = true;
            }
            saving::flush_due(tunnel, cx);
            ways::book(bonding, tunnel);
        }
        if !any {
            return true;
        }
    }
}

/// The next packet of the line of the path at `place` leaves; but where another path has got the
/// last index, that line is stranded.
fn send_next(bonding: &mut Bonding, tunnel: &mut Tunnel, cx: &mut Context<'_>, place: usize) {
    let (path, paths) = (bonding.ways()[place].path, &tunnel.paths.list);
    if !paths.get(path).is_some_and(|path| tunnel.epochs.has_lane(path, paths.len())) {
        bonding.strand(place);
    } else if let Some(job) = bonding.take(place) {
        send_datagram(tunnel, cx, job);
        ways::book(bonding, tunnel);
    }
}

/// Notes at each path whether something waits for it.
fn note_wanted(bonding: &mut Bonding, tunnel: &mut Tunnel, now: Instant) {
    if bonding.note_waiting() {
        for path in tunnel.paths.list.iter_to_send() {
            path.set_wanted(bonding.wants(now, path.id));
        }
    }
}

/// What is assisted hears how much of it waits at the entry.
pub(super) fn heed_entry(peer: &mut Peer, now: Instant) {
    let Peer { bonding, tunnel, flows, .. } = peer;
    let queued = |bucket| bonding.entry.queued(bucket);
    flows.heed_entry(now, bonding.entry.is_empty(), || entrance(bonding, tunnel), queued);
}

/// What the paths carry together, and how much should wait for them.
fn entrance(bonding: &Bonding, tunnel: &Tunnel) -> Entrance {
    let carrying = || bonding.ways().iter().filter_map(|way| tunnel.paths.list.get(way.path));
    let longest = carrying().filter_map(|path| path.rtt.minimum()).max();
    let controllers = carrying().filter_map(|path| path.congestion.as_deref());
    let sum =
        |(window, rate), one: &dyn Controller| (window + one.window(), rate + one.pacing_rate());
    let (window, rate) = controllers.fold((0.0, 0.0), sum);
    // The entry queue must not run empty before the next turn.
    let stands = ASSISTED_QUEUE + bonding.late.usual();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let [carried, target] = [window, rate * stands.as_secs_f64()].map(|it| it as u32);
    Entrance { carried, longest: longest.unwrap_or_default(), target }
}
