//! Segments leave no faster than a rate (`tcp_output.c`: `tcp_update_skb_after_send`).

use crate::emu::SECOND;

/// When the next segment may leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    at_ns: u64,
    /// How many may still leave with the last.
    together: u32,
}

impl Pacer {
    /// Whether nothing may leave now.
    pub(super) const fn holds(&self, now_ns: u64) -> bool {
        self.together == 0 && now_ns < self.at_ns
    }

    /// When something may leave.
    pub(super) const fn free_ns(&self) -> u64 {
        self.at_ns
    }

    /// A segment of so many bytes leaves at `rate` bytes a second, `burst` of them together. Time
    /// that was not used counts for half of what it takes.
    pub(super) fn sends(&mut self, now_ns: u64, bytes: u64, rate: u64, burst: u32) {
        self.together = match self.together {
            0 => burst.saturating_sub(1),
            left => left - 1,
        };
        let length_ns = (u128::from(bytes) * u128::from(SECOND) / u128::from(rate.max(1))) as u64;
        let unused_ns = now_ns.saturating_sub(self.at_ns).min(length_ns / 2);
        self.at_ns = self.at_ns.max(now_ns) + length_ns - unused_ns;
    }
}
