//! Realtime packets: the path of each, and the paths of its copies.
//!
//! A realtime packet waits in no queue of this end. It leaves at once, by the path that delivers it
//! first. A flow stays with its path until another path is earlier by more than a listener notices.
//! A gateway answers by the path that the flow came by, so that both directions share one path. If
//! the path loses packets, owes an answer or is new to the flow, a copy leaves by another path, and
//! the receiver delivers whichever comes first. If all other paths are much later, the copy follows
//! by the same path. DNS queries leave by every path.
//!
//! There are two bounds. A flow may leave early only up to half of the rate of its path, so that it
//! does not bypass the congestion controller for long. And copies have a budget.

use std::collections::VecDeque;

use super::Bonding;
use crate::ablation::Heuristic;
use crate::error::DropReason;
use crate::flow;
use crate::flow::Flows;
use crate::flow::classify::Class;
use crate::flow::live::{Allowance, LiveFlow, Spent};
use crate::flow::place::Place;
use crate::multipath::snapshot::PathSnapshot;
use crate::outbox::Draft;
use crate::pack;
use crate::path::PathId;
use crate::recovery::feedback::DELAY_PACED;
use crate::recovery::packet::Load;
use crate::session::index::EpochId;
use crate::time::{Duration, Instant};
use crate::tunnel::{Context, Tunnel};
use crate::wire::data::OVERHEAD;
use crate::wire::frame::Framing;
use crate::wire::inner::{InnerPacket, Pieces};

/// Feedback may wait for [`DELAY_PACED`], and timers ring so much later: who owes an answer for
/// longer than that and the path's timeout is in doubt.
const DOUBT_GRACE: Duration = Duration::from_millis(12);
/// How long who plays a call waits for what is late: later it is of no use.
pub(crate) const PLAY_OUT: Duration = Duration::from_millis(60);
/// A flow stays with its path as long as no other is earlier by more.
const MARGIN: Duration = Duration::from_millis(2);
/// And whatever the others are, if it came to that one only just now: a queue comes and goes.
const DWELL: Duration = Duration::from_millis(500);
/// As much later than the earliest may it be meanwhile.
const DWELL_MARGIN: Duration = Duration::from_millis(20);
/// A gateway answers by the path by which a flow comes if none has come for so long by the one by
/// which it answers.
const FOLLOW: Duration = Duration::from_millis(500);
/// While a path is new to a flow, copies of it leave by another.
const NEW: Duration = Duration::from_millis(500);
/// Copies leave by as many further paths as it takes for fewer than this part of a flow to be lost.
const LOST_PART: f64 = 0.001;
/// What a path in doubt is taken to lose.
const DOUBTFUL_LOSS: f64 = 0.5;
/// A copy by the same path leaves so much later: what loses one datagram often loses the next.
const TWIN_AFTER: Duration = Duration::from_millis(1);
/// And only if every other path is later by more: it is felt, and the twin's own wait is not.
const TWIN_GAIN: Duration = Duration::from_millis(3);
/// Bytes per second of copies: two calls with everything around them, or three questions for a
/// name in every round trip. The first of them may follow one another.
const COPIES: f64 = 32_000.0;
/// Or this part of what all paths carry, if that is more.
const COPIES_PART: f64 = 0.02;
/// The part of what its path carries that a flow may be and leave early,
const EARLY_PART: f64 = 0.5;
/// and bytes beyond that which may follow one another: a picture that begins anew.
const EARLY_BURST: f64 = 64_000.0;
/// Packets that are remembered until they have arrived, or are of no use.
const RECENT_MAX: usize = 64;

/// Realtime packets at one end that were sent, and the budgets for them.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Packets that left by one path only, and may still be of use if that has died.
    recent: Recent,
    /// Those of which a copy has yet to follow by the same path.
    twins: Recent,
    copies: Spent,
    /// What left before all that waited.
    pub(crate) hurried: Spent,
    /// Room for the choice: the paths that carry, the earliest first.
    choices: Vec<Choice>,
}

/// A path as far as the choice goes.
#[derive(Clone, Copy, Debug)]
struct Choice {
    path: PathId,
    /// How much later than by the shortest a packet arrives.
    lateness: Duration,
    /// Part of what leaves by it that is lost.
    loss: f64,
    /// It owes an answer.
    is_doubtful: bool,
    /// Bytes per second.
    rate: f64,
    /// Bytes of inner packet and frame header that fit a datagram.
    room: usize,
}

/// Packets that have left, and may have to once more.
#[derive(Debug, Default)]
struct Recent {
    packets: VecDeque<Sent>,
}

#[derive(Debug)]
struct Sent {
    at: Instant,
    path: PathId,
    /// The epoch in whose sequence it has its place.
    epoch: Option<EpochId>,
    frame: Vec<u8>,
}

