//! What one acknowledgement tells the congestion controller.

use crate::time::Duration;

/// A measurement that is older is not reported as the present state.
pub(super) const FRESH: Duration = Duration::from_secs(2);

/// What one feedback frame tells. Bytes are whole UDP payloads.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct AckSample {
    /// Bytes newly known to have arrived.
    pub delivered: u64,
    /// Bytes known to have arrived in all, perhaps since before there was a controller.
    pub arrived: u64,
    /// Bytes newly known to be lost.
    pub lost: u64,
    /// Bytes that are still on their way after this feedback.
    pub in_flight: u64,
    /// How fast the newest datagram of the feedback and those before it arrived.
    pub rate: Option<RateSample>,
    /// The round trip of that datagram, without the time for which the receiver held it.
    pub trip: Option<Duration>,
    /// How long that datagram waited on its way to the peer beyond the least of the last half
    /// minute; `None` when that is not known, and then the round trip stands for it.
    pub queue: Option<Duration>,
}

impl AckSample {
    /// Bytes that were in flight before this feedback.
    pub(crate) const fn in_flight_before(&self) -> u64 {
        self.in_flight.saturating_add(self.delivered).saturating_add(self.lost)
    }
}

/// Delivered rate at one datagram (draft-ietf-ccwg-bbr, delivery rate samples).
///
/// What arrived between the newest feedback that was known when the datagram left and the one
/// that tells of its arrival, over the longer of the times in which all of that was sent (by the
/// sender's clock) and in which it arrived (by the receiver's). For what leaves while nothing is
/// on its way, up to the next feedback, it is the time since the first of that left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RateSample {
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// The rate at which the same bytes left: more where the path holds them up, the same where
    /// the time of their arrival is not known.
    pub left_per_second: f64,
    /// Whether there was nothing more to send since the feedback that the rate is measured from:
    /// so of all that leaves until what is on its way at such a time has arrived, and of what
    /// leaves with nothing on its way, up to the next feedback.
    pub is_limited: bool,
    /// [`AckSample::arrived`] when the datagram left.
    pub prior_delivered: u64,
}
