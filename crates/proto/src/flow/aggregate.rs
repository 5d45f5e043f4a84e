//! What all the connections that are resumed have on their way together: one share of a link, as
//! the congestion manager has it (RFC 3124). Hundreds that begin at once, each with the few
//! segments that it may, are a burst that no queue on the way takes.
//!
//! Decides whether one more segment may leave in anybody's place now, and who is next when it may
//! not. What leaves of a connection, and when at the earliest, is for `resume` to say.

use std::collections::VecDeque;

use super::table::Place;
use crate::time::{Duration, Instant};

/// What may be on its way before anything was heard: ten segments (RFC 6928).
const WINDOW_MIN: u64 = 14_600;
/// The shortest time without a word after which what is on its way counts as lost.
const PATIENCE_MIN: Duration = Duration::from_millis(200);

/// The window that all of them share.
#[derive(Debug, Default)]
pub(super) struct Aggregate {
    /// Bytes on their way.
    flying: u64,
    /// So many of them count as lost: nobody watches one by one what local sides said themselves.
    written_off: u64,
    window: u64,
    /// When something arrived last, and how long nothing may before what is on its way is lost.
    moved_at: Instant,
    patience: Duration,
    /// Whose turn came when there was no room, in that order. Some may not wait any more.
    parked: VecDeque<Place>,
}

impl Aggregate {
    /// There is a way again: what was on its way when the last one was lost fits this one, as far
    /// as anybody knows.
    pub(super) fn begin(&mut self, now: Instant, flights: u64, trip: Duration) {
        self.window = flights.max(WINDOW_MIN);
        self.parked.clear();
        (self.moved_at, self.patience) = (now, (trip * 2).max(PATIENCE_MIN));
    }

    /// What one of them has on its way is `now` in place of `before`.
    pub(super) fn count(&mut self, before: u32, now: u32) {
        self.flying = self.flying + u64::from(now) - u64::from(before);
        self.written_off = self.written_off.min(self.flying);
    }

    /// So much arrived that was on its way: twice as much may be (slow start, RFC 5681, 3.1).
    pub(super) fn arrived(&mut self, now: Instant, bytes: u32) {
        self.window += u64::from(bytes);
        self.moved_at = if bytes > 0 { now } else { self.moved_at };
    }

    /// One of them has lost something: half as much may be on its way, but not less than half of
    /// what is.
    pub(super) fn lost(&mut self) {
        let flying = self.flying - self.written_off;
        self.window = (self.window / 2).max(flying / 2).max(WINDOW_MIN);
    }

    /// Whether nothing more may leave now.
    pub(super) const fn is_full(&self) -> bool {
        self.flying - self.written_off >= self.window
    }

    /// Whether what comes now has to wait behind others.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_full() || !self.parked.is_empty()
    }

    /// When [`Self::next`] has somebody; `None` when nobody waits.
    pub(super) fn due(&self) -> Option<Instant> {
        self.parked.front()?;
        Some(if self.is_full() { self.moved_at + self.patience } else { Instant::ZERO })
    }

    /// It has no room at present.
    pub(super) fn park(&mut self, place: Place) {
        self.parked.push_back(place);
    }

    /// Who is next, if there is room, or has been none for so long that what took it is lost: else
    /// those who wait could wait for what only they can bring about.
    pub(super) fn next(&mut self, now: Instant) -> Option<Place> {
        self.due().filter(|&due| due <= now)?;
        if self.is_full() {
            (self.written_off, self.window, self.moved_at) = (self.flying, WINDOW_MIN, now);
        }
        self.parked.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(150);

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn who_waits_for_what_is_lost_has_its_turn_when_nothing_arrived_for_two_round_trips() {
        let mut aggregate = Aggregate::default();
        aggregate.begin(ms(0), 0, TRIP);
        aggregate.count(0, 20_000);
        assert!(aggregate.is_full() && aggregate.due().is_none());
        [1, 2].into_iter().for_each(|place| aggregate.park(Place::numbered(place)));
        assert_eq!((aggregate.due(), aggregate.next(ms(100))), (Some(ms(300)), None));
        aggregate.arrived(ms(100), 1_000);
        assert_eq!((aggregate.due(), aggregate.next(ms(399))), (Some(ms(400)), None));
        assert_eq!(aggregate.next(ms(400)), Some(Place::numbered(1)));
        // There is room again as in the beginning, beside what is lost.
        aggregate.count(0, 14_599);
        assert_eq!(aggregate.next(ms(401)), Some(Place::numbered(2)));
        aggregate.count(0, 1);
        assert!(aggregate.is_full());
        // Whose bytes those were that are lost, has other ones on its way now.
        aggregate.count(20_000, 10_000);
        assert!(!aggregate.is_full());
        aggregate.count(24_600, 0);
        assert_eq!((aggregate.flying, aggregate.written_off), (0, 0));
    }
}
