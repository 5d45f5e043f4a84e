//! The rules of a client: the kill switch, and the guard of its tunnel.
//!
//! Both use the same exceptions ([`Opening`]). The kill switch accepts only these exceptions, in
//! all directions. The guard refuses packets to the tunnel's destinations on any other link,
//! whichever link the kernel would choose, unless an exception names them. It also keeps the
//! tunnel's own addresses unreachable from other links. A packet must pass both.
//!
//! ```text
//! prerouting   -450    drops fragments from other links that could mix with the tunnel's
//!              mangle  drops packets to the tunnel's address that arrive on another link
//!                      drops packets of connections that this host began before the guard
//!                      marks connections that arrive on another link, and packets of these
//!                      marks connections that arrive from the tunnel, and others' replies on them
//!              -90     marks connections to ports that this host forwards
//! output       mangle  marks this host's replies on both, so that they leave where those came in
//!              filter  refuses packets to the tunnel's destinations on other links
//! forward      filter  the same for containers
//! postrouting  filter  drops replies of the tunnel's visitors on other links
//!                      drops what the output hook should have refused
//!              srcnat  gives containers the tunnel's address
//! ```
//!
//! If another program marks a packet of this host at the output hook, the kernel looks up its route
//! again, and the packet may leave on another link. The rest of that hook still sees the first
//! link. So the rules for this host's packets are asked once more, behind the routing. `marks`
//! notes the marks of packets that are refused.
//!
//! Which connections arrive, and which began here, is decided in `begun`. Packets that a bridge
//! passes on between its ports are none of this host's. The chains see them if
//! `net.bridge.bridge-nf-call-iptables` is set.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{
    begun::{
        DESTINATIONS, FORWARDED, INCOMING, REFUSED, answers, forwarded, incoming, name_older,
        no_reply, note_strangers, older, refuse_askers, replies, reply_of,
    },
    marks::{self, LATE_NOTED, NOTED},
    packets::{Rule, Sockets, Way, excluded, kind_of_destination, of_flows, on_link, socket},
    ruleset::{
        FilledSet, Table, accept, address, ct, drop, equals, goto, jump, matches, meta,
        networks_by_family, payload, refuse, remove_of, set,
    },
};
use crate::plan::{
    Bridge, Flows, GUARD_TABLE, GuardRules, KILL_SWITCH_TABLE, LocalNetwork, MARK, MARK_INBOUND,
    MARK_REPLY, Opening, groups,
};

/// Router solicitation, neighbour solicitation and advertisement: a host must send these for IPv6
/// to work at all (RFC 4861).
const NEIGHBOUR_OUT: [&str; 3] = ["nd-router-solicit", "nd-neighbor-solicit", "nd-neighbor-advert"];
/// The messages that it must receive for that.
const NEIGHBOUR_IN: [&str; 3] = ["nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert"];
/// Their hop limit (RFC 4861 section 7.1): a router passes on none that is not less.
const NEIGHBOUR_HOPS: u32 = 255;
/// Destinations of a link: its own addresses, and groups (RFC 4291).
const NEAR_V6: [&str; 2] = ["fe80::/10", "ff02::/16"];
/// Where reports of groups go, with a hop limit of one (RFC 3810 section 5.2.14).
const REPORTS: &str = "ff02::16/128";
/// Plain DNS, and DNS over TLS or QUIC. They do not reach the LAN's resolvers even if the LAN is
/// allowed.
const DNS_PORTS: [u16; 2] = [53, 853];
/// Destinations of DHCP that every link has: broadcast and link-local addresses (RFC 2131 section
/// 4.1, RFC 3927), and the group of servers and relays (RFC 8415 section 7.1).
const DHCP_V4: [&str; 2] = ["255.255.255.255/32", "169.254.0.0/16"];
const DHCP_V6: [&str; 2] = ["ff02::1:2/128", "fe80::/10"];

/// The chain for packets that are about to leave, and that for their destinations.
const LEAVING: &str = "leaving";
const LATE_DESTINATIONS: &str = "late_destinations";

