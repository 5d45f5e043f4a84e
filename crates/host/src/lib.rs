//! The parts that a client and a gateway share: everything between the core and this host that does
//! not depend on the kind of node.
//!
//! Two threads do the work. The **data thread** ([`data`]) owns the core, the TUN and the sockets,
//! and does nothing that can wait for a disk, a name server or another process. The **control
//! thread** belongs to the caller. Small threads send it [`message::Message`]s: changes of links
//! and of the host ([`start::watch_all`]), signals, resolved names ([`resolve`]) and requests
//! ([`control`]). All channels are bounded, so a slow store delays an enrolment and no packet.
//!
//! - Files: [`home`] has the paths of a node's files, [`files`] writes them, and [`keys`] and
//!   [`store`] define contents. [`config`] has the tables that both configuration files share.
//! - Values that people type or paste: [`values`], [`invite`], [`dictionary`], [`encoding`].
//! - The host: [`confine`] drops privileges, [`reconcile`] keeps the host as planned, [`problems`]
//!   has the texts.
//! - Replies: [`sessions`], [`flows`], [`offload`] and [`shared_key`] write the parts that both
//!   kinds of node report.
//!
//! This crate decides nothing about peers.

#![forbid(unsafe_code)]

pub mod config;
pub mod confine;
pub mod control;
pub mod data;
pub mod dictionary;
pub mod encoding;
pub mod files;
pub mod flows;
pub mod home;
pub mod inner;
pub mod invite;
pub mod keys;
mod links;
pub mod log;
pub mod message;
pub mod node;
pub mod offload;
pub mod owed;
pub mod problems;
pub mod quiet;
pub mod reconcile;
pub mod resolve;
#[cfg(any(test, feature = "testing"))]
pub mod samples;
pub mod sessions;
pub mod shared_key;
pub mod signals;
pub mod start;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod values;
mod way;
