//! The little of network set-up that tests need and Rove does not: links, addresses, routes.

use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage, CacheInfo},
    link::{
        InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkMode,
        State,
    },
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
        RouteType,
    },
    rule::RuleMessage,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Sends one request and panics unless the kernel acknowledges it.
pub(crate) fn request(message: RouteNetlinkMessage, flags: u16) {
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    let mut packet = NetlinkMessage::from(message);
    packet.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    packet.header.sequence_number = 1;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).unwrap();
    let (answer, _) = socket.recv_from_full().unwrap();
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).unwrap();
    let NetlinkPayload::Error(error) = answer.payload else { panic!("{answer:?}") };
    assert!(error.code.is_none(), "{error:?} for {packet:?}");
}

/// Everything of one kind that the kernel has, sorted, as text without what changes by itself.
fn dump(message: RouteNetlinkMessage) -> Vec<String> {
    let mut socket = Socket::new(NETLINK_ROUTE).unwrap();
    socket.bind_auto().unwrap();
    let mut packet = NetlinkMessage::from(message);
    packet.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    packet.finalize();
    let mut bytes = vec![0; packet.buffer_len()];
    packet.serialize(&mut bytes);
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).unwrap();
    let mut entries = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full().unwrap();
        let mut rest = &bytes[..];
        while rest.len() >= 16 {
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).unwrap();
            if let NetlinkPayload::Done(_) = answer.payload {
                entries.sort();
                return entries;
            }
            let NetlinkPayload::InnerMessage(entry) = answer.payload else { panic!("{answer:?}") };
            entries.extend(describe(entry));
            rest = &rest[(answer.header.length as usize).next_multiple_of(4).min(rest.len())..];
        }
    }
}

fn describe(entry: RouteNetlinkMessage) -> Option<String> {
    if let RouteNetlinkMessage::NewAddress(mut message) = entry {
        message.attributes.retain(|one| !matches!(one, AddressAttribute::CacheInfo(_)));
        Some(format!("{message:?}"))
    } else if let RouteNetlinkMessage::NewRoute(mut message) = entry {
        message.attributes.retain(|one| !matches!(one, RouteAttribute::CacheInfo(_)));
        Some(format!("{message:?}"))
    } else if let RouteNetlinkMessage::NewRule(message) = entry {
        Some(format!("{message:?}"))
    } else {
        None
    }
}

/// All addresses, routes of all tables and rules of both families.
pub(crate) fn everything() -> Vec<String> {
    let mut entries = dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()));
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        entries.extend(dump(RouteNetlinkMessage::GetRoute(message)));
        let mut message = RuleMessage::default();
        message.header.family = family;
        entries.extend(dump(RouteNetlinkMessage::GetRule(message)));
    }
    entries
}

/// Whether frames go out only to a neighbour that was asked for, as usual, or to anybody.
pub(crate) fn neighbours(name: &str, asked: bool) {
    let mut message = LinkMessage::default();
    message.header.index = index(name);
    message.header.flags = if asked { LinkFlags::empty() } else { LinkFlags::Noarp };
    message.header.change_mask = LinkFlags::Noarp;
    request(RouteNetlinkMessage::SetLink(message), 0);
}

/// The index of an interface.
pub(crate) fn index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: the name ends with NUL and lives through the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert!(index != 0, "no interface {name:?}");
    index
}

/// Sets an interface up.
pub(crate) fn up(name: &str) {
    flag(name, LinkFlags::Up);
}

/// Sets an interface down.
pub(crate) fn down(name: &str) {
    flag(name, LinkFlags::empty());
}

fn flag(name: &str, flags: LinkFlags) {
    let mut message = LinkMessage::default();
    message.header.index = index(name);
    message.header.flags = flags;
    message.header.change_mask = LinkFlags::Up;
    request(RouteNetlinkMessage::SetLink(message), 0);
}

/// Makes a pair of Ethernet interfaces.
pub(crate) fn veth(one: &str, other: &str) {
    let mut peer = LinkMessage::default();
    peer.attributes.push(LinkAttribute::IfName(other.to_owned()));
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(one.to_owned()));
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    request(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL);
}

/// Gives the host a link `wan`, 192.168.5.2/24 and fd05::2/64, with default routes through
/// 192.168.5.1 and fd05::1. The other end of its cable is `far`. Without `asks`, frames leave for
/// neighbours that never answered.
pub(crate) fn uplink(asks: bool) {
    veth("wan", "far");
    for name in ["wan", "far"] {
        without_checks(name);
    }
    if !asks {
        neighbours("wan", false);
    }
    address("wan", "192.168.5.2/24");
    address("wan", "fd05::2/64");
    up("wan");
    up("far");
    route("0.0.0.0/0", Some("192.168.5.1"), "wan");
    route("::/0", Some("fd05::1"), "wan");
}