// Priorities of chains at a hook (netfilter_ipv4.h).
/// Before the kernel reassembles fragments (-400). It compares their addresses, and not their
/// links.
const FRAGMENTS: i32 = -450;
const MANGLE: i32 = -150;
/// After other programs' NAT of destinations, which is at -100 whatever priority its chain has.
const AFTER_NAT: i32 = -90;
const FILTER: i32 = 0;
const SOURCE_NAT: i32 = 100;

/// The offset of a fragment and the flag for more of them (RFC 791).
const FRAGMENT: u32 = 0x3fff;

/// The kill switch: three chains with the policy drop.
pub(super) fn kill_switch(opening: &Opening, sockets: Sockets) -> (Vec<Value>, Vec<FilledSet>) {
    let mut table = Table::new("inet", KILL_SWITCH_TABLE);
    for hook in ["output", "input", "forward"] {
        table.base_chain(hook, "filter", (hook, FILTER), "drop");
    }
    let mut output = beside(opening);
    output.extend(of_flows("tcp", &opening.kept, Way::Out, &accept()));
    output.extend(excluded(&mut table, "excluded", Way::Out, &opening.destinations));
    if opening.allow_lan {
        output.extend(names(&[]));
        output.extend(opening.lan.iter().map(|local| on_link(local, Way::Out)));
        output.extend(towards(Way::Out, &groups()));
    }
    // Programs notice a refusal at once, but a drop only after minutes.
    marks::make_set(&mut table);
    output.extend([marks::note(), vec![refuse()]]);
    table.base_chain(LEAVING, "filter", ("postrouting", FILTER), "accept");
    table.rules(LEAVING, of_others(opening));
    table.rules(LEAVING, after_routing(output.clone()));
    table.rules("output", output);
    let excluded = self::excluded(&mut table, "excluded", Way::In, &opening.destinations);
    table.rules("input", input(opening, sockets, excluded));
    table.rules("forward", through(opening));
    table.rules("forward", through_translators(opening));
    let inside: Vec<Value> = opening.own_links.iter().map(|link| json!(link)).collect();
    if !inside.is_empty() {
        let both = [Way::In, Way::Out].map(|way| equals(way.link(), json!({ "set": inside })));
        table.rules("forward", [both.into_iter().chain([accept()]).collect()]);
    }
    table.into_commands_and_sets()
}

/// The guard. If the `flows` from before it are not known, no connection from outside is answered.
pub(super) fn guard(
    guard: &GuardRules,
    flows: Option<&Flows>,
    sockets: Sockets,
) -> (Vec<Value>, Vec<FilledSet>) {
    let mut table = Table::new("inet", GUARD_TABLE);
    if let Some(flows) = flows {
        name_older(&mut table, flows, guard);
    }
    table.base_chain("fragments", "filter", ("prerouting", FRAGMENTS), "accept");
    table.rules("fragments", foreign_fragments(guard));
    marks::make_chains(&mut table);
    refuse_askers(&mut table, flows);
    table.chain(INCOMING);
    table.rules(INCOMING, incoming(guard, flows, sockets));
    table.chain(FORWARDED);
    table.rules(FORWARDED, flows.into_iter().flat_map(|_| forwarded(sockets)));
    table.base_chain("arrivals", "filter", ("prerouting", MANGLE), "accept");
    table.rules("arrivals", arrivals(guard));
    table.base_chain("translated", "filter", ("prerouting", AFTER_NAT), "accept");
    table.rules("translated", translated(guard, sockets));
    table.base_chain("replies", "route", ("output", MANGLE), "accept");
    table.rules("replies", replies(guard, flows));
    table.chain(DESTINATIONS);
    let destinations = destinations(&mut table, guard);
    table.chain(LATE_DESTINATIONS);
    table.rules(LATE_DESTINATIONS, after_routing(destinations.clone()));
    table.rules(DESTINATIONS, destinations);
    let output = output(guard, flows);
    table.base_chain("output", "filter", ("output", FILTER), "accept");
    table.rules("output", note_strangers(guard));
    table.rules("output", output.clone());
    table.base_chain("forward", "filter", ("forward", FILTER), "accept");
    table.rules("forward", through(&guard.opening));
    table.rules("forward", through_translators(&guard.opening));
    table.rules("forward", inside(&guard.opening, Way::Out));
    table.rules("forward", [answers(), vec![jump(DESTINATIONS)]]);
    table.base_chain(LEAVING, "filter", ("postrouting", FILTER), "accept");
    table.rules(LEAVING, [replies_elsewhere(&guard.opening)]);
    table.rules(LEAVING, of_others(&guard.opening));
    table.rules(LEAVING, after_routing(output));
    table.base_chain("translate", "nat", ("postrouting", SOURCE_NAT), "accept");
    table.rules("translate", translate(guard));
    table.into_commands_and_sets()
}

