//! What a controller makes of hosts that are late: on a busy machine turns come milliseconds after
//! they are due, and reports are read, or sent, as much later.
//!
//! A path that is not sent on for a moment runs dry, and nothing makes up for that afterwards but a
//! queue that was there before. So the queue holds what the path carries while a turn is late, and
//! what could have left meanwhile leaves with the turn. Both are bounded by half a round trip:
//! buffers of routers hold about a whole one. Reports that come later mean that more is on its way
//! without one. Where nothing is late all of this is zero.

use super::Controller;
use crate::time::Duration;

/// The most that leaves with a late turn, in time at the pace: it is a burst for the path.
pub(super) const CREDIT_LATE: Duration = Duration::from_millis(20);

/// How late hosts usually are at most.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Late {
    /// This host with its turns.
    pub(super) turns: Duration,
    /// Both hosts with a report, from what it tells of until it is read.
    pub(super) reports: Duration,
}

impl Controller {
    /// The turns of this host are usually so late at most, and so late reports from the other end.
    pub const fn set_lateness(&mut self, turns: Duration, reports: Duration) {
        self.late = Late { turns, reports };
    }

    /// So late the turns of this host usually are at most: that nothing left for so long does not
    /// mean that there was nothing to send.
    pub const fn turns_late(&self) -> Duration {
        self.late.turns
    }

    /// The same as far as the path has room for it.
    pub(super) fn late_bounded(&self) -> Duration {
        self.late.turns.min(self.trip / 2)
    }

    /// What lateness may change in how long datagrams seem to have waited, seconds.
    pub(super) fn late_seconds(&self) -> f64 {
        (self.late.turns + self.late.reports).as_secs_f64()
    }
}
