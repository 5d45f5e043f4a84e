//! The paths that carry together, as the choice among them sees them.
//!
//! It is asked with every packet and changes with every datagram of feedback, and then for one
//! path: only that one is looked at anew. What else may have changed shows a moment later.

use super::paths::ALL;
use super::{Context, Peer};
use crate::ablation::Heuristic;
use crate::bond::Recovery;
use crate::bond::codel::Bound;
use crate::bond::scheduler::{self, Scheduler};
use crate::bond::way::{Tally, Way};
use crate::path::{Path, PathId, delay};
use crate::time::{Duration, Instant};

/// All paths are looked at anew after so long: few packets at any rate, and less than feedback
/// takes to tell of anything.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// What a path begins with that took another's place is over after this: ten round trips of
/// 150 ms, and until the entry was bad for long enough.
const REPLACED: Duration = Duration::from_secs(2);
/// One way is longer than another by no more than a gap is held open: what the clock of the peer
/// says beyond that is not believed.
const LONGER_MAX: Duration = super::order::HOLD_MAX;

impl Peer {
    /// Whether data goes by what is shared among paths.
    pub(super) fn is_bonded(&mut self, cx: &Context<'_>) -> bool {
        self.bond.is_shared && {
            self.look_at_ways(cx.now);
            !self.bond.ways.is_empty()
        }
    }

    /// The path by which something that leaves now arrives first.
    pub(super) fn quickest(&mut self, cx: &Context<'_>, len: usize) -> Option<PathId> {
        self.chosen(cx, |ways| scheduler::quickest(cx.now, ways, len))
    }

    /// The same for what leaves again.
    pub(super) fn quickest_open(&mut self, cx: &Context<'_>, len: usize) -> Option<PathId> {
        self.chosen(cx, |ways| scheduler::quickest_open(cx.now, ways, len))
    }

    /// The path of the way whose place is chosen; `None` where nothing is shared among paths.
    fn chosen(
        &mut self,
        cx: &Context<'_>,
        choose: impl FnOnce(&[Way]) -> Option<usize>,
    ) -> Option<PathId> {
        if !self.bond.is_shared {
            return None;
        }
        self.look_at_ways(cx.now);
        let place = choose(&self.bond.ways)?;
        Some(self.bond.ways[place].path)
    }

    /// Looks which paths carry and how they are, if that may have changed.
    pub(super) fn look_at_ways(&mut self, now: Instant) {
        let changes = self.paths.changes();
        let looked = self.bond.looked.filter(|&(at, _)| now < at + LOOK_EVERY);
        if looked.is_some_and(|(_, seen)| seen == changes) {
            return;
        }
        let changed = self.paths.take_changed();
        let at = match looked {
            Some((at, _)) if self.look_again(now, changed) => at,
            Some(_) | None => {
                self.look_at_all(now);
                now
            }
        };
        self.bond.looked = Some((at, changes));
    }

