//! Programs of a client that choose their link, and neighbours that forge the first packet of a
//! connection to them, so that the program answers outside the tunnel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use support::capture::Capture;
use support::netns::{
    Lab, Running, echo, find, in_namespace, inside, need_program, sh, wait_until,
};

fn up(lab: &Lab, line: &str) -> Running {
    let client = lab.start("client", &format!("up --foreground {line}"));
    wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
    client
}

/// A server's addresses, which the neighbour below claims, and the client's own.
const REMOTE: [&str; 2] = ["198.51.100.80:53", "[2001:db8:b::2]:53"];
const OWN: [&str; 2] = ["203.0.113.2", "2001:db8:c::2"];
/// Ports of programs that choose their link, and addresses of a server in each round.
const FIRST_PORT: u16 = 40_000;
const SERVED: [[&str; 2]; 2] = [
    ["203.0.113.2:51820", "[2001:db8:c::2]:51820"],
    ["203.0.113.2:51821", "[2001:db8:c::2]:51821"],
];

const NEWLY_SERVED: [[&str; 2]; 3] = [
    ["203.0.113.2:51830", "[2001:db8:c::2]:51830"],
    ["203.0.113.2:51831", "[2001:db8:c::2]:51831"],
    ["203.0.113.2:51832", "[2001:db8:c::2]:51832"],
];

/// A program's UDP socket that chooses its link, by an address or the link itself.
fn choosing(family: usize, port: u16, by_link: bool, connected: bool) -> (UdpSocket, SocketAddr) {
    let to: SocketAddr = REMOTE[family].parse().unwrap();
    let (domain, kind) = (socket2::Domain::for_address(to), socket2::Type::DGRAM);
    let socket = socket2::Socket::new(domain, kind, None).unwrap();
    let own = if by_link { "0.0.0.0" } else { OWN[family] };
    let own: SocketAddr = (own.parse::<std::net::IpAddr>().unwrap(), port).into();
    if by_link {
        socket.bind_device(Some(b"to-router")).unwrap();
    }
    socket.bind(&own.into()).unwrap();
    if connected {
        socket.connect(&to.into()).unwrap();
    }
    (socket.into(), to)
}

/// All kinds of such sockets, at ports from `first` on.
fn all_choosing(first: u16) -> Vec<(UdpSocket, SocketAddr)> {
    let mut kinds = vec![(0, true, false), (0, true, true)];
    kinds.extend([0, 1].into_iter().flat_map(|at| [(at, false, false), (at, false, true)]));
    let open = move || {
        let each = kinds.into_iter().zip(first..);
        each.map(|((at, by_link, connected), port)| choosing(at, port, by_link, connected))
            .collect()
    };
    inside("client", open).join().unwrap()
}

/// One datagram of each. Refusals are the aim.
fn speak_all(sockets: &[(UdpSocket, SocketAddr)]) {
    for (socket, to) in sockets {
        let is_connected = socket.peer_addr().is_ok();
        let _ = if is_connected { socket.send(b"x") } else { socket.send_to(b"x", *to) };
    }
}

/// A neighbour on the client's cable that has the server's addresses and forges datagrams.
struct Neighbour {
    sockets: [UdpSocket; 2],
    cable: Capture,
}

