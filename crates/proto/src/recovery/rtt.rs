//! Round-trip time of one path (RFC 9002, section 5; RFC 6298), quicker to follow when it falls.

use super::lateness::Lateness;
use crate::time::{Duration, Instant};

/// Assumed before the first sample (RFC 9002, 6.2.2 uses 333 ms; a phone's first cellular round
/// trip is often longer than a cable's, and a wrong guess only delays the first retry).
pub(crate) const INITIAL: Duration = Duration::from_millis(300);
/// The least that is assumed of a path that was not measured: a radio may have to wake up first.
const ASSUMED_MIN: Duration = Duration::from_millis(100);
/// No path holds a datagram for longer.
pub(crate) const SAMPLE_MAX: Duration = Duration::from_secs(5);
/// No answer is waited for longer before the next try.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(2);
/// A variance below this is the granularity of the clock and of the schedulers on the way.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Smoothed round-trip time, its variance and its minimum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    /// What is taken for it before the first sample, where anything is known.
    assumed: Option<Duration>,
    smoothed: Option<Duration>,
    variance: Duration,
    minimum: Duration,
    /// The lateness of both hosts in a round trip, beyond the delay of the path.
    late: Lateness,
}

impl Rtt {
    /// Takes a sample of both hosts' lateness in one round trip.
    pub(crate) fn note_lateness(&mut self, now: Instant, late: Duration) {
        self.late.sample(now, late);
    }

    /// The usual maximum lateness of both hosts.
    pub fn lateness(&self) -> Duration {
        self.late.usual()
    }

    /// Nothing was measured; `other` is the value of a path that the peer was reached by before,
    /// and less than 100 ms is not assumed.
    pub(crate) fn assuming(other: &Self) -> Self {
        let assumed = other.smoothed().clamp(ASSUMED_MIN, INITIAL);
        Self { assumed: Some(assumed), ..Self::default() }
    }

    /// Takes a sample: `elapsed` since the sending, of which the peer held it for `delay`.
    ///
    /// Longer than `SAMPLE_MAX` is not the path's doing: a host slept, and its clock went on.
    pub fn sample(&mut self, elapsed: Duration, delay: Duration) {
        if elapsed > SAMPLE_MAX {
            return;
        }
        let adjusted = without_delay(elapsed, delay);
        let Some(smoothed) = self.smoothed else {
            *self = Self {
                assumed: self.assumed,
                smoothed: Some(adjusted),
                variance: adjusted / 2,
                minimum: adjusted,
                late: self.late,
            };
            return;
        };
        self.minimum = self.minimum.min(adjusted);
        if adjusted * 2 < smoothed {
            // What made it long is over: something held datagrams back, or another route is taken.
            (self.smoothed, self.variance) = (Some((smoothed + adjusted) / 2), self.variance / 2);
            return;
        }
        let difference = smoothed.abs_diff(adjusted);
        self.variance = (self.variance * 3 + difference) / 4;
        self.smoothed = Some((smoothed * 7 + adjusted) / 8);
    }

    /// The smoothed value; `None` before the first sample.
    pub const fn measured(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The smoothed value, or what is assumed: `INITIAL` where nothing is known.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.or(self.assumed).unwrap_or(INITIAL)
    }

    /// The smallest sample; `None` before the first.
    pub(crate) fn minimum(&self) -> Option<Duration> {
        self.smoothed.map(|_| self.minimum)
    }

    /// How long an answer may take before it counts as missing: the smoothed value, four variances
    /// and the lateness of both hosts, at most [`TIMEOUT_MAX`].
    pub fn timeout(&self) -> Duration {
        let timeout = match self.smoothed {
            Some(smoothed) => smoothed + (self.variance * 4).max(GRANULARITY),
            None => return self.smoothed() * 2,
        };
        (timeout + self.lateness()).min(TIMEOUT_MAX)
    }
}

/// A round trip of `elapsed`, of which the peer held the answer for `delay`, as it says: what
/// leaves nothing of it is not believed.
pub(crate) fn without_delay(elapsed: Duration, delay: Duration) -> Duration {
    elapsed.checked_sub(delay).filter(|trip| !trip.is_zero()).unwrap_or(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn first_sample_counts_whole() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(), INITIAL * 2);
        rtt.sample(ms(50), ms(10));
        assert_eq!(rtt.smoothed(), ms(40));
        assert_eq!(rtt.timeout(), ms(120));
    }

    #[test]
    fn settles_on_a_steady_path() {
        let mut rtt = Rtt::default();
        for _ in 0..100 {
            rtt.sample(ms(40), Duration::ZERO);
        }
        assert_eq!(rtt.smoothed(), ms(40));
        assert_eq!(rtt.timeout(), ms(41));
        assert_eq!(rtt.minimum(), Some(ms(40)));
    }

    #[test]
    fn what_was_held_back_once_is_soon_forgotten() {
        let mut rtt = Rtt::default();
        rtt.sample(ms(2_400), Duration::ZERO);
        for _ in 0..7 {
            rtt.sample(ms(40), Duration::ZERO);
        }
        assert!(rtt.timeout() < ms(200), "{:?}", rtt.timeout());
    }

    #[test]
    fn sleep_is_no_round_trip() {
        let mut rtt = Rtt::default();
        rtt.sample(ms(40), Duration::ZERO);
        rtt.sample(Duration::from_secs(8 * 3_600), Duration::ZERO);
        assert_eq!(rtt.smoothed(), ms(40));
    }

    #[test]
    fn a_peers_absurd_delay_does_not_make_it_zero() {
        let mut rtt = Rtt::default();
        rtt.sample(ms(40), ms(4_000));
        assert_eq!(rtt.smoothed(), ms(40));
    }
}