    /// Looks which paths carry, and how all of them are.
    fn look_at_all(&mut self, now: Instant) {
        let mut ways = std::mem::take(&mut self.bond.ways);
        let mut count = 0;
        for path in self.paths.iter().filter(|path| self.is_way(now, path)) {
            let Some(way) = self.way(now, path) else { continue };
            let known = ways.iter().position(|known| known.path == path.id);
            let known = known.filter(|&at| at >= count).unwrap_or_else(|| {
                ways.push(way);
                ways.len() - 1
            });
            let Way { line, tally, .. } = ways[known];
            ways.swap(count, known);
            ways[count] = Way { line, tally, ..way };
            count += 1;
        }
        ways.truncate(count);
        compare_delays(&mut ways);
        // Without the queues on their way, which would let their own cause grow.
        let trip = |way: &Way| self.paths.get(way.path)?.rtt.minimum();
        let longest = ways.iter().filter_map(trip).max();
        let controller = |way: &Way| self.paths.get(way.path)?.congestion.as_deref();
        let is_on = |heuristic| !self.bond.ablation.is_off(heuristic);
        let varies = is_on(Heuristic::VaryingBound)
            && ways.iter().filter_map(controller).any(|it| it.is_varying(now));
        let longest = longest.filter(|_| is_on(Heuristic::RepairBound));
        let mended = longest.map_or(Bound::LONG, Bound::mended_in);
        let is_replaced = self.bond.replaced_at.is_some_and(|at| now < at + REPLACED)
            && is_on(Heuristic::ReplacedBound);
        let mended = if is_replaced { mended.of_replaced() } else { mended };
        let is_told = is_on(Heuristic::Codel);
        let knows_far = is_on(Heuristic::Far);
        let tries_far = is_on(Heuristic::FarTrial);
        self.bond.standing = match self.bond.recovery {
            _ if !is_told => Bound::NEVER,
            Recovery::Throughput if varies => mended.of_varying(),
            Recovery::Throughput => mended,
            Recovery::Latency => Bound::SHORT,
        };
        self.bond.lines.settle(&mut ways);
        // Who asked for a short wait, or for another choice, has it.
        if self.bond.scheduler == Scheduler::Earliest
            && self.bond.recovery == Recovery::Throughput
            && knows_far
        {
            self.bond.far.look(now, &ways);
            if !tries_far {
                self.bond.far.end_trial();
            }
        } else {
            self.bond.far.forget();
        }
        self.bond.ways = ways;
    }

    /// Looks how the paths in the places of `changed` are that carried before. Returns whether
    /// they still do, and no other.
    fn look_again(&mut self, now: Instant, changed: u16) -> bool {
        let mut ways = std::mem::take(&mut self.bond.ways);
        let (mut is_same, mut found) = (true, 0);
        for (place, path) in self.paths.iter().enumerate() {
            if changed & 1 << place == 0 {
                continue;
            }
            let known = ways.iter_mut().find(|known| known.path == path.id);
            let way = if self.is_way(now, path) { self.way(now, path) } else { None };
            match (known, way) {
                (Some(known), Some(way)) if way.least.is_some() || known.least.is_none() => {
                    let Way { line, waiting, tally, .. } = *known;
                    *known = Way { line, waiting, tally, ..way };
                    found += 1;
                }
                (None, None) => {}
                (Some(_) | None, _) => is_same = false,
            }
        }
        compare_delays(&mut ways);
        // One that was removed is not among the paths.
        is_same &= changed != ALL || found == ways.len();
        self.bond.ways = ways;
        is_same
    }

    /// A path as far as the choice goes, as it is now.
    fn way(&self, now: Instant, path: &Path) -> Option<Way> {
        let controller = path.congestion.as_deref()?;
        let lane = self.epochs.current.as_ref()?.tx.iter().find(|lane| lane.path == path.id);
        let loss = lane.map_or(0.0, |lane| lane.flight.loss().share());
        let in_flight = self.epochs.in_flight(path.id);
        let least_trip = path.rtt.minimum().unwrap_or_default();
        Some(Way {
            path: path.id,
            next_at: controller.next_at(),
            byte_ns: 1e9 / controller.pacing_rate(),
            delay: least_trip / 2,
            least: path.delay.least(),
            trip: path.rtt.smoothed(),
            least_trip,
            loss,
            arrives: path.rates.0.at(now),
            proven: controller.rate(),
            is_known: controller.is_steady(),
            room: controller.room(in_flight),
            waiting: 0,
            line: usize::MAX,
            tally: Tally::default(),
        })
    }
}

/// The clocks of both ends tell by how much one way is longer than another.
fn compare_delays(ways: &mut [Way]) {
    let least = ways.iter().map(|way| way.least);
    let shortest = least.reduce(|a, b| Some(delay::earlier(a?, b?)));
    let Some(shortest) = shortest.flatten() else { return };
    for way in ways {
        let more = way.least.map_or(0, |least| least.wrapping_sub(shortest));
        way.delay = Duration::from_micros(more.into()).min(LONGER_MAX);
    }
}