impl Neighbour {
    fn new() -> Self {
        sh("ip -n router addr add 198.51.100.80/32 dev lo
            ip -n router addr add 2001:db8:b::2/128 dev lo nodad");
        let bind = || REMOTE.map(|at| UdpSocket::bind(at).unwrap());
        let sockets = inside("router", bind).join().unwrap();
        Self { sockets, cable: Capture::start("client") }
    }

    /// Sends a forged datagram to each of ten ports in both families.
    fn forge(&self, first: u16) {
        for (socket, own) in self.sockets.iter().zip(OWN) {
            for port in first..first + 10 {
                socket.send_to(b"forged", (own, port)).unwrap();
            }
        }
    }

    /// The packets to the server that have left in clear since the last call.
    fn in_clear(&self) -> Vec<String> {
        let seen = self.cable.take().into_iter();
        seen.filter(|to| REMOTE.iter().any(|at| *to == format!("udp {at}"))).collect()
    }

    /// A server is answered, also at a port that the kernel might hand out. One from before `up`
    /// would count as a program that asks.
    fn visit(&self, servers: [&'static str; 2], options: &str) {
        servers.into_iter().for_each(|own| echo("client", own));
        for (socket, own) in self.sockets.iter().zip(servers) {
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            socket.send_to(b"visitor", own).unwrap();
            let (got, from) = socket.recv_from(&mut [0; 20]).unwrap();
            assert_eq!((got, from.to_string()), (7, own.to_owned()), "{options:?}");
        }
        assert_eq!(self.in_clear().len(), servers.len(), "the capture hears the answers");
    }

    /// Sockets that were refused before the first forged datagram still send nothing in clear.
    fn forges_in_vain_for_older_sockets(&self, options: &str) {
        self.in_clear();
        let older = all_choosing(FIRST_PORT);
        speak_all(&older);
        assert_eq!(self.in_clear(), [""; 0], "{options:?}: without a forged datagram");
        self.forge(FIRST_PORT);
        speak_all(&older);
        assert_eq!(self.in_clear(), [""; 0], "{options:?}: sockets that were there");
    }
}

#[test]
fn forged_datagrams_open_nothing_for_programs_that_choose_their_link() {
    in_namespace("forged_datagrams_open_nothing_for_programs_that_choose_their_link", || {
        need_program("the guard", "nft");
        let lab = Lab::new("forged datagrams");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let neighbour = Neighbour::new();
        let split = "--route 198.51.100.0/24 --route 2001:db8:b::/64";
        for (at, options) in ["", split].into_iter().enumerate() {
            let client = up(&lab, options);
            neighbour.forges_in_vain_for_older_sockets(options);
            neighbour.forge(FIRST_PORT + 10);
            let newer = all_choosing(FIRST_PORT + 10);
            speak_all(&newer);
            assert_eq!(neighbour.in_clear(), [""; 0], "{options:?}: sockets that came later");
            neighbour.visit(SERVED[at], options);
            assert_eq!(client.terminate(), Some(0));
            lab.rove("client", "down");
        }
    });
}

/// Networks that the client's link gets one after the other, as by router advertisements. The
/// guard's rules name them.
const NEW_NETWORKS: [[&str; 2]; 3] = [
    ["2001:db8:9:1::2/64", "2001:db8:9:1::/64"],
    ["10.9.2.2/24", "10.9.2.0/24"],
    ["2001:db8:9:3::2/64", "2001:db8:9:3::/64"],
];

#[test]
fn a_guard_that_is_set_anew_remembers_who_was_refused() {
    in_namespace("a_guard_that_is_set_anew_remembers_who_was_refused", || {
        need_program("the guard", "nft");
        let lab = Lab::new("a guard that is set anew");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let neighbour = Neighbour::new();
        let guard = || sh("nsenter --net=/run/netns/client nft list table inet rove_guard");
        let split = "--route 198.51.100.0/24 --route 2001:db8:b::/64";
        for (at, options) in ["", "--allow-lan", split].into_iter().enumerate() {
            let mut client = up(&lab, options);
            neighbour.forges_in_vain_for_older_sockets(options);
            let older = all_choosing(FIRST_PORT + 10);
            speak_all(&older);
            for [address, network] in NEW_NETWORKS {
                sh(&format!("ip -n client addr add {address} dev to-router"));
                wait_until(network, || guard().contains(network));
                neighbour.forge(FIRST_PORT + 10);
                speak_all(&older);
                assert_eq!(neighbour.in_clear(), [""; 0], "{options:?}: {network}");
            }
            if at == 0 {
                let config = lab.home("client").join("client.toml");
                std::fs::write(&config, "[client]\nexclude = ['198.51.100.99/32']\n").unwrap();
                lab.rove("client", "reload").ok();
                wait_until("the reload", || guard().contains("198.51.100.99"));
                neighbour.forge(FIRST_PORT + 10);
                speak_all(&older);
                assert_eq!(neighbour.in_clear(), [""; 0], "{options:?}: reload");
                std::fs::remove_file(&config).unwrap();
                // A client that starts after a crash removes the guard, and knows older sockets.
                client.kill();
                neighbour.forge(FIRST_PORT + 10);
                client = up(&lab, options);
                neighbour.forge(FIRST_PORT + 10);
                speak_all(&older);
                assert_eq!(neighbour.in_clear(), [""; 0], "{options:?}: crash");
            }
            neighbour.visit(NEWLY_SERVED[at], options);
            assert_eq!(client.terminate(), Some(0));
            lab.rove("client", "down");
            for [address, _] in NEW_NETWORKS {
                sh(&format!("ip -n client addr del {address} dev to-router"));
            }
        }
    });
}

/// The first of some ports that the kernel does not hand out.
const SERVER_PORT: u16 = 27_015;

/// Servers of the client, each by its address or the link: the family, the port and the socket.
fn servers() -> Vec<(usize, u16, UdpSocket)> {
    let open = || {
        let kinds = [(0, true), (0, false), (1, false), (0, true)].into_iter().zip(SERVER_PORT..);
        let open = kinds.map(|((family, by_link), port)| {
            let (socket, _) = choosing(family, port, by_link, false);
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            (family, port, socket)
        });
        open.collect()
    };
    inside("client", open).join().unwrap()
}

#[test]
fn servers_that_ask_or_answer_a_broadcast_keep_their_visitors() {
    in_namespace("servers_that_ask_or_answer_a_broadcast_keep_their_visitors", || {
        need_program("the guard", "nft");
        let lab = Lab::new("servers that ask");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let neighbour = Neighbour::new();
        let bind = || ["198.51.100.80:54", "[2001:db8:b::2]:54"].map(UdpSocket::bind);
        let visitors = inside("router", bind).join().unwrap().map(Result::unwrap);
        let client = up(&lab, "");
        let servers = servers();
        let ask = |servers: &[(usize, u16, UdpSocket)]| {
            for (family, _, server) in servers {
                let _ = server.send_to(b"heartbeat", REMOTE[*family]);
            }
        };
        let (_, port, answering) = servers.last().unwrap();
        ask(&servers[..3]);
        neighbour.sockets[0].set_broadcast(true).unwrap();
        neighbour.sockets[0].send_to(b"who is there?", ("203.0.113.255", *port)).unwrap();
        let (_, from) = answering.recv_from(&mut [0; 20]).expect("the broadcast arrives");
        assert_eq!(from.to_string(), REMOTE[0]);
        let _ = answering.send_to(b"a server", from);
        assert_eq!(neighbour.in_clear(), [""; 0], "heartbeats and the answer");
        for (family, port, server) in &servers {
            let (visitor, own) = (&visitors[*family], (OWN[*family], *port));
            visitor.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            // The first packet of IPv6 may get lost while the router looks for the client.
            wait_until("a visitor comes and may be answered", || {
                visitor.send_to(b"visitor", own).unwrap();
                let came = server.recv_from(&mut [0; 20]);
                came.is_ok_and(|(_, from)| server.send_to(b"welcome", from).is_ok())
            });
            let got = visitor.recv(&mut [0; 20]).expect("the visitor is answered");
            assert_eq!(got, 7, "{own:?}");
        }
        neighbour.in_clear();
        neighbour.forge(SERVER_PORT);
        ask(&servers);
        assert_eq!(neighbour.in_clear(), [""; 0], "to those that the servers asked");
        assert_eq!(client.terminate(), Some(0));
    });
}

/// One user's sockets, each of which asks: more than are known by both ends.
#[test]
fn a_user_that_asks_from_many_ports_opens_nothing_for_others() {
    in_namespace("a_user_that_asks_from_many_ports_opens_nothing_for_others", || {
        need_program("the guard", "nft");
        let lab = Lab::new("many askers");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let neighbour = Neighbour::new();
        let client = up(&lab, "");
        let ask = || {
            for family in [0, 1] {
                for port in 2_000..19_000 {
                    let (socket, to) = choosing(family, port, false, false);
                    let _ = socket.send_to(b"x", to);
                }
            }
        };
        inside("client", ask).join().unwrap();
        for first in [FIRST_PORT, SERVER_PORT] {
            let programs = all_choosing(first);
            speak_all(&programs);
            neighbour.in_clear();
            neighbour.forge(first);
            speak_all(&programs);
            assert_eq!(neighbour.in_clear(), [""; 0], "ports from {first}");
        }
        assert_eq!(client.terminate(), Some(0));
    });
}

/// A SYN, and with `signed` one that no closed port answers: with an MD5 option (RFC 2385).
fn syn(from: SocketAddr, to: SocketAddr, signed: bool) -> Vec<u8> {
    let mut segment = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    segment.extend([0, 0, 0, 1, 0, 0, 0, 0, if signed { 0xa0 } else { 0x50 }, 2, 0xff, 0xff]);
    segment.extend([0; 4]);
    if signed {
        segment.extend([19, 18]);
        segment.extend([7; 16]);
        segment.extend([1, 1]);
    }
    let address = |at: SocketAddr| match at.ip() {
        std::net::IpAddr::V4(at) => at.octets().to_vec(),
        std::net::IpAddr::V6(at) => at.octets().to_vec(),
    };
    let length = u8::try_from(segment.len()).unwrap();
    let summed = [address(from), address(to), vec![0, 6, 0, length], segment.clone()].concat();
    let words = summed.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = !u16::try_from(sum % 0xffff).unwrap();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    segment
}

/// Ports of TCP programs in one round: by the link and by its address, in both families.
const TCP_PROGRAMS: [(usize, bool); 4] = [(0, true), (0, false), (1, true), (1, false)];

/// A neighbour forges a SYN from the server to each of them.
fn forge_syns(first: u16, signed: bool) {
    let forge = move || {
        for ((family, _), port) in TCP_PROGRAMS.into_iter().zip(first..) {
            let from: SocketAddr = REMOTE[family].parse().unwrap();
            let to = SocketAddr::new(OWN[family].parse().unwrap(), port);
            let (domain, protocol) = (socket2::Domain::for_address(to), socket2::Protocol::TCP);
            let raw = socket2::Socket::new(domain, socket2::Type::RAW, Some(protocol)).unwrap();
            raw.bind(&SocketAddr::new(from.ip(), 0).into()).unwrap();
            let packet = syn(from, to, signed);
            raw.send_to(&packet, &SocketAddr::new(to.ip(), 0).into()).unwrap();
        }
    };
    inside("router", forge).join().unwrap();
}

/// Programs that choose their link connect to the server. Refusals are the aim.
fn connect_all(first: u16) -> Vec<socket2::Socket> {
    let connect = move || {
        let each = TCP_PROGRAMS.into_iter().zip(first..).map(|((family, by_link), port)| {
            let to: SocketAddr = REMOTE[family].parse().unwrap();
            let (domain, kind) = (socket2::Domain::for_address(to), socket2::Type::STREAM);
            let socket = socket2::Socket::new(domain, kind, None).unwrap();
            if by_link {
                socket.bind_device(Some(b"to-router")).unwrap();
            }
            let own = SocketAddr::new(OWN[family].parse().unwrap(), port);
            socket.bind(&own.into()).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&to.into());
            socket
        });
        each.collect()
    };
    inside("client", connect).join().unwrap()
}

#[test]
fn forged_syns_open_nothing_for_programs_that_choose_their_link() {
    in_namespace("forged_syns_open_nothing_for_programs_that_choose_their_link", || {
        need_program("the guard", "nft");
        let lab = Lab::new("forged SYNs");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let neighbour = Neighbour::new();
        let serve = || {
            let ports = FIRST_PORT..FIRST_PORT + 4;
            ports.map(|port| TcpListener::bind(("::", port)).unwrap()).collect::<Vec<_>>()
        };
        let _servers = inside("client", serve).join().unwrap();
        let in_clear = || {
            let seen = neighbour.cable.take().into_iter();
            let of_server = |to: &String| REMOTE.iter().any(|at| *to == format!("tcp {at}"));
            seen.filter(of_server).collect::<Vec<_>>()
        };
        let split = "--route 198.51.100.0/24 --route 2001:db8:b::/64";
        for (options, first) in [("", FIRST_PORT + 10), (split, FIRST_PORT + 30)] {
            let client = up(&lab, options);
            wait_until("servers answer in both families", || {
                forge_syns(FIRST_PORT, false);
                let answers = in_clear();
                REMOTE.iter().all(|at| answers.contains(&format!("tcp {at}")))
            });
            forge_syns(first, true);
            assert_eq!(in_clear(), [""; 0], "{options:?}: no port answers a signed SYN");
            let anticipated = connect_all(first);
            forge_syns(first, false);
            assert_eq!(in_clear(), [""; 0], "{options:?}: the forged SYN came first");
            let connecting = connect_all(first + 10);
            forge_syns(first + 10, false);
            assert_eq!(in_clear(), [""; 0], "{options:?}: the program's SYN came first");
            drop((anticipated, connecting));
            assert_eq!(client.terminate(), Some(0));
            lab.rove("client", "down");
        }
    });
}

/// From now on nft refuses rules that look up sockets, as on a kernel without
/// `CONFIG_NFT_SOCKET`.
fn refuse_socket_lookups() {
    let nft = find("nft").unwrap();
    let script = "#!/bin/sh
        case \"$*\" in *-f*) ;; *) exec /run/nft \"$@\";; esac
        rules=$(cat)
        case \"$rules\" in *'\"socket\"'*)
            echo 'Error: Could not process rule: No such file or directory' >&2
            exit 1;;
        esac
        printf %s \"$rules\" | /run/nft \"$@\"\n";
    std::fs::copy(&nft, "/run/nft").unwrap();
    std::fs::write("/run/older", script).unwrap();
    sh(&format!("chmod 755 /run/older && mount --bind /run/older {}", nft.display()));
}

#[test]
fn a_kernel_that_looks_up_no_sockets_guards_programs_that_were_refused() {
    in_namespace("a_kernel_that_looks_up_no_sockets_guards_programs_that_were_refused", || {
        need_program("the guard", "nft");
        let lab = Lab::new("a kernel that looks up no sockets");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let rules = || sh("nsenter --net=/run/netns/client nft list ruleset");
        lab.rove("client", &format!("up {invite} --kill-switch")).ok();
        assert_eq!(rules().matches("socket mark").count(), 4, "{}", rules());
        lab.rove("client", "down").ok();
        refuse_socket_lookups();
        let neighbour = Neighbour::new();
        for options in ["--kill-switch", ""] {
            let client = up(&lab, options);
            let rules = rules();
            assert!(rules.contains("table inet rove_guard {"), "{options}: {rules}");
            assert!(!rules.contains("socket mark"), "{options}: {rules}");
            neighbour.forges_in_vain_for_older_sockets(options);
            if options.is_empty() {
                neighbour.visit(SERVED[0], options);
            }
            assert_eq!(client.terminate(), Some(0));
            lab.rove("client", "down");
        }
    });
}
