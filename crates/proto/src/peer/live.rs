//! Realtime packets leave: each on one path, with the copies that it needs.
//!
//! A realtime packet waits in no queue of this end. It leaves at once, by the path that delivers it
//! first. A flow stays with its path until another path is earlier by more than a listener notices.
//! A gateway answers by the path that the flow came by, so that both directions share one path. If
//! the path loses packets, owes an answer or is new to the flow, a copy leaves by another path, and
//! the receiver delivers whichever comes first. If all other paths are much later, the copy follows
//! by the same path. DNS queries leave by every path.
//!
//! `bonding::live` chooses, this file sends.

use super::{Peer, ways};
use crate::ablation::Heuristic;
use crate::bonding::Bonding;
use crate::bonding::choice::{Choice, LOST_PART, Sent};
use crate::bonding::live::Copies;
use crate::error::DropReason;
use crate::outbox::Draft;
use crate::packet::{self, Class, Instance, PacketRecord};
use crate::path::PathId;
use crate::recovery::feedback::DELAY_PACED;
use crate::recovery::packet::Load;
use crate::time::{Duration, Instant};
use crate::tunnel::{Context, Tunnel, saving};
use crate::wire::frame::Framing;
use crate::wire::inner::InnerPacket;

/// If a rule wants a copy of every packet, this part of the packets counts as lost without one:
/// more than a listener notices, and so little that a second copy needs another reason.
const LOST_PART_COPIED: f64 = 2.0 * LOST_PART;

/// Feedback may wait for [`DELAY_PACED`], and timers ring so much later: who owes an answer for
/// longer than that and the path's timeout is in doubt.
const DOUBT_GRACE: Duration = Duration::from_millis(12);

/// Sends a packet that is of no use late now; `None` where it has to wait all the same.
pub(super) fn send_live(
    peer: &mut Peer,
    cx: &mut Context<'_>,
    record: PacketRecord,
    packet: &InnerPacket<'_>,
) -> Option<Result<(), DropReason>> {
    let Peer { bonding, tunnel, flows, .. } = peer;
    look_at_choices(bonding, tunnel, cx.now);
    let rule = record.marks.copies();
    let (flow, follows) = (flows.live_mut(record.flow?)?, tunnel.paths.at_gateway());
    let (way, is_new) = bonding.choose_live(cx.now, flow, follows, packet.len())?;
    let path = way.path();
    if !cx.config.ablation.is_off(Heuristic::Calm)
        && let Some(path) = tunnel.paths.list.get_mut(path)
        && let Some(controller) = &mut path.congestion
    {
        controller.keep_calm(cx.now);
    }
    let is_alone = bonding.has_one_choice();
    let framing = match is_alone {
        true => Framing::Plain,
        false => tunnel.epochs.number_once(record.bucket)?,
    };
    let sent = tunnel.send_packet(cx, path, record, framing, packet.pieces);
    let len = packet.len() + framing.overhead();
    let lost = if record.class == Class::Names { 1.0 } else { way.expected_loss(is_new) };
    let lost = if rule == Some(packet::Copies::Always) { lost.max(LOST_PART_COPIED) } else { lost };
    let may_copy = match rule {
        Some(packet::Copies::Never) => false,
        Some(packet::Copies::Always) => true,
        None => !saving::is_frugal(cx, tunnel),
    };
    let copies = Copies::new(way, lost, len);
    let duplicate = record.copied(Instance::Duplicate);
    let is_copied =
        may_copy && send_copies(bonding, tunnel, cx, copies, duplicate, framing, packet);
    if is_alone || !way.has_room(len) || sent.is_err() {
        return Some(sent);
    }
    let left = (path, tunnel.epochs.id(), record.marks.strength());
    if !is_copied && packet.is_udp() && rule != Some(packet::Copies::Never) {
        bonding.remember(cx.now, left, framing, packet.pieces);
    }
    if record.class == Class::RealTime && !cx.config.ablation.is_off(Heuristic::Twins) && may_copy {
        bonding.follow_by_twin(cx.now, way, left, framing, packet.pieces);
    }
    Some(sent)
}

