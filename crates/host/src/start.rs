//! The start of every node: it takes over the changes of an earlier process, and begins to watch
//! this host.

use std::sync::mpsc::SyncSender;

use anyhow::Result;
use rove_os::links::Link;
use rove_os::plan::{Applier, Places};

use crate::message::Message;
use crate::{links, reconcile, signals};

/// Takes over the changes of an earlier process, and logs if its journal cannot be read.
pub fn take_over(places: &Places) -> Result<Applier> {
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
pub fn watch_all<O: Send + 'static>(
    inbox: &SyncSender<Message<O>>,
    places: &Places,
) -> Result<Vec<Link>> {
    signals::watch(inbox.clone())?;
    reconcile::watch(inbox.clone(), places.resolv_conf.clone())?;
    links::watch(inbox.clone())
}
