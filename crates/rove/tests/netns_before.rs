//! Connections from before `rove up`: none of them goes on beside the tunnel, except those that it
//! leaves out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
use socket2::{Domain, Type};
use support::capture::Capture;
use support::netns::{Lab, Running, echo, in_namespace, inside, need_program, sh, wait_until};

/// The tunnel's own datagrams.
const TUNNEL: [&str; 2] = ["udp 192.0.2.1:4500", "udp [2001:db8:a::2]:4500"];
/// The server's addresses that the tunnel leads to in every case below.
const INSIDE: [&str; 2] = ["198.51.100.80:7", "[2001:db8:b::2]:7"];
/// An address of the server that every case leaves out.
const OUTSIDE: &str = "198.51.100.81:7";
/// The client's own addresses.
const OWN: [&str; 2] = ["203.0.113.2", "2001:db8:c::2"];
/// The client's link.
const LINK: &str = "to-router";
/// Connections of each kind and family.
const COUNT: usize = 10;
const TICK: Duration = Duration::from_millis(50);

/// A server that speaks without being asked, to everybody that it knows.
#[derive(Clone, Default)]
struct Speaker {
    /// By its own address.
    known: Arc<Mutex<BTreeSet<(SocketAddr, SocketAddr)>>>,
}

impl Speaker {
    fn start(host: &str, at: &[&'static str]) -> Self {
        let speaker = Self::default();
        for at in at.iter().copied() {
            let bind = move || (UdpSocket::bind(at).unwrap(), TcpListener::bind(at).unwrap());
            let (socket, listener) = inside(host, bind).join().unwrap();
            std::thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    std::thread::spawn(move || speak_by(stream));
                }
            });
            let own = socket.local_addr().unwrap();
            let (known, ear) = (Arc::clone(&speaker.known), socket.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut datagram = [0; 100];
                while let Ok((_, from)) = ear.recv_from(&mut datagram) {
                    known.lock().unwrap().insert((own, from));
                }
            });
            let known = Arc::clone(&speaker.known);
            std::thread::spawn(move || {
                loop {
                    sleep(TICK);
                    let to: Vec<_> = known.lock().unwrap().iter().copied().collect();
                    for (_, to) in to.into_iter().filter(|(by, _)| *by == own) {
                        let _ = socket.send_to(b"speaker", to);
                    }
                }
            });
        }
        speaker
    }

    fn forget(&self) {
        self.known.lock().unwrap().clear();
    }
}

/// Writes and reads until the connection breaks.
fn speak_by(mut stream: TcpStream) {
    stream.set_read_timeout(Some(TICK)).unwrap();
    let mut bytes = [0; 1000];
    while stream.write_all(b"speaker").is_ok() {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            Ok(_) | Err(_) => {}
        }
    }
}

/// A program of the client with many connections, which speaks on all of them. Somebody listens
/// for IPv6 on the port of each TCP connection of IPv4.
struct Program {
    enough: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
    answers: Arc<AtomicU32>,
    thread: JoinHandle<()>,
}

impl Program {
    /// Connects by TCP and UDP, and has as many UDP sockets that are not connected: some bound to
    /// the host's address, others to a link. Half of the connections are bound to that link, too.
    fn start(to: &[&str]) -> Self {
        let (enough, is_silent) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let answers = Arc::<AtomicU32>::default();
        let to: Vec<SocketAddr> = to.iter().map(|to| to.parse().unwrap()).collect();
        let told = (Arc::clone(&enough), Arc::clone(&is_silent), Arc::clone(&answers));
        let thread = inside("client", move || {
            let (enough, is_silent, answers) = told;
            let mut connections: Vec<_> = to.into_iter().flat_map(connections).collect();
            while !enough.load(Ordering::Acquire) {
                for connection in &mut connections {
                    if !is_silent.load(Ordering::Acquire) {
                        connection.speak();
                    }
                    answers.fetch_add(connection.hear(), Ordering::AcqRel);
                }
                sleep(TICK);
            }
        });
        Self { enough, is_silent, answers, thread }
    }

