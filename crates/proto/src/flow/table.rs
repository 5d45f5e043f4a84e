//! The table of inner flows, by their ends. It is bounded, and a search is always short.
//!
//! The place of a flow does not change while the flow is known, so a place can be remembered. If
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
use super::place::Place;
use super::record::Flow;
use super::tuple::{Direction, Tuple};
use crate::flow::pep::predict::Prediction;
use crate::flow::pep::tcp::Connection;
use crate::flow::report::Stage;
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
/// No connection.
const EMPTY: u32 = u32::MAX;

const _: () = assert!(OTHERS_MAX * (size_of::<Flow>() + size_of::<LiveFlow>()) <= 40 * 1_024);

/// All flows of a session.
#[derive(Debug, Default)]
pub(super) struct Table {
    secret: u64,
    flows: Vec<Option<Box<Flow>>>,
    free: Vec<u32>,
    /// How many of them are connections.
    connections: usize,
    /// Sets of places of those that are none; empty before the first.
    others: Vec<Option<Place>>,
    /// Places by hash, linear probing.
    index: Vec<u32>,
    /// Where the next search for one that can go begins.
    hand: usize,
    /// Where the next look for stale ones begins.
    sweep: usize,
    /// The connection that was found last,
    last: Option<Place>,
    /// and the flow that was observed last.
    observed: Option<Place>,
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
    pub(super) fn last(&self, headers: &Headers, way: Direction) -> Option<Place> {
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
    ) -> Option<(Place, &mut Connection, &Segment)> {
        let next = match way {
            Direction::Out => &mut self.next.0,
            Direction::In => &mut self.next.1,
        };
        let (place, segment) = next.as_mut()?.matches(packet)?;
        let flow = self.flows.get_mut(place.0 as usize)?.as_deref_mut()?;
        Some((place, flow.connection.as_deref_mut()?, segment))
    }

    /// More of the same stream will follow `packet`, which went `way`.
    pub(super) fn foresee(
        &mut self,
        way: Direction,
        place: Place,
        segment: &Segment,
        packet: Pieces<'_>,
    ) {
        let next = match way {
            Direction::Out => &mut self.next.0,
            Direction::In => &mut self.next.1,
        };
        if let Some(prediction) = Prediction::after(place, segment, packet) {
            *next = Some(prediction);
        }
    }

    /// The connection between these ends.
    pub(super) fn find(&mut self, tuple: &Tuple) -> Option<Place> {
        let place = self.place_of(tuple).filter(|&place| self.get(place).is_some())?;
        self.last = Some(place);
        Some(place)
    }

    /// The connection of `tuple`, for who only reads.
    pub(super) fn peek(&self, tuple: &Tuple) -> Option<&Connection> {
        self.get(self.place_of(tuple)?)
    }

    /// The connection at `place`.
    pub(super) fn get(&self, place: Place) -> Option<&Connection> {
        self.flow(place)?.connection.as_deref()
    }

    /// The same, to change.
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Connection> {
        self.flow_mut(place)?.connection.as_deref_mut()
    }

    /// The flow between these ends.
    pub(super) fn place_of(&self, tuple: &Tuple) -> Option<Place> {
        Some(Place(self.index[self.slot_of(tuple)?]))
    }

    /// The flow at `place`.
    pub(super) fn flow(&self, place: Place) -> Option<&Flow> {
        self.flows.get(place.0 as usize)?.as_deref()
    }

    /// The same, to change.
    pub(super) fn flow_mut(&mut self, place: Place) -> Option<&mut Flow> {
        self.flows.get_mut(place.0 as usize)?.as_deref_mut()
    }

    /// The flow between these ends, which is added if it is not known.
    pub(super) fn observe(&mut self, now: Instant, tuple: &Tuple) -> Place {
        let is_it = |&place: &Place| self.flow(place).is_some_and(|flow| flow.tuple == *tuple);
        let found = self.observed.filter(is_it).or_else(|| self.place_of(tuple));
        let place = found.unwrap_or_else(|| self.add_other(now, tuple));
        self.observed = Some(place);
        place
    }

