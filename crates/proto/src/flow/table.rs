//! Every connection that is known, found by its ends: bounded, and never slow.
//!
//! Places of connections do not change while they are known, so that they can be remembered. When
//! there is no place left, the one that is missed least goes: connections that ended before those
//! that begin, those before others, and of equals the one that nobody used for longest. Which that
//! is, is decided among a few at a time. One that owes something to somebody never goes.

use super::predict::Prediction;
use super::tcp::{Flow, Phase, State};
use super::tuple::{Direction, Tuple};
use crate::time::{Duration, Instant};
use crate::wire::inner::{InnerPacket, InnerView};
use crate::wire::tcp::Segment;

/// Connections of one session at most.
pub(super) const FLOWS_MAX: usize = 16_384;
/// Among how many the one to go is chosen.
const LOOKED_AT: usize = 16;
/// How many are looked at for staleness when one is added.
const SWEPT: usize = 4;
/// A sender that repeats and hears nothing has given up after so long, and told nobody (Linux: 924
/// s, `tcp_retries2`, and the timer's last 120 s).
const STALE: Duration = Duration::from_secs(20 * 60);
/// Places of the index for each connection: so many stay empty that a search is short.
const SPARE: usize = 2;
/// The index is at least so large.
const INDEX_MIN: usize = 16;
/// No connection.
const EMPTY: u32 = u32::MAX;

/// Where a connection stands in its table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place(u32);

#[cfg(test)]
impl Place {
    /// The place of this number.
    pub(super) const fn numbered(number: u32) -> Self {
        Self(number)
    }
}

/// All connections of a session.
#[derive(Debug, Default)]
pub(super) struct Table {
    secret: u64,
    flows: Vec<Option<Box<Flow>>>,
    free: Vec<u32>,
    /// Places by hash, linear probing.
    index: Vec<u32>,
    /// Where the next search for one that can go begins.
    hand: usize,
    /// Where the next look for stale ones begins.
    sweep: usize,
    /// The one that was found last.
    last: Option<Place>,
    /// What comes next, from the TUN and from the tunnel.
    next: (Option<Prediction>, Option<Prediction>),
}

impl Table {
    /// An empty table whose order nobody outside can guess.
    pub(super) fn new(secret: u64) -> Self {
        Self { secret, ..Self::default() }
    }

    /// Connections that are known.
    pub(super) fn len(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    /// The connection that was found last, if the packet `view`, which goes `way`, is of it:
    /// packets come in runs.
    pub(super) fn last(&self, view: &InnerView, way: Direction) -> Option<Place> {
        self.last.filter(|&last| self.get(last).is_some_and(|flow| flow.tuple.is_of(view, way)))
    }

    /// The connection of a packet that goes `way`, and what it says, if it looks as if it were the
    /// next of the stream that was [foreseen](Self::foresee).
    pub(super) fn foreseen(
        &mut self,
        way: Direction,
        packet: &InnerPacket<'_>,
    ) -> Option<(Place, &mut Flow, &Segment)> {
        let next = match way {
            Direction::Out => &mut self.next.0,
            Direction::In => &mut self.next.1,
        };
        let (place, segment) = next.as_mut()?.matches(packet)?;
        Some((place, self.flows.get_mut(place.0 as usize)?.as_deref_mut()?, segment))
    }

    /// More of the same stream will follow `packet`, which went `way`.
    pub(super) fn foresee(
        &mut self,
        way: Direction,
        place: Place,
        segment: &Segment,
        packet: &InnerPacket<'_>,
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
        let at = self.slot_of(tuple)?;
        let place = Place(self.index[at]);
        self.last = Some(place);
        Some(place)
    }

    /// The connection of `tuple`, for who only reads.
    pub(super) fn peek(&self, tuple: &Tuple) -> Option<&Flow> {
        self.get(Place(self.index[self.slot_of(tuple)?]))
    }

    /// The connection at `place`.
    pub(super) fn get(&self, place: Place) -> Option<&Flow> {
        self.flows.get(place.0 as usize)?.as_deref()
    }

    /// The same, to change.
    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut Flow> {
        self.flows.get_mut(place.0 as usize)?.as_deref_mut()
    }

    /// Places that are or were taken: what is known stands in some of them.
    pub(super) fn places(&self) -> usize {
        self.flows.len()
    }

    /// The connection at the place of this number, if there is one.
    pub(super) fn at(&self, number: usize) -> Option<&Flow> {
        self.flows.get(number)?.as_deref()
    }

    /// Every connection, in the order of their places.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Place, &mut Flow)> {
        let places = (0..).map(Place);
        places.zip(&mut self.flows).filter_map(|(place, flow)| Some((place, flow.as_deref_mut()?)))
    }

