//! The table of inner flows, by their ends. It is bounded, and a search is always short.
//!
//! A flow has a name ([`FlowId`]) that finds it as long as it is known, and nothing afterwards. If
//! there is no place left for a new connection, a few others are compared and the least needed one
//! is forgotten. Closed connections go first, then opening ones, then those that are unused for
//! longest. A connection that owes something to somebody is never forgotten.
//!
//! Flows that are no connection have a few places of their own, four for each set of hashes. The
//! least needed one of a set is forgotten for a new flow. So a million flows cost no more than one,
//! and cannot displace a call.

use std::cmp::Reverse;

use super::classify::Class;
use super::live::LiveFlow;
use super::record::Flow;
use super::tuple::{Direction, Tuple};
use crate::flow::pep::predict::Prediction;
use crate::flow::pep::tcp::Connection;
use crate::flow::report::Stage;
use crate::id::FlowId;
use crate::time::{Duration, Instant};
use crate::wire::inner::{Headers, Pieces};
use crate::wire::tcp::Segment;

/// Connections of one session at most.
pub(super) const CONNECTIONS_MAX: usize = 16_384;
/// Other flows of one session at most.
pub(super) const OTHERS_MAX: usize = SETS * SET;
const SETS: usize = 32;
/// Places of one set.
const SET: usize = 4;
/// A call that is silent for so long is forgotten like any other flow.
const SPARED: Duration = Duration::from_secs(10);
/// Among how many the one to go is chosen.
const LOOKED_AT: usize = 16;
/// How many are looked at for staleness when one is added.
const SWEPT: usize = 4;
/// Places of the index for each connection: so many stay empty that a search is short.
const SPARE: usize = 2;
/// The index is at least so large.
const INDEX_MIN: usize = 16;

const _: () = assert!(CONNECTIONS_MAX + OTHERS_MAX <= 1 << 16); // places have 16 bits of a name
const _: () = assert!(OTHERS_MAX * (size_of::<Flow>() + size_of::<LiveFlow>()) <= 40 * 1_024);

/// All flows of a session.
#[derive(Debug, Default)]
pub(super) struct Table {
    secret: u64,
    flows: Vec<Option<Box<Flow>>>,
    /// Names of the next flows in the places that are free.
    free: Vec<FlowId>,
    /// How many of them are connections.
    connections: usize,
    /// Sets of places of those that are none; empty before the first.
    others: Vec<Option<FlowId>>,
    /// Flows by hash, linear probing.
    index: Vec<Option<FlowId>>,
    /// Where the next search for one that can go begins.
    hand: usize,
    /// Where the next look for stale ones begins.
    sweep: usize,
    /// The connection that was found last,
    last: Option<FlowId>,
    /// and the flow that was observed last.
    observed: Option<FlowId>,
    /// What comes next, from the TUN and from the tunnel.
    next: (Option<Prediction>, Option<Prediction>),
}

impl Table {
    /// An empty table whose order nobody outside can guess.
    pub(super) fn new(secret: u64) -> Self {
        Self { secret, ..Self::default() }
    }

    /// Connections that are known.
    pub(super) const fn len(&self) -> usize {
        self.connections
    }

    /// The connection that was found last, if a packet with these headers, which goes `way`,
    /// belongs to it: packets come in runs.
    pub(super) fn last(&self, headers: &Headers, way: Direction) -> Option<FlowId> {
        self.last.filter(|&last| {
            self.get(last).is_some_and(|flow| flow.tracker().tuple.is_of(headers, way))
        })
    }

    /// The connection of a packet that goes `way`, and what it says, if it looks as if it were the
    /// next of the stream that was [foreseen](Self::foresee).
    pub(super) fn foreseen(
        &mut self,
        way: Direction,
        packet: Pieces<'_>,
    ) -> Option<(FlowId, &mut Connection, &Segment)> {
        let next = match way {
            Direction::Out => &mut self.next.0,
            Direction::In => &mut self.next.1,
        };
        let (id, segment) = next.as_mut()?.matches(packet)?;
        let flow = named_mut(&mut self.flows, id)?;
        Some((id, flow.connection.as_deref_mut()?, segment))
    }

    /// More of the same stream will follow `packet`, which went `way`.
    pub(super) fn foresee(
        &mut self,
        way: Direction,
        id: FlowId,
        segment: &Segment,
        packet: Pieces<'_>,
    ) {
        let next = match way {
            Direction::Out => &mut self.next.0,
            Direction::In => &mut self.next.1,
        };
        if let Some(prediction) = Prediction::after(id, segment, packet) {
            *next = Some(prediction);
        }
    }

