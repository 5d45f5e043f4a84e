//! What leaves again: what was on its way by a path that is dead, and, where several carry
//! together, what one of them lost.
//!
//! Each end keeps the inner packets that the other has not told of. A client whose path is gone
//! says last what arrived there, so that the gateway need not wait for silence. What is lost on a
//! path that carries alone is not repaired: nothing holds its sender back then (`bonding`).

use std::collections::VecDeque;

use super::index::EpochId;
use super::{Context, Peer, Role};
use crate::error::{DropReason, Drops};
use crate::flow::treatment::SMALL;
use crate::id::PathSerial;
use crate::outbox::REST;
use crate::path::flight::{KEPT_BYTES_MAX, KEPT_TIME, KeptFrame};
use crate::path::lane::TxLane;
use crate::path::probe::Probes;
use crate::path::{Health, PathId};
use crate::time::Instant;
use crate::wire::data::OVERHEAD;
use crate::wire::frame::{self, Feedback};
use crate::wire::inner::InnerPacket;

use super::egress::Load;
use super::share::has_share;

/// Paths whose end the gateway is told of at once; of earlier ones it hears by silence.
const LAST_WORDS_MAX: usize = 4;
/// What paths lose that carry leaves again so often at most: what follows it waits no longer. Those
/// by paths that died meanwhile are not counted: of four by one link each dies by itself.
const ATTEMPTS_MAX: u8 = 3;

/// A packet that was lost, and where: under which keys and serial.
#[derive(Debug)]
struct Owed {
    epoch: EpochId,
    serial: PathSerial,
    kept: KeptFrame,
}

/// Packets that a path lost, or that were owed to one that died, in the order in which they left,
/// until they have left again.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Those that wait for nobody,
    small: VecDeque<Owed>,
    /// the others,
    frames: VecDeque<Owed>,
    /// and those that wait until it is known that the peer still has their keys.
    unheard: VecDeque<Owed>,
    /// Bytes of all.
    bytes: usize,
    due: Option<Instant>,
    /// Numbers of sequences that do not leave again, as nobody needs them: under which keys, and
    /// of which bucket.
    pub(super) voids: Vec<(EpochId, u8, u32)>,
}

/// Client: what arrived by paths that are gone, to be said by the one that carries.
#[derive(Debug, Default)]
pub(super) struct LastWords {
    since: Instant,
    words: Vec<Feedback>,
}

impl Lost {
    /// Takes what is owed to the path of `lane`, of an epoch.
    fn collect(&mut self, cx: &mut Context<'_>, epoch: EpochId, lane: &mut TxLane) {
        let serial = lane.seal.serial;
        while let Some(kept) = lane.flight.take(cx.memory.blocks(), cx.now) {
            self.push(cx.drops, Owed { epoch, serial, kept });
        }
    }

    /// Takes what was lost under the keys of `epoch` by the path of `serial`, which carries.
    pub(super) fn extend(
        &mut self,
        drops: &mut Drops,
        (epoch, serial): (EpochId, PathSerial),
        kept: VecDeque<KeptFrame>,
    ) {
        kept.into_iter().for_each(|kept| self.push(drops, Owed { epoch, serial, kept }));
    }

    /// The same, where it carried all the time: it counts as an attempt.
    pub(super) fn extend_counted(
        &mut self,
        drops: &mut Drops,
        lane: (EpochId, PathSerial),
        mut kept: VecDeque<KeptFrame>,
    ) {
        kept.iter_mut().for_each(|kept| kept.attempts = kept.attempts.saturating_add(1));
        self.extend(drops, lane, kept);
    }

    /// Takes one more; of more than one path may have had on its way the oldest are given up.
    fn push(&mut self, drops: &mut Drops, owed: Owed) {
        self.bytes += owed.kept.whole_len();
        self.queue(&owed).push_back(owed);
        while self.bytes > KEPT_BYTES_MAX {
            // Of keys that the peer may not have it hears nothing.
            let unheard = self.unheard.pop_front();
            let Some(oldest) = unheard.or_else(|| self.pop_known()) else { return };
            self.bytes -= oldest.kept.whole_len();
            drops.count(DropReason::QueueFull);
        }
    }

    /// The oldest under keys that the peer has will not leave, and the peer is told so.
    fn pop_known(&mut self) -> Option<Owed> {
        let oldest = self.frames.pop_front().or_else(|| self.small.pop_front())?;
        self.leave_out(&oldest);
        Some(oldest)
    }

