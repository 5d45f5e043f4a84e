//! Make before break: what a client has ready beside the path in use. By the ways that `spread`
//! names paths are proven ahead of need, and asked now and then whether they still carry.
//!
//! Where the gateway has several addresses, they are asked by turns. An idle session asks nothing
//! but for its first minute. While data goes by a stream, UDP is asked by the best ways of every
//! link, all at once and for as long as it takes.

use super::connector::Candidate;
use super::links::FRESH;
use super::{Context, Peer, Role};
use crate::id::{LinkId, Transport};
use crate::path::probe::Probes;
use crate::path::{Health, Path, PathId, Trust};
use crate::time::{Duration, Instant};

/// Paths that are kept beside each other: the rest of [`PATHS_MAX`](crate::path::PATHS_MAX) is for
/// moves and questions.
pub(super) const SPARES_MAX: usize = 12;
/// How long after it was heard of last a spare path is asked, while anybody speaks.
const CHECKED: Duration = Duration::from_secs(15);
/// A session without an inner packet for this long is idle: what a spare path is asked waits.
const IDLE: Duration = Duration::from_secs(10);
/// How long a spare path is asked whether anybody speaks or not.
pub(super) const SPARE_ASKED: Duration = Duration::from_secs(60);

const _: () = assert!(CHECKED.as_secs() < FRESH.as_secs());

/// How long one of the gateway's addresses is asked by a spare link before the next one; twice as
/// long when each has had its turn.
pub(super) const TURN: Duration = Duration::from_secs(1);
/// How often the turns become longer: to about a minute.
const TURN_DOUBLED: u32 = 6;

/// Which of the gateway's addresses has its turn by a spare link, in one family (IPv4 or not).
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) of: (LinkId, bool),
    pub(super) number: u32,
}

/// How long the `number`th turn of a link lasts that has so many `ways`.
pub(super) fn turn_time(number: u32, ways: usize) -> Duration {
    let rounds = number / u32::try_from(ways).unwrap_or(u32::MAX).max(1);
    TURN * (1 << rounds.min(TURN_DOUBLED))
}

impl Peer {
    /// Client: opens a path by every link that has none, so that it is proven before it is needed.
    pub(super) fn stand_by(&mut self, cx: &mut Context<'_>) {
        let Role::Client(connector) = &mut self.role else { return };
        (connector.mode, connector.spread) = (cx.config.mode, cx.config.spread);
        let wanted = self.spares(cx.now);
        let Role::Client(connector) = &mut self.role else { return };
        connector.spares.clone_from(&wanted);
        self.mark_spares();
        self.drop_overdue(cx); // what is not wanted any more was perhaps asked for long enough
        if self.epochs.current.is_none() {
            return;
        }
        self.open_spares(cx, &wanted);
        self.tell_taken(cx);
    }

    fn open_spares(&mut self, cx: &mut Context<'_>, wanted: &[Candidate]) {
        for (place, &candidate) in wanted.iter().enumerate() {
            let Role::Client(connector) = &self.role else { return };
            let before = wanted[..place].iter().filter(|way| **way == candidate).count();
            if self.spares_by(candidate) > before || connector.failed_lately(cx.now, candidate) {
                continue;
            }
            if let Some(id) = self.unanswered_beside(candidate) {
                self.lead(cx, id, candidate);
                self.mark_spares();
            } else if self.has_room_for_spare(cx)
                && let Some(id) = self.open_path(cx, candidate)
            {
                self.mark_spares();
                self.ask(cx, id);
            }
        }
    }

    /// A path from where `way` begins that leads to another of the gateway's addresses, which is
    /// not wanted any more and never answered.
    fn unanswered_beside(&self, way: Candidate) -> Option<PathId> {
        let Role::Client(connector) = &self.role else { return None };
        let beside = |path: &&Path| {
            let of = connector.candidate_of(path.link, &path.route);
            let same = of.is_some_and(|of| Candidate { remote: way.remote, ..of } == way);
            same && Some(path.id) != self.paths.active_id()
                && path.route.remote.is_ipv4() == way.remote.is_ipv4()
                && !path.is_proven()
                && !self.is_spare(path)
        };
        self.paths.iter().find(beside).map(|path| path.id)
    }

