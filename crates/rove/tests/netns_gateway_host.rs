//! What the host of a gateway does with packets of clients: filters, routes and rules that stop
//! them, which the gateway's status names, and one client that opens connections without end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::netns::{
    Lab, Running, download, find, in_namespace, inside, need_program, pattern, reaches,
    serve_pattern, sh, skip_inside, wait_until,
};

const WEB: &str = "198.51.100.80:80";

/// A gateway that translates.
fn with_nat(lab: &Lab) -> Running {
    let init = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
    lab.rove("gateway", init).ok();
    lab.gateway()
}

fn on_gateway(line: &str) -> String {
    sh(&format!("nsenter --net=/run/netns/gateway sh -ec '{line}'"))
}

fn status(lab: &Lab) -> Value {
    let status = lab.rove("gateway", "gateway status --json").ok();
    serde_json::from_str(&status).unwrap()
}

/// The lines about the host's problems.
fn problems(lab: &Lab) -> Vec<String> {
    let text = lab.rove("gateway", "gateway status").ok();
    text.lines().filter(|line| line.starts_with("problem ")).map(str::to_owned).collect()
}

/// What is done to the host, how it is undone, what the one problem names, and what it does not.
const OBSTACLES: [(&str, &str, [&str; 3], &str); 10] = [
    // As on images of Oracle and RHEL.
    (
        "nft \"table ip filter {
            chain FORWARD { type filter hook forward priority 0; reject; }; }\"",
        "nft delete table ip filter",
        ["IPv4 packets", "the chain ip filter FORWARD", "iptables -I FORWARD -i rove-gw -j ACCEPT"],
        "IPv6",
    ),
    (
        "nft \"table ip6 filter {
            chain FORWARD { type filter hook forward priority 0; drop; }; }\"",
        "nft delete table ip6 filter",
        ["IPv6 packets", "the chain ip6 filter FORWARD", "ip6tables -I FORWARD -i rove-gw"],
        "IPv4",
    ),
    // As firewalld does, beside a table that drops other packets.
    (
        "nft \"table inet innocent { chain f { type filter hook forward priority 0;
            iifname nobody drop; }; };
            table inet firewalld { chain sub { reject; };
            chain filter_FORWARD { type filter hook forward priority 10; jump sub; }; }\"",
        "nft \"delete table inet innocent; delete table inet firewalld\"",
        [
            "IPv4 and IPv6",
            "the chain inet firewalld filter_FORWARD",
            "nft insert rule inet firewalld",
        ],
        "innocent",
    ),
    (
        "nft \"table inet raw { chain p { type filter hook prerouting priority -300;
            iifname rove-gw drop; }; }\"",
        "nft delete table inet raw",
        ["the chain inet raw p", "prerouting hook", "IPv4 and IPv6"],
        "rove_gateway",
    ),
    (
        "nft \"table ip out { chain o { type filter hook postrouting priority 300;
            oifname to-router tcp dport 443 drop; }; }\"",
        "nft delete table ip out",
        ["the chain ip out o", "postrouting hook", "IPv4 packets"],
        "IPv6",
    ),
    (
        "ip rule add pref 10 iif rove-gw prohibit",
        "ip rule del pref 10",
        ["does not forward IPv4", "a route or a routing rule refuses them", "ip rule"],
        "IPv6",
    ),
    (
        "ip -6 rule add pref 10 iif rove-gw prohibit",
        "ip -6 rule del pref 10",
        ["does not forward IPv6", "a route or a routing rule refuses them", "ip rule"],
        "IPv4",
    ),
    (
        "ip route del default",
        "ip route add default via 192.0.2.254",
        ["does not forward IPv4", "it has no route to the Internet", "add a default route"],
        "IPv6",
    ),
    (
        "ip route add 10.77.0.128/25 dev to-router; sysctl -qw net.ipv4.conf.rove-gw.rp_filter=1",
        "sysctl -qw net.ipv4.conf.rove-gw.rp_filter=0; ip route del 10.77.0.128/25",
        ["does not forward IPv4", "reverse path filter", "net.ipv4.conf.rove-gw.rp_filter=2"],
        "IPv6",
    ),
    (
        "ip route replace 192.31.196.0/24 dev rove-gw",
        "ip route del 192.31.196.0/24",
        ["does not forward IPv4", "leads back into the tunnel", "remove routes by rove-gw"],
        "IPv6",
    ),
];