/// Empties the chains that check destinations.
pub(super) fn ease_guard() -> Vec<Value> {
    let flush = |name: &str| {
        let chain = json!({ "family": "inet", "table": GUARD_TABLE, "name": name });
        json!({ "flush": { "chain": chain } })
    };
    [DESTINATIONS, LATE_DESTINATIONS].map(flush).to_vec()
}

/// The guard's rules for packets of this host.
fn output(guard: &GuardRules, flows: Option<&Flows>) -> Vec<Rule> {
    let mut rules = beside(&guard.opening);
    rules.extend(of_flows("tcp", &guard.opening.kept, Way::Out, &accept()));
    // After a new route lookup, the rest of this hook still sees the first link.
    rules.push(vec![equals(meta("mark"), json!(MARK_REPLY)), accept()]);
    rules.extend(from_own_addresses(guard));
    rules.extend(flows.into_iter().flat_map(older));
    rules.extend([answers(), vec![jump(DESTINATIONS)]]);
    rules
}

/// The same rules for the postrouting hook, where the kernel takes no refusal.
fn after_routing(mut rules: Vec<Rule>) -> Vec<Rule> {
    let changes = [
        (refuse(), drop()),
        (goto(NOTED), goto(LATE_NOTED)),
        (goto(REFUSED), goto(LATE_NOTED)),
        (goto(DESTINATIONS), goto(LATE_DESTINATIONS)),
        (jump(DESTINATIONS), jump(LATE_DESTINATIONS)),
    ];
    for expression in rules.iter_mut().flatten() {
        if let Some((_, late)) = changes.iter().find(|(early, _)| early == expression) {
            *expression = late.clone();
        }
    }
    rules
}

/// Leaves alone packets that this host does not send itself. The forward hook has checked those
/// that it forwards. A frame that a bridge passes on has no incoming link at this hook
/// (`br_nf_post_routing` in net/bridge/br_netfilter_hooks.c).
fn of_others(opening: &Opening) -> Vec<Rule> {
    let kind_of_source = json!({ "fib": { "result": "type", "flags": ["saddr"] } });
    let bridged = opening.bridges.iter().map(|bridge| {
        let out = equals(Way::Out.link(), json!(bridge.name));
        vec![out, matches("!=", kind_of_source.clone(), json!("local")), accept()]
    });
    [vec![matches("!=", meta("iif"), json!(0)), accept()]].into_iter().chain(bridged).collect()
}

/// Removes the ARP table.
pub(super) fn remove_arp() -> Vec<Value> {
    remove_of("arp", GUARD_TABLE)
}

/// Packets that this host may always send.
fn beside(opening: &Opening) -> Vec<Rule> {
    let mut rules = vec![
        vec![equals(Way::Out.link(), json!("lo")), accept()],
        vec![equals(Way::Out.link(), json!(opening.device)), accept()],
    ];
    // Most packets match one of the first rules.
    rules.extend(own_datagrams(opening));
    rules.extend(neighbours_out(opening));
    rules.extend(dhcp(opening));
    rules.extend(inside(opening, Way::Out));
    rules
}

