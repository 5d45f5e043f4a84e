//! What a flow of inner packets needs on its way, from its headers alone; and what is done for the
//! connections of a session while there is no way.
//!
//! Every packet comes through `packet`. Each flow has a `record` in the `table`, with its class
//! (`classify`). `pep` has what is done for TCP: connections are followed one by one (`tcp`; and
//! `predict`, where one packet is like the other), and what their local side sent and the remote
//! one did not acknowledge is kept (`cache`). When the last path is lost their remote sides are
//! spoken for (`hold`); when there is one again, this end sends what it answered for (`resume`);
//! what a process could not deliver before it ended is broken off by the next (`breakoff`). Of what
//! is not TCP only the questions are kept that something begins with (`datagrams`). Both ends of
//! the tunnel do the same, each for those behind its own TUN, and need no word between them. A
//! client may prefer some connections to others (`priority`): the others are shown less room
//! (`narrow`). Where paths have a share, `treatment` says which packets wait and which do not.
//!
//! Decides nothing about paths, and seals nothing: what it wants to say comes out of
//! [`Flows::poll`], to the TUN or into the tunnel.
//!
//! The promise: what was acknowledged in somebody's place is delivered, or the connection is reset.
//! Before the first such acknowledgement of a connection it is written down
//! ([`Flows::poll_record`]), so that this holds for a crash as well.

pub mod classify;
pub(crate) mod judge;
pub mod live;
mod observe;
pub mod overrides;
mod packet;
mod pep;
pub mod priority;
pub mod record;
mod repair;
pub mod report;
pub mod rtp;
pub mod rules;
pub mod table;
pub mod treatment;
pub mod tuple;
mod verdict;
pub mod waiting;
mod wishes;

pub(crate) use pep::memory::Account;
pub use pep::memory::Memory;
pub use pep::tcp::resume::assist::Entrance;
pub use rules::Hold;
pub use tuple::{bucket, hash};
pub use verdict::{Change, Output, Verdict};

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::error::DropReason;
use crate::id::FlowId;
use crate::time::{Duration, Instant};
use crate::wire::inner::TCP;
use live::Early;
use pep::aggregate::Aggregate;
use pep::datagrams::Questions;
use pep::race::Race;
use pep::tcp::{Connection, Task};
use pep::unreached::Nowhere;
use pep::worth::Networks;
use report::FlowReport;
use rules::{Assist, Rules};
use table::Table;
use tuple::Tuple;
use wishes::Wishes;

/// Connections whose last word is repeated while there is no way.
const NEWS_MAX: usize = 4;
/// Those that are assisted hear of the entry no more often, unless it is empty.
const HEED_EVERY: Duration = Duration::from_millis(1);

/// Which connections are assisted: what their local side sends is acknowledged here.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Assists {
    /// None.
    #[default]
    None,
    /// Those that are already, and no other.
    Begun,
    /// All that send much.
    All,
}

/// The connections of one session.
#[derive(Debug, Default)]
pub struct Flows {
    rules: Rules,
    /// What the user says of flows,
    wishes: Wishes,
    /// and flows whose user the shell is to find out.
    unidentified: Vec<Tuple>,
    table: Table,
    early: Early,
    questions: Questions,
    nowhere: Nowhere,
    networks: Networks,
    /// What those that are resumed have on their way together.
    aggregate: Aggregate,
    /// What is due when, each connection once.
    timers: BTreeSet<(Instant, FlowId)>,
    /// Whether there is a way to the remote sides.
    is_up: bool,
    /// Since when there is none.
    lost_at: Instant,
    /// Whether anything is held up.
    is_waiting: bool,
    /// Whether anything was acknowledged while no path carried.
    is_owing: bool,
    /// Some of those whose local side said something that may not have been heard.
    newsworthy: Vec<FlowId>,
    /// The round trip of the path that there was last.
    trip: Duration,
    /// Connections that have to be written down.
    unrecorded: Vec<Tuple>,
    /// Connections that need not be written down any more.
    settled: Vec<Tuple>,
    /// [`Self::poll`] returns nothing before this time.
    rests_until: Instant,
    /// Which connections are assisted.
    assists: Assists,
    /// The connections that are assisted; names of forgotten ones may be among them.
    assisted: Vec<FlowId>,
    /// When they last heard of the entry.
    heeded_at: Instant,
    /// The received rates by level, which decide whose receive window is narrowed.
    race: Race,
}

impl Flows {
    /// No connection yet, and no way. `secret` is a random number.
    pub fn new(rules: impl Into<Rules>, secret: u64) -> Self {
        Self { rules: rules.into(), table: Table::new(secret), ..Self::default() }
    }