/// Sends copies of what left. Returns whether any left.
fn send_copies(
    bonding: &mut Bonding,
    tunnel: &mut Tunnel,
    cx: &mut Context<'_>,
    mut copies: Copies,
    record: PacketRecord,
    framing: Framing,
    packet: &InnerPacket<'_>,
) -> bool {
    if cx.config.ablation.is_off(Heuristic::Copies) {
        return false;
    }
    let mut any = false;
    while let Some(path) = bonding.next_copy(cx.now, &mut copies) {
        if tunnel.send_packet(cx, path, record, framing, packet.pieces).is_ok() {
            any = true;
            tunnel.paths.list.note_copied(path, copies.len());
            copies.note_left();
        }
    }
    any
}

/// Sends the copies by the same path that are due.
pub(super) fn send_twins(peer: &mut Peer, cx: &mut Context<'_>) {
    while let Some(sent) = peer.bonding.take_twin(cx.now) {
        send_again(&mut peer.tunnel, cx, sent.path, &sent);
    }
}

/// Sends what has left once more, by `path`, if its place in the sequence still means anything.
fn send_again(tunnel: &mut Tunnel, cx: &mut Context<'_>, path: PathId, sent: &Sent) {
    if sent.epoch != tunnel.epochs.id() {
        return;
    }
    let fill = |draft: &mut Draft<'_>| {
        draft.frames().extend_from_slice(&sent.frame);
    };
    match tunnel.send_on(cx, path, Load::Unkept(sent.strength), fill) {
        Ok(()) => tunnel.paths.list.note_copied(path, sent.frame.len()),
        Err(reason) => cx.drops.count(reason),
    }
}

/// When copies are due of what left by a path that is in doubt by then.
pub(super) fn rescue_due(peer: &Peer) -> Option<Instant> {
    let Peer { bonding, tunnel, .. } = peer;
    if !bonding.may_rescue() {
        return None;
    }
    let in_time = |id| {
        let (due, until) = (doubtful_at(tunnel, id)?, bonding.useful_until(id)?);
        (due < until).then_some(due)
    };
    tunnel.paths.list.iter().filter_map(|path| in_time(path.id)).min()
}

/// What left just now by a path that is in doubt leaves again by another.
pub(super) fn rescue(peer: &mut Peer, cx: &mut Context<'_>) {
    if rescue_due(peer).is_none_or(|due| due > cx.now) {
        return;
    }
    let Peer { bonding, tunnel, .. } = peer;
    look_at_choices(bonding, tunnel, cx.now);
    let is_doubtful = |id| doubtful_at(tunnel, id).is_some_and(|at| at <= cx.now);
    let doubtful = tunnel.paths.list.ids(|path| is_doubtful(path.id));
    for id in doubtful {
        rescue_from(bonding, tunnel, cx, id);
    }
}

/// Paths were removed: nobody will say whether what left by them just now has arrived.
pub(super) fn rescue_from_removed(peer: &mut Peer, cx: &mut Context<'_>) {
    let Peer { bonding, tunnel, .. } = peer;
    while let Some(id) = tunnel.changes.take_removed() {
        if bonding.useful_until(id).is_none() {
            continue;
        }
        bonding.look_anew(); // the path was among those that carry
        look_at_choices(bonding, tunnel, cx.now);
        rescue_from(bonding, tunnel, cx, id);
    }
}

/// What left just now by a path leaves again by another.
fn rescue_from(bonding: &mut Bonding, tunnel: &mut Tunnel, cx: &mut Context<'_>, from: PathId) {
    while let Some((path, sent)) = bonding.take_rescued(cx.now, from) {
        send_again(tunnel, cx, path, &sent);
    }
}

/// Tells `bonding` of the paths that carry, as far as a realtime packet needs to know.
fn look_at_choices(bonding: &mut Bonding, tunnel: &mut Tunnel, now: Instant) {
    ways::look(bonding, tunnel, now);
    bonding.set_choices(|way| {
        let path = tunnel.paths.list.get(way.path)?;
        let loss = tunnel.sent_on(way.path).map_or(0.0, |sent| sent.loss().share());
        let is_doubtful = doubtful_at(tunnel, way.path).is_some_and(|at| at <= now);
        Some(Choice::new(now, way, path, loss, is_doubtful))
    });
}

/// When a path has owed an answer for so long that it is in doubt.
fn doubtful_at(tunnel: &Tunnel, id: PathId) -> Option<Instant> {
    let since = tunnel.sent_on(id)?.unanswered_since()?;
    let grace = DELAY_PACED + DOUBT_GRACE;
    Some(since + tunnel.paths.list.get(id)?.rtt.timeout() + grace)
}
