//! The gateway's side: one port for Rove's streams and, behind them, any web server.
//!
//! An accepted connection is a *visitor* until its protocol is known. Rove's connections begin with
//! a preface, or with TLS whose first message offers `rove/1` and whose handshake completes. They
//! are handed over as an open [`Stream`]. Any other connection is passed to the `backend`, byte for
//! byte from its first, or closed if there is none.
//!
//! Everything is bounded: visitors in all and from each source, the time of each, and the passed
//! connections. A full table drops its oldest entry, so that nobody can keep it full: Rove's client
//! is through within two round trips.
//!
//! It is one descriptor to its owner (an epoll of its own) and makes progress only in
//! [`Listener::turn`]. It does not know the clients: an open stream is still a stranger's, and its
//! owner closes streams on which nothing is proven. Limits: the backend sees the gateway's address
//! instead of the visitor's.

mod splice;
pub(crate) mod visitor;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, ErrorKind},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
    time::Duration,
};

use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use rustls::ServerConfig;
use socket2::Socket;

pub use self::splice::SPLICE_BUFFER_LEN;
use self::{
    splice::{Pumped, Splice},
    visitor::{Verdict, Visitor},
};
use super::{Stream, socket, tls};
use crate::{error::Error, udp::Queue};

/// Addresses that one listener may have: as many as a gateway may have of UDP, which each of its
/// moves adds one to.
pub const LISTEN_MAX: usize = 1_024;
/// Visitors whose language is not known yet, or whose TLS handshake is not done.
pub const HANDSHAKES_MAX: usize = 256;
/// Of them, those from one source: an IPv4 address, or 64 bits of an IPv6 address. Many clients
/// may be behind one address, but their handshakes are short.
pub const HANDSHAKES_PER_SOURCE: usize = 32;
/// How long a visitor may take: TLS over a path of two seconds, with a loss.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections passed on to the backend at once.
pub const SPLICES_MAX: usize = 256;
/// Of them, those from one source.
pub const SPLICES_PER_SOURCE: usize = 64;
/// How long a connection that is passed on may be silent in both directions.
pub const SPLICE_IDLE: Duration = Duration::from_secs(120);

/// Connections accepted in one turn; then the data thread has other work.
const ACCEPTS_PER_TURN: usize = 64;
/// Readiness that one turn takes.
const EVENTS_PER_TURN: usize = 256;
/// How long nothing is accepted after the process ran out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

// Where a full house leads: below 30 MB.
const _: () = assert!(
    HANDSHAKES_MAX * (visitor::HELLO_LEN_MAX * 2 + (32 << 10))
        + SPLICES_MAX * SPLICE_BUFFER_LEN * 2
        < 30 << 20
);

/// How to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListenOptions<'a> {
    /// Where, at most [`LISTEN_MAX`]. MPTCP is spoken wherever the kernel has it.
    pub local: &'a [SocketAddr],
    /// For IPv6 addresses: IPv6 alone.
    pub ipv6_only: bool,
    /// Mark of every packet (`SO_MARK`).
    pub mark: Option<u32>,
    /// The web server that shares the port.
    pub backend: Option<SocketAddr>,
}

/// An address where streams can come in: bound, so that it is known whether it can be had, and with
/// whoever connects waiting until a [`Listener`] takes it.
#[derive(Debug)]
pub struct ListeningSocket(Socket);

impl ListeningSocket {
    /// Binds `local`, for IPv6 alone if that is asked for; `mark` is that of every packet
    /// (`SO_MARK`).
    ///
    /// # Errors
    /// [`Error::TcpPortInUse`], [`Error::AddressNotLocal`], [`Error::NoPrivilege`] (for a mark, or
    /// a port below 1024), or [`Error::Os`].
    pub fn bind(local: SocketAddr, ipv6_only: bool, mark: Option<u32>) -> Result<Self, Error> {
        socket::listen(local, ipv6_only, mark).map(Self)
    }

    /// Where it is bound, with the port that the kernel chose.
    pub fn local(&self) -> Option<SocketAddr> {
        self.0.local_addr().ok()?.as_socket()
    }
}

/// Listens for streams.
#[derive(Debug)]
pub struct Listener {
    poll: Poll,
    sockets: Vec<Socket>,
    tls: Arc<ServerConfig>,
    mark: Option<u32>,
    backend: Option<SocketAddr>,
    guests: BTreeMap<u64, Guest>,
    /// The number of the next guest; older guests have smaller numbers.
    next: u64,
    /// Listening sockets that may have more to accept.
    acceptable: BTreeSet<usize>,
    /// Guests that had more to do than one turn allows.
    unfinished: BTreeSet<u64>,
    paused_until: Option<u64>,
}

/// One connection.
#[derive(Debug)]
struct Guest {
    source: IpAddr,
    /// When it is over, unless something happens.
    until: u64,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Visiting(Box<Visitor>),
    Passed(Box<Splice>),
}

