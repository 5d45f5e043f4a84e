//! A fast path is not paced. On a path that carries 500 Mbit/s or more it is rarely the network
//! that limits a session, it is the processors of both hosts. Their queues come and go within
//! milliseconds, far longer than the round trip of such a path, and each looks like too high a
//! rate. Paced by that, a session on an idle network reached a third of what its hosts could do.
//!
//! So a path that proved to carry so much is sent on as fast as the inner flows send, as by a
//! tunnel without a congestion controller; each of them has its own. Where a standing queue shows
//! that the network is what limits it, the path is paced again, and not tried for a while.

use super::{Controller, Phase};
use crate::time::{Duration, Instant};

/// A path that carries so much is fast, bytes per second: 500 Mbit/s.
const RATE: f64 = 62.5e6;
/// The longest queue of a fast path, seconds. Hosts alone cannot make one: the 4 MB of a receive
/// buffer pass in 64 ms at [`RATE`], and in half the time at twice the rate.
const QUEUE_MAX: f64 = 0.030;
/// Bytes on their way by a fast path at most: 1 Gbit/s over 130 ms.
pub(super) const WINDOW: f64 = 16e6;
/// A path with a longer queue is paced for so long.
const PACED: Duration = Duration::from_secs(60);

/// Whether a path is fast.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Fast {
    is_fast: bool,
    /// It is paced until then at least.
    paced_until: Instant,
}

impl Fast {
    /// Whether the path is not paced.
    pub(super) const fn is_fast(self) -> bool {
        self.is_fast
    }

    /// The path is paced again.
    pub(super) fn leave(&mut self, now: Instant) {
        if self.is_fast {
            *self = Self { is_fast: false, paced_until: now + PACED };
        }
    }
}

impl Controller {
    /// Whether the path is fast is looked at with every feedback.
    pub(super) fn heed_fast(&mut self, now: Instant) {
        if self.fast.is_fast {
            if self.queue.least() > QUEUE_MAX + self.late_seconds() || self.competes() {
                self.fast.leave(now);
            }
        } else if matches!(self.phase, Phase::Startup { .. } | Phase::Steady) {
            self.fast.is_fast = self.rate >= RATE && now >= self.fast.paced_until;
        }
    }
}