    fn pop(&mut self) -> Option<Owed> {
        let next = self.small.pop_front().or_else(|| self.frames.pop_front())?;
        self.bytes -= next.kept.whole_len();
        Some(next)
    }

    fn put_back(&mut self, owed: Owed) {
        self.bytes += owed.kept.whole_len();
        self.queue(&owed).push_front(owed);
    }

    fn queue(&mut self, owed: &Owed) -> &mut VecDeque<Owed> {
        if is_small(&owed.kept) { &mut self.small } else { &mut self.frames }
    }

    /// It waits until it is known that the peer has its keys.
    fn put_aside(&mut self, owed: Owed) {
        self.bytes += owed.kept.whole_len();
        self.unheard.push_back(owed);
    }

    /// The peer has the keys of what waits for that.
    pub(super) fn put_forward(&mut self) {
        for owed in std::mem::take(&mut self.unheard).into_iter().rev() {
            self.queue(&owed).push_front(owed);
        }
    }

    /// When what waits for its keys is of no use any more.
    fn unheard_due(&self) -> Option<Instant> {
        self.unheard.front().map(|owed| owed.kept.at + KEPT_TIME)
    }

    /// It does not leave again.
    fn leave_out(&mut self, owed: &Owed) {
        if let Some((bucket, sequence)) = frame::ordered_place(&owed.kept.frame) {
            self.voids.push((owed.epoch, bucket, sequence));
        }
    }

    /// Whether there is nothing that could leave.
    pub(super) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.frames.is_empty()
    }
}

/// Whether it is a small packet, which leaves at once also where others keep a pace.
fn is_small(kept: &KeptFrame) -> bool {
    kept.whole_len() <= SMALL
}

impl Peer {
    /// The path `id` is dead and forgotten: what is owed to it is collected.
    pub(super) fn inherit(&mut self, cx: &mut Context<'_>, id: PathId) {
        for epoch in self.epochs.receiving() {
            for lane in epoch.tx.iter_mut().filter(|lane| lane.path == id) {
                self.lost.collect(cx, epoch.id, lane);
            }
        }
    }

    /// The path `id` is gone. A client notes what arrived by it, before it says where it is.
    pub(super) fn lose_path(&mut self, cx: &Context<'_>, id: PathId) {
        let path = self.paths.get_mut(id).filter(|path| path.health != Health::Gone);
        let Some(path) = path else { return };
        path.health = Health::Gone;
        if let Role::Client(connector) = &mut self.role
            && let Some(epoch) = &mut self.epochs.current
        {
            let lanes = epoch.rx.values_mut().filter(|lane| lane.path == Some(id));
            let words =
                lanes.filter_map(|lane| lane.owed.last_report(cx.now, lane.serial, &lane.window));
            let last = &mut connector.last_words;
            last.words.extend(words);
            let excess = last.words.len().saturating_sub(LAST_WORDS_MAX);
            last.words.drain(..excess);
            last.since = cx.now;
        }
    }

    /// Client: a path beside the one in use is gone that carried a share. The gateway hears of it
    /// by that one, and not by the silence that follows.
    pub(super) fn say_last_words(&mut self, cx: &mut Context<'_>) {
        let active = self.paths.active_id().and_then(|id| self.paths.get_mut(id));
        if let Some(path) = active.filter(|path| path.health == Health::Good) {
            // At once, and again until it is answered, whatever was asked before.
            path.probes = Probes::default();
            let id = path.id;
            self.ask(cx, id);
        }
    }

    /// Client: what is to be said beside "reach me here".
    pub(super) fn last_words(&self) -> &[Feedback] {
        match &self.role {
            Role::Client(connector) => &connector.last_words.words,
            Role::Gateway { .. } => &[],
        }
    }

    /// Client: the gateway has answered what was said at `asked_at` by the path in use.
    pub(super) fn last_words_heard(&mut self, asked_at: Instant) {
        if let Role::Client(connector) = &mut self.role
            && asked_at >= connector.last_words.since
        {
            connector.last_words.words.clear();
        }
    }

    /// Gateway: what is sealed with `serial` arrives no more, says the client, by another path.
    pub(super) fn take_farewell(&mut self, by: Option<PathId>, serial: PathSerial) {
        let Some(epoch) = self.epochs.current.as_ref().filter(|_| self.at_gateway()) else {
            return;
        };
        let lane = epoch.tx.iter().find(|lane| lane.seal.serial == serial);
        if let Some(id) = lane.map(|lane| lane.path).filter(|&id| Some(id) != by)
            && let Some(path) = self.paths.get_mut(id)
        {
            path.health = Health::Gone;
        }
    }

