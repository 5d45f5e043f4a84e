//! The ruleset of a gateway. It decides which packets pass between the tunnel and other interfaces,
//! and with which source address.
//!
//! Its chains, in the order in which a packet passes them:
//! - `guard`, before the kernel reassembles fragments: only packets from the tunnel may have an
//!   inner source address, and the gateway's own inner addresses answer only there.
//! - `track`, before connection tracking: packets of the gateway's own ports are not tracked,
//!   unless other programs need that; `own` does the same for those that leave.
//! - `enter`, after connection tracking and before NAT: decides about new connections from the
//!   tunnel. `to_host` admits those to this host itself. They may contact the gateway's inner
//!   addresses for pings and names, and destinations that the operator allows by name. Each inner
//!   address, and each subnet behind a client, gets a share of the host's tracked connections, and
//!   opens TCP connections at a limited rate.
//! - `forward` drops packets that belong to no connection. Into the tunnel it admits replies to
//!   connections of clients and packets to a subnet behind a client. It also admits packets that
//!   the host's own DNAT rules forward to a client, and packets from other clients.
//! - `translate`, with NAT: packets that leave the tunnel get the gateway's address, and never a
//!   port on which the gateway listens.
//! - `untranslated`, with NAT and after it: drops packets that still have an inner source address.
//!
//! A second table, for ARP, keeps other links from asking for inner addresses.
//!
//! It does not know clients or grants: the core checks a client's packets before the kernel sees
//! them. Limits: other tables of the host may drop more packets, and may translate packets that
//! this table left alone. A kernel without ARP filtering answers ARP requests for the gateway's
//! inner address.

use std::{collections::BTreeMap, ops::RangeInclusive};

use ipnet::IpNet;
use serde_json::{Value, json};

use super::ruleset::{
    accept, chain, equals, jump, matches, meta, networks_by_family, payload, replace, rule,
};
use crate::plan::{Destination, GATEWAY_TABLE, Gate};

/// Before the kernel reassembles fragments (-400): it does so by their addresses, whatever their
/// interfaces are, and a forged fragment would become part of a client's packet.
const GUARD: i32 = -450;
/// Before connection tracking (-200), with whole packets, which have ports.
const TRACK: i32 = -300;
/// After connection tracking (-200) and before destination NAT (-100), which may lead a packet for
/// this host elsewhere, for example into a container.
const ENTER: i32 = -150;
/// Before the usual filters (0), which then see only accepted packets.
const FORWARD: i32 = -10;
/// Before other programs' source NAT (100): the first rule that translates a connection decides its
/// port.
const TRANSLATE: i32 = 90;
/// After every source NAT.
const UNTRANSLATED: i32 = 300;
/// Conntrack zone of packets from the tunnel. A connection that was tracked while the ruleset was
/// missing is not in this zone, so it is translated when the ruleset returns.
const ZONE: u32 = 0x726f;
/// The end of the system ports (RFC 6335), where hosts have services. They are never used as a
/// translated source port.
const SYSTEM_PORTS: u16 = 1_024;
/// Where name servers are asked (RFC 1035, section 4.2).
const DNS_PORT: u16 = 53;
/// Packets that this host receives itself. Broadcast and multicast packets reach its services too.
const LOCAL: [&str; 4] = ["local", "broadcast", "multicast", "anycast"];
/// Inner addresses whose connections are counted. The core admits only those of enrolled clients,
/// of which there are at most so many.
const SOURCES_MAX: u32 = 65_536;
/// Seconds that the kernel tracks a TCP connection after its end, without counting it
/// (`nf_conntrack_tcp_timeout_time_wait`, `already_closed` in nf_conncount.c). A source that ends
/// its connections at once has one share of them in the table. With half as many seconds it has
/// two; with twice as many, a full share allows 34 new connections a second instead of 68.
const ENDED: u32 = 120;
/// Connections in one of the kernel's lists. It walks the list of a new connection at each timer
/// tick (`__nf_conncount_add` in nf_conncount.c). With 8,000 in one list, 300 new connections a
/// second took half a core, with 1,000 in each list 4 %. With half as many, more of a share stays
/// unused, because lists fill unevenly.
const LIST_MAX: u32 = 1_024;
/// Seconds for which a full list is not walked again.
const FULL_SECONDS: u32 = 1;
/// New TCP connections in a second and at once that each source may open on a small host. A page
/// of a browser opens up to 300. With half as many, pages stall; with twice as many, one client
/// fills the smallest table (2,048).
const RATE_MIN: u32 = 4;
const BURST_MIN: u32 = 512;
/// Connection tracking knows the packet's connection from an earlier one (`IPS_CONFIRMED`).
const CONFIRMED: u32 = 1 << 3;
/// A connection keeps its source port if the range of free ports around it has at least this size,
/// so that other connections find a port too.
const RUN_MIN: usize = 1_024;

