//! What a seed draws: links that nobody tuned for, and what is carried over them.
//!
//! Decides the ranges. Rates and round trips are log-uniform, because a link of 4 Mbit/s is as
//! different from one of 2 Mbit/s as 400 is from 200.

use crate::emu::{Changes, LinkConfig, Loss, MS, PipeConfig, Rate, Rng};
use crate::ground::{Mode, Receiver, Terrain};
use std::sync::Arc;

/// The label of this chance, so that other draws of the seed stay what they were.
const LABEL: u64 = 0x6c69_6e6b;
/// The rate of a link, in Mbit/s.
const MBPS: (f64, f64) = (2.0, 500.0);
/// The most that all links of a draw carry together, in Mbit/s: a draw in virtual time takes as
/// long as its packets are many.
const SUM_MBPS: f64 = 600.0;
/// The round trip of a link, in milliseconds.
const ROUND_TRIP_MS: (f64, f64) = (5.0, 600.0);
/// The packet loss of a link that loses any, as a share.
const LOSS: (f64, f64) = (0.000_5, 0.03);
/// The mean length of a burst of losses, in packets.
const BURST: (f64, f64) = (2.0, 6.0);
/// What the queue of a link holds, in milliseconds at its own rate,
pub(super) const QUEUE_MS: (f64, f64) = (15.0, 400.0);
/// and in bytes at least: what a slow router has, ten full packets.
const QUEUE_BYTES_MIN: u64 = 15_000;
/// One draw in so many has a third link,
const THIRD_LINK_IN: u64 = 4;
/// one link in so many changes its rate during the run,
const CHANGING_IN: u64 = 4;
/// and one in so many is recorded. A recording is there once in a draw at most.
const RECORDED_IN: u64 = 6;
/// The rates that a link changes to, as a part of the drawn one,
const PART: (f64, f64) = (0.25, 1.0);
/// and for how long it has each, in milliseconds.
const STAYS_MS: (f64, f64) = (500.0, 5_000.0);
/// The recorded networks with their mean rate down, in Mbit/s.
const RECORDINGS: [(&str, f64); 2] = [("verizon-lte", 5.3), ("tmobile-lte", 16.0)];
/// How many TCP connections there are, where there are several.
pub(super) const SEVERAL: u32 = 4;

/// Links and what is carried over them.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    /// Of which seed,
    seed: u64,
    /// and which draw of that.
    number: u64,
    /// The client's links, the first one first.
    links: Vec<Link>,
    /// Who receives.
    pub(super) to: Receiver,
    /// How many TCP connections there are.
    pub(super) flows: u32,
    /// All other chance of its story follows from this.
    pub(super) chance: u64,
}

/// A drawn link, alike in both directions.
#[derive(Clone, Debug)]
struct Link {
    /// Its rate, in Mbit/s: the greatest that it has, or of a recorded one about the mean.
    mbps: f64,
    round_trip_ms: u64,
    loss: Loss,
    queue_ms: u64,
    kind: Kind,
}

/// How the rate of a link behaves.
#[derive(Clone, Debug)]
enum Kind {
    Steady,
    Changing(Arc<Changes>),
    Recorded(&'static str),
}

impl Draw {
    /// The draw of this number of a seed, for a story of up to `length_ns` nanoseconds.
    pub(super) fn new(seed: u64, number: u64, length_ns: u64) -> Self {
        let mut rng = Rng::new(seed).fork(LABEL).fork(number);
        let chance = rng.next_u64();
        let to = if rng.below(2) == 0 { Receiver::Client } else { Receiver::Server };
        let flows = if rng.below(2) == 0 { 1 } else { SEVERAL };
        let count: u32 = if rng.below(THIRD_LINK_IN) == 0 { 3 } else { 2 };
        let mut links: Vec<Link> = Vec::new();
        for at in 0..count {
            let others: f64 = links.iter().map(|link| link.mbps).sum();
            // Each link that is still to come has the least at least.
            let rest = MBPS.0 * f64::from(count - 1 - at);
            let most = MBPS.1.min(SUM_MBPS - others - rest);
            let link = Link::draw(&mut rng.fork(u64::from(at)), most, length_ns);
            let is_there = |name| links.iter().any(|link| link.recording() == Some(name));
            let is_twice = link.recording().is_some_and(is_there);
            links.push(if is_twice { Link { kind: Kind::Steady, ..link } } else { link });
        }
        Self { seed, number, links, to, flows, chance }
    }

