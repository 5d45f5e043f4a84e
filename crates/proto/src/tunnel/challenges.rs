//! What path challenges and their answers change: addresses are claimed and proven, paths are
//! taken into use and replaced (docs/spec/wire.md#addresses).
//!
//! The rules of a move: an unproven address gets copies only, within three times what came from
//! it; the last proven path keeps the originals until the challenge succeeds or it is known dead.
//! When a lane's source address changes, the old address is challenged too: if it still answers,
//! the change was forged. A change counts only from the highest number seen.

use super::{Context, Side, Tunnel};
use crate::error::DropReason;
use crate::outbox::Route;
use crate::path::{Path, PathId, Trust};
use crate::paths::wishes::FLIGHT_SIZE;
use crate::session::epochs::Standing;
use crate::session::index::Lead;
use crate::wire::frame::{Challenge, Frame, Response};

/// Addresses that may be claimed at once; each takes an index.
const CLAIMS_MAX: usize = 2;

impl Tunnel {
    /// The path that a datagram came by; a new one if it came from a new address.
    pub(crate) fn locate(
        &mut self,
        cx: &mut Context<'_>,
        lead: Lead,
        route: Route,
        newest: bool,
        fresh: bool,
    ) -> Option<PathId> {
        let (epoch, standing) = self.epochs.find(lead.epoch)?;
        let origin = epoch.origin;
        // The answer to the handshake went there, and only the peer could have read it.
        let answered = fresh && origin.socket == route.socket && origin.remote == route.remote;
        let latest = standing == Standing::Current && !epoch.has_newer_lane(lead.serial);
        let shared = epoch.shares_path(lead.serial);
        let lane = epoch.rx.get_mut(&lead.serial)?;
        if let Some(path) = self.paths.list.by_route_mut(&route) {
            let names_path = lane.path.is_none() || (newest && path.is_proven());
            if names_path && lane.path != Some(path.id) {
                lane.path = Some(path.id);
                self.reach.note_change();
            }
            if newest && latest && matches!(self.paths.side, Side::Gateway { .. }) {
                path.move_from_gone();
            }
            if answered {
                path.move_to_proven(cx.now);
            }
            let (id, proven) = (path.id, path.is_proven());
            if fresh && proven {
                self.paths.list.activate(id);
                self.reach.note_change();
            }
            return Some(id);
        }
        if !newest && lane.path.is_some() {
            return None;
        }
        if let Side::Client(connector) = &self.paths.side
            && !connector.has_socket(route.socket)
        {
            return None; // received in one batch with what ended its socket
        }
        // Two lanes of one epoch are two paths of the peer's. Where both seemed to come by one, it
        // was somebody else's doing: this lane goes its own way and replaces nothing.
        let instead_of = lane.path.filter(|&id| self.paths.list.get(id).is_some() && !shared);
        if !answered && self.paths.list.claims() >= CLAIMS_MAX {
            return None;
        }
        let trust = if answered {
            Trust::Proven
        } else {
            Trust::Claimed { received: 0, sent: 0, instead_of }
        };
        let id = self.paths.list.next_id();
        if instead_of.is_none() {
            lane.path = Some(id);
            self.reach.note_change();
        }
        let link = self.paths.list.link_of(route.socket);
        self.manage(cx, |paths, cx| paths.add_path(cx, Path::new(id, route, link, cx.now, trust)));
        if answered {
            self.paths.list.activate(id);
            self.reach.note_change();
        }
        Some(id)
    }

    /// Challenges what is claimed: the new address, and the old one that it would replace.
    pub(crate) fn prove_claims(&mut self, cx: &mut Context<'_>) {
        let claims: Vec<_> = self
            .paths
            .list
            .iter()
            .filter(|path| path.probes.asking_since().is_none())
            .filter_map(|path| match path.trust() {
                Trust::Claimed { instead_of, .. } => Some((path.id, instead_of)),
                Trust::Proven | Trust::Chosen => None,
            })
            .collect();
        for (claimed, instead_of) in claims {
            // Guesses at where the gateway is may have taken all indices.
            let at = self.epochs.current.as_ref().zip(self.paths.list.get(claimed));
            if !at.is_some_and(|(epoch, path)| epoch.has_lane_for(path))
                && let Side::Client(connector) = &mut self.paths.side
            {
                connector.meet(cx, &mut self.identity, &self.paths.list, claimed);
            }
            for id in [Some(claimed), instead_of].into_iter().flatten() {
                self.manage(cx, |paths, cx| paths.ask(cx.now, id));
            }
        }
    }

    /// Answers a challenge, to the address that it came from and nowhere else.
    pub(crate) fn take_challenge(
        &mut self,
        cx: &mut Context<'_>,
        path: Option<PathId>,
        route: Route,
        len: usize,
        challenge: Challenge,
    ) -> Result<(), DropReason> {
        let Some(id) = path else { return Err(DropReason::NoRoute) };
        if let Side::Client(connector) = &mut self.paths.side {
            connector.listening.be_missed(cx.now);
        }
        let response = Response { token: challenge.token, observed: route.remote };
        self.send_frame(cx, id, &Frame::Response(response), len.min(FLIGHT_SIZE))
    }

