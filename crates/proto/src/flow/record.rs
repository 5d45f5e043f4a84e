//! The record of one inner flow. TCP connections and UDP flows have the same record in the same
//! table. A connection is one part of it (`Connection`), realtime traffic another (`LiveFlow`);
//! a part that a flow does not need is not there.
//!
//! `classify` decides the class of a flow from what is noted here. Other modules decide what
//! follows from the class.

use super::classify::{Class, classify};
use super::live::LiveFlow;
use super::overrides::Whose;
use super::report::{FlowReport, FlowState, Stage, Why};
use super::tuple::Tuple;
use super::wishes::Wishes;
use crate::flow::pep::tcp::Connection;
use crate::id::FlowId;
use crate::packet::PacketRecord;
use crate::path::PathId;
use crate::time::{Duration, Instant};
use crate::wire::inner::TCP;

/// A UDP flow that is silent for so long is not reported: datagrams do not say when they end.
const OPEN: Duration = Duration::from_secs(60);

/// One inner flow, both ways.
#[derive(Debug)]
pub struct Flow {
    /// Its name in the table.
    pub(super) id: FlowId,
    /// What the packets that its local side sends have in common.
    packet: PacketRecord,
    /// Whose it is, if a rule asks that.
    whose: Whose,
    pub(super) tuple: Tuple,
    /// It has one of the places for flows that are no connection.
    pub(super) is_other: bool,
    /// The realtime part, if the flow was observed as one that may be of no use late.
    pub(super) live: Option<Box<LiveFlow>>,
    /// The TCP connection, if it is one.
    pub(super) connection: Option<Box<Connection>>,
}

impl Flow {
    /// A flow of which nothing was seen yet.
    pub(super) fn new(id: FlowId, tuple: Tuple, is_other: bool) -> Self {
        let class = classify(tuple.ports(), false);
        let packet = PacketRecord::of_bucket(tuple.bucket());
        let packet = PacketRecord { flow: Some(id), class, ..packet };
        Self { id, packet, whose: Whose::default(), tuple, is_other, live: None, connection: None }
    }

    /// The record of a packet that its local side sends, of which `kept` bytes are kept.
    pub(super) const fn packet(&self, kept: u16) -> PacketRecord {
        PacketRecord { kept, ..self.packet }
    }

    /// The class of the flow.
    pub const fn class(&self) -> Class {
        self.packet.class
    }

    /// The bucket of what its local side sends.
    pub(super) const fn bucket(&self) -> u8 {
        self.packet.bucket
    }

    /// Works out the class again: something was seen or said that it depends on. Returns whether it
    /// is another one.
    pub(super) fn classify(&mut self) -> bool {
        let live = self.live.as_deref();
        let is_rtp = live.is_some_and(|live| live.likeness.is_rtp());
        let is_early = is_rtp || live.is_some_and(|live| live.is_wanted_early);
        self.packet.marks = self.packet.marks.with_rtp(is_rtp);
        let class = classify(self.tuple.ports(), is_early);
        std::mem::replace(&mut self.packet.class, class) != class
    }

    /// Works out again what the user says of it.
    pub(super) fn judge(&mut self, wishes: &Wishes) {
        let decided = wishes.decide(&self.tuple, self.class(), self.whose);
        self.packet = wishes.apply(&self.tuple, &decided, self.packet);
        if let Some(connection) = &mut self.connection {
            connection.set_level(self.packet.level);
        }
    }

    /// Notes that the shell is asked whose it is. Returns its ends if it is not asked yet.
    pub(super) fn ask_whose(&mut self) -> Option<Tuple> {
        let is_new = self.whose == Whose::Unasked;
        is_new.then(|| {
            self.whose = Whose::Asked;
            self.tuple
        })
    }

    /// It is that of this user, or of no user of the host.
    pub(super) const fn identified(&mut self, user: Option<u32>) {
        self.whose = Whose::Known(user);
    }

    /// The report about the flow; `None` after it has ended.
    pub(super) fn report(&self, now: Instant, is_up: bool, wishes: &Wishes) -> Option<FlowReport> {
        let decided = wishes.decide(&self.tuple, self.class(), self.whose);
        if let Some(connection) = &self.connection {
            let PacketRecord { class, level, .. } = self.packet;
            let path = self.own_path(now);
            let told = connection.report(now, is_up);
            let told = FlowReport { class, level, path, decided, ..told };
            return (!connection.is_over()).then_some(told);
        }
        let live = self.live.as_deref().filter(|_| self.tuple.protocol != TCP)?;
        let idle = now.saturating_since(live.observed_at);
        (idle < OPEN).then(|| FlowReport {
            tuple: self.tuple,
            class: self.class(),
            level: self.packet.level,
            decided,
            narrowed_to: None,
            queue: None,
            state: FlowState::Normal,
            stage: Stage::Established,
            held_bytes: 0,
            owed_bytes: 0,
            idle,
            sent: live.carried.0,
            received: live.carried.1,
            path: self.own_path(now),
            why: self.why(live, now),
        })
    }

    /// The path that was chosen for this flow only.
    fn own_path(&self, now: Instant) -> Option<PathId> {
        let live = self.live.as_deref().filter(|live| !live.waits(now))?;
        live.leaves.filter(|_| self.class() == Class::RealTime)
    }

    fn why(&self, live: &LiveFlow, now: Instant) -> Why {
        match self.class() {
            _ if live.waits(now) => Why::TooMuch,
            Class::RealTime if live.is_wanted_early => Why::Wanted,
            Class::RealTime => Why::Spoken,
            Class::Names => Why::Raced,
            Class::Interactive | Class::Bulk => Why::InTurn,
        }
    }
}
