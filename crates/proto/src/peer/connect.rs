//! A client's handshakes: rounds over every candidate, each its own exchange, until one is
//! answered.
//!
//! A first listed address, link or family may be dead, so candidates are raced, a little apart and
//! best first. Old attempts stay answerable while new ones are made: on a slow path the answer
//! comes after the next attempt.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::connector::{Attempt, Candidate, OpenSocket, Parts, Round, STREAMS_MAX};
use super::epoch::{Agreed, Epoch};
use super::epochs::PENDING_TIME;
use super::index::EpochId;
use super::{Context, Event, Peer, PeerState, Role, StreamTo};
use crate::crypto::{EpochKeys, Hello, Initiator, Status, Welcome};
use crate::error::{CloseCode, DropReason};
use crate::id::{LinkId, Transport};
use crate::outbox::Route;
use crate::path::probe::Probes;
use crate::path::{Health, Path, PathId, Trust};
use crate::time::{Duration, Instant};
use crate::wire::handshake::{FEATURE_PARTS, RESPONSE_LEN, ResponsePart};

/// Time between the attempts of one round to different addresses of the gateway.
const STAGGER: Duration = Duration::from_millis(30);
/// Time between attempts to one address on different links. Many links may be down, and each delays
/// the ones behind it by this time. At half of it, ten links send 30 KB within 15 ms.
const STAGGER_LINKS: Duration = Duration::from_millis(3);
/// Time that UDP has for an answer before streams are tried beside it: setting one up costs a proxy
/// or a NAT more than a datagram does.
const STREAMS_AFTER: Duration = Duration::from_millis(250);
/// Pause after the first round; doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(400);
/// The longest pause of the first minutes, after which a session that works is not asked for.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Later the pause is this part of the time tried so far (2 %),
const PAUSE_PART: u32 = 50;
/// and this at most.
const PAUSE_LAST: Duration = Duration::from_secs(60);
/// A pause is up to this part longer, at random: a thousand clients of a gateway that comes back
/// must not all ask in one instant, and again in the next.
const PAUSE_SCATTER: u32 = 4;
/// Attempts that can be answered at once.
const ATTEMPTS_MAX: usize = 32;
/// How long an attempt can be answered: the gateway forgets its own answer a little later
/// ([`PENDING_TIME`]), and keys that only one end has are of no use.
const ANSWER_TIME: Duration = Duration::from_secs(10);

const _: () = assert!(ANSWER_TIME.as_secs() < PENDING_TIME.as_secs());

impl Peer {
    /// The user wants a session with the peer, a gateway.
    pub(crate) fn want(&mut self, cx: &mut Context<'_>) {
        if let Role::Client(connector) = &mut self.role {
            connector.set_wanted(true);
        }
        self.connect(cx);
    }

    /// Asks for a session, by every candidate. No effect while already asking, while there is
    /// no link, or when no session is wanted.
    pub(super) fn connect(&mut self, cx: &mut Context<'_>) {
        let Role::Client(connector) = &mut self.role else { return };
        if !connector.wanted || connector.is_trying() || connector.links.is_empty() {
            return;
        }
        connector.round = Some(Round::new(cx.now, PAUSE_FIRST, VecDeque::new()));
        if matches!(self.state, PeerState::Down(_) | PeerState::Resting) {
            self.set_state(cx, PeerState::Unestablished);
        }
        self.attempt_due(cx);
    }