/// The tunnel's own datagrams. The mark of the connection identifies the answers.
///
/// Other programs may set the mark too (`CAP_NET_RAW`, socket(7)), so the first packet of a
/// connection must come from a socket of Rove's user. A later one may come from no socket: the
/// kernel repeats the last packets of a closed one. It also opens MPTCP's subflows itself, before
/// it attaches them to Rove's socket (`__mptcp_subflow_connect`).
fn own_datagrams(opening: &Opening) -> Vec<Rule> {
    let marked = || equals(meta("mark"), json!(MARK));
    let noted = || [set(ct("mark"), MARK), accept()];
    let Some(user) = opening.sender else {
        return vec![[marked()].into_iter().chain(noted()).collect()];
    };
    let of_user = [marked(), equals(meta("skuid"), json!(user))];
    let mut rules = vec![
        of_user.into_iter().chain(noted()).collect(),
        vec![marked(), equals(ct("mark"), json!(MARK)), accept()],
    ];
    if opening.subflows {
        let to = |nets: Vec<IpNet>| {
            let subflow = [marked(), equals(meta("l4proto"), json!("tcp"))];
            subflow.into_iter().chain([address("daddr", &nets)]).chain(noted()).collect()
        };
        rules.extend(networks_by_family(&gateways(opening)).into_iter().map(to));
    }
    rules
}

/// DHCP to any server of a link. A server behind a relay does not get the unicast renewal, but the
/// broadcast that follows it (RFC 2131 section 4.4.5). With IPv6 a client sends to the group.
fn dhcp(opening: &Opening) -> Vec<Rule> {
    let to = |net: &[IpNet], (source, destination)| -> Rule {
        [address("daddr", net)].into_iter().chain(udp(source, destination)).collect()
    };
    let parsed = |nets: [&str; 2]| nets.iter().filter_map(|net| net.parse().ok()).collect();
    let (v4, v6): (Vec<IpNet>, Vec<IpNet>) = (parsed(DHCP_V4), parsed(DHCP_V6));
    let mut rules = vec![to(&v4, (68, 67)), to(&v6, (546, 547))];
    let near = opening.near.iter().filter(|near| near.net.addr().is_ipv4());
    rules.extend(near.map(|near| {
        let rule = to(&[near.net], (68, 67)).into_iter();
        [equals(Way::Out.link(), json!(near.link))].into_iter().chain(rule).collect()
    }));
    rules
}

/// Refuses DNS to the networks of one family, or to any address.
fn names(to: &[IpNet]) -> [Rule; 2] {
    ["udp", "tcp"].map(|protocol| {
        let to = (!to.is_empty()).then(|| address("daddr", to));
        let dns = equals(payload(protocol, "dport"), json!({ "set": DNS_PORTS }));
        to.into_iter().chain([dns, refuse()]).collect()
    })
}

fn input(opening: &Opening, sockets: Sockets, excluded: Vec<Rule>) -> Vec<Rule> {
    let mut rules = vec![
        vec![equals(Way::In.link(), json!("lo")), accept()],
        vec![equals(Way::In.link(), json!(opening.device)), accept()],
        vec![equals(ct("mark"), json!(MARK)), accept()],
        udp(67, 68),
        udp(547, 546),
        [messages(&NEIGHBOUR_IN, NEIGHBOUR_HOPS).to_vec(), vec![accept()]].concat(),
        [messages(&["mld-listener-query"], 1).to_vec(), vec![accept()]].concat(),
    ];
    rules.extend(inside(opening, Way::In));
    rules.extend(of_flows("tcp", &opening.kept, Way::In, &accept()));
    rules.extend(from_gateways(&gateways(opening), sockets));
    rules.extend(excluded);
    if opening.allow_lan {
        rules.extend(opening.lan.iter().map(|local| on_link(local, Way::In)));
        rules.extend(towards(Way::In, &groups()));
    }
    rules
}

/// Unsolicited datagrams of the gateway to the tunnel's own sockets: connection tracking forgets a
/// silent path sooner than Rove does. The address alone proves nothing, as anybody can forge it.
fn from_gateways(gateways: &[IpNet], sockets: Sockets) -> Vec<Rule> {
    let to_us = |nets: Vec<IpNet>| {
        vec![address("saddr", &nets), equals(socket("mark"), json!(MARK)), accept()]
    };
    let families = networks_by_family(gateways).into_iter();
    families.filter(|_| sockets == Sockets::Matched).map(to_us).collect()
}

