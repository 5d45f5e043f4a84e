//! What all sessions of a node share, and what every part of a peer is given for one call: the
//! configuration, the time, randomness, the outbox, and the events for the shell.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use crate::ablation::Ablation;
use crate::codec::SavingConfig;
use crate::codec::compression::Coder;
use crate::crypto::{Floor, RestartKey, Rng, StaticSecret, Status, Token};
use crate::error::{CloseCode, DropReason, Drops, PeerError};
use crate::flow::Memory;
use crate::flow::rules::Rules;
use crate::flow::tuple::Tuple;
use crate::id::{LinkId, PeerKey, SessionIndex, SocketId};
use crate::multipath::scheduler::Scheduler;
use crate::multipath::{Mode, Recovery, Spread};
use crate::outbox::{Outbox, Route};
use crate::policy::Sealing;
use crate::session::index::IndexTable;
use crate::time::{Duration, Instant};
use crate::wire::control::{ADDRESSES_MAX, Lease, Prefix};
use crate::wire::features::Features;

/// Events that wait for the shell, which must cost no memory if it does not ask. Beyond these the
/// oldest are dropped for what a peer has to say, and what strangers cause is dropped itself; both
/// are counted.
pub const EVENTS_MAX: usize = 4_096;

/// What holds for all sessions of a node.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's identity.
    pub secret: StaticSecret,
    /// The strength that every suite of its sessions has. The peer's floor may raise it.
    pub floor: Floor,
    /// How it seals what it sends.
    pub sealing: Sealing,
    /// Whether it computes AES in hardware.
    pub has_aes: bool,
    /// How often a client behind a NAT sends something; `None` never.
    pub keepalive: Option<Duration>,
    /// How long a session without a word from the peer is kept, keys and all.
    pub persistence_timeout: Duration,
    /// What is done for which open connections while there is no path.
    pub hold: Rules,
    /// How much of them all sessions may keep together, in bytes.
    pub hold_memory: usize,
    /// Client: what is made of its links.
    pub mode: Mode,
    /// Client: how both ends of its sessions choose among paths that share data.
    pub scheduler: Scheduler,
    /// Client: what flows shall have by repair, both ways.
    pub recovery: Recovery,
    /// Client: which paths carry together.
    pub spread: Spread,
    /// Whether paths that lead through one queue take there together what one would take.
    pub couples: bool,
    /// Whether a path is sent on as others do beside somebody who fills its queue.
    pub competes: bool,
    /// Whether what came by several paths is delivered in sequence: else a gap is given up at once.
    pub reorders: bool,
    /// What it understands beyond what every node must, and so what may be sent to it.
    pub features: Features,
    /// How bytes are saved on inner packets.
    pub saving: SavingConfig,
    /// Whether a path falls back to single sends where segmented sends lose more.
    pub judges_offload: bool,
    /// The heuristics that its sessions go without.
    pub ablation: Ablation,
}

/// One usable local link of a client, as the shell sees it; the first is the best.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The interface.
    pub id: LinkId,
    /// Its usable addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it is for when no other carries, whatever the mode.
    pub stands_by: bool,
}

/// A stream by which a gateway may be reached, where UDP is blocked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamTo {
    /// Where the connection goes: to the gateway, or to a proxy that leads there.
    pub remote: SocketAddr,
    /// How it is made, as the shell numbers the ways that it knows (plain, TLS, by a proxy).
    pub method: u8,
}

/// The state of a session, as people read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerState {
    /// There are no keys.
    Unestablished,
    /// Client: nobody spoke for as long as a session is kept. There are no keys, and the next
    /// packet of either end begins a session.
    Resting,
    /// A proven path carries.
    Up,
    /// Data goes to an address that has not answered yet.
    Moving,
    /// No path carries; the session waits for one.
    Suspended,
    /// Closed, and not to be opened without a command.
    Down(CloseCode),
}

