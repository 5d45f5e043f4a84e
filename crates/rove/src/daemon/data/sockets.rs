//! The UDP sockets of the data thread, by the numbers that the core gives them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rove_os::links::Link;
use rove_os::udp::{Datagrams, Ecn, SendError, UdpOptions, UdpSocket};
use rove_proto::id::{LinkId, SocketId};
use rove_proto::outbox::Run;

use super::FIRST_SOCKET;

/// Sockets, the links that they are bound to, and which of them may have something to read.
pub(super) struct Sockets {
    registry: Registry,
    mark: Option<u32>,
    open: BTreeMap<SocketId, UdpSocket>,
    ready: BTreeSet<SocketId>,
    names: BTreeMap<LinkId, String>,
    unsent: Unsent,
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
    pub(super) const fn new(registry: Registry, mark: Option<u32>) -> Self {
        let open = BTreeMap::new();
        Self {
            registry,
            mark,
            open,
            ready: BTreeSet::new(),
            names: BTreeMap::new(),
            unsent: Unsent { full: 0, too_long: 0, unreachable: 0 },
        }
    }

    /// Takes a socket that is bound already.
    pub(super) fn add(&mut self, number: u32, socket: UdpSocket) -> io::Result<()> {
        let token = token_of(SocketId(number));
        self.registry.register(&mut SourceFd(&socket.as_raw_fd()), token, Interest::READABLE)?;
        self.open.insert(SocketId(number), socket);
        // Readiness is told by edges, and datagrams may have come before this one.
        self.ready.insert(SocketId(number));
        Ok(())
    }

    /// Learns the names of the links.
    pub(super) fn set_links(&mut self, links: &[Link]) {
        self.names = links.iter().map(|link| (LinkId(link.index), link.name.clone())).collect();
    }

    /// Opens a socket that the core asked for. A failure is a path that does not work: the core
    /// finds out as with any other.
    pub(super) fn open(&mut self, socket: SocketId, link: LinkId, local: IpAddr) {
        let Some(interface) = self.names.get(&link) else { return };
        let options = UdpOptions {
            local: SocketAddr::new(local, 0),
            ipv6_only: true,
            interface: Some(interface),
            mark: self.mark,
        };
        let opened = UdpSocket::bind(options);
        match opened {
            Ok(bound) => {
                if let Err(error) = self.add(socket.0, bound) {
                    tracing::warn!(%error, "cannot watch a new socket");
                }
            }
            Err(error) => tracing::debug!(%error, %local, interface, "cannot open a socket"),
        }
    }

    /// Closes a socket, which ends its readiness too.
    pub(super) fn close(&mut self, socket: SocketId) {
        self.ready.remove(&socket);
        if let Some(open) = self.open.remove(&socket) {
            // Closing the descriptor removes it in any case.
            let _ = self.registry.deregister(&mut SourceFd(&open.as_raw_fd()));
        }
    }

    pub(super) fn set_ready(&mut self, token: Token) {
        let socket = token.0.checked_sub(FIRST_SOCKET).and_then(|n| u32::try_from(n).ok());
        if let Some(socket) = socket.map(SocketId)
            && self.open.contains_key(&socket)
        {
            self.ready.insert(socket);
        }
    }

    pub(super) fn set_drained(&mut self, socket: SocketId) {
        self.ready.remove(&socket);
    }

    pub(super) fn is_any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The ready socket after `last`, round and round, so that none starves.
    pub(super) fn next_ready(&self, last: Option<SocketId>) -> Option<SocketId> {
        let after =
            last.and_then(|last| self.ready.range(SocketId(last.0.wrapping_add(1))..).next());
        after.or_else(|| self.ready.first()).copied()
    }

    pub(super) fn get(&self, socket: SocketId) -> Option<&UdpSocket> {
        self.open.get(&socket)
    }

    /// Sends one run. What cannot leave now is lost, as it would be on the way: the layers that
    /// need to know find out by what is acknowledged.
    pub(super) fn send(&mut self, run: &Run, contents: &[u8]) {
        let Some(socket) = self.open.get_mut(&run.route.socket) else {
            self.unsent.unreachable += 1;
            return;
        };
        let sent = socket.send(Datagrams {
            remote: run.route.remote,
            source: run.route.local,
            ecn: Ecn::NotCapable,
            contents,
            segment: Some(run.segment),
        });
        match sent {
            Ok(()) => {}
            Err(SendError::WouldBlock) => self.unsent.full += 1,
            Err(SendError::TooLong) => self.unsent.too_long += 1,
            Err(error @ SendError::Unreachable(_)) => {
                self.unsent.unreachable += 1;
                tracing::trace!(%error, remote = %run.route.remote, "not sent");
            }
            Err(error @ SendError::Fatal(_)) => {
                self.unsent.unreachable += 1;
                tracing::debug!(%error, "a socket failed");
                self.close(run.route.socket);
            }
        }
    }

    /// What the kernel did not take so far.
    pub(super) const fn unsent(&self) -> Unsent {
        self.unsent
    }
}

fn token_of(socket: SocketId) -> Token {
    Token(FIRST_SOCKET + socket.0 as usize)
}
