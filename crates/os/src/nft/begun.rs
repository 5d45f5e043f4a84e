//! Which end began a connection: the rules of the guard for connections that arrive on a link, and
//! for those that this host began before the guard.
//!
//! A connection arrives if it begins with a SYN, an echo request, or a UDP packet to an open socket
//! or a forwarded port on another link. Other protocols begin nothing.
//!
//! A neighbour may forge the packet that would begin a connection, and a program that chooses its
//! link may then use it. So nothing begins at a local port whose own packet was refused lately, if
//! the kernel hands that port out: such a socket asks, and does not serve. At other ports, nothing
//! begins from where such a packet went. A SYN as a reply ends what a forged SYN began. Limits:
//! without `CONFIG_NFT_SOCKET`, a UDP packet to no socket begins a connection, too. A socket is not
//! known before its first packet. A server that asks from a port that the kernel hands out has no
//! visitors for a while.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{
    marks::NOTED,
    packets::{Rule, Sockets, Way, excluded, kind_of_destination, of_flows, on_link, socket},
    ruleset::{
        Table, accept, address, ct, drop, equals, goto, jump, matches, meta, networks_by_family,
        payload, set,
    },
};
use crate::{
    netlink::sockets::Protocol,
    plan::{Connection, Flows, GuardRules, MARK, MARK_INBOUND, MARK_REPLY},
};

/// The chain that checks destinations, for packets of this host and for forwarded packets.
pub(super) const DESTINATIONS: &str = "destinations";
/// The chain that marks connections that arrive on a link.
pub(super) const INCOMING: &str = "incoming";
/// The chain that marks connections to ports that this host forwards.
pub(super) const FORWARDED: &str = "forwarded";
/// The chain that checks the sources of packets to sockets from before the guard.
const OLDER: &str = "older";
/// Sets that name flows and sockets from before the guard: by the protocol and both ends those that
/// this host began, and those that came in; by the protocol and the local address and port; by the
/// protocol and the port alone.
const OLDER_FLOWS: &str = "older_flows";
const CAME_IN: &str = "came_in";
const OLDER_SOCKETS: &str = "older_sockets";
const OLDER_PORTS: &str = "older_ports";

/// FIN, SYN, RST and ACK in the flags of TCP, and the first packet of a connection: SYN alone
/// (RFC 9293).
const TCP_FLAGS: u32 = 0x17;
const TCP_SYN: u32 = 0x02;

/// Sets of those whose own packets were refused: of protocols and local ports, and of the protocols
/// and both ends of packets.
const ASKER_PORTS: &str = "asker_ports";
const ASKER_PAIRS: &str = "asker_pairs";
/// Seconds after which an asker that is silent is forgotten. With less, a program that asks rarely
/// could be answered in clear. With more, a port that a server takes over has no visitors for long.
const ASKERS_SECONDS: u32 = 3_600;
/// Room for all ports of UDP and TCP in each family, so that no user of this host can fill it. Each
/// takes some 100 bytes.
const ASKER_PORTS_MAX: u32 = 2 << 16;
/// Pairs of each family that are known. If there are more, their ports are noted: then servers that
/// also ask have no visitors for a while, and nothing leaves in clear.
const ASKER_PAIRS_MAX: u32 = 1 << 14;

/// The chain that notes who was refused, and refuses.
pub(super) const REFUSED: &str = "refused";
/// The chain that notes who asks.
const ASKS: &str = "asks";

/// Makes the sets of askers, and the chains that note them and refuse packets of this host.
pub(super) fn refuse_askers(table: &mut Table, flows: Option<&Flows>) {
    table.chain(ASKS);
    for v6 in [false, true] {
        let [ports, pairs] = [ASKER_PORTS, ASKER_PAIRS].map(|set| of_family(set, v6));
        table.filled_by_rules(&ports, &KIND_OF_PORT, ASKER_PORTS_MAX, ASKERS_SECONDS);
        table.filled_by_rules(&pairs, &kind_of_pair(v6), ASKER_PAIRS_MAX, ASKERS_SECONDS);
        table.rules(ASKS, note_asker(v6, flows));
    }
    table.chain(REFUSED);
    table.rules(REFUSED, asks().map(|asks| [asks, vec![jump(ASKS)]].concat()));
    table.rules(REFUSED, [vec![goto(NOTED)]]);
}

