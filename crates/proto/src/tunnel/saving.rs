//! Saves bytes on inner packets as they leave: compresses those of flows that the user named, and
//! lets several packets share a datagram.
//!
//! `codec` decides which packets are compressed and how, `pack::joining` holds the datagram under
//! construction, and `draft` makes it. This file passes packets between them, and counts.
//!
//! A frame that does not leave after all, because its path is gone, goes to the retransmission
//! queue: it has a number, for which the receiver waits.

use super::draft::Cargo;
use super::saver::{Place, Saver};
use super::{Context, Tunnel, elision};
use crate::ablation::Heuristic;
use crate::codec::sampling::Scarce;
use crate::id::PathSerial;
use crate::multipath::path_queues::Job;
use crate::pack::joining::{Contents, WAIT};
use crate::packet::{Class, Instance, PacketRecord, Saving};
use crate::path::{PathId, Saved};
use crate::recovery::packet::{Load, LostPacket, SpaceId};
use crate::session::index::EpochId;
use crate::time::Instant;
use crate::wire::control::Control;
use crate::wire::data::OVERHEAD;
use crate::wire::features::Features;
use crate::wire::frame;
use crate::wire::frame::{Framing, NUMBERED_OVERHEAD};
use crate::wire::inner::{InnerPacket, Pieces};

/// A packet beside which less room is left shares its datagram with none.
const JOINED_MIN: usize = 40;
/// Bytes of the IP and UDP headers around a datagram, by IPv4 and by IPv6.
const AROUND: [u64; 2] = [28, 48];

/// What is saved on a session's packets.
pub(crate) const fn of(tunnel: &Tunnel) -> &Saver {
    &tunnel.saver
}

/// The same, to change.
pub(crate) const fn of_mut(tunnel: &mut Tunnel) -> &mut Saver {
    &mut tunnel.saver
}

/// Client: tells the gateway how both ends save bytes, and which dictionaries this end has.
pub(crate) fn ask(tunnel: &mut Tunnel, cx: &Context<'_>) {
    tunnel.control.push(cx.now, &tunnel.saver.rules());
    answer(tunnel, cx);
}

/// Tells the peer which dictionaries this end has: so it understands compressed packets.
pub(crate) fn answer(tunnel: &mut Tunnel, cx: &Context<'_>) {
    tunnel.control.push(cx.now, &Control::Dictionaries(cx.coder.dictionaries().hashes()));
}

/// Whether as few bytes as possible leave, since the client's user wants that: no copies of
/// realtime packets and DNS queries.
pub(crate) const fn is_frugal(cx: &Context<'_>, tunnel: &Tunnel) -> bool {
    cx.config.saving.frugal || tunnel.saver.is_frugal()
}

/// Takes notice of a packet on its way out, while this is `scarce`. Returns its record with what is
/// saved on it.
pub(crate) fn mark(
    tunnel: &mut Tunnel,
    cx: &Context<'_>,
    scarce: Scarce,
    packet: &InnerPacket<'_>,
    record: PacketRecord,
) -> PacketRecord {
    let may = match record.class {
        Class::Bulk | Class::Interactive => is_understood(cx, tunnel) && !packet.is_bare_segment(),
        Class::Names | Class::RealTime => false,
    };
    let saving = tunnel.saver.judge(cx, scarce, packet);
    PacketRecord { saving: if may { saving } else { Saving::NONE }, ..record }
}

/// Whether a packet without a rule may share a datagram with others that wait for the same path.
fn may_join(cx: &Context<'_>, record: PacketRecord) -> bool {
    cx.config.saving.aggregates
        && !cx.config.ablation.is_off(Heuristic::Aggregation)
        && matches!(record.class, Class::Bulk | Class::Interactive)
        && record.instance == Instance::Only
        && record.saving == Saving::NONE
}

