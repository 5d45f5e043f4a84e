//! What other programs and machines do beside the tunnel on a client's host: visitors that come in
//! through the tunnel or on a link.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::net::{SocketAddr, UdpSocket};

use support::netns::{
    Lab, Running, SOON, download, echo, in_namespace, inside, need_program, pattern, serve_pattern,
    sh, wait_until,
};

fn up(lab: &Lab, line: &str) -> Running {
    let client = lab.start("client", &format!("up --foreground {line}"));
    wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
    client
}

/// Joins once, so that later starts need no invite.
fn join(lab: &Lab) {
    let invite = lab.invite("laptop");
    lab.rove("client", &format!("up {invite}")).ok();
    lab.rove("client", "down").ok();
}

/// The gateway's host forwards ports to the client, and the client forwards two of them to a
/// container.
fn forward_ports() {
    sh("nsenter --net=/run/netns/gateway nft -f - <<'RULES'
        table inet ports { chain prerouting {
            type nat hook prerouting priority dstnat
            ip daddr 192.0.2.1 tcp dport { 8080, 8081 } dnat ip to 10.77.0.2
            ip daddr 192.0.2.1 udp dport 8080 dnat ip to 10.77.0.2
            ip6 daddr 2001:db8:a::2 tcp dport { 8080, 8081 } dnat ip6 to fd77::2
            ip6 daddr 2001:db8:a::2 udp dport 8080 dnat ip6 to fd77::2
        }
        }
RULES
        ip netns add box && ip -n box link set lo up
        ip -n client link add docker0 type bridge
        ip -n client addr add 172.17.0.1/16 dev docker0
        ip -n client addr add fd17::1/64 dev docker0 nodad
        ip -n client link set docker0 up
        ip link add eth0 netns box type veth peer name in-box netns client
        ip -n client link set in-box master docker0 up
        ip -n box addr add 172.17.0.2/16 dev eth0
        ip -n box addr add fd17::2/64 dev eth0 nodad
        ip -n box link set eth0 up
        ip -n box route add default via 172.17.0.1
        ip -n box -6 route add default via fd17::1
        nsenter --net=/run/netns/client sh -c '
            echo 1 > /proc/sys/net/ipv4/ip_forward
            echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'
        nsenter --net=/run/netns/client nft -f - <<'RULES'
        table inet docker { chain prerouting {
            type nat hook prerouting priority dstnat
            meta nfproto ipv4 tcp dport 8081 dnat ip to 172.17.0.2
            meta nfproto ipv6 tcp dport 8081 dnat ip6 to fd17::2
            meta nfproto ipv4 udp dport 5353 dnat ip to 172.17.0.2
            meta nfproto ipv6 udp dport 5353 dnat ip6 to fd17::2
            tcp dport 8082 redirect to :8080
            udp dport 5305 redirect to :5301
        }
        }
RULES");
}

/// Whether a server on the gateway's port answers a datagram from the Internet.
fn is_answered(to: &'static str) -> bool {
    let ask = move || {
        let to: SocketAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(from).unwrap();
        socket.set_read_timeout(Some(SOON / 5)).unwrap();
        socket.send_to(b"hello", to).unwrap();
        socket.recv_from(&mut [0; 9]).is_ok_and(|(length, _)| length == 5)
    };
    inside("server", ask).join().unwrap()
}

#[test]
fn visitors_through_the_tunnel_are_answered_through_it() {
    in_namespace("visitors_through_the_tunnel_are_answered_through_it", || {
        need_program("the guard", "nft");
        let lab = Lab::new("visitors");
        let _gateway = lab.gateway();
        join(&lab);
        forward_ports();
        serve_pattern("client", "[::]:8080", 100_000);
        serve_pattern("box", "[::]:8081", 100_000);
        let strict = "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter";
        let mut has_servers = false;
        for options in [
            // The visitor is not in the tunnel's networks.
            "--route 192.0.2.0/24",
            "--route 192.0.2.0/24 --allow-lan",
            // It is in the tunnel, or excluded from it.
            "",
            "--exclude 198.51.100.0/24 --exclude 2001:db8:b::/64",
            "--kill-switch",
        ] {
            let client = up(&lab, options);
            for port in [8080, 8081] {
                for to in ["192.0.2.1", "[2001:db8:a::2]"] {
                    let to = format!("{to}:{port}");
                    let came = download("server", &to);
                    assert!(came.is_ok_and(|came| came == pattern(100_000)), "{options:?}: {to}");
                }
            }
            // Servers of datagrams that answer from the address that was asked. They outlive it.
            if !has_servers {
                echo("client", "10.77.0.2:8080");
                echo("client", "[fd77::2]:8080");
                has_servers = true;
            }
            for to in ["192.0.2.1:8080", "[2001:db8:a::2]:8080"] {
                assert!(is_answered(to), "{options:?}: {to}");
            }
            assert_eq!(client.terminate(), Some(0));
            lab.rove("client", "down");
            // All but the first run on a host with a strict reverse path filter.
            sh(&format!("nsenter --net=/run/netns/client sh -c '{strict}'"));
        }
    });
}

#[test]
fn forwarded_ports_are_answered_on_the_link() {
    in_namespace("forwarded_ports_are_answered_on_the_link", || {
        need_program("the guard", "nft");
        let lab = Lab::new("forwarded ports");
        let _gateway = lab.gateway();
        join(&lab);
        forward_ports();
        serve_pattern("client", "[::]:8080", 1_000);
        serve_pattern("box", "[::]:8081", 1_000);
        for (host, port) in [
            ("client", "203.0.113.2:5301"),
            ("client", "[2001:db8:c::2]:5301"),
            ("box", "172.17.0.2:5353"),
            ("box", "[fd17::2]:5353"),
        ] {
            echo(host, port);
        }
        let strict = "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter";
        for options in ["", "--allow-lan", "--route 198.51.100.0/24 --route 2001:db8:b::/64"] {
            let client = up(&lab, options);
            for own in ["203.0.113.2", "[2001:db8:c::2]"] {
                for port in [8081, 8082] {
                    let came = download("server", &format!("{own}:{port}"));
                    let came = came.unwrap_or_else(|e| panic!("{options:?}: {own} {port}: {e}"));
                    assert_eq!(came, pattern(1_000), "{options:?}: {own} {port}");
                }
            }
            for to in [
                "203.0.113.2:5353",
                "[2001:db8:c::2]:5353",
                "203.0.113.2:5305",
                "[2001:db8:c::2]:5305",
            ] {
                assert!(is_answered(to), "{options:?}: {to}");
            }
            assert_eq!(client.terminate(), Some(0));
            lab.rove("client", "down");
            // All but the first run on a host with a strict reverse path filter.
            sh(&format!("nsenter --net=/run/netns/client sh -c '{strict}'"));
        }
    });
}
