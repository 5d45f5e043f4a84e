//! How much data may go by a link in a day or a month.

use std::fmt;
use std::str::FromStr;

use super::Misspelt;

/// Units of data, the largest first.
const UNITS: [(&str, u64); 6] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
];
/// The most that can be said, in bytes: a petabyte.
const BYTES_MAX: u64 = 1_000_000_000_000_000;

/// So much in such a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Bytes, of both directions together; 0 for no cap.
    pub bytes: u64,
    /// In which time.
    pub period: Period,
}

/// A time in which data is counted, by the local calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From the first to the last day of a month.
    Month,
}

impl Cap {
    /// Whether it is none.
    pub const fn is_none(self) -> bool {
        self.bytes == 0
    }
}

impl FromStr for Cap {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        if text == "none" {
            return Ok(Self { bytes: 0, period: Period::Day });
        }
        let misspelt = || {
            Misspelt::new(format!(
                "{text:?} is no cap: write so many MB, GB or TB each day or month, as 500MB/day or \
                 1.5GB/month, or none"
            ))
        };
        let (amount, period) = text.split_once('/').ok_or_else(misspelt)?;
        let period = match period {
            "day" => Period::Day,
            "month" => Period::Month,
            _ => return Err(misspelt()),
        };
        let units = UNITS.iter();
        let found = units.filter_map(|(unit, size)| Some((amount.strip_suffix(unit)?, *size)));
        let (number, unit) = found.into_iter().next().ok_or_else(misspelt)?;
        let bytes = scaled(number.trim_end(), unit).ok_or_else(misspelt)?;
        if bytes == 0 || bytes > BYTES_MAX {
            return Err(misspelt());
        }
        Ok(Self { bytes, period })
    }
}

/// `number`, with at most three decimal places, times `unit`.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 3 {
        return None;
    }
    let thousandths: u64 = format!("{part:0<3}").parse().ok()?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    whole.checked_add(unit / 1_000 * thousandths + unit % 1_000 * thousandths / 1_000)
}

impl fmt::Display for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let fits = |unit: &&(&str, u64)| {
            let (_, size) = unit;
            self.bytes >= *size
                && scaled(&thousandths(self.bytes, *size), *size) == Some(self.bytes)
        };
        let (unit, size) = UNITS.iter().find(fits).unwrap_or(&("MB", 1_000_000));
        let period = match self.period {
            Period::Day => "day",
            Period::Month => "month",
        };
        write!(f, "{}{unit}/{period}", thousandths(self.bytes, *size))
    }
}

/// So many bytes in a unit, to three decimal places.
fn thousandths(bytes: u64, unit: u64) -> String {
    let part = (u128::from(bytes % unit) * 1_000 / u128::from(unit)).to_string();
    let part = format!("{part:0>3}");
    let part = part.trim_end_matches('0');
    let whole = bytes / unit;
    if part.is_empty() { whole.to_string() } else { format!("{whole}.{part}") }
}

#[cfg(test)]
mod tests {
    use super::{Cap, Period};

    #[test]
    fn a_cap_is_so_much_a_day_or_a_month() {
        let cap = |text: &str| text.parse::<Cap>().map(|cap| (cap.bytes, cap.period)).ok();
        assert_eq!(cap("500MB/day"), Some((500_000_000, Period::Day)));
        assert_eq!(cap("1.5GB/month"), Some((1_500_000_000, Period::Month)));
        assert_eq!(cap("2 GiB/day"), Some((2 << 30, Period::Day)));
        assert_eq!(cap("0.001GiB/day"), Some(((1 << 30) / 1_000, Period::Day)));
        assert_eq!(cap("none"), Some((0, Period::Day)));
        for wrong in [
            "",
            "5GB",
            "5GB/week",
            "GB/day",
            "-1GB/day",
            "1.2345GB/day",
            "0MB/day",
            "5/day",
            "1e3GB/day",
            ".5GB/day",
            "99999999999TB/day",
            "2000TB/month",
        ] {
            assert_eq!(cap(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_cap_reads_as_it_is_written() {
        for text in ["500MB/day", "1.5GB/month", "2GiB/day", "750MiB/month", "none", "1.234TB/day"]
        {
            assert_eq!(text.parse::<Cap>().unwrap().to_string(), text);
        }
    }
}
