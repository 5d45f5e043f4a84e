//! How much has gone by the links whose data is capped, this day and this month.
//!
//! The kernel counts, whoever sent it: that is what is paid for. Its counters are looked at now and
//! then, the oftener the sooner a cap could be reached, and never while packets wait. What was
//! counted is written down once in a while; a process that was killed loses nothing while the host
//! stays up, since the kernel goes on counting. A day is one of the local calendar. Time that
//! nobody counted in, from before midnight, is of the day before. A clock that goes back begins no
//! new day, but one that was days ahead was wrong: what was counted then is not of any day that
//! was. Of a month that is over nothing is kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rove_host::files;
use rove_host::values::{Cap, Period};
use rove_os::calendar::Day;
use serde::{Deserialize, Serialize};

/// The file's name in the client's state.
const NAME: &str = "data-used.json";
/// Links that are counted in one month; beyond these, caps are not kept, and the log says so.
const LINKS_MAX: usize = 64;
/// The time between two looks at the counters, where a cap could be reached in so much,
const LOOK_MIN: Duration = Duration::from_secs(1);
/// and where it could not: what begins to flow is counted for so long before it can be stopped.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// How late a new day is noticed, which opens a link again.
const LOOK_FULL: Duration = Duration::from_secs(30);
/// How long counts may be only in memory.
const WRITE_AFTER: Duration = Duration::from_secs(60);
/// Who has not looked for longer does not know on which day it was that something went by.
const UNWATCHED_S: u64 = 120;
/// For so long the clock must be behind what was counted by more than a day before it is believed:
/// a host whose clock does not run while it is off learns the time from the network first.
const BELIEVED_AFTER: Duration = Duration::from_secs(600);
/// The kernel's name for the time since it was started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The counts of capped links.
#[derive(Debug)]
pub(crate) struct Caps {
    file: PathBuf,
    boot: String,
    links: BTreeMap<String, Count>,
    /// What is looked at, and when it was last.
    looked: Option<Instant>,
    next: Option<Instant>,
    /// Since when something is not written down.
    unwritten: Option<Instant>,
    /// Since when the clock is behind what was counted by more than a day.
    behind_since: Option<Instant>,
    /// What the log said already: that the counters are not known,
    is_blind: bool,
    /// and that there are too many links.
    is_full: bool,
}

/// What went by one link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    /// The run of the kernel whose counter it is.
    boot: String,
    /// The kernel's counter when it was last looked at.
    counter: u64,
    /// When that was, in seconds since 1970.
    at: u64,
    year: i32,
    month: u8,
    day: u8,
    this_day: u64,
    this_month: u64,
}

/// What is true now, from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    /// Seconds since 1970.
    pub(crate) at: u64,
    /// None where the clock shows no day that there is.
    pub(crate) today: Option<Day>,
}

impl Caps {
    /// Takes up what was counted before; what does not read counts as nothing.
    pub(crate) fn open(state: &Path) -> Self {
        let file = state.join(NAME);
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        let links = match files::read_text(&file) {
            Ok(text) => serde_json::from_str(&text).unwrap_or_else(|error| {
                tracing::warn!(%error, "what has gone by links with a cap is counted anew");
                BTreeMap::new()
            }),
            Err(_) => BTreeMap::new(),
        };
        Self {
            file,
            boot,
            links,
            looked: None,
            next: None,
            unwritten: None,
            behind_since: None,
            is_blind: false,
            is_full: false,
        }
    }

    /// How much has gone by the link in this day or month, if that is counted.
    pub(crate) fn used(&self, name: &str, cap: Cap) -> Option<u64> {
        let count = self.links.get(name)?;
        Some(match cap.period {
            Period::Day => count.this_day,
            Period::Month => count.this_month,
        })
    }

    /// Whether no more is to go by the link.
    pub(crate) fn is_reached(&self, name: &str, cap: Option<Cap>) -> bool {
        cap.is_some_and(|cap| self.used(name, cap).is_some_and(|used| used >= cap.bytes))
    }

    /// When the counters are to be looked at.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Links that have a cap and are there, with what the kernel counts by each: none where that is
    /// not known, which is looked at again soon.
    pub(crate) fn look(&mut self, capped: &[(&str, Cap, Option<u64>)], moment: Moment) {
        let Moment { now, .. } = moment;
        let since = self.looked.replace(now).map(|last| now.saturating_duration_since(last));
        if let Some(today) = moment.today {
            let is_behind = self.links.values().any(|count| count.is_ahead_of(today));
            self.behind_since = is_behind.then(|| self.behind_since.unwrap_or(now));
            self.forget(capped, now, today);
        }
        let known = self.links.len();
        let looked = capped.iter().map(|of_link| self.look_at(of_link, since, moment));
        self.next = looked.min().map(|soon| now + soon);
        // From where a link is counted must be known to a successor, however this process ends.
        let is_new = self.links.len() > known;
        if is_new || self.unwritten.is_some_and(|since| now >= since + WRITE_AFTER) {
            self.write();
        }
    }

