//! A client's links, and make before break: a path by every link is proven ahead, and data goes by
//! the first link that carries, in the order that the shell gives.
//!
//! Leaving a link that still carries loses nothing then, and being left by one costs what was in
//! flight. Knows nothing of why one link is better than another.

use std::cmp::Reverse;

use super::connector::Candidate;
use super::{Context, Link, Peer, Side};
use crate::id::{LinkId, Transport};
use crate::outbox::Route;
use crate::path::probe::Probes;
use crate::path::rtt::Rtt;
use crate::path::{Health, Path, PathId, Trust};
use crate::time::{Duration, Instant};

/// Paths that are kept beside each other: the rest of [`PATHS_MAX`](super::paths::PATHS_MAX) is for
/// moves and questions.
const SPARES_MAX: usize = 6;
/// A path that was heard of within this time is trusted to carry as before. A NAT that forgets UDP
/// sooner than in 30 s is rare.
const FRESH: Duration = Duration::from_secs(20);
/// How long after it was heard of last a spare path is asked, while anybody speaks.
const CHECKED: Duration = Duration::from_secs(15);
/// A session without an inner packet for this long is idle: what a spare path is asked waits.
const IDLE: Duration = Duration::from_secs(10);
/// How long a spare path is asked whether anybody speaks or not.
pub(super) const SPARE_ASKED: Duration = Duration::from_secs(60);

const _: () = assert!(CHECKED.as_secs() < FRESH.as_secs());

/// A link that did badly is not preferred to others for this long the first time; twice as long
/// each time that it does so again, up to [`DISTRUST_MAX`].
const DISTRUST: Duration = Duration::from_secs(2);
/// The longest distrust; and a link that did not do badly for as long has a new first time.
const DISTRUST_MAX: Duration = Duration::from_secs(300);
/// Links whose faults are remembered.
const DISTRUSTED_MAX: usize = 8;

/// A link that fell silent under data, or lost much of it, while another carried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Distrust {
    link: LinkId,
    since: Instant,
    length: Duration,
    /// Whether it is over, and only remembered.
    over: bool,
}

impl Distrust {
    fn concerns(&self, link: Option<LinkId>) -> bool {
        link == Some(self.link) && !self.over
    }

    fn end(&self) -> Instant {
        self.since + self.length
    }
}

/// Nothing came or went by a stream for this long: either there was nothing, or it stands still.
const QUIET: Duration = Duration::from_secs(1);

/// How long one of the gateway's addresses is asked by a spare link before the next one; twice as
/// long when each has had its turn.
const TURN: Duration = Duration::from_secs(1);
/// How often the turns become longer: to about a minute.
const TURN_DOUBLED: u32 = 6;

/// Which of the gateway's addresses has its turn by a spare link, in one family (IPv4 or not).
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    of: (LinkId, bool),
    number: u32,
}

