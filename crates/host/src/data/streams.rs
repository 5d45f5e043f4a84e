//! What is particular to streams, which carry the same datagrams where UDP is lost: how a client
//! makes one, and the door by which a gateway gets them.
//!
//! The core asks for a stream by the number of a [`Way`]; what that means, TLS or a proxy, stands
//! here and nowhere else. A stream that a gateway accepted is a stranger's until the core has
//! answered on it: it is let go after [`TRIAL_TIME`], or earlier when too many come.

use std::io;
use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Interest, Registry};
use rove_os::error::Error;
use rove_os::stream::{Basic, Listener, ListeningSocket, Proxy, Security, Stream, StreamOptions};
use rove_os::udp::Queue;
use rove_proto::id::SocketId;

use super::token::STREAMS;

/// How long a client's stream may take to open, and a gateway's may be open without an answer of
/// the core: longer than any handshake, in nanoseconds.
pub(super) const TRIAL_TIME: u64 = 10_000_000_000;
/// Sockets of a gateway, nearly all of them streams that it accepted. With 100 KB each, at their
/// fullest, below half a gigabyte.
pub(super) const ACCEPTED_MAX: usize = 4_096;

/// How a client makes a stream. The core names it by its place in the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Way {
    /// TLS, with this name in its first message; `None` for a plain stream.
    pub tls: Option<String>,
    /// By a proxy, which is where the stream then leads.
    pub proxy: Option<ByProxy>,
    /// Whether it is one of MPTCP.
    pub mptcp: Mptcp,
}

/// Whether a stream is one of MPTCP, where both ends have that.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mptcp {
    /// It is TCP.
    Never,
    /// Nobody asked for it: TCP is as good.
    #[default]
    Perhaps,
    /// It was asked for: where there is none, that is told.
    Wanted,
}

/// What a proxy is asked.
#[derive(Clone, PartialEq, Eq)]
pub struct ByProxy {
    /// The gateway: `host:port`.
    pub target: String,
    /// User and password, if the proxy wants them.
    pub credentials: Option<(String, String)>,
}

impl std::fmt::Debug for ByProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByProxy").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Way {
    /// Begins a stream in this way.
    pub(super) fn open(&self, options: StreamOptions<'_>, now: u64) -> Result<Stream, Error> {
        let security = match &self.tls {
            Some(server_name) => Security::Tls { server_name },
            None => Security::Plain,
        };
        let proxy = self.proxy.as_ref().map(|by| Proxy {
            address: options.remote,
            target: &by.target,
            authorization: by.credentials.as_ref().map(|(user, password)| Basic { user, password }),
        });
        let mptcp = self.mptcp != Mptcp::Never;
        Stream::connect(&StreamOptions { security, proxy, mptcp, ..options }, now)
    }
}

/// Where a gateway's streams come in.
pub(super) struct Door {
    listener: Listener,
    /// Whether it may have something to do.
    ready: bool,
    /// The number of the next stream.
    next: u32,
}

impl Door {
    pub(super) fn new(listener: Listener, registry: &Registry) -> io::Result<Self> {
        let descriptor = listener.as_raw_fd();
        registry.register(&mut SourceFd(&descriptor), STREAMS, Interest::READABLE)?;
        Ok(Self { listener, ready: true, next: SocketId::STREAMS })
    }

    /// Lets in who comes to one more place.
    pub(super) fn widen(&mut self, socket: ListeningSocket) -> Result<(), Error> {
        self.ready = true;
        self.listener.add(socket)
    }

    pub(super) const fn set_ready(&mut self) {
        self.ready = true;
    }

    pub(super) fn is_ready(&self, now: u64) -> bool {
        self.ready || self.due().is_some_and(|due| due <= now)
    }

    /// When it has something to do, if nothing comes before.
    pub(super) fn due(&self) -> Option<u64> {
        self.listener.timeout()
    }

    /// The streams that are open by now.
    ///
    /// # Errors
    /// It is of no use any more.
    pub(super) fn turn(&mut self, now: u64) -> Result<Vec<Stream>, Error> {
        let mut streams = Vec::new();
        let left = self.listener.turn(now, |stream| streams.push(stream))?;
        self.ready = left == Queue::Unknown;
        Ok(streams)
    }

    /// A number that no stream in use has.
    pub(super) fn number(&mut self, is_used: impl Fn(SocketId) -> bool) -> SocketId {
        loop {
            let number = SocketId(self.next);
            self.next = self.next.wrapping_add(1) | SocketId::STREAMS;
            if !is_used(number) {
                return number;
            }
        }
    }
}