    /// Adds a flow that is no connection, in the place of another if need be.
    fn add_other(&mut self, now: Instant, tuple: &Tuple) -> Place {
        if self.others.is_empty() {
            self.others = vec![None; OTHERS_MAX];
        }
        let first = ((tuple.hash(self.secret) >> 32) % SETS as u64) as usize * SET;
        let worth = |at: &usize| {
            self.others[*at].and_then(|place| self.flow(place)).map(|flow| {
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
        let mut flow = Flow::new(*tuple);
        flow.is_other = true;
        let place = self.add(flow);
        self.others[at] = Some(place);
        place
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
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Place, &mut Connection)> {
        let places = (0..).map(Place);
        places.zip(&mut self.flows).filter_map(|(place, flow)| {
            Some((place, flow.as_deref_mut()?.connection.as_deref_mut()?))
        })
    }

    /// Every flow, in the order of their places.
    pub(super) fn flows_mut(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.flows.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// The connection that is to go before another can be added, if any is: one that ended, rather
    /// than that there be more, and if `is_full` any that owes nothing.
    pub(super) fn in_the_way(&mut self, now: Instant, is_full: bool) -> Option<Place> {
        let is_full = is_full || self.len() >= CONNECTIONS_MAX;
        if !is_full && !self.free.is_empty() {
            return None;
        }
        let least = self.least(now)?;
        let ended = self.get(least).is_some_and(|flow| flow.tracker().stage == Stage::Closed);
        (is_full || ended).then_some(least)
    }

    /// Adds a connection that is not known. `None` when there is no place for it.
    pub(super) fn insert(&mut self, connection: Connection) -> Option<Place> {
        if self.connections >= CONNECTIONS_MAX {
            return None;
        }
        let found = self.place_of(&connection.tracker().tuple);
        let add = || self.add(Flow::new(connection.tracker().tuple));
        let place = found.unwrap_or_else(add);
        self.flow_mut(place)?.connection = Some(Box::new(connection));
        self.connections += 1;
        self.last = Some(place);
        Some(place)
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, place: Place) -> Option<Box<Connection>> {
        let flow = self.flow_mut(place)?;
        let (connection, is_other) = (flow.connection.take()?, flow.is_other);
        self.connections -= 1;
        self.last = None;
        self.next = (None, None);
        if !is_other {
            self.forget(place);
        }
        Some(connection)
    }

    fn add(&mut self, flow: Flow) -> Place {
        if (self.flows.len() - self.free.len() + 1) * SPARE > self.index.len() {
            self.grow();
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            u32::try_from(self.flows.len() - 1).unwrap_or(EMPTY)
        });
        let hash = flow.tuple.hash(self.secret);
        self.flows[number as usize] = Some(Box::new(flow));
        self.enter(hash, number);
        Place(number)
    }

    fn forget(&mut self, place: Place) {
        let Some(flow) = self.flows.get_mut(place.0 as usize).and_then(Option::take) else {
            return;
        };
        self.free.push(place.0);
        let mask = self.index.len() - 1;
        let mut hole = self.home(&flow.tuple);
        while self.index[hole] != place.0 {
            hole = (hole + 1) & mask;
        }
        // What stands behind, and would not be found past an empty place, moves up.
        let mut at = (hole + 1) & mask;
        while self.index[at] != EMPTY {
            let home = self.flow(Place(self.index[at])).map_or(at, |flow| self.home(&flow.tuple));
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.index[hole] = self.index[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.index[hole] = EMPTY;
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
    fn least(&mut self, now: Instant) -> Option<Place> {
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
                (one.tracker().stage, Reverse(now.saturating_since(one.tracker().used_at)), at)
            });
            least = [least, worth].into_iter().flatten().min();
        }
        self.hand = hand;
        let (.., at) = least?;
        Some(Place(u32::try_from(at).ok()?))
    }

    fn grow(&mut self) {
        let len = (self.index.len() * 2).max(INDEX_MIN);
        self.index = vec![EMPTY; len];
        for number in 0..self.flows.len() {
            if let Some(Some(flow)) = self.flows.get(number) {
                let hash = flow.tuple.hash(self.secret);
                self.enter(hash, u32::try_from(number).unwrap_or(EMPTY));
            }
        }
    }

    fn enter(&mut self, hash: u64, number: u32) {
        let mask = self.index.len() - 1;
        let mut at = home(hash, mask);
        while self.index[at] != EMPTY {
            at = (at + 1) & mask;
        }
        self.index[at] = number;
    }

    fn slot_of(&self, tuple: &Tuple) -> Option<usize> {
        let mask = self.index.len().checked_sub(1)?;
        let mut at = self.home(tuple);
        loop {
            let number = *self.index.get(at)?;
            if number == EMPTY {
                return None;
            }
            if self.flow(Place(number)).is_some_and(|flow| flow.tuple == *tuple) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    fn home(&self, tuple: &Tuple) -> usize {
        home(tuple.hash(self.secret), self.index.len() - 1)
    }
}

fn home(hash: u64, mask: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "an index has fewer than 2^32 places")]
    let low = hash as u32;
    low as usize & mask
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
