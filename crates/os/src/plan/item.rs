//! The single changes of a plan.
//!
//! A plan becomes an ordered set of [`Item`]s, and the difference of two sets is the work to do.
//! The order of the variants is the order in which they are applied. The kill switch is first. The
//! guard follows the rules, which lead packets into the tunnel: before them, it would refuse
//! everything.

use std::{fmt, net::IpAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::{
    Connection, Destination, Dns, GATEWAY_TABLE, GUARD_TABLE, KILL_SWITCH_TABLE, Plan,
    RULE_PRIORITY_INBOUND, RULE_PRIORITY_REPLIES, RULE_PRIORITY_TUNNEL, TABLE, TABLE_REPLIES,
    local_network::LocalNetwork,
    networks,
    surroundings::{Bridge, Surroundings, groups},
};
use crate::mptcp::{ENDPOINTS_MAX, Endpoint, Limit};

/// One change of the host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Item {
    /// The kill switch's nftables table.
    KillSwitch(Opening),
    /// The nftables ruleset of a gateway. Journals of earlier versions call it NAT.
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
    /// A route in one of our tables.
    Route {
        net: IpNet,
        target: Target,
    },
    /// The routes past the tunnel of one family. The journal does without the networks: whatever
    /// routes of this kind are in Rove's table are removed.
    Excluded {
        v6: bool,
        #[serde(skip)]
        nets: Vec<IpNet>,
    },
    /// What an MPTCP connection may have, at least.
    MptcpLimit(Limit, u32),
    /// From where it has a subflow.
    Subflow(Endpoint),
    Rule {
        v6: bool,
        kind: RuleKind,
    },
    /// The guard's nftables tables.
    Guard(Guard),
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
    /// A link of this host, for destinations on that link.
    Link(String),
    /// The same as [`Target::Unreachable`], with a higher metric than the route into the tunnel. It
    /// stays when the device disappears.
    Barrier,
    /// Into the tunnel, for replies to connections that came in through it. It stands in a table of
    /// its own.
    Replies(String),
}

/// What a policy rule does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RuleKind {
    /// Send replies to connections that came in on another link through the main table.
    #[serde(alias = "lan")]
    Inbound,
    /// Send what has no mark to our table.
    Tunnel,
    /// Send replies to connections that came in through the tunnel back into it.
    Replies,
}

/// The exceptions of the kill switch and the guard.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opening {
    pub(crate) device: String,
    /// Gateway addresses, whose datagrams may arrive unsolicited at the tunnel's sockets.
    pub(crate) gateways: Vec<IpAddr>,
    /// Destinations that are excluded from the tunnel.
    #[serde(with = "networks")]
    pub(crate) destinations: Vec<IpNet>,
    /// Also allow the multicast groups and link-local addresses of links.
    pub(crate) allow_lan: bool,
    /// The local networks, with `allow_lan`.
    #[serde(default)]
    pub(crate) lan: Vec<LocalNetwork>,
    /// Links to containers and virtual machines of this host.
    #[serde(default)]
    pub(crate) own_links: Vec<String>,
    /// Connections that stay outside the tunnel.
    #[serde(default)]
    pub(crate) kept: Vec<Connection>,
    /// Networks of links, whose DHCP servers get renewals, and whose hosts are neighbours.
    #[serde(default)]
    pub(crate) near: Vec<LocalNetwork>,
    /// The user whose sockets send the tunnel's datagrams, where the kernel can tell.
    #[serde(default)]
    pub(crate) sender: Option<u32>,
    /// MPTCP opens subflows, without a socket of that user.
    #[serde(default)]
    pub(crate) subflows: bool,
    /// Networks behind this host to which connections may come from the tunnel.
    #[serde(default)]
    pub(crate) behind: Vec<IpNet>,
    /// Networks that stay on other programs' tunnels. With a kill switch there are none.
    #[serde(default)]
    pub(crate) tunnels: Vec<LocalNetwork>,
    /// Links that translate IPv4 for a network with IPv6 only.
    #[serde(default)]
    pub(crate) translators: Vec<String>,
    /// Bridges with a port that leads out of this host.
    #[serde(default)]
    pub(crate) bridges: Vec<Bridge>,
}

/// The destinations and addresses that the guard keeps in the tunnel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guard {
    pub(crate) opening: Opening,
    /// Destinations that are reachable only through the tunnel.
    pub(crate) routes: Vec<IpNet>,
    /// The tunnel's own addresses.
    pub(crate) addresses: Vec<IpAddr>,
    /// Those of them that another link has too.
    pub(crate) shared_addresses: Vec<IpAddr>,
    /// Networks of containers and virtual machines, which use the tunnel under its own address.
    pub(crate) translated: Vec<IpNet>,
    /// TCP connections that came in before the guard go on.
    #[serde(default)]
    pub(crate) keep_incoming: bool,
    /// Links on which the guard replaces the kernel's strict reverse path filter.
    pub(crate) strict_links: Vec<String>,
}

