//! The links of this host, and changes of them.
//!
//! A [`snapshot`] is a value, and two snapshots can be compared. This module decides which
//! addresses are usable. It leaves out addresses that the kernel still checks and link-local ones.
//! It uses an address that is about to expire only if the link has no better one. It does not
//! decide which link is best, or which links Rove uses. Limits: metrics are those of default routes
//! in the main table. Wi-Fi and cellular devices are recognised by sysfs; without sysfs they count
//! as Ethernet or unknown.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's lists of attributes and types are open, and mostly not our business"
)]

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use ipnet::{IpNet, Ipv4Net};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkLayerType, LinkMessage, State},
    route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType},
};

pub use crate::netlink::monitor::Monitor;
use crate::{error::Error, netlink::Netlink};

/// What a link is, as far as it can be told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LinkKind {
    /// `lo`.
    Loopback,
    /// A cable, a bridge, a virtual Ethernet (also a TAP).
    Ethernet,
    /// Wi-Fi.
    Wireless,
    /// A modem.
    Cellular,
    /// A tunnel: a TUN (also ours), WireGuard, GRE and the like.
    Tunnel,
    /// A tunnel whose program translates IPv4 for a network with IPv6 only (464XLAT, RFC 6877), and
    /// that has a default route for IPv4.
    Clat,
    /// Anything else.
    Other,
}

/// One link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The kernel's number for it; not used again while the machine runs.
    pub index: u32,
    /// Its name, which may change.
    pub name: String,
    /// What it is.
    pub kind: LinkKind,
    /// Set up by the administrator.
    pub up: bool,
    /// The cable is plugged, the Wi-Fi associated.
    pub carrier: bool,
    /// How often it has got its carrier: what went and came back in a moment shows in nothing else.
    pub carrier_ups: u32,
    /// It has carrier and waits for something else (RFC 2863, dormant): Wi-Fi for its keys, a
    /// modem for its call.
    pub dormant: bool,
    /// Bytes of its largest packet.
    pub mtu: u32,
    /// Addresses that a path can start from, with their prefix. Temporary IPv6 addresses come
    /// before lasting ones (RFC 8981: they are meant for what goes out).
    pub addresses: Vec<IpNet>,
    /// All of them are deprecated (RFC 4862 section 5.5.4): what uses one may go on, and the
    /// network will take it back.
    pub deprecated: bool,
    /// Metric of its default route for IPv4, if it has one; the smallest, if several.
    pub default_v4: Option<u32>,
    /// The same for IPv6.
    pub default_v6: Option<u32>,
    /// Destinations of the link's other routes, in any table. They include `0.0.0.0/0` or `::/0` if
    /// only a table other than the main one has a default route. Sorted, at most [`ROUTES_MAX`];
    /// none of a family that has a default route.
    pub routes: Vec<IpNet>,
    /// Networks besides those of its addresses that the link reaches without a router, for example
    /// the prefix of a router advertisement beside an address of DHCPv6. Sorted, at most
    /// [`ROUTES_MAX`].
    pub attached: Vec<IpNet>,
}

/// Addresses of this end of a translator (RFC 7335).
const CLAT: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 0), 29));

/// Networks recorded for one link. A link with more usually has a default route as well.
pub const ROUTES_MAX: usize = 64;

impl Link {
    /// Whether a path can start here: up, with carrier and address, not dormant, and leading
    /// outside.
    pub fn usable(&self) -> bool {
        self.may_carry() && !self.dormant
    }

    /// Whether a path that started here may still carry: dormant or not.
    pub fn may_carry(&self) -> bool {
        let outside = match self.kind {
            LinkKind::Loopback | LinkKind::Tunnel => false,
            LinkKind::Ethernet
            | LinkKind::Wireless
            | LinkKind::Cellular
            | LinkKind::Clat
            | LinkKind::Other => true,
        };
        outside && self.up && self.carrier && !self.addresses.is_empty()
    }

    /// Whether the kernel has a default route on this link in that family, in any table.
    pub fn leads_out(&self, v4: bool) -> bool {
        let default = if v4 { self.default_v4 } else { self.default_v6 };
        let everywhere = |net: &IpNet| net.prefix_len() == 0 && net.addr().is_ipv4() == v4;
        default.is_some() || self.routes.iter().any(everywhere)
    }

    /// Whether the kernel has a route to `address` on this link. That is a default route, a route
    /// to a network with that address, or the network of one of the link's own addresses.
    pub fn reaches(&self, address: IpAddr) -> bool {
        let mut networks = self.routes.iter().chain(&self.addresses);
        self.leads_out(address.is_ipv4()) || networks.any(|net| net.contains(&address))
    }
}

