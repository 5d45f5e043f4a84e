//! What becomes of one packet of somebody else's: from the TUN, and from the tunnel.
//!
//! Decides whether it goes on, and whether as it is. What this end says itself comes out of
//! [`Flows::poll`], and by which path anything goes is not known here.

use super::classify::{Known, classify};
use super::place::Place;
use super::tuple::{Direction, Tuple};
use super::verdict::{Passage, Verdict};
use super::{Assists, Flows};
use crate::flow::pep::memory::Memory;
use crate::flow::pep::tcp::resume::assist::ASSISTED_MAX;
use crate::flow::pep::tcp::{Connection, Notice, Phase, State};
use crate::time::Instant;
use crate::wire::inner::{Headers, InnerPacket};
use crate::wire::tcp::{Flags, Segment};

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
        let Some(place) = self.find(now, memory, Direction::Out, &packet.headers, &segment) else {
            return Passage::WHOLE;
        };
        let (is_up, is_crowded) = (self.is_up, self.aggregate.is_crowded(now));
        let Some(flow) = self.table.get_mut(place) else { return Passage::WHOLE };
        match flow.phase {
            Phase::Broken(_) => {
                flow.overhear(Direction::Out, &segment);
                self.arm(place);
                return Passage::Held;
            }
            Phase::Normal if !is_up => flow.suspend(now, memory),
            Phase::Normal | Phase::Held(_) | Phase::Resumed(_) => {}
        }
        let notice = flow.look_at(now, Direction::Out, &segment, packet);
        if notice == Notice::Stray {
            let is_heard = !matches!(flow.phase, Phase::Held(_));
            self.arm(place);
            return if is_heard { Passage::WHOLE } else { Passage::Held };
        }
        let fresh = notice == Notice::Fresh;
        if segment.flags.has(Flags::SYN) {
            flow.open(Direction::Out, &segment, segment.opening(packet));
        }
        let kept = flow.keep(memory, &self.networks, &segment, packet);
        if !fresh && !matches!(flow.phase, Phase::Held(_)) {
            flow.keep_repeated(memory, &segment, packet);
        }
        if flow.state == State::Closed {
            flow.end(memory);
        }
        let goes = match flow.phase {
            Phase::Normal if flow.is_settled => true,
            Phase::Normal => {
                if self.assists == Assists::All && flow.asks_for_assist(memory) {
                    self.begin_assist(now, memory, place);
                } else if flow.may_go_on(Direction::Out, &segment) {
                    self.table.foresee(Direction::Out, place, &segment, packet.pieces);
                }
                return Passage::Goes { kept };
            }
            Phase::Held(_) => {
                flow.say_unheard(now, memory, &segment, packet, fresh);
                self.is_waiting |= segment.end() != segment.seq;
                false
            }
            Phase::Resumed(_) => {
                let goes = flow.goes_now(now, &segment, packet, is_crowded);
                if goes && flow.is_assisted() && flow.may_go_on(Direction::Out, &segment) {
                    self.table.foresee(Direction::Out, place, &segment, packet.pieces);
                }
                goes
            }
            Phase::Broken(_) => false,
        };
        self.arm(place);
        if goes { Passage::Goes { kept } } else { Passage::Held }
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
        let (place, flow, &segment) = self.table.foreseen(Direction::Out, packet.pieces)?;
        if !flow.goes_on(now, Direction::Out, &segment) {
            return None;
        }
        let kept = flow.keep(memory, &self.networks, &segment, packet);
        if flow.is_assisted() {
            flow.followed(now, segment.end());
            flow.answer_soon(now);
            self.arm(place);
        } else if self.assists == Assists::All && flow.asks_for_assist(memory) {
            self.begin_assist(now, memory, place);
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
        let Some(place) = self.find(now, memory, Direction::In, &packet.headers, &segment) else {
            return Verdict::Pass;
        };
        let Some(flow) = self.table.get_mut(place) else { return Verdict::Pass };
        if matches!(flow.phase, Phase::Broken(_)) {
            flow.overhear(Direction::In, &segment);
            self.arm(place);
            return Verdict::Keep;
        }
        let acked = flow.local.acked;
        let notice = flow.look_at(now, Direction::In, &segment, packet);
        if notice == Notice::Stray {
            return Verdict::Pass;
        }
        if flow.take_reset(now, memory, &segment) {
            self.arm(place);
            return Verdict::Pass;
        }
        if segment.flags.has(Flags::SYN) {
            flow.open(Direction::In, &segment, segment.opening(packet));
        }
        if !flow.cache.is_empty() {
            flow.cache.acknowledged(memory, flow.local.acked);
        }
        if !flow.heads.is_empty() {
            flow.heads.acknowledged(memory, flow.local.acked);
        }
        if flow.state == State::Closed {
            flow.end(memory);
        }
        if matches!(flow.phase, Phase::Normal) && !flow.is_settled {
            if flow.may_go_on(Direction::In, &segment) {
                self.table.foresee(Direction::In, place, &segment, packet.pieces);
            }
            return Verdict::Pass;
        }
        if matches!(flow.phase, Phase::Resumed(_)) && !flow.is_assisted() {
            self.aggregate.arrived(now, flow.local.acked.beyond(acked));
        }
        let verdict = flow.pass_on(now, &segment, packet);
        self.arm(place);
        verdict
    }

    /// What the local side of a connection goes on to say is acknowledged here, once it is written
    /// down that something will be owed.
    fn begin_assist(&mut self, now: Instant, memory: &Memory, place: Place) {
        let Some(flow) = self.table.get_mut(place) else { return };
        if self.assisted.len() >= ASSISTED_MAX {
            return;
        }
        if !self.assisted.contains(&place) {
            self.assisted.push(place);
        }
        flow.begin_assist(now, memory);
        self.unrecorded.push(flow.tuple);
        self.arm(place);
    }

    /// The connection of a packet; a new one is added.
    fn find(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        way: Direction,
        headers: &Headers,
        segment: &Segment,
    ) -> Option<Place> {
        let begins = segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK);
        if !segment.flags.has(Flags::SYN)
            && let Some(place) = self.table.last(headers, way)
        {
            return Some(place);
        }
        let tuple = Tuple::of(headers, way)?;
        if let Some(place) = self.table.find(&tuple) {
            let known = self.table.get(place)?;
            if let Some(mut next) = known.next_between(now, way, segment) {
                next.choice = self.rules.choose(&tuple, next.class);
                self.forget(memory, place);
                return self.admit(now, memory, next);
            }
            if !begins || known.state != State::Closed {
                return Some(place);
            }
            self.forget(memory, place); // the same ends, another connection
        }
        if segment.flags.has(Flags::RST) || (self.rules.is_off() && self.race.is_off()) {
            return None;
        }
        let class = classify(Known::by_ports((tuple.local.1, tuple.remote.1)));
        let mut flow = Connection::new(tuple, class, now);
        flow.choice = self.rules.choose(&tuple, class);
        self.admit(now, memory, flow)
    }
}