#[test]
fn a_host_that_forwards_nothing_is_named_with_the_place() {
    in_namespace("a_host_that_forwards_nothing_is_named_with_the_place", || {
        need_program("packet filters", "nft");
        let lab = Lab::new("a host that forwards nothing");
        // No probe may get as far as this.
        sh("nsenter --net=/run/netns/router nft 'table inet watch {
            counter strangers { }; chain c { type filter hook prerouting priority -300;
            ip daddr 192.31.196.0/24 counter name strangers
            ip6 daddr 2001:4:112::/48 counter name strangers; }; }'");
        let _gateway = with_nat(&lab);
        assert_eq!(problems(&lab), [""; 0]);
        let leaves = |lab: &Lab| status(lab)["leaves"].clone();
        assert_eq!(leaves(&lab), serde_json::json!({ "ipv4": true, "ipv6": true }));
        let text = lab.rove("gateway", "gateway check").out;
        assert!(text.contains("a test packet would leave: IPv4 yes, IPv6 yes"), "{text}");
        for (done, undone, named, not_named) in OBSTACLES {
            on_gateway(done);
            let found = problems(&lab);
            assert_eq!(found.len(), 1, "{done}: {found:?}");
            for word in named {
                assert!(found[0].contains(word), "{done}: {word:?} is not in {found:?}");
            }
            assert!(!found[0].contains(not_named), "{done}: {found:?}");
            let check = lab.rove("gateway", "gateway check").fails();
            assert!(check.contains("1 of "), "{check}");
            on_gateway(undone);
            assert_eq!(problems(&lab), [""; 0], "{undone}");
        }
        // The real thing, if it is there: the client is refused, and the operator hears of it.
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(download("client", WEB).unwrap(), pattern(1_000));
        on_gateway(
            "nft \"table ip f { chain f { type filter hook forward priority 0; drop; }; }\"",
        );
        assert!(!reaches("client", WEB));
        let explained = lab.rove("client", &format!("explain {WEB}")).ok();
        let hint = "answered   no; if nothing else answers either, run `rove gateway check` on the";
        assert!(explained.contains(hint), "{explained}");
        on_gateway("nft delete table ip f");
        if find("iptables").is_some() {
            on_gateway("iptables -A FORWARD -j REJECT");
            assert!(!reaches("client", WEB));
            let found = problems(&lab);
            assert!(found.len() == 1 && found[0].contains("FORWARD"), "{found:?}");
            assert_eq!(leaves(&lab)["ipv4"], false);
            on_gateway(
                "iptables -I FORWARD -i rove-gw -j ACCEPT
                iptables -I FORWARD -o rove-gw -j ACCEPT",
            );
            assert_eq!(problems(&lab), [""; 0], "the cure that was named");
            assert!(reaches("client", WEB));
        }
        lab.rove("client", "down").ok();
        let left = sh("nsenter --net=/run/netns/router nft list counters table inet watch");
        assert!(left.contains("packets 0 "), "{left}");
        assert!(!on_gateway("nft list tables").contains("rove_probe"));
    });
}

/// Sockets of the client that opens connections, and the destinations of each: together more than
/// the kernel's share for one client.
const SOCKETS: u16 = 200;
const DESTINATIONS: u8 = 60;
/// A busy machine loses a part of them.
const FLOODS_MAX: u32 = 4;

