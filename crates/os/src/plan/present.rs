//! The kernel's present state of the items of plans: read and compared, never changed.
//!
//! An item is in place if the kernel's entry has every attribute of Rove's request for it.
//! Attributes that the kernel adds do not matter. This module does not decide how to act on a
//! difference.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's lists of attributes and messages are open, and mostly not our business"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
};

use ipnet::IpNet;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkMessage},
    route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType},
    rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
};

use super::{TABLE, TABLE_REPLIES, item::Item, routing, setting};
use crate::{
    error::Error,
    netlink::{Netlink, family},
};

/// Whether an item is in place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Standing {
    /// As planned.
    InPlace,
    /// Not there.
    Missing,
    /// There, and not as planned.
    Changed,
    /// Not known: the program `nft` is missing or fails.
    Unknown,
}

/// The kernel's side of links, addresses, routes and rules.
pub(super) struct Present {
    devices: BTreeMap<String, Device>,
    routes: BTreeMap<IpNet, Vec<RouteMessage>>,
    /// Networks with a route past the tunnel, sorted.
    past_tunnel: Vec<IpNet>,
    rules: Vec<RuleMessage>,
}

/// A route in Rove's table. Of one past the tunnel only the network is kept, as there may be
/// thousands.
pub(super) enum Seen {
    PastTunnel(IpNet),
    Other(RouteMessage),
}

impl Seen {
    /// The network, if the route leads past the tunnel.
    pub(super) fn past_tunnel(self) -> Option<IpNet> {
        match self {
            Self::PastTunnel(net) => Some(net),
            Self::Other(_) => None,
        }
    }
}

struct Device {
    up: bool,
    mtu: u32,
    addresses: BTreeSet<IpNet>,
}

