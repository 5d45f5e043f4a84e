//! The usual lateness of a host. On a busy machine, the turns of the data thread come late, and
//! each finds in one batch everything that arrived meanwhile.
//!
//! Lateness is neither delay of the path nor a lower rate. A sender must still allow for it: in the
//! data in flight, in the queue of a link, which would otherwise run idle, and in the time to wait
//! for an answer.

use crate::time::{Duration, Instant};

/// The granularity of timers (epoll_wait(2)). Lateness up to this value is normal.
const GRAIN: Duration = Duration::from_millis(1);
/// More than this is no late turn: the host slept or was stopped.
const LATE_MAX: Duration = Duration::from_millis(200);
/// The weight of a sample in mean and deviation. Scheduler time slices affect one in tens of turns.
const WEIGHT: f64 = 1.0 / 64.0;
/// The number of deviations beyond the mean that count as usual (RFC 6298, section 2.3).
const DEVIATIONS: f64 = 4.0;

/// The lateness of a host.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Lateness {
    /// Seconds.
    mean: f64,
    deviation: f64,
    sampled_at: Instant,
}

impl Lateness {
    /// Takes a sample: an action due `late` before `now` was done at `now`. In one turn only the
    /// first sample counts, because it is the latest.
    pub fn sample(&mut self, now: Instant, late: Duration) {
        if self.sampled_at == now {
            return;
        }
        self.sampled_at = now;
        let late = late.saturating_sub(GRAIN).min(LATE_MAX).as_secs_f64();
        let difference = (late - self.mean).abs();
        self.mean += (late - self.mean) * WEIGHT;
        self.deviation += (difference - self.deviation) * WEIGHT;
    }

    /// The usual maximum lateness; zero on a quiet machine.
    pub fn usual(&self) -> Duration {
        Duration::from_secs_f64(self.mean + DEVIATIONS * self.deviation).min(LATE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The usual lateness after `turns` turns, 5 ms apart, with the lateness of each turn.
    fn usual(turns: u64, late: impl Fn(u64) -> Duration) -> Duration {
        let mut lateness = Lateness::default();
        for turn in 0..turns {
            lateness.sample(Instant::ZERO + ms(5 * turn + 5), late(turn));
        }
        lateness.usual()
    }

    #[test]
    fn on_a_quiet_machine_nothing_is_late() {
        assert_eq!(usual(1_000, |turn| Duration::from_micros(turn % 1_000)), Duration::ZERO);
    }

    #[test]
    fn where_some_turns_wait_for_a_slice_as_late_as_these_is_usual_until_it_is_over() {
        let busy = |turn: u64| if turn.is_multiple_of(4) { ms(5) } else { ms(0) };
        let late = usual(400, busy);
        assert!((ms(4)..ms(10)).contains(&late), "{late:?}");
        let after = usual(1_000, |turn| if turn < 400 { busy(turn) } else { ms(0) });
        assert!(after < Duration::from_micros(10), "{after:?}");
        assert!(usual(100, |_| ms(60_000)) <= LATE_MAX, "a host that slept");
    }

    #[test]
    fn of_one_turn_the_first_counts() {
        let mut lateness = Lateness::default();
        let now = Instant::ZERO + ms(7);
        lateness.sample(now, ms(65));
        let once = lateness;
        lateness.sample(now, ms(1));
        assert_eq!(lateness, once);
    }
}
