use super::*;
use crate::plan::Opening;

const USER: u32 = 1_000;

fn at(at: &str) -> SocketAddr {
    at.parse().unwrap()
}

fn socket(protocol: Protocol, local: &str, remote: Option<&str>) -> Socket {
    Socket {
        protocol,
        local: at(local),
        remote: remote.map(at),
        listens: false,
        v6_only: false,
        mark: 0,
        is_on_device: false,
        user: USER,
    }
}

fn listener(local: &str) -> Socket {
    Socket { listens: true, ..socket(Protocol::Tcp, local, None) }
}

fn guard() -> Guard {
    let kept = Connection { local: at("192.0.2.7:22"), remote: at("198.51.100.9:5000") };
    Guard {
        opening: Opening { kept: vec![kept], ..Opening::default() },
        routes: Vec::new(),
        addresses: vec!["10.7.0.2".parse().unwrap()],
        shared_addresses: Vec::new(),
        translated: Vec::new(),
        keep_incoming: true,
        strict_links: Vec::new(),
    }
}

fn v6_only(local: &str) -> Socket {
    Socket { v6_only: true, ..listener(local) }
}

/// Destinations below 203.0.113.0/24 are not in the tunnel.
fn flows(sockets: &[Socket], guard: &Guard) -> Flows {
    let outside: IpNet = "203.0.113.0/24".parse().unwrap();
    Flows::of(sockets, guard, &PORTS_DEFAULT, |to| !outside.contains(&to))
}

#[test]
fn connections_that_came_in_have_a_listener_and_others_end() {
    let remote = Some("198.51.100.9:5000");
    let mut sockets = vec![
        listener("0.0.0.0:22"),
        listener("[::]:80"),
        listener("192.0.2.7:443"),
        listener("127.0.0.1:40000"),
        socket(Protocol::Tcp, "192.0.2.7:22", Some("198.51.100.8:1")),
        socket(Protocol::Tcp, "192.0.2.7:22", remote),
        socket(Protocol::Tcp, "192.0.2.7:80", remote),
        socket(Protocol::Tcp, "192.0.2.7:443", remote),
        socket(Protocol::Tcp, "192.0.2.7:40000", remote),
        socket(Protocol::Tcp, "192.0.2.7:40000", remote),
        socket(Protocol::Udp, "192.0.2.7:50000", remote),
        socket(Protocol::Udp, "[2001:db8::7]:80", Some("[2001:db8:1::1]:443")),
    ];
    let own = sockets.len();
    // None of these counts: outside the tunnel, in it, on this host, a group, Rove's own.
    sockets.extend([
        socket(Protocol::Tcp, "192.0.2.7:40001", Some("203.0.113.5:80")),
        socket(Protocol::Tcp, "10.7.0.2:40001", remote),
        socket(Protocol::Tcp, "127.0.0.1:40001", Some("127.0.0.1:40000")),
        socket(Protocol::Udp, "192.0.2.7:40001", Some("239.1.2.3:5000")),
        socket(Protocol::Udp, "[fe80::7]:40001", Some("[fe80::8]:5000")),
        Socket { mark: MARK, ..socket(Protocol::Udp, "192.0.2.7:40002", remote) },
    ]);
    let (guard, found) = (guard(), flows(&sockets, &guard()));
    assert_eq!(found, flows(&sockets[..own], &guard));
    let of =
        |flows: &[Connection]| -> Vec<u16> { flows.iter().map(|flow| flow.local.port()).collect() };
    assert_eq!(of(&found.incoming), [22, 80, 443]);
    assert_eq!(of(&found.tcp), [40_000], "a listener elsewhere, and shared addresses");
    assert_eq!(of(&found.udp), [50_000, 80], "connected, whoever else has the port");
    assert_eq!((found.kept, found.ended), (1, 3));
    let none = flows(&sockets, &Guard { keep_incoming: false, ..guard });
    assert_eq!((none.kept, none.ended, none.incoming.len()), (1, 6, 0));
}

#[test]
fn a_listener_counts_only_for_connections_that_it_takes() {
    let (v4, v6) = ("192.0.2.7:80", "[2001:db8::7]:80");
    for (listener, came_in) in [
        (listener("0.0.0.0:80"), [true, false]),
        (listener("[::]:80"), [true, true]),
        (v6_only("[::]:80"), [false, true]),
        (listener(v4), [true, false]),
        (v6_only(v6), [false, true]),
        (listener("192.0.2.8:80"), [false, false]),
        (listener("[::]:81"), [false, false]),
    ] {
        let to = ["198.51.100.9:5000", "[2001:db8:1::1]:5000"];
        let connections = [(v4, to[0]), (v6, to[1])];
        let connections = connections.map(|(own, to)| socket(Protocol::Tcp, own, Some(to)));
        let sockets = [vec![listener], connections.to_vec()].concat();
        let found = flows(&sockets, &guard());
        let has = |ip: &str| found.incoming.iter().any(|flow| flow.local == at(ip));
        assert_eq!([v4, v6].map(has), came_in, "{:?}", sockets[0]);
        assert_eq!(found.incoming.len() + found.tcp.len(), 2);
    }
}

