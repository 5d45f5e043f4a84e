//! Plans against a real kernel: what they do to a host, and that nothing of it stays.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, UdpSocket as StdUdpSocket},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use ipnet::IpNet;
use rove_os::{
    error::Error,
    links,
    plan::{Applier, Dns, Firewall, KillSwitch, MARK, Places, Plan},
    tun::{Tun, TunOptions},
    udp::{UdpOptions, UdpSocket},
};
use support::{capture::Capture, has_program, in_namespace, net, skip_inside};

const RESOLV_CONF: &str = "nameserver 192.0.2.53\n";
const SYSCTLS: [&str; 5] = [
    "ipv4/conf/all/forwarding",
    "ipv6/conf/all/forwarding",
    "ipv4/conf/all/rp_filter",
    "ipv6/conf/wan/accept_ra",
    "ipv4/conf/wan/rp_filter",
];

fn nets(nets: &[&str]) -> Vec<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

fn ip(ip: &str) -> IpAddr {
    ip.parse().unwrap()
}

/// A host on a local network with a way out, and a directory of its own.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        net::uplink(true);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("resolv.conf"), RESOLV_CONF).unwrap();
        // The kernel does some of it in its own time.
        let mut before = Vec::new();
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(50));
            let now = net::everything();
            if now == before {
                break;
            }
            before = now;
        }
        Self { dir }
    }

    fn places(&self) -> Places {
        places(self.dir.path())
    }

    fn applier(&self) -> Applier {
        Applier::open(self.places()).unwrap()
    }

    fn resolv_conf(&self) -> String {
        fs::read_to_string(self.places().resolv_conf).unwrap()
    }

    /// Waits until everything is as it was; the kernel does some of it in its own time.
    fn assert_is(&self, expected: &[String]) {
        let mut now = self.dump();
        for _ in 0..100 {
            if now == expected {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
            now = self.dump();
        }
        let added: Vec<_> = now.iter().filter(|entry| !expected.contains(entry)).collect();
        let missing: Vec<_> = expected.iter().filter(|entry| !now.contains(entry)).collect();
        panic!("added: {added:#?}, missing: {missing:#?}");
    }

    /// Everything that a plan could change.
    fn dump(&self) -> Vec<String> {
        let mut entries = net::everything();
        for key in SYSCTLS {
            let value = fs::read_to_string(format!("/proc/sys/net/{key}")).unwrap();
            entries.push(format!("{key} = {value}"));
        }
        entries.push(self.resolv_conf());
        entries.push(ruleset());
        entries
    }

    fn journal_exists(&self) -> bool {
        self.dir.path().join("plan.json").exists()
    }
}

fn places(dir: &Path) -> Places {
    Places { state: dir.to_owned(), resolv_conf: dir.join("resolv.conf"), resolved: false }
}

