//! The time by which invites expire: the wall clock, but never earlier than the latest time that
//! this gateway saw.
//!
//! A clock that goes back must not make expired invites valid again. So the gateway stores the
//! latest time, and that time advances while the process runs. One wrong reading far ahead must not
//! close all open invites for ever. A reading more than [`LEAP`] ahead counts while it lasts, but
//! is stored only after it lasted for [`LEAP_TIME`]. If a wrong time was stored all the same, new
//! invites still work, the status reports the problem, and the operator can reset the time.
//!
//! Limits: a crash loses the time since the last write, at most [`WRITE_EVERY`].

use std::time::{Duration, Instant};

use rove_host::time::UnixSeconds;

/// A clock this far ahead of the stored time may be wrong. If the gateway was off for this long,
/// the doubt does no harm.
const LEAP: Duration = Duration::from_secs(30 * 86_400);
/// How long such a reading must last before it is stored. Time servers correct a clock that is
/// wrong at the start within minutes.
const LEAP_TIME: Duration = Duration::from_secs(3_600);
/// How often the latest time is written while the gateway runs.
const WRITE_EVERY: Duration = Duration::from_secs(600);
/// A clock this far behind is reported. Time servers correct smaller errors every day.
const BEHIND: Duration = Duration::from_secs(300);

/// A wall clock that is behind the time that counts for invites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The difference.
    pub by: Duration,
    /// Since when, by the wall clock.
    pub since: UnixSeconds,
}

/// The latest time that the gateway saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// The latest time, and when it was read; `None` before the first reading.
    latest: Option<(UnixSeconds, Instant)>,
    /// The time in the store.
    stored: Option<UnixSeconds>,
    /// Since when the wall clock is far ahead.
    leapt: Option<Instant>,
    /// When the time was last written.
    written: Option<Instant>,
    behind: Option<Behind>,
}

impl Clock {
    /// The clock of a gateway whose latest time is `stored`.
    pub(super) const fn new(stored: Option<UnixSeconds>) -> Self {
        Self { latest: None, stored, leapt: None, written: None, behind: None }
    }

    /// The time that counts for invites, if the wall clock reads `wall`.
    pub(super) fn read(&mut self, wall: UnixSeconds, now: Instant) -> UnixSeconds {
        let (latest, at) = *self.latest.get_or_insert_with(|| (self.stored.unwrap_or(wall), now));
        let elapsed = now.saturating_duration_since(at).as_secs();
        let run_on = UnixSeconds(latest.0.saturating_add(elapsed));
        let behind = Duration::from_secs(run_on.0.saturating_sub(wall.0));
        self.behind = (behind >= BEHIND)
            .then(|| Behind { by: behind, since: self.behind.map_or(wall, |b| b.since) });
        if wall <= run_on {
            self.leapt = None;
            return run_on;
        }
        if wall.0 - run_on.0 > LEAP.as_secs() {
            let since = *self.leapt.get_or_insert(now);
            if now.saturating_duration_since(since) < LEAP_TIME {
                return wall;
            }
        }
        (self.latest, self.leapt) = (Some((wall, now)), None);
        wall
    }

    /// How far the wall clock was behind at the last reading, if that must be reported.
    pub(super) const fn behind(&self) -> Option<Behind> {
        self.behind
    }

    /// The latest time, advanced to `now`.
    pub(super) fn latest(&self, now: Instant) -> Option<UnixSeconds> {
        let Some((latest, at)) = self.latest else { return self.stored };
        let elapsed = now.saturating_duration_since(at).as_secs();
        Some(UnixSeconds(latest.0.saturating_add(elapsed)))
    }

    /// The time to write, if it changed.
    pub(super) fn unwritten(&self, now: Instant) -> Option<UnixSeconds> {
        self.latest(now).filter(|latest| self.stored.is_none_or(|stored| stored < *latest))
    }

    /// The time could not be written. The next attempt is at the next due time.
    pub(super) const fn put_off(&mut self, now: Instant) {
        self.written = Some(now);
    }

