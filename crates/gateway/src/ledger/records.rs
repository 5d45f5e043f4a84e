//! What the ledger keeps, as it is written in the store: JSON objects to which keys are only added.

use std::net::SocketAddr;

use ipnet::IpNet;
use rove_host::encoding::KeyText;
use rove_host::invite::TokenHash;
use rove_host::time::UnixSeconds;
use rove_host::values::{Destination, HostIndex, PeerName};
use serde::{Deserialize, Serialize};

/// One peer that enrolled, also after it was revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peer {
    /// Its public key.
    pub key: KeyText,
    /// What the operator calls it.
    pub name: PeerName,
    /// Its position in the inner networks, which gives its lease.
    pub host: HostIndex,
    /// The subnets behind it that it may advertise.
    #[serde(default)]
    pub subnets: Vec<IpNet>,
    /// What it may reach beyond the Internet.
    #[serde(default)]
    pub allowed: Vec<Destination>,
    /// When it enrolled.
    pub enrolled: UnixSeconds,
    /// By which invite.
    pub invite: TokenHash,
    /// Whether it still belongs.
    pub standing: Standing,
}

impl Peer {
    /// Whether it may hold a session.
    pub(crate) const fn is_enrolled(&self) -> bool {
        matches!(self.standing, Standing::Enrolled)
    }
}

/// Whether a peer belongs to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub(crate) enum Standing {
    /// It does.
    Enrolled,
    /// It did.
    Revoked {
        /// Since when it does not.
        at: UnixSeconds,
    },
}

/// By which way a peer was reached last, for a process that begins anew and calls it back. Written
/// lazily: the last seconds before a crash may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// The address and port of this host that the peer sends to.
    pub local: SocketAddr,
    /// Where it sends from.
    pub remote: SocketAddr,
    /// The index by which it names its session there.
    pub index: u32,
}

/// An invite that was issued. The token itself is known to nobody but whoever holds the invite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InviteRecord {
    /// The hash of its token.
    pub token: TokenHash,
    /// The name of the first peer that it enrols.
    pub name: PeerName,
    /// How many peers it may enrol in all.
    pub uses: u32,
    /// How many it enrolled.
    pub used: u32,
    /// When it was issued.
    pub issued: UnixSeconds,
    /// When it expires.
    pub expires: UnixSeconds,
    /// The subnets that its peers may advertise.
    #[serde(default)]
    pub subnets: Vec<IpNet>,
    /// What its peers may reach beyond the Internet, from the start.
    #[serde(default)]
    pub allowed: Vec<Destination>,
}

impl InviteRecord {
    /// Whether it can be used at `now`.
    pub(crate) fn is_open(&self, now: UnixSeconds) -> bool {
        self.used < self.uses && self.expires > now
    }
}

/// One line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuditEntry {
    /// When.
    pub at: UnixSeconds,
    /// What.
    #[serde(flatten)]
    pub event: AuditEvent,
}

/// What the audit log tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum AuditEvent {
    /// An invite was issued.
    Invited {
        /// For whom.
        name: PeerName,
        /// For how many.
        uses: u32,
    },
    /// A peer enrolled.
    Enrolled {
        /// Its name.
        name: PeerName,
        /// Its key.
        key: KeyText,
    },
    /// A stranger was refused.
    Refused {
        /// Its key.
        key: KeyText,
        /// Why.
        why: String,
    },
    /// A peer was revoked.
    Revoked {
        /// Its name.
        name: PeerName,
        /// Its key.
        key: KeyText,
    },
    /// An invite was withdrawn before all its uses were.
    Withdrawn {
        /// For whom it was.
        name: PeerName,
    },
    /// The allow-list of a peer, or of an invite's peers to come, was changed.
    Allowed {
        /// Whose.
        name: PeerName,
        /// The whole list after the change.
        destinations: Vec<Destination>,
    },
    /// A backup was put in the place of the store.
    Restored,
}
