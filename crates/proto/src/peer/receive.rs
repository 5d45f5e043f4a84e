//! A datagram from the peer, from its arrival to the parts that its frames are for.
//!
//! [`Peer::receive`] is the whole way: open, put the keys to use, locate the path, take the frames,
//! settle. Frames go to their parts one by one in `take_frame`, control messages in `take_message`,
//! inner packets to `deliver`. [`Peer::settle`] follows once for each batch.
//!
//! A [`DropReason`] says what was wrong with the datagram or one of its frames. A frame that is
//! refused does not keep the others from being taken.

use super::{Peer, Unsettled, live, share};
use crate::codec::header::Template;
use crate::error::{CloseCode, DropReason, PeerError};
use crate::flow::live::{Came, Early};
use crate::multipath::reorder::Taken;
use crate::outbox::Route;
use crate::path::PathId;
use crate::paths::PathManager;
use crate::paths::list::Paths;
use crate::paths::policing::Direction;
use crate::recovery::feedback::Elicits;
use crate::role::Access;
use crate::session::epoch::{Epoch, Opened};
use crate::session::epochs::Standing;
use crate::session::index::{EpochId, Lead};
use crate::time::Instant;
use crate::tunnel::retransmit::ADVANCED_MAX;
use crate::tunnel::{Context, Event, Side, saving};
use crate::wire::control::Control;
use crate::wire::frame::{Challenge, CompactHead, Feedback, Frame, Frames, Framing};
use crate::wire::inner::Pieces;

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

impl Arrival {
    /// How its packets came, if they need not wait for what comes before them.
    fn came(&self, paths: &Paths) -> Came {
        self.path.filter(|&id| paths.is_shared(id)).map_or(Came::Alone, Came::Beside)
    }
}

/// What the frames of a datagram call for.
struct Called {
    elicits: Elicits,
    /// There were inner packets and feedback, and nothing else.
    is_bulk: bool,
}

/// Counts the frames of a datagram that cost more than their bytes: a challenge is answered by a
/// datagram as large as its own, and an abandoned number has to be found among many.
#[derive(Default)]
struct Costly {
    challenges: usize,
    advanced: usize,
}

impl Costly {
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
    /// Takes a data datagram that a session index of this peer led to. [`Self::settle`] must follow
    /// the last one of a batch. Returns whether the peer has become unsettled.
    ///
    /// Nothing changes unless the datagram is authentic and new.
    pub(crate) fn receive(
        &mut self,
        cx: &mut Context<'_>,
        lead: Lead,
        (route, came_at): (Route, Instant),
        datagram: &mut [u8],
    ) -> Result<bool, DropReason> {
        let (len, was_settled) = (datagram.len(), self.unsettled.is_none());

        // Open: the only stage that may refuse a datagram.
        let (epoch, standing) =
            self.tunnel.epochs.find(lead.epoch).ok_or(DropReason::UnknownIndex)?;
        let Opened { plaintext, newest, delivered } = epoch.open(cx.now, lead.serial, datagram)?;

        // Put the keys to use.
        if self.unsettled.is_some_and(|earlier| earlier.lead.epoch != lead.epoch) {
            self.settle(cx);
        }
        let is_first_under_previous = self.tunnel.epochs.hear(cx.now, lead.epoch);
        self.bonding.late.sample(cx.now, cx.now.saturating_since(came_at));
        let is_fresh = standing == Standing::Pending;
        if is_fresh {
            self.promote(cx, lead.epoch);
        }
        if is_first_under_previous {
            self.tunnel.recovery.queue.put_forward(); // repairs under these keys may leave
        }

        // Locate the path.
        let path = self.tunnel.locate(cx, lead, route, newest, is_fresh);
        let is_steady = self.tunnel.paths.list.note_arrival(cx.now, path, came_at, len)
            && !is_first_under_previous;

        // Take the frames, and owe feedback about them.
        let arrival = Arrival { epoch: lead.epoch, standing, path, route, came_at, len, delivered };
        let before = cx.out.inner_packets();
        let Called { mut elicits, is_bulk } = self.take_frames(cx, arrival, plaintext);
        if elicits == Elicits::Feedback && arrival.came(&self.tunnel.paths.list) != Came::Alone {
            elicits = Elicits::Pace;
        }
        if let Some((epoch, _)) = self.tunnel.epochs.find(lead.epoch)
            && let Some(lane) = epoch.rx.get_mut(&lead.serial)
        {
            lane.owed.received(came_at, len, newest, elicits);
        }

        // Settle: at once, unless the next datagram need not know what this one changed.
        let earlier = self.unsettled.is_some_and(|earlier| earlier.any_packets);
        let any_packets = earlier || cx.out.inner_packets() != before;
        self.unsettled = Some(Unsettled { lead, is_fresh, any_packets });
        if !is_bulk || !is_steady || is_fresh {
            self.settle(cx);
        }
        Ok(was_settled && self.unsettled.is_some())
    }