fn gateways(opening: &Opening) -> Vec<IpNet> {
    opening.gateways.iter().copied().map(IpNet::from).collect()
}

/// Packets forwarded into the tunnel or out of it. The gateway may open connections only to the
/// advertised networks, and to ports that this host itself forwards. What a bridge passes on is not
/// for the tunnel.
fn through(opening: &Opening) -> Vec<Rule> {
    let along = |way: Way| equals(way.link(), json!(opening.device));
    let mut rules = vec![
        vec![
            along(Way::In),
            matches("in", ct("state"), json!(["established", "related"])),
            accept(),
        ],
        vec![along(Way::In), matches("in", ct("status"), json!("dnat")), accept()],
    ];
    let to = |nets: Vec<IpNet>| vec![along(Way::In), address("daddr", &nets), accept()];
    rules.extend(networks_by_family(&opening.behind).into_iter().map(to));
    rules.push(vec![along(Way::In), drop()]);
    rules.push(vec![along(Way::Out), accept()]);
    rules.extend(opening.bridges.iter().map(|bridge| {
        let out = equals(Way::Out.link(), json!(bridge.name));
        [bridged(bridge).to_vec(), vec![out, accept()]].concat()
    }));
    rules
}

/// Packets that a translator made of the tunnel's own datagrams, and the replies to them.
fn through_translators(opening: &Opening) -> Vec<Rule> {
    let links = &opening.translators;
    let ipv6 = || equals(meta("nfproto"), json!("ipv6"));
    let on = |way: Way| vec![equals(way.link(), json!({ "set": links })), ipv6(), accept()];
    if links.is_empty() { Vec::new() } else { [Way::In, Way::Out].map(on).to_vec() }
}

/// Matches frames to other machines of a bridge. Frames that this host itself is to route have its
/// hardware address as their destination.
fn bridged(bridge: &Bridge) -> [Value; 2] {
    let own = json!({ "set": bridge.addresses });
    [equals(Way::In.link(), json!(bridge.name)), matches("!=", payload("ether", "daddr"), own)]
}

/// Packets to or from containers and virtual machines, which do not leave this host.
fn inside(opening: &Opening, way: Way) -> Option<Rule> {
    let links = &opening.own_links;
    (!links.is_empty()).then(|| vec![equals(way.link(), json!({ "set": links })), accept()])
}

/// Drops packets to the tunnel's addresses that arrive elsewhere. It sends no refusal, since that
/// would reveal the address (CVE-2019-14899).
fn to_own_addresses(guard: &GuardRules) -> Vec<Rule> {
    let foreign = from_other_links(&guard.opening, &[]);
    let to = |nets: Vec<IpNet>| vec![foreign.clone(), address("daddr", &nets), drop()];
    networks_by_family(&own_addresses(guard)).into_iter().map(to).collect()
}

/// Drops fragments from other links that the kernel could mix with fragments from the tunnel, or
/// with those that containers send into it. From the tunnel come those to its addresses, and those
/// to advertised networks with a source that is in the tunnel.
fn foreign_fragments(guard: &GuardRules) -> Vec<Rule> {
    let opening = &guard.opening;
    let comes_by = |links: Value| {
        let back = json!({ "fib": { "result": "oifname", "flags": ["saddr"] } });
        equals(back, links)
    };
    let to = |nets: &[IpNet]| {
        let v6 = nets.iter().any(|net| net.addr().is_ipv6());
        vec![from_other_links(opening, &[]), is_fragment(v6), address("daddr", nets)]
    };
    // The kernel reassembles these apart from others (`IP_DEFRAG_CONNTRACK_BRIDGE_IN`).
    let bridges = opening.bridges.iter();
    let bridges = bridges.map(|bridge| [bridged(bridge).to_vec(), vec![accept()]].concat());
    let own = networks_by_family(&own_addresses(guard)).into_iter();
    let own = own.map(|nets| [to(&nets), vec![drop()]].concat());
    let behind = networks_by_family(&opening.behind).into_iter();
    let device = || comes_by(json!(opening.device));
    let behind = behind.map(|nets| [to(&nets), vec![device(), drop()]].concat());
    let inside = &opening.own_links;
    let containers = [false, true].into_iter().filter(|_| !inside.is_empty()).map(|v6| {
        let elsewhere = from_other_links(opening, inside);
        vec![elsewhere, is_fragment(v6), comes_by(json!({ "set": inside })), drop()]
    });
    bridges.chain(own).chain(behind).chain(containers).collect()
}

