//! Where the gateway is reached, and what its clients are told of it: the endpoints that its
//! operator names, and the addresses that its own links have.
//!
//! The list is best first. An endpoint at an address that this host had and has lost comes last;
//! one that was never an address of this host has something in front that leads here, and keeps
//! its place. What a name stands for is asked at the start, at a move, when the links change, and
//! every few minutes: behind a router whose address changes nothing else would tell.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Result;
use rove_api::Moved;
use rove_host::data::Order;
use rove_host::resolve::{self, Resolver};
use rove_host::values::{Endpoint, Host};
use rove_os::links::{Link, LinkKind};
use rove_os::udp::UdpSocket;
use rove_proto::id::SocketId;
use rove_proto::node::Command;
use rove_proto::role::global::is_global;
use rove_proto::wire::control::ADDRESSES_MAX;

use super::Daemon;
use super::entrances::Opened;
use super::hop::Hop;
use super::listening::Listening;
use crate::config::Config;

/// How often the endpoints' names are asked for while nothing happens: the usual lifetime of a name
/// that is meant to change.
const RESOLVE_EVERY: Duration = Duration::from_secs(300);
/// The same after an answer that did not come.
const RESOLVE_AGAIN: Duration = Duration::from_secs(30);

/// Addresses that are remembered as once this host's own.
const ONCE_OURS_MAX: usize = 1_024;

/// A socket for datagrams, by its number.
type Numbered = (SocketId, UdpSocket);

/// What clients are told, and what it is made of.
pub(super) struct Announcer {
    resolver: Resolver<Infallible>,
    /// What the endpoints stand for, in their order; none while a name among them is being asked
    /// for the first time.
    endpoints: Option<Vec<SocketAddr>>,
    /// The endpoints whose names resolved last.
    stood_for: Vec<Endpoint>,
    /// When the names among them are to be asked for again, if there are any.
    resolve_at: Option<Instant>,
    /// Addresses that this host has or had since this process began.
    once_ours: BTreeSet<IpAddr>,
    /// What was announced last.
    announced: Vec<SocketAddr>,
}

impl Announcer {
    pub(super) fn new(resolver: Resolver<Infallible>) -> Self {
        Self {
            resolver,
            endpoints: None,
            stood_for: Vec::new(),
            resolve_at: None,
            once_ours: BTreeSet::new(),
            announced: Vec::new(),
        }
    }

    /// What was announced last.
    pub(super) fn announced(&self) -> &[SocketAddr] {
        &self.announced
    }

    /// Finds out what the endpoints stand for; the answer to a name comes as a message.
    fn look_up(&mut self, endpoints: &[Endpoint]) {
        if resolve::has_names(endpoints) {
            self.resolver.ask(endpoints, Vec::new());
            self.resolve_at = Some(Instant::now() + RESOLVE_EVERY);
        } else {
            self.endpoints = Some(resolve::literal(endpoints));
            self.resolve_at = None;
        }
    }

    /// When the names are to be asked for again.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.resolve_at
    }
}

impl Daemon {
    /// Looks at everything anew, and tells the clients if there is something to tell.
    pub(super) fn announce(&mut self) {
        self.announcer.look_up(&self.gateway.config.endpoints);
        self.announce_known();
    }

    /// Asks for the names again, if it is time.
    pub(super) fn resolve_if_due(&mut self, now: Instant) {
        if self.announcer.due().is_some_and(|due| due <= now) {
            self.announcer.look_up(&self.gateway.config.endpoints);
        }
    }

    /// The name servers have answered, or not: then clients are told what was known before.
    pub(super) fn resolved(&mut self, resolved: Result<Vec<SocketAddr>, String>) {
        let (announcer, asked) = (&mut self.announcer, &self.gateway.config.endpoints);
        match resolved {
            Ok(endpoints) => {
                announcer.endpoints = Some(endpoints);
                announcer.stood_for.clone_from(asked);
            }
            Err(name) if announcer.stood_for == *asked => {
                tracing::warn!("{name} does not resolve: clients are told what it stood for last");
                announcer.resolve_at = Some(Instant::now() + RESOLVE_AGAIN);
            }
            Err(name) => {
                tracing::warn!("{name} does not resolve: clients are not told of it");
                announcer.resolve_at = Some(Instant::now() + RESOLVE_AGAIN);
                announcer.endpoints = Some(resolve::literal(asked));
            }
        }
        self.announce_known();
    }

    pub(super) fn announce_known(&mut self) {
        if self.announcer.once_ours.len() < ONCE_OURS_MAX {
            let own = self.links.iter().flat_map(|link| &link.addresses);
            self.announcer.once_ours.extend(own.map(ipnet::IpNet::addr));
        }
        let Some(endpoints) = &self.announcer.endpoints else { return };
        let port = self.gateway.config.endpoints.first().map(|endpoint| endpoint.port);
        let ports = ports(port, &self.listening);
        let outside = self.outside_links();
        let once_ours = &self.announcer.once_ours;
        let hop = self.hop.iter().flat_map(Hop::told);
        let port = ports.first().copied().unwrap_or_default();
        let hop = hop.map(|ip| SocketAddr::new(ip, port));
        let addresses = distinct(hop.chain(addresses(endpoints, &outside, &ports, once_ours)));
        if addresses != self.announcer.announced {
            tracing::debug!(?addresses, "announced");
            self.announcer.announced.clone_from(&addresses);
            self.data.command(Command::Announce(addresses));
        }
    }

