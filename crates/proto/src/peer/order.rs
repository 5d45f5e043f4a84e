//! What came by several paths becomes a sequence again, as far as that can be had in time.

use super::egress::Load;
use super::epochs::Standing;
use super::index::EpochId;
use super::live::Came;
use super::share::has_share;
use super::{Context, Peer};
use crate::ablation::Heuristic;
use crate::bond::reorder::Taken;
use crate::error::DropReason;
use crate::outbox::REST;
use crate::path::{Health, Path};
use crate::time::{Duration, Instant};
use crate::wire::data::{BASE_DATAGRAM, OVERHEAD};
use crate::wire::frame::{self, Frame};
use crate::wire::inner::InnerPacket;

/// How long a gap in a sequence is held open, in round trips of the longest path: for a loss to be
/// noticed, the repair to arrive, and for that once more.
const HOLD_TRIPS: f64 = 3.5;
/// The least and the most of it: as much as by a geostationary satellite.
const HOLD_MIN: Duration = Duration::from_millis(30);
pub(super) const HOLD_MAX: Duration = Duration::from_millis(2_200);
/// What comes after its turn was given up shows that a path has become slower than its round trip
/// tells yet: gaps are held open for so many times as long,
const LATE_HOLD: u32 = 2;
/// for so long after it.
const LATE_FRESH: Duration = Duration::from_secs(5);
/// Numbers of which one datagram says that they will not come: few are lost for good, and each has
/// its place among much to be found.
pub(super) const VOIDS_MAX: usize = 32;
const _: () = assert!(VOIDS_MAX * frame::VOID_LEN <= BASE_DATAGRAM - OVERHEAD);
/// Sequences of which one datagram says where they ended.
const ENDS_MAX: usize = (BASE_DATAGRAM - OVERHEAD) / frame::ENDED_LEN;

impl Peer {
    /// A packet of a sequence that may have gaps: it is delivered in its turn.
    pub(super) fn take_ordered(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        (bucket, sequence): (u8, u32),
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let hold = self.gap_time(cx);
        let Some((found, standing)) = self.epochs.find(epoch) else { return Ok(()) };
        let blocks = cx.memory.blocks();
        match found.reorder.take(blocks, cx.now, bucket, sequence, packet, hold) {
            Taken::Deliver => {
                let delivered = self.deliver(cx, Came::InTurn, packet);
                self.release(cx, epoch, standing);
                delivered
            }
            Taken::Late => {
                let usual = self.usual_gap_time();
                if !self.bond.ablation.is_off(Heuristic::LateHold) {
                    self.bond.inbound.lateness = Some((cx.now, (usual * LATE_HOLD).min(HOLD_MAX)));
                }
                self.deliver(cx, Came::InTurn, packet)
            }
            Taken::Kept => {
                self.release(cx, epoch, standing); // room may have been made for it
                Ok(())
            }
            Taken::Duplicate => Ok(()),
        }
    }

    /// The first of a sequence that follows one under the keys before.
    pub(super) fn take_first(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        bucket: u8,
        (before, end): (u16, u16),
        packet: &[u8],
    ) -> Result<(), DropReason> {
        self.epochs.follow(epoch, bucket, before, end);
        self.take_ordered(cx, epoch, (bucket, 0), packet)
    }

    /// Of a sequence nothing will come before the number `end` that has not.
    pub(super) fn take_end(&mut self, cx: &mut Context<'_>, epoch: EpochId, bucket: u8, end: u32) {
        let Some((found, standing)) = self.epochs.find(epoch) else { return };
        found.reorder.end_at(bucket, end);
        self.release(cx, epoch, standing);
    }

    /// One of a sequence will not come.
    pub(super) fn take_void(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        bucket: u8,
        sequence: u32,
    ) {
        let hold = self.gap_time(cx);
        let Some((found, standing)) = self.epochs.find(epoch) else { return };
        found.reorder.void(cx.memory.blocks(), cx.now, bucket, sequence, hold);
        self.release(cx, epoch, standing);
    }

