//! A fast path is not paced. If a path carries 500 Mbit/s or more, the processors of both hosts
//! usually limit a session, not the network. Their queues come and go within milliseconds. The
//! round trip may be far shorter, and the controller takes each such queue for a rate too high. A
//! session on an idle network then reached a third of the rate that its hosts allow.
//!
//! So nothing paces an only path that proved to carry so much: the inner flows have congestion
//! controllers of their own. If a standing queue shows that the network is the limit, the path is
//! paced again for at least a minute. Several paths that carry together are always paced, because
//! the first would get everything otherwise.

use super::{Controller, Phase};
use crate::time::{Duration, Instant};

/// A path that carries so much is fast, bytes per second: 500 Mbit/s.
const RATE: f64 = 62.5e6;
/// The longest queue of a fast path, seconds. A receive buffer of 4 MB is no such queue from about
/// 1 Gbit/s on. A slower receiver may be one, and its path is paced again.
const QUEUE_MAX: f64 = 0.030;
/// Bytes on their way by a fast path at most: 1 Gbit/s over 130 ms.
pub(super) const WINDOW: f64 = 16e6;
/// A path with a longer queue is paced for so long.
const PACED: Duration = Duration::from_secs(60);

/// Whether a path is fast.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Fast {
    is_fast: bool,
    /// No other path of the session carries.
    is_alone: bool,
    /// It is paced until then at least.
    paced_until: Instant,
}

impl Fast {
    /// Whether the path is not paced.
    pub(super) const fn is_fast(self) -> bool {
        self.is_fast
    }

    /// The path begins anew: whether it is fast has to show again.
    pub(super) const fn forget(&mut self) {
        self.is_fast = false;
    }

    /// The path is paced again for a while.
    fn leave(&mut self, now: Instant) {
        if self.is_fast {
            (self.is_fast, self.paced_until) = (false, now + PACED);
        }
    }
}

impl Controller {
    /// Sets whether no other path of the session carries.
    pub(crate) const fn set_alone(&mut self, is_alone: bool) {
        self.fast.is_alone = is_alone;
        self.fast.is_fast &= is_alone;
    }

    /// Decides with each feedback whether the path is fast.
    pub(super) fn heed_fast(&mut self, now: Instant) {
        if self.fast.is_fast {
            if self.queue.least() > QUEUE_MAX + self.late_seconds() || self.competes() {
                self.fast.leave(now);
            }
        } else if matches!(self.phase, Phase::Startup { .. } | Phase::Steady) {
            self.fast.is_fast =
                self.fast.is_alone && self.rate >= RATE && now >= self.fast.paced_until;
        }
    }
}
