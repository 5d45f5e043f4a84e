//! A client's handshakes: rounds over every candidate, each its own exchange, until one is
//! answered.
//!
//! A first listed address, link or family may be dead, so candidates are raced, a little apart and
//! best first. Old attempts stay answerable while new ones are made: on a slow path the answer
//! comes after the next attempt.

use std::collections::VecDeque;

use super::paths::candidate::Candidate;
use super::paths::handshakes::{Attempt, Parts, Round};
use super::{Context, Event, PeerState, Side, Tunnel};
use crate::crypto::{Hello, Initiator};
use crate::error::DropReason;
use crate::id::Transport;
use crate::outbox::Route;
use crate::path::PathId;
use crate::session::epochs::PENDING_TIME;
use crate::session::index::EpochId;
use crate::time::{Duration, Instant};
use crate::wire::handshake::{FEATURE_PARTS, RESPONSE_LEN};

/// Time between the attempts of one round to different addresses of the gateway.
const STAGGER: Duration = Duration::from_millis(30);
/// Time between attempts to one address on different links. Many links may be down, and each delays
/// the ones behind it by this time. At half of it, ten links send 30 KB within 15 ms.
const STAGGER_LINKS: Duration = Duration::from_millis(3);
/// Time that UDP has for an answer before streams are tried beside it: setting one up costs a proxy
/// or a NAT more than a datagram does.
const STREAMS_AFTER: Duration = Duration::from_millis(250);
/// Pause after the first round; doubles with each.
pub(crate) const PAUSE_FIRST: Duration = Duration::from_millis(400);
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
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(10);

const _: () = assert!(ANSWER_TIME.as_secs() < PENDING_TIME.as_secs());

impl Tunnel {
    /// The user wants a session with the peer, a gateway.
    pub(crate) fn want(&mut self, cx: &mut Context<'_>) {
        if let Side::Client(connector) = &mut self.paths.side {
            connector.handshakes.set_wanted(true);
        }
        self.connect(cx);
    }

    /// Asks for a session, by every candidate. No effect while already asking, while there is
    /// no link, or when no session is wanted.
    pub(crate) fn connect(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &mut self.paths.side else { return };
        if !connector.handshakes.wanted
            || connector.handshakes.is_trying()
            || connector.candidates.links().is_empty()
        {
            return;
        }
        connector.handshakes.round = Some(Round::new(cx.now, PAUSE_FIRST, VecDeque::new()));
        if matches!(self.state, PeerState::Down(_) | PeerState::Resting) {
            self.set_state(cx, PeerState::Unestablished);
        }
        self.attempt_due(cx);
    }

