//! Recorded link capacity in the format of mahimahi.
//!
//! One decimal number a line: a millisecond since the start at which the recorded link could
//! deliver 1,500 bytes. Several equal lines are several opportunities in one millisecond. The
//! recording repeats for ever; its last line is its length (Netravali et al., USENIX ATC 2015).

use super::MS;
use std::fmt;

/// Bytes that one opportunity can carry.
pub(super) const OPPORTUNITY_BYTES: u64 = 1_500;
/// The most opportunities a recording may hold: some 70 MB of text, hours at any radio's rate.
const MAX_OPPORTUNITIES: usize = 10_000_000;

/// The interval over which opportunities are counted where their own times are not kept.
pub const COUNTED_MS: u32 = 100;

/// A recording: when the link could deliver 1,500 bytes, over one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds from the start of the period, never falling.
    opportunities_ms: Vec<u32>,
}

/// Why a text is not a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// Line (counted from 1) that is not a number of milliseconds.
    NotANumber(usize),
    /// Line (counted from 1) whose time lies before the line above it.
    OutOfOrder(usize),
    /// More opportunities than are accepted.
    TooLong,
    /// No opportunity at a time above zero, so the period has no length.
    Empty,
}

impl Trace {
    /// Reads a recording; blank lines are skipped.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut opportunities_ms: Vec<u32> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let at = line.parse::<u32>().map_err(|_| TraceError::NotANumber(index + 1))?;
            if opportunities_ms.last().is_some_and(|&last| last > at) {
                return Err(TraceError::OutOfOrder(index + 1));
            }
            if opportunities_ms.len() == MAX_OPPORTUNITIES {
                return Err(TraceError::TooLong);
            }
            opportunities_ms.push(at);
        }
        match opportunities_ms.last() {
            Some(&last) if last > 0 => Ok(Self { opportunities_ms }),
            Some(_) | None => Err(TraceError::Empty),
        }
    }

    /// Reads the counts that [`Self::counts`] makes, one a line. Within each [`COUNTED_MS`] the
    /// opportunities come at even distances.
    pub fn parse_counts(text: &str) -> Result<Self, TraceError> {
        let mut opportunities_ms = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let count =
                line.trim().parse::<u32>().map_err(|_| TraceError::NotANumber(index + 1))?;
            let from_ms = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(COUNTED_MS);
            if opportunities_ms.len() + count as usize > MAX_OPPORTUNITIES {
                return Err(TraceError::TooLong);
            }
            // The last one ends the interval, so that the last of all ends the period.
            let at = |nth: u32| from_ms.saturating_add((nth + 1) * COUNTED_MS / count.max(1));
            opportunities_ms.extend((0..count).map(at));
        }
        match opportunities_ms.last() {
            Some(_) => Ok(Self { opportunities_ms }),
            None => Err(TraceError::Empty),
        }
    }

    /// How many opportunities one period has in each [`COUNTED_MS`] of it.
    pub fn counts(&self) -> Vec<u32> {
        let last = self.opportunities_ms.last().copied().unwrap_or(0);
        let mut counts = vec![0; last.div_ceil(COUNTED_MS) as usize];
        for at_ms in &self.opportunities_ms {
            // One at the very beginning belongs to the first.
            counts[(at_ms.saturating_sub(1) / COUNTED_MS) as usize] += 1;
        }
        counts
    }

    /// Length of one period in nanoseconds.
    pub fn period_ns(&self) -> u64 {
        u64::from(self.opportunities_ms.last().copied().unwrap_or(1)) * MS
    }

    /// Mean rate over one period in bits per second.
    pub fn mean_bits_per_second(&self) -> u64 {
        let bits = self.opportunities_ms.len() as u128 * u128::from(OPPORTUNITY_BYTES) * 8;
        (bits * u128::from(super::SECOND) / u128::from(self.period_ns())) as u64
    }

    /// Bytes that the link could carry between two moments on the emulator's clock, in nanoseconds:
    /// from the first, and before the second.
    pub fn capacity_bytes(&self, from_ns: u64, to_ns: u64) -> u64 {
        let before = |at_ns: u64| self.next(0, at_ns).0;
        before(to_ns).saturating_sub(before(from_ns)) * OPPORTUNITY_BYTES
    }

    /// The first opportunity at or after `from_ns` whose running number is at least `number`:
    /// its running number and its time in nanoseconds.
    pub(super) fn next(&self, number: u64, from_ns: u64) -> (u64, u64) {
        let count = self.opportunities_ms.len() as u64;
        let period = self.period_ns();
        let cycle = from_ns / period;
        let within_ms = (from_ns % period).div_ceil(MS);
        let index = self.opportunities_ms.partition_point(|&at| u64::from(at) < within_ms) as u64;
        let number = number.max(cycle * count + index);
        let at_ms = self.opportunities_ms[(number % count) as usize];
        (number, number / count * period + u64::from(at_ms) * MS)
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber(line) => write!(f, "line {line}: not a number of milliseconds"),
            Self::OutOfOrder(line) => write!(f, "line {line}: earlier than the line above"),
            Self::TooLong => write!(f, "more than {MAX_OPPORTUNITIES} lines"),
            Self::Empty => write!(f, "no opportunity to send after 0 ms"),
        }
    }
}

impl std::error::Error for TraceError {}

#[cfg(test)]
mod tests {
    use super::Trace;
    use crate::emu::MS;

    #[test]
    fn counts_are_the_recording_but_for_the_times_within_a_tenth_of_a_second() {
        let trace = Trace::parse("0\n1\n7\n100\n250\n250\n400\n").unwrap();
        assert_eq!(trace.counts(), [4, 0, 2, 1]);
        let counted = Trace::parse_counts("4\n0\n2\n1\n").unwrap();
        assert_eq!(counted.counts(), trace.counts());
        assert_eq!((counted.period_ns(), trace.period_ns()), (400 * MS, 400 * MS));
        // At 25, 50, 75 and 100 ms, and then at 250 and 300.
        assert_eq!(counted.capacity_bytes(0, 51 * MS), 3_000);
        assert_eq!(counted.capacity_bytes(100 * MS, 251 * MS), 3_000);
        assert!(Trace::parse_counts("").is_err() && Trace::parse_counts("0\n").is_err());
        assert!(Trace::parse_counts("many\n").is_err());
    }
}
