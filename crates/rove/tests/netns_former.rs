//! The tunnel's addresses after its end: no packet leaves the host with one of them, in any of the
//! ways in which a tunnel can end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use support::capture::Capture;
use support::netns::{Lab, Running, hide_nft, in_namespace, inside, need_program, sh, wait_until};

const SERVER: [&str; 2] = ["198.51.100.80:7", "[2001:db8:b::2]:7"];
const INNER: [&str; 2] = ["10.77.0.2", "fd77::2"];
const TICK: Duration = Duration::from_millis(20);

/// A server that repeats every byte and every datagram.
fn echo(at: &'static str) {
    let open = move || (UdpSocket::bind(at).unwrap(), TcpListener::bind(at).unwrap());
    let (udp, listener) = inside("server", open).join().unwrap();
    std::thread::spawn(move || {
        let mut datagram = [0; 100];
        while let Ok((got, from)) = udp.recv_from(&mut datagram) {
            let _ = udp.send_to(&datagram[..got], from);
        }
    });
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut bytes = [0; 100];
                while let Ok(got @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..got]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// The sockets of a program that speaks all the time: by kind, in both families.
enum Speaker {
    Tcp(TcpStream),
    /// Connected, and left to the kernel to address.
    Connected(UdpSocket),
    /// Bound to the tunnel's address, and not connected.
    Bound(UdpSocket, SocketAddr),
}

/// The kernel ended a connection (ECONNABORTED).
struct Ended;

impl Speaker {
    /// Whether an answer came.
    fn speak(&mut self) -> Result<bool, Ended> {
        let mut bytes = [0; 100];
        let spoken = match self {
            Self::Tcp(stream) => stream.write(b"x"),
            Self::Connected(socket) => socket.send(b"x"),
            Self::Bound(socket, to) => socket.send_to(b"x", *to),
        };
        let heard = match self {
            Self::Tcp(stream) => stream.read(&mut bytes),
            Self::Connected(socket) | Self::Bound(socket, _) => socket.recv(&mut bytes),
        };
        // The kernel tells an error once, to the call that comes first after it.
        let errors = [spoken.err(), heard.as_ref().err().map(|error| error.kind().into())];
        let is_end = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionAborted;
        if errors.iter().flatten().any(is_end) {
            Err(Ended)
        } else {
            Ok(heard.is_ok_and(|got| got > 0))
        }
    }
}

/// Such a program. Its sockets are all open until it is stopped.
struct Program {
    enough: Arc<AtomicBool>,
    /// Answers to each socket.
    heard: Arc<[AtomicU32; 7]>,
    /// The sockets whose connection was ended.
    ended: Arc<Mutex<BTreeSet<usize>>>,
    thread: JoinHandle<()>,
}

/// For each family: TCP, UDP connected, UDP bound. And IPv4 by a socket of IPv6.
fn speakers() -> Vec<Speaker> {
    let mut speakers = Vec::new();
    for (to, inner) in SERVER.into_iter().zip(INNER) {
        let to: SocketAddr = to.parse().unwrap();
        let inner: IpAddr = inner.parse().unwrap();
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(3)).unwrap();
        stream.set_nonblocking(true).unwrap();
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let [connected, bound] = [any, inner].map(|from| UdpSocket::bind((from, 0)).unwrap());
        connected.connect(to).unwrap();
        assert_eq!(connected.local_addr().unwrap().ip(), inner, "the tunnel's address");
        for socket in [&connected, &bound] {
            socket.set_nonblocking(true).unwrap();
        }
        speakers.push(Speaker::Tcp(stream));
        speakers.push(Speaker::Connected(connected));
        speakers.push(Speaker::Bound(bound, to));
    }
    let mapped = socket(AddressFamily::INET6, SocketType::DGRAM, None).unwrap();
    sockopt::set_ipv6_v6only(&mapped, false).unwrap();
    bind(&mapped, &"[::]:0".parse::<SocketAddr>().unwrap()).unwrap();
    connect(&mapped, &"[::ffff:198.51.100.80]:7".parse::<SocketAddr>().unwrap()).unwrap();
    let mapped = UdpSocket::from(mapped);
    mapped.set_nonblocking(true).unwrap();
    speakers.push(Speaker::Connected(mapped));
    speakers
}

/// The places of those in [`speakers`] that are connected.
const CONNECTED: [usize; 5] = [0, 1, 3, 4, 6];

