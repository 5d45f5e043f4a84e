//! How a controller handles late hosts. On a busy machine, the data thread's turns come
//! milliseconds late, and reports are sent or read late too.
//!
//! If nothing is sent on a path for a moment, its bottleneck runs idle, and only a queue that
//! existed before can prevent that. So the target queue also covers the time of a late turn, and a
//! late turn may send the datagrams that could have left meanwhile. Both are limited to half a
//! round trip, because the buffers of routers hold about a whole one. If reports come late, more
//! data is in flight without a report. On a quiet machine all of these values are zero.

use super::Controller;
use crate::time::Duration;

/// The limit on data that leaves with a late turn, in time at the pacing rate. It is a burst for
/// the path.
pub(super) const CREDIT_LATE: Duration = Duration::from_millis(20);

/// The usual maximum lateness of the hosts.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Late {
    /// Lateness of this host's turns.
    pub(super) turns: Duration,
    /// Lateness of both hosts with a report, from the arrival of the reported datagram until the
    /// report is read.
    pub(super) reports: Duration,
}

impl Controller {
    /// Sets the usual maximum lateness of this host's turns and of reports from the other end.
    pub(crate) const fn set_lateness(&mut self, turns: Duration, reports: Duration) {
        self.late = Late { turns, reports };
    }

    /// The usual maximum lateness of this host's turns. If nothing left for this time, that does
    /// not mean that there was nothing to send.
    pub(crate) const fn turns_late(&self) -> Duration {
        self.late.turns
    }

    /// The same, limited by the room of the path.
    pub(super) fn late_bounded(&self) -> Duration {
        self.late.turns.min(self.trip / 2)
    }

    /// The change in measured queueing delay that lateness may cause, in seconds.
    pub(super) fn late_seconds(&self) -> f64 {
        (self.late.turns + self.late.reports).as_secs_f64()
    }
}