/// What happened, for the shell to act on or to show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Open a socket bound to `local` on `link`, before the next datagrams are sent. One that
    /// cannot be opened is answered with [`Command::SocketFailed`](crate::node::Command).
    OpenSocket {
        /// The number that routes will use.
        socket: SocketId,
        /// The interface to bind to.
        link: LinkId,
        /// The address to bind to.
        local: IpAddr,
        /// Where a stream is to lead; `None` for a UDP socket.
        stream: Option<StreamTo>,
    },
    /// Nothing will be sent from this socket any more, nor is anything expected.
    CloseSocket {
        /// The socket.
        socket: SocketId,
    },
    /// Client: a handshake used this counter: what is stored must be above it before a restart.
    /// Gateway: the highest counter that it has accepted from this peer.
    HandshakeCounter {
        /// The peer that it was used with.
        peer: PeerKey,
        /// The counter.
        counter: u64,
    },
    /// Gateway: an unknown peer showed a token. Answer with `AddPeer` or `RefuseEnrolment` within
    /// two seconds.
    EnrolmentRequested {
        /// Its key.
        peer: PeerKey,
        /// The token.
        token: Token,
    },
    /// Gateway: an unknown or revoked peer was refused.
    PeerRefused {
        /// Its key.
        peer: PeerKey,
        /// What it was told.
        status: Status,
    },
    /// Client: the gateway refuses a session.
    Refused {
        /// The gateway.
        peer: PeerKey,
        /// Why.
        status: Status,
    },
    /// A session has fresh keys and carries.
    Established {
        /// The other end.
        peer: PeerKey,
        /// Whether there was no session before.
        first: bool,
        /// Time from the first handshake message to the answer, where this node asked.
        took: Option<Duration>,
    },
    /// Client: the gateway gave inner addresses.
    Leased {
        /// The gateway.
        peer: PeerKey,
        /// What it gave.
        lease: Lease,
    },
    /// Client: the gateway names the networks beside the Internet that the client may reach.
    Networks {
        /// The gateway.
        peer: PeerKey,
        /// The networks, in place of those that it named before.
        networks: Vec<Prefix>,
    },
    /// Gateway: the peer says what lies behind it. Nothing is routed there until its
    /// [`Access`](crate::role::Access) says so.
    Routes {
        /// The peer.
        peer: PeerKey,
        /// The ranges, in place of those that it named before.
        routes: Vec<Prefix>,
    },
    /// Client: the gateway says where it is reached, best first; the session follows by itself.
    Announced {
        /// The gateway.
        peer: PeerKey,
        /// Its addresses, in place of those that it named before.
        addresses: Vec<SocketAddr>,
    },
    /// Gateway: the way by which a client is reached now, proven. A process that begins anew can
    /// call it back there ([`Command::Recall`](crate::node::Command::Recall)).
    Reached {
        /// The client.
        peer: PeerKey,
        /// The way.
        route: Route,
        /// The index by which the client names the session there.
        index: SessionIndex,
    },
    /// Bytes of this connection will be owed to the end behind the peer: to be written down, and
    /// answered with [`Command::Recorded`](crate::node::Command::Recorded).
    Owing {
        /// The peer.
        peer: PeerKey,
        /// The connection's two ends.
        tuple: Tuple,
    },
    /// A rule is for a user, and this flow is new: to be answered with
    /// [`Command::SetUser`](crate::node::Command::SetUser).
    WhoseFlow {
        /// The peer.
        peer: PeerKey,
        /// The flow's two ends.
        tuple: Tuple,
    },
    /// Nothing of this connection is owed any more: it was delivered, or both ends know that it is
    /// over.
    Settled {
        /// The peer.
        peer: PeerKey,
        /// The connection's two ends.
        tuple: Tuple,
    },
    /// The session's state changed.
    State {
        /// The other end.
        peer: PeerKey,
        /// The state now.
        state: PeerState,
    },
    /// The peer is reached at another address now.
    Moved {
        /// The peer.
        peer: PeerKey,
        /// Its address.
        remote: SocketAddr,
        /// Time from the first datagram of the move to its proof; 0 if the path stood by, proven.
        took: Duration,
    },
    /// Two hosts use one key: at the gateway a client's key, at a client its own. Reported once,
    /// and again only after it was not noticed for
    /// [`ALARM_TIME`](crate::session::runs::ALARM_TIME).
    KeyIsShared {
        /// The other end.
        peer: PeerKey,
    },
    /// The session ended.
    Ended {
        /// The other end.
        peer: PeerKey,
        /// Why.
        error: PeerError,
    },
}

/// Where a gateway says that it is reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announced {
    /// One more with every change.
    version: u32,
    addresses: Vec<SocketAddr>,
}

impl Announced {
    /// Changes what is said. Beyond [`ADDRESSES_MAX`] the last are left out.
    pub(crate) fn set(&mut self, mut addresses: Vec<SocketAddr>) {
        addresses.truncate(ADDRESSES_MAX);
        if self.addresses != addresses {
            self.addresses = addresses;
            self.version = self.version.wrapping_add(1);
        }
    }

    /// One more with every change.
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// The addresses, best first.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// What a peer is given for the time of one call.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a Config,
    pub(crate) announced: &'a Announced,
    pub(crate) restart_key: &'a RestartKey,
    pub(crate) rng: &'a mut dyn Rng,
    pub(crate) indices: &'a mut IndexTable,
    pub(crate) next_socket: &'a mut u32,
    pub(crate) out: &'a mut Outbox,
    pub(crate) events: &'a mut VecDeque<Event>,
    pub(crate) drops: &'a mut Drops,
    pub(crate) memory: &'a mut Memory,
    pub(crate) coder: &'a mut Coder,
}

impl Context<'_> {
    /// Tells the shell.
    pub(crate) fn tell(&mut self, event: Event) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
            self.drops.count(DropReason::QueueFull);
        }
        self.events.push_back(event);
    }

    /// Whether the shell is behind with events: questions that can wait are to wait.
    pub(crate) fn is_crowded(&self) -> bool {
        self.events.len() >= EVENTS_MAX / 2
    }

    /// Has the shell open a socket.
    pub(crate) fn open_socket(
        &mut self,
        link: LinkId,
        local: IpAddr,
        stream: Option<StreamTo>,
    ) -> SocketId {
        let number = *self.next_socket;
        *self.next_socket = number.wrapping_add(1) % SocketId::STREAMS;
        let socket = SocketId(if stream.is_some() { number | SocketId::STREAMS } else { number });
        self.tell(Event::OpenSocket { socket, link, local, stream });
        socket
    }

    /// Sends a datagram that travels as it is.
    pub(crate) fn send_clear(&mut self, route: Route, datagram: &[u8]) {
        if !self.out.push_clear(route, datagram) {
            self.drops.count(DropReason::QueueFull);
        }
    }

    /// An unpredictable number.
    pub(crate) fn random(&mut self) -> u64 {
        u64::from_be_bytes(crate::crypto::draw(self.rng))
    }
}
