//! An inner packet from the TUN, from its arrival to the datagram or the queue that it ends in.
//!
//! The first three functions name every stage. [`Peer::send_inner`] has the packet's flow make its
//! record, or keep the packet. `send_narrowed` may change the window that it tells. `send` chooses
//! how it leaves: at once or in its turn by paths with a share (`bonding`), by the one path without
//! a share, or later. Work that a whole run of packets needs once is done before and after it.

use super::dispatch::Sent;
use super::{Peer, dispatch, live, repair, share, ways};
use crate::bonding::Unsent;
use crate::error::DropReason;
use crate::flow::{Output, judge};
use crate::outbox::REST;
use crate::pack;
use crate::packet::{PacketRecord, Saving};
use crate::paths::list::Choice;
use crate::recovery::packet::Load;
use crate::time::Duration;
use crate::tunnel::{Context, Event, PeerState, saving};
use crate::wire::data::MAX_DATAGRAM;
use crate::wire::frame::{Framing, NUMBERED_OVERHEAD};
use crate::wire::inner::{InnerPacket, Pieces};
use crate::wire::tcp;

/// An unproven address may get no more until it sends something. At the latest after this time the
/// rest is tried again.
const REST_UNHEARD: Duration = Duration::from_secs(1);

impl Peer {
    /// Sends an inner packet of a run, through every stage that there is. What cannot leave yet is
    /// kept: by its connection, or for a moment until there is a path. [`Self::end_run`] follows.
    pub(crate) fn send_inner(
        &mut self,
        cx: &mut Context<'_>,
        packet: &InnerPacket<'_>,
    ) -> Result<(), DropReason> {
        if !std::mem::replace(&mut self.in_run, true) {
            self.rest_if_outlived(cx);
            self.tunnel.rekey_if_due(cx);
            self.tunnel.paths.note_packet_sent(cx.now);
            share::assist(cx.now, &mut self.bonding, &mut self.tunnel, &mut self.flows);
        }
        self.admission.note_sent(cx.now, packet);
        let observes = self.observes();
        let sent = match self.flows.outgoing(cx.now, cx.memory, packet, observes) {
            Some(record) => self.send_narrowed(cx, record, packet),
            None => {
                self.seek_way(cx);
                Ok(())
            }
        };
        // Not once per run: after a late turn a run is long, and one acknowledgement after it would
        // see a full entry and hold the sender back.
        self.send_generated(cx);
        sent
    }

    /// Sends what goes out for a connection, with no more room told than its level is to have.
    fn send_narrowed(
        &mut self,
        cx: &mut Context<'_>,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
    ) -> Result<(), DropReason> {
        let mut head = std::mem::take(&mut self.narrowed);
        let is_narrowed = self.flows.narrow(cx.now, record.flow, packet, &mut head);
        let packet = if is_narrowed { packet.with_head(&head) } else { *packet };
        let record = if saving::of(&self.tunnel).is_off() {
            record
        } else {
            saving::mark(&mut self.tunnel, cx, self.bonding.scarce(), &packet, record)
        };
        let sent = self.send(cx, record, &packet);
        self.narrowed = head;
        sent
    }

    /// Sends a packet with its record: later, if there is no path; by the one path without a share,
    /// or by paths with a share. There it leaves at once if it is of no use late or somebody waits
    /// for it. All others leave in their turn.
    fn send(
        &mut self,
        cx: &mut Context<'_>,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
    ) -> Result<(), DropReason> {
        let has_keys = self.tunnel.epochs.current.is_some();
        let Some(choice) = self.tunnel.paths.list.choose().filter(|_| has_keys) else {
            self.wait(cx, record, packet);
            return Ok(());
        };
        if record.saving != Saving::NONE
            && !packet.is_tcp()
            && self.tunnel.paths.list.state() == PeerState::Suspended
        {
            // What the user named is said once: it is not lost on a path that is silent.
            self.tunnel.paths.ask_if_silent(cx.now, choice.original);
            self.wait(cx, record, packet);
            return Ok(());
        }
        let mut head = Vec::new();
        let room = |tcp| Some((tcp, self.tunnel.paths.plan().least_room(choice.original)?));
        let packet = match packet.opens_at().and_then(room) {
            Some((tcp, room)) => &clamped(packet, tcp, room, &mut head),
            None => packet,
        };
        if choice.copy.is_some() || !ways::are_shared(&mut self.bonding, &mut self.tunnel, cx.now) {
            return self.send_alone(cx, choice, record, packet);
        }
        if self.flows.is_live(record, packet, cx.config.ablation)
            && let Some(sent) = live::send_live(self, cx, record, packet)
        {
            dispatch::heed_entry(self, cx.now); // it did not wait there
            return sent;
        }
        if record.saving == Saving::NONE
            && self.flows.is_urgent(cx.now, record, packet, cx.config.ablation)
            && let Some(sent) = dispatch::send_urgent(self, cx, record, packet)
        {
            return sent;
        }
        self.flows.leaves_in_turn(cx.now, record.flow, packet.len());
        let sent = dispatch::send_in_turn(self, cx, record, packet);
        match sent {
            Ok(Sent::Due) => self.serve_bonding(cx),
            Ok(Sent::Queued) => {}
            Ok(Sent::Left) | Err(_) => dispatch::heed_entry(self, cx.now),
        }
        sent.map(|_| ())
    }