    /// Collects what is owed by paths that do not carry, when another one does.
    pub(super) fn collect_lost(&mut self, cx: &mut Context<'_>) {
        if self.paths.iter().all(|path| path.health == Health::Good) {
            return;
        }
        let carrier = self.paths.choose().map(|choice| choice.original);
        let is_good = |id| self.paths.get(id).is_some_and(|path| path.health == Health::Good);
        let Some(carrier) = carrier.filter(|&id| is_good(id)) else { return };
        for epoch in self.epochs.receiving() {
            for lane in epoch.tx.iter_mut().filter(|lane| lane.path != carrier) {
                if lane.flight.has_copies() && !is_good(lane.path) {
                    self.lost.collect(cx, epoch.id, lane);
                }
            }
        }
    }

    /// Sends what was collected, as far as there is room and, where several paths carry together,
    /// their pace allows it: it comes before what never left, but fills no queue. The rest later.
    pub(super) fn send_lost(&mut self, cx: &mut Context<'_>) {
        if !self.lost.is_empty() {
            self.send_frames_lost(cx);
        }
        self.send_voids(cx);
    }

    fn send_frames_lost(&mut self, cx: &mut Context<'_>) {
        self.lost.due = None;
        let Some(choice) = self.paths.choose() else { return };
        while let Some(mut owed) = self.lost.pop() {
            let KeptFrame { at: left_at, first_at, attempts, .. } = owed.kept;
            if left_at + KEPT_TIME <= cx.now || attempts > ATTEMPTS_MAX {
                cx.drops.count(DropReason::NoRoute);
                self.lost.leave_out(&owed);
                continue;
            }
            if !self.complete(&mut owed.kept) || self.is_sent_again(&owed.kept) {
                self.lost.leave_out(&owed);
                continue;
            }
            let packet = frame::packet_of(&owed.kept.frame);
            if packet.is_some_and(|packet| self.is_too_late(cx.now, first_at, packet)) {
                self.lost.leave_out(&owed);
                continue;
            }
            let soonest = self.quickest_open(cx, owed.kept.frame.len());
            let path = soonest.unwrap_or(choice.original);
            let due = if is_small(&owed.kept) { None } else { self.paces_at(path) };
            if let Some(due) = due.filter(|&due| due > cx.now) {
                self.lost.due = Some(due);
                self.lost.put_back(owed);
                return;
            }
            let sent = if cx.out.is_full() {
                Err(DropReason::QueueFull)
            } else {
                match self.epochs.may_repair(owed.epoch) {
                    Some(true) => self.retransmit(cx, path, &owed),
                    Some(false) => {
                        self.lost.put_aside(owed);
                        continue;
                    }
                    None => Err(DropReason::NoRoute),
                }
            };
            match sent {
                Ok(()) => {}
                Err(reason @ (DropReason::QueueFull | DropReason::Amplification)) => {
                    let full = reason == DropReason::QueueFull;
                    self.lost.due = Some(if full { cx.now + REST } else { left_at + KEPT_TIME });
                    self.lost.put_back(owed);
                    return;
                }
                Err(reason) => {
                    cx.drops.count(reason);
                    self.lost.leave_out(&owed);
                }
            }
        }
    }

    /// When the pace of a path that carries a share lets the next datagram leave.
    fn paces_at(&self, id: PathId) -> Option<Instant> {
        let controller = self.paths.get(id)?.congestion.as_deref()?;
        Some(controller.next_at())
    }

    /// Fetches what is kept of the frame with its connection. Returns whether it is there: else it
    /// has arrived, or will be sent again by whoever sent it.
    fn complete(&mut self, kept: &mut KeptFrame) -> bool {
        let len = std::mem::take(&mut kept.elsewhere);
        if len == 0 {
            return true;
        }
        let Some(head) = frame::packet_of(&kept.frame) else { return false };
        let payload = self.flows.payload(head, len);
        payload.is_some_and(|(front, back)| {
            kept.frame.extend_from_slice(front);
            kept.frame.extend_from_slice(back);
            true
        })
    }