#[test]
fn udp_without_a_connection_is_this_hosts_if_its_port_was_handed_out() {
    let sockets = [
        socket(Protocol::Udp, "192.0.2.7:40000", None),
        socket(Protocol::Udp, "[2001:db8::7]:40000", None),
        socket(Protocol::Udp, "192.0.2.7:53", None),
        socket(Protocol::Udp, "0.0.0.0:51820", None),
        socket(Protocol::Udp, "10.7.0.2:40000", None),
        socket(Protocol::Tcp, "192.0.2.7:40001", None),
    ];
    let on_device = |socket: &Socket| Socket { is_on_device: true, ..*socket };
    let devices = ["0.0.0.0:40002", "[::]:40003", "0.0.0.0:68", "127.0.0.1:40004", "[::]:40003"];
    let devices = devices.map(|local| on_device(&socket(Protocol::Udp, local, None)));
    let sockets = [&sockets[..], &devices].concat();
    let found = flows(&sockets, &guard());
    assert_eq!(found.ports, [40_002, 40_003].map(|port| (Protocol::Udp, port)), "on a link alone");
    assert_eq!(found.bound, ["192.0.2.7:40000", "[2001:db8::7]:40000"].map(at));
    assert_eq!(found.ended, 0);
}

/// A user with more flows than the guard can name fills it for nobody else, and has no connection
/// that it does not end.
#[test]
fn flows_that_are_too_many_to_name_are_those_of_the_users_with_most() {
    let many = FLOWS_MAX + 100;
    let of = |user, protocol, port: usize| {
        let local = format!("192.0.2.7:{}", 10_000 + port);
        Socket { user, ..socket(protocol, &local, Some("198.51.100.9:5000")) }
    };
    let mut sockets = vec![listener("0.0.0.0:22")];
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        sockets.extend((0..many).map(|port| of(USER, protocol, port)));
        sockets.extend([of(ROOT, protocol, 50_001), of(USER + 1, protocol, 50_002)]);
    }
    sockets.extend((0..many).map(|n| {
        let remote = SocketAddr::new([198, 51, (n >> 8) as u8, n as u8].into(), 5_000);
        Socket { remote: Some(remote), ..of(USER, Protocol::Udp, 50_003) }
    }));
    let visitor =
        |user, remote: &str| Socket { user, ..socket(Protocol::Tcp, "192.0.2.7:22", Some(remote)) };
    sockets.extend((1..=many).map(|port| visitor(USER, &format!("198.51.100.8:{port}"))));
    sockets.extend([visitor(ROOT, "203.0.114.5:1"), visitor(USER + 1, "203.0.114.5:2")]);
    let found = flows(&sockets, &guard());
    for (protocol, named) in [(Protocol::Tcp, &found.tcp), (Protocol::Udp, &found.udp)] {
        assert_eq!(named.len(), FLOWS_MAX);
        let has = |port| named.iter().any(|flow| flow.local.port() == port);
        assert!(has(60_001) && has(60_002), "{protocol:?}: of users with few");
        let ends = |port| has(port) || found.ports.contains(&(protocol, port));
        let all = 10_000..10_000 + u16::try_from(many).unwrap();
        assert!(all.clone().all(ends), "{protocol:?}: each ends");
        assert!(!all.clone().all(has), "{protocol:?}: too many to name");
    }
    assert_eq!(found.ended, many * 3 + 4);
    assert_eq!(found.incoming.len(), FLOWS_MAX);
    let goes_on = |remote| found.incoming.iter().any(|flow| flow.remote == at(remote));
    assert!(goes_on("203.0.114.5:1") && goes_on("203.0.114.5:2"), "visitors of other users");
}

#[test]
fn the_longest_route_decides_what_is_in_the_tunnel() {
    let route = |net: &str, target| Item::Route { net: net.parse().unwrap(), target };
    let device = || Target::Device("rove0".to_owned());
    let items = [
        route("0.0.0.0/0", device()),
        route("0.0.0.0/0", Target::Barrier),
        // In a table for replies alone.
        route("::/0", Target::Replies("rove0".to_owned())),
        route("198.51.100.0/24", Target::Throw),
        route("198.51.100.7/32", device()),
        route("192.168.1.0/24", Target::Link("eth0".to_owned())),
        route("2001:db8::/32", Target::Unreachable),
    ];
    for (to, expected) in [
        ("203.0.113.1", true),
        ("198.51.100.8", false),
        ("198.51.100.7", true),
        ("192.168.1.1", false),
        ("2001:db8::1", true),
        ("2001:db9::1", false),
    ] {
        assert_eq!(leads_in(items.iter(), to.parse().unwrap()), expected, "{to}");
    }
}