fn is_fragment(v6: bool) -> Value {
    if v6 {
        return equals(json!({ "exthdr": { "name": "frag" } }), json!(true));
    }
    let offset = json!({ "&": [payload("ip", "frag-off"), FRAGMENT] });
    matches("!=", offset, json!(0))
}

/// Refuses packets on other links that have a tunnel address as their source.
fn from_own_addresses(guard: &GuardRules) -> Vec<Rule> {
    let from = |nets: Vec<IpNet>| vec![address("saddr", &nets), goto(NOTED)];
    networks_by_family(&own_addresses(guard)).into_iter().map(from).collect()
}

fn own_addresses(guard: &GuardRules) -> Vec<IpNet> {
    guard.addresses.iter().copied().map(IpNet::from).collect()
}

/// Rules for packets that arrive on any link.
fn arrivals(guard: &GuardRules) -> Vec<Rule> {
    let opening = &guard.opening;
    let mut rules = passed_by(opening);
    rules.extend(to_own_addresses(guard));
    rules.extend(translated_packets(opening));
    rules.push(vec![from_strange_links(opening), jump(INCOMING)]);
    rules.push(no_reply());
    rules.push(vec![equals(ct("mark"), json!(MARK_INBOUND)), set(meta("mark"), MARK_INBOUND)]);
    rules.extend(visitors(guard));
    rules
}

/// Packets that the rules for arrivals leave alone.
fn passed_by(opening: &Opening) -> Vec<Rule> {
    // If a local network has the same address, the tunnel's own datagrams may be sent to it.
    let mut rules = vec![vec![equals(ct("mark"), json!(MARK)), accept()]];
    rules.extend(opening.bridges.iter().map(|bridge| {
        let elsewhere = matches("!=", kind_of_destination(), json!("local"));
        [bridged(bridge).to_vec(), vec![elsewhere, accept()]].concat()
    }));
    rules
}

/// Rules for packets that arrive on any link, after other programs forwarded ports. The reverse
/// path check asks for the marks that all connections from outside have by then.
fn translated(guard: &GuardRules, sockets: Sockets) -> Vec<Rule> {
    let opening = &guard.opening;
    let mut rules = passed_by(opening);
    rules.push(vec![from_strange_links(opening), jump(FORWARDED)]);
    if !guard.strict_links.is_empty() {
        rules.extend(strict(guard, sockets));
    }
    rules
}

/// Matches packets on links where the guard decides over replies. The kernel's routes do so on a
/// tunnel that stays beside this one.
fn from_strange_links(opening: &Opening) -> Value {
    let tunnels = opening.tunnels.iter().map(|local| local.link.clone());
    let others: BTreeSet<String> = opening.own_links.iter().cloned().chain(tunnels).collect();
    from_other_links(opening, &Vec::from_iter(others))
}

/// Marks connections that arrive from the tunnel, and the replies of containers and of networks
/// behind this host, so that the replies use the tunnel whatever its routes are.
///
/// Only connections to the tunnel's addresses and to advertised networks are marked. Otherwise a
/// hostile gateway could invent the other direction of a connection of this host, and its packets
/// would follow the mark into the tunnel.
fn visitors(guard: &GuardRules) -> Vec<Rule> {
    let from_tunnel = || equals(Way::In.link(), json!(guard.opening.device));
    let known = [own_addresses(guard), guard.opening.behind.clone()].concat();
    let mark = |nets: Vec<IpNet>| {
        vec![
            from_tunnel(),
            matches("in", ct("state"), json!("new")),
            equals(ct("mark"), json!(0)),
            address("daddr", &nets),
            set(ct("mark"), MARK_REPLY),
        ]
    };
    let mut rules: Vec<Rule> = networks_by_family(&known).into_iter().map(mark).collect();
    rules.push(reply_of(MARK_REPLY));
    rules
}

