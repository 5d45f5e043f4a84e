//! Items of a plan that other programs remove are noticed, named and restored. Also tests
//! unreadable journals.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    collections::BTreeSet,
    fs,
    net::IpAddr,
    process::Command,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use rove_os::{
    plan::{
        Applier, Deviation, Dns, Firewall, KillSwitch, Obstacle, Outcome, Part, Places, Plan,
        Scope, Standing,
    },
    tun::{Tun, TunOptions},
    watch::{Area, Change, Watch},
};
use support::{has_program, in_namespace, net, skip_inside};

/// A host with a default route and its own directories.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        if !has_program("nft") {
            skip_inside("packet filters", "the program nft is missing (package nftables)");
        }
        net::uplink(true);
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        fs::write(dir.path().join("etc/resolv.conf"), "nameserver 192.0.2.53\n").unwrap();
        Self { dir }
    }

    fn places(&self) -> Places {
        let resolv_conf = self.dir.path().join("etc/resolv.conf");
        Places { state: self.dir.path().to_owned(), resolv_conf, resolved: false }
    }

    fn applier(&self) -> Applier {
        Applier::open(self.places()).unwrap()
    }

    fn journal(&self) -> std::path::PathBuf {
        self.dir.path().join("plan.json")
    }

    fn resolv_conf(&self) -> String {
        fs::read_to_string(self.places().resolv_conf).unwrap()
    }

    fn write_resolv_conf(&self, text: &str) {
        let new = self.dir.path().join("etc/new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.places().resolv_conf).unwrap();
    }
}

fn ip(ip: &str) -> IpAddr {
    ip.parse().unwrap()
}

fn nets(nets: &[&str]) -> Vec<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

fn sh(script: &str) {
    let status = Command::new("sh").args(["-ec", script]).status().unwrap();
    assert!(status.success(), "{script}");
}

