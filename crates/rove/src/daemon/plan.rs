//! What the host is to look like, from configuration, ledger and lease: pure.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use rove_os::links::{Link, LinkKind};
use rove_os::plan::{Dns, KillSwitch, Plan};
use rove_proto::role::{Access, Allow};
use rove_proto::wire::control::{Lease as CoreLease, Prefix};

use crate::config::{ClientConfig, GatewayConfig};
use crate::ledger::{Peer, Registry};
use crate::values::{Domain, Lease};

/// The largest inner packet, in bytes: with all that is put around it, it fits an Ethernet link
/// over IPv6 (1,500 - 40 - 8 - 32). Where less fits the core splits and clamps.
pub(super) const TUN_MTU: u32 = 1_420;

/// A gateway's host.
pub(super) fn gateway(config: &GatewayConfig, own: &Lease, registry: &Registry) -> Plan {
    let subnets = registry.peers().filter(|peer| peer.is_enrolled());
    let subnets = subnets.flat_map(|peer| peer.subnets.iter().copied());
    Plan {
        device: config.interface.to_string(),
        persistent: true,
        mtu: TUN_MTU,
        addresses: own.iter().collect(),
        routes: subnets.collect(),
        forward: true,
        masquerade: if config.nat { config.networks.iter().collect() } else { Vec::new() },
        ..Plan::default()
    }
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
    let asked = everything || !config.domains.is_empty();
    let servers = if asked { lease.dns.clone() } else { Vec::new() };
    if !everything {
        // Wherever the servers are, the way to them is the tunnel.
        routes.extend(servers.iter().map(|&server| IpNet::from(server)));
    }
    let domains = config.domains.iter().map(Domain::to_string).collect();
    let dns = (!servers.is_empty()).then_some(Dns { servers, domains, all: everything });
    Plan {
        addresses: lease.addresses.iter().filter_map(network).collect(),
        routes,
        forward: !config.advertise.is_empty(),
        dns,
        ..client_before(config, remotes)
    }
}

fn kill_switch(config: &ClientConfig, remotes: &[SocketAddr]) -> Option<KillSwitch> {
    let gateways = || remotes.iter().map(SocketAddr::ip).collect();
    config.kill_switch.then(|| KillSwitch { gateways: gateways() })
}

fn all() -> Vec<IpNet> {
    [IpAddr::from([0u8; 4]), IpAddr::from([0u16; 8])]
        .into_iter()
        .filter_map(|address| IpNet::new(address, 0).ok())
        .collect()
}

/// What a peer may do: its own addresses, the Internet, and what is allowed by name.
pub(super) fn access(peer: &Peer, lease: &Lease, gateway: &Lease, local: &[Prefix]) -> Access {
    let own = lease.addresses().map(Prefix::host);
    let own = own.chain(peer.subnets.iter().map(|&net| prefix(net))).collect();
    let allow = peer.allowed.iter();
    let allow = allow.map(|to| Allow { to: prefix(to.network), port: to.port }).collect();
    let gateway = gateway.addresses().collect();
    Access::Restricted { own, gateway, internet: true, local: local.to_vec(), allow }
}

/// The gateway's own networks, which are not the Internet even where their addresses are public.
pub(super) fn local_networks(links: &[Link], tunnel: &str) -> Vec<Prefix> {
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
