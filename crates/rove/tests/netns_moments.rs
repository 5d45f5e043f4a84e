//! The moments in which the tunnel begins and ends: every packet finds a route, and none that
//! belongs into the tunnel leaves beside it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use support::netns::{Lab, Running, in_namespace, inside, need_program, serve_pattern, wait_until};

const SERVER: [&str; 2] = ["198.51.100.80", "2001:db8:b::2"];
const INNER: [&str; 2] = ["10.77.0.2", "fd77::2"];
/// Datagrams are numbered by their destination port.
const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 25_000;
const TICK: Duration = Duration::from_millis(1);

/// By family: the source addresses of the datagrams that a server received, by port.
type Heard = [BTreeMap<u16, IpAddr>; 2];

/// Hears all datagrams to the server.
fn hear() -> Arc<Mutex<Heard>> {
    let heard = Arc::<Mutex<Heard>>::default();
    for (at, family) in [AddressFamily::INET, AddressFamily::INET6].into_iter().enumerate() {
        let open = move || {
            let flags = SocketFlags::empty();
            socket_with(family, SocketType::RAW, flags, Some(ipproto::UDP)).unwrap()
        };
        let socket = inside("server", open).join().unwrap();
        let heard = Arc::clone(&heard);
        std::thread::spawn(move || {
            let socket = UdpSocket::from(socket);
            let mut packet = [0; 200];
            while let Ok((_, from)) = socket.recv_from(&mut packet) {
                // A raw socket gives the IPv4 header too.
                let header = if at == 0 { 20 } else { 0 };
                let port = u16::from_be_bytes([packet[header + 2], packet[header + 3]]);
                heard.lock().unwrap()[at].insert(port, from.ip());
            }
        });
    }
    heard
}

/// A program that makes connections all the time.
struct Program {
    enough: Arc<AtomicBool>,
    datagrams: JoinHandle<BTreeMap<String, u32>>,
    streams: JoinHandle<BTreeMap<String, u32>>,
}

impl Program {
    /// One whose datagrams go to these ports, one after the other.
    fn start(ports: Range<u16>) -> Self {
        let enough = Arc::<AtomicBool>::default();
        let (told, told_too) = (Arc::clone(&enough), Arc::clone(&enough));
        let datagrams = inside("client", move || {
            let mut failed = BTreeMap::new();
            for port in ports {
                for (server, from) in SERVER.into_iter().zip(["0.0.0.0:0", "[::]:0"]) {
                    let to = SocketAddr::new(server.parse().unwrap(), port);
                    let sent = UdpSocket::bind(from).unwrap().send_to(b"secret", to);
                    note(&mut failed, "datagram", server, sent.err());
                }
                if told.load(Ordering::Acquire) {
                    break;
                }
                sleep(TICK);
            }
            failed
        });
        let streams = inside("client", move || {
            let mut failed = BTreeMap::new();
            while !told_too.load(Ordering::Acquire) {
                for server in SERVER {
                    let to = SocketAddr::new(server.parse().unwrap(), 80);
                    let made = TcpStream::connect_timeout(&to, Duration::from_millis(300));
                    // What is under way at that moment cannot change its source address, and ends
                    // with the tunnel.
                    let error = made.err().filter(|error| {
                        ![ErrorKind::TimedOut, ErrorKind::ConnectionAborted].contains(&error.kind())
                    });
                    note(&mut failed, "connection", server, error);
                }
                sleep(TICK);
            }
            failed
        });
        Self { enough, datagrams, streams }
    }

    /// What failed, and how often.
    fn stop(self) -> BTreeMap<String, u32> {
        self.enough.store(true, Ordering::Release);
        let mut failed = self.datagrams.join().unwrap();
        failed.extend(self.streams.join().unwrap());
        failed
    }
}

fn note(
    failed: &mut BTreeMap<String, u32>,
    what: &str,
    server: &str,
    error: Option<std::io::Error>,
) {
    if let Some(error) = error {
        *failed.entry(format!("{what} to {server}: {error}")).or_default() += 1;
    }
}

/// Those of `ports` to which datagrams came by the tunnel, and otherwise. What an earlier program
/// sent may come late, and has other ports.
fn sides(heard: &Heard, at: usize, ports: &Range<u16>) -> [Vec<u16>; 2] {
    let inner: IpAddr = INNER[at].parse().unwrap();
    let of_ports = heard[at].range(ports.clone());
    let (inside, outside) = of_ports.partition::<Vec<_>, _>(|(_, from)| **from == inner);
    [inside, outside].map(|side| side.into_iter().map(|(port, _)| *port).collect())
}

fn up(lab: &Lab, options: &str) -> Running {
    let client = lab.start("client", &format!("up --foreground {options}"));
    wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
    client
}

#[test]
fn every_packet_has_a_route_while_the_tunnel_begins_and_ends() {
    in_namespace("every_packet_has_a_route_while_the_tunnel_begins_and_ends", || {
        need_program("the guard", "nft");
        let lab = Lab::new("begin and end");
        let _gateway = lab.gateway();
        for server in ["198.51.100.80:80", "[2001:db8:b::2]:80"] {
            serve_pattern("server", server, 10);
        }
        let heard = hear();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let some = "--route 198.51.100.0/24 --route 2001:db8:b::/64";
        for options in ["", some, "--kill-switch"] {
            let ports = FIRST_PORT..FIRST_PORT + PORTS;
            let begins = Program::start(ports.clone());
            wait_until("it speaks", || heard.lock().unwrap()[1].len() > 20);
            let client = up(&lab, options);
            wait_until("the tunnel is used", || {
                (0..2).all(|at| sides(&heard.lock().unwrap(), at, &ports)[0].len() > 20)
            });
            let failed = begins.stop();
            // Behind a kill switch nothing leaves from the start until there is a tunnel.
            if options != "--kill-switch" {
                assert_eq!(failed, BTreeMap::new(), "up {options}");
            }
            let begun = std::mem::take(&mut *heard.lock().unwrap());
            for at in 0..2 {
                let [inside, outside] = sides(&begun, at, &ports);
                assert!(outside.last() < inside.first(), "{options}: in clear after the tunnel");
            }

            let ports = FIRST_PORT + PORTS..FIRST_PORT + 2 * PORTS;
            let ends = Program::start(ports.clone());
            wait_until("it speaks", || {
                (0..2).all(|at| sides(&heard.lock().unwrap(), at, &ports)[0].len() > 20)
            });
            lab.rove("client", "down").ok();
            drop(client);
            wait_until("the tunnel is not used", || {
                (0..2).all(|at| sides(&heard.lock().unwrap(), at, &ports)[1].len() > 20)
            });
            assert_eq!(ends.stop(), BTreeMap::new(), "down {options}");
            let ended = std::mem::take(&mut *heard.lock().unwrap());
            for at in 0..2 {
                let [inside, outside] = sides(&ended, at, &ports);
                assert!(inside.last() < outside.first(), "{options}: the tunnel after its end");
            }
        }
    });
}