/// How the kernel counts the connections of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counts {
    /// In several lists, by a hash of a connection's ends.
    InParts,
    /// In one list: a kernel without `CONFIG_NFT_HASH`.
    Whole,
}

/// The commands that replace an earlier ruleset by this one.
pub(super) fn gateway(gate: &Gate, counts: Counts) -> Vec<Value> {
    let mut commands = replace(GATEWAY_TABLE);
    let sources = gate.share.map(|share| counted_sources(gate, share, counts));
    let sources = sources.unwrap_or_default();
    commands.extend(sources.iter().flat_map(Counted::lists));
    commands.push(json!({ "add": { "chain": {
        "family": "inet", "table": GATEWAY_TABLE, "name": "to_host",
    } } }));
    commands.extend(to_host(gate).into_iter().map(|expr| rule(GATEWAY_TABLE, "to_host", expr)));
    let mut base = |name, kind, hook, priority, rules: Vec<Vec<Value>>| {
        commands.push(chain(GATEWAY_TABLE, name, kind, hook, priority, "accept"));
        commands.extend(rules.into_iter().map(|expr| rule(GATEWAY_TABLE, name, expr)));
    };
    base("guard", "filter", "prerouting", GUARD, guard(gate));
    base("track", "filter", "prerouting", TRACK, track(gate));
    if gate.untracked {
        base("own", "filter", "output", TRACK, without_tracking(gate, "sport"));
    }
    base("enter", "filter", "prerouting", ENTER, enter(gate, &sources));
    base("forward", "filter", "forward", FORWARD, forward(gate));
    if gate.nat {
        base("translate", "nat", "postrouting", TRANSLATE, translate(gate));
        base("untranslated", "filter", "postrouting", UNTRANSLATED, untranslated(gate));
    }
    commands
}

/// The ARP table: no other link may ask for the gateway's inner addresses.
pub(super) fn arp(gate: &Gate) -> Vec<Value> {
    let table = json!({ "family": "arp", "name": GATEWAY_TABLE });
    let own: Vec<IpNet> = gate.own.iter().copied().map(IpNet::from).collect();
    let asks_for = own.iter().filter(|net| net.addr().is_ipv4()).map(|net| {
        json!({ "rule": {
            "family": "arp", "table": GATEWAY_TABLE, "chain": "input",
            "expr": [
                matches("!=", meta("iifname"), json!(gate.device)),
                equals(payload("arp", "daddr ip"), json!(net.addr().to_string())),
                drop(),
            ],
        } })
    });
    let mut commands = remove_arp();
    commands.push(json!({ "add": { "table": table } }));
    commands.push(json!({ "add": { "chain": {
        "family": "arp", "table": GATEWAY_TABLE, "name": "input",
        "type": "filter", "hook": "input", "prio": 0, "policy": "accept",
    } } }));
    commands.extend(asks_for.map(|rule| json!({ "add": rule })));
    commands
}

/// Removes the ARP table, which may be missing.
pub(super) fn remove_arp() -> Vec<Value> {
    let table = json!({ "table": { "family": "arp", "name": GATEWAY_TABLE } });
    vec![json!({ "add": table }), json!({ "delete": table })]
}

