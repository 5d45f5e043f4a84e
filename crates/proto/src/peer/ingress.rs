//! In: from an opened datagram to inner packets for the TUN, and to what its other frames change.

use std::collections::VecDeque;

use super::epoch::Opened;
use super::epochs::Standing;
use super::index::{EpochId, Lead};
use super::live::Came;
use super::order::VOIDS_MAX;
use super::share::has_share;
use super::{Context, Event, Peer, Role};
use crate::error::{DropReason, PeerError};
use crate::flow::Verdict;
use crate::flow::live::Early;
use crate::id::PathSerial;
use crate::outbox::Route;
use crate::path::feedback::Elicits;
use crate::path::{Health, PathId, Trust};
use crate::time::Instant;
use crate::wire::control::Control;
use crate::wire::data::BASE_DATAGRAM;
use crate::wire::frame::{Challenge, ControlAck, Feedback, Frame, Frames};
use crate::wire::inner::InnerPacket;

/// Where a datagram came from, in the peer's own terms.
#[derive(Clone, Copy)]
struct Arrival {
    epoch: EpochId,
    standing: Standing,
    path: Option<PathId>,
    route: Route,
    /// When it arrived at this host.
    came_at: Instant,
    len: usize,
    /// Whether its inner packets were delivered by another path already.
    delivered: bool,
}

/// What was taken of a datagram's frames that cost more than their bytes: an answer may be as large
/// as the datagram, and a number that will not come has its place among many to be found.
#[derive(Default)]
struct Dear {
    challenges: usize,
    voids: usize,
}

impl Dear {
    /// Whether this frame may be taken as well. Nobody honest sends more in one datagram.
    const fn may_be_taken(&mut self, frame: &Frame<'_>) -> bool {
        let (count, most) = if matches!(frame, Frame::Challenge(_)) {
            (&mut self.challenges, 1)
        } else if matches!(frame, Frame::Void { .. }) {
            (&mut self.voids, VOIDS_MAX)
        } else {
            return true;
        };
        *count += 1;
        *count <= most
    }
}

