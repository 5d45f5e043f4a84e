//! Addresses, routes and rules of a plan, as requests to the kernel.
//!
//! To add an existing entry succeeds, and so does to remove a missing one: after a crash nobody
//! knows how far the last process came.

use std::{io, net::Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage},
    route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType},
    rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
};

use super::{
    MARK, MARK_INBOUND, MARK_REPLY, ROUTE_PROTOCOL, RULE_PRIORITY_CLOSED, RULE_PRIORITY_INBOUND,
    RULE_PRIORITY_REPLIES, RULE_PRIORITY_TUNNEL, TABLE, TABLE_REPLIES,
    item::{RuleKind, Target},
    setting,
};
use crate::{
    error::Error,
    netlink::{Netlink, family},
};

/// Bytes of the longest super-packet that the kernel hands over. Its segments, as datagrams of the
/// tunnel, fit one send with segmentation offload (65,507 bytes), at any MTU of the tunnel. They
/// arrive in one receive, and become one super-packet again.
const SUPER_PACKET_MAX: u32 = 60_000;
/// Metric of a route behind another one: higher than any metric that the kernel assigns.
const METRIC_BEHIND: u32 = 0x7fff_ffff;

/// Sets the TUN up. IPv6 is turned on for it, but it speaks for itself no more than it must: no
/// link-local address, no router solicitations into the tunnel, no multicast.
pub(super) fn set_up(netlink: &mut Netlink, name: &str, mtu: u32) -> Result<(), Error> {
    for (key, value) in [("disable_ipv6", "0"), ("accept_ra", "0"), ("addr_gen_mode", "1")] {
        // A kernel without IPv6 has none of them, and needs none.
        let _ = setting::write(&format!("ipv6/conf/{name}/{key}"), value);
    }
    let mut message = LinkMessage::default();
    message.header.index = index_of(name)?;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes.push(LinkAttribute::Mtu(mtu));
    let index = message.header.index;
    netlink
        .change(RouteNetlinkMessage::SetLink(message), 0)
        .map_err(|error| Error::os(format!("set the interface {name} up"), error))?;
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::GsoMaxSize(SUPER_PACKET_MAX));
    // Kernels before 4.16 cannot. It only makes the tunnel faster.
    let _ = netlink.change(RouteNetlinkMessage::SetLink(message), 0);
    leave_multicast(netlink, index);
    Ok(())
}

/// Removes a TUN's route for IPv6 multicast. The kernel adds one to each interface that comes up or
/// gets an address (`addrconf_add_mroute`), in the table that precedes all rules. For programs that
/// choose no interface the first route counts. If a link comes back after the tunnel, that would be
/// the tunnel's.
fn leave_multicast(netlink: &mut Netlink, index: u32) {
    let mut message = LinkMessage::default();
    message.header.index = index;
    let is_tun = netlink.get(RouteNetlinkMessage::GetLink(message), |entry| {
        let RouteNetlinkMessage::NewLink(link) = entry else { return None };
        Some(link.header.link_layer_type == LinkLayerType::None)
    });
    if matches!(is_tun, Ok(Some(true))) {
        // A kernel without IPv6 has none.
        let _ = netlink.change(RouteNetlinkMessage::DelRoute(multicast(index)), 0);
    }
}

fn multicast(index: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.destination_prefix_length = 8;
    message.header.table = libc::RT_TABLE_LOCAL;
    let groups = Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0);
    message.attributes.push(RouteAttribute::Destination(groups.into()));
    message.attributes.push(RouteAttribute::Oif(index));
    message
}

/// Removes an interface, if it is there.
pub(super) fn remove_device(netlink: &mut Netlink, name: &str) -> Result<(), Error> {
    let Ok(index) = index_of(name) else { return Ok(()) };
    let mut message = LinkMessage::default();
    message.header.index = index;
    netlink
        .change(RouteNetlinkMessage::DelLink(message), 0)
        .or_else(unless_absent)
        .map_err(|error| Error::os(format!("remove the interface {name}"), error))
}

pub(super) fn add_address(netlink: &mut Netlink, device: &str, net: IpNet) -> Result<(), Error> {
    let index = index_of(device)?;
    let mut add = || {
        netlink
            .change(RouteNetlinkMessage::NewAddress(address(index, net)), NLM_F_CREATE | NLM_F_EXCL)
            .or_else(unless_present)
    };
    let mut added = add();
    // A person who turns IPv6 off on all interfaces turns it off in the tunnel, too.
    if net.addr().is_ipv6() && added.is_err() && setting::is_ipv6_off(device) {
        setting::turn_ipv6_on(device)?;
        added = add();
    }
    added.map_err(|error| Error::os(format!("give {device} the address {net}"), error))?;
    if net.addr().is_ipv6() {
        leave_multicast(netlink, index);
    }
    Ok(())
}

