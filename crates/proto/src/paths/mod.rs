//! The path manager: which paths to the peer there are, which are kept, and which carries.
//!
//! - **Start.** The first answer to a handshake makes a path that is proven and in use. On each
//!   other link that may carry, a client opens a path and challenges it, so that it is proven
//!   before it is needed (`standby`, `moving`).
//! - **Probing.** Spare paths are challenged now and then. A path that does not answer is
//!   challenged ever more rarely, and in time the next address has its turn (`plan`, `turns`).
//! - **Failure.** A path that owes an answer is silent. Data moves to the best path with a share.
//!   If there is none, all other candidates are challenged, and the first to answer takes over. If
//!   a link or socket is gone, data moves at once (`silence`, `links`). Finally a client starts a
//!   handshake.
//! - **Return.** A better path takes over when it has answered, and the path in use carries until
//!   then. A link that failed or lost much waits for a while before that (`trust`).
//!
//! The same with states and events: docs/spec/paths.md#from-start-to-return and
//! docs/spec/paths.md#path-selection, whose table the test of this module goes through.
//!
//! It decides by what it is told: the shell's links and sockets, answers, silences, the time. It
//! sends nothing and knows no keys. What has to be done is a list of [`Wish`]es that the tunnel
//! carries out in order. Paths and links are bounded by [`PATHS_MAX`](crate::path::PATHS_MAX) and
//! by how many session indices the peer has issued (`indices`).
//!
//! What changes it, each file with methods of [`PathManager`]; a file calls files below its own:
//! - `silence` (paths that owe an answer), `stream_trial` (where UDP is policed);
//! - `links` (the shell's links, sockets and addresses), `follow` (the gateway's addresses);
//! - `standby` (make before break);
//! - `moving` (paths come into use and go), then this file.
//!
//! State and queries: `list` (the paths), `plan` (how good each path is, when it is asked, which
//! are kept), `indices` (how many may be opened), `wishes`, and what a client remembers:
//! - `candidate`, `candidates` (ways to the gateway), `granted` (what it gives);
//! - `connector` (sockets), `handshakes`, `spares` (what is kept beside the path in use);
//! - `trust` (links that did badly), `unanswered` (links that never answered), `policing` (links
//!   that police UDP), `turns` (addresses that are asked by turns), `listening` (whether it only
//!   receives), `nat` (how long its NAT remembers).

use crate::path::PathId;
use crate::time::Instant;
use crate::wire::control::Lease;
use connector::Connector;
use indices::Indices;
use list::Paths;
use plan::PathPlan;
use wishes::Wishes;

pub(crate) mod candidate;
pub(crate) mod candidates;
pub(crate) mod connector;
mod follow;
mod granted;
pub(crate) mod handshakes;
pub(crate) mod indices;
mod links;
pub(crate) mod list;
pub(crate) mod listening;
mod moving;
pub(crate) mod nat;
pub(crate) mod plan;
pub(crate) mod policing;
mod silence;
pub(crate) mod spares;
pub(crate) mod standby;
mod stream_trial;
pub(crate) mod trust;
pub(crate) mod turns;
pub(crate) mod unanswered;
pub(crate) mod wishes;

pub(crate) use wishes::Wish;

/// What this node is to the peer.
#[derive(Debug)]
pub(crate) enum Side {
    /// Its gateway: the peer asks, and is given this.
    Gateway { lease: Lease },
    /// Its client: this node asks.
    Client(Box<Connector>),
}

impl Side {
    /// The inner addresses of the client of the two, and what goes with them.
    pub(crate) fn lease(&self) -> Option<Lease> {
        match self {
            Self::Gateway { lease } => Some(lease.clone()),
            Self::Client(connector) => connector.granted.lease.clone(),
        }
    }

    /// Client: there are other links, other addresses, or another path in use. The best ways come
    /// first again.
    fn begin_turns(&mut self) {
        if let Some(connector) = self.client_mut() {
            connector.turns.clear();
        }
    }

    /// What this node remembers as a client.
    pub(crate) fn client(&self) -> Option<&Connector> {
        match self {
            Self::Client(connector) => Some(connector),
            Self::Gateway { .. } => None,
        }
    }

    /// The same, to change.
    pub(crate) fn client_mut(&mut self) -> Option<&mut Connector> {
        match self {
            Self::Client(connector) => Some(connector),
            Self::Gateway { .. } => None,
        }
    }
}

/// The paths to the peer, and what is remembered of the ways to it.
#[derive(Debug)]
pub(crate) struct PathManager {
    pub(crate) side: Side,
    pub(crate) list: Paths,
    /// When an inner packet last came or went.
    used_at: Option<Instant>,
    /// The value of `used_at` after which a client last challenged a quiet stream.
    quiet_after: Option<Instant>,
    /// How many paths may be opened.
    indices: Indices,
    /// In the order in which they are carried out.
    pub(crate) wishes: Wishes,
}

impl PathManager {
    pub(crate) fn new(side: Side) -> Self {
        Self {
            side,
            list: Paths::default(),
            used_at: None,
            quiet_after: None,
            indices: Indices::default(),
            wishes: Wishes::default(),
        }
    }

    /// Forgets the paths.
    pub(crate) fn forget(&mut self) {
        self.list = Paths::default();
        self.wishes.clear();
    }

    /// What a client remembers.
    pub(crate) fn connector(&self) -> Option<&Connector> {
        self.side.client()
    }

    /// Whether this node is the gateway of the two.
    pub(crate) const fn at_gateway(&self) -> bool {
        matches!(self.side, Side::Gateway { .. })
    }

    /// What follows from links and paths.
    pub(crate) fn plan(&self) -> PathPlan<'_> {
        PathPlan { connector: self.connector(), paths: &self.list, used_at: self.used_at }
    }

    /// An inner packet leaves.
    pub(crate) const fn note_packet_sent(&mut self, now: Instant) {
        self.used_at = Some(now);
        if let Side::Client(connector) = &mut self.side {
            connector.nat.not_idle();
        }
    }

    /// An inner packet came.
    pub(crate) fn note_packet_received(&mut self, now: Instant) {
        self.used_at = Some(now);
        if let Side::Client(connector) = &mut self.side {
            connector.listening.hear(now);
        }
    }

    /// What the session has for paths that are opened from now on.
    pub(crate) const fn indices_mut(&mut self) -> &mut Indices {
        &mut self.indices
    }

    /// Begins to challenge a path.
    pub(crate) fn ask(&mut self, now: Instant, id: PathId) {
        if let Some(path) = self.list.get_mut(id) {
            let rtt = path.rtt;
            path.probes.start(now, &rtt);
            self.wishes.push(Wish::Ask(id));
        }
    }
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
