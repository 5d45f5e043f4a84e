//! The sockets of the data plane, by the core's numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rove_os::udp::{Datagrams, Ecn, SendError, UdpOptions, UdpSocket};
use rove_proto::id::{LinkId, SocketId};
use rove_proto::outbox::Run;

use super::Counters;

/// Every open socket.
pub(super) struct Sockets {
    registry: Registry,
    open: BTreeMap<SocketId, Socket>,
    names: BTreeMap<LinkId, String>,
    mark: Option<u32>,
}

/// One socket and whether the kernel has something for it.
pub(super) struct Socket {
    pub(super) udp: UdpSocket,
    pub(super) readable: bool,
}

impl Sockets {
    pub(super) fn new(
        registry: Registry,
        listening: Vec<UdpSocket>,
        mark: Option<u32>,
    ) -> Result<Self> {
        let mut sockets = Self { registry, open: BTreeMap::new(), names: BTreeMap::new(), mark };
        for (number, udp) in (0..).zip(listening) {
            sockets.insert(SocketId(number), udp)?;
        }
        Ok(sockets)
    }

    pub(super) fn set_names(&mut self, names: BTreeMap<LinkId, String>) {
        self.names = names;
    }

    /// Opens the socket that the core asked for. When this fails its datagrams go nowhere, the
    /// path stays silent and the core takes another.
    pub(super) fn open(&mut self, socket: SocketId, link: LinkId, local: IpAddr) {
        let options = UdpOptions {
            local: (local, 0).into(),
            ipv6_only: true,
            interface: self.names.get(&link).map(String::as_str),
            mark: self.mark,
        };
        let opened = UdpSocket::bind(options)
            .map_err(anyhow::Error::from)
            .and_then(|udp| self.insert(socket, udp));
        if let Err(error) = opened {
            tracing::warn!(link = link.0, "cannot open a socket: {error:#}");
        }
    }

    pub(super) fn close(&mut self, socket: SocketId) {
        if let Some(closed) = self.open.remove(&socket) {
            // Closing the descriptor takes it out of the queue as well.
            let _ = self.registry.deregister(&mut SourceFd(&closed.udp.as_raw_fd()));
        }
    }

    pub(super) fn mark_readable(&mut self, token: Token) {
        let socket = u32::try_from(token.0).ok().map(SocketId);
        if let Some(socket) = socket.and_then(|socket| self.open.get_mut(&socket)) {
            socket.readable = true;
        }
    }

    pub(super) fn any_readable(&self) -> bool {
        self.open.values().any(|socket| socket.readable)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (SocketId, &mut Socket)> {
        self.open.iter_mut().map(|(&id, socket)| (id, socket))
    }

    /// Sends one run.
    pub(super) fn send(&mut self, run: &Run, bytes: &[u8], counters: &mut Counters) {
        let Some(socket) = self.open.get_mut(&run.route.socket) else {
            counters.send_unreachable += 1;
            return;
        };
        let datagrams = Datagrams {
            remote: run.route.remote,
            source: run.route.local,
            ecn: Ecn::NotCapable,
            contents: bytes,
            segment: Some(run.segment),
        };
        let counter = match socket.udp.send(datagrams) {
            Ok(()) => return,
            Err(SendError::WouldBlock) => &mut counters.send_full,
            Err(SendError::TooLong) => &mut counters.send_too_long,
            Err(SendError::Unreachable(error) | SendError::Fatal(error)) => {
                tracing::trace!(socket = run.route.socket.0, "cannot send: {error}");
                &mut counters.send_unreachable
            }
        };
        *counter += 1;
    }

    fn insert(&mut self, socket: SocketId, udp: UdpSocket) -> Result<()> {
        let token = Token(usize::try_from(socket.0)?);
        self.registry
            .register(&mut SourceFd(&udp.as_raw_fd()), token, Interest::READABLE)
            .context("cannot wait for a socket")?;
        self.open.insert(socket, Socket { udp, readable: true });
        Ok(())
    }
}