pub(super) fn remove_address(netlink: &mut Netlink, device: &str, net: IpNet) -> Result<(), Error> {
    // An interface that is gone took its addresses with it.
    let Ok(index) = index_of(device) else { return Ok(()) };
    netlink
        .change(RouteNetlinkMessage::DelAddress(address(index, net)), 0)
        .or_else(unless_absent)
        .map_err(|error| Error::os(format!("take the address {net} from {device}"), error))
}

fn address(index: u32, net: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(net.addr().is_ipv6());
    message.header.prefix_len = net.prefix_len();
    message.header.index = index;
    message.attributes.push(AddressAttribute::Local(net.addr()));
    message.attributes.push(AddressAttribute::Address(net.addr()));
    if net.addr().is_ipv6() {
        // Nobody else can have it, so nothing is to be waited for.
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

pub(super) fn add_route(netlink: &mut Netlink, net: IpNet, target: &Target) -> Result<(), Error> {
    let message = match route_to(net, target) {
        // If the link is gone, the next plan adds the route when the link returns.
        Err(Error::NoInterface { .. }) if matches!(target, Target::Link(_)) => return Ok(()),
        message => message?,
    };
    netlink
        .change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
        .or_else(|error| match (target, error.raw_os_error()) {
            (Target::Link(_), Some(libc::ENETDOWN | libc::ENODEV)) => Ok(()),
            _ => Err(error),
        })
        .map_err(|error| Error::os(format!("add the route to {net}"), error))
}

/// A route in one of Rove's tables.
pub(super) fn route_to(net: IpNet, target: &Target) -> Result<RouteMessage, Error> {
    let mut message = route(net, target);
    match target {
        Target::Link(link) => {
            message.header.kind = RouteType::Unicast;
            message.header.scope = RouteScope::Link;
            message.attributes.push(RouteAttribute::Oif(index_of(link)?));
        }
        Target::Device(device) | Target::Replies(device) => {
            message.header.kind = RouteType::Unicast;
            // Not `Link`, although the route has no next hop. For a route that somebody adds
            // without a device, the kernel looks up the next hop only in routes of scope `link`
            // (fib_check_nh_v4_gw in net/ipv4/fib_semantics.c). With `Link`, it would find every
            // router in the tunnel.
            message.header.scope = RouteScope::Universe;
            message.attributes.push(RouteAttribute::Oif(index_of(device)?));
        }
        Target::Throw => {
            message.header.scope = RouteScope::Universe;
            message.header.kind = RouteType::Throw;
        }
        Target::Unreachable | Target::Barrier => {
            message.header.scope = RouteScope::Universe;
            message.header.kind = RouteType::Unreachable;
        }
    }
    Ok(message)
}

pub(super) fn remove_route(
    netlink: &mut Netlink,
    net: IpNet,
    target: &Target,
) -> Result<(), Error> {
    netlink
        .change(RouteNetlinkMessage::DelRoute(route(net, target)), 0)
        .or_else(unless_absent)
        .map_err(|error| Error::os(format!("remove the route to {net}"), error))
}

/// What names the route past the tunnel to `net`, and no other to the same network.
pub(super) fn route_past(net: IpNet) -> RouteMessage {
    let mut message = route(net, &Target::Throw);
    message.header.kind = RouteType::Throw;
    message
}

/// What names a route in our tables.
fn route(net: IpNet, target: &Target) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(net.addr().is_ipv6()),
        destination_prefix_length: net.prefix_len(),
        table: RouteHeader::RT_TABLE_UNSPEC,
        protocol: protocol(),
        // Any, when removing.
        scope: if net.addr().is_ipv6() { RouteScope::Universe } else { RouteScope::NoWhere },
        kind: RouteType::Unspec,
        ..RouteHeader::default()
    };
    let table = if matches!(target, Target::Replies(_)) { TABLE_REPLIES } else { TABLE };
    message.attributes.push(RouteAttribute::Table(table));
    if net.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(net.addr().into()));
    }
    if *target == Target::Barrier {
        message.attributes.push(RouteAttribute::Priority(METRIC_BEHIND));
    }
    message
}

pub(super) fn add_rule(netlink: &mut Netlink, v6: bool, kind: RuleKind) -> Result<(), Error> {
    netlink
        .change(RouteNetlinkMessage::NewRule(rule(v6, kind)), NLM_F_CREATE | NLM_F_EXCL)
        .or_else(unless_present)
        .map_err(|error| Error::os("add the policy rule of the tunnel", error))
}

pub(super) fn remove_rule(netlink: &mut Netlink, v6: bool, kind: RuleKind) -> Result<(), Error> {
    netlink
        .change(RouteNetlinkMessage::DelRule(rule_at(v6, kind)), 0)
        .or_else(unless_absent)
        .map_err(|error| Error::os("remove the policy rule of the tunnel", error))
}

