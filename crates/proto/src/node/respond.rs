//! The responder of handshakes: cookies, budgets, and the response
//! (docs/spec/handshake.md#11-processing-of-messages).
//!
//! Message 1 is two datagrams. The first half is opened if it passes the gate. It then waits two
//! seconds for its second half, in a table of fixed size. An unknown peer with a token also waits
//! there until the shell enrols it. The session does not change here: an answered handshake is a
//! pending epoch, which replaces nothing until it is used.
//!
//! Under load, a first half needs a cookie and its source needs budget before it is opened. Known
//! peers get their charge back. If there are many unknown peers, these need both even while the
//! processor is idle.

use std::net::SocketAddr;

use super::Node;
use super::half_open::{HalfOpen, Step};
use crate::crypto::{Complete, ExchangeId, HeaderCipher, PendingA, Status, Verdict, Welcome};
use crate::error::DropReason;
use crate::id::{PeerKey, SessionIndex};
use crate::outbox::{Outbox, Route};
use crate::peer::Peer;
use crate::session::epoch::{Agreed, Epoch};
use crate::time::Instant;
use crate::tunnel::Event;
use crate::wire::Kind;
use crate::wire::features::Features;
use crate::wire::handshake::{INDEX_COUNT, MessageA, MessageB, ResponsePart};

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
        let is_first = Kind::of(datagram) == Some(Kind::HandshakeA);
        // A second half needs no cookie: it is useless unless its first half was accepted.
        let is_loaded = is_first && self.responder.is_loaded(now);
        match self.responder.gate.check(datagram, route.remote, is_loaded) {
            Verdict::Drop(reason) => Err(reason),
            Verdict::Challenge => self.demand_cookie(route, datagram, out),
            Verdict::Pass if is_first => self.first_half(now, route, datagram, is_loaded, out),
            Verdict::Pass => self.second_half(now, route, datagram, out),
        }
    }

    fn demand_cookie(
        &mut self,
        route: Route,
        first_half: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let gate = &self.responder.gate;
        let reply = gate.cookie_reply(self.rng.as_mut(), first_half, route.remote)?;
        out.push_clear(route, &reply);
        Err(DropReason::NoCookie)
    }

    /// Opens a first half and keeps it until its second half arrives. `is_proven`: a cookie was
    /// required and was valid.
    fn first_half(
        &mut self,
        now: Instant,
        route: Route,
        datagram: &[u8],
        is_proven: bool,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let responder = &mut self.responder;
        let link = ExchangeId::of(MessageA::parse(datagram)?).0;
        if responder.half_open.half(link).is_some() {
            return Err(DropReason::Replay); // the same datagram again
        }
        let source = route.remote.ip();
        if is_proven {
            responder.budgets.charge(now, source)?;
        }
        responder.count_load(route.remote)?;
        let half = PendingA::open(self.rng.as_mut(), &self.config.secret, datagram)?;
        let peer = half.peer();
        // A replay of a known peer's message has no better place than a stranger's.
        let mut counters = responder.counters.get(&peer).copied().unwrap_or_default();
        let is_fresh = counters.accept(half.hello().counter).is_ok();
        let step = Step::Half(Box::new(half));
        let mut waiting = HalfOpen { since: now, route, peer, step, is_proven };
        if is_fresh && self.by_key.contains_key(&peer) {
            if is_proven {
                responder.budgets.refund(source);
            }
            return responder.half_open.keep_known(waiting);
        }
        if !is_proven && responder.is_crowded(now) {
            if !responder.gate.is_proven(datagram, route.remote) {
                return self.demand_cookie(route, datagram, out);
            }
            responder.budgets.charge(now, source)?;
            waiting.is_proven = true;
        }
        responder.unknown.count += 1;
        responder.half_open.keep_unknown(waiting)
    }

    fn second_half(
        &mut self,
        now: Instant,
        from: Route,
        datagram: &[u8],
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let half_open = &mut self.responder.half_open;
        half_open.expire(now);
        let link = MessageB::parse(datagram)?.link();
        let waiting = half_open.half(link).ok_or(DropReason::BadHandshake)?;
        // The response is larger than a first half. An unproven address must not receive more than
        // it sent.
        if from.remote != waiting.route.remote && !waiting.is_proven {
            return Err(DropReason::BadHandshake);
        }
        let Step::Half(half) = &mut waiting.step else { return Err(DropReason::BadHandshake) };
        // The halves may have taken different paths. The response goes to the source of the first
        // half, whose address a cookie can prove.
        let complete = half.complete(datagram)?;
        let (route, is_proven) = (waiting.route, waiting.is_proven);
        half_open.take_half(link);
        self.decide(now, route, is_proven, complete, out)
    }

    /// Both halves are here and fit. Who is it, and may it?
    fn decide(
        &mut self,
        now: Instant,
        route: Route,
        is_proven: bool,
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
                Ok(()) => {
                    let counter = counters.highest;
                    self.tell(Event::HandshakeCounter { peer, counter });
                    self.responder.regulars.note(now, route.remote.ip());
                    self.accept(now, route, complete, out)
                }
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
        let half_open = &mut self.responder.half_open;
        let asked = half_open.waits_for_shell(peer);
        let step = Step::Enrolment(Box::new(complete));
        half_open.keep_unknown(HalfOpen { since: now, route, peer, step, is_proven })?;
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
        for (route, complete) in self.responder.half_open.take_enrolments(peer) {
            let answered = self.decide(now, route, false, complete, out);
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
        for (route, complete) in self.responder.half_open.take_enrolments(peer) {
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
        let in_parts = wants_parts(&complete);
        let (response, _) = complete.respond(self.rng.as_mut(), None, &welcome)?;
        push_response(out, route, &response, in_parts)
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
        let epoch = peer.ok_or(DropReason::NoRoute)?.tunnel.identity.next_epoch();
        let ours = self.indices.issue_first(self.rng.as_mut(), slot, epoch);
        let welcome = self.welcome(Status::Accepted, route.remote, ours);
        let theirs = complete.hello().indices.to_vec();
        let peer = self.peers.get_mut(slot.0 as usize).and_then(Option::as_mut);
        let psk = peer.as_ref().and_then(|peer| peer.tunnel.identity.psk());
        let in_parts = wants_parts(&complete);
        let features = complete.hello().features & welcome.features;
        let responded = complete.respond(self.rng.as_mut(), psk, &welcome);
        let (response, keys) = match responded {
            Ok((response, Some(keys))) => (response, keys),
            Ok((response, None)) => {
                self.indices.revoke(ours);
                push_response(out, route, &response, in_parts)?;
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
            features,
            sealing: self.config.sealing,
            ours: ours.to_vec(),
            theirs,
        };
        let epoch = Epoch::new(now, agreed);
        self.with_peer(now, slot, out, |peer, cx| {
            peer.tunnel.epochs.add_pending(epoch, cx.indices);
            push_response(cx.out, route, &response, in_parts)
        })
    }

    fn welcome(
        &self,
        status: Status,
        observed: SocketAddr,
        indices: [SessionIndex; INDEX_COUNT],
    ) -> Welcome {
        let header_cipher =
            if self.config.has_aes { HeaderCipher::Aes } else { HeaderCipher::ChaCha20 };
        let (floor, features) = (self.config.floor, self.config.features | Features::PARTS);
        Welcome { status, features, floor, header_cipher, observed, indices }
    }
}

/// Whether the initiator wants the response in two parts.
fn wants_parts(complete: &Complete) -> bool {
    complete.hello().features.has(Features::PARTS)
}

fn push_response(
    out: &mut Outbox,
    route: Route,
    response: &[u8],
    in_parts: bool,
) -> Result<(), DropReason> {
    let is_pushed = if in_parts {
        let parts = ResponsePart::both(response)?;
        parts.iter().all(|part| out.push_clear(route, part))
    } else {
        out.push_clear(route, response)
    };
    if is_pushed { Ok(()) } else { Err(DropReason::QueueFull) }
}
