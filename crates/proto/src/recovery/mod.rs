//! Loss recovery of one packet number space: packets in flight, acknowledgements, loss detection,
//! and what acknowledgements measure: round trip, delay, rate and loss.
//!
//! Decides which packets count as lost and when feedback is sent. Knows neither addresses nor
//! keys, nor the rate of a path: `congestion` takes an [`AckSample`] and decides that.

pub mod decline;
pub mod delay;
pub mod feedback;
pub mod large;
pub mod lateness;
pub mod loss;
pub mod rate;
pub mod reordering;
pub mod replay;
pub mod rtt;
mod sample;
pub(crate) mod segmented;
pub mod sent_packets;

pub use sample::{AckSample, RateSample};

use crate::time::Duration;

/// A measurement that is older is not reported as the present state.
const FRESH: Duration = Duration::from_secs(2);
