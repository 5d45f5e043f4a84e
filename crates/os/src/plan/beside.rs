//! What this host did beside Rove before the tunnel: tunnels of other programs, and guests for
//! which this host is the router.
//!
//! This module decides which networks of other tunnels stay on them, and which links have guests.
//! A route proves nothing on an ordinary link, because any host there can hand it out. It proves
//! enough on a tunnel: only a program on this host can make such a link. A *guest link* is one on
//! which a program of this host serves addresses (DHCP) and names (DNS), as NetworkManager does
//! for a hotspot. A socket that is bound to another link serves nobody there.
//!
//! Limits: of a tunnel that carries frames (a TAP), only private networks of its own addresses
//! count. A tunnel that carries most of the Internet keeps its private networks only.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use netlink_packet_route::link::InfoKind;

use super::{
    Plan,
    local_network::{LocalNetwork, is_network, is_private},
};
use crate::{
    links::{Link, LinkKind},
    netlink::sockets::{self, Server},
};

/// The shortest prefix that counts as one network of a tunnel. With a shorter one the tunnel wants
/// all traffic, as this one does. Meshes have 100.64.0.0/10, or 200::/7.
const PREFIX_MIN_V4: u8 = 8;
const PREFIX_MIN_V6: u8 = 7;
/// Networks of one tunnel that are kept. One with more is a router's, and keeps its private ones.
const NETWORKS_MAX: usize = 256;
/// Addresses that providers and meshes share (RFC 6598).
const SHARED: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10);

/// Ports on which the router of a network serves names and addresses.
const NAMES: u16 = 53;
const DHCP: u16 = 67;

/// A network that was reached before, and is not while the plan is applied.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Displaced {
    /// The network.
    pub net: IpNet,
    /// The link that led to it.
    pub link: String,
    /// The reason.
    pub cause: Cause,
}

/// Why a network is not reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// The kill switch lets nothing out on another tunnel.
    KillSwitch,
    /// This route of the plan covers the network.
    Route(IpNet),
    /// This host forwards for machines there, and replies to them would use the tunnel.
    Guests,
}

/// Whether a program on this host makes links of this kind, to carry packets elsewhere.
pub(super) const fn is_tunnel(kind: &InfoKind) -> bool {
    matches!(
        kind,
        InfoKind::Tun
            | InfoKind::Wireguard
            | InfoKind::Xfrm
            | InfoKind::IpIp
            | InfoKind::Ip6Tnl
            | InfoKind::SitTun
            | InfoKind::GreTun
            | InfoKind::GreTun6
            | InfoKind::Vti
            | InfoKind::Vti6
    )
}

/// The networks of another program's tunnel that `plan` would take over: those that stay on it,
/// and those that do not.
pub(super) fn of_tunnel(
    plan: &Plan,
    link: &Link,
    routes: &[IpNet],
) -> (Vec<LocalNetwork>, Vec<Displaced>) {
    let own = link.addresses.iter().map(IpNet::trunc).filter(is_network);
    let is_tap = link.kind != LinkKind::Tunnel;
    let nets: Vec<IpNet> = if is_tap {
        let leads_out = link.leads_out(true) || link.leads_out(false);
        own.filter(|net| !leads_out && may_keep(net)).collect()
    } else {
        own.chain(routes.iter().copied()).collect()
    };
    let (wide, mut nets): (Vec<_>, Vec<_>) = nets.into_iter().partition(is_wide);
    if !wide.is_empty() || IpNet::aggregate(&nets).len() > NETWORKS_MAX {
        nets.retain(may_keep);
    }
    let (mut kept, mut displaced) = (Vec::new(), Vec::new());
    // Parts of the other tunnel's networks that a route of this one takes.
    let is_part = |route: &IpNet| nets.iter().any(|net| net.contains(route) && net != route);
    for route in plan.routes.iter().map(IpNet::trunc).filter(is_part) {
        if captured_by(plan, route).is_some() && !displaced_by_name(&displaced, route) {
            let cause = Cause::Route(route);
            displaced.push(Displaced { net: route, link: link.name.clone(), cause });
        }
    }
    for net in IpNet::aggregate(&nets).into_iter().take(NETWORKS_MAX) {
        let Some(route) = captured_by(plan, net) else { continue };
        let cause = match plan.kill_switch {
            Some(_) => Cause::KillSwitch,
            None if is_wide(&route) => {
                kept.push(LocalNetwork { link: link.name.clone(), net });
                continue;
            }
            None => Cause::Route(route),
        };
        displaced.push(Displaced { net, link: link.name.clone(), cause });
    }
    (kept, displaced)
}

