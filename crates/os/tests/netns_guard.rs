//! The guard, with packet captures: where the tunnel's packets go if another program removes its
//! routes or rules, and how much neighbours on a link learn about the tunnel's addresses.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{fs, net::SocketAddr, process::Command};

use rove_os::{
    plan::{Applier, Guard, KillSwitch, MARK, Places, Plan},
    tun::{Tun, TunOptions},
    udp::{Datagrams, Ecn, UdpOptions, UdpSocket},
};
use support::{capture::Capture, has_program, in_namespace, net, skip_inside};

/// Destinations of a full tunnel: the world, the gateway's own host, the LAN, the tunnel's network.
const WORLD: [&str; 8] = [
    "198.51.100.80:9",
    "203.0.113.7:443",
    "192.168.5.9:80",
    "10.7.0.1:53",
    "[2001:db8::1]:9",
    "[2001:db8::1]:53",
    "[fd05::9]:80",
    "[fd07::1]:53",
];
/// Destinations of a tunnel for some networks.
const CHOSEN: [&str; 4] = ["198.51.100.80:9", "10.7.0.1:53", "[2001:db8:1::1]:9", "[fd07::1]:53"];

/// Changes that another program makes to the tunnel.
const HARM: [&str; 6] = [
    "ip rule del pref 5191; ip -6 rule del pref 5191",
    "ip route flush table 29295; ip -6 route flush table 29295",
    "ip rule add pref 100 lookup main; ip -6 rule add pref 100 lookup main",
    "ip link del rove0",
    "ip link set rove0 down",
    "ip addr flush dev rove0",
];

fn nets(nets: &[&str]) -> Vec<ipnet::IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

fn full() -> Plan {
    Plan {
        device: "rove0".to_owned(),
        mtu: 1_400,
        addresses: nets(&["10.7.0.2/24", "fd07::2/64"]),
        routes: nets(&["0.0.0.0/0", "::/0", "10.7.0.0/24", "fd07::/64"]),
        guard: Some(Guard::default()),
        ..Plan::default()
    }
}

fn chosen() -> Plan {
    let routes = nets(&["198.51.100.0/24", "2001:db8:1::/48", "10.7.0.0/24", "fd07::/64"]);
    Plan { routes, ..full() }
}

struct Host {
    capture: Capture,
    tun: Option<Tun>,
    applier: Applier,
    _dir: tempfile::TempDir,
}

impl Host {
    /// A host on a cable whose far end captures everything, with a default route and no tunnel.
    fn new() -> Self {
        if !has_program("nft") || !has_program("ip") {
            skip_inside("the guard", "the programs nft and ip are needed");
        }
        net::uplink(false);
        let dir = tempfile::tempdir().unwrap();
        let resolv_conf = dir.path().join("resolv.conf");
        fs::write(&resolv_conf, "").unwrap();
        let places = Places { state: dir.path().to_owned(), resolv_conf, resolved: false };
        let applier = Applier::open(places).unwrap();
        let capture = Capture::start("far");
        let host = Self { capture, tun: None, applier, _dir: dir };
        // A cable needs a moment before it works.
        let carries = || host.heard(&WORLD).len() == WORLD.len();
        assert!((0..100).any(|_| carries()), "the capture does not hear everything");
        host
    }

    fn up(&mut self, plan: &Plan) {
        let options = TunOptions { name: "rove0", persistent: false, offload: true };
        self.tun = Some(support::tun("TUN", options));
        self.applier.apply(plan).unwrap();
        self.capture.take();
    }

    fn down(&mut self) {
        self.tun = None;
        for family in ["", "-6"] {
            // Another program's rule, which no plan removes.
            let _ = Command::new("ip")
                .args(family.split_whitespace())
                .args(["rule", "del", "pref", "100"])
                .output();
        }
        self.applier.undo().unwrap();
        self.applier.remove_kill_switch().unwrap();
    }

    /// The packets that the far end receives if this host sends to each of `remotes`.
    fn heard(&self, remotes: &[&str]) -> Vec<String> {
        self.capture.take();
        for remote in remotes {
            let _ = send(remote, None);
        }
        self.capture.take()
    }
}