#[test]
fn one_client_cannot_fill_the_hosts_table_of_connections() {
    in_namespace("one_client_cannot_fill_the_hosts_table_of_connections", || {
        need_program("packet filters", "nft");
        let lab = Lab::new("a table of connections");
        // As a host that forwards FTP has it. Later, it would be a reason to set the firewall
        // again, and the kernel would count from zero.
        on_gateway(
            "nft \"table inet ftp { ct helper ftp { type \\\"ftp\\\" protocol tcp; };
            chain c { type filter hook prerouting priority -160;
            tcp dport 21 ct helper set \\\"ftp\\\"; }; }\"",
        );
        let _gateway = with_nat(&lab);
        // The server answers at many addresses.
        sh("ip -n server route add local 198.51.99.0/24 dev lo
            ip -n router route add 198.51.99.0/24 via 198.51.100.80
            ip -n server route add local 2001:db8:99::/64 dev lo
            ip -n router route add 2001:db8:99::/64 via 2001:db8:b::2");
        serve_pattern("server", WEB, 1_000);
        for (host, name) in [("client", "laptop"), ("phone", "phone")] {
            let invite = lab.invite(name);
            lab.rove(host, &format!("up {invite}")).ok();
        }
        let table = |lab: &Lab, key: &str| status(lab)["connections"][key].as_u64().unwrap();
        let share = table(&lab, "share");
        assert!(share < u64::from(SOCKETS) * u64::from(DESTINATIONS), "the flood is too small");
        // What has been sent stays in the table to the end.
        on_gateway("sysctl -qw net.netfilter.nf_conntrack_udp_timeout=600");
        for address in ["198.51.100.80:81", "[2001:db8:b::2]:81"] {
            greet_and_close("server", address);
            let (before, start) = (table(&lab, "tracked"), Instant::now());
            // A burst of half a share, and one share in the 120 s for which the kernel remembers
            // a connection that has ended.
            let may_be = || share / 2 + share / 120 * (start.elapsed().as_secs() + 1) + 200;
            let (mut made, mut ended) = (0, 0);
            for _ in 0..ROUNDS_MAX {
                let round = churn(address);
                made += round;
                ended = table(&lab, "tracked").saturating_sub(before);
                assert!(ended <= may_be(), "{ended} after {made} connections, share {share}");
                if made > share / 2 && round < ROUND / 2 {
                    break;
                }
            }
            assert!(ended > share / 3, "{ended} of {made}: a burst is admitted");
            let made = (0..20).filter(|_| download("phone", WEB).is_ok()).count();
            assert_eq!(made, 20, "another client's new connections");
        }
        let expected = expect_connections();
        for v6 in [false, true] {
            let before = table(&lab, "tracked");
            let mut tracked = 0;
            for _ in 0..FLOODS_MAX {
                inside("client", move || flood(v6)).join().unwrap();
                tracked = table(&lab, "tracked").saturating_sub(before);
                if tracked >= share {
                    break;
                }
            }
            assert!(tracked > share / 2, "{tracked} of {share}: no flood");
            assert!(tracked <= share + 200, "{tracked} connections, the share is {share}");
            let made = (0..20).filter(|_| download("phone", WEB).is_ok()).count();
            assert_eq!(made, 20, "another client's new connections");
        }
        assert_eq!(expected(), 0, "connections that a helper expects, beyond the share");
        let text = lab.rove("gateway", "gateway status").ok();
        assert!(text.contains(&format!("at most {share} for one client")), "{text}");
        for host in ["client", "phone"] {
            lab.rove(host, "down").ok();
        }
    });
}

/// Connections that one round of [`churn`] tries to make, and rounds: together more than a burst.
const ROUND: u64 = 1_000;
const ROUNDS_MAX: u64 = 12;
const CHURNING: u64 = 8;

/// Opens connections one after another and closes each at once, until one is not answered. Returns
/// how many were made.
fn churn(address: &str) -> u64 {
    let address: SocketAddr = address.parse().unwrap();
    let is_made = move || TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_ok();
    let open = move || (0..ROUND / CHURNING).take_while(|_| is_made()).count() as u64;
    let threads: Vec<_> = (0..CHURNING).map(|_| inside("client", open)).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).sum()
}

/// Accepts connections, and closes each when its client has.
fn greet_and_close(host: &str, address: &str) {
    let address: SocketAddr = address.parse().unwrap();
    let listener = inside(host, move || TcpListener::bind(address).unwrap()).join().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().read_to_end(&mut Vec::new());
        }
    });
}