    /// Asks at once, as if for the first time: the links changed.
    pub(super) fn reconnect(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, PeerState::Down(_)) {
            return;
        }
        if let Role::Client(connector) = &mut self.role
            && let Some(round) = &mut connector.round
        {
            (round.next, round.pause) = (cx.now, PAUSE_FIRST);
            round.queue.clear();
        }
        self.connect(cx);
        self.attempt_due(cx);
    }

    /// Replaces the gateway's addresses.
    pub(crate) fn set_remotes(&mut self, cx: &mut Context<'_>, remotes: Vec<SocketAddr>) {
        if let Role::Client(connector) = &mut self.role
            && connector.remotes != remotes
        {
            connector.remotes = remotes;
            self.note_home();
            self.begin_turns();
            self.stand_by(cx);
            self.try_new_ways(cx);
        }
    }

    /// Replaces the streams by which the gateway may be reached, `alone` or beside UDP.
    pub(crate) fn set_streams(
        &mut self,
        cx: &mut Context<'_>,
        streams: Vec<StreamTo>,
        alone: bool,
    ) {
        if let Role::Client(connector) = &mut self.role
            && (&connector.streams, connector.streams_alone) != (&streams, alone)
        {
            (connector.streams, connector.streams_alone) = (streams, alone);
            self.try_new_ways(cx);
            self.follow_by_stream(cx);
        }
    }

    /// Data goes by a stream to where the gateway is not reached any more: it is asked by the new
    /// ones at once, and the old one carries until it has answered.
    fn follow_by_stream(&mut self, cx: &mut Context<'_>) {
        let Role::Client(connector) = &mut self.role else { return };
        let stale = self.paths.active().is_some_and(|path| {
            let to = path.route.remote;
            path.transport() == Transport::Stream
                && connector.streams.iter().all(|s| s.remote != to)
        });
        if !stale || connector.is_trying() || !connector.wanted {
            return;
        }
        let queue = connector.stream_candidates().take(STREAMS_MAX).collect();
        // Beyond the first pause, whose round asks by the path in use only.
        connector.round = Some(Round::new(cx.now, PAUSE_FIRST * 2, queue));
        self.attempt_due(cx);
    }

    /// There are new ways to the gateway: whoever waits for one tries them at once.
    fn try_new_ways(&mut self, cx: &mut Context<'_>) {
        if self.paths.active().is_some_and(|path| path.health == Health::Good) {
            return;
        }
        if self.epochs.current.is_some() {
            self.try_elsewhere(cx);
        }
        let Role::Client(connector) = &self.role else { return };
        if self.epochs.current.is_none() || connector.is_trying() {
            self.reconnect(cx);
        }
    }

    /// Asks for new keys when the old are due and traffic flows.
    pub(super) fn rekey_if_due(&mut self, cx: &mut Context<'_>) {
        if self.epochs.current.as_ref().is_some_and(|epoch| epoch.wants_rekey(cx.now)) {
            self.connect(cx);
        }
    }

    /// Client: a path of the session has answered: there is no need for another session. An answer
    /// that is still under way would take the session to another socket, and what is in flight to
    /// the old one would be lost.
    pub(super) fn call_off(&mut self, cx: &mut Context<'_>) {
        let is_due = self.needs_keys(cx.now);
        if let Role::Client(connector) = &mut self.role
            && connector.is_trying()
            && !is_due
        {
            connector.stop(cx.indices);
            self.close_unused_sockets(cx);
        }
    }

    /// Whether there are no keys, or they are old.
    fn needs_keys(&self, now: Instant) -> bool {
        self.epochs.current.as_ref().is_none_or(|epoch| epoch.wants_rekey(now))
    }

    /// Makes the attempts that are due.
    pub(super) fn attempt_due(&mut self, cx: &mut Context<'_>) {
        let works = self.paths.active().filter(|path| path.is_able());
        let works = works.map(|path| (path.link, path.route));
        loop {
            let epoch = EpochId(self.next_epoch + 1);
            let Role::Client(connector) = &mut self.role else { return };
            let Some(round) = &mut connector.round else { return };
            if round.next > cx.now {
                return;
            }
            if round.queue.is_empty() {
                if round.pause >= PAUSE_MAX && works.is_some() {
                    // The session works; the next traffic asks again.
                    connector.stop(cx.indices);
                    self.close_unused_sockets(cx);
                    return;
                }
                let queue: VecDeque<_> = match works {
                    Some((link, route)) if round.pause == PAUSE_FIRST => {
                        connector.candidate_of(link, &route).into_iter().collect()
                    }
                    Some(_) | None => {
                        let asked = round.asked;
                        round.asked = asked.wrapping_add(1);
                        connector.round_candidates(cx.now, asked)
                    }
                };
                let Some(round) = &mut connector.round else { return };
                if queue.is_empty() {
                    round.next = cx.now + round.pause;
                    round.pause = (round.pause * 2).min(PAUSE_MAX);
                    return;
                }
                round.queue = queue;
            }
            let Some(round) = &mut connector.round else { return };
            let Some(candidate) = round.queue.pop_front() else { return };
            round.next =
                cx.now + round.queue.front().map_or(STAGGER, |next| pause(&candidate, next));
            if round.queue.is_empty() {
                round.next = cx.now + scattered(cx, round.pause);
                let tried = cx.now.saturating_since(round.started);
                let longest = (tried / PAUSE_PART).clamp(PAUSE_MAX, PAUSE_LAST);
                round.pause = (round.pause * 2).min(longest);
            }
            self.next_epoch = epoch.0;
            let in_use = works.filter(|(link, route)| {
                let Role::Client(connector) = &self.role else { return false };
                connector.candidate_of(*link, route) == Some(candidate)
            });
            self.attempt(cx, epoch, candidate, in_use.map(|(_, route)| route));
        }
    }

    /// Client: the gateway speaks by the path `id`, for which no index is left, so only a handshake
    /// can answer there. If this end asks for a session anyway it asks there now: its own pauses
    /// may be a minute long by now, and are for when nothing is heard.
    pub(super) fn meet(&mut self, cx: &mut Context<'_>, id: PathId) {
        let (Role::Client(connector), Some(path)) = (&self.role, self.paths.get(id)) else {
            return;
        };
        let route = path.route;
        let known = |way: &Candidate| connector.candidates().any(|known| known == *way);
        let way = connector.candidate_of(path.link, &route).filter(known);
        let lately = connector.last_attempt(&route).is_some_and(|at| cx.now < at + PAUSE_MAX);
        if let Some(way) = way.filter(|_| connector.is_trying() && !lately) {
            let epoch = self.next_epoch();
            self.attempt(cx, epoch, way, Some(route));
        }
    }

    /// One attempt: both halves of message 1.
    fn attempt(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        candidate: Candidate,
        in_use: Option<Route>,
    ) {
        let features = self.features_for(&candidate, in_use);
        let Role::Client(connector) = &mut self.role else { return };
        connector.note_asked(cx.now, &candidate);
        let route = match in_use {
            Some(route) => route,
            None => Route {
                socket: connector.attempt_socket(cx, candidate),
                local: Some(candidate.local),
                remote: candidate.remote,
            },
        };
        let indices = cx.indices.issue_first(cx.rng, self.slot, epoch);
        let counter = connector.counter;
        connector.counter = connector.counter.saturating_add(1);
        cx.tell(Event::HandshakeCounter { peer: self.key, counter });
        let hello = Hello {
            counter,
            features,
            floor: cx.config.floor,
            has_aes: cx.config.has_aes,
            token: connector.token.clone(),
            indices,
        };
        let started =
            Initiator::start(cx.rng, &cx.config.secret, self.key, self.psk.as_deref(), &hello);
        let Ok((mut initiator, _)) = started else {
            cx.indices.revoke(indices); // the key was checked when the peer was added
            return;
        };
        let cookie = connector.cookie(cx.now, &route);
        let messages = match cookie {
            Some(cookie) => initiator.add_cookie(cookie),
            None => initiator.messages(),
        };
        cx.send_clear(route, &messages.a);
        cx.send_clear(route, &messages.b);
        let attempt = Attempt {
            epoch,
            repeated: false,
            parts: Parts::default(),
            initiator,
            indices: indices.to_vec(),
            route,
            candidate,
            sent_at: cx.now,
        };
        let Some(round) = &mut connector.round else { return };
        round.attempts.push_back(attempt);
        let over = |attempt: &Attempt| cx.now.saturating_since(attempt.sent_at) >= ANSWER_TIME;
        let mut closes = false;
        while round.attempts.len() > ATTEMPTS_MAX || round.attempts.front().is_some_and(over) {
            let Some(oldest) = round.attempts.pop_front() else { break };
            cx.indices.revoke(oldest.indices);
            closes = true;
        }
        if closes {
            self.close_unused_sockets(cx); // links come and go while nobody answers
        }
    }

    /// The features that a handshake asks for. It asks for the response in parts if the path in use
    /// is known to carry less, and otherwise in every second round. A whole response arrives more
    /// often if datagrams are lost or forged. On a path that carries less, only parts arrive.
    fn features_for(&self, way: &Candidate, in_use: Option<Route>) -> u32 {
        let Role::Client(connector) = &self.role else { return 0 };
        let path = in_use.and_then(|route| self.paths.by_route(&route));
        let asked = connector.round.as_ref().map_or(0, |round| round.asked);
        let in_parts = match path {
            Some(path) if path.is_able() => path.mtu.datagram() < RESPONSE_LEN,
            Some(_) | None => asked.is_multiple_of(2) && asked > 0,
        };
        if in_parts && way.transport() == Transport::Udp { FEATURE_PARTS } else { 0 }
    }

    /// Takes a part of the response to an attempt.
    pub(crate) fn receive_part(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        part: ResponsePart<'_>,
    ) -> Result<(), DropReason> {
        let Role::Client(connector) = &mut self.role else {
            return Err(DropReason::BadHandshake);
        };
        let attempts = connector.round.iter_mut().flat_map(|round| &mut round.attempts);
        let attempt = attempts.into_iter().find(|attempt| attempt.epoch == epoch);
        let responses = attempt.ok_or(DropReason::BadHandshake)?.parts.take(part);
        let mut taken = Ok(());
        for response in responses {
            taken = self.receive_response(cx, epoch, &response);
            if taken.is_ok() {
                break;
            }
        }
        taken
    }

    /// Takes a cookie reply: the attempt is sent again with the cookie, once.
    pub(crate) fn receive_cookie(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let Role::Client(connector) = &mut self.role else {
            return Err(DropReason::BadHandshake);
        };
        let attempts = connector.round.iter_mut().flat_map(|round| &mut round.attempts);
        let attempt = attempts.into_iter().find(|attempt| attempt.epoch == epoch);
        let attempt = attempt.ok_or(DropReason::BadHandshake)?;
        let cookie = attempt.initiator.open_cookie_reply(bytes)?;
        let route = attempt.route;
        if !std::mem::replace(&mut attempt.repeated, true) {
            let messages = attempt.initiator.add_cookie(&cookie);
            cx.send_clear(route, &messages.a);
            cx.send_clear(route, &messages.b);
        }
        connector.keep_cookie(cx.now, route, cookie);
        Ok(())
    }

    /// Takes the answer to an attempt.
    pub(crate) fn receive_response(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let Role::Client(connector) = &mut self.role else {
            return Err(DropReason::BadHandshake);
        };
        let round = connector.round.as_mut().ok_or(DropReason::BadHandshake)?;
        let place = round.attempts.iter().position(|attempt| attempt.epoch == epoch);
        let place = place.ok_or(DropReason::BadHandshake)?;
        let attempt = round.attempts.get_mut(place).ok_or(DropReason::BadHandshake)?;
        if cx.now.saturating_since(attempt.sent_at) >= ANSWER_TIME {
            return Err(DropReason::BadHandshake);
        }
        let (welcome, keys) = attempt.initiator.finish(bytes)?;
        let Some(attempt) = round.attempts.remove(place) else { return Ok(()) };
        // The path in use is heard again, and data goes there: that is not lost for a session that
        // is not needed, unless the path turns out not to answer.
        let returns = self.return_due().is_some_and(|due| cx.now < due);
        match keys {
            Some(_) if returns && !self.needs_keys(cx.now) => cx.indices.revoke(attempt.indices),
            Some(keys) => self.install(cx, attempt, &welcome, keys),
            None => self.refused(cx, attempt, welcome.status),
        }
        self.refresh_state(cx);
        Ok(())
    }

    /// The gateway accepted: the new keys are used at once.
    fn install(
        &mut self,
        cx: &mut Context<'_>,
        attempt: Attempt,
        welcome: &Welcome,
        keys: EpochKeys,
    ) {
        let Role::Client(connector) = &mut self.role else { return };
        let started = connector.round.as_ref().map_or(attempt.sent_at, |round| round.started);
        connector.stop(cx.indices);
        connector.token = None;
        connector.refused = None;
        connector.lost = None;
        connector.heeded = None;
        let (route, epoch) = (attempt.route, attempt.epoch);
        let agreed = Agreed {
            id: epoch,
            keys,
            initiator: true,
            origin: route,
            ours: attempt.indices,
            theirs: welcome.indices.to_vec(),
        };
        self.release_previous(cx);
        self.epochs.install(cx.now, Epoch::new(cx.now, agreed), cx.indices);
        let first = self.established.is_none();
        self.established.get_or_insert(cx.now);
        self.heard_at = cx.now;
        let id = self.path_of_answer(cx, route, attempt.candidate.link, attempt.sent_at);
        if let Some(path) = self.paths.get_mut(id) {
            path.natted = route.local.is_some_and(|local| local != welcome.observed.ip());
        }
        self.forget_gone(cx);
        self.begin_epoch(cx);
        self.introduce(cx);
        let took = Some(cx.now.saturating_since(started));
        cx.tell(Event::Established { peer: self.key, first, took });
        self.confirm(cx, id);
        self.close_unused_sockets(cx);
        self.take_better(cx);
        self.flush_waiting(cx);
        self.stand_by(cx);
        self.repeat_shares(cx);
    }

    /// The path by which the answer came: it carries, and the gateway is there.
    fn path_of_answer(
        &mut self,
        cx: &mut Context<'_>,
        route: Route,
        link: LinkId,
        sent_at: Instant,
    ) -> PathId {
        let id = match self.paths.by_route(&route) {
            Some(path) => path.id,
            None => {
                let id = self.paths.next_id();
                self.add_path(cx, Path::new(id, route, Some(link), cx.now, Trust::Proven));
                self.replace_twins(cx, id);
                id
            }
        };
        if let Role::Client(connector) = &mut self.role {
            connector.note_answer(Some(link), route.local);
        }
        // One that was only begun, as after a move, may lead nowhere; this one was just answered.
        let is_active_able = self.paths.active().is_some_and(Path::is_able);
        if let Some(path) = self.paths.get_mut(id) {
            path.trust = Trust::Proven;
            path.speaks_again();
            path.answers(cx.now);
            path.heard_at = Some(cx.now);
            path.probes.stop();
            path.rtt.sample(cx.now.saturating_since(sent_at), Duration::ZERO);
        }
        if !is_active_able {
            self.paths.activate(id);
        }
        id
    }

    /// The answer came by a socket of its own: what was there between the same two addresses does
    /// not carry, or it would have been asked by it. Where a path was asked that was there already,
    /// this says nothing of others between these two: they may be meant to carry beside it.
    fn replace_twins(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(new) = self.paths.get(id) else { return };
        let place =
            |path: &Path| (path.link, path.route.local, path.route.remote, path.transport());
        let same = |path: &&Path| path.id != id && place(path) == place(new);
        let twins: Vec<_> = self.paths.iter().filter(same).map(|path| path.id).collect();
        for twin in twins {
            self.remove_path(cx, twin);
        }
    }

    /// Shows the gateway that the keys arrived, and probes the path's MTU while at it. What
    /// confirms is small: it must arrive even where large datagrams do not.
    fn confirm(&mut self, cx: &mut Context<'_>, id: PathId) {
        self.ask(cx, id);
        self.search_mtu(cx, id);
        self.insist(cx, id);
        self.send_control(cx);
    }

    /// The gateway takes the path `answered` for the one in use from now on. If data goes by
    /// another that carries, it is told so under the new keys, whatever was asked before.
    fn insist(&mut self, cx: &mut Context<'_>, answered: PathId) {
        if let Some(id) = self.paths.active_id().filter(|&id| id != answered)
            && let Some(path) = self.paths.get_mut(id)
        {
            path.probes = Probes::default();
            self.ask(cx, id);
        }
    }

    /// The gateway refused. Some refusals pass with time, others need a person.
    fn refused(&mut self, cx: &mut Context<'_>, attempt: Attempt, status: Status) {
        cx.indices.revoke(attempt.indices);
        let Role::Client(connector) = &mut self.role else { return };
        connector.refused = Some(status);
        match status {
            Status::StaleCounter { highest } => {
                connector.counter = connector.counter.max(highest.saturating_add(1));
                if let Some(round) = &mut connector.round {
                    round.next = cx.now;
                }
                self.attempt_due(cx);
            }
            Status::Accepted | Status::Busy | Status::Other(_) => {}
            Status::NotEnrolled
            | Status::TokenUsed
            | Status::TokenExpired
            | Status::TokenUnknown
            | Status::Revoked
            | Status::Unsupported => {
                // A gateway that refuses has no session for us: to go on asking by the old one
                // would ask again at every round trip.
                connector.stop(cx.indices);
                cx.tell(Event::Refused { peer: self.key, status });
                self.forget_session(cx);
                self.close_unused_sockets(cx);
                let revoked = status == Status::Revoked;
                let code = if revoked { CloseCode::Revoked } else { CloseCode::Requested };
                self.set_state(cx, PeerState::Down(code));
            }
        }
    }

    /// Closes the sockets that neither a path nor an attempt uses.
    pub(super) fn close_unused_sockets(&mut self, cx: &mut Context<'_>) {
        let Role::Client(connector) = &mut self.role else { return };
        let mut kept = std::mem::take(&mut connector.sockets);
        let lost = connector.lost.map(|lost| lost.route.socket);
        kept.retain(|&OpenSocket { socket, .. }| {
            let used = self.paths.uses(socket)
                || connector.is_attempting_from(socket)
                || lost == Some(socket);
            if !used {
                cx.tell(Event::CloseSocket { socket });
            }
            used
        });
        connector.sockets = kept;
    }
}

/// The time between `this` attempt of a round and the `next` one.
fn pause(this: &Candidate, next: &Candidate) -> Duration {
    match (this.stream, next.stream) {
        (None, Some(_)) => STREAMS_AFTER,
        (None, None) if this.remote == next.remote => STAGGER_LINKS,
        (None | Some(_), None) | (Some(_), Some(_)) => STAGGER,
    }
}

/// A pause of its own length and a random part more.
fn scattered(cx: &mut Context<'_>, pause: Duration) -> Duration {
    const STEPS: u32 = 1_024;
    #[expect(clippy::cast_possible_truncation, reason = "below STEPS")]
    let step = (cx.random() % u64::from(STEPS)) as u32;
    pause + pause / PAUSE_SCATTER * step / STEPS
}
