//! The control socket: how commands reach a running node. `rove-api` has the JSON.
//!
//! A Unix socket in the node's directory; one JSON request a line, one JSON reply a line. Root, the
//! node's own user and the group `rove` may ask; anyone else gets one line saying so. A client that
//! sends garbage, too much, nothing, or never reads loses its connection and disturbs nobody:
//! every connection has a thread and a deadline, and their number is limited. Somebody who may not
//! ask takes no place.

mod asker;
mod client;
mod server;

pub use client::{AskError, ask};
pub use rove_api::{Reply, Request};
#[cfg(feature = "testing")]
pub(crate) use server::answer;
pub use server::{Asked, Listener, Server};

/// How many connections are served at once; further ones are told to come again.
const CLIENTS_MAX: usize = 32;
/// More for root and the node's user alone: commands of root work although members of the group
/// hold all other connections.
const OWNERS_MAX: usize = 8;
/// The longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// The longest reply, in bytes: the snapshot for the largest backup that can be read again.
const REPLY_BYTES_MAX: u64 = crate::files::BYTES_MAX;

#[cfg(test)]
mod tests;
