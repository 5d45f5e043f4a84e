//! The wall clock, for times that people read and for the expiry of invites. Everything else uses
//! monotonic clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Seconds since 1970 by this host's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixSeconds(pub u64);

/// Now, by the wall clock. A clock before 1970 counts as 1970.
pub fn wall_clock() -> UnixSeconds {
    UnixSeconds(since_1970().as_secs())
}

/// The moment this long ago, by the wall clock, to the nearest second. Whole seconds of both would
/// make the result change by one from one call to the next.
pub fn ago(elapsed: Duration) -> UnixSeconds {
    let moment = since_1970().saturating_sub(elapsed).saturating_add(Duration::from_millis(500));
    UnixSeconds(moment.as_secs())
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
