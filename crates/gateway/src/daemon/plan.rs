//! Computes the network configuration of a gateway's host and the access of its peers, from
//! configuration and ledger. Pure, but for the size of the kernel's table of connections.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use rove_host::inner::{TUN_MTU, prefix};
use rove_host::values::Lease;
use rove_os::conntrack;
use rove_os::links::{Link, LinkKind};
use rove_os::plan::{Destination, Firewall, LIST_MAX, Plan};
use rove_proto::role::{Access, Allow};
use rove_proto::wire::control::{Lease as CoreLease, Prefix};

use crate::config::{Config, HopConfig, Neighbours};
use crate::ledger::{Peer, Registry, SUBNETS_IN_ALL_MAX};
use crate::subnets;

/// Where name servers are asked (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;
/// A client gets this part of the table of connections: seven clients that take all they get leave
/// room for others.
const SHARES: u64 = 8;
/// The kernel walks a client's list of connections once a timer tick while it opens new ones, so
/// twice as many cost twice the time. A busy BitTorrent client has some 3,000.
const SHARE_MAX: u64 = 8_192;
/// A browser with many open pages has some hundred.
const SHARE_MIN: u64 = 256;
/// The shortest IPv6 prefix whose route without a router leads to hosts of the link itself. Shorter
/// ones stand for the Internet, on a link to a single router.
const ATTACHED_MIN: u8 = 48;

/// A gateway's host, whose links are `links`.
pub(super) fn gateway(config: &Config, own: &Lease, registry: &Registry, links: &[Link]) -> Plan {
    let peers = registry.peers().filter(|peer| peer.is_enrolled());
    let routes = peers.flat_map(|peer| subnets(config, peer, links));
    Plan {
        device: config.interface.to_string(),
        persistent: true,
        mtu: TUN_MTU,
        addresses: own.iter().collect(),
        // A store that a restore put together may hold more than invites grant.
        routes: routes.take(SUBNETS_IN_ALL_MAX).collect(),
        forward: true,
        ..Plan::default()
    }
}

/// The firewall of a gateway that listens at these addresses and admits clients to `admitted`.
/// `others_track` says whether other programs on the host need entries of its own datagrams.
pub(super) fn firewall(
    config: &Config,
    admitted: Vec<Destination>,
    others_track: bool,
    udp: impl Iterator<Item = SocketAddr>,
    tcp: impl Iterator<Item = SocketAddr>,
) -> Firewall {
    let ports = |places: &mut dyn Iterator<Item = SocketAddr>| -> Vec<u16> {
        let ports: BTreeSet<u16> = places.map(|place| place.port()).collect();
        ports.into_iter().collect()
    };
    let (udp_ports, tcp_ports) = (ports(&mut { udp }), ports(&mut { tcp }));
    let (share, untracked) = (Some(share()), !others_track);
    Firewall { nat: config.nat, udp_ports, tcp_ports, admitted, share, untracked }
}

/// How many of the connections that the host's kernel tracks one client may have.
pub(super) fn share() -> u32 {
    share_of(conntrack::tracked().map(|tracked| tracked.max))
}

fn share_of(max: Option<u64>) -> u32 {
    let share = max.map_or(SHARE_MAX, |max| max / SHARES);
    u32::try_from(share.clamp(SHARE_MIN, SHARE_MAX)).unwrap_or(u32::MAX)
}

/// The destinations that any client may contact by name, for the case that they are addresses of
/// this host: the core knows which client may. If there are too many, those that are addresses of
/// `links` come first.
pub(super) fn admitted(config: &Config, registry: &Registry, links: &[Link]) -> Vec<Destination> {
    let servers = config.dns.iter();
    let servers = servers.map(|&to| Destination { to: to.into(), port: Some(DNS_PORT) });
    let allowed = registry.peers().filter(|peer| peer.is_enrolled()).flat_map(|peer| &peer.allowed);
    let allowed = allowed.map(|to| Destination { to: to.network, port: to.port });
    let all: BTreeSet<Destination> = servers.chain(allowed).collect();
    let is_own = |to: &IpNet| {
        let mut own = links.iter().flat_map(|link| &link.addresses);
        own.any(|own| to.contains(&own.addr()) || own.contains(to))
    };
    let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| is_own(&one.to));
    own.into_iter().chain(others).take(LIST_MAX).collect()
}

/// The networks behind a peer: those that it `advertised`, as far as its invite grants them.
pub(super) fn behind(
    config: &Config,
    peer: &Peer,
    advertised: &[IpNet],
    links: &[Link],
) -> Vec<IpNet> {
    let granted = subnets(config, peer, links);
    let both =
        granted.flat_map(|subnet| advertised.iter().filter_map(move |net| common(subnet, *net)));
    // Two advertised networks around the same subnet have it in common.
    both.collect::<BTreeSet<IpNet>>().into_iter().collect()
}