    /// Answers since the last call.
    fn answers(&self) -> u32 {
        self.answers.swap(0, Ordering::AcqRel)
    }

    fn stop(self) {
        self.enough.store(true, Ordering::Release);
        self.thread.join().unwrap();
    }
}

enum Connection {
    Tcp(TcpStream, Option<OwnedFd>),
    Udp(UdpSocket, SocketAddr),
}

fn connections(to: SocketAddr) -> Vec<Connection> {
    let own = OWN.map(|own| own.parse::<IpAddr>().unwrap());
    let own = own.into_iter().find(|own| own.is_ipv4() == to.is_ipv4()).unwrap();
    let unbound: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let of_each = |at: usize| {
        let link = (at % 2 == 1).then_some(LINK);
        let stream = new_socket(to, Type::STREAM, link);
        stream.connect_timeout(&to.into(), Duration::from_secs(3)).unwrap();
        let udp = |from: IpAddr, link| {
            let socket = new_socket(to, Type::DGRAM, link);
            socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
            UdpSocket::from(socket)
        };
        let sockets = [udp(unbound, link), udp(own, None), udp(unbound, Some(LINK))];
        sockets[0].connect(to).unwrap();
        let stream = TcpStream::from(stream);
        stream.set_nonblocking(true).unwrap();
        let listener = listener_of_ipv6(stream.local_addr().unwrap());
        let udp = sockets.map(|socket| {
            socket.set_nonblocking(true).unwrap();
            Connection::Udp(socket, to)
        });
        [Connection::Tcp(stream, listener)].into_iter().chain(udp)
    };
    let all: Vec<_> = (0..COUNT).flat_map(of_each).collect();
    let have = all.iter().filter(|one| matches!(one, Connection::Tcp(_, Some(_)))).count();
    assert!(!to.is_ipv4() || have > COUNT / 2, "{have} listeners of IPv6");
    all
}

/// A socket, bound to a link.
fn new_socket(to: SocketAddr, kind: Type, link: Option<&str>) -> socket2::Socket {
    let socket = socket2::Socket::new(Domain::for_address(to), kind, None).unwrap();
    socket.bind_device(link.map(str::as_bytes)).unwrap();
    socket
}

/// For a connection of IPv4, unless another program's connection of IPv6 has the same port. The
/// kernel allows no such listener of IPv4 beside one of IPv6.
fn listener_of_ipv6(own: SocketAddr) -> Option<OwnedFd> {
    if !own.is_ipv4() {
        return None;
    }
    let listener = socket(AddressFamily::INET6, SocketType::STREAM, None).unwrap();
    sockopt::set_ipv6_v6only(&listener, true).unwrap();
    match bind(&listener, &SocketAddr::new([0; 16].into(), own.port())) {
        Ok(()) => listen(&listener, 1).unwrap(),
        Err(Errno::ADDRINUSE) => return None,
        Err(error) => panic!("{error}"),
    }
    Some(listener)
}

impl Connection {
    /// Errors are the test's aim.
    fn speak(&mut self) {
        let _ = match self {
            Self::Tcp(stream, _) => stream.write(b"program"),
            Self::Udp(socket, _) if socket.peer_addr().is_ok() => socket.send(b"program"),
            Self::Udp(socket, to) => socket.send_to(b"program", *to),
        };
    }

    fn hear(&mut self) -> u32 {
        let mut bytes = [0; 1000];
        let mut heard = || match self {
            Self::Tcp(stream, _) => stream.read(&mut bytes).is_ok_and(|got| got > 0),
            Self::Udp(socket, _) => socket.recv(&mut bytes).is_ok(),
        };
        std::iter::repeat_with(&mut heard).take_while(|heard| *heard).count() as u32
    }
}

/// Another program's packet filter, so that the kernel tracks connections from the start.
fn packet_filter() {
    sh("nsenter --net=/run/netns/client nft 'add table inet other; \
            add chain inet other input { type filter hook input priority 0; }; \
            add rule inet other input ct state established accept'");
}

