//! A gateway's ruleset against a real kernel: the packets on a cable after clients send, including
//! packets of flows that began before the ruleset existed.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    fs,
    net::{IpAddr, Ipv6Addr},
    path::Path,
    process::Command,
};

use ipnet::IpNet;
use rove_os::{
    conntrack,
    plan::{Applier, Destination, Firewall, Places, Plan},
    tun::{Tun, TunOptions},
};
use support::{capture::Capture, has_program, in_namespace, net, skip_inside};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// A client's inner addresses, and a host of the Internet's.
const CLIENT: [&str; 2] = ["10.7.0.9", "fd07::9"];
const HOST: [&str; 2] = ["198.51.100.7", "2001:db8:b::7"];
/// Attempts to send. A new virtual cable needs a moment before it works.
const TIMES: usize = 40;

/// A gateway on a cable whose far end is watched.
struct Gateway {
    dir: tempfile::TempDir,
    device: Tun,
    capture: Capture,
}

impl Gateway {
    fn new(firewall: Firewall) -> Self {
        if !has_program("nft") {
            skip_inside("a gateway's ruleset", "the program nft is missing (package nftables)");
        }
        net::veth("wan", "far");
        for name in ["wan", "far"] {
            net::without_checks(name);
        }
        net::address("wan", "192.168.5.2/24");
        net::address("wan", "fd05::2/64");
        net::up("wan");
        net::up("far");
        net::neighbours("wan", false);
        net::route("0.0.0.0/0", Some("192.168.5.1"), "wan");
        net::route("::/0", Some("fd05::1"), "wan");
        let dir = tempfile::tempdir().unwrap();
        let options = TunOptions { name: "rove0", persistent: true, offload: true };
        let device = support::tun("TUN", options);
        let gateway = Self { dir, device, capture: Capture::start("far") };
        gateway.apply(firewall);
        gateway
    }

    /// Applies the plan like a new process, without the state of this one.
    fn apply(&self, firewall: Firewall) {
        self.apply_with(firewall, &[]);
    }

    /// The same with networks behind clients.
    fn apply_with(&self, firewall: Firewall, behind: &[&str]) {
        let nets = |nets: [&str; 2]| nets.map(|net| net.parse::<IpNet>().unwrap()).to_vec();
        let plan = Plan {
            device: "rove0".to_owned(),
            persistent: true,
            mtu: 1_400,
            addresses: nets(["10.7.0.1/24", "fd07::1/64"]),
            routes: behind.iter().map(|net| net.parse().unwrap()).collect(),
            forward: true,
            firewall: Some(firewall),
            ..Plan::default()
        };
        Applier::open(places(self.dir.path())).unwrap().apply(&plan).unwrap();
    }

    /// Sends the packet until something arrives on the far side, at most [`TIMES`] times. Returns
    /// the packets that arrived.
    fn send(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        let to = ends(packet).1;
        for _ in 0..TIMES {
            self.device.write([packet]).unwrap();
            let came = self.capture.packets().into_iter().filter(|packet| is_ip(packet));
            let came: Vec<_> = came.filter(|packet| ends(packet).1 == to).collect();
            if !came.is_empty() {
                return came;
            }
        }
        Vec::new()
    }
}

fn places(dir: &Path) -> Places {
    Places { state: dir.to_owned(), resolv_conf: dir.join("resolv.conf"), resolved: false }
}

fn nat() -> Firewall {
    let ports = vec![4_500];
    Firewall { nat: true, udp_ports: ports.clone(), tcp_ports: ports, ..Firewall::default() }
}

fn nft(line: &str) {
    let status = Command::new("nft").arg(line).status().unwrap();
    assert!(status.success(), "{line}");
}

/// An inner packet of a client to a host of the Internet.
fn packet(v6: bool, protocol: u8, transport: &[u8]) -> Vec<u8> {
    packet_to(HOST[usize::from(v6)], protocol, transport)
}

/// An inner packet of a client.
fn packet_to(to: &str, protocol: u8, transport: &[u8]) -> Vec<u8> {
    packet_between(CLIENT[usize::from(to.contains(':'))], to, protocol, transport)
}

