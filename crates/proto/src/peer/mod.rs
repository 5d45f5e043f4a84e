//! One peer: where the layers below meet. A session's epochs, its paths, what waits to be said.
//!
//! Each action has a file, and a packet's way through the file reads from top to bottom:
//! - packets: `egress` (TUN to datagram), `ingress` (datagram to TUN), `order` (resequencing),
//!   `retransmit` (lost packets, and those in flight on a failed path), `live` (realtime packets);
//! - handshakes: `connect` (of a client, with the state in `connector`), `restart` (the gateway
//!   lost its sessions), `runs` (two hosts with one key);
//! - paths: `moving` (paths are added, validated and removed), `links` (the active path), `share`
//!   (the paths used together), `bonding` (the path of each packet), `ways` (the scheduler's view
//!   of paths), `company` (shared bottlenecks), `settings` (of the scheduler, at both ends),
//!   `standby` (paths validated in advance), `spread` (which these are, and which of them carry
//!   data), `unanswered` (links that never answered), `trust` (the record of a link);
//! - connections: `hold` (open connections while no path works), `answers` (replies that need no
//!   grant);
//! - time: `announce` (the gateway's addresses), `rest` (long idle sessions), `keepalive` (NAT
//!   timeouts), `listening` (a stream that stops), `timers`.
//!
//! Only this module changes the state of a peer.

pub(crate) mod announce;
pub mod answers;
mod bonding;
mod company;
mod connect;
mod connector;
mod context;
mod egress;
pub mod epoch;
pub mod epochs;
mod hold;
pub mod index;
mod ingress;
mod keepalive;
mod links;
mod listening;
mod live;
mod moving;
mod order;
#[cfg(test)]
#[path = "../../tests/pair/mod.rs"]
mod pair;
pub mod paths;
mod refusal;
mod rest;
mod restart;
mod retransmit;
mod runs;
mod settings;
mod share;
mod spread;
mod standby;
mod status;
mod timers;
mod trust;
mod unanswered;
pub mod waiting;
mod ways;

pub use connector::STREAMS_MAX;
pub(crate) use context::Context;
pub use context::{Config, EVENTS_MAX, Event, Link, StreamTo};
pub use runs::{ALARM_TIME, SharedKey};
pub use status::{PathStatus, PeerState, PeerStatus};
pub use timers::Reason;

use std::net::SocketAddr;

use zeroize::Zeroizing;

use crate::ablation::Ablation;
use crate::bond::scheduler::Scheduler;
use crate::bond::{Bond, Recovery};
use crate::error::{CloseCode, DropReason, PeerError};
use crate::flow::{Account, Flows};
use crate::id::{PathSerial, PeerKey, SessionIndex};
use crate::outbox::Route;
use crate::path::{Health, Trust};
use crate::reliable::control::ControlSender;
use crate::role::Access;
use crate::time::Instant;
use crate::wire::control::{Control, Lease, Prefix};
use answers::Answers;
use connector::Connector;
use epochs::Epochs;
use index::{EpochId, Slot};
use paths::Paths;
use refusal::Refusals;
use waiting::Waiting;

/// What a node is told of a peer when it is added.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Its public key.
    pub key: PeerKey,
    /// A static secret shared with it beforehand, if there is one.
    pub psk: Option<Zeroizing<[u8; 32]>>,
    /// What it may do.
    pub access: Access,
    /// Which end of the relation this node is.
    pub side: SideConfig,
}

/// The part of a peer's configuration that depends on who asks whom.
#[derive(Clone, Debug)]
pub enum SideConfig {
    /// The peer is a client, which will ask; this is what it is given.
    Client {
        /// Its inner addresses and what goes with them.
        lease: Lease,
    },
    /// The peer is a gateway, which this node asks.
    Gateway {
        /// Where it may be reached, best first.
        remotes: Vec<SocketAddr>,
        /// The lowest handshake counter that was never used with it.
        counter: u64,
        /// The right to enrol, if this node has not yet.
        token: Option<crate::crypto::Token>,
        /// Ranges behind this node, announced to it: at most
        /// [`ROUTES_MAX`](crate::wire::control::ROUTES_MAX), what is beyond is not said.
        advertise: Vec<Prefix>,
    },
}

