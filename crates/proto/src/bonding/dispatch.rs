//! Chooses the path of each packet among the paths with a share, and when the packet leaves.
//!
//! Urgent packets leave at once, on the path that delivers them first. All others wait in the fair
//! queue of `multipath`, are given to paths that need one, and leave as the congestion controller
//! of that path allows. `paths::plan::spread` decides which paths carry together.

use super::Bonding;
use crate::ablation::Heuristic;
use crate::congestion::{CREDIT, Controller};
use crate::error::DropReason;
use crate::flow::{Entrance, Flows};
use crate::multipath::far::COPIES;
use crate::multipath::path_queues::Numbered;
use crate::multipath::scheduler;
use crate::multipath::snapshot::PathSnapshot;
use crate::outbox::REST;
use crate::packet::{Instance, PacketRecord};
use crate::path::PathId;
use crate::time::{Duration, Instant};
use crate::tunnel::{Context, Tunnel, saving};
use crate::wire::data::OVERHEAD;
use crate::wire::frame::{Framing, NUMBERED_OVERHEAD};
use crate::wire::inner::{InnerPacket, Pieces};

/// What leaves by a path in so long leaves as one run: half of what its pace allows to be late.
const RUN: Duration = Duration::from_micros(500);
const _: () = assert!(2 * RUN.as_micros() == CREDIT.as_micros());
/// A packet beside which less room is left shares its datagram with none.
const JOINED_MIN: usize = 40;
/// How much of what is assisted waits at the entry, by the time that the paths take for it.
const ASSISTED_QUEUE: Duration = Duration::from_millis(15);
/// What became of a packet that leaves in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// It has left.
    Left,
    /// It waits in the queue. A timer or feedback calls [`Bonding::serve`].
    Queued,
    /// It waits in the queue, and [`Bonding::serve`] must be called now.
    Due,
}

impl Bonding {
    /// Sends a packet that somebody waits for now, by the path that has it there first; `None`
    /// where it has to wait all the same.
    pub(crate) fn send_urgent(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
    ) -> Option<Result<(), DropReason>> {
        let (now, len) = (cx.now, packet.len());
        let path = self.chosen(now, tunnel, |ways| scheduler::quickest(now, ways, len))?;
        if !self.live.may_hurry(now, carried(&self.ways), len) {
            return None;
        }
        Some(if self.settings.scheduler.copies() {
            self.send_by_all(cx, tunnel, path, record, packet.pieces)
        } else {
            tunnel.send_packet(cx, path, record, Framing::Plain, packet.pieces)
        })
    }

    /// Sends a packet that is part of much: in its turn, if others wait.
    pub(crate) fn send_in_turn(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
    ) -> Result<Sent, DropReason> {
        // What leaves again comes before what never left.
        let repairs = !tunnel.recovery.queue.is_empty();
        let is_first = self.entry.is_empty();
        let scheduler = self.settings.scheduler;
        let is_needed = scheduler.needs(cx.now, &self.ways) && !self.lines.are_full();
        let copies = scheduler.copies() || self.far.copies();
        if is_first && !repairs && !copies && is_needed {
            return self.send_first(cx, tunnel, record, packet.pieces).map(|()| Sent::Left);
        }
        let blocks = cx.memory.blocks();
        // Losses are repaired: the sender, who sees none, needs a queue to keep the paths busy. TCP
        // has to listen (RFC 5681); of a datagram nobody knows who makes more of them.
        let standing = self.standing;
        let has_to_listen = packet.is_tcp() || self.ablation.is_off(Heuristic::Unresponsive);
        let bound = if has_to_listen { standing } else { standing.for_the_deaf() };
        let dropped = self.entry.push(blocks, cx.now, record, packet.pieces, bound);
        (0..dropped).for_each(|_| cx.drops.count(DropReason::QueueFull));
        // Behind others it waits until they are looked at.
        let is_due = is_first || repairs || self.due.is_some_and(|due| due <= cx.now);
        Ok(if is_due { Sent::Due } else { Sent::Queued })
    }

