//! Rehearsals: a link is taken out of use for a while, and its effect on each connection is
//! measured.

use serde::{Deserialize, Serialize};

/// A rehearsal has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RehearsalBegun {
    /// How long all its stages last together, in milliseconds.
    pub lasts_ms: u64,
}

/// The progress and result of a rehearsal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rehearsal {
    /// The name of the link.
    pub link: String,
    /// Whether it is over.
    pub over: bool,
    /// Whether it ended early because nobody asked for it any more.
    pub forsaken: bool,
    /// What is going on, in words; `None` when it is over.
    pub doing: Option<String>,
    /// How long the link is or was out of use, in milliseconds.
    pub without_ms: u64,
    /// The longest time between two looks at the connections, in milliseconds.
    pub blind_ms: u64,
    /// The connections.
    pub flows: Vec<RehearsedFlow>,
}

/// The effect on one connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RehearsedFlow {
    /// Protocol, local and remote end.
    pub tuple: String,
    /// Its class, such as `bulk` or `interactive`.
    pub class: String,
    /// Whether it is still open.
    pub open: bool,
    /// Before the link was taken out of use.
    pub before: Felt,
    /// While it was out of use.
    pub without: Felt,
    /// After it was back.
    pub after: Felt,
}

/// The effect on one connection in one stage.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Felt {
    /// Whether the connection was open then.
    pub known: bool,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Rate out, in Mbit/s.
    pub tx_mbps: f64,
    /// Rate in, in Mbit/s.
    pub rx_mbps: f64,
    /// The longest pause, in milliseconds.
    pub pause_ms: u64,
}
