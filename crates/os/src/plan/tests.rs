//! Plans as values: what they consist of, and which make no sense.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    item::{self, Item, RuleKind, Target},
    journal::{Before, Entry, Journal},
    surroundings::Surroundings,
    *,
};
use crate::{links::LinkKind, mptcp::Limit};

fn nets(nets: &[&str]) -> Vec<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

fn plan() -> Plan {
    Plan {
        device: "rove0".to_owned(),
        mtu: 1_400,
        addresses: nets(&["10.7.0.2/24"]),
        routes: nets(&["0.0.0.0/0", "::/0"]),
        ..Plan::default()
    }
}

/// On a host without other networks.
fn items(plan: &Plan) -> Vec<Item> {
    item::items(plan, &Surroundings::default())
}

fn link(name: &str, addresses: &[&str]) -> Link {
    Link {
        index: 2,
        name: name.to_owned(),
        kind: LinkKind::Ethernet,
        up: true,
        carrier: true,
        carrier_ups: 0,
        dormant: false,
        mtu: 1_500,
        addresses: nets(addresses),
        deprecated: false,
        default_v4: None,
        default_v6: None,
        routes: Vec::new(),
        attached: Vec::new(),
    }
}

#[test]
fn subflows_are_endpoints_and_room_for_them() {
    let endpoint = |address: &str, backup| mptcp::Endpoint {
        link: "eth0".to_owned(),
        address: address.parse().unwrap(),
        backup,
        mesh: false,
    };
    let subflows = vec![endpoint("192.0.2.7", false), endpoint("2001:db8::7", true)];
    let plan = Plan { subflows, routes: Vec::new(), ..plan() };
    let items = items(&plan);
    let [Item::MptcpLimit(Limit::Subflows, 2), Item::Subflow(v4), Item::Subflow(v6)] = &items[2..]
    else {
        panic!("{items:?}");
    };
    assert_eq!((v4, v6), (&plan.subflows[0], &plan.subflows[1]));
    assert!(!items[3].is_ipv6() && items[4].is_ipv6());
    let changed = Item::Subflow(endpoint("192.0.2.7", true));
    assert!(changed.same_place(&items[3]) && !changed.same_place(&items[4]));
    assert!(Item::MptcpLimit(Limit::Subflows, 7).same_place(&items[2]));
    assert!(!Item::MptcpLimit(Limit::Announced, 7).same_place(&items[2]));
    // To how many addresses they go is for the other end to say.
    let mesh = plan.subflows.iter().cloned().map(|one| mptcp::Endpoint { mesh: true, ..one });
    let mesh = self::items(&Plan { subflows: mesh.collect(), ..plan.clone() });
    let limits = [Limit::Announced, Limit::Subflows].map(|which| Item::MptcpLimit(which, 8));
    assert_eq!(mesh[2..4], limits);
    let many = vec![plan.subflows[0].clone(); mptcp::ENDPOINTS_MAX + 1];
    assert!(why(&Plan { subflows: many, ..plan }).contains("more than 8 subflows"));
}

#[test]
fn what_the_kernel_forgot_of_subflows_is_not_taken_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let link = "eth0".to_owned();
    let address = "192.0.2.7".parse().unwrap();
    let endpoint = mptcp::Endpoint { link, address, backup: false, mesh: false };
    let entries = [
        Entry { item: Item::MptcpLimit(Limit::Subflows, 4), before: Before::Limit(2) },
        Entry { item: Item::Subflow(endpoint), before: Before::Nothing },
    ];
    let journal = Journal::new(dir.path());
    journal.store(&entries).unwrap();
    assert_eq!(journal.load().unwrap().entries, entries);
    let file = dir.path().join("plan.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    std::fs::write(&file, text.replace(boot.trim(), "another")).unwrap();
    let left = journal.load().unwrap();
    assert!(left.rebooted && left.entries.is_empty());
}

fn why(plan: &Plan) -> String {
    plan.check(&[]).unwrap_err().to_string()
}

#[test]
fn a_full_tunnel_consists_of_these() {
    let plan = Plan { allow_lan: true, exclude: nets(&["198.51.100.7/24"]), ..plan() };
    let device = Target::Device("rove0".to_owned());
    let route = |net: &str, target| Item::Route { net: net.parse().unwrap(), target };
    let past = nets(&["198.51.100.0/24", "224.0.0.0/24", "239.0.0.0/8", "255.255.255.255/32"]);
    assert_eq!(
        items(&plan),
        [
            Item::Device { name: "rove0".to_owned(), mtu: 1_400, persistent: false },
            Item::Address { device: "rove0".to_owned(), net: "10.7.0.2/24".parse().unwrap() },
            route("0.0.0.0/0", device),
            route("::/0", Target::Unreachable),
            Item::Excluded { v6: false, nets: past },
            Item::Rule { v6: false, kind: RuleKind::Tunnel },
            Item::Rule { v6: true, kind: RuleKind::Tunnel },
        ]
    );
}

