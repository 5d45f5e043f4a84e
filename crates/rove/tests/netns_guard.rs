//! Attacks of the network around a client on its tunnel: routes that it hands out, probes of the
//! tunnel's address, containers, and incoming connections.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use support::capture::Capture;
use support::netns::{
    Lab, Running, download, in_namespace, inside, need_program, pattern, serve_pattern, sh,
    wait_until,
};

/// The destination of the tunnel's own datagrams.
const TUNNEL: [&str; 2] = ["udp 192.0.2.1:4500", "udp [2001:db8:a::2]:4500"];
const WEB: &str = "198.51.100.80:80";
const WEB_V6: &str = "[2001:db8:b::2]:80";

/// A second cable, to a LAN with private addresses and another owner's public ones: the server's
/// network, as a hostile access point would claim it.
fn lan() {
    sh("ip link add lan netns client type veth peer name to-lan netns router
        ip -n client addr add 192.168.5.2/24 dev lan
        ip -n client addr add 198.51.100.7/24 dev lan
        ip -n client addr add fd05::2/64 dev lan nodad
        ip -n client addr add 2001:db8:b::7/64 dev lan nodad
        ip -n router addr add 192.168.5.254/24 dev to-lan
        ip -n router addr add fd05::1/64 dev to-lan nodad
        ip -n client link set lan up
        ip -n router link set to-lan up
        # The attacker answers for everybody.
        mac=$(ip -n router -o link show to-lan | sed 's/.*ether \\([^ ]*\\).*/\\1/')
        for host in 198.51.100.80 198.51.100.81 2001:db8:b::2 2001:db8:b::3; do
            ip -n client neigh add $host lladdr $mac dev lan
        done");
}

/// The routes that an attacker on the LAN hands out (DHCP option 121, router advertisements): to a
/// host of the Internet, a network behind the tunnel, the tunnel's own network, and the gateway.
fn hand_out_routes() {
    sh("ip -n client route add 198.51.100.80/32 via 192.168.5.254
        ip -n client route add 10.20.0.0/16 via 192.168.5.254
        ip -n client route add 10.77.0.1/32 via 192.168.5.254
        ip -n client route add 192.168.5.128/25 via 203.0.113.254
        ip -n client -6 route add 2001:db8:b::2/128 via fd05::1
        ip -n client -6 route add fd77::1/128 via fd05::1");
}

fn take_back_routes() {
    sh("ip -n client route flush via 192.168.5.254
        ip -n client -6 route flush via fd05::1
        ip -n client route flush 192.168.5.128/25");
}

/// Destinations that use the tunnel in all modes of the test below.
const INSIDE: [&str; 8] = [
    "198.51.100.80:9",
    "198.51.100.81:9",
    "10.20.0.1:9",
    "10.77.0.1:9",
    "192.0.2.1:9",
    "[2001:db8:b::2]:9",
    "[2001:db8:b::3]:9",
    "[fd77::1]:9",
];
/// Hosts of the LAN.
const NEIGHBOURS: [&str; 2] = ["192.168.5.254:9", "[fd05::1]:9"];

fn say(remotes: &'static [&'static str]) {
    let say = move || {
        for to in remotes.iter().map(|to| to.parse::<SocketAddr>().unwrap()) {
            let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let _ = UdpSocket::bind(from).unwrap().send_to(b"secret", to);
        }
    };
    inside("client", say).join().unwrap();
}

/// Both cables of the client.
struct Cables([Capture; 2]);

impl Cables {
    fn new() -> Self {
        Self([Capture::start("client"), Capture::on("client", "lan")])
    }

    /// The packets that left when the client sent to each of these, without the tunnel's own
    /// datagrams.
    fn heard(&self, remotes: &'static [&'static str]) -> Vec<String> {
        self.0.iter().for_each(|cable| drop(cable.take()));
        say(remotes);
        let seen = self.0.iter().flat_map(Capture::take);
        seen.filter(|what| !TUNNEL.contains(&what.as_str())).collect()
    }
}

fn up(lab: &Lab, line: &str) -> Running {
    let client = lab.start("client", &format!("up --foreground {line}"));
    wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
    client
}

#[test]
fn routes_that_the_network_hands_out_take_nothing_out() {
    in_namespace("routes_that_the_network_hands_out_take_nothing_out", || {
        need_program("the guard", "nft");
        let lab = Lab::new("routes of the network");
        let _gateway = lab.gateway();
        lan();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let cables = Cables::new();
        hand_out_routes();
        wait_until("the captures hear everything", || cables.heard(&INSIDE).len() == INSIDE.len());
        let routes = "--route 198.51.100.0/24 --route 10.20.0.0/16 --route 2001:db8:b::/64 \
                      --route 192.0.2.1/32";
        for (options, lan) in [
            ("", false),
            ("--allow-lan", true),
            ("--kill-switch", false),
            ("--kill-switch --allow-lan", true),
            (routes, true),
            (&format!("{routes} --allow-lan"), true),
        ] {
            take_back_routes();
            // Before the tunnel, or while it is up.
            for before in [true, false] {
                let hand_out = |now: bool| {
                    if now {
                        hand_out_routes()
                    }
                };
                hand_out(before);
                let client = up(&lab, options);
                hand_out(!before);
                assert_eq!(cables.heard(&INSIDE), [""; 0], "{options:?}");
                let neighbours =
                    if lan { NEIGHBOURS.map(|to| format!("udp {to}")).to_vec() } else { vec![] };
                assert_eq!(cables.heard(&NEIGHBOURS), neighbours, "{options:?}");
                assert_eq!(client.terminate(), Some(0));
                lab.rove("client", "down");
                take_back_routes();
            }
        }
    });
}

/// How a connection from a host to an address ends.
fn attempt(host: &str, address: &str) -> Option<ErrorKind> {
    let address: SocketAddr = address.parse().unwrap();
    let connect = move || TcpStream::connect_timeout(&address, Duration::from_millis(500));
    inside(host, connect).join().unwrap().err().map(|error| error.kind())
}

#[test]
fn neighbours_learn_nothing_of_the_tunnels_address() {
    in_namespace("neighbours_learn_nothing_of_the_tunnels_address", || {
        need_program("the guard", "nft");
        let lab = Lab::new("probes");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        // The router is the neighbour: for it the inner addresses are behind the client.
        sh("ip -n router route replace 10.77.0.0/24 via 203.0.113.2
            ip -n router -6 route replace fd77::/64 via 2001:db8:c::2");
        let listen = || {
            let open = ["0.0.0.0:22", "[::]:23"].map(|at| TcpListener::bind(at).unwrap());
            std::mem::forget(open);
        };
        inside("client", listen).join().unwrap();
        let open = ["10.77.0.2:22", "[fd77::2]:23"];
        let closed = ["10.77.0.2:24", "[fd77::2]:24"];
        let silent = || {
            let probes = open.into_iter().chain(closed);
            probes.map(|to| attempt("router", to)).all(|end| end == Some(ErrorKind::TimedOut))
        };
        for options in ["", "--allow-lan", "--kill-switch", "--route 198.51.100.0/24 --allow-lan"] {
            let client = up(&lab, options);
            assert_eq!(attempt("client", open[0]), None, "it hears itself");
            assert!(silent(), "{options:?}");
            // The cable carries no ARP request or reply for the address either.
            sh("ip -n router route replace 10.77.0.2/32 dev to-client");
            assert!(silent(), "{options:?}");
            let known = sh("ip -n router neigh show 10.77.0.2");
            assert!(!known.contains("lladdr"), "{options:?}: {known}");
            sh("ip -n router route del 10.77.0.2/32");
            assert_eq!(client.terminate(), Some(0));
            lab.rove("client", "down");
        }
    });
}

/// A container of the client behind a bridge, and the route of its packets.
fn container() {
    sh("ip netns add box && ip -n box link set lo up
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
        ip -n box -6 route add default via fd17::1");
    for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        let file = format!("/proc/sys/net/{setting}");
        sh(&format!("nsenter --net=/run/netns/client sh -c 'echo 1 > {file}'"));
    }
}

#[test]
fn containers_use_the_tunnel_and_stay_reachable() {
    in_namespace("containers_use_the_tunnel_and_stay_reachable", || {
        need_program("the guard", "nft");
        let lab = Lab::new("containers");
        let _gateway = lab.gateway();
        let callers = serve_pattern("server", WEB, 100_000);
        let callers_v6 = serve_pattern("server", WEB_V6, 100_000);
        container();
        serve_pattern("box", "0.0.0.0:8080", 1_000);
        serve_pattern("box", "[::]:8081", 1_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let masquerade = "nft 'add table inet docker; \
             add chain inet docker post { type nat hook postrouting priority 100; }; \
             add rule inet docker post ip saddr 172.17.0.0/16 oifname != docker0 masquerade'";
        for host in ["", masquerade] {
            if !host.is_empty() {
                sh(&format!("nsenter --net=/run/netns/client {host}"));
            }
            for options in [
                "",
                "--allow-lan",
                "--kill-switch",
                "--route 0.0.0.0/1 --route 128.0.0.0/1 --route 2000::/3",
            ] {
                let client = up(&lab, options);
                wait_until("the container is on the Internet", || download("box", WEB).is_ok());
                assert_eq!(download("box", WEB).unwrap(), pattern(100_000), "{options:?}");
                assert_eq!(download("box", WEB_V6).unwrap(), pattern(100_000), "{options:?}");
                let seen = (callers.last(), callers_v6.last());
                assert_eq!(seen, ("10.77.0.2".into(), "fd77::2".into()), "{options:?}");
                for inside in ["172.17.0.2:8080", "[fd17::2]:8081"] {
                    assert_eq!(download("client", inside).unwrap(), pattern(1_000), "{options:?}");
                }
                // Without Rove's rules, containers wait until the rules return and then use the
                // tunnel again.
                let capture = Capture::start("client");
                sh("ip -n client rule del pref 5191; ip -n client -6 rule del pref 5191");
                let _ = (download("box", WEB), download("box", WEB_V6));
                let seen = capture.take().into_iter();
                let leaked: Vec<String> =
                    seen.filter(|to| !TUNNEL.contains(&to.as_str())).collect();
                assert_eq!(leaked, [""; 0], "{options:?}");
                assert_eq!(client.terminate(), Some(0));
                lab.rove("client", "down");
            }
        }
    });
}

/// A server that sends back each line, on all addresses of a host.
fn echo_lines(host: &str, port: u16) {
    let serve = move || {
        let listener = TcpListener::bind(("::", port)).unwrap();
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 100];
                while let Ok(got @ 1..) = stream.read(&mut bytes) {
                    let _ = stream.write_all(&bytes[..got]);
                }
            });
        }
    };
    let _: JoinHandle<()> = inside(host, serve);
    wait_until("it listens", || {
        sh(&format!("nsenter --net=/run/netns/{host} ss -ltn")).contains(&format!(":{port} "))
    });
}

