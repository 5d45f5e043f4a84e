//! Collects the packets that dead paths still owed, and encodes one lost packet for sending.
//! `peer::repair` decides which packets are sent, when, and by which path.

use super::draft::Cargo;
use super::{Context, Tunnel, elision, saving};
use crate::error::DropReason;
use crate::packet::Strength;
use crate::path::PathId;
use crate::recovery::packet::{Load, LostPacket, SpaceId};
use crate::recovery::queue::Abandoned;
use crate::time::Instant;
use crate::wire::data::{BASE_DATAGRAM, OVERHEAD};
use crate::wire::frame;
use crate::wire::frame::{ADVANCED_LEN, Frame, Framing};
use crate::wire::inner::Pieces;

/// Ranges of abandoned numbers in one datagram: few are lost for good, and the receiver has to find
/// the place of each among others.
pub(crate) const ADVANCED_MAX: usize = 32;
const _: () = assert!(ADVANCED_MAX * ADVANCED_LEN <= BASE_DATAGRAM - OVERHEAD);

impl Tunnel {
    /// Collects the packets of paths that do not carry, if another one does.
    pub(crate) fn collect_lost(&mut self, cx: &mut Context<'_>) {
        if self.paths.list.iter().all(|path| path.is_good()) {
            return;
        }
        let carrier = self.paths.list.choose().map(|choice| choice.original);
        let list = &self.paths.list;
        let Some(carrier) = carrier.filter(|&id| list.is_good(id)) else { return };
        let memory = (cx.memory.blocks(), &mut *cx.drops);
        self.recovery.lose_dead(cx.now, memory, |id| id != carrier && !list.is_good(id));
    }

    /// Sends one lost packet again, by the path `by`, as strongly as its flow asks for. It names
    /// the packet number that was lost. A piece of a packet leaves as it was: its name is that of
    /// its packet.
    pub(crate) fn retransmit(
        &mut self,
        cx: &mut Context<'_>,
        by: PathId,
        lost: &LostPacket,
        strength: Strength,
    ) -> Result<(), DropReason> {
        let SpaceId { epoch, serial } = lost.space;
        #[expect(clippy::cast_possible_truncation, reason = "the low bits travel")]
        let number = lost.number as u32;
        let LostPacket { flow, first_at, attempts, .. } = *lost;
        let smaller = saving::compress_again(self, cx, by, &lost.frame);
        let frame = smaller.as_deref().unwrap_or(&lost.frame);
        let load = Load::Repair { flow, first_at, attempts, strength };
        let path = self.paths.list.get_to_send(by).ok_or(DropReason::NoRoute)?;
        path.note_retransmitted();
        let room = path.mtu.datagram() - OVERHEAD;
        if frame::is_fragment(&lost.frame) {
            if lost.frame.len() > room {
                return Err(DropReason::NoRoute); // a piece is not split again
            }
            return self.send_under(cx, epoch, by, load, |draft| {
                draft.frames().extend_from_slice(&lost.frame);
            });
        }
        if smaller.is_none()
            && let Some(framing) = Framing::of(frame)
        {
            let packet = Pieces::whole(&frame[framing.overhead()..]);
            let elided = elision::elide_again(self, cx, epoch, framing, packet);
            if let Some(elided) = elided.filter(|elided| elided.len(packet) <= room) {
                saving::note_elided(self, by, frame.len().saturating_sub(elided.len(packet)));
                let cargo = Cargo { whole: Some((framing, packet)), ..load.into() };
                return self.send_under(cx, epoch, by, cargo, |draft| {
                    elided.append(packet, draft.frames());
                });
            }
        }
        if frame::len_again(frame) <= room {
            return self.send_under(cx, epoch, by, load, |draft| {
                frame::emit_again(draft.frames(), serial, number, frame);
            });
        }
        let mut whole = Vec::new();
        frame::emit_again(&mut whole, serial, number, frame);
        self.send_split(cx, epoch, by, load, &whole)
    }

    /// The path `id` was silent, or had never answered, and answers what it was asked at
    /// `asked_at`: what left before is lost.
    pub(crate) fn lose_unanswered(&mut self, cx: &mut Context<'_>, id: PathId, asked_at: Instant) {
        let memory = (cx.memory.blocks(), &mut *cx.drops);
        let (bytes, evidence) = self.recovery.lose_unanswered(cx.now, memory, (id, asked_at));
        if cx.config.judges_offload {
            self.paths.list.judge_offload(cx.now, id, (0, bytes), evidence);
        }
    }

    /// Tells the peer which numbers are abandoned. If there is no room now, the rest is dropped, so
    /// that nothing piles up here. The peer then waits for those numbers as for any other gap.
    pub(crate) fn send_abandoned(&mut self, cx: &mut Context<'_>) {
        while let Some((epoch, some)) = self.recovery.queue.take_abandoned(ADVANCED_MAX) {
            let choice = self.paths.list.choose().filter(|_| !cx.out.is_full());
            let Some(choice) = choice else { return self.recovery.queue.forget_abandoned() };
            let sent = self.send_under(cx, epoch, choice.original, Load::Quiet, |draft| {
                for &Abandoned { bucket, from, to, .. } in &some {
                    Frame::Advanced { bucket, from, to }.emit(draft.frames());
                }
            });
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
    }
}
