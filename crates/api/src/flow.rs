//! Open connections.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::{Hold, Node};

/// Open connections of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// The role of the node; `None` if none runs.
    pub node: Option<Node>,
    /// The connections that are most worth a look, held ones first.
    pub flows: Vec<Flow>,
    /// How many connections are known.
    pub known: u64,
    /// Whether all connections were counted.
    pub complete: bool,
    /// Held data of all connections, in bytes.
    pub held_bytes: u64,
    /// The memory for that, in bytes; `None` if no node runs.
    pub memory_bytes: Option<u64>,
    /// The hold of a connection to which no rule applies; `None` if no node runs.
    pub hold: Option<Hold>,
    /// How many rules say what is held.
    pub rules: u64,
    /// Whether the client's packet filters block packets to the address that was asked for, on the
    /// link where they would leave; `None` if no address was, or a connection to it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<bool>,
}

/// Connections that `rove explain` explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The connections.
    pub flows: Vec<Flow>,
    /// Whether the address that was asked for uses the tunnel, if no connection to it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses_tunnel: Option<bool>,
    /// Whether Rove's packet filters block its packets, if they do not use the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<bool>,
}

/// What a rule says of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSays {
    /// The property: `strength`, `priority`, `goal` or `copies`.
    pub property: String,
    /// Its value, as in the configuration.
    pub value: String,
    /// The rule: `rule` and its number, or `device` and its name.
    pub rule: String,
}

/// A device behind a client, as the configuration names it. What is not there, rules and the client
/// decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its address or subnet.
    pub address: String,
    /// The least key length of the cipher for its flows, in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strength: Option<u16>,
    /// Its priority level, 1 for the highest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// What its flows are to have above all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Whether copies of its realtime packets leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<String>,
}

/// One open connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Protocol, local and remote end.
    pub tuple: String,
    /// `tcp`, `udp` or `other`.
    pub protocol: String,
    /// The local end.
    pub local: String,
    /// The remote end.
    pub remote: String,
    /// The other end of the tunnel: its name, else its key.
    pub peer: Option<String>,
    /// Its class, such as `bulk` or `interactive`.
    pub class: String,
    /// Its priority level, 1 for the highest.
    pub level: u8,
    /// The device behind the client that it belongs to, by its name in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What rules of the configuration say of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleSays>,
    /// The receive window that its sender is shown so that others get their share, in bytes.
    pub narrowed_to_bytes: Option<u32>,
    /// Data that waits at the tunnel's entry, in bytes.
    pub queued_bytes: Option<u64>,
    /// The queueing delay that is aimed at there, in milliseconds.
    pub queue_target_ms: Option<u64>,
    /// How long the delay may exceed that before the flow is slowed down, in milliseconds.
    pub queue_interval_ms: Option<u64>,
    /// The cipher suite.
    pub profile: Option<String>,
    /// The number of the first path that it uses.
    pub path: Option<u32>,
    /// The link of that path, on a client.
    pub link: Option<String>,
    /// All links that it uses, on a client.
    pub links: BTreeSet<String>,
    /// The far ends of all paths that it uses.
    pub remotes: BTreeSet<SocketAddr>,
    /// Why these paths were chosen, in words.
    pub chosen: Option<String>,
    /// Held data, in bytes.
    pub held_bytes: u64,
    /// How much of that was acknowledged locally and is not yet delivered, in bytes.
    pub owed_bytes: u32,
    /// The state of local acknowledgement: `normal`, `assisted`, `suspended`, `resuming` or
    /// `broken`.
    pub state: String,
    /// The stage of the connection, such as `established`.
    pub stage: String,
    /// Whether anything has come from the remote end. If not, the packets may end at the gateway's
    /// host.
    pub answered: bool,
    /// Milliseconds since its last packet.
    pub idle_ms: u64,
    /// Why it is treated as it is, in words.
    pub why: String,
}
