//! Collects the packets that dead paths still owed, and encodes one lost packet for sending.
//! `bonding::retransmit` decides which packets are sent, when, and by which path.

use super::datagram::Load;
use super::lost::{Abandoned, Owed};
use super::{Context, Tunnel};
use crate::error::DropReason;
use crate::path::PathId;
use crate::time::Instant;
use crate::wire::data::{BASE_DATAGRAM, OVERHEAD};
use crate::wire::frame;
use crate::wire::frame::{ADVANCED_LEN, Frame};

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
        let is_good = |id| self.paths.list.get(id).is_some_and(|path| path.is_good());
        let Some(carrier) = carrier.filter(|&id| is_good(id)) else { return };
        for epoch in self.epochs.receiving() {
            for lane in epoch.tx.iter_mut().filter(|lane| lane.path != carrier) {
                if lane.flight.has_copies() && !is_good(lane.path) {
                    self.lost.collect(cx, epoch.id, lane);
                }
            }
        }
    }

    /// Sends one lost packet again, by the path `by`. It names the packet number that was lost.
    pub(crate) fn retransmit(
        &mut self,
        cx: &mut Context<'_>,
        by: PathId,
        owed: &Owed,
    ) -> Result<(), DropReason> {
        let &Owed { epoch, serial, ref kept } = owed;
        let mut whole = Vec::with_capacity(frame::RETRANSMISSION_OVERHEAD + kept.frame.len());
        #[expect(clippy::cast_possible_truncation, reason = "the low bits travel")]
        let number = kept.number as u32;
        frame::emit_again(&mut whole, serial, number, &kept.frame);
        let path = self.paths.list.get_to_send(by).ok_or(DropReason::NoRoute)?;
        path.note_retransmitted();
        if whole.len() <= path.mtu.datagram() - OVERHEAD {
            let load = Load::Repair { first_at: kept.first_at, attempts: kept.attempts };
            return self.send_under(cx, epoch, by, load, |draft| {
                draft.frames().extend_from_slice(&whole);
            });
        }
        self.send_split(cx, epoch, by, &whole)
    }

    /// When something must be done about what waits to be sent again, or is kept for that and too
    /// old.
    pub(crate) fn lost_due(&self) -> Option<Instant> {
        let rests = |id| self.paths.list.get(id).is_none_or(|path| !path.is_good());
        let lanes = self.epochs.all_receiving().flat_map(|epoch| &epoch.tx);
        let kept = lanes.filter(|lane| lane.flight.has_copies() && rests(lane.path));
        let due = kept.filter_map(|lane| lane.flight.copies_due()).chain(self.lost.due);
        due.chain(self.lost.unheard_due()).min()
    }

    /// Forgets what nobody will send again.
    pub(crate) fn forget_lost(&mut self, cx: &mut Context<'_>) {
        self.lost.forget_unheard(cx.now, cx.drops);
        for lane in self.epochs.receiving().flat_map(|epoch| &mut epoch.tx) {
            if lane.flight.copies_due().is_some_and(|due| due <= cx.now) {
                lane.flight.forget_copies(cx.memory.blocks());
            }
        }
    }

    /// When something that others have overtaken on a path that carries a share counts as lost.
    pub(crate) fn late_due(&self) -> Option<Instant> {
        let shared = |id| self.paths.list.get(id).filter(|path| path.has_share());
        let lanes = self.epochs.all_receiving().flat_map(|epoch| &epoch.tx);
        let lanes = lanes.filter_map(|lane| Some((lane, shared(lane.path)?)));
        lanes.filter_map(|(lane, path)| lane.flight.late_due(&path.rtt)).min()
    }

    /// The path `id` was silent, or had never answered, and answers what it was asked at
    /// `asked_at`: what left before is lost. Nobody would tell of it where that is as much as may
    /// be on its way.
    pub(crate) fn lose_flight(&mut self, cx: &mut Context<'_>, id: PathId, asked_at: Instant) {
        let (mut bytes, mut evidence) = (0, None);
        for epoch in self.epochs.receiving() {
            for lane in epoch.tx.iter_mut().filter(|lane| lane.path == id) {
                let (lost, of_lane) = lane.flight.lose_before(asked_at, cx.now, cx.memory.blocks());
                bytes += of_lane;
                evidence = lane.flight.take_evidence().or(evidence);
                self.lost.extend(cx.drops, (epoch.id, lane.seal.serial), lost);
            }
        }
        self.judge_offload(cx, id, (0, bytes), evidence);
    }

    /// Tells the peer which numbers are abandoned. If there is no room now, the rest is dropped, so
    /// that nothing piles up here. The peer then waits for those numbers as for any other gap.
    pub(crate) fn send_abandoned(&mut self, cx: &mut Context<'_>) {
        while let Some(&Abandoned { epoch, .. }) = self.lost.abandoned.first() {
            let choice = self.paths.list.choose().filter(|_| !cx.out.is_full());
            let Some(choice) = choice else { return self.lost.abandoned.clear() };
            let same = self.lost.abandoned.iter().take_while(|it| it.epoch == epoch).count();
            let some: Vec<_> = self.lost.abandoned.drain(..same.min(ADVANCED_MAX)).collect();
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
