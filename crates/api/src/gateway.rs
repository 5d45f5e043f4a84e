//! The status of a gateway, its peers, and replies to an operator's commands.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::{Membership, PeerPath, Problem, Saved, SendFallback, SessionState};

/// The status of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Whether it runs.
    pub running: bool,
    /// The operator's public key.
    pub operator: String,
    /// The gateway's public key.
    pub gateway: String,
    /// The configured endpoints, as `HOST:PORT`.
    pub endpoints: Vec<String>,
    /// The networks inside the tunnel, in CIDR notation.
    pub networks: Vec<String>,
    /// The gateway's addresses inside the tunnel.
    pub inner: Vec<IpAddr>,
    /// Enrolled peers.
    pub enrolled: u64,
    /// Invites that can still be used.
    pub open_invites: u64,
    /// The last entries of the audit log.
    pub recent: Vec<AuditEntry>,
    /// Problems of the gateway and its host.
    pub problems: Vec<Problem>,
    /// The keys that only a running gateway has.
    #[serde(flatten)]
    pub sessions: Option<RunningGateway>,
    /// The keys about the host that only a running gateway has.
    #[serde(flatten)]
    pub host: Option<GatewayHost>,
}

/// The sessions of a running gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningGateway {
    /// Sessions with keys.
    pub sessions: u64,
    /// Sessions that were heard within [`Self::heard_within_s`].
    pub heard: u64,
    /// How recently a session must have been heard to count, in seconds.
    pub heard_within_s: u64,
    /// The same as [`Self::heard`], under the name that earlier versions used.
    pub connected: u64,
    /// Dropped packets, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Addresses that clients are told, best first.
    pub announced: Vec<SocketAddr>,
    /// Sessions that use the first announced address of their family.
    pub following: u64,
    /// Bytes that the gateway saved on what it sent in the sessions of now.
    #[serde(default)]
    pub saved: Saved,
}

/// The host of a running gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayHost {
    /// Whether addresses of clients are translated (NAT).
    pub nat: bool,
    /// Whether the host forwards packets.
    pub forwarding: bool,
    /// Whether a client's packet would leave the host, as a test packet showed. Missing if no test
    /// was possible.
    #[serde(default)]
    pub leaves: Option<Leaves>,
    /// The connections that the host's kernel tracks. Missing if it tracks none.
    #[serde(default)]
    pub connections: Option<Connections>,
}

/// Whether packets of each address family leave. Missing for a family without an inner network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Leaves {
    /// IPv4.
    pub ipv4: Option<bool>,
    /// IPv6.
    pub ipv6: Option<bool>,
}

/// The kernel's table of tracked connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Connections in it.
    pub tracked: u64,
    /// The most that the kernel keeps.
    pub max: u64,
    /// The most of one client; missing without a limit.
    pub share: Option<u32>,
}

/// One entry of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AuditEntry {
    /// When, in seconds since 1970.
    pub at: u64,
    /// What happened: `invited`, `enrolled`, `refused`, `revoked`, `withdrawn`, `allowed` or
    /// `restored`.
    pub event: String,
    /// The peer's name, where the event has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The peer's public key, where the event has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How many peers the invite can enrol, for `invited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<u32>,
    /// The reason, for `refused`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The whole list after the change, for `allowed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destinations: Option<Vec<String>>,
}

/// The peers and open invites of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peers {
    /// Peers, in the order in which they enrolled.
    pub peers: Vec<Peer>,
    /// Open invites, in the order in which they were issued.
    pub invites: Vec<Invite>,
}

/// A peer of a gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its public key.
    pub key: String,
    /// Whether it belongs to the gateway.
    pub state: Membership,
    /// Its addresses inside the tunnel.
    pub inner: Vec<IpAddr>,
    /// Networks that may lie behind it, in CIDR notation.
    pub subnets: Vec<String>,
    /// Destinations that it may reach beyond the Internet.
    pub allowed: Vec<String>,
    /// When it enrolled, in seconds since 1970.
    pub enrolled: u64,
    /// When it was revoked, in seconds since 1970.
    pub revoked: Option<u64>,
    /// The keys that are there only if a running gateway knows the peer.
    #[serde(flatten)]
    pub session: Option<PeerSession>,
}

/// The session of a peer. Counters are sums over its paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerSession {
    /// Its state.
    #[serde(rename = "session")]
    pub state: SessionState,
    /// Networks that the peer says lie behind it, in CIDR notation.
    pub advertised: Vec<String>,
    /// Since when two hosts use the peer's key, in seconds since 1970.
    pub shared_key_since: Option<u64>,
    /// How its paths send if segmented sends lose more than single ones; missing while they do
    /// not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<SendFallback>,
    /// The far end of the first path.
    pub remote: Option<SocketAddr>,
    /// Seconds since the last authentic datagram.
    pub last_heard_s: Option<u64>,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Datagrams sent with nothing but acknowledgements.
    pub feedback_datagrams: u64,
    /// The UDP payload of these, in bytes.
    pub feedback_bytes: u64,
    /// Bytes that the gateway saved on what it sent, on all paths of the session.
    #[serde(default)]
    pub saved: Saved,
}

/// An open invite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// The name of the first peer.
    pub name: String,
    /// How many peers it can enrol.
    pub uses: u32,
    /// How many peers it has enrolled.
    pub used: u32,
    /// When it expires, in seconds since 1970.
    pub expires: u64,
    /// Networks that may lie behind its peers, in CIDR notation.
    pub subnets: Vec<String>,
    /// Destinations that its peers may reach beyond the Internet.
    pub allowed: Vec<String>,
}

/// Paths of a gateway's sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerPaths {
    /// Whether these are all paths.
    pub complete: bool,
    /// How many paths there are.
    pub known: u64,
    /// The paths, those of the peer that was heard last first.
    pub paths: Vec<PeerPath>,
}

/// An invite was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invited {
    /// The invite, as one line of text.
    pub invite: String,
    /// The name of the first peer.
    pub name: String,
    /// How many peers it can enrol.
    pub uses: u32,
    /// When it expires, in seconds since 1970.
    pub expires: u64,
}

/// A membership was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// The name that was revoked.
    pub name: String,
    /// Whether a peer of that name was enrolled.
    pub revoked: bool,
    /// Whether an open invite was withdrawn.
    pub withdrawn: bool,
    /// The names of the invites that were withdrawn.
    pub invites: Vec<String>,
}

/// The list of allowed destinations was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// The peer's name.
    pub name: String,
    /// The whole list after the change.
    pub allowed: Vec<String>,
    /// Whether the peer has enrolled.
    pub enrolled: bool,
}

/// The gateway's first endpoint was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The new endpoint, as `HOST:PORT`.
    pub endpoint: String,
    /// The endpoint before, as `HOST:PORT`.
    pub before: String,
    /// How many sessions were told. Missing if the gateway does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub told: Option<u64>,
    /// Why clients may not reach the new endpoint, and the cure. Missing if there is no doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
}

/// Invites expire by the host's clock again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReset {
    /// The time by which invites expired before, in seconds since 1970.
    pub before: u64,
    /// The time by which they expire now, in seconds since 1970.
    pub now: u64,
    /// The names of the invites that can be used again.
    pub open_again: Vec<String>,
}

/// A gateway has read its configuration again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Whether the rest takes effect only after a restart.
    pub restart: bool,
}