    /// Asks at once, as if for the first time: the links changed.
    pub(crate) fn reconnect(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, PeerState::Down(_)) {
            return;
        }
        if let Side::Client(connector) = &mut self.paths.side
            && let Some(round) = &mut connector.handshakes.round
        {
            (round.next, round.pause) = (cx.now, PAUSE_FIRST);
            round.queue.clear();
        }
        self.connect(cx);
        self.attempt_due(cx);
    }

    /// Gives up the exchanges under way, whose answers would bring keys. Returns whether there were
    /// any, or there are keys.
    pub(crate) fn forget_attempts(&mut self, cx: &mut Context<'_>) -> bool {
        let Side::Client(connector) = &mut self.paths.side else { return !self.epochs.is_empty() };
        let was_trying = connector.handshakes.is_trying();
        connector.handshakes.stop(cx.indices);
        was_trying || !self.epochs.is_empty()
    }

    /// Asks for new keys when the old are due and traffic flows.
    pub(crate) fn rekey_if_due(&mut self, cx: &mut Context<'_>) {
        if self.epochs.current.as_ref().is_some_and(|epoch| epoch.wants_rekey(cx.now)) {
            self.connect(cx);
        }
    }

    /// Client: a path of the session has answered: there is no need for another session. An answer
    /// that is still under way would take the session to another socket, and what is in flight to
    /// the old one would be lost.
    pub(crate) fn call_off(&mut self, cx: &mut Context<'_>) {
        let is_due = self.needs_keys(cx.now);
        if let Side::Client(connector) = &mut self.paths.side
            && connector.handshakes.is_trying()
            && !is_due
        {
            connector.handshakes.stop(cx.indices);
            self.paths.close_unused_sockets(cx);
        }
    }

    /// Whether there are no keys, or they are old.
    pub(crate) fn needs_keys(&self, now: Instant) -> bool {
        self.epochs.current.as_ref().is_none_or(|epoch| epoch.wants_rekey(now))
    }

    /// Makes the attempts that are due.
    pub(crate) fn attempt_due(&mut self, cx: &mut Context<'_>) {
        let works = self.paths.list.active().filter(|path| path.is_able());
        let works = works.map(|path| (path.link, path.route));
        loop {
            let epoch = EpochId(self.next_epoch + 1);
            let Side::Client(connector) = &mut self.paths.side else { return };
            let Some(round) = &mut connector.handshakes.round else { return };
            if round.next > cx.now {
                return;
            }
            if round.queue.is_empty() {
                if round.pause >= PAUSE_MAX && works.is_some() {
                    // The session works; the next traffic asks again.
                    connector.handshakes.stop(cx.indices);
                    self.paths.close_unused_sockets(cx);
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
                let Some(round) = &mut connector.handshakes.round else { return };
                if queue.is_empty() {
                    round.next = cx.now + round.pause;
                    round.pause = (round.pause * 2).min(PAUSE_MAX);
                    return;
                }
                round.queue = queue;
            }
            let Some(round) = &mut connector.handshakes.round else { return };
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
                let Side::Client(connector) = &self.paths.side else { return false };
                connector.candidate_of(*link, route) == Some(candidate)
            });
            self.attempt(cx, epoch, candidate, in_use.map(|(_, route)| route));
        }
    }

    /// Client: the gateway speaks by the path `id`, for which no index is left, so only a handshake
    /// can answer there. If this end asks for a session anyway it asks there now: its own pauses
    /// may be a minute long by now, and are for when nothing is heard.
    pub(crate) fn meet(&mut self, cx: &mut Context<'_>, id: PathId) {
        let (Side::Client(connector), Some(path)) = (&self.paths.side, self.paths.list.get(id))
        else {
            return;
        };
        let route = path.route;
        let known = |way: &Candidate| connector.candidates.udp().any(|known| known == *way);
        let way = connector.candidate_of(path.link, &route).filter(known);
        let lately =
            connector.handshakes.last_attempt(&route).is_some_and(|at| cx.now < at + PAUSE_MAX);
        if let Some(way) = way.filter(|_| connector.handshakes.is_trying() && !lately) {
            let epoch = self.next_epoch();
            self.attempt(cx, epoch, way, Some(route));
        }
    }

    /// One attempt: both halves of message 1.
    pub(crate) fn attempt(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        candidate: Candidate,
        in_use: Option<Route>,
    ) {
        let features = self.features_for(&candidate, in_use);
        let Side::Client(connector) = &mut self.paths.side else { return };
        connector.unanswered.note_asked(cx.now, &candidate);
        let route = match in_use {
            Some(route) => route,
            None => Route {
                socket: connector.attempt_socket(cx, candidate),
                local: Some(candidate.local),
                remote: candidate.remote,
            },
        };
        let indices = cx.indices.issue_first(cx.rng, self.slot, epoch);
        let counter = connector.handshakes.counter;
        connector.handshakes.counter = connector.handshakes.counter.saturating_add(1);
        cx.tell(Event::HandshakeCounter { peer: self.key, counter });
        let hello = Hello {
            counter,
            features,
            floor: cx.config.floor,
            has_aes: cx.config.has_aes,
            token: connector.handshakes.token.clone(),
            indices,
        };
        let started =
            Initiator::start(cx.rng, &cx.config.secret, self.key, self.psk.as_deref(), &hello);
        let Ok((mut initiator, _)) = started else {
            cx.indices.revoke(indices); // the key was checked when the peer was added
            return;
        };
        let cookie = connector.handshakes.cookie(cx.now, &route);
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
        let Some(round) = &mut connector.handshakes.round else { return };
        round.attempts.push_back(attempt);
        let over = |attempt: &Attempt| cx.now.saturating_since(attempt.sent_at) >= ANSWER_TIME;
        let mut closes = false;
        while round.attempts.len() > ATTEMPTS_MAX || round.attempts.front().is_some_and(over) {
            let Some(oldest) = round.attempts.pop_front() else { break };
            cx.indices.revoke(oldest.indices);
            closes = true;
        }
        if closes {
            self.paths.close_unused_sockets(cx); // links come and go while nobody answers
        }
    }

    /// The features that a handshake asks for. It asks for the response in parts if the path in use
    /// is known to carry less, and otherwise in every second round. A whole response arrives more
    /// often if datagrams are lost or forged. On a path that carries less, only parts arrive.
    fn features_for(&self, way: &Candidate, in_use: Option<Route>) -> u32 {
        let Side::Client(connector) = &self.paths.side else { return 0 };
        let path = in_use.and_then(|route| self.paths.list.by_route(&route));
        let asked = connector.handshakes.round.as_ref().map_or(0, |round| round.asked);
        let in_parts = match path {
            Some(path) if path.is_able() => path.mtu.datagram() < RESPONSE_LEN,
            Some(_) | None => asked.is_multiple_of(2) && asked > 0,
        };
        if in_parts && way.transport() == Transport::Udp { FEATURE_PARTS } else { 0 }
    }

    /// Takes a cookie reply: the attempt is sent again with the cookie, once.
    pub(crate) fn receive_cookie(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let Side::Client(connector) = &mut self.paths.side else {
            return Err(DropReason::BadHandshake);
        };
        let attempt = connector.handshakes.attempt(epoch).ok_or(DropReason::BadHandshake)?;
        let cookie = attempt.initiator.open_cookie_reply(bytes)?;
        let route = attempt.route;
        if !std::mem::replace(&mut attempt.repeated, true) {
            let messages = attempt.initiator.add_cookie(&cookie);
            cx.send_clear(route, &messages.a);
            cx.send_clear(route, &messages.b);
        }
        connector.handshakes.keep_cookie(cx.now, route, cookie);
        Ok(())
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
