//! The rules of a client: the kill switch, and the guard of its tunnel.
//!
//! Both are made of the same exceptions ([`Opening`]). The kill switch lets through what they name
//! and nothing else, in all directions. The guard refuses what the tunnel is for and they do not
//! name, whichever link the kernel would send it by, and keeps the tunnel's own addresses to the
//! tunnel. A packet must please both.
//!
//! ```text
//! prerouting   mangle  what comes to the tunnel's address by another link is dropped
//!                      connections that come in by another link get a mark, replies to them too
//! output       mangle  this host's replies get it, and go where they came from
//!              filter  what the tunnel is for is refused on other links
//! forward      filter  the same for containers
//! postrouting  srcnat  containers get the tunnel's address
//! ```

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::ruleset::{
    Table, accept, address, ct, drop, equals, matches, meta, networks_by_family, payload, refuse,
    remove_of, set,
};
use crate::plan::{
    Connection, GUARD_TABLE, GuardRules, KILL_SWITCH_TABLE, LocalNetwork, MARK, MARK_INBOUND,
    Opening,
};

/// Groups of a link (RFC 5771, RFC 2365, RFC 4291) and link-local addresses, which are open with
/// the local network.
const GROUPS: [&str; 6] =
    ["224.0.0.0/24", "239.0.0.0/8", "255.255.255.255/32", "fe80::/10", "ff02::/16", "ff05::/16"];

/// Router solicitation, neighbour solicitation and advertisement, multicast listener reports:
/// what a host must say to have IPv6 at all (RFC 4861, RFC 3810).
const NEIGHBOUR_OUT: [&str; 4] =
    ["nd-router-solicit", "nd-neighbor-solicit", "nd-neighbor-advert", "mld2-listener-report"];
/// What it must hear.
const NEIGHBOUR_IN: [&str; 4] =
    ["nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert", "mld-listener-query"];
/// Plain DNS and DNS over TLS: kept from the LAN's resolvers even where the LAN is allowed.
const DNS_PORTS: [u16; 2] = [53, 853];

// Where chains stand at a hook among others (netfilter_ipv4.h).
const MANGLE: i32 = -150;
const FILTER: i32 = 0;
const SOURCE_NAT: i32 = 100;

/// The chain that judges destinations, of this host's packets and of those that it passes on.
const DESTINATIONS: &str = "destinations";

type Rule = Vec<Value>;

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    In,
    Out,
}

impl Way {
    /// What names the link.
    fn link(self) -> Value {
        meta(if self == Self::In { "iifname" } else { "oifname" })
    }

    /// What names the other end.
    const fn remote(self) -> &'static str {
        if matches!(self, Self::In) { "saddr" } else { "daddr" }
    }
}

/// The kill switch: three chains that end in drop.
pub(super) fn kill_switch(opening: &Opening) -> Vec<Value> {
    let mut table = Table::new("inet", KILL_SWITCH_TABLE);
    for hook in ["output", "input", "forward"] {
        table.base_chain(hook, "filter", (hook, FILTER), "drop");
    }
    table.rules("output", beside(opening));
    table.rules("output", kept(opening, Way::Out, accept()));
    table.rules("output", towards(Way::Out, &opening.destinations));
    if opening.allow_lan {
        for protocol in ["udp", "tcp"] {
            let dns = json!({ "set": DNS_PORTS });
            table.rules("output", [vec![equals(payload(protocol, "dport"), dns), refuse()]]);
        }
        table.rules("output", opening.lan.iter().map(|local| on_link(local, Way::Out)));
        table.rules("output", towards(Way::Out, &groups()));
    }
    // A refusal is noticed at once, a drop after minutes.
    table.rules("output", [vec![refuse()]]);
    table.rules("input", input(opening));
    table.rules("forward", through(opening));
    let inside: Vec<Value> = opening.own_links.iter().map(|link| json!(link)).collect();
    if !inside.is_empty() {
        let both = [Way::In, Way::Out].map(|way| equals(way.link(), json!({ "set": inside })));
        table.rules("forward", [both.into_iter().chain([accept()]).collect()]);
    }
    table.into_commands()
}