impl Present {
    /// Reads the state that concerns `items`: only the routes of Rove's tables, and only the links
    /// that items name.
    pub(super) fn read<'a>(items: impl Iterator<Item = &'a Item>) -> Result<Self, Error> {
        let mut netlink = Netlink::open()?;
        netlink.dump_strictly();
        let failed = |error| Error::os("read the kernel's routes, rules and addresses", error);
        let names: BTreeSet<&str> = items.filter_map(Item::device).collect();
        let mut devices = BTreeMap::new();
        for name in names {
            if let Some(device) = device(&mut netlink, name).map_err(failed)? {
                devices.insert(name.to_owned(), device);
            }
        }
        let mut routes: BTreeMap<IpNet, Vec<RouteMessage>> = BTreeMap::new();
        let (mut past_tunnel, mut rules) = (Vec::new(), Vec::new());
        for v6 in [false, true] {
            for seen in tables(&mut netlink, v6).map_err(failed)? {
                match seen {
                    Seen::PastTunnel(net) => past_tunnel.push(net),
                    Seen::Other(route) => {
                        if let Some(net) = destination(&route, v6) {
                            routes.entry(net).or_default().push(route);
                        }
                    }
                }
            }
            rules.extend(unless_unknown(self::rules(&mut netlink, v6)).map_err(failed)?);
        }
        past_tunnel.sort();
        Ok(Self { devices, routes, past_tunnel, rules })
    }

    /// Whether a routing item is in place. Items of other kinds always count as in place here.
    pub(super) fn standing(&self, item: &Item) -> Standing {
        match item {
            Item::Device { name, mtu, .. } => match self.devices.get(name) {
                None => Standing::Missing,
                Some(device) if device.up && device.mtu == *mtu => Standing::InPlace,
                Some(_) => Standing::Changed,
            },
            Item::Address { device, net } => {
                let device = self.devices.get(device);
                present(device.is_some_and(|device| device.addresses.contains(net)))
            }
            Item::Route { net, target } => {
                let Ok(wanted) = routing::route_to(*net, target) else { return Standing::Missing };
                match self.routes.get(&net.trunc()) {
                    None => Standing::Missing,
                    Some(there) if there.iter().any(|one| has_route(one, &wanted)) => {
                        Standing::InPlace
                    }
                    Some(_) => Standing::Changed,
                }
            }
            Item::Excluded { nets, .. } => {
                let is_there = |net| self.past_tunnel.binary_search(net).is_ok();
                match nets.iter().filter(|net| is_there(net)).count() {
                    count if count == nets.len() => Standing::InPlace,
                    0 => Standing::Missing,
                    _ => Standing::Changed,
                }
            }
            Item::Rule { v6, kind } => {
                let wanted = routing::rule(*v6, *kind);
                present(self.rules.iter().any(|one| has_rule(one, &wanted)))
            }
            Item::KillSwitch(_)
            | Item::Guard(_)
            | Item::Gateway(_)
            | Item::MptcpLimit(..)
            | Item::Subflow(_)
            | Item::Dns { .. } => Standing::InPlace,
            Item::Sysctl { key, value } => match setting::read(key) {
                Ok(now) if now == *value => Standing::InPlace,
                Ok(_) => Standing::Changed,
                // The setting disappeared together with its link.
                Err(_) => Standing::InPlace,
            },
        }
    }

    /// The destinations within `net` of other programs' rules that come before Rove's, and of other
    /// programs' routes in Rove's tables.
    pub(super) fn singled_out(&self, net: &IpNet) -> BTreeSet<IpNet> {
        let v6 = net.addr().is_ipv6();
        let named = self.rules.iter().filter_map(|rule| {
            let is_ours = rule.attributes.contains(&routing::originator());
            let is_before = rule.attributes.iter().any(|attribute| match attribute {
                RuleAttribute::Priority(value) => is_before_tunnel(*value),
                _ => false,
            });
            let to = rule.attributes.iter().find_map(|attribute| match attribute {
                RuleAttribute::Destination(to) => IpNet::new(*to, rule.header.dst_len).ok(),
                _ => None,
            });
            to.filter(|_| rule.header.family == family(v6) && !is_ours && is_before)
        });
        let is_foreign = |route: &RouteMessage| route.header.protocol != routing::protocol();
        let routed = self.routes.iter().filter(|(_, routes)| routes.iter().any(is_foreign));
        let all = named.chain(routed.map(|(to, _)| *to));
        all.filter(|to| net.contains(to) && to != net).collect()
    }

    /// The users that other programs' rules before Rove's single out, by the first of each range.
    pub(super) fn users(&self) -> BTreeMap<u32, Users> {
        let before = self.rules.iter().filter(|rule| {
            !rule.attributes.contains(&routing::originator()) && is_before_tunnel(selects(rule).0)
        });
        before.filter_map(users).map(|users| (users.first, users)).collect()
    }

    /// The first rule of another program that comes before Rove's and refuses packets of a user of
    /// this host for `address`, with the word that ip-rule(8) has for its action.
    pub(super) fn refused_by(&self, address: IpAddr, user: u32) -> Option<(u32, &'static str)> {
        let refusing = self.foreign(address, user).filter_map(|rule| {
            let action = match rule.header.action {
                RuleAction::Blackhole => "blackhole",
                RuleAction::Unreachable => "unreachable",
                RuleAction::Prohibit => "prohibit",
                _ => return None,
            };
            let (priority, _) = selects(rule);
            is_before_tunnel(priority).then_some((priority, action))
        });
        refusing.min()
    }

    /// Rules of other programs that come before Rove's and may have sent a packet of a user of this
    /// host for `address` to `table`. The kernel does not tell which rule it followed.
    pub(super) fn rules_before(&self, address: IpAddr, table: u32, user: u32) -> Vec<ForeignRule> {
        let before = self.foreign(address, user).filter_map(|rule| {
            let (priority, leads_to) = selects(rule);
            (is_before_tunnel(priority) && leads_to == table)
                .then_some(ForeignRule { priority, table })
        });
        before.collect()
    }

    /// Rules of other programs that come before Rove's and select a table by a mark.
    pub(super) fn rules_for_marks(&self) -> Vec<MarkRule> {
        let foreign = self.rules.iter().filter(|rule| {
            let is_ours = rule.attributes.contains(&routing::originator());
            let leads = rule.header.action == RuleAction::ToTable;
            // A rule for all marks but one is a rule for unmarked packets, too.
            leads && !is_ours && !rule.header.flags.contains(RuleFlags::Invert)
        });
        let rules = foreign.filter_map(MarkRule::of);
        rules.filter(|rule| is_before_tunnel(rule.priority)).collect()
    }

    /// Rules of other programs that fit packets of a user of this host for `address`.
    fn foreign(&self, address: IpAddr, user: u32) -> impl Iterator<Item = &RuleMessage> {
        let family = family(address.is_ipv6());
        self.rules.iter().filter(move |rule| {
            let is_ours = rule.attributes.contains(&routing::originator());
            rule.header.family == family && !is_ours && fits(rule, address, user)
        })
    }
}

