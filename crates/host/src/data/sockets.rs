//! The sockets of the data thread, by the numbers that the core gives them: UDP sockets, and
//! streams, which stand in for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rove_engine::Sockets as _;
use rove_os::error::Error;
use rove_os::links::Link;
use rove_os::stream::{
    Listener, ListeningSocket, Phase, Security, Stream, StreamOptions, Transport,
};
use rove_os::udp::{
    Datagrams, Ecn, Queue, RECEIVE_LEN, ReceiveBuffer, Received, SendError, UdpOptions, UdpSocket,
};
use rove_proto::id::{LinkId, SocketId};
use rove_proto::node::{Meta, StreamTo};
use rove_proto::outbox::{Route, Sending};
use rove_proto::time::Instant;
use rove_proto::wire::Kind;

use super::report::{Carried, Forbidden};
use super::streams::{ACCEPTED_MAX, Door, Mptcp, TRIAL_TIME, Way};
use super::token::FIRST_SOCKET;

/// Slots of one receive: with segmentation offload half a megabyte, which the outbox can hold.
const RECEIVE_SLOTS: usize = 8;
const _: () = assert!(RECEIVE_SLOTS * RECEIVE_LEN <= rove_engine::BATCH_BYTES_MAX);
/// How soon a stream with something to send is looked at although the kernel does not say that
/// there is room, in nanoseconds: MPTCP forgets to (seen with Linux 6.18 under full load).
const SEND_AGAIN: u64 = 20_000_000;
/// The segment that makes the last one of a run shorter than the others. No datagram of Rove's has
/// one byte.
const SHORT_LAST: u8 = Kind::Data as u8;

/// Sockets, the links that they are bound to, and which of them may have something to read.
pub(super) struct Sockets {
    registry: Registry,
    mark: Option<u32>,
    open: BTreeMap<SocketId, Socket>,
    ready: BTreeSet<SocketId>,
    /// The socket that was received from last. The next receive continues with the ready sockets
    /// after it, so that none starves.
    received: Option<SocketId>,
    buffer: ReceiveBuffer,
    /// Those that cannot be used any more, until the core was told.
    failed: BTreeSet<SocketId>,
    names: BTreeMap<LinkId, String>,
    /// How streams are made, by the core's numbers.
    ways: Vec<Way>,
    /// Where streams come in.
    door: Option<Door>,
    /// Streams that have yet to show what they are good for, by when.
    trials: BTreeSet<(u64, SocketId)>,
    /// Streams with something that the kernel did not take.
    waiting: BTreeSet<SocketId>,
    /// Sockets beyond which no more streams are taken.
    accepted_max: usize,
    unsent: Unsent,
    forbidden: Option<Forbidden>,
    /// A run with the segment that makes its last one shorter. Empty while no path needs that.
    lengthened: Vec<u8>,
}

/// What carries datagrams.
enum Socket {
    Udp(UdpSocket),
    Stream(Box<Carrier>),
}

/// A stream, and whether it has proven useful: open on a client, answered by the core on a gateway.
struct Carrier {
    stream: Stream,
    accepted: bool,
    used: bool,
    /// It is to be told if it is not one of MPTCP.
    wants_mptcp: bool,
}

/// Runs of datagrams that the kernel did not take, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unsent {
    /// The socket's buffer was full.
    pub(super) full: u64,
    /// Longer than the link allows, which is how a path's MTU shows.
    pub(super) too_long: u64,
    /// No route, no such source address, or the socket is gone.
    pub(super) unreachable: u64,
}

impl Sockets {
    pub(super) fn new(registry: Registry, mark: Option<u32>) -> Self {
        Self {
            registry,
            mark,
            open: BTreeMap::new(),
            ready: BTreeSet::new(),
            received: None,
            buffer: ReceiveBuffer::new(RECEIVE_SLOTS),
            failed: BTreeSet::new(),
            names: BTreeMap::new(),
            ways: Vec::new(),
            door: None,
            trials: BTreeSet::new(),
            waiting: BTreeSet::new(),
            accepted_max: ACCEPTED_MAX,
            unsent: Unsent { full: 0, too_long: 0, unreachable: 0 },
            forbidden: None,
            lengthened: Vec::new(),
        }
    }

    /// Takes a socket that is bound already.
    pub(super) fn add(&mut self, number: SocketId, socket: UdpSocket) -> io::Result<()> {
        self.watch(number, socket.as_raw_fd(), Interest::READABLE)?;
        self.open.insert(number, Socket::Udp(socket));
        Ok(())
    }

    /// Takes streams that come in by `listener` from now on.
    pub(super) fn add_door(&mut self, listener: Listener) -> io::Result<()> {
        self.door = Some(Door::new(listener, &self.registry)?);
        Ok(())
    }

