//! The control protocol of a node: requests, replies and counters, as JSON.
//!
//! This crate decides which keys exist, their types and their units. It does not know how a line of
//! JSON reaches a node. It does not check values beyond their shape: a value with a spelling of its
//! own (a duration, an endpoint, a peer's name, a scheduler) is a string here, and the node parses
//! it.
//!
//! Keys are only ever added. A key that is added later needs `#[serde(default)]`, so that a command
//! can read the reply of an older node. A key that only some replies have is an `Option`, and its
//! doc comment says when it is there. Keys that come together are one flattened part. A reader
//! takes the part as missing if one of its keys is.
//!
//! An address is an IP address, or with a port a socket address, in the usual text form. A moment
//! is a number of seconds since 1970 (UTC).

#![forbid(unsafe_code)]

mod check;
mod client;
mod flow;
mod gateway;
mod path;
mod problem;
mod rehearsal;
mod reply;
mod request;
mod words;

pub use check::Check;
pub use client::{Beside, ClientStatus, Link, Portal, RunningClient};
pub use flow::{Device, Explanation, Flow, Flows, RuleSays};
pub use gateway::{
    Allowed, AuditEntry, ClockReset, Connections, GatewayHost, GatewayStatus, Invite, Invited,
    Leaves, Moved, Peer, PeerPaths, PeerSession, Peers, Reloaded, Revoked, RunningGateway,
};
pub use path::{ClientPath, Controller, Path, PeerPath, Saved, SendFallback, Sends, Subflow};
pub use problem::Problem;
pub use rehearsal::{Felt, Rehearsal, RehearsalBegun, RehearsedFlow};
pub use reply::{Answer, Changed, Done, Reply};
pub use request::{LinkSetting, Request};
pub use words::{
    CheckState, ControllerPhase, DataUse, Hold, LinkKind, LinkMode, LinkUse, Membership, Node,
    PathManager, PathState, RecoveryFor, SendLimit, SessionState, TransportChoice, UnknownWord,
};

#[cfg(test)]
mod tests;
