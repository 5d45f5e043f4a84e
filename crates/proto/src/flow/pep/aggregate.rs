//! What all the connections that are resumed have on their way together: one share of a link, as
//! the congestion manager has it (RFC 3124). Hundreds that begin at once, each with the few
//! segments that it may, are a burst that no queue on the way takes.
//!
//! Decides whether one more segment may leave in anybody's place now, and who is next when it may
//! not. What leaves of a connection, and when at the earliest, is for `resume` to say.

use std::collections::VecDeque;

use crate::id::FlowId;
use crate::time::{Duration, Instant};

/// What may be on its way before anything was heard: ten segments (RFC 6928).
const WINDOW_MIN: u64 = 14_600;
/// What one connection sends in a turn at least while others wait. Half as much would be mostly
/// headers; with twice as much the last of hundreds waits twice as long for its first bytes.
const TURN_MIN: u32 = 128;
/// The window grows in such steps before the first answers: the least that keeps timers rare.
const STEP: Duration = Duration::from_millis(1);
/// The shortest time without a word after which what is on its way counts as lost.
const PATIENCE_MIN: Duration = Duration::from_millis(200);

/// Slow start (RFC 5681, 3.1) without its first pause: the first round trip would end with a window
/// twice as large, for all at once. That much, and a turn for each connection at least, is spread
/// over half of it, until the other end's first answer to a challenge; from then on the path's own
/// congestion control holds up what is too much. What arrives counts only beyond that.
#[derive(Clone, Copy, Debug, Default)]
struct Growth {
    since: Instant,
    time: Duration,
    bytes: u64,
    arrived: u64,
}

impl Growth {
    /// The growth by `now` that nothing has arrived for yet.
    fn ahead(&self, now: Instant) -> u64 {
        let steps = now.saturating_since(self.since).as_nanos() / STEP.as_nanos();
        let elapsed = (steps * STEP.as_nanos()).min(self.time.as_nanos());
        let grown = u128::from(self.bytes) * elapsed / self.time.as_nanos().max(1);
        u64::try_from(grown).unwrap_or(u64::MAX).saturating_sub(self.arrived)
    }

    /// When it is so much; `None` if it never is.
    fn ahead_at(&self, bytes: u64) -> Option<Instant> {
        let wanted = bytes + self.arrived;
        if wanted > self.bytes {
            return None;
        }
        let elapsed = (self.time.as_nanos() * u128::from(wanted)).div_ceil(self.bytes.into());
        let steps = u32::try_from(elapsed.div_ceil(STEP.as_nanos())).unwrap_or(u32::MAX);
        Some(self.since + STEP * steps)
    }
}

/// The window that all of them share.
#[derive(Debug, Default)]
pub(in crate::flow) struct Aggregate {
    /// Bytes on their way.
    flying: u64,
    /// So many of them count as lost: nobody watches one by one what local sides said themselves.
    written_off: u64,
    window: u64,
    /// By how much the window grows before anything can have arrived.
    growth: Growth,
    /// When something arrived last, and how long nothing may before what is on its way is lost.
    moved_at: Instant,
    patience: Duration,
    /// Whose turn came when there was no room, in that order. Some may not wait any more.
    parked: VecDeque<FlowId>,
}

impl Aggregate {
    /// There is a way again: what was on its way when the last one was lost fits this one, as far
    /// as anybody knows. So many of them have something to send.
    pub(crate) fn begin(&mut self, now: Instant, flights: u64, count: usize, trip: Duration) {
        self.window = flights.max(WINDOW_MIN);
        let turns = u64::from(TURN_MIN) * count as u64;
        let bytes = self.window.max(turns);
        self.growth = Growth { since: now, time: (trip / 2).max(STEP), bytes, arrived: 0 };
        self.parked.clear();
        (self.moved_at, self.patience) = (now, (trip * 2).max(PATIENCE_MIN));
    }

    /// What one of them has on its way is `now` in place of `before`.
    pub(crate) fn count(&mut self, before: u32, now: u32) {
        self.flying = self.flying + u64::from(now) - u64::from(before);
        self.written_off = self.written_off.min(self.flying);
    }

    /// So much arrived that was on its way: twice as much may be (slow start, RFC 5681, 3.1).
    pub(crate) fn arrived(&mut self, now: Instant, bytes: u32) {
        self.window += u64::from(bytes);
        self.growth.arrived += u64::from(bytes);
        self.moved_at = if bytes > 0 { now } else { self.moved_at };
    }