/// A connection from a host, if it can be made.
fn connect(host: &str, address: &str) -> Option<TcpStream> {
    let address: SocketAddr = address.parse().unwrap();
    let connect = move || TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok();
    inside(host, connect).join().unwrap()
}

/// Whether the other end still answers.
fn answers(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut back = [0; 4];
    stream.write_all(b"ping").is_ok() && stream.read_exact(&mut back).is_ok() && back == *b"ping"
}

#[test]
fn connections_that_come_in_are_answered_where_they_came_in() {
    in_namespace("connections_that_come_in_are_answered_where_they_came_in", || {
        need_program("the guard", "nft");
        let lab = Lab::new("connections that come in");
        let _gateway = lab.gateway();
        echo_lines("client", 2222);
        let own = ["203.0.113.2:2222", "[2001:db8:c::2]:2222"];
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let mut old = own.map(|to| {
            wait_until(to, || connect("server", to).is_some());
            connect("server", to).unwrap()
        });
        assert!(old.iter_mut().all(answers));
        let client = up(&lab, "");
        for to in own {
            let mut new = connect("server", to).expect(to);
            assert!(answers(&mut new), "{to}");
        }
        assert!(old.iter_mut().all(answers), "those that were there go on");
        lab.rove("gateway", "gateway allow laptop 10.77.0.1").ok();
        let mut inner = connect("gateway", "10.77.0.2:2222").unwrap();
        assert!(answers(&mut inner), "by the tunnel they are answered by the tunnel");
        assert_eq!(client.terminate(), Some(0));
        let client = up(&lab, "--kill-switch");
        for to in own {
            assert!(connect("server", to).is_none(), "{to} behind a kill switch");
        }
        assert!(!old.iter_mut().all(answers), "nor those that were there");
        assert_eq!(client.terminate(), Some(0));
        lab.rove("client", "down");
    });
}

