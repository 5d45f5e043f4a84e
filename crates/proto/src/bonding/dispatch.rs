//! Gives packets to the paths with a share, and says when each may leave.
//!
//! Urgent packets leave at once, on the path that delivers them first. All others wait in the fair
//! queue of `multipath`, are given to paths that need one, and leave as the congestion controller
//! of that path allows. `paths::plan::spread` decides which paths carry together. `peer::dispatch`
//! asks, and sends.

use super::Bonding;
use crate::ablation::Heuristic;
use crate::blocks::Blocks;
use crate::blocks::parcel::Parcel;
use crate::congestion::CREDIT;
use crate::error::{DropReason, Drops};
use crate::multipath::Numbers;
use crate::multipath::far::COPIES;
use crate::multipath::path_queues::{Job, Numbered};
use crate::multipath::scheduler;
use crate::multipath::snapshot::PathSnapshot;
use crate::outbox::REST;
use crate::packet::{Instance, PacketRecord};
use crate::path::PathId;
use crate::time::{Duration, Instant};
use crate::wire::inner::InnerPacket;

/// What leaves by a path in so long leaves as one run: half of what its pace allows to be late.
const RUN: Duration = Duration::from_micros(500);
const _: () = assert!(2 * RUN.as_micros() == CREDIT.as_micros());

impl Bonding {
    /// Whether `len` bytes may leave before all that waits.
    pub(crate) fn may_hurry(&mut self, now: Instant, len: usize) -> bool {
        let carried = self.ways.iter().map(PathSnapshot::rate).sum();
        self.live.may_hurry(now, carried, len)
    }

    /// Whether a packet that comes now is given to a path at once: no other waits for any, and some
    /// path has need of one.
    pub(crate) fn gives_at_once(&self, now: Instant) -> bool {
        let scheduler = self.settings.scheduler;
        let copies = scheduler.copies() || self.far.copies();
        self.entry.is_empty()
            && !copies
            && scheduler.needs(now, &self.ways)
            && !self.lines.are_full()
    }

    /// Has a packet wait at the entry. Returns how many packets were dropped for it, and whether
    /// the paths are to be served now.
    pub(crate) fn enter(
        &mut self,
        now: Instant,
        blocks: &mut Blocks,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
    ) -> (u64, bool) {
        let is_first = self.entry.is_empty();
        // Losses are repaired: the sender, who sees none, needs a queue to keep the paths busy. TCP
        // has to listen (RFC 5681); of a datagram nobody knows who makes more of them.
        let standing = self.standing;
        let has_to_listen = packet.is_tcp() || self.ablation.is_off(Heuristic::Unresponsive);
        let bound = if has_to_listen { standing } else { standing.for_the_deaf() };
        let dropped = self.entry.push(blocks, now, record, packet.pieces, bound);
        // Behind others it waits until they are looked at.
        (dropped, is_first || self.due.is_some_and(|due| due <= now))
    }

    /// The place of the path that a packet of `len` bytes is given to; `None` if none has room.
    pub(crate) fn choose(&mut self, now: Instant, bucket: u8, len: usize) -> Option<usize> {
        let floor = self.far.terms(now, bucket, len).floor;
        self.settings.scheduler.choose(now, &mut self.ways, len, floor)
    }

    /// Whether the path at `place` may carry a packet now, and none waits for it.
    pub(crate) fn is_free(&self, now: Instant, place: usize) -> bool {
        let way = &self.ways[place];
        way.waiting == 0 && way.is_ready(now)
    }

