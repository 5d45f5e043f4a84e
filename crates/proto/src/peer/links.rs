//! A client's links: data goes by the first that carries, in the order that the shell gives.
//!
//! A path by each of the others is proven ahead (`standby`), so that leaving a link that still
//! carries loses nothing, and being left by one costs a round trip. Knows nothing of why the shell
//! finds one link better than another; what a link did itself is remembered in `trust`.

use std::cmp::Reverse;

use super::connector::Candidate;
use super::trust::Distrust;
use super::{Context, Link, Peer, Role};
use crate::id::Transport;
use crate::outbox::Route;
use crate::path::rtt::Rtt;
use crate::path::{Health, Path, PathId, Trust};
use crate::time::{Duration, Instant};

/// A path that was heard of within this time is trusted to carry as before. A NAT that forgets UDP
/// sooner than in 30 s is rare.
pub(super) const FRESH: Duration = Duration::from_secs(20);
/// How good a path is, the least first; the same for all of a gateway's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    /// A stream is for where UDP does not work.
    stream: bool,
    /// Whether its link did badly of late.
    distrusted: bool,
    /// Place of its link in the shell's order.
    link: usize,
    /// Whether the gateway wants to be reached elsewhere.
    elsewhere: bool,
}

impl Peer {
    /// Client: the usable links are these now. Paths whose link or address went are gone; with
    /// the active one gone the session moves at once.
    pub(crate) fn links_changed(&mut self, cx: &mut Context<'_>, links: &[Link]) {
        let Role::Client(connector) = &mut self.role else { return };
        if !connector.links.iter().map(|link| link.id).eq(links.iter().map(|link| link.id)) {
            // The shell's newest word on its links counts more than what they did before.
            connector.distrusted.iter_mut().for_each(Distrust::forgive);
        }
        connector.set_links(links);
        if let Some(epoch) = &mut self.epochs.current {
            let has = |link: &Link, id, local| link.id == id && link.addresses.contains(&local);
            epoch.leave_networks(|id, local| links.iter().any(|link| has(link, id, local)));
        }
        let still = |path: &&Path| {
            let local = path.route.local;
            links.iter().any(|link| {
                Some(link.id) == path.link
                    && local.is_none_or(|local| link.addresses.contains(&local))
            })
        };
        let gone: Vec<_> = self.paths.iter().filter(|p| !still(p)).map(|p| p.id).collect();
        let shared_was_lost = gone.iter().any(|id| self.is_shared(Some(*id)));
        for id in gone {
            self.lose_path(cx, id);
        }
        for path in self.paths.iter_mut() {
            if matches!(path.health, Health::Silent { .. }) {
                path.probes.hurry(cx.now);
            }
        }
        if self.epochs.current.is_none() {
            self.reconnect(cx);
        } else if self.paths.active().is_none_or(|path| path.health == Health::Gone) {
            let was_on_stream = self.paths.is_on_stream();
            self.migrate(cx);
            if was_on_stream {
                // UDP did not work a moment ago, and perhaps does not from here.
                self.reconnect(cx);
            }
        } else {
            if shared_was_lost {
                self.say_last_words(cx);
            }
            self.send_probes_due(cx);
            let works = |path: &Path| path.health == Health::Good;
            if !self.paths.active().is_some_and(works) {
                self.try_elsewhere(cx);
            }
        }
        self.begin_turns();
        self.take_better(cx);
        self.stand_by(cx);
        self.forget_gone(cx);
        self.ask_new_links(cx);
        self.refresh_state(cx);
    }

    /// Client: no path works, and some link was not yet asked because no index was left for a path.
    /// Asks it with a handshake, which needs no index.
    fn ask_new_links(&mut self, cx: &mut Context<'_>) {
        let Role::Client(connector) = &self.role else { return };
        let carries = self.paths.active().is_some_and(Path::is_able);
        let was_asked = |link| {
            let mut by_it = connector.candidates().filter(|way| way.link == link);
            by_it.any(|way| connector.was_asked(&way))
        };
        if !carries && connector.candidates().any(|way| !was_asked(way.link)) {
            self.reconnect(cx);
        }
    }

    /// Client: takes the best candidate that is not in use already, proven path or new address.
    pub(super) fn migrate(&mut self, cx: &mut Context<'_>) {
        if let Some(id) = self.best_proven(self.paths.active_id()) {
            let fresh = self.paths.get(id).is_some_and(|path| is_fresh(cx.now, path));
            self.activate(cx, id);
            if !fresh {
                // A NAT may have forgotten it: the gateway needs a budget to answer with data.
                self.pad_first_flight(cx, id);
            }
            return;
        }
        if let Some(id) = self.open_next_path(cx) {
            self.paths.activate(id);
            self.send_first_flight(cx, id);
            self.flush_waiting(cx);
        } else {
            // No index is left, or every way was tried: a handshake takes one of its own.
            self.connect(cx);
        }
    }

