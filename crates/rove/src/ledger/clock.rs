//! The time by which invites expire: the wall clock, but never earlier than any time that this
//! gateway saw before.
//!
//! A clock that goes back must not bring expired invites back to life. So the latest time is
//! remembered, also across restarts, and runs on while the process runs. One wrong reading far
//! ahead must not close every open invite for ever: a reading more than [`LEAP`] ahead counts while
//! it lasts, and is remembered only after it has lasted for [`LEAP_TIME`]. If a wrong time was
//! remembered all the same, new invites still work, status says so, and the operator can reset it.
//!
//! Limits: what passed since the last writing is forgotten in a crash, [`WRITE_EVERY`] at most.

use std::time::{Duration, Instant};

use super::UnixSeconds;

/// A clock this far ahead of what was remembered may be wrong; a gateway that was off for so long
/// loses nothing by the doubt.
const LEAP: Duration = Duration::from_secs(30 * 86_400);
/// How long such a reading must last until it is remembered: time servers correct a clock that was
/// wrong at the start within minutes.
const LEAP_TIME: Duration = Duration::from_secs(3_600);
/// How often the latest time is written down while the gateway runs.
const WRITE_EVERY: Duration = Duration::from_secs(600);
/// A clock this far behind is worth telling: time servers correct smaller errors every day.
const BEHIND: Duration = Duration::from_secs(300);

/// A wall clock that is behind the time that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// By how much.
    pub by: Duration,
    /// Since when, by that clock.
    pub since: UnixSeconds,
}

/// The latest time that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// The latest time, and when it was; `None` before anything was seen.
    latest: Option<(UnixSeconds, Instant)>,
    /// As read from the store, before its first use.
    stored: Option<UnixSeconds>,
    /// Since when the wall clock is far ahead.
    leapt: Option<Instant>,
    /// When it was written last.
    written: Option<Instant>,
    behind: Option<Behind>,
}

impl Clock {
    /// The clock of a gateway whose latest time is `stored`.
    pub(super) const fn new(stored: Option<UnixSeconds>) -> Self {
        Self { latest: None, stored, leapt: None, written: None, behind: None }
    }

    /// The time that counts, when the wall clock says `wall`.
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

    /// How far the wall clock was behind at the last reading, if that is worth telling.
    pub(super) const fn behind(&self) -> Option<Behind> {
        self.behind
    }

    /// The latest time, as it is remembered.
    pub(super) fn latest(&self, now: Instant) -> Option<UnixSeconds> {
        let Some((latest, at)) = self.latest else { return self.stored };
        let elapsed = now.saturating_duration_since(at).as_secs();
        Some(UnixSeconds(latest.0.saturating_add(elapsed)))
    }

    /// What to write down, if that has changed.
    pub(super) fn unwritten(&self, now: Instant) -> Option<UnixSeconds> {
        self.latest(now).filter(|latest| self.stored.is_none_or(|stored| stored < *latest))
    }

    /// It could not be written: that is tried again when it is due next.
    pub(super) const fn put_off(&mut self, now: Instant) {
        self.written = Some(now);
    }

    /// This was written down.
    pub(super) const fn wrote(&mut self, time: UnixSeconds, now: Instant) {
        (self.stored, self.written) = (Some(time), Some(now));
    }

    /// When it is to be written next; at once if it never was.
    pub(super) fn due(&self) -> Option<Instant> {
        self.latest.map(|(_, at)| self.written.map_or(at, |written| written + WRITE_EVERY))
    }

    /// Takes the wall clock as right, whatever was seen before.
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
