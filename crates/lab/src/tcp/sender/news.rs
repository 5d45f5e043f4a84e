//! What an acknowledgment newly tells: found step by step, and read by what repairs and what grows.

/// What an acknowledgment newly tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// SND.UNA moved.
    pub(super) advanced: bool,
    /// Segments that have newly arrived, in order or not.
    pub(super) delivered: u32,
    /// Segments that SACK blocks newly name.
    pub(super) sacked: bool,
    /// What was sent once only, before recovery began, has arrived.
    pub(super) original: bool,
    /// It says nothing at all.
    pub(super) nothing: bool,
    /// A duplicate has arrived at the other end.
    pub(super) duplicate: bool,
    /// ... and it was that of the tail loss probe.
    pub(super) probe_duplicate: bool,
    /// When the acknowledged echo was ours.
    pub(super) echo_ns: Option<u64>,
    /// Segments newly found lost.
    pub(super) losses: u32,
    /// The retransmission timer starts anew.
    pub(super) rearms: bool,
}
