//! Paths come, are proven, and go (docs/spec/wire.md, section 6).
//!
//! The rules of a move: an unproven address gets copies only, within three times what came from
//! it; the last proven path keeps the originals until the challenge succeeds or it is known dead.
//! When a lane's source address changes, the old address is challenged too: if it still answers,
//! the change was forged. A change counts only from the highest number seen.

use super::egress::Load;
use super::epochs::Standing;
use super::index::Lead;
use super::{Context, Event, Peer, Role};
use crate::error::DropReason;
use crate::id::{LinkId, SocketId, Transport};
use crate::outbox::Route;
use crate::path::probe::{Answer, Probes};
use crate::path::{Health, Path, PathId, Trust};
use crate::time::Duration;
use crate::wire::data::BASE_DATAGRAM;
use crate::wire::frame::{self, Challenge, Frame, Response};

/// Datagrams of a mover's first flight, padded to [`FLIGHT_SIZE`]: its amplification budget.
const FLIGHT: usize = 6;
/// UDP payload of the first flight's datagrams, and of the challenges that prove an address (RFC
/// 9000, 8.2.1). A path that carries less is unusable.
const FLIGHT_SIZE: usize = BASE_DATAGRAM;
/// Addresses that may be claimed at once; each takes an index.
const CLAIMS_MAX: usize = 2;
/// How long a claimed address has to prove itself.
pub(super) const CLAIM_TIME: Duration = Duration::from_secs(5);

impl Peer {
    /// The path that a datagram came by; a new one if it came from a new address.
    pub(super) fn locate(
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
        if let Some(path) = self.paths.by_route_mut(&route) {
            let names_path = lane.path.is_none() || (newest && path.is_proven());
            if names_path && lane.path != Some(path.id) {
                lane.path = Some(path.id);
                self.reach_changed = true;
            }
            if newest && latest && matches!(self.role, Role::Gateway { .. }) {
                path.speaks_again();
            }
            if answered {
                path.trust = Trust::Proven;
            }
            let (id, proven) = (path.id, path.is_proven());
            if fresh && proven {
                self.paths.activate(id);
                self.reach_changed = true;
            }
            return Some(id);
        }
        if !newest && lane.path.is_some() {
            return None;
        }
        if let Role::Client(connector) = &self.role
            && !connector.has_socket(route.socket)
        {
            return None; // received in one batch with what ended its socket
        }
        // Two lanes of one epoch are two paths of the peer's. Where both seemed to come by one, it
        // was somebody else's doing: this lane goes its own way and replaces nothing.
        let instead_of = lane.path.filter(|&id| self.paths.get(id).is_some() && !shared);
        if !answered && self.paths.claims() >= CLAIMS_MAX {
            return None;
        }
        let trust = if answered {
            Trust::Proven
        } else {
            Trust::Claimed { received: 0, sent: 0, instead_of }
        };
        let id = self.paths.next_id();
        if instead_of.is_none() {
            lane.path = Some(id);
            self.reach_changed = true;
        }
        let link = self.link_of(&route);
        self.add_path(cx, Path::new(id, route, link, cx.now, trust));
        if answered {
            self.paths.activate(id);
        }
        self.reach_changed |= answered;
        Some(id)
    }

    /// Challenges what is claimed: the new address, and the old one that it would replace.
    pub(super) fn prove_claims(&mut self, cx: &mut Context<'_>) {
        let claims: Vec<_> = self
            .paths
            .iter()
            .filter(|path| path.probes.asking_since().is_none())
            .filter_map(|path| match path.trust {
                Trust::Claimed { instead_of, .. } => Some((path.id, instead_of)),
                Trust::Proven | Trust::Chosen => None,
            })
            .collect();
        for (claimed, instead_of) in claims {
            if !self.can_challenge(claimed) {
                self.meet(cx, claimed);
            }
            for id in [Some(claimed), instead_of].into_iter().flatten() {
                self.ask(cx, id);
            }
        }
    }

    /// Whether an index is left for a path: guesses at where the gateway is may have taken all.
    fn can_challenge(&self, id: PathId) -> bool {
        let path = self.paths.get(id);
        let at = self.epochs.current.as_ref().zip(path);
        at.is_some_and(|(epoch, path)| epoch.has_lane_for(path))
    }

