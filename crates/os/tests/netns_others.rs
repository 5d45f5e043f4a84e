//! What a client's host does beside the tunnel: visitors that come in through it, tunnels of other
//! programs, guests of this host, and multicast.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    process::Command,
    thread,
    time::Duration,
};

use ipnet::IpNet;
use rove_os::{
    links::{self, LinkKind},
    plan::{Applier, Cause, Guard, KillSwitch, Places, Plan, Scope},
    tun::{Segment, Tun, TunOptions},
};
use support::{capture::Capture, has_program, in_namespace, net, skip_inside};

fn nets(nets: &[&str]) -> Vec<IpNet> {
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

fn split() -> Plan {
    let routes = nets(&["198.51.100.0/24", "2001:db8:1::/48", "10.7.0.0/24", "fd07::/64"]);
    Plan { routes, ..full() }
}

fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The link on which the kernel sends to an address.
fn way(to: &str) -> String {
    let route = sh(&format!("ip route get {to}"));
    route.split(" dev ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
}

fn tun(name: &str) -> Tun {
    support::tun("TUN", TunOptions { name, persistent: false, offload: true })
}

/// A host on a cable, with a tunnel.
struct Host {
    cable: Capture,
    tunnel: Tun,
    applier: Applier,
    _dir: tempfile::TempDir,
}

impl Host {
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
        Self { cable: Capture::start("far"), tunnel: tun("rove0"), applier, _dir: dir }
    }

    fn apply(&mut self, plan: &Plan) {
        self.applier.apply(plan).unwrap();
    }
}

/// A datagram as it comes out of a tunnel. Its checksum is valid, as receivers check it.
fn datagram(from: &str, to: &str) -> Vec<u8> {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut udp = [from.port(), to.port(), 13, 0].map(u16::to_be_bytes).concat();
    udp.extend(b"hello");
    let octets = |at: IpAddr| match at {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let ends = [octets(from.ip()), octets(to.ip())].concat();
    let pseudo = [&ends[..], &[0, 17, 0, 13], &udp].concat();
    let sum = checksum(&pseudo);
    udp[6..8].copy_from_slice(&sum);
    let mut packet = if from.is_ipv4() {
        vec![0x45, 0, 0, 33, 0, 1, 0, 0, 64, 17, 0, 0]
    } else {
        vec![0x60, 0, 0, 0, 0, 13, 17, 64]
    };
    packet.extend(ends);
    if from.is_ipv4() {
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum);
    }
    packet.extend(udp);
    packet
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes
        .chunks(2)
        .map(|two| u32::from(two[0]) << 8 | u32::from(two.get(1).copied().unwrap_or(0)));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes()
}

/// The destinations of the packets that the host sent into a tunnel since the last call.
fn sent(tunnel: &mut Tun) -> Vec<IpAddr> {
    thread::sleep(Duration::from_millis(30));
    let mut seen = Vec::new();
    loop {
        let before = seen.len();
        let each = |segment: Segment<'_>| {
            let header = segment.header;
            let octets = |at: usize, length: usize| header[at..at + length].to_vec();
            let to = match header[0] >> 4 {
                4 => IpAddr::from(<[u8; 4]>::try_from(octets(16, 4)).unwrap()),
                _ => IpAddr::from(<[u8; 16]>::try_from(octets(24, 16)).unwrap()),
            };
            seen.push(to);
        };
        let mut each = each;
        tunnel.read(|segment, _| each(segment)).unwrap();
        if seen.len() == before {
            return seen;
        }
    }
}

/// Passes a datagram out of a tunnel to a server on this host, which answers it.
fn visit(tunnel: &mut Tun, from: &str, to: &str) {
    let server = UdpSocket::bind(to).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    sent(tunnel);
    tunnel.write([&datagram(from, to)[..]]).unwrap();
    let (_, visitor) = server.recv_from(&mut [0; 9]).unwrap_or_else(|_| panic!("{from} to {to}"));
    let _ = server.send_to(b"hello", visitor);
}

#[test]
fn visitors_are_answered_through_the_tunnel_and_nothing_else_is() {
    in_namespace("visitors_are_answered_through_the_tunnel_and_nothing_else_is", || {
        let mut host = Host::new();
        for (strict, plan) in [(0, split()), (1, split()), (1, full())] {
            fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", strict.to_string()).unwrap();
            let exclude = nets(&["203.0.113.0/24"]);
            host.apply(&Plan { exclude, ..plan });
            for (from, to) in
                [("203.0.113.9:4000", "10.7.0.2:80"), ("[2001:db8:9::9]:4000", "[fd07::2]:80")]
            {
                host.cable.take();
                visit(&mut host.tunnel, from, to);
                let visitor = from.parse::<SocketAddr>().unwrap().ip();
                assert_eq!(sent(&mut host.tunnel), [visitor], "rp_filter {strict}");
                // Without its route the reply does not leave elsewhere.
                sh("ip route flush table 29297; ip -6 route flush table 29297");
                visit(&mut host.tunnel, from, to);
                assert_eq!(host.cable.take(), [""; 0], "{from}");
                host.applier.reconcile(std::time::Instant::now(), Scope::All).unwrap();
                visit(&mut host.tunnel, from, to);
                assert_eq!(sent(&mut host.tunnel), [visitor], "the route is back");
            }
        }
        fs::write("/proc/sys/net/ipv4/conf/all/rp_filter", "0").unwrap();
        host.apply(&split());
        // A hostile gateway invents the other direction of a connection of this host.
        for (neighbour, own) in
            [("192.168.5.1:123", "192.168.5.2:123"), ("[fd05::1]:123", "[fd05::2]:123")]
        {
            let socket = UdpSocket::bind(own).unwrap();
            host.tunnel.write([&datagram(neighbour, own)[..]]).unwrap();
            thread::sleep(Duration::from_millis(50));
            host.cable.take();
            sent(&mut host.tunnel);
            socket.send_to(b"hello", neighbour).unwrap();
            assert_eq!(host.cable.take(), [format!("udp {neighbour}")]);
            assert_eq!(sent(&mut host.tunnel), [] as [IpAddr; 0]);
        }
    });
}

