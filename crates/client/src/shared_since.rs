//! Since when another host uses this client's key, also after a restart of the client.
//!
//! The core dates an alarm by a clock that begins with the process. This module keeps the date in a
//! file, and decides whether a new alarm continues the last one: if that one was noticed within
//! [`PAUSE`]. If the file cannot be read or written, an alarm is as old as the process says.

use std::path::{Path, PathBuf};

use rove_api::Problem;
use rove_host::files;
use serde::{Deserialize, Serialize};

/// The name of the file in the directory of the client's state.
const NAME: &str = "shared-key.json";
/// Seconds without an alarm after which the next one is a new one. With less, two hosts that are
/// used by turns seem to be in trouble since a moment ago. With more, trouble that was cured and
/// came back seems to be older than its cure.
const PAUSE: u64 = 3_600;

/// In seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Dates {
    since: u64,
    last: u64,
}

/// The dates of the alarm.
#[derive(Debug)]
pub(crate) struct SharedSince {
    file: PathBuf,
    dates: Option<Dates>,
}

impl SharedSince {
    /// Reads what an earlier process noticed.
    pub(crate) fn open(state: &Path) -> Self {
        let file = state.join(NAME);
        let text = files::read_text(&file).ok();
        let dates = text.and_then(|text| serde_json::from_str(&text).ok());
        Self { file, dates }
    }

    /// Notes a new alarm of the core.
    pub(crate) fn noticed(&mut self, now: u64) {
        let before = self.dates.filter(|dates| now.saturating_sub(dates.last) < PAUSE);
        let since = before.map_or(now, |dates| dates.since.min(now));
        let dates = Dates { since, last: now };
        self.dates = Some(dates);
        let written = serde_json::to_vec(&dates)
            .map_err(anyhow::Error::from)
            .and_then(|text| Ok(files::replace(&self.file, files::PRIVATE, &text)?));
        if let Err(error) = written {
            tracing::debug!("the date of the alarm cannot be written: {error:#}");
        }
    }

    /// The problem of the alarm that was noticed last, with its date.
    pub(crate) fn date(&self, problem: Problem) -> Problem {
        let since = self.dates.map_or(problem.since, |dates| dates.since.min(problem.since));
        Problem { since, ..problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_continues_one_of_an_earlier_process() {
        let state = tempfile::tempdir().unwrap();
        let since = |now: u64| {
            let mut shared = SharedSince::open(state.path());
            shared.noticed(now);
            shared.dates.unwrap().since
        };
        let noticed = [1_000, 1_000 + PAUSE - 1, 1_000 + 2 * PAUSE, 900].map(since);
        assert_eq!(noticed, [1_000, 1_000, 1_000 + 2 * PAUSE, 900]);
        std::fs::write(state.path().join(NAME), "{").unwrap();
        assert_eq!(since(2_000), 2_000);
    }
}
