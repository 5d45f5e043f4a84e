//! The network configuration that a tunnel needs on this host, as a value.
//!
//! A [`Plan`] contains everything that Rove changes on a host: addresses, routes, forwarding, the
//! firewall of a gateway, kill switch and DNS. The [`Applier`] applies the difference to the
//! previous plan, and undoes a plan. No other code in Rove changes these.
//!
//! Traffic enters the tunnel as with wg-quick(8). The tunnel's routes are in a separate table
//! ([`TABLE`]). A policy rule sends every packet without Rove's mark to this table before the main
//! table. The tunnel's own datagrams carry the mark ([`MARK`]) and skip it. So a roaming client
//! needs no route to the gateway that it would have to move, and undoing a plan only empties one
//! table. Traffic outside the tunnel has its routes in that table too: networks of this host's
//! containers and of other programs' tunnels and, with `allow_lan`, the private networks of its
//! links. Other routes of the main table do not count.
//!
//! A client's plan has a [`Guard`]. This packet filter refuses packets to the tunnel's destinations
//! on other links, even if routes are changed. Behind each route into the device there is also an
//! unreachable route.
//!
//! This module does not know gateways, peers or leases. Limits: mark and table are fixed, so only
//! one tunnel per host can carry marked traffic. If the host's IPv6 is off, the IPv6 half of a plan
//! is left out, because no IPv6 traffic can leak.

mod applier;
mod beside;
mod change;
mod contest;
mod deviation;
mod excluded;
mod flows;
mod former;
mod held;
mod item;
pub(crate) mod journal;
mod local_network;
mod networks;
mod obstacle;
mod places;
mod present;
mod redirects;
mod routing;
mod sender;
mod setting;
mod surroundings;
mod sweep;
mod sysctl;

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use self::{
    applier::{Applier, Leftovers, Scope},
    beside::{Cause, Displaced},
    deviation::{Deviation, Outcome, Part},
    flows::Beside,
    local_network::is_private,
    obstacle::Obstacle,
    places::Places,
    present::{ForeignRule, MarkRule, Standing, Users, is_own, link_to, own_user},
    routing::close,
};
pub(crate) use self::{
    flows::Flows,
    item::{Gate, Guard as GuardRules, Opening},
    local_network::LocalNetwork,
    surroundings::{Bridge, groups},
};
use crate::{error::Error, links::Link, mptcp};

/// Mark (`SO_MARK`) of the tunnel's own datagrams: "ro". No privilege, no mark: an ordinary
/// program cannot slip by the tunnel with it.
pub const MARK: u32 = 0x726f;
/// Routing table with the tunnel's routes.
pub const TABLE: u32 = 0x726f;
/// Mark of replies to connections that came in on another link, and of connections that stay
/// outside the tunnel.
pub const MARK_INBOUND: u32 = 0x7270;
/// Priority of the rules that stop all traffic, where a kill switch could not be installed at boot.
pub const RULE_PRIORITY_CLOSED: u32 = 5_189;
/// Mark of replies to connections that came in through the tunnel.
pub const MARK_REPLY: u32 = 0x7271;
/// Routing table of these replies. Its default route leads into the tunnel.
pub const TABLE_REPLIES: u32 = 0x7271;
/// Priority of the rule that sends packets with [`MARK_REPLY`] to [`TABLE_REPLIES`].
pub const RULE_PRIORITY_REPLIES: u32 = 5_188;
/// Priority of the rule that sends packets with [`MARK_INBOUND`] to the main table.
pub const RULE_PRIORITY_INBOUND: u32 = 5_190;
/// Priority of the rule that sends unmarked packets to [`TABLE`].
pub const RULE_PRIORITY_TUNNEL: u32 = 5_191;
/// Priority of the rules that block former addresses of the tunnel. Packets into the tunnel match
/// the rule before.
pub const RULE_PRIORITY_FORMER: u32 = 5_192;
/// Originator (rtnetlink(7) `rtm_protocol`) of our routes and rules: "R".
pub const ROUTE_PROTOCOL: u8 = b'R';
/// nftables table (families inet and arp) with the ruleset of a gateway.
pub const GATEWAY_TABLE: &str = "rove_gateway";
/// The name of that table in earlier versions.
pub(crate) const GATEWAY_TABLE_BEFORE: &str = "rove_nat";
/// nftables table (family inet) of a probe, which removes it at its end.
pub(crate) const PROBE_TABLE: &str = "rove_probe";
/// How the names of Rove's nftables tables begin.
pub const FILTER_TABLE_PREFIX: &str = "rove_";
/// nftables table (family inet) with the kill switch.
pub const KILL_SWITCH_TABLE: &str = "rove_kill_switch";
/// nftables tables (families inet and arp) with the guard.
pub const GUARD_TABLE: &str = "rove_guard";