    /// Client: data goes to a better path, if there is one: at once if it was heard of lately, else
    /// when it has answered. The one in use carries until then.
    pub(super) fn take_better(&mut self, cx: &mut Context<'_>) {
        let is_good = |path: &&Path| path.health == Health::Good;
        let better = self.best_proven(None).filter(|&id| self.is_better(id));
        if self.at_gateway() || self.paths.active().is_none_or(|path| !is_good(&path)) {
            return;
        }
        let Some(path) = better.and_then(|id| self.paths.get(id)) else { return };
        if is_fresh(cx.now, path) {
            self.activate(cx, path.id);
        } else {
            self.ask(cx, path.id);
        }
    }

    /// Whether `id` would carry better than the path in use.
    pub(super) fn is_better(&self, id: PathId) -> bool {
        let (Some(path), Some(active)) = (self.paths.get(id), self.paths.active()) else {
            return false;
        };
        self.rank(path) < self.rank(active)
    }

    /// The best proven path other than `except` that carries; among equals, that heard of last.
    pub(super) fn best_proven(&self, except: Option<PathId>) -> Option<PathId> {
        let usable = self.paths.iter().filter(|path| path.is_able() && Some(path.id) != except);
        let best = usable.min_by_key(|path| (self.rank(path), Reverse(path.heard_at)));
        best.map(|path| path.id)
    }

    pub(super) fn rank(&self, path: &Path) -> Rank {
        let stream = path.transport() == Transport::Stream;
        let Role::Client(connector) = &self.role else {
            return Rank { stream, distrusted: false, link: 0, elsewhere: false };
        };
        let link = connector.links.iter().position(|link| Some(link.id) == path.link);
        let wanted = connector.announced_for(path.route.remote);
        Rank {
            stream,
            distrusted: connector.distrusted.iter().any(|bad| bad.concerns(path.link)),
            link: link.unwrap_or(usize::MAX),
            elsewhere: wanted.is_some_and(|wanted| match path.transport() {
                Transport::Udp => wanted != path.route.remote,
                Transport::Stream => wanted.ip() != path.route.remote.ip(), // its port is its own
            }),
        }
    }

    /// Client: a path by the best candidate that has none yet. `None` when there is no such
    /// candidate or no index is left.
    pub(super) fn open_next_path(&mut self, cx: &mut Context<'_>) -> Option<PathId> {
        let Role::Client(connector) = &self.role else { return None };
        let usable =
            |path: &&Path| path.health != Health::Gone && path.transport() == Transport::Udp;
        let taken: Vec<_> = self
            .paths
            .iter()
            .filter(usable)
            .map(|p| (p.link, p.route.local, p.route.remote))
            .collect();
        let untried = connector.candidates().filter(|c| {
            let open = taken.contains(&(Some(c.link), Some(c.local), c.remote));
            !open && !connector.failed_lately(cx.now, *c)
        });
        let candidate = untried.min_by_key(|way| self.precedence(cx.now, way))?;
        self.open_path(cx, candidate)
    }

    /// Client: a path by `candidate`, which has not answered yet. `None` when no index is left.
    pub(super) fn open_path(
        &mut self,
        cx: &mut Context<'_>,
        candidate: Candidate,
    ) -> Option<PathId> {
        let kept = self.kept_from(cx.now, &candidate);
        let Role::Client(connector) = &mut self.role else { return None };
        let Candidate { link, local, remote, .. } = candidate;
        if !self.epochs.current.as_ref()?.has_index_for(link, local, kept) {
            return None;
        }
        connector.note_asked(cx.now, &candidate);
        let socket = connector.open_socket(cx, candidate);
        let route = Route { socket, local: Some(local), remote };
        let id = self.paths.next_id();
        let mut path = Path::new(id, route, Some(link), cx.now, Trust::Chosen);
        if let Some(active) = self.paths.active() {
            path.rtt = Rtt::assuming(&active.rtt);
        }
        self.add_path(cx, path);
        Some(id)
    }
}

pub(super) fn is_fresh(now: Instant, path: &Path) -> bool {
    path.heard_at.is_some_and(|heard| now.saturating_since(heard) < FRESH)
}
