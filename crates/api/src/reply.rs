//! The envelope of a reply, and everything that can be in it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Allowed, AuditEntry, ClientPath, ClientStatus, ClockReset, Flows, GatewayStatus, Invited,
    Moved, PeerPaths, Peers, Rehearsal, RehearsalBegun, Reloaded, Revoked,
};

/// One reply. A node sends a `Reply<Answer>`; a command reads the type that its request calls for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply<T> {
    /// The answer.
    Ok(T),
    /// One line for a person: cause and cure.
    Error(String),
}

/// The answer of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "each variant is named after its type, which says what it is")]
pub enum Answer {
    Done(Done),
    Changed(Changed),
    ClientStatus(Box<ClientStatus>),
    ClientPaths(Vec<ClientPath>),
    Flows(Flows),
    RehearsalBegun(RehearsalBegun),
    Rehearsal(Rehearsal),
    GatewayStatus(Box<GatewayStatus>),
    Peers(Peers),
    PeerPaths(PeerPaths),
    Invited(Invited),
    Revoked(Revoked),
    Allowed(Allowed),
    Moved(Moved),
    ClockReset(ClockReset),
    Log(Vec<AuditEntry>),
    Reloaded(Reloaded),
    /// The store of a gateway, whose format is the gateway's own.
    Snapshot(Value),
}

/// The request was carried out, and there is nothing to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Done {}

/// A setting was changed.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Changed {
    /// Why the setting has no effect now, and the cure.
    pub warning: Option<String>,
}

/// Answers from their types.
macro_rules! answers {
    ($($variant:ident($type:ty) = |$value:ident| $inner:expr,)+) => {
        $(impl From<$type> for Answer {
            fn from($value: $type) -> Self {
                Self::$variant($inner)
            }
        })+
    };
}

answers! {
    Done(Done) = |it| it,
    Changed(Changed) = |it| it,
    ClientStatus(ClientStatus) = |it| Box::new(it),
    ClientPaths(Vec<ClientPath>) = |it| it,
    Flows(Flows) = |it| it,
    RehearsalBegun(RehearsalBegun) = |it| it,
    Rehearsal(Rehearsal) = |it| it,
    GatewayStatus(GatewayStatus) = |it| Box::new(it),
    Peers(Peers) = |it| it,
    PeerPaths(PeerPaths) = |it| it,
    Invited(Invited) = |it| it,
    Revoked(Revoked) = |it| it,
    Allowed(Allowed) = |it| it,
    Moved(Moved) = |it| it,
    ClockReset(ClockReset) = |it| it,
    Log(Vec<AuditEntry>) = |it| it,
    Reloaded(Reloaded) = |it| it,
}