fn ruleset() -> String {
    if !has_program("nft") {
        return String::new();
    }
    let output = Command::new("nft").args(["list", "ruleset"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn need_nft(what: &str) {
    if !has_program("nft") {
        skip_inside(what, "the program nft is missing (package nftables)");
    }
}

fn tun(name: &str, persistent: bool) -> Tun {
    support::tun("TUN", TunOptions { name, persistent, offload: true })
}

/// A client that sends everything through the tunnel.
fn client(device: &str) -> Plan {
    Plan {
        device: device.to_owned(),
        mtu: 1_400,
        addresses: nets(&["10.7.0.2/24", "fd07::2/64"]),
        routes: nets(&["0.0.0.0/0", "::/0"]),
        dns: Some(Dns { servers: vec![ip("10.7.0.1")], domains: vec![], all: true }),
        ..Plan::default()
    }
}

/// Through which interface, and from which address, a packet would leave; `None`: none.
fn way(destination: &str, mark: Option<u32>) -> Option<IpAddr> {
    let destination: IpAddr = destination.parse().unwrap();
    let any = if destination.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(UdpOptions {
        local: any.parse().unwrap(),
        ipv6_only: true,
        interface: None,
        mark,
    })
    .unwrap();
    // A copy of the descriptor, of which connect asks the kernel for the way.
    let socket: StdUdpSocket = {
        use std::os::fd::AsFd;
        socket.as_fd().try_clone_to_owned().unwrap().into()
    };
    socket.connect(SocketAddr::new(destination, 9)).ok()?;
    Some(socket.local_addr().unwrap().ip())
}

#[test]
fn a_full_tunnel_takes_all_but_marked_packets_and_undo_leaves_nothing() {
    in_namespace("a_full_tunnel_takes_all_but_marked_packets_and_undo_leaves_nothing", || {
        let host = Host::new();
        let before = host.dump();
        let mut applier = host.applier();
        let device = tun("rove0", false);
        let plan = client(device.name());
        plan.check(&links::snapshot().unwrap()).unwrap();
        applier.apply(&plan).unwrap();
        let shown = Command::new("ip").args(["-d", "link", "show", "rove0"]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains("gso_max_size 60000"), "a super-packet fits one send: {shown}");

        assert_eq!(way("203.0.113.1", None), Some(ip("10.7.0.2")));
        assert_eq!(way("2001:db8::1", None), Some(ip("fd07::2")));
        assert_eq!(way("192.168.5.9", None), Some(ip("10.7.0.2")), "the LAN was not allowed");
        assert_eq!(way("203.0.113.1", Some(MARK)), Some(ip("192.168.5.2")));
        assert_eq!(way("2001:db8::1", Some(MARK)), Some(ip("fd05::2")));
        assert!(host.resolv_conf().contains("nameserver 10.7.0.1\n"));

        applier.apply(&Plan { allow_lan: true, ..plan.clone() }).unwrap();
        assert_eq!(way("192.168.5.9", None), Some(ip("192.168.5.2")));
        assert_eq!(way("fd05::9", None), Some(ip("fd05::2")));
        assert_eq!(way("203.0.113.1", None), Some(ip("10.7.0.2")));

        applier.undo().unwrap();
        drop(device);
        host.assert_is(&before);
        assert!(!host.journal_exists());
    });
}

#[test]
fn a_tunnel_without_ipv6_lets_no_ipv6_past() {
    in_namespace("a_tunnel_without_ipv6_lets_no_ipv6_past", || {
        let host = Host::new();
        let mut applier = host.applier();
        let device = tun("rove0", false);
        let plan = Plan { addresses: nets(&["10.7.0.2/24"]), ..client(device.name()) };
        applier.apply(&plan).unwrap();
        assert_eq!(way("2001:db8::1", None), None);
        assert_eq!(way("2001:db8::1", Some(MARK)), Some(ip("fd05::2")));
        applier.undo().unwrap();
        assert_eq!(way("2001:db8::1", None), Some(ip("fd05::2")));
    });
}

#[test]
fn chosen_routes_and_exclusions_are_exact() {
    in_namespace("chosen_routes_and_exclusions_are_exact", || {
        let host = Host::new();
        let before = host.dump();
        let mut applier = host.applier();
        let device = tun("rove0", false);
        let mut plan = Plan {
            routes: nets(&["198.51.100.0/24", "2001:db8:1::/48"]),
            exclude: nets(&["198.51.100.128/25"]),
            dns: None,
            ..client(device.name())
        };
        applier.apply(&plan).unwrap();
        assert_eq!(way("198.51.100.1", None), Some(ip("10.7.0.2")));
        assert_eq!(way("198.51.100.200", None), Some(ip("192.168.5.2")));
        assert_eq!(way("203.0.113.1", None), Some(ip("192.168.5.2")));
        assert_eq!(way("2001:db8:1::1", None), Some(ip("fd07::2")));
        assert_eq!(way("2001:db8:2::1", None), Some(ip("fd05::2")));
        plan.exclude = nets(&["198.51.100.0/25"]);
        applier.apply(&plan).unwrap();
        assert_eq!(way("198.51.100.1", None), Some(ip("192.168.5.2")));
        assert_eq!(way("198.51.100.200", None), Some(ip("10.7.0.2")));
        applier.undo().unwrap();
        drop(device);
        host.assert_is(&before);
    });
}

#[test]
fn strict_reverse_path_filters_are_loosened_and_put_back() {
    in_namespace("strict_reverse_path_filters_are_loosened_and_put_back", || {
        let host = Host::new();
        for key in ["all", "wan"] {
            fs::write(format!("/proc/sys/net/ipv4/conf/{key}/rp_filter"), "1").unwrap();
        }
        let before = host.dump();
        let mut applier = host.applier();
        let device = tun("rove0", false);
        for allow_lan in [false, true] {
            applier.apply(&Plan { allow_lan, ..client("rove0") }).unwrap();
            // Only links that carry the tunnel's own datagrams are loosened, and no others.
            let value = |link: &str| {
                fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{link}/rp_filter")).unwrap()
            };
            assert_eq!((value("all").trim(), value("wan").trim()), ("1", "2"));
        }
        applier.undo().unwrap();
        drop(device);
        host.assert_is(&before);
    });
}

/// A gateway: forwarding, NAT of both families, a TUN that outlives it.
fn gateway() -> Plan {
    Plan {
        device: "rove0".to_owned(),
        persistent: true,
        mtu: 1_400,
        addresses: nets(&["10.7.0.1/24", "fd07::1/64"]),
        forward: true,
        firewall: Some(Firewall { nat: true, ..Firewall::default() }),
        ..Plan::default()
    }
}

#[test]
fn a_gateway_is_reconciled_by_its_next_process_and_swept_by_undo() {
    in_namespace("a_gateway_is_reconciled_by_its_next_process_and_swept_by_undo", || {
        need_nft("NAT");
        let host = Host::new();
        fs::write("/proc/sys/net/ipv6/conf/wan/accept_ra", "1").unwrap();
        let before = host.dump();
        drop(tun("probe", false));
        let mut applier = host.applier();
        let device = applier.open_device(&gateway()).unwrap();
        applier.apply(&gateway()).unwrap();
        let running = host.dump();
        let rules = ruleset();
        for expected in ["ip saddr 10.7.0.0/24 masquerade", "ip6 saddr fd07::/64 masquerade"] {
            assert!(rules.contains(expected), "{rules}");
        }
        let accept_ra = fs::read_to_string("/proc/sys/net/ipv6/conf/wan/accept_ra").unwrap();
        assert_eq!(accept_ra.trim(), "2", "forwarding would cost the host its default route");
        let index = net::index("rove0");
        // The process ends without a word.
        drop((applier, device));
        assert_eq!(net::index("rove0"), index);

        let mut applier = host.applier();
        assert!(applier.has_leftovers());
        let device = applier.open_device(&gateway()).unwrap();
        assert!(device.adopted());
        applier.apply(&gateway()).unwrap();
        assert!(!applier.has_leftovers());
        host.assert_is(&running);
        assert_eq!(net::index("rove0"), index);

        applier.undo().unwrap();
        drop(device);
        host.assert_is(&before);
        assert!(!host.journal_exists());
    });
}

/// A UDP packet from inside the tunnel.
fn inner(source: &str, destination: &str) -> Vec<u8> {
    let mut packet = match (ip(source), ip(destination)) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut header = vec![0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0, 0];
            header.extend([source.octets(), destination.octets()].concat());
            let words = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
            let sum: u32 = words.sum();
            header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut header = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
            header.extend([source.octets(), destination.octets()].concat());
            header
        }
        _ => panic!("two families"),
    };
    for word in [4_000u16, 53, 12, 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(b"news");
    packet
}

fn is_udp(packet: &[u8]) -> bool {
    packet[if packet[0] >> 4 == 4 { 9 } else { 6 }] == 17
}

#[test]
fn packets_of_clients_leave_with_the_gateways_address() {
    in_namespace("packets_of_clients_leave_with_the_gateways_address", || {
        need_nft("NAT");
        let host = Host::new();
        net::neighbours("wan", false);
        let mut applier = host.applier();
        drop(tun("probe", false));
        let mut device = applier.open_device(&gateway()).unwrap();
        applier.apply(&gateway()).unwrap();
        let capture = Capture::start("far");
        // Over IPv6 a checksum of zero is no UDP; the kernel forwards it all the same.
        let packets = [inner("10.7.0.9", "192.0.2.1"), inner("fd07::9", "2001:db8::1")];
        // A cable needs a moment until it carries.
        let seen = (0..100).find_map(|_| {
            device.write(packets.iter().map(Vec::as_slice)).unwrap();
            let seen = capture.packets();
            (seen.iter().filter(|packet| is_udp(packet)).count() == 2).then_some(seen)
        });
        let seen = seen.unwrap();
        let v4 = seen.iter().find(|packet| packet[0] >> 4 == 4 && packet[9] == 17).unwrap();
        assert_eq!((&v4[12..16], &v4[16..20]), (&[192, 168, 5, 2][..], &[192, 0, 2, 1][..]));
        let v6 = seen.iter().find(|packet| packet[0] >> 4 == 6 && packet[6] == 17).unwrap();
        assert_eq!(v6[8..24], "fd05::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
        // What is not the tunnel's network is not given an address that it has no right to.
        device.write([&inner("10.8.0.9", "192.0.2.1")[..]]).unwrap();
        let seen = capture.packets();
        assert!(seen.iter().all(|packet| packet[12..16] != [192, 168, 5, 2]));
        applier.undo().unwrap();
    });
}

#[test]
fn a_new_plan_sweeps_what_it_does_not_want() {
    in_namespace("a_new_plan_sweeps_what_it_does_not_want", || {
        need_nft("NAT");
        let host = Host::new();
        let before = host.dump();
        let device = tun("rove0", true);
        host.applier().apply(&gateway()).unwrap();
        drop(device);
        // The same directory is now a client's, with a TUN of another name.
        let device = tun("rove1", false);
        let mut applier = host.applier();
        let plan = client(device.name());
        applier.apply(&plan).unwrap();
        assert!(!ruleset().contains("rove_gateway"));
        let links = links::snapshot().unwrap();
        assert!(links.iter().all(|link| link.name != "rove0"), "the persistent TUN is left over");
        let forwarding = fs::read_to_string("/proc/sys/net/ipv4/conf/all/forwarding").unwrap();
        assert_eq!(forwarding.trim(), "0");
        applier.undo().unwrap();
        drop(device);
        host.assert_is(&before);
    });
}

const VICTIM: &str = "ROVE_OS_TEST_VICTIM";

/// Applies plans, one after the other, until it is killed.
fn victim(dir: &str) {
    let mut applier = Applier::open(places(Path::new(dir))).unwrap();
    let mut out = std::io::stdout();
    out.write_all(b"#").unwrap();
    out.flush().unwrap();
    let device = applier.open_device(&gateway()).unwrap();
    for round in 0..1_000 {
        let mut plan = if has_program("nft") { gateway() } else { client("rove0") };
        plan.persistent = true;
        plan.routes = nets(&["0.0.0.0/0", "::/0"]);
        plan.allow_lan = round % 2 == 0;
        plan.exclude = nets(&[["198.51.100.0/24", "203.0.113.0/24"][round % 2]]);
        let servers = vec![ip(["10.7.0.1", "10.7.0.3"][round % 2])];
        plan.dns = Some(Dns { servers, domains: vec![], all: true });
        applier.apply(&plan).unwrap();
    }
    drop(device);
}

#[test]
fn whenever_it_is_killed_a_sweep_leaves_nothing() {
    in_namespace("whenever_it_is_killed_a_sweep_leaves_nothing", || {
        if let Ok(dir) = std::env::var(VICTIM) {
            return victim(&dir);
        }
        drop(tun("probe", false));
        let host = Host::new();
        let before = host.dump();
        for round in 0..40u64 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "whenever_it_is_killed_a_sweep_leaves_nothing", "--nocapture"])
                .env(VICTIM, host.dir.path())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut out = child.stdout.take().unwrap();
            let mut byte = [0];
            while byte != *b"#" {
                assert_eq!(out.read(&mut byte).unwrap(), 1, "the victim did not start");
            }
            std::thread::sleep(Duration::from_micros(round * 1_700));
            child.kill().unwrap();
            child.wait().unwrap();
            host.applier().undo().unwrap();
            let links = links::snapshot().unwrap();
            let left = links.iter().any(|link| link.name == "rove0");
            assert!(!left, "round {round}: the persistent TUN is left over");
            host.assert_is(&before);
            assert!(!host.journal_exists());
        }
    });
}