fn tables() -> String {
    let output = Command::new("nft").args(["list", "tables"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn tun(persistent: bool) -> Tun {
    support::tun("TUN", TunOptions { name: "rove0", persistent, offload: true })
}

/// A client that sends everything through the tunnel, behind a kill switch.
fn client() -> Plan {
    Plan {
        device: "rove0".to_owned(),
        mtu: 1_400,
        addresses: nets(&["10.7.0.2/24", "fd07::2/64"]),
        routes: nets(&["0.0.0.0/0", "::/0"]),
        kill_switch: Some(KillSwitch {
            gateways: vec![ip("203.0.113.7")],
            ..KillSwitch::default()
        }),
        dns: Some(Dns { servers: vec![ip("10.7.0.1")], domains: vec![], all: true }),
        ..Plan::default()
    }
}

fn gateway() -> Plan {
    Plan {
        device: "rove0".to_owned(),
        mtu: 1_400,
        addresses: nets(&["10.7.0.1/24", "fd07::1/64"]),
        forward: true,
        firewall: Some(Firewall { nat: true, ..Firewall::default() }),
        ..Plan::default()
    }
}

/// No item differs, and a reconciliation without repairs causes no report.
#[track_caller]
fn assert_whole(applier: &mut Applier) {
    let mut watch = Watch::open(std::path::Path::new("/nowhere/resolv.conf")).unwrap();
    // The kernel may report the last changes late.
    let settle = Instant::now() + Duration::from_secs(5);
    while !watch.wait(Duration::from_millis(300)).unwrap().is_empty() && Instant::now() < settle {}
    assert_eq!(applier.look().unwrap(), []);
    assert_eq!(applier.reconcile(Instant::now(), Scope::All).unwrap(), []);
    assert_eq!(watch.wait(Duration::ZERO).unwrap(), BTreeSet::new());
}

/// The items that the script removes are reported as `expected` and restored, and then no longer
/// reported.
#[track_caller]
fn assert_put_back(applier: &mut Applier, script: &str, expected: &[(Part, Standing)]) {
    sh(script);
    let seen = applier.look().unwrap();
    let found: BTreeSet<_> = seen.iter().map(|one| (one.part, one.standing)).collect();
    let expected: BTreeSet<_> = expected.iter().copied().collect();
    assert_eq!(found, expected, "{script}: {seen:?}");
    let put_back = applier.reconcile(Instant::now(), Scope::All).unwrap();
    let all = put_back.iter().all(|one| one.outcome == Outcome::PutBack);
    assert!(all && put_back.len() == seen.len(), "{script}: {put_back:?}");
    assert_whole(applier);
}

#[test]
fn all_that_others_take_from_a_client_is_named_and_put_back() {
    in_namespace("all_that_others_take_from_a_client_is_named_and_put_back", || {
        use Standing::{Changed, Missing};
        let host = Host::new();
        let device = tun(false);
        let mut applier = host.applier();
        applier.apply(&client()).unwrap();
        assert_whole(&mut applier);
        for (script, expected) in [
            ("ip rule del pref 5191", &[(Part::Routing, Missing)][..]),
            ("ip -6 rule del pref 5191", &[(Part::Routing, Missing)]),
            ("ip route flush table 29295", &[(Part::Routing, Missing)]),
            ("ip -6 route flush table 29295", &[(Part::Routing, Missing)]),
            ("ip route replace default dev wan table 29295", &[(Part::Routing, Changed)]),
            ("ip addr del 10.7.0.2/24 dev rove0", &[(Part::Routing, Missing)]),
            ("ip link set rove0 mtu 1300", &[(Part::Device, Changed)]),
            ("ip link set rove0 down", &[(Part::Device, Changed), (Part::Routing, Missing)]),
            ("nft flush ruleset", &[(Part::KillSwitch, Missing)]),
            ("nft flush chain inet rove_kill_switch output", &[(Part::KillSwitch, Changed)]),
            ("nft insert rule inet rove_kill_switch output accept", &[(Part::KillSwitch, Changed)]),
        ] {
            assert_put_back(&mut applier, script, expected);
        }
        // The text that a DHCP client wrote is restored at the end.
        host.write_resolv_conf("nameserver 198.51.100.53\n");
        let found = applier.reconcile(Instant::now(), Scope::All).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].part, &found[0].outcome), (Part::Dns, &Outcome::PutBack));
        assert!(host.resolv_conf().contains("10.7.0.1"));
        let outside = std::net::SocketAddr::new(ip("198.51.100.53"), 53);
        assert_eq!(applier.outside_servers(), [outside]);
        applier.undo().unwrap();
        applier.remove_kill_switch().unwrap();
        assert_eq!(host.resolv_conf(), "nameserver 198.51.100.53\n");
        drop(device);
    });
}

#[test]
fn all_that_others_take_from_a_gateway_is_named_and_put_back() {
    in_namespace("all_that_others_take_from_a_gateway_is_named_and_put_back", || {
        use Standing::{Changed, Missing};
        let host = Host::new();
        let device = tun(false);
        let mut applier = host.applier();
        applier.apply(&gateway()).unwrap();
        assert_whole(&mut applier);
        for (script, expected) in [
            ("nft flush ruleset", &[(Part::Filter, Missing)][..]),
            ("sysctl -qw net.ipv4.ip_forward=0", &[(Part::Setting, Changed)]),
            ("sysctl -qw net.ipv6.conf.all.forwarding=0", &[(Part::Setting, Changed)]),
            ("ip addr flush dev rove0", &[(Part::Routing, Missing)]),
        ] {
            assert_put_back(&mut applier, script, expected);
        }
        drop(device);
    });
}

#[test]
fn a_deleted_interface_is_made_again_with_all_that_was_on_it() {
    in_namespace("a_deleted_interface_is_made_again_with_all_that_was_on_it", || {
        let host = Host::new();
        let mut applier = host.applier();
        let device = tun(false);
        applier.apply(&client()).unwrap();
        sh("ip link del rove0");
        let found = applier.reconcile(Instant::now(), Scope::All).unwrap();
        let first = found.first().unwrap();
        assert_eq!((first.part, first.standing), (Part::Device, Standing::Missing));
        assert!(found.iter().all(|one| one.outcome == Outcome::Found), "{found:?}");
        drop(device);
        let device = applier.open_device(&client()).unwrap();
        applier.device_is_new("rove0");
        let found = applier.reconcile(Instant::now(), Scope::All).unwrap();
        assert!(found.iter().all(|one| one.outcome == Outcome::PutBack), "{found:?}");
        assert_whole(&mut applier);
        drop(device);
    });
}

