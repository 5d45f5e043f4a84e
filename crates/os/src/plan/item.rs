//! The single changes that a plan consists of.
//!
//! A plan becomes an ordered set of [`Item`]s; what is to be done is the difference of two sets.
//! The order of the variants is the order in which they are put in place: first what keeps
//! packets from leaving, last what leads new ones in.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Dns, GATEWAY_TABLE, KILL_SWITCH_TABLE, Plan, RULE_PRIORITY_TUNNEL, TABLE};
use crate::mptcp::{ENDPOINTS_MAX, Endpoint, Limit};

/// One change of the host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Item {
    /// The kill switch's nftables table.
    KillSwitch(Opening),
    /// The nftables ruleset of a gateway. The journals of earlier versions call it NAT.
    #[serde(alias = "nat")]
    Gateway(Gate),
    /// The TUN set up, with an MTU. A persistent one is removed with the plan.
    Device {
        name: String,
        mtu: u32,
        persistent: bool,
    },
    /// A kernel setting below `/proc/sys/net`.
    Sysctl {
        key: String,
        value: String,
    },
    Address {
        device: String,
        net: IpNet,
    },
    /// A route in our table.
    Route {
        net: IpNet,
        target: Target,
    },
    /// What an MPTCP connection may have, at least.
    MptcpLimit(Limit, u32),
    /// From where it has a subflow.
    Subflow(Endpoint),
    Rule {
        v6: bool,
        kind: RuleKind,
    },
    Dns {
        device: String,
        dns: Dns,
    },
}

/// Where a route leads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Target {
    /// Into the tunnel.
    Device(String),
    /// On to the next table: past the tunnel.
    Throw,
    /// Nowhere, with an answer that says so.
    Unreachable,
}

/// What a policy rule does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RuleKind {
    /// Use the main table's routes, but no default route.
    Lan,
    /// Send what has no mark to our table.
    Tunnel,
}

/// What the kill switch lets through.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opening {
    pub(crate) device: String,
    pub(crate) gateways: Vec<IpAddr>,
    pub(crate) destinations: Vec<IpNet>,
    pub(crate) allow_lan: bool,
}

impl Opening {
    /// What a kill switch lets through of which nothing is known any more: the usual interface, and
    /// what a host must say to have a network.
    pub(crate) fn closed() -> Self {
        let (gateways, destinations) = (Vec::new(), Vec::new());
        Self { device: "rove0".to_owned(), gateways, destinations, allow_lan: false }
    }
}

/// What a gateway lets pass, and under which address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gate {
    pub(crate) device: String,
    /// The networks of the tunnel.
    pub(crate) networks: Vec<IpNet>,
    #[serde(default)]
    pub(crate) nat: bool,
    /// The gateway's own addresses in them.
    #[serde(default)]
    pub(crate) own: Vec<IpAddr>,
    /// Networks behind clients.
    #[serde(default)]
    pub(crate) subnets: Vec<IpNet>,
    /// Ports on which the gateway listens.
    #[serde(default)]
    pub(crate) udp_ports: Vec<u16>,
    #[serde(default)]
    pub(crate) tcp_ports: Vec<u16>,
}

impl Gate {
    /// What may come from the tunnel.
    pub(crate) fn sources(&self) -> Vec<IpNet> {
        self.networks.iter().chain(&self.subnets).copied().collect()
    }
}

impl Item {
    /// Whether both stand in the same place, so that the one replaces the other.
    pub(crate) fn same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::KillSwitch(_), Self::KillSwitch(_)) | (Self::Gateway(_), Self::Gateway(_)) => {
                true
            }
            (Self::MptcpLimit(which, _), Self::MptcpLimit(other, _)) => which == other,
            (Self::Device { name, .. }, Self::Device { name: other, .. }) => name == other,
            (Self::Sysctl { key, .. }, Self::Sysctl { key: other, .. }) => key == other,
            (Self::Route { net, .. }, Self::Route { net: other, .. }) => net == other,
            (Self::Subflow(endpoint), Self::Subflow(other)) => endpoint.address == other.address,
            (Self::Dns { device, .. }, Self::Dns { device: other, .. }) => device == other,
            _ => self == other,
        }
    }
}