    /// Does once for a batch what each of its datagrams would cause: works out the state, sends
    /// packets for which feedback made room, and lets the flows act.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>) {
        let Some(Unsettled { lead, is_fresh, any_packets }) = self.unsettled.take() else { return };
        self.tunnel.replenish(cx, lead.epoch);
        if is_fresh {
            self.tunnel.send_control(cx);
            self.flush_waiting(cx);
        }
        self.tunnel.prove_claims(cx);
        if any_packets {
            self.tunnel.paths.note_packet_received(cx.now);
            self.tunnel.rekey_if_due(cx);
        }
        self.apply_changes(cx);
        live::rescue(self, cx);
        if self.bonding.has_room_at(cx.now) {
            self.serve_bonding(cx);
        }
        self.flows.rest(cx.now); // an address that is not proven yet may be sent to again
        self.send_generated(cx);
    }

    /// The first datagram under a pending epoch's keys: the peer has them, they replace the old.
    fn promote(&mut self, cx: &mut Context<'_>, epoch: EpochId) {
        if let Some(previous) = self.tunnel.epochs.end_previous() {
            self.release(cx, previous);
        }
        let first = self.tunnel.epochs.confirm(cx.now, epoch, cx.indices);
        self.begin_epoch(cx, first, None);
    }

    /// Takes the frames one by one.
    fn take_frames(&mut self, cx: &mut Context<'_>, arrival: Arrival, plaintext: &[u8]) -> Called {
        let mut all = Called { elicits: Elicits::Nothing, is_bulk: true };
        let mut costly = Costly::default();
        for frame in Frames::new(plaintext) {
            let taken = frame.and_then(|frame| {
                all.elicits = all.elicits.max(elicited_by(&frame));
                all.is_bulk &= frame.carries_packet() || matches!(frame, Frame::Feedback(_));
                if arrival.delivered && frame.carries_packet() {
                    return Ok(());
                }
                if !costly.may_be_taken(&frame) {
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

    /// Takes one frame: hands it to the part that it is for.
    fn take_frame(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        frame: Frame<'_>,
    ) -> Result<(), DropReason> {
        let Arrival { epoch: id, path, route, .. } = arrival;
        let Some((epoch, standing)) = self.tunnel.epochs.find(id) else { return Ok(()) };
        let is_late = standing == Standing::Previous; // the peer has new keys since
        match frame {
            Frame::Packet { framing, packet } => {
                self.take_packet(cx, arrival, framing, Pieces::whole(packet))?;
            }
            Frame::Compact { head, body } => take_compact(self, cx, arrival, (head, body))?,
            Frame::Compressed { framing, result } => {
                take_compressed(self, cx, arrival, (framing, result))?;
            }
            Frame::Advanced { bucket, from, to } => {
                epoch.reorder.abandon(bucket, from, to);
                self.release(cx, id);
            }
            Frame::Fragment { packet_id, index, piece } => {
                if let Some(whole) = epoch.reassembly.receive(cx.now, packet_id, index, piece)? {
                    self.take_whole(cx, arrival, &whole)?;
                }
            }
            Frame::Retransmission { serial, number, packet } => {
                if epoch.take_retransmitted(cx.now, serial, number)? {
                    let came = arrival.came(&self.tunnel.paths.list);
                    self.deliver(cx, came, Pieces::whole(packet))?;
                }
            }
            Frame::Feedback(feedback) => self.take_feedback(cx, arrival, &feedback),
            Frame::LastFeedback(last) => {
                self.take_feedback(cx, arrival, &last);
                // Under old keys the serial is that of another lane.
                if !is_late
                    && self.at_gateway()
                    && let Some(gone) = self.tunnel.epochs.path_of(last.serial)
                    && path != Some(gone)
                    && let Some(gone) = self.tunnel.paths.list.get_mut(gone)
                {
                    gone.move_to_gone(); // the client reports that nothing sent on it arrives
                }
            }
            Frame::Challenge(challenge) => {
                // Under previous keys it is late: the peer has said since what it prefers.
                if !is_late {
                    self.heed_challenge(cx, path, challenge);
                }
                self.tunnel.take_challenge(cx, path, route, arrival.len, challenge)?;
            }
            Frame::Response(response) => self.tunnel.take_response(cx, path, route, response),
            // Under previous keys it is late: the peer forgot its keys then, and agreed on the
            // current ones since. If it agreed before it closed, it answers nothing under them, and
            // its silence ends the session.
            Frame::Close(code) if !is_late => self.end(cx, PeerError::Closed(code)),
            Frame::Control { number, body } => {
                epoch.control.receive(number, body)?;
                while let Some((message, standing)) = self.tunnel.epochs.message(id, cx.drops) {
                    self.take_message(cx, id, standing, message);
                }
            }
            Frame::ControlAck(ack) if !is_late => {
                // There may be room for more.
                self.tunnel.control.acknowledged(ack);
                self.tunnel.announce(cx);
                self.apply_settings(cx);
            }
            Frame::Echo(echo) => {
                if let Some(path) = path.filter(|_| self.at_gateway()) {
                    self.tunnel.echo.ask(cx.now, path, route.remote, echo);
                }
            }
            Frame::Close(_) | Frame::ControlAck(_) | Frame::Unknown => {}
            Frame::UnknownCritical(kind) => {
                // It must not be skipped, and nobody here knows what it means.
                self.tunnel.say_close(cx, CloseCode::Protocol);
                self.end(cx, PeerError::UnknownFrame(kind));
            }
        }
        Ok(())
    }

    /// An inner packet: delivered at once, in order, or not at all because a copy was.
    fn take_packet(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        framing: Framing,
        packet: Pieces<'_>,
    ) -> Result<(), DropReason> {
        let id = arrival.epoch;
        let place = match framing {
            Framing::Plain => {
                return self.deliver(cx, arrival.came(&self.tunnel.paths.list), packet);
            }
            Framing::Once { bucket, sequence } => {
                let found = self.tunnel.epochs.find(id);
                let is_first =
                    found.is_some_and(|(epoch, _)| epoch.reorder.take_once(bucket, sequence));
                let came = arrival.came(&self.tunnel.paths.list);
                return if is_first { self.deliver(cx, came, packet) } else { Ok(()) };
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

    /// A frame that came in pieces: an inner packet, and nothing else.
    fn take_whole(
        &mut self,
        cx: &mut Context<'_>,
        arrival: Arrival,
        whole: &[u8],
    ) -> Result<(), DropReason> {
        match Frames::new(whole).next() {
            Some(Ok(
                frame @ (Frame::Packet { .. }
                | Frame::Compressed { .. }
                | Frame::Retransmission { .. }),
            )) => self.take_frame(cx, arrival, frame),
            Some(_) | None => Err(DropReason::Fragment),
        }
    }

    /// Takes the client's wishes from a challenge: which path it prefers, and whether the path that
    /// the challenge came by carries a share.
    fn heed_challenge(&mut self, cx: &mut Context<'_>, path: Option<PathId>, challenge: Challenge) {
        if challenge.prefer && challenge.moves >= self.followed {
            self.followed = challenge.moves;
            self.tunnel.prefer(cx, path, challenge.abandon_others);
        }
        if let Some(path) = path.filter(|_| self.at_gateway()) {
            self.shares.set_shared(cx, &mut self.tunnel, path, challenge.beside);
        }
    }

    /// Hands feedback to the packets in flight, and what it shows to the paths.
    fn take_feedback(&mut self, cx: &mut Context<'_>, arrival: Arrival, feedback: &Feedback) {
        let Arrival { epoch, came_at, .. } = arrival;
        let conditions = share::conditions(&self.bonding, cx);
        let Some(told) = self.tunnel.take_feedback(cx, epoch, came_at, feedback, conditions) else {
            return;
        };
        self.shares.couple(cx, &mut self.tunnel, &told);
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

    /// Takes one control message: hands it to the part that it is for.
    fn take_message(
        &mut self,
        cx: &mut Context<'_>,
        id: EpochId,
        standing: Standing,
        message: Control,
    ) {
        let (peer, is_late) = (self.tunnel.identity.key, standing == Standing::Previous);
        let Some((epoch, _)) = self.tunnel.epochs.find(id) else { return };
        match (message, &mut self.tunnel.paths.side) {
            (Control::Indices { first, indices }, _) => {
                epoch.take_indices(first, &indices);
                // A path may have waited for an index.
                self.tunnel.manage(cx, PathManager::stand_by);
            }
            (Control::Taken { next }, _) => epoch.note_taken(next),
            (Control::RestartTokens { first, tokens }, _) => {
                epoch.take_restart_tokens(first, &tokens);
            }
            (Control::Context { id, form, header }, _) => {
                define(cx, epoch, self.admission.access(), (id, form, &header));
            }
            (Control::Policed { serial, kbps }, _) => {
                if let Some(path) = epoch.arrives_by(serial) {
                    let doubt = Direction::Down;
                    self.tunnel.manage(cx, |paths, cx| paths.doubt_udp(cx, path, doubt, kbps));
                }
            }
            (Control::Networks(networks), Side::Client(connector)) => {
                if let Some(networks) = connector.granted.take_networks(id, networks) {
                    cx.tell(Event::Networks { peer, networks });
                }
            }
            (Control::Lease(lease), Side::Client(connector)) => {
                if let Some(networks) = connector.granted.take_lease(id, lease.clone()) {
                    cx.tell(Event::Networks { peer, networks });
                }
                cx.tell(Event::Leased { peer, lease });
            }
            (Control::Addresses(addresses), _) => {
                let is_news =
                    self.tunnel.manage(cx, |paths, cx| paths.take_addresses(cx, &addresses));
                if is_news {
                    cx.tell(Event::Announced { peer, addresses });
                }
            }
            (Control::KeyIsShared, Side::Client(_)) => self.raise_key_alarm(cx),
            (Control::Early(ends), Side::Gateway { .. }) => {
                self.flows.set_early(Early::new(&ends));
                self.is_early_known = true;
            }
            (Control::Routes(routes), Side::Gateway { .. }) => {
                // A client says this last when it introduces itself. One that wants nothing early
                // does not say so, and may be another process than before.
                if !std::mem::take(&mut self.is_early_known) && !self.flows.early().is_empty() {
                    self.flows.set_early(Early::default());
                }
                saving::of_mut(&mut self.tunnel).end_introduction();
                cx.tell(Event::Routes { peer, routes });
            }
            // Under previous keys these are late: the client said them again since.
            (Control::Scheduler(number), Side::Gateway { .. }) if !is_late => {
                self.bonding.settings.ask_scheduler(number);
            }
            (Control::Recovery(number), Side::Gateway { .. }) if !is_late => {
                self.bonding.settings.ask_recovery(number);
            }
            (Control::Compress { pads, frugal, rules }, Side::Gateway { .. }) if !is_late => {
                saving::of_mut(&mut self.tunnel).take_rules((pads, frugal), &rules);
                saving::answer(&mut self.tunnel, cx);
            }
            (Control::Dictionaries(all), _) if !is_late => {
                saving::of_mut(&mut self.tunnel).take_dictionaries(cx.coder.dictionaries(), &all);
            }
            (Control::Run(run), Side::Gateway { .. })
                if !is_late && self.key_alarm.returns(run) =>
            {
                self.raise_key_alarm(cx);
            }
            _ => {} // it has no meaning at this end, or came too late
        }
    }

    /// Two hosts use the client's key. A gateway tells the client.
    fn raise_key_alarm(&mut self, cx: &mut Context<'_>) {
        if self.key_alarm.raise(cx.now) {
            cx.tell(Event::KeyIsShared { peer: self.tunnel.identity.key });
        }
        if self.at_gateway() {
            self.tunnel.control.push(cx.now, &Control::KeyIsShared);
            self.tunnel.send_control(cx);
        }
    }
}

/// Takes the definition of a context. The source address is checked here, and that of each packet
/// again where it is delivered, because a lease can change.
fn define(
    cx: &mut Context<'_>,
    epoch: &mut Epoch,
    access: &Access,
    (id, form, header): (u16, u8, &[u8]),
) {
    let defined = Template::parse(form, header).and_then(|template| {
        let is_own = access.owns(template.source());
        epoch.define_context(id, is_own.then_some(template))?;
        if is_own { Ok(()) } else { Err(DropReason::NotAllowed) }
    });
    defined.unwrap_or_else(|reason| cx.drops.count(reason));
}

/// Takes a packet that travelled without the headers of its context.
fn take_compact(
    peer: &mut Peer,
    cx: &mut Context<'_>,
    arrival: Arrival,
    (head, body): (CompactHead, &[u8]),
) -> Result<(), DropReason> {
    let Some((epoch, _)) = peer.tunnel.epochs.find(arrival.epoch) else { return Ok(()) };
    let mut headers = peer.inbound.take_headers();
    let restored = epoch.restore(head, body, &mut headers);
    let taken =
        restored.and_then(|(framing, packet)| peer.take_packet(cx, arrival, framing, packet));
    peer.inbound.give_back_headers(headers);
    taken
}

/// Takes a packet that was compressed.
fn take_compressed(
    peer: &mut Peer,
    cx: &mut Context<'_>,
    arrival: Arrival,
    (framing, result): (Framing, &[u8]),
) -> Result<(), DropReason> {
    let packet = cx.coder.take(result)?;
    let taken = peer.take_packet(cx, arrival, framing, Pieces::whole(&packet));
    cx.coder.give_back(packet);
    taken
}

/// What the sender of `frame` is owed.
const fn elicited_by(frame: &Frame<'_>) -> Elicits {
    if let Frame::Packet { framing, .. }
    | Frame::Compressed { framing, .. }
    | Frame::Compact { head: CompactHead { framing, context: _ }, body: _ } = frame
        && matches!(framing, Framing::InOrder { .. } | Framing::First { .. })
    {
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
        let mut costly = Costly::default();
        let challenge = Frame::Challenge(Challenge {
            prefer: false,
            abandon_others: false,
            beside: false,
            token: 1,
            moves: 0,
        });
        let advanced = |from| Frame::Advanced { bucket: 3, from, to: from + 1 };
        assert!(costly.may_be_taken(&challenge) && !costly.may_be_taken(&challenge));
        let taken = (0..200).filter(|&number| costly.may_be_taken(&advanced(number))).count();
        assert_eq!(taken, ADVANCED_MAX);
        let packet = Frame::Packet { framing: Framing::Plain, packet: &[] };
        assert!((0..100).all(|_| costly.may_be_taken(&packet)), "what is cheap");
    }
}