/// An SSH session in which `rove up` is typed is not cut off, even if this host sends first.
#[test]
fn the_ssh_connection_that_up_is_typed_over_goes_on() {
    in_namespace("the_ssh_connection_that_up_is_typed_over_goes_on", || {
        need_program("the guard", "nft");
        let lab = Lab::new("a shell over SSH");
        let _gateway = lab.gateway();
        let shells = shells_that_speak_first();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        for (options, goes_on) in [("", true), ("--kill-switch", true), ("--no-keep-ssh", false)] {
            for server in ["203.0.113.2:2222", "[2001:db8:c::2]:2222"] {
                wait_until(server, || connect("server", server).is_some());
                let mut remote = connect("server", server).unwrap();
                let mut shell = end_of(&remote, &shells);
                let (from, to) = (shell.peer_addr().unwrap(), shell.local_addr().unwrap());
                let typed = format!("{} {} {} {}", from.ip(), from.port(), to.ip(), to.port());
                let mut up = lab.command("client", &format!("up {options}"));
                let ran = up.env("SSH_CONNECTION", &typed).output().unwrap();
                let said = String::from_utf8_lossy(&ran.stderr).into_owned();
                assert!(ran.status.success(), "{said}");
                assert_eq!(said.contains("typed over SSH"), goes_on, "{options}: {said}");
                shell.write_all(b"$ ").unwrap();
                let mut prompt = [0; 2];
                remote.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                let came = remote.read_exact(&mut prompt).is_ok();
                assert_eq!(came, goes_on, "{options} by {server}: {said}");
                lab.rove("client", "down").ok();
            }
        }
    });
}

/// Accepts on port 2222 of the client; its ends of the connections.
fn shells_that_speak_first() -> std::sync::mpsc::Receiver<TcpStream> {
    let (to, shells) = std::sync::mpsc::channel();
    let listener = inside("client", || TcpListener::bind("[::]:2222").unwrap()).join().unwrap();
    std::thread::spawn(move || {
        while let Ok((shell, _)) = listener.accept() {
            if to.send(shell).is_err() {
                return;
            }
        }
    });
    shells
}

/// The client's end of the connection `remote`. Connections that were made before are passed over:
/// they are accepted some time after they stand.
fn end_of(remote: &TcpStream, shells: &std::sync::mpsc::Receiver<TcpStream>) -> TcpStream {
    let port = remote.local_addr().unwrap().port();
    let next = || shells.recv_timeout(Duration::from_secs(5)).unwrap();
    std::iter::repeat_with(next).find(|shell| shell.peer_addr().unwrap().port() == port).unwrap()
}
