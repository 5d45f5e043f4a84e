//! Networks with IPv6 only: a gateway with an IPv4 address is reached through their NAT64.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use rove_os::tun::{Tun, TunOptions};
use support::names::serve_zone;
use support::netns::{
    Lab, Running, download, in_namespace, inside, own_etc, pattern, serve_pattern, sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";
/// The gateway's address with the well-known prefix, and with a network's own prefix.
const USUAL: &str = "64:ff9b::c000:201";
const OWN: &str = "2001:db8:64::c000:201";
/// Bytes of the largest datagram.
const DATAGRAM: usize = 65_535;

/// A gateway without IPv6, reached as `endpoint`.
fn begin(lab: &Lab, endpoint: &str) -> Running {
    sh("ip -n gateway -6 addr flush dev to-router scope global");
    let line = format!("gateway init --network 10.77.0.0/24,fd77::/64 --endpoint {endpoint}");
    lab.rove("gateway", &line).ok();
    let config = lab.home("gateway").join("gateway.toml");
    support::netns::edit(&config, "nat = true", "nat = false");
    let gateway = lab.gateway();
    serve_pattern("server", WEB, 100_000);
    gateway
}

/// Translates packets to `address` on the router and sends them to the gateway, with its own socket
/// for each sender, as NAT64 does.
fn translate(address: &str) {
    sh(&format!("ip -n router addr add {address}/128 dev lo nodad"));
    let at: SocketAddr = format!("[{address}]:4500").parse().unwrap();
    let front = inside("router", move || UdpSocket::bind(at).unwrap()).join().unwrap();
    inside("router", move || {
        let mut senders: BTreeMap<SocketAddr, UdpSocket> = BTreeMap::new();
        let mut datagram = vec![0; DATAGRAM];
        while let Ok((length, from)) = front.recv_from(&mut datagram) {
            let back = senders.entry(from).or_insert_with(|| {
                let back = UdpSocket::bind("0.0.0.0:0").unwrap();
                back.connect("192.0.2.1:4500").unwrap();
                let (answers, front) = (back.try_clone().unwrap(), front.try_clone().unwrap());
                thread::spawn(move || {
                    let mut answer = vec![0; DATAGRAM];
                    while let Ok(length) = answers.recv(&mut answer) {
                        let _ = front.send_to(&answer[..length], from);
                    }
                });
                back
            });
            let _ = back.send(&datagram[..length]);
        }
    });
}

/// The address with which a translator on the client sends, and its network's prefix, of which
/// nobody else knows.
const CLAT: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0xc, 0, 0, 0, 0, 0, 0, 0, 0, 0xc1, 0xa7];
const PREFIX: [u8; 12] = [0x20, 1, 0xd, 0xb8, 0, 0x64, 0, 0, 0, 0, 0, 0];

/// Runs a translator on the client, as clatd with TAYGA does: it makes IPv6 packets of IPv4 ones
/// and gives them back to the kernel, which forwards them.
fn clat() {
    let options = TunOptions { name: "clat", persistent: false, offload: false };
    let mut tun = inside("client", move || Tun::open(options).unwrap()).join().unwrap();
    sh("nsenter --net=/run/netns/client sh -c 'echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
        ip -n client link set clat up
        ip -n client addr add 192.0.0.1/32 dev clat
        ip -n client route add default dev clat
        ip -n client -6 route add 2001:db8:c::c1a7/128 dev clat
        ip -n router -6 route add 2001:db8:c::c1a7/128 via 2001:db8:c::2");
    thread::spawn(move || {
        loop {
            let mut packets = Vec::new();
            let read = tun.read(|segment, _| {
                packets.extend(to_other_family(&[segment.header, segment.payload].concat()));
            });
            if read.is_err() {
                return;
            }
            if packets.is_empty() {
                thread::sleep(Duration::from_millis(2));
            }
            for packet in &packets {
                let _ = tun.write([&packet[..]]);
            }
        }
    });
}

/// RFC 7915, for UDP.
fn to_other_family(packet: &[u8]) -> Option<Vec<u8>> {
    let (ends, mut udp, v6) = match packet.first()? >> 4 {
        4 if packet[9] == 17 => {
            ([&CLAT[..], &PREFIX, &packet[16..20]].concat(), packet[20..].to_vec(), true)
        }
        6 if packet[6] == 17 && packet[8..20] == PREFIX => {
            ([&packet[20..24], &[192, 0, 0, 1]].concat(), packet[40..].to_vec(), false)
        }
        _ => return None,
    };
    let length = u16::try_from(udp.len()).ok()?;
    udp[6..8].fill(0);
    let pseudo = [&ends[..], &[0, 17], &length.to_be_bytes(), &udp].concat();
    udp[6..8].copy_from_slice(&checksum(&pseudo));
    let header = if v6 {
        let [high, low] = length.to_be_bytes();
        [&[0x60, 0, 0, 0, high, low, 17, 64], &ends[..]].concat()
    } else {
        let [high, low] = (length + 20).to_be_bytes();
        let mut header = [&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, 17, 0, 0], &ends[..]].concat();
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum);
        header
    };
    Some([header, udp].concat())
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

