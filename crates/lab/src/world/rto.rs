//! How long a TCP waits before it sends again what nobody acknowledged (RFC 6298).

use crate::emu::{MS, SECOND};

/// The shortest wait, in nanoseconds: Linux's.
const MIN_NS: u64 = 200 * MS;
/// The first, before anything was measured (RFC 6298, 2.1).
const FIRST_NS: u64 = SECOND;

/// What round trips so far say about the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rto {
    smoothed: Option<(u64, u64)>,
    now_ns: u64,
    longest_ns: u64,
}

impl Rto {
    /// Nothing was measured. No wait is longer than `longest_ns`.
    pub(super) const fn new(longest_ns: u64) -> Self {
        Self { smoothed: None, now_ns: FIRST_NS, longest_ns }
    }

    /// How long to wait.
    pub(super) const fn ns(&self) -> u64 {
        self.now_ns
    }

    /// A round trip took this long.
    pub(super) fn sample(&mut self, elapsed_ns: u64) {
        let (smoothed, variance) = match self.smoothed {
            None => (elapsed_ns, elapsed_ns / 2),
            Some((smoothed, variance)) => {
                let difference = smoothed.abs_diff(elapsed_ns);
                ((smoothed * 7 + elapsed_ns) / 8, (variance * 3 + difference) / 4)
            }
        };
        self.smoothed = Some((smoothed, variance));
        self.now_ns = (smoothed + 4 * variance).clamp(MIN_NS, self.longest_ns);
    }

    /// It was waited for in vain.
    pub(super) fn back_off(&mut self) {
        self.now_ns = (self.now_ns * 2).min(self.longest_ns);
    }
}
