//! A client's handshakes: rounds over every candidate, each its own exchange, until one is
//! answered.
//!
//! A first listed address, link or family may be dead, so candidates are raced, a little apart and
//! best first. Old attempts stay answerable while new ones are made: on a slow path the answer
//! comes after the next attempt. Whether a session is needed at all, the caller knows.

use std::collections::VecDeque;

use super::{Connector, STREAMS_MAX};
use crate::context::{Context, Event};
use crate::crypto::{Hello, Initiator};
use crate::id::Transport;
use crate::outbox::Route;
use crate::path::PathId;
use crate::paths::candidate::Candidate;
use crate::paths::handshakes::{Attempt, Parts, Round};
use crate::paths::list::Paths;
use crate::session::identity::Identity;
use crate::time::{Duration, Instant};
use crate::wire::features::Features;
use crate::wire::handshake::RESPONSE_LEN;

/// Time between the attempts of one round to different addresses of the gateway.
const STAGGER: Duration = Duration::from_millis(30);
/// Time between attempts to one address on different links. Many links may be down, and each delays
/// the ones behind it by this time. At half of it, ten links send 30 KB within 15 ms.
const STAGGER_LINKS: Duration = Duration::from_millis(3);
/// Time that UDP has for an answer before streams are tried beside it: setting one up costs a proxy
/// or a NAT more than a datagram does.
const STREAMS_AFTER: Duration = Duration::from_millis(250);
/// Pause after the first round; doubles with each.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(400);
/// The longest pause of the first minutes, after which a session that works is not asked for.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Later the pause is this part of the time tried so far (2 %),
const PAUSE_PART: u32 = 50;
/// and this at most.
const PAUSE_LAST: Duration = Duration::from_secs(60);
/// A pause is up to this part longer, at random: a thousand clients of a gateway that comes back
/// must not all ask in one instant, and again in the next.
const PAUSE_SCATTER: u32 = 4;
impl Connector {
    /// Begins a round of handshakes by every candidate, unless one is under way, there is no link,
    /// or no session is wanted. Returns whether it began.
    pub(crate) fn begin_round(&mut self, now: Instant) -> bool {
        let begins = self.handshakes.wanted && self.can_try();
        if begins {
            self.handshakes.round = Some(Round::new(now, PAUSE_FIRST, VecDeque::new()));
        }
        begins
    }

    /// Begins a round by the streams, where the gateway is not reached any more by the one that
    /// carries. The first pause is for the path in use, so the round begins beyond it.
    pub(crate) fn begin_round_by_streams(&mut self, now: Instant) {
        let queue = self.candidates.streams().take(STREAMS_MAX).collect();
        self.handshakes.round = Some(Round::new(now, PAUSE_FIRST * 2, queue));
    }

    /// The links changed: the round under way asks at once, as if for the first time.
    pub(crate) fn restart_round(&mut self, now: Instant) {
        if let Some(round) = &mut self.handshakes.round {
            (round.next, round.pause) = (now, PAUSE_FIRST);
            round.queue.clear();
        }
    }

    /// Ends the round under way: an answer would take the session to another socket, and packets
    /// in flight to the old one would be lost.
    pub(crate) fn call_off(&mut self, cx: &mut Context<'_>, paths: &Paths) {
        if self.handshakes.stop(cx.indices) {
            self.close_unused(cx, |socket| paths.uses(socket));
        }
    }

    /// Makes the attempts that are due.
    pub(crate) fn attempt_due(
        &mut self,
        cx: &mut Context<'_>,
        identity: &mut Identity,
        paths: &Paths,
    ) {
        let works = paths.active().filter(|path| path.is_able());
        let works = works.map(|path| (self.candidate_of(path.link, &path.route), path.route));
        while let Some(candidate) = self.next_candidate(cx, paths, works) {
            let in_use = works.filter(|(way, _)| *way == Some(candidate)).map(|(_, route)| route);
            self.attempt(cx, identity, paths, candidate, in_use);
        }
    }