/// All links of the present network namespace, by index.
///
/// # Errors
/// [`Error::Os`] where a sandbox forbids netlink.
pub fn snapshot() -> Result<Vec<Link>, Error> {
    let mut netlink = Netlink::open()?;
    let failed = |what| move |error| Error::os(format!("read the list of {what}"), error);
    let found = netlink.dump(&every_link(), |entry| match entry {
        RouteNetlinkMessage::NewLink(message) => read_link(&message),
        _ => None,
    });
    let found = found.map_err(failed("links"))?;
    let mut links: BTreeMap<_, _> = found.into_iter().map(|link| (link.index, link)).collect();
    let every_address = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let found = netlink.dump(&every_address, |entry| match entry {
        RouteNetlinkMessage::NewAddress(message) => read_address(&message),
        _ => None,
    });
    let (lasting, deprecated): (Vec<_>, Vec<_>) =
        found.map_err(failed("addresses"))?.into_iter().partition(|address| !address.deprecated);
    for address in lasting {
        address.add_to(&mut links);
    }
    for link in links.values_mut() {
        link.deprecated = link.addresses.is_empty();
    }
    for address in deprecated {
        if links.get(&address.link).is_some_and(|link| link.deprecated) {
            address.add_to(&mut links);
        }
    }
    for link in links.values_mut() {
        link.deprecated &= !link.addresses.is_empty();
    }
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        let found = netlink.dump(&RouteNetlinkMessage::GetRoute(message), |entry| match entry {
            RouteNetlinkMessage::NewRoute(message) => read_route(&message),
            _ => None,
        });
        // A kernel without IPv6 has no routes of it to list.
        for route in found.unwrap_or_default() {
            route.add_to(&mut links);
        }
    }
    for link in links.values_mut() {
        let has_default = [link.default_v4.is_some(), link.default_v6.is_some()];
        link.routes.retain(|net| !has_default[usize::from(net.addr().is_ipv6())]);
        for networks in [&mut link.routes, &mut link.attached] {
            networks.sort_unstable();
            networks.dedup();
        }
        if is_clat(link) {
            link.kind = LinkKind::Clat;
        }
    }
    Ok(links.into_values().collect())
}

/// Whether a tunnel is a translator: it has an address for translators and leads out. Only a
/// program on this host can make a tunnel.
fn is_clat(link: &Link) -> bool {
    let is_v4 = |net: &&IpNet| net.addr().is_ipv4();
    let mut addresses = link.addresses.iter().filter(is_v4).map(IpNet::addr);
    link.kind == LinkKind::Tunnel
        && link.default_v4.is_some()
        && link.addresses.iter().any(|net| net.addr().is_ipv4())
        && addresses.all(|address| CLAT.contains(&address))
}

/// How much has gone by each link since there is that link, both directions together, in bytes, as
/// the kernel counts: by index.
///
/// # Errors
/// [`Error::Os`] where a sandbox forbids netlink.
pub fn traffic() -> Result<BTreeMap<u32, u64>, Error> {
    let mut netlink = Netlink::open()?;
    let every = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let found = netlink.dump(&every, |entry| match entry {
        RouteNetlinkMessage::NewLink(message) => read_traffic(&message),
        _ => None,
    });
    let found = found.map_err(|error| Error::os("read the counters of links", error))?;
    Ok(found.into_iter().collect())
}

pub(crate) fn read_traffic(message: &LinkMessage) -> Option<(u32, u64)> {
    let counted = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Stats64(stats) => Some(stats.rx_bytes.saturating_add(stats.tx_bytes)),
        _ => None,
    });
    Some((message.header.index, counted?))
}

/// Asks for every link without its counters, which are most of what the kernel would send.
fn every_link() -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    RouteNetlinkMessage::GetLink(message)
}

pub(crate) fn read_link(message: &LinkMessage) -> Option<Link> {
    let name = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })?;
    let mtu = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    let carrier_ups = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::CarrierUpCount(ups) => Some(*ups),
        _ => None,
    });
    let dormant = message.attributes.contains(&LinkAttribute::OperState(State::Dormant));
    let flags = message.header.flags;
    Some(Link {
        index: message.header.index,
        kind: kind_of(message, &name),
        name,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        carrier_ups: carrier_ups.unwrap_or(0),
        dormant,
        mtu: mtu.unwrap_or(0),
        addresses: Vec::new(),
        deprecated: false,
        default_v4: None,
        default_v6: None,
        routes: Vec::new(),
        attached: Vec::new(),
    })
}

