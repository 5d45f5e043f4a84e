//! Which end began a connection: the rules of the guard for connections that arrive on a link, and
//! for those that this host began before the guard.
//!
//! A connection arrives if it begins with a SYN, a UDP packet or an echo request on another link.
//! Other protocols begin nothing.

use std::collections::BTreeSet;

use ipnet::IpNet;
use serde_json::json;

use super::{
    packets::{Rule, Way, excluded, kind_of_destination, of_flows, of_sockets, on_link},
    ruleset::{
        Table, accept, address, ct, drop, equals, goto, matches, meta, networks_by_family, payload,
        set,
    },
};
use crate::plan::{Flows, GuardRules, MARK_INBOUND, MARK_REPLY};

/// The chain that checks destinations, for packets of this host and for forwarded packets.
pub(super) const DESTINATIONS: &str = "destinations";

/// The chain that marks connections that arrive on a link.
pub(super) const INCOMING: &str = "incoming";

/// The chain that checks the sources of packets to sockets from before the guard.
pub(super) const OLDER: &str = "older";

/// FIN, SYN, RST and ACK in the flags of TCP, and the first packet of a connection: SYN alone
/// (RFC 9293).
pub(super) const TCP_FLAGS: u32 = 0x17;

pub(super) const TCP_SYN: u32 = 0x02;

/// Tells connections that arrive on a link from those that this host began before the guard, which
/// end. Both ends must stop: the other one would go on to send.
pub(super) fn incoming(guard: &GuardRules, flows: Option<&Flows>) -> Vec<Rule> {
    let kept = set(meta("mark"), MARK_INBOUND);
    let mut rules = of_flows("tcp", &guard.opening.kept, Way::In, &kept);
    let Some(flows) = flows else { return rules };
    rules.extend(of_flows("tcp", &flows.incoming, Way::In, &kept));
    rules.extend(of_flows("tcp", &flows.tcp, Way::In, &drop()));
    rules.extend(of_flows("udp", &flows.udp, Way::In, &drop()));
    rules.extend(of_sockets(&flows.bound, Way::In, &goto(OLDER)));
    let flags = json!({ "&": [payload("tcp", "flags"), TCP_FLAGS] });
    for begins in [
        equals(flags, json!(TCP_SYN)),
        equals(meta("l4proto"), json!("udp")),
        equals(payload("icmp", "type"), json!("echo-request")),
        equals(payload("icmpv6", "type"), json!("echo-request")),
    ] {
        rules.push(vec![
            begins,
            matches("in", ct("state"), json!("new")),
            equals(ct("mark"), json!(0)),
            equals(kind_of_destination(), json!("local")),
            set(ct("mark"), MARK_INBOUND),
        ]);
    }
    rules
}

/// Marks this host's replies on connections that came in on another link or from the tunnel, so
/// that the kernel looks up their route again. A connection from before the guard may have a mark
/// of an earlier guard.
pub(super) fn replies(guard: &GuardRules, flows: Option<&Flows>) -> Vec<Rule> {
    let mark = set(meta("mark"), MARK_INBOUND);
    let mut rules = of_flows("tcp", &guard.opening.kept, Way::Out, &mark);
    rules.push(reply_of(MARK_REPLY));
    let Some(flows) = flows else { return rules };
    rules.extend(of_flows("tcp", &flows.incoming, Way::Out, &mark));
    rules.extend(of_flows("tcp", &flows.tcp, Way::Out, &accept()));
    rules.extend(of_flows("udp", &flows.udp, Way::Out, &accept()));
    rules.extend(of_sockets(&flows.bound, Way::Out, &accept()));
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

/// Accepts answers on connections that came in on another link. The mark of the packet would not
/// do: another program may set it (`CAP_NET_RAW`).
pub(super) fn answers() -> Rule {
    let is_answer = equals(ct("direction"), json!("reply"));
    vec![is_answer, equals(ct("mark"), json!(MARK_INBOUND)), accept()]
}

/// Accepts answers on TCP connections that came in before the guard. Packets of connections that
/// this host began before it are no answers, whatever mark they have of an earlier guard.
pub(super) fn older(flows: &Flows) -> Vec<Rule> {
    let mut rules = of_flows("tcp", &flows.incoming, Way::Out, &accept());
    rules.extend(of_flows("tcp", &flows.tcp, Way::Out, &goto(DESTINATIONS)));
    rules.extend(of_flows("udp", &flows.udp, Way::Out, &goto(DESTINATIONS)));
    rules.extend(of_sockets(&flows.bound, Way::Out, &goto(DESTINATIONS)));
    rules
}

/// Drops packets from the tunnel's destinations, which arrived on another link.
pub(super) fn sources(table: &mut Table, guard: &GuardRules) -> Vec<Rule> {
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