/// The part that two networks have in common: the smaller of them, or none.
fn common(a: IpNet, b: IpNet) -> Option<IpNet> {
    if a.contains(&b) {
        Some(b)
    } else if b.contains(&a) {
        Some(a)
    } else {
        None
    }
}

/// The subnets that a peer was granted, without those that the gateway's host is itself a part of:
/// a new network there must not keep the gateway from starting, and wins.
fn subnets<'a>(
    config: &'a Config,
    peer: &'a Peer,
    links: &'a [Link],
) -> impl Iterator<Item = IpNet> + 'a {
    let tunnel = config.interface.as_str();
    let subnets = peer.subnets.iter().copied();
    subnets.filter(move |subnet| subnets::clash(subnet, links, tunnel).is_none())
}

/// What a peer may do: its own addresses, the Internet, the name servers that it is told to use,
/// and what is allowed by name.
pub(super) fn access(
    config: &Config,
    peer: &Peer,
    lease: &Lease,
    gateway: &Lease,
    behind: &[IpNet],
    links: &[Link],
) -> Access {
    let own = lease.addresses().map(Prefix::host);
    let own = own.chain(behind.iter().copied().map(prefix)).collect();
    let servers = config.dns.iter();
    let servers = servers.map(|&server| Allow { to: Prefix::host(server), port: Some(DNS_PORT) });
    let allowed = peer.allowed.iter();
    let allowed = allowed.map(|to| Allow { to: prefix(to.network), port: to.port });
    let allow = servers.chain(allowed).collect();
    let gateway = gateway.addresses().collect();
    let mut local = local_networks(config, links);
    local.extend(config.hop.iter().flat_map(HopConfig::networks).map(prefix));
    Access::Restricted { own, gateway, internet: true, local, allow }
}

/// Public addresses that are not the Internet: those of the gateway itself, of other clients, and
/// of hosts around it that count as private.
fn local_networks(config: &Config, links: &[Link]) -> Vec<Prefix> {
    let tunnel = config.interface.as_str();
    let outside = links.iter().filter(|link| link.name != tunnel);
    let around = outside.flat_map(|link| of_link(config.neighbours, link));
    let all: Vec<IpNet> = around.chain(config.networks.iter()).collect();
    IpNet::aggregate(&all).into_iter().map(prefix).collect()
}

/// The gateway's own addresses on a link, and the link's networks that clients may not reach.
fn of_link(neighbours: Neighbours, link: &Link) -> Vec<IpNet> {
    let v6_routes = link.attached.iter().filter(|net| {
        net.addr().is_ipv6() && net.prefix_len() >= ATTACHED_MIN && neighbours != Neighbours::All
    });
    let mut local: Vec<IpNet> = v6_routes.copied().collect();
    for net in &link.addresses {
        if are_open(neighbours, link, net.addr().is_ipv4()) {
            local.push(net.addr().into());
            local.extend(broadcasts(net));
        } else {
            local.push(net.trunc());
        }
    }
    local
}

/// Whether hosts on this link with public addresses belong to the Internet. The kernel itself
/// answers at every address of a network on `lo`. On a link that does not lead out are machines of
/// the operator.
fn are_open(neighbours: Neighbours, link: &Link, v4: bool) -> bool {
    let family = match neighbours {
        Neighbours::None => false,
        Neighbours::Ipv4 => v4,
        Neighbours::All => true,
    };
    family && link.kind != LinkKind::Loopback && link.leads_out(v4)
}

/// The addresses of a network that reach all of its hosts at once (RFC 919; networks of one or two
/// addresses have none, RFC 3021).
fn broadcasts(net: &IpNet) -> Vec<IpNet> {
    match net {
        IpNet::V4(net) if net.prefix_len() <= 30 => {
            [net.network(), net.broadcast()].map(|address| IpAddr::from(address).into()).into()
        }
        IpNet::V4(_) | IpNet::V6(_) => Vec::new(),
    }
}

/// What a client is told of its lease.
pub(super) fn core_lease(lease: &Lease, gateway: &Lease, dns: &[IpAddr]) -> CoreLease {
    let addresses = lease.iter();
    let addresses = addresses.map(|net| Prefix { address: net.addr(), bits: net.prefix_len() });
    CoreLease {
        addresses: addresses.collect(),
        gateway: gateway.addresses().collect(),
        dns: dns.to_vec(),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