#[test]
fn an_overlap_with_a_local_network_is_named() {
    in_namespace("an_overlap_with_a_local_network_is_named", || {
        let _host = Host::new();
        let links = links::snapshot().unwrap();
        let overlapping = Plan { addresses: nets(&["192.168.0.9/16"]), ..client("rove0") };
        let error = overlapping.check(&links).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the tunnel's network 192.168.0.0/16 overlaps 192.168.5.0/24 on wan: choose another \
             network for the tunnel, or leave that one"
        );
        let inside = Plan { routes: nets(&["192.168.5.128/25"]), ..client("rove0") };
        assert!(matches!(inside.check(&links), Err(Error::AddressOverlap { .. })));
        let around = Plan { routes: nets(&["192.168.0.0/16"]), ..client("rove0") };
        around.check(&links).unwrap();
    });
}

#[test]
fn without_nft_the_error_names_the_package() {
    in_namespace("without_nft_the_error_names_the_package", || {
        let host = Host::new();
        let before = host.dump();
        let device = tun("rove0", true);
        // An empty file system over every place where nft could be.
        for dir in ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/local/bin", "/bin", "/usr/bin"] {
            support::hide(dir);
        }
        let mut applier = host.applier();
        let error = applier.apply(&gateway()).unwrap_err();
        assert!(matches!(error, Error::NftMissing { .. }), "{error}");
        assert!(error.to_string().contains("apt install nftables"));
        applier.undo().unwrap();
        drop(device);
        // Without nft the dump has no ruleset, and before it had an empty one.
        host.assert_is(&before);
    });
}

