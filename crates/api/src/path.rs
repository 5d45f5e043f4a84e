//! Paths of a session and their counters.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{ControllerPhase, LinkUse, PathState, SendLimit};

/// The part of a path that both ends know. Rates count UDP payload; `out` and `in` are as seen from
/// the node that answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Its number within the session.
    pub id: u32,
    /// The local address.
    pub local: Option<IpAddr>,
    /// The other end.
    pub remote: SocketAddr,
    /// Its state.
    pub state: PathState,
    /// What carries it: `udp`, or `tcp` or `mptcp`, each also with `+tls`.
    pub transport: String,
    /// The scheduler by which it shares data with other paths.
    pub scheduler: Option<String>,
    /// Whether this end retransmits what the path loses.
    #[serde(default)]
    pub repairs: bool,
    /// The congestion controller for what this end sends; none if the path has no share.
    pub controller: Option<Controller>,
    /// The MPTCP subflows.
    pub subflows: Option<Vec<Subflow>>,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: Option<u64>,
    /// Rate out, as it arrives at the other end, in Mbit/s.
    pub rate_mbps: Option<f64>,
    /// Rate in, in Mbit/s.
    pub rx_rate_mbps: Option<f64>,
    /// Lost part of the packets sent, 0 to 1.
    pub loss: Option<f64>,
    /// Queueing delay on the path, in milliseconds.
    pub queue_ms: Option<f64>,
    /// Part of the session's data that uses it, 0 to 1.
    pub share: Option<f64>,
    /// How it sends if segmented sends lose more than single ones; missing while they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<SendFallback>,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Milliseconds since the last authentic datagram.
    pub last_heard_ms: Option<u64>,
    /// The UDP payload that it is known to carry, in bytes.
    pub mtu: u64,
    /// Inner packets that were sent in pieces because they are larger than the MTU.
    pub split: u64,
    /// Inner packets that were retransmitted on it.
    pub retransmitted: u64,
    /// Bytes of duplicated latency-sensitive packets.
    pub copied_bytes: u64,
    /// Datagrams with nothing but acknowledgements.
    pub feedback_datagrams: u64,
    /// The UDP payload of these, in bytes.
    pub feedback_bytes: u64,
    /// Bytes that this end saved on what it sent.
    #[serde(default)]
    pub saved: Saved,
}

/// Bytes that were saved on packets that were sent, as they would count on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Saved {
    /// By headers that travel once.
    pub elision: u64,
    /// By compression.
    pub compression: u64,
    /// By packets that share a datagram.
    pub aggregation: u64,
    /// Bytes of memory that compression saved on packets that waited for a path: of a session. They
    /// are no part of [`Self::total`].
    #[serde(default)]
    pub waiting: u64,
}

impl Saved {
    /// All that did not go over the network.
    pub const fn total(&self) -> u64 {
        self.elision + self.compression + self.aggregation
    }
}

/// How a path sends while segmented sends lose more than single ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendFallback {
    /// The way to send.
    pub sends: Sends,
    /// For how long, in milliseconds.
    pub for_ms: u64,
}

/// A way to send datagrams other than by plain segmentation offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sends {
    /// Segmented, with a last segment that is shorter than the others.
    ShortLast,
    /// One datagram at a time.
    Single,
}

/// The congestion controller of a path: why this end does not send more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Controller {
    /// How far the controller knows the path.
    pub phase: ControllerPhase,
    /// Estimated rate of the path, in Mbit/s of UDP payload; 0 before the first feedback.
    pub rate_mbps: f64,
    /// Pacing rate, in Mbit/s of UDP payload.
    pub pacing_mbps: f64,
    /// Congestion window, in bytes.
    pub window_bytes: u64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// What keeps this end from sending more.
    pub limited_by: SendLimit,
}

/// One subflow of an MPTCP connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subflow {
    /// The name of its link, on a client.
    pub link: Option<String>,
    /// The local end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Bytes sent, retransmissions included.
    pub tx_bytes: u64,
    /// Bytes received in order.
    pub rx_bytes: u64,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u64,
}

/// A path of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientPath {
    /// The part that both ends know.
    #[serde(flatten)]
    pub path: Path,
    /// The name of its link.
    pub link: Option<String>,
    /// The place of that link, 1 for the best.
    pub link_rank: Option<u64>,
    /// What is unusual about that link, in words: `just back`, `weak`, `leaving` or `no route`.
    pub link_state: Option<String>,
    /// When that link carries data.
    pub link_use: Option<LinkUse>,
    /// The URL of the captive portal in front of that link.
    pub portal: Option<String>,
    /// The signal of that link, in dBm.
    pub signal_dbm: Option<i8>,
}

/// A path of a gateway's session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerPath {
    /// The part that both ends know.
    #[serde(flatten)]
    pub path: Path,
    /// The name of the peer, or its key after it was revoked.
    pub peer: String,
}