/// Entries that each list of a plan may have.
pub const LIST_MAX: usize = 1_024;
/// Networks that `exclude` may have. The prefixes of one country are up to about 20,000. At this
/// limit, the program nft takes about 0.3 s and 50 MB for one table.
pub const EXCLUDED_MAX: usize = 32_768;
/// Domains and servers that DNS may have; resolv.conf(5) uses the first three servers.
pub const DNS_MAX: usize = 64;
/// The smallest MTU of a device that carries IPv6 (RFC 8200 section 5).
pub const MTU_MIN: u32 = 1_280;

/// What the host shall look like. The default is a host without a tunnel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The TUN, which must be open while the plan is applied.
    pub device: String,
    /// The TUN outlives the process, and is adopted by the next ([`Applier::open_device`]);
    /// undoing removes it.
    pub persistent: bool,
    /// Bytes of the largest packet into the tunnel.
    pub mtu: u32,
    /// Addresses of the TUN. The kernel adds a route to the network of each to the main table,
    /// unless `routes` contains that network.
    pub addresses: Vec<IpNet>,
    /// Addresses that other links have besides their own, by the links' names. A link must be there
    /// while the plan is applied.
    pub link_addresses: Vec<(String, IpNet)>,
    /// Destinations that lead into the tunnel; `0.0.0.0/0` and `::/0` for everything. Those of a
    /// family without an address are made unreachable instead: they must not leave elsewhere.
    pub routes: Vec<IpNet>,
    /// Destinations that do not, though a route says so.
    pub exclude: Vec<IpNet>,
    /// The private networks of this host's links stay reachable outside the tunnel, except where a
    /// route other than a default route covers them.
    pub allow_lan: bool,
    /// Pass packets on between interfaces, in the families of `addresses`.
    pub forward: bool,
    /// The firewall of a gateway. `addresses` are the gateway's own in its clients' networks, and
    /// `routes` are the subnets behind clients.
    pub firewall: Option<Firewall>,
    /// From where MPTCP connections have subflows beside their first. They are those of every such
    /// connection of this host, as the kernel knows no others.
    pub subflows: Vec<mptcp::Endpoint>,
    /// Keep packets to `routes` in the tunnel, and the tunnel's addresses unreachable from other
    /// links.
    pub guard: Option<Guard>,
    /// Let nothing out beside the tunnel. Once applied it stands until
    /// [`Applier::remove_kill_switch`].
    pub kill_switch: Option<KillSwitch>,
    /// Name servers in the tunnel.
    pub dns: Option<Dns>,
}

/// The settings of a gateway's firewall.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Firewall {
    /// Packets that leave the tunnel get this host's address. Without this, they leave with inner
    /// addresses, and other routers must route those back.
    pub nat: bool,
    /// UDP ports on which the gateway listens: no translated connection gets one of them.
    pub udp_ports: Vec<u16>,
    /// The same for TCP.
    pub tcp_ports: Vec<u16>,
    /// Addresses of this host that clients may contact, besides the tunnel's own addresses. Others
    /// refuse every connection from the tunnel.
    pub admitted: Vec<Destination>,
    /// Tracked connections that each inner address, and each subnet behind a client, may have;
    /// `None` for any number.
    pub share: Option<u32>,
    /// Packets of these ports are not tracked. See [`crate::conntrack::is_used_by_others`].
    pub untracked: bool,
}

/// What may be contacted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// The addresses.
    pub to: IpNet,
    /// The port of TCP and UDP; `None` for every port and protocol.
    pub port: Option<u16>,
}

/// Further exceptions of the kill switch. It always allows DHCP, neighbour discovery, marked
/// datagrams, the tunnel, this host's containers and the plan's `exclude`. With `allow_lan` it also
/// allows local networks, except for DNS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KillSwitch {
    /// Addresses of the gateway, from which datagrams may come unasked to the tunnel's sockets.
    pub gateways: Vec<IpAddr>,
    /// Connections that continue outside the tunnel.
    pub kept: Vec<Connection>,
}

/// A packet filter that protects the tunnel even if another program removes routes and rules.
///
/// It refuses packets to the plan's `routes` on other links. Allowed are only the exceptions of the
/// kill switch and replies to connections that came in there. A connection that this host began
/// before the guard ends. Replies to connections that came in through the tunnel use the tunnel,
/// whatever `routes` are. Packets to the tunnel's addresses are accepted only from the tunnel, and
/// other links do not answer ARP for them (CVE-2019-14899). Containers of this host use the tunnel
/// under its address. From the tunnel, packets are forwarded only to `behind`, in reply, and where
/// this host forwards a port. If the packet filter is not available, the plan is applied without
/// it, and [`Applier::unguarded`] gives the reason.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    /// Addresses of the gateway, whose datagrams may arrive on any link.
    pub gateways: Vec<IpAddr>,
    /// Connections from before the tunnel that continue outside it.
    pub kept: Vec<Connection>,
    /// So do all TCP connections that came in before it.
    pub keep_incoming: bool,
    /// Networks behind this host that the gateway knows. Their packets keep their addresses, and
    /// connections may come to them from the tunnel.
    pub behind: Vec<IpNet>,
}

/// A TCP connection of this host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// This end.
    pub local: SocketAddr,
    /// The other.
    pub remote: SocketAddr,
}

