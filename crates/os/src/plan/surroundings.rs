//! The networks on this host outside the tunnel: local networks, and networks inside the host.
//!
//! This module decides which networks stay reachable outside the tunnel, only by the addresses of
//! links. A route does not prove where a network is: any host on a link can hand one out (DHCP
//! option 121, router advertisements).
//!
//! - A *local network* is the private prefix of a link's address. A public prefix does not count,
//!   because whoever configures a link could claim any destination with it. A network that lies
//!   inside one of the plan's specific routes does not count either.
//! - A link is *inside* the host if it is a bridge whose only ports are virtual machines and
//!   containers, and no default route uses it, or if this host serves guests on it. Any other
//!   bridge leads out: the machines on it have networks of their own.
//! - Networks of other programs' tunnels stay on these tunnels ([`super::beside`]).
//!
//! Limits: containers on their own cable without a bridge, and networks reached through a
//! container, need an `exclude` of the plan.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's lists of attributes and types are open, and mostly not our business"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use ipnet::{IpNet, Ipv4Net};
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{InfoKind, LinkAttribute, LinkExtentMask, LinkInfo, LinkMessage},
    route::RouteMessage,
};
use serde::{Deserialize, Serialize};

use super::{
    Plan,
    beside::{self, Cause, Displaced},
    local_network::{LocalNetwork, is_network, is_private},
    setting,
};
use crate::{
    error::Error,
    links::{self, Link, LinkKind},
    netlink::{Netlink, family, sockets::Server},
};

/// Multicast groups of a link (RFC 5771, RFC 2365, RFC 4291) and link-local addresses. They are
/// open if the local network is.
const GROUPS: [&str; 6] =
    ["224.0.0.0/24", "239.0.0.0/8", "255.255.255.255/32", "fe80::/10", "ff02::/16", "ff05::/16"];

/// Routes that are read of one tunnel. More are those of a router, which [`beside`] does not keep.
const TUNNEL_ROUTES_MAX: usize = 4_096;

/// A bridge, and the hardware addresses by which frames reach this host itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bridge {
    pub(crate) name: String,
    /// Those of the bridge and of its ports. A frame to any of them is for this host
    /// (`br_fdb_add_local` in net/bridge/br_fdb.c).
    pub(crate) addresses: Vec<String>,
}

/// The networks and links around a plan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Surroundings {
    /// The local networks that stay reachable, the preferred link first.
    pub(crate) lan: Vec<LocalNetwork>,
    /// Networks of links inside this host.
    pub(crate) own: Vec<LocalNetwork>,
    /// Those links.
    pub(crate) own_links: Vec<String>,
    /// Networks that stay on other programs' tunnels.
    pub(crate) tunnels: Vec<LocalNetwork>,
    /// Links that translate IPv4 for a network with IPv6 only.
    pub(crate) translators: Vec<String>,
    /// Networks that were reached before the plan and are not any more.
    pub(crate) displaced: Vec<Displaced>,
    /// Bridges that lead out of this host.
    pub(crate) bridges: Vec<Bridge>,
    /// Addresses of the plan that another link has too.
    pub(crate) shared_addresses: Vec<IpAddr>,
    /// Links with a strict reverse path filter, whose check only the guard can continue.
    pub(crate) strict_links: Vec<String>,
    /// The networks of links that lead out, where neighbours and DHCP servers are.
    pub(crate) near: Vec<LocalNetwork>,
    /// The user of this process, where a packet filter sees the same users.
    pub(crate) sender: Option<u32>,
}

impl Surroundings {
    /// The surroundings of `plan` on a host with these links.
    ///
    /// # Errors
    /// [`Error::Os`] where a sandbox forbids netlink.
    pub(super) fn of(plan: &Plan, links: &[Link]) -> Result<Self, Error> {
        let kernel = Kernel::read(&plan.device);
        let kernel = kernel.map_err(|error| Error::os("read the list of links", error))?;
        Ok(kernel.surroundings(plan, links))
    }

    /// The networks that need their own route outside the tunnel, each once.
    pub(super) fn routed(&self) -> impl Iterator<Item = &LocalNetwork> {
        let mut seen = BTreeSet::new();
        let all = self.own.iter().chain(&self.tunnels).chain(&self.lan);
        all.filter(move |local| seen.insert(local.net))
    }

