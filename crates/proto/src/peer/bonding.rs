//! Several paths carry together: what leaves by which and when, what of it is repaired, and how it
//! becomes a sequence again where it arrives.
//!
//! A client whose mode is [`Mode::Full`] shares its data among one path of each link, and says so
//! to the gateway in a challenge on each, which then does the same. Each of these is paced by a
//! congestion controller of its own, and what it loses leaves again by whichever carries it
//! soonest. What waits for that does so in `bond`.

use std::collections::VecDeque;

use super::egress::Load;
use super::index::EpochId;
use super::links::is_fresh;
use super::{Context, Peer, Side};
use crate::bond::codel::Bound;
use crate::bond::entry::WAIT_MAX;
use crate::bond::reorder::Taken;
use crate::bond::schedule::{Given, Lines, Way};
use crate::bond::{Bond, Mode};
use crate::error::DropReason;
use crate::flow;
use crate::id::Transport;
use crate::pack::Framing;
use crate::path::lane::TxLane;
use crate::path::{Health, Path, PathId, Trust};
use crate::time::{Duration, Instant};
use crate::wire::data::OVERHEAD;
use crate::wire::frame;
use crate::wire::inner::{InnerPacket, InnerView, TCP, UDP};
use crate::wire::tcp::{Flags, Segment};

/// When the outbox was full, the rest follows after this.
const REST: Duration = Duration::from_millis(1);
/// A path that was ready for so long before it got something had too little to carry.
const IDLE: Duration = Duration::from_millis(1);
/// How long a gap in a sequence is held open, in round trips of the longest path: for a loss to be
/// noticed, the repair to arrive, and for that once more.
const HOLD_TRIPS: f64 = 3.5;
/// The least and the most of it.
const HOLD_MIN: Duration = Duration::from_millis(30);
const HOLD_MAX: Duration = Duration::from_millis(1_500);
/// Where other paths carry, one is silent that has owed an answer for so many round trips,
const TAIL_TRIPS: f64 = 1.5;
/// and this: feedback may wait, and so may the processes at both ends.
const TAIL_GRACE: Duration = Duration::from_millis(25);
/// How long packets of a flow whose losses are repaired may stand at the entry: the sender, who
/// sees no loss, needs it to keep the paths busy (measured in DESIGN, section 4).
const STANDING: Bound =
    Bound { target: Duration::from_millis(80), interval: Duration::from_millis(500) };
/// Datagrams up to this length that are not TCP's: questions, answers, voice. They wait for nobody.
const SMALL: usize = 300;

impl Peer {
    /// Whether data goes by what is shared among paths.
    pub(super) fn is_bonded(&self, now: Instant) -> bool {
        self.paths.iter().any(|path| self.is_way(now, path))
    }

    /// Whether a path may get a share now: beside the one in use none that nobody has heard of for
    /// a while. A NAT may have forgotten it, and the client asks it when anybody speaks again.
    fn is_way(&self, now: Instant, path: &Path) -> bool {
        carries(path) && (self.paths.active_id() == Some(path.id) || is_fresh(now, path))
    }

    /// Whether data is shared with this path.
    pub(super) fn is_shared(&self, path: Option<PathId>) -> bool {
        path.and_then(|id| self.paths.get(id)).is_some_and(|path| path.congestion.is_some())
    }

    /// Client: its links are used in another way from now on.
    pub(crate) fn mode_changed(&mut self, cx: &mut Context<'_>) {
        self.stand_by(cx);
        self.refresh_state(cx);
    }

    /// Client: shares data among the best path of each link, or leaves it to one.
    pub(super) fn share_paths(&mut self, cx: &mut Context<'_>) {
        if self.is_client() || (cx.config.mode != Mode::Full && !self.paths.iter().any(carries)) {
            return;
        }
        let is_full = cx.config.mode == Mode::Full && !self.paths.is_on_stream();
        let chosen = |path: &Path| is_full && is_able(path) && !self.has_better_beside(path);
        let changed = |path: &&Path| path.congestion.is_some() != chosen(path);
        let changed: Vec<_> = self.paths.iter().filter(changed).map(|path| path.id).collect();
        for id in changed {
            let Some(path) = self.paths.get_mut(id) else { continue };
            path.set_shared(cx.now, path.congestion.is_none());
            let settled = path.mtu.is_settled();
            if path.health != Health::Gone {
                self.ask(cx, id);
            }
            if !settled {
                self.search_mtu(cx, id);
            }
        }
    }

