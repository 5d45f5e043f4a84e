//! The least round trip of a path over the last 10 to 20 s.

use crate::time::{Duration, Instant};

/// The round trip that is assumed before the first sample.
const ASSUMED: Duration = Duration::from_millis(100);
/// The least round trip is that of this long a time, or of twice as long.
const FRESH: Duration = Duration::from_secs(10);

/// Least round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeastTrip {
    pub(super) least: Duration,
    /// The least since the instant.
    of_late: (Instant, Option<Duration>),
}

impl LeastTrip {
    /// `known` is the round trip of the path, if it is known.
    pub(super) fn new(now: Instant, known: Option<Duration>) -> Self {
        Self { least: known.unwrap_or(ASSUMED), of_late: (now, known) }
    }

    /// Takes a sample.
    pub(super) fn sample(&mut self, now: Instant, trip: Duration) {
        let (since, of_late) = &mut self.of_late;
        let is_over = now.saturating_since(*since) >= FRESH;
        let before = of_late.replace(of_late.map_or(trip, |least| least.min(trip)));
        if is_over {
            self.least = before.unwrap_or(trip).min(trip);
            self.of_late = (now, Some(trip));
        } else if before.is_none() {
            self.least = trip;
        } else {
            self.least = self.least.min(trip);
        }
    }
}