#[test]
fn packets_are_held_back_before_anything_leads_them_in() {
    let dns = Some(Dns { servers: vec!["10.7.0.1".parse().unwrap()], ..Dns::default() });
    let items = items(&Plan { kill_switch: Some(KillSwitch::default()), dns, ..plan() });
    assert!(matches!(items.first(), Some(Item::KillSwitch(_))));
    assert!(matches!(items.last(), Some(Item::Dns { .. })));
    let first_rule = items.iter().position(|item| matches!(item, Item::Rule { .. }));
    let last_route = items.iter().rposition(|item| matches!(item, Item::Route { .. }));
    assert!(first_rule > last_route, "a rule leads into a table that is not complete");
}

#[test]
fn a_gateways_firewall_stands_before_anything_is_forwarded() {
    let (udp_ports, tcp_ports) = (vec![4_500], vec![443, 443]);
    let firewall = Some(Firewall { nat: true, udp_ports, tcp_ports, ..Firewall::default() });
    let routes = nets(&["192.168.7.9/24"]);
    let items = items(&Plan { firewall, routes, forward: true, ..plan() });
    let Some(Item::Gateway(gate)) = items.first() else { panic!("{items:?}") };
    assert_eq!(gate.networks, nets(&["10.7.0.0/24"]));
    assert_eq!(gate.own, ["10.7.0.2".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(gate.subnets, nets(&["192.168.7.0/24"]));
    assert_eq!((&gate.udp_ports[..], &gate.tcp_ports[..]), (&[4_500][..], &[443][..]));
    let many = Firewall { udp_ports: vec![1; LIST_MAX + 1], ..Firewall::default() };
    assert!(why(&Plan { firewall: Some(many), ..plan() }).contains("more than 1024 ports"));
}

/// The gateway takes over the changes of an earlier version.
#[test]
fn nat_in_an_earlier_journal_is_the_firewall_of_this_one() {
    let text = r#"{"nat": {"device": "rove-gw", "networks": ["10.7.0.0/24"]}}"#;
    let item: Item = serde_json::from_str(text).unwrap();
    let Item::Gateway(gate) = &item else { panic!("{item:?}") };
    assert!(gate.device == "rove-gw" && gate.udp_ports.is_empty());
    let written = serde_json::to_string(&item).unwrap();
    assert!(written.starts_with(r#"{"gateway":"#), "{written}");
}

#[test]
fn without_routes_there_is_neither_rule_nor_table() {
    let items = items(&Plan { routes: Vec::new(), exclude: nets(&["::/0"]), ..plan() });
    assert!(items.iter().all(|item| !matches!(item, Item::Route { .. } | Item::Rule { .. })));
}

#[test]
fn what_is_both_route_and_exclusion_is_excluded() {
    let net = nets(&["198.51.100.0/24"]);
    let items = items(&Plan { routes: net.clone(), exclude: net.clone(), ..plan() });
    assert!(items.iter().all(|item| !matches!(item, Item::Route { .. })), "{items:?}");
    assert!(items.contains(&Item::Excluded { v6: false, nets: net }), "{items:?}");
}

/// The entries of an earlier version are neither removed behind the new ones nor forgotten.
#[test]
fn excluded_routes_of_an_earlier_journal_are_replaced() {
    let route = |net: &str, target| Item::Route { net: net.parse().unwrap(), target };
    let excluded = Item::Excluded { v6: false, nets: nets(&["198.51.100.0/24"]) };
    let device = || Target::Device("rove0".to_owned());
    assert!(excluded.same_place(&route("192.0.2.0/24", Target::Throw)));
    assert!(excluded.same_place(&route("198.51.100.0/24", device())));
    assert!(!excluded.same_place(&route("198.51.100.0/24", Target::Barrier)));
    assert!(!excluded.same_place(&route("192.0.2.0/24", device())));
    assert!(!excluded.same_place(&route("2001:db8::/32", Target::Throw)));
}

/// Neither a list that undoing does not need nor one that it needs makes a large journal.
#[test]
fn a_journal_of_many_excluded_networks_is_small() {
    let many = (0..20_000u32).map(|n| IpNet::new((n * 97_001).to_be_bytes().into(), 32).unwrap());
    let many: Vec<IpNet> = many.collect();
    let guard = Some(Guard::default());
    let plan =
        Plan { exclude: many.clone(), guard, kill_switch: Some(KillSwitch::default()), ..plan() };
    plan.check(&[]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::new(dir.path());
    let entry = |item: &Item| Entry { item: item.in_journal(), before: Before::Nothing };
    journal.store(&items(&plan).iter().map(entry).collect::<Vec<_>>()).unwrap();
    let length = std::fs::metadata(dir.path().join("plan.json")).unwrap().len();
    assert!(length < 400_000, "{length}");
    let entries = journal.load().unwrap().entries;
    let switches = entries.iter().filter(|entry| {
        let Item::KillSwitch(opening) = &entry.item else { return false };
        opening.destinations.len() == many.len()
    });
    assert_eq!(switches.count(), 1, "it returns at boot as it was");
}

#[test]
fn plans_that_make_no_sense_say_why() {
    assert!(why(&Plan { mtu: 1_279, ..plan() }).contains("MTU of 1279"));
    assert!(why(&Plan { mtu: 70_000, ..plan() }).contains("MTU of 70000"));
    assert!(why(&Plan { device: "a b".to_owned(), ..plan() }).contains("\"a b\""));
    let many = vec!["192.0.2.1/32".parse().unwrap(); LIST_MAX + 1];
    assert!(why(&Plan { routes: many, ..plan() }).contains("1024"));
    let many = vec!["192.0.2.1/32".parse().unwrap(); EXCLUDED_MAX + 1];
    assert!(why(&Plan { exclude: many, ..plan() }).contains("more than 32768 networks"));
    assert!(why(&Plan { dns: Some(Dns::default()), ..plan() }).contains("1 to 64 servers"));
    for domain in ["", "a..b", "a b", "x\nnameserver 1.2.3.4", "ü.example", "-"] {
        let domains = vec![domain.to_owned()];
        let servers = vec!["10.7.0.1".parse().unwrap()];
        let dns = Some(Dns { servers, domains, all: true });
        let checked = Plan { dns, ..plan() }.check(&[]);
        // A lone hyphen is odd, and harmless.
        assert_eq!(checked.is_ok(), domain == "-", "{domain:?}");
    }
}

#[test]
fn collisions_with_local_networks_are_found_either_way_round() {
    let here = [link("wlan0", &["10.0.0.5/8"]), link("rove0", &["10.7.0.2/24"])];
    assert!(matches!(plan().check(&here), Err(Error::AddressOverlap { .. })));
    // Its own addresses are no collision; those of a single peer neither.
    plan().check(&here[1..]).unwrap();
    let peer = [link("ppp0", &["198.51.100.4/32"])];
    let routes = nets(&["198.51.100.4/32"]);
    Plan { routes: routes.clone(), ..plan() }.check(&peer).unwrap();
    let lan = [link("eth0", &["198.51.100.9/24"])];
    assert!(Plan { routes, ..plan() }.check(&lan).is_err());
}

fn any_net() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (any::<[u8; 4]>(), 0u8..=32).prop_map(|(ip, len)| IpNet::new(ip.into(), len).unwrap()),
        (any::<[u8; 16]>(), 0u8..=128).prop_map(|(ip, len)| IpNet::new(ip.into(), len).unwrap()),
    ]
}

fn any_plan() -> impl Strategy<Value = Plan> {
    let list = || prop::collection::vec(any_net(), 0..6);
    (list(), list(), list(), any::<[u16; 2]>(), any::<[bool; 6]>()).prop_map(
        |(addresses, routes, exclude, ports, [allow_lan, forward, persistent, kill, gate, nat])| {
            Plan {
                addresses,
                routes,
                exclude,
                firewall: gate.then(|| Firewall {
                    nat,
                    udp_ports: ports.to_vec(),
                    tcp_ports: ports[1..].to_vec(),
                    ..Firewall::default()
                }),
                allow_lan,
                forward,
                persistent,
                kill_switch: kill.then(KillSwitch::default),
                ..plan()
            }
        },
    )
}

proptest! {
    /// Two items in one place would undo each other.
    #[test]
    fn every_place_is_taken_once(plan in any_plan()) {
        let items = items(&plan);
        let unique: BTreeSet<_> = items.iter().collect();
        prop_assert_eq!(unique.len(), items.len());
        for (at, item) in items.iter().enumerate() {
            prop_assert!(!items[at + 1..].iter().any(|other| other.same_place(item)), "{item:?}");
        }
    }

    /// Two networks overlap if and only if they have an address in common: the first of the
    /// narrower one.
    #[test]
    fn overlap_is_having_an_address_in_common(one in any_net(), other in any_net()) {
        let common = one.contains(&other.network()) || other.contains(&one.network());
        prop_assert_eq!(overlap(&one, &other), common);
    }
}

proptest! {
    // Every store waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// What the next process reads is what this one did, but for lists that undoing does not need.
    #[test]
    fn the_journal_returns_what_it_was_given(plan in any_plan()) {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path());
        let entry = |item| Entry { item, before: Before::Nothing };
        let entries: Vec<_> = items(&plan).into_iter().map(entry).collect();
        journal.store(&entries).unwrap();
        let kept: Vec<_> = items(&plan).iter().map(|item| entry(item.in_journal())).collect();
        prop_assert_eq!(journal.load().unwrap().entries, kept);
        journal.store(&[]).unwrap();
        prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn other_links_get_their_addresses_after_the_device_is_there() {
    let given = ("eth0".to_owned(), "192.0.2.7/32".parse().unwrap());
    let more = Plan { link_addresses: vec![given.clone()], ..plan() };
    let (before, after) = (items(&plan()), items(&more));
    let added: Vec<_> = after.iter().filter(|item| !before.contains(item)).collect();
    let (device, net) = given.clone();
    assert_eq!(added, [&Item::Address { device, net }]);
    assert!(matches!(after[0], Item::Device { .. }));
    let many = Plan { link_addresses: vec![given; LIST_MAX + 1], ..plan() };
    assert!(many.check(&[]).unwrap_err().to_string().contains("1024"));
}