fn of_family(set: &str, v6: bool) -> String {
    format!("{set}_v{}", if v6 { 6 } else { 4 })
}

fn is_of_family(v6: bool) -> Value {
    equals(meta("nfproto"), json!(if v6 { "ipv6" } else { "ipv4" }))
}

/// The types of the fields of [`port`].
const KIND_OF_PORT: [&str; 2] = ["inet_proto", "inet_service"];

/// The types of the fields of [`pair`].
const fn kind_of_pair(v6: bool) -> [&'static str; 5] {
    let address = if v6 { "ipv6_addr" } else { "ipv4_addr" };
    ["inet_proto", address, "inet_service", address, "inet_service"]
}

/// The protocol and the local port of packets in this direction.
fn port(way: Way) -> Value {
    let [_, port] = way.local();
    json!({ "concat": [meta("l4proto"), payload("th", port)] })
}

/// The protocol and both ends of packets in this direction, the local one first.
fn pair(v6: bool, way: Way) -> Value {
    let ip = if v6 { "ip6" } else { "ip" };
    let ends = [way.local(), way.opposite().local()];
    let ends = ends.map(|[address, port]| [payload(ip, address), payload("th", port)]).concat();
    let fields = [vec![meta("l4proto")], ends].concat();
    json!({ "concat": fields })
}

/// Matches a packet with which a program asks: UDP that answers nothing, or a SYN, also if a forged
/// one makes it look like an answer.
fn asks() -> [Rule; 2] {
    let is_udp = equals(meta("l4proto"), json!("udp"));
    [vec![is_udp, equals(ct("direction"), json!("original"))], vec![is_syn()]]
}

/// Notes this host's programs by their ports, if the kernel hands these out: they ask others, too.
/// At another port a server may be, which announces itself or answers a broadcast. Then only the
/// destination may not begin a connection. Containers are noted so at each port. A rule that finds
/// its set full gives way to the next.
fn note_asker(v6: bool, flows: Option<&Flows>) -> Vec<Rule> {
    let note = |set, value: Value| {
        let elem = json!({ "elem": { "val": value, "timeout": ASKERS_SECONDS } });
        let set = format!("@{}", of_family(set, v6));
        [json!({ "set": { "op": "update", "elem": elem, "set": set } }), json!({ "return": null })]
    };
    let is_local = json!({ "fib": { "result": "type", "flags": ["saddr"] } });
    let by_port = || {
        let of_host = [is_of_family(v6), equals(is_local.clone(), json!("local"))];
        of_host.into_iter().chain(note(ASKER_PORTS, port(Way::Out)))
    };
    let handed_out = flows.map(|flows| {
        let (first, last) = flows.handed_out;
        let is_handed_out = equals(payload("th", "sport"), json!({ "range": [first, last] }));
        [is_handed_out].into_iter().chain(by_port()).collect()
    });
    let by_pair = note(ASKER_PAIRS, pair(v6, Way::Out)).to_vec();
    handed_out.into_iter().chain([by_pair, by_port().collect()]).collect()
}

/// Notes askers whose packets have another link's address and use the tunnel all the same.
pub(super) fn note_strangers(guard: &GuardRules) -> Vec<Rule> {
    let note = |v6: bool| {
        let own = guard.addresses.iter().filter(|own| own.is_ipv6() == v6);
        let own: Vec<String> = own.map(ToString::to_string).collect();
        let source = payload(if v6 { "ip6" } else { "ip" }, "saddr");
        let on_tunnel = equals(Way::Out.link(), json!(guard.opening.device));
        let is_stranger = [on_tunnel, matches("!=", source, json!({ "set": own }))];
        let rules = asks().map(|asks| [&is_stranger, &asks[..], &[jump(ASKS)]].concat());
        (!own.is_empty()).then_some(rules)
    };
    [false, true].into_iter().filter_map(note).flatten().collect()
}

