//! When each recent datagram of a path left, so that feedback about any of them gives a
//! round-trip time.
//!
//! A ring by number, as wide as what is in flight: it starts small and doubles when feedback
//! speaks of a number that was already overwritten.

use crate::id::PacketNumber;
use crate::time::{Duration, Instant};

const ENTRIES_MIN: usize = 16;
/// What is in flight at 10 Gbit/s and 60 ms in packets of 1,400 bytes; 512 KB.
const ENTRIES_MAX: usize = 1 << 16;

/// Send times of the newest numbers.
#[derive(Clone, Debug, Default)]
pub struct SentTimes {
    ring: Vec<Instant>,
    next: PacketNumber,
    /// Numbers below were overwritten before the ring was as wide as it is.
    oldest: PacketNumber,
}

impl SentTimes {
    /// Records that `number`, the one after the last recorded, left at `now`.
    pub fn record(&mut self, now: Instant, number: PacketNumber) {
        if self.ring.is_empty() {
            self.ring.resize(ENTRIES_MIN, Instant::ZERO);
        }
        debug_assert!(number == self.next || self.next == 0);
        self.next = number + 1;
        let slot = self.slot(number);
        self.ring[slot] = now;
    }

    /// The time since `number` left; `None` when it was never sent or too long ago. Widens the
    /// ring in the latter case.
    pub fn elapsed(&mut self, now: Instant, number: PacketNumber) -> Option<Duration> {
        if number >= self.next {
            return None;
        }
        if self.next - number > self.ring.len() as u64 {
            self.widen();
            return None;
        }
        if number < self.oldest {
            return None;
        }
        Some(now.saturating_since(self.ring[self.slot(number)]))
    }

    fn slot(&self, number: PacketNumber) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "below the length of a vector")]
        let slot = (number % self.ring.len() as u64) as usize;
        slot
    }

    fn widen(&mut self) {
        let length = (self.ring.len() * 2).min(ENTRIES_MAX);
        if length == self.ring.len() {
            return;
        }
        let old = std::mem::replace(&mut self.ring, vec![Instant::ZERO; length]);
        let oldest = self.next.saturating_sub(old.len() as u64);
        self.oldest = oldest;
        for number in oldest..self.next {
            #[expect(clippy::cast_possible_truncation, reason = "below the length of a vector")]
            let from = (number % old.len() as u64) as usize;
            let to = self.slot(number);
            self.ring[to] = old[from];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(us * 1_000)
    }

    #[test]
    fn remembers_what_is_recent() {
        let mut sent = SentTimes::default();
        assert_eq!(sent.elapsed(at(1), 0), None);
        for number in 0..10 {
            sent.record(at(number * 100), number);
        }
        assert_eq!(sent.elapsed(at(1_000), 4), Some(Duration::from_micros(600)));
        assert_eq!(sent.elapsed(at(1_000), 10), None, "not sent yet");
    }

    #[test]
    fn widens_when_feedback_comes_late() {
        let mut sent = SentTimes::default();
        for number in 0..20 {
            sent.record(at(number * 100), number);
        }
        assert_eq!(sent.elapsed(at(2_000), 2), None);
        assert_eq!(sent.elapsed(at(2_000), 3), None, "overwritten before it was wider");
        assert_eq!(sent.elapsed(at(2_000), 4), Some(Duration::from_micros(1_600)));
        for number in 20..40 {
            sent.record(at(number * 100), number);
        }
        assert_eq!(sent.elapsed(at(4_000), 10), Some(Duration::from_micros(3_000)));
    }
}
