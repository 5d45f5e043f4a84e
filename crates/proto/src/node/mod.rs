//! A node: all its peers, and the four verbs by which the shell drives it.
//!
//! - **In**: [`Node::handle_tun`], [`Node::handle_datagram`], [`Node::handle_timeout`],
//!   [`Node::handle_command`], each told the time, each filling an [`Outbox`].
//! - **Out**: the outbox, to be sealed, sent and written; then [`Node::poll_event`] until it is
//!   empty (sockets must be opened before the datagrams that use them are sent); then
//!   [`Node::poll_timeout`].
//!
//! Law: once events are drained at `t`, the next timeout lies after `t`.
//!
//! One node serves one thread. It finds a peer by session index for datagrams and by inner
//! address for packets, and keeps no state of a session.

mod budget;
mod command;
mod flows;
mod half_open;
mod notices;
mod peers;
mod respond;
mod responder;
mod routes;
mod timers;

pub use crate::peer::{ALARM_TIME, PeerConfig, Reason, SharedKey, SideConfig};
pub use crate::tunnel::{
    Config, Event, Link, PathStatus, PeerState, PeerStatus, PolicedLink, Remedy, StreamTo,
};
pub use command::Command;
pub use flows::{FLOWS_PER_PAGE, FlowsFrom, FlowsPage};

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use crate::codec::compression::Coder;
use crate::context::Announced;
use crate::crypto::Rng;
use crate::error::{DropReason, Drops};
use crate::flow::Memory;
use crate::flow::live::Early;
use crate::flow::overrides::Overrides;
use crate::flow::priority::Priorities;
use crate::id::{PeerKey, SocketId};
use crate::outbox::{Outbox, Route};
use crate::paths::PathManager;
use crate::peer::Peer;
use crate::session::index::{IndexTable, Slot};
use crate::time::{Duration, Instant};
use crate::tunnel::Context;
use crate::wire::keepalive::{Keepalive, KeepaliveProof};
use crate::wire::restart::RestartNotice;
use crate::wire::{Kind, data, handshake, inner};
use inner::{InnerPacket, Pieces};
use notices::Notices;
use responder::Responder;
use routes::Routes;
use timers::Timers;

/// Peers whose datagrams wait to be settled together: more than one read of a socket returns.
const UNSETTLED_MAX: usize = 64;
/// Peers of one node.
pub const PEERS_MAX: usize = 65_536;

/// Where a datagram came from and to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Meta {
    /// The socket that received it.
    pub socket: SocketId,
    /// The local address that it was sent to, where the socket has several.
    pub local: Option<IpAddr>,
    /// Its source.
    pub remote: SocketAddr,
    /// How long it has waited on this host since it arrived; zero if unknown.
    pub waited: Duration,
}

/// All peers and how to find them.
pub struct Node {
    config: Config,
    rng: Box<dyn Rng>,
    peers: Vec<Option<Peer>>,
    by_key: BTreeMap<PeerKey, Slot>,
    indices: IndexTable,
    routes: Routes,
    timers: Timers,
    /// The peer that was called last, whose timer may have to be set.
    touched: Option<Slot>,
    /// Peers that datagrams of this batch came from, or the peer of this run of packets.
    unsettled: Vec<Slot>,
    responder: Responder,
    events: VecDeque<Event>,
    drops: Drops,
    next_socket: u32,
    /// The peers that are gateways.
    gateways: Vec<Slot>,
    /// Peers that were revoked, and kept for those who are still to be told.
    leaving: Vec<Slot>,
    announced: Announced,
    notices: Notices,
    /// What is wanted early.
    early: Early,
    /// The user's rules for flows.
    overrides: Overrides,
    /// What is preferred.
    priorities: Priorities,
    /// What is kept of open connections, of all sessions together.
    memory: Memory,
    /// Compresses packets, for all sessions.
    coder: Coder,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("peers", &self.by_key.len()).finish_non_exhaustive()
    }
}

impl Node {
    /// A node without peers. Sockets that it asks for are numbered from `first_socket`; numbers
    /// below are the shell's own, listening.
    pub fn new(now: Instant, config: Config, mut rng: Box<dyn Rng>, first_socket: u32) -> Self {
        let responder = Responder::new(now, &config, rng.as_mut());
        let notices = Notices::new(now, &config.secret);
        let memory = Memory::new(config.hold_memory);
        let coder = Coder::new(config.saving.dictionaries.clone());
        Self {
            config,
            rng,
            peers: Vec::new(),
            by_key: BTreeMap::new(),
            indices: IndexTable::default(),
            routes: Routes::default(),
            timers: Timers::default(),
            touched: None,
            unsettled: Vec::new(),
            responder,
            events: VecDeque::new(),
            drops: Drops::default(),
            next_socket: first_socket,
            gateways: Vec::new(),
            leaving: Vec::new(),
            announced: Announced::default(),
            notices,
            early: Early::default(),
            overrides: Overrides::default(),
            priorities: Priorities::default(),
            memory,
            coder,
        }
    }

