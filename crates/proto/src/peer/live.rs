//! What is of no use late: by which path it leaves, and by which others a copy does.
//!
//! It waits in no queue of this end's: it leaves at once, by the path that has it there first, and
//! stays with that path as long as no other is earlier by more than is felt. A gateway answers by
//! the path by which the flow comes, so that both directions share one. Where its path loses some,
//! owes an answer, or has just been taken, a copy leaves by another; which of them arrives first is
//! delivered. Where every other is later by more than is felt, one follows by the same path too.
//! Questions for names leave by every path.
//!
//! Two bounds: a flow may leave early as long as it is at most half of what its path carries, so
//! that nobody's controller is passed by for long; and copies have a budget of their own.

use std::collections::VecDeque;

use super::egress::Load;
use super::{Context, EpochId, Peer};
use crate::ablation::Heuristic;
use crate::bond::way::Way;
use crate::error::DropReason;
use crate::flow;
use crate::flow::classify::Class;
use crate::flow::live::{Allowance, Early, LiveFlow, Spent};
use crate::flow::table::Place;
use crate::flow::tuple;
use crate::outbox::Draft;
use crate::pack::{self, Framing};
use crate::path::PathId;
use crate::path::feedback::DELAY_PACED;
use crate::time::{Duration, Instant};
use crate::wire::control::Control;
use crate::wire::data::OVERHEAD;
use crate::wire::inner::{InnerPacket, Pieces};

/// How long who plays a call waits for what is late: later it is of no use.
pub(super) const PLAY_OUT: Duration = Duration::from_millis(60);
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
/// Feedback may wait for [`DELAY_PACED`], and timers ring so much later: who owes an answer for
/// longer than that and the path's timeout is in doubt.
const DOUBT_GRACE: Duration = Duration::from_millis(12);
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
    pub(super) hurried: Spent,
    /// Gateway: the client has said in this epoch what it wants early.
    told: bool,
    /// Room for the choice: the paths that carry, the earliest first.
    choices: Vec<Choice>,
}

/// How an inner packet came, as far as it matters to what is live.
#[derive(Clone, Copy, Debug)]
pub(super) enum Came {
    /// By the one path that carries.
    Alone,
    /// By this one of several.
    Beside(PathId),
    /// In its turn, by whichever of several.
    InTurn,
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

impl Peer {
    /// Sends a packet of the flow at `place`, which is of no use late, now; `None` where it has to
    /// wait all the same.
    pub(super) fn send_live(
        &mut self,
        cx: &mut Context<'_>,
        (place, class): (Place, Class),
        packet: &InnerPacket<'_>,
        kept: usize,
    ) -> Option<Result<(), DropReason>> {
        self.look_at_choices(cx.now);
        let follows = self.at_gateway();
        let flow = self.flows.live_mut(place)?;
        let (path, is_new) = choose(cx.now, flow, follows, &self.live.choices)?;
        let way = *self.live.choices.iter().find(|choice| choice.path == path)?;
        let allowance = Allowance { rate: way.rate * EARLY_PART, burst: EARLY_BURST };
        let flow = self.flows.live_mut(place)?;
        if !flow.may_leave(cx.now, allowance, packet.len()) {
            return None;
        }
        if let Some(controller) = self.paths.get_mut(path).and_then(|path| path.congestion.as_mut())
        {
            controller.keep_calm(cx.now);
        }
        let is_alone = self.live.choices.len() < 2;
        let framing = if is_alone { Framing::Plain } else { self.sequenced(packet)? };
        let load = Load::Packet { elsewhere: kept };
        let sent = self.send_packet(cx, path, load, framing, packet);
        let wanted = if class == Class::Names { 1.0 } else { way.expected_loss(is_new) };
        let copied = self.send_copies(cx, way, wanted, framing, packet);
        let len = packet.len() + framing.overhead();
        if is_alone || len > way.room || sent.is_err() {
            return Some(sent);
        }
        let left = (path, self.epoch_id());
        if !copied && packet.is_udp() {
            self.live.recent.push(cx.now, left, framing, packet.pieces);
        }
        if class == Class::RealTime && self.has_twin(way) && self.may_copy(cx.now, len) {
            self.live.twins.push(cx.now, left, framing, packet.pieces);
        }
        Some(sent)
    }

    /// A place in the sequence by which copies are known.
    fn sequenced(&mut self, packet: &InnerPacket<'_>) -> Option<Framing> {
        let epoch = self.epochs.current.as_mut()?;
        let (bucket, sequence) = epoch.sequence_tx.take(flow::hash(&packet.headers));
        Some(Framing::Sequenced { bucket, sequence })
    }

