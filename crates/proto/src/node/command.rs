//! What the shell tells the core: the store's contents, what the user wants, what the links do.

use std::net::{IpAddr, SocketAddr};

use super::{Node, PEERS_MAX, PeerConfig};
use crate::codec::SavingConfig;
use crate::crypto::Status;
use crate::error::{CloseCode, DropReason};
use crate::flow::live::Early;
use crate::flow::overrides::{Devices, Overrides};
use crate::flow::priority::Priorities;
use crate::flow::rules::Rules;
use crate::flow::tuple::Tuple;
use crate::flow::{Flows, judge};
use crate::id::{PeerKey, SessionIndex, SocketId};
use crate::multipath::scheduler::Scheduler;
use crate::multipath::{Mode, Recovery, Spread};
use crate::outbox::{Outbox, Route};
use crate::paths::PathManager;
use crate::peer::{Peer, SideConfig};
use crate::role::Access;
use crate::session::index::Slot;
use crate::time::Instant;
use crate::tunnel::{Context, Event, Link, StreamTo};
use crate::wire::control::Prefix;

/// A change from the control plane.
#[derive(Clone, Debug)]
pub enum Command {
    /// Knows a peer from now on. A handshake of it that waits for this is answered. A peer that
    /// is known already gets the new access; its session goes on.
    AddPeer(Box<PeerConfig>),
    /// Forgets a peer: its session ends at once, and its handshakes are refused as revoked.
    RevokePeer(PeerKey),
    /// Refuses a peer that asked to enrol.
    RefuseEnrolment {
        /// Its key.
        peer: PeerKey,
        /// What it is told.
        status: Status,
    },
    /// Changes what a peer may do.
    SetAccess {
        /// Its key.
        peer: PeerKey,
        /// What it may do from now on.
        access: Access,
    },
    /// Client: the usable links, best first.
    SetLinks(Vec<Link>),
    /// Client: where a gateway may be reached, best first.
    SetRemotes {
        /// The gateway.
        peer: PeerKey,
        /// Its addresses.
        remotes: Vec<SocketAddr>,
    },
    /// Client: the streams by which a gateway may be reached where UDP is blocked, best first. One
    /// that is reached by streams alone is told so before it is asked for a session.
    SetStreams {
        /// The gateway.
        peer: PeerKey,
        /// The streams; at most [`STREAMS_MAX`](crate::tunnel::STREAMS_MAX) are tried.
        streams: Vec<StreamTo>,
        /// Whether the gateway is reached by them alone, and never by UDP.
        alone: bool,
    },
    /// Client: asks for a session with a gateway, and keeps asking.
    Connect(PeerKey),
    /// Ends the session with a peer; a client does not ask again until told to.
    Close {
        /// The peer.
        peer: PeerKey,
        /// What it is told.
        code: CloseCode,
    },
    /// Gateway: the addresses that its listening sockets can send from.
    SetLocals(Vec<IpAddr>),
    /// Gateway: where it is reached from now on, best first; every client is told, now and when it
    /// comes.
    Announce(Vec<SocketAddr>),
    /// Gateway, begun anew: calls back a client that a process before it had a session with, by
    /// what that process was told ([`Event::Reached`]).
    Recall {
        /// The way to the client.
        route: Route,
        /// The index by which the client names the session.
        index: SessionIndex,
    },
    /// That bytes of a connection are owed is written down ([`Event::Owing`]).
    Recorded {
        /// The peer.
        peer: PeerKey,
        /// The connection's two ends.
        tuple: Tuple,
    },
    /// Bytes of a connection were owed when this node's process ended ([`Event::Owing`]), and are
    /// gone: both its ends are told that it is over.
    BreakOff {
        /// The peer.
        peer: PeerKey,
        /// The connection's two ends.
        tuple: Tuple,
    },
    /// What is done from now on for open connections while there is no path; for those that are
    /// known already, what was decided when they were first seen.
    SetHold(Rules),
    /// Client: what is made of its links from now on.
    SetMode(Mode),
    /// Client: what its user wants early from now on.
    SetEarly(Early),
    /// Client: what its user prefers from now on.
    SetPriorities(Priorities),
    /// Client: how both ends of its sessions choose among paths that share data, from now on.
    SetScheduler(Scheduler),
    /// Client: what flows shall have by repair from now on, both ways.
    SetRecovery(Recovery),
    /// Client: which paths carry together from now on.
    SetSpread(Spread),
    /// The user's rules for flows from now on. Open flows go on, as these rules say.
    SetOverrides(Overrides),
    /// Whose a flow is, of the users of this host ([`Event::WhoseFlow`]).
    SetUser {
        /// The peer.
        peer: PeerKey,
        /// The flow's two ends.
        tuple: Tuple,
        /// The user's number; `None` if it is that of no user.
        user: Option<u32>,
    },
    /// How bytes are saved on inner packets from now on.
    SetSaving(SavingConfig),
    /// A socket has failed for good: nothing leaves or arrives by it any more.
    SocketFailed(SocketId),
    /// Another machine may have the same memory and go on with the same keys, under which each
    /// would seal other packets with the same nonces: no key is used any more, and clients ask for
    /// new ones. Open connections are held meanwhile.
    ForgetKeys,
    /// Gateway, begun anew: the highest handshake counter that a process before it accepted from a
    /// peer ([`Event::HandshakeCounter`]).
    SetCounter {
        /// The peer.
        peer: PeerKey,
        /// The counter.
        highest: u64,
    },
}