    /// Has a packet wait for the path at `place`.
    pub(crate) fn line_up(&mut self, now: Instant, place: usize, given: Numbered, packet: Parcel) {
        let way = &mut self.ways[place];
        self.lines.push(way, given, packet);
        let due = wakes_at(now, way.next_at);
        self.due = Some(self.due.map_or(due, |before| before.min(due)));
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

    /// The paths are served, later than was asked for perhaps. Returns whether anything waits.
    pub(crate) fn begin_turn(&mut self, now: Instant) -> bool {
        if let Some(due) = self.due.take().filter(|&due| due <= now) {
            self.late.sample(now, now.saturating_since(due));
        }
        if self.is_idle() {
            self.idle_since = None;
            return false;
        }
        true
    }

    /// What was given to a path that carries no more goes by another. Returns `false` if no path
    /// carries.
    pub(crate) fn give_stranded(&mut self, now: Instant, blocks: &mut Blocks) -> bool {
        if self.ways.is_empty() {
            return false;
        }
        self.idle_since = None;
        if !self.lines.has_stranded(&self.ways) {
            return true;
        }
        let scheduler = self.settings.scheduler;
        let ways = &mut self.ways;
        while let Some((given, packet)) = self.lines.take_stranded(ways) {
            if given.record.instance == Instance::Duplicate {
                blocks.discard(packet);
                continue;
            }
            let len = packet.len();
            let chosen = scheduler.choose(now, ways, len, Duration::ZERO);
            let place = chosen.or_else(|| scheduler::earliest(now, ways, len, Duration::ZERO));
            self.lines.push(&mut ways[place.unwrap_or_default()], given, packet);
        }
        true
    }

    /// The outbox is full, or what is known of a path is wrong: the rest follows later.
    pub(crate) fn rest(&mut self, now: Instant) {
        self.due = Some(now + REST);
    }

    /// The paths were served: notes when they are to be served again.
    pub(crate) fn end_turn(&mut self, now: Instant) {
        if self.looked.is_none() {
            return self.rest(now);
        }
        // Where nothing was given to a path yet, it will be when its turn comes.
        let gets_all = self.settings.scheduler.gets_all(&self.ways);
        let may_get = |place| !self.entry.is_empty() && gets_all.is_none_or(|all| all == place);
        let waits = |&(place, way): &(usize, &PathSnapshot)| {
            way.is_open() && (may_get(place) || way.waiting > 0)
        };
        let next_at = self.ways.iter().enumerate().filter(waits).map(|(_, way)| way.next_at).min();
        self.due = next_at.map(|next_at| wakes_at(now, next_at));
    }

    /// Notes whether something waits for a path. Returns whether the paths have to be told
    /// ([`Self::wants`]).
    pub(crate) fn note_waiting(&mut self) -> bool {
        let waits = !self.is_idle();
        if !waits && !self.is_wanted {
            return false;
        }
        self.is_closed = waits && self.ways.iter().any(|way| !way.is_open());
        self.is_wanted = waits;
        true
    }

    /// Whether something waits for a path: until its turn comes, or because as much is on its way
    /// by it as may be.
    pub(crate) fn wants(&self, now: Instant, path: PathId) -> bool {
        let way = self.ways.iter().find(|way| way.path == path).filter(|_| self.is_wanted);
        way.is_some_and(|way| {
            let has_turn = way.next_at > now && !self.entry.is_empty();
            !way.is_open() || way.waiting > 0 || has_turn
        })
    }

    /// Gives packets from the entry to the paths, as long as one of them has need. Each gets its
    /// number from `numbers`.
    pub(crate) fn fill_lines(
        &mut self,
        now: Instant,
        (blocks, drops): (&mut Blocks, &mut Drops),
        numbers: &mut Numbers,
    ) {
        let scheduler = self.settings.scheduler;
        let Self { entry, lines, ways, far, .. } = self;
        while scheduler.needs(now, ways)
            && !lines.are_full()
            && let Some((record, packet)) = entry.pop(blocks, now)
        {
            let (bucket, len) = (record.bucket, packet.len());
            let mut given = Numbered::new(record, numbers.in_order(bucket));
            let terms = far.terms(now, bucket, len);
            // One that has need has room.
            let Some(place) = scheduler.choose(now, ways, len, terms.floor) else {
                drops.count(DropReason::QueueFull);
                blocks.discard(packet);
                break;
            };
            for (_, way) in ways.iter_mut().enumerate().filter(|&(at, _)| at != place) {
                let is_tried = terms.copied_to == Some(way.path);
                let copies = if is_tried { COPIES } else { usize::from(scheduler.copies()) };
                let whole = (packet.packet(), &[][..]);
                for _ in 0..copies {
                    if way.starves(now)
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
            drops.count(DropReason::QueueFull);
        }
    }

    /// Whether a packet waits for the path at `place` that may leave now.
    pub(crate) fn may_leave(&self, now: Instant, place: usize) -> bool {
        let way = &self.ways[place];
        way.waiting > 0 && way.is_ready(now)
    }

    /// Takes out the next packet that waits for the path at `place`: it leaves.
    pub(crate) fn take(&mut self, place: usize) -> Option<Job> {
        self.lines.pop(&mut self.ways[place])
    }

    /// The path at `place` carries nothing under the current keys: what waits for it goes by
    /// another.
    pub(crate) fn strand(&mut self, place: usize) {
        self.ways[place].room = 0;
        self.looked = None;
    }

    /// New keys: the sequences begin anew, and what has its place in those before keeps it.
    pub(crate) fn renumber(&mut self, blocks: &mut Blocks, numbers: &mut Numbers) {
        self.looked = None;
        self.lines.renumber(blocks, |bucket| numbers.in_order(bucket));
    }
}

/// When to look again, where the first path may carry more at `next_at`: not for each packet, but
/// for runs. What a path could have carried until then it carries all the same, at once.
fn wakes_at(now: Instant, next_at: Instant) -> Instant {
    next_at.max(now + RUN)
}