    /// Takes streams at one more place; a gateway that takes none has no door to add it to.
    pub(super) fn widen_door(&mut self, socket: ListeningSocket) -> Result<(), Error> {
        self.door.as_mut().map_or(Ok(()), |door| door.widen(socket))
    }

    /// Learns the names of the links.
    pub(super) fn set_links(&mut self, links: &[(Link, bool)]) {
        let name = |link: &Link| (LinkId(link.index), link.name.clone());
        self.names = links.iter().map(|(link, _)| name(link)).collect();
    }

    /// Learns how streams are made.
    pub(super) fn set_ways(&mut self, ways: Vec<Way>) {
        self.ways = ways;
    }

    fn open_udp(&mut self, socket: SocketId, local: IpAddr, interface: &str) -> anyhow::Result<()> {
        let options = UdpOptions {
            local: SocketAddr::new(local, 0),
            ipv6_only: true,
            interface: Some(interface),
            mark: self.mark,
        };
        Ok(self.add(socket, UdpSocket::bind(options)?)?)
    }

    fn open_stream(
        &mut self,
        now: u64,
        socket: SocketId,
        local: IpAddr,
        interface: &str,
        to: StreamTo,
    ) -> anyhow::Result<()> {
        let options = StreamOptions {
            local: Some(SocketAddr::new(local, 0)),
            interface: Some(interface),
            mark: self.mark,
            remote: to.remote,
            mptcp: true,
            security: Security::Plain,
            proxy: None,
        };
        let way = self.ways.get(usize::from(to.method));
        let way = way.ok_or_else(|| anyhow::anyhow!("no stream of kind {}", to.method))?;
        let stream = way.open(options, now)?;
        let wants_mptcp = way.mptcp == Mptcp::Wanted;
        let carrier = Carrier { stream, accepted: false, used: false, wants_mptcp };
        self.add_stream(now, socket, carrier)?;
        Ok(())
    }