/// Tells connections that arrive on a link from those that this host began before the guard, which
/// end. Both ends must stop: the other one would go on to send.
pub(super) fn incoming(guard: &GuardRules, flows: Option<&Flows>, sockets: Sockets) -> Vec<Rule> {
    let kept = set(meta("mark"), MARK_INBOUND);
    let mut rules = of_flows("tcp", &guard.opening.kept, Way::In, &kept);
    let Some(flows) = flows else { return rules };
    rules.extend(of_those_that_came_in(flows, Way::In, &kept));
    rules.extend(of_older_flows(flows, Way::In, &drop()));
    rules.extend(of_older_sockets(flows, Way::In, &goto(OLDER)));
    rules.extend(asked_for_by_port());
    rules.extend(asked_for_by_pair());
    let kept = set(ct("mark"), MARK_INBOUND);
    let begins = |first: Value, more: Option<Value>| {
        let to_us = equals(kind_of_destination(), json!("local"));
        is_new(first).into_iter().chain([to_us]).chain(more).chain([kept.clone()]).collect()
    };
    rules.push(begins(is_syn(), None));
    rules.push(begins(equals(meta("l4proto"), json!("udp")), has_socket(sockets)));
    rules.push(begins(equals(payload("icmp", "type"), json!("echo-request")), None));
    rules.push(begins(equals(payload("icmpv6", "type"), json!("echo-request")), None));
    rules
}

/// Marks UDP connections to ports that this host forwards: to containers, or to another port of its
/// own. Before the translation, nothing has their port.
pub(super) fn forwarded(sockets: Sockets) -> Vec<Rule> {
    let begins = |op: &str, more: Option<Value>| {
        let is_forwarded = [
            matches("in", ct("status"), json!("dnat")),
            matches(op, kind_of_destination(), json!("local")),
        ];
        let kept = [set(ct("mark"), MARK_INBOUND), set(meta("mark"), MARK_INBOUND)];
        let first = is_new(equals(meta("l4proto"), json!("udp")));
        first.into_iter().chain(is_forwarded).chain(more).chain(kept).collect()
    };
    let mut rules = asked_for_by_pair();
    rules.push(begins("!=", None));
    // Ports are those of this host's programs, and not of containers.
    rules.extend(asked_for_by_port());
    rules.push(begins("==", has_socket(sockets)));
    rules
}

/// Packets to the ports of askers begin nothing.
fn asked_for_by_port() -> Vec<Rule> {
    let is_asker = |v6: bool| {
        let known = json!(format!("@{}", of_family(ASKER_PORTS, v6)));
        vec![is_of_family(v6), equals(port(Way::In), known), json!({ "return": null })]
    };
    [false, true].map(is_asker).to_vec()
}

/// Nor do packets to askers from those that they asked.
fn asked_for_by_pair() -> Vec<Rule> {
    let is_asker = |v6: bool| {
        let known = json!(format!("@{}", of_family(ASKER_PAIRS, v6)));
        vec![equals(pair(v6, Way::In), known), json!({ "return": null })]
    };
    [false, true].map(is_asker).to_vec()
}

/// Matches the first packet of a connection that no rule has marked.
fn is_new(first: Value) -> [Value; 3] {
    [first, matches("in", ct("state"), json!("new")), equals(ct("mark"), json!(0))]
}

fn is_syn() -> Value {
    let flags = json!({ "&": [payload("tcp", "flags"), TCP_FLAGS] });
    equals(flags, json!(TCP_SYN))
}

/// Matches packets to an open socket. Of the tunnel's own sockets, none waits for whoever comes.
fn has_socket(sockets: Sockets) -> Option<Value> {
    (sockets == Sockets::Matched).then(|| matches("!=", socket("mark"), json!(MARK)))
}