fn guard(gate: &Gate) -> Vec<Vec<Value>> {
    let from_tunnel = || equals(meta("iifname"), json!(gate.device));
    let sources = gate.sources();
    let mut rules = Vec::new();
    for (v6, name) in [(false, "ipv4"), (true, "ipv6")] {
        let family = equals(meta("nfproto"), json!(name));
        let foreign = match of_family(&sources, v6) {
            Some(networks) => address("!=", "saddr", &networks),
            None => family,
        };
        rules.push(vec![from_tunnel(), foreign, drop()]);
    }
    rules.push(vec![from_tunnel(), accept()]);
    rules.push(vec![equals(meta("iifname"), json!("lo")), accept()]);
    // With NAT, hosts outside never need an inner address.
    let own = gate.own.iter().copied().map(IpNet::from).collect();
    let hidden = if gate.nat { gate.networks.clone() } else { own };
    for (field, networks) in [("daddr", hidden), ("saddr", sources)] {
        let families = networks_by_family(&networks);
        rules.extend(families.iter().map(|family| vec![address("==", field, family), drop()]));
    }
    rules
}

fn track(gate: &Gate) -> Vec<Vec<Value>> {
    let mut rules = Vec::new();
    if gate.untracked {
        rules.extend(without_tracking(gate, "dport").into_iter().map(|mut rule| {
            let to_host = json!({ "fib": { "result": "type", "flags": ["daddr"] } });
            rule.splice(
                rule.len() - 1..rule.len() - 1,
                [
                    matches("!=", meta("iifname"), json!(gate.device)),
                    equals(to_host, json!("local")),
                ],
            );
            rule
        }));
    }
    if gate.nat {
        let zone = json!({ "ct": { "key": "zone", "dir": "original" } });
        let zone = json!({ "mangle": { "key": zone, "value": ZONE } });
        rules.push(vec![equals(meta("iifname"), json!(gate.device)), zone]);
    }
    rules
}

/// The kernel knows all addresses of this host at once: of `lo`, of other links, deprecated ones,
/// and those that were added a moment ago.
fn enter(gate: &Gate, sources: &[Counted]) -> Vec<Vec<Value>> {
    let kind = json!({ "fib": { "result": "type", "flags": ["daddr"] } });
    let mut rules = vec![
        vec![matches("!=", meta("iifname"), json!(gate.device)), accept()],
        // Redirects count as related. They are for hosts of one link (RFC 1812, section 5.2.7.2).
        vec![equals(payload("icmp", "type"), json!("redirect")), drop()],
        // Replies to connections that this host opened, and errors about known connections.
        vec![states(&["established", "related"]), is_known(true), accept()],
        // A connection that a helper expects, for example of FTP, belongs to one that is admitted.
        vec![
            states(&["new", "invalid", "untracked"]),
            equals(kind, json!({ "set": LOCAL })),
            json!({ "jump": { "target": "to_host" } }),
        ],
    ];
    rules.extend(sources.iter().flat_map(Counted::limit));
    rules
}

/// Sources that get a share each.
struct Counted {
    name: String,
    /// Their addresses: of clients, or of one subnet behind a client. A client can use any address
    /// of the subnet, so the whole subnet counts as one source.
    networks: Vec<IpNet>,
    is_subnet: bool,
    share: u32,
    /// The lists in which connections of one source are counted.
    parts: u32,
}

fn counted_sources(gate: &Gate, share: u32, counts: Counts) -> Vec<Counted> {
    let parts = if counts == Counts::InParts { (share / LIST_MAX).max(1) } else { 1 };
    let counted = |name, networks, is_subnet| Counted { name, networks, is_subnet, share, parts };
    let families = networks_by_family(&gate.networks).into_iter().map(|family| {
        let is_v6 = family.iter().any(|net| net.addr().is_ipv6());
        let name = if is_v6 { "sources_ipv6" } else { "sources_ipv4" };
        counted(name.to_owned(), family, false)
    });
    let subnets = gate.subnets.iter().enumerate();
    let subnets = subnets.map(|(n, net)| counted(format!("subnet_{n}"), vec![*net], true));
    families.chain(subnets).collect()
}

impl Counted {
    fn is_v6(&self) -> bool {
        self.networks.iter().any(|net| net.addr().is_ipv6())
    }