/// How good a path is, the least first; the same for all of a gateway's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
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
        let Side::Gateway(connector) = &mut self.side else { return };
        if !connector.links.iter().map(|link| link.id).eq(links.iter().map(|link| link.id)) {
            // The shell's newest word on its links counts more than what they did before.
            connector.distrusted.iter_mut().for_each(|bad| bad.over = true);
        }
        connector.set_links(links);
        let still = |path: &&Path| {
            let local = path.route.local;
            links.iter().any(|link| {
                Some(link.id) == path.link
                    && local.is_none_or(|local| link.addresses.contains(&local))
            })
        };
        let gone: Vec<_> = self.paths.iter().filter(|p| !still(p)).map(|p| p.id).collect();
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
            self.send_probes_due(cx);
            let works = |path: &Path| path.health == Health::Good;
            if !self.paths.active().is_some_and(works) || self.paths.is_on_stream() {
                self.try_elsewhere(cx);
            }
        }
        self.begin_turns();
        self.take_better(cx);
        self.stand_by(cx);
        self.forget_gone(cx);
        self.refresh_state(cx);
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

    /// Client: opens a path by every link that has none, so that it is proven before it is needed.
    pub(super) fn stand_by(&mut self, cx: &mut Context<'_>) {
        let wanted = self.spares();
        let Side::Gateway(connector) = &mut self.side else { return };
        connector.spares.clone_from(&wanted);
        if self.epochs.current.is_none() {
            return;
        }
        for candidate in wanted {
            let Side::Gateway(connector) = &self.side else { return };
            let there = |path: &Path| {
                path.health != Health::Gone
                    && connector.candidate_of(path.link, &path.route) == Some(candidate)
            };
            let open = self.paths.iter().any(there) || connector.failed_lately(cx.now, candidate);
            if !open
                && self.has_room_for_spare(cx)
                && let Some(id) = self.open_path(cx, candidate)
            {
                self.ask(cx, id);
            }
        }
    }

    /// Whether there is room for one more, perhaps in place of a path that leads nowhere.
    fn has_room_for_spare(&mut self, cx: &mut Context<'_>) -> bool {
        if self.paths.iter().count() < SPARES_MAX {
            return true;
        }
        let (active, dead) = (self.paths.active_id(), |path: &&Path| {
            !path.is_proven() || path.health != Health::Good
        });
        let useless = |path: &&Path| Some(path.id) != active && dead(path) && !self.is_spare(path);
        let useless = self.paths.iter().find(useless).map(|path| path.id);
        if let Some(id) = useless {
            self.remove_path(cx, id);
        }
        useless.is_some()
    }

    /// Client: the ways to prove ahead: one by each link other than the one in use, in each family;
    /// the best links first.
    fn spares(&self) -> Vec<Candidate> {
        let (Side::Gateway(connector), Some(active)) = (&self.side, self.paths.active()) else {
            return Vec::new();
        };
        let other = connector.links.iter().filter(|link| Some(link.id) != active.link);
        let ways = other.flat_map(|link| {
            [true, false].map(|v4| {
                let ways = self.ways_by(link.id, v4);
                let turn = connector.turns.iter().find(|turn| turn.of == (link.id, v4));
                let turn = turn.map_or(0, |turn| turn.number) as usize;
                ways.get(turn % ways.len().max(1)).copied()
            })
        });
        ways.flatten().take(SPARES_MAX).collect()
    }

    /// Client: the ways by a link in one family: to where the gateway wants to be reached, to where
    /// this link or another reaches it, then the rest.
    fn ways_by(&self, link: LinkId, v4: bool) -> Vec<Candidate> {
        let (Side::Gateway(connector), Some(active)) = (&self.side, self.paths.active()) else {
            return Vec::new();
        };
        let carries = |path: &&Path| path.is_proven() && path.health == Health::Good;
        let reached = |way: &Candidate| {
            let there = |path: &&Path| carries(path) && path.route.remote == way.remote;
            if self.paths.iter().filter(there).any(|path| path.link == Some(link)) {
                0
            } else if active.route.remote == way.remote {
                1
            } else if self.paths.iter().any(|path| there(&path)) {
                2
            } else {
                3
            }
        };
        let ways = connector.candidates().filter(|way| way.link == link);
        let mut ways: Vec<_> = ways.filter(|way| way.remote.is_ipv4() == v4).collect();
        ways.sort_by_key(|way| {
            (connector.announced_for(way.remote) != Some(way.remote), reached(way))
        });
        ways
    }

    /// When a spare path has been asked for long enough, and another address of the gateway has its
    /// turn by that link.
    pub(super) fn turn_due(&self, path: &Path) -> Option<Instant> {
        let since = path.probes.asking_since()?;
        let Side::Gateway(connector) = &self.side else { return None };
        let spare = self.paths.active_id() != Some(path.id) && self.is_spare(path);
        let of = (path.link?, path.route.remote.is_ipv4());
        let turn = connector.turns.iter().find(|turn| turn.of == of);
        let number = turn.map_or(0, |turn| turn.number);
        let remotes = connector.remotes().filter(|at| at.is_ipv4() == of.1).count();
        let rounds = number / u32::try_from(remotes).unwrap_or(u32::MAX).max(1);
        let due = since + TURN * (1 << rounds.min(TURN_DOUBLED));
        let waits = rounds > 0 && self.is_idle_at(due);
        (spare && remotes > 1 && !waits).then_some(due)
    }

    /// Gives the turn to the next address, where one has not answered. The path to that may have
    /// been asked for as long already.
    pub(super) fn take_turns(&mut self, cx: &mut Context<'_>) {
        while let Some((id, of)) = self.turn_over(cx.now)
            && let Side::Gateway(connector) = &mut self.side
        {
            match connector.turns.iter_mut().find(|turn| turn.of == of) {
                Some(turn) => turn.number = turn.number.saturating_add(1),
                None => connector.turns.push(Turn { of, number: 1 }),
            }
            self.stand_by_at(cx, id, of);
        }
    }

    /// The path `id`, which nobody answered, leads to the next address of its link from now on: one
    /// more index for each would soon leave none.
    fn stand_by_at(&mut self, cx: &mut Context<'_>, id: PathId, of: (LinkId, bool)) {
        let next = self.spares().into_iter();
        let mut next = next.filter(|way| (way.link, way.remote.is_ipv4()) == of);
        let next = next.next().filter(|way| {
            let there =
                |path: &Path| (path.link, path.route.remote) == (Some(way.link), way.remote);
            !self.paths.iter().any(there)
        });
        match (next, self.paths.get_mut(id)) {
            (Some(way), Some(path)) if path.transport() == Transport::Udp => {
                path.route.remote = way.remote;
                path.trust = Trust::Chosen;
                path.health = Health::Good;
                (path.since, path.heard_at) = (cx.now, None);
                path.probes = Probes::default();
                self.forgive(id);
                self.ask(cx, id);
            }
            _ => self.remove_path(cx, id),
        }
        self.stand_by(cx);
    }

    /// A path whose turn is over, with its link and family.
    fn turn_over(&self, now: Instant) -> Option<(PathId, (LinkId, bool))> {
        let due = |path: &&Path| self.turn_due(path).is_some_and(|due| due <= now);
        let path = self.paths.iter().find(due)?;
        Some((path.id, (path.link?, path.route.remote.is_ipv4())))
    }

    /// There are other links, other addresses, or another path in use: the best ways come first
    /// again.
    pub(super) fn begin_turns(&mut self) {
        if let Side::Gateway(connector) = &mut self.side {
            connector.turns.clear();
        }
    }

    /// Whether `path` is one of those that are to be proven ahead.
    fn is_spare(&self, path: &Path) -> bool {
        let Side::Gateway(connector) = &self.side else { return false };
        let way = connector.candidate_of(path.link, &path.route);
        way.is_some_and(|way| connector.spares.contains(&way))
    }

    /// Client: data goes to a better path, if there is one: at once if it was heard of lately, else
    /// when it has answered. The one in use carries until then.
    pub(super) fn take_better(&mut self, cx: &mut Context<'_>) {
        let carries = |path: &&Path| path.health == Health::Good;
        let better = self.best_proven(None).filter(|&id| self.is_better(id));
        if self.is_client() || self.paths.active().is_none_or(|path| !carries(&path)) {
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
        let carries = |path: &&Path| path.is_proven() && path.health == Health::Good;
        let carrying = self.paths.iter().filter(carries).filter(|path| Some(path.id) != except);
        let best = carrying.min_by_key(|path| (self.rank(path), Reverse(path.heard_at)));
        best.map(|path| path.id)
    }

    fn rank(&self, path: &Path) -> Rank {
        let stream = path.transport() == Transport::Stream;
        let Side::Gateway(connector) = &self.side else {
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
        let Side::Gateway(connector) = &self.side else { return None };
        let usable =
            |path: &&Path| path.health != Health::Gone && path.transport() == Transport::Udp;
        let taken: Vec<_> = self
            .paths
            .iter()
            .filter(usable)
            .map(|p| (p.link, p.route.local, p.route.remote))
            .collect();
        let candidate = connector.candidates().find(|c| {
            let open = taken.contains(&(Some(c.link), Some(c.local), c.remote));
            !open && !connector.failed_lately(cx.now, *c)
        })?;
        self.open_path(cx, candidate)
    }

    /// Client: a path by `candidate`, which has not answered yet. `None` when no index is left.
    pub(super) fn open_path(
        &mut self,
        cx: &mut Context<'_>,
        candidate: Candidate,
    ) -> Option<PathId> {
        let Side::Gateway(connector) = &mut self.side else { return None };
        if !self.epochs.current.as_ref()?.has_spare_index() {
            return None;
        }
        let Candidate { link, local, remote, .. } = candidate;
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

    /// Client: the path `id`, in use, does badly. If another link carries, data goes there, and
    /// comes back after a while.
    pub(super) fn distrust(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(path) = self.paths.get(id).filter(|_| self.paths.active_id() == Some(id)) else {
            return;
        };
        let other = self.best_proven(Some(id)).and_then(|id| self.paths.get(id));
        let elsewhere = other
            .is_some_and(|other| other.link != path.link && other.transport() <= path.transport());
        if let Some(link) = path.link.filter(|_| elsewhere) {
            self.distrust_link(cx.now, link);
            self.take_better(cx);
        }
    }

    /// Client: data goes over to the path `id`. If that is because the one in use fell silent, its
    /// link is not trusted at its first word.
    pub(super) fn distrust_silent(&mut self, now: Instant, id: PathId) {
        let (Some(from), Some(to)) = (self.paths.active(), self.paths.get(id)) else { return };
        let silent = matches!(from.health, Health::Silent { .. });
        if let Some(link) = from.link.filter(|_| silent && from.link != to.link) {
            self.distrust_link(now, link);
        }
    }

    fn distrust_link(&mut self, now: Instant, link: LinkId) {
        let Side::Gateway(connector) = &mut self.side else { return };
        let list = &mut connector.distrusted;
        let before = list.iter().find(|bad| bad.link == link && now < bad.end() + DISTRUST_MAX);
        let length = before.map_or(DISTRUST, |bad| (bad.length * 2).min(DISTRUST_MAX));
        list.retain(|bad| bad.link != link && now < bad.end() + DISTRUST_MAX);
        if list.len() >= DISTRUSTED_MAX {
            list.remove(0);
        }
        list.push(Distrust { link, since: now, length, over: false });
    }

    /// When a client on a stream asks why nothing comes. The gateway, whose stream stands still,
    /// cannot open another, and who only receives is owed nothing.
    pub(super) fn quiet_due(&self) -> Option<Instant> {
        let good = |path: &&Path| path.health == Health::Good && path.probes.due().is_none();
        let waits = !self.is_client() && self.paths.is_on_stream();
        self.paths.active().filter(good).filter(|_| waits)?;
        self.used_at.filter(|&used| self.quiet_after != Some(used)).map(|used| used + QUIET)
    }

    /// Asks once after each burst of packets by a stream.
    pub(super) fn ask_quiet_stream(&mut self, cx: &mut Context<'_>) {
        if self.quiet_due().is_some_and(|due| due <= cx.now)
            && let Some(id) = self.paths.active_id()
        {
            self.quiet_after = self.used_at;
            self.ask(cx, id);
        }
    }

    /// When a link is trusted again.
    pub(super) fn trust_due(&self) -> Option<Instant> {
        let Side::Gateway(connector) = &self.side else { return None };
        connector.distrusted.iter().filter(|bad| !bad.over).map(Distrust::end).min()
    }

    /// Links whose time is over may carry again.
    pub(super) fn trust_again(&mut self, cx: &mut Context<'_>) {
        if self.trust_due().is_none_or(|due| due > cx.now) {
            return;
        }
        if let Side::Gateway(connector) = &mut self.side {
            for bad in &mut connector.distrusted {
                bad.over |= bad.end() <= cx.now;
            }
        }
        self.take_better(cx);
    }

    /// When a spare path is to be asked whether it still carries: while anybody speaks.
    pub(super) fn check_due(&self, path: &Path) -> Option<Instant> {
        let idle = path.probes.asking_since().is_none() && path.health == Health::Good;
        let spare = self.paths.active_id() != Some(path.id) && self.is_spare(path);
        if !(idle && spare && path.is_proven()) {
            return None;
        }
        path.heard_at.map(|heard| heard + CHECKED).filter(|&due| !self.is_idle_at(due))
    }

    /// Asks the spare paths that nobody has heard of for a while.
    pub(super) fn check_spares(&mut self, cx: &mut Context<'_>) {
        let due = |path: &&Path| self.check_due(path).is_some_and(|due| due <= cx.now);
        let due: Vec<_> = self.paths.iter().filter(due).map(|path| path.id).collect();
        for id in due {
            self.ask(cx, id);
        }
    }

    /// When the next challenge of a path is due. A spare path that does not answer is asked ever
    /// more rarely, and after a minute only while anybody speaks.
    pub(super) fn probe_due(&self, path: &Path) -> Option<Instant> {
        let (due, since) = (path.probes.due()?, path.probes.asking_since()?);
        let spare = self.paths.active_id() != Some(path.id) && self.is_spare(path);
        let waits = spare && due > since + SPARE_ASKED && self.is_idle_at(due);
        (!waits).then_some(due)
    }

    /// Client: whether a path that is not in use is asked for as long as it takes: one of those
    /// that should be proven ahead, and while data goes by a stream, UDP.
    pub(super) fn asked_for_ever(&self, path: &Path) -> bool {
        (path.transport() == Transport::Udp && self.paths.is_on_stream()) || self.is_spare(path)
    }

    fn is_idle_at(&self, at: Instant) -> bool {
        self.used_at.is_none_or(|used| used + IDLE <= at)
    }
}

fn is_fresh(now: Instant, path: &Path) -> bool {
    path.heard_at.is_some_and(|heard| now.saturating_since(heard) < FRESH)
}
