//! The answers to a client's handshakes: a cookie to repeat, a part of a response, keys, a refusal,
//! or the notice of a gateway that lost the session. And the answers to its keepalives.
//!
//! An error means that the datagram answers no attempt, and that nothing has changed.

use super::Connector;
use crate::context::{Context, Event};
use crate::crypto::{EpochKeys, Status, Welcome};
use crate::error::{CloseCode, DropReason};
use crate::id::PeerKey;
use crate::outbox::Route;
use crate::paths::handshakes::Attempt;
use crate::paths::list::Paths;
use crate::session::index::EpochId;
use crate::session::restart::Proof;
use crate::time::{Duration, Instant};
use crate::wire::handshake::ResponsePart;
use crate::wire::keepalive::{ANSWER_LEN, KeepaliveProof};
use crate::wire::restart::RestartNotice;

/// How long an attempt may stay unanswered before another notice begins the next, where no round
/// trip was measured. Usually it is one: what left later arrives after the notice was sent.
const PATIENCE: Duration = Duration::from_millis(50);
/// The least: a gateway that has many to answer is not asked twice by all of them,
const PATIENCE_MIN: Duration = Duration::from_millis(20);
/// and the most.
const PATIENCE_MAX: Duration = Duration::from_millis(250);

/// How often that is doubled while there is no answer.
const HEEDED_MAX: u32 = 5;

/// What a gateway answered to an attempt.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) attempt: Attempt,
    pub(crate) welcome: Welcome,
    /// `None` if it refused.
    pub(crate) keys: Option<EpochKeys>,
}

/// What follows from a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The next attempt is due at once.
    Again,
    /// It passes with time.
    Later,
    /// A person has to do something: the session is over.
    Over(CloseCode),
}

impl Connector {
    /// Takes a cookie reply: the attempt is sent again with the cookie, once.
    pub(crate) fn receive_cookie(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let attempt = self.handshakes.attempt(epoch).ok_or(DropReason::BadHandshake)?;
        let cookie = attempt.initiator.open_cookie_reply(bytes)?;
        let route = attempt.route;
        if !std::mem::replace(&mut attempt.repeated, true) {
            let messages = attempt.initiator.add_cookie(&cookie);
            cx.send_clear(route, &messages.a);
            cx.send_clear(route, &messages.b);
        }
        self.handshakes.keep_cookie(cx.now, route, cookie);
        Ok(())
    }

    /// Takes a part of the response to an attempt. Returns the responses that it completes, of
    /// which at most one is the gateway's.
    pub(crate) fn take_part(
        &mut self,
        epoch: EpochId,
        part: ResponsePart<'_>,
    ) -> Result<Vec<Vec<u8>>, DropReason> {
        let attempt = self.handshakes.attempt(epoch).ok_or(DropReason::BadHandshake)?;
        Ok(attempt.parts.take(part))
    }

    /// Takes the answer to an attempt. `None` if it comes to nothing, because new keys are not
    /// needed.
    pub(crate) fn take_answer(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        bytes: &[u8],
        is_needed: bool,
    ) -> Result<Option<Answer>, DropReason> {
        let taken = self.handshakes.take_answered(cx.now, epoch, |it| it.finish(bytes));
        let (attempt, (welcome, keys)) = taken?;
        if keys.is_some() && !is_needed {
            cx.indices.revoke(attempt.indices);
            return Ok(None);
        }
        Ok(Some(Answer { attempt, welcome, keys }))
    }

    /// The gateway accepted `attempt`. Returns when the first attempt of its round began.
    pub(crate) fn accept(&mut self, cx: &mut Context<'_>, attempt: &Attempt) -> Instant {
        let handshakes = &mut self.handshakes;
        let started = handshakes.round.as_ref().map_or(attempt.sent_at, |round| round.started);
        handshakes.stop(cx.indices);
        (handshakes.token, handshakes.refused) = (None, None);
        (handshakes.lost, handshakes.heeded) = (None, None);
        started
    }

    /// The gateway refused. Some refusals pass with time, others need a person.
    pub(crate) fn be_refused(
        &mut self,
        cx: &mut Context<'_>,
        peer: PeerKey,
        answer: Answer,
    ) -> Refusal {
        let status = answer.welcome.status;
        cx.indices.revoke(answer.attempt.indices);
        let handshakes = &mut self.handshakes;
        handshakes.refused = Some(status);
        match status {
            Status::StaleCounter { highest } => {
                handshakes.counter = handshakes.counter.max(highest.saturating_add(1));
                if let Some(round) = &mut handshakes.round {
                    round.next = cx.now;
                }
                Refusal::Again
            }
            Status::Accepted | Status::Busy | Status::Other(_) => Refusal::Later,
            Status::NotEnrolled
            | Status::TokenUsed
            | Status::TokenExpired
            | Status::TokenUnknown
            | Status::Revoked
            | Status::Unsupported => {
                // A gateway that refuses has no session for us: to go on asking by the old one
                // would ask again at every round trip.
                handshakes.stop(cx.indices);
                cx.tell(Event::Refused { peer, status });
                let is_revoked = status == Status::Revoked;
                Refusal::Over(if is_revoked { CloseCode::Revoked } else { CloseCode::Requested })
            }
        }
    }

    /// A notice came by `route` that the gateway lost the session. `current` is what would prove
    /// it for the present one. Returns whether to ask for another session now.
    pub(crate) fn receive_restart(
        &mut self,
        now: Instant,
        route: Route,
        notice: RestartNotice,
        current: Option<Proof>,
    ) -> Result<bool, DropReason> {
        let same = |at: &Route| (at.socket, at.remote) == (route.socket, route.remote);
        let lost = self.handshakes.lost.filter(|lost| same(&lost.route));
        let mut proofs = current.into_iter().chain(lost);
        let proof = proofs.find(|proof| proof.is(&notice)).ok_or(DropReason::BadHandshake)?;
        let patience = proof.rtt.unwrap_or(PATIENCE).clamp(PATIENCE_MIN, PATIENCE_MAX);
        // One by a stream may still wait for the stream.
        let asked = self.handshakes.last_attempt(&route).map(|at| at + patience);
        // Who waits eagerly is told often: an answer that takes longer must not be missed.
        let heeded = self.handshakes.heeded;
        let times = heeded.map_or(0, |(_, times)| times);
        let heeded = heeded.map(|(at, _)| at + patience * (1 << times.min(HEEDED_MAX)));
        let is_due = asked.max(heeded).is_none_or(|due| due <= now);
        if is_due {
            self.handshakes.heeded = Some((now, times + 1));
        }
        Ok(is_due)
    }

    /// An answer to a keepalive came by `route`.
    ///
    /// # Errors
    /// [`DropReason::BadMac`] if none is awaited from there, or another.
    pub(crate) fn keepalive_answered(
        &mut self,
        now: Instant,
        paths: &mut Paths,
        (route, came_at): (Route, Instant),
        proof: &KeepaliveProof,
    ) -> Result<(), DropReason> {
        let path = paths.by_route_mut(&route).ok_or(DropReason::BadMac)?;
        if !self.nat.is_answered(path.id, proof) {
            return Err(DropReason::BadMac);
        }
        path.heard(now, came_at, ANSWER_LEN);
        Ok(())
    }
}
