//! Sends a packet like a client's through this host, and finds where it ends. What counts is what
//! happens to the packet, not what a ruleset seems to say.
//!
//! An nftables table counts the packet at the prerouting, forward and postrouting hooks, before and
//! after the chains of other programs. Behind all of them it drops the packet, so no packet of a
//! probe leaves this host. The table exists only during the probe. If another program removes it
//! then, the packet's hop limit ends it at the first router.
//!
//! The packet is the first of a TCP connection. A random sequence number marks it, so no client can
//! imitate it. Limits: replies, later hooks (tc) and the link itself are not tested. If several
//! chains have the same priority, all that can drop are named.

use std::{fs, io, net::IpAddr};

use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAttribute, RouteMessage, RouteType},
};
use serde_json::{Value, json};

use crate::{
    error::Error,
    links,
    netlink::Netlink,
    nft::{self, Table},
    plan::{FILTER_TABLE_PREFIX, PROBE_TABLE as TABLE},
    random, tun,
};

const WHAT: &str = "a probe of the packet filters";
/// Where a probe goes: addresses of the AS112 service, which are globally reachable (RFC 7535, RFC
/// 6890), so no filter of reserved addresses drops them.
const TO_V4: [u8; 4] = [192, 31, 196, 1];
const TO_V6: [u16; 8] = [0x2001, 4, 0x112, 0, 0, 0, 0, 1];
/// A port that every host may contact (RFC 9110).
const PORT: u16 = 443;
/// Source ports, from the upper half.
const EPHEMERAL: u16 = 1 << 15;
/// Enough to be forwarded once.
const HOPS: u8 = 2;
/// Before and after the chains of other programs, which are at -400 to 300 (netfilter_ipv4.h).
const FIRST: i32 = -1_000;
const LAST: i32 = 1_000;
/// Priorities of iptables, whose older form is not in the ruleset.
const USUAL: [i32; 6] = [-300, -150, -100, 0, 50, 100];
/// Priorities at one hook at most, those of chains that were found first included.
const POINTS_MAX: usize = 32;

/// A hook on the way of a forwarded packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hook {
    /// Before the routing decision.
    Prerouting,
    /// After it.
    Forward,
    /// Before the packet leaves.
    Postrouting,
}

/// Where a packet ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// It passed every packet filter, and would have left.
    Left,
    /// It did not come out of the tunnel's interface.
    Device,
    /// A packet filter dropped it at this hook. The chains that may have done so, as nft names
    /// them; none if they are not in nftables.
    Filter(Hook, Vec<String>),
    /// It was not forwarded.
    Routing(Refused),
}

/// Why the kernel does not forward a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It has no route.
    NoRoute,
    /// The reverse path filter refuses the source address.
    ReversePath,
    /// A route or rule refuses the packet, or forwarding is off.
    Forbidden,
    /// The route leads to this interface; "lo" for this host itself.
    LeadsTo(String),
    /// The route says nothing about it.
    Unknown,
}

/// A probe that has begun. It ends with [`Probe::end`].
#[derive(Debug)]
pub struct Probe {
    device: String,
    sources: Vec<IpAddr>,
    token: u32,
    points: Vec<Point>,
    ruleset: Value,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Point {
    hook: Hook,
    priority: i32,
}

impl Probe {
    /// Installs the counters for packets from `sources`, one for each address family at most, that
    /// come out of the tunnel's interface.
    ///
    /// # Errors
    /// [`Error::NftMissing`], [`Error::NftRefused`], [`Error::NftSilent`] or [`Error::Os`].
    pub fn begin(device: &str, sources: Vec<IpAddr>) -> Result<Self, Error> {
        let mut token = [0; 4];
        random::fill(&mut token)?;
        let ruleset = nft::ruleset()?;
        let (token, points) = (u32::from_be_bytes(token), points(&ruleset));
        let probe = Self { device: device.to_owned(), sources, token, points, ruleset };
        nft::run(WHAT, probe.table())?;
        Ok(probe)
    }

    /// The packets to write to the tunnel's interface.
    pub fn packets(&self) -> Vec<Vec<u8>> {
        self.sources.iter().map(|&source| packet(source, self.token)).collect()
    }

    /// Removes the counters and returns where the packet from each source ended.
    ///
    /// # Errors
    /// As [`Probe::begin`].
    pub fn end(self) -> Result<Vec<(IpAddr, End)>, Error> {
        let counted = nft::counters(TABLE);
        nft::run(WHAT, nft::remove_table(TABLE))?;
        let counted = counted?;
        let ends = self.sources.iter().map(|&source| {
            let has_seen = |at: usize| counted.get(&counter(at, source.is_ipv6())) > Some(&0);
            let seen = (0..self.points.len()).take_while(|&at| has_seen(at)).count();
            Ok((source, self.end_of(source, seen)?))
        });
        ends.collect()
    }

