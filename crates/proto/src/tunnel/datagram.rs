//! Out: from an inner packet to a numbered datagram in the outbox.

use super::draft::{Cargo, draft_datagram};
use super::{Context, Departure, Tunnel, elision, saving};
use crate::error::{CloseCode, DropReason};
use crate::multipath::path_queues::{Job, Numbered};
use crate::outbox::Draft;
use crate::pack;
use crate::pack::fragment;
use crate::packet::{PacketRecord, Saving};
use crate::path::PathId;
use crate::recovery::packet::Load;
use crate::session::index::EpochId;
use crate::wire::data::{BASE_DATAGRAM, OVERHEAD};
use crate::wire::frame;
use crate::wire::frame::{Frame, Framing};
use crate::wire::inner::Pieces;

impl Tunnel {
    /// One inner packet by one path.
    pub(crate) fn send_packet(
        &mut self,
        cx: &mut Context<'_>,
        path: PathId,
        record: PacketRecord,
        framing: Framing,
        packet: Pieces<'_>,
    ) -> Result<(), DropReason> {
        let epoch = self.epochs.id().ok_or(DropReason::NoRoute)?;
        self.send_framed(cx, (epoch, framing), path, record, packet)
    }

    /// A packet leaves with its place in the sequence.
    pub(crate) fn send_ordered(
        &mut self,
        cx: &mut Context<'_>,
        id: PathId,
        given: Numbered,
        packet: Pieces<'_>,
    ) -> Result<(), DropReason> {
        let placed = self.epochs.place_of(self.paths.list.get(id), given);
        self.send_framed(cx, placed.ok_or(DropReason::NoRoute)?, id, given.record, packet)
    }

    /// One packet frame: whole, or in pieces when the path is too small for it.
    fn send_framed(
        &mut self,
        cx: &mut Context<'_>,
        (epoch, framing): (EpochId, Framing),
        id: PathId,
        record: PacketRecord,
        packet: Pieces<'_>,
    ) -> Result<(), DropReason> {
        if record.saving != Saving::NONE
            && saving::send(self, cx, ((epoch, id), framing), record, packet)
        {
            return Ok(());
        }
        let room = self.paths.list.get(id).ok_or(DropReason::NoRoute)?.mtu.datagram() - OVERHEAD;
        let elided = elision::elide(self, cx, (epoch, framing), record, packet);
        if let Some(elided) = elided.filter(|elided| elided.len(packet) <= room) {
            let whole = framing.overhead() + packet.len();
            saving::note_elided(self, id, whole.saturating_sub(elided.len(packet)));
            let whole = Some((framing, packet));
            let cargo = Cargo { whole, ..Load::Packet(record).into() };
            return self.send_under(cx, epoch, id, cargo, |draft| {
                elided.append(packet, draft.frames());
            });
        }
        if packet.len() + framing.overhead() <= room {
            return self.send_under(cx, epoch, id, Load::Packet(record), |draft| {
                pack::append(framing, packet, draft.frames());
            });
        }
        // The receiver takes a packet with a number once, however often its pieces come.
        let load = if framing == Framing::Plain {
            Load::Unkept(record.marks.strength())
        } else {
            Load::Packet(PacketRecord { kept: 0, ..record })
        };
        self.send_split(cx, epoch, id, load, &pack::frame(framing, packet))
    }

    /// One packet frame that is too large for its path, in pieces. A lost piece leaves again by
    /// itself.
    pub(crate) fn send_split(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        path: PathId,
        load: Load,
        whole: &[u8],
    ) -> Result<(), DropReason> {
        let carrier = self.paths.list.get_mut(path).ok_or(DropReason::NoRoute)?;
        let room = carrier.mtu.datagram() - OVERHEAD - frame::FRAGMENT_OVERHEAD;
        let count = fragment::pieces(whole.len(), room).count();
        if !carrier.allows(whole.len() + count * (OVERHEAD + frame::FRAGMENT_OVERHEAD)) {
            return Err(DropReason::Amplification); // a piece without the others is worth nothing
        }
        carrier.note_split();
        let (found, _) = self.epochs.find(epoch).ok_or(DropReason::NoRoute)?;
        let packet_id = found.next_fragment();
        for (index, range) in fragment::pieces(whole.len(), room) {
            self.send_under(cx, epoch, path, load, |draft| {
                frame::emit_fragment_header(draft.frames(), packet_id, index);
                draft.frames().extend_from_slice(&whole[range]);
            })?;
        }
        Ok(())
    }

    /// Sends one frame, padded to a datagram of `size` bytes.
    pub(crate) fn send_frame(
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
    pub(crate) fn send_on(
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
    pub(super) fn send_under<'p>(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        path: PathId,
        cargo: impl Into<Cargo<'p>>,
        fill: impl FnOnce(&mut Draft<'_>),
    ) -> Result<(), DropReason> {
        let (epoch, _) = self.epochs.find(epoch).ok_or(DropReason::NoRoute)?;
        let path = self.paths.list.get_to_send(path).ok_or(DropReason::NoRoute)?;
        let len = draft_datagram(cx, (epoch, &mut self.recovery), path, cargo.into(), fill)?;
        if let Some(controller) = &path.congestion {
            let next_at = controller.next_at();
            self.departures.note(Departure { path: path.id, next_at, bytes: len });
        }
        Ok(())
    }

    /// Acknowledgements and control messages that are due, joined into as few datagrams as hold
    /// them, by the path in use, else by the best proven one.
    pub(crate) fn send_control(&mut self, cx: &mut Context<'_>) {
        let Some(path) = self.paths.plan().control_path() else { return };
        let (Some(epoch), Some(path)) =
            (self.epochs.current.as_mut(), self.paths.list.get_mut(path))
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
                    let session = (&mut *epoch, &mut self.recovery);
                    let load = Load::of(eliciting);
                    let sent = draft_datagram(cx, session, path, load.into(), fill);
                    if let Err(reason) = sent {
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
    pub(crate) fn say_close(&mut self, cx: &mut Context<'_>, code: CloseCode) {
        let paths: Vec<_> = self.paths.list.iter().map(|path| path.id).collect();
        for path in paths {
            let _ = self.send_frame(cx, path, &Frame::Close(code), 0);
        }
    }
}

/// Sends a packet that its path may carry now, with its place in the sequence: in a datagram of its
/// own, or in one with others that wait for the path.
pub(crate) fn send_datagram(tunnel: &mut Tunnel, cx: &mut Context<'_>, job: Job) {
    let sent = if saving::join_next(tunnel, cx, &job) {
        Ok(())
    } else {
        saving::flush_due(tunnel, cx);
        tunnel.send_ordered(cx, job.path, job.given, Pieces::waited(&job.packet))
    };
    // Its memory is still in the processor's cache, and lent again first.
    cx.memory.blocks().discard(job.packet);
    if let Err(reason) = sent {
        cx.drops.count(reason);
    }
}