/// Opens an FTP session and a data connection in passive mode (RFC 959). The function that it
/// returns opens more of these, until one is not answered, and returns how many were made.
fn expect_connections() -> impl FnOnce() -> usize {
    let ports = 2_000..2_050_u16;
    let bind = |port| TcpListener::bind(("198.51.100.80", port)).unwrap();
    let all = ports.clone();
    let listeners = inside("server", move || (bind(21), all.map(bind).collect::<Vec<_>>()));
    let (control, data) = listeners.join().unwrap();
    let session = inside("client", || TcpStream::connect("198.51.100.80:21").unwrap());
    let mut session = session.join().unwrap();
    let (mut server, _) = control.accept().unwrap();
    let mut open = move |port: u16| {
        session.write_all(b"PASV\r\n").unwrap();
        server.read_exact(&mut [0; 6]).unwrap();
        let [high, low] = port.to_be_bytes();
        let reply = format!("227 Entering Passive Mode (198,51,100,80,{high},{low})\r\n");
        server.write_all(reply.as_bytes()).unwrap();
        session.read_exact(&mut vec![0; reply.len()]).unwrap();
        let (wait, to) = (Duration::from_millis(500), ([198, 51, 100, 80], port).into());
        inside("client", move || TcpStream::connect_timeout(&to, wait).ok()).join().unwrap()
    };
    let first = open(ports.start);
    assert!(first.is_some(), "no data connection");
    move || {
        let made: Vec<_> = ports.skip(1).map_while(open).collect();
        drop((first, data));
        made.len()
    }
}

/// Entries that so many datagrams from the server's ports make in the gateway's table.
fn entries_of_datagrams(lab: &Lab, count: u64) -> u64 {
    let tracked = || status(lab)["connections"]["tracked"].as_u64().unwrap();
    let before = tracked();
    let send = move || {
        for _ in 0..count {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(b"no datagram of Rove", "192.0.2.1:4500").unwrap();
        }
    };
    inside("server", send).join().unwrap();
    tracked().saturating_sub(before)
}

#[test]
fn datagrams_for_a_gateway_fill_no_table_unless_another_filter_needs_that() {
    in_namespace("datagrams_for_a_gateway_fill_no_table_unless_another_filter_needs_that", || {
        need_program("packet filters", "nft");
        let legacy = ["iptable_filter", "iptable_nat", "ip6table_filter", "ip6table_nat"];
        if legacy.iter().any(|module| Path::new("/sys/module").join(module).exists()) {
            skip_inside(
                "datagrams of many",
                "iptables' older form, which nobody can list, is loaded",
            );
        }
        let lab = Lab::new("datagrams of many");
        let _gateway = with_nat(&lab);
        serve_pattern("server", WEB, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let is_untracked = || on_gateway("nft list table inet rove_gateway").contains("notrack");
        assert!(entries_of_datagrams(&lab, 300) < 100);
        // As on RHEL: only packets that begin a connection are accepted at this port.
        on_gateway(
            "nft \"table inet strict { chain c { type filter hook input priority 0;
            policy drop; iif lo accept; ct state established,related accept;
            meta l4proto ipv6-icmp accept;
            ct state new udp dport 4500 accept; }; }\"",
        );
        wait_until("packets are tracked", || !is_untracked());
        assert!(entries_of_datagrams(&lab, 300) > 200);
        assert_eq!(download("client", WEB).unwrap(), pattern(1_000), "the session goes on");
        on_gateway("nft delete table inet strict");
        wait_until("packets are not tracked", is_untracked);
        assert_eq!(download("client", WEB).unwrap(), pattern(1_000));
        lab.rove("client", "down").ok();
    });
}

/// Opens connections from many ports to many hosts.
fn flood(v6: bool) {
    let any = if v6 { "[::]:0" } else { "0.0.0.0:0" };
    let sockets: Vec<UdpSocket> = (0..SOCKETS).map(|_| UdpSocket::bind(any).unwrap()).collect();
    for host in 1..=DESTINATIONS {
        let to =
            if v6 { format!("[2001:db8:99::{host:x}]:9") } else { format!("198.51.99.{host}:9") };
        let to: SocketAddr = to.parse().unwrap();
        for socket in &sockets {
            // The host may refuse what it cannot queue.
            let _ = socket.send_to(b"one more", to);
        }
        sleep(Duration::from_millis(20));
    }
}