    /// Whether what was kept is a piece of a connection that is sent on its own account, slower, or
    /// a question that is.
    fn is_sent_again(&mut self, kept: &KeptFrame) -> bool {
        let Some(packet) = frame::packet_of(&kept.frame) else { return false };
        InnerPacket::whole(packet).is_ok_and(|packet| self.flows.sends_again(kept.at, &packet))
    }

    fn retransmit(
        &mut self,
        cx: &mut Context<'_>,
        by: PathId,
        owed: &Owed,
    ) -> Result<(), DropReason> {
        let &Owed { epoch, serial, ref kept } = owed;
        let mut whole = Vec::with_capacity(frame::RETRANSMISSION_OVERHEAD + kept.frame.len());
        if !frame::is_repeatable(&kept.frame) {
            #[expect(clippy::cast_possible_truncation, reason = "the low bits travel")]
            let number = kept.number as u32;
            frame::emit_retransmission_header(&mut whole, serial, number);
        }
        whole.extend_from_slice(&kept.frame);
        let path = self.paths.get_to_send(by).ok_or(DropReason::NoRoute)?;
        path.retransmitted += 1;
        if whole.len() <= path.mtu.datagram() - OVERHEAD {
            let load = Load::Repair { first_at: kept.first_at, attempts: kept.attempts };
            return self.send_under(cx, epoch, by, load, |draft| {
                draft.frames().extend_from_slice(&whole);
            });
        }
        self.send_split(cx, epoch, by, &whole)
    }

    /// When something must be done about what waits to be sent again, or is kept for that and too
    /// old.
    pub(super) fn lost_due(&self) -> Option<Instant> {
        let rests = |id| self.paths.get(id).is_none_or(|path| path.health != Health::Good);
        let lanes = self.epochs.all_receiving().flat_map(|epoch| &epoch.tx);
        let kept = lanes.filter(|lane| lane.flight.has_copies() && rests(lane.path));
        let due = kept.filter_map(|lane| lane.flight.copies_due()).chain(self.lost.due);
        due.chain(self.lost.unheard_due()).min()
    }

    /// Forgets what nobody will send again.
    pub(super) fn forget_lost(&mut self, cx: &mut Context<'_>) {
        while self.lost.unheard_due().is_some_and(|due| due <= cx.now)
            && let Some(owed) = self.lost.unheard.pop_front()
        {
            self.lost.bytes -= owed.kept.whole_len();
            cx.drops.count(DropReason::NoRoute);
        }
        for lane in self.epochs.receiving().flat_map(|epoch| &mut epoch.tx) {
            if lane.flight.copies_due().is_some_and(|due| due <= cx.now) {
                lane.flight.forget_copies(cx.memory.blocks());
            }
        }
    }

    /// When something that others have overtaken on a path that carries a share counts as lost.
    pub(super) fn late_due(&self) -> Option<Instant> {
        let shared = |id| self.paths.get(id).filter(|path| has_share(path));
        let lanes = self.epochs.all_receiving().flat_map(|epoch| &epoch.tx);
        let lanes = lanes.filter_map(|lane| Some((lane, shared(lane.path)?)));
        lanes.filter_map(|(lane, path)| lane.flight.late_due(&path.rtt)).min()
    }

    /// What does is repaired.
    pub(super) fn give_up_late(&mut self, cx: &mut Context<'_>) {
        for epoch in self.epochs.receiving() {
            for lane in &mut epoch.tx {
                let Some(path) = self.paths.get(lane.path).filter(|path| has_share(path)) else {
                    continue;
                };
                if lane.flight.late_due(&path.rtt).is_some_and(|due| due <= cx.now) {
                    let mut lost = VecDeque::new();
                    lane.flight.expire_late(cx.now, cx.memory.blocks(), &path.rtt, &mut lost);
                    self.lost.extend_counted(cx.drops, (epoch.id, lane.seal.serial), lost);
                    self.bond.looked = None; // there is room on it
                }
            }
        }
    }

    /// The path `id` was silent, or had never answered, and answers what it was asked at
    /// `asked_at`: what left before is lost. Nobody would tell of it where that is as much as may
    /// be on its way.
    pub(super) fn lose_flight(&mut self, cx: &mut Context<'_>, id: PathId, asked_at: Instant) {
        for epoch in self.epochs.receiving() {
            for lane in epoch.tx.iter_mut().filter(|lane| lane.path == id) {
                let lost = lane.flight.lose_before(asked_at, cx.now, cx.memory.blocks());
                self.lost.extend(cx.drops, (epoch.id, lane.seal.serial), lost);
            }
        }
    }
}
