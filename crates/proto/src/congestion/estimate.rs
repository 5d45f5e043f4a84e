//! Estimates of the path and of flows that share its queue. Every other part of the controller
//! reads them. This module changes no state.

use super::round::ROUND_MIN;
use super::{Controller, Phase};
use crate::time::Duration;

impl Controller {
    /// The estimated rate of the path in bytes per second. On a new path this is the highest rate
    /// measured so far. `None` before the first measurement.
    pub fn rate(&self) -> Option<f64> {
        let known = match self.phase {
            Phase::Startup { known, .. } => known,
            Phase::Drain { .. } | Phase::Steady | Phase::Competes(_) => None,
        };
        known.or_else(|| (self.rate > 0.0).then_some(self.rate))
    }

    /// Whether the rate is known and the queue that startup built has drained.
    pub fn is_steady(&self) -> bool {
        matches!(self.phase, Phase::Steady | Phase::Competes(_))
    }

    /// The least round trip of the last 10 to 20 s. Before the first sample it is the initial
    /// value, 100 ms by default.
    pub const fn trip(&self) -> Duration {
        self.trip
    }

    /// The time until a change of the pace shows in the measured queue, in seconds.
    pub(super) fn lag(&self) -> f64 {
        let least = ROUND_MIN.as_secs_f64().max(self.trip.as_secs_f64());
        self.round.length.clamp(least, 2.0 * least + 0.2) + self.queue.lag()
    }

    /// Whether the path is sent on by a window, because other flows fill its queue.
    pub const fn competes(&self) -> bool {
        matches!(self.phase, Phase::Competes(_))
    }

    /// Whether trials suggest that other flows fill the queue.
    pub(super) fn is_suspicious(&self) -> bool {
        self.suspicion.is_some_and(|it| it.trials > 0)
    }

    /// The part of the queue that this sender may have caused, in seconds.
    pub(super) fn perhaps_own(&self) -> f64 {
        let floor = if let Phase::Competes(it) = self.phase { it.floor } else { 0.0 };
        (self.queue.whole() - floor).max(0.0)
    }
}
