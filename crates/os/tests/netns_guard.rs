//! The guard, with packet captures: where the tunnel's packets go if another program removes its
//! routes or rules, and how much neighbours on a link learn about the tunnel's addresses.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{fs, net::SocketAddr, process::Command};

use rove_os::{
    plan::{Applier, Guard, KillSwitch, MARK, MarkRule, Obstacle, Places, Plan},
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
const HARM: [&str; 7] = [
    "ip rule del pref 5191; ip -6 rule del pref 5191",
    "ip route flush table 29295; ip -6 route flush table 29295",
    "ip rule add pref 100 lookup main; ip -6 rule add pref 100 lookup main",
    "ip link del rove0",
    "ip link set rove0 down",
    "ip addr flush dev rove0",
    // As split tunnels by cgroup or user do, and routers with several uplinks.
    "ip rule add pref 100 fwmark 1 lookup main; ip -6 rule add pref 100 fwmark 1 lookup main
        nft 'table inet marks {
        chain output { type route hook output priority mangle; meta mark 0 meta mark set 1; };
        chain nat { type nat hook postrouting priority srcnat; meta mark 1 masquerade; }; }'",
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
    dir: tempfile::TempDir,
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
        let host = Self { capture, tun: None, applier, dir };
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
        let _ = Command::new("nft").args(["delete", "table", "inet", "marks"]).output();
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
fn blocked_marked_packets_are_counted_with_the_rule_for_their_mark() {
    in_namespace("blocked_marked_packets_are_counted_with_the_rule_for_their_mark", || {
        let mut host = Host::new();
        let world = "203.0.113.7:443";
        for kill_switch in [None, Some(KillSwitch::default())] {
            host.up(&Plan { kill_switch, ..full() });
            sh("ip rule add pref 100 fwmark 0x10/0xf0 lookup main");
            assert_eq!(host.applier.obstacles().unwrap(), [], "nothing was marked");
            assert_eq!(host.applier.look().unwrap(), []);
            for _ in 0..3 {
                assert!(send(world, Some(0x11)).is_err(), "the filter refuses it");
            }
            let (v6, priority, table) = (false, 100, 254);
            let rule = MarkRule { v6, priority, table, mark: 0x10, mask: 0xf0 };
            let blocked = Obstacle::Marked { rules: vec![rule], packets: 3 };
            assert_eq!(host.applier.obstacles().unwrap(), [blocked]);
            // A packet that is marked after it was routed is dropped when it is about to leave.
            sh("nft 'table inet marks {
                chain output { type route hook output priority mangle; meta mark set 0x10; }; }'");
            assert!(send(world, None).is_err(), "the filter drops it");
            let obstacles = host.applier.obstacles().unwrap();
            let counted = matches!(obstacles[..], [Obstacle::Marked { packets: 4.., .. }]);
            assert!(counted, "{obstacles:?}");
            assert_eq!(host.applier.look().unwrap(), [], "what packets fill is no change");
            assert_eq!(host.capture.take(), [""; 0]);
            sh("ip rule del pref 100");
            assert_eq!(host.applier.obstacles().unwrap(), [], "no rule is for the mark");
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

#[test]
fn an_nft_that_cannot_be_started_is_not_called_missing() {
    in_namespace("an_nft_that_cannot_be_started_is_not_called_missing", || {
        let mut host = Host::new();
        let nft = host.dir.path().join("nft");
        fs::write(&nft, "#!/nowhere/sh\n").unwrap();
        let nft = nft.display();
        sh(&format!("mount --bind {nft} $(command -v nft)"));
        for (mode, why) in [("644", "it is not executable"), ("755", "its loader is missing")] {
            sh(&format!("chmod {mode} {nft}"));
            host.up(&full());
            let said = host.applier.unguarded().unwrap().to_string();
            assert!(said.contains(why) && !said.contains("not installed"), "{said}");
            assert_eq!(host.heard(&WORLD), [""; 0], "its routes lead into the tunnel all the same");
            host.tun = None;
            host.applier.undo().unwrap();
        }
    });
}

/// The LAN's resolvers would learn in clear which names the tunnel is used for.
#[test]
fn names_are_not_asked_on_the_lan_that_is_allowed() {
    in_namespace("names_are_not_asked_on_the_lan_that_is_allowed", || {
        let mut host = Host::new();
        let lan = ["192.168.5.9:80", "[fd05::9]:80"].map(String::from);
        let link = net::index("wan");
        let near: Vec<String> = ["192.168.5.9", "[fd05::9]"]
            .into_iter()
            .flat_map(|host| [53, 853].map(|port| format!("{host}:{port}")))
            .collect();
        let all: Vec<&str> = lan.iter().chain(&near).map(String::as_str).collect();
        let own = format!("[fe80::9%{link}]:53");
        let said = |names: &[&str]| names.iter().map(|at| format!("udp {at}")).collect::<Vec<_>>();
        // As a resolver asks over TCP.
        let connect = |at: &str| {
            let wait = std::time::Duration::from_millis(50);
            let _ = std::net::TcpStream::connect_timeout(&at.parse().unwrap(), wait);
        };
        for switch in [None, Some(KillSwitch::default())] {
            let plan = Plan { allow_lan: true, kill_switch: switch, ..full() };
            host.up(&plan);
            assert_eq!(host.heard(&all), said(&all[..2]), "{plan:?}");
            assert_eq!(host.heard(&[&own]), [""; 0], "{plan:?}");
            near.iter().for_each(|at| connect(at));
            assert_eq!(host.capture.packets(), [[0u8; 0]; 0], "{plan:?}");
            lan.iter().for_each(|at| connect(at));
            assert_ne!(host.capture.packets(), [[0u8; 0]; 0], "{plan:?}");
            host.down();
            // A server that is excluded by name is asked.
            host.up(&Plan { exclude: nets(&["192.168.5.9/32", "fd05::9/128"]), ..plan });
            assert_eq!(host.heard(&all), said(&all));
            host.down();
        }
        // A tunnel for some networks leaves the names of the others where they were.
        host.up(&Plan { allow_lan: true, ..chosen() });
        assert_eq!(host.heard(&all), said(&all));
        host.down();
    });
}

/// A datagram to port 9 of an address, as a gateway puts it into the tunnel.
fn inner(to: &str) -> Vec<u8> {
    let udp = [0x9c, 0x40, 0, 9, 0, 12, 0, 0, b'n', b'e', b'w', b's'];
    match to.parse().unwrap() {
        std::net::IpAddr::V4(to) => {
            let mut packet = vec![0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0, 10, 7, 0, 1];
            packet.extend(to.octets());
            let words = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum: u32 = words.sum();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            packet.extend(udp);
            packet
        }
        std::net::IpAddr::V6(to) => {
            let mut packet = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
            packet.extend("fd07::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
            packet.extend(to.octets());
            packet.extend(udp);
            packet
        }
    }
}

#[test]
fn a_gateway_reaches_what_is_advertised_and_nothing_else_behind_this_host() {
    in_namespace("a_gateway_reaches_what_is_advertised_and_nothing_else_behind_this_host", || {
        let mut host = Host::new();
        let behind = nets(&["192.168.5.128/25", "fd05::8000:0:0:0/65"]);
        let inside = ["192.168.5.9", "192.168.5.200", "fd05::9", "fd05::8000:0:0:9"];
        let all: Vec<String> =
            inside.map(|to| format!("udp {}", SocketAddr::new(to.parse().unwrap(), 9))).to_vec();
        let advertised = [all[1].clone(), all[3].clone()];
        let guard = |behind| Some(Guard { behind, ..Guard::default() });
        for (guard, switch, expected) in [
            (None, None, &all[..]),
            (guard(Vec::new()), None, &[]),
            (guard(behind), None, &advertised[..]),
            (guard(Vec::new()), Some(KillSwitch::default()), &[]),
        ] {
            let plan =
                Plan { guard, kill_switch: switch, allow_lan: true, forward: true, ..full() };
            host.up(&plan);
            let packets = inside.map(inner);
            let tun = host.tun.as_mut().unwrap();
            tun.write(packets.iter().map(Vec::as_slice)).unwrap();
            assert_eq!(host.capture.take(), expected, "{plan:?}");
            host.down();
        }
    });
}
