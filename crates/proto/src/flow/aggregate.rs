//! What all the connections that are resumed have on their way together: one share of a link, as
//! the congestion manager has it (RFC 3124). Hundreds that begin at once, each with the few
//! segments that it may, are a burst that no queue on the way takes.
//!
//! Decides whether one more segment may leave in anybody's place now, and who is next when it may
//! not. What leaves of a connection, and when at the earliest, is for `resume` to say.

use std::collections::VecDeque;

use super::table::Place;

/// What may be on its way before anything was heard: ten segments (RFC 6928).
const WINDOW_MIN: u64 = 14_600;

/// The window that all of them share.
#[derive(Debug, Default)]
pub(super) struct Aggregate {
    /// Bytes on their way.
    flying: u64,
    window: u64,
    /// Whose turn came when there was no room, in that order. Some may not wait any more.
    parked: VecDeque<Place>,
}

impl Aggregate {
    /// There is a way again: what was on its way when the last one was lost fits this one, as far
    /// as anybody knows.
    pub(super) fn begin(&mut self, flights: u64) {
        self.window = flights.max(WINDOW_MIN);
        self.parked.clear();
    }

    /// What one of them has on its way is `now` in place of `before`.
    pub(super) const fn count(&mut self, before: u32, now: u32) {
        self.flying = self.flying + now as u64 - before as u64;
    }

    /// So much arrived that was on its way: twice as much may be (slow start, RFC 5681, 3.1).
    pub(super) const fn arrived(&mut self, bytes: u32) {
        self.window += bytes as u64;
    }

    /// One of them has lost something: half as much may be on its way, but not less than half of
    /// what is.
    pub(super) fn lost(&mut self) {
        self.window = (self.window / 2).max(self.flying / 2).max(WINDOW_MIN);
    }

    /// Whether nothing more may leave now.
    pub(super) const fn is_full(&self) -> bool {
        self.flying >= self.window
    }

    /// Whether what comes now has to wait behind others.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_full() || !self.parked.is_empty()
    }

    /// Whether [`Self::next`] has somebody.
    pub(super) fn has_next(&self) -> bool {
        !self.is_full() && !self.parked.is_empty()
    }

    /// It has no room at present.
    pub(super) fn park(&mut self, place: Place) {
        self.parked.push_back(place);
    }

    /// Who is next, if there is room.
    pub(super) fn next(&mut self) -> Option<Place> {
        if self.is_full() { None } else { self.parked.pop_front() }
    }
}
