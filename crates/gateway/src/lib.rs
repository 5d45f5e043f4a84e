//! A gateway: its configuration, its files, who belongs to it, and how it runs.
//!
//! - [`Config`] is its configuration file, and [`init`] makes the files of a new gateway.
//! - [`run`] runs the gateway in this process until a signal ends it. The calling thread is its
//!   control thread; it owns the store, the network configuration and the control socket.
//! - [`ask`] sends a [`Request`](rove_api::Request) to the running gateway. If it does not run, the
//!   answer comes from its files. Both ways give the same answers.
//! - [`backup`] writes one file with everything but the operator's key, and [`restore`] reads it.
//! - [`down`] removes the changes to this host that a stopped gateway left.
//!
//! All of it works on the files in a [`Home`](rove_host::home::Home). This crate prints nothing.

#![forbid(unsafe_code)]

mod backup;
mod config;
mod daemon;
mod gateway;
mod identity;
mod ledger;
mod requests;
mod subnets;
#[cfg(feature = "testing")]
pub mod testing;

pub use backup::{Restored, restore};
pub use config::{Config, StoreUrl};
pub use daemon::run;
pub use ledger::Dropped;
pub use requests::{Signed, TakenDown, ask, backup, down, init, relocate, sign, sign_dictionary};
