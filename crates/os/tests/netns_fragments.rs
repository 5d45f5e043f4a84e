//! Fragments of inner packets that a neighbour on the cable forges: none becomes a part of a packet
//! of the tunnel, neither at a gateway nor at a client.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    fs,
    net::{IpAddr, UdpSocket},
    process::Command,
};

use ipnet::IpNet;
use rove_os::{
    plan::{Applier, Firewall, Guard, Places, Plan},
    tun::{Tun, TunOptions},
};
use support::{capture::Capture, has_program, in_namespace, net, skip_inside};

const UDP: u8 = 17;
/// The last part of each datagram, and a forged one with the same checksum.
const TRUE: &[u8; 8] = b"abcdefgh";
const FORGED: &[u8; 8] = b"cdabghef";
/// When the forged part arrives: never, or before one of the true parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Forged {
    Never,
    BeforeFirst,
    BeforeLast,
}

/// Attempts to send. A new virtual cable needs a moment before it works.
const TIMES: usize = 40;

fn nets(nets: &[&str]) -> Vec<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

/// A host with a tunnel, on a cable with a neighbour.
struct Host {
    device: Tun,
    neighbour: Capture,
    applier: Applier,
    next: u16,
    _dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        if !has_program("nft") {
            skip_inside("fragments", "the program nft is missing (package nftables)");
        }
        net::uplink(false);
        let options = TunOptions { name: "rove0", persistent: true, offload: true };
        let device = support::tun("TUN", options);
        let dir = tempfile::tempdir().unwrap();
        let resolv_conf = dir.path().join("resolv.conf");
        fs::write(&resolv_conf, "").unwrap();
        let places = Places { state: dir.path().to_owned(), resolv_conf, resolved: false };
        let (applier, neighbour) = (Applier::open(places).unwrap(), Capture::start("far"));
        Self { device, neighbour, applier, next: 0, _dir: dir }
    }

    /// The two parts of a datagram from the tunnel arrive, and a forged second part. Returns the
    /// packets that then leave on the cable.
    fn mix(&mut self, from: &str, to: &str, forged: Forged) -> Vec<Vec<u8>> {
        self.next += 1;
        let [first, last] = fragments(from, to, self.next, TRUE);
        let [_, third] = fragments(from, to, self.next, FORGED);
        self.neighbour.packets();
        let mut left = Vec::new();
        for (part, is_next) in [(first, Forged::BeforeFirst), (last, Forged::BeforeLast)] {
            if forged == is_next {
                self.neighbour.send(&third);
                left.extend(self.neighbour.packets());
            }
            self.device.write([&part[..]]).unwrap();
            left.extend(self.neighbour.packets());
        }
        left
    }
}

