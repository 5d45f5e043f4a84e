//! The status of a client.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{
    DataUse, Device, LinkKind, LinkMode, LinkUse, PathManager, Problem, RecoveryFor, Saved,
    SessionState, TransportChoice,
};

/// The status of a client. The default is that of a client that does not run.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct ClientStatus {
    /// The state of the session.
    pub state: SessionState,
    /// Whether data sent now would arrive, as far as is known.
    pub carrying: bool,
    /// Since when the session has keys, in seconds since 1970.
    pub since: Option<u64>,
    /// The gateway's public key.
    pub gateway: Option<String>,
    /// The client's addresses inside the tunnel.
    pub inner: Vec<IpAddr>,
    /// The number of the path that carries data.
    pub path_in_use: Option<u32>,
    /// The transport of that path: `udp`, or `tcp` or `mptcp`, each also with `+tls`.
    pub transport: Option<String>,
    /// The name of that path's link.
    pub link: Option<String>,
    /// The client's present activity, in one sentence.
    pub doing: String,
    /// Whether a kill switch is in place; `None` if that is not known.
    pub kill_switch: Option<bool>,
    /// The configured transport.
    pub transport_wanted: Option<TransportChoice>,
    /// The mode.
    pub mode: Option<LinkMode>,
    /// The name of the scheduler.
    pub scheduler: Option<String>,
    /// The aim of the repair of losses.
    pub recovery: Option<RecoveryFor>,
    /// The path manager.
    pub manager: Option<PathManager>,
    /// Paths per pair of addresses.
    pub subflows: Option<u8>,
    /// The links, best first, then those that must not be used.
    pub links: Vec<Link>,
    /// The rehearsal that is under way, in words.
    pub rehearsal: Option<String>,
    /// Name servers that are asked through the tunnel.
    pub dns: Vec<IpAddr>,
    /// Domains that these name servers are asked for.
    pub dns_domains: Vec<String>,
    /// Captive portals that were found.
    pub portals: Vec<Portal>,
    /// The only networks that use the tunnel, if it is split.
    #[serde(default)]
    pub route: Vec<String>,
    /// Networks that do not use the tunnel: the first of them.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// How many networks do not use the tunnel.
    #[serde(default)]
    pub excluded: usize,
    /// Whether the private networks of this host's links stay outside the tunnel.
    #[serde(default)]
    pub allow_lan: bool,
    /// When the client uses as little data as it can.
    #[serde(default)]
    pub data: Option<DataUse>,
    /// Whether it does so now.
    #[serde(default)]
    pub saves_data: bool,
    /// The devices that the configuration names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Bytes that the client saved on what it sent.
    #[serde(default)]
    pub saved: Saved,
    /// The keys that only a running client has.
    #[serde(flatten)]
    pub running: Option<RunningClient>,
}

/// The part of a client's status that exists only while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunningClient {
    /// The gateway's addresses inside the tunnel; `None` before there is a lease.
    pub inner_gateway: Option<Vec<IpAddr>>,
    /// The MTU of the tunnel's interface, in bytes.
    pub mtu: u32,
    /// Dropped packets, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Problems of the client and its host.
    pub problems: Vec<Problem>,
    /// TCP connections that pass by the tunnel; `None` if the host's sockets cannot be listed.
    #[serde(default)]
    pub beside: Option<Beside>,
    /// The address families that the gateway gives no address of, and what becomes of their
    /// packets, a line each.
    #[serde(default)]
    pub not_carried: Vec<String>,
}

/// TCP connections whose packets do not use the tunnel, although it leads to their destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Beside {
    /// Those that came in on a link, and are answered there.
    pub incoming: usize,
    /// Those that Rove keeps: the SSH connection over which `rove up` was typed.
    pub kept: usize,
}

/// A link of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: LinkKind,
    /// When it carries data.
    #[serde(rename = "use")]
    pub usage: LinkUse,
    /// Why it does not always carry data, in words.
    pub why: Option<String>,
    /// Its unusual condition, in words: `just back`, `weak`, `leaving`, `no route` or
    /// `limits UDP`.
    pub state: Option<String>,
    /// The cost of data on it, in any unit.
    pub cost: u16,
    /// Whether its data is counted and paid for.
    pub metered: bool,
    /// How much data it may carry, as `500MB/day`.
    pub cap: Option<String>,
    /// How much of the cap is used, in bytes.
    pub used_bytes: Option<u64>,
    /// Its signal, in dBm.
    pub signal_dbm: Option<i8>,
}

/// A captive portal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Portal {
    /// The name of the link behind it.
    pub link: String,
    /// The URL of the page for signing in.
    pub page: String,
}
