//! The tunnel to a peer: the datagrams that leave and arrive under a session's keys.
//!
//! **Decides** how a datagram is numbered, which control frames, feedback and challenges leave, and
//! when a client asks for keys. It carries out what the path manager (`paths`) wishes.
//!
//! **Refuses to know** which inner packets are sent and when: that comes from above.
//! `draft_datagram` is the only place where a datagram of a session is made.
//!
//! **Answers.** A [`DropReason`] says why a datagram did not leave: `NoRoute` without keys, path or
//! index, `Amplification` if an unproven address has had its budget, `QueueFull` if the outbox is
//! full. `Changes` has notes for the parts above.
//!
//! A file calls files of the groups below its own, which `cargo xtask tidy` checks:
//! - `challenges` (claims and proofs of addresses), `keepalive` (NAT timeouts);
//! - `feedback` (about what arrived), `retransmit`;
//! - `established` (new keys);
//! - `manage` (what the path manager wishes: challenges, MTU probes);
//! - `datagram` (frames, control); `elision` (headers that stay the same), and `saving`
//!   (compression, and several packets in one datagram);
//! - `draft` (numbers and what is kept for repair), and this file (when a client asks for keys);
//! - parts that own their state: `reach` (how a gateway reaches the client), `echo`, `changes`,
//!   `departures` (what left by each path), `last_words` (last feedback of paths that are gone);
//!   and `status`.

use crate::codec::contexts::Contexts;
use crate::error::DropReason;
use crate::outbox::Route;
use crate::path::PathId;
use crate::paths::PathManager;
use crate::paths::connector::Connector;
use crate::paths::plan::rest::Outcome;
use crate::recovery::LossRecovery;
use crate::recovery::sent_packets::SentPackets;
use crate::session::control::ControlSender;
use crate::session::epochs::Epochs;
use crate::session::identity::Identity;
use crate::session::restart::Proof;
use crate::time::{Duration, Instant};
use crate::wire::restart::RestartNotice;
use changes::Changes;
use departures::Departures;
use echo::PendingEcho;
use last_words::LastWords;
use reach::Reach;
use saver::Saver;

mod challenges;
mod changes;
pub(crate) mod datagram;
mod departures;
mod draft;
mod echo;
mod elision;
pub(crate) mod established;
mod feedback;
pub(crate) mod keepalive;
mod last_words;
pub(crate) mod manage;
mod reach;
pub(crate) mod retransmit;
mod saver;
pub(crate) mod saving;
mod status;

pub(crate) use crate::context::Context;
pub use crate::context::{Config, EVENTS_MAX, Event, Link, PeerState, StreamTo};
pub(crate) use crate::paths::Side;
pub use crate::paths::connector::STREAMS_MAX;
pub use crate::paths::policing::{PolicedLink, Remedy};
pub(crate) use departures::Departure;
pub(crate) use feedback::Told;
pub(crate) use status::time_of_loss;
pub use status::{PathStatus, PeerStatus};

/// The keys and paths that lead to one peer.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) identity: Identity,
    pub(crate) epochs: Epochs,
    pub(crate) paths: PathManager,
    /// What left by the paths with a share, until `bonding` books it.
    pub(crate) departures: Departures,
    /// Client: what arrived by paths that are gone, until the gateway knows.
    last_words: LastWords,
    /// What is in flight, and what is to be sent again.
    pub(crate) recovery: LossRecovery,
    pub(crate) changes: Changes,
    pub(crate) control: ControlSender,
    /// The headers that the peer was sent under the current keys.
    contexts: Contexts,
    /// Gateway: how the client is reached.
    pub(crate) reach: Reach,
    /// Gateway: an answer that the client asked for later.
    pub(crate) echo: PendingEcho,
    pub(crate) state: PeerState,
    /// When the session stopped being up, until it is up again or rests.
    lost_at: Option<Instant>,
    /// What is saved on packets that leave.
    saver: Saver,
}

impl Tunnel {
    pub(crate) fn new(identity: Identity, side: Side) -> Self {
        let at_gateway = matches!(side, Side::Gateway { .. });
        Self {
            identity,
            epochs: Epochs::default(),
            paths: PathManager::new(side),
            departures: Departures::default(),
            last_words: LastWords::default(),
            recovery: LossRecovery::default(),
            changes: Changes::default(),
            control: ControlSender::default(),
            contexts: Contexts::default(),
            reach: Reach::default(),
            echo: PendingEcho::default(),
            state: PeerState::Unestablished,
            lost_at: None,
            saver: Saver::new(at_gateway),
        }
    }