    fn field(&self, name: &str) -> Value {
        payload(if self.is_v6() { "ip6" } else { "ip" }, name)
    }

    /// Applies a statement to each source. A subnet is one.
    fn for_each(&self, name: &str, stmt: Value) -> Value {
        if self.is_subnet {
            return stmt;
        }
        let key = self.field("saddr");
        json!({ "meter": { "name": name, "key": key, "size": SOURCES_MAX, "stmt": stmt } })
    }

    /// Matches a new connection beyond the share, or beyond a part of it.
    fn exceeds(&self, list: &str) -> Value {
        let count = json!({ "val": self.share / self.parts, "inv": true });
        self.for_each(list, json!({ "ct count": count }))
    }

    fn list(&self, part: u32) -> String {
        format!("{}_{part}", self.name)
    }

    /// A chain for each part, which counts and drops. Sources whose list is full are noted.
    fn lists(&self) -> Vec<Value> {
        let kind = if self.is_v6() { "ipv6_addr" } else { "ipv4_addr" };
        let source = || self.field("saddr");
        let list = |part: u32| {
            let (name, full) = (self.list(part), format!("full_{}", self.list(part)));
            let mut commands = vec![json!({ "add": { "chain": {
                "family": "inet", "table": GATEWAY_TABLE, "name": name,
            } } })];
            let mut exceeds = vec![self.exceeds(&format!("counts_{name}"))];
            if !self.is_subnet {
                commands.push(json!({ "add": { "set": {
                    "family": "inet", "table": GATEWAY_TABLE, "name": full, "type": kind,
                    "flags": ["timeout"], "size": SOURCES_MAX, "timeout": FULL_SECONDS,
                } } }));
                let full = format!("@{full}");
                let is_full = vec![equals(source(), json!(full)), drop()];
                commands.push(rule(GATEWAY_TABLE, &name, is_full));
                let note = json!({ "op": "add", "elem": source(), "set": full });
                exceeds.push(json!({ "set": note }));
            }
            exceeds.push(drop());
            commands.push(rule(GATEWAY_TABLE, &name, exceeds));
            commands
        };
        let parts = if self.parts > 1 { 0..self.parts } else { 0..0 };
        parts.flat_map(list).collect()
    }

    /// Drops what would exceed a source's share.
    fn limit(&self) -> Vec<Vec<Value>> {
        let source = || address("==", "saddr", &self.networks);
        let rate = self.for_each(&format!("rates_{}", self.name), rate(self.share));
        let mut begins = begins_tcp();
        begins.extend([source(), rate, drop()]);
        let counted = if self.parts > 1 {
            vec![source(), self.by_part()]
        } else {
            vec![source(), self.exceeds(&self.name), drop()]
        };
        let accepted = (!self.is_subnet).then(|| vec![source(), accept()]);
        [begins, counted].into_iter().chain(accepted).collect()
    }

    /// Finds the part of a connection. A source can aim at one part, and gets no more for it.
    fn by_part(&self) -> Value {
        let ends = [self.field("daddr"), payload("th", "sport"), payload("th", "dport")];
        let hash = json!({ "mod": self.parts, "seed": 1, "expr": { "concat": ends } });
        let lists: Vec<Value> =
            (0..self.parts).map(|part| json!([part, jump(&self.list(part))])).collect();
        json!({ "vmap": { "key": { "jhash": hash }, "data": { "set": lists } } })
    }
}

/// Matches the packet that makes a TCP connection's entry in the table. One that is sent again, or
/// that belongs to a connection from before this table, makes none.
fn begins_tcp() -> Vec<Value> {
    vec![equals(meta("l4proto"), json!("tcp")), is_known(false)]
}

/// Matches whether the table has an entry for the packet's connection already.
fn is_known(known: bool) -> Value {
    let status = json!({ "&": [{ "ct": { "key": "status" } }, CONFIRMED] });
    matches(if known { "!=" } else { "==" }, status, json!(0))
}