    /// The networks inside the host and on its other tunnels whose packets get the tunnel's
    /// address, because the gateway does not know their own.
    pub(super) fn translated(&self, plan: &Plan) -> Vec<IpNet> {
        let behind = plan.guard.iter().flat_map(|guard| &guard.behind).collect::<Vec<_>>();
        let is_known = |net: &IpNet| behind.iter().any(|known| known.contains(net));
        let nets = self.own.iter().chain(&self.tunnels).map(|local| local.net);
        let nets = nets.filter(|net| !is_known(net));
        nets.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether the link is one to containers or virtual machines.
    pub(super) fn is_inside(&self, link: &str) -> bool {
        self.own_links.iter().any(|own| own == link)
    }
}

/// Properties of links that [`Link`] does not contain.
#[derive(Default)]
struct Kernel {
    bridges: BTreeSet<u32>,
    /// Bridges with a port that leads, or may lead, out of the host.
    outside: BTreeSet<u32>,
    /// Hardware addresses of each bridge and of its ports.
    hardware: BTreeMap<u32, BTreeSet<String>>,
    /// Addresses of RFC 3927, from which no path can start.
    link_local: BTreeMap<u32, IpNet>,
    /// Tunnels of other programs, and the networks that any routing table leads into them.
    tunnels: BTreeMap<u32, Vec<IpNet>>,
    /// UDP sockets that serve names or addresses.
    servers: Vec<Server>,
}

impl Kernel {
    fn read(device: &str) -> io::Result<Self> {
        let mut netlink = Netlink::open().map_err(io::Error::other)?;
        let mut every = LinkMessage::default();
        every.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let links = netlink.dump(&RouteNetlinkMessage::GetLink(every), |entry| match entry {
            RouteNetlinkMessage::NewLink(message) => Some(Port::read(&message)),
            _ => None,
        })?;
        let every = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let link_local = netlink.dump(&every, |entry| match entry {
            RouteNetlinkMessage::NewAddress(message) => link_local(&message),
            _ => None,
        })?;
        let outside = links.iter().filter(|port| !port.is_virtual).filter_map(|port| port.bridge);
        let ours = crate::tun::index_of(device);
        let is_other = |port: &&Port| port.is_tunnel && Some(port.index) != ours;
        let tunnels = links.iter().filter(is_other).map(|port| (port.index, Vec::new()));
        let mut tunnels: BTreeMap<u32, Vec<IpNet>> = tunnels.collect();
        if !tunnels.is_empty() {
            note_routes(&mut netlink, &mut tunnels)?;
        }
        let mut hardware = BTreeMap::<u32, BTreeSet<String>>::new();
        for port in &links {
            let own = port.is_bridge.then_some(port.index);
            for bridge in own.into_iter().chain(port.bridge) {
                hardware.entry(bridge).or_default().extend(port.hardware.clone());
            }
        }
        Ok(Self {
            hardware,
            tunnels,
            servers: beside::servers(),
            bridges: links.iter().filter(|port| port.is_bridge).map(|port| port.index).collect(),
            outside: outside.collect(),
            link_local: link_local.into_iter().collect(),
        })
    }

    fn surroundings(&self, plan: &Plan, links: &[Link]) -> Surroundings {
        let mut around = Surroundings::default();
        let others = links
            .iter()
            .filter(|link| link.kind != LinkKind::Loopback && link.name != plan.device && link.up);
        let mut others: Vec<&Link> = others.collect();
        // If two links are in one network, the one that the kernel prefers gets the route.
        others.sort_by_key(|link| (link.default_v4.unwrap_or(u32::MAX), link.index));
        let own: BTreeSet<IpAddr> = plan.addresses.iter().map(IpNet::addr).collect();
        let theirs = others.iter().flat_map(|link| &link.addresses).map(IpNet::addr);
        let shared: BTreeSet<IpAddr> = theirs.filter(|address| own.contains(address)).collect();
        around.shared_addresses = shared.into_iter().collect();
        for link in others {
            around.bridges.extend(self.bridge_out(link));
            let networks = link.addresses.iter().chain(self.link_local.get(&link.index));
            let networks = networks.map(IpNet::trunc).filter(is_network);
            let local = |net| LocalNetwork { link: link.name.clone(), net };
            if self.is_inside(link) {
                around.own_links.push(link.name.clone());
                around.own.extend(networks.map(local));
                continue;
            }
            let networks: Vec<IpNet> = networks.collect();
            around.near.extend(networks.iter().copied().map(local));
            if plan.allow_lan && link.carrier {
                let is_lan = |net: &IpNet| is_private(net) && !is_routed_by_name(plan, net);
                around.lan.extend(networks.into_iter().filter(is_lan).map(local));
            }
            self.note_beside(plan, link, &mut around);
        }
        let lan: BTreeSet<IpNet> = around.lan.iter().map(|local| local.net).collect();
        around.displaced.retain(|displaced| !lan.contains(&displaced.net));
        around
    }