/// The network tells nobody its prefix, and a program on this host knows it (464XLAT).
#[test]
fn a_host_whose_translator_alone_knows_the_prefix_uses_its_ipv4() {
    in_namespace("a_host_whose_translator_alone_knows_the_prefix_uses_its_ipv4", || {
        own_etc();
        fs::write("/etc/resolv.conf", "nameserver 2001:db8:c::1\n").unwrap();
        let lab = Lab::new("464XLAT");
        let _gateway = begin(&lab, "192.0.2.1:4500");
        let invite = lab.invite("laptop");
        leave_ipv4();
        translate(OWN);
        clat();
        for options in ["", "--kill-switch", "--route 198.51.100.0/24"] {
            lab.rove("client", &format!("up {invite} {options}")).ok();
            assert!(remotes(&lab).contains("192.0.2.1:4500"), "{}", remotes(&lab));
            assert!(download("client", WEB).unwrap() == pattern(100_000), "{options}");
            lab.rove("client", "down").ok();
        }
    });
}

fn leave_ipv4() {
    sh("ip -n client -4 addr flush dev to-router");
}

fn remotes(lab: &Lab) -> String {
    lab.rove("client", "paths").ok()
}

#[test]
fn a_gateway_with_an_ipv4_address_is_reached_by_nat64() {
    in_namespace("a_gateway_with_an_ipv4_address_is_reached_by_nat64", || {
        own_etc();
        fs::write("/etc/resolv.conf", "nameserver 2001:db8:c::1\n").unwrap();
        let lab = Lab::new("NAT64");
        let _gateway = begin(&lab, "192.0.2.1:4500");
        let invite = lab.invite("laptop");
        leave_ipv4();

        // Without a translator, the error must not blame UDP.
        let error = lab.rove("client", &format!("up {invite} --timeout 2s")).fails();
        assert!(error.contains("this network has no IPv4, and the gateway is known by"), "{error}");
        assert!(!error.contains("UDP"), "{error}");

        // The well-known prefix works without an announcement.
        translate(USUAL);
        lab.rove("client", &format!("up {invite}")).ok();
        assert!(remotes(&lab).contains(&format!("[{USUAL}]:4500")), "{}", remotes(&lab));
        assert!(download("client", WEB).unwrap() == pattern(100_000));
        lab.rove("client", "down").ok();
        // The client stores the gateway's IPv4 address, which is valid everywhere.
        let store = fs::read(lab.home("client").join("client.redb")).unwrap();
        let has = |text: &[u8]| store.windows(text.len()).any(|part| part == text);
        assert!(has(b"192.0.2.1:4500") && !has(b"64:ff9b"));
        sh(&format!("ip -n router addr del {USUAL}/128 dev lo"));

        // A network's own prefix is looked up outside the tunnel, which carries all other traffic.
        translate(OWN);
        let own = [("ipv4only.arpa", "2001:db8:64::192.0.0.170"), ("ipv4only.arpa", "192.0.0.170")];
        serve_zone("router", "[2001:db8:c::1]:53", &own);
        lab.rove("client", "up").ok();
        assert!(remotes(&lab).contains(&format!("[{OWN}]:4500")), "{}", remotes(&lab));
        assert!(download("client", WEB).unwrap() == pattern(100_000));
        lab.rove("client", "down").ok();
    });
}

/// A client moves to a network with IPv6 only. Its name servers are written a second after its
/// address, as DHCP and router advertisements do. No change of a link reports this.
fn moves(what: &str, endpoint: &str, names: &[(&'static str, &str)], to: &str) {
    own_etc();
    let lab = Lab::new(what);
    sh("ip -n client -6 addr flush dev to-router scope global");
    serve_zone("router", "203.0.113.254:53", &[("vpn.example.org", "192.0.2.1")]);
    serve_zone("router", "[2001:db8:c::1]:53", names);
    translate(to);
    fs::write("/etc/resolv.conf", "nameserver 203.0.113.254\n").unwrap();
    // The tunnel's name server stands in the file while the client is up.
    let _gateway = begin(&lab, &format!("{endpoint} --dns 10.77.0.1"));
    let invite = lab.invite("laptop");
    lab.rove("client", &format!("up {invite}")).ok();
    assert!(remotes(&lab).contains("192.0.2.1:4500"), "{}", remotes(&lab));
    leave_ipv4();
    sh("ip -n client addr add 2001:db8:c::5/64 dev to-router nodad
        ip -n client -6 route replace default via 2001:db8:c::1 dev to-router");
    thread::sleep(Duration::from_secs(1));
    let servers = "nameserver 2001:db8:c::1\n";
    fs::write("/etc/resolv.conf.new", servers).unwrap();
    fs::rename("/etc/resolv.conf.new", "/etc/resolv.conf").unwrap();
    wait_until("the move is completed", || {
        remotes(&lab).contains(&format!("[{to}]:4500"))
            && lab.rove("client", "status").ok().contains("state        up")
    });
    assert!(download("client", WEB).unwrap() == pattern(100_000));
    lab.rove("client", "down").ok();
    assert_eq!(fs::read_to_string("/etc/resolv.conf").unwrap(), servers);
}

#[test]
fn a_move_to_nat64_is_completed_once_the_network_tells_its_prefix() {
    in_namespace("a_move_to_nat64_is_completed_once_the_network_tells_its_prefix", || {
        let names = [("ipv4only.arpa", "2001:db8:64::192.0.0.170")];
        moves("a move to NAT64", "192.0.2.1:4500", &names, OWN);
    });
}

#[test]
fn a_move_is_completed_once_the_network_has_a_name_server() {
    in_namespace("a_move_is_completed_once_the_network_has_a_name_server", || {
        let names = [("vpn.example.org", OWN)];
        moves("a name behind NAT64", "vpn.example.org:4500", &names, OWN);
    });
}