impl Program {
    fn start() -> Self {
        let enough = Arc::<AtomicBool>::default();
        let heard = Arc::<[AtomicU32; 7]>::default();
        let ended = Arc::<Mutex<BTreeSet<usize>>>::default();
        let told = (Arc::clone(&enough), Arc::clone(&heard), Arc::clone(&ended));
        let thread = inside("client", move || {
            let (enough, heard, ended) = told;
            let mut speakers = speakers();
            while !enough.load(Ordering::Acquire) {
                for (at, speaker) in speakers.iter_mut().enumerate() {
                    match speaker.speak() {
                        Ok(answered) => {
                            heard[at].fetch_add(u32::from(answered), Ordering::AcqRel);
                        }
                        Err(Ended) => drop(ended.lock().unwrap().insert(at)),
                    }
                }
                sleep(TICK);
            }
        });
        Self { enough, heard, ended, thread }
    }

    /// Whether each of these sockets has had an answer.
    fn all_heard(&self, places: &[usize]) -> bool {
        places.iter().all(|at| self.heard[*at].load(Ordering::Acquire) > 0)
    }

    fn forget(&self) {
        self.heard.iter().for_each(|heard| heard.store(0, Ordering::Release));
    }

    fn ended(&self) -> Vec<usize> {
        self.ended.lock().unwrap().iter().copied().collect()
    }

    fn stop(self) {
        self.enough.store(true, Ordering::Release);
        self.thread.join().unwrap();
    }
}

fn up(lab: &Lab) -> Running {
    let client = lab.start("client", "up --foreground");
    wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
    client
}

fn rules() -> String {
    sh("ip -n client rule; ip -n client -6 rule")
}

/// Ways to end a tunnel.
const ENDS: [&str; 4] = ["down", "terminated", "down after a crash", "a start after a crash"];

#[test]
fn no_packet_has_the_tunnels_address_after_its_end() {
    in_namespace("no_packet_has_the_tunnels_address_after_its_end", || {
        need_program("the guard", "nft");
        let lab = Lab::new("after the end");
        let gateway = lab.gateway();
        SERVER.into_iter().for_each(echo);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let before = rules();
        let cable = Capture::start("client");
        let inner: BTreeSet<IpAddr> = INNER.map(|inner| inner.parse().unwrap()).into();
        for filtered in [true, false] {
            if !filtered {
                hide_nft();
            }
            for how in ENDS {
                let what = format!("{how}, filtered: {filtered}");
                let client = up(&lab);
                let program = Program::start();
                wait_until("all are answered", || program.all_heard(&[0, 1, 2, 3, 4, 5, 6]));
                program.forget();
                cable.take_sources();
                let mut later = None;
                match how {
                    "down" => drop(lab.rove("client", "down").ok()),
                    "terminated" => assert_eq!(client.terminate(), Some(0)),
                    _ => {
                        client.kill();
                        if how == "down after a crash" {
                            // Also if the node's user left something else in place of the lock.
                            let lock = lab.home("client").join("client.state/lock");
                            let lock = lock.display();
                            sh(&format!("rm {lock} && mkfifo {lock}"));
                            lab.rove("client", "down").ok();
                            sh(&format!("rm {lock}"));
                        } else {
                            // It finds no gateway for a while.
                            sh(&format!("kill -STOP {}", gateway.child.id()));
                            later = Some(lab.start("client", "up --foreground --timeout 60s"));
                            wait_until("what was left is removed", || !rules().contains("5191:"));
                        }
                    }
                }
                sleep(40 * TICK);
                let seen = cable.take_sources();
                assert!(seen.is_disjoint(&inner), "{what}: {seen:?}");
                let ended: &[usize] = if how.starts_with("down") { &CONNECTED } else { &[] };
                assert_eq!(program.ended(), ended, "{what}");
                assert_eq!(rules().matches("from fd77::2 unreachable").count(), 1, "{what}");
                if let Some(client) = later {
                    sh(&format!("kill -CONT {}", gateway.child.id()));
                    wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
                    program.forget();
                    wait_until("connections go on", || program.all_heard(&CONNECTED));
                    assert!(!rules().contains("5192:"), "{what}");
                    assert_eq!(client.terminate(), Some(0));
                }
                program.stop();
                let _client = up(&lab);
                assert!(!rules().contains("5192:"), "{what}");
                lab.rove("client", "down").ok();
                assert_eq!(rules(), before, "{what}");
            }
        }
    });
}
