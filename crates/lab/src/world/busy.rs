//! A busy machine: other programs occupy both of its cores, so that the shell of its node has its
//! turns late, and finds in one batch what arrived meanwhile.
//!
//! Decides how late each turn is. Knows nothing of what happens in a turn; the kernel of the
//! machine (inner TCP, forwarding) is never late, since it runs in interrupts.
//!
//! Modelled on a sleeper that the fair scheduler of Linux wakes (CFS, EEVDF) beside one program per
//! core that never sleeps: mostly it preempts at once; where it has used up its share it waits for
//! a time slice of 3 to 4 ms, and now and then for several. Beside programs at raised priority it
//! mostly waits, and for longer. Limits: a turn itself takes no time, and one is as late as the
//! next by chance alone.

use crate::emu::{MS, Rng};
use crate::ground::Load;

/// A kind of wait: how many of 1,000 turns have it, and between what it lies, in nanoseconds.
type Wait = (u64, (u64, u64));

/// Beside programs of the same priority: preempts, waits for a time slice, for several, or for a
/// burst of kernel work or the host of a virtual machine.
const EQUAL: [Wait; 4] =
    [(700, (20_000, MS)), (250, (MS, 4 * MS)), (48, (4 * MS, 10 * MS)), (2, (10 * MS, 50 * MS))];
/// Beside programs of raised priority, which have nine tenths of each core: a slice is waited for
/// each time, and several once the small share is used up.
const RAISED: [Wait; 4] =
    [(300, (50_000, MS)), (500, (MS, 6 * MS)), (180, (6 * MS, 16 * MS)), (20, (16 * MS, 80 * MS))];

/// How late the turns of one host are.
#[derive(Debug)]
pub(super) struct Busy {
    waits: [Wait; 4],
    rng: Rng,
}

impl Busy {
    /// Beside such programs; `None` where there are none.
    pub(super) fn new(load: Load, rng: Rng) -> Option<Self> {
        let waits = match load {
            Load::None => return None,
            Load::Equal => EQUAL,
            Load::Raised => RAISED,
        };
        Some(Self { waits, rng })
    }

    /// How late the next turn is, in nanoseconds: never zero.
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
