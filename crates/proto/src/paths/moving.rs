//! Paths come, are taken into use, and go. A client keeps those that `spread` names beside the one
//! in use: make before break.

use super::candidate::Candidate;
use super::plan::SPARES_MAX;
use super::{PathManager, Side, Wish};
use crate::context::Context;
use crate::id::Transport;
use crate::outbox::Route;
use crate::path::probe::Probes;
use crate::path::{Path, PathId, Trust};
use crate::recovery::rtt::Rtt;
use crate::time::Instant;

impl PathManager {
    /// Data goes by `id` from now on.
    pub(crate) fn activate(&mut self, cx: &mut Context<'_>, id: PathId) {
        if self.list.active_id() == Some(id) {
            return;
        }
        let to = self.list.get(id).and_then(|path| path.link);
        let from = self.list.active().filter(|from| from.is_silent()).and_then(|from| from.link);
        if let Some(link) = from.filter(|_| from != to)
            && let Side::Client(connector) = &mut self.side
        {
            // It fell silent: its link is not trusted at its first word.
            connector.distrusted.note(cx.now, link);
        }
        self.list.activate(id);
        self.tell_moved(cx.now, id);
        self.forget_gone(cx);
        if !self.at_gateway() {
            // Says "reach me here", and again until that is answered, whatever was asked before.
            if let Some(path) = self.list.get_mut(id) {
                path.probes = Probes::default();
                if let Side::Client(connector) = &mut self.side
                    && path.is_proven()
                    && path.transport() == Transport::Udp
                {
                    connector.candidates.follow(path.route.remote);
                }
            }
            self.ask(cx.now, id);
            self.side.begin_turns();
            self.stand_by(cx);
        }
        if self.list.get_mut(id).is_some_and(|path| path.taken_up(cx.now)) {
            self.wishes.push(Wish::SearchMtu(id));
        }
    }

    /// The gateway takes the path `answered` for the one in use from now on. If data goes by
    /// another that carries, it is told so under the new keys, whatever was asked before.
    pub(crate) fn insist(&mut self, now: Instant, answered: PathId) {
        if let Some(id) = self.list.active_id().filter(|&id| id != answered)
            && let Some(path) = self.list.get_mut(id)
        {
            path.probes = Probes::default();
            self.ask(now, id);
        }
    }

    pub(crate) fn tell_moved(&mut self, now: Instant, id: PathId) {
        if let Some(path) = self.list.get(id) {
            let took = path.proof_took(now);
            let remote = path.route.remote;
            self.wishes.push(Wish::Activated { remote, took });
        }
    }

    pub(crate) fn add_path(&mut self, cx: &mut Context<'_>, mut path: Path) {
        let interface = path.interface();
        for other in self.list.iter().filter(|other| other.interface() == interface) {
            path.offload.adopt(&other.offload);
        }
        if let Some(given_up) = self.list.add(path) {
            self.let_go(cx, given_up);
        }
    }

    pub(crate) fn remove_path(&mut self, cx: &mut Context<'_>, id: PathId) {
        if let Some(path) = self.list.remove(id) {
            self.let_go(cx, path);
        }
    }

    /// Removes these paths.
    pub(crate) fn remove_paths(&mut self, cx: &mut Context<'_>, ids: Vec<PathId>) {
        for id in ids {
            self.remove_path(cx, id);
        }
    }

    /// Removes a path that has served, unless data goes by it by now.
    pub(crate) fn remove_spare(&mut self, cx: &mut Context<'_>, id: PathId) {
        if self.list.active_id() != Some(id) {
            self.remove_path(cx, id);
        }
    }

    fn let_go(&mut self, cx: &mut Context<'_>, path: Path) {
        self.indices.give_back(&path);
        self.wishes.push(Wish::Removed(Box::new(path)));
        if self.list.active_id().is_none()
            && let Some(proven) = self.plan().best_proven(None)
        {
            self.activate(cx, proven);
        }
        self.close_unused_sockets(cx);
    }

    /// The path `new` is `old` with another address, and takes its place. Returns whether it
    /// carries a share as that did.
    pub(crate) fn replace(&mut self, cx: &mut Context<'_>, old: PathId, new: PathId) -> bool {
        let was_active = self.list.active_id() == Some(old);
        let preferred = self.list.get(old).is_some_and(|path| path.is_preferred());
        let before = self.list.get_mut(old).map(|path| {
            path.move_to_gone();
            (path.route.remote.ip(), path.congestion.take())
        });
        let mut is_shared = false;
        if let Some(path) = self.list.get_mut(new) {
            path.set_preferred(path.is_preferred() || preferred);
            if let Some((ip, Some(controller))) = before {
                path.set_shared(cx.now, true);
                is_shared = true;
                // Another port is a NAT's doing: the way is the same (RFC 9000, 9.4).
                if ip == path.route.remote.ip() {
                    path.congestion = Some(controller);
                }
            }
        }
        if was_active {
            self.activate(cx, new);
        }
        self.remove_path(cx, old);
        is_shared
    }

    /// Client: removes paths that are gone, but for the active one while nothing took its place. A
    /// gateway keeps them: the peer may turn out to be there after all.
    pub(crate) fn forget_gone(&mut self, cx: &mut Context<'_>) {
        if self.at_gateway() {
            return;
        }
        let active = self.list.active_id();
        let gone = |path: &&Path| path.is_gone() && Some(path.id) != active;
        self.remove_paths(cx, self.list.ids(gone));
    }

