//! What the host is to look like, from configuration, ledger and lease: pure.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use rove_os::links::{Link, LinkKind};
use rove_os::mptcp;
use rove_os::plan::{Dns, Firewall, Guard, KillSwitch, Plan};
use rove_proto::role::{Access, Allow};
use rove_proto::wire::control::{Lease as CoreLease, Prefix};

use super::ranking::Ranked;
use crate::config::{
    ClientConfig, DnsChoice, GatewayConfig, HopConfig, LinkMode, PathManager, PathsConfig,
    TransportChoice,
};
use crate::gateway;
use crate::ledger::{Peer, Registry, SUBNETS_IN_ALL_MAX};
use crate::values::{Domain, Lease};

/// The largest inner packet, in bytes: with all that is put around it, it fits an Ethernet link
/// over IPv6 (1,500 - 40 - 8 - 32). Where less fits the core splits and clamps.
pub(super) const TUN_MTU: u32 = 1_420;

/// Where name servers are asked (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;

/// A gateway's host, whose links are `links`.
pub(super) fn gateway(
    config: &GatewayConfig,
    own: &Lease,
    registry: &Registry,
    links: &[Link],
) -> Plan {
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
    config: &GatewayConfig,
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

/// What lies behind a peer: what it `advertised`, as far as its invite grants it.
pub(super) fn behind(
    config: &GatewayConfig,
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
    config: &'a GatewayConfig,
    peer: &'a Peer,
    links: &'a [Link],
) -> impl Iterator<Item = IpNet> + 'a {
    let tunnel = config.interface.as_str();
    let subnets = peer.subnets.iter().copied();
    subnets.filter(move |subnet| gateway::clash(subnet, links, tunnel).is_none())
}

/// A client's host before it has a lease: with a kill switch, nothing may leave from now on.
pub(super) fn client_before(config: &ClientConfig, remotes: &[SocketAddr]) -> Plan {
    Plan {
        device: config.interface.to_string(),
        mtu: TUN_MTU,
        exclude: config.exclude.clone(),
        allow_lan: config.allow_lan,
        kill_switch: kill_switch(config, remotes),
        ..Plan::default()
    }
}

/// A client's host once the gateway gave a lease.
pub(super) fn client(config: &ClientConfig, lease: &CoreLease, remotes: &[SocketAddr]) -> Plan {
    let everything = config.route.is_empty();
    let mut routes = if everything { all() } else { config.route.clone() };
    // With chosen routes only the chosen domains are asked in the tunnel, and every other name
    // where it was asked before.
    let asked = config.dns == DnsChoice::Set && (everything || !config.domains.is_empty());
    let servers = if asked { lease.dns.clone() } else { Vec::new() };
    let networks = lease.addresses.iter().filter_map(network);
    // The lease's own networks, gateways and name servers are in the tunnel, even if a local
    // network or an exclusion contains them.
    routes.extend(networks.map(|net| net.trunc()));
    routes.extend(lease.gateway.iter().chain(&servers).map(|&address| IpNet::from(address)));
    let domains = config.domains.iter().map(Domain::to_string).collect();
    let dns = (!servers.is_empty()).then_some(Dns { servers, domains, all: everything });
    Plan {
        addresses: lease.addresses.iter().filter_map(network).collect(),
        routes,
        forward: !config.advertise.is_empty(),
        guard: Some(Guard {
            gateways: remotes.iter().map(SocketAddr::ip).collect(),
            kept: config.kept.clone(),
            behind: config.advertise.clone(),
        }),
        dns,
        ..client_before(config, remotes)
    }
}

/// From where MPTCP has subflows: the first address of each link, in each family, the best links
/// first. A link that is for when no other carries, or is about to go, has one for that, and so
/// has each in mode `backup`; in mode `single` there are none.
pub(super) fn subflows<'a>(
    paths: &PathsConfig,
    links: impl Iterator<Item = &'a Ranked>,
) -> Vec<mptcp::Endpoint> {
    if paths.transport != TransportChoice::Mptcp || paths.mode == LinkMode::Single {
        return Vec::new();
    }
    let of_link = |ranked: &Ranked| {
        let backup = paths.mode == LinkMode::Backup || ranked.stands_by();
        let mesh = paths.manager == PathManager::FullMesh;
        let first = |v4: bool| {
            let mut addresses = ranked.link.addresses.iter().map(IpNet::addr);
            addresses.find(|address| address.is_ipv4() == v4)
        };
        let link = &ranked.link.name;
        [true, false].map(|v4| {
            first(v4).map(|address| mptcp::Endpoint { link: link.clone(), address, backup, mesh })
        })
    };
    links.flat_map(of_link).flatten().take(mptcp::ENDPOINTS_MAX).collect()
}

fn kill_switch(config: &ClientConfig, remotes: &[SocketAddr]) -> Option<KillSwitch> {
    let gateways = || remotes.iter().map(SocketAddr::ip).collect();
    config.kill_switch.then(|| KillSwitch { gateways: gateways(), kept: config.kept.clone() })
}

fn all() -> Vec<IpNet> {
    [IpAddr::from([0u8; 4]), IpAddr::from([0u16; 8])]
        .into_iter()
        .filter_map(|address| IpNet::new(address, 0).ok())
        .collect()
}

/// What a peer may do: its own addresses, the Internet, the name servers that it is told to use,
/// and what is allowed by name.
pub(super) fn access(
    config: &GatewayConfig,
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

/// A network as the core writes it.
pub(super) fn prefix(net: IpNet) -> Prefix {
    Prefix { address: net.network(), bits: net.prefix_len() }
}

/// A network as the system writes it; the core has checked its length.
pub(super) fn network(prefix: &Prefix) -> Option<IpNet> {
    IpNet::new(prefix.address, prefix.bits).ok()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