    /// Whether data should rather go by another path of the same link.
    fn has_better_beside(&self, path: &Path) -> bool {
        let active = self.paths.active_id();
        let rank = |path: &Path| (Some(path.id) != active, self.rank(path), path.id);
        let beside = self.paths.iter().filter(|other| other.link == path.link);
        beside.filter(|other| is_able(other)).any(|other| rank(other) < rank(path))
    }

    /// Gateway: the client shares its data among paths, this one with them or not.
    pub(super) fn take_sharing(&mut self, now: Instant, id: Option<PathId>, beside: bool) {
        let path = id.and_then(|id| self.paths.get_mut(id));
        if let (Side::Client { .. }, Some(path)) = (&self.side, path) {
            path.set_shared(now, beside);
        }
    }

    /// Sends an inner packet by the path that has it there first: at once what somebody waits for,
    /// in its turn what is part of much.
    pub(super) fn send_bonded(
        &mut self,
        cx: &mut Context<'_>,
        view: &InnerView,
        packet: InnerPacket<'_>,
        kept: usize,
    ) -> Result<(), DropReason> {
        if is_urgent(view, &packet)
            && let Some(path) = self.quickest(cx.now, packet.len())
        {
            let load = Load::Packet { elsewhere: kept };
            return self.send_packet(cx, path, load, Framing::Plain, view, packet);
        }
        #[expect(clippy::cast_possible_truncation, reason = "as many buckets as a byte has values")]
        let bucket = flow::hash(view) as u8;
        let blocks = cx.memory.blocks();
        let dropped = self.bond.entry.push(blocks, cx.now, bucket, packet, kept, STANDING);
        (0..dropped).for_each(|_| cx.drops.count(DropReason::QueueFull));
        self.serve_bond(cx);
        Ok(())
    }

    /// How long an answer may be owed before `path` counts as silent: not long, where others carry
    /// what it does not.
    pub(super) fn patience(&self, path: &Path) -> Duration {
        if path.congestion.is_some() && self.best_bonded(path.id).is_some() {
            path.rtt.timeout().max(path.rtt.smoothed().mul_f64(TAIL_TRIPS)) + TAIL_GRACE
        } else {
            path.patience()
        }
    }

    /// The best of the paths that carry a share, other than `except`.
    pub(super) fn best_bonded(&self, except: PathId) -> Option<PathId> {
        let others = self.paths.iter().filter(|path| path.id != except && carries(path));
        others.min_by_key(|path| self.rank(path)).map(|path| path.id)
    }

    /// The path by which something that leaves now arrives first.
    pub(super) fn quickest(&mut self, now: Instant, len: usize) -> Option<PathId> {
        self.look_at_ways(now);
        Lines::quickest(now, &self.bond.ways, len)
    }

    /// What the smallest of the paths that carry a share has room for: a connection's segments may
    /// go by any of them. `None` where nothing is shared.
    pub(super) fn least_room(&self) -> Option<usize> {
        let shared = self.paths.iter().filter(|path| carries(path));
        shared.map(|path| path.mtu.datagram() - OVERHEAD).min()
    }

    /// When a path may carry what waits.
    pub(super) const fn bond_due(&self) -> Option<Instant> {
        self.bond.due
    }

    /// Gives the paths what they have need of, and lets leave what may.
    pub(super) fn serve_bond(&mut self, cx: &mut Context<'_>) {
        self.bond.due = None;
        if self.bond.is_idle() {
            self.bond.idle_since = None;
            self.paths.iter_mut().for_each(|path| path.was_closed = false);
            return;
        }
        self.look_at_ways(cx.now);
        if self.bond.ways.is_empty() {
            self.leave_bond(cx);
            return;
        }
        self.bond.idle_since = None;
        self.give_stranded(cx);
        loop {
            self.fill_lines(cx);
            let mut any = false;
            for place in 0..self.bond.ways.len() {
                let path = self.bond.ways[place].path;
                while self.may_leave(cx.now, path) {
                    if cx.out.is_full() {
                        self.bond.due = Some(cx.now + REST);
                        return;
                    }
                    self.send_next(cx, path);
                    any = true;
                }
            }
            self.look_at_ways(cx.now);
            if !any {
                break;
            }
        }
        let waits = !self.bond.is_idle();
        for way in &self.bond.ways {
            if let Some(path) = self.paths.get_mut(way.path) {
                path.was_closed = waits && !way.is_open;
            }
        }
        // Where nothing was given to a path yet, it will be when its turn comes.
        let Bond { lines, entry, .. } = &self.bond;
        let waits = |way: &&Way| !entry.is_empty() || lines.front(way.path).is_some();
        let open = self.bond.ways.iter().filter(|way| way.is_open);
        let due = open.filter(waits).map(|way| way.next_at).min();
        self.bond.due = due.map(|due| if due > cx.now { due } else { cx.now + REST });
    }

