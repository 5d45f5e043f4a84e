//! A fast path is not paced. If a path carries 500 Mbit/s or more, the processors of both hosts
//! usually limit a session, not the network. Their queues come and go within milliseconds. The
//! round trip may be far shorter, and the controller takes each such queue for a rate too high. A
//! session on an idle network then reached a third of the rate that its hosts allow.
//!
//! So nothing paces an only path that proved to carry so much: the inner flows have congestion
//! controllers of their own. If a standing queue shows that the network is the limit, the path is
//! paced again for at least a minute. Several paths that carry together are always paced, because
//! the first would get everything otherwise.

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
    /// The path is not paced.
    pub(super) is_fast: bool,
    /// No other path of the session carries.
    is_alone: bool,
    /// It is paced until then at least.
    paced_until: Instant,
}

impl Fast {
    /// Whether no other path of the session carries.
    pub(super) const fn set_alone(&mut self, is_alone: bool) {
        self.is_alone = is_alone;
        self.is_fast &= is_alone;
    }

    /// Decides with each feedback: so many seconds wait, of which `late` are explained by late
    /// hosts. `rate` is what the path carries, unless it drains or others fill its queue.
    pub(super) fn feedback(&mut self, now: Instant, queue: f64, late: f64, rate: Option<f64>) {
        if !self.is_fast {
            let is_enough = rate.is_some_and(|rate| rate >= RATE);
            self.is_fast = is_enough && self.is_alone && now >= self.paced_until;
        } else if queue > QUEUE_MAX + late {
            (self.is_fast, self.paced_until) = (false, now + PACED);
        }
    }
}
