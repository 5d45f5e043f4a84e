//! The window of CUBIC (RFC 9438), for as long as a path is sent on as others send.
//!
//! Of paths that lead through one queue each has a part of what one window would be. Where each
//! loses the same part of what it sends, it takes in proportion to the root of what Reno's window
//! grows by, and to the fourth root of CUBIC's constant (sections 4.3 and 5.1): so those are
//! multiplied by the second and the fourth power of that part.
//!
//! Reno's window grows by 0.53 datagrams in a round trip also beyond what it was before the last
//! loss, where the standard lets it grow by a whole one (section 4.3): so it is in the kernels of
//! those beside whom a path is sent so (`tcp_cubic.c`), and who grows twice as fast as they do
//! takes an eighth of theirs (docs/decisions/0029-beside-who-fills-the-queue.md).

use crate::time::{Duration, Instant};

/// How fast it grows (section 4.1), datagrams per cubic second.
const C: f64 = 0.4;
/// What a loss leaves of it (section 4.6).
const BETA: f64 = 0.7;
/// By how much it grows at most in a round trip (section 4.2).
const GROWTH_MAX: f64 = 1.5;
/// It is no smaller than this, datagrams, of all paths through one queue together,
const LEAST: f64 = 4.0;
/// nor than this of one of them,
const LEAST_EACH: f64 = 1.0;
/// and no larger, so that a hostile peer makes no number of it that is none.
const MOST: f64 = 1e7;

/// A window, in datagrams.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Cubic {
    window: f64,
    /// What it was before the last loss, or less where others seem to come in (section 4.7).
    before: f64,
    /// When it began to grow after that, and after how many seconds it is again what it was.
    since: Instant,
    returns: f64,
    /// What Reno's would be (section 4.3).
    friendly: f64,
}

impl Cubic {
    /// One of `datagrams`.
    pub(super) fn new(now: Instant, datagrams: f64) -> Self {
        let window = datagrams.clamp(LEAST, MOST);
        Self { window, before: window, since: now, returns: 0.0, friendly: window }
    }

    /// Datagrams that may be on their way.
    pub(super) const fn window(&self) -> f64 {
        self.window
    }

    /// So many datagrams arrived while there was always something to send, on a path with a round
    /// trip of `trip` that has the part `part` of what all have that lead through the same queue.
    pub(super) fn arrived(&mut self, now: Instant, datagrams: f64, trip: Duration, part: f64) {
        let datagrams = datagrams.min(self.window);
        let part = part.clamp(0.0, 1.0);
        let slope = 3.0 * (1.0 - BETA) / (1.0 + BETA);
        self.friendly += slope * part.powi(2) * datagrams / self.window;
        let time = (now + trip).saturating_since(self.since).as_secs_f64();
        let curve = C * part.powi(4) * (time - self.returns).powi(3) + self.before;
        let target = curve.clamp(self.window, GROWTH_MAX * self.window);
        self.window += (target - self.window) * datagrams / self.window;
        self.window = self.window.max(self.friendly).min(MOST);
    }

    /// Something was lost that left after the last time.
    pub(super) fn lost(&mut self, now: Instant, part: f64) {
        let is_less = self.window < self.before;
        self.before = if is_less { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max((LEAST * part).max(LEAST_EACH));
        self.friendly = self.window;
        let constant = C * part.clamp(0.01, 1.0).powi(4);
        self.returns = ((self.before - self.window).max(0.0) / constant).cbrt();
        self.since = now;
    }

    /// It did not grow for `time`, as nothing was to be sent or on purpose: that time does not
    /// count (section 5.8).
    pub(super) fn paused(&mut self, time: Duration) {
        self.since = self.since + time;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(100);

    /// What the window is after so many seconds in which all that it allows arrives.
    fn grow(cubic: &mut Cubic, from: Instant, seconds: u64, part: f64) -> Instant {
        let mut now = from;
        for _ in 0..seconds * 10 {
            now = now + TRIP;
            cubic.arrived(now, cubic.window(), TRIP, part);
        }
        now
    }

    #[test]
    fn after_a_loss_it_is_what_it_was_when_the_standard_says_so() {
        let mut cubic = Cubic::new(Instant::ZERO, 1_000.0);
        cubic.lost(Instant::ZERO, 1.0);
        assert!((cubic.window() - 700.0).abs() < 0.1);
        // The cubic root of 300 / 0.4: 9.1 seconds (RFC 9438, figure 2).
        let now = grow(&mut cubic, Instant::ZERO, 5, 1.0);
        assert!((940.0..985.0).contains(&cubic.window()), "{}", cubic.window());
        let now = grow(&mut cubic, now, 4, 1.0);
        assert!((995.0..1_005.0).contains(&cubic.window()), "{}", cubic.window());
        grow(&mut cubic, now, 5, 1.0);
        assert!((1_030.0..1_070.0).contains(&cubic.window()), "{}", cubic.window());
    }

    #[test]
    fn a_small_one_is_no_smaller_than_that_of_reno() {
        let mut cubic = Cubic::new(Instant::ZERO, 20.0);
        cubic.lost(Instant::ZERO, 1.0);
        // 0.53 datagrams in a round trip, 3.8 s to what it was: so it is in 4.6 of CUBIC's.
        grow(&mut cubic, Instant::ZERO, 3, 1.0);
        assert!((29.0..31.0).contains(&cubic.window()), "{}", cubic.window());
    }

    #[test]
    fn a_half_grows_by_a_quarter_of_what_all_would() {
        let grown = |part| {
            let mut cubic = Cubic::new(Instant::ZERO, 20.0);
            cubic.lost(Instant::ZERO, part);
            cubic.arrived(Instant::ZERO, cubic.window(), TRIP, part);
            cubic.friendly - 14.0
        };
        assert!((grown(1.0) - 0.53).abs() < 0.01);
        assert!((grown(1.0) / grown(0.5) - 4.0).abs() < 0.01);
    }

    #[test]
    fn paths_through_one_queue_have_no_more_at_the_least_than_one() {
        for (part, least) in [(1.0, 4.0), (0.5, 2.0), (0.25, 1.0), (0.01, 1.0)] {
            let mut cubic = Cubic::new(Instant::ZERO, 20.0);
            (0..20_u32).for_each(|trip| cubic.lost(Instant::ZERO + TRIP * trip, part));
            assert!((cubic.window() - least).abs() < 1e-9, "{part}: {}", cubic.window());
        }
    }

    #[test]
    fn a_loss_before_it_is_what_it_was_leaves_room_for_others() {
        let mut cubic = Cubic::new(Instant::ZERO, 100.0);
        cubic.lost(Instant::ZERO, 1.0);
        cubic.lost(Instant::ZERO + TRIP, 1.0);
        assert!((cubic.window() - 49.0).abs() < 0.1);
        assert!((cubic.before - 59.5).abs() < 0.1, "0.85 of 70");
    }

    #[test]
    fn time_in_which_it_did_not_grow_does_not_count() {
        let mut cubic = Cubic::new(Instant::ZERO, 100.0);
        cubic.lost(Instant::ZERO, 1.0);
        let mut paused = cubic;
        paused.paused(Duration::from_secs(60));
        grow(&mut cubic, Instant::ZERO, 2, 1.0);
        grow(&mut paused, Instant::ZERO + Duration::from_secs(60), 2, 1.0);
        assert!((cubic.window() - paused.window()).abs() < 0.01);
    }
}
