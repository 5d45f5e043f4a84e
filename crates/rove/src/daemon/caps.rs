//! How much has gone by the links whose data is capped, this day and this month.
//!
//! The kernel counts, whoever sent it: that is what is paid for. Its counters are looked at now and
//! then, the oftener the sooner a cap could be reached, and never while packets wait. What was
//! counted is written down once in a while; a process that was killed loses nothing while the host
//! stays up, since the kernel goes on counting. A day is one of the local calendar. Time that
//! nobody counted in, from before midnight, is of the day before; a clock that goes back begins no
//! new day.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rove_os::calendar::Day;
use serde::{Deserialize, Serialize};

use crate::files;
use crate::values::{Cap, Period};

/// The file's name in the client's state.
const NAME: &str = "data-used.json";
/// Links that are counted at once; beyond these, caps are not kept.
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
/// The kernel's name for the time since it was started.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The counts of capped links.
#[derive(Debug)]
pub(super) struct Caps {
    file: PathBuf,
    boot: String,
    links: BTreeMap<String, Count>,
    /// What is looked at, and when it was last.
    looked: Option<Instant>,
    next: Option<Instant>,
    /// Since when something is not written down.
    unwritten: Option<Instant>,
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
pub(super) struct Moment {
    pub(super) now: Instant,
    /// Seconds since 1970.
    pub(super) at: u64,
    pub(super) today: Day,
}

impl Caps {
    /// Takes up what was counted before; what does not read counts as nothing.
    pub(super) fn open(state: &Path) -> Self {
        let file = state.join(NAME);
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        let links = match files::read_text(&file) {
            Ok(text) => serde_json::from_str(&text).unwrap_or_else(|error| {
                tracing::warn!(%error, "what has gone by links with a cap is counted anew");
                BTreeMap::new()
            }),
            Err(_) => BTreeMap::new(),
        };
        Self { file, boot, links, looked: None, next: None, unwritten: None }
    }

    /// How much has gone by the link in this day or month, if that is counted.
    pub(super) fn used(&self, name: &str, cap: Cap) -> Option<u64> {
        let count = self.links.get(name)?;
        Some(match cap.period {
            Period::Day => count.this_day,
            Period::Month => count.this_month,
        })
    }

    /// Whether no more is to go by the link.
    pub(super) fn is_reached(&self, name: &str, cap: Option<Cap>) -> bool {
        cap.is_some_and(|cap| self.used(name, cap).is_some_and(|used| used >= cap.bytes))
    }

    /// When the counters are to be looked at.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.next
    }

    /// Links that have a cap and are there, with what the kernel counts by each.
    pub(super) fn look(&mut self, capped: &[(&str, Cap, u64)], moment: Moment) {
        let Moment { now, .. } = moment;
        let since = self.looked.replace(now).map(|last| now.saturating_duration_since(last));
        let mut next: Option<Duration> = None;
        let known = self.links.len();
        for &(name, cap, counter) in capped {
            if !self.links.contains_key(name) && self.links.len() >= LINKS_MAX {
                continue;
            }
            let went_by = self.note(name, counter, moment);
            let left = cap.bytes.saturating_sub(self.used(name, cap).unwrap_or(0));
            let soon = match since {
                _ if left == 0 => LOOK_FULL,
                Some(since) if went_by > 0 => {
                    let rate = went_by as f64 / since.as_secs_f64().max(1e-3);
                    let half = Duration::from_secs_f64((left as f64 / rate / 2.0).min(1e6));
                    half.clamp(LOOK_MIN, LOOK_MAX)
                }
                Some(_) => LOOK_MAX,
                None => LOOK_MIN,
            };
            next = Some(next.map_or(soon, |next| next.min(soon)));
        }
        self.next = next.map(|next| now + next);
        // From where a link is counted must be known to a successor, however this process ends.
        let is_new = self.links.len() > known;
        if is_new || self.unwritten.is_some_and(|since| now >= since + WRITE_AFTER) {
            self.write();
        }
    }

    /// One link's counter. Returns what went by since it was last looked at.
    fn note(&mut self, name: &str, counter: u64, moment: Moment) -> u64 {
        let Moment { now, at, today } = moment;
        let Day { year, month, day } = today;
        let boot = &self.boot;
        let Some(count) = self.links.get_mut(name) else {
            let (boot, this_day, this_month) = (boot.clone(), 0, 0);
            let count = Count { boot, counter, at, year, month, day, this_day, this_month };
            self.links.insert(name.to_owned(), count);
            self.unwritten.get_or_insert(now);
            return 0;
        };
        let is_same = count.boot == *boot && counter >= count.counter;
        let went_by = if is_same { counter - count.counter } else { counter };
        let before = Day { year: count.year, month: count.month, day: count.day };
        if before < today {
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
        if went_by > 0 || before < today {
            self.unwritten.get_or_insert(now);
        }
        count.boot.clone_from(boot);
        (count.counter, count.at) = (counter, at);
        went_by
    }

    /// Writes down what is not yet.
    pub(super) fn write(&mut self) {
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

#[cfg(test)]
#[path = "caps_tests.rs"]
mod tests;