fn packet_between(from: &str, to: &str, protocol: u8, transport: &[u8]) -> Vec<u8> {
    let to: IpAddr = to.parse().unwrap();
    let v6 = to.is_ipv6();
    let length = u16::try_from(transport.len()).unwrap();
    let mut packet = match (from.parse().unwrap(), to) {
        (IpAddr::V4(client), IpAddr::V4(host)) => {
            let [high, low] = (20 + length).to_be_bytes();
            let mut header = vec![0x45, 0, high, low, 0, 1, 0, 0, 64, protocol, 0, 0];
            header.extend([client.octets(), host.octets()].concat());
            let checksum = !sum(&header, 0);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        (IpAddr::V6(client), IpAddr::V6(host)) => {
            let [high, low] = length.to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, high, low, protocol, 64];
            header.extend([client.octets(), host.octets()].concat());
            header
        }
        _ => panic!("two families"),
    };
    let mut transport = transport.to_vec();
    // Connection tracking does check those of TCP and ICMP.
    let checksum_at = match protocol {
        TCP => 16,
        UDP => 6,
        _ => 2,
    };
    let addresses = if v6 { 8..40 } else { 12..20 };
    let pseudo = if protocol == ICMP { 0 } else { u32::from(protocol) + u32::from(length) };
    let mut summed = if protocol == ICMP { Vec::new() } else { packet[addresses].to_vec() };
    summed.extend(&transport);
    let checksum = !sum(&summed, pseudo);
    transport[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(transport);
    packet
}

/// The Internet checksum's sum (RFC 1071).
fn sum(bytes: &[u8], start: u32) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum = start + bytes.chunks(2).map(word).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn tcp(flags: u8) -> Vec<u8> {
    let mut header = [40_000u16.to_be_bytes(), 443u16.to_be_bytes()].concat();
    header.extend([0, 0, 0, 9, 0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    header
}

fn udp(from: u16) -> Vec<u8> {
    [from.to_be_bytes(), 53u16.to_be_bytes(), [0, 8], [0, 0]].concat()
}

fn is_ip(packet: &[u8]) -> bool {
    matches!(packet[0] >> 4, 4 | 6) && packet.len() >= 20
}

/// Source and destination.
fn ends(packet: &[u8]) -> (IpAddr, IpAddr) {
    let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
    let v6 = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
    if packet[0] >> 4 == 4 { (v4(12), v4(16)) } else { (v6(8), v6(24)) }
}

fn source_port(packet: &[u8]) -> u16 {
    let at = if packet[0] >> 4 == 4 { 20 } else { 40 };
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

/// Packets that belong to no connection, for each family, with a name.
fn unsolicited() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    for v6 in [false, true] {
        let segment = |flags| packet(v6, TCP, &tcp(flags));
        all.extend([
            ("RST", segment(0x04)),
            ("RST and ACK", segment(0x14)),
            ("FIN", segment(0x01)),
            ("SYN and ACK", segment(0x12)),
            ("no flag", segment(0)),
            ("all flags", segment(0x3f)),
        ]);
        // An error about a packet that the client never received from there.
        let foreign = packet(v6, UDP, &udp(9));
        let (protocol, reply, unreachable) = if v6 { (ICMPV6, 129, 1) } else { (ICMP, 0, 3) };
        let message = |kind: u8, rest: &[u8]| [&[kind, 0, 0, 0, 0, 7, 0, 1], rest].concat();
        all.push(("echo reply", packet(v6, protocol, &message(reply, &[]))));
        all.push(("unreachable", packet(v6, protocol, &message(unreachable, &foreign))));
        if v6 {
            // Connection tracking skips these, and so does NAT.
            let target: Ipv6Addr = HOST[1].parse().unwrap();
            for kind in 130..=136 {
                all.push(("discovery", packet(v6, protocol, &message(kind, &target.octets()))));
            }
        } else {
            all.push(("mask reply", packet(v6, protocol, &message(18, &[0; 4]))));
            all.push(("redirect", packet(v6, protocol, &message(5, &foreign))));
        }
    }
    all
}

#[test]
fn nothing_leaves_a_gateway_with_an_inner_address() {
    in_namespace("nothing_leaves_a_gateway_with_an_inner_address", || {
        let mut gateway = Gateway::new(nat());
        // The cable works, and allowed packets of a client are translated.
        for (v6, own) in [(false, "192.168.5.2"), (true, "fd05::2")] {
            let came = gateway.send(&packet(v6, UDP, &udp(5_000)));
            assert_eq!(ends(&came[0]).0, own.parse::<IpAddr>().unwrap());
        }
        let unsolicited = unsolicited();
        for (_, packet) in &unsolicited {
            gateway.device.write([&packet[..]]).unwrap();
        }
        let inner: Vec<IpNet> = ["10.7.0.0/24", "fd07::/64"].map(|net| net.parse().unwrap()).into();
        let leaked = |packet: &Vec<u8>| inner.iter().any(|net| net.contains(&ends(packet).0));
        let leaked: Vec<_> =
            gateway.capture.packets().into_iter().filter(|p| is_ip(p)).filter(leaked).collect();
        assert!(leaked.is_empty(), "{} of {}: {leaked:02x?}", leaked.len(), unsolicited.len());
        // Nor do packets from addresses that no client has. The core admits none of these.
        let mut foreign = packet(false, UDP, &udp(5_000));
        foreign[13] = 8;
        assert!(gateway.send(&foreign).is_empty());
        // Nor packets that the host itself sends from its inner address.
        fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "0").unwrap();
        let socket = std::net::UdpSocket::bind("10.7.0.1:0").unwrap();
        socket.send_to(b"news", "198.51.100.7:9").unwrap();
        let came = gateway.capture.packets();
        let came = came.iter().filter(|p| is_ip(p)).map(|p| ends(p).0);
        assert!(came.into_iter().all(|from| !inner[0].contains(&from)));
    });
}

#[test]
fn without_nat_clients_leave_as_they_are_and_still_nothing_unsolicited() {
    in_namespace("without_nat_clients_leave_as_they_are_and_still_nothing_unsolicited", || {
        let mut gateway = Gateway::new(Firewall { nat: false, ..nat() });
        for (v6, client) in [(false, CLIENT[0]), (true, CLIENT[1])] {
            let came = gateway.send(&packet(v6, UDP, &udp(4_500)));
            assert_eq!(ends(&came[0]).0, client.parse::<IpAddr>().unwrap());
            assert_eq!(source_port(&came[0]), 4_500);
        }
        gateway.capture.packets();
        for (_, packet) in unsolicited() {
            gateway.device.write([&packet[..]]).unwrap();
        }
        let hosts = HOST.map(|host| host.parse::<IpAddr>().unwrap());
        let came = gateway.capture.packets().into_iter().filter(|p| is_ip(p));
        let came: Vec<_> = came.filter(|packet| hosts.contains(&ends(packet).1)).collect();
        assert!(came.is_empty(), "{came:02x?}");
    });
}

#[test]
fn no_connection_gets_a_port_of_the_gateways_own() {
    in_namespace("no_connection_gets_a_port_of_the_gateways_own", || {
        let mut gateway = Gateway::new(nat());
        // Another program's NAT would have kept the port.
        nft(
            "table ip other { chain nat { type nat hook postrouting priority 100; masquerade; }; }",
        );
        for v6 in [false, true] {
            for (protocol, make) in [
                (UDP, udp as fn(u16) -> Vec<u8>),
                (TCP, |from| [&from.to_be_bytes(), &tcp(0x02)[2..]].concat()),
            ] {
                let port = |gateway: &mut Gateway, from| {
                    let came = gateway.send(&packet(v6, protocol, &make(from)));
                    source_port(&came[0])
                };
                assert_eq!(port(&mut gateway, 4_499), 4_499);
                assert_eq!(port(&mut gateway, 4_501), 4_501);
                let instead = port(&mut gateway, 4_500);
                assert!(instead > 4_500, "{instead}");
                // Another service of the host, which the gateway does not know.
                let instead = port(&mut gateway, 22);
                assert!(instead > 1_024 && instead != 4_500, "{instead}");
            }
        }
    });
}

/// If the ruleset is missing, another program's connection tracking tracks a new flow without a
/// translation. The flow must be translated when the ruleset returns.
#[test]
fn what_began_without_the_ruleset_is_translated_when_it_is_back() {
    in_namespace("what_began_without_the_ruleset_is_translated_when_it_is_back", || {
        let mut gateway = Gateway::new(nat());
        nft("table ip other { chain c { type filter hook forward priority 0; ct state new; }; }");
        nft("delete table inet rove_gateway");
        let flow = packet(false, UDP, &udp(5_000));
        let came = gateway.send(&flow);
        assert_eq!(ends(&came[0]).0, CLIENT[0].parse::<IpAddr>().unwrap(), "this is the fault");
        gateway.capture.packets();
        gateway.apply(nat());
        gateway.capture.packets();
        let came = gateway.send(&flow);
        assert_eq!(ends(&came[0]).0, "192.168.5.2".parse::<IpAddr>().unwrap());
    });
}

/// The addresses that a host has besides those of its links: of services that many hosts offer
/// (anycast), or that move between two hosts (VRRP). IPv6 ones of the latter are deprecated.
#[test]
fn clients_reach_this_host_at_no_address_that_is_not_admitted() {
    in_namespace("clients_reach_this_host_at_no_address_that_is_not_admitted", || {
        const SERVICE: [&str; 2] = ["203.0.113.53", "2001:db8:53::1"];
        let mut gateway = Gateway::new(nat());
        let add = |device: &str, address: &str, options: &str| {
            let line = format!("ip addr add {address} dev {device} {options}");
            assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success(), "{line}");
        };
        // After the ruleset.
        add("lo", SERVICE[0], "");
        add("lo", SERVICE[1], "preferred_lft 0");
        net::up("lo");
        let inner = ["10.7.0.1", "fd07::1"];
        let own = [SERVICE, inner, ["192.168.5.2", "fd05::2"]].concat();
        let everywhere = ["0.0.0.0:53", "[::]:54"].map(|at| std::net::UdpSocket::bind(at).unwrap());
        everywhere.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let [v4, v6] = &everywhere;
        let reached = |gateway: &mut Gateway, to: &str, port: u16| {
            let mut datagram = udp(5_000);
            datagram[2..4].copy_from_slice(&port.to_be_bytes());
            gateway.device.write([&packet_to(to, UDP, &datagram)[..]]).unwrap();
            let socket = if port == 53 && !to.contains(':') { v4 } else { v6 };
            socket.recv_from(&mut [0; 100]).is_ok()
        };
        for to in &own {
            let port = if to.contains(':') { 54 } else { 53 };
            // The gateway's own name server is at port 53 of the inner addresses.
            let expected = *to == inner[0];
            assert_eq!(reached(&mut gateway, to, port), expected, "{to}");
        }
        let broadcast = ["10.7.0.255", "192.168.5.255", "255.255.255.255", "224.0.0.1"];
        for to in broadcast {
            assert!(!reached(&mut gateway, to, 53), "{to}");
        }
        let admit = |to: &str, port| Destination { to: to.parse().unwrap(), port };
        let admitted = vec![
            admit("203.0.113.53/32", Some(53)),
            admit("2001:db8:53::/64", None),
            admit("192.168.5.2/32", Some(54)),
        ];
        gateway.apply(Firewall { admitted, ..nat() });
        for (to, port, expected) in [
            (SERVICE[0], 53, true),
            (SERVICE[0], 54, false),
            (SERVICE[1], 54, true),
            ("192.168.5.2", 53, false),
            ("192.168.5.2", 54, true),
            ("fd05::2", 54, false),
            (inner[1], 54, false),
            (inner[0], 53, true),
        ] {
            assert_eq!(reached(&mut gateway, to, port), expected, "{to} at port {port}");
        }
    });
}

/// Counts ICMP messages that reach this host's own stack.
fn count_icmp() {
    nft("table inet watch { counter seen { };
        chain c { type filter hook input priority 0;
        iifname rove0 meta l4proto { icmp, ipv6-icmp } counter name seen; }; }");
}

fn icmp_counted() -> u64 {
    let output = Command::new("nft").args(["reset", "counter", "inet", "watch", "seen"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let count = text.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
    count.unwrap().parse().unwrap()
}

#[test]
fn of_icmp_the_inner_addresses_take_pings_and_errors_of_their_connections() {
    in_namespace("of_icmp_the_inner_addresses_take_pings_and_errors_of_their_connections", || {
        let mut gateway = Gateway::new(nat());
        count_icmp();
        let own = ["10.7.0.1", "fd07::1"];
        for (v6, protocol, ping) in [(false, ICMP, 8), (true, ICMPV6, 128)] {
            let own = own[usize::from(v6)];
            for kind in 0..=u8::MAX {
                let message = [kind, 0, 0, 0, 0, 7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                gateway.device.write([&packet_to(own, protocol, &message)[..]]).unwrap();
                assert_eq!(icmp_counted(), u64::from(kind == ping), "ICMP type {kind} to {own}");
            }
            // The host asked a client something.
            let client: IpAddr = CLIENT[usize::from(v6)].parse().unwrap();
            let socket = std::net::UdpSocket::bind((own, 0)).unwrap();
            socket.send_to(b"news", (client, 9)).unwrap();
            let port = socket.local_addr().unwrap().port();
            let asked = turned(
                &packet(v6, UDP, &[&[0, 9][..], &port.to_be_bytes(), &[0, 12, 0, 0]].concat()),
                own,
            );
            let errors: &[(u8, u8, u64)] =
                if v6 { &[(1, 4, 1), (2, 0, 1), (137, 0, 0)] } else { &[(3, 4, 1), (5, 1, 0)] };
            for &(kind, code, expected) in errors {
                let message = [&[kind, code, 0, 0, 0, 0, 5, 0], &asked[..]].concat();
                gateway.device.write([&packet_to(own, protocol, &message)[..]]).unwrap();
                assert_eq!(icmp_counted(), expected, "an error, type {kind} to {own}");
            }
        }
    });
}

/// A client's packet as the packet of `own` that it answers.
fn turned(packet: &[u8], own: &str) -> Vec<u8> {
    let mut turned = packet.to_vec();
    let (addresses, length) = if packet[0] >> 4 == 4 { (12, 4) } else { (8, 16) };
    let at = addresses + length;
    let client = packet[addresses..at].to_vec();
    match own.parse().unwrap() {
        IpAddr::V4(own) => turned[addresses..at].copy_from_slice(&own.octets()),
        IpAddr::V6(own) => turned[addresses..at].copy_from_slice(&own.octets()),
    }
    turned[at..at + length].copy_from_slice(&client);
    let ports = at + length;
    turned.swap(ports, ports + 2);
    turned.swap(ports + 1, ports + 3);
    turned
}

fn tracked() -> u64 {
    conntrack::tracked().unwrap().connections
}

/// Makes a transport header from a number, for example the source port.
type Make<'a> = &'a dyn Fn(u16) -> Vec<u8>;

/// Entries that the host's own packets may add meanwhile.
const SLACK: u64 = 10;

/// The kernel counts TCP connections that have ended no more, so their rate is limited.
#[test]
fn each_entry_that_a_client_makes_counts_for_its_share() {
    in_namespace("each_entry_that_a_client_makes_counts_for_its_share", || {
        const SHARE: u32 = 256;
        let admit = |to: &str| Destination { to: to.parse().unwrap(), port: None };
        let admitted = vec![admit("192.168.5.2/32"), admit("fd05::2/128")];
        let firewall = |share| Firewall { share: Some(share), admitted: admitted.clone(), ..nat() };
        let mut gateway = Gateway::new(firewall(SHARE));
        // It answers, so that the connections stay.
        let _server = std::net::TcpListener::bind("[::]:53").unwrap();
        let own = [["10.7.0.1", "192.168.5.2"], ["fd07::1", "fd05::2"]];
        for v6 in [false, true] {
            let [inner, outer] = own[usize::from(v6)];
            let (icmp, ping) = if v6 { (ICMPV6, 128) } else { (ICMP, 8) };
            let kinds: [(&str, u8, Make<'_>); 6] = [
                (inner, UDP, &udp),
                (inner, icmp, &|id| [&[ping, 0, 0, 0], &id.to_be_bytes()[..], &[0, 1]].concat()),
                (inner, TCP, &|from| syn(from, 53)),
                (outer, UDP, &udp),
                (outer, TCP, &|from| syn(from, 53)),
                (HOST[usize::from(v6)], UDP, &udp),
            ];
            let before = tracked();
            for (to, protocol, make) in &kinds {
                let one = tracked();
                gateway.device.write([&packet_to(to, *protocol, &make(9_999))[..]]).unwrap();
                assert_eq!(tracked(), one + 1, "protocol {protocol} to {to} makes an entry");
            }
            for (to, protocol, make) in &kinds {
                for from in 10_000..10_300 {
                    gateway.device.write([&packet_to(to, *protocol, &make(from))[..]]).unwrap();
                }
                let made = tracked() - before;
                assert!(made <= u64::from(SHARE) + SLACK, "{made} after {protocol} to {to}");
            }
            assert!(tracked() - before >= u64::from(SHARE), "no flood");
            // A gateway that starts again goes on counting.
            gateway.apply(firewall(SHARE));
            for from in 11_000..11_300 {
                gateway.device.write([&packet_to(inner, UDP, &udp(from))[..]]).unwrap();
            }
            let made = tracked() - before;
            assert!(made <= u64::from(SHARE) + SLACK, "{made} after a restart");
        }
        // A burst of TCP connections is admitted, and no more than a burst, also from all of the
        // addresses behind a client.
        gateway.apply_with(firewall(2_000), &["172.30.0.0/16", "fd30::/48"]);
        for source in [CLIENT[0], CLIENT[1], "172.30.0.1", "fd30::1"] {
            let before = tracked();
            let start = std::time::Instant::now();
            for number in 0..1_500 {
                let from = source_of(source, number);
                let packet = packet_between(
                    &from,
                    HOST[usize::from(source.contains(':'))],
                    TCP,
                    &syn(20_000 + number, 443),
                );
                gateway.device.write([&packet[..]]).unwrap();
            }
            let made = tracked() - before;
            let more = 16 * (start.elapsed().as_secs() + 1);
            assert!((1_000..=1_000 + more + SLACK).contains(&made), "{made} of {source}");
        }
    });
}

/// A large share is counted in parts, which fill unevenly. The parts that are full are noted for a
/// second, so a source whose connections have ended opens new ones soon.
#[test]
fn a_large_share_is_counted_in_parts() {
    in_namespace("a_large_share_is_counted_in_parts", || {
        const SHARE: u32 = 4_096;
        let admit = |to: &str| Destination { to: to.parse().unwrap(), port: None };
        let admitted = vec![admit("192.168.5.2/32"), admit("fd05::2/128")];
        let mut gateway = Gateway::new(nat());
        let firewall = Firewall { share: Some(SHARE), admitted, ..nat() };
        gateway.apply_with(firewall, &["172.30.0.0/16", "fd30::/48"]);
        let list = |what: &[&str]| {
            let output = Command::new("nft").arg("list").args(what).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let rules = list(&["table", "inet", "rove_gateway"]);
        assert_eq!(rules.matches("ct count over 1024").count(), 4 * 4, "{rules}");
        std::fs::write("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "6").unwrap();
        let mut open = |source: &str, ports: std::ops::Range<u16>| {
            let before = tracked();
            for port in ports {
                let to = if source.contains(':') { "fd05::2" } else { "192.168.5.2" };
                let packet = packet_between(&source_of(source, port), to, UDP, &udp(port));
                gateway.device.write([&packet[..]]).unwrap();
            }
            tracked().saturating_sub(before)
        };
        let sources = [CLIENT[0], CLIENT[1], "172.30.0.1", "fd30::1"];
        for source in sources {
            let (made, share) = (open(source, 10_000..16_000), u64::from(SHARE));
            assert!((share * 9 / 10..=share + SLACK).contains(&made), "{made} of {source}");
        }
        // The kernel forgets them after 6 s.
        std::thread::sleep(std::time::Duration::from_secs(9));
        let server = std::net::UdpSocket::bind("[::]:53").unwrap();
        server.set_read_timeout(Some(std::time::Duration::from_millis(500))).unwrap();
        for source in sources {
            // The kernel takes some ended connections off a list at each timer tick.
            for port in 20_000..20_100 {
                open(source, port..port + 1);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            let came = (0..100).take_while(|_| server.recv(&mut [0; 20]).is_ok()).count();
            assert_eq!(came, 100, "new connections of {source}");
        }
    });
}

/// The same address of a client, or another one behind it.
fn source_of(source: &str, number: u16) -> String {
    match source {
        "172.30.0.1" => format!("172.30.{}.1", number % 200),
        "fd30::1" => format!("fd30::{number:x}"),
        client => client.to_owned(),
    }
}

fn syn(from: u16, to: u16) -> Vec<u8> {
    [&from.to_be_bytes(), &to.to_be_bytes(), &tcp(0x02)[4..]].concat()
}

#[test]
fn the_ruleset_of_an_earlier_version_goes() {
    in_namespace("the_ruleset_of_an_earlier_version_goes", || {
        let gateway = Gateway::new(nat());
        nft("table inet rove_nat { chain nat { type nat hook postrouting priority 100; }; }");
        gateway.apply(nat());
        let tables = || {
            let output = Command::new("nft").args(["list", "tables"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert!(!tables().contains("rove_nat"), "{}", tables());
        let mut applier = Applier::open(places(gateway.dir.path())).unwrap();
        applier.undo().unwrap();
        assert_eq!(tables(), "");
    });
}
