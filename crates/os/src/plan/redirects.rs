//! ICMP redirects (RFC 792, RFC 4861 section 8) while a plan is applied: nobody on a local network
//! may move the route of the tunnel's own datagrams to a host of theirs.
//!
//! Decides which settings refuse redirects, and how the kernel forgets those that it took before.
//! Limits: a kernel whose settings are read-only keeps taking what it took.

use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{RouteFlags, RouteMessage},
};

use super::{Plan, item::Item, sysctl};
use crate::{
    links::{Link, LinkKind},
    netlink::Netlink,
};

const SETTING: &str = "accept_redirects";
const REFUSED: &str = "0";
/// Of IPv4, a host that does not forward takes redirects where the link or "all" says so
/// (`IN_DEV_RX_REDIRECTS`, linux/inetdevice.h). Of IPv6 the link alone counts.
pub(super) const ALL_V4: &str = "ipv4/conf/all/accept_redirects";
/// Writing it makes the kernel forget what redirects and path MTUs it learned (IPv4).
const FLUSH_V4: &str = "ipv4/route/flush";

/// The settings that refuse redirects on every link outside the tunnel: also where they are refused
/// already, so that somebody who changes them is noticed.
pub(super) fn items(plan: &Plan, links: &[Link]) -> Vec<Item> {
    let outside =
        links.iter().filter(|link| link.kind != LinkKind::Loopback && link.name != plan.device);
    let of_links = outside.flat_map(|link| {
        ["ipv4", "ipv6"].map(|family| format!("{family}/conf/{}/{SETTING}", link.name))
    });
    of_links
        .chain([ALL_V4.to_owned()])
        .filter(|key| sysctl::may_write(key))
        .map(|key| Item::Sysctl { key, value: REFUSED.to_owned() })
        .collect()
}

/// Whether a redirect may have been taken until this item, which replaced `before`, was in place.
pub(super) fn were_taken(item: &Item, before: &str) -> bool {
    matches!(item, Item::Sysctl { key, .. } if key.ends_with(SETTING)) && before != REFUSED
}

/// Makes the kernel forget the redirects that it took. Path MTUs go with them and are learned
/// again; what resists ages by itself.
pub(super) fn forget(netlink: &mut Netlink) {
    let _ = sysctl::write(FLUSH_V4, "1");
    let mut every = RouteMessage::default();
    every.header.address_family = AddressFamily::Inet6;
    let learned = netlink.dump(&RouteNetlinkMessage::GetRoute(every), |entry| {
        let RouteNetlinkMessage::NewRoute(route) = entry else { return None };
        route.header.flags.contains(RouteFlags::Cloned).then_some(route)
    });
    for route in learned.unwrap_or_default() {
        let _ = netlink.change(RouteNetlinkMessage::DelRoute(route), 0);
    }
}
