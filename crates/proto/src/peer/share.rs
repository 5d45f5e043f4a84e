//! Which paths carry together, and what follows for them and for whom they carry.
//!
//! A client whose mode is [`Mode::Full`] shares its data among paths of all links, and says so to
//! the gateway in a challenge on each, which then does the same. Each of these is paced by a
//! congestion controller of its own (`company`), and what it loses leaves again by whichever
//! carries it soonest (`retransmit`). Which these are is decided in `spread`, what leaves by which
//! in `bonding`.

use super::links::is_fresh;
use super::{Context, Peer, Role};
use crate::ablation::Heuristic;
use crate::bond::Mode;
use crate::flow::Assists;
use crate::flow::rules::Assist;
use crate::path::lane::TxLane;
use crate::path::{Health, Path, PathId, feedback};
use crate::time::{Duration, Instant};
use crate::wire::data::OVERHEAD;

/// A path that was ready for so long before it got something had too little to carry.
const IDLE: Duration = Duration::from_millis(1);
/// Where other paths carry, one is silent that has owed an answer for three halves of a round trip,
const TAIL_TRIPS: (u32, u32) = (3, 2);
/// and this, or if that is more what feedback may wait and a little: so may the processes at both
/// ends.
const TAIL_GRACE: Duration = Duration::from_millis(25);
/// How little.
const TAIL_LATE: Duration = Duration::from_millis(5);

impl Peer {
    /// Assists connections where that is wanted: only what is shared among paths is paced, and
    /// repaired, by this node. It does not begin with one path: there is little to gain, and a
    /// crash would break off what is owed. Where it has begun, a path may be the last for a while.
    /// Beside somebody else who fills the queue it does: a path is sent by a window there, and what
    /// is kept here fills it, whatever the sender's own window does meanwhile.
    pub(super) fn assist_or_not(&mut self, cx: &Context<'_>) {
        let is_wanted = self.flows.wants_assist() == Assist::On && self.is_bonded(cx);
        let assists = match self.bond.ways.len() {
            _ if !is_wanted => Assists::None,
            0 | 1 if !self.competes() => Assists::Begun,
            _ => Assists::All,
        };
        self.flows.set_assist(assists);
    }

    /// Whether somebody else fills the queue of a path.
    fn competes(&self) -> bool {
        let controller = |path: &Path| path.congestion.as_ref().is_some_and(|it| it.competes());
        self.paths.iter().any(controller)
    }

    /// Whether a path may get a share now: beside the one in use none that nobody has heard of for
    /// a while. A NAT may have forgotten it, and the client asks it when anybody speaks again.
    pub(super) fn is_way(&self, now: Instant, path: &Path) -> bool {
        has_share(path)
            && (self.paths.active_id() == Some(path.id) || is_fresh(now, path))
            && self.has_lane(path)
    }

    /// Whether something can be sealed for the path: new keys come with a few indices, and more of
    /// them a round trip later.
    pub(super) fn has_lane(&self, path: &Path) -> bool {
        self.epochs
            .current
            .as_ref()
            .is_some_and(|epoch| epoch.tx.len() >= self.paths.len() || epoch.has_lane_for(path))
    }

    /// Whether data is shared with this path.
    pub(super) fn is_shared(&self, path: Option<PathId>) -> bool {
        path.and_then(|id| self.paths.get(id)).is_some_and(|path| path.congestion.is_some())
    }

    /// Client: its links are used in another way from now on.
    pub(crate) fn mode_changed(&mut self, cx: &mut Context<'_>) {
        self.stand_by(cx);
        self.refresh_state(cx);
    }

    /// Client: shares data among the paths that are to carry together, or leaves it to one.
    pub(super) fn share_paths(&mut self, cx: &mut Context<'_>) {
        if self.at_gateway() || (cx.config.mode != Mode::Full && !self.paths.iter().any(has_share))
        {
            return;
        }
        let is_full = cx.config.mode == Mode::Full;
        let chosen = |path: &Path| is_full && self.is_to_share(cx.now, path);
        let changed = |path: &&Path| path.congestion.is_some() != chosen(path);
        let changed: Vec<_> = self.paths.iter().filter(changed).map(|path| path.id).collect();
        let any = !changed.is_empty();
        for id in changed {
            let is_shared = self.is_shared(Some(id));
            self.set_shared(cx.now, id, !is_shared);
            let Some(path) = self.paths.get_mut(id) else { continue };
            path.probes.say_anew(cx.now);
            let settled = path.mtu.is_settled();
            if path.health != Health::Gone {
                self.ask(cx, id);
            }
            if !settled {
                self.search_mtu(cx, id);
            }
        }
        if any {
            self.stand_by(cx); // of those that carry there may be more
        }
    }

