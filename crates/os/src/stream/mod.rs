//! Streams: datagrams of the Rove protocol over TCP or MPTCP, for networks that block UDP.
//!
//! A stream is used like a UDP socket with one remote address. [`Stream::send`] takes runs of
//! datagrams and [`Stream::receive`] returns them, with the types of [`crate::udp`]. It may use an
//! HTTP proxy ([`Proxy`]) and TLS 1.3 ([`Security`]). On a gateway a [`Listener`] accepts streams,
//! and passes other connections to a web server.
//!
//! Everything is non-blocking and driven by the owner: watch the descriptor for reading and writing
//! (edge-triggered), call [`Stream::ready`] when it is, and [`Stream::receive`] until
//! [`Queue::Empty`] once it is open. Close a stream whose [`Stream::since`] is too long ago.
//!
//! The queues are small, because a stream delivers in order and queued data grows old. The kernel
//! takes little more than it can send ([`NOT_SENT_MAX`]), and [`UNSENT_MAX`] bytes wait here. A
//! datagram without room is refused ([`SendError::WouldBlock`]): a loss, which the layers above can
//! handle. They notice a stalled stream by missing feedback.
//!
//! It decides nothing about peers or paths, knows lengths but no contents, and protects nothing:
//! all secrecy and all authentication is inside the datagrams. Format: docs/spec/wire.md#8-streams.
//! Limits: MPTCP uses the subflows of the kernel's path manager, for which [`crate::mptcp`] names
//! the addresses. One run of frames is copied once.

pub(crate) mod carrier;
mod error;
mod frame;
pub(crate) mod listener;
mod opening;
mod options;
pub(crate) mod proxy;
mod socket;
mod subflow;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
mod wire;

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use carrier::Carrier;
use opening::{Advanced, Opening};
use proxy::Exchange;
use socket2::Socket;

pub use self::{
    carrier::{READ_LEN, UNSENT_MAX},
    error::StreamError,
    frame::{ALPN, DATAGRAM_LEN_MAX, PREFACE},
    listener::{
        HANDSHAKE_TIMEOUT, HANDSHAKES_MAX, HANDSHAKES_PER_SOURCE, LISTEN_MAX, ListenOptions,
        Listener, ListeningSocket, SPLICE_BUFFER_LEN, SPLICE_IDLE, SPLICES_MAX, SPLICES_PER_SOURCE,
    },
    opening::EARLY_MAX,
    options::{Phase, Security, StreamOptions, Transport},
    proxy::{Basic, Proxy},
    socket::{KEEPALIVE, NOT_SENT_MAX, USER_TIMEOUT},
    subflow::{SUBFLOWS_MAX, Subflow},
};
pub use crate::http::ANSWER_LEN_MAX;
use crate::{
    error::Error,
    udp::{Datagrams, Ecn, Queue, ReceiveBuffer, Received, SendError},
};

/// A non-blocking stream of datagrams with one remote address.
#[derive(Debug)]
pub struct Stream {
    socket: Socket,
    remote: SocketAddr,
    /// Our own address, once TCP is connected.
    local: Option<IpAddr>,
    state: State,
    /// When the phase began, in nanoseconds of the caller's clock.
    since: u64,
}

#[derive(Debug)]
enum State {
    Opening(Opening),
    Open(Carrier),
    Closed,
}

impl Stream {
    /// Begins to open a stream at `now` (nanoseconds, as all times here). Datagrams may be sent at
    /// once: up to [`EARLY_MAX`] bytes of them wait until it is open.
    ///
    /// # Errors
    /// What is known before the first answer: [`Error::AddressNotLocal`], [`Error::NoInterface`],
    /// [`Error::NoPrivilege`] (for a mark), [`Error::BadServerName`], [`Error::BadProxy`], or
    /// [`Error::Os`], which includes networks without a route.
    pub fn connect(options: &StreamOptions<'_>, now: u64) -> Result<Self, Error> {
        let proxy = options.proxy.as_ref().map(Exchange::new).transpose()?;
        let security = match options.security {
            Security::Plain => None,
            Security::Tls { server_name } => Some(Box::new(tls::client(server_name)?)),
        };
        let (socket, to) = socket::connect(options)?;
        let state = State::Opening(Opening::new(to, proxy, security));
        let remote = options.remote;
        Ok(Self { socket, remote, local: None, state, since: now })
    }

    /// A stream that a listener accepted.
    fn accepted(socket: Socket, remote: SocketAddr, carrier: Carrier, now: u64) -> Self {
        let (state, local) = (State::Open(carrier), local_ip(&socket));
        Self { socket, remote, local, state, since: now }
    }