impl Opening {
    /// The exceptions of a kill switch whose settings are lost: the usual interface, and the
    /// messages that a host must send to have a network.
    pub(crate) fn closed() -> Self {
        Self { device: "rove0".to_owned(), ..Self::default() }
    }
}

/// The packets that a gateway forwards, and their translation.
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
    /// What clients may contact on this host, besides `own`.
    #[serde(default)]
    pub(crate) admitted: Vec<Destination>,
    /// Tracked connections that one source may have.
    #[serde(default)]
    pub(crate) share: Option<u32>,
    /// Packets of the ports on which the gateway listens are not tracked.
    #[serde(default)]
    pub(crate) untracked: bool,
}

impl Gate {
    /// The source addresses that packets from the tunnel may have.
    pub(crate) fn sources(&self) -> Vec<IpNet> {
        self.networks.iter().chain(&self.subnets).copied().collect()
    }
}

impl Target {
    /// The table of the route, and whether it is behind another one there. Two routes of one place
    /// replace each other.
    const fn place(&self) -> (u32, bool) {
        match self {
            Self::Device(_) | Self::Throw | Self::Unreachable | Self::Link(_) => (TABLE, false),
            Self::Barrier => (TABLE, true),
            Self::Replies(_) => (TABLE_REPLIES, false),
        }
    }
}

impl Item {
    /// Whether both stand in the same place, so that the one replaces the other.
    pub(crate) fn same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::KillSwitch(_), Self::KillSwitch(_))
            | (Self::Gateway(_), Self::Gateway(_))
            | (Self::Guard(_), Self::Guard(_)) => true,
            (Self::MptcpLimit(which, _), Self::MptcpLimit(other, _)) => which == other,
            (Self::Device { name, .. }, Self::Device { name: other, .. }) => name == other,
            (Self::Sysctl { key, .. }, Self::Sysctl { key: other, .. }) => key == other,
            (Self::Route { net, target }, Self::Route { net: other, target: others }) => {
                net == other && target.place() == others.place()
            }
            (Self::Excluded { v6, .. }, Self::Excluded { v6: other, .. }) => v6 == other,
            // Earlier versions had an item for each route, and routes may become excluded.
            (Self::Excluded { v6, nets }, Self::Route { net, target }) => {
                let is_past = *target == Target::Throw && net.addr().is_ipv6() == *v6;
                let is_before = target.place() == Target::Throw.place();
                is_past || is_before && nets.binary_search(net).is_ok()
            }
            (Self::Subflow(endpoint), Self::Subflow(other)) => endpoint.address == other.address,
            (Self::Dns { device, .. }, Self::Dns { device: other, .. }) => device == other,
            _ => self == other,
        }
    }
}

impl Item {
    /// The interface that this item belongs to. The kernel removes both together.
    pub(crate) fn device(&self) -> Option<&str> {
        match self {
            Self::Device { name, .. } => Some(name),
            Self::Address { device, .. }
            | Self::Route {
                target: Target::Device(device) | Target::Link(device) | Target::Replies(device),
                ..
            }
            | Self::Dns { device, .. } => Some(device),
            Self::Route {
                target: Target::Throw | Target::Unreachable | Target::Barrier, ..
            }
            | Self::Excluded { .. }
            | Self::KillSwitch(_)
            | Self::Guard(_)
            | Self::Sysctl { .. }
            | Self::MptcpLimit(..)
            | Self::Subflow(_)
            | Self::Gateway(_)
            | Self::Rule { .. } => None,
        }
    }

    /// The network that this item keeps on a link of the host.
    pub(crate) fn on_link(&self) -> Option<IpNet> {
        let Self::Route { net, target: Target::Link(_) } = self else { return None };
        Some(*net)
    }

    /// Whether this item leads packets past the tunnel.
    pub(crate) fn leads_past(&self) -> bool {
        let is_throw = matches!(self, Self::Route { target: Target::Throw, .. });
        is_throw || matches!(self, Self::Excluded { .. }) || self.on_link().is_some()
    }

