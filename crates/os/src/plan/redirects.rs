//! Ignores ICMP redirects (RFC 792, RFC 4861 section 8) while a plan is applied, so that no
//! neighbour on a local network can divert the tunnel's own datagrams.
//!
//! Decides which settings refuse redirects, and how the kernel forgets those that it accepted
//! before. Limits: a kernel with read-only settings keeps the redirects that it accepted.

use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{RouteFlags, RouteMessage},
};

use super::{
    Plan,
    item::Item,
    setting::{self, REDIRECTS_V4},
};
use crate::{
    links::{Link, LinkKind},
    netlink::Netlink,
};

const SETTING: &str = "accept_redirects";
const REFUSED: &str = "0";
/// Writing this setting makes the kernel forget learned redirects and path MTUs (IPv4).
const FLUSH_V4: &str = "ipv4/route/flush";

/// The settings that refuse redirects on every link outside the tunnel. They include links that
/// refuse them already, so that a later change by another program is noticed.
pub(super) fn items(plan: &Plan, links: &[Link]) -> Vec<Item> {
    let outside =
        links.iter().filter(|link| link.kind != LinkKind::Loopback && link.name != plan.device);
    let of_links = outside.flat_map(|link| {
        ["ipv4", "ipv6"].map(|family| format!("{family}/conf/{}/{SETTING}", link.name))
    });
    of_links
        .chain([REDIRECTS_V4.to_owned()])
        .filter(|key| setting::may_write(key))
        .map(|key| Item::Sysctl { key, value: REFUSED.to_owned() })
        .collect()
}

/// Whether the kernel may have accepted redirects until this item replaced `before`.
pub(super) fn were_taken(item: &Item, before: &str) -> bool {
    matches!(item, Item::Sysctl { key, .. } if key.ends_with(SETTING)) && before != REFUSED
}

/// Makes the kernel forget accepted redirects. It also forgets path MTUs and learns those again.
/// Entries that cannot be deleted expire by themselves.
pub(super) fn forget(netlink: &mut Netlink) {
    let _ = setting::write(FLUSH_V4, "1");
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
