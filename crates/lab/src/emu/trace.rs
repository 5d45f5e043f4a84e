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