    /// Which draw it is, in words that say how to have it again.
    pub(super) fn name(&self) -> String {
        format!("{} of seed {}", self.number, self.seed)
    }

    /// The links in words.
    pub(super) fn links(&self) -> String {
        self.links.iter().map(Link::name).collect::<Vec<_>>().join(" + ")
    }

    /// The networks of its story, of a client in this mode whose tunnel goes without this
    /// heuristic.
    pub(super) fn terrain(&self, mode: Mode, without: Option<&'static str>) -> Terrain {
        let mut links = self.links.iter().map(Link::config);
        let usual = Terrain::of(links.next().unwrap_or_default());
        Terrain { beside: links.collect(), mode, without, ..usual }
    }

    /// The shortest round trip of its links, in milliseconds.
    pub(super) fn shortest_ms(&self) -> f64 {
        self.links.iter().map(|link| link.round_trip_ms).min().unwrap_or_default() as f64
    }

    /// What each link can carry between two moments of the ground's clock, in Mbit/s: its rate less
    /// what it loses.
    pub(super) fn carry_mbps(&self, window: (u64, u64)) -> Vec<f64> {
        self.links.iter().map(|link| link.carries_mbps(self.to, window)).collect()
    }

    /// More than all links together ever let through, in Mbit/s.
    pub(super) fn most_mbps(&self) -> u64 {
        let most = |link: &Link| match link.kind {
            // A recorded network may have more than its mean for a while.
            Kind::Recorded(_) => 4.0 * link.mbps,
            Kind::Steady | Kind::Changing(_) => link.mbps,
        };
        self.links.iter().map(most).sum::<f64>().ceil() as u64
    }
}

impl Link {
    fn draw(rng: &mut Rng, most_mbps: f64, length_ns: u64) -> Self {
        let mbps = log_uniform(rng, (MBPS.0, most_mbps));
        let round_trip_ms = log_uniform(rng, ROUND_TRIP_MS).round() as u64;
        let queue_ms = log_uniform(rng, QUEUE_MS).round() as u64;
        let (share, burst) = (log_uniform(rng, LOSS), log_uniform(rng, BURST));
        let loss = match rng.below(3) {
            0 => Loss::None,
            1 => Loss::Bernoulli(share),
            _ => Loss::bursts(share, burst),
        };
        let recording = RECORDINGS[usize::from(rng.below(2) == 1)];
        let is_recorded = rng.below(RECORDED_IN) == 0 && recording.1 <= most_mbps;
        let is_changing = rng.below(CHANGING_IN) == 0;
        let link = Self { mbps, round_trip_ms, loss, queue_ms, kind: Kind::Steady };
        match (is_recorded, is_changing) {
            (true, _) => Self { mbps: recording.1, kind: Kind::Recorded(recording.0), ..link },
            (false, true) => {
                let changes = changes(rng, mbps, length_ns);
                Self { kind: Kind::Changing(Arc::new(changes)), ..link }
            }
            (false, false) => link,
        }
    }

    const fn recording(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Recorded(name) => Some(name),
            Kind::Steady | Kind::Changing(_) => None,
        }
    }

    fn name(&self) -> String {
        let Self { mbps, round_trip_ms, queue_ms, .. } = self;
        let percent = self.loss.mean() * 100.0;
        let loss = match self.loss {
            Loss::None => String::new(),
            Loss::Bernoulli(_) => format!(", {percent:.2} % lost"),
            Loss::GilbertElliott { bad_to_good, .. } => {
                format!(", {percent:.2} % lost in bursts of {:.1}", 1.0 / bad_to_good)
            }
        };
        let queue = format!(", queue of {queue_ms} ms");
        let (rate, queue) = match self.kind {
            Kind::Steady => (format!("{mbps:.1} Mbit/s"), queue),
            Kind::Changing(_) => (format!("at most {mbps:.1} Mbit/s"), queue),
            Kind::Recorded(name) => (name.to_owned(), String::new()),
        };
        format!("{rate}, {round_trip_ms} ms{loss}{queue}")
    }