    /// Fills the room for the choice: the paths that carry, as they are now.
    fn look_at_ways(&mut self, now: Instant) {
        let mut ways = std::mem::take(&mut self.bond.ways);
        ways.clear();
        let lanes = self.epochs.current.iter().flat_map(|epoch| &epoch.tx);
        let in_flight = |id| {
            let lane = lanes.clone().find(|lane| lane.path == id);
            lane.map_or(0, |lane| lane.flight.in_flight())
        };
        for path in self.paths.iter().filter(|path| self.is_way(now, path)) {
            let Some(controller) = &path.congestion else { continue };
            ways.push(Way {
                path: path.id,
                next_at: controller.next_at(),
                rate: controller.pacing_rate(),
                delay: path.rtt.minimum().unwrap_or_default() / 2,
                is_open: controller.allows(in_flight(path.id)),
            });
        }
        // The clocks of both ends tell by how much one way is longer than another.
        let least = |way: &Way| self.paths.get(way.path).and_then(|path| path.delay.least());
        let shortest = ways.iter().filter_map(least).reduce(crate::path::delay::earlier);
        if let Some(shortest) = shortest
            && ways.iter().all(|way| least(way).is_some())
        {
            for way in &mut ways {
                let more = least(way).map_or(0, |least| least.wrapping_sub(shortest));
                way.delay = Duration::from_micros(more.into());
            }
        }
        self.bond.ways = ways;
    }