impl Item {
    /// The interface that the kernel keeps it at, and with which it goes.
    pub(crate) fn device(&self) -> Option<&str> {
        match self {
            Self::Device { name, .. } => Some(name),
            Self::Address { device, .. }
            | Self::Route { target: Target::Device(device), .. }
            | Self::Dns { device, .. } => Some(device),
            Self::Route { target: Target::Throw | Target::Unreachable, .. }
            | Self::KillSwitch(_)
            | Self::Sysctl { .. }
            | Self::MptcpLimit(..)
            | Self::Subflow(_)
            | Self::Gateway(_)
            | Self::Rule { .. } => None,
        }
    }

    /// The nftables tables that it is, by family and name. Only the first has to be there: a kernel
    /// may be without a family.
    pub(crate) fn filter_tables(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::KillSwitch(_) => &[("inet", KILL_SWITCH_TABLE)],
            Self::Gateway(_) => &[("inet", GATEWAY_TABLE), ("arp", GATEWAY_TABLE)],
            Self::Device { .. }
            | Self::Sysctl { .. }
            | Self::Address { .. }
            | Self::Route { .. }
            | Self::MptcpLimit(..)
            | Self::Subflow(_)
            | Self::Rule { .. }
            | Self::Dns { .. } => &[],
        }
    }

    /// Whether it needs a kernel with IPv6.
    pub(crate) fn is_ipv6(&self) -> bool {
        match self {
            Self::Address { net, .. } | Self::Route { net, .. } => net.addr().is_ipv6(),
            Self::Subflow(endpoint) => endpoint.address.is_ipv6(),
            Self::Rule { v6, .. } => *v6,
            Self::KillSwitch(_)
            | Self::Device { .. }
            | Self::Sysctl { .. }
            | Self::MptcpLimit(..)
            | Self::Gateway(_)
            | Self::Dns { .. } => false,
        }
    }
}

/// As people know it.
impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillSwitch(_) => {
                write!(f, "the kill switch (nftables table {KILL_SWITCH_TABLE})")
            }
            Self::Gateway(_) => {
                write!(f, "the gateway's firewall and NAT (nftables table {GATEWAY_TABLE})")
            }
            Self::Device { name, mtu, .. } => write!(f, "the interface {name} (up, MTU {mtu})"),
            Self::Sysctl { key, value } => {
                write!(f, "the setting net.{}={value}", key.replace('/', "."))
            }
            Self::Address { device, net } => write!(f, "the address {net} on {device}"),
            Self::Route { net, .. } => write!(f, "the route to {net} in table {TABLE}"),
            Self::MptcpLimit(..) => f.write_str("the limit of MPTCP subflows"),
            Self::Subflow(endpoint) => write!(f, "the MPTCP endpoint {}", endpoint.address),
            Self::Rule { v6, .. } => {
                let family = if *v6 { "IPv6" } else { "IPv4" };
                write!(f, "the {family} routing rule at priority {RULE_PRIORITY_TUNNEL}")
            }
            Self::Dns { .. } => f.write_str("the tunnel's name servers"),
        }
    }
}

/// The TUN set up.
pub(crate) fn device(plan: &Plan) -> Item {
    Item::Device { name: plan.device.clone(), mtu: plan.mtu, persistent: plan.persistent }
}