/// The guard.
pub(super) fn guard(guard: &GuardRules) -> Vec<Value> {
    let mut table = Table::new("inet", GUARD_TABLE);
    table.base_chain("arrivals", "filter", ("prerouting", MANGLE), "accept");
    table.rules("arrivals", arrivals(guard));
    table.base_chain("replies", "route", ("output", MANGLE), "accept");
    table.rules("replies", replies(guard));
    table.chain(DESTINATIONS);
    table.rules(DESTINATIONS, destinations(guard));
    table.base_chain("output", "filter", ("output", FILTER), "accept");
    table.rules("output", beside(&guard.opening));
    table.rules("output", from_own_addresses(guard));
    table.rules("output", [jump()]);
    table.base_chain("forward", "filter", ("forward", FILTER), "accept");
    table.rules("forward", through(&guard.opening));
    table.rules("forward", inside(&guard.opening, Way::Out));
    table.rules("forward", [jump()]);
    table.base_chain("translate", "nat", ("postrouting", SOURCE_NAT), "accept");
    table.rules("translate", translate(guard));
    table.into_commands()
}

/// Removes the table of ARP.
pub(super) fn remove_arp() -> Vec<Value> {
    remove_of("arp", GUARD_TABLE)
}

/// What this host may say whatever else is refused.
fn beside(opening: &Opening) -> Vec<Rule> {
    let mut rules = vec![
        vec![equals(Way::Out.link(), json!("lo")), accept()],
        vec![equals(Way::Out.link(), json!(opening.device)), accept()],
        // The tunnel's own datagrams; answers to them are known by the connection's mark.
        vec![equals(meta("mark"), json!(MARK)), set(ct("mark"), MARK), accept()],
        udp(68, 67),
        udp(546, 547),
        neighbour(&NEIGHBOUR_OUT),
    ];
    rules.extend(inside(opening, Way::Out));
    rules
}

fn input(opening: &Opening) -> Vec<Rule> {
    let mut rules = vec![
        vec![equals(Way::In.link(), json!("lo")), accept()],
        vec![equals(Way::In.link(), json!(opening.device)), accept()],
        vec![equals(ct("mark"), json!(MARK)), accept()],
        udp(67, 68),
        udp(547, 546),
        neighbour(&NEIGHBOUR_IN),
    ];
    rules.extend(inside(opening, Way::In));
    rules.extend(kept(opening, Way::In, accept()));
    let gateways: Vec<IpNet> = opening.gateways.iter().copied().map(IpNet::from).collect();
    rules.extend(towards(Way::In, &gateways));
    rules.extend(towards(Way::In, &opening.destinations));
    if opening.allow_lan {
        rules.extend(opening.lan.iter().map(|local| on_link(local, Way::In)));
        rules.extend(towards(Way::In, &groups()));
    }
    rules
}

/// What is passed on into the tunnel, and out of it.
fn through(opening: &Opening) -> Vec<Rule> {
    let device = json!(opening.device);
    [Way::In, Way::Out].map(|way| vec![equals(way.link(), device.clone()), accept()]).to_vec()
}

/// Containers and virtual machines of this host are on no wire.
fn inside(opening: &Opening, way: Way) -> Option<Rule> {
    let links = &opening.own_links;
    (!links.is_empty()).then(|| vec![equals(way.link(), json!({ "set": links })), accept()])
}

/// Does `verdict` to packets of the connections that are kept.
fn kept(opening: &Opening, way: Way, verdict: Value) -> Vec<Rule> {
    let of_family = |v6: bool| {
        let connections = opening.kept.iter().filter(move |kept| kept.remote.is_ipv6() == v6);
        let ends = |kept: &Connection| {
            let (local, remote) = (kept.local, kept.remote);
            let ends = match way {
                Way::Out => [local, remote],
                Way::In => [remote, local],
            };
            let [from, to] = ends.map(|end| (end.ip().to_string(), end.port()));
            json!({ "concat": [from.0, from.1, to.0, to.1] })
        };
        let ends: Vec<Value> = connections.map(ends).collect();
        let ip = if v6 { "ip6" } else { "ip" };
        let fields = json!({ "concat": [
            payload(ip, "saddr"), payload("tcp", "sport"),
            payload(ip, "daddr"), payload("tcp", "dport"),
        ] });
        let rule = vec![equals(fields, json!({ "set": ends })), verdict.clone()];
        (!ends.is_empty()).then_some(rule)
    };
    [false, true].into_iter().filter_map(of_family).collect()
}