/// One of Rove's rules.
pub(super) fn rule(v6: bool, kind: RuleKind) -> RuleMessage {
    let mut message = rule_at(v6, kind);
    message.header.action = RuleAction::ToTable;
    match kind {
        RuleKind::Inbound => {
            message.header.table = RouteHeader::RT_TABLE_MAIN;
            message.attributes.push(RuleAttribute::FwMark(MARK_INBOUND));
        }
        RuleKind::Replies => {
            message.attributes.push(RuleAttribute::FwMark(MARK_REPLY));
            message.attributes.push(RuleAttribute::Table(TABLE_REPLIES));
        }
        RuleKind::Tunnel => {
            message.header.flags = RuleFlags::Invert;
            message.attributes.push(RuleAttribute::FwMark(MARK));
            message.attributes.push(RuleAttribute::Table(TABLE));
        }
    }
    message.attributes.push(RuleAttribute::FwMask(u32::MAX));
    message
}

/// Stops all traffic of this host to other hosts by routing rules, without `nft`.
/// [`Applier::apply`] with a kill switch, and [`Applier::remove_kill_switch`], take them back.
///
/// Limit: for IPv4 packets of a socket that is bound to a link, the kernel takes every destination
/// for a neighbour on that link (`ip_route_output_key_hash_rcu` in net/ipv4/route.c).
///
/// # Errors
/// [`Error::Os`] where they cannot be set.
///
/// [`Applier::apply`]: super::Applier::apply
/// [`Applier::remove_kill_switch`]: super::Applier::remove_kill_switch
pub fn close() -> Result<(), Error> {
    let mut netlink = Netlink::open()?;
    for v6 in [false, true] {
        let mut message = closing_rule(v6);
        message.header.action = RuleAction::Prohibit;
        netlink
            .change(RouteNetlinkMessage::NewRule(message), NLM_F_CREATE | NLM_F_EXCL)
            .or_else(unless_present)
            // Without IPv6, none is sent.
            .or_else(|error| if v6 { unless_absent(error) } else { Err(error) })
            .map_err(|error| Error::os("stop all traffic by routing rules", error))?;
    }
    Ok(())
}

/// Removes the rules of [`close`], if they are there.
pub(super) fn reopen(netlink: &mut Netlink) -> Result<(), Error> {
    for v6 in [false, true] {
        netlink
            .change(RouteNetlinkMessage::DelRule(closing_rule(v6)), 0)
            .or_else(unless_absent)
            .map_err(|error| Error::os("remove the routing rules that stop traffic", error))?;
    }
    Ok(())
}

/// What names a rule of [`close`].
fn closing_rule(v6: bool) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(v6);
    message.attributes.push(originator());
    message.attributes.push(RuleAttribute::Priority(RULE_PRIORITY_CLOSED));
    message
}

/// Whether a rule is one of [`close`].
pub(super) fn is_closing(rule: &RuleMessage) -> bool {
    rule.attributes.contains(&originator())
        && rule.attributes.contains(&RuleAttribute::Priority(RULE_PRIORITY_CLOSED))
}

/// The attributes that identify a rule: its priority and Rove's originator.
fn rule_at(v6: bool, kind: RuleKind) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(v6);
    message.attributes.push(originator());
    message.attributes.push(RuleAttribute::Priority(match kind {
        RuleKind::Inbound => RULE_PRIORITY_INBOUND,
        RuleKind::Tunnel => RULE_PRIORITY_TUNNEL,
        RuleKind::Replies => RULE_PRIORITY_REPLIES,
    }));
    message
}

/// The attribute that marks a rule as Rove's.
pub(super) fn originator() -> RuleAttribute {
    RuleAttribute::Protocol(protocol())
}

/// The originator of Rove's routes and rules.
pub(super) fn protocol() -> RouteProtocol {
    RouteProtocol::Other(ROUTE_PROTOCOL)
}

pub(super) fn index_of(name: &str) -> Result<u32, Error> {
    crate::tun::index_of(name).ok_or_else(|| Error::NoInterface { name: name.to_owned() })
}

/// Already there is as good as done.
pub(super) fn unless_present(error: io::Error) -> io::Result<()> {
    if error.raw_os_error() == Some(libc::EEXIST) { Ok(()) } else { Err(error) }
}

/// Already gone is as good as done, whichever way the kernel says it.
pub(super) fn unless_absent(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(
            libc::ENOENT
            | libc::ESRCH
            | libc::ENODEV
            | libc::EADDRNOTAVAIL
            // No IPv6 in this kernel: nothing of it to remove.
            | libc::EAFNOSUPPORT
            | libc::EOPNOTSUPP,
        ) => Ok(()),
        Some(_) | None => Err(error),
    }
}
