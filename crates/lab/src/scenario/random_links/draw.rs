//! A draw: links that nobody tuned for, and the traffic over them.
//!
//! This module decides the number of links, and computes their greatest rates. The ranges of a link
//! are in `link`, the chances of traffic and events in `traffic`.

use super::link::{Kind, Link, MBPS};
use super::traffic::Traffic;
use super::{BUSY_NS, Story};
use crate::emu::Rng;
use crate::ground::{Act, Connections, Cue, Datagrams, Mode, Receiver, Route, Terrain, What};

/// The label of this chance, so that other draws of the seed do not change,
const LABEL: u64 = 0x6c69_6e6b;
/// and that of the traffic.
const TRAFFIC: u64 = 0x7472_6166;
/// The capacity of all links of a draw together at most, in Mbit/s: a run in virtual time takes
/// longer with more packets.
const SUM_MBPS: f64 = 600.0;
/// With mixed traffic, one draw in this number may have links as fast as that; the links of the
/// others have this capacity together. A run takes longer with more packets: with fast links in
/// every draw, the same time is enough for a third of the draws.
const FAST_IN: u64 = 5;
const USUAL_SUM_MBPS: f64 = 100.0;
/// The label of the chance for that.
const FAST: u64 = 0x6661_7374;
/// One draw in so many has a third link.
const THIRD_LINK_IN: u64 = 4;
/// The number of TCP connections, if there are several.
const SEVERAL: u32 = 4;

/// Links and the traffic over them.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct Draw {
    /// Its seed,
    pub(in crate::scenario) seed: u64,
    /// and its number.
    pub(in crate::scenario) number: u64,
    /// The client's links, the first one first.
    links: Vec<Link>,
    /// The receiver.
    to: Receiver,
    traffic: Traffic,
    /// The length of the part that counts, in nanoseconds.
    length_ns: u64,
    /// The seed of all other chance in its run.
    pub(in crate::scenario) chance: u64,
}

impl Draw {
    /// The draw with this number of a seed. The part that counts lasts for `length_ns` nanoseconds.
    /// The traffic is drawn as well if it is mixed.
    pub(in crate::scenario) fn new(seed: u64, number: u64, length_ns: u64, mixed: bool) -> Self {
        let mut rng = Rng::new(seed).fork(LABEL).fork(number);
        let chance = rng.next_u64();
        let to = if rng.below(2) == 0 { Receiver::Client } else { Receiver::Server };
        let several = if rng.below(2) == 0 { 1 } else { SEVERAL };
        let count: u32 = if rng.below(THIRD_LINK_IN) == 0 { 3 } else { 2 };
        let is_fast = !mixed || rng.fork(FAST).below(FAST_IN) == 0;
        let sum_mbps = if is_fast { SUM_MBPS } else { USUAL_SUM_MBPS };
        let mut links: Vec<Link> = Vec::new();
        for at in 0..count {
            let others: f64 = links.iter().map(|link| link.mbps).sum();
            // Each further link has at least the least rate.
            let rest = MBPS.0 * f64::from(count - 1 - at);
            let most = MBPS.1.min(sum_mbps - others - rest);
            // Rates change until the story is over for certain.
            let changes_ns = length_ns + 4 * BUSY_NS;
            let link = Link::draw(&mut rng.fork(u64::from(at)), most, changes_ns);
            // A draw has each recording at most once.
            let is_there = |name| links.iter().any(|link| link.recording() == Some(name));
            let is_twice = link.recording().is_some_and(is_there);
            links.push(if is_twice { Link { kind: Kind::Steady, ..link } } else { link });
        }
        let counts_ns = (BUSY_NS, BUSY_NS + length_ns);
        let traffic = if mixed {
            Traffic::draw(&mut rng.fork(TRAFFIC), several, links.len(), counts_ns)
        } else {
            Traffic::usual(several)
        };
        Self { seed, number, links, to, traffic, length_ns, chance }
    }

