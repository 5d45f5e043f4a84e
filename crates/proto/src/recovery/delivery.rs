//! The delivery rate (draft-ietf-ccwg-bbr): how fast packets arrived, measured between two
//! acknowledgements.

use super::sample::RateSample;
use crate::time::{Duration, Instant};
use crate::wire::frame::Feedback;

/// What arrives further apart is no rate: the peer's clock was set, or begins anew.
const ARRIVING_MAX: Duration = Duration::from_secs(60);
/// Datagrams that left at the same moment, as far as the clock goes.
const NO_TIME: Duration = Duration::from_micros(1);

/// How much had arrived at a moment, and when it did: two of them are a rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    /// Bytes that had arrived.
    bytes: u64,
    /// When the newest of them did, by the peer's clock in wrapping microseconds; `None` before
    /// that was known.
    at_us: Option<u32>,
    /// When that one had left.
    left_at: Instant,
}

impl Mark {
    /// Bytes that had arrived.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nothing is in flight: the time until something is sent is no part of a rate.
    pub(super) const fn restart(&mut self, now: Instant) {
        (self.at_us, self.left_at) = (None, now);
    }

    /// So many more bytes arrived, the newest at this time of the peer's clock. It left then.
    pub(super) const fn take(&mut self, delivered: u64, newest: Option<(u32, Instant)>) {
        self.bytes += delivered;
        if let Some((arrived_us, left_at)) = newest {
            (self.at_us, self.left_at) = (Some(arrived_us), left_at);
        }
    }

    /// The rate at which datagrams arrived from this mark, which held when the newest left at
    /// `left_at`, until the newest was there. What leaves while nothing is in flight has no arrival
    /// before it: there the time runs until this is told.
    pub(super) fn rate(
        self,
        now: Instant,
        left_at: Instant,
        feedback: &Feedback,
        is_limited: bool,
    ) -> Option<RateSample> {
        let (arriving, leaving) = match self.at_us {
            Some(at_us) => (
                Duration::from_micros(feedback.arrived_us.wrapping_sub(at_us).into()),
                left_at.saturating_since(self.left_at),
            ),
            None => (now.saturating_since(self.left_at), now.saturating_since(self.left_at)),
        };
        let longer = arriving.max(leaving);
        if longer.is_zero() || arriving > ARRIVING_MAX {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "bytes of a round trip or so")]
        let arrived = feedback.bytes.saturating_sub(self.bytes) as f64;
        Some(RateSample {
            bytes_per_second: arrived / longer.as_secs_f64(),
            left_per_second: arrived / leaving.max(NO_TIME).as_secs_f64(),
            is_limited,
            prior_delivered: self.bytes,
        })
    }
}
