//! Out: from an inner packet to a numbered datagram in the outbox. And the one place where a
//! datagram of a session is made, whatever it carries.

use super::epoch::Epoch;
use super::index::EpochId;
use super::paths::Choice;
use super::share::note_idle;
use super::{Context, Peer};
use crate::error::{CloseCode, DropReason};
use crate::flow::{self, Passage, clamp, tuple};
use crate::outbox::Draft;
use crate::pack::{self, Framing, fragment};
use crate::path::{Health, Path, PathId};
use crate::time::Instant;
use crate::wire::data::{BASE_DATAGRAM, OVERHEAD};
use crate::wire::frame::{self, Frame};
use crate::wire::inner::InnerPacket;

/// What a datagram carries, as far as its path's bookkeeping goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// Nothing that the peer owes feedback for.
    Quiet,
    /// Feedback, and nothing else.
    Report,
    /// Frames that elicit feedback.
    Eliciting,
    /// One inner packet, kept until the peer tells of it, but for so many bytes at its end: those
    /// are kept with its connection.
    Packet { elsewhere: usize },
    /// The same where another path gets a copy, which serves if this one dies.
    Doubled { elsewhere: usize },
    /// One that left at first at this moment, and that paths lost so often since.
    Repair { first_at: Instant, attempts: u8 },
}

impl Load {
    pub(super) const fn of(eliciting: bool) -> Self {
        if eliciting { Self::Eliciting } else { Self::Quiet }
    }

    /// Whether the peer owes feedback for it.
    const fn elicits(self) -> bool {
        match self {
            Self::Quiet | Self::Report => false,
            Self::Eliciting | Self::Packet { .. } | Self::Doubled { .. } | Self::Repair { .. } => {
                true
            }
        }
    }
}

impl Peer {
    /// Sends an inner packet, or keeps it for a moment while there is no path.
    pub(crate) fn send_inner(
        &mut self,
        cx: &mut Context<'_>,
        packet: &InnerPacket<'_>,
    ) -> Result<(), DropReason> {
        self.rest_if_outlived(cx);
        self.rekey_if_due(cx);
        self.not_idle();
        self.used_at = Some(cx.now);
        self.expect_answer(cx.now, packet);
        self.assist_or_not(cx);
        let sent = match self.flows.outgoing(cx.now, cx.memory, packet) {
            Passage::Goes { kept } => self.send_narrowed(cx, packet, kept),
            Passage::Held => {
                self.seek_way(cx);
                Ok(())
            }
        };
        self.speak_for_others(cx);
        sent
    }

    /// Sends what goes out for a connection, with no more room told than its level is to have.
    pub(super) fn send_narrowed(
        &mut self,
        cx: &mut Context<'_>,
        packet: &InnerPacket<'_>,
        kept: usize,
    ) -> Result<(), DropReason> {
        let mut head = std::mem::take(&mut self.narrowed);
        let sent = if self.flows.narrow(cx.now, packet, &mut head) {
            self.send_by_choice(cx, &packet.with_head(&head), kept)
        } else {
            self.send_by_choice(cx, packet, kept)
        };
        self.narrowed = head;
        sent
    }

    /// Sends an inner packet that nothing holds up.
    pub(super) fn send_now(
        &mut self,
        cx: &mut Context<'_>,
        packet: &InnerPacket<'_>,
    ) -> Result<(), DropReason> {
        self.send_by_choice(cx, packet, 0)
    }

    /// The same, when the last `kept` bytes are kept with their connection.
    pub(super) fn send_by_choice(
        &mut self,
        cx: &mut Context<'_>,
        packet: &InnerPacket<'_>,
        kept: usize,
    ) -> Result<(), DropReason> {
        let choice = match self.paths.choose() {
            Some(choice) if self.epochs.current.is_some() => choice,
            Some(_) | None => {
                self.wait(cx, packet);
                return Ok(());
            }
        };
        if choice.copy.is_none() && self.is_bonded(cx) {
            return self.send_bonded(cx, packet, kept);
        }
        self.note_alone(cx.now, tuple::Direction::Out, packet);
        let framing = self.framing(choice, packet);
        let load = Load::Packet { elsewhere: kept };
        let sent = self.send_packet(cx, choice.original, load, framing, packet);
        self.ask_if_silent(cx, choice.original);
        if let Some(copy) = choice.copy {
            // A copy that does not fit the budget is no loss: the original is on its way.
            let _ = self.send_packet(cx, copy, load, framing, packet);
        }
        match sent {
            Err(DropReason::Amplification | DropReason::NoRoute) => {
                self.wait(cx, packet);
                Ok(())
            }
            other => other,
        }
    }

    /// A packet is held: where that is for want of a way, what can be done for one is done.
    fn seek_way(&mut self, cx: &mut Context<'_>) {
        if self.flows.is_up() {
            return;
        }
        match self.paths.choose() {
            Some(choice) if self.epochs.current.is_some() => {
                self.ask_if_silent(cx, choice.original);
            }
            Some(_) | None => {
                self.ask_given_up(cx);
                self.wake(cx);
            }
        }
    }