/// The priority of a rule and the table that it selects.
fn selects(rule: &RuleMessage) -> (u32, u32) {
    let (mut priority, mut table) = (0, u32::from(rule.header.table));
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Priority(value) => priority = *value,
            RuleAttribute::Table(value) => table = *value,
            _ => {}
        }
    }
    (priority, table)
}

/// Whether a rule of this priority comes before the one that leads into the tunnel. Priority 0 is
/// the kernel's own rule for addresses of this host.
const fn is_before_tunnel(priority: u32) -> bool {
    priority > 0 && priority <= super::RULE_PRIORITY_TUNNEL
}

/// Whether routing rules of Rove stop all traffic.
pub(super) fn is_closed() -> Result<bool, Error> {
    let mut netlink = Netlink::open()?;
    netlink.dump_strictly();
    for v6 in [false, true] {
        let found = unless_unknown(rules(&mut netlink, v6));
        let found = found.map_err(|error| Error::os("read the kernel's routing rules", error))?;
        if found.iter().any(routing::is_closing) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The users whose packets a rule fits; `None` if those of all users.
fn users(rule: &RuleMessage) -> Option<Users> {
    rule.attributes.iter().find_map(|attribute| match attribute {
        RuleAttribute::UidRange(range) => Some(Users { first: range.start, last: range.end }),
        _ => None,
    })
}

/// Whether a rule fits a packet of a user of this host without a mark and without a chosen source
/// address, as the kernel would match it (`fib_rule_match` in net/core/fib_rules.c).
fn fits(rule: &RuleMessage, address: IpAddr, user: u32) -> bool {
    let (mut mark, mut mask) = (None, u32::MAX);
    let mut fits = true;
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Destination(net) => {
                let net = IpNet::new(*net, rule.header.dst_len);
                fits &= net.is_ok_and(|net| net.contains(&address));
            }
            RuleAttribute::Iifname(name) => fits &= name == "lo",
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(value) => mask = *value,
            RuleAttribute::UidRange(range) => fits &= (range.start..=range.end).contains(&user),
            RuleAttribute::Source(_)
            | RuleAttribute::Oifname(_)
            | RuleAttribute::IpProtocol(_)
            | RuleAttribute::SourcePortRange(_)
            | RuleAttribute::DestinationPortRange(_) => fits = false,
            _ => {}
        }
    }
    fits &= mark.is_none_or(|mark| mark & mask == 0);
    fits != rule.header.flags.contains(RuleFlags::Invert)
}

/// A routing rule of another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignRule {
    /// Its priority. The kernel evaluates the smallest first.
    pub priority: u32,
    /// The table that it selects.
    pub table: u32,
}

/// A routing rule of another program for packets with a mark (ip-rule(8), `fwmark`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkRule {
    /// Whether it is for IPv6.
    pub v6: bool,
    /// Its priority. The kernel evaluates the smallest first.
    pub priority: u32,
    /// The table that it selects.
    pub table: u32,
    /// The mark.
    pub mark: u32,
    /// The bits of the mark that count.
    pub mask: u32,
}