/// A peer and the session with it.
#[derive(Debug)]
pub(crate) struct Peer {
    slot: Slot,
    key: PeerKey,
    psk: Option<Zeroizing<[u8; 32]>>,
    access: Access,
    role: Role,
    epochs: Epochs,
    next_epoch: u32,
    established: Option<Instant>,
    paths: Paths,
    control: ControlSender,
    /// Gateway: the version of its addresses that the client was told in this epoch.
    announced: u32,
    /// Gateway: by which route and index the client is reached, as the shell was told.
    reach: Option<(Route, SessionIndex)>,
    /// Whether that may have changed.
    reach_changed: bool,
    /// Gateway: how often the client was called since its session was given up.
    calls: rest::Calls,
    waiting: Waiting,
    /// What leaves by several paths, in its turn.
    bond: Bond,
    /// Client: what the gateway was told in this epoch of how to choose among them.
    scheduler_told: Option<Scheduler>,
    /// Client: what the gateway knows in this epoch of what flows shall have by repair: the usual
    /// thing, as long as it was told nothing.
    recovery_told: Recovery,
    /// What left by a path that is dead.
    lost: retransmit::Lost,
    /// What is of no use late.
    live: live::Live,
    /// The open connections that it carries.
    flows: Flows,
    /// The share of the node's memory that the flows hold.
    pub(crate) account: Account,
    /// Room for one packet of theirs.
    spoken: Vec<u8>,
    /// Headers that tell of less room.
    narrowed: Vec<u8>,
    /// Gateway: how often the client was told that a destination is refused.
    refusals: Refusals,
    /// Gateway: the conversations that the client may reply to.
    answers: Answers,
    /// Gateway: how often the client had moved when it said last where it wants to be reached.
    followed: u32,
    /// Gateway: an answer that the client asked for, later.
    echo: Option<keepalive::PendingEcho>,
    /// Gateway: the runs of the client's program.
    runs: runs::Runs,
    /// Set if two hosts use the client's key, as this end noticed or as the gateway reported.
    shared_key: Option<SharedKey>,
    heard_at: Instant,
    /// When an inner packet last came or went.
    used_at: Option<Instant>,
    /// Which of these a client has followed by a question.
    quiet_after: Option<Instant>,
    state: PeerState,
}

/// What this node is to the peer.
#[derive(Debug)]
enum Role {
    /// Its gateway: the peer asks, and is given this.
    Gateway { lease: Lease },
    /// Its client: this node asks.
    Client(Box<Connector>),
}

impl Peer {
    pub(crate) fn new(
        now: Instant,
        slot: Slot,
        config: PeerConfig,
        run: u64,
        flows: Flows,
        answers: Answers,
    ) -> Self {
        let role = match config.side {
            SideConfig::Client { lease } => Role::Gateway { lease },
            SideConfig::Gateway { remotes, counter, token, advertise } => {
                let connector = Connector::new(remotes, counter, token, advertise, run);
                Role::Client(Box::new(connector))
            }
        };
        Self {
            slot,
            key: config.key,
            psk: config.psk,
            access: config.access,
            role,
            epochs: Epochs::default(),
            next_epoch: 0,
            established: None,
            paths: Paths::default(),
            control: ControlSender::default(),
            announced: 0,
            reach: None,
            reach_changed: false,
            calls: rest::Calls::default(),
            waiting: Waiting::default(),
            bond: Bond::default(),
            scheduler_told: None,
            recovery_told: Recovery::default(),
            lost: retransmit::Lost::default(),
            live: live::Live::default(),
            flows,
            account: Account::default(),
            spoken: Vec::new(),
            narrowed: Vec::new(),
            refusals: Refusals::default(),
            answers,
            followed: 0,
            echo: None,
            runs: runs::Runs::default(),
            shared_key: None,
            heard_at: now,
            used_at: None,
            quiet_after: None,
            state: PeerState::Unestablished,
        }
    }