fn kind_of(message: &LinkMessage, name: &str) -> LinkKind {
    if message.header.flags.contains(LinkFlags::Loopback) {
        return LinkKind::Loopback;
    }
    let sysfs = Path::new("/sys/class/net").join(name);
    let uevent = fs::read_to_string(sysfs.join("uevent")).unwrap_or_default();
    if uevent.lines().any(|line| line == "DEVTYPE=wwan") {
        return LinkKind::Cellular;
    }
    if sysfs.join("wireless").exists() || sysfs.join("phy80211").exists() {
        return LinkKind::Wireless;
    }
    match message.header.link_layer_type {
        LinkLayerType::Ether => LinkKind::Ethernet,
        LinkLayerType::Rawip => LinkKind::Cellular,
        // A TUN, WireGuard and XFRM have no link layer at all.
        LinkLayerType::None
        | LinkLayerType::Tunnel
        | LinkLayerType::Tunnel6
        | LinkLayerType::Sit
        | LinkLayerType::Ipgre
        | LinkLayerType::Ip6gre => LinkKind::Tunnel,
        _ => LinkKind::Other,
    }
}

/// Addresses that cannot be used, or not yet.
const UNUSABLE: AddressFlags = AddressFlags::Tentative.union(AddressFlags::Dadfailed);

/// An address that can be used, and whose.
pub(crate) struct Address {
    link: u32,
    net: IpNet,
    /// Made by the privacy extensions (RFC 8981): preferred to the lasting one.
    temporary: bool,
    /// Not to be used for anything new.
    deprecated: bool,
}

impl Address {
    fn add_to(self, links: &mut BTreeMap<u32, Link>) {
        let Some(link) = links.get_mut(&self.link) else { return };
        let place = if self.temporary { 0 } else { link.addresses.len() };
        link.addresses.insert(place, self.net);
    }
}

pub(crate) fn read_address(message: &AddressMessage) -> Option<Address> {
    let (mut address, mut local) = (None, None);
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    // On a point-to-point link "address" is the other end.
    let net = IpNet::new(local.or(address)?, message.header.prefix_len).ok()?;
    let secondary = message.header.flags.contains(AddressHeaderFlags::Secondary);
    let temporary = secondary && net.addr().is_ipv6();
    let usable = !flags.intersects(UNUSABLE) && !reaches_link_only(net);
    let deprecated = flags.contains(AddressFlags::Deprecated);
    usable.then_some(Address { link: message.header.index, net, temporary, deprecated })
}

fn reaches_link_only(net: IpNet) -> bool {
    match net {
        IpNet::V4(net) => net.addr().is_link_local(),
        IpNet::V6(net) => net.addr().is_unicast_link_local(),
    }
}

/// A route to a network.
pub(crate) struct Route {
    to: IpNet,
    metric: u32,
    is_main: bool,
    /// It leads to a router.
    is_routed: bool,
    /// The links that it leads through.
    through: Vec<u32>,
}

impl Route {
    /// The destination.
    pub(crate) fn to(&self) -> IpNet {
        self.to
    }

    /// The links that it leads through.
    pub(crate) fn through(&self) -> &[u32] {
        &self.through
    }

    fn add_to(self, links: &mut BTreeMap<u32, Link>) {
        for index in &self.through {
            let Some(link) = links.get_mut(index) else { continue };
            if self.to.prefix_len() != 0 || !self.is_main {
                self.note(link);
                continue;
            }
            let slot = match self.to {
                IpNet::V4(_) => &mut link.default_v4,
                IpNet::V6(_) => &mut link.default_v6,
            };
            *slot = Some(slot.map_or(self.metric, |known| known.min(self.metric)));
        }
    }

    fn note(&self, link: &mut Link) {
        // The routes of a tunnel do not matter here, and may be many.
        let is_own = link.addresses.iter().any(|own| own.trunc() == self.to);
        if link.kind == LinkKind::Tunnel || is_own {
            return;
        }
        if link.routes.len() < ROUTES_MAX {
            link.routes.push(self.to);
        }
        if !self.is_routed && self.to.prefix_len() > 0 && link.attached.len() < ROUTES_MAX {
            link.attached.push(self.to);
        }
    }
}

pub(crate) fn read_route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    if header.kind != RouteType::Unicast {
        return None;
    }
    let everywhere: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let (mut to, mut metric, mut through) = (everywhere, 0, Vec::new());
    let mut table = u32::from(header.table);
    let mut is_routed = false;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => to = (*address).into(),
            RouteAttribute::Destination(RouteAddress::Inet6(address)) => to = (*address).into(),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Table(number) => table = *number,
            RouteAttribute::Oif(index) => through.push(*index),
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => is_routed = true,
            RouteAttribute::MultiPath(hops) => {
                is_routed = true;
                through.extend(hops.iter().map(|hop| hop.interface_index));
            }
            _ => {}
        }
    }
    let to = IpNet::new(to, header.destination_prefix_length).ok()?;
    // Every link has routes for link-local prefixes and for multicast.
    let is_of_link = reaches_link_only(to) || to.addr().is_multicast();
    let is_main = table == u32::from(RouteHeader::RT_TABLE_MAIN);
    (!is_of_link).then_some(Route { to, metric, is_main, is_routed, through })
}
