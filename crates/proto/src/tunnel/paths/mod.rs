//! The path manager: which paths to the peer there are, which are kept, and which carries. Its
//! story is docs/spec/paths.md#from-start-to-return.
//!
//! It decides by what it is told: the shell's links and sockets, answers, silences, the time. It
//! sends nothing and knows no keys. What has to be done is a list of [`Wish`]es that the tunnel
//! carries out in order.
//!
//! What changes it, each file with methods of [`PathManager`]; a file calls files below its own:
//! - `silence` (paths that owe an answer), `stream_trial` (where UDP is policed);
//! - `links` (the shell's links, sockets and addresses), `follow` (the gateway's addresses);
//! - `standby` (make before break);
//! - `moving` (paths come into use and go), then this file.
//!
//! State and queries: `list` (the paths), `plan` (how good each path is, when it is asked, which
//! are kept), `indices` (how many may be opened), and what a client remembers:
//! - `candidate`, `candidates` (ways to the gateway), `announced` (what it says of itself);
//! - `connector` (sockets), `handshakes`, `spares` (what is kept beside the path in use);
//! - `trust` (links that did badly), `unanswered` (links that never answered), `policing` (links
//!   that police UDP), `turns` (addresses that are asked by turns), `listening` (whether it only
//!   receives), `nat` (how long its NAT remembers).

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::path::{Path, PathId};
use crate::time::{Duration, Instant};
use crate::wire::control::Lease;
use connector::Connector;
use indices::Indices;
use list::Paths;
use plan::PathPlan;

pub(crate) mod announced;
pub(crate) mod candidate;
pub(crate) mod candidates;
pub(crate) mod connector;
mod follow;
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

/// What this node is to the peer.
#[derive(Debug)]
pub(crate) enum Side {
    /// Its gateway: the peer asks, and is given this.
    Gateway { lease: Lease },
    /// Its client: this node asks.
    Client(Box<Connector>),
}

impl Side {
    /// What this node remembers as a client, to change.
    pub(crate) fn client_mut(&mut self) -> Option<&mut Connector> {
        match self {
            Self::Client(connector) => Some(connector),
            Self::Gateway { .. } => None,
        }
    }
}

/// What the path manager wants to be done.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Send the challenge of this path that is due. What leaves first may prove its address first.
    Ask(PathId),
    /// Send all challenges that are due.
    AskAll,
    /// Send this path one challenge of so many bytes.
    Challenge(PathId, usize),
    /// Send the rest of a first flight, by a path that was just asked for the first time.
    FirstFlight(PathId),
    /// Send padding: the gateway's budget to answer with.
    Pad(PathId),
    /// Search the path's MTU.
    SearchMtu(PathId),
    /// Waiting packets may leave.
    Carry,
    /// Data goes by another path, proven after so much time.
    Activated { remote: SocketAddr, took: Duration },
    /// The path leads elsewhere: what it owes is forgiven.
    Forgive(PathId),
    /// The path does not carry any more: what arrived by it is to be told.
    Lost(PathId),
    /// The path was removed: what is on its way by it is lost, and its number space is free.
    Removed(Box<Path>),
    /// Tell which of the gateway's indices are used, if few are left.
    TellTaken,
    /// The gateway is sought elsewhere first.
    Home,
    /// Ask for a session, unless that is under way.
    Connect,
    /// Ask for a session at once, as if for the first time.
    Reconnect,
    /// Make the handshake attempts that are due.
    Attempt,
}

/// The paths to the peer, and what is remembered of the ways to it.
#[derive(Debug)]
pub(crate) struct PathManager {
    pub(crate) side: Side,
    pub(crate) list: Paths,
    /// When an inner packet last came or went.
    used_at: Option<Instant>,
    /// Which of these a client has followed by a question.
    quiet_after: Option<Instant>,
    /// How many paths may be opened.
    indices: Indices,
    /// In the order in which they are carried out.
    wishes: VecDeque<Wish>,
}

impl PathManager {
    pub(crate) fn new(side: Side) -> Self {
        Self {
            side,
            list: Paths::default(),
            used_at: None,
            quiet_after: None,
            indices: Indices::default(),
            wishes: VecDeque::new(),
        }
    }

    /// Forgets the paths.
    pub(crate) fn forget(&mut self) {
        self.list = Paths::default();
        self.wishes.clear();
    }

    /// What a client remembers.
    pub(crate) fn connector(&self) -> Option<&Connector> {
        match &self.side {
            Side::Client(connector) => Some(connector),
            Side::Gateway { .. } => None,
        }
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

    fn wish(&mut self, wish: Wish) {
        if matches!(wish, Wish::Connect | Wish::Reconnect) {
            // Each link is asked once, whatever the reasons.
            if self.wishes.iter().any(|it| matches!(it, Wish::Reconnect)) {
                return;
            }
            self.wishes.retain(|it| !matches!(it, Wish::Connect));
        }
        self.wishes.push_back(wish);
    }

    /// The next wish that is to be carried out.
    pub(crate) fn next_wish(&mut self) -> Option<Wish> {
        self.wishes.pop_front()
    }

    /// Begins to challenge a path.
    pub(crate) fn ask(&mut self, now: Instant, id: PathId) {
        if let Some(path) = self.list.get_mut(id) {
            let rtt = path.rtt;
            path.probes.start(now, &rtt);
            self.wish(Wish::Ask(id));
        }
    }
}