    /// What is done for connections that are seen from now on.
    pub(crate) fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Whether what the local sides send much of is acknowledged here from now on (assist).
    pub fn set_assist(&mut self, assists: Assists) {
        let before = std::mem::replace(&mut self.assists, assists);
        if before == Assists::None || assists != Assists::None {
            return;
        }
        let mut left = Vec::new();
        for (id, flow) in self.table.iter_mut() {
            if flow.leave_assist() {
                left.push(id);
            }
        }
        left.into_iter().for_each(|id| self.arm(id));
    }

    /// Tells those that are assisted of the entry, where so many bytes of each bucket wait:
    /// whenever something left, `is_drained` if nothing waits there any more. What `entrance`
    /// says is only asked for when somebody wants to know.
    pub fn heed_entry(
        &mut self,
        now: Instant,
        is_drained: bool,
        entrance: impl FnOnce() -> Entrance,
        queued: impl Fn(u8) -> usize,
    ) {
        let is_early = now.saturating_since(self.heeded_at) < HEED_EVERY;
        if self.assisted.is_empty() || (is_early && !is_drained) {
            return;
        }
        self.heeded_at = now;
        let entrance = entrance();
        let mut assisted = std::mem::take(&mut self.assisted);
        assisted.retain(|&id| {
            let Some(flow) = self.table.flow_mut(id) else { return false };
            let queued = u32::try_from(queued(flow.bucket())).unwrap_or(u32::MAX);
            let connection = flow.connection.as_deref_mut().filter(|it| it.is_assisted());
            let Some(connection) = connection else { return false };
            if connection.heed_entry(now, queued, entrance) {
                self.arm(id);
            }
            true
        });
        self.assisted = assisted;
    }

    /// Which connections are to be assisted.
    pub(crate) const fn wants_assist(&self) -> Assist {
        self.rules.assist()
    }

    /// Whether there is a way, as it was told.
    pub const fn is_up(&self) -> bool {
        self.is_up
    }

    /// Whether somebody waits for there to be a way.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Connections that are known.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The last path is lost.
    pub fn suspend(&mut self, now: Instant, memory: &mut Memory) {
        self.is_up = false;
        self.lost_at = now;
        self.is_waiting |= self.questions.suspend(now, memory);
        let mut held = Vec::new();
        self.newsworthy.clear();
        for (id, flow) in self.table.iter_mut() {
            if flow.waits(now) {
                flow.suspend(now, memory);
                self.is_waiting = true;
                self.is_owing |= flow.owes();
                if self.newsworthy.len() < NEWS_MAX {
                    self.newsworthy.push(id);
                }
                held.push(id);
            }
        }
        held.into_iter().for_each(|id| self.arm(id));
    }

    /// There is a path again, with this round trip.
    pub fn resume(&mut self, now: Instant, memory: &mut Memory, trip: Duration) {
        self.is_up = true;
        self.is_waiting = false;
        self.is_owing = false;
        let before = std::mem::replace(&mut self.trip, trip);
        let (mut resumed, mut flights, mut sending) = (Vec::new(), 0, 0);
        for (id, flow) in self.table.iter_mut() {
            flights += u64::from(flow.resume(now, memory, before, trip));
            sending += usize::from(flow.has_unsent());
            if !flow.is_normal() {
                resumed.push(id);
            }
        }
        self.aggregate.begin(now, flights, sending, trip);
        resumed.into_iter().for_each(|id| self.arm(id));
    }