    fn add_stream(&mut self, now: u64, socket: SocketId, carrier: Carrier) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.watch(socket, carrier.stream.as_raw_fd(), interest)?;
        self.trials.insert((now + TRIAL_TIME, socket));
        self.open.insert(socket, Socket::Stream(Box::new(carrier)));
        Ok(())
    }

    fn watch(&mut self, socket: SocketId, descriptor: RawFd, interest: Interest) -> io::Result<()> {
        self.registry.register(&mut SourceFd(&descriptor), token_of(socket), interest)?;
        // Readiness is told by edges, and datagrams may have come before this one.
        self.ready.insert(socket);
        Ok(())
    }

    fn fail(&mut self, socket: SocketId) {
        self.close(socket);
        self.failed.insert(socket);
    }

    /// Something is ready: a stream goes on with what it waited for.
    pub(super) fn set_ready(&mut self, now: u64, event: &Event) {
        let number = event.token().0.checked_sub(FIRST_SOCKET);
        let Some(socket) = number.and_then(|n| u32::try_from(n).ok()).map(SocketId) else { return };
        match self.open.get_mut(&socket) {
            None => {}
            Some(Socket::Udp(_)) => drop(self.ready.insert(socket)),
            Some(Socket::Stream(_)) => self.go_on(now, socket, event.is_readable()),
        }
    }

    /// Lets a stream send what waits, or go on with opening.
    fn go_on(&mut self, now: u64, socket: SocketId, is_readable: bool) {
        let Some(Socket::Stream(carrier)) = self.open.get_mut(&socket) else { return };
        let before = carrier.stream.phase();
        match carrier.stream.ready(true, true, now) {
            Ok(phase) => {
                if is_readable || phase != before {
                    // What came with the end of a handshake is not shown by the descriptor.
                    self.ready.insert(socket);
                }
                if phase == Phase::Open && phase != before {
                    carrier.tell_of_mptcp();
                }
                if phase == Phase::Open && carrier.stream.unsent() > 0 {
                    self.waiting.insert(socket);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a stream did not open, or broke");
                self.fail(socket);
            }
        }
    }

    /// The door has something to do.
    pub(super) fn set_door_ready(&mut self) {
        if let Some(door) = &mut self.door {
            door.set_ready();
        }
    }

    /// Lets in who came, closes what took too long, and sends what waits.
    ///
    /// # Errors
    /// Nobody can come in any more.
    pub(super) fn keep_streams(&mut self, now: u64) -> anyhow::Result<()> {
        if let Some(mut door) = self.door.take_if(|door| door.is_ready(now)) {
            let came = door.turn(now)?;
            for stream in came {
                self.admit(now, stream, &mut door);
            }
            self.door = Some(door);
        }
        while let Some(&(due, socket)) = self.trials.first()
            && due <= now
        {
            self.trials.pop_first();
            if let Some(Socket::Stream(carrier)) = self.open.get(&socket)
                && !carrier.is_useful()
            {
                tracing::debug!(phase = ?carrier.stream.phase(), "a stream took too long");
                self.fail(socket);
            }
        }
        for socket in std::mem::take(&mut self.waiting) {
            self.go_on(now, socket, false);
        }
        Ok(())
    }

    /// A stream of a stranger. With too many of them the eldest goes that the core knows nothing
    /// of, and if there is none, the newcomer.
    fn admit(&mut self, now: u64, stream: Stream, door: &mut Door) {
        if self.open.len() >= self.accepted_max {
            let is_stranger = |socket| match self.open.get(&socket) {
                Some(Socket::Stream(carrier)) => !carrier.is_useful(),
                Some(Socket::Udp(_)) | None => false,
            };
            let Some(&eldest) = self.trials.iter().find(|&&(_, it)| is_stranger(it)) else {
                return;
            };
            self.trials.remove(&eldest);
            self.close(eldest.1);
        }
        let socket = door.number(|number| self.open.contains_key(&number));
        let carrier = Carrier { stream, accepted: true, used: false, wants_mptcp: false };
        if let Err(error) = self.add_stream(now, socket, carrier) {
            tracing::warn!(%error, "cannot watch a stream");
        }
    }

    /// When [`Sockets::keep_streams`] has something to do.
    pub(super) fn due(&self, now: u64) -> Option<u64> {
        let trial = self.trials.first().map(|&(due, _)| due);
        let door = self.door.as_ref().and_then(Door::due);
        let again = (!self.waiting.is_empty()).then_some(now + SEND_AGAIN);
        [trial, door, again].into_iter().flatten().min()
    }

    pub(super) fn is_any_ready(&self, now: u64) -> bool {
        !self.ready.is_empty()
            || !self.failed.is_empty()
            || self.door.as_ref().is_some_and(|door| door.is_ready(now))
    }

    /// The next ready socket after the last that was received from, round and round.
    fn next_ready(&self) -> Option<SocketId> {
        let after = self.received.map(|last| SocketId(last.0.wrapping_add(1)));
        let after = after.and_then(|after| self.ready.range(after..).next());
        after.or_else(|| self.ready.first()).copied()
    }

    /// Runs of datagrams that the kernel did not take so far.
    pub(super) const fn unsent(&self) -> Unsent {
        self.unsent
    }

    /// The last destination to which the kernel refused to send.
    pub(super) const fn forbidden(&self) -> Option<Forbidden> {
        self.forbidden
    }

    fn note_forbidden(&mut self, remote: SocketAddr) {
        let last = std::time::Instant::now();
        let same = self.forbidden.filter(|before| before.remote == remote);
        let since = same.map_or(last, |before| before.since);
        self.forbidden = Some(Forbidden { remote, since, last });
    }

    /// The transport of a socket that is a stream and, on request, its subflows.
    pub(super) fn carried(&self, socket: SocketId, with_subflows: bool) -> Option<Carried> {
        let Some(Socket::Stream(carrier)) = self.open.get(&socket) else { return None };
        let kind = carrier.stream.transport();
        let transport = match (kind, carrier.stream.has_tls()) {
            (Transport::Tcp, false) => "tcp",
            (Transport::Tcp, true) => "tcp+tls",
            (Transport::Mptcp, false) => "mptcp",
            (Transport::Mptcp, true) => "mptcp+tls",
        };
        let asked = with_subflows && kind == Transport::Mptcp;
        let subflows = if asked { carrier.stream.subflows() } else { Vec::new() };
        Some(Carried { transport, subflows })
    }
}

impl rove_engine::Sockets for Sockets {
    fn open(
        &mut self,
        now: Instant,
        socket: SocketId,
        link: LinkId,
        local: IpAddr,
        stream: Option<StreamTo>,
    ) {
        let Some(interface) = self.names.get(&link).cloned() else {
            self.failed.insert(socket);
            return;
        };
        let opened = match stream {
            None => self.open_udp(socket, local, &interface),
            Some(to) => self.open_stream(now.as_nanos(), socket, local, &interface, to),
        };
        if let Err(error) = opened {
            tracing::debug!(%error, %local, interface, ?stream, "cannot open a socket");
            self.failed.insert(socket);
        }
    }

