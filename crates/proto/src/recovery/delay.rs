//! How much longer than need be the way to the other end takes: what waits in queues there.
//!
//! When a datagram left is known by this node's clock, when it arrived by the peer's. Their
//! difference is no delay, but it moves as the delay does (RFC 6817, section 2.2, LEDBAT): what it
//! is above the least of the last half minute is the queue. Two clocks that differ by 20 millionths
//! make an error of 0.6 ms in that time. A queue that never went away for so long is not seen.

use super::sample::FRESH;
use crate::time::{Duration, Instant};

/// In how many parts the least is remembered, of which the oldest is forgotten,
const PARTS: usize = 6;
/// and how long each is.
const PART: Duration = Duration::from_secs(5);
/// How long all of them are.
const REMEMBERED: Duration = Duration::from_secs(PARTS as u64 * PART.as_secs());
/// What lies further apart is no queue: one of the clocks was set, or another process answers.
const QUEUE_MAX: Duration = Duration::from_secs(30);
/// The way from this node to the peer.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Delay {
    /// The least difference in each part of the time, in wrapping microseconds.
    least: [Option<u32>; PARTS],
    part: usize,
    part_began: Instant,
    /// By how much the last was above the least, and when it was told.
    queue: Option<(Duration, Instant)>,
}

impl Delay {
    /// A datagram that left at `sent_at` arrived at `arrived_us` of the peer's clock, in wrapping
    /// microseconds.
    pub fn sample(&mut self, now: Instant, sent_at: Instant, arrived_us: u32) {
        let difference = arrived_us.wrapping_sub(sent_at.wrapping_micros());
        let age = now.saturating_since(self.part_began);
        if age >= REMEMBERED {
            self.least = [None; PARTS]; // nothing was told since: the way may be longer now
        }
        let least = self.least.into_iter().flatten().reduce(earlier).unwrap_or(difference);
        let above = difference.wrapping_sub(earlier(least, difference));
        let mut queue = Duration::from_micros(above.into());
        if queue > QUEUE_MAX || least.wrapping_sub(earlier(least, difference)) > micros(QUEUE_MAX) {
            (self.least, queue) = ([None; PARTS], Duration::ZERO);
        }
        if age >= PART {
            self.part_began = now;
            self.part = (self.part + 1) % PARTS;
            self.least[self.part] = None;
        }
        let part = &mut self.least[self.part];
        *part = Some(part.map_or(difference, |least| earlier(least, difference)));
        self.queue = Some((queue, now));
    }

    /// The least of late of what lies between when something leaves by this node's clock and when
    /// it arrives by the peer's, in wrapping microseconds: no time by itself, but two paths of one
    /// session are as much longer as theirs differ.
    pub fn least(&self) -> Option<u32> {
        self.least.into_iter().flatten().reduce(earlier)
    }

    /// How long what arrived last had waited on its way; `None` when nothing was told of for long.
    pub fn queue(&self, now: Instant) -> Option<Duration> {
        let (queue, at) = self.queue?;
        (now.saturating_since(at) < FRESH).then_some(queue)
    }
}

/// The smaller of two differences of clocks, which wrap.
pub const fn earlier(a: u32, b: u32) -> u32 {
    if a.wrapping_sub(b) > u32::MAX / 2 { a } else { b }
}

#[expect(clippy::cast_possible_truncation, reason = "of a constant of seconds")]
const fn micros(time: Duration) -> u32 {
    time.as_micros() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Tells of a datagram that left at `at` and was on its way for `delay` milliseconds, by a
    /// clock that shows `clock_us` when this node's begins.
    fn tell(way: &mut Delay, at: u64, delay: u64, clock_us: u32) {
        let passed = u32::try_from((at + delay) * 1_000 % (1 << 32)).unwrap();
        way.sample(ms(at + 2 * delay), ms(at), clock_us.wrapping_add(passed));
    }

    fn queue(way: &Delay, at: u64) -> Option<u128> {
        way.queue(ms(at)).map(|queue| queue.as_millis())
    }

    #[test]
    fn what_a_datagram_waits_beyond_the_shortest_is_the_queue_whatever_the_clocks_show() {
        for clock_us in [0, 5, 1 << 31, u32::MAX - 20_000] {
            let mut way = Delay::default();
            for (at, delay, expected) in [(0, 30, 0), (10, 75, 45), (90, 20, 0), (120, 50, 30)] {
                tell(&mut way, at, delay, clock_us);
                assert_eq!(queue(&way, at + 2 * delay), Some(expected), "{clock_us} {at}");
            }
        }
    }

    #[test]
    fn the_least_is_forgotten_after_a_while_and_the_last_soon() {
        let mut way = Delay::default();
        tell(&mut way, 0, 20, 0);
        for at in (1_000..24_000).step_by(1_000) {
            tell(&mut way, at, 50, 0);
            assert_eq!(queue(&way, at + 100), Some(30));
        }
        for at in (24_000..36_000).step_by(1_000) {
            tell(&mut way, at, 50, 0);
        }
        assert_eq!(queue(&way, 35_200), Some(0), "the way is longer now");
        assert_eq!(queue(&way, 38_000), None, "nobody knows");
    }

    #[test]
    fn the_least_from_before_a_silence_is_forgotten_whatever_was_told_in_it() {
        let mut way = Delay::default();
        tell(&mut way, 0, 1, 0);
        tell(&mut way, 100_000, 20, 0);
        assert_eq!(queue(&way, 100_040), Some(0), "the way is longer now");
        tell(&mut way, 115_000, 30, 0);
        assert_eq!(queue(&way, 115_060), Some(10), "a short silence");
    }

    #[test]
    fn a_clock_that_was_set_makes_no_queue() {
        for clock_us in [3_000_000_000, 1_000_000_000, 40_000_000, u32::MAX - 40_000_000] {
            let mut way = Delay::default();
            tell(&mut way, 0, 20, 0);
            tell(&mut way, 1_000, 20, clock_us);
            assert_eq!(queue(&way, 1_040), Some(0));
            tell(&mut way, 1_100, 25, clock_us);
            assert_eq!(queue(&way, 1_150), Some(5), "{clock_us}");
        }
    }
}