impl Node {
    /// A change from the control plane.
    pub fn handle_command(&mut self, now: Instant, command: Command, out: &mut Outbox) {
        // What settling sends might be sealed under keys that are to be forgotten.
        if !matches!(command, Command::ForgetKeys) {
            self.settle(now, out);
        }
        let done = self.carry_out(now, command, out);
        self.count(done);
    }

    fn carry_out(
        &mut self,
        now: Instant,
        command: Command,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        match command {
            Command::ForgetKeys => self.each_peer(now, out, Peer::forget_keys),
            Command::SetCounter { peer, highest } => self.set_counter(peer, highest),
            Command::AddPeer(config) => self.add_peer(now, *config, out),
            Command::RevokePeer(peer) => self.revoke_peer(now, peer, out),
            Command::RefuseEnrolment { peer, status } => {
                self.refuse_enrolment(now, peer, status, out)
            }
            Command::SetAccess { peer, access } => self.set_access(now, peer, access, out),
            Command::SetLinks(links) => {
                self.each_peer(now, out, |p, cx| p.links_changed(cx, &links))
            }
            Command::SetRemotes { peer, remotes } => self.for_peer(now, peer, out, |p, cx| {
                p.tunnel.manage(cx, |paths, cx| paths.set_remotes(cx, remotes));
            }),
            Command::SetStreams { peer, streams, alone } => {
                self.for_peer(now, peer, out, |p, cx| {
                    p.tunnel.manage(cx, |paths, cx| paths.set_streams(cx, streams, alone));
                })
            }
            Command::Connect(peer) => self.for_peer(now, peer, out, |p, cx| p.tunnel.want(cx)),
            Command::Close { peer, code } => {
                self.for_peer(now, peer, out, |peer, cx| peer.close(cx, code))
            }
            Command::SetLocals(locals) => self.each_peer(now, out, |peer, cx| {
                peer.change_paths(cx, |paths, cx| paths.locals_changed(cx, &locals))
            }),
            Command::Announce(addresses) => {
                self.announced.set(addresses);
                self.each_peer(now, out, |peer, cx| peer.tunnel.announce(cx))
            }
            Command::Recall { route, index } => {
                self.notices.send(route, index, out).then_some(()).ok_or(DropReason::QueueFull)
            }
            Command::Recorded { peer, tuple } => self.for_peer(now, peer, out, |peer, cx| {
                peer.change_flows(cx, |flows, _| flows.recorded(&tuple))
            }),
            Command::BreakOff { peer, tuple } => self.for_peer(now, peer, out, |peer, cx| {
                peer.change_flows(cx, |flows, cx| flows.break_off(cx.now, cx.memory, tuple))
            }),
            Command::SetMode(mode) => {
                self.config.mode = mode;
                self.stand_by(now, out)
            }
            Command::SetScheduler(scheduler) => {
                self.config.scheduler = scheduler;
                self.settings_changed(now, out)
            }
            Command::SetRecovery(recovery) => {
                self.config.recovery = recovery;
                self.settings_changed(now, out)
            }
            Command::SetSpread(spread) => {
                self.config.spread = spread;
                self.stand_by(now, out)
            }
            Command::SetSaving(saving) => {
                self.config.saving = saving;
                self.settings_changed(now, out)
            }
            Command::SetHold(rules) => self.set_hold(now, rules, out),
            Command::SetEarly(early) => self.set_early(now, early, out),
            Command::SetPriorities(priorities) => self.set_priorities(now, priorities, out),
            Command::SetOverrides(overrides) => self.set_overrides(now, overrides, out),
            Command::SetUser { peer, tuple, user } => self.set_user(now, (peer, tuple), user, out),
            Command::SocketFailed(socket) => self.socket_failed(now, socket, out),
        }
    }