    /// The nftables tables of this item, by family and name. Only the first must exist: a kernel
    /// may lack a family.
    pub(crate) fn filter_tables(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::KillSwitch(_) => &[("inet", KILL_SWITCH_TABLE)],
            Self::Guard(_) => &[("inet", GUARD_TABLE), ("arp", GUARD_TABLE)],
            Self::Gateway(_) => &[("inet", GATEWAY_TABLE), ("arp", GATEWAY_TABLE)],
            Self::Device { .. }
            | Self::Sysctl { .. }
            | Self::Address { .. }
            | Self::Route { .. }
            | Self::Excluded { .. }
            | Self::MptcpLimit(..)
            | Self::Subflow(_)
            | Self::Rule { .. }
            | Self::Dns { .. } => &[],
        }
    }

    /// Whether its tables have named sets: of excluded networks, or those that packets fill.
    pub(crate) const fn has_sets(&self) -> bool {
        matches!(self, Self::Guard(_) | Self::KillSwitch(_))
    }

    /// The item as the journal keeps it: without lists that nobody needs to undo it.
    pub(crate) fn in_journal(&self) -> Self {
        if let Self::Guard(guard) = self {
            let opening = Opening { destinations: Vec::new(), ..guard.opening.clone() };
            return Self::Guard(Guard { opening, ..guard.clone() });
        }
        if let Self::Excluded { v6, .. } = self {
            return Self::Excluded { v6: *v6, nets: Vec::new() };
        }
        self.clone()
    }

    /// Whether it needs a kernel with IPv6.
    pub(crate) fn is_ipv6(&self) -> bool {
        match self {
            Self::Address { net, .. } | Self::Route { net, .. } => net.addr().is_ipv6(),
            Self::Subflow(endpoint) => endpoint.address.is_ipv6(),
            Self::Rule { v6, .. } | Self::Excluded { v6, .. } => *v6,
            Self::KillSwitch(_)
            | Self::Guard(_)
            | Self::Device { .. }
            | Self::Sysctl { .. }
            | Self::MptcpLimit(..)
            | Self::Gateway(_)
            | Self::Dns { .. } => false,
        }
    }
}

/// The name that people know.
impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillSwitch(_) => {
                write!(f, "the kill switch (nftables table {KILL_SWITCH_TABLE})")
            }
            Self::Guard(_) => write!(f, "the tunnel's guard (nftables table {GUARD_TABLE})"),
            Self::Gateway(_) => {
                write!(f, "the gateway's firewall and NAT (nftables table {GATEWAY_TABLE})")
            }
            Self::Device { name, mtu, .. } => write!(f, "the interface {name} (up, MTU {mtu})"),
            Self::Sysctl { key, value } => {
                write!(f, "the setting net.{}={value}", key.replace('/', "."))
            }
            Self::Address { device, net } => write!(f, "the address {net} on {device}"),
            Self::Route { net, target: Target::Replies(_) } => {
                write!(f, "the route to {net} in table {TABLE_REPLIES}")
            }
            Self::Route { net, .. } => write!(f, "the route to {net} in table {TABLE}"),
            Self::Excluded { nets, .. } => {
                write!(f, "the routes past the tunnel to {} networks in table {TABLE}", nets.len())
            }
            Self::MptcpLimit(..) => f.write_str("the limit of MPTCP subflows"),
            Self::Subflow(endpoint) => write!(f, "the MPTCP endpoint {}", endpoint.address),
            Self::Rule { v6, kind } => {
                let family = if *v6 { "IPv6" } else { "IPv4" };
                let priority = match kind {
                    RuleKind::Inbound => RULE_PRIORITY_INBOUND,
                    RuleKind::Tunnel => RULE_PRIORITY_TUNNEL,
                    RuleKind::Replies => RULE_PRIORITY_REPLIES,
                };
                write!(f, "the {family} routing rule at priority {priority}")
            }
            Self::Dns { .. } => f.write_str("the list of name servers"),
        }
    }
}

/// The TUN set up.
pub(crate) fn device(plan: &Plan) -> Item {
    Item::Device { name: plan.device.clone(), mtu: plan.mtu, persistent: plan.persistent }
}