    /// Where a packet ended that was seen at so many points.
    fn end_of(&self, source: IpAddr, seen: usize) -> Result<End, Error> {
        let Some(next) = self.points.get(seen) else { return Ok(End::Left) };
        let Some(last) = seen.checked_sub(1).and_then(|at| self.points.get(at)) else {
            return Ok(End::Device);
        };
        if last.hook != next.hook {
            return Ok(End::Routing(self.refused(source)?));
        }
        let chains = droppers(&self.ruleset, *last, *next, source.is_ipv6());
        if chains.is_empty() && seen + 1 == self.points.len() {
            // At the last point the packet must be on its way out of another interface.
            let refused = self.refused(source)?;
            if matches!(refused, Refused::LeadsTo(_)) {
                return Ok(End::Routing(refused));
            }
        }
        Ok(End::Filter(next.hook, chains))
    }

    fn table(&self) -> Vec<Value> {
        let mut table = Table::new("inet", TABLE);
        for (at, point) in self.points.iter().enumerate() {
            let name = format!("at{at}");
            let is_last = at + 1 == self.points.len();
            table.base_chain(&name, "filter", (point.hook.word(), point.priority), "accept");
            for v6 in [false, true] {
                table.counter(&counter(at, v6));
                let packet = [
                    nft::equals(nft::meta("nfproto"), json!(if v6 { "ipv6" } else { "ipv4" })),
                    nft::equals(nft::payload("tcp", "sequence"), json!(self.token)),
                ];
                let mut rule = packet.to_vec();
                if is_last {
                    rule.push(json!({ "match": {
                        "op": "!=", "left": nft::meta("oifname"), "right": self.device,
                    } }));
                }
                rule.push(json!({ "counter": counter(at, v6) }));
                table.rules(&name, [rule]);
                if is_last {
                    table.rules(&name, [[&packet[..], &[nft::drop()]].concat()]);
                }
            }
        }
        table.into_commands()
    }

    /// Asks the kernel for the route of a client's packet.
    fn refused(&self, source: IpAddr) -> Result<Refused, Error> {
        let links = links::snapshot()?;
        let device = links.iter().find(|link| link.name == self.device);
        let Some(device) = device else { return Ok(Refused::Unknown) };
        let way = route(&mut Netlink::open()?, source, device.index);
        Ok(match way.map_err(|error| (error.raw_os_error(), error)) {
            Ok(Some((RouteType::Unicast, Some(out)))) if out != device.index => Refused::Unknown,
            Ok(Some((RouteType::Unicast, _))) => Refused::LeadsTo(self.device.clone()),
            Ok(Some((RouteType::Local, _))) => Refused::LeadsTo("lo".to_owned()),
            Ok(Some(_)) => Refused::Forbidden,
            Ok(None) | Err((Some(libc::ENETUNREACH), _)) => Refused::NoRoute,
            Err((Some(libc::EXDEV), _)) => Refused::ReversePath,
            // Since Linux 6.13 the kernel says so of any invalid source.
            Err((Some(libc::EINVAL), _)) if self.is_filtered(source) => Refused::ReversePath,
            Err((Some(libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL), _)) => Refused::Forbidden,
            Err(_) => Refused::Unknown,
        })
    }

    /// Whether the tunnel's interface has a reverse path filter: the stricter of two settings
    /// counts (ip-sysctl, `rp_filter`).
    fn is_filtered(&self, source: IpAddr) -> bool {
        let is_on = |name: &str| {
            let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
            fs::read_to_string(path).is_ok_and(|value| value.trim() != "0")
        };
        source.is_ipv4() && (is_on("all") || is_on(&self.device))
    }
}

impl Hook {
    /// The name that nft has for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Prerouting => "prerouting",
            Self::Forward => "forward",
            Self::Postrouting => "postrouting",
        }
    }
}

/// The kind of the route of a packet that comes from a link, and the link where it would leave.
fn route(
    netlink: &mut Netlink,
    source: IpAddr,
    from: u32,
) -> io::Result<Option<(RouteType, Option<u32>)>> {
    let to = destination(source);
    let mut message = RouteMessage::default();
    message.header.address_family = if source.is_ipv6() {
        netlink_packet_route::AddressFamily::Inet6
    } else {
        netlink_packet_route::AddressFamily::Inet
    };
    let bits = if source.is_ipv6() { 128 } else { 32 };
    message.header.destination_prefix_length = bits;
    message.header.source_prefix_length = bits;
    message.attributes.push(RouteAttribute::Destination(to.into()));
    message.attributes.push(RouteAttribute::Source(source.into()));
    message.attributes.push(RouteAttribute::Iif(from));
    netlink.get(RouteNetlinkMessage::GetRoute(message), |entry| {
        let RouteNetlinkMessage::NewRoute(route) = entry else { return None };
        let out = route.attributes.iter().find_map(|attribute| {
            if let RouteAttribute::Oif(index) = attribute { Some(*index) } else { None }
        });
        Some((route.header.kind, out))
    })
}