/// Sends a packet on which bytes are saved, or keeps it for a moment to let others share its
/// datagram. Returns whether it is dealt with: otherwise it leaves like any other.
pub(crate) fn send(
    tunnel: &mut Tunnel,
    cx: &mut Context<'_>,
    (place, framing): (Place, Framing),
    record: PacketRecord,
    packet: Pieces<'_>,
) -> bool {
    let Some(room) = room_for(tunnel, place.1) else { return false };
    let is_repaired = framing != Framing::Plain && record.instance == Instance::Only;
    // New keys may have come since the packet was marked.
    if record.saving.waits() && is_repaired && is_understood(cx, tunnel) {
        let due = cx.now + WAIT;
        if record.saving == Saving::JOINED {
            write(tunnel, cx, (place, framing), record, packet);
            if join(tunnel, cx, (place, room), due, record) {
                return true;
            }
        } else if let Some(record) = tunnel.saver.encode(cx, framing, record, packet) {
            let before = framing.overhead() + packet.len();
            let compression = before.saturating_sub(tunnel.saver.frame_len()) as u64;
            if join(tunnel, cx, (place, room), due, record) {
                count(tunnel, place.1, Saved { compression, ..Saved::default() });
                return true;
            }
        }
    }
    if tunnel.saver.joining().has_bucket(record.bucket) {
        flush(tunnel, cx); // it does not overtake its own flow
    }
    false
}

/// Has a packet that waited for its path share a datagram: if one is under construction that it
/// fits into, or the next packet fits beside it. It leaves with [`flush_due`] at the latest.
/// Returns whether it is dealt with.
pub(super) fn join_next(tunnel: &mut Tunnel, cx: &mut Context<'_>, job: &Job) -> bool {
    let Job { path: id, given, packet, next } = job;
    let Some(path) = tunnel.paths.list.get(*id) else { return false };
    let (packet, room) = (Pieces::waited(packet), path.mtu.datagram() - OVERHEAD);
    let len = packet.len() + NUMBERED_OVERHEAD;
    let may = !given.is_earlier && may_join(cx, given.record);
    if len + JOINED_MIN > room || !may || is_bare(packet) {
        return false;
    }
    let Some((epoch, framing)) = tunnel.epochs.place_of(Some(path), *given) else { return false };
    let place = (epoch, *id);
    let next = next.filter(|&(next, _)| may_join(cx, next));
    let has_company = next.is_some_and(|(_, next)| len + next + NUMBERED_OVERHEAD <= room);
    if !has_company && !fits(tunnel, place, len) {
        return false;
    }
    write(tunnel, cx, (place, framing), given.record, packet);
    join(tunnel, cx, (place, room), cx.now, given.record)
}

/// Writes the frame of a packet that is not compressed, without the headers that the peer has.
fn write(
    tunnel: &mut Tunnel,
    cx: &Context<'_>,
    (place, framing): (Place, Framing),
    record: PacketRecord,
    packet: Pieces<'_>,
) {
    match elision::elide(tunnel, cx, (place.0, framing), record, packet) {
        Some(elided) => {
            tunnel.saver.write_as(framing, packet, |frame| elided.append(packet, frame));
        }
        None => tunnel.saver.write(framing, packet),
    }
}

/// Puts the frame that was written into the datagram under construction. Returns `false` if a
/// datagram has no room for it.
fn join(
    tunnel: &mut Tunnel,
    cx: &mut Context<'_>,
    (place, room): (Place, usize),
    due: Instant,
    record: PacketRecord,
) -> bool {
    let (len, elided) = (tunnel.saver.frame_len(), tunnel.saver.elided());
    if len > room {
        return false;
    }
    if elided > 0 {
        note_elided(tunnel, place.1, elided);
    }
    if !tunnel.saver.joining().has_room(place, len) {
        flush(tunnel, cx);
    }
    if tunnel.saver.add((place, room), due, record) {
        flush(tunnel, cx);
    }
    true
}

/// Whether a packet acknowledges and carries nothing: if its datagram were lost, others would go
/// with it.
fn is_bare(packet: Pieces<'_>) -> bool {
    InnerPacket::parse(packet).is_ok_and(|packet| packet.is_bare_segment())
}

/// Bytes of frames that a datagram of a path has room for.
fn room_for(tunnel: &Tunnel, path: PathId) -> Option<usize> {
    Some(tunnel.paths.list.get(path)?.mtu.datagram() - OVERHEAD)
}

/// Whether another frame of `len` bytes fits into the datagram under construction for this place.
fn fits(tunnel: &Tunnel, place: Place, len: usize) -> bool {
    let joining = tunnel.saver.joining();
    joining.to() == Some(place) && joining.has_room(place, len)
}