impl MarkRule {
    /// `None` if the rule fits unmarked packets.
    fn of(rule: &RuleMessage) -> Option<Self> {
        let (priority, table) = selects(rule);
        let (mut mark, mut mask) = (0, u32::MAX);
        for attribute in &rule.attributes {
            match attribute {
                RuleAttribute::FwMark(value) => mark = *value,
                RuleAttribute::FwMask(value) => mask = *value,
                _ => {}
            }
        }
        let v6 = rule.header.family == family(true);
        (mark & mask != 0).then_some(Self { v6, priority, table, mark, mask })
    }

    /// Whether it is for packets with this mark.
    pub(super) const fn fits(&self, mark: u32) -> bool {
        mark & self.mask == self.mark & self.mask
    }
}

/// Users of this host, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Users {
    /// The first.
    pub first: u32,
    /// The last.
    pub last: u32,
}

/// The user of this process.
pub fn own_user() -> u32 {
    // SAFETY: reads the user of the process.
    unsafe { libc::geteuid() }
}

/// The link on which the kernel would send an unmarked packet of a user to `address`, and the table
/// that says so; `None` if on none.
pub(super) fn way_out(
    netlink: &mut Netlink,
    address: IpAddr,
    user: u32,
) -> io::Result<Option<(u32, u32)>> {
    route_to(netlink, address, user, |route| {
        let (mut link, mut table) = (None, u32::from(route.header.table));
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => link = Some(*index),
                RouteAttribute::Table(number) => table = *number,
                _ => {}
            }
        }
        let is_unicast = route.header.kind == RouteType::Unicast;
        link.filter(|_| is_unicast).map(|link| (link, table))
    })
}

/// What `read` makes of the route that the kernel would use for an unmarked packet of a user to
/// `address`; `None` if it has none. A rule or route of type blackhole is told as EINVAL
/// (`fib4_rule_action` in net/ipv4/fib_rules.c, `fib_props` in net/ipv4/fib_semantics.c).
fn route_to<T>(
    netlink: &mut Netlink,
    address: IpAddr,
    user: u32,
    read: impl Fn(&RouteMessage) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(address.is_ipv6());
    message.header.destination_prefix_length = if address.is_ipv6() { 128 } else { 32 };
    message.header.flags = RouteFlags::LookupTable;
    message.attributes.push(RouteAttribute::Destination(address.into()));
    message.attributes.push(RouteAttribute::Uid(user));
    let asked = netlink.get(RouteNetlinkMessage::GetRoute(message), |entry| match entry {
        RouteNetlinkMessage::NewRoute(route) => read(&route),
        _ => None,
    });
    match asked {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::InvalidInput
            ) =>
        {
            Ok(None)
        }
        asked => asked,
    }
}

/// The name of the link on which an unmarked packet of a user to `address` leaves, if on any.
///
/// # Errors
/// [`Error::Os`] where a sandbox forbids netlink.
pub fn link_to(address: IpAddr, user: u32) -> Result<Option<String>, Error> {
    let found = way_out(&mut Netlink::open()?, address, user);
    let found =
        found.map_err(|error| Error::os(format!("ask for the route to {address}"), error))?;
    let Some((index, _)) = found else { return Ok(None) };
    let links = crate::links::snapshot()?;
    Ok(links.into_iter().find(|link| link.index == index).map(|link| link.name))
}

/// Whether `address` is one of this host.
///
/// # Errors
/// [`Error::Os`] where a sandbox forbids netlink.
pub fn is_own(address: IpAddr) -> Result<bool, Error> {
    let is_local = |route: &RouteMessage| (route.header.kind == RouteType::Local).then_some(());
    let found = route_to(&mut Netlink::open()?, address, own_user(), is_local);
    let found =
        found.map_err(|error| Error::os(format!("ask for the route to {address}"), error))?;
    Ok(found.is_some())
}

const fn present(is_there: bool) -> Standing {
    if is_there { Standing::InPlace } else { Standing::Missing }
}