    /// Begins to challenge a path and sends the first challenge.
    pub(super) fn ask(&mut self, cx: &mut Context<'_>, id: PathId) {
        if let Some(path) = self.paths.get_mut(id) {
            let rtt = path.rtt;
            path.probes.start(cx.now, &rtt);
            self.send_probes_due(cx);
        }
    }

    /// Sends every challenge that is due.
    pub(super) fn send_probes_due(&mut self, cx: &mut Context<'_>) {
        let due = |path: &&Path| self.probe_due(path).is_some_and(|due| due <= cx.now);
        let due: Vec<_> = self.paths.iter().filter(due).map(|path| path.id).collect();
        for id in due {
            let Some(path) = self.paths.get(id) else { continue };
            // An address is proven at full size, if its budget and its link allow that: what there
            // is of a smaller one is for data. A path that went silent is asked by small datagrams,
            // which pass where large ones no longer do.
            let is_large = path.probes.may_be_large(cx.now);
            let full = !path.is_proven() && path.allows(FLIGHT_SIZE) && is_large;
            let size = if full { FLIGHT_SIZE } else { 0 };
            let returns = self.paths.active_id() == Some(id) && !self.flows.is_up();
            self.challenge(cx, id, size);
            if returns {
                self.repeat_news(cx, id);
            }
        }
    }

    /// Sends one challenge, padded to `size` bytes.
    pub(super) fn challenge(&mut self, cx: &mut Context<'_>, id: PathId, size: usize) {
        let token = cx.random();
        let client = !self.at_gateway();
        let prefer = client && self.paths.active_id() == Some(id);
        let others_gone =
            self.paths.iter().all(|path| path.id == id || path.health == Health::Gone);
        let moves = self.paths.moves();
        let beside = client && self.paths.get(id).is_some_and(|path| path.congestion.is_some());
        let abandon_others = prefer && others_gone;
        let challenge = Challenge { prefer, abandon_others, beside, token, moves };
        let Some(path) = self.paths.get_mut(id) else { return };
        // What the budget forbids counts as asked: the next try is due as if it had left.
        path.probes.sent(cx.now, token, size, path.route.remote);
        // A probe of the MTU may well be lost: its silence tells nothing of the path.
        let owes_answer = path.mtu.surely_carries(size);
        let last_words = if prefer { self.last_words().to_vec() } else { Vec::new() };
        let sent = self.send_on(cx, id, Load::of(owes_answer), |draft| {
            Frame::Challenge(challenge).emit(draft.frames());
            for &word in &last_words {
                Frame::LastFeedback(word).emit(draft.frames());
            }
            let padding = size.saturating_sub(draft.len());
            frame::emit_padding(draft.frames(), padding);
        });
        if let Err(reason) = sent {
            cx.drops.count(reason);
        }
    }

    /// Answers a challenge, to the address that it came from and nowhere else.
    pub(super) fn take_challenge(
        &mut self,
        cx: &mut Context<'_>,
        path: Option<PathId>,
        route: Route,
        len: usize,
        challenge: Challenge,
    ) -> Result<(), DropReason> {
        let Some(id) = path else { return Err(DropReason::NoRoute) };
        let response = Response { token: challenge.token, observed: route.remote };
        self.send_frame(cx, id, &Frame::Response(response), len.min(FLIGHT_SIZE))
    }

    /// The peer wants to be reached by `id` from now on.
    ///
    /// What it says of its other paths holds for those that it had when it said so, and a challenge
    /// may be late: paths that it has taken since (their lanes have higher serials) are as they
    /// were. And it speaks of the lane that it sends by: if somebody else's address is claimed for
    /// that lane, the path that was there before is the one that it means.
    pub(super) fn prefer(
        &mut self,
        cx: &mut Context<'_>,
        path: Option<PathId>,
        abandon_others: bool,
    ) {
        let Some(id) = path else { return };
        if let Some(path) = self.paths.get_mut(id) {
            path.speaks_again();
        }
        let meant = match self.paths.get(id).map(|path| path.trust) {
            Some(Trust::Claimed { instead_of: Some(before), .. }) => [id, before],
            Some(_) | None => [id, id],
        };
        let serial = |id: PathId| self.epochs.current.as_ref().and_then(|e| e.rx_serial(id));
        let said_by = meant.into_iter().filter_map(serial).max();
        let others: Vec<_> = self
            .paths
            .iter()
            .filter(|path| !meant.contains(&path.id) && serial(path.id) <= said_by)
            .map(|path| path.id)
            .collect();
        for path in self.paths.iter_mut() {
            path.preferred_by_peer = path.id == id;
            if abandon_others && others.contains(&path.id) {
                path.health = Health::Gone;
            }
        }
        let carries = |path: &Path| path.is_proven() && path.health != Health::Gone;
        if self.paths.get(id).is_some_and(carries) {
            self.activate(cx, id);
        }
    }

