//! ICMP redirects, forged on the local network, do not move the tunnel's own route.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use support::netns::{Lab, edit, in_namespace, inside, reaches, serve_pattern, sh, wait_until};

const CLIENT: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 2);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 2);
/// The attacker's host on the client's network; the router plays it.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);
const ATTACKER_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x66);
/// The router, as IPv6 redirects name it.
const ROUTER_V6: &str = "fe80::1";
const WEB: &str = "198.51.100.80:80";
/// The mark of the tunnel's own datagrams.
const MARK: u32 = 0x726f;

#[test]
fn a_forged_redirect_does_not_move_the_tunnel() {
    in_namespace("a_forged_redirect_does_not_move_the_tunnel", || {
        let lab = Lab::new("redirects over IPv4");
        let _gateway = lab.gateway();
        try_both(&lab, GATEWAY.into(), ATTACKER.into());
    });
}

#[test]
fn a_forged_redirect_of_ipv6_does_not_move_the_tunnel() {
    in_namespace("a_forged_redirect_of_ipv6_does_not_move_the_tunnel", || {
        let lab = Lab::new("redirects over IPv6");
        // Routers speak to their hosts by link-local addresses.
        sh(&format!(
            "ip -n router addr add {ROUTER_V6}/64 dev to-client nodad
             ip -n client -6 route replace default via {ROUTER_V6} dev to-router"
        ));
        let line =
            format!("gateway init --endpoint [{GATEWAY_V6}]:4500 --network 10.77.0.0/24,fd77::/64");
        lab.rove("gateway", &line).ok();
        edit(&lab.home("gateway").join("gateway.toml"), "nat = true", "nat = false");
        let _gateway = lab.gateway();
        try_both(&lab, GATEWAY_V6.into(), ATTACKER_V6.into());
    });
}

/// Sends a redirect before the tunnel is up, which this kernel accepts, and one while it is up.
fn try_both(lab: &Lab, gateway: IpAddr, attacker: IpAddr) {
    let bits = if attacker.is_ipv4() { 24 } else { 64 };
    sh(&format!("ip -n router addr add {attacker}/{bits} dev to-client nodad"));
    let attacker = format!("via {attacker} ");
    let before = lab.state_of("client");
    let socket = inside("client", move || {
        let socket = UdpSocket::bind(if gateway.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" });
        let socket = socket.unwrap();
        // The socket is bound like the tunnel's, because for other sockets the kernel only
        // redirects IPv4.
        SockRef::from(&socket).bind_device(Some(b"to-router")).unwrap();
        socket.connect((gateway, 4500)).unwrap();
        socket
    });
    let socket = socket.join().unwrap();
    // The kernel limits how often it reacts, and a path must have been used to be redirected.
    wait_until("a redirect moves the route of a host that takes it", || {
        let _ = socket.send(b"?");
        redirect(gateway, socket.local_addr().unwrap().port());
        route(gateway).contains(&attacker)
    });
    drop(socket);

    serve_pattern("server", WEB, 100);
    let invite = lab.invite("laptop");
    lab.rove("client", &format!("up {invite}")).ok();
    assert!(!route(gateway).contains(&attacker), "what was taken before is forgotten");
    for _ in 0..5 {
        for port in ports() {
            redirect(gateway, port);
        }
        assert!(!route(gateway).contains(&attacker), "the redirect was taken");
        assert!(reaches("client", WEB), "nothing goes through the tunnel any more");
    }
    lab.rove("client", "down").ok();
    lab.becomes("client", &before);
}

/// The UDP ports that are open at the client: those of the tunnel, which a neighbour sees.
fn ports() -> Vec<u16> {
    let sockets = sh("nsenter --net=/run/netns/client ss -H -uan");
    let local = sockets.lines().filter_map(|line| line.split_whitespace().nth(3));
    let ports: Vec<u16> = local.map(|at| at.rsplit(':').next().unwrap().parse().unwrap()).collect();
    assert!(!ports.is_empty());
    ports
}

/// The client's route to the gateway outside the tunnel.
fn route(gateway: IpAddr) -> String {
    sh(&format!("ip -n client route get {gateway} mark {MARK}")).replace('\n', " ") + " "
}

/// The router, or a host that claims to be it, tells the client to reach the gateway through the
/// attacker.
fn redirect(gateway: IpAddr, port: u16) {
    let send = move || {
        if gateway.is_ipv4() { redirect_v4(port) } else { redirect_v6(port) }
    };
    inside("router", send).join().unwrap();
}

/// Type 5, code 1 (RFC 792), with the head of a datagram of the client's.
fn redirect_v4(port: u16) {
    let mut message = vec![5, 1, 0, 0];
    message.extend(ATTACKER.octets());
    message.extend([0x45, 0, 0, 60, 0, 1, 0, 0, 64, 17, 0, 0]);
    message.extend(CLIENT.octets());
    message.extend(GATEWAY.octets());
    message.extend(port.to_be_bytes());
    message.extend([4500u16, 40, 0].map(u16::to_be_bytes).concat());
    let sum = message.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum = sum.fold(0, |sum, word| (sum + word) % 0xffff);
    message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::new(203, 0, 113, 254), 0)).into()).unwrap();
    socket.send_to(&message, &SocketAddr::from((CLIENT, 0)).into()).unwrap();
}

/// Type 137 (RFC 4861 section 4.5), with a redirected header. The kernel sums it up.
fn redirect_v6(port: u16) {
    let mut message = vec![137, 0, 0, 0, 0, 0, 0, 0];
    message.extend(ATTACKER_V6.octets());
    message.extend(GATEWAY_V6.octets());
    let mut datagram = vec![0x60, 0, 0, 0, 0, 40, 17, 64];
    datagram.extend(CLIENT_V6.octets());
    datagram.extend(GATEWAY_V6.octets());
    datagram.extend(port.to_be_bytes());
    datagram.extend([4500u16, 40, 0].map(u16::to_be_bytes).concat());
    datagram.extend([0; 32]);
    // The option's length counts eight bytes, its own head among them.
    message.extend([4, ((8 + datagram.len()) / 8) as u8, 0, 0, 0, 0, 0, 0]);
    message.extend(datagram);
    let index = interface();
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).unwrap();
    socket.set_unicast_hops_v6(255).unwrap();
    let router = SocketAddrV6::new(ROUTER_V6.parse().unwrap(), 0, 0, index);
    socket.bind(&SocketAddr::from(router).into()).unwrap();
    let client = SocketAddrV6::new(CLIENT_V6, 0, 0, index);
    socket.send_to(&message, &SocketAddr::from(client).into()).unwrap();
}

/// The number of the router's interface to the client.
fn interface() -> u32 {
    let line = sh("ip -n router -o link show to-client");
    line.split(':').next().unwrap().parse().unwrap()
}