    /// One of them. Returns how soon it is to be looked at again.
    fn look_at(
        &mut self,
        &(name, cap, counter): &(&str, Cap, Option<u64>),
        since: Option<Duration>,
        moment: Moment,
    ) -> Duration {
        let (Some(counter), Some(today)) = (counter, moment.today) else {
            return LOOK_MAX;
        };
        if !self.links.contains_key(name) && self.links.len() >= LINKS_MAX {
            if !std::mem::replace(&mut self.is_full, true) {
                tracing::warn!(
                    link = name,
                    "no more than {LINKS_MAX} links are counted: its cap and others are not kept; \
                     let fewer [[link]] rules have one"
                );
            }
            return LOOK_FULL;
        }
        let went_by = self.note(name, counter, moment, today);
        let left = cap.bytes.saturating_sub(self.used(name, cap).unwrap_or(0));
        match since {
            _ if left == 0 => LOOK_FULL,
            Some(since) if went_by > 0 => {
                let rate = went_by as f64 / since.as_secs_f64().max(1e-3);
                let half = Duration::from_secs_f64((left as f64 / rate / 2.0).min(1e6));
                half.clamp(LOOK_MIN, LOOK_MAX)
            }
            Some(_) => LOOK_MAX,
            None => LOOK_MIN,
        }
    }

    /// The counters cannot be read, for this reason: the log says so once.
    pub(crate) fn note_blind(&mut self, error: Option<&dyn std::fmt::Display>) {
        let was_blind = std::mem::replace(&mut self.is_blind, error.is_some());
        if let Some(error) = error.filter(|_| !was_blind) {
            tracing::warn!(%error, "how much has gone by links is not known");
        }
    }

    /// Whether the clock is believed though it is behind what was counted.
    fn is_believed(&self, now: Instant) -> bool {
        let passed = self.behind_since.map(|since| now.saturating_duration_since(since));
        passed.is_some_and(|passed| passed >= BELIEVED_AFTER)
    }

    /// Keeps nothing of links that are not there, and that nothing has gone by in this month.
    fn forget(&mut self, capped: &[(&str, Cap, Option<u64>)], now: Instant, today: Day) {
        let (known, is_believed) = (self.links.len(), self.is_believed(now));
        self.links.retain(|name, count| {
            let is_past = (count.year, count.month) < (today.year, today.month);
            let is_wrong = is_believed && count.is_ahead_of(today);
            !(is_past || is_wrong) || capped.iter().any(|(capped, ..)| capped == name)
        });
        if self.links.len() < known {
            self.unwritten.get_or_insert(now);
        }
        if self.links.len() < LINKS_MAX {
            self.is_full = false;
        }
    }

    /// One link's counter. Returns what went by since it was last looked at.
    fn note(&mut self, name: &str, counter: u64, moment: Moment, today: Day) -> u64 {
        let Moment { now, at, .. } = moment;
        let Day { year, month, day } = today;
        let (boot, is_believed) = (&self.boot, self.is_believed(now));
        let Some(count) = self.links.get_mut(name) else {
            let (boot, this_day, this_month) = (boot.clone(), 0, 0);
            let count = Count { boot, counter, at, year, month, day, this_day, this_month };
            self.links.insert(name.to_owned(), count);
            self.unwritten.get_or_insert(now);
            return 0;
        };
        let is_same = count.boot == *boot && counter >= count.counter;
        let went_by = if is_same { counter - count.counter } else { counter };
        let before = count.date();
        let was_wrong = is_believed && count.is_ahead_of(today);
        if was_wrong {
            (count.this_day, count.this_month) = (0, 0);
            (count.year, count.month, count.day) = (year, month, day);
        } else if before < today {
            let watched = at.saturating_sub(count.at) <= UNWATCHED_S;
            let same_month = (count.year, count.month) == (year, month);
            count.this_day = if watched { went_by } else { 0 };
            count.this_month = match (same_month, watched) {
                (true, _) => count.this_month.saturating_add(went_by),
                (false, true) => went_by,
                (false, false) => 0,
            };
            (count.year, count.month, count.day) = (year, month, day);
        } else {
            count.this_day = count.this_day.saturating_add(went_by);
            count.this_month = count.this_month.saturating_add(went_by);
        }
        if went_by > 0 || before < today || was_wrong {
            self.unwritten.get_or_insert(now);
        }
        count.boot.clone_from(boot);
        (count.counter, count.at) = (counter, at);
        went_by
    }

    /// Writes down what is not yet.
    pub(crate) fn write(&mut self) {
        if self.unwritten.take().is_none() {
            return;
        }
        let written = serde_json::to_vec(&self.links)
            .map_err(anyhow::Error::from)
            .and_then(|text| Ok(files::replace(&self.file, files::PRIVATE, &text)?));
        if let Err(error) = written {
            tracing::warn!("what has gone by links with a cap cannot be written down: {error:#}");
        }
    }
}

impl Count {
    /// The day that it is of.
    const fn date(&self) -> Day {
        Day { year: self.year, month: self.month, day: self.day }
    }

    /// Whether it is of a later day than one that a journey to another time zone makes of today.
    fn is_ahead_of(&self, today: Day) -> bool {
        number(self.date()) > number(today) + 1
    }
}

/// The days from a fixed one to this one: years begin in March here, so that leap days end them.
fn number(day: Day) -> i64 {
    let (year, month) = (i64::from(day.year), i64::from(day.month));
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 + i64::from(day.day)
}

#[cfg(test)]
#[path = "caps_tests.rs"]
mod tests;