/// The kernel forgets UDP flows after a second.
fn forget_soon() {
    for setting in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        let file = format!("/proc/sys/net/netfilter/{setting}");
        sh(&format!("nsenter --net=/run/netns/client sh -c 'echo 1 > {file}'"));
    }
}

fn up(lab: &Lab, options: &str) -> Running {
    let client = lab.start("client", &format!("up --foreground {options}"));
    wait_until("it carries", || lab.log("client").contains("up: 10.77.0.2"));
    client
}

/// Packets on the cable beside the tunnel while the client's programs and their servers speak.
fn beside(cable: &Capture) -> Vec<String> {
    drop(cable.take());
    sleep(10 * TICK);
    let mut seen = cable.take();
    seen.retain(|what| !TUNNEL.contains(&what.as_str()));
    seen.sort();
    seen.dedup();
    seen
}

#[test]
fn connections_from_before_up_do_not_go_on_in_clear() {
    in_namespace("connections_from_before_up_do_not_go_on_in_clear", || {
        need_program("the guard", "nft");
        let lab = Lab::new("connections from before");
        let _gateway = lab.gateway();
        sh("ip -n server addr add 198.51.100.81/24 dev to-router");
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let speaker = Speaker::start("server", &[INSIDE[0], INSIDE[1], OUTSIDE]);
        let cable = Capture::start("client");
        let exclude = "--exclude 198.51.100.81/32";
        let some = "--route 198.51.100.80/32 --route 2001:db8:b::/64";
        for filtered in [false, true] {
            if filtered {
                packet_filter();
                forget_soon();
            }
            for (options, silent) in [
                (exclude.to_owned(), filtered),
                (format!("{exclude} --kill-switch"), false),
                (format!("{exclude} --allow-lan"), false),
                (some.to_owned(), filtered),
            ] {
                let what = format!("{options:?}, filtered: {filtered}");
                speaker.forget();
                let (older, other) = (Program::start(&INSIDE), Program::start(&[OUTSIDE]));
                wait_until("all of them are answered", || {
                    speaker.known.lock().unwrap().len() >= COUNT * 3 * 3
                        && older.answers() as usize >= COUNT * 2 * 4
                });
                if silent {
                    // Longer than the kernel remembers. Then the server speaks first.
                    let known = std::mem::take(&mut *speaker.known.lock().unwrap());
                    older.is_silent.store(true, Ordering::Release);
                    sleep(Duration::from_millis(2500));
                    *speaker.known.lock().unwrap() = known;
                }
                let client = up(&lab, &options);
                older.is_silent.store(false, Ordering::Release);
                let seen = beside(&cable);
                older.answers();
                other.answers();
                let expected = ["tcp", "udp"].map(|kind| format!("{kind} {OUTSIDE}"));
                assert_eq!(seen, expected, "{what}");
                assert_eq!(beside(&cable), expected, "{what}");
                assert_eq!(older.answers(), 0, "answers: {what}");
                assert!(other.answers() > 0, "what is left out goes on: {what}");
                assert_eq!(client.terminate(), Some(0));
                lab.rove("client", "down");
                older.stop();
                other.stop();
            }
        }
    });
}

/// A neighbour with a private address.
const NEIGHBOUR: &str = "10.9.0.254:7";

/// What a reload takes away or adds: the configuration before and after it, and the destination
/// that is in the tunnel from then on.
const RELOADS: [(&str, &str, &str); 3] = [
    ("exclude = ['198.51.100.81/32']", "", OUTSIDE),
    ("allow-lan = true", "", NEIGHBOUR),
    ("route = ['198.51.100.80/32']", "route = ['198.51.100.0/24']", OUTSIDE),
];

