//! Inner packets of the peer on their way to the TUN: what came by several paths becomes a sequence
//! again, as far as that can be had in time, and what the peer may send is delivered. The buffers
//! belong to the epochs, the timing to `inbound`.

use super::Peer;
use crate::ablation::Heuristic;
use crate::error::DropReason;
use crate::flow::Verdict;
use crate::flow::live::Came;
use crate::multipath::reorder::{HOLD_MAX, Taken};
use crate::outbox::REST;
use crate::path::Path;
use crate::session::epochs::Standing;
use crate::session::index::EpochId;
use crate::time::{Duration, Instant};
use crate::tunnel::{Context, Side};
use crate::wire::icmp;
use crate::wire::icmp::Unreached;
use crate::wire::inner::InnerPacket;

/// How long a gap in a sequence is held open, in round trips of the longest path: for a loss to be
/// noticed, the repair to arrive, and for that once more.
const HOLD_TRIPS: f64 = 3.5;
/// The least of it.
const HOLD_MIN: Duration = Duration::from_millis(30);
/// What comes after its turn was given up shows that a path has become slower than its round trip
/// tells yet: gaps are held open for so many times as long,
const LATE_HOLD: u32 = 2;
/// for so long after it.
const LATE_FRESH: Duration = Duration::from_secs(5);

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
        let Some((found, standing)) = self.tunnel.epochs.find(epoch) else { return Ok(()) };
        let blocks = cx.memory.blocks();
        match found.reorder.take(blocks, cx.now, bucket, sequence, packet, hold) {
            Taken::Deliver => {
                let delivered = self.deliver(cx, Came::InTurn, packet);
                self.release(cx, epoch, standing);
                delivered
            }
            Taken::Late => {
                let usual = self.usual_gap_time();
                if !self.bonding.ablation.is_off(Heuristic::LateHold) {
                    self.inbound.lateness = Some((cx.now, (usual * LATE_HOLD).min(HOLD_MAX)));
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

    /// The peer has abandoned numbers of a bucket.
    pub(super) fn take_advanced(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        bucket: u8,
        (from, to): (u32, u32),
    ) {
        let Some((found, standing)) = self.tunnel.epochs.find(epoch) else { return };
        found.reorder.abandon(bucket, from, to);
        self.release(cx, epoch, standing);
    }

    /// There will be new keys, and those before the current ones are forgotten: what waits for
    /// something under these goes on.
    pub(super) fn release_previous(&mut self, cx: &mut Context<'_>) {
        for standing in [Standing::Previous, Standing::Current] {
            let epoch = self.tunnel.epochs.end_previous(standing);
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
            && let Some(current) = self.tunnel.epochs.go_on()
        {
            self.release_of(cx, current);
        }
    }

    /// Delivers what is in sequence now, or has waited for long enough, under the keys of `epoch`.
    fn release_of(&mut self, cx: &mut Context<'_>, epoch: EpochId) {
        let mut packet = std::mem::take(&mut self.inbound.packet);
        loop {
            if cx.out.is_full() {
                self.inbound.rests_until = cx.now + REST;
                break;
            }
            packet.clear();
            let Some((found, _)) = self.tunnel.epochs.find(epoch) else { break };
            if found.reorder.next(cx.memory.blocks(), cx.now, &mut packet).is_none() {
                break;
            }
            if let Err(reason) = self.deliver(cx, Came::InTurn, &packet) {
                cx.drops.count(reason);
            }
        }
        self.inbound.packet = packet;
    }

    /// When a gap in a sequence has been held open for long enough, or there is room again for what
    /// followed one.
    pub(super) fn order_due(&self) -> Option<Instant> {
        let due =
            self.tunnel.epochs.all_receiving().filter_map(|epoch| epoch.reorder.due()).min()?;
        Some(due.max(self.inbound.rests_until))
    }

    /// Gives up gaps that are due, under old keys first.
    pub(super) fn give_up_gaps(&mut self, cx: &mut Context<'_>) {
        for standing in [Standing::Previous, Standing::Current] {
            if let Some(epoch) = self.tunnel.epochs.gap_due(cx.now, standing) {
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
        let late = self.inbound.lateness.filter(|(at, _)| cx.now < *at + LATE_FRESH);
        late.map_or(usual, |(_, hold)| hold.max(usual))
    }

    /// The same where nothing came too late. One that stands by, as a satellite's may, is not what
    /// repairs come by.
    fn usual_gap_time(&self) -> Duration {
        let good = || self.tunnel.paths.list.iter().filter(|path| path.is_good());
        let longest_of = |carries: fn(&&Path) -> bool| {
            good().filter(carries).filter_map(|path| path.rtt.measured()).max()
        };
        let longest = longest_of(|path| path.has_share()).or_else(|| longest_of(|_| true));
        let longest = longest.unwrap_or_default();
        (longest.mul_f64(HOLD_TRIPS) + HOLD_MIN).min(HOLD_MAX)
    }

    /// An inner packet on its way to the TUN, if the peer may send it.
    pub(super) fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        came: Came,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        let inner = InnerPacket::whole(packet)?;
        if let Err(reason) = self.admission.admit(cx.now, &inner) {
            self.refuse(cx, &inner);
            return Err(reason);
        }
        self.hear_refusal(&inner);
        // A gateway would need a table for each of its sessions, and decides nothing by it.
        if !(came == Came::Alone && self.tunnel.paths.at_gateway()) {
            self.flows.hear(cx.now, came, &inner);
        }
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

    /// Gateway: tells the peer that a packet may not go where it wants to.
    fn refuse(&mut self, cx: &mut Context<'_>, packet: &InnerPacket<'_>) {
        if self.tunnel.epochs.current.is_none() {
            return;
        }
        let Some(answer) = self.admission.refusal(cx.now, packet) else { return };
        let sent = InnerPacket::whole(&answer).and_then(|answer| self.send_inner(cx, &answer));
        if let Err(reason) = sent {
            cx.drops.count(reason);
        }
    }

    /// Client: takes an ICMP message about a packet of an open connection. It changes only the
    /// report of that connection: the host judges by itself.
    fn hear_refusal(&mut self, packet: &InnerPacket<'_>) {
        if !matches!(packet.headers.protocol, icmp::ICMP | icmp::ICMPV6) {
            return;
        }
        let Side::Client(connector) = &self.tunnel.paths.side else { return };
        let gateway = connector.granted.lease.as_ref().map_or(&[][..], |lease| &lease.gateway);
        if let Some(unreached) = Unreached::parse(packet) {
            self.flows.hear_unreached(&unreached, gateway.contains(&unreached.by));
        }
    }
}

#[cfg(test)]
#[path = "deliver_tests.rs"]
mod tests;