impl Peer {
    /// Takes a data datagram that an index of this peer led to.
    ///
    /// Nothing changes unless it is authentic and new.
    pub(crate) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        lead: Lead,
        (route, came_at): (Route, Instant),
        datagram: &mut [u8],
    ) -> Result<(), DropReason> {
        let len = datagram.len();
        let (epoch, standing) = self.epochs.find(lead.epoch).ok_or(DropReason::UnknownIndex)?;
        let opened = epoch.open(cx.now, lead.serial, datagram)?;
        let Opened { plaintext, newest, delivered } = opened;
        self.heard_at = cx.now;
        self.bond.late.sample(cx.now, cx.now.saturating_since(came_at));
        let fresh = standing == Standing::Pending;
        if fresh {
            self.promote(cx, lead.epoch);
        }
        if self.epochs.hear(lead.epoch) {
            self.lost.put_forward();
        }
        let path = self.locate(cx, lead, route, newest, fresh);
        if let Some(path) = path.and_then(|id| self.paths.get_mut(id)) {
            path.note_return(cx.now);
            path.heard(cx.now, came_at, len);
            if matches!(path.health, Health::Silent { .. }) {
                // The peer gets through: perhaps this end does again.
                path.probes.start(cx.now, &path.rtt.clone());
                path.probes.hurry(cx.now);
            }
        }
        let epoch = lead.epoch;
        let arrival = Arrival { epoch, standing, path, route, came_at, len, delivered };
        let before = cx.out.inner_packets();
        let mut elicits = self.take_frames(cx, arrival, plaintext);
        if elicits == Elicits::Feedback && self.is_shared(path) {
            elicits = Elicits::Pace;
        }
        let traffic = cx.out.inner_packets() != before;
        if let Some((epoch, _)) = self.epochs.find(lead.epoch)
            && let Some(lane) = epoch.rx.get_mut(&lead.serial)
        {
            lane.owed.received(came_at, len, newest, elicits);
        }
        self.after_arrival(cx, lead, fresh);
        if traffic {
            self.used_at = Some(cx.now);
            if let Role::Client(connector) = &mut self.role {
                connector.listening.hear(cx.now);
            }
            self.rekey_if_due(cx);
        }
        self.refresh_state(cx);
        self.rescue(cx);
        self.serve_after_arrival(cx);
        self.flows.rest(cx.now); // an address that is not proven yet may be sent to again
        self.speak_for_others(cx);
        Ok(())
    }

    /// What an arrival leads to once all its frames were taken.
    fn after_arrival(&mut self, cx: &mut Context<'_>, lead: Lead, fresh: bool) {
        if let Some((epoch, standing)) = self.epochs.find(lead.epoch) {
            let replenished = if standing == Standing::Current {
                epoch.replenish(cx.rng, cx.indices, self.slot, self.paths.active_id())
            } else {
                None
            };
            let owes_ack = standing == Standing::Current && epoch.control.owes_ack();
            if let Some((first, indices)) = replenished {
                self.control.push(cx.now, &Control::Indices { first, indices });
                self.hand_out_restart_tokens(cx, first);
            }
            if owes_ack {
                self.send_control(cx);
            }
        }
        if fresh {
            self.send_control(cx);
            self.flush_waiting(cx);
        }
        self.prove_claims(cx);
    }

    /// The first datagram under a pending epoch's keys: the peer has them, they replace the old.
    fn promote(&mut self, cx: &mut Context<'_>, epoch: EpochId) {
        let first = self.established.is_none();
        self.release_previous(cx);
        self.epochs.confirm(cx.now, epoch, cx.indices);
        self.established.get_or_insert(cx.now);
        self.begin_epoch(cx);
        self.introduce(cx);
        cx.tell(Event::Established { peer: self.key, first, took: None });
    }

    /// Takes the frames one by one. Returns what they call for.
    fn take_frames(&mut self, cx: &mut Context<'_>, arrival: Arrival, plaintext: &[u8]) -> Elicits {
        let mut elicits = Elicits::Nothing;
        let mut dear = Dear::default();
        for frame in Frames::new(plaintext) {
            let taken = frame.and_then(|frame| {
                elicits = elicits.max(elicited_by(&frame));
                if arrival.delivered && frame.carries_packet() {
                    return Ok(());
                }
                if !dear.may_be_taken(&frame) {
                    return Err(DropReason::BadFrame);
                }
                self.take_frame(cx, arrival, frame)
            });
            if let Err(reason) = taken {
                cx.drops.count(reason);
            }
            if self.epochs.current.is_none() {
                return Elicits::Nothing; // a close ended the session
            }
        }
        elicits
    }

    fn take_frame(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        frame: Frame<'_>,
    ) -> Result<(), DropReason> {
        match frame {
            Frame::Packet(packet) => self.deliver(cx, self.came_by(arrival.path), packet),
            Frame::Sequenced { bucket, sequence, packet } => {
                let Some((epoch, _)) = self.epochs.find(arrival.epoch) else { return Ok(()) };
                if epoch.sequence_rx.accept(bucket, sequence) {
                    self.deliver(cx, self.came_by(arrival.path), packet)
                } else {
                    Ok(()) // the copy that came by the other path
                }
            }
            Frame::Ordered { bucket, sequence, packet } => {
                self.take_ordered(cx, arrival.epoch, (bucket, sequence), packet)
            }
            Frame::First { bucket, epoch, end, packet } => {
                self.take_first(cx, arrival.epoch, bucket, (epoch, end), packet)
            }
            Frame::Ended { bucket, end } => {
                self.take_end(cx, arrival.epoch, bucket, end);
                Ok(())
            }
            Frame::Void { bucket, sequence } => {
                self.take_void(cx, arrival.epoch, bucket, sequence);
                Ok(())
            }
            Frame::Fragment { packet_id, index, piece } => {
                self.take_piece(cx, arrival, packet_id, (index, piece))
            }
            Frame::Retransmission { serial, number, frame } => {
                self.take_retransmission(cx, arrival, serial, number, frame)
            }
            Frame::Feedback(feedback) => {
                self.take_feedback(cx, arrival, &feedback);
                Ok(())
            }
            Frame::LastFeedback(feedback) => {
                self.take_last_feedback(cx, arrival, &feedback);
                Ok(())
            }
            Frame::Challenge(challenge) => {
                self.heed_challenge(cx, arrival, challenge);
                self.take_challenge(cx, arrival.path, arrival.route, arrival.len, challenge)
            }
            Frame::Response(response) => {
                self.take_response(cx, arrival.path, arrival.route, response);
                Ok(())
            }
            Frame::Close(code) => {
                // Under old keys it is late: who says it forgets all keys, and has come back to
                // answer for the new ones. If that answer had left before, the first words under
                // the new keys stay without one, and that tells.
                if arrival.standing != Standing::Previous {
                    self.end(cx, PeerError::Closed(code));
                }
                Ok(())
            }
            Frame::Control { number, body } => self.take_control_frame(cx, arrival, number, body),
            Frame::ControlAck(ack) => {
                self.take_control_ack(cx, arrival.standing, ack);
                Ok(())
            }
            Frame::Echo(echo) => {
                self.take_echo(cx, arrival.path, arrival.route, echo);
                Ok(())
            }
            Frame::Unknown => Ok(()),
            Frame::UnknownCritical(kind) => {
                self.close_over_frame(cx, kind);
                Ok(())
            }
        }
    }

    /// The peer said something that must not be skipped, and nobody here knows what it means.
    fn close_over_frame(&mut self, cx: &mut Context<'_>, kind: u8) {
        self.say_close(cx, crate::error::CloseCode::Protocol);
        self.end(cx, PeerError::UnknownFrame(kind));
    }

    /// The peer has taken what it was told for certain: there may be room for more.
    fn take_control_ack(&mut self, cx: &mut Context<'_>, standing: Standing, ack: ControlAck) {
        if standing != Standing::Previous {
            self.control.acknowledged(ack);
            self.announce(cx);
            self.tell_scheduler(cx);
            self.tell_recovery(cx);
        }
    }

    /// What the client says in a challenge of how it wants to be reached.
    fn heed_challenge(&mut self, cx: &mut Context<'_>, arrival: Arrival, challenge: Challenge) {
        // Under old keys it is late: the peer has said since what it prefers.
        if arrival.standing == Standing::Previous {
            return;
        }
        if challenge.prefer && challenge.moves >= self.followed {
            self.followed = challenge.moves;
            self.prefer(cx, arrival.path, challenge.abandon_others);
        }
        self.take_sharing(cx.now, arrival.path, challenge.beside);
    }

    /// A packet that left before by a path that is dead, unless it arrived all the same.
    fn take_retransmission(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        serial: PathSerial,
        number: u32,
        frame: &[u8],
    ) -> Result<(), DropReason> {
        let Some((epoch, _)) = self.epochs.find(arrival.epoch) else { return Ok(()) };
        let lane = epoch.rx.get_mut(&serial).ok_or(DropReason::UnknownIndex)?;
        if lane.take_retransmitted(cx.now, number) {
            self.take_whole(cx, arrival, frame)
        } else {
            Ok(())
        }
    }

    /// A piece of a frame; with the last of them that is whole.
    fn take_piece(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        packet_id: u32,
        (index, piece): (u8, &[u8]),
    ) -> Result<(), DropReason> {
        let Some((epoch, _)) = self.epochs.find(arrival.epoch) else { return Ok(()) };
        match epoch.reassembly.receive(cx.now, packet_id, index, piece)? {
            Some(whole) => self.take_whole(cx, arrival, &whole),
            None => Ok(()),
        }
    }

    /// A frame that came in pieces, or again: an inner packet, and nothing else.
    fn take_whole(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        whole: &[u8],
    ) -> Result<(), DropReason> {
        match Frames::new(whole).next() {
            Some(Ok(
                frame @ (Frame::Packet(_)
                | Frame::Sequenced { .. }
                | Frame::Ordered { .. }
                | Frame::First { .. }
                | Frame::Retransmission { .. }),
            )) => self.take_frame(cx, arrival, frame),
            Some(_) | None => Err(DropReason::Fragment),
        }
    }

    /// An inner packet on its way to the TUN, if the peer may send it.
    pub(super) fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        came: Came,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let inner = InnerPacket::whole(packet)?;
        if let Err(reason) = self.access.admit(&inner.headers)
            && !self.may_answer(cx.now, &inner)
        {
            self.refuse(cx, &inner);
            return Err(reason);
        }
        self.hear_refusal(&inner);
        self.hear_live(cx.now, came, &inner);
        let verdict = self.flows.incoming(cx.now, cx.memory, &inner);
        if verdict == Verdict::Keep {
            return Ok(());
        }
        if !cx.out.push_inner(packet) {
            return Err(DropReason::QueueFull);
        }
        if let Verdict::Change(change) = verdict {
            change.apply(cx.out.last_inner());
        }
        Ok(())
    }

    fn take_last_feedback(&mut self, cx: &mut Context<'_>, arrival: Arrival, last: &Feedback) {
        self.take_feedback(cx, arrival, last);
        // Under old keys the serial is that of another lane.
        if arrival.standing != Standing::Previous {
            self.take_farewell(arrival.path, last.serial);
        }
    }

    fn take_feedback(&mut self, cx: &mut Context<'_>, arrival: Arrival, feedback: &Feedback) {
        let in_flight = self.in_flight(arrival.epoch, feedback.serial);
        let is_alone = self.paths.iter().filter(|path| has_share(path)).nth(1).is_none();
        let Some((epoch, _)) = self.epochs.find(arrival.epoch) else { return };
        let Some(lane) = epoch.tx.iter_mut().find(|lane| lane.seal.serial == feedback.serial)
        else {
            return;
        };
        let Some(path) = self.paths.get_mut(lane.path) else { return };
        let blocks = cx.memory.blocks();
        let mut lost = VecDeque::new();
        let repaired = path.congestion.is_some().then_some(&mut lost);
        let before = lane.flight.in_flight();
        path.note_lateness(cx.now, arrival.came_at, feedback);
        let news =
            lane.flight.acknowledged(arrival.came_at, blocks, feedback, &mut path.rtt, repaired);
        if let Some(news) = &news {
            let elsewhere = in_flight.saturating_sub(before);
            path.heed_session(self.bond.late.usual(), is_alone);
            path.delivered(cx.now, feedback, news, elsewhere + lane.flight.in_flight());
        }
        let (serial, follows) = (lane.seal.serial, news.is_some_and(|news| news.sent_at.is_some()));
        let large = lane.flight.large();
        if news.is_some() {
            path.mtu.confirm_by_data(cx.now, large.largest_arrived());
        }
        if large.takes_shrunk() {
            path.doubt_mtu(cx.now);
        }
        let (id, declines) = (path.id, lane.flight.takes_decline());
        if news.is_some()
            && matches!(path.health, Health::Silent { .. })
            && path.trust == Trust::Proven
        {
            path.answers(cx.now);
            path.probes.stop();
        }
        // A repeated search costs up to 15 large datagrams. Small packets and the session's own
        // frames gain nothing by it, and an idle session must stay silent.
        let is_worth_it = |delivered| !path.mtu.is_settled() || delivered >= BASE_DATAGRAM as u64;
        if news.is_some_and(|news| is_worth_it(news.delivered))
            && path.mtu_due.is_none()
            && path.mtu.wants_probe(cx.now)
        {
            path.mtu_due = Some(cx.now);
        }
        self.couple(cx, id);
        if declines {
            self.distrust(cx, id);
        }
        if follows && arrival.standing == Standing::Current {
            self.epochs.overtake(id);
        }
        self.lost.extend_counted(cx.drops, (arrival.epoch, serial), lost);
    }

    /// Bytes on their way, under whatever keys, by the path of a lane.
    fn in_flight(&mut self, epoch: EpochId, serial: PathSerial) -> u64 {
        let Some((epoch, _)) = self.epochs.find(epoch) else { return 0 };
        let lane = epoch.tx.iter().find(|lane| lane.seal.serial == serial);
        lane.map(|lane| lane.path).map_or(0, |path| self.epochs.in_flight(path))
    }

    fn take_control_frame(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        number: u32,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let Some((epoch, _)) = self.epochs.find(arrival.epoch) else { return Ok(()) };
        epoch.control.receive(number, body)?;
        while let Some((epoch, _)) = self.epochs.find(arrival.epoch)
            && let Some(body) = epoch.control.poll()
        {
            let message = match Control::parse(&body) {
                Ok(message) => message,
                Err(reason) => {
                    cx.drops.count(reason);
                    continue; // those behind it count all the same
                }
            };
            match message {
                Control::Lease(lease) => {
                    if let Role::Client(connector) = &mut self.role {
                        connector.lease = Some(lease.clone());
                        cx.tell(Event::Leased { peer: self.key, lease });
                    }
                }
                Control::Early(ends) => self.take_early(&Early::new(&ends)),
                Control::Routes(routes) => {
                    self.note_introduced();
                    if self.at_gateway() {
                        cx.tell(Event::Routes { peer: self.key, routes });
                    }
                }
                Control::Indices { first, indices } => {
                    epoch.take_indices(first, &indices);
                    self.stand_by(cx); // for want of one, some path may have been put off
                }
                Control::Taken { next } => epoch.note_taken(next),
                Control::RestartTokens { first, tokens } => {
                    epoch.take_restart_tokens(first, &tokens);
                }
                Control::Addresses(addresses) => self.take_addresses(cx, addresses),
                Control::Scheduler(number) => self.take_scheduler(arrival.standing, number),
                Control::Recovery(number) => self.take_recovery(arrival.standing, number),
                Control::Run(run) => self.take_run(cx, arrival.standing, run),
                Control::KeyIsShared => self.take_shared_key(cx),
                Control::Unknown(_) => {}
            }
        }
        Ok(())
    }
}

/// What the sender of `frame` is owed.
const fn elicited_by(frame: &Frame<'_>) -> Elicits {
    if matches!(frame, Frame::Ordered { .. } | Frame::First { .. }) {
        Elicits::Pace
    } else if frame.elicits_feedback() {
        Elicits::Feedback
    } else {
        Elicits::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_datagram_no_more_is_taken_than_anybody_honest_sends() {
        let mut dear = Dear::default();
        let challenge = Frame::Challenge(Challenge {
            prefer: false,
            abandon_others: false,
            beside: false,
            token: 1,
            moves: 0,
        });
        let void = |sequence| Frame::Void { bucket: 3, sequence };
        assert!(dear.may_be_taken(&challenge) && !dear.may_be_taken(&challenge));
        let taken = (0..200).filter(|&sequence| dear.may_be_taken(&void(sequence))).count();
        assert_eq!(taken, VOIDS_MAX);
        assert!((0..100).all(|_| dear.may_be_taken(&Frame::Packet(&[]))), "what is cheap");
    }
}