/// More new TCP connections than a source with this share may open. Other protocols need no rate:
/// their entries count until they leave the table.
fn rate(share: u32) -> Value {
    let (rate, burst) = ((share / ENDED).max(RATE_MIN), (share / 2).max(BURST_MIN));
    json!({ "limit": { "rate": rate, "per": "second", "burst": burst, "inv": true } })
}

/// Returns what is admitted to `enter`, which counts it.
fn to_host(gate: &Gate) -> Vec<Vec<Value>> {
    let mut rules = Vec::new();
    let own: Vec<IpNet> = gate.own.iter().copied().map(IpNet::from).collect();
    for family in networks_by_family(&own) {
        let to = || address("==", "daddr", &family);
        let icmp = if family.iter().any(|net| net.addr().is_ipv6()) { "icmpv6" } else { "icmp" };
        rules.push(vec![to(), equals(payload(icmp, "type"), json!("echo-request")), back()]);
        let [protocol, port] = at_port(DNS_PORT);
        rules.push(vec![to(), protocol, port, back()]);
    }
    for (port, networks) in by_port(&gate.admitted) {
        for family in networks_by_family(&networks) {
            let mut rule = vec![address("==", "daddr", &family)];
            rule.extend(port.into_iter().flat_map(at_port));
            rule.push(back());
            rules.push(rule);
        }
    }
    rules.push(vec![drop()]);
    rules
}

/// The networks that may be contacted at the same port, for every port.
fn by_port(admitted: &[Destination]) -> BTreeMap<Option<u16>, Vec<IpNet>> {
    let mut ports: BTreeMap<Option<u16>, Vec<IpNet>> = BTreeMap::new();
    for &Destination { to, port } in admitted {
        ports.entry(port).or_default().push(to);
    }
    ports
}

/// TCP and UDP to a port.
fn at_port(port: u16) -> [Value; 2] {
    let protocol = equals(meta("l4proto"), json!({ "set": ["tcp", "udp"] }));
    [protocol, equals(payload("th", "dport"), json!(port))]
}

fn states(states: &[&str]) -> Value {
    matches("in", json!({ "ct": { "key": "state" } }), json!(states))
}

/// The packets of the gateway's own ports make no entries in the table of connections. Datagrams
/// from forged addresses cannot fill it, and if it is full, clients still reach the gateway.
fn without_tracking(gate: &Gate, field: &str) -> Vec<Vec<Value>> {
    let ports = [("udp", &gate.udp_ports), ("tcp", &gate.tcp_ports)];
    let used = ports.into_iter().filter(|(_, ports)| !ports.is_empty());
    let rule = |(protocol, ports): (&str, &Vec<u16>)| {
        let ports = equals(payload(protocol, field), json!({ "set": ports }));
        vec![ports, json!({ "notrack": null })]
    };
    used.map(rule).collect()
}

fn forward(gate: &Gate) -> Vec<Vec<Value>> {
    let interface = |op, key| matches(op, meta(key), json!(gate.device));
    let mut rules = vec![
        vec![interface("!=", "iifname"), interface("!=", "oifname"), accept()],
        // NAT skips untracked packets: IPv6 neighbour discovery and listener reports.
        vec![states(&["invalid", "untracked"]), drop()],
        vec![interface("!=", "oifname"), accept()],
        vec![states(&["established", "related"]), accept()],
        vec![interface("==", "iifname"), accept()],
    ];
    let subnets = networks_by_family(&gate.subnets);
    rules.extend(subnets.iter().map(|family| vec![address("==", "daddr", family), accept()]));
    let forwarded = matches("in", json!({ "ct": { "key": "status" } }), json!("dnat"));
    rules.push(vec![forwarded, accept()]);
    rules.push(vec![drop()]);
    rules
}

fn translate(gate: &Gate) -> Vec<Vec<Value>> {
    let mut rules = vec![leaves_elsewhere(gate)];
    for family in networks_by_family(&gate.sources()) {
        let source = || address("==", "saddr", &family);
        for (protocol, taken) in [("udp", &gate.udp_ports), ("tcp", &gate.tcp_ports)] {
            let runs = runs(taken);
            let kept = runs.iter().filter(|run| run.len() >= RUN_MIN);
            rules.extend(kept.map(|run| {
                let port = equals(payload(protocol, "sport"), range(run));
                vec![source(), port, masquerade(Some(run))]
            }));
            let largest = runs.iter().max_by_key(|run| run.len());
            let protocol = equals(meta("l4proto"), json!(protocol));
            rules.push(vec![source(), protocol, masquerade(largest)]);
        }
        rules.push(vec![source(), masquerade(None)]);
    }
    rules
}