/// A datagram to port 9 in two fragments.
fn fragments(from: &str, to: &str, id: u16, last: &[u8; 8]) -> [Vec<u8>; 2] {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let bytes = |address| match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let addresses = [bytes(from), bytes(to)].concat();
    let mut datagram = [&[0x13, 0x88, 0, 9, 0, 32, 0, 0], &b"the first part, "[..], last].concat();
    let pseudo = [&addresses[..], &[0, UDP, 0, 32], &datagram].concat();
    datagram[6..8].copy_from_slice(&(!sum(&pseudo)).to_be_bytes());
    [(0, true), (24, false)].map(|(offset, more)| {
        let part = if more { &datagram[..24] } else { &datagram[24..] };
        let [id_high, id_low] = id.to_be_bytes();
        if from.is_ipv4() {
            let [high, low] = (offset / 8 + if more { 0x2000_u16 } else { 0 }).to_be_bytes();
            let length = 20 + part.len() as u8;
            let mut header = vec![0x45, 0, 0, length, id_high, id_low, high, low, 64, UDP, 0, 0];
            header.extend(&addresses);
            let checksum = !sum(&header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            return [&header, part].concat();
        }
        let mut packet = vec![0x60, 0, 0, 0, 0, 8 + part.len() as u8, 44, 64];
        packet.extend(&addresses);
        packet.extend([UDP, 0, 0, offset as u8 | u8::from(more), 0, 0, id_high, id_low]);
        [&packet, part].concat()
    })
}

/// The Internet checksum's sum (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair[1]);
    let mut sum = bytes.chunks(2).map(word).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn have(packets: &[Vec<u8>], part: &[u8; 8]) -> bool {
    packets.iter().any(|packet| packet.windows(8).any(|window| window == part))
}

/// Checks that datagrams leave on the cable as they were sent. A new cable or a busy machine may
/// need several attempts.
fn check_what_leaves(host: &mut Host, ends: &[(&str, &str)], what: &str) {
    for (from, to) in ends {
        for forged in [Forged::Never, Forged::BeforeFirst, Forged::BeforeLast] {
            let mut is_whole = |_| {
                let left = host.mix(from, to, forged);
                assert!(!have(&left, FORGED), "{what}: {from} to {to}, {forged:?}: mixed");
                have(&left, TRUE)
            };
            assert!((0..TIMES).any(&mut is_whole), "{what}: {from} to {to}, {forged:?}: lost");
        }
    }
}

#[test]
fn a_gateways_neighbour_adds_nothing_to_a_clients_packets() {
    in_namespace("a_gateways_neighbour_adds_nothing_to_a_clients_packets", || {
        let mut host = Host::new();
        for nat in [true, false] {
            let plan = Plan {
                device: "rove0".to_owned(),
                persistent: true,
                mtu: 1_400,
                addresses: nets(&["10.7.0.1/24", "fd07::1/64"]),
                routes: nets(&["172.30.0.0/16", "fd30::/48"]),
                forward: true,
                firewall: Some(Firewall { nat, ..Firewall::default() }),
                ..Plan::default()
            };
            host.applier.apply(&plan).unwrap();
            let ends = [
                ("10.7.0.9", "198.51.100.7"),
                ("fd07::9", "2001:db8:b::7"),
                ("172.30.0.9", "198.51.100.7"),
                ("fd30::9", "2001:db8:b::7"),
            ];
            check_what_leaves(&mut host, &ends, &format!("nat = {nat}"));
        }
    });
}

#[test]
fn a_clients_neighbour_adds_nothing_to_the_tunnels_packets() {
    in_namespace("a_clients_neighbour_adds_nothing_to_the_tunnels_packets", || {
        let mut host = Host::new();
        let behind = nets(&["192.168.5.128/25", "fd05::8000:0:0:0/65"]);
        let plan = Plan {
            device: "rove0".to_owned(),
            mtu: 1_400,
            addresses: nets(&["10.7.0.2/24", "fd07::2/64"]),
            routes: nets(&["0.0.0.0/0", "::/0", "10.7.0.0/24", "fd07::/64"]),
            guard: Some(Guard { behind, ..Guard::default() }),
            allow_lan: true,
            forward: true,
            ..Plan::default()
        };
        host.applier.apply(&plan).unwrap();
        let ends = [("10.7.0.1", "192.168.5.200"), ("fd07::1", "fd05::8000:0:0:9")];
        check_what_leaves(&mut host, &ends, "an advertised network");
        let socket = UdpSocket::bind("[::]:9").unwrap();
        socket.set_nonblocking(true).unwrap();
        let received = || {
            let mut datagram = [0; 100];
            let len = socket.recv(&mut datagram).ok()?;
            datagram[..len].last_chunk::<8>().copied()
        };
        for (from, to) in [("10.7.0.1", "10.7.0.2"), ("fd07::1", "fd07::2")] {
            for forged in [Forged::BeforeFirst, Forged::BeforeLast] {
                host.mix(from, to, forged);
                assert_eq!(received(), Some(*TRUE), "{from} to {to}, {forged:?}");
            }
        }
        // Fragments from outside to the host's other addresses still arrive.
        for (from, to) in [("192.168.5.9", "192.168.5.2"), ("fd05::9", "fd05::2")] {
            let arrives = |_| {
                host.next += 1;
                let parts = fragments(from, to, host.next, TRUE);
                parts.iter().for_each(|part| host.neighbour.send(part));
                host.neighbour.packets();
                received() == Some(*TRUE)
            };
            assert!((0..TIMES).any(arrives), "{from} to {to}");
        }
    });
}

/// How many of the tunnel's packets ended with the forged and the true part since the last call.
fn sent() -> [u64; 2] {
    let output = Command::new("nft").args(["reset", "counters", "table", "inet", "watch"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    ["forged", "true"].map(|name| {
        let rest = text.split(&format!("counter {name}_part ")).nth(1).unwrap();
        let count = rest.split("packets ").nth(1).and_then(|rest| rest.split(' ').next());
        count.unwrap().parse().unwrap()
    })
}

#[test]
fn a_clients_neighbour_adds_nothing_to_what_containers_send_into_the_tunnel() {
    let name = "a_clients_neighbour_adds_nothing_to_what_containers_send_into_the_tunnel";
    in_namespace(name, || {
        const BRIDGE: [u8; 6] = [2, 0, 0, 0, 0, 0xaa];
        let mut host = Host::new();
        let run = |line: &str| {
            assert!(Command::new("sh").args(["-ec", line]).status().unwrap().success(), "{line}");
        };
        run("ip link add docker0 address 02:00:00:00:00:aa type bridge
            ip addr add 172.17.0.1/16 dev docker0
            ip addr add fd17::1/64 dev docker0 nodad
            ip link add c0 type veth peer name c1
            ip link set c0 master docker0
            for link in docker0 c0 c1; do ip link set $link up; done
            for key in iptables ip6tables; do
                key=/proc/sys/net/bridge/bridge-nf-call-$key
                test ! -e $key || echo 0 > $key
            done
            nft 'table inet watch { counter forged_part { }; counter true_part { };
            chain c { type filter hook postrouting priority 300;
            oifname rove0 @th,192,64 0x6364616267686566 counter name forged_part
            oifname rove0 @th,192,64 0x6162636465666768 counter name true_part; }; }'");
        let plan = Plan {
            device: "rove0".to_owned(),
            mtu: 1_400,
            addresses: nets(&["10.7.0.2/24", "fd07::2/64"]),
            routes: nets(&["0.0.0.0/0", "::/0", "10.7.0.0/24", "fd07::/64"]),
            guard: Some(Guard::default()),
            forward: true,
            ..Plan::default()
        };
        host.applier.apply(&plan).unwrap();
        let container = Capture::start("c1");
        for (from, to) in [("172.17.0.2", "198.51.100.7"), ("fd17::2", "2001:db8:b::7")] {
            for is_forged in [false, true] {
                let mut arrives = |_| {
                    host.next += 1;
                    let [first, last] = fragments(from, to, host.next, TRUE);
                    container.send_to(BRIDGE, &first);
                    if is_forged {
                        host.neighbour.send(&fragments(from, to, host.next, FORGED)[1]);
                        host.neighbour.packets();
                    }
                    container.send_to(BRIDGE, &last);
                    container.packets();
                    let [forged, whole] = sent();
                    assert_eq!(forged, 0, "{from} to {to}: mixed");
                    whole == 1
                };
                assert!((0..TIMES).any(&mut arrives), "{from} to {to}, {is_forged}: lost");
            }
        }
    });
}
