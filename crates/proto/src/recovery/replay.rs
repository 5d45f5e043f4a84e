//! The replay window: each number of a path is accepted once, in any order, within a window
//! behind the highest (RFC 6479's ring of words, which never shifts). The ring has a word more than
//! the window needs: the one that the highest number begins is emptied whole, and what that forgets
//! lies behind the window.
//!
//! A path that is fast or reorders across modems needs a wide window, an idle one none: memory is
//! taken at the first datagram and grows with the measured rate, up to [`WINDOW_MAX`].

use crate::error::DropReason;
use crate::id::PacketNumber;
use crate::time::{Duration, Instant};
use crate::wire::frame::FEEDBACK_RUNS_MAX;

/// The smallest window, in numbers.
pub const WINDOW_MIN: u64 = 8_192;
/// The largest window, in numbers: 32 KB of memory.
pub const WINDOW_MAX: u64 = 1 << 18;
/// The window holds what arrives in this time at the highest rate seen.
pub(crate) const WINDOW_TIME: Duration = Duration::from_millis(500);

const WORD: u64 = u64::BITS as u64;
/// How far back from the highest number feedback looks for gaps.
const RUNS_DEPTH: u64 = 1_024;

/// Which numbers of one path were received.
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    words: Vec<u64>,
    highest: Option<PacketNumber>,
    rate: RatePeriod,
}

/// Counts what arrives in one [`WINDOW_TIME`].
#[derive(Clone, Copy, Debug, Default)]
struct RatePeriod {
    since: Instant,
    count: u64,
}

impl ReplayWindow {
    /// The highest number received.
    pub(crate) const fn highest(&self) -> Option<PacketNumber> {
        self.highest
    }

    /// Whether `number` may still be accepted. To be asked before the datagram is opened, which
    /// costs more.
    ///
    /// # Errors
    /// [`DropReason::Replay`] when it was received before or lies behind the window.
    pub(crate) fn check(&self, number: PacketNumber) -> Result<(), DropReason> {
        let Some(highest) = self.highest else { return Ok(()) };
        if number > highest {
            return Ok(());
        }
        if highest - number >= self.span() || self.contains(number) {
            return Err(DropReason::Replay);
        }
        Ok(())
    }

    /// Whether `number` was received, as far as the window reaches back.
    pub(crate) fn has(&self, number: PacketNumber) -> bool {
        self.highest.is_some_and(|highest| {
            number <= highest && highest - number < self.span() && self.contains(number)
        })
    }

    /// Reaches as far back as `other` from now on, at least.
    pub(crate) fn widen_like(&mut self, other: &Self) {
        if self.span() < other.span() {
            self.widen(other.span());
        }
    }

    /// Records `number`, which was checked and whose datagram was authentic. Returns whether it
    /// is the highest so far.
    pub(crate) fn commit(&mut self, now: Instant, number: PacketNumber) -> bool {
        self.measure(now);
        let newest = self.highest.is_none_or(|highest| number > highest);
        if newest {
            self.clear_between(number);
            self.highest = Some(number);
        }
        let (word, bit) = self.place(number);
        self.words[word] |= bit;
        newest
    }

    /// Alternating lengths of runs received and missing, downwards from the highest number: to the
    /// end of the run that `enough` is in, or of the last that there is room for; at most 1,024
    /// numbers deep.
    pub(crate) fn runs(&self, enough: PacketNumber) -> [(u32, u32); FEEDBACK_RUNS_MAX] {
        let mut runs = [(0, 0); FEEDBACK_RUNS_MAX];
        let Some(highest) = self.highest else { return runs };
        let floor = highest.saturating_sub(RUNS_DEPTH.min(self.span()) - 1);
        let mut number = highest;
        for run in &mut runs {
            run.0 = self.count_down(&mut number, floor, true);
            if number < enough {
                break;
            }
            run.1 = self.count_down(&mut number, floor, false);
            if number <= floor {
                break;
            }
        }
        runs
    }

    /// Numbers that the window spans now.
    const fn span(&self) -> u64 {
        (self.words.len() as u64).saturating_sub(1) * WORD
    }

    const fn place(&self, number: PacketNumber) -> (usize, u64) {
        let word = (number / WORD) % self.words.len() as u64;
        (word as usize, 1 << (number % WORD))
    }

    fn contains(&self, number: PacketNumber) -> bool {
        let (word, bit) = self.place(number);
        self.words[word] & bit != 0
    }

    /// Forgets what the window leaves behind when `number` becomes the highest.
    fn clear_between(&mut self, number: PacketNumber) {
        let length = self.words.len() as u64;
        let Some(highest) = self.highest else { return };
        let first = highest / WORD + 1;
        let last = number / WORD;
        if last >= first + length {
            self.words.fill(0);
            return;
        }
        for word in first..=last {
            #[expect(clippy::cast_possible_truncation, reason = "below the length of a vector")]
            let slot = (word % length) as usize;
            self.words[slot] = 0;
        }
    }

    fn count_down(&self, number: &mut u64, floor: u64, received: bool) -> u32 {
        let mut count = 0;
        while *number > floor && self.contains(*number) == received {
            *number -= 1;
            count += 1;
        }
        if *number == floor && received && self.contains(floor) {
            count += 1;
        }
        count
    }

    /// Widens the window when more arrives in [`WINDOW_TIME`] than it holds.
    fn measure(&mut self, now: Instant) {
        if now.saturating_since(self.rate.since) >= WINDOW_TIME {
            self.rate = RatePeriod { since: now, count: 0 };
        }
        self.rate.count += 1;
        let wanted = if self.rate.count > self.span() { self.rate.count } else { WINDOW_MIN };
        let wanted = wanted.next_power_of_two().clamp(WINDOW_MIN, WINDOW_MAX);
        if wanted > self.span() {
            self.widen(wanted);
        }
    }

    fn widen(&mut self, span: u64) {
        let length = (span / WORD) as usize + 1;
        let old = std::mem::replace(&mut self.words, vec![0; length]);
        let Some(highest) = self.highest else { return };
        let newest = highest / WORD;
        for back in 0..old.len() as u64 {
            let Some(word) = newest.checked_sub(back) else { break };
            #[expect(clippy::cast_possible_truncation, reason = "below the lengths of vectors")]
            let (from, to) = ((word % old.len() as u64) as usize, (word % length as u64) as usize);
            self.words[to] = old[from];
        }
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
