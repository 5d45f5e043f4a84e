//! Name servers of the tunnel: through systemd-resolved if it resolves for this host, else in
//! resolv.conf.
//!
//! This module decides which of the two, and keeps the earlier settings. It does not know why a
//! name uses the tunnel. Limits: resolv.conf(5) has no split DNS. So without systemd-resolved,
//! servers for some domains only are refused: they would get every query, those for the local
//! network too. A program that sends DNS queries by itself is limited by routes and kill switch,
//! not here.

pub(crate) mod bus;
mod file;
pub(crate) mod keeper;
pub(crate) mod resolved;

use std::{net::SocketAddr, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    error::Error,
    plan::{Dns, Places},
};

/// In which way the settings are made. It says nothing about what they replaced: the journal, which
/// has this value, belongs to the node's user, and root restores nothing that this user chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// systemd-resolved keeps settings per link: reverting the link's is enough.
    Resolved,
    /// The resolver's file, which carries what it replaced.
    File(Carried),
}

/// Journals of earlier versions have the replaced text here. It is not read any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Carried {}

/// Finds the way, before anything is changed.
pub(crate) fn way(dns: &Dns, places: &Places) -> Result<Way, Error> {
    if places.lead_to_resolved() {
        return Ok(Way::Resolved);
    }
    if !dns.all {
        return Err(Error::NamesCannotBeSplit);
    }
    file::check(&places.resolv_conf)?;
    Ok(Way::File(Carried {}))
}

/// Whether the settings are still there. What resolved was told it keeps, also over its restart.
pub(crate) fn is_in_place(dns: &Dns, way: Way, places: &Places) -> Result<bool, Error> {
    match way {
        Way::Resolved => Ok(true),
        Way::File(_) => file::is_in_place(dns, &places.resolv_conf),
    }
}

/// Installs the settings, through the [`keeper`] if this process is no longer root.
pub(crate) fn install(device: &str, dns: &Dns, way: Way, places: &Places) -> Result<(), Error> {
    let kept = keeper::install(device, dns, way);
    kept.unwrap_or_else(|| install_here(device, dns, way, places))
}

fn install_here(device: &str, dns: &Dns, way: Way, places: &Places) -> Result<(), Error> {
    match way {
        Way::Resolved => resolved::install(device, dns),
        Way::File(_) => file::install(dns, &places.resolv_conf),
    }
}

/// Why the settings cannot be changed: the process that does so has ended, or is stopped.
pub(crate) fn fault() -> Option<Error> {
    keeper::fault()
}

/// The servers that this host asks beside the tunnel. `inside` are the tunnel's settings that are
/// in place.
pub(crate) fn outside_servers(inside: Option<&Dns>, places: &Places) -> Vec<SocketAddr> {
    let mut servers = file::servers(&places.resolv_conf);
    if places.resolved && servers.iter().all(|server| server.ip().is_loopback()) {
        servers = file::servers(Path::new(resolved::UPSTREAM));
    }
    let ours = inside.map_or(&[][..], |dns| &dns.servers);
    servers.retain(|server| !server.ip().is_loopback() && !ours.contains(&server.ip()));
    servers
}

/// Takes them back.
pub(crate) fn remove(device: &str, way: Way, places: &Places) -> Result<(), Error> {
    let kept = keeper::remove(device, way);
    kept.unwrap_or_else(|| remove_here(device, way, places))
}

fn remove_here(device: &str, way: Way, places: &Places) -> Result<(), Error> {
    match way {
        Way::Resolved => resolved::remove(device),
        Way::File(_) => file::remove(&places.resolv_conf),
    }
}