#[test]
fn a_kill_switch_outlives_everything_but_its_removal() {
    in_namespace("a_kill_switch_outlives_everything_but_its_removal", || {
        need_nft("the kill switch");
        let host = Host::new();
        let before = host.dump();
        let device = tun("rove0", false);
        let mut applier = host.applier();
        let switch = KillSwitch { gateways: vec![ip("203.0.113.7")], ..KillSwitch::default() };
        let with = Plan { kill_switch: Some(switch), ..client("rove0") };
        applier.apply(&with).unwrap();
        let standing = ruleset();
        assert!(standing.contains("rove_kill_switch"));
        applier.apply(&client("rove0")).unwrap();
        assert_eq!(ruleset(), standing, "a plan without one must not take it away");
        applier.undo().unwrap();
        assert_eq!(ruleset(), standing);
        drop((applier, device));

        let mut applier = host.applier();
        assert!(applier.kill_switch_stands());
        assert!(!applier.has_leftovers());
        applier.undo().unwrap();
        assert_eq!(ruleset(), standing);
        // As after a boot, when the kernel knows nothing of it.
        Command::new("nft").args(["flush", "ruleset"]).status().unwrap();
        assert!(applier.stand_kill_switch().unwrap());
        assert_eq!(ruleset(), standing);

        applier.remove_kill_switch().unwrap();
        assert!(!applier.kill_switch_stands());
        host.assert_is(&before);
        assert!(!host.journal_exists());
    });
}
