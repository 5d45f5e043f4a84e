//! The paths with a share, as the scheduler sees them.
//!
//! Each packet reads the snapshots, and each feedback datagram changes one of them. Then only that
//! one is updated. The others follow within [`LOOK_EVERY`].

use super::Bonding;
use crate::ablation::Heuristic;
use crate::multipath::Recovery;
use crate::multipath::codel::Bound;
use crate::multipath::scheduler::Scheduler;
use crate::multipath::snapshot::{Measured, PathSnapshot, Tally};
use crate::path::{Path, PathId};
use crate::paths::list::ALL;
use crate::paths::plan::is_fresh;
use crate::recovery::delay;
use crate::time::{Duration, Instant};
use crate::tunnel::{Context, Departure, Tunnel};

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
        self.is_shared && {
            self.look_at_ways(tunnel, cx.now);
            !self.ways.is_empty()
        }
    }

    /// The path of the way whose place is chosen; `None` where nothing is shared among paths.
    pub(crate) fn chosen(
        &mut self,
        now: Instant,
        tunnel: &mut Tunnel,
        choose: impl FnOnce(&[PathSnapshot]) -> Option<usize>,
    ) -> Option<PathId> {
        if !self.is_shared {
            return None;
        }
        self.look_at_ways(tunnel, now);
        let place = choose(&self.ways)?;
        Some(self.ways[place].path)
    }

    /// Books what has left by the paths.
    pub(crate) fn book(&mut self, tunnel: &mut Tunnel) {
        for Departure { path, next_at, bytes } in tunnel.departures.take() {
            if let Some(way) = self.ways.iter_mut().find(|way| way.path == path) {
                way.left(next_at, bytes);
            }
        }
    }

    /// Looks which paths carry and how they are, if that may have changed.
    pub(crate) fn look_at_ways(&mut self, tunnel: &mut Tunnel, now: Instant) {
        self.book(tunnel);
        let changes = tunnel.paths.list.changes();
        let looked = self.looked.filter(|&(at, _)| now < at + LOOK_EVERY);
        if looked.is_some_and(|(_, seen)| seen == changes) {
            return;
        }
        let changed = tunnel.paths.list.take_changed();
        self.look_at(tunnel, now, if looked.is_some() { changed } else { ALL });
        self.looked = Some((looked.map_or(now, |(at, _)| at), changes));
    }

    /// Looks which paths carry, and how those in the places of `changed` are.
    fn look_at(&mut self, tunnel: &Tunnel, now: Instant, changed: u16) {
        let mut ways = std::mem::take(&mut self.ways);
        let mut count = 0;
        for (place, path) in tunnel.paths.list.iter().enumerate() {
            if !is_way(tunnel, now, path) {
                continue;
            }
            let known = (count..ways.len()).find(|&at| ways[at].path == path.id);
            let at = known.unwrap_or(ways.len());
            if known.is_none() || changed & 1 << place != 0 {
                let Some(way) = snapshot(tunnel, now, path) else { continue };
                if known.is_none() {
                    ways.push(way);
                }
                ways[at] = PathSnapshot { tally: ways[at].tally, ..way };
            }
            ways.swap(count, at);
            count += 1;
        }
        ways.truncate(count);
        compare_delays(&mut ways, |id| tunnel.paths.list.get(id)?.delay.least());
        // Without the queues on their way, which would let their own cause grow.
        let trip = |way: &PathSnapshot| tunnel.paths.list.get(way.path)?.rtt.minimum();
        let longest = ways.iter().filter_map(trip).max();
        let controller =
            |way: &PathSnapshot| tunnel.paths.list.get(way.path)?.congestion.as_deref();
        let is_on = |heuristic| !self.ablation.is_off(heuristic);
        let varies = is_on(Heuristic::VaryingBound)
            && ways.iter().filter_map(controller).any(|it| it.is_varying(now));
        let longest = longest.filter(|_| is_on(Heuristic::RepairBound));
        let mended = longest.map_or(Bound::LONG, Bound::mended_in);
        let is_replaced = tunnel.changes.replaced_at().is_some_and(|at| now < at + REPLACED)
            && is_on(Heuristic::ReplacedBound);
        let mended = if is_replaced { mended.of_replaced() } else { mended };
        let is_told = is_on(Heuristic::Codel);
        self.standing = match self.settings.recovery {
            _ if !is_told => Bound::NEVER,
            Recovery::Throughput if varies => mended.of_varying(),
            Recovery::Throughput => mended,
            Recovery::Latency => Bound::SHORT,
        };
        self.lines.settle(&mut ways);
        // Who asked for a short wait, or for another choice, has it.
        if self.settings.scheduler == Scheduler::Earliest
            && self.settings.recovery == Recovery::Throughput
            && is_on(Heuristic::Far)
        {
            self.far.look(now, &ways);
            if !is_on(Heuristic::FarTrial) {
                self.far.end_trial();
            }
        } else {
            self.far.forget();
        }
        self.ways = ways;
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
    })
}

/// The clocks of both ends tell by how much one way is longer than another. `least` is the shortest
/// time between departure by this clock and arrival by the peer's, in wrapping microseconds.
fn compare_delays(ways: &mut [PathSnapshot], least: impl Fn(PathId) -> Option<u32>) {
    let all = ways.iter().map(|way| least(way.path));
    let shortest = all.reduce(|a, b| Some(delay::earlier(a?, b?)));
    let Some(shortest) = shortest.flatten() else { return };
    for way in ways {
        let more = least(way.path).map_or(0, |least| least.wrapping_sub(shortest));
        way.delay = Duration::from_micros(more.into()).min(LONGER_MAX);
    }
}