    /// An inner packet from the TUN.
    pub fn handle_tun(&mut self, now: Instant, packet: Pieces<'_>, out: &mut Outbox) {
        self.settle(now, out);
        self.send(now, packet, out);
        self.settle(now, out);
    }

    /// The same for one of a run: sends it. [`Self::settle`] must follow after the last one.
    pub fn send(&mut self, now: Instant, packet: Pieces<'_>, out: &mut Outbox) {
        let sent = InnerPacket::parse(packet).and_then(|packet| {
            let slot = self.routes.find(packet.headers.destination).ok_or(DropReason::NoRoute)?;
            if self.unsettled.last() != Some(&slot) {
                self.settle(now, out);
                self.unsettled.push(slot);
            }
            self.with_peer(now, slot, out, |peer, cx| peer.send_inner(cx, &packet))
        });
        self.count(sent);
    }

    /// A datagram from a socket. Its bytes are overwritten.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        meta: Meta,
        datagram: &mut [u8],
        out: &mut Outbox,
    ) {
        self.receive(now, meta, datagram, out);
        self.settle(now, out);
    }

    /// The same for one of a batch: opens the datagram and delivers what is in it.
    /// [`Self::settle`] must follow after the last one. The other verbs call it themselves.
    pub fn receive(&mut self, now: Instant, meta: Meta, datagram: &mut [u8], out: &mut Outbox) {
        let route = Route { socket: meta.socket, local: meta.local, remote: meta.remote };
        let kind = Kind::of(datagram);
        if kind != Some(Kind::Data) {
            self.settle(now, out);
        }
        let taken = match kind {
            Some(Kind::Data) => self.data(now, (route, now - meta.waited), datagram, out),
            Some(Kind::HandshakeA | Kind::HandshakeB) => self.handshake(now, route, datagram, out),
            Some(Kind::Response) => self.response(now, datagram, out),
            Some(Kind::ResponsePart) => self.response_part(now, datagram, out),
            Some(Kind::CookieReply) => self.cookie_reply(now, datagram, out),
            Some(Kind::RestartNotice) => self.restart_notice(now, route, datagram, out),
            Some(Kind::Keepalive) => self.keepalive(now, route, datagram, out),
            Some(Kind::KeepaliveAnswer) => {
                self.keepalive_answer(now, (route, now - meta.waited), datagram, out)
            }
            None => Err(DropReason::UnknownKind),
        };
        self.count(taken);
    }

    /// Time has passed. Peers whose time has come do what is due.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.settle(now, out);
        self.responder.expire(now);
        self.settle_timer();
        // Each peer once: what is still due afterwards is a mistake that must not hang the thread.
        for _ in 0..self.by_key.len() + self.leaving.len() {
            let Some(slot) = self.timers.pop_due(now) else { break };
            let done = self.with_peer(now, slot, out, |peer, cx| {
                peer.handle_timeout(cx);
                Ok(())
            });
            self.count(done);
        }
        self.memory.release(now);
    }

    /// What happened; to be asked until there is no more.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When to call [`Node::handle_timeout`], and why; `None` while nothing is awaited.
    pub fn poll_timeout(&self) -> Option<(Instant, Reason)> {
        debug_assert!(self.unsettled.is_empty(), "`settle` follows the last datagram of a batch");
        let touched = self.touched.and_then(|slot| self.peer(slot));
        let touched = touched.and_then(|peer| peer.poll_timeout(&self.config));
        let spare = self.memory.due().map(|due| (due, Reason::Memory));
        [touched, self.timers.next(), spare].into_iter().flatten().min()
    }

    /// What was thrown away so far, by reason.
    pub const fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Bytes of open connections that are kept, of all sessions together.
    pub const fn held_bytes(&self) -> usize {
        self.memory.used()
    }

    /// A snapshot of the session with `peer`.
    pub fn status(&self, peer: PeerKey) -> Option<PeerStatus> {
        let slot = *self.by_key.get(&peer)?;
        self.peer(slot).map(Peer::status)
    }

    /// The epoch that the session with `peer` sends under: for tests of its limits.
    #[cfg(test)]
    pub(crate) fn epoch_of(&mut self, peer: PeerKey) -> Option<&mut crate::session::epoch::Epoch> {
        let slot = *self.by_key.get(&peer)?;
        self.peers.get_mut(slot.0 as usize)?.as_mut()?.current_epoch()
    }

    /// The session with `peer`: for tests of what it knows and tells nobody.
    #[cfg(test)]
    pub(crate) fn session_with(&self, peer: PeerKey) -> Option<&Peer> {
        self.peer(*self.by_key.get(&peer)?)
    }

    /// Session indices that lead somewhere now: what all sessions and handshakes hold together.
    pub fn indices_issued(&self) -> usize {
        self.indices.len()
    }

    fn data(
        &mut self,
        now: Instant,
        (route, came_at): (Route, Instant),
        datagram: &mut [u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let index = data::session_index(datagram)?;
        let Some(lead) = self.indices.find(index) else {
            // A node that has gateways is a client: nobody expects restart notices of it.
            if self.gateways.is_empty() {
                self.notices.answer(now, route, index, out);
            }
            return Err(DropReason::UnknownIndex);
        };
        let is_newly_unsettled = self.with_peer(now, lead.slot, out, |peer, cx| {
            peer.receive(cx, lead, (route, came_at), datagram)
        })?;
        if is_newly_unsettled {
            self.unsettled.push(lead.slot);
        }
        if self.unsettled.len() >= UNSETTLED_MAX {
            self.settle(now, out);
        }
        Ok(())
    }

    /// A client asks whether this gateway still has its session. A restart notice would be longer
    /// than what asks for it, and follows the challenge that comes next.
    fn keepalive(
        &mut self,
        now: Instant,
        route: Route,
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let keepalive = Keepalive::parse(datagram)?;
        let lead = self.indices.find(keepalive.index).ok_or(DropReason::UnknownIndex)?;
        self.with_peer(now, lead.slot, out, |peer, cx| {
            peer.tunnel.answer_keepalive(cx, lead, route, keepalive)
        })
    }

    /// A gateway answers a keepalive.
    fn keepalive_answer(
        &mut self,
        now: Instant,
        came: (Route, Instant),
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let proof = KeepaliveProof::parse(datagram)?;
        self.any_gateway(now, out, |peer, cx| {
            let PathManager { side, list, .. } = &mut peer.tunnel.paths;
            let connector = side.client_mut().ok_or(DropReason::BadMac)?;
            connector.keepalive_answered(cx.now, list, came, &proof)
        })
    }

    /// A gateway says that it lost the session with this node.
    fn restart_notice(
        &mut self,
        now: Instant,
        route: Route,
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let notice = RestartNotice::parse(datagram)?;
        self.any_gateway(now, out, |peer, cx| peer.tunnel.receive_restart(cx, route, notice))
    }

    /// Calls a verb of each gateway's session; one has to know what it is told.
    fn any_gateway(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        verb: impl Fn(&mut Peer, &mut Context<'_>) -> Result<(), DropReason>,
    ) -> Result<(), DropReason> {
        let mut taken = Err(DropReason::UnknownIndex);
        for place in 0..self.gateways.len() {
            taken = taken.or_else(|_| self.with_peer(now, self.gateways[place], out, &verb));
        }
        taken
    }

    fn response(
        &mut self,
        now: Instant,
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let receiver = handshake::Response::parse(datagram)?.receiver();
        let lead = self.indices.find(receiver).ok_or(DropReason::UnknownIndex)?;
        self.with_peer(now, lead.slot, out, |p, cx| p.receive_response(cx, lead.epoch, datagram))
    }

    fn response_part(
        &mut self,
        now: Instant,
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let part = handshake::ResponsePart::parse(datagram)?;
        let lead = self.indices.find(part.receiver).ok_or(DropReason::UnknownIndex)?;
        self.with_peer(now, lead.slot, out, |p, cx| p.receive_part(cx, lead.epoch, part))
    }

    fn cookie_reply(
        &mut self,
        now: Instant,
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let receiver = handshake::CookieReply::parse(datagram)?.receiver();
        let lead = self.indices.find(receiver).ok_or(DropReason::UnknownIndex)?;
        self.with_peer(now, lead.slot, out, |p, cx| {
            let connector = p.tunnel.paths.side.client_mut().ok_or(DropReason::BadHandshake)?;
            connector.receive_cookie(cx, lead.epoch, datagram)
        })
    }
}