    /// Settings of both ends were changed.
    fn settings_changed(&mut self, now: Instant, out: &mut Outbox) -> Result<(), DropReason> {
        self.each_peer(now, out, |peer, cx| peer.settings_changed(cx))
    }

    /// The paths that each client has need of may be others.
    fn stand_by(&mut self, now: Instant, out: &mut Outbox) -> Result<(), DropReason> {
        self.each_peer(now, out, |peer, cx| peer.change_paths(cx, PathManager::stand_by))
    }

    fn set_early(
        &mut self,
        now: Instant,
        early: Early,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.early = early.clone();
        self.each_peer(now, out, |peer, cx| peer.set_early(cx.now, &early))
    }

    fn set_priorities(
        &mut self,
        now: Instant,
        priorities: Priorities,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.priorities = priorities.clone();
        self.each_flows(now, out, |flows, cx| {
            judge::set_priorities(flows, cx.memory, priorities.clone());
        })
    }

    fn set_overrides(
        &mut self,
        now: Instant,
        overrides: Overrides,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.overrides = overrides.clone();
        self.each_flows(now, out, |flows, cx| {
            judge::set_overrides(flows, cx.memory, overrides.clone());
        })
    }

    fn set_user(
        &mut self,
        now: Instant,
        (peer, tuple): (PeerKey, Tuple),
        user: Option<u32>,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.for_peer(now, peer, out, |peer, cx| {
            peer.change_flows(cx, |flows, _| judge::identified(flows, &tuple, user))
        })
    }

    fn set_hold(&mut self, now: Instant, rules: Rules, out: &mut Outbox) -> Result<(), DropReason> {
        self.config.hold = rules.clone();
        self.each_flows(now, out, |flows, _| flows.set_rules(rules.clone()))
    }

    fn set_counter(&mut self, peer: PeerKey, highest: u64) -> Result<(), DropReason> {
        let is_known = self.by_key.contains_key(&peer);
        if is_known {
            self.responder.set_counter(peer, highest);
        }
        is_known.then_some(()).ok_or(DropReason::NoRoute)
    }

