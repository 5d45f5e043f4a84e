//! A client's handshakes under way, and what it remembers between them.
//!
//! Knows attempts and their answers. `connector::attempts` decides when one is made, and by which
//! candidate.

use std::collections::VecDeque;

use super::candidate::Candidate;
use crate::crypto::{Cookie, Initiator, Status, Token};
use crate::error::DropReason;
use crate::id::{SessionIndex, SocketId, Transport};
use crate::outbox::Route;
use crate::session::epochs::PENDING_TIME;
use crate::session::index::{EpochId, IndexTable};
use crate::session::restart::Proof;
use crate::time::{Duration, Instant};
use crate::wire::control::Prefix;
use crate::wire::handshake::ResponsePart;

/// Attempts that can be answered at once.
const ATTEMPTS_MAX: usize = 32;
/// How long an attempt can be answered: the gateway forgets its own answer a little later
/// ([`PENDING_TIME`]), and keys that only one end has are of no use.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(10);

const _: () = assert!(ANSWER_TIME.as_secs() < PENDING_TIME.as_secs());

/// Different versions kept of each of the two parts of a response. Each pair costs a decapsulation.
const PARTS_MAX: usize = 4;
/// Cookies that are kept.
const COOKIES_MAX: usize = 8;
/// How long a cookie is used (the gateway accepts it for two to four minutes).
const COOKIE_TIME: Duration = Duration::from_secs(110);

/// The handshakes of a client.
#[derive(Debug)]
pub(crate) struct Handshakes {
    /// The lowest counter that was never used with the gateway.
    pub(crate) counter: u64,
    /// The right to enrol, until it was used.
    pub(crate) token: Option<Token>,
    /// Whether the user wants a session.
    pub(crate) wanted: bool,
    /// The gateway's last answer, if it was no.
    pub(crate) refused: Option<Status>,
    /// What would prove that the gateway lost the session that ended last.
    pub(crate) lost: Option<Proof>,
    /// When a notice of that last made this node ask, and how often, since it was answered.
    pub(crate) heeded: Option<(Instant, u32)>,
    pub(crate) round: Option<Round>,
    /// What lies behind this node, for the gateway.
    pub(crate) advertise: Vec<Prefix>,
    /// A random number for this run of the program.
    pub(crate) run: u64,
    /// Cookies by the way that they were got: a gateway makes them for a source address.
    cookies: Vec<(Instant, Route, Cookie)>,
}

/// Handshakes under way.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) started: Instant,
    pub(crate) next: Instant,
    pub(crate) pause: Duration,
    /// How often its candidates were asked.
    pub(crate) asked: u32,
    pub(crate) queue: VecDeque<Candidate>,
    pub(crate) attempts: VecDeque<Attempt>,
}

impl Round {
    /// One that begins at once, with `queue`.
    pub(crate) const fn new(now: Instant, pause: Duration, queue: VecDeque<Candidate>) -> Self {
        Self { started: now, next: now, pause, asked: 0, queue, attempts: VecDeque::new() }
    }
}

/// One exchange.
pub(crate) struct Attempt {
    pub(crate) epoch: EpochId,
    pub(crate) initiator: Initiator,
    pub(crate) indices: Vec<SessionIndex>,
    pub(crate) route: Route,
    pub(crate) candidate: Candidate,
    pub(crate) sent_at: Instant,
    /// Whether it was sent again with a cookie: once is enough.
    pub(crate) repeated: bool,
    /// Received parts of a response that was requested in parts.
    pub(crate) parts: Parts,
}

impl Attempt {
    /// Whether it is too old to be answered.
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_since(self.sent_at) >= ANSWER_TIME
    }
}

/// Parts of a response. An attacker who sees the exchange can forge parts, so a few versions of
/// each are kept, and trying finds the true pair.
#[derive(Debug, Default)]
pub(crate) struct Parts([Vec<Vec<u8>>; 2]);

impl Parts {
    /// Takes a part and returns the responses that it completes.
    pub(crate) fn take(&mut self, part: ResponsePart<'_>) -> Vec<Vec<u8>> {
        let Some(same) = self.0.get_mut(part.number) else { return Vec::new() };
        if same.iter().any(|known| known == part.piece) || same.len() >= PARTS_MAX {
            return Vec::new();
        }
        same.push(part.piece.to_vec());
        let joined = |head: &[u8], tail: &[u8]| [head, tail].concat();
        let [heads, tails] = &self.0;
        match part.number {
            0 => tails.iter().map(|tail| joined(part.piece, tail)).collect(),
            _ => heads.iter().map(|head| joined(head, part.piece)).collect(),
        }
    }
}

impl std::fmt::Debug for Attempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Handshakes {
    pub(super) const fn new(
        counter: u64,
        token: Option<Token>,
        advertise: Vec<Prefix>,
        run: u64,
    ) -> Self {
        Self {
            counter,
            token,
            wanted: false,
            refused: None,
            lost: None,
            heeded: None,
            round: None,
            advertise,
            run,
            cookies: Vec::new(),
        }
    }

