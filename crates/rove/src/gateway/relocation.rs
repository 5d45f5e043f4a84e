//! Another place for a gateway: in its configuration, and signed by its operator.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use rove_os::links::Link;

use super::{Gateway, Identity};
use crate::config::{GatewayConfig, Relocation};
use crate::files;
use crate::home::Role;
use crate::values::{Endpoint, Host};

impl Gateway {
    /// What the configuration says after a move to `to`, of a host with `links`. Nothing is changed
    /// yet.
    pub fn relocation(&self, to: &Endpoint, links: &[Link]) -> Result<Relocation> {
        ensure!(
            self.home.operator_key().exists(),
            "operator.key is not in {}: it signs where the gateway is reached, so put it there for \
             this command",
            self.home.dir().display()
        );
        let places = |listen: &[SocketAddr]| places(to, listen, links);
        Ok(GatewayConfig::relocated(&self.home.config(Role::Gateway), to, places)?)
    }

    /// Makes it durable, for the next start and for invites from now on.
    pub fn relocate(&mut self, relocation: &Relocation) -> Result<()> {
        // Signed first: a configuration that is not signed would keep the gateway from starting.
        let identity = Identity::load(&self.home, &relocation.config)?;
        let path = self.home.config(Role::Gateway);
        if let Err(error) = files::replace(&path, files::PRIVATE, relocation.text.as_bytes()) {
            let undone = Identity::load(&self.home, &self.config);
            return Err(error).context(match undone {
                Ok(_) => "nothing was changed",
                Err(_) => "gateway.record is about the new endpoint: repeat the command",
            });
        }
        self.identity = identity;
        self.config.endpoints.clone_from(&relocation.config.endpoints);
        self.config.listen.clone_from(&relocation.config.listen);
        Ok(())
    }
}

/// Where to listen for `to`, beside the places that are named: at its address, if that is one of
/// this host's, else at its port of every address that is listened at.
fn places(to: &Endpoint, listen: &[SocketAddr], links: &[Link]) -> Vec<SocketAddr> {
    let covered = |at: &SocketAddr| at.port() == to.port && at.ip().is_unspecified();
    if listen.iter().any(covered) {
        return Vec::new();
    }
    let own = links.iter().flat_map(|link| &link.addresses);
    let places: Vec<SocketAddr> = match to.host {
        Host::Address(ip) if own.map(ipnet::IpNet::addr).any(|own| own == ip) => {
            vec![(ip, to.port).into()]
        }
        Host::Address(_) | Host::Name(_) => {
            listen.iter().map(|at| (at.ip(), to.port).into()).collect()
        }
    };
    places.into_iter().filter(|place| !listen.contains(place)).collect()
}
