//! How much later than others a datagram may arrive on a path and not be lost.
//!
//! Grows where what was taken for lost comes after all, and shrinks where nothing does, as in
//! RFC 8985, section 6.2, by another measure.

use super::rtt::Rtt;
use crate::id::PacketNumber;
use crate::time::Duration;

/// By which part of the round trip the reordering window grows when something was late only,
const LATE_PART: u32 = 8;
/// and after how many datagrams in a row without that it shrinks by as much.
const IN_ORDER: u64 = 4_096;

/// How much later than others a datagram may arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reordering {
    window: Duration,
    /// Datagrams that arrived and had been taken for lost.
    late: u64,
    /// The highest number when that was told last.
    told_at: PacketNumber,
}

impl Reordering {
    /// So many have arrived that were taken for lost, in all.
    pub fn told(&mut self, largest: PacketNumber, late: u64, rtt: &Rtt) {
        let part = rtt.smoothed() / LATE_PART;
        if late > self.late {
            self.window = (self.window + part).min(rtt.smoothed());
        } else if largest.saturating_sub(self.told_at) >= IN_ORDER {
            self.window = self.window.saturating_sub(part);
        } else {
            return;
        }
        (self.late, self.told_at) = (late, largest);
    }

    /// Later by so much, what others have overtaken is not lost yet.
    pub const fn window(&self) -> Duration {
        self.window
    }
}