/// What comes from somewhere else to the tunnel's addresses: not even a refusal is sent, by which
/// the address could be found out (CVE-2019-14899).
fn to_own_addresses(guard: &GuardRules) -> Vec<Rule> {
    let foreign = from_other_links(&guard.opening, &[]);
    let to = |nets: Vec<IpNet>| vec![foreign.clone(), address("daddr", &nets), drop()];
    networks_by_family(&own_addresses(guard)).into_iter().map(to).collect()
}

/// The tunnel's addresses mean something in the tunnel alone.
fn from_own_addresses(guard: &GuardRules) -> Vec<Rule> {
    let from = |nets: Vec<IpNet>| vec![address("saddr", &nets), refuse()];
    networks_by_family(&own_addresses(guard)).into_iter().map(from).collect()
}

fn own_addresses(guard: &GuardRules) -> Vec<IpNet> {
    guard.addresses.iter().copied().map(IpNet::from).collect()
}

/// Packets that come by another link.
fn arrivals(guard: &GuardRules) -> Vec<Rule> {
    let opening = &guard.opening;
    let kind = json!({ "fib": { "result": "type", "flags": ["daddr"] } });
    // The tunnel's own datagrams may come to the same address, where a local network has it too.
    let mut rules = vec![vec![equals(ct("mark"), json!(MARK)), accept()]];
    rules.extend(to_own_addresses(guard));
    rules.extend([
        vec![
            from_other_links(opening, &opening.own_links),
            matches("in", ct("state"), json!("new")),
            equals(ct("mark"), json!(0)),
            equals(kind, json!("local")),
            set(ct("mark"), MARK_INBOUND),
        ],
        vec![equals(ct("mark"), json!(MARK_INBOUND)), set(meta("mark"), MARK_INBOUND)],
    ]);
    if !guard.strict_links.is_empty() {
        rules.extend(strict(guard));
    }
    rules
}

/// The reverse path filter that the kernel would apply to these links: it cannot tell the tunnel's
/// own datagrams, which come by any of them, from others.
fn strict(guard: &GuardRules) -> Vec<Rule> {
    let gateways: Vec<IpNet> = guard.opening.gateways.iter().copied().map(IpNet::from).collect();
    let gateways: Vec<IpNet> = gateways.into_iter().filter(|net| net.addr().is_ipv4()).collect();
    let back = json!({ "fib": { "result": "oif", "flags": ["saddr", "mark", "iif"] } });
    let mut rules = towards(Way::In, &gateways);
    rules.push(vec![
        equals(meta("nfproto"), json!("ipv4")),
        equals(Way::In.link(), json!({ "set": guard.strict_links })),
        equals(back, json!(false)),
        drop(),
    ]);
    rules
}

/// This host's part of connections that came in by another link: another route is looked for.
fn replies(guard: &GuardRules) -> Vec<Rule> {
    let mut rules = vec![vec![
        equals(ct("direction"), json!("reply")),
        equals(ct("mark"), json!(MARK_INBOUND)),
        equals(meta("mark"), json!(0)),
        set(meta("mark"), MARK_INBOUND),
    ]];
    rules.extend(kept(&guard.opening, Way::Out, set(meta("mark"), MARK_INBOUND)));
    rules
}