    /// Data for a path that is silent and no longer asked: it is asked again.
    fn ask_if_silent(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(path) = self.paths.get(id) else { return };
        if matches!(path.health, Health::Silent { .. }) && path.probes.asking_since().is_none() {
            self.ask(cx, id);
        }
    }

    fn framing(&mut self, choice: Choice, packet: &InnerPacket<'_>) -> Framing {
        if choice.copy.is_none() {
            return Framing::Plain;
        }
        let Some(epoch) = &mut self.epochs.current else { return Framing::Plain };
        let (bucket, sequence) = epoch.sequence_tx.take(flow::hash(&packet.headers));
        Framing::Sequenced { bucket, sequence }
    }

    /// There is no way to send `packet` yet: it is kept, and what can be done for a way is done.
    fn wait(&mut self, cx: &mut Context<'_>, packet: &InnerPacket<'_>) {
        for _ in 0..self.waiting.push(cx.now, packet) {
            cx.drops.count(DropReason::QueueFull);
        }
        self.ask_given_up(cx);
        self.wake(cx);
    }

    /// Gateway: there is something to say and no path that is not given up. The one in use is asked
    /// all the same: a client that has nothing to say itself may be there, and not know.
    fn ask_given_up(&mut self, cx: &mut Context<'_>) {
        let gone = |path: &&Path| path.health == Health::Gone && path.is_proven();
        let given_up = self.paths.active().filter(gone).filter(|_| self.at_gateway());
        let given_up = given_up.filter(|path| path.probes.asking_since().is_none());
        if let Some(id) = given_up.map(|path| path.id) {
            self.ask(cx, id);
        }
    }

    /// Sends what waited. Called when a path has become usable.
    pub(super) fn flush_waiting(&mut self, cx: &mut Context<'_>) {
        self.send_lost(cx);
        let (mut packets, useless) = self.waiting.take(cx.now);
        (0..useless).for_each(|_| cx.drops.count(DropReason::NoRoute));
        // Until one waits again, or there is no room for more.
        while self.waiting.len() == 0
            && !cx.out.is_full()
            && let Some(kept) = packets.pop_front()
        {
            if let Err(reason) = self.send_now(cx, &kept.packet()) {
                cx.drops.count(reason);
            }
        }
        self.waiting.put_back(cx.now, packets);
    }

    /// One inner packet by one path: whole, or in pieces when the path is too small for it.
    pub(super) fn send_packet(
        &mut self,
        cx: &mut Context<'_>,
        path: PathId,
        load: Load,
        framing: Framing,
        packet: &InnerPacket<'_>,
    ) -> Result<(), DropReason> {
        let room = self.paths.get(path).ok_or(DropReason::NoRoute)?.mtu.datagram() - OVERHEAD;
        if packet.len() + framing.overhead() <= room {
            let clamped = clamp::place(packet);
            let least = clamped.and_then(|_| self.least_room()).map_or(room, |it| it.min(room));
            return self.send_on(cx, path, load, |draft| {
                let at = pack::push(draft, framing, packet.pieces);
                if let Some(tcp) = clamped {
                    // The smallest framing that a full segment may need.
                    let packet_max = least - frame::SEQUENCED_OVERHEAD;
                    clamp::clamp(&mut draft.written()[at..], tcp, packet_max);
                }
            });
        }
        let epoch = self.epochs.current.as_ref().ok_or(DropReason::NoRoute)?.id;
        self.send_split(cx, epoch, path, &pack::frame(framing, packet.pieces))
    }

    /// One packet frame that is too large for its path, in pieces. They are not kept: paths whose
    /// MTU is known split hardly anything.
    pub(super) fn send_split(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        path: PathId,
        whole: &[u8],
    ) -> Result<(), DropReason> {
        let carrier = self.paths.get_mut(path).ok_or(DropReason::NoRoute)?;
        let room = carrier.mtu.datagram() - OVERHEAD - frame::FRAGMENT_OVERHEAD;
        let count = fragment::pieces(whole.len(), room).count();
        if !carrier.allows(whole.len() + count * (OVERHEAD + frame::FRAGMENT_OVERHEAD)) {
            return Err(DropReason::Amplification); // a piece without the others is worth nothing
        }
        carrier.split += 1;
        let (found, _) = self.epochs.find(epoch).ok_or(DropReason::NoRoute)?;
        let packet_id = found.next_fragment();
        for (index, range) in fragment::pieces(whole.len(), room) {
            self.send_under(cx, epoch, path, Load::Eliciting, |draft| {
                frame::emit_fragment_header(draft.frames(), packet_id, index);
                draft.frames().extend_from_slice(&whole[range]);
            })?;
        }
        Ok(())
    }

