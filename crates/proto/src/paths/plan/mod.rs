//! The path manager's plan: which paths a client keeps, how good each is, and when it is asked. All
//! of this is read from links and paths; the tunnel acts on it.
//!
//! A gateway has only the questions that do not depend on links: the client chooses for both.

pub(crate) mod places;
pub(crate) mod rest;
mod silence;
mod spread;

use std::cmp::Reverse;

use crate::id::{LinkId, Transport};
use crate::multipath::{Manager, Mode};
use crate::outbox::Route;
use crate::path::{Health, Path, PathId, Trust};
use crate::paths::candidate::Candidate;
use crate::paths::connector::Connector;
use crate::paths::list::Paths;
use crate::paths::turns::turn_time;
use crate::time::{Duration, Instant};
use crate::wire::data::OVERHEAD;

/// Paths that are kept beside each other: the rest of [`PATHS_MAX`](crate::path::PATHS_MAX) is for
/// moves and questions.
pub(crate) const SPARES_MAX: usize = 12;
/// How long after it was heard of last a spare path is asked, while anybody speaks.
pub(crate) const CHECKED: Duration = Duration::from_secs(15);
/// The same while as few bytes as possible leave: a quarter of the questions. Data that moves to
/// such a path may wait for its answer, one round trip, and a path that broke is noticed so much
/// later. With twice as long, most NATs have forgotten the path in any case.
const CHECKED_FRUGALLY: Duration = Duration::from_secs(60);
/// A session without an inner packet for this long is idle: what a spare path is asked waits.
pub(crate) const IDLE: Duration = Duration::from_secs(10);
/// How long a spare path is asked whether anybody speaks or not.
pub(crate) const SPARE_ASKED: Duration = Duration::from_secs(60);

const _: () = assert!(CHECKED.as_secs() < FRESH.as_secs());

/// A path that was heard of within this time is trusted to carry as before. A NAT that forgets UDP
/// sooner than in 30 s is rare.
pub(crate) const FRESH: Duration = Duration::from_secs(20);

/// A path that was silent for this long, asked some three times, makes a client ask for a new
/// session in the background, by every way that there is: the gateway may have lost its own, or UDP
/// be blocked.
const HANDSHAKE_AFTER: Duration = Duration::from_secs(1);
/// How long a gateway challenges a client that went silent; the next data begins anew.
const GATEWAY_ASKS: Duration = Duration::from_secs(15);
/// The same while open connections wait for it.
const GATEWAY_ASKS_FOR_FLOWS: Duration = Duration::from_secs(60);
/// How long a stream stays open that was in use before UDP worked again.
const STREAM_KEPT: Duration = Duration::from_secs(30);

/// How long a claimed address has to prove itself.
pub(crate) const CLAIM_TIME: Duration = Duration::from_secs(5);
/// How long a path stays that is not wanted any more: what is on its way by it may still arrive.
const LEFT_OVER: Duration = Duration::from_secs(5);

/// What follows from the paths of a session and, at a client, from the links that they use.
#[derive(Clone, Copy)]
pub(crate) struct PathPlan<'a> {
    /// `None` at a gateway.
    pub(crate) connector: Option<&'a Connector>,
    pub(crate) paths: &'a Paths,
    /// When an inner packet last came or went.
    pub(crate) used_at: Option<Instant>,
}

/// How good a path is, the least first; the same for all of a gateway's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    /// A stream is for where UDP does not work: by a link that drops UDP, UDP is.
    stream: bool,
    /// Whether its link did badly of late.
    distrusted: bool,
    /// Place of its link in the shell's order.
    link: usize,
    /// Whether the gateway wants to be reached elsewhere.
    elsewhere: bool,
}

