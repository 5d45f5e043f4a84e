//! The rules of a client: the kill switch.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::ruleset::{
    accept, address, chain, equals, meta, networks_by_family, payload, refuse, replace, rule,
};
use crate::plan::{KILL_SWITCH_TABLE, MARK, Opening};

/// Local networks and groups (RFC 1918, 3927, 4193, 4291, 5771, 2365). The shared space of
/// RFC 6598 is the provider's, not the LAN.
const LAN_V4: [&str; 7] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "224.0.0.0/24",
    "239.0.0.0/8",
    "255.255.255.255/32",
];
const LAN_V6: [&str; 4] = ["fc00::/7", "fe80::/10", "ff02::/16", "ff05::/16"];

/// Router solicitation, neighbour solicitation and advertisement, multicast listener reports:
/// what a host must say to have IPv6 at all (RFC 4861, RFC 3810).
const NEIGHBOUR_OUT: [&str; 4] =
    ["nd-router-solicit", "nd-neighbor-solicit", "nd-neighbor-advert", "mld2-listener-report"];
/// What it must hear.
const NEIGHBOUR_IN: [&str; 4] =
    ["nd-router-advert", "nd-neighbor-solicit", "nd-neighbor-advert", "mld-listener-query"];
/// Plain DNS and DNS over TLS: kept from the LAN's resolvers even where the LAN is allowed.
const DNS_PORTS: [u16; 2] = [53, 853];

/// The kill switch: three chains that end in drop.
pub(super) fn kill_switch(opening: &Opening) -> Vec<Value> {
    let mut commands = replace(KILL_SWITCH_TABLE);
    for hook in ["output", "input", "forward"] {
        commands.push(chain(KILL_SWITCH_TABLE, hook, "filter", hook, 0, "drop"));
    }
    let mut add = |chain: &str, rules: Vec<Vec<Value>>| {
        commands.extend(rules.into_iter().map(|expr| rule(KILL_SWITCH_TABLE, chain, expr)));
    };
    add("output", output(opening));
    add("input", input(opening));
    add("forward", forward(opening));
    commands
}

fn output(opening: &Opening) -> Vec<Vec<Value>> {
    let mut rules = vec![
        vec![equals(meta("oifname"), json!("lo")), accept()],
        vec![equals(meta("oifname"), json!(opening.device)), accept()],
        // The tunnel's own datagrams; answers to them are known by the connection's mark.
        vec![
            equals(meta("mark"), json!(MARK)),
            json!({ "mangle": { "key": { "ct": { "key": "mark" } }, "value": MARK } }),
            accept(),
        ],
        udp(68, 67),
        udp(546, 547),
        neighbour(&NEIGHBOUR_OUT),
    ];
    rules.extend(towards("daddr", &opening.destinations));
    if opening.allow_lan {
        for protocol in ["udp", "tcp"] {
            let dns = json!({ "set": DNS_PORTS });
            rules.push(vec![equals(payload(protocol, "dport"), dns), refuse()]);
        }
        rules.extend(towards("daddr", &lan()));
    }
    // A refusal is noticed at once, a drop after minutes.
    rules.push(vec![refuse()]);
    rules
}

fn input(opening: &Opening) -> Vec<Vec<Value>> {
    let mut rules = vec![
        vec![equals(meta("iifname"), json!("lo")), accept()],
        vec![equals(meta("iifname"), json!(opening.device)), accept()],
        vec![equals(json!({ "ct": { "key": "mark" } }), json!(MARK)), accept()],
        udp(67, 68),
        udp(547, 546),
        neighbour(&NEIGHBOUR_IN),
    ];
    let gateways: Vec<IpNet> = opening.gateways.iter().copied().map(IpNet::from).collect();
    rules.extend(towards("saddr", &gateways));
    rules.extend(towards("saddr", &opening.destinations));
    if opening.allow_lan {
        rules.extend(towards("saddr", &lan()));
    }
    rules
}

fn forward(opening: &Opening) -> Vec<Vec<Value>> {
    ["iifname", "oifname"]
        .map(|key| vec![equals(meta(key), json!(opening.device)), accept()])
        .to_vec()
}

fn lan() -> Vec<IpNet> {
    LAN_V4.iter().chain(&LAN_V6).filter_map(|net| net.parse().ok()).collect()
}

/// One rule per family that accepts what goes to, or comes from, the networks.
fn towards(field: &str, networks: &[IpNet]) -> Vec<Vec<Value>> {
    networks_by_family(networks)
        .into_iter()
        .map(|family| vec![address(field, &family), accept()])
        .collect()
}

fn neighbour(types: &[&str]) -> Vec<Value> {
    vec![equals(payload("icmpv6", "type"), json!({ "set": types })), accept()]
}

fn udp(source: u16, destination: u16) -> Vec<Value> {
    vec![
        equals(payload("udp", "sport"), json!(source)),
        equals(payload("udp", "dport"), json!(destination)),
        accept(),
    ]
}
