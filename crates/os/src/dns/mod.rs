//! Name servers of the tunnel: through systemd-resolved if it resolves for this host, else in
//! resolv.conf.
//!
//! This module decides which of the two, and keeps the earlier settings. It does not know why a
//! name uses the tunnel. resolv.conf(5) has no split DNS, so for servers of some domains only it
//! names a [`forwarder`] that runs in this process. Limit: a program that sends DNS queries by
//! itself is limited by routes and kill switch, not here.

pub(crate) mod bus;
mod file;
pub(crate) mod forwarder;
pub(crate) mod keeper;
pub(crate) mod resolved;
mod way;

use std::{net::SocketAddr, path::Path};

pub(crate) use self::way::Way;
use self::{
    file::Replaced,
    forwarder::Forwarder,
    way::{Carried, install_here, remove_here},
};
use crate::{
    error::Error,
    plan::{Dns, Places},
};

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

/// Why the settings cannot be changed: the process that does so has ended, or is stopped.
pub(crate) fn fault() -> Option<Error> {
    keeper::fault()
}