    /// Its run with all heuristics.
    pub(in crate::scenario) const fn story(&self) -> Story<'_> {
        Story { draw: self, chance: self.chance, without: None, asks: None }
    }

    /// Its name, with the options that repeat it.
    pub(in crate::scenario) fn name(&self) -> String {
        format!("{} of seed {}", self.number, self.seed)
    }

    /// The links as text.
    pub(super) fn links(&self) -> String {
        self.links.iter().map(Link::name).collect::<Vec<_>>().join(" + ")
    }

    /// The traffic and the events as text.
    pub(super) fn traffic(&self) -> String {
        let to = if self.to == Receiver::Client { "client" } else { "server" };
        format!("to the {to}: {}", self.traffic.name())
    }

    /// The networks of its run, with a client in this mode.
    pub(super) fn terrain(&self, mode: Mode) -> Terrain {
        let mut links = self.links.iter().map(Link::config);
        let usual = Terrain::of(links.next().unwrap_or_default());
        let bottleneck = self.traffic.bottleneck.as_ref().map(|it| it.config(self.sum_mbps()));
        Terrain { beside: links.collect(), bottleneck, mode, ..usual }
    }

    /// The acts before any traffic,
    pub(super) fn before(&self) -> Vec<Act> {
        self.traffic.before(self.links.len())
    }

    /// and those during it.
    pub(super) fn script(&self) -> Vec<Cue> {
        self.traffic.script()
    }

    /// The connections in the direction of the draw, those in the other one, and those beside the
    /// tunnel, which last for `length_ns` nanoseconds at least.
    pub(super) fn connections(&self, length_ns: u64) -> [Connections; 3] {
        let Traffic { flows, congestion, is_both_ways, bottleneck, .. } = &self.traffic;
        let usual = Connections::outlasting(self.to, self.most_mbps(), length_ns);
        let pace = self.traffic.pace(self.sum_mbps());
        let forth = Connections { count: *flows, congestion: *congestion, pace, ..usual };
        let back = Connections { count: (*is_both_ways).into(), to: self.from(), ..usual };
        let other = bottleneck.as_ref().and_then(|bottleneck| bottleneck.other);
        let beside = Connections {
            count: other.is_some().into(),
            route: Route::Open,
            congestion: other.unwrap_or(usual.congestion),
            ..usual
        };
        [forth, back, beside]
    }

    /// The datagrams, which last for `length_ns` nanoseconds.
    pub(super) fn datagrams(&self, length_ns: u64) -> Option<Datagrams> {
        let what = self.traffic.datagrams(self.sum_mbps())?;
        Some(Datagrams { to: self.to, what, length_ns, skip_ns: BUSY_NS })
    }

    /// Whether its datagrams respond to congestion: QUIC.
    pub(super) fn is_quic(&self) -> bool {
        matches!(self.traffic.datagrams(1.0), Some(What::Quic { .. }))
    }

    /// The shortest round trip of its links, in milliseconds.
    pub(super) fn shortest_ms(&self) -> f64 {
        self.links.iter().map(|link| link.round_trip_ms).min().unwrap_or_default() as f64
    }

    /// The capacity of each link between two moments of the backend's clock, in Mbit/s: its rate
    /// less its loss. Events count from `start_ns`.
    pub(super) fn carry_mbps(&self, start_ns: u64, (from_ns, to_ns): (u64, u64)) -> Vec<f64> {
        self.carry_mbps_to(self.to, start_ns, (from_ns, to_ns))
    }

    fn carry_mbps_to(&self, to: Receiver, start_ns: u64, window: (u64, u64)) -> Vec<f64> {
        let whole_ns = (window.1 - window.0).max(1) as f64;
        let window = (window.0.saturating_sub(start_ns), window.1.saturating_sub(start_ns));
        let carries = |(at, link): (usize, &Link)| {
            let windows = self.traffic.carries(at, window).into_iter();
            let bits =
                windows.filter(|(from_ns, to_ns)| from_ns < to_ns).map(|(from_ns, to_ns)| {
                    let window = (start_ns + from_ns, start_ns + to_ns);
                    link.carries_mbps(to, window) * (to_ns - from_ns) as f64
                });
            bits.sum::<f64>() / whole_ns
        };
        self.links.iter().enumerate().map(carries).collect()
    }

    /// The greatest payload of the tunnel between two moments, in Mbit/s: all links together, at
    /// most its share of a bottleneck, and at most the senders' demand. A connection in the other
    /// direction is part of it.
    pub(super) fn could_mbps(&self, start_ns: u64, window: (u64, u64), payload_share: f64) -> f64 {
        let sum = |to| -> f64 { self.carry_mbps_to(to, start_ns, window).iter().sum() };
        let wanted = self.traffic.wants_mbps(self.sum_mbps()).unwrap_or(f64::INFINITY);
        let forth = (sum(self.to).min(self.fair_mbps()) * payload_share).min(wanted);
        let behind = self.traffic.bottleneck.as_ref().map(|it| it.mbps(self.sum_mbps()));
        let back = sum(self.from()).min(behind.unwrap_or(f64::INFINITY)) * payload_share;
        forth + if self.traffic.is_both_ways { back } else { 0.0 }
    }

    /// The tunnel's fair share of the bottleneck, in Mbit/s.
    fn fair_mbps(&self) -> f64 {
        let Some(bottleneck) = &self.traffic.bottleneck else { return f64::INFINITY };
        let mbps = bottleneck.mbps(self.sum_mbps());
        let other = bottleneck.other.map_or(0.0, |_| self.others_mbps());
        (mbps - other).max(mbps / 2.0).min(mbps)
    }

    /// Whether the tunnel and a connection beside it could each fill half of the bottleneck, so
    /// that they have to share it.
    pub(super) fn is_shared(&self) -> bool {
        self.traffic.bottleneck.as_ref().is_some_and(|bottleneck| {
            let half = bottleneck.mbps(self.sum_mbps()) / 2.0;
            let wanted = self.traffic.wants_mbps(self.sum_mbps()).unwrap_or(f64::INFINITY);
            bottleneck.other.is_some() && self.others_mbps() >= half && wanted >= half
        })
    }

    /// The greatest rate of the connection beside the tunnel: its link is like the first one.
    fn others_mbps(&self) -> f64 {
        self.links.first().map_or(0.0, |link| link.mbps)
    }

    /// More than the greatest rate of all links together, in Mbit/s.
    pub(super) fn most_mbps(&self) -> u64 {
        self.links.iter().map(Link::most_mbps).sum::<f64>().ceil() as u64
    }

    fn sum_mbps(&self) -> f64 {
        self.links.iter().map(|link| link.mbps).sum()
    }

    const fn from(&self) -> Receiver {
        match self.to {
            Receiver::Client => Receiver::Server,
            Receiver::Server => Receiver::Client,
        }
    }

    /// The length of the part that counts, in nanoseconds.
    pub(super) const fn length_ns(&self) -> u64 {
        self.length_ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::{LOSS, QUEUE_BYTES_MIN};
    use super::*;
    use crate::emu::{LinkConfig, Loss, SECOND};

    /// A run of a minute.
    const MINUTE_NS: u64 = 60 * SECOND;

    #[test]
    fn the_same_seed_draws_the_same_and_another_draws_another() {
        let drawn = |seed, number| format!("{:?}", Draw::new(seed, number, MINUTE_NS, true));
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
        assert_ne!(drawn(1, 0), drawn(2, 0));
    }

    #[test]
    fn every_draw_is_within_its_bounds() {
        let draws: Vec<Draw> =
            (0..2_000).map(|number| Draw::new(number % 7, number, MINUTE_NS, true)).collect();
        for draw in &draws {
            let what = format!("{}, {}", draw.links(), draw.traffic());
            assert!((2..=3).contains(&draw.links.len()), "{what}");
            assert!(draw.sum_mbps() <= SUM_MBPS + 1e-6, "{what}");
            let names: Vec<_> = draw.links.iter().filter_map(Link::recording).collect();
            assert!(names.len() < 2 || names[0] != names[1], "{what}");
            for link in &draw.links {
                assert!((MBPS.0..=MBPS.1).contains(&link.mbps), "{what}");
                assert!((5..=600).contains(&link.round_trip_ms), "{what}");
                assert!(link.loss.mean() <= LOSS.1 + 1e-9, "{what}");
                let LinkConfig { up, down } = link.config();
                assert!(up.queue_bytes.min(down.queue_bytes) >= QUEUE_BYTES_MIN, "{what}");
            }
            let window = (10 * SECOND, 20 * SECOND);
            let carried: f64 = draw.carry_mbps(SECOND, window).iter().sum();
            assert!(carried > 0.0 && carried <= draw.most_mbps() as f64, "{carried}: {what}");
            let could = draw.could_mbps(SECOND, window, 0.9);
            let most = draw.most_mbps() as f64 * 2.0;
            assert!(could > 0.0 && could <= most, "{could}: {what}");
        }
        let part = |is: &dyn Fn(&Link) -> bool| {
            let links = || draws.iter().flat_map(|draw| &draw.links);
            links().filter(|link| is(link)).count() as f64 / links().count() as f64
        };
        let lossless = part(&|link| matches!(link.loss, Loss::None));
        let changing = part(&|link| matches!(link.kind, Kind::Changing(_)));
        let recorded = part(&|link| matches!(link.kind, Kind::Recorded(_)));
        assert!((0.3..0.37).contains(&lossless), "{lossless}");
        assert!((0.15..0.3).contains(&changing), "{changing}");
        assert!((0.08..0.2).contains(&recorded), "{recorded}");
        let slow = part(&|link| link.mbps < 31.0);
        assert!((0.6..0.85).contains(&slow), "{slow}");
        let fast = part(&|link| link.mbps > USUAL_SUM_MBPS);
        assert!((0.02..0.1).contains(&fast), "{fast}");
        let plain = |number| Draw::new(1, number, MINUTE_NS, false);
        let plain: Vec<Link> = (0..1_000).flat_map(|number| plain(number).links).collect();
        let slow = plain.iter().filter(|link| link.mbps < 31.0).count() as f64;
        let slow = slow / plain.len() as f64;
        assert!((0.45..0.7).contains(&slow), "half of them in the lower half of ratios: {slow}");
    }
}