impl Recent {
    /// Remembers a packet, in the room of one that is of no use any more.
    fn push(
        &mut self,
        now: Instant,
        (path, epoch): (PathId, Option<EpochId>),
        framing: Framing,
        packet: Pieces<'_>,
    ) {
        let useless = |sent: &&mut Sent| now.saturating_since(sent.at) > PLAY_OUT;
        let is_full = self.packets.len() >= RECENT_MAX;
        let mut frame = match self.packets.front_mut().filter(|sent| is_full || useless(sent)) {
            Some(_) => self.packets.pop_front().map(|sent| sent.frame).unwrap_or_default(),
            None => Vec::new(),
        };
        frame.clear();
        pack::append(framing, packet, &mut frame);
        self.packets.push_back(Sent { at: now, path, epoch, frame });
    }

    /// When the newest that left by a path is of no use any more.
    fn until(&self, path: PathId) -> Option<Instant> {
        let newest = self.packets.iter().rev().find(|sent| sent.path == path);
        newest.map(|sent| sent.at + PLAY_OUT)
    }

    /// Takes out the oldest that left by a path.
    fn take(&mut self, path: PathId) -> Option<Sent> {
        let place = self.packets.iter().position(|sent| sent.path == path)?;
        self.packets.remove(place)
    }
}

