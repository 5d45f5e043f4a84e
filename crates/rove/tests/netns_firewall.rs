//! The packets that a gateway's host forwards between its clients and other hosts: the real binary,
//! with and without NAT, and hostile hosts on both sides.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, connect, ipproto, sendto, socket_with,
};
use support::binary;
use support::capture::Capture;
use support::netns::{
    Lab, Running, SOON, download, echo, in_namespace, inside, on, pattern, reaches, serve_pattern,
    sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";
/// How long to wait for a datagram that must not arrive.
const ARRIVES_WITHIN: Duration = Duration::from_millis(300);

const INIT: &str = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";

/// A gateway that translates.
fn with_nat(lab: &Lab) -> Running {
    lab.rove("gateway", INIT).ok();
    lab.gateway()
}

/// Two clients, 10.77.0.2 and 10.77.0.3.
fn laptop_and_phone(lab: &Lab) {
    for (host, name) in [("client", "laptop"), ("phone", "phone")] {
        let invite = lab.invite(name);
        lab.rove(host, &format!("up {invite}")).ok();
    }
}

/// A socket on a host, which waits for nothing longer than that.
fn udp(host: &str, address: &'static str) -> UdpSocket {
    let socket = inside(host, move || UdpSocket::bind(address).unwrap()).join().unwrap();
    socket.set_read_timeout(Some(ARRIVES_WITHIN)).unwrap();
    socket
}

/// Whether an echo server on the other side answers one of several datagrams.
fn is_answered(asker: &UdpSocket, to: &str) -> bool {
    (0..5).any(|_| {
        let _ = asker.send_to(b"anybody there?", to);
        asker.recv_from(&mut [0; 100]).is_ok()
    })
}

fn grants_are_stateful(lab: &Lab) {
    laptop_and_phone(lab);
    for (host, address) in [("client", "10.77.0.2:8080"), ("phone", "10.77.0.3:8080")] {
        serve_pattern(host, address, 100_000);
    }
    serve_pattern("client", "[fd77::2]:8080", 1_000);
    serve_pattern("phone", "[fd77::3]:8080", 1_000);
    echo("phone", "10.77.0.3:7");
    echo("client", "10.77.0.2:7");
    assert!(!reaches("client", "10.77.0.3:8080"), "nothing is granted");

    lab.rove("gateway", "gateway allow laptop 10.77.0.3 fd77::3").ok();
    assert_eq!(download("client", "10.77.0.3:8080").unwrap(), pattern(100_000));
    assert_eq!(download("client", "[fd77::3]:8080").unwrap(), pattern(1_000));
    let (laptop, phone) = (udp("client", "10.77.0.2:5000"), udp("phone", "10.77.0.3:5000"));
    assert!(is_answered(&laptop, "10.77.0.3:7"));

    assert!(!reaches("phone", "10.77.0.2:8080"));
    assert!(!reaches("phone", "[fd77::2]:8080"));
    assert!(!is_answered(&phone, "10.77.0.2:7"));
    // The phone may answer the port that the laptop used, and no other.
    phone.send_to(b"psst", "10.77.0.2:5000").unwrap();
    laptop.recv_from(&mut [0; 100]).unwrap_err();
    for host in ["client", "phone"] {
        lab.rove(host, "down").ok();
    }
}

#[test]
fn who_may_contact_another_client_hears_its_replies_and_no_more() {
    in_namespace("who_may_contact_another_client_hears_its_replies_and_no_more", || {
        let lab = Lab::new("grants");
        let _gateway = lab.gateway();
        grants_are_stateful(&lab);
    });
}

#[test]
fn grants_are_the_same_where_the_gateway_translates() {
    in_namespace("grants_are_the_same_where_the_gateway_translates", || {
        let lab = Lab::new("grants and NAT");
        let _gateway = with_nat(&lab);
        grants_are_stateful(&lab);
    });
}

/// The router plays a host on the gateway's network segment: it has a route to inner addresses
/// through the gateway, and forwards the server's packets there.
fn nobody_begins_anything(lab: &Lab, source: &str) {
    let callers = serve_pattern("server", WEB, 100_000);
    let invite = lab.invite("laptop");
    lab.rove("client", &format!("up {invite}")).ok();
    serve_pattern("client", "10.77.0.2:8080", 1_000);
    serve_pattern("client", "[fd77::2]:8080", 1_000);
    serve_pattern("gateway", "10.77.0.1:8080", 1_000);
    echo("client", "10.77.0.2:7");
    echo("gateway", "10.77.0.1:7");
    assert_eq!(download("client", WEB).unwrap(), pattern(100_000));
    assert_eq!(callers.last(), source);

    for host in ["server", "router"] {
        for closed in ["10.77.0.2:8080", "[fd77::2]:8080", "10.77.0.1:8080"] {
            assert!(!reaches(host, closed), "{host} to {closed}");
        }
        let asker = udp(host, "0.0.0.0:5000");
        for closed in ["10.77.0.2:7", "10.77.0.1:7"] {
            assert!(!is_answered(&asker, closed), "{host} to {closed}");
        }
    }
    // No other host can use the inner address of a client or of the gateway as its source.
    let invite = lab.invite("phone");
    lab.rove("phone", &format!("up {invite}")).ok();
    lab.rove("gateway", "gateway allow phone 10.77.0.2").ok();
    sh("ip -n router addr add 10.77.0.3/32 dev to-gateway");
    let forger = udp("router", "10.77.0.3:5000");
    let heard = udp("client", "10.77.0.2:9");
    let real = udp("phone", "10.77.0.3:5000");
    forger.send_to(b"forged", "10.77.0.2:9").unwrap();
    heard.recv_from(&mut [0; 100]).unwrap_err();
    real.send_to(b"real", "10.77.0.2:9").unwrap();
    assert_eq!(heard.recv_from(&mut [0; 100]).unwrap().0, 4);

    // ARP does not reveal the gateway's inner address.
    sh("ip -n router addr del 10.77.0.3/32 dev to-gateway
        ip -n router route replace 10.77.0.1/32 dev to-gateway
        ip -n router route replace 10.77.0.99/32 dev to-gateway");
    let asker = udp("router", "0.0.0.0:5001");
    for to in ["10.77.0.1:7", "10.77.0.99:7"] {
        assert!(!is_answered(&asker, to));
    }
    let neighbours = sh("ip -n router neigh show dev to-gateway");
    let known = |line: &&str| line.starts_with("10.77.0.") && line.contains("lladdr");
    assert_eq!(neighbours.lines().find(known), None, "{neighbours}");
    for host in ["client", "phone"] {
        lab.rove(host, "down").ok();
    }
}

#[test]
fn nobody_outside_a_gateway_begins_anything_with_its_clients() {
    in_namespace("nobody_outside_a_gateway_begins_anything_with_its_clients", || {
        let lab = Lab::new("hosts outside");
        let _gateway = with_nat(&lab);
        nobody_begins_anything(&lab, "192.0.2.1");
    });
}

#[test]
fn nobody_outside_begins_anything_where_inner_addresses_are_routed() {
    in_namespace("nobody_outside_begins_anything_where_inner_addresses_are_routed", || {
        let lab = Lab::new("hosts outside, without NAT");
        let _gateway = lab.gateway();
        nobody_begins_anything(&lab, "10.77.0.2");
    });
}

#[test]
fn a_granted_subnet_is_reached_from_outside_and_its_replies_leave() {
    in_namespace("a_granted_subnet_is_reached_from_outside_and_its_replies_leave", || {
        let lab = Lab::new("a subnet");
        let _gateway = with_nat(&lab);
        let invite = lab.invite("office --subnet 192.168.7.0/24");
        sh("ip -n client link add office type veth peer name eciffo
            ip -n client link set eciffo up && ip -n client link set office up
            ip -n client addr add 192.168.7.1/24 dev office
            ip -n router route add 192.168.7.0/24 via 192.0.2.1");
        lab.rove("client", &format!("up {invite} --advertise 192.168.7.0/24 --allow-lan")).ok();
        serve_pattern("client", "192.168.7.1:8080", 100_000);
        wait_until("the subnet is advertised", || reaches("server", "192.168.7.1:8080"));
        for host in ["server", "router"] {
            assert_eq!(download(host, "192.168.7.1:8080").unwrap(), pattern(100_000), "{host}");
        }
        assert!(!reaches("server", "10.77.0.2:8080"));
        // Connections that begin there are translated like all others.
        let asker = udp("client", "192.168.7.1:0");
        let told = udp("server", "198.51.100.80:9");
        asker.send_to(b"who am I?", "198.51.100.80:9").unwrap();
        assert_eq!(told.recv_from(&mut [0; 100]).unwrap().1.ip().to_string(), "192.0.2.1");
        lab.rove("client", "down").ok();
    });
}

/// The checksum of a TCP or ICMP message between two addresses (RFC 1071).
fn checksum(bytes: &[u8], pseudo: &[u16]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    let mut sum: u32 = words.chain(pseudo.iter().copied()).map(u32::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Sends packets that belong to no connection from 10.77.0.2 to the server, one of each kind.
fn send_unsolicited() {
    let to: SocketAddr = "198.51.100.80:0".parse().unwrap();
    let raw = |protocol| {
        let (kind, flags) = (SocketType::RAW, SocketFlags::empty());
        socket_with(AddressFamily::INET, kind, flags, Some(protocol)).unwrap()
    };
    let tcp = raw(ipproto::TCP);
    let [a, b] = [Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(198, 51, 100, 80)].map(u32::from);
    let pseudo = [(a >> 16) as u16, a as u16, (b >> 16) as u16, b as u16, 6, 20];
    // RST, FIN, SYN and ACK, none.
    for flags in [0x04, 0x01, 0x12, 0x00] {
        let mut segment = [7_777u16, 443].map(u16::to_be_bytes).concat();
        segment.extend([0, 0, 0, 9, 0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0]);
        let sum = checksum(&segment, &pseudo);
        segment[16..18].copy_from_slice(&sum);
        sendto(&tcp, &segment, SendFlags::empty(), &to).unwrap();
    }
    let icmp = raw(ipproto::ICMP);
    let mut about = vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0];
    about.extend([198, 51, 100, 80, 10, 77, 0, 2, 0, 53, 0, 99, 0, 8, 0, 0]);
    // Echo reply, unreachable, time exceeded.
    for (kind, rest) in [(0, &[][..]), (3, &about), (11, &about)] {
        let mut message = [&[kind, 0, 0, 0, 0, 7, 0, 1], rest].concat();
        let sum = checksum(&message, &[]);
        message[2..4].copy_from_slice(&sum);
        sendto(&icmp, &message, SendFlags::empty(), &to).unwrap();
    }
}

#[test]
fn nothing_of_a_client_leaves_with_its_inner_address() {
    in_namespace("nothing_of_a_client_leaves_with_its_inner_address", || {
        let lab = Lab::new("inner addresses");
        let _gateway = with_nat(&lab);
        let callers = serve_pattern("server", WEB, 100_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let capture = Capture::start("gateway");
        inside("client", send_unsolicited).join().unwrap();
        // The tunnel keeps the order, so this arrives after all of them.
        assert_eq!(download("client", WEB).unwrap(), pattern(100_000));
        assert_eq!(callers.last(), "192.0.2.1");
        let sources = capture.take_sources();
        let is_inner = |ip: &&std::net::IpAddr| {
            let text = ip.to_string();
            text.starts_with("10.77.") || text.starts_with("fd77:")
        };
        assert_eq!(sources.iter().find(is_inner), None);
        assert!(sources.contains(&"192.0.2.1".parse().unwrap()), "{sources:?}");
        let log = lab.rove("gateway", "gateway status").ok();
        assert!(log.contains("running"), "{log}");
        lab.rove("client", "down").ok();
    });
}

/// CVE-2021-3773: a client that sends from the gateway's port must not receive datagrams that other
/// hosts send to the gateway from the port that it addressed. The victim's ports are low, because
/// the kernel does not change the client's port for those.
#[test]
fn a_client_does_not_shadow_the_gateways_port() {
    in_namespace("a_client_does_not_shadow_the_gateways_port", || {
        let lab = Lab::new("a shadowed port");
        let _gateway = with_nat(&lab);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let attacker = udp("client", "10.77.0.2:4500");
        let bound =
            |port: u16| inside("phone", move || UdpSocket::bind(("203.0.114.2", port)).unwrap());
        let victims: Vec<UdpSocket> =
            (2_000..2_020).map(|port| bound(port).join().unwrap()).collect();
        for victim in &victims {
            victim.set_read_timeout(Some(SOON)).unwrap();
            attacker.send_to(b"shadow", victim.local_addr().unwrap()).unwrap();
            let (_, seen) = victim.recv_from(&mut [0; 100]).unwrap();
            assert_eq!(seen.ip().to_string(), "192.0.2.1");
            assert_ne!(seen.port(), 4_500);
        }
        for victim in &victims {
            victim.send_to(b"for the gateway", "192.0.2.1:4500").unwrap();
        }
        let mut shadowed = 0;
        while attacker.recv_from(&mut [0; 100]).is_ok() {
            shadowed += 1;
        }
        assert_eq!(shadowed, 0, "datagrams for the gateway that the client got");
        // Any other port is kept, because some programs need that.
        let other = udp("client", "10.77.0.2:5000");
        other.send_to(b"hello", victims[0].local_addr().unwrap()).unwrap();
        assert_eq!(victims[0].recv_from(&mut [0; 100]).unwrap().1.port(), 5_000);

        let listen = || TcpListener::bind("203.0.114.2:2100").unwrap();
        let listener = inside("phone", listen).join().unwrap();
        let attack = || {
            let (kind, flags) = (SocketType::STREAM, SocketFlags::empty());
            let socket = socket_with(AddressFamily::INET, kind, flags, None).unwrap();
            bind(&socket, &"10.77.0.2:4500".parse::<SocketAddr>().unwrap()).unwrap();
            connect(&socket, &"203.0.114.2:2100".parse::<SocketAddr>().unwrap()).unwrap();
            socket
        };
        let _stream = inside("client", attack).join().unwrap();
        assert_ne!(listener.accept().unwrap().1.port(), 4_500, "the port for streams");
        lab.rove("client", "down").ok();
    });
}

/// Services at public addresses on `lo` (anycast, VRRP), also behind another program's port
/// forwarding, and hosts with public addresses in the gateway's own network.
#[test]
fn clients_reach_the_gateways_neighbours_and_not_the_gateway() {
    in_namespace("clients_reach_the_gateways_neighbours_and_not_the_gateway", || {
        let lab = Lab::new("a gateway's own addresses");
        sh("ip -n gateway addr add 198.51.100.53/32 dev lo
            ip -n gateway addr add 2001:db8:53::1/128 dev lo nodad");
        let _gateway = with_nat(&lab);
        let (neighbour, neighbour_v6) = ("192.0.2.254:8080", "[2001:db8:a::1]:8080");
        serve_pattern("router", neighbour, 1_000);
        serve_pattern("router", neighbour_v6, 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(download("client", neighbour).unwrap(), pattern(1_000));
        assert!(!reaches("client", neighbour_v6), "a home network has public IPv6 addresses");

        // The kernel has the later ones at once, Rove a moment later or, for a local route, never.
        sh("ip -n gateway addr add 198.51.100.54/32 dev to-router
            ip -n gateway addr add 2001:db8:53::2/128 dev lo nodad preferred_lft 0
            ip -n gateway route add local 198.51.101.0/24 dev lo
            nsenter --net=/run/netns/gateway nft 'table ip containers { chain c {
                type nat hook prerouting priority dstnat
                fib daddr type local tcp dport 8888 dnat to 192.0.2.254:8080; }; }'");
        let own = [
            "198.51.100.53:8080",
            "[2001:db8:53::1]:8080",
            "198.51.100.54:8080",
            "[2001:db8:53::2]:8080",
            "198.51.101.7:8080",
            "192.0.2.1:8080",
            "10.77.0.1:8080",
        ];
        own.iter().for_each(|at| drop(serve_pattern("gateway", at, 1_000)));
        assert!(own[..6].iter().all(|at| reaches("gateway", at)), "the services work");
        for closed in own.iter().chain(&["198.51.100.53:8888", "198.51.101.7:8888"]) {
            assert!(!reaches("client", closed), "{closed}");
        }
        serve_pattern("gateway", "10.77.0.1:53", 1_000);
        assert!(reaches("client", "10.77.0.1:53"), "the gateway's own name server");

        let allow = "gateway allow laptop 198.51.100.53:8080 2001:db8:53::2 198.51.101.0/24:8888";
        lab.rove("gateway", allow).ok();
        for open in ["198.51.100.53:8080", "[2001:db8:53::2]:8080", "198.51.101.7:8888"] {
            assert_eq!(download("client", open).unwrap(), pattern(1_000), "{open}");
        }
        for closed in ["198.51.100.53:8888", "198.51.101.7:8080", "[2001:db8:53::1]:8080"] {
            assert!(!reaches("client", closed), "{closed}");
        }
        lab.rove("gateway", "gateway allow laptop --reset").ok();
        assert!(!reaches("client", own[0]));
        lab.rove("client", "down").ok();
    });
}

/// Starts the gateway as in a container: kernel settings are read-only.
fn in_a_container(lab: &Lab) -> Running {
    let script = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys
        exec \"$0\" \"$@\"";
    let mut command = on("gateway", "unshare");
    command.args(["--mount", "sh", "-c", script, binary(), "gateway", "run", "--dir"]);
    let log = std::fs::File::create(lab.dir.path().join("gateway.log")).unwrap();
    command.arg(lab.home("gateway")).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log);
    Running { child: command.spawn().unwrap() }
}

#[test]
fn a_gateway_runs_where_settings_are_right_and_cannot_be_written() {
    in_namespace("a_gateway_runs_where_settings_are_right_and_cannot_be_written", || {
        let lab = Lab::new("a container");
        lab.rove("gateway", INIT).ok();
        for (setting, file) in [
            ("net.ipv4.conf.all.forwarding", "ipv4/conf/all/forwarding"),
            ("net.ipv6.conf.all.forwarding", "ipv6/conf/all/forwarding"),
        ] {
            let mut gateway = in_a_container(&lab);
            wait_until("it ends", || gateway.child.try_wait().unwrap().is_some());
            let log = lab.log("gateway");
            let expected = format!(
                "the kernel setting {setting} is 0 and has to be 1, and /proc/sys is read-only \
                 here: start the container with `--sysctl {setting}=1`"
            );
            assert!(log.contains(&expected), "{log}");
            let write = format!("echo 1 > /proc/sys/net/{file}");
            sh(&format!("nsenter --net=/run/netns/gateway sh -c '{write}'"));
        }
        let gateway = in_a_container(&lab);
        wait_until("the gateway runs", || {
            let log = lab.log("gateway");
            assert!(!log.contains("rove: "), "{log}");
            lab.rove("gateway", "gateway status").out.contains("state         running")
        });
        serve_pattern("server", WEB, 10_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        assert_eq!(download("client", WEB).unwrap(), pattern(10_000));
        lab.rove("client", "down").ok();
        assert_eq!(gateway.terminate(), Some(0));
    });
}