fn displaced_by_name(displaced: &[Displaced], net: IpNet) -> bool {
    displaced.iter().any(|known| known.net == net)
}

/// The private networks of a link that is not this host's way out, and may therefore have guests.
pub(super) fn networks_of_guests(link: &Link) -> Vec<IpNet> {
    let may_have = matches!(link.kind, LinkKind::Ethernet | LinkKind::Wireless)
        && !link.leads_out(true)
        && !link.leads_out(false);
    let networks = link.addresses.iter().map(IpNet::trunc);
    networks.filter(|net| may_have && is_network(net) && is_private(net)).collect()
}

/// The route of the plan that a packet to `net` follows into the tunnel.
pub(super) fn captured_by(plan: &Plan, net: IpNet) -> Option<IpNet> {
    let longest = |nets: &[IpNet]| {
        let around = nets.iter().map(IpNet::trunc).filter(|other| other.contains(&net));
        around.max_by_key(IpNet::prefix_len)
    };
    let route = longest(&plan.routes)?;
    let is_excluded =
        longest(&plan.exclude).is_some_and(|out| out.prefix_len() >= route.prefix_len());
    (!is_excluded).then_some(route)
}

/// The UDP sockets of this host that serve names or addresses. If they cannot be listed, no link
/// counts as one with guests, and `rove up` names the cure.
pub(super) fn servers() -> Vec<Server> {
    sockets::servers(&[NAMES, DHCP]).unwrap_or_default()
}

/// Whether this host serves addresses and names on the link.
pub(super) fn serves(link: &Link, servers: &[Server]) -> bool {
    let has = |at: Ipv4Addr, port: u16| {
        let is_there = |server: &&Server| (*server.at.ip(), server.at.port()) == (at, port);
        let mut there = servers.iter().filter(is_there);
        there.any(|server| [0, link.index].contains(&server.device))
    };
    let is_on =
        |at: Ipv4Addr| has(at, NAMES) && (has(at, DHCP) || has(Ipv4Addr::UNSPECIFIED, DHCP));
    link.addresses.iter().any(|net| match net.addr() {
        IpAddr::V4(at) => is_on(at),
        IpAddr::V6(_) => false,
    })
}

/// Whether the prefix is too short to be one network.
fn is_wide(net: &IpNet) -> bool {
    net.prefix_len() < if net.addr().is_ipv4() { PREFIX_MIN_V4 } else { PREFIX_MIN_V6 }
}

