//! A node that runs: one thread for data, a few for control.
//!
//! The **data thread** ([`data`]) owns the core, the TUN and the sockets, and does nothing that can
//! wait for a disk, a name server or another process. The **control thread** (the main thread, in
//! [`gateway`] or [`client`]) owns the store and the plan, and answers the control socket; small
//! threads bring it signals, link changes, names and requests. They talk over bounded channels: a
//! slow store delays an enrolment and no packet.

use std::sync::mpsc::SyncSender;

use anyhow::Result;
use rove_os::links::Link;
use rove_os::plan::{Applier, Places};

use message::Message;

mod asker;
mod caps;
mod client;
mod confine;
mod data;
mod flows;
mod gateway;
mod host;
mod links;
mod log;
mod message;
mod node;
mod owed;
mod plan;
mod portals;
mod probe;
mod problems;
mod radio;
mod ranking;
mod resolve;
mod shared_key;
mod signals;
mod status;
mod streams;
mod tariffs;
mod way;

pub use client::{Carries, Wishes, run as run_client};
pub use confine::{adopt, leave_root, tell as tell_user};
pub use gateway::run as run_gateway;
pub use log::{LogFile, start as start_log, start_in as start_log_in};
pub use probe::echo;

/// Takes over the changes of an earlier process, and logs if its journal cannot be read.
fn take_over(places: &Places) -> Result<Applier> {
    let applier = Applier::open(places.clone())?;
    if let Some(why) = applier.damaged() {
        tracing::warn!(
            "the journal of the last run is damaged ({why}): routes and rules that it may have \
             named are removed by Rove's table and originator; check /etc/resolv.conf and \
             `sysctl net.ipv4.ip_forward` yourself"
        );
    }
    Ok(applier)
}

/// Starts the threads that report signals, changes of the host, and links. Returns the present
/// links.
fn watch_all(inbox: &SyncSender<Message>, places: &Places) -> Result<Vec<Link>> {
    signals::watch(inbox.clone())?;
    host::watch(inbox.clone(), places.resolv_conf.clone())?;
    links::watch(inbox.clone())
}