fn send(remote: &str, mark: Option<u32>) -> Result<(), String> {
    let remote: SocketAddr = remote.parse().unwrap();
    let local = if remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }.parse().unwrap();
    let options = UdpOptions { local, ipv6_only: true, interface: None, mark };
    let mut socket = UdpSocket::bind(options).map_err(|error| error.to_string())?;
    let (source, ecn, segment, contents) = (None, Ecn::NotCapable, None, b"secret");
    let datagrams = Datagrams { remote, source, ecn, contents, segment };
    socket.send(datagrams).map_err(|error| error.to_string())
}

fn sh(line: &str) {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn nothing_leaves_in_clear_whatever_others_take_away() {
    in_namespace("nothing_leaves_in_clear_whatever_others_take_away", || {
        let mut host = Host::new();
        let switch = || Some(KillSwitch::default());
        for (plan, remotes) in [
            (full(), &WORLD[..]),
            (chosen(), &CHOSEN[..]),
            (Plan { kill_switch: switch(), ..full() }, &WORLD[..]),
        ] {
            for harm in HARM {
                host.up(&plan);
                assert_eq!(host.heard(remotes), [""; 0], "before {harm}");
                sh(harm);
                assert_eq!(host.heard(remotes), [""; 0], "{harm}, {plan:?}");
                let own = send("203.0.113.9:443", Some(MARK));
                assert_eq!(
                    (own, host.capture.take()),
                    (Ok(()), vec!["udp 203.0.113.9:443".into()])
                );
                host.down();
            }
        }
        assert_eq!(host.heard(&WORLD).len(), WORLD.len(), "something stayed");
        // Each of these is a leak of a tunnel without a guard.
        for harm in &HARM[..4] {
            host.up(&Plan { guard: None, ..full() });
            sh(harm);
            assert_ne!(host.heard(&WORLD), [""; 0], "{harm} shows nothing");
            host.down();
        }
    });
}

#[test]
fn without_the_filter_a_dead_device_leads_nowhere() {
    in_namespace("without_the_filter_a_dead_device_leads_nowhere", || {
        let mut host = Host::new();
        for (plan, remotes) in [(full(), &WORLD[..]), (chosen(), &CHOSEN[..])] {
            host.up(&plan);
            sh("nft flush ruleset; ip link del rove0");
            assert_eq!(host.heard(remotes), [""; 0]);
            host.down();
        }
    });
}

#[test]
fn what_a_split_tunnel_is_not_for_stays_outside() {
    in_namespace("what_a_split_tunnel_is_not_for_stays_outside", || {
        let mut host = Host::new();
        let exclude = nets(&["198.51.100.128/25", "10.0.0.0/8"]);
        host.up(&Plan { exclude, ..chosen() });
        let outside = ["198.51.100.200:9", "203.0.113.7:443", "10.8.0.1:9", "[2001:db8:2::1]:9"];
        assert_eq!(host.heard(&outside), outside.map(|remote| format!("udp {remote}")));
        // The longest prefix decides, so an exclusion around the tunnel's network does not open it.
        sh("ip rule del pref 5191; ip -6 rule del pref 5191; ip link set rove0 down");
        assert_eq!(host.heard(&CHOSEN), [""; 0]);
        assert_eq!(host.heard(&outside), outside.map(|remote| format!("udp {remote}")));
    });
}

#[test]
fn without_nft_the_tunnel_works_and_says_what_is_missing() {
    in_namespace("without_nft_the_tunnel_works_and_says_what_is_missing", || {
        let mut host = Host::new();
        host.up(&full());
        assert!(host.applier.unguarded().is_none());
        host.down();
        for dir in ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/bin", "/bin", "/usr/bin"] {
            support::hide(dir);
        }
        host.up(&full());
        let why = host.applier.unguarded().unwrap().to_string();
        assert!(why.contains("the guard needs the program nft"), "{why}");
        assert_eq!(host.heard(&WORLD), [""; 0], "its routes lead into the tunnel all the same");
        host.tun = None;
        assert_eq!(host.heard(&WORLD), [""; 0], "a dead device leads nowhere");
        host.applier.undo().unwrap();
        assert_eq!(host.heard(&WORLD).len(), WORLD.len());
    });
}
