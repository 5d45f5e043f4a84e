//! Networks with IPv6 only: a gateway with an IPv4 address is reached through their NAT64.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

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
    sh(&format!("ip -n router addr add {address}/128 dev lo"));
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