    /// A packet before which none waits leaves at once, if the path that it is given to may carry
    /// it; else it waits for that.
    fn send_first(
        &mut self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        record: PacketRecord,
        packet: Pieces<'_>,
    ) -> Result<(), DropReason> {
        let len = packet.len();
        let scheduler = self.settings.scheduler;
        let floor = self.far.terms(cx.now, record.bucket, len).floor;
        let (Some(place), Some(epoch)) =
            (scheduler.choose(cx.now, &mut self.ways, len, floor), &mut tunnel.epochs.current)
        else {
            return Err(DropReason::QueueFull); // one that has need has room
        };
        let given = Numbered::new(record, epoch.numbers.in_order(record.bucket));
        let way = &mut self.ways[place];
        let path = way.path;
        let seals = tunnel.paths.list.get(path).is_some_and(|path| epoch.has_lane_for(path));
        if way.waiting == 0 && way.is_ready(cx.now) && !cx.out.is_full() && seals {
            return tunnel.send_ordered(cx, path, given, packet);
        }
        let blocks = cx.memory.blocks();
        let packet = blocks.parcel((packet.head, packet.tail), packet.checksum);
        self.lines.push(way, given, packet.ok_or(DropReason::QueueFull)?);
        let due = wakes_at(cx.now, way.next_at);
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
        Ok(())
    }

    /// Something that somebody waits for leaves by every path that has room, and is delivered once.
    fn send_by_all(
        &self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        first: PathId,
        mut record: PacketRecord,
        packet: Pieces<'_>,
    ) -> Result<(), DropReason> {
        let framing = tunnel.epochs.number_once(record.bucket).ok_or(DropReason::NoRoute)?;
        let duplicate = record.copied(Instance::Duplicate);
        for way in &self.ways {
            if way.path != first && way.is_open() {
                // What fails here is no loss: the first answers for it.
                if tunnel.send_packet(cx, way.path, duplicate, framing, packet).is_ok() {
                    record.instance = Instance::Original;
                }
            }
        }
        tunnel.send_packet(cx, first, record, framing, packet)
    }

