//! The answering end of handshakes: the gate, the table of halves that wait, the answer.
//!
//! Message 1 is two datagrams. The first half is opened when it passes the gate and then waits two
//! seconds for its second, in a table of fixed size. A peer that is not known but shows a token
//! waits there too, for the shell to enrol it. Nothing of a session changes here: an answered
//! handshake is a pending epoch, which replaces nothing until it is used.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use super::Node;
use crate::crypto::{
    Complete, ExchangeId, Gate, HeaderCipher, PendingA, Rng, Status, Verdict, Welcome,
};
use crate::error::DropReason;
use crate::id::{PeerKey, SessionIndex, SocketId};
use crate::outbox::{Outbox, Route};
use crate::peer::epoch::{Agreed, Epoch};
use crate::peer::{Config, Event, Peer};
use crate::time::{Duration, Instant};
use crate::wire::Kind;
use crate::wire::handshake::{INDEX_COUNT, MessageA, MessageB};

/// First halves that may wait at once.
const WAITING_MAX: usize = 256;
/// Of these, for peers that are not known.
const WAITING_UNKNOWN_MAX: usize = 32;
/// Of these, for one peer: as many as the candidates that a client races.
const WAITING_PEER_MAX: usize = 8;
/// How long a first half waits for its second, and an enrolment for the shell.
const WAITING_TIME: Duration = Duration::from_secs(2);
/// First halves that pass the gate in [`LOAD_TIME`] before cookies are demanded: each costs two
/// Diffie-Hellmans, some 120 us, so this bounds them to a sixth of a core.
const LOAD_MAX: u32 = 128;
/// First halves in [`LOAD_TIME`] after which all are dropped, with or without a cookie.
const LOAD_LAST: u32 = 256;
/// The period over which the load is counted.
const LOAD_TIME: Duration = Duration::from_millis(100);
/// Peers whose revocation is remembered here; the store knows all of them, and a key that is
/// forgotten is refused as unknown.
const REVOKED_MAX: usize = 4_096;

/// What the answering end remembers.
pub(super) struct Responder {
    gate: Gate,
    waiting: VecDeque<Waiting>,
    counters: BTreeMap<PeerKey, Counters>,
    revoked: BTreeSet<PeerKey>,
    load: (Instant, u32),
}

/// A handshake that cannot be answered yet.
struct Waiting {
    since: Instant,
    route: Route,
    peer: PeerKey,
    known: bool,
    step: Step,
}

enum Step {
    /// Its second half has not come.
    Half(Box<PendingA>),
    /// The shell has not said whether the peer may enrol.
    Enrolment(Box<Complete>),
}

/// The counters accepted from one peer: the highest, and which of the 64 below it (candidates are
/// raced, so counters arrive out of order).
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    highest: u64,
    seen: u64,
}

impl Counters {
    fn accept(&mut self, counter: u64) -> Result<(), u64> {
        if self.seen == 0 || counter > self.highest {
            let ahead = counter.saturating_sub(self.highest);
            let shift = u32::try_from(ahead).unwrap_or(u32::MAX);
            self.seen = self.seen.checked_shl(shift).unwrap_or(0) | 1;
            self.highest = counter;
            return Ok(());
        }
        let behind = self.highest - counter;
        if behind >= 64 || self.seen & (1 << behind) != 0 {
            return Err(self.highest);
        }
        self.seen |= 1 << behind;
        Ok(())
    }
}

impl Responder {
    pub(super) fn new(now: Instant, config: &Config, rng: &mut dyn Rng) -> Self {
        Self {
            gate: Gate::new(config.secret.public(), rng, now),
            waiting: VecDeque::new(),
            counters: BTreeMap::new(),
            revoked: BTreeSet::new(),
            load: (now, 0),
        }
    }

    /// Forgets what waited too long.
    pub(super) fn expire(&mut self, now: Instant) {
        let expired = |w: &Waiting| now.saturating_since(w.since) >= WAITING_TIME;
        while self.waiting.front().is_some_and(expired) {
            self.waiting.pop_front();
        }
    }

    /// Nobody can be answered by `socket` any more.
    pub(super) fn forget_socket(&mut self, socket: SocketId) {
        self.waiting.retain(|waiting| waiting.route.socket != socket);
    }

    /// A key is welcome (again).
    pub(super) fn known(&mut self, key: PeerKey) {
        self.revoked.remove(&key);
    }

    /// A key is refused from now on.
    pub(super) fn revoke(&mut self, key: PeerKey) {
        self.waiting.retain(|waiting| waiting.peer != key);
        if self.revoked.len() < REVOKED_MAX {
            self.revoked.insert(key); // and its counters stay: it may be let in again
        } else {
            self.counters.remove(&key);
        }
    }

    /// Whether a cookie is demanded: too many expensive messages of late, or a table that fills.
    fn under_load(&self, now: Instant) -> bool {
        let busy = now.saturating_since(self.load.0) < LOAD_TIME && self.load.1 >= LOAD_MAX;
        busy || self.waiting.len() >= WAITING_MAX / 2 || self.unknown() >= WAITING_UNKNOWN_MAX / 2
    }