/// Name servers in the tunnel.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Dns {
    /// The servers, the preferred first.
    pub servers: Vec<IpAddr>,
    /// Domains that they are asked for. With `all`, the domains are tried for short names.
    pub domains: Vec<String>,
    /// Ask them for every other name, too. Without this, and without systemd-resolved, the applier
    /// runs a DNS forwarder, because resolv.conf(5) knows no split.
    pub all: bool,
}

impl Plan {
    /// Checks the plan by itself and against the present links. This is for a gateway, whose
    /// operator can choose its network; a client must accept the networks that it meets.
    ///
    /// # Errors
    /// [`Error::BadPlan`], [`Error::BadInterfaceName`], or [`Error::AddressOverlap`] if a network
    /// of the tunnel or a chosen route overlaps a local network: then one of the two would be
    /// unreachable.
    pub fn check(&self, links: &[Link]) -> Result<(), Error> {
        self.check_alone()?;
        let foreign = links.iter().filter(|link| link.name != self.device);
        let locals = foreign.flat_map(|link| link.addresses.iter().map(move |net| (link, net)));
        for (link, local) in locals {
            let network = self.addresses.iter().find(|net| overlap(net, local));
            // A wide route around a local network is a matter of `allow_lan`; one inside of it
            // contradicts it.
            let route = self.routes.iter().find(|route| local.trunc().contains(&route.trunc()));
            // A single address (of a point-to-point link) is no network to collide with.
            let single = local.prefix_len() == local.max_prefix_len();
            if let Some(tunnel) = network.or_else(|| route.filter(|_| !single)) {
                return Err(Error::AddressOverlap {
                    tunnel: tunnel.trunc(),
                    local: local.trunc(),
                    interface: link.name.clone(),
                });
            }
        }
        Ok(())
    }

    fn check_alone(&self) -> Result<(), Error> {
        let bad = |why: String| Err(Error::BadPlan { why });
        crate::tun::check_name(&self.device)?;
        if self.mtu < MTU_MIN || self.mtu as usize > crate::tun::PACKET_LEN_MAX {
            return bad(format!(
                "its MTU of {} is not between {MTU_MIN} and {}",
                self.mtu,
                crate::tun::PACKET_LEN_MAX
            ));
        }
        if self.exclude.len() > EXCLUDED_MAX {
            return bad(format!("more than {EXCLUDED_MAX} networks are excluded"));
        }
        let lists = [&self.addresses, &self.routes];
        if lists.iter().any(|list| list.len() > LIST_MAX) {
            return bad(format!("a list has more than {LIST_MAX} entries"));
        }
        if self.link_addresses.len() > LIST_MAX {
            return bad(format!("links get more than {LIST_MAX} addresses"));
        }
        let listens =
            self.firewall.iter().map(|firewall| [&firewall.udp_ports, &firewall.tcp_ports]);
        if listens.flatten().any(|ports| ports.len() > LIST_MAX) {
            return bad(format!("the gateway listens on more than {LIST_MAX} ports"));
        }
        if self.firewall.as_ref().is_some_and(|firewall| firewall.admitted.len() > LIST_MAX) {
            return bad(format!("the gateway admits clients to more than {LIST_MAX} destinations"));
        }
        if self.subflows.len() > mptcp::ENDPOINTS_MAX {
            return bad(format!("more than {} subflows", mptcp::ENDPOINTS_MAX));
        }
        if self.kill_switch.as_ref().is_some_and(|switch| switch.gateways.len() > LIST_MAX) {
            return bad(format!("the kill switch has more than {LIST_MAX} gateways"));
        }
        if self.guard.as_ref().is_some_and(Guard::is_too_long) {
            return bad(format!("a list of the guard has more than {LIST_MAX} entries"));
        }
        self.dns.as_ref().map_or(Ok(()), Dns::check)
    }
}

impl Dns {
    /// Whether it can be written where resolvers read it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let bad = |why: String| Err(Error::BadPlan { why });
        if self.servers.is_empty() || self.servers.len() > DNS_MAX || self.domains.len() > DNS_MAX {
            return bad(format!("DNS needs 1 to {DNS_MAX} servers and at most as many domains"));
        }
        if let Some(domain) = self.domains.iter().find(|domain| !is_domain(domain)) {
            return bad(format!("{domain:?} is no domain name"));
        }
        Ok(())
    }
}

impl Guard {
    fn is_too_long(&self) -> bool {
        [self.gateways.len(), self.kept.len(), self.behind.len()].iter().any(|len| *len > LIST_MAX)
    }
}

fn overlap(one: &IpNet, other: &IpNet) -> bool {
    let (one, other) = (one.trunc(), other.trunc());
    one.contains(&other) || other.contains(&one)
}

/// Letters, digits, hyphens, underscores and dots between them: nothing that could break a line
/// of resolv.conf (RFC 1035 section 2.3.1, and the underscore of service names).
fn is_domain(domain: &str) -> bool {
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    domain.len() <= 253 && domain.split('.').all(label)
}

#[cfg(test)]
mod tests;