/// The changes that `plan` consists of, in order, without the settings that depend on the links.
pub(crate) fn items(plan: &Plan) -> Vec<Item> {
    let mut items = vec![device(plan)];
    if let Some(switch) = &plan.kill_switch {
        items.push(Item::KillSwitch(Opening {
            device: plan.device.clone(),
            gateways: sorted(switch.gateways.clone()),
            destinations: sorted(truncated(&plan.exclude)),
            allow_lan: plan.allow_lan,
        }));
    }
    let device = &plan.device;
    if let Some(firewall) = &plan.firewall {
        items.push(Item::Gateway(Gate {
            device: device.clone(),
            nat: firewall.nat,
            networks: sorted(truncated(&plan.addresses)),
            own: sorted(plan.addresses.iter().map(IpNet::addr).collect()),
            subnets: sorted(truncated(&plan.routes)),
            udp_ports: sorted(firewall.udp_ports.clone()),
            tcp_ports: sorted(firewall.tcp_ports.clone()),
        }));
    }
    let own = plan.addresses.iter().map(|&net| alone_if_routed(net, plan));
    items.extend(own.map(|net| Item::Address { device: device.clone(), net }));
    let links = plan.link_addresses.iter();
    items.extend(links.map(|(device, net)| Item::Address { device: device.clone(), net: *net }));
    push_routes(plan, &mut items);
    push_subflows(plan, &mut items);
    if let Some(dns) = &plan.dns {
        items.push(Item::Dns { device: device.clone(), dns: dns.clone() });
    }
    sorted(items)
}

/// Subflows, and room for them: for as many as the kernel allows where each is to go to each
/// address of the other end, of which nobody knows here how many it will announce.
fn push_subflows(plan: &Plan, items: &mut Vec<Item>) {
    if plan.subflows.is_empty() {
        return;
    }
    let is_mesh = plan.subflows.iter().any(|endpoint| endpoint.mesh);
    let count = if is_mesh { ENDPOINTS_MAX } else { plan.subflows.len() };
    let limit = u32::try_from(count).unwrap_or(u32::MAX);
    if is_mesh {
        items.push(Item::MptcpLimit(Limit::Announced, limit));
    }
    items.push(Item::MptcpLimit(Limit::Subflows, limit));
    items.extend(plan.subflows.iter().cloned().map(Item::Subflow));
}

fn push_routes(plan: &Plan, items: &mut Vec<Item>) {
    let has_v6 = |v6: bool| plan.addresses.iter().any(|net| net.addr().is_ipv6() == v6);
    for v6 in [false, true] {
        let of_family = |nets: &[IpNet]| -> Vec<IpNet> {
            truncated(nets).into_iter().filter(|net| net.addr().is_ipv6() == v6).collect()
        };
        let routes = of_family(&plan.routes);
        if routes.is_empty() {
            continue;
        }
        let exclude = of_family(&plan.exclude);
        items.push(Item::Rule { v6, kind: RuleKind::Tunnel });
        if plan.allow_lan {
            items.push(Item::Rule { v6, kind: RuleKind::Lan });
        }
        let target =
            if has_v6(v6) { Target::Device(plan.device.clone()) } else { Target::Unreachable };
        // What is both a route and excluded is excluded.
        let inside = routes.into_iter().filter(|net| !exclude.contains(net));
        items.extend(inside.map(|net| Item::Route { net, target: target.clone() }));
        items.extend(exclude.iter().map(|&net| Item::Route { net, target: Target::Throw }));
    }
}

/// The address without its network where the plan itself routes that. The kernel adds a route to
/// the network of each address to the main table: where a local network overlaps it, marked packets
/// to that network's router or name server would loop into the tunnel.
fn alone_if_routed(net: IpNet, plan: &Plan) -> IpNet {
    let has = |nets: &[IpNet]| nets.iter().any(|other| other.trunc() == net.trunc());
    // With `allow_lan` the main table is asked first, and has to know.
    let is_routed = has(&plan.routes) && !has(&plan.exclude) && !plan.allow_lan;
    if is_routed { IpNet::from(net.addr()) } else { net }
}

fn truncated(nets: &[IpNet]) -> Vec<IpNet> {
    nets.iter().map(IpNet::trunc).collect()
}

fn sorted<T: Ord>(mut entries: Vec<T>) -> Vec<T> {
    entries.sort();
    entries.dedup();
    entries
}