    /// Client: there are new keys. What was said under the old ones of who shares may have come too
    /// late to be heeded.
    pub(super) fn repeat_shares(&mut self, cx: &mut Context<'_>) {
        let shared = self.paths.iter().filter(|path| has_share(path));
        let shared: Vec<_> = shared.map(|path| path.id).collect();
        shared.into_iter().for_each(|id| self.ask(cx, id));
    }

    /// Client: an answer to what was asked at `asked_at` says nothing of what the gateway knows, if
    /// the path has got its share since, or there are new keys.
    pub(super) fn repeat_share(&mut self, cx: &mut Context<'_>, id: PathId, asked_at: Instant) {
        let Some(path) = self.paths.get(id).filter(|_| !self.at_gateway()) else { return };
        let keys_since = self.epochs.current.as_ref().map(|epoch| epoch.since);
        let is_said = asked_at >= path.shared_since
            && (path.congestion.is_none() || Some(asked_at) >= keys_since);
        if !is_said {
            self.ask(cx, id);
        }
    }

    /// Gateway: the client shares its data among paths, this one with them or not.
    pub(super) fn take_sharing(&mut self, now: Instant, id: Option<PathId>, beside: bool) {
        if let (Role::Gateway { .. }, Some(id)) = (&self.role, id) {
            self.set_shared(now, id, beside);
        }
    }

    /// Data is shared with a path from now on, or no more. One that takes the place of all that
    /// carried before is perhaps as the fastest of those was.
    fn set_shared(&mut self, now: Instant, id: PathId, is_shared: bool) {
        let others = || self.paths.iter().filter(|other| other.id != id);
        let rate = |path: &Path| path.congestion.as_ref().and_then(|one| one.rate());
        let known = others().filter_map(rate).reduce(f64::max);
        let carried = known.or(self.bond.carried).filter(|_| !others().any(has_share));
        let Some(path) = self.paths.get_mut(id) else { return };
        if !is_shared {
            self.bond.carried = rate(path).or(self.bond.carried);
        }
        let is_new = is_shared && path.congestion.is_none();
        path.set_shared(now, is_shared);
        if let Some(controller) = path.congestion.as_mut().filter(|_| is_new) {
            controller.leave_out(self.bond.ablation);
        }
        if let (true, Some(controller), Some(carried)) = (is_new, &mut path.congestion, carried) {
            controller.guess(carried);
            self.bond.replaced_at = Some(now);
        }
    }

    /// How long an answer may be owed before `path` counts as silent: not long, where others carry
    /// what it does not.
    pub(super) fn patience(&self, path: &Path) -> Duration {
        let others = || self.paths.iter().any(|other| other.id != path.id && has_share(other));
        let is_impatient = || others() && !self.bond.ablation.is_off(Heuristic::Impatience);
        let Some(controller) = path.congestion.as_ref().filter(|_| is_impatient()) else {
            return path.patience();
        };
        let wait = controller.rate().map_or(Duration::ZERO, feedback::wait);
        let trips = path.rtt.smoothed() * TAIL_TRIPS.0 / TAIL_TRIPS.1;
        path.rtt.timeout().max(trips) + TAIL_GRACE.max(wait + TAIL_LATE)
    }

    /// The best of the paths that carry a share, other than `except`.
    pub(super) fn best_bonded(&self, except: PathId) -> Option<PathId> {
        let others = self.paths.iter().filter(|path| path.id != except && has_share(path));
        others.min_by_key(|path| self.rank(path)).map(|path| path.id)
    }

    /// What the smallest of the paths that carry a share has room for: a connection's segments may
    /// go by any of them. `None` where nothing is shared.
    pub(super) fn least_room(&self) -> Option<usize> {
        let shared = self.paths.iter().filter(|path| has_share(path));
        shared.map(|path| path.mtu.datagram() - OVERHEAD).min()
    }
}

/// Something leaves, be it data or not: where the path could have carried something before, and
/// there was nothing, its rate says nothing of what it carries.
pub(super) fn note_idle(now: Instant, path: &mut Path, lane: &mut TxLane) {
    if let Some(controller) = &mut path.congestion
        && !path.was_wanted
        && controller.next_at() + IDLE + controller.turns_late() < now
    {
        lane.flight.limited();
        controller.limited(lane.flight.in_flight());
    }
}

/// Whether it carries a share.
pub(super) fn has_share(path: &Path) -> bool {
    path.congestion.is_some() && path.is_able()
}