    /// `rove gateway move`.
    pub(super) fn relocate(&mut self, to: &Endpoint, record: Option<&str>) -> Result<Moved> {
        let relocation = self.gateway.relocation(to, &self.links)?;
        let (sockets, entrances) = self.open_for(&relocation.config)?;
        if let Err(error) = self.gateway.relocate(&relocation, to, record) {
            self.listening.forget(sockets.iter().map(|(number, _)| *number));
            self.entrances.forget(&entrances);
            return Err(error);
        }
        // NAT must stop using the new ports for clients' connections before they are announced.
        self.replan();
        for (number, socket) in sockets {
            self.data.order(Order::Listen { number, socket });
        }
        for socket in entrances.sockets {
            self.data.order(Order::AcceptAlso(socket));
        }
        tracing::info!("the gateway moves");
        self.announce();
        let told = self.data.status(None).map_or(0, |snapshot| {
            snapshot.peers.iter().filter(|peer| super::sessions::is_there(peer.state)).count()
        });
        let elsewhere = match to.host {
            Host::Address(ip) if !self.locals().contains(&ip) => Some(format!(
                "{ip} is no address of this host: clients reach it only if something in front of \
                 it passes UDP port {} on to here",
                to.port
            )),
            Host::Address(_) | Host::Name(_) => None,
        };
        let warnings: Vec<String> = elsewhere.into_iter().chain(entrances.warning).collect();
        Ok(Moved {
            endpoint: to.to_string(),
            before: relocation.before.to_string(),
            told: Some(told as u64),
            warning: (!warnings.is_empty()).then(|| warnings.join("; ")),
        })
    }

    /// Opens what is to be open beside what is: for datagrams, and for streams. All of it or none.
    fn open_for(&mut self, config: &Config) -> Result<(Vec<Numbered>, Opened)> {
        let mut sockets: Vec<Numbered> = Vec::new();
        let mut open = || {
            for &place in &config.listen {
                if self.listening.socket_of(place).is_none() {
                    sockets.push(self.listening.open(place)?);
                }
            }
            self.entrances.open(config)
        };
        match open() {
            Ok(entrances) => Ok((sockets, entrances)),
            Err(error) => {
                self.listening.forget(sockets.iter().map(|(number, _)| *number));
                Err(error)
            }
        }
    }

    /// The links by which clients may come.
    fn outside_links(&self) -> Vec<&Link> {
        let tunnel = self.gateway.config.interface.as_str();
        let outside = self.links.iter().filter(|link| {
            link.name != tunnel
                && match link.kind {
                    LinkKind::Loopback | LinkKind::Tunnel | LinkKind::Clat => false,
                    LinkKind::Ethernet
                    | LinkKind::Wireless
                    | LinkKind::Cellular
                    | LinkKind::Other => link.up,
                }
        });
        outside.collect()
    }
}

/// The ports at which an address of this host is announced: that of the first endpoint, unless
/// something in front translates it.
fn ports(first: Option<u16>, listening: &Listening) -> Vec<u16> {
    let mut ports: Vec<u16> = listening.places().map(|place| place.port()).collect();
    ports.dedup();
    match first.filter(|first| ports.contains(first)) {
        Some(first) => vec![first],
        None => ports,
    }
}

/// Where clients reach this host, best first.
fn addresses(
    endpoints: &[SocketAddr],
    links: &[&Link],
    ports: &[u16],
    once_ours: &BTreeSet<IpAddr>,
) -> Vec<SocketAddr> {
    let has = |ip: IpAddr| links.iter().any(|link| link.addresses.iter().any(|n| n.addr() == ip));
    let leads_nowhere = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || ip.is_multicast();
    let endpoints = endpoints.iter().copied().filter(|at| !leads_nowhere(at.ip()));
    let (lost, present): (Vec<_>, Vec<_>) =
        endpoints.partition(|at| once_ours.contains(&at.ip()) && !has(at.ip()));
    // Who serves a private network is reached at private addresses, by the way to everybody else.
    let is_private = !present.iter().chain(&lost).any(|at| is_global(at.ip()));
    let of_link = |link: &&Link| {
        let (v4, v6) = (link.default_v4.is_some(), link.default_v6.is_some());
        let ips: Vec<IpAddr> = link.addresses.iter().map(ipnet::IpNet::addr).collect();
        let leads_out = move |ip: &IpAddr| if ip.is_ipv4() { v4 } else { v6 };
        let wanted = move |ip: &IpAddr| is_global(*ip) || (is_private && leads_out(ip));
        ips.into_iter().filter(wanted)
    };
    let own = links.iter().flat_map(of_link);
    let own = own.flat_map(|ip| ports.iter().map(move |&port| SocketAddr::new(ip, port)));
    distinct(present.iter().copied().chain(own).chain(lost.iter().copied()))
}

/// The first of the addresses, each once.
fn distinct(all: impl IntoIterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in all {
        if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
            addresses.push(address);
        }
    }
    addresses
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
