//! What becomes of one packet of somebody else's: from the TUN, and from the tunnel.
//!
//! Decides whether it goes on, and whether as it is. What this end says itself comes out of
//! [`Flows::poll`], and by which path anything goes is not known here.

use super::classify::classify;
use super::overrides::Whose;
use super::tuple::{Direction, Tuple};
use super::verdict::Verdict;
use super::{Assists, Flows, bucket, hash, judge};
use crate::flow::pep::memory::Memory;
use crate::flow::pep::tcp::Connection;
use crate::flow::pep::tcp::resume::assist::ASSISTED_MAX;
use crate::flow::report::Stage;
use crate::id::FlowId;
use crate::packet::PacketRecord;
use crate::time::Instant;
use crate::wire::inner::{Headers, InnerPacket};
use crate::wire::tcp::{Flags, Rewrite, Segment};

impl Flows {
    /// A packet from the TUN. Returns its record, or `None` if it is not sent: then what is needed
    /// of it is kept. Its flow is [observed](Self::observe) if this end `observes`.
    pub fn outgoing(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        packet: &InnerPacket<'_>,
        observes: bool,
    ) -> Option<PacketRecord> {
        let next = self.goes_on(now, memory, packet);
        let (flow, kept) = match next {
            Some((flow, kept)) => (Some(flow), kept),
            None if self.is_idle() => (None, 0),
            None if packet.is_tcp() => self.passes(now, memory, packet)?,
            None => {
                let goes = self.questions.outgoing(now, memory, &self.rules, packet, self.is_up);
                self.is_waiting |= !goes && !self.is_up;
                goes.then_some((None, 0))?
            }
        };
        let kept = u16::try_from(kept).unwrap_or(u16::MAX);
        Some(PacketRecord { kept, ..self.describe(now, flow, packet, observes) })
    }

    /// The record of a packet that this end made for one of its flows.
    pub fn record_of(
        &mut self,
        now: Instant,
        packet: &InnerPacket<'_>,
        observes: bool,
    ) -> PacketRecord {
        let tuple = Tuple::of(&packet.headers, Direction::Out).filter(|_| packet.is_tcp());
        let connection = tuple.and_then(|tuple| self.table.find(&tuple));
        self.describe(now, connection, packet, observes)
    }

    /// The record of a packet of the connection `flow`, or else of the flow that is observed.
    fn describe(
        &mut self,
        now: Instant,
        flow: Option<FlowId>,
        packet: &InnerPacket<'_>,
        observes: bool,
    ) -> PacketRecord {
        let observed = if observes { self.note(now, flow, Direction::Out, packet) } else { None };
        if let Some(id) = flow.or(observed) {
            judge::ask_whose(self, id);
            if let Some(flow) = self.table.flow(id) {
                return flow.packet(0);
            }
        }
        let Headers { ports, source, destination, protocol, .. } = packet.headers;
        let (from, to) = ports.unwrap_or_default();
        let class = classify((from, to), false);
        let tuple = Tuple { local: (source, from), remote: (destination, to), protocol };
        let record = PacketRecord::of_bucket(bucket(hash(&packet.headers)));
        let record = PacketRecord { class, ..record };
        let decided = self.wishes.decide(&tuple, class, Whose::Unasked);
        self.wishes.apply(&tuple, &decided, record)
    }

    /// A segment of the local side's. Returns its connection and how many bytes at its end are
    /// kept; `None` if it is not sent.
    fn passes(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        packet: &InnerPacket<'_>,
    ) -> Option<(Option<FlowId>, usize)> {
        const UNKNOWN: (Option<FlowId>, usize) = (None, 0);
        let Some(segment) = Segment::parse(packet) else { return Some(UNKNOWN) };
        let Some(id) = self.find(now, memory, Direction::Out, &packet.headers, &segment) else {
            return Some(UNKNOWN);
        };
        let tunnel = (self.is_up, self.aggregate.is_crowded(now));
        let Some(flow) = self.table.get_mut(id) else { return Some(UNKNOWN) };
        let both = (&segment, packet);
        let kept = flow.outgoing(now, memory, &self.networks, tunnel, both);
        self.is_waiting |= flow.is_held() && segment.end() != segment.seq;
        if self.assists == Assists::All && flow.asks_for_assist(memory) {
            self.begin_assist(now, memory, id);
        } else if flow.may_go_on(Direction::Out, &segment) {
            self.table.foresee(Direction::Out, id, &segment, packet.pieces);
        }
        self.arm(id);
        kept.map(|kept| (Some(id), kept))
    }