/// Treats a kernel without IPv6, or without Rove's table, as having no entries.
pub(super) fn unless_unknown<T>(result: io::Result<Vec<T>>) -> io::Result<Vec<T>> {
    match result {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
            ) =>
        {
            Ok(Vec::new())
        }
        result => result,
    }
}

fn device(netlink: &mut Netlink, name: &str) -> io::Result<Option<Device>> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    let read = |entry| match entry {
        RouteNetlinkMessage::NewLink(message) => Some(message),
        _ => None,
    };
    let link = match netlink.get(RouteNetlinkMessage::GetLink(message), read) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        link => link?,
    };
    let Some(link) = link else { return Ok(None) };
    let index = link.header.index;
    let mtu = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Mtu(mtu) => Some(*mtu),
        _ => None,
    });
    let mut every = AddressMessage::default();
    every.header.index = index;
    let addresses = netlink.dump(&RouteNetlinkMessage::GetAddress(every), |entry| match entry {
        RouteNetlinkMessage::NewAddress(message) if message.header.index == index => {
            address(&message)
        }
        _ => None,
    })?;
    Ok(Some(Device {
        up: link.header.flags.contains(LinkFlags::Up),
        mtu: mtu.unwrap_or(0),
        addresses: addresses.into_iter().collect(),
    }))
}

fn address(message: &AddressMessage) -> Option<IpNet> {
    let find = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| {
        message.attributes.iter().find_map(wanted)
    };
    let local = find(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    let address = find(|attribute| match attribute {
        AddressAttribute::Address(ip) => Some(*ip),
        _ => None,
    });
    IpNet::new(local.or(address)?, message.header.prefix_len).ok()
}

/// The routes of Rove's tables.
pub(super) fn tables(netlink: &mut Netlink, v6: bool) -> io::Result<Vec<Seen>> {
    let mut routes = unless_unknown(table(netlink, v6, TABLE))?;
    routes.extend(unless_unknown(table(netlink, v6, TABLE_REPLIES))?);
    Ok(routes)
}

/// The routes of one table.
pub(super) fn table(netlink: &mut Netlink, v6: bool, table: u32) -> io::Result<Vec<Seen>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(v6);
    message.attributes.push(RouteAttribute::Table(table));
    netlink.dump(&RouteNetlinkMessage::GetRoute(message), |entry| match entry {
        RouteNetlinkMessage::NewRoute(route)
            if route.attributes.contains(&RouteAttribute::Table(table)) =>
        {
            let past = (route.header.kind == RouteType::Throw).then(|| destination(&route, v6));
            Some(past.flatten().map_or_else(|| Seen::Other(route), Seen::PastTunnel))
        }
        _ => None,
    })
}

pub(super) fn rules(netlink: &mut Netlink, v6: bool) -> io::Result<Vec<RuleMessage>> {
    let mut message = RuleMessage::default();
    message.header.family = family(v6);
    netlink.dump(&RouteNetlinkMessage::GetRule(message), |entry| match entry {
        RouteNetlinkMessage::NewRule(rule) => Some(rule),
        _ => None,
    })
}

fn destination(route: &RouteMessage, v6: bool) -> Option<IpNet> {
    let given = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(ip)) => Some((*ip).into()),
        RouteAttribute::Destination(RouteAddress::Inet6(ip)) => Some((*ip).into()),
        _ => None,
    });
    let any = if v6 { [0u16; 8].into() } else { [0u8; 4].into() };
    IpNet::new(given.unwrap_or(any), route.header.destination_prefix_length).ok()
}

fn has_route(there: &RouteMessage, wanted: &RouteMessage) -> bool {
    there.header.kind == wanted.header.kind
        && wanted.attributes.iter().all(|attribute| there.attributes.contains(attribute))
}

fn has_rule(there: &RuleMessage, wanted: &RuleMessage) -> bool {
    (there.header.family, there.header.action, there.header.flags)
        == (wanted.header.family, wanted.header.action, wanted.header.flags)
        && wanted.attributes.iter().all(|attribute| there.attributes.contains(attribute))
}
