//! The tunnel to a peer: its keys, its paths, and the numbered datagrams that leave by them. It
//! finds, proves, keeps and leaves paths. The content of the datagrams comes from above.
//!
//! A file calls files of the groups below its own; `cargo xtask tidy` rejects circles:
//! - `established` (new keys), `challenges` (claims and proofs of addresses);
//! - `feedback` (about what arrived), `rest` (long idle sessions), `sharing` (paths that carry
//!   together), `retransmit`;
//! - `manage` (what the path manager wishes), `silence`;
//! - `connect` (when a client asks for keys), `keepalive` (NAT timeouts);
//! - `probing` (challenges, MTU), then `datagram` (numbers, frames, control);
//! - parts that own their state: `paths` (which paths there are and which carries), `reach` (how a
//!   gateway reaches the client), `echo`, `last_words` (last feedback of paths that are gone);
//!   `status`; and `context`.

use crate::crypto::Status;
use crate::multipath::snapshot::PathSnapshot;
use crate::path::PathId;
use crate::recovery::LossRecovery;
use crate::recovery::sent_packets::SentPackets;
use crate::session::control::ControlSender;
use crate::session::epochs::Epochs;
use crate::session::identity::Identity;
use crate::session::index::EpochId;
use crate::session::restart::Proof;
use crate::time::Instant;
use crate::wire::control::Lease;
use echo::PendingEcho;
use last_words::LastWords;
use paths::PathManager;
use reach::Reach;

mod challenges;
pub(crate) mod connect;
mod context;
pub(crate) mod datagram;
mod echo;
pub(crate) mod established;
mod feedback;
pub(crate) mod keepalive;
mod last_words;
mod manage;
pub(crate) mod paths;
pub(crate) mod probing;
mod reach;
pub(crate) mod rest;
pub(crate) mod retransmit;
mod sharing;
mod silence;
mod status;

pub(crate) use context::Context;
pub use context::{Config, EVENTS_MAX, Event, Link, StreamTo};
pub(crate) use paths::Side;
pub use paths::connector::STREAMS_MAX;
pub use paths::policing::{PolicedLink, Remedy};
pub use status::{PathStatus, PeerState, PeerStatus};

/// The keys and paths that lead to one peer.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) identity: Identity,
    pub(crate) epochs: Epochs,
    pub(crate) established: Option<Instant>,
    pub(crate) paths: PathManager,
    /// Snapshots of the paths with a share. `Bonding` builds them; `send_under` books in them each
    /// datagram that leaves.
    pub(crate) sharing: Vec<PathSnapshot>,
    /// Client: what arrived by paths that are gone, until the gateway knows.
    last_words: LastWords,
    /// What is in flight, and what is to be sent again.
    pub(crate) recovery: LossRecovery,
    /// When a path replaced one that carried. `Bonding` lowers the queue's bound for a while.
    pub(crate) replaced_at: Option<Instant>,
    /// A path carries that did not before: see [`Self::take_carries_anew`].
    carries_anew: bool,
    /// Paths that were removed because they did not work: see [`Self::take_removed`].
    removed: Vec<PathId>,
    /// The path in use was challenged: see [`Self::take_asked`].
    asks_active: bool,
    pub(crate) control: ControlSender,
    /// Gateway: how the client is reached.
    pub(crate) reach: Reach,
    /// Gateway: an answer that the client asked for later.
    pub(crate) echo: PendingEcho,
    heard_at: Instant,
    pub(crate) state: PeerState,
}

impl Tunnel {
    pub(crate) fn new(now: Instant, identity: Identity, side: Side) -> Self {
        Self {
            identity,
            epochs: Epochs::default(),
            established: None,
            paths: PathManager::new(side),
            sharing: Vec::new(),
            last_words: LastWords::default(),
            recovery: LossRecovery::default(),
            replaced_at: None,
            carries_anew: false,
            removed: Vec::new(),
            asks_active: false,
            control: ControlSender::default(),
            reach: Reach::default(),
            echo: PendingEcho::default(),
            heard_at: now,
            state: PeerState::Unestablished,
        }
    }