#[test]
fn who_keeps_taking_something_away_is_fought_ever_more_seldom() {
    in_namespace("who_keeps_taking_something_away_is_fought_ever_more_seldom", || {
        let host = Host::new();
        let device = tun(false);
        let mut applier = host.applier();
        applier.apply(&client()).unwrap();
        let now = Instant::now();
        let mut put_back = 0;
        let waits = loop {
            sh("ip rule del pref 5191");
            let found = applier.reconcile(now, Scope::All).unwrap();
            let [Deviation { outcome, .. }] = &found[..] else { panic!("{found:?}") };
            match outcome {
                Outcome::PutBack => put_back += 1,
                Outcome::Waits(until) => break *until,
                Outcome::Found | Outcome::Failed(_) => panic!("{found:?}"),
            }
            assert!(put_back < 100);
        };
        assert!(put_back >= 3, "{put_back}");
        let found = applier.reconcile(waits, Scope::All).unwrap();
        assert_eq!(found[0].outcome, Outcome::PutBack);
        assert_whole(&mut applier);
        drop(device);
    });
}

#[test]
fn what_stands_in_the_way_is_named() {
    in_namespace("what_stands_in_the_way_is_named", || {
        let host = Host::new();
        let device = tun(false);
        let mut applier = host.applier();
        applier.apply(&Plan { forward: true, ..client() }).unwrap();
        assert_eq!(applier.obstacles().unwrap(), []);
        sh("ip rule add pref 100 lookup main");
        let obstacles = applier.obstacles().unwrap();
        let [Obstacle::Bypass { to, link, rules, is_blocked: _, users: None }] = &obstacles[..]
        else {
            panic!("{obstacles:?}")
        };
        assert_eq!((&to[..], link.as_str()), (&nets(&["0.0.0.0/0"])[..], "wan"));
        assert_eq!((rules[0].priority, rules[0].table), (100, 254));
        // A rule for a part of the Internet is not one for all of it.
        for part in ["203.0.113.0/24", "198.18.0.0/15"] {
            sh(&format!("ip rule del pref 100; ip rule add pref 100 to {part} lookup main"));
            let obstacles = applier.obstacles().unwrap();
            let [Obstacle::Bypass { to, .. }] = &obstacles[..] else { panic!("{obstacles:?}") };
            assert_eq!(*to, nets(&[part]));
        }
        // A route of another program in Rove's table.
        sh("ip rule del pref 100; ip route add 203.0.113.0/24 dev wan table 29295");
        let obstacles = applier.obstacles().unwrap();
        let [Obstacle::Bypass { to, rules, .. }] = &obstacles[..] else { panic!("{obstacles:?}") };
        assert_eq!((&to[..], rules.len()), (&nets(&["203.0.113.0/24"])[..], 0));
        sh("ip route del 203.0.113.0/24 dev wan table 29295");
        // Rules that refuse; the kernel answers each in its own way.
        for (family, to, action) in [
            ("-4", "0.0.0.0/0", "blackhole"),
            ("-4", "203.0.113.0/24", "prohibit"),
            ("-4", "0.0.0.0/0", "unreachable"),
            ("-6", "::/0", "blackhole"),
            ("-6", "::/0", "prohibit"),
            ("-6", "2001:db8:ffff::/48", "unreachable"),
        ] {
            sh(&format!("ip {family} rule add pref 100 to {to} {action}"));
            let refusal = Obstacle::Refusal { to: nets(&[to]), priority: 100, action };
            assert_eq!(applier.obstacles().unwrap(), [refusal], "{to} {action}");
            sh(&format!("ip {family} rule del pref 100"));
        }
        assert_eq!(applier.obstacles().unwrap(), []);
        sh("nft add table ip filter
            nft add chain ip filter FORWARD \
                '{ type filter hook forward priority 0; policy drop; }'");
        let chain = "ip filter FORWARD".to_owned();
        assert_eq!(applier.obstacles().unwrap(), [Obstacle::Forward { chain, is_stateful: false }]);
        sh("nft add rule ip filter FORWARD iifname rove0 accept");
        assert_eq!(applier.obstacles().unwrap(), []);
        drop(device);
    });
}

#[test]
fn a_change_is_heard_of_with_who_made_it() {
    in_namespace("a_change_is_heard_of_with_who_made_it", || {
        let host = Host::new();
        let device = tun(false);
        let mut applier = host.applier();
        applier.apply(&Plan { forward: true, ..client() }).unwrap();
        let mut watch = Watch::open(&host.places().resolv_conf).unwrap();
        while !watch.wait(Duration::from_millis(300)).unwrap().is_empty() {}
        let mut hears = |script: &str| -> BTreeSet<Change> {
            sh(script);
            watch.wait(Duration::from_secs(5)).unwrap()
        };
        let areas = |changes: &BTreeSet<Change>| -> BTreeSet<Area> {
            changes.iter().map(|change| change.area).collect()
        };
        let filter = hears("nft flush ruleset");
        let by = filter.iter().find(|change| change.area == Area::Filter).unwrap();
        let by = by.by.clone().unwrap();
        assert!(by.starts_with("nft (process "), "{by}");
        for script in [
            "ip rule del pref 5191",
            "ip route flush table 29295",
            "ip addr del 10.7.0.2/24 dev rove0",
            "sysctl -qw net.ipv4.ip_forward=0",
            "ip link set rove0 down",
        ] {
            assert!(areas(&hears(script)).contains(&Area::Routing), "{script}");
        }
        host.write_resolv_conf("");
        assert!(areas(&hears("true")).contains(&Area::Resolver));
        // Changes of other programs' tables are not reported.
        sh("nft add table ip other");
        let others = watch.wait(Duration::from_millis(200)).unwrap();
        assert!(!areas(&others).contains(&Area::Filter), "{others:?}");
        drop(device);
    });
}

#[test]
fn a_damaged_journal_costs_neither_the_kill_switch_nor_the_way_back() {
    in_namespace("a_damaged_journal_costs_neither_the_kill_switch_nor_the_way_back", || {
        let host = Host::new();
        let device = tun(false);
        let whole = |applier: &mut Applier| {
            applier.undo().unwrap();
            applier.remove_kill_switch().unwrap();
            assert_eq!(tables(), "");
            let rules = Command::new("ip").args(["rule"]).output().unwrap();
            assert!(!String::from_utf8(rules.stdout).unwrap().contains("5191"));
            assert_eq!(host.resolv_conf(), "nameserver 192.0.2.53\n");
            assert!(!host.journal().exists());
        };
        for text in ["", "{", "[]", r#"{"version":99,"boot":"","entries":[]}"#, "\u{0}\u{1}"] {
            // The previous version is used.
            host.applier().apply(&client()).unwrap();
            fs::write(host.journal(), text).unwrap();
            let mut applier = host.applier();
            assert!(applier.damaged().is_some() && applier.kill_switch_stands(), "{text:?}");
            whole(&mut applier);
            // Both are damaged, and the kernel has lost the kill switch, as after a boot.
            host.applier().apply(&client()).unwrap();
            fs::write(host.journal(), text).unwrap();
            fs::write(host.dir.path().join("plan.json.before"), text).unwrap();
            sh("nft flush ruleset");
            let mut applier = host.applier();
            assert!(applier.stand_kill_switch().unwrap(), "{text:?}: boots open");
            assert!(tables().contains("rove_kill_switch"));
            // The next plan is applied as if nothing had happened.
            applier.apply(&client()).unwrap();
            assert_whole(&mut applier);
            applier.undo().unwrap();
            applier.remove_kill_switch().unwrap();
            assert_eq!(tables(), "");
            host.write_resolv_conf("nameserver 192.0.2.53\n");
        }
        // A journal that was removed whole.
        host.applier().apply(&client()).unwrap();
        fs::remove_file(host.journal()).unwrap();
        fs::remove_file(host.dir.path().join("plan.json.before")).unwrap();
        let mut applier = host.applier();
        assert!(applier.kill_switch_stands());
        applier.remove_kill_switch().unwrap();
        assert_eq!(tables(), "");
        drop(device);
    });
}