/// The changes that `plan` consists of, in order, without kernel settings.
pub(crate) fn items(plan: &Plan, around: &Surroundings) -> Vec<Item> {
    let mut items = vec![device(plan)];
    if let Some(switch) = &plan.kill_switch {
        let opening = opening(plan, around, &switch.gateways, &switch.kept);
        items.push(Item::KillSwitch(opening));
    }
    if let Some(guard) = &plan.guard {
        items.push(Item::Guard(Guard {
            opening: opening(plan, around, &guard.gateways, &guard.kept),
            routes: sorted(truncated(&plan.routes)),
            addresses: sorted(plan.addresses.iter().map(IpNet::addr).collect()),
            shared_addresses: around.shared_addresses.clone(),
            translated: around.translated(plan),
            strict_links: around.strict_links.clone(),
            keep_incoming: guard.keep_incoming,
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
            admitted: sorted(firewall.admitted.clone()),
            share: firewall.share,
            untracked: firewall.untracked,
        }));
    }
    let own = plan.addresses.iter().map(|&net| alone_if_routed(net, plan));
    items.extend(own.map(|net| Item::Address { device: device.clone(), net }));
    let links = plan.link_addresses.iter();
    items.extend(links.map(|(device, net)| Item::Address { device: device.clone(), net: *net }));
    push_routes(plan, around, &mut items);
    push_subflows(plan, &mut items);
    if let Some(dns) = &plan.dns {
        items.push(Item::Dns { device: device.clone(), dns: dns.clone() });
    }
    sorted(items)
}

fn opening(
    plan: &Plan,
    around: &Surroundings,
    gateways: &[IpAddr],
    kept: &[Connection],
) -> Opening {
    Opening {
        device: plan.device.clone(),
        gateways: sorted(gateways.to_vec()),
        destinations: networks::merged(&plan.exclude, &plan.routes),
        allow_lan: plan.allow_lan,
        lan: around.lan.clone(),
        own_links: around.own_links.clone(),
        kept: sorted(kept.to_vec()),
        near: around.near.clone(),
        sender: around.sender,
        subflows: !plan.subflows.is_empty(),
        behind: sorted(plan.guard.iter().flat_map(|guard| truncated(&guard.behind)).collect()),
        tunnels: around.tunnels.clone(),
        translators: around.translators.clone(),
        bridges: around.bridges.clone(),
    }
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

fn push_routes(plan: &Plan, around: &Surroundings, items: &mut Vec<Item>) {
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
        let target =
            if has_v6(v6) { Target::Device(plan.device.clone()) } else { Target::Unreachable };
        // If a network is both a route and excluded, it is excluded.
        let inside = routes.iter().filter(|net| !exclude.contains(net));
        items.extend(inside.clone().map(|&net| Item::Route { net, target: target.clone() }));
        let mut past = exclude.clone();
        if plan.allow_lan && !v6 {
            // The main table chooses the link, as it did before. IPv6 groups have routes of the
            // kernel in the table `local`.
            past.extend(groups_v4().filter(|net| !routes.contains(net)));
        }
        if !past.is_empty() {
            items.push(Item::Excluded { v6, nets: networks::merged(&past, &routes) });
        }
        if plan.guard.is_some() {
            items.push(Item::Rule { v6, kind: RuleKind::Inbound });
            let inside = inside.filter(|_| has_v6(v6));
            items.extend(inside.map(|&net| Item::Route { net, target: Target::Barrier }));
        }
        if plan.guard.is_some() && has_v6(v6) {
            items.push(Item::Rule { v6, kind: RuleKind::Replies });
            let target = Target::Replies(plan.device.clone());
            items.push(Item::Route { net: everywhere(v6), target });
        }
        let is_free = |local: &&LocalNetwork| {
            local.net.addr().is_ipv6() == v6
                && !routes.contains(&local.net)
                && !exclude.contains(&local.net)
        };
        let local = around.routed().filter(is_free);
        items.extend(local.map(|LocalNetwork { link, net }| Item::Route {
            net: *net,
            target: Target::Link(link.clone()),
        }));
    }
}

/// The address without its network, if the plan routes that network itself. For each address with a
/// network, the kernel adds a route to the main table. If a local network overlapped it, marked
/// packets to that network's router or name server would loop into the tunnel.
fn alone_if_routed(net: IpNet, plan: &Plan) -> IpNet {
    let has = |nets: &[IpNet]| nets.iter().any(|other| other.trunc() == net.trunc());
    let is_routed = has(&plan.routes) && !has(&plan.exclude);
    if is_routed { IpNet::from(net.addr()) } else { net }
}

/// All addresses of a family.
fn everywhere(v6: bool) -> IpNet {
    if v6 { Ipv6Net::default().into() } else { Ipv4Net::default().into() }
}

/// Multicast and broadcast of a link, where printers and screens are looked for.
fn groups_v4() -> impl Iterator<Item = IpNet> {
    groups().into_iter().filter(|net| net.addr().is_ipv4())
}

fn truncated(nets: &[IpNet]) -> Vec<IpNet> {
    nets.iter().map(IpNet::trunc).collect()
}

fn sorted<T: Ord>(mut entries: Vec<T>) -> Vec<T> {
    entries.sort();
    entries.dedup();
    entries
}
