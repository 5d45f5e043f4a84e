//! Which path gets the next packet: the choices that go by names.
//!
//! Each is a function of the paths as they are now and of what they got so far; none paces: a path
//! has need of packets while its congestion controller lets it carry them, whoever chooses. The
//! default is [`Scheduler::Earliest`]; the others are there to compare with, and for who knows
//! better.

use crate::multipath::path_queues::LINE_BYTES_MAX;
use crate::multipath::snapshot::PathSnapshot;
use crate::time::{Duration, Instant};

/// Over how long bytes are counted by [`Scheduler::Rate`] (Multilink VPN, "Counting Bytes").
const COUNTED: Duration = Duration::from_millis(300);
/// How much of what was measured last its moving average takes over.
const NEWEST: f64 = 0.25;

/// How packets are given to the paths that carry together.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Scheduler {
    /// Each goes where it arrives first, by rate, delay and what waits there already.
    #[default]
    Earliest,
    /// The path with the lowest round trip while there is room on it, then the next: the default
    /// of Linux' MPTCP v0.9x (Lukaszewski 2017, 2.2.4).
    Rtt,
    /// Each path in its turn, but for those without room (Lukaszewski 2017, 2.2.4).
    RoundRobin,
    /// Each packet by every path that has room for it; the receiver takes the first (Lukaszewski
    /// 2017, 2.2.4). It is sent as fast as the fastest path carries.
    Redundant,
    /// Turns in proportion to the part of each path's datagrams that arrives (Multilink VPN,
    /// "Packet Loss").
    Loss,
    /// The fastest path up to what it was measured to carry, then the next; what is beyond that in
    /// proportion (Multilink VPN, "Counting Bytes").
    Rate,
    /// The path with the lowest round trip, and no other (Multilink VPN, "Use lowest latency
    /// only").
    Latency,
}

impl Scheduler {
    /// All of them, in the order of their numbers on the wire (docs/spec/wire.md#4-control).
    pub const ALL: [Self; 7] = [
        Self::Earliest,
        Self::Rtt,
        Self::RoundRobin,
        Self::Redundant,
        Self::Loss,
        Self::Rate,
        Self::Latency,
    ];

    /// Their names, in the same order.
    const NAMES: [&'static str; 7] =
        ["earliest", "rtt", "round-robin", "redundant", "loss", "rate", "latency"];

    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The scheduler with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheduler| scheduler.name() == name)
    }

    /// Its number on the wire.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The scheduler with that number on the wire; `None` for one of a later version.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether a path has need of a packet: one that may get some will soon have nothing to carry.
    pub fn needs(self, now: Instant, ways: &[PathSnapshot]) -> bool {
        match self {
            Self::Earliest | Self::Rtt | Self::RoundRobin | Self::Loss | Self::Rate => {
                ways.iter().any(|way| way.starves(now))
            }
            Self::Redundant => fastest(ways).is_some_and(|place| ways[place].starves(now)),
            Self::Latency => self.gets_all(ways).is_some_and(|place| ways[place].starves(now)),
        }
    }

    /// The place in `ways` of the path that gets a packet of `len` bytes; `None` when none has
    /// need of it, or room. For [`Self::Earliest`] none is nearer than `floor`.
    pub fn choose(
        self,
        now: Instant,
        ways: &mut [PathSnapshot],
        len: usize,
        floor: Duration,
    ) -> Option<usize> {
        let starves = |way: &PathSnapshot| way.starves(now);
        let place = match self {
            Self::Earliest => earliest(now, ways, len, floor),
            Self::Rtt => nearest(ways, starves),
            Self::RoundRobin => next_in_turn(ways, starves),
            Self::Redundant => fastest(ways).filter(|&place| ways[place].starves(now)),
            Self::Loss => most_owed(ways, starves),
            Self::Rate => by_count(now, ways, len),
            Self::Latency => self.gets_all(ways).filter(|&place| ways[place].starves(now)),
        };
        place.filter(|&place| ways[place].waiting + len <= LINE_BYTES_MAX)
    }

    /// The place of the path that alone gets what waits, whoever else has need; `None` where more
    /// than one may.
    pub(crate) fn gets_all(self, ways: &[PathSnapshot]) -> Option<usize> {
        if self == Self::Latency { nearest(ways, |_| true) } else { None }
    }

    /// Whether every path that has room gets a copy of what one gets.
    pub const fn copies(self) -> bool {
        matches!(self, Self::Redundant)
    }
}

/// The path by which a packet of `len` bytes arrives first, where none is nearer than `floor`:
/// earliest delivery path first (Chebrolu and Rao, "Bandwidth aggregation for real-time
/// applications in heterogeneous wireless networks", 2006).
pub fn earliest(now: Instant, ways: &[PathSnapshot], len: usize, floor: Duration) -> Option<usize> {
    let roomy = |way: &PathSnapshot| way.is_open() && way.waiting + len <= LINE_BYTES_MAX;
    least_by(ways, roomy, |way| way.arrival_from(now, way.waiting + len, floor))
}