    /// Gateway: a path that the peer gave up carries nothing. Who repeats the peer's word from an
    /// address of his own can make that the one in use; any other that carries takes its place.
    pub(super) fn leave_gone(&mut self, cx: &mut Context<'_>) {
        let gone = self.paths.active().is_some_and(|path| path.health == Health::Gone);
        if self.at_gateway()
            && gone
            && let Some(id) = self.best_proven(None)
        {
            self.activate(cx, id);
            self.flush_waiting(cx);
        }
    }

    /// Takes the answer to a challenge.
    pub(super) fn take_response(
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
        let Some(path) = self.paths.get_mut(id) else { return };
        let Some(answer) = path.probes.answered(cx.now, response.token, route.remote) else {
            return;
        };
        let (id, before) = (path.id, path.trust);
        if let Role::Client(connector) = &mut self.role {
            connector.note_answer(path.link, path.route.local);
        }
        let was_silent = matches!(path.health, Health::Silent { .. });
        path.proved(cx.now, answer);
        if matches!(self.role, Role::Gateway { .. }) {
            path.speaks_again();
        }
        self.reach_changed = true;
        path.natted = path.route.local.is_some_and(|local| local != response.observed.ip());
        if self.paths.active_id() == Some(id) {
            self.last_words_heard(answer.asked_at);
        }
        let is_spare = before == Trust::Chosen && self.paths.active_id() != Some(id);
        if is_spare || (was_silent && self.is_shared(Some(id))) {
            self.lose_flight(cx, id, answer.asked_at);
        }
        self.forgive(id);
        self.repeat_share(cx, id, answer.asked_at);
        self.drop_forged(cx, id, answer);
        if let Trust::Claimed { instead_of: Some(old), .. } = before {
            self.replace_path(cx, old, id);
        }
        let Some(path) = self.paths.get(id) else { return };
        let (preferred, good) = (path.preferred_by_peer, path.health == Health::Good);
        let settled = path.mtu.is_settled();
        let is_active_able = self.paths.active().is_some_and(Path::is_able);
        if preferred || (good && (self.is_better(id) || !is_active_able)) {
            self.activate(cx, id);
        } else if before == Trust::Chosen && self.paths.active_id() == Some(id) {
            self.tell_moved(cx, id);
        }
        // A path that was only asked in small is not to carry anything yet.
        let carries = self.paths.active_id() == Some(id) || answer.size >= FLIGHT_SIZE;
        if carries && !settled {
            self.search_mtu(cx, id);
        }
        self.observed_by_gateway(id, response.observed);
        self.ask_nat(cx, id);
        self.control.hurry(cx.now);
        self.send_control(cx);
        self.flush_waiting(cx);
    }

    /// A path has answered: what it owed before is forgiven; but for data on one that carries a
    /// share: where as much is on its way as may be, nothing more leaves that would be missed.
    pub(super) fn forgive(&mut self, id: PathId) {
        let is_shared = self.is_shared(Some(id));
        if let Some(epoch) = &mut self.epochs.current
            && let Some(lane) = epoch.tx.iter_mut().find(|lane| lane.path == id)
        {
            lane.flight.forgive(is_shared);
        }
    }

    /// An address that still answers, after another was claimed in its place, was never left.
    fn drop_forged(&mut self, cx: &mut Context<'_>, id: PathId, answer: Answer) {
        let forged = |path: &&Path| match path.trust {
            Trust::Claimed { instead_of, .. } => {
                instead_of == Some(id) && answer.asked_at >= path.since
            }
            Trust::Proven | Trust::Chosen => false,
        };
        let forged: Vec<_> = self.paths.iter().filter(forged).map(|path| path.id).collect();
        for id in forged {
            self.remove_path(cx, id);
        }
    }