fn untranslated(gate: &Gate) -> Vec<Vec<Value>> {
    let mut rules = vec![leaves_elsewhere(gate)];
    let networks = networks_by_family(&gate.networks);
    rules.extend(networks.iter().map(|family| vec![address("==", "saddr", family), drop()]));
    // A subnet behind a client may be contacted from outside and then replies with its own address.
    let begins = || equals(json!({ "ct": { "key": "direction" } }), json!("original"));
    let subnets = networks_by_family(&gate.subnets);
    let subnets =
        subnets.iter().map(|family| vec![address("==", "saddr", family), begins(), drop()]);
    rules.extend(subnets);
    rules
}

/// Packets into the tunnel, and to this host itself, keep their addresses.
fn leaves_elsewhere(gate: &Gate) -> Vec<Value> {
    let inside = json!({ "set": [gate.device, "lo"] });
    vec![equals(meta("oifname"), inside), accept()]
}

/// The ranges of ports between the used ones, without the system ports.
fn runs(taken: &[u16]) -> Vec<RangeInclusive<u16>> {
    let mut taken: Vec<u16> = taken.iter().copied().filter(|port| *port >= SYSTEM_PORTS).collect();
    taken.sort_unstable();
    let mut runs = Vec::new();
    let mut first = SYSTEM_PORTS;
    for port in taken {
        if port > first {
            runs.push(first..=port - 1);
        }
        first = first.max(port.saturating_add(1));
    }
    // This is saturated if the last port is used.
    if first != u16::MAX || runs.is_empty() {
        runs.push(first..=u16::MAX);
    }
    runs
}

fn of_family(networks: &[IpNet], v6: bool) -> Option<Vec<IpNet>> {
    let families = networks_by_family(networks);
    families.into_iter().find(|family| family.iter().all(|net| net.addr().is_ipv6() == v6))
}

/// Compares an address with the networks of one family.
fn address(op: &str, field: &str, networks: &[IpNet]) -> Value {
    let mut expr = super::ruleset::address(field, networks);
    expr["match"]["op"] = json!(op);
    expr
}

fn masquerade(ports: Option<&RangeInclusive<u16>>) -> Value {
    json!({ "masquerade": ports.map(|ports| json!({ "port": range(ports) })) })
}

fn range(ports: &RangeInclusive<u16>) -> Value {
    json!({ "range": [ports.start(), ports.end()] })
}

fn drop() -> Value {
    json!({ "drop": null })
}

fn back() -> Value {
    json!({ "return": null })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_are_kept_between_those_that_are_taken() {
        assert_eq!(runs(&[]), [1_024..=65_535]);
        assert_eq!(runs(&[443]), [1_024..=65_535]);
        assert_eq!(runs(&[4_500, 443, 4_500]), [1_024..=4_499, 4_501..=65_535]);
        assert_eq!(runs(&[1_024, 65_535]), [1_025..=65_534]);
    }

    proptest! {
        /// No connection gets a port on which the gateway listens, and no other is wasted.
        #[test]
        fn every_free_port_and_no_other_is_in_one_run(
            taken in prop::collection::vec(prop_oneof![any::<u16>(), 1_020u16..1_030], 0..40),
        ) {
            let runs = runs(&taken);
            for port in 0..=u16::MAX {
                let count = runs.iter().filter(|run| run.contains(&port)).count();
                let free = port >= SYSTEM_PORTS && !taken.contains(&port);
                // 65535 alone is not worth a run of its own.
                let is_last = port == u16::MAX && taken.contains(&(u16::MAX - 1));
                prop_assert!(count == usize::from(free) || is_last, "{}", port);
            }
        }
    }
}
