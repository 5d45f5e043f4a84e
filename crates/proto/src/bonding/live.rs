//! Realtime packets: the path of each, and the paths of its copies.
//!
//! A realtime packet waits in no queue of this end. It leaves at once, by the path that delivers it
//! first. A flow stays with its path until another path is earlier by more than a listener notices.
//! A gateway answers by the path that the flow came by, so that both directions share one path. If
//! the path loses packets, owes an answer or is new to the flow, a copy leaves by another path, and
//! the receiver delivers whichever comes first. If all other paths are much later, the copy follows
//! by the same path. DNS queries leave by every path.
//!
//! `choice` chooses, this file sends.

use super::Bonding;
use super::choice::{Choice, LOST_PART, PLAY_OUT, Sent, choose};
use crate::ablation::Heuristic;
use crate::error::DropReason;
use crate::flow::Flows;
use crate::multipath::snapshot::PathSnapshot;
use crate::outbox::Draft;
use crate::packet::{Class, Instance, PacketRecord};
use crate::path::PathId;
use crate::recovery::feedback::DELAY_PACED;
use crate::recovery::packet::Load;
use crate::time::{Duration, Instant};
use crate::tunnel::{Context, Tunnel, saving};
use crate::wire::data::OVERHEAD;
use crate::wire::frame::Framing;
use crate::wire::inner::InnerPacket;

/// Feedback may wait for [`DELAY_PACED`], and timers ring so much later: who owes an answer for
/// longer than that and the path's timeout is in doubt.
const DOUBT_GRACE: Duration = Duration::from_millis(12);

impl Bonding {
    /// Sends a packet that is of no use late now; `None` where it has to wait all the same.
    pub(crate) fn send_live(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        flows: &mut Flows,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
    ) -> Option<Result<(), DropReason>> {
        self.look_at_choices(tunnel, cx.now);
        let follows = tunnel.paths.at_gateway();
        let id = record.flow?;
        let flow = flows.live_mut(id)?;
        let (path, is_new) = choose(cx.now, flow, follows, &self.live.choices)?;
        let way = *self.live.choices.iter().find(|choice| choice.path == path)?;
        let flow = flows.live_mut(id)?;
        if !flow.may_leave(cx.now, way.early(), packet.len()) {
            return None;
        }
        if !self.ablation.is_off(Heuristic::Calm)
            && let Some(controller) =
                tunnel.paths.list.get_mut(path).and_then(|path| path.congestion.as_mut())
        {
            controller.keep_calm(cx.now);
        }
        let is_alone = self.live.choices.len() < 2;
        let framing = match is_alone {
            true => Framing::Plain,
            false => tunnel.epochs.number_once(record.bucket)?,
        };
        let sent = tunnel.send_packet(cx, path, record, framing, packet.pieces);
        let wanted = if record.class == Class::Names { 1.0 } else { way.expected_loss(is_new) };
        let duplicate = record.copied(Instance::Duplicate);
        let copied = self.send_copies(cx, tunnel, (way, wanted), duplicate, framing, packet);
        let len = packet.len() + framing.overhead();
        if is_alone || len > way.room || sent.is_err() {
            return Some(sent);
        }
        let left = (path, tunnel.epochs.id());
        if !copied && packet.is_udp() {
            self.live.recent.push(cx.now, left, framing, packet.pieces);
        }
        if record.class == Class::RealTime
            && !self.ablation.is_off(Heuristic::Twins)
            && !saving::is_frugal(cx, tunnel)
            && self.live.has_twin(way)
            && self.live.may_copy(cx.now, len)
        {
            self.live.twins.push(cx.now, left, framing, packet.pieces);
        }
        Some(sent)
    }

    /// Sends copies of what left by `way`, of which this part is lost otherwise. Returns whether
    /// any left.
    fn send_copies(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        (way, mut lost): (Choice, f64),
        record: PacketRecord,
        framing: Framing,
        packet: &InnerPacket<'_>,
    ) -> bool {
        if self.ablation.is_off(Heuristic::Copies) || saving::is_frugal(cx, tunnel) {
            return false;
        }
        let mut any = false;
        let is_raced = lost >= 1.0;
        for place in 0..self.live.choices.len() {
            let choice = self.live.choices[place];
            let len = packet.len() + framing.overhead();
            let is_late = choice.lateness > way.lateness + PLAY_OUT && !is_raced;
            if choice.path == way.path || is_late || len > choice.room {
                continue;
            }
            if lost <= LOST_PART || !self.live.may_copy(cx.now, len) {
                break;
            }
            if tunnel.send_packet(cx, choice.path, record, framing, packet.pieces).is_ok() {
                any = true;
                tunnel.paths.list.note_copied(choice.path, len);
                // A race is one of all.
                lost *= if is_raced { 1.0 } else { choice.expected_loss(false) };
            }
        }
        any
    }