    /// As the emulator has it.
    fn config(&self) -> LinkConfig {
        let trip_ns = self.round_trip_ms * MS;
        let recorded = self.recording().and_then(|name| LinkConfig::recorded_as(name, trip_ns));
        let clean = PipeConfig::clean(bits(self.mbps), trip_ns / 2).with_queue_ms(self.queue_ms);
        let rate = match &self.kind {
            Kind::Changing(changes) => Rate::Changing(Arc::clone(changes)),
            Kind::Steady | Kind::Recorded(_) => clean.rate.clone(),
        };
        let queue_bytes = clean.queue_bytes.max(QUEUE_BYTES_MIN);
        let pipe = PipeConfig { rate, queue_bytes, ..clean };
        let link = match recorded {
            Some(Ok(link)) => link,
            Some(Err(_)) | None => LinkConfig { up: pipe.clone(), down: pipe },
        };
        link.loss(self.loss)
    }

    /// What it can carry to a receiver between two moments, in Mbit/s.
    fn carries_mbps(&self, to: Receiver, (from_ns, to_ns): (u64, u64)) -> f64 {
        let LinkConfig { up, down } = self.config();
        let pipe = if to == Receiver::Client { down } else { up };
        let rate = match &pipe.rate {
            Rate::Trace(trace) => {
                let bits = trace.capacity_bytes(from_ns, to_ns) as f64 * 8.0;
                bits * 1e3 / to_ns.saturating_sub(from_ns).max(1) as f64
            }
            Rate::Changing(changes) => changes.mean_between(from_ns, to_ns) as f64 / 1e6,
            Rate::Unlimited | Rate::BitsPerSecond(_) => self.mbps,
        };
        rate * (1.0 - self.loss.mean())
    }
}

/// Rates up to `mbps`, one after the other, for so many nanoseconds.
fn changes(rng: &mut Rng, mbps: f64, length_ns: u64) -> Changes {
    let (mut at_ns, mut later) = (0, Vec::new());
    while at_ns < length_ns {
        at_ns += log_uniform(rng, STAYS_MS) as u64 * MS;
        later.push((at_ns, bits(mbps * log_uniform(rng, PART))));
    }
    Changes::new(bits(mbps), later)
}

/// Bits per second of so many Mbit/s.
const fn bits(mbps: f64) -> u64 {
    (mbps * 1e6) as u64
}

/// A number between two others, of which any two in the same ratio are as far apart.
fn log_uniform(rng: &mut Rng, (least, most): (f64, f64)) -> f64 {
    (least * (most / least).powf(rng.unit())).clamp(least, most.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emu::SECOND;

    /// A story of a minute.
    const MINUTE_NS: u64 = 60 * SECOND;

    #[test]
    fn the_same_seed_draws_the_same_and_another_draws_another() {
        let drawn = |seed, number| format!("{:?}", Draw::new(seed, number, MINUTE_NS));
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert_ne!(drawn(1, 0), drawn(1, 1));
        assert_ne!(drawn(1, 0), drawn(2, 0));
    }

    #[test]
    fn every_draw_is_within_its_bounds() {
        let draws: Vec<Draw> =
            (0..2_000).map(|number| Draw::new(number % 7, number, MINUTE_NS)).collect();
        for draw in &draws {
            let what = draw.links();
            assert!((2..=3).contains(&draw.links.len()), "{what}");
            let sum: f64 = draw.links.iter().map(|link| link.mbps).sum();
            assert!(sum <= SUM_MBPS + 1e-6, "{sum}: {what}");
            let names: Vec<_> = draw.links.iter().filter_map(Link::recording).collect();
            assert!(names.len() < 2 || names[0] != names[1], "{what}");
            for link in &draw.links {
                assert!((MBPS.0..=MBPS.1).contains(&link.mbps), "{what}");
                assert!((5..=600).contains(&link.round_trip_ms), "{what}");
                assert!(link.loss.mean() <= LOSS.1 + 1e-9, "{what}");
                let LinkConfig { up, down } = link.config();
                assert!(up.queue_bytes.min(down.queue_bytes) >= QUEUE_BYTES_MIN, "{what}");
            }
            let carried: f64 = draw.carry_mbps((10 * SECOND, 20 * SECOND)).iter().sum();
            assert!(carried > 0.0 && carried <= draw.most_mbps() as f64, "{carried}: {what}");
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
        assert!((0.45..0.7).contains(&slow), "half of them in the lower half of ratios: {slow}");
    }
}
