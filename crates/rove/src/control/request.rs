//! What can be asked of a running node. Names and fields are only ever added.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{LinkMode, LinkScheduler, LinkSetting, PathManager, RecoveryFor, Subflows};
use crate::values::{Destination, Endpoint, Lifetime, PeerName};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How is it?
    Status,
    /// Every path.
    Paths,
    /// Every open connection.
    Flows {
        /// Only those that all these words fit: a protocol, a class, an end, its address or port.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        meant: Vec<String>,
    },
    /// Read the configuration again.
    Reload,
    /// Make something else of the links.
    SetMode {
        /// What.
        mode: LinkMode,
    },
    /// Use a link no more for a while, as if it had been unplugged.
    Rehearse {
        /// The link's name.
        unplug: String,
        /// For how long.
        lasts: Lifetime,
        /// Also if nothing is known to carry beside it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    },
    /// How far the rehearsal is, or what became of it. Whoever began it asks at least every second:
    /// it ends when nobody does.
    Rehearsed,
    /// Choose otherwise among links that carry together.
    SetScheduler {
        /// How.
        scheduler: LinkScheduler,
    },
    /// Let connections have something else by repair.
    SetRecovery {
        /// What.
        recovery: RecoveryFor,
    },
    /// Have other paths carry together.
    SetManager {
        /// By which ways.
        manager: PathManager,
    },
    /// Have more of them, or fewer.
    SetSubflows {
        /// How many each way.
        subflows: Subflows,
    },
    /// Make something else of one link.
    SetLink {
        /// Its name.
        name: String,
        /// What.
        setting: LinkSetting,
    },
    /// End, and take down the kill switch.
    Down,
    /// Every peer and open invite.
    Peers,
    /// Every path of a gateway's sessions.
    PeerPaths {
        /// Only this peer's.
        name: Option<PeerName>,
    },
    /// Issue an invite.
    Invite {
        /// The name of the first peer.
        name: PeerName,
        /// For how many.
        uses: u32,
        /// For how long.
        expires: Lifetime,
        /// What may lie behind the peer.
        subnets: Vec<IpNet>,
    },
    /// End a membership.
    Revoke {
        /// Whose.
        name: PeerName,
    },
    /// Change what a peer may reach.
    Allow {
        /// Whose list.
        name: PeerName,
        /// What to add.
        destinations: Vec<Destination>,
        /// Whether to forget the old list first.
        reset: bool,
    },
    /// Be reached elsewhere from now on.
    Move {
        /// Where.
        endpoint: Endpoint,
    },
    /// Accept the clock as right, although it was once ahead.
    ResetClock,
    /// Everything in the store, for a backup.
    Snapshot,
    /// What happened last.
    Log {
        /// How many entries.
        entries: u32,
    },
}

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// What was asked for.
    Ok(Value),
    /// One line: cause and cure.
    Error(String),
}