    /// None carries a share any more: what waits leaves by the one path that there is, like
    /// everything else. Until there is one it waits, no longer than at the entry.
    fn leave_bond(&mut self, cx: &mut Context<'_>) {
        let Some(path) = self.only_path() else {
            let since = *self.bond.idle_since.get_or_insert(cx.now);
            let due = since + WAIT_MAX;
            if self.bond.lines.is_empty() {
                return;
            }
            if cx.now < due {
                self.bond.due = Some(due);
                return;
            }
            let dropped = self.bond.lines.clear(cx.memory.blocks());
            (0..dropped).for_each(|_| cx.drops.count(DropReason::NoRoute));
            return;
        };
        self.bond.idle_since = None;
        let mut packet = std::mem::take(&mut self.bond.packet);
        loop {
            if cx.out.is_full() {
                self.bond.due = Some(cx.now + REST);
                break;
            }
            packet.clear();
            let blocks = cx.memory.blocks();
            let sent = if let Some(given) = self.bond.lines.take_stranded(blocks, &[], &mut packet)
            {
                self.send_ordered(cx, path, given, &packet, &[])
            } else if let Some(popped) = self.bond.entry.pop(blocks, cx.now, &mut packet) {
                InnerView::parse(&packet, packet.len()).and_then(|view| {
                    self.send_by_choice(cx, &view, InnerPacket::whole(&packet), popped.kept)
                })
            } else {
                break;
            };
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
        for _ in 0..self.bond.entry.take_dropped() {
            cx.drops.count(DropReason::QueueFull);
        }
        self.bond.packet = packet;
    }

    /// The path that everything goes by.
    fn only_path(&self) -> Option<PathId> {
        let path = self.paths.choose().and_then(|choice| self.paths.get(choice.original))?;
        let claimed = matches!(path.trust, Trust::Claimed { .. });
        (path.health == Health::Good && !claimed && self.epochs.current.is_some())
            .then_some(path.id)
    }

    /// What was given to a path that carries no more goes by another.
    fn give_stranded(&mut self, cx: &mut Context<'_>) {
        let mut packet = std::mem::take(&mut self.bond.packet);
        packet.clear();
        let blocks = cx.memory.blocks();
        while let Some(given) = self.bond.lines.take_stranded(blocks, &self.bond.ways, &mut packet)
        {
            let ways = &self.bond.ways;
            let path = self.bond.lines.choose(cx.now, ways, given.len).unwrap_or(ways[0].path);
            self.bond.lines.push(blocks, path, given, &packet);
            packet.clear();
        }
        self.bond.packet = packet;
    }

    /// Gives packets from the entry to the paths, as long as one of them has need.
    fn fill_lines(&mut self, cx: &mut Context<'_>) {
        let Some(epoch) = &mut self.epochs.current else { return };
        let mut packet = std::mem::take(&mut self.bond.packet);
        let blocks = cx.memory.blocks();
        while self.bond.lines.starve(cx.now, &self.bond.ways)
            && let Some(popped) = self.bond.entry.pop(blocks, cx.now, &mut packet)
        {
            let given = Given {
                bucket: popped.bucket,
                sequence: epoch.numbers.take(popped.bucket),
                len: packet.len(),
                elsewhere: popped.kept,
            };
            // One that has need has room.
            let Some(path) = self.bond.lines.choose(cx.now, &self.bond.ways, given.len) else {
                cx.drops.count(DropReason::QueueFull);
                break;
            };
            self.bond.lines.push(blocks, path, given, &packet);
        }
        for _ in 0..self.bond.entry.take_dropped() {
            cx.drops.count(DropReason::QueueFull);
        }
        self.bond.packet = packet;
    }

    /// Whether the path's next packet may leave now.
    fn may_leave(&self, now: Instant, id: PathId) -> bool {
        let controller = self.paths.get(id).and_then(|path| path.congestion.as_deref());
        let lanes = self.epochs.current.iter().flat_map(|epoch| &epoch.tx);
        let lane = lanes.into_iter().find(|lane| lane.path == id);
        let in_flight = lane.map_or(0, |lane| lane.flight.in_flight());
        self.bond.lines.front(id).is_some()
            && controller.is_some_and(|c| c.next_at() <= now && c.allows(in_flight))
    }

    /// The next packet of the path's line leaves.
    fn send_next(&mut self, cx: &mut Context<'_>, id: PathId) {
        let lines = std::mem::take(&mut self.bond.lines);
        if let Some((given, front, back)) = lines.front(id)
            && let Err(reason) = self.send_ordered(cx, id, given, front, back)
        {
            cx.drops.count(reason);
        }
        self.bond.lines = lines;
        self.bond.lines.pop(cx.memory.blocks(), id);
    }

    /// A packet, in two parts, leaves with its place in the sequence.
    fn send_ordered(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        given: Given,
        front: &[u8],
        back: &[u8],
    ) -> Result<(), DropReason> {
        let Given { bucket, sequence, len, elsewhere } = given;
        let room = self.paths.get(id).map_or(0, |path| path.mtu.datagram() - OVERHEAD);
        if len + frame::ORDERED_OVERHEAD <= room {
            return self.send_on(cx, id, Load::Packet { elsewhere }, |draft| {
                frame::emit_ordered_header(draft.frames(), bucket, sequence);
                draft.frames().extend_from_slice(front);
                draft.frames().extend_from_slice(back);
            });
        }
        let mut whole = Vec::with_capacity(len + frame::ORDERED_OVERHEAD);
        frame::emit_ordered_header(&mut whole, bucket, sequence);
        whole.extend_from_slice(front);
        whole.extend_from_slice(back);
        self.send_split(cx, id, &whole)
    }

    /// When something that others have overtaken on a path that carries a share counts as lost.
    pub(super) fn late_due(&self) -> Option<Instant> {
        let epoch = self.epochs.current.as_ref()?;
        let shared = |id| self.paths.get(id).filter(|path| carries(path));
        let lanes = epoch.tx.iter().filter_map(|lane| Some((lane, shared(lane.path)?)));
        lanes.filter_map(|(lane, path)| lane.flight.late_due(&path.rtt)).min()
    }

    /// What does is repaired.
    pub(super) fn give_up_late(&mut self, cx: &mut Context<'_>) {
        let Some(epoch) = &mut self.epochs.current else { return };
        for lane in &mut epoch.tx {
            let Some(path) = self.paths.get(lane.path).filter(|path| carries(path)) else {
                continue;
            };
            if lane.flight.late_due(&path.rtt).is_some_and(|due| due <= cx.now) {
                let mut lost = VecDeque::new();
                lane.flight.expire_late(cx.now, cx.memory.blocks(), &path.rtt, &mut lost);
                self.lost.extend(lane.seal.serial, lost);
            }
        }
    }

    /// The path `id` was silent and answers what it was asked at `asked_at`: what left before is
    /// lost, if it carries a share.
    pub(super) fn lose_share(&mut self, cx: &mut Context<'_>, id: PathId, asked_at: Instant) {
        let is_shared = self.is_shared(Some(id));
        let epoch = self.epochs.current.as_mut().filter(|_| is_shared);
        let lane = epoch.and_then(|epoch| epoch.tx.iter_mut().find(|lane| lane.path == id));
        if let Some(lane) = lane {
            let lost = lane.flight.lose_before(asked_at, cx.now, cx.memory.blocks());
            self.lost.extend(lane.seal.serial, lost);
        }
    }

    /// A packet of a sequence that may have gaps: it is delivered in its turn.
    pub(super) fn take_ordered(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        (bucket, sequence): (u8, u32),
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let hold = self.gap_time();
        let Some((found, _)) = self.epochs.find(epoch) else { return Ok(()) };
        let blocks = cx.memory.blocks();
        match found.reorder.take(blocks, cx.now, bucket, sequence, packet, hold) {
            Taken::Deliver => {
                let delivered = self.deliver(cx, packet);
                self.release(cx, epoch);
                delivered
            }
            Taken::Late => self.deliver(cx, packet),
            Taken::Kept => {
                self.release(cx, epoch); // room may have been made for it
                Ok(())
            }
            Taken::Duplicate => Ok(()),
        }
    }

    /// Delivers what is in sequence now, or has waited for long enough.
    fn release(&mut self, cx: &mut Context<'_>, epoch: EpochId) {
        let mut packet = std::mem::take(&mut self.bond.packet);
        loop {
            if cx.out.is_full() {
                self.bond.rests_until = cx.now + REST;
                break;
            }
            packet.clear();
            let Some((found, _)) = self.epochs.find(epoch) else { break };
            if found.reorder.next(cx.memory.blocks(), cx.now, &mut packet).is_none() {
                break;
            }
            if let Err(reason) = self.deliver(cx, &packet) {
                cx.drops.count(reason);
            }
        }
        self.bond.packet = packet;
    }

    /// When a gap in a sequence has been held open for long enough, or there is room again for what
    /// followed one.
    pub(super) fn order_due(&self) -> Option<Instant> {
        let due = self.epochs.all_receiving().filter_map(|epoch| epoch.reorder.due()).min()?;
        Some(due.max(self.bond.rests_until))
    }

    /// Gives up gaps that are due.
    pub(super) fn give_up_gaps(&mut self, cx: &mut Context<'_>) {
        let due = |epoch: &&super::epoch::Epoch| epoch.reorder.due().is_some_and(|at| at <= cx.now);
        let due: Vec<_> = self.epochs.all_receiving().filter(due).map(|epoch| epoch.id).collect();
        for epoch in due {
            self.release(cx, epoch);
        }
    }

    /// How long a gap is held open.
    fn gap_time(&self) -> Duration {
        let trips = self.paths.iter().filter(|path| path.health == Health::Good);
        let longest = trips.filter_map(|path| path.rtt.measured()).max().unwrap_or_default();
        (longest.mul_f64(HOLD_TRIPS) + HOLD_MIN).min(HOLD_MAX)
    }

    /// New keys: the sequences begin anew.
    pub(super) fn renumber(&mut self) {
        if let Some(epoch) = &mut self.epochs.current {
            self.bond.lines.renumber(|bucket| epoch.numbers.take(bucket));
        }
    }
}

/// Something leaves, be it data or not: where the path could have carried something before, and
/// there was nothing, its rate says nothing of what it carries.
pub(super) fn note_idle(now: Instant, path: &mut Path, lane: &mut TxLane) {
    if let Some(controller) = &mut path.congestion
        && !path.was_closed
        && controller.next_at() + IDLE < now
    {
        lane.flight.limited();
        controller.limited(lane.flight.in_flight());
    }
}

/// Whether it could carry a share.
fn is_able(path: &Path) -> bool {
    path.is_proven() && path.health == Health::Good && path.transport() == Transport::Udp
}

/// Whether it carries a share.
fn carries(path: &Path) -> bool {
    path.congestion.is_some() && is_able(path)
}

/// Whether a packet is one that somebody waits for, and no order is lost by its being early: a bare
/// acknowledgement, the beginning of a connection, a small datagram.
fn is_urgent(view: &InnerView, packet: &InnerPacket<'_>) -> bool {
    match view.protocol {
        TCP => Segment::parse(view, packet)
            .is_some_and(|segment| segment.len == 0 && !ends(segment.flags)),
        UDP => packet.len() <= SMALL,
        _ => true,
    }
}

/// Whether a segment says that no more comes: what left before it has to be there first.
const fn ends(flags: Flags) -> bool {
    flags.has(Flags::FIN) || flags.has(Flags::RST)
}