    /// Forgets keys, paths and what was to be said.
    pub(crate) fn forget(&mut self, cx: &mut Context<'_>) {
        let proof = Proof::find(&self.epochs, self.paths.list.active());
        if let Side::Client(connector) = &mut self.paths.side {
            connector.handshakes.lost = proof.or(connector.handshakes.lost);
        }
        self.epochs.clear(cx.indices);
        self.paths.forget();
        self.departures.forget();
        self.changes.forget_paths();
        self.recovery = LossRecovery::default();
        self.control = ControlSender::default();
        self.contexts = Contexts::default();
        self.echo = PendingEcho::default();
        self.saver.forget();
    }

    /// The packets sent on a path under the current keys.
    pub(crate) fn sent_on(&self, path: PathId) -> Option<&SentPackets> {
        self.recovery.sent_on(self.epochs.id()?, path)
    }

    /// Forgets packets sent under keys that are gone.
    pub(crate) fn forget_spaces(&mut self) {
        self.recovery.forget_spaces(|space| self.epochs.is_over(space));
    }

    /// The session has new keys. Numbers and names that were given under the old ones are void.
    pub(crate) fn begin_epoch(&mut self) {
        self.forget_spaces();
        self.control = ControlSender::default();
        self.contexts = Contexts::default();
        self.saver.begin_epoch();
        self.reach.begin_epoch();
        self.last_words = LastWords::default();
        self.epochs.set_home(self.paths.connector().map(Connector::home));
    }

    pub(crate) fn set_state(&mut self, cx: &mut Context<'_>, state: PeerState) {
        if self.state != state {
            let carries = |it: PeerState| matches!(it, PeerState::Up | PeerState::Resting);
            if carries(state) {
                self.lost_at = None;
            } else if carries(self.state) {
                self.lost_at = Some(cx.now);
            }
            self.state = state;
            cx.tell(Event::State { peer: self.identity.key, state });
        }
    }

    /// How the silence of a session ends, and when.
    pub(crate) fn end_of_silence(
        &self,
        persistence: Duration,
        any_waits: bool,
    ) -> Option<(Instant, Outcome)> {
        let (_, heard_at) = self.epochs.established()?;
        Some(self.paths.plan().end_of_silence(heard_at, persistence, any_waits))
    }

    /// The user wants a session with the peer, a gateway.
    pub(crate) fn want(&mut self, cx: &mut Context<'_>) {
        if let Some(connector) = self.paths.side.client_mut() {
            connector.handshakes.wanted = true;
        }
        self.connect(cx);
    }

    /// Asks for a session, by every candidate. No effect while already asking, while there is
    /// no link, or when no session is wanted.
    pub(crate) fn connect(&mut self, cx: &mut Context<'_>) {
        if !self.paths.side.client_mut().is_some_and(|it| it.begin_round(cx.now)) {
            return;
        }
        if matches!(self.state, PeerState::Down(_) | PeerState::Resting) {
            self.set_state(cx, PeerState::Unestablished);
        }
        self.attempt_due(cx);
    }

    /// Asks at once, as if for the first time: the links changed.
    pub(crate) fn reconnect(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, PeerState::Down(_)) {
            return;
        }
        if let Some(connector) = self.paths.side.client_mut() {
            connector.restart_round(cx.now);
        }
        self.connect(cx);
        self.attempt_due(cx);
    }

    /// Asks for new keys when the old are due and traffic flows.
    pub(crate) fn rekey_if_due(&mut self, cx: &mut Context<'_>) {
        if self.epochs.current.as_ref().is_some_and(|epoch| epoch.wants_rekey(cx.now)) {
            self.connect(cx);
        }
    }

    /// Makes the attempts that are due.
    pub(crate) fn attempt_due(&mut self, cx: &mut Context<'_>) {
        if let Side::Client(connector) = &mut self.paths.side {
            connector.attempt_due(cx, &mut self.identity, &self.paths.list);
        }
    }

    /// Client: a notice came by `route` that the gateway lost the session. It changes no session:
    /// it only begins a handshake, beside a session that goes on under its old keys until the new
    /// ones are used.
    ///
    /// # Errors
    /// [`DropReason::BadHandshake`] when it proves nothing that this session waits for.
    pub(crate) fn receive_restart(
        &mut self,
        cx: &mut Context<'_>,
        route: Route,
        notice: RestartNotice,
    ) -> Result<(), DropReason> {
        let current = self.epochs.current.as_ref().zip(self.paths.list.by_route(&route));
        let current = current.and_then(|(epoch, path)| Proof::of(epoch, path));
        let connector = self.paths.side.client_mut().ok_or(DropReason::BadHandshake)?;
        if connector.receive_restart(cx.now, route, notice, current)? {
            self.reconnect(cx);
        }
        Ok(())
    }
}