    /// The connection between these ends.
    pub(super) fn find(&mut self, tuple: &Tuple) -> Option<FlowId> {
        let id = self.id_of(tuple).filter(|&id| self.get(id).is_some())?;
        self.last = Some(id);
        Some(id)
    }

    /// The connection of `tuple`, for who only reads.
    pub(super) fn peek(&self, tuple: &Tuple) -> Option<&Connection> {
        self.get(self.id_of(tuple)?)
    }

    /// The connection of this name.
    pub(super) fn get(&self, id: FlowId) -> Option<&Connection> {
        self.flow(id)?.connection.as_deref()
    }

    /// The same, to change.
    pub(super) fn get_mut(&mut self, id: FlowId) -> Option<&mut Connection> {
        self.flow_mut(id)?.connection.as_deref_mut()
    }

    /// The flow between these ends.
    pub(super) fn id_of(&self, tuple: &Tuple) -> Option<FlowId> {
        let mask = self.index.len().checked_sub(1)?;
        let mut at = self.home(tuple);
        while let Some(id) = *self.index.get(at)? {
            if self.flow(id).is_some_and(|flow| flow.tuple == *tuple) {
                return Some(id);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// The flow of this name.
    pub(super) fn flow(&self, id: FlowId) -> Option<&Flow> {
        self.flows.get(id.index())?.as_deref().filter(|flow| flow.id == id)
    }

    /// The same, to change.
    pub(super) fn flow_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        named_mut(&mut self.flows, id)
    }

    /// The flow between these ends, which is added if it is not known.
    pub(super) fn observe(&mut self, now: Instant, tuple: &Tuple) -> FlowId {
        let is_it = |&id: &FlowId| self.flow(id).is_some_and(|flow| flow.tuple == *tuple);
        let found = self.observed.filter(is_it).or_else(|| self.id_of(tuple));
        let id = found.unwrap_or_else(|| self.add_other(now, tuple));
        self.observed = Some(id);
        id
    }

    /// Adds a flow that is no connection, in the place of another if need be.
    fn add_other(&mut self, now: Instant, tuple: &Tuple) -> FlowId {
        if self.others.is_empty() {
            self.others = vec![None; OTHERS_MAX];
        }
        let first = ((tuple.hash(self.secret) >> 32) % SETS as u64) as usize * SET;
        let worth = |at: &usize| {
            self.others[*at].and_then(|id| self.flow(id)).map(|flow| {
                let at = flow.live.as_deref().map(|live| live.observed_at).unwrap_or_default();
                let is_new = now.saturating_since(at) < SPARED;
                (is_new && flow.class() == Class::RealTime, at)
            })
        };
        let at = (first..first + SET).min_by_key(worth).unwrap_or(first);
        if let Some(before) = self.others[at].take()
            && let Some(flow) = self.flow_mut(before)
        {
            flow.is_other = false;
            if flow.connection.is_none() {
                self.forget(before);
            }
        }
        let id = self.add(*tuple, true);
        self.others[at] = Some(id);
        id
    }

    /// Places that are or were taken: what is known stands in some of them.
    pub(super) fn places(&self) -> usize {
        self.flows.len()
    }

    /// The flow at the place of this number, if there is one.
    pub(super) fn at(&self, number: usize) -> Option<&Flow> {
        self.flows.get(number)?.as_deref()
    }

    /// Every connection, in the order of their places.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (FlowId, &mut Connection)> {
        self.flows_mut().filter_map(|flow| Some((flow.id, flow.connection.as_deref_mut()?)))
    }

    /// Every flow, in the order of their places.
    pub(super) fn flows_mut(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.flows.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// The connection that is to go before another can be added, if any is: one that ended, rather
    /// than that there be more, and if `is_full` any that owes nothing.
    pub(super) fn in_the_way(&mut self, now: Instant, is_full: bool) -> Option<FlowId> {
        let is_full = is_full || self.len() >= CONNECTIONS_MAX;
        if !is_full && !self.free.is_empty() {
            return None;
        }
        let least = self.least(now)?;
        let ended = self.get(least).is_some_and(|flow| flow.tracker().stage == Stage::Closed);
        (is_full || ended).then_some(least)
    }

    /// Adds a connection that is not known. `None` when there is no place for it.
    pub(super) fn insert(&mut self, connection: Connection) -> Option<FlowId> {
        if self.connections >= CONNECTIONS_MAX {
            return None;
        }
        let found = self.id_of(&connection.tracker().tuple);
        let add = || self.add(connection.tracker().tuple, false);
        let id = found.unwrap_or_else(add);
        self.flow_mut(id)?.connection = Some(Box::new(connection));
        self.connections += 1;
        self.last = Some(id);
        Some(id)
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, id: FlowId) -> Option<Box<Connection>> {
        let flow = self.flow_mut(id)?;
        let (connection, is_other) = (flow.connection.take()?, flow.is_other);
        self.connections -= 1;
        self.last = None;
        self.next = (None, None);
        if !is_other {
            self.forget(id);
        }
        Some(connection)
    }

    fn add(&mut self, tuple: Tuple, is_other: bool) -> FlowId {
        if (self.flows.len() - self.free.len() + 1) * SPARE > self.index.len() {
            self.grow();
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            FlowId::first(u16::try_from(self.flows.len() - 1).unwrap_or(u16::MAX))
        });
        self.flows[id.index()] = Some(Box::new(Flow::new(id, tuple, is_other)));
        self.enter(tuple.hash(self.secret), id);
        id
    }

    fn forget(&mut self, id: FlowId) {
        let place = self.flows.get_mut(id.index());
        let Some(flow) = place.and_then(|it| it.take_if(|flow| flow.id == id)) else { return };
        self.free.push(id.next());
        let mask = self.index.len() - 1;
        let mut hole = self.home(&flow.tuple);
        while self.index[hole] != Some(id) {
            hole = (hole + 1) & mask;
        }
        // What stands behind, and would not be found past an empty place, moves up.
        let mut at = (hole + 1) & mask;
        while let Some(next) = self.index[at] {
            let home = self.flow(next).map_or(at, |flow| self.home(&flow.tuple));
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.index[hole] = self.index[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.index[hole] = None;
    }

    /// Calls `release` with those of the next few whose ends have given up without a word: what is
    /// kept of them nobody will acknowledge.
    pub(super) fn let_go_of_stale(
        &mut self,
        now: Instant,
        mut release: impl FnMut(&mut Connection),
    ) {
        let from = self.sweep;
        self.sweep = (from + SWEPT) % self.flows.len().max(1);
        let some = self.flows.iter_mut().skip(from).take(SWEPT).flatten();
        for flow in some.filter_map(|flow| flow.connection.as_deref_mut()) {
            if flow.is_stale(now) {
                release(flow);
            }
        }
    }

    /// Which of the next few is missed least.
    fn least(&mut self, now: Instant) -> Option<FlowId> {
        let places = self.flows.len().max(1);
        let from = self.hand;
        // Flows that are no connection do not count: they must hide no connection behind them.
        let is_other = |at: &usize| {
            let flow = self.flows.get(*at).and_then(Option::as_deref);
            flow.is_some_and(|flow| flow.connection.is_none())
        };
        let around = (from..from + places.max(LOOKED_AT)).map(|at| at % places);
        let looked_at = around.filter(|at| !is_other(at)).take(LOOKED_AT);
        let (mut least, mut hand) = (None, from);
        for at in looked_at {
            hand = (at + 1) % places;
            let Some(flow) = self.flows.get(at).and_then(Option::as_deref) else { continue };
            let connection = flow.connection.as_deref().filter(|one| !one.owes());
            let worth = connection.map(|one| {
                let idle = now.saturating_since(one.tracker().used_at);
                (one.tracker().stage, Reverse(idle), flow.id)
            });
            least = [least, worth].into_iter().flatten().min();
        }
        self.hand = hand;
        least.map(|(.., id)| id)
    }

    fn grow(&mut self) {
        let len = (self.index.len() * 2).max(INDEX_MIN);
        self.index = vec![None; len];
        for number in 0..self.flows.len() {
            if let Some(flow) = self.at(number) {
                let (id, hash) = (flow.id, flow.tuple.hash(self.secret));
                self.enter(hash, id);
            }
        }
    }

    fn enter(&mut self, hash: u64, id: FlowId) {
        let mask = self.index.len() - 1;
        let mut at = home(hash, mask);
        while self.index[at].is_some() {
            at = (at + 1) & mask;
        }
        self.index[at] = Some(id);
    }

    fn home(&self, tuple: &Tuple) -> usize {
        home(tuple.hash(self.secret), self.index.len() - 1)
    }
}

/// The flow of this name, to change.
fn named_mut(flows: &mut [Option<Box<Flow>>], id: FlowId) -> Option<&mut Flow> {
    flows.get_mut(id.index())?.as_deref_mut().filter(|flow| flow.id == id)
}

fn home(hash: u64, mask: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "an index has fewer than 2^32 places")]
    let low = hash as u32;
    low as usize & mask
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
