//! What leaves by which of the paths that carry together, and when.
//!
//! What somebody waits for leaves at once, by the path that has it there first. The rest waits at
//! the entry of `bond`, is given to the paths as they have need, and leaves as each one's
//! congestion controller allows. Which paths there are is decided in `share`.

use super::egress::Load;
use super::epoch::Epoch;
use super::index::EpochId;
use super::{Context, Peer};
use crate::ablation::Heuristic;
use crate::blocks::parcel::Parcel;
use crate::bond::Bond;
use crate::bond::entry::{QUANTUM, Stay, WAIT_MAX};
use crate::bond::far::COPIES;
use crate::bond::lines::{Among, Given};
use crate::bond::scheduler;
use crate::bond::way::Way;
use crate::error::DropReason;
use crate::flow::live::Allowance;
use crate::flow::priority::Level;
use crate::flow::treatment::Treatment;
use crate::flow::{self, Entrance, clamp};
use crate::outbox::REST;
use crate::pack::Framing;
use crate::path::congestion::{CREDIT, Controller};
use crate::path::{Health, Path, PathId, Trust};
use crate::time::{Duration, Instant};
use crate::wire::data::OVERHEAD;
use crate::wire::frame::{self, Frame};
use crate::wire::inner::{InnerPacket, Pieces};

/// What leaves by a path in so long leaves as one run: half of what its pace allows to be late.
const RUN: Duration = Duration::from_micros(500);
const _: () = assert!(2 * RUN.as_micros() == CREDIT.as_micros());
/// How much of what is assisted waits at the entry, by the time that the paths take for it.
const ASSISTED_QUEUE: Duration = Duration::from_millis(15);
/// The part of what all paths carry that may leave before all that waits: acknowledgements of as
/// much as twenty times that, small datagrams, beginnings,
const HURRY_PART: f64 = 0.5;
/// and bytes beyond that which may follow one another.
const HURRY_BURST: f64 = 64_000.0;

impl Peer {
    /// Sends an inner packet, which is bonded: at once what somebody waits for, by the path that
    /// has it there first; in its turn what is part of much.
    pub(super) fn send_bonded(
        &mut self,
        cx: &mut Context<'_>,
        packet: &InnerPacket<'_>,
        kept: usize,
    ) -> Result<(), DropReason> {
        let ablation = self.bond.ablation;
        let Treatment { hash, live, is_urgent } = self.flows.treat(cx.now, packet, ablation);
        if let Some(live) = live
            && let Some(sent) = self.send_live(cx, live, packet, kept)
        {
            self.heed_entry(cx.now); // it did not wait there
            return sent;
        }
        if is_urgent
            && let Some(path) = self.quickest(cx, packet.len())
            && self.may_hurry(cx.now, packet.len())
        {
            if self.bond.scheduler.copies() {
                return self.send_by_all(cx, path, packet, kept);
            }
            let load = Load::Packet { elsewhere: kept };
            return self.send_packet(cx, path, load, Framing::Plain, packet);
        }
        self.flows.leaves_in_turn(cx.now, packet, hash);
        let bucket = flow::bucket(hash);
        // A beginning that waits says already now how long segments may be, by whichever it leaves.
        let beginning = clamp::place(packet).and_then(|tcp| self.clamped(tcp, packet.pieces));
        let pieces = beginning.as_deref().map_or(packet.pieces, Pieces::whole);
        // What leaves again comes before what never left.
        let repairs = !self.lost.is_empty();
        let is_first = self.bond.entry.is_empty();
        let Bond { scheduler, ways, far, lines, .. } = &self.bond;
        let copies = scheduler.copies() || far.copies();
        let is_needed = scheduler.needs(cx.now, ways) && !lines.are_full();
        if is_first && !repairs && !copies && is_needed {
            let sent = self.send_first(cx, bucket, pieces, kept);
            self.heed_entry(cx.now);
            return sent;
        }
        let blocks = cx.memory.blocks();
        // Losses are repaired: the sender, who sees none, needs a queue to keep the paths busy. TCP
        // has to listen (RFC 5681); of a datagram nobody knows who makes more of them.
        let standing = self.bond.standing;
        let has_to_listen = packet.is_tcp() || ablation.is_off(Heuristic::Unresponsive);
        let bound = if has_to_listen { standing } else { standing.for_the_deaf() };
        let stay = Stay { bound, turn: turn_of(self.flows.level_of(packet)) };
        let dropped = self.bond.entry.push(blocks, cx.now, bucket, pieces, kept, stay);
        (0..dropped).for_each(|_| cx.drops.count(DropReason::QueueFull));
        // Behind others it waits until they are looked at.
        if is_first || repairs || self.bond.due.is_some_and(|due| due <= cx.now) {
            self.serve_bond(cx);
        }
        Ok(())
    }

