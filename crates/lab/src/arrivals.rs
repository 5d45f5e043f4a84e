//! When data came, remembered as when it did not.
//!
//! Decides what a standstill is and which part of it an event is to blame for. Knows no clock: the
//! times are the caller's, real or virtual.

use serde::{Deserialize, Serialize};

/// Shorter pauses are not kept: at the lab's rates data comes several times in this time.
const SHORTEST_NS: u64 = 1_000_000;
/// The most standstills kept between two reports; later ones are dropped, the longest never is.
const MAX_GAPS: usize = 4_096;

/// A standstill: nothing arrived between two moments, in nanoseconds on the shared clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last arrival before it.
    pub from_ns: u64,
    /// The first arrival after it.
    pub to_ns: u64,
}

/// Arrivals of one stream.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    latest_ns: Option<u64>,
    gaps: Vec<Gap>,
}

impl Arrivals {
    /// Data arrived.
    pub fn note(&mut self, at_ns: u64) {
        if let Some(from_ns) = self.latest_ns.replace(at_ns) {
            let gap = Gap { from_ns, to_ns: at_ns };
            if gap.length_ns() >= SHORTEST_NS {
                self.keep(gap);
            }
        }
    }

    /// The latest arrival, 0 before the first.
    pub fn latest_ns(&self) -> u64 {
        self.latest_ns.unwrap_or(0)
    }

    /// The standstills of a millisecond and more that ended since the last call.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    fn keep(&mut self, gap: Gap) {
        if self.gaps.len() < MAX_GAPS {
            self.gaps.push(gap);
        } else if let Some(shortest) = self.gaps.iter_mut().min_by_key(|kept| kept.length_ns())
            && shortest.length_ns() < gap.length_ns()
        {
            *shortest = gap;
        }
    }
}

impl Gap {
    /// Its length in nanoseconds.
    pub const fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// How long data stood still between two moments, in nanoseconds: the longest part of any
    /// standstill that lies between them.
    ///
    /// What begins before `from_ns` counts from there, and what lasts beyond `until_ns` counts up
    /// to there: the rest of it is the next event's.
    pub fn longest_within(gaps: &[Self], from_ns: u64, until_ns: u64) -> u64 {
        let part = |gap: &Self| gap.to_ns.min(until_ns).saturating_sub(gap.from_ns.max(from_ns));
        gaps.iter().map(part).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrivals, Gap, SHORTEST_NS};

    #[test]
    fn only_the_part_after_the_event_counts() {
        let mut arrivals = Arrivals::default();
        for at_ms in [0, 1, 2, 30, 31, 100] {
            arrivals.note(at_ms * SHORTEST_NS);
        }
        let gaps = arrivals.take_gaps();
        let ms = |from, until| {
            Gap::longest_within(&gaps, from * SHORTEST_NS, until * SHORTEST_NS) / SHORTEST_NS
        };
        assert_eq!(ms(10, 31), 20, "the gap began before the event");
        assert_eq!(ms(10, 60), 29, "of the one that lasts beyond the window, what is in it");
        assert_eq!(ms(10, 33), 20, "the next event's standstill is not this one's");
        assert_eq!(ms(100, 200), 0, "nothing stood still afterwards");
    }
}