/// Marks this host's replies on connections that came in on another link or from the tunnel, so
/// that the kernel looks up their route again. A connection from before the guard may have a mark
/// of an earlier guard.
pub(super) fn replies(guard: &GuardRules, flows: Option<&Flows>) -> Vec<Rule> {
    let mark = set(meta("mark"), MARK_INBOUND);
    let mut rules = of_flows("tcp", &guard.opening.kept, Way::Out, &mark);
    rules.extend([reply_of(MARK_REPLY), no_reply()]);
    let Some(flows) = flows else { return rules };
    rules.extend(of_those_that_came_in(flows, Way::Out, &mark));
    rules.extend(of_older_flows(flows, Way::Out, &accept()));
    rules.extend(of_older_sockets(flows, Way::Out, &accept()));
    rules.push(reply_of(MARK_INBOUND));
    rules
}

/// Marks a reply on a connection with this mark.
pub(super) fn reply_of(mark: u32) -> Rule {
    vec![
        equals(ct("direction"), json!("reply")),
        equals(ct("mark"), json!(mark)),
        equals(meta("mark"), json!(0)),
        set(meta("mark"), mark),
    ]
}

/// Takes the mark from a connection on which this end sends a SYN without ACK. No server answers
/// so. A program does, if a forged SYN anticipates its connection (simultaneous open, RFC 9293
/// section 3.5).
pub(super) fn no_reply() -> Rule {
    let is_reply = equals(ct("direction"), json!("reply"));
    vec![is_reply, equals(ct("mark"), json!(MARK_INBOUND)), is_syn(), set(ct("mark"), 0)]
}

/// Accepts answers on connections that came in on another link. The mark of the packet would not
/// do: another program may set it (`CAP_NET_RAW`).
pub(super) fn answers() -> Rule {
    let is_answer = equals(ct("direction"), json!("reply"));
    vec![is_answer, equals(ct("mark"), json!(MARK_INBOUND)), accept()]
}

/// Accepts answers on TCP connections that came in before the guard. Packets of connections that
/// this host began before it are no answers, whatever mark they have of an earlier guard.
pub(super) fn older(flows: &Flows) -> Vec<Rule> {
    let mut rules = of_those_that_came_in(flows, Way::Out, &accept());
    rules.extend(of_older_flows(flows, Way::Out, &goto(DESTINATIONS)));
    rules.extend(of_older_sockets(flows, Way::Out, &goto(DESTINATIONS)));
    rules
}