    /// The candidate whose turn it is, if an attempt is due. `works` is that of the path in use, if
    /// one carries: it is asked first and alone.
    fn next_candidate(
        &mut self,
        cx: &mut Context<'_>,
        paths: &Paths,
        works: Option<(Option<Candidate>, Route)>,
    ) -> Option<Candidate> {
        let round = self.handshakes.round.as_mut().filter(|round| round.next <= cx.now)?;
        if round.queue.is_empty() {
            if round.pause >= PAUSE_MAX && works.is_some() {
                self.call_off(cx, paths); // the session works; the next traffic asks again
                return None;
            }
            let queue: VecDeque<_> = match works {
                Some((way, _)) if round.pause == PAUSE_FIRST => way.into_iter().collect(),
                Some(_) | None => {
                    let asked = round.asked;
                    round.asked = asked.wrapping_add(1);
                    self.round_candidates(cx.now, asked)
                }
            };
            let round = self.handshakes.round.as_mut()?;
            if queue.is_empty() {
                round.next = cx.now + round.pause;
                round.pause = (round.pause * 2).min(PAUSE_MAX);
                return None;
            }
            round.queue = queue;
        }
        let round = self.handshakes.round.as_mut()?;
        let candidate = round.queue.pop_front()?;
        round.next = cx.now + round.queue.front().map_or(STAGGER, |next| pause(&candidate, next));
        if round.queue.is_empty() {
            round.next = cx.now + scattered(cx, round.pause);
            let tried = cx.now.saturating_since(round.started);
            let longest = (tried / PAUSE_PART).clamp(PAUSE_MAX, PAUSE_LAST);
            round.pause = (round.pause * 2).min(longest);
        }
        Some(candidate)
    }

    /// The gateway speaks by the path `id`, for which no index is left, so only a handshake can
    /// answer there. If this end asks for a session anyway it asks there now: its own pauses may
    /// be a minute long by now, and are for when nothing is heard.
    pub(crate) fn meet(
        &mut self,
        cx: &mut Context<'_>,
        identity: &mut Identity,
        paths: &Paths,
        id: PathId,
    ) {
        let Some(path) = paths.get(id) else { return };
        let route = path.route;
        let known = |way: &Candidate| self.candidates.udp().any(|known| known == *way);
        let way = self.candidate_of(path.link, &route).filter(known);
        let lately = self.handshakes.last_attempt(&route).is_some_and(|at| cx.now < at + PAUSE_MAX);
        if let Some(way) = way.filter(|_| self.handshakes.is_trying() && !lately) {
            self.attempt(cx, identity, paths, way, Some(route));
        }
    }

    /// One attempt: both halves of message 1.
    fn attempt(
        &mut self,
        cx: &mut Context<'_>,
        identity: &mut Identity,
        paths: &Paths,
        candidate: Candidate,
        in_use: Option<Route>,
    ) {
        let features = cx.config.features | self.parts_for(paths, &candidate, in_use);
        self.unanswered.note_asked(cx.now, &candidate);
        let route = in_use.unwrap_or_else(|| Route {
            socket: self.attempt_socket(cx, candidate),
            local: Some(candidate.local),
            remote: candidate.remote,
        });
        let epoch = identity.next_epoch();
        let indices = cx.indices.issue_first(cx.rng, identity.slot, epoch);
        let counter = self.handshakes.take_counter();
        cx.tell(Event::HandshakeCounter { peer: identity.key, counter });
        let hello = Hello {
            counter,
            features,
            floor: cx.config.floor,
            has_aes: cx.config.has_aes,
            token: self.handshakes.token.clone(),
            indices,
        };
        let secret = &cx.config.secret;
        let started = Initiator::start(cx.rng, secret, identity.key, identity.psk(), &hello);
        let Ok((mut initiator, _)) = started else {
            cx.indices.revoke(indices); // the key was checked when the peer was added
            return;
        };
        let messages = match self.handshakes.cookie(cx.now, &route) {
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
        if self.handshakes.begin(cx.now, attempt, cx.indices) {
            self.close_unused(cx, |socket| paths.uses(socket)); // links come and go meanwhile
        }
    }

    /// Whether a handshake asks for the response in parts: if the path in use is known to carry
    /// less, and otherwise in every second round. A whole response arrives more often if datagrams
    /// are lost or forged. On a path that carries less, only parts arrive.
    fn parts_for(&self, paths: &Paths, way: &Candidate, in_use: Option<Route>) -> Features {
        let path = in_use.and_then(|route| paths.by_route(&route));
        let asked = self.handshakes.round.as_ref().map_or(0, |round| round.asked);
        let in_parts = match path {
            Some(path) if path.is_able() => path.mtu.datagram() < RESPONSE_LEN,
            Some(_) | None => asked.is_multiple_of(2) && asked > 0,
        };
        let is_wanted = in_parts && way.transport() == Transport::Udp;
        if is_wanted { Features::PARTS } else { Features::NONE }
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
