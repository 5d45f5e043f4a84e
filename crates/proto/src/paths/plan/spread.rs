//! Which ways a client keeps a path by, and which of its paths may carry together.
//!
//! In mode `backup` by every other link, in each family, one is proven ahead of need. In mode
//! `full` the path manager says more: one per link, or by each link to each of the gateway's
//! addresses, and of each that carries as many as the user wants. In mode `single` there is none
//! but by a better link than the one in use, until data has gone over to it. Knows links by their
//! order, and by whether they are for when no other carries.

use super::SPARES_MAX;
use super::{PathPlan, Rank};
use crate::id::{LinkId, Transport};
use crate::multipath::{Mode, SUBFLOWS_MAX};
use crate::path::{Health, Path, PathId};
use crate::paths::candidate::Candidate;
use crate::time::Instant;

/// Streams that are kept beside one that stands in for UDP, whatever else there is to ask.
const STREAMS_BESIDE: usize = 4;

impl PathPlan<'_> {
    /// Client: the candidates to validate in advance, best links first. Each occurs as often as
    /// there should be paths on it besides the one in use. If a stream stands in for UDP, these are
    /// all UDP candidates and, in mode `full`, one stream on each other link. Links that never
    /// answered come last. Also tells whether there are more candidates than places.
    pub(crate) fn spares(&self, now: Instant) -> (Vec<Candidate>, bool) {
        let (ways, most) = self.all_spares();
        self.first_places(now, ways, most)
    }

    /// The same in the order of the links, and the number that there is room for.
    fn all_spares(&self) -> (Vec<Candidate>, usize) {
        let (Some(connector), Some(active)) = (self.connector, self.paths.active()) else {
            return (Vec::new(), 0);
        };
        if self.is_without_udp() {
            let beside =
                if connector.spares.mode() == Mode::Full { self.streams_beside() } else { vec![] };
            let room = SPARES_MAX - 1 - beside.len().min(STREAMS_BESIDE);
            let over_udp = connector.candidates.udp().take(room);
            return (over_udp.chain(beside).collect(), SPARES_MAX - 1);
        }
        let more = if connector.spares.mode() == Mode::Full {
            connector.spares.spread().subflows.clamp(1, SUBFLOWS_MAX) - 1
        } else {
            0
        };
        let is_in_use =
            |way: &Candidate| (Some(way.link), way.remote) == (active.link, active.route.remote);
        let (mut ways, again) = if self.is_mesh() {
            let all = self.mesh();
            (all.iter().copied().filter(|way| !is_in_use(way)).collect(), all)
        } else {
            (self.one_per_link(), if more > 0 { self.leaders() } else { Vec::new() })
        };
        for _ in 0..more {
            ways.extend(&again);
        }
        let in_use = connector.candidate_of(active.link, &active.route);
        ways.extend(connector.policing.streams().filter(|way| Some(*way) != in_use));
        (ways, SPARES_MAX)
    }

    /// By each link other than the one in use a stream like the one that carries.
    fn streams_beside(&self) -> Vec<Candidate> {
        let (Some(connector), Some(active)) = (self.connector, self.paths.active()) else {
            return Vec::new();
        };
        let Some(way) = connector.candidate_of(active.link, &active.route) else {
            return Vec::new();
        };
        let like_it = |other: &Candidate| {
            other.link != way.link && (other.remote, other.stream) == (way.remote, way.stream)
        };
        connector.candidates.streams().filter(like_it).collect()
    }

    /// By each link to each address where the gateway says that it is reached, or else is known.
    fn mesh(&self) -> Vec<Candidate> {
        let Some(connector) = self.connector else { return Vec::new() };
        let is_told = |way: &Candidate| connector.candidates.is_announced(way.remote);
        let tells = |way: &Candidate| connector.candidates.announced_for(way.remote).is_some();
        connector.candidates.udp().filter(|way| is_told(way) || !tells(way)).collect()
    }

    /// By each link other than the one in use, in each family, the way whose turn it is; beside a
    /// stream the best over UDP as well, which takes its place when it is answered.
    fn one_per_link(&self) -> Vec<Candidate> {
        let (Some(connector), Some(active)) = (self.connector, self.paths.active()) else {
            return Vec::new();
        };
        let in_use =
            connector.candidates.links().iter().position(|link| Some(link.id) == active.link);
        let is_trusted = |link: LinkId| !connector.distrusted.has(Some(link));
        let others = connector.candidates.links().iter().enumerate().filter(|&(place, link)| {
            let is_better = in_use.is_none_or(|in_use| place < in_use) && is_trusted(link.id);
            Some(link.id) != active.link && (connector.spares.mode() != Mode::Single || is_better)
        });
        let ways = others.flat_map(|(_, link)| {
            [true, false].into_iter().flat_map(|v4| {
                let ways = self.ways_by(link.id, v4);
                let turn = connector.turns.number((link.id, v4)) as usize;
                let its_turn = ways.get(turn % ways.len().max(1)).copied();
                let stands_in = its_turn.is_some_and(|way| way.stream.is_some());
                let best = ways.first().filter(|best| stands_in && best.stream.is_none());
                [its_turn, best.copied()]
            })
        });
        ways.flatten().collect()
    }

    /// Of each link the way that carries.
    fn leaders(&self) -> Vec<Candidate> {
        let Some(connector) = self.connector else { return Vec::new() };
        let best = |link| {
            let able = self.paths.iter().filter(|path| path.is_able() && path.link == Some(link));
            let best = able.min_by_key(|path| self.place(path))?;
            connector.candidate_of(best.link, &best.route)
        };
        connector.candidates.links().iter().filter_map(|link| best(link.id)).collect()
    }

    /// Client: whether `path` is one of those that carry together in mode `full`.
    pub(crate) fn is_to_share(&self, now: Instant, path: &Path) -> bool {
        let Some(connector) = self.connector else { return false };
        // Where none carries, what is known of each is what there is to begin with again.
        let may_return = || path.may_return(now) || !self.paths.iter().any(Path::is_able);
        let keeps =
            path.congestion.is_some() && path.is_proven() && !path.is_gone() && may_return();
        if !(keeps || path.is_able()) || self.is_nat_test(path.id) || !self.is_for_all(path) {
            return false;
        }
        if path.congestion.is_none() && !self.outlives_others(path) {
            return false;
        }
        if connector.policing.is_tried(|| connector.candidate_of(path.link, &path.route)) {
            return true;
        }
        let able = || self.paths.iter().filter(|other| other.link == path.link && other.is_able());
        // One that was silent just now keeps its share, unless another takes its place. Nearly
        // always there is no other, and this is asked with every datagram.
        if able().all(|other| other.id == path.id) {
            return true;
        }
        let way = |path: &Path| (path.route.local, path.route.remote);
        let subflows = usize::from(connector.spares.spread().subflows.clamp(1, SUBFLOWS_MAX));
        let best = able().min_by_key(|other| self.place(other));
        let leads_there = best.is_some_and(|best| way(best) == way(path));
        let before =
            able().filter(|other| way(other) == way(path) && self.place(other) < self.place(path));
        // A stream stands in for UDP by its link; a mesh has none beside that.
        let is_of_mesh = self.is_mesh() && path.transport() == Transport::Udp;
        (leads_there || is_of_mesh) && before.count() < subflows
    }

    /// Whether it was heard of since any other by its link fell silent: until then it is the link
    /// that is in doubt.
    fn outlives_others(&self, path: &Path) -> bool {
        let fell_silent = |other: &Path| match other.health() {
            Health::Silent { since } if other.link == path.link => Some(since),
            Health::Silent { .. } | Health::Good | Health::Gone => None,
        };
        let last = self.paths.iter().filter_map(fell_silent).max();
        last.is_none_or(|silent_at| path.heard_at().is_some_and(|heard_at| silent_at < heard_at))
    }

    /// Whether the path's link carries beside others; one that stands by does only if none of
    /// those is there.
    fn is_for_all(&self, path: &Path) -> bool {
        let Some(connector) = self.connector else { return false };
        let stands_by = |path: &Path| connector.candidates.stands_by(path.link);
        let in_use = || self.paths.active().filter(|active| active.is_able());
        !stands_by(path)
            || (!self.paths.iter().any(|other| other.is_able() && !stands_by(other))
                && in_use().is_none_or(|active| active.link == path.link))
    }

    /// The order of the paths of one link: the one in use is the first.
    fn place(&self, path: &Path) -> (bool, Rank, PathId) {
        (Some(path.id) != self.paths.active_id(), self.rank(path), path.id)
    }
}