    /// One of them has lost something: half as much may be on its way, but not less than half of
    /// what is.
    pub(crate) fn lost(&mut self) {
        let flying = self.flying - self.written_off;
        self.window = (self.window / 2).max(flying / 2).max(WINDOW_MIN);
        self.growth = Growth::default();
    }

    /// Whether nothing more may leave now.
    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.flying - self.written_off >= self.window + self.growth.ahead(now)
    }

    /// Whether what comes now has to wait behind others.
    pub(crate) fn is_crowded(&self, now: Instant) -> bool {
        self.is_full(now) || self.is_awaited()
    }

    /// Whether anybody waits for a turn.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.parked.is_empty()
    }

    /// How many bytes one of them sends in a turn: its part of the window, if others wait.
    pub(crate) fn turn(&self) -> u32 {
        let waiting = self.parked.len() as u64;
        if waiting == 0 {
            return u32::MAX;
        }
        u32::try_from(self.window / waiting).unwrap_or(u32::MAX).max(TURN_MIN)
    }

    /// When [`Self::next`] has somebody; `None` when nobody waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.parked.front()?;
        let flying = self.flying - self.written_off;
        let Some(beyond) = flying.checked_sub(self.window) else { return Some(Instant::ZERO) };
        Some(self.growth.ahead_at(beyond + 1).unwrap_or(self.moved_at + self.patience))
    }

    /// It has no room at present.
    pub(crate) fn park(&mut self, id: FlowId) {
        self.parked.push_back(id);
    }

    /// Who is next, if there is room, or has been none for so long that what took it is lost: else
    /// those who wait could wait for what only they can bring about.
    pub(crate) fn next(&mut self, now: Instant) -> Option<FlowId> {
        self.due().filter(|&due| due <= now)?;
        if self.is_full(now) {
            self.growth = Growth::default();
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
        aggregate.begin(ms(0), 0, 0, TRIP);
        aggregate.count(0, 40_000);
        assert!(aggregate.is_full(ms(0)) && aggregate.due().is_none());
        [1, 2].into_iter().for_each(|id| aggregate.park(FlowId::first(id)));
        assert_eq!((aggregate.due(), aggregate.next(ms(100))), (Some(ms(300)), None));
        aggregate.arrived(ms(100), 1_000);
        assert_eq!((aggregate.due(), aggregate.next(ms(399))), (Some(ms(400)), None));
        assert_eq!(aggregate.next(ms(400)), Some(FlowId::first(1)));
        // There is room again as in the beginning, beside what is lost.
        aggregate.count(0, 14_599);
        assert_eq!(aggregate.next(ms(401)), Some(FlowId::first(2)));
        aggregate.count(0, 1);
        assert!(aggregate.is_full(ms(401)));
        // Whose bytes those were that are lost, has other ones on its way now.
        aggregate.count(40_000, 30_000);
        assert!(!aggregate.is_full(ms(401)));
        aggregate.count(44_600, 0);
        assert_eq!((aggregate.flying, aggregate.written_off), (0, 0));
    }

    #[test]
    fn the_window_grows_to_twice_itself_before_anything_can_have_arrived() {
        let mut aggregate = Aggregate::default();
        aggregate.begin(ms(0), 0, 10, TRIP);
        aggregate.count(0, 14_600);
        aggregate.park(FlowId::first(1));
        assert!(aggregate.is_full(ms(0)));
        assert_eq!((aggregate.due(), aggregate.next(ms(0))), (Some(ms(1)), None));
        aggregate.count(14_600, 29_199);
        assert!(aggregate.is_full(ms(74)) && !aggregate.is_full(ms(75)));
        assert_eq!(aggregate.next(ms(75)), Some(FlowId::first(1)));
        // What arrives was counted on; only what is beyond makes the window larger.
        aggregate.count(29_199, 29_200);
        aggregate.arrived(ms(150), 14_600);
        assert!(aggregate.is_full(ms(150)));
        aggregate.arrived(ms(150), 1);
        assert!(!aggregate.is_full(ms(150)));
        // Each of many has a turn.
        aggregate.begin(ms(200), 0, 1_000, TRIP);
        aggregate.count(29_200, 14_600 + 1_000 * TURN_MIN - 1);
        assert!(!aggregate.is_full(ms(275)));
        aggregate.count(0, 1);
        assert!(aggregate.is_full(ms(275)));
    }
}