    /// When the next copy by the same path is due.
    pub(crate) fn twin_due(&self) -> Option<Instant> {
        self.live.twin_due()
    }

    /// Sends the copies by the same path that are due.
    pub(crate) fn send_twins(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
        while let Some(sent) = self.live.take_twin(cx.now) {
            Self::send_again(cx, tunnel, sent.path, &sent);
        }
    }

    /// Sends what has left once more, by `path`, if its place in the sequence still means anything.
    fn send_again(cx: &mut Context<'_>, tunnel: &mut Tunnel, path: PathId, sent: &Sent) {
        if sent.epoch != tunnel.epochs.id() {
            return;
        }
        let fill = |draft: &mut Draft<'_>| {
            draft.frames().extend_from_slice(&sent.frame);
        };
        match tunnel.send_on(cx, path, Load::Unkept, fill) {
            Ok(()) => tunnel.paths.list.note_copied(path, sent.frame.len()),
            Err(reason) => cx.drops.count(reason),
        }
    }

    /// Fills the room for the choice: the paths that carry, the earliest first.
    fn look_at_choices(&mut self, tunnel: &mut Tunnel, now: Instant) {
        self.look_at_ways(tunnel, now);
        self.live.set_choices(self.ways.iter().filter_map(|way| choice_of(tunnel, now, way)));
    }

    /// When copies are due of what left by a path that is in doubt by then.
    pub(crate) fn rescue_due(&self, tunnel: &Tunnel) -> Option<Instant> {
        if self.live.recent.is_empty() || self.ablation.is_off(Heuristic::Rescue) {
            return None;
        }
        let in_time = |id| {
            let (due, until) = (doubtful_at(tunnel, id)?, self.live.recent.until(id)?);
            (due < until).then_some(due)
        };
        tunnel.paths.list.iter().filter_map(|path| in_time(path.id)).min()
    }

    /// What left just now by a path that is in doubt leaves again by another.
    pub(crate) fn rescue(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
        if self.rescue_due(tunnel).is_none_or(|due| due > cx.now) {
            return;
        }
        self.look_at_choices(tunnel, cx.now);
        let doubtful = |id| doubtful_at(tunnel, id).is_some_and(|at| at <= cx.now);
        let doubtful: Vec<_> =
            tunnel.paths.list.iter().map(|path| path.id).filter(|&id| doubtful(id)).collect();
        for id in doubtful {
            self.rescue_from(cx, tunnel, id);
        }
    }

    /// Paths were removed: nobody will say whether what left by them just now has arrived.
    pub(crate) fn rescue_from_removed(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
        while let Some(id) = tunnel.changes.take_removed() {
            if self.live.recent.until(id).is_none() {
                continue;
            }
            self.looked = None; // the path was among those that carry
            self.look_at_choices(tunnel, cx.now);
            self.rescue_from(cx, tunnel, id);
        }
    }

    /// What left just now by a path leaves again by another.
    fn rescue_from(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel, id: PathId) {
        let other = self.live.choices.iter().find(|choice| choice.path != id).copied();
        while let Some(sent) = self.live.recent.take(id) {
            let is_of_use = sent.at + PLAY_OUT > cx.now;
            let len = sent.frame.len();
            let Some(other) = other.filter(|other| is_of_use && len <= other.room) else {
                continue;
            };
            if self.live.may_copy(cx.now, len) {
                Self::send_again(cx, tunnel, other.path, &sent);
            }
        }
    }
}

/// The path of `way`; `None` if it is gone.
fn choice_of(tunnel: &Tunnel, now: Instant, way: &PathSnapshot) -> Option<Choice> {
    let path = tunnel.paths.list.get(way.path)?;
    Some(Choice {
        path: way.path,
        lateness: way.delay + path.delay.queue(now).unwrap_or_default(),
        loss: tunnel.sent_on(way.path).map_or(0.0, |sent| sent.loss().share()),
        is_doubtful: doubtful_at(tunnel, way.path).is_some_and(|at| at <= now),
        rate: way.rate(),
        room: path.mtu.datagram() - OVERHEAD,
    })
}

/// When a path has owed an answer for so long that it is in doubt.
fn doubtful_at(tunnel: &Tunnel, id: PathId) -> Option<Instant> {
    let since = tunnel.sent_on(id)?.unanswered_since()?;
    let grace = DELAY_PACED + DOUBT_GRACE;
    Some(since + tunnel.paths.list.get(id)?.rtt.timeout() + grace)
}
