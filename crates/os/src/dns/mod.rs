//! Name servers of the tunnel: through systemd-resolved if it resolves for this host, else in
//! resolv.conf.
//!
//! This module decides which of the two, and keeps the earlier settings. It does not know why a
//! name uses the tunnel. resolv.conf(5) has no split DNS, so for servers of some domains only it
//! names a [`forwarder`] that runs in this process. Limit: a program that sends DNS queries by
//! itself is limited by routes and kill switch, not here.

pub(crate) mod bus;
mod file;
mod forwarder;
pub(crate) mod keeper;
pub(crate) mod resolved;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use serde::{Deserialize, Serialize};

use self::{
    file::{Named, Replaced},
    forwarder::Forwarder,
};
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
    /// The same file, which names a forwarder at this address.
    Forwarder(Ipv4Addr),
}

impl Way {
    /// What the file shall name; `None` if the file stays as it is.
    fn named(self, dns: &Dns) -> Option<Named<'_>> {
        match self {
            Self::Resolved => None,
            Self::File(_) => Some(Named::Tunnel(dns)),
            Self::Forwarder(address) => Some(Named::Forwarder(address)),
        }
    }

    fn names_forwarder(self) -> bool {
        matches!(self, Self::Forwarder(_))
    }

    /// Refuses a forwarder that is not on this host.
    fn check(self) -> Result<(), Error> {
        match self {
            Self::Forwarder(address) if !address.is_loopback() => {
                Err(Error::BadPlan { why: format!("{address} is no loopback address") })
            }
            Self::Resolved | Self::File(_) | Self::Forwarder(_) => Ok(()),
        }
    }
}

/// Journals of earlier versions have the replaced text here. It is not read any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Carried {}

/// The name servers of this host, as plans set them.
#[derive(Debug)]
pub(crate) struct NameServers {
    places: Places,
    /// It runs as long as a plan needs it.
    forwarder: Option<Forwarder>,
    replaced: Replaced,
}

impl NameServers {
    pub(crate) fn new(places: Places) -> Self {
        Self { places, forwarder: None, replaced: Replaced::default() }
    }

    /// Finds the way, before any setting is changed. Starts the forwarder if it is needed.
    pub(crate) fn way(&mut self, dns: &Dns) -> Result<Way, Error> {
        if self.places.lead_to_resolved() {
            return Ok(Way::Resolved);
        }
        let file = &self.places.resolv_conf;
        file::check(file)?;
        if dns.all {
            return Ok(Way::File(Carried {}));
        }
        let forwarder = match self.forwarder.take() {
            Some(forwarder) => forwarder,
            None => Forwarder::start(file)
                .map_err(|error| Error::NamesCannotBeSplit { why: error.to_string() })?,
        };
        Ok(Way::Forwarder(self.forwarder.insert(forwarder).address()))
    }

    /// Whether the settings are still there. What resolved was told it keeps, also over its
    /// restart.
    pub(crate) fn is_in_place(&self, dns: &Dns, way: Way) -> Result<bool, Error> {
        way.named(dns).map_or(Ok(true), |named| file::is_in_place(named, &self.places.resolv_conf))
    }

    /// Installs the settings, through the [`keeper`] if this process is no longer root.
    pub(crate) fn install(&mut self, device: &str, dns: &Dns, way: Way) -> Result<(), Error> {
        if let Some(forwarder) = &self.forwarder {
            forwarder.set(dns);
        }
        let kept = keeper::install(device, dns, way);
        kept.unwrap_or_else(|| install_here((device, dns), way, &self.places, &mut self.replaced))?;
        if !way.names_forwarder() {
            self.forwarder = None;
        }
        Ok(())
    }

    /// Takes them back. The forwarder ends after the file no longer names it.
    pub(crate) fn remove(&mut self, device: &str, way: Way) -> Result<(), Error> {
        let kept = keeper::remove(device, way);
        kept.unwrap_or_else(|| remove_here(device, way, &self.places, &self.replaced))?;
        self.forwarder = None;
        Ok(())
    }

    /// The servers that this host asks beside the tunnel. `inside` are the tunnel's settings that
    /// are in place.
    pub(crate) fn outside(&self, inside: Option<&Dns>) -> Vec<SocketAddr> {
        let mut servers = file::servers(&self.places.resolv_conf);
        if self.places.resolved && servers.iter().all(|server| server.ip().is_loopback()) {
            servers = file::servers(Path::new(resolved::UPSTREAM));
        }
        let ours = inside.map_or(&[][..], |dns| &dns.servers);
        servers.retain(|server| !server.ip().is_loopback() && !ours.contains(&server.ip()));
        servers
    }
}

fn install_here(
    (device, dns): (&str, &Dns),
    way: Way,
    places: &Places,
    replaced: &mut Replaced,
) -> Result<(), Error> {
    match way.named(dns) {
        None => resolved::install(device, dns),
        Some(named) => file::install(named, &places.resolv_conf, replaced),
    }
}

/// Why the settings cannot be changed: the process that does so has ended, or is stopped.
pub(crate) fn fault() -> Option<Error> {
    keeper::fault()
}

fn remove_here(
    device: &str,
    way: Way,
    places: &Places,
    replaced: &Replaced,
) -> Result<(), Error> {
    match way {
        Way::Resolved => resolved::remove(device),
        Way::File(_) | Way::Forwarder(_) => file::remove(&places.resolv_conf, replaced),
    }
}
