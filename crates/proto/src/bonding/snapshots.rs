//! The paths with a share, as the scheduler sees them.
//!
//! Each packet reads the snapshots, and each feedback datagram changes one of them. Then only that
//! one is updated. The others follow within [`LOOK_EVERY`].

use super::Bonding;
use crate::ablation::Heuristic;
use crate::multipath::codel::Bound;
use crate::multipath::scheduler::Scheduler;
use crate::multipath::snapshot::{PathSnapshot, Tally};
use crate::multipath::{Recovery, scheduler};
use crate::path::{Path, PathId};
use crate::recovery::delay;
use crate::time::{Duration, Instant};
use crate::tunnel::paths::list::ALL;
use crate::tunnel::paths::plan::is_fresh;
use crate::tunnel::{Context, Tunnel};

/// All paths are looked at anew after so long: few packets at any rate, and less than feedback
/// takes to tell of anything.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// What a path begins with that took another's place is over after this: ten round trips of
/// 150 ms, and until the entry was bad for long enough.
const REPLACED: Duration = Duration::from_secs(2);
/// One way is longer than another by no more than a gap is held open: what the clock of the peer
/// says beyond that is not believed.
const LONGER_MAX: Duration = crate::multipath::reorder::HOLD_MAX;

impl Bonding {
    /// Whether packets go through [`Bonding`]: some path has a share and may be used now.
    pub(crate) fn is_bonded(&mut self, cx: &Context<'_>, tunnel: &mut Tunnel) -> bool {
        self.multipath.is_shared && {
            self.look_at_ways(tunnel, cx.now);
            !tunnel.sharing.is_empty()
        }
    }

    /// The path by which something that leaves now arrives first.
    pub(crate) fn quickest(
        &mut self,
        cx: &Context<'_>,
        tunnel: &mut Tunnel,
        len: usize,
    ) -> Option<PathId> {
        self.chosen(cx, tunnel, |ways| scheduler::quickest(cx.now, ways, len))
    }

    /// The same for what leaves again.
    pub(crate) fn quickest_open(
        &mut self,
        cx: &Context<'_>,
        tunnel: &mut Tunnel,
        len: usize,
    ) -> Option<PathId> {
        self.chosen(cx, tunnel, |ways| scheduler::quickest_open(cx.now, ways, len))
    }

    /// The path of the way whose place is chosen; `None` where nothing is shared among paths.
    fn chosen(
        &mut self,
        cx: &Context<'_>,
        tunnel: &mut Tunnel,
        choose: impl FnOnce(&[PathSnapshot]) -> Option<usize>,
    ) -> Option<PathId> {
        if !self.multipath.is_shared {
            return None;
        }
        self.look_at_ways(tunnel, cx.now);
        let place = choose(&tunnel.sharing)?;
        Some(tunnel.sharing[place].path)
    }

    /// Looks which paths carry and how they are, if that may have changed.
    pub(crate) fn look_at_ways(&mut self, tunnel: &mut Tunnel, now: Instant) {
        let changes = tunnel.paths.list.changes();
        let looked = self.multipath.looked.filter(|&(at, _)| now < at + LOOK_EVERY);
        if looked.is_some_and(|(_, seen)| seen == changes) {
            return;
        }
        let changed = tunnel.paths.list.take_changed();
        let at = match looked {
            Some((at, _)) if Self::look_again(tunnel, now, changed) => at,
            Some(_) | None => {
                self.look_at_all(tunnel, now);
                now
            }
        };
        self.multipath.looked = Some((at, changes));
    }

