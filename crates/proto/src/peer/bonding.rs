//! What leaves by which of the paths that carry together, and when.
//!
//! What somebody waits for leaves at once, by the path that has it there first. The rest waits at
//! the entry of `bond`, is given to the paths as they have need, and leaves as each one's
//! congestion controller allows. Which paths there are is decided in `share`.

use super::egress::Load;
use super::{Context, Peer};
use crate::bond::Bond;
use crate::bond::codel::Bound;
use crate::bond::entry::WAIT_MAX;
use crate::bond::schedule::{Given, Lines, Way};
use crate::error::DropReason;
use crate::flow;
use crate::pack::Framing;
use crate::path::{Health, PathId, Trust};
use crate::time::{Duration, Instant};
use crate::wire::data::OVERHEAD;
use crate::wire::frame;
use crate::wire::inner::{InnerPacket, InnerView, TCP, UDP};
use crate::wire::tcp::{Flags, Segment};

/// When the outbox was full, the rest follows after this.
const REST: Duration = Duration::from_millis(1);
/// How long packets of a flow whose losses are repaired may stand at the entry: the sender, who
/// sees no loss, needs it to keep the paths busy (measured in DESIGN, section 4).
const STANDING: Bound =
    Bound { target: Duration::from_millis(80), interval: Duration::from_millis(500) };
/// Datagrams up to this length that are not TCP's: questions, answers, voice. They wait for nobody.
pub(super) const SMALL: usize = 300;

impl Peer {
    /// Sends an inner packet by the path that has it there first: at once what somebody waits for,
    /// in its turn what is part of much.
    pub(super) fn send_bonded(
        &mut self,
        cx: &mut Context<'_>,
        view: &InnerView,
        packet: InnerPacket<'_>,
        kept: usize,
    ) -> Result<(), DropReason> {
        if let Some(sent) = self.send_live(cx, view, packet, kept) {
            return sent;
        }
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

    /// The path by which something that leaves now arrives first.
    pub(super) fn quickest(&mut self, now: Instant, len: usize) -> Option<PathId> {
        self.look_at_ways(now);
        Lines::quickest(now, &self.bond.ways, len)
    }

    /// When a path may carry what waits.
    pub(super) const fn bond_due(&self) -> Option<Instant> {
        self.bond.due
    }

    /// Gives the paths what they have need of, and lets leave what may.
    pub(super) fn serve_bond(&mut self, cx: &mut Context<'_>) {
        self.send_lost(cx);
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
    pub(super) fn look_at_ways(&mut self, now: Instant) {
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

    /// New keys: the sequences begin anew.
    pub(super) fn renumber(&mut self) {
        if let Some(epoch) = &mut self.epochs.current {
            self.bond.lines.renumber(|bucket| epoch.numbers.take(bucket));
        }
    }
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
