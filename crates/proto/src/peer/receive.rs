//! Receives a datagram: opens it, takes its frames, and settles the peer once for each batch.
//! `deliver` passes inner packets to the TUN.

use std::net::SocketAddr;

use super::{Peer, Unsettled};
use crate::error::{DropReason, PeerError};
use crate::flow::live::{Came, Early};
use crate::id::PathSerial;
use crate::multipath::Recovery;
use crate::multipath::reorder::Taken;
use crate::multipath::scheduler::Scheduler;
use crate::outbox::Route;
use crate::path::PathId;
use crate::recovery::feedback::Elicits;
use crate::session::epoch::Opened;
use crate::session::epochs::Standing;
use crate::session::index::{EpochId, Lead};
use crate::time::Instant;
use crate::tunnel::paths::PathManager;
use crate::tunnel::paths::policing::Direction;
use crate::tunnel::retransmit::ADVANCED_MAX;
use crate::tunnel::{Context, Event};
use crate::wire::control::{Control, Lease, Prefix};
use crate::wire::frame::{Challenge, ControlAck, Feedback, Frame, Frames, Framing};

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

/// What the frames of a datagram call for.
struct Called {
    elicits: Elicits,
    /// There were inner packets and feedback, and nothing else.
    is_bulk: bool,
}

/// What was taken of a datagram's frames that cost more than their bytes: an answer may be as large
/// as the datagram, and abandoned numbers have their place among many to be found.
#[derive(Default)]
struct Dear {
    challenges: usize,
    advanced: usize,
}

impl Dear {
    /// Whether this frame may be taken as well. Nobody honest sends more in one datagram.
    const fn may_be_taken(&mut self, frame: &Frame<'_>) -> bool {
        let (count, most) = if matches!(frame, Frame::Challenge(_)) {
            (&mut self.challenges, 1)
        } else if matches!(frame, Frame::Advanced { .. }) {
            (&mut self.advanced, ADVANCED_MAX)
        } else {
            return true;
        };
        *count += 1;
        *count <= most
    }
}

