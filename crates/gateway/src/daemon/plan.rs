//! Computes the network configuration of a gateway's host and the access of its peers, from
//! configuration and ledger. Pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use rove_host::inner::{TUN_MTU, prefix};
use rove_host::values::Lease;
use rove_os::links::{Link, LinkKind};
use rove_os::plan::{Firewall, Plan};
use rove_proto::role::{Access, Allow};
use rove_proto::wire::control::{Lease as CoreLease, Prefix};

use crate::config::{Config, HopConfig};
use crate::ledger::{Peer, Registry, SUBNETS_IN_ALL_MAX};
use crate::subnets;

/// Where name servers are asked (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;

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

/// The firewall of a gateway that listens at these addresses.
pub(super) fn firewall(
    config: &Config,
    udp: impl Iterator<Item = SocketAddr>,
    tcp: impl Iterator<Item = SocketAddr>,
) -> Firewall {
    let ports = |places: &mut dyn Iterator<Item = SocketAddr>| -> Vec<u16> {
        let ports: BTreeSet<u16> = places.map(|place| place.port()).collect();
        ports.into_iter().collect()
    };
    let (udp_ports, tcp_ports) = (ports(&mut { udp }), ports(&mut { tcp }));
    Firewall { nat: config.nat, udp_ports, tcp_ports }
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
    let mut local = local_networks(links, config.interface.as_str());
    local.extend(config.hop.iter().flat_map(HopConfig::networks).map(prefix));
    Access::Restricted { own, gateway, internet: true, local, allow }
}

/// The gateway's own networks, which are not the Internet even where their addresses are public.
fn local_networks(links: &[Link], tunnel: &str) -> Vec<Prefix> {
    let own = links.iter().filter(|link| link.kind != LinkKind::Loopback && link.name != tunnel);
    own.flat_map(|link| link.addresses.iter().map(|net| prefix(net.trunc()))).collect()
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