    /// Sends copies of what left by `way`, of which this part is lost otherwise. Returns whether
    /// any left.
    fn send_copies(
        &mut self,
        cx: &mut Context<'_>,
        way: Choice,
        mut lost: f64,
        framing: Framing,
        packet: &InnerPacket<'_>,
    ) -> bool {
        if self.bond.ablation.is_off(Heuristic::Copies) {
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
            let load = Load::Eliciting;
            if self.send_packet(cx, choice.path, load, framing, packet).is_ok() {
                any = true;
                self.count_copy(choice.path, len);
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
        let is_on = !self.bond.ablation.is_off(Heuristic::Twins);
        is_on && way.loss > LOST_PART && !way.is_doubtful && is_late
    }

    /// Whether the budget has room for so many more bytes of copies; they count as sent if so.
    fn may_copy(&mut self, now: Instant, len: usize) -> bool {
        let carried: f64 = self.live.choices.iter().map(|choice| choice.rate).sum();
        self.live.copies.take(now, copies(carried), len)
    }

    /// When the next copy by the same path is due.
    pub(super) fn twin_due(&self) -> Option<Instant> {
        self.live.twins.packets.front().map(|sent| sent.at + TWIN_AFTER)
    }

    /// Sends the copies by the same path that are due.
    pub(super) fn send_twins(&mut self, cx: &mut Context<'_>) {
        while self.twin_due().is_some_and(|due| due <= cx.now) {
            let Some(sent) = self.live.twins.packets.pop_front() else { break };
            self.send_again(cx, sent.path, &sent);
        }
    }

    fn epoch_id(&self) -> Option<EpochId> {
        self.epochs.current.as_ref().map(|epoch| epoch.id)
    }

    /// Sends what has left once more, by `path`, if its place in the sequence still means anything.
    fn send_again(&mut self, cx: &mut Context<'_>, path: PathId, sent: &Sent) {
        if sent.epoch != self.epoch_id() {
            return;
        }
        let fill = |draft: &mut Draft<'_>| {
            draft.frames().extend_from_slice(&sent.frame);
        };
        match self.send_on(cx, path, Load::Eliciting, fill) {
            Ok(()) => self.count_copy(path, sent.frame.len()),
            Err(reason) => cx.drops.count(reason),
        }
    }

    fn count_copy(&mut self, path: PathId, len: usize) {
        if let Some(path) = self.paths.get_mut(path) {
            path.copied += len as u64;
        }
    }

    /// Fills the room for the choice: the paths that carry, the earliest first.
    fn look_at_choices(&mut self, now: Instant) {
        self.look_at_ways(now);
        let mut choices = std::mem::take(&mut self.live.choices);
        choices.clear();
        choices.extend(self.bond.ways.iter().filter_map(|way| self.choice(now, way)));
        choices.sort_by_key(|choice| (choice.is_doubtful, choice.lateness, choice.path));
        self.live.choices = choices;
    }

    fn choice(&self, now: Instant, way: &Way) -> Option<Choice> {
        let path = self.paths.get(way.path)?;
        let lanes = self.epochs.current.iter().flat_map(|epoch| &epoch.tx);
        let lane = lanes.into_iter().find(|lane| lane.path == way.path);
        let loss = lane.map_or(0.0, |lane| lane.flight.loss().share());
        Some(Choice {
            path: way.path,
            lateness: way.delay + path.delay.queue(now).unwrap_or_default(),
            loss,
            is_doubtful: self.doubtful_at(way.path).is_some_and(|at| at <= now),
            rate: way.rate(),
            room: path.mtu.datagram() - OVERHEAD,
        })
    }

    /// When a path has owed an answer for so long that it is in doubt.
    fn doubtful_at(&self, id: PathId) -> Option<Instant> {
        let lanes = self.epochs.current.iter().flat_map(|epoch| &epoch.tx);
        let lane = lanes.into_iter().find(|lane| lane.path == id)?;
        let path = self.paths.get(id)?;
        let grace = DELAY_PACED + DOUBT_GRACE;
        lane.flight.unanswered_since().map(|since| since + path.rtt.timeout() + grace)
    }

    /// When copies are due of what left by a path that is in doubt by then.
    pub(super) fn rescue_due(&self) -> Option<Instant> {
        if self.live.recent.packets.is_empty() || self.bond.ablation.is_off(Heuristic::Rescue) {
            return None;
        }
        let in_time = |id| {
            let (due, until) = (self.doubtful_at(id)?, self.live.recent.until(id)?);
            (due < until).then_some(due)
        };
        self.paths.iter().filter_map(|path| in_time(path.id)).min()
    }

    /// What left just now by a path that is in doubt leaves again by another.
    pub(super) fn rescue(&mut self, cx: &mut Context<'_>) {
        if self.rescue_due().is_none_or(|due| due > cx.now) {
            return;
        }
        self.look_at_choices(cx.now);
        let doubtful = |id| self.doubtful_at(id).is_some_and(|at| at <= cx.now);
        let doubtful: Vec<_> =
            self.paths.iter().map(|path| path.id).filter(|&id| doubtful(id)).collect();
        for id in doubtful {
            self.rescue_from(cx, id);
        }
    }

    /// The path `id` is forgotten: nobody will say whether what left by it just now has arrived.
    pub(super) fn rescue_from_forgotten(&mut self, cx: &mut Context<'_>, id: PathId) {
        if self.live.recent.until(id).is_some() {
            self.bond.looked = None; // the path was among those that carry
            self.look_at_choices(cx.now);
            self.rescue_from(cx, id);
        }
    }

    /// What left just now by a path leaves again by another.
    fn rescue_from(&mut self, cx: &mut Context<'_>, id: PathId) {
        let other = self.live.choices.iter().find(|choice| choice.path != id).copied();
        while let Some(sent) = self.live.recent.take(id) {
            let is_of_use = sent.at + PLAY_OUT > cx.now;
            let len = sent.frame.len();
            let Some(other) = other.filter(|other| is_of_use && len <= other.room) else {
                continue;
            };
            if self.may_copy(cx.now, len) {
                self.send_again(cx, other.path, &sent);
            }
        }
    }

    /// How a packet came that need not wait for what comes before it.
    pub(super) fn came_by(&self, path: Option<PathId>) -> Came {
        path.filter(|_| self.is_shared(path)).map_or(Came::Alone, Came::Beside)
    }

    /// An inner packet has come that the peer may send.
    pub(super) fn hear_live(&mut self, now: Instant, came: Came, packet: &InnerPacket<'_>) {
        let path = match came {
            Came::Alone => return self.note_alone(now, tuple::Direction::In, packet),
            Came::Beside(path) => Some(path),
            Came::InTurn => None,
        };
        if let Some(place) = self.flows.observe(now, tuple::Direction::In, packet)
            && let Some(path) = path
            && let Some(flow) = self.flows.live_mut(place)
        {
            flow.came = Some((path, now));
            if flow.leaves == Some(path) {
                flow.came_back_at = Some(now);
            }
        }
    }

    /// Client: a packet goes `way` by the one path that carries. Nothing is decided by that, but
    /// its user may want to see the flow. A gateway would need a table for each of its sessions.
    pub(super) fn note_alone(
        &mut self,
        now: Instant,
        way: tuple::Direction,
        packet: &InnerPacket<'_>,
    ) {
        if !self.at_gateway() {
            self.flows.observe(now, way, packet);
        }
    }

    /// Whether what left at `at` is of no use any more.
    pub(super) fn is_too_late(&self, now: Instant, at: Instant, packet: &[u8]) -> bool {
        if !self.bond.is_shared || now.saturating_since(at) <= PLAY_OUT {
            return false;
        }
        let Ok(packet) = InnerPacket::whole(packet) else { return false };
        let flow = self.flows.flow_of(&packet, tuple::Direction::Out);
        packet.is_udp() && flow.is_some_and(|flow| flow.class() == Class::RealTime)
    }

    /// Its user wants this early from now on; a client tells its gateway.
    pub(crate) fn set_early(&mut self, now: Instant, early: &Early) {
        if self.flows.early() == early {
            return;
        }
        self.flows.set_early(early.clone());
        if !self.at_gateway() && self.epochs.current.is_some() {
            self.control.push(now, &Control::Early(early.ends().to_vec()));
        }
    }

    /// Client: says at the beginning of an epoch what is wanted early, if anything is.
    pub(super) fn say_early(&mut self, now: Instant) {
        let early = self.flows.early();
        if !early.is_empty() {
            self.control.push(now, &Control::Early(early.ends().to_vec()));
        }
    }

    /// Gateway: the client wants this early.
    pub(super) fn take_early(&mut self, early: &Early) {
        if self.at_gateway() {
            self.flows.set_early(early.clone());
            self.live.told = true;
        }
    }

    /// Gateway: the client has said all that it says first in an epoch. Who wants nothing early
    /// does not say so, and it may be another process than before.
    pub(super) fn note_introduced(&mut self) {
        if !std::mem::take(&mut self.live.told) && !self.flows.early().is_empty() {
            self.flows.set_early(Early::default());
        }
    }
}

impl Choice {
    /// Which part of what leaves by it will be lost.
    fn expected_loss(&self, is_new: bool) -> f64 {
        if self.is_doubtful || is_new { self.loss.max(DOUBTFUL_LOSS) } else { self.loss }
    }
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