    /// Goes on as far as possible, after the descriptor became readable or writable. Once the
    /// answer is [`Phase::Open`] there may be something to [`Stream::receive`] already, which the
    /// descriptor does not show.
    ///
    /// # Errors
    /// Why the stream did not open, or broke. It is closed then.
    pub fn ready(
        &mut self,
        readable: bool,
        writable: bool,
        now: u64,
    ) -> Result<Phase, StreamError> {
        let before = self.phase();
        self.state = match std::mem::replace(&mut self.state, State::Closed) {
            State::Opening(opening) if readable || writable => {
                match opening.advance(&self.socket)? {
                    Advanced::Waits(opening) => State::Opening(opening),
                    Advanced::Open(mut carrier) => {
                        carrier.flush(&self.socket).map_err(StreamError::broken)?;
                        self.local = local_ip(&self.socket);
                        State::Open(carrier)
                    }
                }
            }
            State::Open(mut carrier) if writable => {
                carrier.flush(&self.socket).map_err(StreamError::broken)?;
                State::Open(carrier)
            }
            same @ (State::Opening(_) | State::Open(_) | State::Closed) => same,
        };
        let phase = self.phase();
        if phase != before {
            self.since = now;
        }
        Ok(phase)
    }

    /// How far it is.
    pub fn phase(&self) -> Phase {
        match &self.state {
            State::Opening(opening) => opening.phase(),
            State::Open(_) => Phase::Open,
            State::Closed => Phase::Closed,
        }
    }

    /// When its phase began: who waits too long for the next one closes the stream.
    pub const fn since(&self) -> u64 {
        self.since
    }

    /// What carries it. True only once it is open: an MPTCP connection may become one of TCP until
    /// the first answer, and the kernel counts it as such while it is not established.
    pub fn transport(&self) -> Transport {
        socket::transport(&self.socket)
    }

    /// What it goes by, if it is one of MPTCP: its first subflow, and those that the kernel's path
    /// manager made ([`crate::mptcp`]).
    pub fn subflows(&self) -> Vec<Subflow> {
        match self.state {
            State::Open(_) => subflow::subflows(&self.socket),
            State::Opening(_) | State::Closed => Vec::new(),
        }
    }

    /// Whether TLS surrounds it; `false` while it is not open.
    pub const fn has_tls(&self) -> bool {
        match &self.state {
            State::Open(carrier) => carrier.has_tls(),
            State::Opening(_) | State::Closed => false,
        }
    }

    /// The gateway's address on a client, and the client's (or its proxy's) on a gateway. IPv4 is
    /// shown as IPv4 on a socket of both families.
    pub const fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Our own address, once the stream is open.
    pub const fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Sends datagrams of at most [`DATAGRAM_LEN_MAX`] bytes to the one remote address.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`]: from one of the datagrams on, there is no room. It is not to be
    /// waited for: whatever is repeated later is newer. [`SendError::TooLong`];
    /// [`SendError::Unreachable`] for another remote address; [`SendError::Fatal`].
    pub fn send(&mut self, datagrams: Datagrams<'_>) -> Result<(), SendError> {
        if datagrams.remote != self.remote {
            let elsewhere = std::io::ErrorKind::AddrNotAvailable;
            return Err(SendError::Unreachable(elsewhere.into()));
        }
        let segment = match datagrams.segment {
            Some(0) => return Err(SendError::TooLong),
            Some(segment) => segment,
            None => datagrams.contents.len(),
        };
        let sent = match &mut self.state {
            State::Opening(opening) => opening.send(datagrams.contents, segment),
            State::Open(carrier) => carrier.send(&self.socket, datagrams.contents, segment),
            State::Closed => Err(SendError::Fatal(std::io::ErrorKind::NotConnected.into())),
        };
        if matches!(sent, Err(SendError::Fatal(_))) {
            self.state = State::Closed;
        }
        sent
    }

    /// Receives what is there, up to [`READ_LEN`] bytes, calls `each` with every datagram, in
    /// order, and tells whether to call again. An opening stream has nothing.
    ///
    /// # Errors
    /// Why the stream ended, after what arrived before. It is closed then.
    pub fn receive(
        &mut self,
        buffer: &mut ReceiveBuffer,
        mut each: impl FnMut(Received, &mut [u8]),
    ) -> Result<Queue, StreamError> {
        let carrier = match &mut self.state {
            State::Opening(_) => return Ok(Queue::Empty),
            State::Open(carrier) => carrier,
            State::Closed => return Err(StreamError::Ended),
        };
        let (remote, local) = (self.remote, self.local);
        let received = carrier.receive(&self.socket, buffer.bytes(), |datagram| {
            let stride = datagram.len();
            let (ecn, waited) = (Ecn::NotCapable, Duration::ZERO);
            each(Received { remote, local, ecn, stride, waited }, datagram);
        });
        if received.is_err() {
            self.state = State::Closed;
        }
        received
    }

    /// Bytes that wait here because the kernel has no room: at most [`UNSENT_MAX`] and what TLS
    /// adds.
    pub fn unsent(&self) -> usize {
        match &self.state {
            State::Opening(opening) => opening.waiting(),
            State::Open(carrier) => carrier.waiting(),
            State::Closed => 0,
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn local_ip(socket: &Socket) -> Option<IpAddr> {
    let local = socket.local_addr().ok()?.as_socket()?;
    Some(local.ip().to_canonical())
}