/// Judges a packet that leaves by another link, as routes do: by the longest prefix that its
/// destination has. What is both open and kept in the tunnel is open.
fn destinations(guard: &GuardRules) -> Vec<Rule> {
    let opening = &guard.opening;
    let (mut open, mut lan) = (opening.destinations.clone(), &[][..]);
    if opening.allow_lan {
        open.extend(groups());
        lan = &opening.lan;
    }
    let all = open.iter().chain(&guard.routes).chain(lan.iter().map(|local| &local.net));
    let lengths: BTreeSet<u8> = all.map(IpNet::prefix_len).collect();
    let mut rules = vec![vec![equals(meta("mark"), json!(MARK_INBOUND)), accept()]];
    for length in lengths.into_iter().rev() {
        let of_length = |nets: &[IpNet]| -> Vec<IpNet> {
            nets.iter().filter(|net| net.prefix_len() == length).copied().collect()
        };
        rules.extend(towards(Way::Out, &of_length(&open)));
        let local = lan.iter().filter(|local| local.net.prefix_len() == length);
        rules.extend(local.map(|local| on_link(local, Way::Out)));
        let refused = networks_by_family(&of_length(&guard.routes)).into_iter();
        rules.extend(refused.map(|nets| vec![address("daddr", &nets), refuse()]));
    }
    rules
}

/// Containers and virtual machines use the tunnel under its address, the only one that the gateway
/// knows.
fn translate(guard: &GuardRules) -> Vec<Rule> {
    let device = equals(Way::Out.link(), json!(guard.opening.device));
    let masquerade = json!({ "masquerade": null });
    let from = |nets: Vec<IpNet>| vec![device.clone(), address("saddr", &nets), masquerade.clone()];
    networks_by_family(&guard.translated).into_iter().map(from).collect()
}

/// A second table of the guard: other links neither ask nor answer for the tunnel's addresses.
/// IPv6 does neither by itself
/// (RFC 4861 section 7.2.3).
pub(super) fn arp(guard: &GuardRules) -> Vec<Value> {
    let mut table = Table::new("arp", GUARD_TABLE);
    let own = guard
        .addresses
        .iter()
        .filter(|address| address.is_ipv4() && !guard.shared_addresses.contains(address));
    let own: Vec<String> = own.map(ToString::to_string).collect();
    if own.is_empty() {
        return remove_arp();
    }
    for (hook, way, field) in [("input", Way::In, "daddr ip"), ("output", Way::Out, "saddr ip")] {
        table.base_chain(hook, "filter", (hook, FILTER), "accept");
        table.rules(
            hook,
            [vec![
                matches("!=", way.link(), json!(guard.opening.device)),
                equals(payload("arp", field), json!({ "set": own })),
                drop(),
            ]],
        );
    }
    table.into_commands()
}

fn jump() -> Rule {
    vec![json!({ "jump": { "target": DESTINATIONS } })]
}

/// Matches what comes by another link than the loopback, the tunnel and `more`.
fn from_other_links(opening: &Opening, more: &[String]) -> Value {
    let known = ["lo", &opening.device].into_iter().chain(more.iter().map(String::as_str));
    let known: Vec<&str> = known.collect();
    matches("!=", Way::In.link(), json!({ "set": known }))
}

fn groups() -> Vec<IpNet> {
    GROUPS.iter().filter_map(|net| net.parse().ok()).collect()
}

/// One rule per family that accepts what goes to, or comes from, the networks.
fn towards(way: Way, networks: &[IpNet]) -> Vec<Rule> {
    networks_by_family(networks)
        .into_iter()
        .map(|family| vec![address(way.remote(), &family), accept()])
        .collect()
}

/// Accepts what goes to, or comes from, a network by its own link.
fn on_link(local: &LocalNetwork, way: Way) -> Rule {
    let net = address(way.remote(), &[local.net]);
    vec![equals(way.link(), json!(local.link)), net, accept()]
}

fn neighbour(types: &[&str]) -> Rule {
    vec![equals(payload("icmpv6", "type"), json!({ "set": types })), accept()]
}

fn udp(source: u16, destination: u16) -> Rule {
    vec![
        equals(payload("udp", "sport"), json!(source)),
        equals(payload("udp", "dport"), json!(destination)),
        accept(),
    ]
}
