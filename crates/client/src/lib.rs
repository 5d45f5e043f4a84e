//! A client: its configuration, how it joins a gateway's service, and how it runs.
//!
//! - [`Config`] is its configuration file. The caller may change values before the client starts.
//! - [`run`] runs the client in this process until a request or a signal ends it. The calling
//!   thread is the control thread: it owns the store, the network configuration and the control
//!   socket. If the [`Wishes`] have an invite, the client joins with it first.
//! - [`rove_host::control::ask`] sends requests to a running client. [`LinkScheduler`],
//!   [`LinkSetting`] and [`Subflows`] are the types of its settings.
//! - [`left_behind`], [`down`] and [`stand`] handle the changes to this host that outlive the
//!   process, above all the kill switch.
//! - [`echo`] and [`way_out`] test the tunnel as any program on this host would.
//!
//! All of it works on the files in a [`Home`](rove_host::home::Home). This crate prints nothing.

#![forbid(unsafe_code)]

mod asker;
mod caps;
mod config;
mod daemon;
mod discovery;
mod families;
mod leftovers;
mod membership;
mod message;
mod nat64;
mod node;
mod plan;
mod portals;
mod probe;
mod radio;
mod ranking;
mod refusal;
mod search;
mod session_problems;
mod shared_since;
mod status;
mod streams;
mod tariffs;

pub use config::{Config, DnsChoice, LinkScheduler, LinkSetting, PathsConfig, Subflows};
pub use daemon::{Carries, Wishes, run};
pub use leftovers::{KillSwitch, Left, TakenDown, down, left_behind, stand};
pub use probe::{WayOut, echo, way_out};