    /// Tells the peer what of the sequences will not come. What finds no room now is not told: it
    /// is waited for as any gap is, and nothing piles up here.
    pub(super) fn send_voids(&mut self, cx: &mut Context<'_>) {
        while let Some(&(epoch, ..)) = self.lost.voids.first() {
            let choice = self.paths.choose().filter(|_| !cx.out.is_full());
            let Some(choice) = choice else { return self.lost.voids.clear() };
            let same = self.lost.voids.iter().take_while(|void| void.0 == epoch).count();
            let some: Vec<_> = self.lost.voids.drain(..same.min(VOIDS_MAX)).collect();
            let sent = self.send_under(cx, epoch, choice.original, Load::Quiet, |draft| {
                for &(_, bucket, sequence) in &some {
                    Frame::Void { bucket, sequence }.emit(draft.frames());
                }
            });
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
    }

    /// Connections whose way was lost are sent on from where they are known to be, not from what
    /// was on its way: the peer is not to wait for that, nor has what still waits here to leave.
    pub(super) fn end_sequences(&mut self, cx: &mut Context<'_>) {
        let (flows, now) = (&mut self.flows, cx.now);
        let is_repeated = |packet: &[u8]| {
            InnerPacket::whole(packet).is_ok_and(|packet| flows.sends_again(now, &packet))
        };
        self.bond.forget(cx.memory.blocks(), is_repeated);
        let (Some(choice), Some(epoch)) = (self.paths.choose(), &self.epochs.current) else {
            return;
        };
        // What was given to a path and has yet to leave is waited for.
        let waiting = self.bond.lines.firsts();
        let taken = |bucket| {
            let first = waiting[usize::from(bucket)];
            Frame::Ended { bucket, end: first.unwrap_or_else(|| epoch.numbers.taken(bucket)) }
        };
        let ends = (0..=u8::MAX).filter(|&bucket| epoch.numbers.taken(bucket) > 0).map(taken);
        let ends: Vec<_> = ends.collect();
        for some in ends.chunks(ENDS_MAX) {
            let sent = self.send_on(cx, choice.original, Load::Quiet, |draft| {
                some.iter().for_each(|end| end.emit(draft.frames()));
            });
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
    }

    /// There will be new keys, and those before the current ones are forgotten: what waits for
    /// something under these goes on.
    pub(super) fn release_previous(&mut self, cx: &mut Context<'_>) {
        for standing in [Standing::Previous, Standing::Current] {
            let epoch = self.epochs.end_previous(standing);
            if let Some(epoch) = epoch {
                self.release_of(cx, epoch);
            }
        }
    }

    /// Delivers what is in sequence now, or has waited for long enough; and what came under the
    /// keys that followed, where it waited for that.
    fn release(&mut self, cx: &mut Context<'_>, epoch: EpochId, standing: Standing) {
        self.release_of(cx, epoch);
        if standing == Standing::Previous
            && let Some(current) = self.epochs.go_on()
        {
            self.release_of(cx, current);
        }
    }

    /// Delivers what is in sequence now, or has waited for long enough, under the keys of `epoch`.
    fn release_of(&mut self, cx: &mut Context<'_>, epoch: EpochId) {
        let mut packet = std::mem::take(&mut self.bond.inbound.packet);
        loop {
            if cx.out.is_full() {
                self.bond.inbound.rests_until = cx.now + REST;
                break;
            }
            packet.clear();
            let Some((found, _)) = self.epochs.find(epoch) else { break };
            if found.reorder.next(cx.memory.blocks(), cx.now, &mut packet).is_none() {
                break;
            }
            if packet.is_empty() {
                continue; // it did not come, and will not
            }
            if let Err(reason) = self.deliver(cx, Came::InTurn, &packet) {
                cx.drops.count(reason);
            }
        }
        self.bond.inbound.packet = packet;
    }

    /// When a gap in a sequence has been held open for long enough, or there is room again for what
    /// followed one.
    pub(super) fn order_due(&self) -> Option<Instant> {
        let due = self.epochs.all_receiving().filter_map(|epoch| epoch.reorder.due()).min()?;
        Some(due.max(self.bond.inbound.rests_until))
    }

    /// Gives up gaps that are due, under old keys first.
    pub(super) fn give_up_gaps(&mut self, cx: &mut Context<'_>) {
        for standing in [Standing::Previous, Standing::Current] {
            if let Some(epoch) = self.epochs.gap_due(cx.now, standing) {
                self.release(cx, epoch, standing);
            }
        }
    }

    /// How long a gap is held open: longer, if something came lately whose turn was given up.
    fn gap_time(&self, cx: &Context<'_>) -> Duration {
        if !cx.config.reorders {
            return Duration::ZERO;
        }
        let usual = self.usual_gap_time();
        let late = self.bond.inbound.lateness.filter(|(at, _)| cx.now < *at + LATE_FRESH);
        late.map_or(usual, |(_, hold)| hold.max(usual))
    }

    /// The same where nothing came too late. One that stands by, as a satellite's may, is not what
    /// repairs come by.
    fn usual_gap_time(&self) -> Duration {
        let good = || self.paths.iter().filter(|path| path.health == Health::Good);
        let longest_of = |carries: fn(&&Path) -> bool| {
            good().filter(carries).filter_map(|path| path.rtt.measured()).max()
        };
        let longest = longest_of(|path| has_share(path)).or_else(|| longest_of(|_| true));
        let longest = longest.unwrap_or_default();
        (longest.mul_f64(HOLD_TRIPS) + HOLD_MIN).min(HOLD_MAX)
    }
}

#[cfg(test)]
#[path = "order_tests.rs"]
mod tests;