    /// Counts one expensive message. Beyond [`LOAD_LAST`] even those with a cookie are dropped:
    /// sessions that exist need the processor too.
    fn count_load(&mut self, now: Instant) -> Result<(), DropReason> {
        if now.saturating_since(self.load.0) >= LOAD_TIME {
            // A flood that just ended its period is still a flood: begin half full.
            let before = if self.load.1 >= LOAD_MAX { LOAD_MAX / 2 } else { 0 };
            self.load = (now, before);
        }
        self.load.1 += 1;
        if self.load.1 > LOAD_LAST { Err(DropReason::QueueFull) } else { Ok(()) }
    }

    fn unknown(&self) -> usize {
        self.waiting.iter().filter(|waiting| !waiting.known).count()
    }

    fn keep(&mut self, waiting: Waiting) -> Result<(), DropReason> {
        self.expire(waiting.since);
        let same = self.waiting.iter().filter(|other| other.peer == waiting.peer).count();
        let full = self.waiting.len() >= WAITING_MAX
            || same >= WAITING_PEER_MAX
            || (!waiting.known && self.unknown() >= WAITING_UNKNOWN_MAX);
        if full {
            return Err(DropReason::TableFull);
        }
        self.waiting.push_back(waiting);
        Ok(())
    }

    fn find_half(&self, link: [u8; 16]) -> Option<usize> {
        self.waiting.iter().position(|waiting| match &waiting.step {
            Step::Half(half) => half.link() == ExchangeId(link),
            Step::Enrolment(_) => false,
        })
    }

    fn take_enrolments(&mut self, peer: PeerKey) -> Vec<(Route, Complete)> {
        let mut taken = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting.step {
                Step::Enrolment(complete) if waiting.peer == peer => {
                    taken.push((waiting.route, *complete));
                }
                Step::Enrolment(_) | Step::Half(_) => self.waiting.push_back(waiting),
            }
        }
        taken
    }
}

impl Node {
    /// A half of message 1.
    pub(super) fn handshake(
        &mut self,
        now: Instant,
        route: Route,
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.responder.gate.rotate(self.rng.as_mut(), now);
        let under_load = self.responder.under_load(now);
        match self.responder.gate.check(datagram, route.remote, under_load) {
            Verdict::Drop(reason) => return Err(reason),
            Verdict::Challenge => return self.demand_cookie(route, datagram, out),
            Verdict::Pass => {}
        }
        match Kind::of(datagram) {
            Some(Kind::HandshakeA) => self.first_half(now, route, datagram),
            _ => self.second_half(now, datagram, out),
        }
    }

    fn demand_cookie(
        &mut self,
        route: Route,
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        // One reply per exchange: the second half is dropped silently.
        if Kind::of(datagram) == Some(Kind::HandshakeA) {
            let gate = &self.responder.gate;
            let reply = gate.cookie_reply(self.rng.as_mut(), datagram, route.remote)?;
            out.push_clear(route, &reply);
        }
        Err(DropReason::NoCookie)
    }

    fn first_half(
        &mut self,
        now: Instant,
        route: Route,
        datagram: &[u8],
    ) -> Result<(), DropReason> {
        if self.responder.find_half(ExchangeId::of(MessageA::parse(datagram)?).0).is_some() {
            return Err(DropReason::Replay); // the same datagram again
        }
        self.responder.count_load(now)?;
        let half = PendingA::open(self.rng.as_mut(), &self.config.secret, datagram)?;
        let peer = half.peer();
        // A replay of a known peer's message has no better place than a stranger's.
        let mut counters = self.responder.counters.get(&peer).copied().unwrap_or_default();
        let fresh = counters.accept(half.hello().counter).is_ok();
        let known = fresh && self.by_key.contains_key(&peer);
        let step = Step::Half(Box::new(half));
        self.responder.keep(Waiting { since: now, route, peer, known, step })
    }

    fn second_half(
        &mut self,
        now: Instant,
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.responder.expire(now);
        let link = MessageB::parse(datagram)?.link();
        let place = self.responder.find_half(link).ok_or(DropReason::BadHandshake)?;
        let waiting = self.responder.waiting.get_mut(place).ok_or(DropReason::BadHandshake)?;
        let Step::Half(half) = &mut waiting.step else { return Err(DropReason::BadHandshake) };
        // The halves may have taken different ways; the answer goes where the first came from,
        // whose address a cookie can vouch for.
        let complete = half.complete(datagram)?;
        let route = waiting.route;
        self.responder.waiting.remove(place);
        self.decide(now, route, complete, out)
    }

