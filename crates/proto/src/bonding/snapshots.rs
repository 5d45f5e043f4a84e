//! The paths with a share, as the scheduler sees them.
//!
//! Each packet reads the snapshots, and each feedback datagram changes one of them. Then only that
//! one is updated. The others follow within [`LOOK_EVERY`]. `peer::ways` shows the paths.

use super::Bonding;
use crate::ablation::Heuristic;
use crate::congestion::Controller;
use crate::multipath::Recovery;
use crate::multipath::codel::Bound;
use crate::multipath::scheduler::Scheduler;
use crate::multipath::snapshot::{Measured, PathSnapshot, Tally};
use crate::path::{Path, PathId};
use crate::recovery::delay;
use crate::time::{Duration, Instant};

/// All paths are looked at anew after so long: few packets at any rate, and less than feedback
/// takes to tell of anything.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// What a path begins with that took another's place is over after this: ten round trips of
/// 150 ms, and until the entry was bad for long enough.
const REPLACED: Duration = Duration::from_secs(2);
/// One way is longer than another by no more than a gap is held open: what the clock of the peer
/// says beyond that is not believed.
const LONGER_MAX: Duration = crate::multipath::reorder::HOLD_MAX;

/// A path that may carry a share now.
#[derive(Clone, Copy)]
pub(crate) struct Carrier<'p> {
    /// The path.
    pub(crate) path: &'p Path,
    /// Its congestion controller.
    pub(crate) controller: &'p dyn Controller,
    /// Whether it may have changed since it was looked at last.
    pub(crate) is_changed: bool,
}

impl Bonding {
    /// The paths with a share that may carry, as they were when they were looked at last.
    pub(crate) fn ways(&self) -> &[PathSnapshot] {
        &self.ways
    }

    /// Something changed about paths that they do not show: all of them are looked at anew.
    pub(crate) const fn look_anew(&mut self) {
        self.looked = None;
    }

    /// So many bytes have left by a path, which may carry another datagram at `next_at`.
    pub(crate) fn note_left(&mut self, path: PathId, next_at: Instant, bytes: usize) {
        if let Some(way) = self.ways.iter_mut().find(|way| way.path == path) {
            way.left(next_at, bytes);
        }
    }

    /// The number of changes to the paths is `changes` now. Returns whether all paths have to be
    /// looked at, or only those that changed; `None` if all are known. [`Self::look`] follows.
    pub(crate) fn begin_look(&mut self, now: Instant, changes: u64) -> Option<bool> {
        let looked = self.looked.filter(|&(at, _)| now < at + LOOK_EVERY);
        if looked.is_some_and(|(_, seen)| seen == changes) {
            return None;
        }
        self.looked = Some((looked.map_or(now, |(at, _)| at), changes));
        Some(looked.is_none())
    }

    /// Looks at the paths that may carry a share. Of a path `counted` says which part of what
    /// leaves by it is lost, and how many bytes are in flight. At `replaced_at` a path last took
    /// the place of another.
    pub(crate) fn look<'p>(
        &mut self,
        now: Instant,
        carriers: impl Iterator<Item = Carrier<'p>> + Clone,
        counted: impl Fn(PathId) -> (f64, u64),
        replaced_at: Option<Instant>,
    ) {
        self.take_snapshots(now, carriers.clone(), counted);
        compare_delays(&mut self.ways, carriers.clone());
        self.standing = self.bound(now, carriers, replaced_at);
        self.lines.settle(&mut self.ways);
        // Who asked for a short wait, or for another choice, has it.
        if self.settings.scheduler == Scheduler::Earliest
            && self.settings.recovery == Recovery::Throughput
            && !self.ablation.is_off(Heuristic::Far)
        {
            self.far.look(now, &self.ways);
            if self.ablation.is_off(Heuristic::FarTrial) {
                self.far.end_trial();
            }
        } else {
            self.far.forget();
        }
    }

    /// Takes a snapshot of each path that is new or has changed. They stand in the order of the
    /// paths then.
    fn take_snapshots<'p>(
        &mut self,
        now: Instant,
        carriers: impl Iterator<Item = Carrier<'p>>,
        counted: impl Fn(PathId) -> (f64, u64),
    ) {
        let (ways, mut count) = (&mut self.ways, 0);
        for carrier in carriers {
            let id = carrier.path.id;
            let known = (count..ways.len()).find(|&at| ways[at].path == id);
            let at = known.unwrap_or(ways.len());
            if known.is_none() || carrier.is_changed {
                let way = snapshot(now, carrier, counted(id));
                if known.is_none() {
                    ways.push(way);
                }
                ways[at] = PathSnapshot { tally: ways[at].tally, ..way };
            }
            ways.swap(count, at);
            count += 1;
        }
        ways.truncate(count);
    }

    /// How long packets for these paths may stand at the entry.
    fn bound<'p>(
        &self,
        now: Instant,
        mut carriers: impl Iterator<Item = Carrier<'p>> + Clone,
        replaced_at: Option<Instant>,
    ) -> Bound {
        let is_on = |heuristic| !self.ablation.is_off(heuristic);
        // Without the queues on their way, which would let their own cause grow.
        let longest = carriers.clone().filter_map(|carrier| carrier.path.rtt.minimum()).max();
        let varies = is_on(Heuristic::VaryingBound)
            && carriers.any(|carrier| carrier.controller.is_varying(now));
        let longest = longest.filter(|_| is_on(Heuristic::RepairBound));
        let mended = longest.map_or(Bound::LONG, Bound::mended_in);
        let is_replaced =
            replaced_at.is_some_and(|at| now < at + REPLACED) && is_on(Heuristic::ReplacedBound);
        let mended = if is_replaced { mended.of_replaced() } else { mended };
        match self.settings.recovery {
            _ if !is_on(Heuristic::Codel) => Bound::NEVER,
            Recovery::Throughput if varies => mended.of_varying(),
            Recovery::Throughput => mended,
            Recovery::Latency => Bound::SHORT,
        }
    }
}

/// A path as far as the choice goes, as it is now, with what is counted of it.
fn snapshot(now: Instant, carrier: Carrier<'_>, (loss, in_flight): (f64, u64)) -> PathSnapshot {
    let Carrier { path, controller, .. } = carrier;
    let least_trip = path.rtt.minimum().unwrap_or_default();
    PathSnapshot {
        path: path.id,
        next_at: controller.next_at(),
        byte_ns: 1e9 / controller.pacing_rate(),
        delay: least_trip / 2,
        trip: path.rtt.smoothed(),
        least_trip,
        measured: Measured {
            loss,
            arrives: path.rates.0.at(now),
            proven: controller.rate(),
            is_known: controller.is_steady(),
        },
        room: controller.room(in_flight),
        waiting: 0,
        tally: Tally::default(),
    }
}

/// The clocks of both ends tell by how much one way is longer than another, from the shortest time
/// between departure by this clock and arrival by the peer's, in wrapping microseconds. Each of
/// `ways` is the snapshot of the carrier in its place.
fn compare_delays<'p>(
    ways: &mut [PathSnapshot],
    carriers: impl Iterator<Item = Carrier<'p>> + Clone,
) {
    let least = carriers.map(|carrier| carrier.path.delay.least());
    let shortest = least.clone().reduce(|a, b| Some(delay::earlier(a?, b?)));
    let Some(shortest) = shortest.flatten() else { return };
    for (way, least) in ways.iter_mut().zip(least) {
        let more = least.map_or(0, |least| least.wrapping_sub(shortest));
        way.delay = Duration::from_micros(more.into()).min(LONGER_MAX);
    }
}