impl Peer {
    /// Takes a data datagram that a session index of this peer led to: opens it, delivers its
    /// frames, and leaves the rest to [`Self::settle`], which must follow. Returns whether the peer
    /// has become unsettled.
    ///
    /// Nothing changes unless the datagram is authentic and new.
    pub(crate) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        lead: Lead,
        (route, came_at): (Route, Instant),
        datagram: &mut [u8],
    ) -> Result<bool, DropReason> {
        let len = datagram.len();
        let was_settled = self.unsettled.is_none();
        let (epoch, standing) =
            self.tunnel.epochs.find(lead.epoch).ok_or(DropReason::UnknownIndex)?;
        let Opened { plaintext, newest, delivered } = epoch.open(cx.now, lead.serial, datagram)?;
        if self.unsettled.is_some_and(|earlier| earlier.lead.epoch != lead.epoch) {
            self.settle(cx);
        }
        let is_fresh = standing == Standing::Pending;
        self.tunnel.heard_at = cx.now;
        self.bonding.late.sample(cx.now, cx.now.saturating_since(came_at));
        if is_fresh {
            self.promote(cx, lead.epoch);
        }
        let is_first_heard = self.tunnel.epochs.hear(lead.epoch);
        if is_first_heard {
            self.tunnel.recovery.queue.put_forward();
        }
        let path = self.tunnel.locate(cx, lead, route, newest, is_fresh);
        let is_steady =
            self.tunnel.paths.list.note_arrival(cx.now, path, came_at, len) && !is_first_heard;
        let arrival = Arrival { epoch: lead.epoch, standing, path, route, came_at, len, delivered };
        let before = cx.out.inner_packets();
        let Called { mut elicits, is_bulk } = self.take_frames(cx, arrival, plaintext);
        if elicits == Elicits::Feedback
            && path.is_some_and(|id| self.tunnel.paths.list.is_shared(id))
        {
            elicits = Elicits::Pace;
        }
        if let Some((epoch, _)) = self.tunnel.epochs.find(lead.epoch)
            && let Some(space) = epoch.rx.get_mut(&lead.serial)
        {
            space.owed.received(came_at, len, newest, elicits);
        }
        let any_packets = cx.out.inner_packets() != before;
        let earlier = self.unsettled.is_some_and(|earlier| earlier.any_packets);
        self.unsettled = Some(Unsettled { lead, is_fresh, any_packets: any_packets || earlier });
        // Only plain traffic changes nothing that the next datagram would have to know.
        if !is_bulk || !is_steady || is_fresh {
            self.settle(cx);
        }
        Ok(was_settled && self.unsettled.is_some())
    }

    /// Does once for a batch of datagrams what each of them would give cause for: the state, what
    /// may be sent because of feedback, and what open connections have to say.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>) {
        let Some(Unsettled { lead, is_fresh, any_packets }) = self.unsettled.take() else { return };
        self.after_arrival(cx, lead, is_fresh);
        if any_packets {
            self.tunnel.paths.note_packet_received(cx.now);
            self.tunnel.rekey_if_due(cx);
        }
        self.apply_changes(cx);
        self.bonding.rescue(cx, &mut self.tunnel);
        if self.bonding.has_room_at(cx.now) {
            self.serve_bonding(cx);
        }
        self.flows.rest(cx.now); // an address that is not proven yet may be sent to again
        self.speak_for_others(cx);
    }

    /// What an arrival leads to once all its frames were taken.
    fn after_arrival(&mut self, cx: &mut Context<'_>, lead: Lead, fresh: bool) {
        self.tunnel.replenish(cx, lead.epoch);
        if fresh {
            self.tunnel.send_control(cx);
            self.flush_waiting(cx);
        }
        self.tunnel.prove_claims(cx);
    }

    /// The first datagram under a pending epoch's keys: the peer has them, they replace the old.
    fn promote(&mut self, cx: &mut Context<'_>, epoch: EpochId) {
        let first = self.tunnel.established.is_none();
        if let Some(previous) = self.tunnel.epochs.end_previous() {
            self.release(cx, previous);
        }
        self.tunnel.epochs.confirm(cx.now, epoch, cx.indices);
        self.tunnel.established.get_or_insert(cx.now);
        self.begin_epoch(cx);
        self.introduce(cx);
        cx.tell(Event::Established { peer: self.tunnel.identity.key, first, took: None });
    }

    /// Takes the frames one by one.
    fn take_frames(&mut self, cx: &mut Context<'_>, arrival: Arrival, plaintext: &[u8]) -> Called {
        let mut all = Called { elicits: Elicits::Nothing, is_bulk: true };
        let mut dear = Dear::default();
        for frame in Frames::new(plaintext) {
            let taken = frame.and_then(|frame| {
                all.elicits = all.elicits.max(elicited_by(&frame));
                all.is_bulk &= frame.carries_packet() || matches!(frame, Frame::Feedback(_));
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
            if self.tunnel.epochs.current.is_none() {
                return Called { elicits: Elicits::Nothing, is_bulk: false }; // a close ended it
            }
        }
        all
    }

    fn take_frame(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        frame: Frame<'_>,
    ) -> Result<(), DropReason> {
        match frame {
            Frame::Packet { framing, packet } => self.take_packet(cx, arrival, framing, packet),
            Frame::Advanced { bucket, from, to } => {
                if let Some((epoch, _)) = self.tunnel.epochs.find(arrival.epoch) {
                    epoch.reorder.abandon(bucket, from, to);
                    self.release(cx, arrival.epoch);
                }
                Ok(())
            }
            Frame::Fragment { packet_id, index, piece } => {
                self.take_piece(cx, arrival, packet_id, (index, piece))
            }
            Frame::Retransmission { serial, number, packet } => {
                self.take_retransmission(cx, arrival, serial, number, packet)
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
                self.tunnel.take_challenge(cx, arrival.path, arrival.route, arrival.len, challenge)
            }
            Frame::Response(response) => {
                self.tunnel.take_response(cx, arrival.path, arrival.route, response);
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
                if let Some(path) = arrival.path.filter(|_| self.at_gateway()) {
                    self.tunnel.echo.ask(cx.now, path, arrival.route.remote, echo);
                }
                Ok(())
            }
            Frame::Unknown => Ok(()),
            Frame::UnknownCritical(kind) => {
                self.close_over_frame(cx, kind);
                Ok(())
            }
        }
    }

    /// An inner packet: delivered at once, in order, or not at all because a copy was.
    fn take_packet(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        framing: Framing,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let id = arrival.epoch;
        let place = match framing {
            Framing::Plain => return self.deliver(cx, self.came_by(arrival.path), packet),
            Framing::Once { bucket, sequence } => {
                let found = self.tunnel.epochs.find(id);
                if found.is_some_and(|(epoch, _)| epoch.reorder.take_once(bucket, sequence)) {
                    return self.deliver(cx, self.came_by(arrival.path), packet);
                }
                return Ok(());
            }
            Framing::InOrder { bucket, sequence } => (bucket, sequence),
            Framing::First { bucket, epoch, end } => {
                self.tunnel.epochs.follow(id, bucket, epoch, end);
                (bucket, 0)
            }
        };
        let buffers = (&mut self.tunnel.epochs, &self.tunnel.paths.list);
        let taken = self.inbound.take(cx, buffers, id, place, packet);
        let delivered = match taken {
            Taken::Deliver | Taken::Late => self.deliver(cx, Came::InTurn, packet),
            Taken::Kept | Taken::Duplicate => Ok(()),
        };
        if matches!(taken, Taken::Deliver | Taken::Kept) {
            self.release(cx, id); // a kept packet may have made another's turn come
        }
        delivered
    }

    /// How a packet came that need not wait for what comes before it.
    fn came_by(&self, path: Option<PathId>) -> Came {
        path.filter(|&id| self.tunnel.paths.list.is_shared(id)).map_or(Came::Alone, Came::Beside)
    }

    /// The peer said something that must not be skipped, and nobody here knows what it means.
    fn close_over_frame(&mut self, cx: &mut Context<'_>, kind: u8) {
        self.tunnel.say_close(cx, crate::error::CloseCode::Protocol);
        self.end(cx, PeerError::UnknownFrame(kind));
    }

    /// The peer has taken what it was told for certain: there may be room for more.
    fn take_control_ack(&mut self, cx: &mut Context<'_>, standing: Standing, ack: ControlAck) {
        if standing != Standing::Previous {
            self.tunnel.control.acknowledged(ack);
            self.tunnel.announce(cx);
            self.apply_settings(cx);
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
            self.tunnel.prefer(cx, arrival.path, challenge.abandon_others);
        }
        if let Some(path) = arrival.path.filter(|_| self.tunnel.paths.at_gateway()) {
            self.bonding.set_shared(&mut self.tunnel, cx.now, path, challenge.beside);
        }
    }

    /// Takes a packet that is sent again because it was lost, unless the first one has arrived.
    fn take_retransmission(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        serial: PathSerial,
        number: u32,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let Some((epoch, _)) = self.tunnel.epochs.find(arrival.epoch) else { return Ok(()) };
        let lane = epoch.rx.get_mut(&serial).ok_or(DropReason::UnknownIndex)?;
        if lane.take_retransmitted(cx.now, number) {
            self.deliver(cx, self.came_by(arrival.path), packet)
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
        let Some((epoch, _)) = self.tunnel.epochs.find(arrival.epoch) else { return Ok(()) };
        match epoch.reassembly.receive(cx.now, packet_id, index, piece)? {
            Some(whole) => self.take_whole(cx, arrival, &whole),
            None => Ok(()),
        }
    }

    /// A frame that came in pieces: an inner packet, and nothing else.
    fn take_whole(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        whole: &[u8],
    ) -> Result<(), DropReason> {
        match Frames::new(whole).next() {
            Some(Ok(frame @ (Frame::Packet { .. } | Frame::Retransmission { .. }))) => {
                self.take_frame(cx, arrival, frame)
            }
            Some(_) | None => Err(DropReason::Fragment),
        }
    }

    fn take_last_feedback(&mut self, cx: &mut Context<'_>, arrival: Arrival, last: &Feedback) {
        self.take_feedback(cx, arrival, last);
        // Under old keys the serial is that of another lane.
        if arrival.standing != Standing::Previous
            && self.at_gateway()
            && let Some(id) = self.tunnel.epochs.path_of(last.serial)
            && arrival.path != Some(id)
            && let Some(path) = self.tunnel.paths.list.get_mut(id)
        {
            path.move_to_gone(); // what is sealed with it arrives no more, says the client
        }
    }

    fn take_feedback(&mut self, cx: &mut Context<'_>, arrival: Arrival, feedback: &Feedback) {
        let Arrival { epoch, came_at, .. } = arrival;
        let conditions = self.bonding.conditions(cx);
        let Some(told) = self.tunnel.take_feedback(cx, epoch, came_at, feedback, conditions) else {
            return;
        };
        self.bonding.couple(cx, &mut self.tunnel, &told);
        if told.declines {
            self.tunnel.manage(cx, |paths, cx| paths.distrust(cx, told.path));
        }
        if let Some(rate) = told.findings.policed {
            let serial = Some(feedback.serial).filter(|_| arrival.standing == Standing::Current);
            self.tunnel.note_policed(cx, told.path, serial, rate);
        }
        if told.follows && arrival.standing == Standing::Current {
            self.tunnel.recovery.overtake(epoch, told.path);
        }
    }

    fn take_control_frame(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        number: u32,
        body: &[u8],
    ) -> Result<(), DropReason> {
        let Some((epoch, _)) = self.tunnel.epochs.find(arrival.epoch) else { return Ok(()) };
        epoch.control.receive(number, body)?;
        while let Some((epoch, _)) = self.tunnel.epochs.find(arrival.epoch)
            && let Some(body) = epoch.control.poll()
        {
            let message = match Control::parse(&body) {
                Ok(message) => message,
                Err(reason) => {
                    cx.drops.count(reason);
                    continue; // those behind it count all the same
                }
            };
            let asked = &mut self.bonding.settings;
            match message {
                Control::Networks(networks) => self.take_networks(cx, arrival.epoch, networks),
                Control::Lease(lease) => self.take_lease(cx, arrival.epoch, lease),
                Control::Early(ends) => self.take_early(&Early::new(&ends)),
                Control::Routes(routes) => {
                    self.note_introduced();
                    if self.tunnel.paths.at_gateway() {
                        cx.tell(Event::Routes { peer: self.tunnel.identity.key, routes });
                    }
                }
                Control::Indices { first, indices } => {
                    epoch.take_indices(first, &indices);
                    // For want of one, some path may have been put off.
                    self.tunnel.manage(cx, PathManager::stand_by);
                }
                Control::Policed { serial, kbps } => {
                    if let Some(path) = epoch.rx.get(&serial).and_then(|lane| lane.path) {
                        self.tunnel.manage(cx, |paths, cx| {
                            paths.doubt_udp(cx, path, Direction::Down, kbps);
                        });
                    }
                }
                Control::Taken { next } => epoch.note_taken(next),
                Control::RestartTokens { first, tokens } => {
                    epoch.take_restart_tokens(first, &tokens);
                }
                Control::Addresses(addresses) => self.take_addresses(cx, addresses),
                // Under old keys it is late: the client said it again under the new ones.
                Control::Scheduler(_) | Control::Recovery(_)
                    if !self.tunnel.paths.at_gateway()
                        || arrival.standing == Standing::Previous => {}
                Control::Scheduler(n) => {
                    asked.scheduler = Scheduler::numbered(n).unwrap_or_default()
                }
                Control::Recovery(n) => asked.recovery = Recovery::numbered(n).unwrap_or_default(),
                Control::Run(run) => {
                    // Under old keys it may be late, and does not show which host is active now.
                    let is_new =
                        self.tunnel.paths.at_gateway() && arrival.standing != Standing::Previous;
                    if is_new && self.runs.returns(run) {
                        self.note_shared_key(cx);
                        self.warn_of_shared_key(cx);
                    }
                }
                Control::KeyIsShared if !self.tunnel.paths.at_gateway() => self.note_shared_key(cx),
                Control::KeyIsShared => {}
                Control::Unknown(_) => {}
            }
        }
        Ok(())
    }

    /// Client: the gateway names the networks that it leads to.
    fn take_networks(&mut self, cx: &mut Context<'_>, epoch: EpochId, networks: Vec<Prefix>) {
        let Some(connector) = self.tunnel.paths.side.client_mut() else { return };
        if connector.granted.take_networks(epoch, networks) {
            let networks = connector.granted.networks().to_vec();
            cx.tell(Event::Networks { peer: self.tunnel.identity.key, networks });
        }
    }

    /// Client: the gateway grants inner addresses, after it has named its networks.
    fn take_lease(&mut self, cx: &mut Context<'_>, epoch: EpochId, lease: Lease) {
        let Some(connector) = self.tunnel.paths.side.client_mut() else { return };
        if connector.granted.end_networks(epoch) {
            cx.tell(Event::Networks { peer: self.tunnel.identity.key, networks: Vec::new() });
        }
        connector.granted.lease = Some(lease.clone());
        cx.tell(Event::Leased { peer: self.tunnel.identity.key, lease });
    }

    /// Client: the gateway is reached at these from now on.
    fn take_addresses(&mut self, cx: &mut Context<'_>, addresses: Vec<SocketAddr>) {
        if self.tunnel.manage(cx, |paths, cx| paths.take_addresses(cx, &addresses)) {
            cx.tell(Event::Announced { peer: self.tunnel.identity.key, addresses });
        }
    }
}

/// What the sender of `frame` is owed.
const fn elicited_by(frame: &Frame<'_>) -> Elicits {
    if matches!(
        frame,
        Frame::Packet { framing: Framing::InOrder { .. } | Framing::First { .. }, .. }
    ) {
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
        let advanced = |from| Frame::Advanced { bucket: 3, from, to: from + 1 };
        assert!(dear.may_be_taken(&challenge) && !dear.may_be_taken(&challenge));
        let taken = (0..200).filter(|&number| dear.may_be_taken(&advanced(number))).count();
        assert_eq!(taken, ADVANCED_MAX);
        let packet = Frame::Packet { framing: Framing::Plain, packet: &[] };
        assert!((0..100).all(|_| dear.may_be_taken(&packet)), "what is cheap");
    }
}
