//! Another place for a gateway: in its configuration, and signed by its operator.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use rove_host::home::{Home, Role};
use rove_host::values::{Endpoint, Host};
use rove_host::{encoding, files};
use rove_os::links::Link;

use super::Gateway;
use crate::config::{Config, Relocation};
use crate::identity::Identity;

impl Gateway {
    /// What the configuration says after a move to `to`, of a host with `links`. Nothing is changed
    /// yet.
    pub(crate) fn relocation(&self, to: &Endpoint, links: &[Link]) -> Result<Relocation> {
        relocation(&self.home, to, links)
    }

    /// Makes it durable, for the next start and for invites from now on. `signed` is the record
    /// about it, if the operator signed it elsewhere.
    pub(crate) fn relocate(
        &mut self,
        relocation: &Relocation,
        to: &Endpoint,
        signed: Option<&str>,
    ) -> Result<()> {
        let own;
        let signed = match signed {
            Some(signed) => signed,
            None => {
                let record = Identity::sign_move(&self.home, &relocation.config, to)?;
                own = encoding::to_text(record.as_bytes());
                &own
            }
        };
        // Signed first: a configuration that is not signed would keep the gateway from starting.
        let identity = Identity::take(&self.home, &relocation.config, signed)?;
        let path = self.home.config(Role::Gateway);
        if let Err(error) = files::replace(&path, files::PRIVATE, relocation.text.as_bytes()) {
            return Err(error).context(match self.identity.put_back(&self.home) {
                Ok(()) => "nothing was changed",
                Err(_) => "gateway.record is about the new endpoint: repeat the command",
            });
        }
        self.identity = identity;
        self.config.endpoints.clone_from(&relocation.config.endpoints);
        self.config.listen.clone_from(&relocation.config.listen);
        self.config.streams.clone_from(&relocation.config.streams);
        Ok(())
    }
}

/// The record about a move of the gateway in `home` to `to`, signed by this process if it has
/// opened the operator's key. Else the gateway signs, if the key is its own.
pub(crate) fn sign(home: &Home, to: &Endpoint) -> Result<Option<String>> {
    if home.opened_operator_key().is_none() {
        return Ok(None);
    }
    let links = rove_os::links::snapshot().unwrap_or_default();
    let relocation = relocation(home, to, &links)?;
    let record = Identity::sign_move(home, &relocation.config, to)?;
    Ok(Some(encoding::to_text(record.as_bytes())))
}

fn relocation(home: &Home, to: &Endpoint, links: &[Link]) -> Result<Relocation> {
    ensure!(
        home.operator_key().exists(),
        "operator.key is not in {}: it signs where the gateway is reached, so put it there for \
         this command",
        home.dir().display()
    );
    to.check_reachable()?;
    let places = |listen: &[SocketAddr], of_udp: &[u16]| places(to, of_udp, listen, links);
    Ok(Config::relocated(&home.config(Role::Gateway), to, places)?)
}

/// Where to listen for `to`, beside the places that are named: each place again, at the address of
/// `to` if that is one of this host's and the place is at one address, and at its port if the place
/// was at one `of_udp`. So a port for streams alone, like 443, stays what it is.
fn places(to: &Endpoint, of_udp: &[u16], listen: &[SocketAddr], links: &[Link]) -> Vec<SocketAddr> {
    let mut own = links.iter().flat_map(|link| &link.addresses).map(ipnet::IpNet::addr);
    let to_ip = match to.host {
        Host::Address(ip) if own.any(|own| own == ip) => Some(ip),
        Host::Address(_) | Host::Name(_) => None,
    };
    let mut places: Vec<SocketAddr> = Vec::new();
    for at in listen {
        let ip = to_ip.filter(|_| !at.ip().is_unspecified()).unwrap_or_else(|| at.ip());
        let port = if of_udp.contains(&at.port()) { to.port } else { at.port() };
        let place = SocketAddr::new(ip, port);
        let is_open = |open: &SocketAddr| {
            *open == place || (open.ip().is_unspecified() && open.port() == port)
        };
        if !listen.iter().chain(&places).any(is_open) {
            places.push(place);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use rove_os::links::LinkKind;

    use super::*;

    #[test]
    fn every_place_moves_as_far_as_it_concerns_the_endpoint() {
        let link = Link {
            index: 2,
            name: "eth0".to_owned(),
            kind: LinkKind::Ethernet,
            up: true,
            carrier: true,
            carrier_ups: 0,
            dormant: false,
            mtu: 1_500,
            addresses: vec!["192.0.2.7/24".parse().unwrap()],
            deprecated: false,
            default_v4: None,
            default_v6: None,
            routes: Vec::new(),
            attached: Vec::new(),
        };
        let moved = |to: &str, listen: &[&str]| -> Vec<String> {
            let listen: Vec<SocketAddr> = listen.iter().map(|at| at.parse().unwrap()).collect();
            let places =
                places(&to.parse().unwrap(), &[4_500], &listen, std::slice::from_ref(&link));
            places.iter().map(SocketAddr::to_string).collect()
        };
        assert_eq!(moved("192.0.2.7:4600", &["192.0.2.1:4500"]), ["192.0.2.7:4600"]);
        assert_eq!(moved("192.0.2.7:4600", &["[::]:4500", "[::]:443"]), ["[::]:4600"]);
        assert_eq!(moved("192.0.2.7:4500", &["192.0.2.1:443"]), ["192.0.2.7:443"]);
        assert_eq!(moved("vpn.example:4600", &["192.0.2.1:4500"]), ["192.0.2.1:4600"]);
        assert_eq!(moved("198.51.100.1:4500", &["192.0.2.1:4500"]), [""; 0], "in front of it");
        assert_eq!(moved("192.0.2.7:4600", &["0.0.0.0:4500", "[::]:4600"]), [""; 0]);
    }
}