#[test]
fn connections_that_a_reload_takes_into_the_tunnel_do_not_go_on_in_clear() {
    in_namespace("connections_that_a_reload_takes_into_the_tunnel_do_not_go_on_in_clear", || {
        need_program("the guard", "nft");
        let lab = Lab::new("reloads");
        let _gateway = lab.gateway();
        sh("ip -n server addr add 198.51.100.81/24 dev to-router
            ip -n client addr add 10.9.0.2/24 dev to-router
            ip -n router addr add 10.9.0.254/24 dev to-client");
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let (server, neighbour) =
            (Speaker::start("server", &[OUTSIDE]), Speaker::start("router", &[NEIGHBOUR]));
        let cable = Capture::start("client");
        let config = lab.home("client").join("client.toml");
        let configure =
            |text: &str| std::fs::write(&config, format!("[client]\n{text}\n")).unwrap();
        for (before, after, to) in RELOADS {
            let speaker = if to == NEIGHBOUR { &neighbour } else { &server };
            configure(before);
            let client = up(&lab, "");
            forget_soon();
            let program = Program::start(&[to]);
            wait_until("all of them are answered", || {
                speaker.known.lock().unwrap().len() >= COUNT * 3
                    && program.answers() as usize >= COUNT * 4
            });
            assert_ne!(beside(&cable), [""; 0], "{before}");
            // Longer than the kernel remembers UDP. Then the server speaks first.
            let known = std::mem::take(&mut *speaker.known.lock().unwrap());
            program.is_silent.store(true, Ordering::Release);
            sleep(Duration::from_millis(2500));
            configure(after);
            lab.rove("client", "reload").ok();
            *speaker.known.lock().unwrap() = known;
            sleep(4 * TICK);
            program.is_silent.store(false, Ordering::Release);
            assert_eq!(beside(&cable), [""; 0], "{before}");
            program.answers();
            assert_eq!(beside(&cable), [""; 0], "{before}");
            assert_eq!(program.answers(), 0, "answers: {before}");
            assert_eq!(client.terminate(), Some(0));
            lab.rove("client", "down");
            program.stop();
            speaker.forget();
        }
    });
}

/// Connected UDP sockets of one user: more than the guard can name.
const MANY: usize = 4_200;

/// Neither do visitors lose their answers, nor goes any of the sockets on.
#[test]
fn a_user_with_many_sockets_shuts_nobody_out() {
    in_namespace("a_user_with_many_sockets_shuts_nobody_out", || {
        need_program("the guard", "nft");
        let lab = Lab::new("many sockets");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let speaker = Speaker::start("server", &INSIDE[..1]);
        let cable = Capture::start("client");
        echo("client", "203.0.113.2:5300");
        let listen = || TcpListener::bind("[::]:2222").unwrap();
        let _listener = inside("client", listen).join().unwrap();
        let open = || {
            let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
            let limit = rustix::process::Rlimit { current: most, maximum: most };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
            let one = |_| {
                let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                socket.connect(INSIDE[0]).unwrap();
                socket
            };
            (0..MANY).map(one).collect::<Vec<_>>()
        };
        let sockets = inside("client", open).join().unwrap();
        let speak = || sockets.iter().for_each(|socket| drop(socket.send(b"program")));
        wait_until("the server knows them all", || {
            speak();
            speaker.known.lock().unwrap().len() == MANY
        });
        // The server speaks first, so that the flows look like incoming ones.
        let known = std::mem::take(&mut *speaker.known.lock().unwrap());
        let client = up(&lab, "");
        *speaker.known.lock().unwrap() = known;
        sleep(4 * TICK);
        speaker.forget();
        speak();
        assert_eq!(beside(&cable), [""; 0], "{MANY} sockets");
        let visit = || {
            let socket = UdpSocket::bind("198.51.100.80:5301").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            socket.send_to(b"visitor", "203.0.113.2:5300").unwrap();
            socket.recv(&mut [0; 20]).unwrap();
            let wait = Duration::from_secs(2);
            for to in ["203.0.113.2:2222", "[2001:db8:c::2]:2222"] {
                TcpStream::connect_timeout(&to.parse().unwrap(), wait).expect(to);
            }
        };
        inside("server", visit).join().unwrap();
        assert_eq!(client.terminate(), Some(0));
    });
}