#[test]
fn other_tunnels_keep_their_networks() {
    in_namespace("other_tunnels_keep_their_networks", || {
        let mut host = Host::new();
        let mut mesh = tun("mesh0");
        // As Tailscale does.
        sh("ip link set mesh0 up
            ip addr add 100.64.0.9/32 dev mesh0 && ip addr add fd7a::9/128 dev mesh0 nodad
            ip route add 100.64.0.0/10 dev mesh0 table 52
            ip -6 route add fd7a::/48 dev mesh0 table 52
            ip rule add pref 5270 lookup 52 && ip -6 rule add pref 5270 lookup 52");
        host.apply(&full());
        assert_eq!(host.applier.displaced(), []);
        assert_eq!(["100.64.0.7", "fd7a::7", "203.0.113.9"].map(way), ["mesh0", "mesh0", "rove0"]);
        for (peer, own) in [("100.64.0.7:9", "100.64.0.9:80"), ("[fd7a::7]:9", "[fd7a::9]:80")] {
            let to = peer.parse::<SocketAddr>().unwrap();
            let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            sent(&mut mesh);
            UdpSocket::bind(from).unwrap().send_to(b"hello", to).unwrap();
            assert_eq!(sent(&mut mesh), [to.ip()]);
            host.cable.take();
            visit(&mut mesh, peer, own);
            assert_eq!(sent(&mut mesh), [to.ip()], "a reply to a peer");
            assert_eq!(host.cable.take(), [""; 0]);
        }
        // The filter lets them out on that tunnel alone.
        sh("ip rule del pref 5191; ip rule add pref 100 lookup main; ip rule del pref 5270");
        let lost = UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"hello", "100.64.0.7:9");
        assert_eq!((lost.is_err(), host.cable.take()), (true, vec![]));
        sh("ip rule del pref 100; ip rule add pref 5270 lookup 52");
        host.applier.reconcile(std::time::Instant::now(), Scope::All).unwrap();

        // A network that it gets later, in the main table.
        assert!(!host.applier.is_elsewhere(&full()).unwrap());
        sh("ip route add 10.147.0.0/16 dev mesh0");
        assert!(host.applier.is_elsewhere(&full()).unwrap());
        host.apply(&full());
        assert_eq!(way("10.147.0.1"), "mesh0");
        // A route of the network is no tunnel.
        sh("ip route add 198.51.100.0/24 via 192.168.5.1");
        assert!(!host.applier.is_elsewhere(&full()).unwrap());
        assert_eq!(way("198.51.100.1"), "rove0");

        let causes = |applier: &Applier| {
            let all = applier.displaced().iter();
            all.map(|lost| (lost.net.to_string(), lost.cause)).collect::<Vec<_>>()
        };
        host.apply(&Plan { routes: nets(&["100.0.0.0/8", "10.7.0.0/24", "fd07::/64"]), ..full() });
        let route = Cause::Route(nets(&["100.0.0.0/8"])[0]);
        assert_eq!(causes(&host.applier), [("100.64.0.0/10".to_owned(), route)]);
        // Routes for parts of its networks.
        let parts = nets(&["100.64.5.0/24", "fd7a:0:0:5::/64"]);
        let routes = [parts.clone(), nets(&["10.7.0.0/24", "fd07::/64"])].concat();
        let plan = Plan { routes, ..full() };
        host.apply(&plan);
        let lost: Vec<_> = parts.iter().map(|net| (net.to_string(), Cause::Route(*net))).collect();
        assert_eq!(causes(&host.applier), lost);
        let ways = ["100.64.5.7", "100.64.6.7", "fd7a:0:0:5::7", "fd7a:0:0:6::7"].map(way);
        assert_eq!(ways, ["rove0", "mesh0", "rove0", "mesh0"]);
        host.apply(&Plan { exclude: parts, ..plan });
        assert_eq!(causes(&host.applier), []);
        host.apply(&Plan { kill_switch: Some(KillSwitch::default()), ..full() });
        assert_eq!(causes(&host.applier).len(), 3, "{:?}", host.applier.displaced());
        assert!(causes(&host.applier).iter().all(|(_, cause)| *cause == Cause::KillSwitch));
        assert_eq!(way("100.64.0.7"), "rove0");
        host.applier.undo().unwrap();
        host.applier.remove_kill_switch().unwrap();
    });
}