    fn add_peer(
        &mut self,
        now: Instant,
        config: PeerConfig,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let key = config.key;
        if self.by_key.contains_key(&key) {
            return self.set_access(now, key, config.access, out);
        }
        let slot = match self.peers.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.peers.len() < PEERS_MAX => {
                self.peers.push(None);
                self.peers.len() - 1
            }
            None => return Err(DropReason::TableFull),
        };
        let slot = Slot(u32::try_from(slot).map_err(|_| DropReason::TableFull)?);
        // What lies behind a gateway is everything; a client's addresses are its own.
        let is_gateway = matches!(config.side, SideConfig::Gateway { .. });
        let devices = if is_gateway { Devices::Local } else { Devices::Remote };
        if is_gateway {
            self.gateways.push(slot);
            for address in [IpAddr::from([0u8; 4]), IpAddr::from([0u16; 8])] {
                self.routes.insert(Prefix { address, bits: 0 }, slot);
            }
        }
        for &prefix in config.access.own() {
            self.routes.insert(prefix, slot);
        }
        self.by_key.insert(key, slot);
        self.memory.share_among(self.by_key.len());
        self.responder.known(key);
        let secret = u64::from_be_bytes(crate::crypto::draw(self.rng.as_mut()));
        let mut flows = Flows::new(self.config.hold.clone(), secret);
        judge::set_priorities(&mut flows, &mut self.memory, self.priorities.clone());
        flows.set_early(self.early.clone());
        judge::set_devices(&mut flows, devices);
        judge::set_overrides(&mut flows, &mut self.memory, self.overrides.clone());
        let (run, ablation) = (run_of(secret), self.config.ablation);
        let peer = Peer::new(slot, config, ablation, run, flows, secret.rotate_left(16));
        self.peers[slot.0 as usize] = Some(peer);
        self.answer_waiting(now, key, out)
    }

    fn revoke_peer(
        &mut self,
        now: Instant,
        key: PeerKey,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.responder.revoke(key);
        let Some(slot) = self.by_key.remove(&key) else { return Ok(()) };
        self.memory.share_among(self.by_key.len());
        let closed = self.with_peer(now, slot, out, |peer, cx| {
            peer.close(cx, CloseCode::Revoked);
            Ok(())
        });
        self.gateways.retain(|&gateway| gateway != slot);
        // Who was promised something by an earlier process may have to be asked before he can be
        // told: that goes by the routes there were.
        self.leaving.push(slot);
        self.settle_timer();
        closed
    }

    fn refuse_enrolment(
        &mut self,
        now: Instant,
        peer: PeerKey,
        status: Status,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.tell(Event::PeerRefused { peer, status });
        self.refuse_waiting(now, peer, status, out)
    }

    fn set_access(
        &mut self,
        now: Instant,
        key: PeerKey,
        access: Access,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let slot = *self.by_key.get(&key).ok_or(DropReason::NoRoute)?;
        let peer = self.peers.get(slot.0 as usize).and_then(Option::as_ref);
        let peer = peer.ok_or(DropReason::NoRoute)?;
        if peer.access().own() != access.own() {
            self.routes.remove(slot);
            for &prefix in access.own() {
                self.routes.insert(prefix, slot);
            }
        }
        self.for_peer(now, key, out, |peer, cx| peer.set_access(cx, access))
    }

    /// Strangers can make streams fail as often as they like: who does not use one is not bothered.
    fn socket_failed(
        &mut self,
        now: Instant,
        socket: SocketId,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.responder.forget_socket(socket);
        let has_path = |peer: &Peer| {
            let PathManager { side, list, .. } = &peer.tunnel.paths;
            list.uses(socket) || side.client().is_some_and(|it| it.has_socket(socket))
        };
        let uses = |slot: &Slot| self.peer(*slot).is_some_and(has_path);
        let slots: Vec<_> = self.by_key.values().copied().filter(uses).collect();
        for slot in slots {
            self.with_peer(now, slot, out, |peer, cx| {
                peer.change_paths(cx, |paths, cx| paths.socket_failed(cx, socket));
                Ok(())
            })?;
        }
        Ok(())
    }

    fn for_peer(
        &mut self,
        now: Instant,
        key: PeerKey,
        out: &mut Outbox,
        verb: impl FnOnce(&mut Peer, &mut Context<'_>),
    ) -> Result<(), DropReason> {
        let slot = *self.by_key.get(&key).ok_or(DropReason::NoRoute)?;
        self.with_peer(now, slot, out, |peer, cx| {
            verb(peer, cx);
            Ok(())
        })
    }

    fn each_flows(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        change: impl Fn(&mut Flows, &mut Context<'_>),
    ) -> Result<(), DropReason> {
        self.each_peer(now, out, |peer, cx| peer.change_flows(cx, &change))
    }

    fn each_peer(
        &mut self,
        now: Instant,
        out: &mut Outbox,
        mut verb: impl FnMut(&mut Peer, &mut Context<'_>),
    ) -> Result<(), DropReason> {
        let slots: Vec<_> = self.by_key.values().copied().collect();
        for slot in slots {
            self.with_peer(now, slot, out, |peer, cx| {
                verb(peer, cx);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The number of this run of the program that one gateway sees. It is derived from the peer's own
/// random number, which it does not reveal.
fn run_of(secret: u64) -> u64 {
    let hash = crate::crypto::sha256(&[b"rove run v1", &secret.to_be_bytes()]);
    hash.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}