    /// Sends one frame, padded to a datagram of `size` bytes.
    pub(super) fn send_frame(
        &mut self,
        cx: &mut Context<'_>,
        path: PathId,
        frame: &Frame<'_>,
        size: usize,
    ) -> Result<(), DropReason> {
        self.send_on(cx, path, Load::of(frame.elicits_feedback()), |draft| {
            frame.emit(draft.frames());
            let padding = size.saturating_sub(draft.len());
            frame::emit_padding(draft.frames(), padding);
        })
    }

    /// Makes one datagram: frames by `fill`, lane and number, bookkeeping of the path.
    pub(super) fn send_on(
        &mut self,
        cx: &mut Context<'_>,
        path: PathId,
        load: Load,
        fill: impl FnOnce(&mut Draft<'_>),
    ) -> Result<(), DropReason> {
        let epoch = self.epochs.current.as_ref().ok_or(DropReason::NoRoute)?.id;
        self.send_under(cx, epoch, path, load, fill)
    }

    /// The same under the keys of `epoch`: the current ones or those before.
    pub(super) fn send_under(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        path: PathId,
        load: Load,
        fill: impl FnOnce(&mut Draft<'_>),
    ) -> Result<(), DropReason> {
        let (epoch, _) = self.epochs.find(epoch).ok_or(DropReason::NoRoute)?;
        let path = self.paths.get_to_send(path).ok_or(DropReason::NoRoute)?;
        let len = seal_into(cx, epoch, path, load, fill)?;
        if let Some(controller) = &path.congestion {
            self.bond.left(path.id, controller.next_at(), len);
        }
        Ok(())
    }

    /// Acknowledgements and control messages that are due, joined into as few datagrams as hold
    /// them, by the path that answered last.
    pub(super) fn send_control(&mut self, cx: &mut Context<'_>) {
        let Some(path) = self.paths.active_id().or_else(|| self.best_proven(None)) else {
            return;
        };
        let (Some(epoch), Some(path)) = (self.epochs.current.as_mut(), self.paths.get_mut(path))
        else {
            return;
        };
        let ack = epoch.control.take_ack();
        let room = BASE_DATAGRAM - OVERHEAD - frame::CONTROL_OVERHEAD - frame::CONTROL_ACK_LEN;
        let mut frames = Vec::new();
        if let Some(ack) = ack {
            Frame::ControlAck(ack).emit(&mut frames);
        }
        let mut eliciting = false;
        let timeout = path.rtt.timeout();
        loop {
            let left = room.saturating_sub(frames.len());
            match self.control.take_due(cx.now, timeout, left) {
                Some((number, body)) => {
                    Frame::Control { number, body }.emit(&mut frames);
                    eliciting = true;
                }
                None if frames.is_empty() => return,
                None => {
                    let fill = |draft: &mut Draft<'_>| draft.frames().extend_from_slice(&frames);
                    if let Err(reason) = seal_into(cx, epoch, path, Load::of(eliciting), fill) {
                        cx.drops.count(reason);
                        if ack.is_some() {
                            epoch.control.restore_ack();
                        }
                        return;
                    }
                    frames.clear();
                }
            }
        }
    }

    /// Says goodbye by every path, once: a lost goodbye is found out by silence.
    pub(super) fn say_close(&mut self, cx: &mut Context<'_>, code: CloseCode) {
        let paths: Vec<_> = self.paths.iter().map(|path| path.id).collect();
        for path in paths {
            let _ = self.send_frame(cx, path, &Frame::Close(code), 0);
        }
    }
}

/// Seals one datagram of `epoch` onto `path`. Returns how many bytes it has.
pub(super) fn seal_into(
    cx: &mut Context<'_>,
    epoch: &mut Epoch,
    path: &mut Path,
    load: Load,
    fill: impl FnOnce(&mut Draft<'_>),
) -> Result<usize, DropReason> {
    if !path.allows(1) {
        return Err(DropReason::Amplification); // before an index is spent on it
    }
    if !epoch.has_lane_for(path) {
        return Err(DropReason::NoRoute);
    }
    let profile = epoch.profile;
    let lane = epoch.lane(path).ok_or(DropReason::NoRoute)?;
    let mut draft = cx.out.begin().ok_or(DropReason::QueueFull)?;
    fill(&mut draft);
    let len = draft.len();
    if !path.allows(len) {
        return Err(DropReason::Amplification);
    }
    note_idle(cx.now, path, lane);
    let number = lane.take_number(cx.now, cx.memory.blocks(), len, load.elicits());
    match load {
        Load::Quiet | Load::Report | Load::Eliciting => {}
        Load::Packet { elsewhere } => {
            lane.flight.keep(cx.memory.blocks(), draft.written(), elsewhere);
        }
        Load::Doubled { elsewhere } => {
            lane.flight.keep(cx.memory.blocks(), draft.written(), elsewhere);
            lane.flight.doubled();
        }
        Load::Repair { first_at, attempts } => {
            lane.flight.keep(cx.memory.blocks(), draft.written(), 0);
            lane.flight.repeated(first_at, attempts);
        }
    }
    draft.finish(path.route, &lane.seal, profile, number);
    path.sent(cx.now, len);
    if load == Load::Report {
        path.reported(len);
    }
    Ok(len)
}
