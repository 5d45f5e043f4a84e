//! Puts inner packets that came by several paths back into their sequence.
//!
//! Decides how long a gap is held open, and hands out the packets whose turn has come. The packets
//! wait in the `Reorder` of their epoch, which bounds them. Does not know what a packet is, nor
//! whether the peer may send it.

use crate::ablation::Heuristic;
use crate::multipath::reorder::{HOLD_MAX, Taken};
use crate::outbox::REST;
use crate::packet::Checksum;
use crate::path::Path;
use crate::paths::list::Paths;
use crate::session::epochs::{Epochs, Standing};
use crate::session::index::EpochId;
use crate::time::{Duration, Instant};
use crate::tunnel::{Config, Context};
use crate::wire::inner::Pieces;

/// How long a gap in a sequence is held open, in round trips of the longest path: for a loss to be
/// noticed, the repair to arrive, and for that once more.
const HOLD_TRIPS: f64 = 3.5;
/// The least of it.
const HOLD_MIN: Duration = Duration::from_millis(30);
/// A packet that comes after its gap was given up shows that a path has become slower than its
/// measured round trip. Gaps are then held open for so many times as long,
const LATE_HOLD: u32 = 2;
/// for so long after it.
const LATE_FRESH: Duration = Duration::from_secs(5);

/// How packets come out of their sequence at this end.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// The outbox was full: nothing is handed out before.
    rests_until: Instant,
    /// When a packet last came after its gap was given up, and how long gaps are held open because
    /// of that.
    lateness: Option<(Instant, Duration)>,
    /// Memory for one packet that comes out.
    packet: Vec<u8>,
    /// Memory for the headers of one packet whose headers were elided.
    headers: Vec<u8>,
}

impl Inbound {
    /// Takes a packet with its place in the sequence of a bucket under the keys of `epoch`.
    pub(super) fn take(
        &mut self,
        cx: &mut Context<'_>,
        (epochs, paths): (&mut Epochs, &Paths),
        epoch: EpochId,
        (bucket, sequence): (u8, u32),
        packet: Pieces<'_>,
    ) -> Taken {
        let Some((epoch, _)) = epochs.find(epoch) else { return Taken::Duplicate };
        let (now, config, blocks) = (cx.now, cx.config, cx.memory.blocks());
        let hold = || self.gap_time(now, config, paths);
        let taken = epoch.reorder.take(blocks, now, bucket, sequence, packet, hold);
        if taken == Taken::Late && !cx.config.ablation.is_off(Heuristic::LateHold) {
            let longer = (usual_gap_time(paths) * LATE_HOLD).min(HOLD_MAX);
            self.lateness = Some((cx.now, longer));
        }
        taken
    }

    /// Memory for the headers of a packet that is restored. [`Self::give_back_headers`] takes it.
    pub(super) fn take_headers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.headers)
    }

    /// Takes back the memory of the headers of a packet that was restored.
    pub(super) fn give_back_headers(&mut self, headers: Vec<u8>) {
        self.headers = headers;
    }

    /// The next packet under the keys of `epoch` that is in sequence now or has waited for long
    /// enough, and what is known of its checksum. Where these are the previous keys, `epoch`
    /// becomes the current one after the last of them, for packets that waited for that.
    /// [`Self::give_back`] takes the packet's memory.
    pub(super) fn next(
        &mut self,
        cx: &mut Context<'_>,
        epochs: &mut Epochs,
        epoch: &mut EpochId,
    ) -> Option<(Vec<u8>, Checksum)> {
        loop {
            let (found, standing) = epochs.find(*epoch)?;
            if cx.out.is_full() {
                self.rests_until = cx.now + REST;
            } else if let Some((_, checksum)) =
                found.reorder.next(cx.memory.blocks(), cx.now, &mut self.packet)
            {
                return Some((std::mem::take(&mut self.packet), checksum));
            }
            if standing != Standing::Previous {
                return None;
            }
            *epoch = epochs.go_on()?;
        }
    }

    /// Takes back the memory of a packet that was handed out.
    pub(super) fn give_back(&mut self, mut packet: Vec<u8>) {
        packet.clear();
        self.packet = packet;
    }

    /// When a gap has been held open for long enough, or the outbox may have room again.
    pub(super) fn due(&self, epochs: &Epochs) -> Option<Instant> {
        let due = epochs.all_receiving().filter_map(|epoch| epoch.reorder.due()).min()?;
        Some(due.max(self.rests_until))
    }

    /// How long a gap is held open: longer, if a packet came lately after its gap was given up.
    fn gap_time(&self, now: Instant, config: &Config, paths: &Paths) -> Duration {
        if !config.reorders {
            return Duration::ZERO;
        }
        let usual = usual_gap_time(paths);
        let late = self.lateness.filter(|(at, _)| now < *at + LATE_FRESH);
        late.map_or(usual, |(_, hold)| hold.max(usual))
    }
}

/// How long a gap is held open if no packet came too late. Paths on standby (a satellite, say) do
/// not count, unless no other works: repairs do not come by them.
fn usual_gap_time(paths: &Paths) -> Duration {
    let good = || paths.iter().filter(|path| path.is_good());
    let longest_of = |carries: fn(&&Path) -> bool| {
        good().filter(carries).filter_map(|path| path.rtt.measured()).max()
    };
    let longest = longest_of(|path| path.has_share()).or_else(|| longest_of(|_| true));
    let longest = longest.unwrap_or_default();
    (longest.mul_f64(HOLD_TRIPS) + HOLD_MIN).min(HOLD_MAX)
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