    /// Forgets keys, paths and what was to be said.
    pub(crate) fn forget(&mut self, cx: &mut Context<'_>) {
        let proof = self.restart_proof();
        if let Side::Client(connector) = &mut self.paths.side {
            connector.handshakes.lost = proof.or(connector.handshakes.lost);
        }
        self.epochs.clear(cx.indices);
        self.paths.forget();
        self.sharing.clear();
        self.replaced_at = None;
        self.removed.clear();
        self.asks_active = false;
        self.recovery = LossRecovery::default();
        self.control = ControlSender::default();
        self.established = None;
        self.echo = PendingEcho::default();
    }

    /// The name of the current keys.
    pub(crate) fn epoch_id(&self) -> Option<EpochId> {
        self.epochs.current.as_ref().map(|epoch| epoch.id)
    }

    /// The packets sent on a path under the current keys.
    pub(crate) fn sent_on(&self, path: PathId) -> Option<&SentPackets> {
        self.recovery.sent_on(self.epoch_id()?, path)
    }

    /// Forgets packets sent under keys that are gone.
    pub(crate) fn forget_spaces(&mut self) {
        self.recovery.forget_spaces(|space| self.epochs.is_over(space));
    }

    /// The session has new keys. Numbers and names that were given under the old ones are void.
    pub(crate) fn begin_epoch(&mut self) {
        self.forget_spaces();
        self.control = ControlSender::default();
        self.reach.begin_epoch();
        self.last_words = LastWords::default();
        self.note_home();
    }

    /// An authentic datagram came.
    pub(crate) const fn hear(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// Whether a path has begun to carry since the last call. Then waiting packets may leave.
    pub(crate) const fn take_carries_anew(&mut self) -> bool {
        std::mem::replace(&mut self.carries_anew, false)
    }

    /// The path in use, if it was challenged since the last call.
    pub(crate) fn take_asked(&mut self) -> Option<PathId> {
        let is_asked = std::mem::take(&mut self.asks_active);
        self.paths.list.active_id().filter(|_| is_asked)
    }

    /// A path that was removed because it did not work. Each is returned once.
    pub(crate) fn take_removed(&mut self) -> Option<PathId> {
        self.removed.pop()
    }

    pub(crate) fn set_state(&mut self, cx: &mut Context<'_>, state: PeerState) {
        if self.state != state {
            self.state = state;
            cx.tell(Event::State { peer: self.identity.key, state });
        }
    }

    /// The status of every path, those in use first.
    pub(crate) fn path_statuses(&self) -> Vec<PathStatus> {
        let mut paths: Vec<_> = self.paths.list.iter().map(|path| self.path_status(path)).collect();
        paths.sort_by_key(|path| !path.in_use);
        let active = self.paths.list.active_id();
        debug_assert!(paths.iter().filter(|p| p.in_use).count() <= usize::from(active.is_some()));
        paths
    }

    fn path_status(&self, path: &crate::path::Path) -> PathStatus {
        PathStatus::of(
            path,
            self.paths.list.active_id() == Some(path.id),
            self.sent_on(path.id),
            self.recovery.in_flight(path.id),
        )
    }

    /// Client: why the gateway refuses a session.
    pub(crate) fn refused(&self) -> Option<Status> {
        self.paths.connector().and_then(|connector| connector.handshakes.refused)
    }

    /// The inner addresses of the client of the two, and what goes with them.
    pub(crate) fn lease(&self) -> Option<Lease> {
        match &self.paths.side {
            Side::Gateway { lease } => Some(lease.clone()),
            Side::Client(connector) => connector.granted.lease.clone(),
        }
    }

    /// Client: what would prove that the gateway lost the session, where its path in use leads.
    pub(crate) fn restart_proof(&self) -> Option<Proof> {
        Proof::of(self.epochs.current.as_ref()?, self.paths.list.active()?)
    }

    /// Client: where the gateway is sought first, for the indices that this may take.
    fn note_home(&mut self) {
        if let (Side::Client(connector), Some(epoch)) = (&self.paths.side, &mut self.epochs.current)
        {
            let first = |v4| connector.candidates.remotes().find(|at| at.is_ipv4() == v4);
            epoch.home = [true, false].map(|v4| first(v4).map(|at| at.ip()));
        }
    }
}