/// The datagram under construction leaves, if its time has come.
pub(crate) fn flush_due(tunnel: &mut Tunnel, cx: &mut Context<'_>) {
    if tunnel.saver.due().is_some_and(|due| due <= cx.now) {
        flush(tunnel, cx);
    }
}

/// The datagram under construction leaves.
pub(crate) fn flush(tunnel: &mut Tunnel, cx: &mut Context<'_>) {
    let Some((epoch, path)) = tunnel.saver.joining().to() else { return };
    let joining = tunnel.saver.take_joining();
    let contents = joining.contents();
    // The peer has no contexts of earlier keys.
    let is_understood = !contents.has_forms() || elision::is_on(tunnel, cx, epoch);
    if let Some((first, _)) = contents.kept().next() {
        let cargo = Cargo { joined: contents, ..Load::Packet(first).into() };
        let sent = is_understood.then(|| {
            tunnel.send_under(cx, epoch, path, cargo, |draft| {
                draft.frames().extend_from_slice(contents.frames());
            })
        });
        match sent {
            Some(Ok(())) => note_joined(tunnel, path, contents.len()),
            Some(Err(_)) | None => keep_for_repair(tunnel, cx, epoch, contents),
        }
    }
    tunnel.saver.give_back(joining);
}

/// So many packets shared a datagram.
fn note_joined(tunnel: &mut Tunnel, path: PathId, packets: usize) {
    let is_ipv6 = tunnel.paths.list.get(path).is_some_and(|it| it.route.remote.is_ipv6());
    let datagram = OVERHEAD as u64 + AROUND[usize::from(is_ipv6)];
    let aggregation = datagram * (packets as u64).saturating_sub(1);
    count(tunnel, path, Saved { aggregation, ..Saved::default() });
}

/// So many bytes of a packet's headers did not leave.
pub(super) fn note_elided(tunnel: &mut Tunnel, path: PathId, bytes: usize) {
    count(tunnel, path, Saved { elision: bytes as u64, ..Saved::default() });
}

/// Counts what was saved on a path.
fn count(tunnel: &mut Tunnel, path: PathId, saved: Saved) {
    tunnel.saver.count(saved);
    if let Some(path) = tunnel.paths.list.get_mut(path) {
        path.note_saved(saved);
    }
}

/// The frames did not leave. Each has a number, so each is sent again as if it had been lost.
fn keep_for_repair(
    tunnel: &mut Tunnel,
    cx: &mut Context<'_>,
    epoch: EpochId,
    contents: Contents<'_>,
) {
    for (PacketRecord { flow, kept, .. }, frame) in contents.kept() {
        tunnel.recovery.queue.push(
            cx.drops,
            LostPacket {
                space: SpaceId { epoch, serial: PathSerial(0) },
                number: 0,
                at: cx.now,
                first_at: cx.now,
                attempts: 0,
                flow,
                kept,
                frame: frame[..frame.len().saturating_sub(kept.into())].to_vec(),
            },
        );
    }
}

/// Compresses a packet frame that is sent again by `path`, if packets of its flow are compressed.
/// Returns the new frame if it is smaller.
pub(crate) fn compress_again(
    tunnel: &mut Tunnel,
    cx: &mut Context<'_>,
    path: PathId,
    frame: &[u8],
) -> Option<Vec<u8>> {
    if tunnel.saver.is_off() || !is_understood(cx, tunnel) {
        return None;
    }
    let framing = Framing::of(frame).filter(|&framing| framing != Framing::Plain)?;
    let packet = InnerPacket::whole(frame::packet_of(frame)?).ok()?;
    let smaller = tunnel.saver.compress_again(cx, framing, &packet)?;
    let compression = frame.len().saturating_sub(smaller.len()) as u64;
    count(tunnel, path, Saved { compression, ..Saved::default() });
    Some(smaller)
}

/// Whether packets may be compressed: the peer understands it, and has said in this epoch which
/// dictionaries it has.
pub(crate) fn is_understood(cx: &Context<'_>, tunnel: &Tunnel) -> bool {
    let epoch = tunnel.epochs.current.as_ref();
    epoch.is_some_and(|epoch| epoch.features().has(Features::COMPRESSED))
        && tunnel.saver.is_understood()
        && !cx.config.ablation.is_off(Heuristic::Compression)
}
