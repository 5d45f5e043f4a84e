//! Requests to a node.

use serde::{Deserialize, Serialize};

use crate::{DataUse, LinkMode, LinkUse, PathManager, RecoveryFor};

/// One request. A node refuses a request or a field that it does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The status of a client ([`crate::ClientStatus`]) or a gateway ([`crate::GatewayStatus`]).
    Status,
    /// Every path of a client's session: a list of [`crate::ClientPath`].
    Paths,
    /// Open connections: [`crate::Flows`].
    Flows {
        /// Only connections that match all these words: a protocol, a class, an end, an address or
        /// a port.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        meant: Vec<String>,
        /// The user whose packets are asked about if no connection matches. Routing rules may treat
        /// users differently. The default is the node's user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<u32>,
    },
    /// Read the configuration again.
    Reload,
    /// Change how many links carry data.
    SetMode {
        /// The new mode.
        mode: LinkMode,
    },
    /// Take a link out of use for a while, as if it were unplugged: [`crate::RehearsalBegun`].
    Rehearse {
        /// The link's name.
        unplug: String,
        /// For how long, as `30s` or `2m`.
        lasts: String,
        /// Proceed even if no other link is known to work.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// The progress and result of the last rehearsal: [`crate::Rehearsal`]. The program that began
    /// it must ask at least every second, else the rehearsal ends.
    Rehearsed,
    /// Change how the link of each packet is chosen.
    SetScheduler {
        /// The scheduler's name.
        scheduler: String,
    },
    /// Change what the repair of losses is tuned for.
    SetRecovery {
        /// The new aim.
        recovery: RecoveryFor,
    },
    /// Change which paths carry data together.
    SetManager {
        /// The new path manager.
        manager: PathManager,
    },
    /// Change how many paths there are between two addresses.
    SetSubflows {
        /// Paths per pair of addresses.
        subflows: u8,
    },
    /// Change when the client uses as little data as it can.
    SetData {
        /// The new time.
        data: DataUse,
    },
    /// Change a setting of one link.
    SetLink {
        /// The link's name.
        name: String,
        /// The setting.
        setting: LinkSetting,
    },
    /// End the client and remove the kill switch.
    Down,
    /// Every peer and open invite of a gateway: [`crate::Peers`].
    Peers,
    /// Every path of a gateway's sessions: [`crate::PeerPaths`].
    PeerPaths {
        /// Only the paths of this peer.
        name: Option<String>,
    },
    /// Issue an invite: [`crate::Invited`].
    Invite {
        /// The name of the first peer.
        name: String,
        /// How many peers it can enrol.
        uses: u32,
        /// For how long it can be used, as `24h` or `7d`.
        expires: String,
        /// Networks that may lie behind the peer, in CIDR notation.
        subnets: Vec<String>,
    },
    /// End a membership: [`crate::Revoked`].
    Revoke {
        /// The peer's name.
        name: String,
    },
    /// Change which destinations a peer may reach: [`crate::Allowed`].
    Allow {
        /// The peer's name.
        name: String,
        /// Destinations to add: a network, with a port if only that is allowed.
        destinations: Vec<String>,
        /// Whether to empty the list first.
        reset: bool,
    },
    /// Change the gateway's first endpoint: [`crate::Moved`].
    Move {
        /// The new endpoint, as `HOST:PORT`.
        endpoint: String,
        /// The gateway's record about it, signed by the operator. Without it the gateway signs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<String>,
    },
    /// Accept the clock as right although it is behind: [`crate::ClockReset`].
    ResetClock,
    /// The whole store of a gateway, for a backup.
    Snapshot,
    /// The last entries of the audit log: a list of [`crate::AuditEntry`].
    Log {
        /// How many entries.
        entries: u32,
    },
}

/// One setting of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkSetting {
    /// When it carries data.
    Use(LinkUse),
    /// What data costs on it, in any unit: a cheaper link is preferred.
    Cost(u16),
    /// Whether its data is counted and paid for.
    Metered(bool),
    /// How much data it may carry, as `500MB/day`, or `none`.
    Cap(String),
    /// When it carries data after the cap is reached.
    AtCap(LinkUse),
}
