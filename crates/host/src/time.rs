//! The wall clock, for times that people read and for the expiry of invites. Everything else uses
//! monotonic clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Seconds since 1970 by this host's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixSeconds(pub u64);

/// Now, by the wall clock. A clock before 1970 counts as 1970.
pub fn wall_clock() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |since| since.as_secs()))
}