    /// Goes without these heuristics from now on.
    pub(crate) const fn leave_out(&mut self, ablation: Ablation) {
        self.bond.ablation = ablation;
    }

    pub(crate) const fn access(&self) -> &Access {
        &self.access
    }

    pub(crate) fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    pub(crate) fn psk(&self) -> Option<&[u8; 32]> {
        self.psk.as_deref()
    }

    /// A handshake of the peer was answered: its keys wait for their first use.
    pub(crate) fn add_pending(&mut self, cx: &mut Context<'_>, epoch: epoch::Epoch) {
        self.epochs.add_pending(epoch, cx.indices);
    }

    /// Whether this node is the gateway of the two.
    pub(crate) const fn at_gateway(&self) -> bool {
        matches!(self.role, Role::Gateway { .. })
    }

    /// A name for the epoch of a handshake that begins.
    pub(crate) const fn next_epoch(&mut self) -> EpochId {
        self.next_epoch += 1;
        EpochId(self.next_epoch)
    }

    /// Says goodbye and forgets the session.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>, code: CloseCode) {
        self.say_close(cx, code);
        if code != CloseCode::Restarting {
            self.break_promises(cx);
        }
        self.forget_session(cx);
        if let Role::Client(connector) = &mut self.role {
            connector.set_wanted(false);
            connector.stop(cx.indices);
        }
        self.close_unused_sockets(cx);
        self.set_state(cx, PeerState::Down(code));
    }

    /// The session is over: keys, paths and what was to be said are forgotten.
    fn end(&mut self, cx: &mut Context<'_>, error: PeerError) {
        self.forget_session(cx);
        if error == PeerError::TimedOut {
            self.flows.abandon(cx.now, cx.memory);
        } else {
            self.reach = None; // nobody waits there to be called
        }
        cx.tell(Event::Ended { peer: self.key, error });
        let down = match error {
            PeerError::Closed(code @ (CloseCode::Revoked | CloseCode::Requested)) => Some(code),
            PeerError::Closed(_)
            | PeerError::UnknownFrame(_)
            | PeerError::EpochExhausted
            | PeerError::TimedOut => None,
        };
        match (down, &mut self.role) {
            (Some(code), Role::Client(connector)) => {
                connector.set_wanted(false);
                connector.stop(cx.indices);
                self.close_unused_sockets(cx);
                self.set_state(cx, PeerState::Down(code));
            }
            (None, Role::Client(_)) => self.connect(cx),
            (_, Role::Gateway { .. }) => self.refresh_state(cx),
        }
    }

    fn forget_session(&mut self, cx: &mut Context<'_>) {
        let proof = self.restart_proof();
        if let Role::Client(connector) = &mut self.role {
            connector.lost = proof.or(connector.lost);
        }
        self.epochs.clear(cx.indices);
        let waited = self.bond.clear(cx.memory.blocks());
        (0..waited).for_each(|_| cx.drops.count(DropReason::NoRoute));
        self.paths = Paths::default();
        self.control = ControlSender::default();
        self.established = None;
        self.echo = None;
        self.lost = retransmit::Lost::default();
    }

    /// Called at the end of each verb: works out the state and tells when it changed.
    fn refresh_state(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, PeerState::Down(_)) && self.epochs.current.is_none() {
            return;
        }
        self.leave_gone(cx);
        self.share_paths(cx);
        self.bond.is_shared = self.paths.iter().any(|path| path.congestion.is_some());
        self.collect_lost(cx);
        self.tell_reach(cx);
        let state = match (&self.epochs.current, self.paths.active()) {
            (None, _) if self.rests() => PeerState::Resting,
            (None, _) => PeerState::Unestablished,
            (Some(_), None) => PeerState::Suspended,
            (Some(_), Some(path)) => match (path.health, path.trust) {
                (Health::Good, Trust::Proven) => PeerState::Up,
                (Health::Good, _) => PeerState::Moving,
                (Health::Silent { .. } | Health::Gone, _) => PeerState::Suspended,
            },
        };
        let before = self.state;
        self.set_state(cx, state);
        if before == PeerState::Suspended && state == PeerState::Up {
            self.call_off(cx);
        }
        self.hold_or_resume(cx);
        self.send_lost(cx);
    }

    fn set_state(&mut self, cx: &mut Context<'_>, state: PeerState) {
        if self.state != state {
            self.state = state;
            cx.tell(Event::State { peer: self.key, state });
        }
    }

    #[cfg(test)]
    pub(crate) const fn current_epoch(&mut self) -> Option<&mut epoch::Epoch> {
        self.epochs.current.as_mut()
    }

    /// A snapshot for people.
    pub(crate) fn status(&self) -> PeerStatus {
        let active = self.paths.active_id();
        let mut paths: Vec<_> = self.paths.iter().map(|path| self.path_status(path)).collect();
        paths.sort_by_key(|path| !path.in_use);
        debug_assert!(paths.iter().filter(|p| p.in_use).count() <= usize::from(active.is_some()));
        let (handshaking, lease) = match &self.role {
            Role::Gateway { lease } => (false, Some(lease.clone())),
            Role::Client(connector) => (connector.is_trying(), connector.lease.clone()),
        };
        let refused = match &self.role {
            Role::Gateway { .. } => None,
            Role::Client(connector) => connector.refused,
        };
        PeerStatus {
            peer: self.key,
            state: self.state,
            established: self.established,
            epoch_since: self.epochs.current.as_ref().map(|epoch| epoch.since),
            handshaking,
            refused,
            lease,
            shared_key: self.shared_key,
            paths,
            profile: self.epochs.current.as_ref().map(|epoch| epoch.profile),
            scheduler: self.bond.scheduler,
            waiting: self.waiting.len() + self.flows.questions(),
            queued_bytes: self.bond.entry.bytes(),
            early_bytes: self.epochs.all_receiving().map(|epoch| epoch.reorder.bytes()).sum(),
        }
    }

    fn path_status(&self, path: &crate::path::Path) -> PathStatus {
        let lanes = self.epochs.current.iter().flat_map(|epoch| &epoch.tx);
        let flight = lanes.filter(|lane| lane.path == path.id).map(|lane| &lane.flight).next();
        PathStatus::of(
            path,
            self.paths.active_id() == Some(path.id),
            flight.map(crate::path::flight::Flight::loss).unwrap_or_default(),
            flight.and_then(crate::path::flight::Flight::unanswered_since),
        )
    }

    /// New keys are in use: what was counted or named under the old ones means nothing any more.
    fn begin_epoch(&mut self, cx: &mut Context<'_>) {
        self.control = ControlSender::default();
        self.renumber(cx);
        self.calls = rest::Calls::default();
        self.followed = 0; // it may be another process that asks now
        if let Role::Client(connector) = &mut self.role {
            connector.last_words = retransmit::LastWords::default();
        }
        self.note_home();
    }

    /// What a gateway tells a client at the beginning of an epoch, and a client its gateway: also
    /// that nothing lies behind it, since what ran there before may have said otherwise.
    fn introduce(&mut self, cx: &mut Context<'_>) {
        match &self.role {
            Role::Gateway { lease } => {
                self.control.push(cx.now, &Control::Lease(lease.clone()));
                self.hand_out_restart_tokens(cx, PathSerial(0));
                self.announced = 0; // it may be another process that listens now
                self.announce(cx);
                self.warn_of_shared_key(cx);
                self.bond.recovery = Recovery::default();
            }
            Role::Client(connector) => {
                let routes = Control::Routes(connector.advertise.clone());
                self.name_run(cx);
                self.say_early(cx.now);
                self.control.push(cx.now, &routes);
                self.scheduler_told = None;
                self.tell_scheduler(cx);
                self.recovery_told = Recovery::default();
                self.tell_recovery(cx);
            }
        }
    }
}