    /// Client: a path by the best candidate that has none yet. `None` when there is no such
    /// candidate or no index is left.
    pub(crate) fn open_next_path(&mut self, cx: &mut Context<'_>) -> Option<PathId> {
        let Side::Client(connector) = &self.side else { return None };
        let usable = |path: &&Path| !path.is_gone() && path.transport() == Transport::Udp;
        let taken: Vec<_> = self
            .list
            .iter()
            .filter(usable)
            .map(|p| (p.link, p.route.local, p.route.remote))
            .collect();
        let untried = connector.candidates.udp().filter(|c| {
            let open = taken.contains(&(Some(c.link), Some(c.local), c.remote));
            !open && !connector.failed_lately(cx.now, *c)
        });
        let candidate = untried.min_by_key(|way| self.plan().precedence(cx.now, way))?;
        self.open_path(cx, candidate)
    }

    /// Client: a path by `candidate`, which has not answered yet. `None` when no index is left.
    pub(crate) fn open_path(
        &mut self,
        cx: &mut Context<'_>,
        candidate: Candidate,
    ) -> Option<PathId> {
        let kept = self.plan().kept_from(cx.now, &candidate);
        let Side::Client(connector) = &mut self.side else { return None };
        let Candidate { link, local, remote, .. } = candidate;
        if !self.indices.take((link, local), kept) {
            return None;
        }
        connector.unanswered.note_asked(cx.now, &candidate);
        let socket = connector.open_socket(cx, candidate);
        let route = Route { socket, local: Some(local), remote };
        let id = self.list.next_id();
        let mut path = Path::new(id, route, Some(link), cx.now, Trust::Chosen);
        if let Some(active) = self.list.active() {
            path.rtt = Rtt::assuming(&active.rtt);
        }
        self.add_path(cx, path);
        Some(id)
    }

    /// The path `id` is gone. A client notes what arrived by it, before it says where it is.
    pub(crate) fn lose_path(&mut self, id: PathId) {
        let path = self.list.get_mut(id).filter(|path| !path.is_gone());
        let Some(path) = path else { return };
        path.move_to_gone();
        self.wishes.push(Wish::Lost(id));
    }

    /// Closes the sockets that neither a path nor an attempt uses.
    pub(crate) fn close_unused_sockets(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &mut self.side else { return };
        connector.close_unused(cx, |socket| self.list.uses(socket));
    }

    /// Client: opens a path by every link that has none, so that it is proven before it is needed.
    pub(crate) fn stand_by(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &mut self.side else { return };
        connector.spares.configure(cx.config.mode, cx.config.spread);
        let (wanted, is_crowded) = self.plan().spares(cx.now);
        let Side::Client(connector) = &mut self.side else { return };
        connector.spares.want(wanted.clone(), is_crowded);
        self.keep_spares();
        self.drop_overdue(cx); // what is not wanted any more was perhaps asked for long enough
        if !self.indices.has_keys() {
            return;
        }
        self.open_spares(cx, &wanted);
        self.wishes.push(Wish::TellTaken);
    }

    fn open_spares(&mut self, cx: &mut Context<'_>, wanted: &[Candidate]) {
        for (place, &candidate) in wanted.iter().enumerate() {
            let Side::Client(connector) = &self.side else { return };
            let before = wanted[..place].iter().filter(|way| **way == candidate).count();
            if self.plan().spares_by(candidate) > before
                || connector.failed_lately(cx.now, candidate)
            {
                continue;
            }
            if let Some(id) = self.plan().unanswered_beside(candidate) {
                self.lead(cx, id, candidate);
                self.keep_spares();
                continue;
            }
            if self.list.len() >= SPARES_MAX {
                // There is room only in place of a path that nobody wants.
                let Some(useless) = self.plan().most_useless() else { continue };
                self.remove_path(cx, useless);
            }
            if let Some(id) = self.open_path(cx, candidate) {
                self.keep_spares();
                self.ask(cx.now, id);
            }
        }
    }

    /// The path `id`, which nobody answered, leads there from now on: one more index for each
    /// address would soon leave none.
    pub(crate) fn lead(&mut self, cx: &mut Context<'_>, id: PathId, way: Candidate) {
        let Some(path) = self.list.get_mut(id) else { return };
        path.move_to(cx.now, way.remote);
        self.wishes.push(Wish::Forgive(id));
        self.ask(cx.now, id);
    }

    /// Keeps the paths that are wanted beside the one in use.
    fn keep_spares(&mut self) {
        let kept = self.plan().kept_spares();
        if let Side::Client(connector) = &mut self.side {
            connector.spares.keep(kept);
        }
    }

    /// Gives up what did not prove itself in time, and paths beside the one in use that are silent.
    pub(crate) fn drop_overdue(&mut self, cx: &mut Context<'_>) {
        let active = self.list.active_id();
        let due = |path: &&Path| {
            let silent = self.plan().silent_step_due(path).filter(|_| Some(path.id) != active);
            [self.plan().claim_due(path), silent].into_iter().flatten().any(|due| due <= cx.now)
        };
        self.remove_paths(cx, self.list.ids(due));
    }
}