    /// The path `new` is `old` with another address: its lanes go over to it.
    fn replace_path(&mut self, cx: &mut Context<'_>, old: PathId, new: PathId) {
        for epoch in self.epochs.receiving() {
            for lane in epoch.rx.values_mut().filter(|lane| lane.path == Some(old)) {
                lane.path = Some(new);
            }
        }
        let was_active = self.paths.active_id() == Some(old);
        let preferred = self.paths.get(old).is_some_and(|path| path.preferred_by_peer);
        let before = self.paths.get_mut(old).map(|path| {
            path.health = Health::Gone;
            (path.route.remote.ip(), path.congestion.take())
        });
        if let Some(path) = self.paths.get_mut(new) {
            path.preferred_by_peer |= preferred;
            if let Some((ip, Some(controller))) = before {
                path.set_shared(cx.now, true);
                self.bond.replaced_at = Some(cx.now);
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
    }

    /// Data goes by `id` from now on.
    pub(super) fn activate(&mut self, cx: &mut Context<'_>, id: PathId) {
        if self.paths.active_id() == Some(id) {
            return;
        }
        self.distrust_silent(cx.now, id);
        self.paths.activate(id);
        self.reach_changed = true;
        self.tell_moved(cx, id);
        self.forget_gone(cx);
        if !self.at_gateway() {
            // Says "reach me here", and again until that is answered, whatever was asked before.
            if let Some(path) = self.paths.get_mut(id) {
                path.probes = Probes::default();
                if let Role::Client(connector) = &mut self.role
                    && path.is_proven()
                    && path.transport() == Transport::Udp
                {
                    connector.followed_to = Some(path.route.remote);
                }
            }
            self.ask(cx, id);
            self.begin_turns();
            self.stand_by(cx);
        }
        if self.paths.get_mut(id).is_some_and(|path| path.taken_up(cx.now)) {
            self.search_mtu(cx, id);
        }
    }

    fn tell_moved(&self, cx: &mut Context<'_>, id: PathId) {
        if let Some(path) = self.paths.get(id) {
            let took = cx.now.saturating_since(path.since);
            cx.tell(Event::Moved { peer: self.key, remote: path.route.remote, took });
        }
    }

    /// Sends the next probe of a path's MTU, if one is wanted.
    pub(super) fn search_mtu(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(path) = self.paths.get_mut(id) else { return };
        if !path.is_able() {
            return;
        }
        path.mtu_due = None;
        if let Some(size) = path.mtu.probe(cx.now) {
            path.mtu_due = Some(cx.now + path.rtt.timeout() * 2);
            self.challenge(cx, id, size);
        }
    }

    /// Whether a path leads by `socket`, or an attempt may be answered there.
    pub(crate) fn uses(&self, socket: SocketId) -> bool {
        let opened = match &self.role {
            Role::Client(connector) => connector.has_socket(socket),
            Role::Gateway { .. } => false,
        };
        opened || self.paths.uses(socket)
    }

    /// A socket of this node has failed: the paths by it are gone, and attempts by it will not be
    /// answered.
    pub(crate) fn socket_failed(&mut self, cx: &mut Context<'_>, socket: SocketId) {
        let by_it = self.paths.iter().filter(|path| path.route.socket == socket);
        let lost: Vec<_> = by_it.map(|path| path.id).collect();
        let beside =
            self.paths.iter().filter(|path| lost.contains(&path.id) && self.is_spare(path));
        let beside: Vec<_> = beside
            .filter_map(|path| Some((path.link?, path.route.local?.is_ipv4())))
            .filter(|_| socket.transport() == Transport::Stream)
            .collect();
        for &id in &lost {
            self.lose_path(cx, id);
        }
        if let Role::Client(connector) = &mut self.role {
            connector.forget_socket(cx.now, socket, cx.indices);
        }
        if !lost.is_empty() && self.paths.active().is_none_or(|path| path.health == Health::Gone) {
            self.migrate(cx);
        }
        if socket.transport() == Transport::Stream {
            // What a UDP socket could not do may pass; a stream does not come back.
            lost.iter().for_each(|&id| self.remove_path(cx, id));
        }
        // Nor does one that was to be ready: another way by that link is.
        if let (Role::Client(connector), false) = (&mut self.role, beside.is_empty()) {
            beside.into_iter().for_each(|of| connector.next_turn(of));
            self.stand_by(cx);
        }
        self.forget_gone(cx);
        self.refresh_state(cx);
    }

    /// Gateway: its listening sockets can send from these addresses now. Paths from others are
    /// gone but for their remote end: the kernel chooses the source, and the client is told by a
    /// challenge from there. Where the one in use leads to the same host, a spare one is let go.
    pub(crate) fn locals_changed(&mut self, cx: &mut Context<'_>, locals: &[std::net::IpAddr]) {
        if !self.at_gateway() {
            return;
        }
        let mut moved = Vec::new();
        for path in self.paths.iter_mut() {
            if path.route.local.is_some_and(|local| !locals.contains(&local)) {
                path.route.local = None;
                moved.push(path.id);
            }
        }
        let host = |path: &Path| path.route.remote.ip();
        let (active, there) = (self.paths.active_id(), self.paths.active().map(host));
        for id in moved {
            let spare = Some(id) != active && self.paths.get(id).map(host) == there;
            if spare {
                self.remove_path(cx, id);
            } else {
                self.ask(cx, id);
            }
        }
        self.refresh_state(cx);
    }

    /// Client: announces itself by a path that it just took: two challenges, one of them the first
    /// MTU probe, and padding up to the budget that the gateway needs to answer with data.
    pub(super) fn send_first_flight(&mut self, cx: &mut Context<'_>, id: PathId) {
        self.ask(cx, id);
        if let Some(path) = self.paths.get_mut(id)
            && let Some(size) = path.mtu.probe(cx.now)
        {
            path.mtu_due = Some(cx.now + path.rtt.timeout() * 2);
            self.challenge(cx, id, size);
        }
        self.pad_first_flight(cx, id);
    }

    /// Client: the rest of a first flight, which is the gateway's budget until it has the answer to
    /// a challenge of its own.
    pub(super) fn pad_first_flight(&mut self, cx: &mut Context<'_>, id: PathId) {
        for _ in 2..FLIGHT {
            let sent = self.send_on(cx, id, Load::Quiet, |draft| {
                let padding = FLIGHT_SIZE.saturating_sub(draft.len());
                frame::emit_padding(draft.frames(), padding);
            });
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
    }

    fn link_of(&self, route: &Route) -> Option<LinkId> {
        self.paths.iter().find(|path| path.route.socket == route.socket).and_then(|path| path.link)
    }

    pub(super) fn add_path(&mut self, cx: &mut Context<'_>, path: Path) {
        if let Some(given_up) = self.paths.add(path) {
            self.clean_up_after(cx, &given_up);
        }
    }

    pub(super) fn remove_path(&mut self, cx: &mut Context<'_>, id: PathId) {
        if let Some(path) = self.paths.remove(id) {
            self.clean_up_after(cx, &path);
        }
    }

    fn clean_up_after(&mut self, cx: &mut Context<'_>, path: &Path) {
        let id = path.id;
        if path.health != Health::Good {
            self.inherit(cx, id);
        }
        if let Some(epoch) = &mut self.epochs.current {
            epoch.park(cx.memory.blocks(), path);
        }
        if self.paths.active_id().is_none()
            && let Some(proven) = self.best_proven(None)
        {
            self.activate(cx, proven);
        }
        if path.health != Health::Good {
            self.rescue_from_forgotten(cx, id);
        }
        self.close_unused_sockets(cx);
    }

    /// Client: removes paths that are gone, but for the active one while nothing took its place. A
    /// gateway keeps them: the peer may turn out to be there after all.
    pub(super) fn forget_gone(&mut self, cx: &mut Context<'_>) {
        if self.at_gateway() {
            return;
        }
        let active = self.paths.active_id();
        let gone = |path: &&Path| path.health == Health::Gone && Some(path.id) != active;
        let gone: Vec<_> = self.paths.iter().filter(gone).map(|path| path.id).collect();
        for id in gone {
            self.remove_path(cx, id);
        }
    }
}