impl Listener {
    /// Binds all addresses, or none.
    ///
    /// # Errors
    /// Those of [`ListeningSocket::bind`] and of [`Listener::new`].
    pub fn bind(options: &ListenOptions<'_>) -> Result<Self, Error> {
        let mut listener = Self::new(options.backend, options.mark)?;
        for &local in options.local {
            let socket = ListeningSocket::bind(local, options.ipv6_only, options.mark)?;
            listener.add(socket)?;
        }
        Ok(listener)
    }

    /// A listener without an address. What comes to one and is not for Rove is passed on to
    /// `backend`, with `mark` on its packets.
    ///
    /// # Errors
    /// [`Error::Tls`], or [`Error::Os`].
    pub fn new(backend: Option<SocketAddr>, mark: Option<u32>) -> Result<Self, Error> {
        Ok(Self {
            poll: Poll::new().map_err(|error| Error::os("make an epoll", error))?,
            sockets: Vec::new(),
            tls: tls::server()?,
            mark,
            backend,
            guests: BTreeMap::new(),
            next: 0,
            acceptable: BTreeSet::new(),
            unfinished: BTreeSet::new(),
            paused_until: None,
        })
    }

    /// Takes who comes to one more address, besides those that it has.
    ///
    /// # Errors
    /// [`Error::Os`], also when there are [`LISTEN_MAX`] already.
    pub fn add(&mut self, ListeningSocket(socket): ListeningSocket) -> Result<(), Error> {
        let what = "watch a listening TCP socket";
        if self.sockets.len() >= LISTEN_MAX {
            return Err(Error::os(what, io::Error::other("too many of them")));
        }
        let token = Token(self.sockets.len());
        self.poll
            .registry()
            .register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)
            .map_err(|error| Error::os(what, error))?;
        self.sockets.push(socket);
        Ok(())
    }

    /// The addresses that it listens on, with the ports that the kernel chose.
    pub fn locals(&self) -> impl Iterator<Item = SocketAddr> {
        self.sockets.iter().filter_map(|socket| socket.local_addr().ok()?.as_socket())
    }

    /// Does what can be done at `now` (nanoseconds of the owner's clock) and hands over streams
    /// that are open; some may have received something already. Call it when the descriptor is
    /// readable, when [`Listener::timeout`] says so, and again at once after [`Queue::Unknown`].
    ///
    /// # Errors
    /// [`Error::Os`] when the listener is of no use any more.
    pub fn turn(&mut self, now: u64, mut each: impl FnMut(Stream)) -> Result<Queue, Error> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        match self.poll.poll(&mut events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(Error::os("wait for TCP connections", error));
            }
            Ok(()) | Err(_) => {}
        }
        let mut ready = std::mem::take(&mut self.unfinished);
        for event in &events {
            match guest_of(event.token()) {
                Some(id) => drop(ready.insert(id)),
                None => drop(self.acceptable.insert(event.token().0)),
            }
        }
        for id in ready {
            self.go_on(id, now, &mut each);
        }
        self.accept(now)?;
        self.forget_late(now);
        let is_all = events.is_empty()
            && self.unfinished.is_empty()
            && (self.acceptable.is_empty() || self.paused_until.is_some());
        Ok(if is_all { Queue::Empty } else { Queue::Unknown })
    }

    /// When the next turn is due, if nothing happens before.
    pub fn timeout(&self) -> Option<u64> {
        let guests = self.guests.values().map(|guest| guest.until).min();
        [guests, self.paused_until].into_iter().flatten().min()
    }

    /// Visitors that have not shown what they speak, and connections passed on to the backend.
    pub fn counts(&self) -> (usize, usize) {
        let visitors = self.count(|guest| guest.is_visiting());
        (visitors, self.guests.len() - visitors)
    }

    fn accept(&mut self, now: u64) -> Result<(), Error> {
        if self.paused_until.is_some_and(|until| now < until) {
            return Ok(());
        }
        self.paused_until = None;
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(&at) = self.acceptable.first() else { break };
            match self.sockets[at].accept() {
                Ok((socket, from)) => {
                    if let Some(from) = from.as_socket() {
                        // Whoever is gone already, or whom nothing is left for, is no loss.
                        let _ = self.welcome(socket, from, now);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.acceptable.remove(&at);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        self.paused_until = Some(now + nanos(ACCEPT_PAUSE));
                        return Ok(());
                    }
                    Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK) => {
                        return Err(Error::os("accept TCP connections", error));
                    }
                    // accept(2): errors of the connection that was to be accepted.
                    Some(_) | None => {}
                },
            }
        }
        Ok(())
    }

    fn welcome(&mut self, socket: Socket, from: SocketAddr, now: u64) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        socket::tune(&socket)?;
        socket::keep_alive(&socket)?;
        let remote = canonical(from);
        let source = source_of(remote.ip());
        let is_like = |guest: &Guest| guest.is_visiting() && guest.source == source;
        if self.count(is_like) >= HANDSHAKES_PER_SOURCE {
            self.forget_oldest(is_like);
        } else if self.count(Guest::is_visiting) >= HANDSHAKES_MAX {
            self.forget_oldest(Guest::is_visiting);
        }
        let id = self.next;
        self.next += 1;
        // Its first bytes may be there: by edges, that is told once more when it is watched.
        watch(&self.poll, socket.as_raw_fd(), id, Side::Visitor)?;
        let stage = Stage::Visiting(Box::new(Visitor::new(socket, remote)));
        self.guests.insert(id, Guest { source, until: now + nanos(HANDSHAKE_TIMEOUT), stage });
        Ok(())
    }

    /// Lets one guest do what it can.
    fn go_on(&mut self, id: u64, now: u64, each: &mut impl FnMut(Stream)) {
        let Some(mut guest) = self.guests.remove(&id) else { return };
        match guest.stage {
            Stage::Visiting(visitor) => match visitor.advance(&self.tls) {
                Verdict::Waits(visitor) => {
                    guest.stage = Stage::Visiting(visitor);
                    self.guests.insert(id, guest);
                }
                Verdict::Rove { socket, remote, carrier } => {
                    // Watched by its new owner from now on.
                    let _ = self.poll.registry().deregister(&mut SourceFd(&socket.as_raw_fd()));
                    each(Stream::accepted(socket, remote, carrier, now));
                }
                Verdict::Foreign(visitor) => self.pass_on(id, guest.source, *visitor, now),
                Verdict::Gone => {}
            },
            Stage::Passed(mut splice) => {
                match splice.pump() {
                    Pumped::Over => return,
                    Pumped::Moved => guest.until = now + nanos(SPLICE_IDLE),
                    Pumped::More => {
                        guest.until = now + nanos(SPLICE_IDLE);
                        self.unfinished.insert(id);
                    }
                    Pumped::Nothing => {}
                }
                guest.stage = Stage::Passed(splice);
                self.guests.insert(id, guest);
            }
        }
    }

    /// Connects a visitor with the backend, or turns it away.
    fn pass_on(&mut self, id: u64, source: IpAddr, visitor: Visitor, now: u64) {
        let Some(backend) = self.backend else { return visitor.turn_away() };
        let is_passed = |guest: &Guest| !guest.is_visiting();
        if self.count(|guest| is_passed(guest) && guest.source == source) >= SPLICES_PER_SOURCE {
            return;
        }
        if self.count(is_passed) >= SPLICES_MAX {
            self.forget_quietest();
        }
        let Ok(behind) = socket::connect_backend(backend, self.mark) else { return };
        if watch(&self.poll, behind.as_raw_fd(), id, Side::Backend).is_ok() {
            let stage = Stage::Passed(Box::new(visitor.into_splice(behind)));
            self.guests.insert(id, Guest { source, until: now + nanos(SPLICE_IDLE), stage });
            self.unfinished.insert(id);
        }
    }

    fn count(&self, is_meant: impl Fn(&Guest) -> bool) -> usize {
        self.guests.values().filter(|guest| is_meant(guest)).count()
    }

    fn forget_oldest(&mut self, is_meant: impl Fn(&Guest) -> bool) {
        let oldest = self.guests.iter().find(|(_, guest)| is_meant(guest)).map(|(&id, _)| id);
        self.forget(oldest);
    }

    /// The passed connection that was silent longest.
    fn forget_quietest(&mut self) {
        let passed = self.guests.iter().filter(|(_, guest)| !guest.is_visiting());
        let quietest = passed.min_by_key(|(_, guest)| guest.until).map(|(&id, _)| id);
        self.forget(quietest);
    }

    fn forget_late(&mut self, now: u64) {
        self.guests.retain(|_, guest| guest.until > now);
        self.unfinished.retain(|id| self.guests.contains_key(id));
    }

    /// Closing the descriptors removes them from the epoll.
    fn forget(&mut self, id: Option<u64>) {
        if let Some(id) = id {
            self.guests.remove(&id);
            self.unfinished.remove(&id);
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.poll.as_raw_fd()
    }
}

impl Guest {
    const fn is_visiting(&self) -> bool {
        matches!(self.stage, Stage::Visiting(_))
    }
}

/// Which of a guest's two connections.
#[derive(Clone, Copy)]
enum Side {
    Visitor = 0,
    Backend = 1,
}

fn watch(poll: &Poll, descriptor: RawFd, id: u64, side: Side) -> io::Result<()> {
    let number = usize::try_from(id * 2).map_err(io::Error::other)?;
    let token = Token(LISTEN_MAX + number + side as usize);
    let interest = Interest::READABLE | Interest::WRITABLE;
    poll.registry().register(&mut SourceFd(&descriptor), token, interest)
}

/// The guest that a token means; `None` for a listening socket.
fn guest_of(token: Token) -> Option<u64> {
    token.0.checked_sub(LISTEN_MAX).map(|number| number as u64 / 2)
}

/// IPv4 as IPv4, IPv6 with its scope.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// What one attacker has without effort: an IPv4 address, or the /64 of an IPv6 address.
fn source_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