    /// Looks which paths carry, and how all of them are.
    fn look_at_all(&mut self, tunnel: &mut Tunnel, now: Instant) {
        let mut ways = std::mem::take(&mut tunnel.sharing);
        let mut count = 0;
        for path in tunnel.paths.list.iter().filter(|path| is_way(tunnel, now, path)) {
            let Some(way) = snapshot(tunnel, now, path) else { continue };
            let known = ways.iter().position(|known| known.path == path.id);
            let known = known.filter(|&at| at >= count).unwrap_or_else(|| {
                ways.push(way);
                ways.len() - 1
            });
            let PathSnapshot { line, tally, .. } = ways[known];
            ways.swap(count, known);
            ways[count] = PathSnapshot { line, tally, ..way };
            count += 1;
        }
        ways.truncate(count);
        compare_delays(&mut ways);
        // Without the queues on their way, which would let their own cause grow.
        let trip = |way: &PathSnapshot| tunnel.paths.list.get(way.path)?.rtt.minimum();
        let longest = ways.iter().filter_map(trip).max();
        let controller =
            |way: &PathSnapshot| tunnel.paths.list.get(way.path)?.congestion.as_deref();
        let is_on = |heuristic| !self.multipath.ablation.is_off(heuristic);
        let varies = is_on(Heuristic::VaryingBound)
            && ways.iter().filter_map(controller).any(|it| it.is_varying(now));
        let longest = longest.filter(|_| is_on(Heuristic::RepairBound));
        let mended = longest.map_or(Bound::LONG, Bound::mended_in);
        let is_replaced = tunnel.replaced_at.is_some_and(|at| now < at + REPLACED)
            && is_on(Heuristic::ReplacedBound);
        let mended = if is_replaced { mended.of_replaced() } else { mended };
        let is_told = is_on(Heuristic::Codel);
        let knows_far = is_on(Heuristic::Far);
        let tries_far = is_on(Heuristic::FarTrial);
        self.multipath.standing = match self.multipath.recovery {
            _ if !is_told => Bound::NEVER,
            Recovery::Throughput if varies => mended.of_varying(),
            Recovery::Throughput => mended,
            Recovery::Latency => Bound::SHORT,
        };
        self.multipath.lines.settle(&mut ways);
        // Who asked for a short wait, or for another choice, has it.
        if self.multipath.scheduler == Scheduler::Earliest
            && self.multipath.recovery == Recovery::Throughput
            && knows_far
        {
            self.multipath.far.look(now, &ways);
            if !tries_far {
                self.multipath.far.end_trial();
            }
        } else {
            self.multipath.far.forget();
        }
        tunnel.sharing = ways;
    }

    /// Looks how the paths in the places of `changed` are that carried before. Returns whether
    /// they still do, and no other.
    fn look_again(tunnel: &mut Tunnel, now: Instant, changed: u16) -> bool {
        let mut ways = std::mem::take(&mut tunnel.sharing);
        let (mut is_same, mut found) = (true, 0);
        for (place, path) in tunnel.paths.list.iter().enumerate() {
            if changed & 1 << place == 0 {
                continue;
            }
            let known = ways.iter_mut().find(|known| known.path == path.id);
            let way = if is_way(tunnel, now, path) { snapshot(tunnel, now, path) } else { None };
            match (known, way) {
                (Some(known), Some(way)) if way.least.is_some() || known.least.is_none() => {
                    let PathSnapshot { line, waiting, tally, .. } = *known;
                    *known = PathSnapshot { line, waiting, tally, ..way };
                    found += 1;
                }
                (None, None) => {}
                (Some(_) | None, _) => is_same = false,
            }
        }
        compare_delays(&mut ways);
        // One that was removed is not among the paths.
        is_same &= changed != ALL || found == ways.len();
        tunnel.sharing = ways;
        is_same
    }
}

/// Whether a path may get a share now: beside the one in use none that nobody has heard of for a
/// while. A NAT may have forgotten it, and the client asks it when anybody speaks again.
fn is_way(tunnel: &Tunnel, now: Instant, path: &Path) -> bool {
    let list = &tunnel.paths.list;
    path.has_share()
        && (list.active_id() == Some(path.id) || is_fresh(now, path))
        && tunnel.epochs.has_lane(path, list.len())
}

/// A path as far as the choice goes, as it is now.
fn snapshot(tunnel: &Tunnel, now: Instant, path: &Path) -> Option<PathSnapshot> {
    let controller = path.congestion.as_deref()?;
    let loss = tunnel.sent_on(path.id).map_or(0.0, |sent| sent.loss().share());
    let in_flight = tunnel.recovery.in_flight(path.id);
    let least_trip = path.rtt.minimum().unwrap_or_default();
    Some(PathSnapshot {
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

/// The clocks of both ends tell by how much one way is longer than another.
fn compare_delays(ways: &mut [PathSnapshot]) {
    let least = ways.iter().map(|way| way.least);
    let shortest = least.reduce(|a, b| Some(delay::earlier(a?, b?)));
    let Some(shortest) = shortest.flatten() else { return };
    for way in ways {
        let more = way.least.map_or(0, |least| least.wrapping_sub(shortest));
        way.delay = Duration::from_micros(more.into()).min(LONGER_MAX);
    }
}
