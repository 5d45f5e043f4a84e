//! How much gets through: bytes per second that arrived at one end of a path.
//!
//! Measured where they arrive, by the clock there. Says what was carried, not what could be.

use super::sample::FRESH;
use crate::time::{Duration, Instant};

/// Over how long it is measured at least.
const WINDOW: Duration = Duration::from_millis(500);
/// The rate of one direction of a path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rate {
    /// Where the window begins that is measured now.
    from: Option<Mark>,
    /// Bytes per second in the last whole one.
    measured: Option<f64>,
    /// When anything was last heard, by this node's clock.
    heard_at: Instant,
}

/// So many bytes had arrived then.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Mark {
    bytes: u64,
    /// Microseconds of the clock of the end at which they arrive; wraps.
    at_us: u32,
}

impl Rate {
    /// `bytes` have arrived so far, the last of them at `at_us` of the clock there, in wrapping
    /// microseconds. Fewer than before are those of a new count.
    pub fn sample(&mut self, now: Instant, at_us: u32, bytes: u64) {
        let is_fresh = now.saturating_since(self.heard_at) < FRESH;
        self.heard_at = now;
        let mark = Mark { bytes, at_us };
        let Some(from) = self.from.filter(|from| is_fresh && from.bytes <= bytes) else {
            self.from = Some(mark);
            return;
        };
        let time = Duration::from_micros(at_us.wrapping_sub(from.at_us).into());
        if time < WINDOW {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "bytes of a second or so")]
        let bytes = (bytes - from.bytes) as f64;
        self.from = Some(mark);
        self.measured = Some(bytes / time.as_secs_f64());
    }

    /// Bytes per second in the last half second or so, zero when nothing came for long; `None`
    /// before it was measured.
    pub fn at(&self, now: Instant) -> Option<f64> {
        let is_fresh = now.saturating_since(self.heard_at) < FRESH;
        self.measured.map(|rate| if is_fresh { rate } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// What is measured in the end when 100 bytes arrive at each of these milliseconds, by a clock
    /// that shows `clock_us` at the beginning.
    fn measured(clock_us: u32, times: impl Iterator<Item = u64>) -> Option<f64> {
        let (mut rate, mut bytes, mut last) = (Rate::default(), 0, 0);
        for at in times {
            (bytes, last) = (bytes + 100, at);
            let micros = u32::try_from(at * 1_000).unwrap();
            rate.sample(ms(at), clock_us.wrapping_add(micros), bytes);
        }
        rate.at(ms(last))
    }

    #[test]
    fn a_steady_stream_is_measured_whatever_the_clock_shows() {
        assert_eq!(measured(0, 0..400), None, "too short");
        for clock_us in [0, 7, u32::MAX - 300_000] {
            let rate = measured(clock_us, 0..1_200).unwrap();
            assert!((rate - 100_000.0).abs() < 300.0, "{rate}");
        }
    }

    #[test]
    fn a_pause_is_no_part_of_what_is_measured() {
        let rate = measured(0, (0..1_000).chain(60_000..61_000)).unwrap();
        assert!((rate - 100_000.0).abs() < 300.0, "{rate}");
    }

    #[test]
    fn nothing_for_long_is_a_rate_of_zero() {
        let mut rate = Rate::default();
        for at in 0..1_000 {
            rate.sample(ms(at), u32::try_from(at * 1_000).unwrap(), at * 100);
        }
        assert!(rate.at(ms(2_900)).unwrap() > 90_000.0);
        assert_eq!(rate.at(ms(3_000)), Some(0.0));
    }

    #[test]
    fn a_count_that_begins_anew_is_not_subtracted() {
        let mut rate = Rate::default();
        rate.sample(ms(0), 0, u64::MAX);
        rate.sample(ms(600), 600_000, 1_000);
        assert_eq!(rate.at(ms(600)), None);
        rate.sample(ms(1_100), 1_100_000, 2_000);
        assert_eq!(rate.at(ms(1_100)), Some(2_000.0));
    }
}