impl PathPlan<'_> {
    /// Whether `id` would carry better than the path in use.
    pub(crate) fn is_better(&self, id: PathId) -> bool {
        let (Some(path), Some(active)) = (self.paths.get(id), self.paths.active()) else {
            return false;
        };
        self.rank(path) < self.rank(active)
    }

    /// The silent paths that were asked for long enough.
    pub(crate) fn asked_enough(&self, now: Instant, flows_wait: bool) -> Vec<PathId> {
        self.paths.ids(|path| self.asked_enough_due(flows_wait, path).is_some_and(|due| due <= now))
    }

    /// The paths whose next challenge is due.
    pub(crate) fn probes_due(&self, now: Instant) -> Vec<PathId> {
        self.paths.ids(|path| self.probe_due(path).is_some_and(|due| due <= now))
    }

    /// The best proven path other than `except` that carries; among equals, that heard of last.
    pub(crate) fn best_proven(&self, except: Option<PathId>) -> Option<PathId> {
        let usable = self.paths.iter().filter(|path| path.is_able() && Some(path.id) != except);
        let best = usable.min_by_key(|path| (self.rank(path), Reverse(path.heard_at())));
        best.map(|path| path.id)
    }

    /// Gateway: the path that takes the place of the one in use, if the peer gave that up. An
    /// attacker who repeats the peer's word from his own address can make that the one in use.
    pub(crate) fn instead_of_gone(&self) -> Option<PathId> {
        let is_gone = self.paths.active().is_some_and(|path| path.is_gone());
        if self.connector.is_none() && is_gone { self.best_proven(None) } else { None }
    }

    /// The path that control frames and late feedback leave by, if there is one.
    pub(crate) fn control_path(&self) -> Option<PathId> {
        self.paths.active_id().or_else(|| self.best_proven(None))
    }

    pub(crate) fn rank(&self, path: &Path) -> Rank {
        let stream = path.transport() == Transport::Stream;
        let Some(connector) = self.connector else {
            // The client decides: what it prefers is not left for anything better.
            let stream = stream && !path.is_preferred();
            return Rank { stream, distrusted: false, link: 0, elsewhere: false };
        };
        let wanted = connector.candidates.announced_for(path.route.remote);
        Rank {
            stream: stream != connector.policing.prefers_stream(path.link),
            distrusted: connector.distrusted.has(path.link),
            link: connector.candidates.place_of(path.link),
            elsewhere: wanted.is_some_and(|wanted| match path.transport() {
                Transport::Udp => wanted != path.route.remote,
                Transport::Stream => wanted.ip() != path.route.remote.ip(), // its port is its own
            }),
        }
    }

    /// A path from where `way` begins that leads to another of the gateway's addresses, which is
    /// not wanted any more and never answered.
    pub(crate) fn unanswered_beside(&self, way: Candidate) -> Option<PathId> {
        let connector = self.connector?;
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

    /// Client: the ways by a link in one family: to where the gateway wants to be reached, to where
    /// this link or another reaches it, then the rest; behind them the streams, if that link is to
    /// carry beside others whatever it lets pass.
    pub(crate) fn ways_by(&self, link: LinkId, v4: bool) -> Vec<Candidate> {
        let (Some(connector), Some(active)) = (self.connector, self.paths.active()) else {
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
        let ways = connector.candidates.udp().filter(|way| way.link == link);
        let mut ways: Vec<_> = ways.filter(|way| way.remote.is_ipv4() == v4).collect();
        ways.sort_by_key(|way| {
            (connector.candidates.announced_for(way.remote) != Some(way.remote), reached(way))
        });
        if connector.takes_streams() {
            let carrying = self.paths.iter().filter(|path| path.is_able());
            let carrying: Vec<_> = carrying
                .filter_map(|path| connector.candidate_of(path.link, &path.route))
                .map(|way| (way.remote, way.stream))
                .collect();
            let of_link = |way: &Candidate| way.link == link && way.local.is_ipv4() == v4;
            let mut streams: Vec<_> = connector.candidates.streams().filter(of_link).collect();
            streams.sort_by_key(|way| !carrying.contains(&(way.remote, way.stream)));
            ways.extend(streams);
        }
        ways
    }

    /// When a spare path has been asked for long enough, and another address of the gateway has its
    /// turn by that link.
    pub(crate) fn turn_due(&self, path: &Path) -> Option<Instant> {
        let since = path.probes.asking_since()?;
        let connector = self.connector?;
        let by_turns = self.paths.active_id() != Some(path.id) && !self.is_without_udp();
        let spare = by_turns && !self.is_mesh() && self.is_spare(path);
        let of = (path.link?, path.route.local?.is_ipv4());
        let number = connector.turns.number(of);
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

    /// When a stream that is to be ready, and failed, is tried again: while anybody speaks.
    pub(crate) fn retry_due(&self) -> Option<Instant> {
        let connector = self.connector?;
        // Hardly anything fails: that is looked at before who leads where.
        let failed = connector
            .spares
            .wanted()
            .iter()
            .filter_map(|way| Some((way, connector.retry_at(way)?)));
        let missing = failed.filter(|&(way, _)| self.spares_by(*way) == 0);
        let due = missing.map(|(_, at)| at).min()?;
        (!self.is_idle_at(due)).then_some(due)
    }

    /// A path whose turn is over, with its link and family.
    pub(crate) fn turn_over(&self, now: Instant) -> Option<(PathId, (LinkId, bool))> {
        let due = |path: &&Path| self.turn_due(path).is_some_and(|due| due <= now);
        let path = self.paths.iter().find(due)?;
        Some((path.id, (path.link?, path.route.local?.is_ipv4())))
    }

    /// Whether `path` is one of those that are to be proven ahead: it is asked for as long as that
    /// takes.
    pub(crate) fn is_spare(&self, path: &Path) -> bool {
        let Some(connector) = self.connector else { return false };
        connector.spares.has(path.id)
    }

    /// When a spare path, or one that may have nothing to carry, is to be asked whether it still
    /// could: while anybody speaks, and more rarely if bytes are dear (`is_frugal`).
    pub(crate) fn check_due(&self, path: &Path, is_frugal: bool) -> Option<Instant> {
        let idle = path.probes.asking_since().is_none() && path.is_good();
        let active = self.paths.active_id() == Some(path.id);
        // Where several carry, others may have taken what there is.
        let spare = if active { path.congestion.is_some() } else { self.is_spare(path) };
        if self.connector.is_none() || !(idle && spare && path.is_proven()) {
            return None;
        }
        let pause = if is_frugal { CHECKED_FRUGALLY } else { CHECKED };
        path.heard_at().map(|heard| heard + pause).filter(|&due| !self.is_idle_at(due))
    }

    /// When the next challenge of a path is due. A spare path that does not answer is asked ever
    /// more rarely, and after a minute only while anybody speaks.
    pub(crate) fn probe_due(&self, path: &Path) -> Option<Instant> {
        let (due, since) = (path.probes.due()?, path.probes.asking_since()?);
        let rests = self.paths.active_id() != Some(path.id) && !self.is_without_udp();
        let waits =
            rests && self.is_spare(path) && due > since + SPARE_ASKED && self.is_idle_at(due);
        (!waits).then_some(due)
    }

    pub(crate) fn is_idle_at(&self, at: Instant) -> bool {
        self.used_at.is_none_or(|used| used + IDLE <= at)
    }

    /// The best of the paths that carry a share, other than `except`.
    pub(crate) fn best_with_share(&self, except: PathId) -> Option<PathId> {
        let others = self.paths.iter().filter(|path| path.id != except && path.has_share());
        others.min_by_key(|path| self.rank(path)).map(|path| path.id)
    }

    /// When a client behind a NAT must send something by `path`, if it is the one in use; `least`
    /// is the interval at first.
    pub(crate) fn keepalive_due(&self, least: Option<Duration>, path: &Path) -> Option<Instant> {
        let connector = self.connector?;
        let is_wanted = path.is_natted() && self.paths.active_id() == Some(path.id);
        if !is_wanted || !path.is_good() {
            return None;
        }
        Some(path.sent_at()? + connector.nat.interval(least?))
    }

    /// Whether the path in use leads through the NAT that is asked about.
    pub(crate) fn is_behind_tested_nat(&self) -> bool {
        let Some(connector) = self.connector else { return false };
        self.paths.active().is_some_and(|path| connector.nat.is_of(path))
    }

    /// Whether the path is there to learn by, and for nothing else.
    pub(crate) fn is_nat_test(&self, id: PathId) -> bool {
        let Some(connector) = self.connector else { return false };
        connector.nat.is_test(id)
    }

    /// Whether data goes by a stream for want of UDP, which is wanted.
    pub(crate) fn is_without_udp(&self) -> bool {
        let Some(connector) = self.connector else { return self.paths.is_on_stream() };
        let is_chosen =
            || self.paths.active().is_some_and(|it| connector.policing.prefers_stream(it.link));
        self.paths.is_on_stream() && !connector.candidates.are_streams_alone() && !is_chosen()
    }

    /// Client: the path by this candidate.
    pub(crate) fn path_by(&self, candidate: Candidate) -> Option<&Path> {
        let connector = self.connector?;
        let leads =
            |path: &&Path| connector.candidate_of(path.link, &path.route) == Some(candidate);
        self.paths.iter().find(leads)
    }

    /// Client: when something is due about links that police UDP.
    pub(crate) fn policing_due(&self) -> Option<Instant> {
        self.connector?.policing.due(|at| self.is_idle_at(at))
    }

    /// Whether by each link there is a path to each of the gateway's addresses. Streams are one per
    /// link: what they lead to is one host.
    pub(crate) fn is_mesh(&self) -> bool {
        let Some(connector) = self.connector else { return false };
        !connector.candidates.are_streams_alone()
            && connector.spares.mode() == Mode::Full
            && connector.spares.spread().manager == Manager::FullMesh
    }

    /// Client: the way that the gateway asks for, by the link in use; `None` if that is in use.
    pub(crate) fn target(&self) -> Option<Candidate> {
        let connector = self.connector?;
        let path = self.paths.active().filter(|path| path.transport() == Transport::Udp)?;
        let Route { local, remote, .. } = path.route;
        let wanted = connector.candidates.announced_for(remote)?;
        let candidate = Candidate { link: path.link?, local: local?, remote: wanted, stream: None };
        (wanted != remote).then_some(candidate)
    }

    /// How many of the paths there are lead by `way`, that in use and what is gone left out.
    pub(crate) fn spares_by(&self, way: Candidate) -> usize {
        let Some(connector) = self.connector else { return 0 };
        let leads = |path: &&Path| connector.candidate_of(path.link, &path.route) == Some(way);
        self.paths.iter().filter(|path| self.may_be_spare(path)).filter(leads).count()
    }

    /// The paths that are kept for the candidates to prove ahead: of more than are wanted those
    /// that carry.
    pub(crate) fn kept_spares(&self) -> Vec<PathId> {
        let Some(connector) = self.connector else { return Vec::new() };
        let mut wanted = connector.spares.wanted().to_vec();
        let mut paths: Vec<&Path> =
            self.paths.iter().filter(|path| self.may_be_spare(path)).collect();
        paths.sort_by_key(|path| (!path.is_able(), path.id));
        let is_kept = |path: &&&Path| {
            let candidate = connector.candidate_of(path.link, &path.route);
            let place = wanted.iter().position(|wanted| Some(*wanted) == candidate);
            place.map(|place| wanted.swap_remove(place)).is_some()
        };
        paths.iter().filter(is_kept).map(|path| path.id).collect()
    }

    /// The path that is wanted least: best one that leads nowhere, else the one that was not heard
    /// of for longest. `None` if all are wanted.
    pub(crate) fn most_useless(&self) -> Option<PathId> {
        let active = self.paths.active_id();
        let useless = |path: &&Path| Some(path.id) != active && !self.is_spare(path);
        let useless = self.paths.iter().filter(useless);
        useless.min_by_key(|path| (path.is_able(), path.heard_at())).map(|path| path.id)
    }

    pub(crate) fn may_be_spare(&self, path: &Path) -> bool {
        Some(path.id) != self.paths.active_id() && !path.is_gone() && !self.is_nat_test(path.id)
    }

    /// When a gateway has challenged `path` for long enough, whatever it is taken for: a client
    /// that is there will send, and one that is not must not be asked for ever.
    pub(crate) fn asked_enough_due(&self, flows_wait: bool, path: &Path) -> Option<Instant> {
        let asking = path.probes.asking_since().filter(|_| self.connector.is_none());
        let enough = if flows_wait { GATEWAY_ASKS_FOR_FLOWS } else { GATEWAY_ASKS };
        asking.map(|since| since + enough)
    }

    /// A silent path of a client: when to ask for a new session, or to give up the path if it is
    /// a spare one.
    pub(crate) fn silent_step_due(&self, path: &Path) -> Option<Instant> {
        let Health::Silent { since } = path.health() else { return None };
        let connector = self.connector?;
        if self.paths.active_id() != Some(path.id) {
            return (!self.is_spare(path)).then_some(since + SPARE_ASKED);
        }
        connector.can_try().then_some(since + HANDSHAKE_AFTER)
    }

    /// When an address that did not prove itself is given up, or one that nobody wants any more.
    pub(crate) fn claim_due(&self, path: &Path) -> Option<Instant> {
        match path.trust() {
            Trust::Claimed { .. } => Some(path.since() + CLAIM_TIME),
            Trust::Chosen if self.paths.active_id() != Some(path.id) => {
                (!self.is_spare(path)).then_some(path.since() + SPARE_ASKED)
            }
            Trust::Proven if self.is_spare_stream(path) => {
                path.heard_at().max(path.sent_at()).map(|last| last + STREAM_KEPT)
            }
            Trust::Proven => self.left_over_due(path),
            Trust::Chosen => None,
        }
    }

    /// Client: whether `path` is a stream that UDP has taken the place of.
    fn is_spare_stream(&self, path: &Path) -> bool {
        self.connector.is_some()
            && path.transport() == Transport::Stream
            && path.congestion.is_none()
            && !self.is_spare(path)
            && self
                .paths
                .active()
                .is_some_and(|active| active.transport() == Transport::Udp && active.is_good())
    }

    /// When a path that is proven and not wanted any more is let go. In mode `backup` it stays: it
    /// may be of use, and costs nothing.
    pub(crate) fn left_over_due(&self, path: &Path) -> Option<Instant> {
        let connector = self.connector?;
        let is_left_over = connector.spares.mode() != Mode::Backup
            && (path.transport() == Transport::Udp || connector.candidates.are_streams_alone())
            && path.congestion.is_none()
            && self.may_be_spare(path)
            && !self.is_spare(path);
        let last = path.heard_at().max(path.sent_at()).unwrap_or_else(|| path.since());
        is_left_over.then(|| last + LEFT_OVER)
    }

    /// What the smallest of `chosen` and the paths that carry a share probably has room for: a
    /// connection's segments may go by any of them.
    pub(crate) fn least_room(&self, chosen: PathId) -> Option<usize> {
        let carry = self.paths.iter().filter(|path| path.has_share() || path.id == chosen);
        carry.map(|path| path.mtu.expected() - OVERHEAD).min()
    }
}

/// Whether a path was heard of so lately that it surely carries as before.
pub(crate) fn is_fresh(now: Instant, path: &Path) -> bool {
    path.heard_at().is_some_and(|heard| now.saturating_since(heard) < FRESH)
}