/// Sends packets that a translator makes of IPv4, and the replies to them, by the main table. Only
/// the tunnel's own datagrams enter a translator, but their mark is lost there.
fn translated_packets(opening: &Opening) -> Option<Rule> {
    let links = &opening.translators;
    (!links.is_empty()).then(|| {
        vec![
            equals(Way::In.link(), json!({ "set": links })),
            equals(meta("nfproto"), json!("ipv6")),
            matches("in", ct("state"), json!("new")),
            equals(ct("mark"), json!(0)),
            set(ct("mark"), MARK_INBOUND),
        ]
    })
}

/// The kernel's strict reverse path check for these links, except for the tunnel's own datagrams.
/// These arrive on any of the links, and the kernel cannot tell them from other packets.
fn strict(guard: &GuardRules, sockets: Sockets) -> Vec<Rule> {
    let mut gateways = gateways(&guard.opening);
    gateways.retain(|net| net.addr().is_ipv4());
    let back = json!({ "fib": { "result": "oif", "flags": ["saddr", "mark", "iif"] } });
    let mut rules = from_gateways(&gateways, sockets);
    // A bridge passes frames to groups on to all of its ports.
    rules.extend(guard.opening.bridges.iter().map(|bridge| {
        let to_group = matches("!=", meta("pkttype"), json!("host"));
        [bridged(bridge).to_vec(), vec![to_group, accept()]].concat()
    }));
    rules.push(vec![
        equals(meta("nfproto"), json!("ipv4")),
        equals(Way::In.link(), json!({ "set": guard.strict_links })),
        equals(back, json!(false)),
        drop(),
    ]);
    rules
}

/// Drops replies to connections that came in through the tunnel if their route into it is missing.
fn replies_elsewhere(opening: &Opening) -> Rule {
    vec![
        equals(meta("mark"), json!(MARK_REPLY)),
        matches("!=", Way::Out.link(), json!(opening.device)),
        drop(),
    ]
}

/// Checks a packet that leaves on another link by the longest prefix of its destination, as routes
/// do. If a network is both an exception and a destination of the tunnel, the exception wins.
fn destinations(table: &mut Table, guard: &GuardRules) -> Vec<Rule> {
    let opening = &guard.opening;
    let open = &opening.destinations;
    let (mut groups, mut lan) = (groups(), &opening.lan[..]);
    if !opening.allow_lan {
        (groups, lan) = (Vec::new(), &[]);
    }
    let local = groups.iter().chain(lan.iter().map(|local| &local.net));
    let tunnels = opening.tunnels.iter().map(|local| &local.net);
    let all = open.iter().chain(&guard.routes).chain(local.clone()).chain(tunnels);
    let lengths: BTreeSet<u8> = all.map(IpNet::prefix_len).collect();
    let mut rules = Vec::new();
    // Where the tunnel is for the whole Internet, or for this network, names are asked in it.
    let is_inside = |net: &IpNet| {
        let holds = |nets: &[IpNet]| nets.iter().any(|other| other.contains(net));
        holds(&guard.routes) && !holds(open)
    };
    let quiet: Vec<IpNet> = local.filter(|net| is_inside(net)).copied().collect();
    for length in lengths.into_iter().rev() {
        let of_length = |nets: &[IpNet]| -> Vec<IpNet> {
            nets.iter().filter(|net| net.prefix_len() == length).copied().collect()
        };
        let name = format!("excluded_{length}");
        rules.extend(excluded(table, &name, Way::Out, &of_length(open)));
        let quiet = networks_by_family(&of_length(&quiet)).into_iter();
        rules.extend(quiet.flat_map(|nets| names(&nets)));
        rules.extend(towards(Way::Out, &of_length(&groups)));
        let local = lan.iter().filter(|local| local.net.prefix_len() == length);
        rules.extend(local.map(|local| on_link(local, Way::Out)));
        rules.extend(on_tunnels(&opening.tunnels, length));
        let refused = networks_by_family(&of_length(&guard.routes)).into_iter();
        rules.extend(refused.map(|nets| vec![address("daddr", &nets), goto(REFUSED)]));
    }
    rules
}