    /// The peer wants to be reached by `id` from now on.
    ///
    /// What it says of its other paths holds for those that it had when it said so, and a challenge
    /// may be late: paths that it has taken since (their lanes have higher serials) are as they
    /// were. And it speaks of the lane that it sends by: if somebody else's address is claimed for
    /// that lane, the path that was there before is the one that it means.
    pub(crate) fn prefer(
        &mut self,
        cx: &mut Context<'_>,
        path: Option<PathId>,
        abandon_others: bool,
    ) {
        let Some(id) = path else { return };
        if let Some(path) = self.paths.list.get_mut(id) {
            path.move_from_gone();
        }
        let meant = match self.paths.list.get(id).map(|path| path.trust()) {
            Some(Trust::Claimed { instead_of: Some(before), .. }) => [id, before],
            Some(_) | None => [id, id],
        };
        let serial = |id: PathId| self.epochs.current.as_ref().and_then(|e| e.rx_serial(id));
        let said_by = meant.into_iter().filter_map(serial).max();
        let others: Vec<_> = self
            .paths
            .list
            .iter()
            .filter(|path| !meant.contains(&path.id) && serial(path.id) <= said_by)
            .map(|path| path.id)
            .collect();
        for path in self.paths.list.iter_mut() {
            path.set_preferred(path.id == id);
            if abandon_others && others.contains(&path.id) {
                path.move_to_gone();
            }
        }
        let carries = |path: &Path| path.is_proven() && !path.is_gone();
        if self.paths.list.get(id).is_some_and(carries) {
            self.manage(cx, |paths, cx| paths.activate(cx, id));
        }
    }

    /// Takes the answer to a challenge.
    pub(crate) fn take_response(
        &mut self,
        cx: &mut Context<'_>,
        path: Option<PathId>,
        route: Route,
        response: Response,
    ) {
        let Some(id) = path else { return };
        if self.answers_nat_test(cx, id, response.token) {
            return;
        }
        let Some(path) = self.paths.list.get_mut(id) else { return };
        let Some(answer) = path.probes.answered(cx.now, response.token, route.remote) else {
            return;
        };
        let (id, before) = (path.id, path.trust());
        if let Side::Client(connector) = &mut self.paths.side {
            connector.unanswered.note_answer(path.link, path.route.local);
        }
        let was_silent = path.is_silent();
        path.proved(cx.now, answer);
        if matches!(self.paths.side, Side::Gateway { .. }) {
            path.move_from_gone();
        }
        self.reach.note_change();
        path.note_observed(response.observed);
        if self.paths.list.active_id() == Some(id) {
            self.last_words.heard(answer.asked_at);
        }
        let is_spare = before == Trust::Chosen && self.paths.list.active_id() != Some(id);
        if is_spare || (was_silent && self.paths.list.is_shared(id)) {
            self.lose_unanswered(cx, id, answer.asked_at);
        }
        self.forgive(id);
        let keys_since = self.epochs.current.as_ref().map(|epoch| epoch.since);
        self.manage(cx, |paths, cx| paths.repeat_share(cx.now, (id, answer.asked_at), keys_since));
        self.manage(cx, |paths, cx| paths.remove_paths(cx, paths.list.forged_by(id, answer)));
        if let Trust::Claimed { instead_of: Some(old), .. } = before {
            self.replace_path(cx, old, id);
        }
        let Some(path) = self.paths.list.get(id) else { return };
        let (preferred, good) = (path.is_preferred(), path.is_good());
        let settled = path.mtu.is_settled();
        let is_active_able = self.paths.list.active().is_some_and(Path::is_able);
        if preferred || (good && (self.paths.plan().is_better(id) || !is_active_able)) {
            self.manage(cx, |paths, cx| paths.activate(cx, id));
        } else if before == Trust::Chosen && self.paths.list.active_id() == Some(id) {
            self.paths.tell_moved(cx.now, id);
            self.carry_out(cx);
        }
        // A path that was only asked in small is not to carry anything yet.
        let carries = self.paths.list.active_id() == Some(id) || answer.size >= FLIGHT_SIZE;
        if carries && !settled {
            self.search_mtu(cx, id);
        }
        if self.paths.list.active_id() == Some(id)
            && let Side::Client(connector) = &mut self.paths.side
        {
            connector.nat.observe(response.observed);
        }
        self.ask_nat(cx, id);
        self.control.hurry(cx.now);
        self.send_control(cx);
        self.changes.note_carries();
    }

    /// The path `new` is `old` with another address: its lanes go over to it.
    fn replace_path(&mut self, cx: &mut Context<'_>, old: PathId, new: PathId) {
        for epoch in self.epochs.receiving() {
            for lane in epoch.rx.values_mut().filter(|lane| lane.path == Some(old)) {
                lane.path = Some(new);
            }
        }
        if self.manage(cx, |paths, cx| paths.replace(cx, old, new)) {
            self.changes.note_replaced(cx.now);
        }
    }
}
