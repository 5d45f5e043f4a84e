//! The local calendar: the present day at this host's place.
//!
//! It knows no time zone by name: the C library reads the host's own once, at the first call.
//! Limits: a host that travels to another zone stays in the old one until the process restarts.

use std::time::{SystemTime, UNIX_EPOCH};

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day {
    /// The year, as people count.
    pub year: i32,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
}

impl Day {
    /// Today, where this host is; none where its clock shows no day that there is.
    pub fn today() -> Option<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Self::at(libc::time_t::try_from(since.as_secs()).ok()?)
    }

    fn at(time: libc::time_t) -> Option<Self> {
        // SAFETY: all zeros is a valid tm.
        let mut found: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both point to values that live through the call, and nothing else is touched.
        let told = unsafe { libc::localtime_r(&raw const time, &raw mut found) };
        if told.is_null() {
            return None;
        }
        Some(Self {
            year: found.tm_year.checked_add(1_900)?,
            month: u8::try_from(found.tm_mon + 1).ok()?,
            day: u8::try_from(found.tm_mday).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Day;

    #[test]
    fn a_moment_has_its_day_in_any_zone() {
        // Noon of 29 February 2024, UTC: the same day from 12 hours west to 11 hours east of it.
        let day = Day::at(1_709_208_000).unwrap();
        assert_eq!((day.year, day.month), (2024, if day.day == 1 { 3 } else { 2 }));
        assert!(Day::at(1_709_208_000 + 200 * 86_400).unwrap() > day);
        assert!(Day::today().unwrap() > day, "the clock of this host is years behind");
    }
}