    /// What the packets of a run gave cause for, once for all of them.
    pub(crate) fn end_run(&mut self, cx: &mut Context<'_>) {
        if std::mem::take(&mut self.in_run) {
            self.repeat_last_acks(cx);
        }
    }

    /// A packet is held: where that is for want of a way, what can be done for one is done.
    fn seek_way(&mut self, cx: &mut Context<'_>) {
        if self.flows.is_up() {
            return;
        }
        match self.tunnel.paths.list.choose() {
            Some(choice) if self.tunnel.epochs.current.is_some() => {
                self.tunnel.paths.ask_if_silent(cx.now, choice.original);
                self.tunnel.carry_out(cx);
            }
            Some(_) | None => self.wake(cx),
        }
    }

    /// Sends what waited. Called when a path has become usable.
    pub(super) fn flush_waiting(&mut self, cx: &mut Context<'_>) {
        repair::send_lost(self, cx);
        let (mut packets, useless) = self.waiting.take(cx.now);
        (0..useless).for_each(|_| cx.drops.count(DropReason::NoRoute));
        // Until one waits again, or there is no room for more.
        while self.waiting.is_empty()
            && !cx.out.is_full()
            && let Some(mut kept) = packets.pop_front()
        {
            let restored = kept.restore(cx.coder);
            let sent = restored.and_then(|()| self.send(cx, kept.record(), &kept.packet()));
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
        self.waiting.put_back(cx.now, packets);
    }

    /// None carries a share any more: what waits leaves by the one path that there is, like
    /// everything else. Until there is one it waits, no longer than at the entry.
    pub(super) fn leave_bonding(&mut self, cx: &mut Context<'_>) {
        let has_keys = self.tunnel.epochs.current.is_some();
        let Some(path) = self.tunnel.paths.list.only().filter(|_| has_keys) else {
            let dropped = self.bonding.wait_for_path(cx.memory.blocks(), cx.now);
            (0..dropped).for_each(|_| cx.drops.count(DropReason::NoRoute));
            return;
        };
        while let Some((unsent, packet)) =
            self.bonding.next_unsent(cx.now, !cx.out.is_full(), cx.memory.blocks())
        {
            let pieces = Pieces::waited(&packet);
            let choice = Choice { original: path, copy: None };
            let sent = match unsent {
                Unsent::Given(given) => self.tunnel.send_ordered(cx, path, given, pieces),
                Unsent::Entered(record) => InnerPacket::parse(pieces)
                    .and_then(|packet| self.send_alone(cx, choice, record, &packet)),
            };
            cx.memory.blocks().discard(packet);
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
        for _ in 0..self.bonding.entry.take_dropped() {
            cx.drops.count(DropReason::QueueFull);
        }
    }

    /// Lets leave what waits for its turn among several paths.
    pub(super) fn serve_bonding(&mut self, cx: &mut Context<'_>) {
        repair::send_lost(self, cx);
        if dispatch::serve(self, cx) {
            self.leave_bonding(cx);
        }
        dispatch::heed_entry(self, cx.now);
    }

    /// Sends an inner packet by the path in use, and while an address is not proven also a copy
    /// there. If the path in use may not carry it now, it waits.
    fn send_alone(
        &mut self,
        cx: &mut Context<'_>,
        choice: Choice,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
    ) -> Result<(), DropReason> {
        let is_numbered = choice.copy.is_some() || record.saving.waits();
        let numbered = is_numbered.then(|| self.tunnel.epochs.number_once(record.bucket));
        let framing = numbered.flatten().unwrap_or(Framing::Plain);
        let sent = self.tunnel.send_packet(cx, choice.original, record, framing, packet.pieces);
        self.tunnel.paths.ask_if_silent(cx.now, choice.original);
        self.tunnel.carry_out(cx);
        if let Some(copy) = choice.copy {
            // A copy that does not fit the budget is no loss: the original is on its way.
            let _ = self.tunnel.send_packet(cx, copy, record, framing, packet.pieces);
        }
        match sent {
            Err(DropReason::Amplification | DropReason::NoRoute) => {
                self.wait(cx, record, packet);
                Ok(())
            }
            other => other,
        }
    }

    /// There is no way to send `packet` yet: it is kept, and what can be done for a way is done.
    fn wait(&mut self, cx: &mut Context<'_>, record: PacketRecord, packet: &InnerPacket<'_>) {
        for _ in 0..self.waiting.push(cx.now, record, packet, cx.coder) {
            cx.drops.count(DropReason::QueueFull);
        }
        self.wake(cx);
    }

    /// There is something to send, and no path for it: paths that were given up are asked, a client
    /// that rests asks for a session, a gateway calls a client that may rest.
    fn wake(&mut self, cx: &mut Context<'_>) {
        self.tunnel.paths.ask_given_up(cx.now);
        self.tunnel.carry_out(cx);
        if self.tunnel.state == PeerState::Resting {
            self.tunnel.connect(cx);
        } else if self.at_gateway() && self.tunnel.epochs.current.is_none() {
            self.tunnel.reach.call(cx);
        }
    }

    /// Whether the flows of outgoing packets are observed: where paths have a share, since it
    /// decides by which a packet leaves, and at a client, whose user may want to see them. A
    /// gateway would need a table for each of its sessions.
    const fn observes(&self) -> bool {
        self.bonding.is_shared || !self.at_gateway()
    }

    /// After a challenge of the path in use, while connections are held: repeats the last
    /// acknowledgement of some of them there. It is not kept for repair, because the next challenge
    /// repeats it.
    pub(super) fn repeat_last_acks(&mut self, cx: &mut Context<'_>) {
        let asked = self.tunnel.changes.take_asked() && !self.flows.is_up();
        let Some(id) = self.tunnel.paths.list.active_id().filter(|_| asked) else { return };
        let mut packet = std::mem::take(&mut self.spoken);
        for nth in 0.. {
            packet.clear();
            let Some(flow) = self.flows.news(nth, &mut packet) else { break };
            let Ok(whole) = InnerPacket::whole(&packet) else { continue };
            let mut head = std::mem::take(&mut self.narrowed);
            let is_narrowed = self.flows.narrow(cx.now, Some(flow), &whole, &mut head);
            let whole = if is_narrowed { whole.with_head(&head) } else { whole };
            let sent = self.tunnel.send_on(cx, id, Load::Quiet, |draft| {
                pack::append(Framing::Plain, whole.pieces, draft.frames());
            });
            self.narrowed = head;
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
        self.spoken = packet;
    }

    /// Sends the packets that this end makes itself: acknowledgements, retransmissions and resets
    /// for the connections that it follows.
    pub(super) fn send_generated(&mut self, cx: &mut Context<'_>) {
        if self.flows.due().is_none_or(|due| due > cx.now) {
            self.tell_owed(cx);
            return;
        }
        let mut packet = std::mem::take(&mut self.spoken);
        loop {
            if cx.out.is_full() {
                self.flows.rest(cx.now + REST);
                break;
            }
            if self.tunnel.paths.list.claimed().is_some_and(|path| !path.allows(MAX_DATAGRAM)) {
                self.flows.rest(cx.now + REST_UNHEARD);
                break;
            }
            packet.clear();
            let Some(output) = self.flows.poll(cx.now, cx.memory, &mut packet) else { break };
            if let Err(reason) = self.pass_on(cx, output, &packet) {
                cx.drops.count(reason);
            }
        }
        self.spoken = packet;
        self.tell_owed(cx);
    }

    /// Has the shell write down what will be owed, strike out what is not owed any more, and find
    /// out whose flows are; counts what was given up.
    fn tell_owed(&mut self, cx: &mut Context<'_>) {
        while let Some(reason) = self.flows.poll_drop() {
            cx.drops.count(reason);
        }
        while let Some(tuple) = self.flows.poll_record() {
            cx.tell(Event::Owing { peer: self.tunnel.identity.key, tuple });
        }
        while !cx.is_crowded()
            && let Some(tuple) = judge::poll_unidentified(&mut self.flows)
        {
            cx.tell(Event::WhoseFlow { peer: self.tunnel.identity.key, tuple });
        }
        while let Some(tuple) = self.flows.poll_settled() {
            cx.tell(Event::Settled { peer: self.tunnel.identity.key, tuple });
        }
    }

    /// The session is over for good: who was promised something is told so.
    pub(super) fn break_promises(&mut self, cx: &mut Context<'_>) {
        let (mut packets, mut ends) = (Vec::new(), Vec::new());
        self.flows.terminate(cx.memory, &mut packets, &mut ends);
        let starts = std::iter::once(0).chain(ends.iter().copied());
        for (start, &end) in starts.zip(&ends) {
            if let Err(reason) = self.pass_on(cx, Output::ToLocal, &packets[start..end]) {
                cx.drops.count(reason);
            }
        }
        self.tell_owed(cx);
    }

    fn pass_on(
        &mut self,
        cx: &mut Context<'_>,
        output: Output,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        match output {
            Output::ToLocal if cx.out.push_inner(Pieces::whole(packet)) => Ok(()),
            Output::ToLocal => Err(DropReason::QueueFull),
            Output::ToRemote => {
                let (packet, observes) = (InnerPacket::whole(packet)?, self.observes());
                let record = self.flows.record_of(cx.now, &packet, observes);
                self.send_narrowed(cx, record, &packet)
            }
        }
    }
}

/// The SYN `packet`, whose TCP header starts at `tcp`, with segments whose frames fit `room` bytes.
/// Its changed headers lie in `head`.
fn clamped<'a>(
    packet: &InnerPacket<'a>,
    tcp: usize,
    room: usize,
    head: &'a mut Vec<u8>,
) -> InnerPacket<'a> {
    head.extend_from_slice(packet.pieces.head);
    // The smallest framing that a full segment may need.
    tcp::clamp(head, tcp, room - NUMBERED_OVERHEAD);
    packet.with_head(head)
}