    /// The SYN `packet`, whose TCP header starts at `tcp`, with segments that fit each path that
    /// carries a share; `None` where there is none.
    fn clamped(&self, tcp: usize, packet: Pieces<'_>) -> Option<Vec<u8>> {
        let packet_max = self.least_room()? - frame::SEQUENCED_OVERHEAD;
        let mut clamped = Vec::with_capacity(packet.len());
        packet.copy_to(&mut clamped);
        clamp::clamp(&mut clamped, tcp, packet_max);
        Some(clamped)
    }

    /// Whether something may leave before all that waits: a part of what the paths carry may, or
    /// much that is small would keep the rest from ever leaving.
    fn may_hurry(&mut self, now: Instant, len: usize) -> bool {
        let carried: f64 = self.bond.ways.iter().map(Way::rate).sum();
        let allowance = Allowance { rate: carried * HURRY_PART, burst: HURRY_BURST };
        self.live.hurried.take(now, allowance, len)
    }

    /// A packet before which none waits leaves at once, if the path that it is given to may carry
    /// it; else it waits for that.
    fn send_first(
        &mut self,
        cx: &mut Context<'_>,
        bucket: u8,
        packet: Pieces<'_>,
        kept: usize,
    ) -> Result<(), DropReason> {
        let len = packet.len();
        let Bond { scheduler, ways, lines, far, .. } = &mut self.bond;
        let terms = far.terms(cx.now, bucket, len);
        let (Some(place), Some(epoch)) =
            (scheduler.choose(cx.now, ways, len, terms.floor), &mut self.epochs.current)
        else {
            return Err(DropReason::QueueFull); // one that has need has room
        };
        let given = Given {
            bucket,
            among: Among::One,
            sequence: epoch.numbers.take(bucket),
            is_earlier: false,
            len,
            elsewhere: kept,
        };
        let way = &mut ways[place];
        let path = way.path;
        let seals = self.paths.get(path).is_some_and(|path| epoch.has_lane_for(path));
        if way.waiting == 0 && way.is_ready(cx.now) && !cx.out.is_full() && seals {
            return self.send_ordered(cx, path, given, packet);
        }
        let packet = cx.memory.blocks().parcel(packet.head, packet.tail);
        lines.push(way, given, packet.ok_or(DropReason::QueueFull)?);
        let due = wakes_at(cx.now, way.next_at);
        self.bond.due = Some(self.bond.due.map_or(due, |before| before.min(due)));
        Ok(())
    }

    /// Something that somebody waits for leaves by every path that has room, and is delivered once.
    fn send_by_all(
        &mut self,
        cx: &mut Context<'_>,
        first: PathId,
        packet: &InnerPacket<'_>,
        kept: usize,
    ) -> Result<(), DropReason> {
        let Some(epoch) = &mut self.epochs.current else { return Err(DropReason::NoRoute) };
        let (bucket, sequence) = epoch.sequence_tx.take(flow::hash(&packet.headers));
        let framing = Framing::Sequenced { bucket, sequence };
        let mut load = Load::Packet { elsewhere: kept };
        for place in 0..self.bond.ways.len() {
            let way = self.bond.ways[place];
            if way.path != first && way.is_open() {
                // What fails here is no loss: the first answers for it.
                let sent = self.send_packet(cx, way.path, Load::Eliciting, framing, packet);
                load = sent.map_or(load, |()| Load::Doubled { elsewhere: kept });
            }
        }
        self.send_packet(cx, first, load, framing, packet)
    }