    /// The connection that is to go before another can be added, if any is: one that ended, rather
    /// than that there be more, and if `is_full` any that owes nothing.
    pub(super) fn in_the_way(&mut self, now: Instant, is_full: bool) -> Option<Place> {
        let is_full = is_full || self.len() >= FLOWS_MAX;
        if !is_full && !self.free.is_empty() {
            return None;
        }
        let least = self.least(now)?;
        let ended = self.get(least).is_some_and(|flow| flow.state == State::Closed);
        (is_full || ended).then_some(least)
    }

    /// Adds a connection that is not known. `None` when there is no place for it.
    pub(super) fn insert(&mut self, flow: Flow) -> Option<Place> {
        if self.len() >= FLOWS_MAX {
            return None;
        }
        if (self.len() + 1) * SPARE > self.index.len() {
            self.grow();
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            u32::try_from(self.flows.len() - 1).unwrap_or(EMPTY)
        });
        let hash = flow.tuple.hash(self.secret);
        *self.flows.get_mut(number as usize)? = Some(Box::new(flow));
        self.enter(hash, number);
        self.last = Some(Place(number));
        Some(Place(number))
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, place: Place) -> Option<Box<Flow>> {
        let flow = self.flows.get_mut(place.0 as usize)?.take()?;
        self.free.push(place.0);
        self.last = None;
        self.next = (None, None);
        let mask = self.index.len() - 1;
        let mut hole = self.home(&flow.tuple);
        while self.index[hole] != place.0 {
            hole = (hole + 1) & mask;
        }
        // What stands behind, and would not be found past an empty place, moves up.
        let mut at = (hole + 1) & mask;
        while self.index[at] != EMPTY {
            let home = self.get(Place(self.index[at])).map_or(at, |flow| self.home(&flow.tuple));
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.index[hole] = self.index[at];
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.index[hole] = EMPTY;
        Some(flow)
    }

    /// Calls `release` with those of the next few whose ends have given up without a word: what is
    /// kept of them nobody will acknowledge.
    pub(super) fn let_go_of_stale(&mut self, now: Instant, mut release: impl FnMut(&mut Flow)) {
        let from = self.sweep;
        self.sweep = (from + SWEPT) % self.flows.len().max(1);
        for flow in self.flows.iter_mut().skip(from).take(SWEPT).flatten() {
            let is_stale = now.saturating_since(flow.used_at) >= STALE;
            if is_stale && matches!(flow.phase, Phase::Normal) && !flow.cache.is_empty() {
                release(flow);
            }
        }
    }

    /// Which of the next few is missed least.
    fn least(&mut self, now: Instant) -> Option<Place> {
        let from = self.hand;
        self.hand = (from + LOOKED_AT) % self.flows.len().max(1);
        let looked_at = (from..from + LOOKED_AT).map(|at| at % self.flows.len().max(1));
        let spare = looked_at.filter_map(|at| {
            let flow = self.flows.get(at)?.as_deref().filter(|flow| !flow.owes())?;
            Some((flow.state, std::cmp::Reverse(now.saturating_since(flow.used_at)), at))
        });
        let (.., at) = spare.min()?;
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
            if self.get(Place(number)).is_some_and(|flow| flow.tuple == *tuple) {
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
