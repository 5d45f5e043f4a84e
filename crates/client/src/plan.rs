//! Computes the network configuration of a client's host, from configuration and lease. Pure.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use rove_host::inner::{TUN_MTU, network};
use rove_host::values::Domain;
use rove_os::mptcp;
use rove_os::plan::{Dns, Guard, KillSwitch, Plan};
use rove_proto::wire::control::Lease;

use crate::config::{Config, DnsChoice, LinkMode, PathManager, PathsConfig, TransportChoice};
use crate::ranking::Ranked;

/// A client's host before it has a lease: with a kill switch, nothing may leave from now on.
pub(crate) fn client_before(config: &Config, remotes: &[SocketAddr]) -> Plan {
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
///
/// `reachable` are private networks that the gateway leads to. With `allow_lan` they stay in the
/// tunnel, even if a local network claims them.
pub(crate) fn client(
    config: &Config,
    lease: &Lease,
    reachable: &[IpNet],
    remotes: &[SocketAddr],
) -> Plan {
    let everything = config.route.is_empty();
    let mut routes = if everything { all() } else { config.route.clone() };
    // With chosen routes only the chosen domains are asked in the tunnel, if this host's resolver
    // can do that, and every other name where it was asked before.
    let asked = config.dns == DnsChoice::Set && (everything || !config.domains.is_empty());
    let servers = if asked { lease.dns.clone() } else { Vec::new() };
    let networks = lease.addresses.iter().filter_map(network);
    // The lease's own networks, gateways and name servers are in the tunnel, even if a local
    // network or an exclusion contains them.
    routes.extend(networks.map(|net| net.trunc()));
    if everything && config.allow_lan {
        routes.extend(drawn(config, reachable));
    }
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
            keep_incoming: config.keep_incoming,
            behind: config.advertise.clone(),
        }),
        dns,
        ..client_before(config, remotes)
    }
}

/// The networks of the gateway that keep a local network from drawing them. An exclusion of the
/// user wins.
pub(crate) fn drawn<'a>(
    config: &'a Config,
    reachable: &'a [IpNet],
) -> impl Iterator<Item = IpNet> + 'a {
    let is_excluded = |net: &IpNet| config.exclude.iter().any(|other| other.contains(net));
    reachable.iter().filter(move |net| !is_excluded(net)).copied()
}

/// From where MPTCP has subflows: the first address of each link, in each family, the best links
/// first. In mode `backup`, and for a link that stands by, they are backup subflows. In mode
/// `single` there are none.
pub(crate) fn subflows<'a>(
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

fn kill_switch(config: &Config, remotes: &[SocketAddr]) -> Option<KillSwitch> {
    let gateways = || remotes.iter().map(SocketAddr::ip).collect();
    config.kill_switch.then(|| KillSwitch { gateways: gateways(), kept: config.kept.clone() })
}

fn all() -> Vec<IpNet> {
    [IpAddr::from([0u8; 4]), IpAddr::from([0u16; 8])]
        .into_iter()
        .filter_map(|address| IpNet::new(address, 0).ok())
        .collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