    /// A packet that is the next of the stream, as it was foreseen, leaves as it is. Returns its
    /// connection and how many bytes at its end are kept; `None` for any other.
    fn goes_on(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        packet: &InnerPacket<'_>,
    ) -> Option<(FlowId, usize)> {
        if !self.is_up {
            return None;
        }
        let (id, flow, &segment) = self.table.foreseen(Direction::Out, packet.pieces)?;
        if !flow.goes_on(now, Direction::Out, &segment) {
            return None;
        }
        let kept = flow.keep_next(now, memory, &self.networks, &segment, packet);
        if flow.is_assisted() {
            self.arm(id);
        } else if self.assists == Assists::All && flow.asks_for_assist(memory) {
            self.begin_assist(now, memory, id);
        }
        Some((id, kept))
    }

    /// A packet from the tunnel.
    pub fn incoming(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        packet: &InnerPacket<'_>,
    ) -> Verdict {
        if self.is_idle() {
            return Verdict::Pass;
        }
        if let Some((_, flow, segment)) = self.table.foreseen(Direction::In, packet.pieces)
            && flow.goes_on(now, Direction::In, segment)
        {
            return Verdict::Pass;
        }
        if !packet.is_tcp() {
            self.questions.answered(memory, packet);
            judge::note_other(self, packet);
            return Verdict::Pass;
        }
        let Some(segment) = Segment::parse(packet) else { return Verdict::Pass };
        let Some(id) = self.find(now, memory, Direction::In, &packet.headers, &segment) else {
            return Verdict::Pass;
        };
        let Some(flow) = self.table.get_mut(id) else { return Verdict::Pass };
        let (verdict, arrived) = flow.incoming(now, memory, &segment, packet);
        if flow.may_go_on(Direction::In, &segment) {
            self.table.foresee(Direction::In, id, &segment, packet.pieces);
        }
        self.aggregate.arrived(now, arrived);
        self.arm(id);
        verdict
    }

    /// Looks at a packet that leaves for the remote side, whoever made it, before anybody else
    /// changes it. Where it is to tell of less room, its `head` is put into `head` with that, and
    /// takes its place; returns whether it is so.
    pub fn narrow(
        &mut self,
        now: Instant,
        flow: Option<FlowId>,
        packet: &InnerPacket<'_>,
        head: &mut Vec<u8>,
    ) -> bool {
        let Some(flow) = flow.filter(|_| packet.is_tcp() && !self.race.is_off()) else {
            return false;
        };
        if self.is_up {
            self.race.look(now, &mut self.table);
        }
        let Some((segment, window)) = self.race.narrow(now, &mut self.table, flow, packet) else {
            return false;
        };
        head.clear();
        head.extend_from_slice(packet.pieces.head);
        let window = Some(window);
        segment.rewrite(head, &Rewrite { window, ..Rewrite::default() });
        true
    }

    /// What the local side of a connection goes on to say is acknowledged here, once it is written
    /// down that something will be owed.
    fn begin_assist(&mut self, now: Instant, memory: &Memory, id: FlowId) {
        let Some(flow) = self.table.get_mut(id) else { return };
        if self.assisted.len() >= ASSISTED_MAX {
            return;
        }
        if !self.assisted.contains(&id) {
            self.assisted.push(id);
        }
        flow.begin_assist(now, memory);
        self.arm(id);
    }

    /// The connection of a packet; a new one is added.
    fn find(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        way: Direction,
        headers: &Headers,
        segment: &Segment,
    ) -> Option<FlowId> {
        let begins = segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK);
        if !segment.flags.has(Flags::SYN)
            && let Some(id) = self.table.last(headers, way)
        {
            return Some(id);
        }
        let tuple = Tuple::of(headers, way)?;
        if let Some(id) = self.table.find(&tuple) {
            let known = self.table.get(id)?;
            if let Some(next) = known.next_between(now, way, segment, &self.rules) {
                self.forget(memory, id);
                return self.admit(now, memory, next);
            }
            if !begins || known.tracker().stage != Stage::Closed {
                return Some(id);
            }
            self.forget(memory, id); // the same ends, another connection
        }
        if segment.flags.has(Flags::RST) || !self.follows_new() {
            return None;
        }
        self.admit(now, memory, Connection::new(tuple, &self.rules, now))
    }
}