/// Accepts packets to networks with this length of prefix on the tunnels of other programs.
fn on_tunnels(tunnels: &[LocalNetwork], length: u8) -> Vec<Rule> {
    let of_length = || tunnels.iter().filter(move |local| local.net.prefix_len() == length);
    let links: BTreeSet<&str> = of_length().map(|local| local.link.as_str()).collect();
    let on = |link| {
        let nets = of_length().filter(|local| local.link == link).map(|local| local.net);
        let families = networks_by_family(&nets.collect::<Vec<_>>()).into_iter();
        families.map(move |nets| {
            vec![equals(Way::Out.link(), json!(link)), address("daddr", &nets), accept()]
        })
    };
    links.into_iter().flat_map(on).collect()
}

/// Gives packets of containers and virtual machines the tunnel's address, the only one that the
/// gateway knows.
fn translate(guard: &GuardRules) -> Vec<Rule> {
    let device = equals(Way::Out.link(), json!(guard.opening.device));
    let masquerade = json!({ "masquerade": null });
    let from = |nets: Vec<IpNet>| vec![device.clone(), address("saddr", &nets), masquerade.clone()];
    networks_by_family(&guard.translated).into_iter().map(from).collect()
}

/// The guard's ARP table: other links neither ask nor answer for the tunnel's addresses. IPv6 needs
/// no such table (RFC 4861 section 7.2.3).
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

/// Matches packets that did not arrive on the loopback, the tunnel or a link in `more`.
fn from_other_links(opening: &Opening, more: &[String]) -> Value {
    let known = ["lo", &opening.device].into_iter().chain(more.iter().map(String::as_str));
    let known: Vec<&str> = known.collect();
    matches("!=", Way::In.link(), json!({ "set": known }))
}

/// One rule per family that accepts packets to (or from) the networks.
fn towards(way: Way, networks: &[IpNet]) -> Vec<Rule> {
    networks_by_family(networks)
        .into_iter()
        .map(|family| vec![address(way.remote(), &family), accept()])
        .collect()
}

/// Neighbour discovery and reports of groups, to destinations of a link alone. Other programs may
/// send such messages, too (`CAP_NET_RAW`), and their contents are free.
fn neighbours_out(opening: &Opening) -> Vec<Rule> {
    let to = |nets: &[&str]| {
        let nets: Vec<IpNet> = nets.iter().filter_map(|net| net.parse().ok()).collect();
        address("daddr", &nets)
    };
    let rule = |types: &[&str], hops, to: Value| -> Rule {
        messages(types, hops).into_iter().chain([to, accept()]).collect()
    };
    let mut rules = vec![
        rule(&NEIGHBOUR_OUT, NEIGHBOUR_HOPS, to(&NEAR_V6)),
        rule(&["mld2-listener-report"], 1, to(&[REPORTS])),
    ];
    let near = opening.near.iter().filter(|near| near.net.addr().is_ipv6());
    rules.extend(near.map(|near| {
        let on_link = on_link(near, Way::Out).into_iter();
        messages(&NEIGHBOUR_OUT, NEIGHBOUR_HOPS).into_iter().chain(on_link).collect()
    }));
    rules
}

/// Matches ICMPv6 messages of these types and with this hop limit.
fn messages(types: &[&str], hops: u32) -> [Value; 2] {
    let types = equals(payload("icmpv6", "type"), json!({ "set": types }));
    [types, equals(payload("ip6", "hoplimit"), json!(hops))]
}

fn udp(source: u16, destination: u16) -> Rule {
    vec![
        equals(payload("udp", "sport"), json!(source)),
        equals(payload("udp", "dport"), json!(destination)),
        accept(),
    ]
}