    /// When a path may carry what waits.
    pub(crate) const fn pace_due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether an arrival lets something leave. A path that has room carries what it was given when
    /// its time comes.
    pub(crate) fn has_room_at(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now) || self.is_closed
    }

    /// What is assisted hears how much of it waits at the entry.
    pub(crate) fn heed_entry(&self, tunnel: &Tunnel, flows: &mut Flows, now: Instant) {
        let paths = &tunnel.paths.list;
        let entrance = || {
            let carrying = || self.ways.iter().filter_map(|way| paths.get(way.path));
            let longest = carrying().filter_map(|path| path.rtt.minimum()).max();
            let controllers = carrying().filter_map(|path| path.congestion.as_deref());
            let sum = |(window, rate), one: &dyn Controller| {
                (window + one.window(), rate + one.pacing_rate())
            };
            let (window, rate) = controllers.fold((0.0, 0.0), sum);
            // The entry queue must not run empty before the next turn.
            let stands = ASSISTED_QUEUE + self.late.usual();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates"
            )]
            let [carried, target] = [window, rate * stands.as_secs_f64()].map(|it| it as u32);
            Entrance { carried, longest: longest.unwrap_or_default(), target }
        };
        let queued = |bucket| self.entry.queued(bucket);
        flows.heed_entry(now, self.entry.is_empty(), entrance, queued);
    }

    /// Gives the paths what they have need of, and lets leave what may. Returns whether something
    /// waits and no path carries a share any more: it is for the one path that there is.
    pub(crate) fn serve(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) -> bool {
        if let Some(due) = self.due.filter(|&due| due <= cx.now) {
            self.late.sample(cx.now, cx.now.saturating_since(due));
        }
        self.due = None;
        if self.is_idle() {
            self.idle_since = None;
            self.note_wanted(tunnel, cx.now, false);
            return false;
        }
        self.look_at_ways(tunnel, cx.now);
        if self.ways.is_empty() {
            return true;
        }
        self.idle_since = None;
        if self.lines.has_stranded(&self.ways) {
            self.give_stranded(cx);
        }
        if !self.drain_lines(cx, tunnel) {
            self.due = Some(cx.now + REST);
            return false;
        }
        let waits = !self.is_idle();
        self.note_wanted(tunnel, cx.now, waits);
        if self.looked.is_none() {
            self.due = Some(cx.now + REST);
            return false;
        }
        // Where nothing was given to a path yet, it will be when its turn comes.
        let gets_all = self.settings.scheduler.gets_all(&self.ways);
        let may_get = |place| !self.entry.is_empty() && gets_all.is_none_or(|all| all == place);
        let waits = |&(place, way): &(usize, &PathSnapshot)| {
            way.is_open() && (may_get(place) || way.waiting > 0)
        };
        let next_at = self.ways.iter().enumerate().filter(waits).map(|(_, way)| way.next_at).min();
        self.due = next_at.map(|next_at| wakes_at(cx.now, next_at));
        false
    }

    /// Lets leave what may, and gives the paths what they need then. Returns whether the outbox had
    /// room for all of it.
    fn drain_lines(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) -> bool {
        let now = cx.now;
        loop {
            self.fill_lines(cx, tunnel);
            let mut any = false;
            for place in 0..self.ways.len() {
                let may_leave = |way: &PathSnapshot| way.waiting > 0 && way.is_ready(now);
                while may_leave(&self.ways[place]) {
                    if cx.out.is_full() {
                        saving::flush_due(tunnel, cx);
                        return false;
                    }
                    self.send_next(cx, tunnel, place);
                    self.book(tunnel);
                    any = true;
                }
                saving::flush_due(tunnel, cx);
                self.book(tunnel);
            }
            if !any {
                return true;
            }
        }
    }

    /// Notes at each path whether something waits for it: until its turn comes, or because as much
    /// is on its way by it as may be.
    fn note_wanted(&mut self, tunnel: &mut Tunnel, now: Instant, waits: bool) {
        if !waits && !self.is_wanted {
            return;
        }
        let Self { entry, ways, is_closed, is_wanted, .. } = self;
        (*is_closed, *is_wanted) = (false, waits);
        for path in tunnel.paths.list.iter_to_send() {
            let way = ways.iter().find(|way| way.path == path.id).filter(|_| waits);
            *is_closed |= way.is_some_and(|way| !way.is_open());
            path.set_wanted(way.is_some_and(|way| {
                let has_turn = way.next_at > now && !entry.is_empty();
                !way.is_open() || way.waiting > 0 || has_turn
            }));
        }
    }

    /// Gives packets from the entry to the paths, as long as one of them has need.
    fn fill_lines(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
        let Some(epoch) = &mut tunnel.epochs.current else { return };
        let blocks = cx.memory.blocks();
        let scheduler = self.settings.scheduler;
        let Self { entry, lines, ways, far, .. } = self;
        while scheduler.needs(cx.now, ways)
            && !lines.are_full()
            && let Some((record, packet)) = entry.pop(blocks, cx.now)
        {
            let (bucket, len) = (record.bucket, packet.len());
            let mut given = Numbered::new(record, epoch.numbers.in_order(bucket));
            let terms = far.terms(cx.now, bucket, len);
            // One that has need has room.
            let Some(place) = scheduler.choose(cx.now, ways, len, terms.floor) else {
                cx.drops.count(DropReason::QueueFull);
                blocks.discard(packet);
                break;
            };
            for (_, way) in ways.iter_mut().enumerate().filter(|&(at, _)| at != place) {
                let is_tried = terms.copied_to == Some(way.path);
                let copies = if is_tried { COPIES } else { usize::from(scheduler.copies()) };
                let whole = (packet.packet(), &[][..]);
                for _ in 0..copies {
                    if way.starves(cx.now)
                        && let Some(copy) = blocks.parcel(whole, packet.checksum())
                    {
                        let duplicate = record.copied(Instance::Duplicate);
                        lines.push(way, Numbered { record: duplicate, ..given }, copy);
                        given.record.instance = Instance::Original;
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
    fn send_next(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel, place: usize) {
        let path = self.ways[place].path;
        let paths = &tunnel.paths.list;
        if !paths.get(path).is_some_and(|path| tunnel.epochs.has_lane(path, paths.len())) {
            self.ways[place].room = 0;
            self.looked = None;
            return;
        }
        let Some((given, packet)) = self.lines.pop(&mut self.ways[place]) else { return };
        let pieces = Pieces::waited(&packet);
        let sent = if self.is_joined(cx, tunnel, place, (given, pieces)) {
            Ok(())
        } else {
            saving::flush_due(tunnel, cx);
            tunnel.send_ordered(cx, path, given, pieces)
        };
        // Its memory is still in the processor's cache, and lent again first.
        cx.memory.blocks().discard(packet);
        if let Err(reason) = sent {
            cx.drops.count(reason);
        }
    }

    /// Has a packet that was taken from the line at `place` share a datagram: if one is under
    /// construction that it fits into, or the next packet of the line fits beside it. Returns
    /// whether it does.
    fn is_joined(
        &self,
        cx: &mut Context<'_>,
        tunnel: &mut Tunnel,
        place: usize,
        (given, packet): (Numbered, Pieces<'_>),
    ) -> bool {
        let way = self.ways[place];
        let Some(path) = tunnel.paths.list.get(way.path) else { return false };
        let room = path.mtu.datagram() - OVERHEAD;
        let len = packet.len() + NUMBERED_OVERHEAD;
        let may = !given.is_earlier && saving::may_join(cx, given.record);
        if len + JOINED_MIN > room || !may || is_bare(packet) {
            return false;
        }
        let Some(placed) = tunnel.epochs.place_of(Some(path), given) else { return false };
        let to = (placed.0, way.path);
        let next = self.lines.next_of(&way).filter(|(next, _)| saving::may_join(cx, *next));
        let has_company = next.is_some_and(|(_, next)| len + next + NUMBERED_OVERHEAD <= room);
        (has_company || saving::fits(tunnel, to, len))
            && saving::send_joined(tunnel, cx, (to, placed.1), given.record, packet)
    }

    /// What was given to a path that carries no more goes by another.
    fn give_stranded(&mut self, cx: &mut Context<'_>) {
        let scheduler = self.settings.scheduler;
        let ways = &mut self.ways;
        while let Some((given, packet)) = self.lines.take_stranded(ways) {
            if given.record.instance == Instance::Duplicate {
                cx.memory.blocks().discard(packet);
                continue;
            }
            let len = packet.len();
            let chosen = scheduler.choose(cx.now, ways, len, Duration::ZERO);
            let place = chosen.or_else(|| scheduler::earliest(cx.now, ways, len, Duration::ZERO));
            self.lines.push(&mut ways[place.unwrap_or_default()], given, packet);
        }
    }

    /// New keys: the sequences begin anew, and what has its place in those before keeps it.
    pub(crate) fn renumber(&mut self, cx: &mut Context<'_>, tunnel: &mut Tunnel) {
        self.looked = None;
        if let Some(epoch) = &mut tunnel.epochs.current {
            let blocks = cx.memory.blocks();
            self.lines.renumber(blocks, |bucket| epoch.numbers.in_order(bucket));
        }
    }
}

/// Bytes per second that all paths carry.
fn carried(ways: &[PathSnapshot]) -> f64 {
    ways.iter().map(PathSnapshot::rate).sum()
}

/// When to look again, where the first path may carry more at `next_at`: not for each packet, but
/// for runs. What a path could have carried until then it carries all the same, at once.
fn wakes_at(now: Instant, next_at: Instant) -> Instant {
    next_at.max(now + RUN)
}

/// Whether a packet acknowledges and carries nothing: if its datagram were lost, others would go
/// with it.
fn is_bare(packet: Pieces<'_>) -> bool {
    InnerPacket::parse(packet).is_ok_and(|packet| packet.is_bare_segment())
}
