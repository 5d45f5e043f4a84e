//! Packets of a probe, and the chains that it names.

use super::*;

fn chain(family: &str, table: &str, name: &str, hook: &str, prio: i32, policy: &str) -> Value {
    json!({ "chain": {
        "family": family, "table": table, "name": name, "type": "filter", "hook": hook,
        "prio": prio, "policy": policy,
    } })
}

fn rule(family: &str, table: &str, chain: &str, statement: Value) -> Value {
    json!({ "rule": { "family": family, "table": table, "chain": chain, "expr": [statement] } })
}

#[test]
fn checksums_are_right_and_no_router_passes_a_packet_on() {
    for source in ["10.7.0.9", "fd07::9"] {
        let source: IpAddr = source.parse().unwrap();
        let packet = packet(source, 0x0102_0304);
        let (header, addresses, hops) =
            if source.is_ipv4() { (20, 12..20, 8) } else { (40, 8..40, 7) };
        assert_eq!((packet.len(), packet[hops]), (header + 20, 2));
        assert_eq!(packet[header + 4..header + 8], [1, 2, 3, 4]);
        let tcp = [&packet[addresses], &[0, 6, 0, 20], &packet[header..]];
        assert_eq!(tun::checksum(&tcp), 0);
        assert!(source.is_ipv6() || tun::checksum(&[&packet[..20]]) == 0);
    }
}

#[test]
fn a_chain_is_named_if_it_is_at_the_place_and_can_drop() {
    let ruleset = json!({ "nftables": [
        { "metainfo": {} },
        chain("ip", "filter", "FORWARD", "forward", 0, "accept"),
        rule("ip", "filter", "FORWARD", json!({ "xt": { "type": "target", "name": "REJECT" } })),
        chain("inet", "innocent", "f", "forward", 0, "accept"),
        rule("inet", "innocent", "f", json!({ "accept": null })),
        chain("inet", "firewalld", "filter_FORWARD", "forward", 10, "drop"),
        chain("ip6", "mine", "later", "postrouting", 7, "accept"),
        rule("ip6", "mine", "later", json!({ "jump": { "target": "x" } })),
        rule("ip6", "mine", "other", json!({ "drop": null })),
        chain("inet", "rove_gateway", "own", "forward", 10, "drop"),
        chain("inet", "rove_gateway", "alone", "forward", 50, "drop"),
    ] });
    let points = points(&ruleset);
    let priorities = |hook| -> Vec<i32> {
        points.iter().filter(|at| at.hook == hook).map(|at| at.priority).collect()
    };
    assert_eq!(priorities(Hook::Forward), [-1_000, -299, -149, -99, 1, 11, 51, 101, 1_000]);
    assert!(priorities(Hook::Postrouting).contains(&8));
    assert!(points.is_sorted());
    let named = |hook, priority, v6| {
        let next = Point { hook, priority: priority + 1 };
        droppers(&ruleset, Point { hook, priority }, next, v6)
    };
    assert_eq!(named(Hook::Forward, 0, false), ["ip filter FORWARD"]);
    assert_eq!(named(Hook::Forward, 0, true), [""; 0]);
    assert_eq!(named(Hook::Forward, 10, true), ["inet firewalld filter_FORWARD"]);
    assert_eq!(named(Hook::Forward, 50, true), ["inet rove_gateway alone"]);
    assert_eq!(named(Hook::Postrouting, 7, true), ["ip6 mine later"]);
    assert_eq!(named(Hook::Postrouting, 7, false), [""; 0]);
    assert_eq!(super::points(&json!("?")).len(), 3 * (USUAL.len() + 2));
}

#[test]
fn a_hostile_ruleset_makes_no_more_points_than_it_may() {
    let many = (0..1_000).map(|at| chain("ip", "t", &format!("c{at}"), "forward", at, "accept"));
    let ruleset = json!({ "nftables": many.collect::<Vec<_>>() });
    assert!(points(&ruleset).len() <= 3 * (POINTS_MAX + USUAL.len() + 2));
}