    /// This time was written.
    pub(super) const fn wrote(&mut self, time: UnixSeconds, now: Instant) {
        (self.stored, self.written) = (Some(time), Some(now));
    }

    /// When to write next: at once if the time was never written.
    pub(super) fn due(&self) -> Option<Instant> {
        self.latest.map(|(_, at)| self.written.map_or(at, |written| written + WRITE_EVERY))
    }

    /// Accepts the wall clock as right, whatever time was seen before.
    pub(super) fn reset(&mut self, wall: UnixSeconds, now: Instant) {
        *self = Self { latest: Some((wall, now)), ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;
    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
    /// A wrong reading.
    const YEAR_2099: UnixSeconds = UnixSeconds(4_080_000_000);

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn later(seconds: u64) -> UnixSeconds {
        UnixSeconds(NOW.0 + seconds)
    }

    #[test]
    fn time_never_goes_back_and_runs_on() {
        let (mut clock, start) = (Clock::new(None), Instant::now());
        assert_eq!(clock.read(NOW, start), NOW);
        assert_eq!(clock.read(later(10), after(start, 10)), later(10));
        assert_eq!(clock.read(UnixSeconds(0), after(start, 20)), later(20), "set back");
        assert_eq!(clock.read(later(40), after(start, 30)), later(40), "set right");
        assert_eq!(clock.behind(), None);
        for seconds in [30, 50] {
            clock.read(UnixSeconds(seconds), after(start, seconds));
        }
        let by = Duration::from_secs(NOW.0 + 10);
        assert_eq!(clock.behind(), Some(Behind { by, since: UnixSeconds(30) }));
    }

    #[test]
    fn many_readings_within_a_second_do_not_stop_it() {
        let (mut clock, start) = (Clock::new(Some(NOW)), Instant::now());
        for tenth in 0..=100 {
            clock.read(UnixSeconds(0), start + Duration::from_millis(100) * tenth);
        }
        assert_eq!(clock.read(UnixSeconds(0), after(start, 10)), later(10));
    }

    #[test]
    fn a_restart_with_a_clock_set_back_goes_on_from_what_was_stored() {
        let (mut clock, start) = (Clock::new(Some(later(DAY))), Instant::now());
        assert_eq!(clock.read(NOW, start), later(DAY));
        assert_eq!(clock.unwritten(start), None, "nothing new");
        assert_eq!(clock.unwritten(after(start, 60)), Some(later(DAY + 60)));
    }

    #[test]
    fn a_reading_far_ahead_counts_at_once_and_is_remembered_if_it_lasts() {
        let start = Instant::now();
        let mut once = Clock::new(Some(NOW));
        assert_eq!(once.read(YEAR_2099, start), YEAR_2099);
        assert_eq!(once.read(YEAR_2099, after(start, 3_599)), YEAR_2099);
        assert_eq!(once.read(later(3_600), after(start, 3_600)), later(3_600), "it is forgotten");
        assert_eq!(once.unwritten(after(start, 3_600)), Some(later(3_600)));

        let mut off_for_a_year = Clock::new(Some(NOW));
        assert_eq!(off_for_a_year.read(later(365 * DAY), start), later(365 * DAY));
        let time = later(365 * DAY + 3_600);
        assert_eq!(off_for_a_year.read(time, after(start, 3_600)), time);
        assert_eq!(off_for_a_year.read(NOW, after(start, 3_601)), UnixSeconds(time.0 + 1));
    }

    #[test]
    fn a_wrong_time_that_was_remembered_can_be_reset() {
        let (mut clock, start) = (Clock::new(Some(YEAR_2099)), Instant::now());
        assert_eq!(clock.read(NOW, start), YEAR_2099);
        clock.reset(NOW, start);
        assert_eq!(clock.read(NOW, start), NOW);
        assert_eq!((clock.behind(), clock.unwritten(start)), (None, Some(NOW)));
    }
}