fn destination(source: IpAddr) -> IpAddr {
    if source.is_ipv6() { TO_V6.into() } else { TO_V4.into() }
}

fn counter(at: usize, v6: bool) -> String {
    format!("at{at}_{}", if v6 { "ipv6" } else { "ipv4" })
}

/// The first packet of a TCP connection.
fn packet(source: IpAddr, token: u32) -> Vec<u8> {
    // Each probe is a connection of its own, in case that the kernel remembers one.
    let from = EPHEMERAL | (token as u16);
    let mut tcp = [from, PORT].map(u16::to_be_bytes).concat();
    tcp.extend(token.to_be_bytes());
    // No acknowledgement, a header of 20 bytes, SYN, a window.
    tcp.extend([0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]);
    let (mut packet, addresses) = match (source, destination(source)) {
        (IpAddr::V4(source), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, HOPS, 6, 0, 0];
            header.extend([source.octets(), to.octets()].concat());
            let sum = tun::checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            (header, 12..20)
        }
        (source, to) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 20, 6, HOPS];
            for address in [source, to] {
                if let IpAddr::V6(address) = address {
                    header.extend(address.octets());
                }
            }
            (header, 8..40)
        }
    };
    let pseudo = [0, 6, 0, 20];
    let sum = tun::checksum(&[&packet[addresses], &pseudo, &tcp]);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    packet.extend(tcp);
    packet
}

/// Points around all chains on the way. The kernel runs a new chain before older ones of the same
/// priority (`nf_hook_entries_grow`), so the point behind a chain has the next priority.
fn points(ruleset: &Value) -> Vec<Point> {
    let mut points = Vec::new();
    for hook in [Hook::Prerouting, Hook::Forward, Hook::Postrouting] {
        let of_hook = chains(ruleset).filter(|chain| nft::text(chain, "hook") == hook.word());
        let priorities = of_hook.filter_map(|chain| chain.get("prio")?.as_i64());
        let priorities = priorities.filter_map(|priority| i32::try_from(priority).ok());
        let behind = |priority: i32| priority.saturating_add(1);
        let known = priorities.take(POINTS_MAX).chain(USUAL).map(behind);
        let mut known: Vec<i32> = known.chain([FIRST, LAST]).collect();
        known.sort_unstable();
        known.dedup();
        points.extend(known.into_iter().map(|priority| Point { hook, priority }));
    }
    points
}

/// The chains between two points that can drop a packet of a family.
fn droppers(ruleset: &Value, last: Point, next: Point, v6: bool) -> Vec<String> {
    let families = ["inet", if v6 { "ip6" } else { "ip" }];
    let between = i64::from(last.priority)..i64::from(next.priority);
    let chains = chains(ruleset).filter(|chain| {
        families.contains(&nft::text(chain, "family"))
            && nft::text(chain, "hook") == next.hook.word()
            && chain.get("prio").and_then(Value::as_i64).is_some_and(|at| between.contains(&at))
    });
    let can_drop = chains.filter(|chain| {
        nft::text(chain, "policy") == "drop" || rules_of(ruleset, chain).any(may_drop)
    });
    // Rove's own chains can drop packets, too, and are meant to.
    let is_own = |chain: &&Value| nft::text(chain, "table").starts_with(FILTER_TABLE_PREFIX);
    let (own, others): (Vec<_>, Vec<_>) = can_drop.partition(is_own);
    let named = if others.is_empty() { own } else { others };
    let name = |chain: &Value| {
        format!(
            "{} {} {}",
            nft::text(chain, "family"),
            nft::text(chain, "table"),
            nft::text(chain, "name")
        )
    };
    named.into_iter().map(name).collect()
}

fn chains(ruleset: &Value) -> impl Iterator<Item = &Value> {
    nft::entries(ruleset, "chain")
}

fn rules_of<'a>(ruleset: &'a Value, chain: &'a Value) -> impl Iterator<Item = &'a Value> {
    nft::entries(ruleset, "rule").filter(move |rule| {
        ["family", "table"].iter().all(|key| nft::text(rule, key) == nft::text(chain, key))
            && nft::text(rule, "chain") == nft::text(chain, "name")
    })
}

/// Whether a rule, or a chain to which it leads, may end a packet.
fn may_drop(rule: &Value) -> bool {
    const ENDS: [&str; 7] = ["drop", "reject", "queue", "jump", "goto", "vmap", "xt"];
    nft::has_key(rule, &|key| ENDS.contains(&key))
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