/// Lets IPv6 addresses of an interface, which is down yet, be of use at once.
pub(crate) fn without_checks(name: &str) {
    for (key, value) in [("accept_dad", "0"), ("addr_gen_mode", "1")] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{key}"), value).unwrap();
    }
}

/// Moves an interface into the network namespace of a process.
pub(crate) fn give(name: &str, pid: u32) {
    let mut message = LinkMessage::default();
    message.header.index = index(name);
    message.attributes.push(LinkAttribute::NetNsPid(pid));
    request(RouteNetlinkMessage::SetLink(message), 0);
}

/// Removes an interface.
pub(crate) fn remove(name: &str) {
    let mut message = LinkMessage::default();
    message.header.index = index(name);
    request(RouteNetlinkMessage::DelLink(message), 0);
}

fn address_message(name: &str, address: &str) -> AddressMessage {
    let net: ipnet::IpNet = address.parse().unwrap();
    let mut message = AddressMessage::default();
    message.header.family = family(net.addr());
    message.header.prefix_len = net.prefix_len();
    message.header.index = index(name);
    message.attributes.push(AddressAttribute::Address(net.addr()));
    message.attributes.push(AddressAttribute::Local(net.addr()));
    if net.addr().is_ipv6() {
        let flags = netlink_packet_route::address::AddressFlags::Nodad;
        message.attributes.push(AddressAttribute::Flags(flags));
    }
    message
}

/// Gives an interface an address, such as `10.0.0.1/24`. On one that is up it is of use then.
pub(crate) fn address(name: &str, address: &str) {
    let message = address_message(name, address);
    request(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL);
    let net: ipnet::IpNet = address.parse().unwrap();
    if net.addr().is_ipv4() || !is_up(name) {
        return;
    }
    // The kernel makes the route to an IPv6 address of its own in its own time.
    let socket = std::net::UdpSocket::bind((net.addr(), 0)).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_millis(10))).unwrap();
    for _ in 0..200 {
        let sent = socket.send_to(b"me", socket.local_addr().unwrap());
        if sent.is_ok() && socket.recv(&mut [0; 2]).is_ok() {
            return;
        }
    }
    panic!("{address} is of no use on {name}");
}

fn is_up(name: &str) -> bool {
    let links = rove_os::links::snapshot().unwrap();
    links.iter().any(|link| link.name == name && link.up)
}

/// Lets an address run out: it is of use for a minute, and for nothing new.
pub(crate) fn deprecate_address(name: &str, address: &str) {
    let mut message = address_message(name, address);
    let mut info = CacheInfo::default();
    info.ifa_valid = 60;
    message.attributes.push(AddressAttribute::CacheInfo(info));
    request(RouteNetlinkMessage::NewAddress(message), NLM_F_REPLACE);
}

/// Lets an interface wait for something else whenever it gets its carrier (RFC 2863).
pub(crate) fn dormant(name: &str) {
    let mut message = LinkMessage::default();
    message.header.index = index(name);
    message.attributes.push(LinkAttribute::Mode(LinkMode::Dormant));
    message.attributes.push(LinkAttribute::OperState(State::Dormant));
    request(RouteNetlinkMessage::SetLink(message), 0);
}

/// Takes an address away.
pub(crate) fn remove_address(name: &str, address: &str) {
    request(RouteNetlinkMessage::DelAddress(address_message(name, address)), 0);
}

/// Adds a route to the main table, through a gateway where one is given.
pub(crate) fn route(destination: &str, via: Option<&str>, name: &str) {
    let net: ipnet::IpNet = destination.parse().unwrap();
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(net.addr()),
        destination_prefix_length: net.prefix_len(),
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Static,
        scope: if via.is_some() { RouteScope::Universe } else { RouteScope::Link },
        kind: RouteType::Unicast,
        ..RouteHeader::default()
    };
    message.attributes.push(RouteAttribute::Destination(net.addr().into()));
    message.attributes.push(RouteAttribute::Oif(index(name)));
    if let Some(via) = via {
        let via: IpAddr = via.parse().unwrap();
        message.attributes.push(RouteAttribute::Gateway(RouteAddress::from(via)));
    }
    request(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL);
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
