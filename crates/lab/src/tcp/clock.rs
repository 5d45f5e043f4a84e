//! The clock of the timestamps option: milliseconds from an offset of its own (`tcp_ts_offset`).

use crate::emu::MS;

/// One tick.
const UNIT_NS: u64 = MS;

/// A clock with an offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    offset: u32,
}

impl Clock {
    pub(super) const fn new(offset: u32) -> Self {
        Self { offset }
    }

    /// What stands in the option.
    pub(super) const fn value(self, now_ns: u64) -> u32 {
        self.offset.wrapping_add((now_ns / UNIT_NS) as u32)
    }

    /// When it was `value`, rounded down; `None` for a time that has not come.
    pub(super) fn when_ns(self, now_ns: u64, value: u32) -> Option<u64> {
        let ago = self.value(now_ns).wrapping_sub(value).cast_signed();
        let ago = u64::try_from(ago).ok()?;
        (now_ns / UNIT_NS).checked_sub(ago).map(|ticks| ticks * UNIT_NS)
    }
}

/// Whether an echoed timestamp is from before a moment, by more than its unit hides.
pub(super) fn is_before(echo_ns: Option<u64>, moment_ns: u64) -> bool {
    echo_ns.is_some_and(|echo_ns| echo_ns / UNIT_NS < moment_ns / UNIT_NS)
}