impl Bonding {
    /// Sends a packet of the flow at `place`, which is of no use late, now; `None` where it has to
    /// wait all the same.
    pub(crate) fn send_live(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        flows: &mut Flows,
        (place, class): (Place, Class),
        packet: &InnerPacket<'_>,
        kept: usize,
    ) -> Option<Result<(), DropReason>> {
        self.look_at_choices(tunnel, cx.now);
        let follows = tunnel.paths.at_gateway();
        let flow = flows.live_mut(place)?;
        let (path, is_new) = choose(cx.now, flow, follows, &self.live.choices)?;
        let way = *self.live.choices.iter().find(|choice| choice.path == path)?;
        let allowance = Allowance { rate: way.rate * EARLY_PART, burst: EARLY_BURST };
        let flow = flows.live_mut(place)?;
        if !flow.may_leave(cx.now, allowance, packet.len()) {
            return None;
        }
        if let Some(controller) =
            tunnel.paths.list.get_mut(path).and_then(|path| path.congestion.as_mut())
        {
            controller.keep_calm(cx.now);
        }
        let is_alone = self.live.choices.len() < 2;
        let bucket = flow::bucket(flow::hash(&packet.headers));
        let framing = if is_alone { Framing::Plain } else { tunnel.epochs.number_once(bucket)? };
        let load = Load::Packet { elsewhere: kept };
        let sent = tunnel.send_packet(cx, path, load, framing, packet);
        let wanted = if class == Class::Names { 1.0 } else { way.expected_loss(is_new) };
        let copied = self.send_copies(cx, tunnel, way, wanted, framing, packet);
        let len = packet.len() + framing.overhead();
        if is_alone || len > way.room || sent.is_err() {
            return Some(sent);
        }
        let left = (path, tunnel.epochs.id());
        if !copied && packet.is_udp() {
            self.live.recent.push(cx.now, left, framing, packet.pieces);
        }
        if class == Class::RealTime && self.has_twin(way) && self.may_copy(cx.now, len) {
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
        way: Choice,
        mut lost: f64,
        framing: Framing,
        packet: &InnerPacket<'_>,
    ) -> bool {
        if self.multipath.ablation.is_off(Heuristic::Copies) {
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
            if lost <= LOST_PART || !self.may_copy(cx.now, len) {
                break;
            }
            let load = Load::Unkept;
            if tunnel.send_packet(cx, choice.path, load, framing, packet).is_ok() {
                any = true;
                tunnel.paths.list.note_copied(choice.path, len);
                // A race is one of all.
                lost *= if is_raced { 1.0 } else { choice.expected_loss(false) };
            }
        }
        any
    }

    /// Whether what left by `way` is followed by a copy: what is lost would be late by any other.
    fn has_twin(&self, way: Choice) -> bool {
        let others = self.live.choices.iter().filter(|choice| choice.path != way.path);
        let soonest =
            others.filter(|choice| !choice.is_doubtful).map(|choice| choice.lateness).min();
        let is_late = soonest.is_none_or(|soonest| soonest > way.lateness + TWIN_GAIN);
        let is_on = !self.multipath.ablation.is_off(Heuristic::Twins);
        is_on && way.loss > LOST_PART && !way.is_doubtful && is_late
    }

    /// Whether the budget has room for so many more bytes of copies; they count as sent if so.
    fn may_copy(&mut self, now: Instant, len: usize) -> bool {
        let carried: f64 = self.live.choices.iter().map(|choice| choice.rate).sum();
        self.live.copies.take(now, copies(carried), len)
    }

    /// When the next copy by the same path is due.
    pub(crate) fn twin_due(&self) -> Option<Instant> {
        self.live.twins.packets.front().map(|sent| sent.at + TWIN_AFTER)
    }

    /// Sends the copies by the same path that are due.
    pub(crate) fn send_twins(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
        while self.twin_due().is_some_and(|due| due <= cx.now) {
            let Some(sent) = self.live.twins.packets.pop_front() else { break };
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
        let mut choices = std::mem::take(&mut self.live.choices);
        choices.clear();
        choices.extend(tunnel.sharing.iter().filter_map(|way| Choice::of(tunnel, now, way)));
        choices.sort_by_key(|choice| (choice.is_doubtful, choice.lateness, choice.path));
        self.live.choices = choices;
    }

    /// When copies are due of what left by a path that is in doubt by then.
    pub(crate) fn rescue_due(&self, tunnel: &Tunnel) -> Option<Instant> {
        if self.live.recent.packets.is_empty() || self.multipath.ablation.is_off(Heuristic::Rescue)
        {
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
            self.multipath.looked = None; // the path was among those that carry
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
            if self.may_copy(cx.now, len) {
                Self::send_again(cx, tunnel, other.path, &sent);
            }
        }
    }
}

impl Choice {
    /// The path of `way`; `None` if it is gone.
    fn of(tunnel: &Tunnel, now: Instant, way: &PathSnapshot) -> Option<Self> {
        let path = tunnel.paths.list.get(way.path)?;
        Some(Self {
            path: way.path,
            lateness: way.delay + path.delay.queue(now).unwrap_or_default(),
            loss: tunnel.sent_on(way.path).map_or(0.0, |sent| sent.loss().share()),
            is_doubtful: doubtful_at(tunnel, way.path).is_some_and(|at| at <= now),
            rate: way.rate(),
            room: path.mtu.datagram() - OVERHEAD,
        })
    }

    /// Which part of what leaves by it will be lost.
    fn expected_loss(&self, is_new: bool) -> f64 {
        if self.is_doubtful || is_new { self.loss.max(DOUBTFUL_LOSS) } else { self.loss }
    }
}

/// When a path has owed an answer for so long that it is in doubt.
fn doubtful_at(tunnel: &Tunnel, id: PathId) -> Option<Instant> {
    let since = tunnel.sent_on(id)?.unanswered_since()?;
    let grace = DELAY_PACED + DOUBT_GRACE;
    Some(since + tunnel.paths.list.get(id)?.rtt.timeout() + grace)
}

/// The budget of copies where all paths together carry so many bytes a second.
fn copies(carried: f64) -> Allowance {
    let most = COPIES.max(carried * COPIES_PART);
    Allowance { rate: most, burst: most }
}

/// The path by which a packet of `flow` leaves, and whether that has just changed.
fn choose(
    now: Instant,
    flow: &mut LiveFlow,
    follows: bool,
    choices: &[Choice],
) -> Option<(PathId, bool)> {
    let earliest = choices.first()?;
    let recent = |at: Instant| now.saturating_since(at) < FOLLOW;
    let came = flow.came.filter(|&(_, at)| follows && recent(at)).map(|(path, _)| path);
    let is_answered = flow.came_back_at.is_some_and(recent);
    let own = flow.leaves.filter(|_| is_answered || came.is_none());
    let is_changed = |since: Duration| {
        flow.changed_at.is_some_and(|changed| now.saturating_since(changed) < since)
    };
    let margin = if own.is_some() && is_changed(DWELL) { DWELL_MARGIN } else { MARGIN };
    let wanted = own.or(came).and_then(|path| choices.iter().find(|choice| choice.path == path));
    let stays = wanted.filter(|choice| {
        let is_sound = !choice.is_doubtful || earliest.is_doubtful;
        is_sound && choice.lateness <= earliest.lateness + margin
    });
    let path = stays.map_or_else(|| least_lossy(choices), |choice| choice.path);
    let is_new = match flow.leaves {
        Some(before) if before == path => is_changed(NEW),
        Some(_) => {
            flow.changed_at = Some(now);
            true
        }
        // Nothing says that the first path of a flow is worse than others.
        None => false,
    };
    if flow.leaves != Some(path) {
        flow.leaves = Some(path);
        flow.came_back_at = flow.came.filter(|&(by, _)| by == path).map(|(_, at)| at);
    }
    Some((path, is_new))
}

/// Of the paths that are as early as the earliest, as far as is felt, one that loses hardly any.
fn least_lossy(choices: &[Choice]) -> PathId {
    let earliest = choices[0];
    let as_early = choices.iter().filter(|choice| {
        choice.is_doubtful == earliest.is_doubtful && choice.lateness <= earliest.lateness + MARGIN
    });
    // Of those that all need copies the earliest is as good as any.
    let rank = |choice: &&Choice| (choice.loss > LOST_PART, choice.lateness);
    as_early.min_by_key(rank).map_or(earliest.path, |choice| choice.path)
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