    /// The attempt under way for the keys of `epoch`.
    pub(crate) fn attempt(&mut self, epoch: EpochId) -> Option<&mut Attempt> {
        self.round.as_mut()?.attempts.iter_mut().find(|attempt| attempt.epoch == epoch)
    }

    /// When the newest of the attempts under way left that leads where `route` does.
    pub(crate) fn last_attempt(&self, route: &Route) -> Option<Instant> {
        let way = |route: &Route| (route.socket.transport(), route.remote);
        let mut newest = self.round.as_ref()?.attempts.iter().rev();
        Some(newest.find(|attempt| way(&attempt.route) == way(route))?.sent_at)
    }

    /// Takes out the attempt for `epoch` if `answers` accepts it, and returns both.
    ///
    /// # Errors
    /// [`DropReason::BadHandshake`] if there is none, or it is too old, and what `answers` says.
    pub(super) fn take_answered<A>(
        &mut self,
        now: Instant,
        epoch: EpochId,
        answers: impl FnOnce(&mut Initiator) -> Result<A, DropReason>,
    ) -> Result<(Attempt, A), DropReason> {
        let round = self.round.as_mut().ok_or(DropReason::BadHandshake)?;
        let mut attempts = round.attempts.iter();
        let place = attempts.position(|attempt| attempt.epoch == epoch && !attempt.is_over(now));
        let place = place.ok_or(DropReason::BadHandshake)?;
        let attempt = round.attempts.get_mut(place).ok_or(DropReason::BadHandshake)?;
        let answer = answers(&mut attempt.initiator)?;
        let attempt = round.attempts.remove(place).ok_or(DropReason::BadHandshake)?;
        Ok((attempt, answer))
    }

    pub(crate) const fn is_trying(&self) -> bool {
        self.round.is_some()
    }

    /// When the next attempt is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.round.as_ref().map(|round| round.next)
    }

    /// No session is wanted any more.
    pub(crate) fn quit(&mut self, indices: &mut IndexTable) {
        self.wanted = false;
        self.stop(indices);
    }

    /// Ends the round under way. Returns whether there was one.
    pub(crate) fn stop(&mut self, table: &mut IndexTable) -> bool {
        let round = self.round.take();
        let was_trying = round.is_some();
        for attempt in round.into_iter().flat_map(|round| round.attempts) {
            table.revoke(attempt.indices);
        }
        was_trying
    }

    /// A counter that was never used with the gateway.
    pub(super) const fn take_counter(&mut self) -> u64 {
        let counter = self.counter;
        self.counter = counter.saturating_add(1);
        counter
    }

    /// An attempt has left. Returns whether older ones were given up for it: they are too many, or
    /// too old to be answered.
    pub(super) fn begin(&mut self, now: Instant, new: Attempt, table: &mut IndexTable) -> bool {
        let Some(round) = &mut self.round else { return false };
        round.attempts.push_back(new);
        let count = round.attempts.len();
        while round.attempts.len() > ATTEMPTS_MAX
            || round.attempts.front().is_some_and(|oldest| oldest.is_over(now))
        {
            let Some(oldest) = round.attempts.pop_front() else { break };
            table.revoke(oldest.indices);
        }
        round.attempts.len() < count
    }

    /// Whether an answer may come by this socket.
    pub(super) fn needs(&self, socket: SocketId) -> bool {
        let attempts = self.round.iter().flat_map(|round| &round.attempts);
        attempts.into_iter().any(|attempt| attempt.route.socket == socket)
            || self.lost.is_some_and(|lost| lost.route.socket == socket)
    }

    /// Forgets the attempts by a socket that has failed.
    pub(super) fn forget_socket(&mut self, now: Instant, socket: SocketId, table: &mut IndexTable) {
        let Some(round) = &mut self.round else { return };
        for attempt in &mut round.attempts {
            if attempt.route.socket == socket {
                table.revoke(std::mem::take(&mut attempt.indices));
            }
        }
        round.attempts.retain(|attempt| attempt.route.socket != socket);
        if socket.transport() == Transport::Stream && !round.queue.is_empty() {
            round.next = now; // refused: there is no answer that the next one could wait for
        }
    }

    pub(crate) fn cookie(&self, now: Instant, route: &Route) -> Option<&Cookie> {
        let fresh = |since: Instant| now.saturating_since(since) < COOKIE_TIME;
        self.cookies.iter().find(|(since, by, _)| by == route && fresh(*since)).map(|(_, _, c)| c)
    }

    pub(crate) fn keep_cookie(&mut self, now: Instant, route: Route, cookie: Cookie) {
        let fresh = |since: Instant| now.saturating_since(since) < COOKIE_TIME;
        self.cookies.retain(|(since, by, _)| *by != route && fresh(*since));
        if self.cookies.len() < COOKIES_MAX {
            self.cookies.push((now, route, cookie));
        }
    }
}