    /// Notes what other programs did on a link before the plan.
    fn note_beside(&self, plan: &Plan, link: &Link, around: &mut Surroundings) {
        if link.kind == LinkKind::Clat {
            around.translators.push(link.name.clone());
            return;
        }
        if let Some(routes) = self.tunnels.get(&link.index) {
            let (kept, displaced) = beside::of_tunnel(plan, link, routes);
            around.tunnels.extend(kept);
            around.displaced.extend(displaced);
            return;
        }
        let guests = beside::networks_of_guests(link).into_iter();
        let mut guests = guests.filter(|net| beside::captured_by(plan, *net).is_some()).peekable();
        if guests.peek().is_none() {
            return;
        }
        let name = || link.name.clone();
        if plan.kill_switch.is_none() && beside::serves(link, &self.servers) {
            around.own_links.push(name());
            around.own.extend(guests.map(|net| LocalNetwork { link: name(), net }));
        } else if link.carrier && forwards(&link.name) {
            let cause = Cause::Guests;
            around.displaced.extend(guests.map(|net| Displaced { net, link: name(), cause }));
        }
    }

    /// The bridge, if the link is one that leads out of this host.
    fn bridge_out(&self, link: &Link) -> Option<Bridge> {
        let is_one = self.bridges.contains(&link.index) && !self.is_inside(link);
        let addresses = self.hardware.get(&link.index).filter(|_| is_one)?;
        Some(Bridge { name: link.name.clone(), addresses: addresses.iter().cloned().collect() })
    }

    fn is_inside(&self, link: &Link) -> bool {
        let leads_out = link.default_v4.is_some() || link.default_v6.is_some();
        self.bridges.contains(&link.index) && !self.outside.contains(&link.index) && !leads_out
    }
}

/// A link as a bridge sees it.
struct Port {
    index: u32,
    bridge: Option<u32>,
    is_bridge: bool,
    /// The peer of this port is on this host, as far as can be known.
    is_virtual: bool,
    is_tunnel: bool,
    hardware: Option<String>,
}

impl Port {
    fn read(message: &LinkMessage) -> Self {
        let mut port = Self {
            index: message.header.index,
            bridge: None,
            is_bridge: false,
            is_virtual: false,
            is_tunnel: false,
            hardware: None,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::Controller(bridge) => port.bridge = Some(*bridge),
                LinkAttribute::Address(address) => port.hardware = hardware(address),
                LinkAttribute::LinkInfo(infos) => {
                    let is_any = |kinds: &[InfoKind]| {
                        let kinds = kinds.iter().cloned().map(LinkInfo::Kind);
                        kinds.into_iter().any(|kind| infos.contains(&kind))
                    };
                    port.is_bridge = is_any(&[InfoKind::Bridge]);
                    port.is_virtual = is_any(&[InfoKind::Veth, InfoKind::Tun, InfoKind::Dummy]);
                    port.is_tunnel = infos.iter().any(
                        |info| matches!(info, LinkInfo::Kind(kind) if beside::is_tunnel(kind)),
                    );
                }
                _ => {}
            }
        }
        port
    }
}

/// Notes the destinations of all routes, in any table, that lead into these links.
fn note_routes(netlink: &mut Netlink, into: &mut BTreeMap<u32, Vec<IpNet>>) -> io::Result<()> {
    for v6 in [false, true] {
        let mut message = RouteMessage::default();
        message.header.address_family = family(v6);
        let found = netlink.dump(&RouteNetlinkMessage::GetRoute(message), |entry| match entry {
            RouteNetlinkMessage::NewRoute(message) => links::read_route(&message),
            _ => None,
        });
        // A kernel without IPv6 has no routes of it to list.
        for route in found.unwrap_or_default() {
            for link in route.through() {
                let routes = into.get_mut(link).filter(|routes| routes.len() < TUNNEL_ROUTES_MAX);
                routes.into_iter().for_each(|routes| routes.push(route.to()));
            }
        }
    }
    Ok(())
}

/// Whether the host forwards packets that arrive on this link.
fn forwards(link: &str) -> bool {
    setting::read(&format!("ipv4/conf/{link}/forwarding")).is_ok_and(|value| value == "1")
}

/// An Ethernet address as people write it.
fn hardware(address: &[u8]) -> Option<String> {
    let octets: [u8; 6] = address.try_into().ok()?;
    Some(octets.map(|octet| format!("{octet:02x}")).join(":"))
}

fn link_local(message: &AddressMessage) -> Option<(u32, IpNet)> {
    message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(IpAddr::V4(address)) if address.is_link_local() => {
            let net = Ipv4Net::new(*address, message.header.prefix_len).ok()?;
            Some((message.header.index, net.into()))
        }
        _ => None,
    })
}

/// Networks that are on each link.
pub(crate) fn groups() -> Vec<IpNet> {
    GROUPS.iter().filter_map(|net| net.parse().ok()).collect()
}

/// Whether a route of the plan other than a default route covers the network.
fn is_routed_by_name(plan: &Plan, net: &IpNet) -> bool {
    let named = plan.routes.iter().filter(|route| route.prefix_len() > 0);
    named.into_iter().any(|route| route.trunc().contains(net))
}