/// Makes the sets of flows and sockets from before the guard. They have names because there may be
/// thousands, and a listing for comparison leaves them out.
pub(super) fn name_older(table: &mut Table, flows: &Flows, guard: &GuardRules) {
    let pair = |protocol, flow: &Connection| {
        let [local, remote] = [flow.local, flow.remote].map(|end| (end.ip(), end.port()));
        let ends = format!(r#""{}",{},"{}",{}"#, local.0, local.1, remote.0, remote.1);
        format!(r#"{{"concat":["{protocol}",{ends}]}}"#)
    };
    for v6 in [false, true] {
        let pairs = |protocol: &'static str, flows: &[Connection]| -> Vec<String> {
            let flows = flows.iter().filter(|flow| flow.remote.is_ipv6() == v6);
            flows.map(|flow| pair(protocol, flow)).collect()
        };
        let began = [pairs("tcp", &flows.tcp), pairs("udp", &flows.udp)].concat();
        table.filled(&of_family(OLDER_FLOWS, v6), &kind_of_pair(v6), began);
        let came_in = pairs("tcp", &flows.incoming);
        table.filled(&of_family(CAME_IN, v6), &kind_of_pair(v6), came_in);
        let bound = flows.bound.iter().filter(|at| at.is_ipv6() == v6);
        let bound = bound.map(|at| format!(r#"{{"concat":["udp","{}",{}]}}"#, at.ip(), at.port()));
        let [protocol, address, port, ..] = kind_of_pair(v6);
        table.filled(&of_family(OLDER_SOCKETS, v6), &[protocol, address, port], bound.collect());
    }
    let port = |(protocol, port): &(Protocol, u16)| {
        let protocol = if *protocol == Protocol::Tcp { "tcp" } else { "udp" };
        format!(r#"{{"concat":["{protocol}",{port}]}}"#)
    };
    table.filled(OLDER_PORTS, &KIND_OF_PORT, flows.ports.iter().map(port).collect());
    if !flows.ports.is_empty() || !flows.bound.is_empty() {
        table.chain(OLDER);
        let sources = sources(table, guard);
        table.rules(OLDER, sources);
    }
}

/// Applies `verdict` to packets of these flows, which a set has by both ends.
fn of_pairs(set: &str, flows: [&[Connection]; 2], way: Way, verdict: &Value) -> Vec<Rule> {
    let has = |v6: &bool| flows.concat().iter().any(|flow| flow.remote.is_ipv6() == *v6);
    let of_pairs = |v6: bool| {
        let known = json!(format!("@{}", of_family(set, v6)));
        vec![equals(pair(v6, way), known), verdict.clone()]
    };
    [false, true].into_iter().filter(has).map(of_pairs).collect()
}

fn of_older_flows(flows: &Flows, way: Way, verdict: &Value) -> Vec<Rule> {
    of_pairs(OLDER_FLOWS, [&flows.tcp, &flows.udp], way, verdict)
}

fn of_those_that_came_in(flows: &Flows, way: Way, verdict: &Value) -> Vec<Rule> {
    of_pairs(CAME_IN, [&flows.incoming, &[]], way, verdict)
}

/// Applies `verdict` to packets of sockets from before the guard whose other end is not known.
fn of_older_sockets(flows: &Flows, way: Way, verdict: &Value) -> Vec<Rule> {
    let has = |v6: &bool| flows.bound.iter().any(|at| at.is_ipv6() == *v6);
    let bound = |v6: bool| {
        let [address, port] = way.local();
        let ip = if v6 { "ip6" } else { "ip" };
        let fields = [meta("l4proto"), payload(ip, address), payload("th", port)];
        let known = json!(format!("@{}", of_family(OLDER_SOCKETS, v6)));
        vec![equals(json!({ "concat": fields }), known), verdict.clone()]
    };
    let ports = || {
        let known = json!(format!("@{OLDER_PORTS}"));
        vec![equals(port(way), known), verdict.clone()]
    };
    let ports = (!flows.ports.is_empty()).then(ports);
    [false, true].into_iter().filter(has).map(bound).chain(ports).collect()
}

/// Drops packets from the tunnel's destinations, which arrived on another link.
fn sources(table: &mut Table, guard: &GuardRules) -> Vec<Rule> {
    let opening = &guard.opening;
    let lan = opening.lan.iter().filter(|_| opening.allow_lan);
    let all = opening.destinations.iter().chain(&guard.routes);
    let all = all.chain(lan.clone().map(|local| &local.net));
    let lengths: BTreeSet<u8> = all.map(IpNet::prefix_len).collect();
    let mut rules = Vec::new();
    for length in lengths.into_iter().rev() {
        let of_length = |nets: &[IpNet]| -> Vec<IpNet> {
            nets.iter().filter(|net| net.prefix_len() == length).copied().collect()
        };
        let name = format!("excluded_{length}");
        rules.extend(excluded(table, &name, Way::In, &of_length(&opening.destinations)));
        let local = lan.clone().filter(|local| local.net.prefix_len() == length);
        rules.extend(local.map(|local| on_link(local, Way::In)));
        let inside = networks_by_family(&of_length(&guard.routes)).into_iter();
        rules.extend(inside.map(|nets| vec![address("saddr", &nets), drop()]));
    }
    rules
}
