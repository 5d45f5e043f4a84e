//! How late a host usually is with what it has to do: its turns on a busy machine come late, and in
//! them it finds in one batch what arrived meanwhile.
//!
//! That is no delay of a path and no lower rate of it. Whoever sends has to allow for it all the
//! same: in how much may be on its way, in how much waits in the queue of a link, which would run
//! dry else, and in how long an answer is waited for.

use crate::time::{Duration, Instant};

/// Timers have a grain of this (epoll_wait(2)): so late everybody is.
const GRAIN: Duration = Duration::from_millis(1);
/// Longer is no lateness of a turn: a host slept, or was stopped.
const LATE_MAX: Duration = Duration::from_millis(200);
/// So much of each sample enters mean and deviation: slices of a scheduler come once in tens of
/// turns.
const WEIGHT: f64 = 1.0 / 64.0;
/// So many deviations beyond the mean are usual (RFC 6298, section 2.3).
const DEVIATIONS: f64 = 4.0;

/// How late a host is.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Lateness {
    /// Seconds.
    mean: f64,
    deviation: f64,
    sampled_at: Instant,
}

impl Lateness {
    /// At `now` something was done that was to be done `late` before. Of what is done in one turn
    /// the first counts, which is the latest.
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

    /// As late as it usually is at most; zero on a quiet machine.
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

    /// What is usual after so many turns, 5 ms apart, of which the nth is so late.
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