    /// When [`Self::poll`] will have something; `None` while it waits for others.
    pub fn due(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|&(due, _)| due);
        let due = [timer, self.aggregate.due(), self.questions.due(self.is_up)]
            .into_iter()
            .flatten()
            .min()?;
        Some(due.max(self.rests_until))
    }

    /// There is no room for what it says before `until`.
    pub fn rest(&mut self, until: Instant) {
        self.rests_until = until;
    }

    /// The next packet that this end says of its own accord, appended to `packet`; to be asked
    /// until there is none.
    pub fn poll(
        &mut self,
        now: Instant,
        memory: &mut Memory,
        packet: &mut Vec<u8>,
    ) -> Option<Output> {
        if self.questions.poll(now, memory, self.is_up, packet) {
            return Some(Output::ToRemote);
        }
        while let Some((id, is_its_turn)) = self.next_due(now) {
            let Some(flow) = self.table.get_mut(id) else { continue };
            let others_wait = !is_its_turn && self.aggregate.is_awaited();
            if (others_wait || self.aggregate.is_full(now)) && flow.may_wait(now) {
                flow.park(true);
                self.aggregate.park(id);
                self.arm(id);
                continue;
            }
            let said = flow.poll(now, memory, (self.is_up, self.aggregate.turn()), packet);
            self.arm(id);
            if said.is_some() {
                return said;
            }
        }
        None
    }

    /// A connection for which something is due, and whether it has waited for its turn.
    fn next_due(&mut self, now: Instant) -> Option<(FlowId, bool)> {
        while let Some(id) = self.aggregate.next(now) {
            if self.table.get_mut(id).is_some_and(|flow| flow.park(false)) {
                return Some((id, true));
            }
        }
        let &(_, id) = self.timers.first().filter(|&&(due, _)| due <= now)?;
        self.timers.pop_first();
        if let Some(flow) = self.table.get_mut(id) {
            flow.set_timer(None);
        }
        Some((id, false))
    }

    /// While there is no way: what the `nth` of some connections said last about what it received,
    /// appended to `packet`. Said beside each question for the path's return, it lets the other end
    /// begin where it is needed. Returns its name; `None` when there are no more.
    pub fn news(&self, nth: usize, packet: &mut Vec<u8>) -> Option<FlowId> {
        let id = *self.newsworthy.get(nth)?;
        self.table.get(id)?.say_news(packet);
        Some(id)
    }

    /// A connection that has to be written down before anything is acknowledged in its name; to be
    /// answered with [`Self::recorded`].
    pub fn poll_record(&mut self) -> Option<Tuple> {
        self.unrecorded.pop()
    }

    /// It is written down. That may come too late, when there is a way again or the connection is
    /// gone: then nothing is owed.
    pub fn recorded(&mut self, tuple: &Tuple) {
        let id = self.table.find(tuple);
        let flow = id.and_then(|id| self.table.get_mut(id));
        if !flow.is_some_and(Connection::recorded) {
            self.settled.push(*tuple);
        }
        if let Some(id) = id {
            self.arm(id);
        }
    }

    /// A connection of which nothing is owed any more; to be asked until there is none.
    pub fn poll_settled(&mut self) -> Option<Tuple> {
        self.settled.pop()
    }

    /// What was owed for this connection is gone, with the process that owed it.
    pub fn break_off(&mut self, now: Instant, memory: &mut Memory, tuple: Tuple) {
        let id = self
            .table
            .find(&tuple)
            .or_else(|| self.admit(now, memory, Connection::new(tuple, &self.rules, now)));
        let Some(id) = id else { return };
        if let Some(flow) = self.table.get_mut(id) {
            flow.break_off_dead(now, memory);
        }
        self.arm(id);
    }

    /// When those who wait will have waited for `patience`, and are to be told that it is over;
    /// `None` while nobody was promised anything, or there is a way.
    pub(crate) fn outlasted(&self, patience: Duration) -> Option<Instant> {
        (self.is_owing && !self.is_up).then(|| self.lost_at + patience)
    }

    /// There was no way for too long: each connection that was promised something is broken off,
    /// and the rest is forgotten.
    pub(crate) fn abandon(&mut self, now: Instant, memory: &mut Memory) {
        let all: Vec<_> = self.table.iter_mut().map(|(id, flow)| (id, flow.owes())).collect();
        for (id, owes) in all {
            if !owes {
                self.forget(memory, id);
            } else if let Some(flow) = self.table.get_mut(id) {
                flow.break_off(now, memory);
            }
            self.arm(id);
        }
        self.wait_for_nothing(memory);
    }

    /// There will be no way to the remote side any more: whoever was promised something is told
    /// that its connection is over, once more who is just being told so. Appends the packets for
    /// the TUN to `packets`, each with where it ends. What is left are ends that have to be asked
    /// first, for up to two minutes ([`Self::is_breaking_off`]).
    pub fn terminate(&mut self, memory: &mut Memory, packets: &mut Vec<u8>, ends: &mut Vec<usize>) {
        let ids: Vec<_> = self.table.iter_mut().map(|(id, _)| id).collect();
        for id in ids {
            let Some(flow) = self.table.get_mut(id) else { continue };
            if flow.terminate(packets, ends) {
                self.arm(id);
            } else {
                self.forget(memory, id);
            }
        }
        self.aggregate = Aggregate::default();
        self.wait_for_nothing(memory);
    }

    fn wait_for_nothing(&mut self, memory: &mut Memory) {
        self.questions.clear(memory);
        self.newsworthy.clear();
        (self.is_waiting, self.is_owing) = (false, false);
    }

    /// Whether ends of connections that are broken off are still to be told.
    pub fn is_breaking_off(&mut self) -> bool {
        self.table.iter_mut().any(|(_, flow)| flow.is_broken())
    }

    /// Tells of the flows in the places from `place` on: looks at no more than `places`, and
    /// adds what is there to `reports`, but for what has ended. Returns how many it looked at, less
    /// than `places` only when there are no more.
    pub fn report(
        &self,
        now: Instant,
        place: usize,
        places: usize,
        reports: &mut Vec<FlowReport>,
    ) -> usize {
        let place = place.min(self.table.places());
        let to = place.saturating_add(places).min(self.table.places());
        let flows = (place..to).filter_map(|at| self.table.at(at));
        reports.extend(flows.filter_map(|flow| flow.report(now, self.is_up, &self.wishes)));
        to - place
    }

    /// Adds to the report on a flow that its first packet got nowhere, if it is no further since:
    /// who is heard of is reached.
    pub fn complete(&self, report: &mut FlowReport) {
        let is_silent = match report.tuple.protocol {
            TCP => self.table.peek(&report.tuple).is_some_and(|flow| !flow.tracker().is_answered()),
            _ => report.received == 0,
        };
        let said = self.nowhere.why(&report.tuple).filter(|_| is_silent);
        report.why = said.unwrap_or(report.why);
    }

    /// Data goes by the network where the client has the address `client`, with this round trip:
    /// to be told again and again.
    pub(crate) fn visit(&mut self, client: IpAddr, trip: Duration) {
        self.networks.visit(client, trip);
    }

    #[cfg(test)]
    pub(crate) fn networks(&self) -> (Option<(IpAddr, Duration)>, usize) {
        self.networks.visited()
    }

    /// Datagrams that are kept until there is a way.
    pub const fn questions(&self) -> usize {
        self.questions.waiting()
    }

    /// Why something was given up that was kept, or not sent; to be asked until there is none.
    pub(crate) fn poll_drop(&mut self) -> Option<DropReason> {
        self.questions.poll_drop()
    }

    /// Whether nothing has to be looked at: nothing was ever done for anything, nor will be.
    fn is_idle(&self) -> bool {
        let is_empty = self.is_empty() && self.questions.is_empty();
        is_empty && !self.follows_new()
    }

    /// Whether connections that begin are followed: anything may be done for one.
    fn follows_new(&self) -> bool {
        !self.rules.is_off() || !self.race.is_off() || !self.wishes.overrides.is_empty()
    }

    /// Adds a connection that is not known, in the place of another if need be.
    fn admit(&mut self, now: Instant, memory: &mut Memory, flow: Connection) -> Option<FlowId> {
        if self.is_up {
            self.table.let_go_of_stale(now, |stale| stale.release(memory));
        }
        if let Some(id) = self.table.in_the_way(now, memory.is_crowded()) {
            self.forget(memory, id);
        }
        if memory.is_crowded() {
            return None;
        }
        let id = self.table.insert(flow)?;
        if let Some(flow) = self.table.flow_mut(id) {
            flow.judge(&self.wishes);
            let level = flow.packet(0).level;
            if let Some(connection) = &mut flow.connection {
                connection.judge_anew(memory, self.race.levels(), level);
            }
        }
        memory.one_flow_more();
        Some(id)
    }

    fn forget(&mut self, memory: &mut Memory, id: FlowId) {
        let Some(mut flow) = self.table.remove(id) else { return };
        self.aggregate.count(flow.counted(), 0);
        if let Some(timer) = flow.set_timer(None) {
            self.timers.remove(&(timer, id));
        }
        flow.forget(memory);
        if flow.take_task() == Some(Task::Strike) {
            self.settled.push(flow.tracker().tuple);
        }
        memory.flows_less(1);
    }

    /// Sees to it that the connection's turn comes when it is due.
    fn arm(&mut self, id: FlowId) {
        let Some(flow) = self.table.get_mut(id) else { return };
        match flow.take_task() {
            Some(Task::Write) => {
                self.unrecorded.push(flow.tracker().tuple);
                self.is_owing |= !self.is_up;
            }
            Some(Task::Strike) => self.settled.push(flow.tracker().tuple),
            None => {}
        }
        let (before, flying) = flow.recount();
        self.aggregate.count(before, flying);
        if flow.takes_reduction() {
            self.aggregate.lost();
        }
        let due = flow.due(self.is_up);
        let before = flow.set_timer(due);
        if before != due {
            if let Some(before) = before {
                self.timers.remove(&(before, id));
            }
            self.timers.extend(due.map(|due| (due, id)));
        }
    }
}

#[cfg(test)]
mod tests;
