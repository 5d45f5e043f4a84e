//! The links of this machine: what could carry a path, and what changed.
//!
//! A [`snapshot`] is a value; two of them compare. It decides which addresses are of use (none
//! that the kernel still checks or that is running out, none that reaches the link alone) and
//! refuses to know which link is the best, or which ones Rove uses.
//! Limits: default routes are those of the main table; Wi-Fi and cellular devices are recognised
//! by sysfs, and are Ethernet or unknown where it is not mounted.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's lists of attributes and types are open, and mostly not our business"
)]

use std::{collections::BTreeMap, fs, path::Path};

use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage, State},
    route::{RouteAttribute, RouteHeader, RouteMessage, RouteType},
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
    /// Anything else.
    Other,
}

impl LinkKind {
    /// The word that status shows.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Ethernet => "ethernet",
            Self::Wireless => "wireless",
            Self::Cellular => "cellular",
            Self::Tunnel => "tunnel",
            Self::Other => "other",
        }
    }
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
    /// Bytes of its largest packet.
    pub mtu: u32,
    /// Addresses that a path can start from, with their prefix. Temporary IPv6 addresses come
    /// before lasting ones (RFC 8981: they are meant for what goes out).
    pub addresses: Vec<IpNet>,
    /// Metric of its default route for IPv4, if it has one; the smallest, if several.
    pub default_v4: Option<u32>,
    /// The same for IPv6.
    pub default_v6: Option<u32>,
}

impl Link {
    /// Whether a path can start here: up, with carrier and address, and leading outside.
    pub fn usable(&self) -> bool {
        let outside = match self.kind {
            LinkKind::Loopback | LinkKind::Tunnel => false,
            LinkKind::Ethernet | LinkKind::Wireless | LinkKind::Cellular | LinkKind::Other => true,
        };
        outside && self.up && self.carrier && !self.addresses.is_empty()
    }
}

/// All links of the present network namespace, by index.
///
/// # Errors
/// [`Error::Os`] where a sandbox forbids netlink.
pub fn snapshot() -> Result<Vec<Link>, Error> {
    let mut netlink = Netlink::open()?;
    let mut dump = |what: &str, message| {
        netlink.dump(&message).map_err(|error| Error::os(format!("read the list of {what}"), error))
    };
    let mut links = BTreeMap::new();
    for entry in dump("links", RouteNetlinkMessage::GetLink(LinkMessage::default()))? {
        if let RouteNetlinkMessage::NewLink(message) = entry
            && let Some(link) = read_link(&message)
        {
            links.insert(link.index, link);
        }
    }
    for entry in dump("addresses", RouteNetlinkMessage::GetAddress(AddressMessage::default()))? {
        if let RouteNetlinkMessage::NewAddress(message) = entry {
            add_address(&mut links, &message);
        }
    }
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        // A kernel without IPv6 has no routes of it to list.
        let Ok(entries) = dump("routes", RouteNetlinkMessage::GetRoute(message)) else { continue };
        for entry in entries {
            if let RouteNetlinkMessage::NewRoute(message) = entry {
                add_default_route(&mut links, &message);
            }
        }
    }
    Ok(links.into_values().collect())
}

fn read_link(message: &LinkMessage) -> Option<Link> {
    let name = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })?;
    let mtu = message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    // Wi-Fi has carrier as soon as it is associated, and is dormant until its keys are set.
    let dormant = message.attributes.contains(&LinkAttribute::OperState(State::Dormant));
    let flags = message.header.flags;
    Some(Link {
        index: message.header.index,
        kind: kind_of(message, &name),
        name,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp) && !dormant,
        mtu: mtu.unwrap_or(0),
        addresses: Vec::new(),
        default_v4: None,
        default_v6: None,
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

/// Addresses that cannot be used yet, or should not be used for anything new.
const UNUSABLE: AddressFlags =
    AddressFlags::Tentative.union(AddressFlags::Dadfailed).union(AddressFlags::Deprecated);

fn add_address(links: &mut BTreeMap<u32, Link>, message: &AddressMessage) {
    let Some(link) = links.get_mut(&message.header.index) else { return };
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
    let Some(ip) = local.or(address) else { return };
    let Ok(net) = IpNet::new(ip, message.header.prefix_len) else { return };
    if flags.intersects(UNUSABLE) || reaches_link_only(net) {
        return;
    }
    let temporary = message.header.flags.contains(AddressHeaderFlags::Secondary);
    if temporary && net.addr().is_ipv6() {
        link.addresses.insert(0, net);
    } else {
        link.addresses.push(net);
    }
}

fn reaches_link_only(net: IpNet) -> bool {
    match net {
        IpNet::V4(net) => net.addr().is_link_local(),
        IpNet::V6(net) => net.addr().is_unicast_link_local(),
    }
}

fn add_default_route(links: &mut BTreeMap<u32, Link>, message: &RouteMessage) {
    let header = &message.header;
    if header.destination_prefix_length != 0
        || header.table != RouteHeader::RT_TABLE_MAIN
        || header.kind != RouteType::Unicast
    {
        return;
    }
    let mut metric = 0;
    let mut indices = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Oif(index) => indices.push(*index),
            RouteAttribute::MultiPath(hops) => {
                indices.extend(hops.iter().map(|hop| hop.interface_index));
            }
            _ => {}
        }
    }
    for index in indices {
        let Some(link) = links.get_mut(&index) else { continue };
        let slot = match header.address_family {
            AddressFamily::Inet => &mut link.default_v4,
            AddressFamily::Inet6 => &mut link.default_v6,
            _ => continue,
        };
        *slot = Some(slot.map_or(metric, |known| known.min(metric)));
    }
}
