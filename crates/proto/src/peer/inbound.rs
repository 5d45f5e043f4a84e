//! What this end remembers of packets that come out of their sequence (`deliver`).

use crate::time::{Duration, Instant};

/// How packets come out of the sequence at this end.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// There is no room for what arrived in sequence before.
    pub(super) rests_until: Instant,
    /// When something last came whose turn had been given up, and how long a gap is held open
    /// because of that.
    pub(super) lateness: Option<(Instant, Duration)>,
    /// Room for one packet that comes out.
    pub(super) packet: Vec<u8>,
}
