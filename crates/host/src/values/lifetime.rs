//! Durations as people write them: `30s`, `90m`, `24h`, `7d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Misspelt;

/// A whole number of seconds, at least one and at most ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lifetime {
    seconds: u64,
}

const SECONDS_MAX: u64 = 10 * 366 * 86_400;
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

impl Lifetime {
    /// A lifetime of `seconds`, forced into the range.
    pub const fn from_seconds(seconds: u64) -> Self {
        let seconds = if seconds == 0 { 1 } else { seconds };
        Self { seconds: if seconds > SECONDS_MAX { SECONDS_MAX } else { seconds } }
    }

    /// Its length in seconds.
    pub const fn seconds(self) -> u64 {
        self.seconds
    }

    /// Its length.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

impl FromStr for Lifetime {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let wrong = || {
            Misspelt::new(format!(
                "{text:?} is no duration: write a number and s, m, h or d, at most ten years, for \
                 example 30s or 24h"
            ))
        };
        let unit = text.chars().next_back().ok_or_else(wrong)?;
        let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
        let number = &text[..text.len() - unit.len_utf8()];
        if !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let number: u64 = number.parse().map_err(|_| wrong())?;
        match number.checked_mul(scale) {
            Some(seconds) if (1..=SECONDS_MAX).contains(&seconds) => Ok(Self { seconds }),
            Some(_) | None => Err(wrong()),
        }
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |&&(_, scale): &&(char, u64)| self.seconds.is_multiple_of(scale);
        let &(name, scale) = UNITS.iter().find(whole).unwrap_or(&UNITS[3]);
        write!(f, "{}{name}", self.seconds / scale)
    }
}
