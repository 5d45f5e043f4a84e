//! What becomes of one packet of somebody else's: from the TUN, and from the tunnel.
//!
//! Decides whether it goes on, and whether as it is. What this end says itself comes out of
//! [`Flows::poll`], and by which path anything goes is not known here.

use super::tuple::{Direction, Tuple};
use super::verdict::{Passage, Verdict};
use super::{Assists, Flows};
use crate::flow::pep::memory::Memory;
use crate::flow::pep::tcp::Connection;
use crate::flow::pep::tcp::resume::assist::ASSISTED_MAX;
use crate::flow::report::Stage;
use crate::id::FlowId;
use crate::time::Instant;
use crate::wire::inner::{Headers, InnerPacket};
use crate::wire::tcp::{Flags, Rewrite, Segment};

impl Flows {
    /// A packet from the TUN.
    pub fn outgoing(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        packet: &InnerPacket<'_>,
    ) -> Passage {
        if self.is_idle() {
            return Passage::WHOLE;
        }
        if let Some(kept) = self.goes_on(now, memory, packet) {
            return Passage::Goes { kept };
        }
        if !packet.is_tcp() {
            let goes = self.questions.outgoing(now, memory, &self.rules, packet, self.is_up);
            self.is_waiting |= !goes && !self.is_up;
            return if goes { Passage::WHOLE } else { Passage::Held };
        }
        let Some(segment) = Segment::parse(packet) else { return Passage::WHOLE };
        let Some(id) = self.find(now, memory, Direction::Out, &packet.headers, &segment) else {
            return Passage::WHOLE;
        };
        let tunnel = (self.is_up, self.aggregate.is_crowded(now));
        let Some(flow) = self.table.get_mut(id) else { return Passage::WHOLE };
        let both = (&segment, packet);
        let passage = flow.outgoing(now, memory, &self.networks, tunnel, both);
        self.is_waiting |= flow.is_held() && segment.end() != segment.seq;
        if self.assists == Assists::All && flow.asks_for_assist(memory) {
            self.begin_assist(now, memory, id);
        } else if flow.may_go_on(Direction::Out, &segment) {
            self.table.foresee(Direction::Out, id, &segment, packet.pieces);
        }
        self.arm(id);
        passage
    }

    /// A packet that is the next of the stream, as it was foreseen, leaves as it is. Returns how
    /// many bytes at its end are kept; `None` for any other.
    fn goes_on(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        packet: &InnerPacket<'_>,
    ) -> Option<usize> {
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
        Some(kept)
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
            self.race.note_other(packet);
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
    pub fn narrow(&mut self, now: Instant, packet: &InnerPacket<'_>, head: &mut Vec<u8>) -> bool {
        if self.race.is_off() || !packet.is_tcp() {
            return false;
        }
        if self.is_up {
            self.race.look(now, &mut self.table);
        }
        let Some((segment, window)) = self.race.narrow(now, &mut self.table, packet) else {
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
        if segment.flags.has(Flags::RST) || (self.rules.is_off() && self.race.is_off()) {
            return None;
        }
        self.admit(now, memory, Connection::new(tuple, &self.rules, now))
    }
}