    /// Both halves are here and fit. Who is it, and may it?
    fn decide(
        &mut self,
        now: Instant,
        route: Route,
        complete: Complete,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let peer = complete.peer();
        if let Some(&slot) = self.by_key.get(&peer) {
            if !self.peer(slot).is_some_and(Peer::at_gateway) {
                return Err(DropReason::BadHandshake); // a gateway answers, it does not ask
            }
            let counters = self.responder.counters.entry(peer).or_default();
            return match counters.accept(complete.hello().counter) {
                Ok(()) => self.accept(now, route, complete, out),
                Err(highest) if complete.hello().counter == highest => {
                    Err(DropReason::StaleCounter) // a repeat: the answer is on its way
                }
                Err(highest) => self.refuse(route, complete, Status::StaleCounter { highest }, out),
            };
        }
        if self.responder.revoked.contains(&peer) {
            self.tell(Event::PeerRefused { peer, status: Status::Revoked });
            return self.refuse(route, complete, Status::Revoked, out);
        }
        let Some(token) = complete.hello().token.clone() else {
            self.tell(Event::PeerRefused { peer, status: Status::NotEnrolled });
            return self.refuse(route, complete, Status::NotEnrolled, out);
        };
        let asked = self
            .responder
            .waiting
            .iter()
            .any(|waiting| waiting.peer == peer && matches!(waiting.step, Step::Enrolment(_)));
        let step = Step::Enrolment(Box::new(complete));
        self.responder.keep(Waiting { since: now, route, peer, known: false, step })?;
        if !asked {
            self.tell(Event::EnrolmentRequested { peer, token });
        }
        Ok(())
    }

    /// The peer was added: its handshakes that waited for this are answered.
    pub(super) fn answer_waiting(
        &mut self,
        now: Instant,
        peer: PeerKey,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        for (route, complete) in self.responder.take_enrolments(peer) {
            let answered = self.decide(now, route, complete, out);
            self.count(answered);
        }
        Ok(())
    }

    /// The peer may not enrol: its handshakes that waited for this are refused.
    pub(super) fn refuse_waiting(
        &mut self,
        now: Instant,
        peer: PeerKey,
        status: Status,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        self.responder.expire(now);
        for (route, complete) in self.responder.take_enrolments(peer) {
            let refused = self.refuse(route, complete, status, out);
            self.count(refused);
        }
        Ok(())
    }

    fn refuse(
        &mut self,
        route: Route,
        complete: Complete,
        status: Status,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let welcome = self.welcome(status, route.remote, [SessionIndex(0); INDEX_COUNT]);
        let (response, _) = complete.respond(self.rng.as_mut(), None, &welcome)?;
        if out.push_clear(route, &response) { Ok(()) } else { Err(DropReason::QueueFull) }
    }

    /// Answers, and keeps the keys until they are used.
    fn accept(
        &mut self,
        now: Instant,
        route: Route,
        complete: Complete,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let slot = *self.by_key.get(&complete.peer()).ok_or(DropReason::NoRoute)?;
        let peer = self.peers.get_mut(slot.0 as usize).and_then(Option::as_mut);
        let epoch = peer.ok_or(DropReason::NoRoute)?.next_epoch();
        let ours = self.indices.issue_first(self.rng.as_mut(), slot, epoch);
        let welcome = self.welcome(Status::Accepted, route.remote, ours);
        let theirs = complete.hello().indices.to_vec();
        let peer = self.peers.get_mut(slot.0 as usize).and_then(Option::as_mut);
        let psk = peer.as_ref().and_then(|peer| peer.psk());
        let responded = complete.respond(self.rng.as_mut(), psk, &welcome);
        let (response, keys) = match responded {
            Ok((response, Some(keys))) => (response, keys),
            Ok((response, None)) => {
                self.indices.revoke(ours);
                out.push_clear(route, &response);
                return Err(DropReason::BadHandshake);
            }
            Err(reason) => {
                self.indices.revoke(ours);
                return Err(reason);
            }
        };
        let agreed = Agreed {
            id: epoch,
            keys,
            initiator: false,
            origin: route,
            ours: ours.to_vec(),
            theirs,
        };
        let epoch = Epoch::new(now, agreed);
        self.with_peer(now, slot, out, |peer, cx| {
            peer.add_pending(cx, epoch);
            if cx.out.push_clear(route, &response) { Ok(()) } else { Err(DropReason::QueueFull) }
        })
    }

    const fn welcome(
        &self,
        status: Status,
        observed: SocketAddr,
        indices: [SessionIndex; INDEX_COUNT],
    ) -> Welcome {
        let header_cipher =
            if self.config.has_aes { HeaderCipher::Aes } else { HeaderCipher::ChaCha20 };
        Welcome { status, features: 0, floor: self.config.floor, header_cipher, observed, indices }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_accepted_once_and_may_be_raced() {
        let mut counters = Counters::default();
        assert_eq!(counters.accept(100), Ok(()));
        assert_eq!(counters.accept(100), Err(100));
        assert_eq!(counters.accept(102), Ok(()));
        assert_eq!(counters.accept(101), Ok(()));
        assert_eq!(counters.accept(101), Err(102));
        assert_eq!(counters.accept(102 - 64), Err(102), "too old to tell");
        assert_eq!(counters.accept(5_000), Ok(()));
        assert_eq!(counters.accept(4_990), Ok(()));
    }
}