/// The path by which a packet that leaves before all waiting ones arrives first.
pub fn quickest(now: Instant, ways: &[PathSnapshot], len: usize) -> Option<usize> {
    least_by(ways, |_| true, |way| way.arrival(now, len))
}

/// The path of a repair: the packets behind it wait until it arrives, so it takes the path by which
/// nearly all repairs have arrived first. Only paths whose window has room count, if there are any:
/// a path that has just died has a full window, and its empty line would make it look fast.
pub(crate) fn surest_open(now: Instant, ways: &[PathSnapshot], len: usize) -> Option<usize> {
    let surely = |way: &PathSnapshot| way.arrival(now, len).saturating_add(way.repeats_ns());
    least_by(ways, PathSnapshot::is_open, surely).or_else(|| least_by(ways, |_| true, surely))
}

/// The nearest of those that may.
fn nearest(ways: &[PathSnapshot], may: impl Fn(&PathSnapshot) -> bool) -> Option<usize> {
    least_by(ways, may, |way| u64::try_from(way.trip.as_nanos()).unwrap_or(u64::MAX))
}

/// The fastest of those whose window has room: while that of one that died silently fills, the
/// others get copies, and then one of them is the fastest.
fn fastest(ways: &[PathSnapshot]) -> Option<usize> {
    best_by(ways, PathSnapshot::is_open, |way| way.byte_ns)
}

/// The one of those that may whose last turn was the longest ago.
fn next_in_turn(ways: &mut [PathSnapshot], may: impl Fn(&PathSnapshot) -> bool) -> Option<usize> {
    let place = least_by(ways, may, |way| way.tally.turn)?;
    let newest = ways.iter().map(|way| way.tally.turn).max().unwrap_or(0);
    ways[place].tally.turn = newest + 1;
    Some(place)
}

/// Turns by weight, spread evenly: each of those that may earns its weight with each packet, and
/// who is owed most pays for it.
fn most_owed(ways: &mut [PathSnapshot], may: impl Fn(&PathSnapshot) -> bool) -> Option<usize> {
    let mut total = 0.0;
    let mut most: Option<usize> = None;
    for place in 0..ways.len() {
        if !may(&ways[place]) {
            ways[place].tally.credit = 0.0; // what it could not carry is not made up for
            continue;
        }
        // One that loses everything is still found out to have stopped.
        let weight = (1.0 - ways[place].measured.loss).max(0.01);
        total += weight;
        ways[place].tally.credit += weight;
        let credit = |place: usize| ways[place].tally.credit;
        if most.is_none_or(|most| credit(place) > credit(most)) {
            most = Some(place);
        }
    }
    ways[most?].tally.credit -= total;
    most
}

/// The fastest that has not got as many bytes as it carries in this while; beyond that the one
/// that got the smallest part of it.
fn by_count(now: Instant, ways: &mut [PathSnapshot], len: usize) -> Option<usize> {
    for way in ways.iter_mut() {
        count_anew(now, way);
    }
    let within = |way: &PathSnapshot| way.starves(now) && counted_part(way) < 1.0;
    let slowness = |way: &PathSnapshot| 1.0 / way.tally.carried;
    let place = best_by(ways, within, slowness)
        .or_else(|| best_by(ways, |way| way.starves(now), counted_part))?;
    ways[place].tally.counted.1 += len as u64;
    Some(place)
}

/// Which part of what it carries in a while a path got in this one.
#[expect(clippy::cast_precision_loss, reason = "bytes of less than a second")]
fn counted_part(way: &PathSnapshot) -> f64 {
    way.tally.counted.1 as f64 / (way.tally.carried * COUNTED.as_secs_f64())
}

/// Begins to count anew when it is time to. What a path carries is what arrived of late, on the
/// average, if that was more or something was lost: else it may just have got less.
fn count_anew(now: Instant, way: &mut PathSnapshot) {
    let tally = &mut way.tally;
    if tally.carried == 0.0 {
        tally.carried = 1e9 / way.byte_ns;
    } else if now.saturating_since(tally.counted.0) < COUNTED {
        return;
    }
    if let Some(arrives) =
        way.measured.arrives.filter(|&rate| rate > tally.carried || way.measured.loss > 0.0)
    {
        tally.carried += (arrives - tally.carried) * NEWEST;
        tally.carried = tally.carried.max(1.0);
    }
    tally.counted = (now, 0);
}

/// The first of those that may with the least.
fn least_by(
    ways: &[PathSnapshot],
    may: impl Fn(&PathSnapshot) -> bool,
    what: impl Fn(&PathSnapshot) -> u64,
) -> Option<usize> {
    let may = (0..ways.len()).filter(|&place| may(&ways[place]));
    may.min_by_key(|&place| what(&ways[place]))
}

/// The same for what is no whole number.
fn best_by(
    ways: &[PathSnapshot],
    may: impl Fn(&PathSnapshot) -> bool,
    what: impl Fn(&PathSnapshot) -> f64,
) -> Option<usize> {
    let may = (0..ways.len()).filter(|&place| may(&ways[place]));
    may.min_by(|&a, &b| what(&ways[a]).total_cmp(&what(&ways[b])))
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