#[test]
fn guests_of_this_host_are_served_or_named() {
    in_namespace("guests_of_this_host_are_served_or_named", || {
        let mut host = Host::new();
        net::veth("ap0", "guest");
        net::address("ap0", "10.42.0.1/24");
        net::up("ap0");
        net::up("guest");
        fs::write("/proc/sys/net/ipv4/conf/all/forwarding", "1").unwrap();
        // The kernel notices a new cable in its own time.
        let is_up = || sh("ip -o link show ap0").contains("LOWER_UP");
        assert!((0..100).any(|_| is_up() || {
            thread::sleep(Duration::from_millis(20));
            false
        }));
        host.apply(&full());
        let [lost] = host.applier.displaced() else { panic!("{:?}", host.applier.displaced()) };
        assert_eq!((&*lost.link, lost.cause), ("ap0", Cause::Guests));
        assert_eq!(way("10.42.0.5"), "rove0");
        for plan in [Plan { allow_lan: true, ..full() }, split()] {
            host.apply(&plan);
            assert_eq!((host.applier.displaced(), &*way("10.42.0.5")), (&[][..], "ap0"));
        }
        host.apply(&full());
        let names = UdpSocket::bind("10.42.0.1:53").unwrap();
        assert!(!host.applier.is_elsewhere(&full()).unwrap(), "names alone");
        let elsewhere = UdpSocket::bind("0.0.0.0:67").unwrap();
        socket2::SockRef::from(&elsewhere).bind_device(Some(b"wan")).unwrap();
        assert!(!host.applier.is_elsewhere(&full()).unwrap(), "addresses on another link");
        drop(elsewhere);
        let addresses = UdpSocket::bind("0.0.0.0:67").unwrap();
        assert!(host.applier.is_elsewhere(&full()).unwrap());
        host.apply(&full());
        assert_eq!((host.applier.displaced(), &*way("10.42.0.5")), (&[][..], "ap0"));
        let switch = Some(KillSwitch::default());
        host.apply(&Plan { kill_switch: switch, ..full() });
        assert_eq!(host.applier.displaced().len(), 1);
        host.applier.remove_kill_switch().unwrap();
        host.apply(&full());
        // The uplink is no place for guests, whoever serves there.
        let _names = UdpSocket::bind("192.168.5.2:53").unwrap();
        assert!(!host.applier.is_elsewhere(&full()).unwrap());
        drop((names, addresses));
        assert!(host.applier.is_elsewhere(&full()).unwrap());
    });
}

#[test]
fn multicast_uses_the_local_network_if_that_is_allowed() {
    in_namespace("multicast_uses_the_local_network_if_that_is_allowed", || {
        let mut host = Host::new();
        let groups = ["224.0.0.251:5353", "239.255.255.250:1900", "[ff02::fb]:5353"];
        let ask = |host: &mut Host| {
            host.cable.take();
            for group in groups {
                let from = if group.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
                let _ = UdpSocket::bind(from).unwrap().send_to(b"who is there?", group);
            }
            host.cable.take()
        };
        // The other end of the cable is on this host.
        sh("ip -6 route del ff00::/8 dev far table local");
        for plan in [full(), split()] {
            for kill_switch in [None, Some(KillSwitch::default())] {
                let plan = Plan { allow_lan: true, kill_switch, ..plan.clone() };
                host.apply(&plan);
                assert_eq!(ask(&mut host), groups.map(|to| format!("udp {to}")), "{plan:?}");
                // The uplink came back after the tunnel was there.
                sh("ip link set wan down && ip link set wan up
                    ip addr add fd05::2/64 dev wan nodad
                    ip route add default via 192.168.5.1 dev wan");
                host.applier.reconcile(std::time::Instant::now(), Scope::All).unwrap();
                assert_eq!(ask(&mut host), groups.map(|to| format!("udp {to}")), "{plan:?}");
                host.applier.remove_kill_switch().unwrap();
            }
        }
        host.apply(&full());
        assert_eq!(ask(&mut host), [""; 0]);
    });
}

#[test]
fn a_translator_is_a_link() {
    in_namespace("a_translator_is_a_link", || {
        net::up("lo");
        let _clat = tun("clat");
        let kind = || {
            let links = links::snapshot().unwrap();
            links.into_iter().find(|link| link.name == "clat").unwrap().kind
        };
        sh("ip link set clat up && ip addr add 192.0.0.1/32 dev clat");
        assert_eq!(kind(), LinkKind::Tunnel, "it leads nowhere");
        sh("ip route add default dev clat");
        assert_eq!(kind(), LinkKind::Clat);
        sh("ip addr add 10.9.0.2/32 dev clat");
        assert_eq!(kind(), LinkKind::Tunnel, "it is another tunnel");
    });
}