    /// When a path may carry what waits.
    pub(super) const fn bond_due(&self) -> Option<Instant> {
        self.bond.due
    }

    /// A datagram has come: what may leave because of that does.
    pub(super) fn serve_after_arrival(&mut self, cx: &mut Context<'_>) {
        // A path that has room carries what it was given when its time comes.
        let waits_for_time = self.bond.due.is_some_and(|due| due > cx.now) && !self.bond.is_closed;
        if !waits_for_time {
            self.serve_bond(cx);
        }
    }

    /// Gives the paths what they have need of, and lets leave what may.
    pub(super) fn serve_bond(&mut self, cx: &mut Context<'_>) {
        self.let_leave(cx);
        self.heed_entry(cx.now);
    }

    /// What is assisted hears how much of it waits at the entry.
    fn heed_entry(&mut self, now: Instant) {
        let (bond, paths) = (&self.bond, &self.paths);
        let entrance = || {
            let carrying = || bond.ways.iter().filter_map(|way| paths.get(way.path));
            let longest = carrying().filter_map(|path| path.rtt.minimum()).max();
            let controllers = carrying().filter_map(|path| path.congestion.as_deref());
            let sum = |(window, rate), one: &Controller| {
                (window + one.window(), rate + one.pacing_rate())
            };
            let (window, rate) = controllers.fold((0.0, 0.0), sum);
            // The entry queue must not run empty before the next turn.
            let stands = ASSISTED_QUEUE + bond.late.usual();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates"
            )]
            let [carried, target] = [window, rate * stands.as_secs_f64()].map(|it| it as u32);
            Entrance { carried, longest: longest.unwrap_or_default(), target }
        };
        let queued = |bucket| bond.entry.queued(bucket);
        self.flows.heed_entry(now, bond.entry.is_empty(), entrance, queued);
    }

    /// What may leave does.
    fn let_leave(&mut self, cx: &mut Context<'_>) {
        if let Some(due) = self.bond.due.filter(|&due| due <= cx.now) {
            self.bond.late.sample(cx.now, cx.now.saturating_since(due));
        }
        self.send_lost(cx);
        self.bond.due = None;
        if self.bond.is_idle() {
            self.bond.idle_since = None;
            self.note_wanted(cx.now, false);
            return;
        }
        self.look_at_ways(cx.now);
        if self.bond.ways.is_empty() {
            self.leave_bond(cx);
            return;
        }
        self.bond.idle_since = None;
        if self.bond.lines.has_stranded(&self.bond.ways) {
            self.give_stranded(cx);
        }
        if !self.drain_lines(cx) {
            self.bond.due = Some(cx.now + REST);
            return;
        }
        let waits = !self.bond.is_idle();
        self.note_wanted(cx.now, waits);
        if self.bond.looked.is_none() {
            self.bond.due = Some(cx.now + REST);
            return;
        }
        // Where nothing was given to a path yet, it will be when its turn comes.
        let Bond { scheduler, ways, entry, .. } = &self.bond;
        let gets_all = scheduler.gets_all(ways);
        let may_get = |place| !entry.is_empty() && gets_all.is_none_or(|all| all == place);
        let waits =
            |&(place, way): &(usize, &Way)| way.is_open() && (may_get(place) || way.waiting > 0);
        let next_at = ways.iter().enumerate().filter(waits).map(|(_, way)| way.next_at).min();
        self.bond.due = next_at.map(|next_at| wakes_at(cx.now, next_at));
    }

    /// Lets leave what may, and gives the paths what they need then. Returns whether the outbox had
    /// room for all of it.
    fn drain_lines(&mut self, cx: &mut Context<'_>) -> bool {
        let now = cx.now;
        loop {
            self.fill_lines(cx);
            let mut any = false;
            for place in 0..self.bond.ways.len() {
                let may_leave = |way: &Way| way.waiting > 0 && way.is_ready(now);
                while may_leave(&self.bond.ways[place]) {
                    if cx.out.is_full() {
                        return false;
                    }
                    self.send_next(cx, place);
                    any = true;
                }
            }
            if !any {
                return true;
            }
        }
    }

    /// Notes at each path whether something waits for it: until its turn comes, or because as much
    /// is on its way by it as may be.
    fn note_wanted(&mut self, now: Instant, waits: bool) {
        if !waits && !self.bond.is_wanted {
            return;
        }
        let Bond { ways, entry, is_closed, is_wanted, .. } = &mut self.bond;
        (*is_closed, *is_wanted) = (false, waits);
        for path in self.paths.iter_to_send() {
            let way = ways.iter().find(|way| way.path == path.id).filter(|_| waits);
            *is_closed |= way.is_some_and(|way| !way.is_open());
            path.was_wanted = way.is_some_and(|way| {
                let has_turn = way.next_at > now && !entry.is_empty();
                !way.is_open() || way.waiting > 0 || has_turn
            });
        }
    }

    /// Gives packets from the entry to the paths, as long as one of them has need.
    fn fill_lines(&mut self, cx: &mut Context<'_>) {
        let Some(epoch) = &mut self.epochs.current else { return };
        let blocks = cx.memory.blocks();
        let Bond { scheduler, entry, lines, ways, far, .. } = &mut self.bond;
        while scheduler.needs(cx.now, ways)
            && !lines.are_full()
            && let Some((popped, packet)) = entry.pop(blocks, cx.now)
        {
            let mut given = Given {
                bucket: popped.bucket,
                among: Among::One,
                sequence: epoch.numbers.take(popped.bucket),
                is_earlier: false,
                len: packet.len(),
                elsewhere: popped.kept,
            };
            let terms = far.terms(cx.now, given.bucket, given.len);
            // One that has need has room.
            let Some(place) = scheduler.choose(cx.now, ways, given.len, terms.floor) else {
                cx.drops.count(DropReason::QueueFull);
                blocks.discard(packet);
                break;
            };
            let copies = |way: &Way| {
                if terms.copied_to == Some(way.path) { COPIES } else { scheduler.copies().into() }
            };
            let is_copied = scheduler.copies() || terms.copied_to.is_some();
            let others = ways.iter_mut().enumerate().filter(|&(at, _)| is_copied && at != place);
            for (_, way) in others {
                for _ in 0..copies(way) {
                    if way.starves(cx.now)
                        && let Some(copy) = blocks.parcel(packet.packet(), &[])
                    {
                        lines.push(way, Given { among: Among::Copy, ..given }, copy);
                        given.among = Among::Several;
                    }
                }
            }
            lines.push(&mut ways[place], given, packet);
        }
        for _ in 0..entry.take_dropped() {
            cx.drops.count(DropReason::QueueFull);
        }
    }

    /// The next packet of the line of the path at `place` leaves; but where another path has got
    /// the last index, that line is stranded.
    fn send_next(&mut self, cx: &mut Context<'_>, place: usize) {
        let path = self.bond.ways[place].path;
        if !self.paths.get(path).is_some_and(|path| self.has_lane(path)) {
            self.bond.ways[place].room = 0;
            self.bond.looked = None;
            return;
        }
        let next = self.bond.lines.pop(&mut self.bond.ways[place]);
        if let Some((given, packet)) = next
            && let Err(reason) = self.send_parcel(cx, path, given, packet)
        {
            cx.drops.count(reason);
        }
    }

    /// A packet leaves with its place in the sequence.
    fn send_ordered(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        given: Given,
        packet: Pieces<'_>,
    ) -> Result<(), DropReason> {
        let Given { among, len, elsewhere, .. } = given;
        let (epoch, header) = self.place_of(id, given).ok_or(DropReason::NoRoute)?;
        let room = self.paths.get(id).map_or(0, |path| path.mtu.datagram() - OVERHEAD);
        let load = match among {
            Among::One => Load::Packet { elsewhere },
            Among::Several => Load::Doubled { elsewhere },
            Among::Copy => Load::Eliciting,
        };
        if len + frame::ORDERED_OVERHEAD <= room {
            return self.send_under(cx, epoch, id, load, |draft| {
                header.emit(draft.frames());
                packet.copy_to(draft.frames());
            });
        }
        let mut whole = Vec::with_capacity(len + frame::ORDERED_OVERHEAD);
        header.emit(&mut whole);
        packet.copy_to(&mut whole);
        self.send_split(cx, epoch, id, &whole)
    }

    /// The same of one that waited, in its parcel.
    fn send_parcel(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        given: Given,
        packet: Parcel,
    ) -> Result<(), DropReason> {
        let sent = self.send_ordered(cx, id, given, Pieces::whole(packet.packet()));
        // Its memory is still in the processor's cache, and lent again first.
        cx.memory.blocks().discard(packet);
        sent
    }

    /// The epoch that a packet has its place in, and the frame without it that says which place:
    /// that of the first in a sequence says what comes before. What the path cannot carry under
    /// earlier keys any more gets a place under the current ones.
    fn place_of(&mut self, id: PathId, given: Given) -> Option<(EpochId, Frame<'static>)> {
        let Given { bucket, among, mut sequence, is_earlier, .. } = given;
        if is_earlier {
            let previous = self.epochs.previous().zip(self.paths.get(id));
            let seals = |it: &(&Epoch, &Path)| it.0.has_lane_for(it.1);
            if let Some((epoch, _)) = previous.filter(seals) {
                return Some((epoch.id, Frame::Ordered { bucket, sequence, packet: &[] }));
            }
            let current = self.epochs.current.as_mut().filter(|_| among == Among::One)?;
            sequence = current.numbers.take(bucket);
        }
        let current = self.epochs.current.as_ref()?.id;
        let before = if sequence == 0 { self.epochs.ended(bucket) } else { None };
        let first = |(epoch, end)| Frame::First { bucket, epoch, end, packet: &[] };
        Some((current, before.map_or(Frame::Ordered { bucket, sequence, packet: &[] }, first)))
    }

    /// What was given to a path that carries no more goes by another.
    fn give_stranded(&mut self, cx: &mut Context<'_>) {
        let Bond { scheduler, lines, ways, .. } = &mut self.bond;
        while let Some((given, packet)) = lines.take_stranded(ways) {
            if given.among == Among::Copy {
                cx.memory.blocks().discard(packet);
                continue;
            }
            let chosen = scheduler.choose(cx.now, ways, given.len, Duration::ZERO);
            let place =
                chosen.or_else(|| scheduler::earliest(cx.now, ways, given.len, Duration::ZERO));
            lines.push(&mut ways[place.unwrap_or_default()], given, packet);
        }
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
        loop {
            if cx.out.is_full() {
                self.bond.due = Some(cx.now + REST);
                break;
            }
            let blocks = cx.memory.blocks();
            let sent = if let Some((given, packet)) = self.bond.lines.take_stranded(&[]) {
                if given.among == Among::Copy {
                    blocks.discard(packet);
                    continue;
                }
                self.send_parcel(cx, path, given, packet)
            } else if let Some((popped, packet)) = self.bond.entry.pop(blocks, cx.now) {
                let whole = InnerPacket::whole(packet.packet());
                let sent = whole.and_then(|whole| self.send_by_choice(cx, &whole, popped.kept));
                cx.memory.blocks().discard(packet);
                sent
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
    }

    /// The path that everything goes by.
    fn only_path(&self) -> Option<PathId> {
        let path = self.paths.choose().and_then(|choice| self.paths.get(choice.original))?;
        let claimed = matches!(path.trust, Trust::Claimed { .. });
        (path.health == Health::Good && !claimed && self.epochs.current.is_some())
            .then_some(path.id)
    }

    /// New keys: the sequences begin anew, and what has its place in those before keeps it.
    pub(super) fn renumber(&mut self, cx: &mut Context<'_>) {
        self.bond.looked = None;
        if let Some(epoch) = &mut self.epochs.current {
            let blocks = cx.memory.blocks();
            self.bond.lines.renumber(blocks, |bucket| epoch.numbers.take(bucket));
        }
    }
}

/// Bytes of the turns of a flow of this level: what nobody said anything of has the usual ones.
const fn turn_of(level: Level) -> u16 {
    QUANTUM / Level::Second.weight() * level.weight()
}

/// When to look again, where the first path may carry more at `next_at`: not for each packet, but
/// for runs. What a path could have carried until then it carries all the same, at once.
fn wakes_at(now: Instant, next_at: Instant) -> Instant {
    next_at.max(now + RUN)
}