/// Networks that no public host has.
fn may_keep(net: &IpNet) -> bool {
    let is_shared = matches!(net, IpNet::V4(net) if SHARED.contains(net));
    is_private(net) || is_shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::KillSwitch;

    fn nets(nets: &[&str]) -> Vec<IpNet> {
        nets.iter().map(|net| net.parse().unwrap()).collect()
    }

    fn link(kind: LinkKind, addresses: &[&str]) -> Link {
        Link {
            index: 7,
            name: "mesh0".to_owned(),
            kind,
            up: true,
            carrier: true,
            carrier_ups: 0,
            dormant: false,
            mtu: 1_280,
            addresses: nets(addresses),
            deprecated: false,
            default_v4: None,
            default_v6: None,
            routes: Vec::new(),
            attached: Vec::new(),
        }
    }

    fn kept(plan: &Plan, link: &Link, routes: &[&str]) -> (Vec<String>, Vec<Displaced>) {
        let (kept, displaced) = of_tunnel(plan, link, &nets(routes));
        (kept.iter().map(|local| local.net.to_string()).collect(), displaced)
    }

    #[test]
    fn a_mesh_keeps_its_networks_and_a_rival_only_private_ones() {
        let full = Plan { routes: nets(&["0.0.0.0/0", "::/0", "10.7.0.0/24"]), ..Plan::default() };
        let mesh = link(LinkKind::Tunnel, &["100.64.0.9/32"]);
        let routes = ["100.64.0.0/10", "192.0.2.0/24", "fd7a:115c:a1e0::/48", "10.7.0.0/25"];
        let (stay, gone) = kept(&full, &mesh, &routes);
        assert_eq!(stay, ["100.64.0.0/10", "192.0.2.0/24", "fd7a:115c:a1e0::/48"]);
        let [lost] = &*gone else { panic!("{gone:?}") };
        assert_eq!((lost.net, lost.cause), (nets(&routes)[3], Cause::Route(full.routes[2])));
        // It carries all traffic, in one piece, in two halves, or in many pieces.
        for wide in [vec!["0.0.0.0/0"], vec!["0.0.0.0/1", "128.0.0.0/1"], vec!["8.0.0.0/7"]] {
            let routes = [&wide[..], &["192.0.2.0/24", "10.8.0.0/24"]].concat();
            assert_eq!(kept(&full, &mesh, &routes).0, ["10.8.0.0/24"], "{wide:?}");
        }
        let many: Vec<String> =
            (0..=NETWORKS_MAX).map(|n| format!("11.{}.{}.0/25", n / 256, n % 256)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).chain(["10.8.0.0/24"]).collect();
        assert_eq!(kept(&full, &mesh, &many).0, ["10.8.0.0/24"]);
    }

    #[test]
    fn the_kill_switch_keeps_none_and_an_exclusion_needs_none() {
        let mesh = link(LinkKind::Tunnel, &[]);
        let kill_switch = Some(KillSwitch::default());
        let closed = Plan { routes: nets(&["0.0.0.0/0"]), kill_switch, ..Plan::default() };
        let (stay, gone) = kept(&closed, &mesh, &["100.64.0.0/10"]);
        assert!(stay.is_empty() && gone[0].cause == Cause::KillSwitch, "{gone:?}");
        let out = Plan { exclude: nets(&["100.64.0.0/10"]), ..closed };
        assert_eq!(kept(&out, &mesh, &["100.64.0.0/10"]), (vec![], vec![]));
        let split = Plan { routes: nets(&["198.51.100.0/24"]), ..Plan::default() };
        assert_eq!(kept(&split, &mesh, &["100.64.0.0/10"]), (vec![], vec![]));
    }

    #[test]
    fn a_tap_keeps_the_private_network_of_its_address_unless_it_is_the_way_out() {
        let full = Plan { routes: nets(&["0.0.0.0/0"]), ..Plan::default() };
        let tap = link(LinkKind::Ethernet, &["10.147.17.5/24", "198.51.100.5/24"]);
        assert_eq!(kept(&full, &tap, &["192.0.2.0/24"]).0, ["10.147.17.0/24"]);
        let uplink = Link { default_v4: Some(100), ..tap };
        assert_eq!(kept(&full, &uplink, &[]).0, [""; 0]);
    }

    #[test]
    fn a_link_has_guests_if_this_host_serves_both_there() {
        let hotspot = link(LinkKind::Wireless, &["10.42.0.1/24"]);
        let (own_link, other_link) = (hotspot.index, hotspot.index + 1);
        let on = |at: [u8; 4], port, device| {
            let at = std::net::SocketAddrV4::new(at.into(), port);
            Server { at, device }
        };
        let server = |at, port| on(at, port, 0);
        let (any, own, other) = ([0; 4], [10, 42, 0, 1], [10, 42, 1, 1]);
        for servers in [
            vec![server(own, 53), server(any, 67)],
            vec![server(own, 53), server(own, 67)],
            vec![server(own, 53), on(any, 67, own_link)],
            vec![server(own, 53), on(any, 67, other_link), on(any, 67, own_link)],
        ] {
            assert!(serves(&hotspot, &servers), "{servers:?}");
        }
        for servers in [
            vec![server(own, 53)],
            vec![server(any, 53), server(any, 67)],
            vec![server(own, 53), server(other, 67)],
            vec![server(own, 67), server(other, 53)],
            // A name server has all addresses, and addresses are served on another link.
            vec![server(own, 53), server(other, 53), on(any, 67, other_link)],
            vec![on(own, 53, other_link), server(any, 67)],
        ] {
            assert!(!serves(&hotspot, &servers), "{servers:?}");
        }
    }
}