    fn receive(&mut self, mut each: impl FnMut(Meta, usize, &mut [u8])) -> rove_engine::Queue {
        let Some(socket) = self.next_ready() else { return rove_engine::Queue::Empty };
        self.received = Some(socket);
        let each = |from: Received, datagrams: &mut [u8]| {
            let Received { local, remote, waited, stride, .. } = from;
            each(Meta { socket, local, remote, waited }, stride, datagrams);
        };
        let Self { open, buffer, .. } = self;
        let received = match open.get_mut(&socket) {
            None => Ok(Queue::Empty),
            Some(Socket::Udp(udp)) => udp.receive(buffer, each).map_err(anyhow::Error::from),
            Some(Socket::Stream(carrier)) => {
                carrier.stream.receive(buffer, each).map_err(anyhow::Error::from)
            }
        };
        match received {
            Ok(Queue::Empty) => drop(self.ready.remove(&socket)),
            Ok(Queue::Unknown) => {}
            Err(error) => {
                tracing::debug!(%error, "a socket failed");
                self.fail(socket);
            }
        }
        // Another socket may be ready.
        rove_engine::Queue::Unknown
    }

    fn send(&mut self, route: Route, sending: Sending, segment: usize, contents: &[u8]) {
        let datagrams = Datagrams {
            remote: route.remote,
            source: route.local,
            ecn: Ecn::NotCapable,
            contents,
            segment: Some(segment),
        };
        let sent = match self.open.get_mut(&route.socket) {
            None => {
                self.unsent.unreachable += 1;
                return;
            }
            Some(Socket::Udp(udp)) => send_udp(udp, sending, datagrams, &mut self.lengthened),
            Some(Socket::Stream(carrier)) => {
                carrier.used = true;
                let sent = carrier.stream.send(datagrams);
                if carrier.stream.unsent() > 0 {
                    self.waiting.insert(route.socket);
                }
                sent
            }
        };
        // A stream that is not connected yet takes what it is given.
        let is_udp = matches!(self.open.get(&route.socket), Some(Socket::Udp(_)));
        match sent {
            Ok(()) if is_udp && self.forbidden.is_some_and(|one| one.remote == route.remote) => {
                self.forbidden = None;
            }
            Ok(()) => {}
            Err(SendError::WouldBlock) => self.unsent.full += 1,
            Err(SendError::TooLong) => self.unsent.too_long += 1,
            Err(error @ SendError::Unreachable(_)) => {
                self.unsent.unreachable += 1;
                if error.is_forbidden() {
                    self.note_forbidden(route.remote);
                }
                tracing::trace!(%error, remote = %route.remote, "not sent");
            }
            Err(error @ SendError::Fatal(_)) => {
                self.unsent.unreachable += 1;
                tracing::debug!(%error, "a socket failed");
                self.fail(route.socket);
            }
        }
    }

    /// Ends its readiness too.
    fn close(&mut self, socket: SocketId) {
        self.ready.remove(&socket);
        self.waiting.remove(&socket);
        if let Some(open) = self.open.remove(&socket) {
            // Closing the descriptor removes it in any case.
            let _ = self.registry.deregister(&mut SourceFd(&open.as_raw_fd()));
        }
    }

    fn take_failed(&mut self) -> BTreeSet<SocketId> {
        std::mem::take(&mut self.failed)
    }
}

impl Carrier {
    /// Tells that it is TCP all the same.
    fn tell_of_mptcp(&self) {
        if self.wants_mptcp && self.stream.transport() == Transport::Tcp {
            let gateway = self.stream.remote();
            tracing::warn!(%gateway, "no MPTCP with the gateway: one TCP connection carries");
        }
    }

    fn is_useful(&self) -> bool {
        if self.accepted { self.used } else { self.stream.phase() == Phase::Open }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Udp(udp) => udp.as_raw_fd(),
            Self::Stream(carrier) => carrier.stream.as_raw_fd(),
        }
    }
}

/// Sends a run as the core wants it. `lengthened` is memory for a run with one segment more.
fn send_udp(
    socket: &mut UdpSocket,
    sending: Sending,
    run: Datagrams<'_>,
    lengthened: &mut Vec<u8>,
) -> Result<(), SendError> {
    let Datagrams { contents, segment, .. } = run;
    let segment = segment.unwrap_or(contents.len()).max(1);
    let is_full = contents.len() > segment && contents.len().is_multiple_of(segment);
    match sending {
        Sending::ShortLast if is_full => {
            lengthened.clear();
            lengthened.extend_from_slice(contents);
            lengthened.push(SHORT_LAST);
            socket.send(Datagrams { contents: lengthened, ..run })
        }
        Sending::Segmented | Sending::ShortLast => socket.send(run),
        Sending::Single | Sending::Alone => contents
            .chunks(segment)
            .try_for_each(|contents| socket.send(Datagrams { contents, segment: None, ..run })),
    }
}

fn token_of(socket: SocketId) -> Token {
    Token(FIRST_SOCKET + socket.0 as usize)
}

#[cfg(test)]
#[path = "sockets_tests.rs"]
mod tests;