    /// The path `id`, which nobody answered, leads there from now on: one more index for each
    /// address would soon leave none.
    fn lead(&mut self, cx: &mut Context<'_>, id: PathId, way: Candidate) {
        let Some(path) = self.paths.get_mut(id) else { return };
        path.route.remote = way.remote;
        path.trust = Trust::Chosen;
        path.health = Health::Good;
        (path.since, path.heard_at) = (cx.now, None);
        path.probes = Probes::default();
        self.forgive(id);
        self.ask(cx, id);
    }

    /// Whether there is room for one more, perhaps in place of one that nobody wants: best one that
    /// leads nowhere, else the one that was not heard of for longest.
    fn has_room_for_spare(&mut self, cx: &mut Context<'_>) -> bool {
        if self.paths.iter().count() < SPARES_MAX {
            return true;
        }
        let active = self.paths.active_id();
        let useless = |path: &&Path| Some(path.id) != active && !self.is_spare(path);
        let useless = self.paths.iter().filter(useless);
        let useless =
            useless.min_by_key(|path| (path.is_able(), path.heard_at)).map(|path| path.id);
        if let Some(id) = useless {
            self.remove_path(cx, id);
        }
        useless.is_some()
    }

    /// Client: the ways by a link in one family: to where the gateway wants to be reached, to where
    /// this link or another reaches it, then the rest; behind them the streams, if that link is to
    /// carry beside others whatever it lets pass.
    pub(super) fn ways_by(&self, link: LinkId, v4: bool) -> Vec<Candidate> {
        let (Role::Client(connector), Some(active)) = (&self.role, self.paths.active()) else {
            return Vec::new();
        };
        let reached = |way: &Candidate| {
            let there = |path: &&Path| path.is_able() && path.route.remote == way.remote;
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
        if connector.takes_streams() {
            let carrying = self.paths.iter().filter(|path| path.is_able());
            let carrying: Vec<_> = carrying
                .filter_map(|path| connector.candidate_of(path.link, &path.route))
                .map(|way| (way.remote, way.stream))
                .collect();
            let of_link = |way: &Candidate| way.link == link && way.local.is_ipv4() == v4;
            let mut streams: Vec<_> = connector.stream_candidates().filter(of_link).collect();
            streams.sort_by_key(|way| !carrying.contains(&(way.remote, way.stream)));
            ways.extend(streams);
        }
        ways
    }

    /// When a spare path has been asked for long enough, and another address of the gateway has its
    /// turn by that link.
    pub(super) fn turn_due(&self, path: &Path) -> Option<Instant> {
        let since = path.probes.asking_since()?;
        let Role::Client(connector) = &self.role else { return None };
        let by_turns = self.paths.active_id() != Some(path.id) && !self.is_without_udp();
        let spare = by_turns && !self.is_mesh() && self.is_spare(path);
        let of = (path.link?, path.route.local?.is_ipv4());
        let number = connector.turn(of.0, of.1);
        let ways = connector.ways_in_family(of.1);
        let due = since + turn_time(number, ways);
        let waits = number as usize >= ways && self.is_idle_at(due);
        // Beside one that carries nothing has a turn.
        let is_beside = |other: &Path| {
            other.is_able()
                && other.link == path.link
                && other.route.remote.is_ipv4() == path.route.remote.is_ipv4()
        };
        (spare && ways > 1 && !waits && !self.paths.iter().any(is_beside)).then_some(due)
    }

    /// Gives the turn to the next address, where one has not answered. The path to that may have
    /// been asked for as long already.
    pub(super) fn take_turns(&mut self, cx: &mut Context<'_>) {
        while let Some((id, of)) = self.turn_over(cx.now)
            && let Role::Client(connector) = &mut self.role
        {
            connector.next_turn(of);
            self.stand_by_at(cx, id, of);
        }
    }

    /// When a stream that is to be ready, and failed, is tried again: while anybody speaks.
    pub(super) fn retry_due(&self) -> Option<Instant> {
        let Role::Client(connector) = &self.role else { return None };
        // Hardly anything fails: that is looked at before who leads where.
        let failed =
            connector.spares.iter().filter_map(|way| Some((way, connector.retry_at(way)?)));
        let missing = failed.filter(|&(way, _)| self.spares_by(*way) == 0);
        let due = missing.map(|(_, at)| at).min()?;
        (!self.is_idle_at(due)).then_some(due)
    }

    /// Tries it.
    pub(super) fn retry_streams(&mut self, cx: &mut Context<'_>) {
        if self.retry_due().is_some_and(|due| due <= cx.now)
            && let Role::Client(connector) = &mut self.role
        {
            connector.forgive_failures(cx.now); // tried once, whatever comes of it
            self.stand_by(cx);
        }
    }

    /// The path `id`, which nobody answered, leads to the next address of its link from now on.
    fn stand_by_at(&mut self, cx: &mut Context<'_>, id: PathId, of: (LinkId, bool)) {
        let next = self.spares(cx.now).into_iter();
        let mut next = next.filter(|way| (way.link, way.local.is_ipv4()) == of);
        let next = next.next().filter(|way| {
            let there = |path: &Path| {
                (path.link, path.route.remote, path.transport())
                    == (Some(way.link), way.remote, way.transport())
            };
            !self.paths.iter().any(there)
        });
        match (next, self.paths.get(id)) {
            (Some(way), Some(path))
                if [path.transport(), way.transport()] == [Transport::Udp; 2] =>
            {
                self.lead(cx, id, way);
            }
            _ => self.remove_path(cx, id),
        }
        self.stand_by(cx);
    }

    /// A path whose turn is over, with its link and family.
    fn turn_over(&self, now: Instant) -> Option<(PathId, (LinkId, bool))> {
        let due = |path: &&Path| self.turn_due(path).is_some_and(|due| due <= now);
        let path = self.paths.iter().find(due)?;
        Some((path.id, (path.link?, path.route.local?.is_ipv4())))
    }

    /// There are other links, other addresses, or another path in use: the best ways come first
    /// again.
    pub(super) fn begin_turns(&mut self) {
        if let Role::Client(connector) = &mut self.role {
            connector.turns.clear();
        }
    }

    /// Whether `path` is one of those that are to be proven ahead: it is asked for as long as that
    /// takes.
    pub(super) fn is_spare(&self, path: &Path) -> bool {
        let Role::Client(connector) = &self.role else { return false };
        connector.spare_paths.contains(&path.id)
    }

    /// When a spare path, or one that may have nothing to carry, is to be asked whether it still
    /// could: while anybody speaks.
    pub(super) fn check_due(&self, path: &Path) -> Option<Instant> {
        let idle = path.probes.asking_since().is_none() && path.health == Health::Good;
        let active = self.paths.active_id() == Some(path.id);
        // Where several carry, others may have taken what there is.
        let spare = if active { path.congestion.is_some() } else { self.is_spare(path) };
        if self.at_gateway() || !(idle && spare && path.is_proven()) {
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
        let rests = self.paths.active_id() != Some(path.id) && !self.is_without_udp();
        let waits =
            rests && self.is_spare(path) && due > since + SPARE_ASKED && self.is_idle_at(due);
        (!waits).then_some(due)
    }

    pub(super) fn is_idle_at(&self, at: Instant) -> bool {
        self.used_at.is_none_or(|used| used + IDLE <= at)
    }
}
