//! A busy machine. Other programs occupy both of its cores, so the node's shell gets its turns
//! late, and each turn finds in one batch everything that arrived meanwhile.
//!
//! This module decides how late each turn is and does not know what happens in it. The machine's
//! kernel (inner TCP, forwarding) is never late, because it runs in interrupts.
//!
//! The model is a sleeping program that Linux' fair scheduler (CFS, EEVDF) wakes, beside one
//! program per core that never sleeps. Mostly the woken program preempts at once. If it has used up
//! its share, it waits for a time slice of 3 to 4 ms, and sometimes for several. Beside programs at
//! raised priority it mostly waits, and for longer. Limits: a turn takes no time, and the lateness
//! of one turn does not depend on the one before.

use crate::emu::{MS, Rng};
use crate::ground::Load;

/// A kind of wait: the number of turns in 1,000 that have it, and its range in nanoseconds.
type Wait = (u64, (u64, u64));

/// Beside programs of the same priority: the shell preempts, waits for one time slice, waits for
/// several, or waits for a burst of kernel work or for the host of a virtual machine.
const EQUAL: [Wait; 4] =
    [(700, (20_000, MS)), (250, (MS, 4 * MS)), (48, (4 * MS, 10 * MS)), (2, (10 * MS, 50 * MS))];
/// Beside programs of raised priority, which get nine tenths of each core: the shell waits for a
/// slice each time, and for several once its small share is used up.
const RAISED: [Wait; 4] =
    [(300, (50_000, MS)), (500, (MS, 6 * MS)), (180, (6 * MS, 16 * MS)), (20, (16 * MS, 80 * MS))];

/// The lateness of one host's turns.
#[derive(Debug)]
pub(super) struct Busy {
    waits: [Wait; 4],
    rng: Rng,
}

impl Busy {
    /// The lateness beside this load; `None` without load.
    pub(super) fn new(load: Load, rng: Rng) -> Option<Self> {
        let waits = match load {
            Load::None => return None,
            Load::Equal => EQUAL,
            Load::Raised => RAISED,
        };
        Some(Self { waits, rng })
    }

    /// The lateness of the next turn in nanoseconds, never zero.
    pub(super) fn next_ns(&mut self) -> u64 {
        let mut drawn = self.rng.below(1_000);
        let mut within = self.waits[0].1;
        for (count, range) in self.waits {
            within = range;
            if drawn < count {
                break;
            }
            drawn -= count;
        }
        let (least, most) = within;
        least + self.rng.below(most - least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_are_as_often_and_as_long_as_said() {
        for (load, late_of_1000, longest_ms) in [(Load::Equal, 300, 50), (Load::Raised, 700, 80)] {
            let mut busy = Busy::new(load, Rng::new(1)).unwrap();
            let drawn: Vec<u64> = (0..20_000).map(|_| busy.next_ns()).collect();
            let late = drawn.iter().filter(|&&ns| ns >= MS).count() as u64 / 20;
            assert!(late.abs_diff(late_of_1000) < 15, "{load:?}: {late}");
            assert!(drawn.iter().all(|&ns| ns > 0 && ns < longest_ms * MS), "{load:?}");
            assert!(drawn.iter().any(|&ns| ns > longest_ms * MS / 2), "{load:?}");
        }
        assert!(Busy::new(Load::None, Rng::new(1)).is_none());
        for waits in [EQUAL, RAISED] {
            assert_eq!(waits.iter().map(|(count, _)| count).sum::<u64>(), 1_000);
        }
    }
}
