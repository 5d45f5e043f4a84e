//! `random-links`: TCP and a call over links that a seed draws and nobody tuned for.
//!
//! Each draw is a run of its own: two or three links, one or four connections in one direction, and
//! a call beside them. The goodput is compared with the rates of the links, and the delay of the
//! call with half of the shortest round trip.
//!
//! With `--set traffic=mixed` the traffic is drawn as well: TCP, QUIC or datagrams, a bottleneck
//! behind the links, another host's connection beside the tunnel, and a link that fails or changes.
//!
//! The table with the worth of each heuristic over these draws is in `ablation`.

mod draw;
mod link;
mod traffic;

use super::jobs::in_order;
use super::links::Carried;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, mean, median, quantile};
use super::table::{self, Row, TABLE, figure};
use super::{About, CALM_NS, Key, Outcome, Scenario, Stage};
use crate::emu::{MS, SECOND};
use crate::ground::{Call, CallRun, Ground, Mode, Talk, Terrain, Transfer, Trouble};
use crate::world::Heuristic;
pub(super) use draw::Draw;
use serde_json::Value;

/// Time of the connections before the call begins and anything counts.
const BUSY_NS: u64 = 5 * SECOND;
/// A datagram of the call is late if it takes this much longer than half of the shortest round
/// trip, in milliseconds. Up to 150 ms one way nobody notices the delay (ITU-T G.114).
const LATE_MS: f64 = 150.0;
/// The least share of the sum in the median. The worst draws have no bound: on a fast link with a
/// long round trip, a single connection is limited by its buffers (bench/README.md).
const SHARE_MEDIAN_MIN: f64 = 0.80;
/// The name of drawn traffic.
const MIXED: &str = "mixed";

/// The settings of the scenario.
const SETTINGS: &[Setting] = &[
    Setting::number("draws", 12, (1, 1_000), "how many draws of links each seed tells"),
    Setting::number("draw", 0, (0, 1_000), "only the draw of this number; 0 for all"),
    Setting::number("seconds", 10, (2, 600), "how long the call and what counts of TCP lasts"),
    Setting::number("at-once", 0, (0, 1_024), "draws told at once; 0 for one on each core"),
    Setting::choice(
        "traffic",
        &["tcp", MIXED],
        "TCP in one direction and a call, or drawn as well",
    ),
];

/// The figures that every run measures.
const KEYS: &[Key] = &[
    Key::higher_is_better("share_of_sum_median"),
    Key::higher_is_better("share_of_sum_p10"),
    Key::higher_is_better("better_link_share_median"),
    Key::lower_is_better("p99_over_idle_ms_median"),
    Key::lower_is_better("p99_over_idle_ms_p90"),
    Key::lower_is_better("late_share_mean"),
    Key::higher_is_better("fairness_p10"),
    Key::must_hold("checksum_ok"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct RandomLinks;

impl Scenario for RandomLinks {
    fn about(&self) -> About {
        About {
            name: "random-links",
            summary: "transfers and a call over links drawn at random, that nobody tuned for",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![
            Limit::at_least("share_of_sum_median", SHARE_MEDIAN_MIN),
            Limit::equal("checksum_ok", true),
        ]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        link::QUEUE_MS.0
    }

    /// In the control one link carries traffic.
    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let draws = draws(stage);
        let stories: Vec<Story<'_>> = draws.iter().map(Draw::story).collect();
        let mut outcome = Outcome::default();
        let mut all = Vec::new();
        tell(stage, &stories, &mut |story, told, had| {
            outcome.absorb(told);
            (stage.tell)(&table::line(&had.row(story.draw)));
            all.push(had);
        })?;
        report(&mut outcome, &all);
        let rows = draws.iter().zip(&all).map(|(draw, had)| Value::Object(had.row(draw)));
        outcome.measured.insert(TABLE.to_owned(), rows.collect());
        Ok(outcome)
    }
}

/// The selected draws.
fn draws(stage: &Stage<'_>) -> Vec<Draw> {
    let length_ns = stage.settings.number("seconds") * SECOND;
    let numbers = match stage.settings.number("draw") {
        0 => 1..=stage.settings.number("draws"),
        only => only..=only,
    };
    let mixed = stage.settings.text("traffic") == MIXED;
    numbers.map(|number| Draw::new(stage.seed, number, length_ns, mixed)).collect()
}

/// One run of a draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Story<'a> {
    pub(super) draw: &'a Draw,
    /// The seed of all chance in it: losses, and the hosts' random numbers.
    pub(super) chance: u64,
    /// The heuristic that the tunnel leaves out.
    pub(super) without: Option<&'static str>,
    /// Called with each heuristic that the tunnel asks for.
    pub(super) asks: Option<fn(Heuristic)>,
}

/// Runs draws in virtual time, several at once, and hands over their results in order.
fn tell(
    stage: &Stage<'_>,
    stories: &[Story<'_>],
    take: &mut dyn FnMut(&Story<'_>, Outcome, Had),
) -> anyhow::Result<()> {
    if stage.entered.is_some() {
        for story in stories {
            let (told, had) = story.tell(stage)?;
            take(story, told, had);
        }
        return Ok(());
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = match stage.settings.number("at-once") {
        0 => cores,
        some => some as usize,
    };
    let (settings, grid) = (stage.settings, stage.grid);
    let work = |at: usize| {
        let story: &Story<'_> = &stories[at];
        let one = Stage::quiet(story.chance, settings, grid);
        // Captured output of each run has a number of its own.
        one.captured.set(at as u32);
        Ok((at, story.tell(&one)?))
    };
    in_order(stories.len(), threads, work, |(at, (told, had))| {
        take(&stories[at], told, had);
        Ok(())
    })
}

impl Story<'_> {
    /// Runs it on a stage with its chance.
    pub(super) fn tell(&self, stage: &Stage<'_>) -> anyhow::Result<(Outcome, Had)> {
        let mode = if stage.control() { Mode::Backup } else { Mode::Full };
        let mut had = Had::default();
        let Self { without, asks, .. } = *self;
        let terrain = Terrain { without, asks, ..self.draw.terrain(mode) };
        let told = stage.on_ground(&terrain, &mut |ground, _| {
            // Until there is a path on every link.
            ground.pause(CALM_NS)?;
            had = self.measure(ground)?;
            Ok(())
        })?;
        Ok((told, had))
    }

    fn measure(&self, ground: &mut dyn Ground) -> Result<Had, Trouble> {
        let draw = self.draw;
        for act in draw.before() {
            ground.act(act)?;
        }
        let call = Call { talk: Talk::Voice, silence_ns: BUSY_NS, length_ns: draw.length_ns() };
        let kinds = draw.connections(call.end_ns());
        let datagrams = draw.datagrams(call.end_ns());
        let (run, transfers, poured) =
            ground.call_and_pour(call, &kinds, datagrams, &draw.script())?;
        ground.pause(CALM_NS)?;
        let payload_share = Carried::Tcp.payload_share(ground)?.unwrap_or(1.0);
        let [forth, back, beside] = transfers.try_into().unwrap_or_default();
        let poured: Vec<_> = poured.into_iter().map(|run| run.transfer).collect();
        let (quic, clock) =
            if draw.is_quic() { (poured, Vec::new()) } else { (Vec::new(), poured) };
        let all = || [&forth, &back, &quic, &clock].into_iter().flatten();
        let window =
            all().map(|one| (one.start_ns, one.end_ns)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (start_ns, end_ns) = window.unwrap_or_default();
        let counts = (start_ns + BUSY_NS, end_ns.max(start_ns + BUSY_NS));
        let (p99_ms, late_share) = heard(&run, draw.shortest_ms() / 2.0);
        let carries = draw.carry_mbps(start_ns, counts);
        let rates =
            |all: &[Transfer]| all.iter().map(|one| mbps(one, counts)).collect::<Vec<f64>>();
        Ok(Had {
            mbps: [rates(&forth), rates(&quic)].concat(),
            beside_mbps: draw.is_shared().then(|| rates(&beside).iter().sum()),
            other_mbps: [rates(&back), rates(&clock)].concat().iter().sum(),
            could_mbps: draw.could_mbps(start_ns, counts, payload_share),
            better_mbps: max(&carries).unwrap_or_default() * payload_share,
            p99_ms,
            late_share,
            is_intact: all().all(|one| one.intact && one.broke.is_none())
                && forth.len() == kinds[0].count as usize,
        })
    }
}

/// The rate of a transfer between two moments, in Mbit/s; less if it was over sooner.
fn mbps(one: &Transfer, (from_ns, to_ns): (u64, u64)) -> f64 {
    let by = |at_ns: u64| {
        let after = one.progress.partition_point(|(when_ns, _)| *when_ns <= at_ns);
        after.checked_sub(1).map_or(0, |last| one.progress[last].1)
    };
    let bytes = by(to_ns) - by(from_ns);
    bytes as f64 * 8.0 * 1e3 / to_ns.saturating_sub(from_ns).max(1) as f64
}

/// The 99th percentile of a call's delay beyond `idle_ms`, in milliseconds, and the part of all
/// datagrams that was late by more than [`LATE_MS`]. A lost datagram counts with the longest wait.
fn heard(run: &CallRun, idle_ms: f64) -> (Option<f64>, Option<f64>) {
    let said = run.up.len() + run.down.len();
    let mut over_ms = run.delays_ms();
    over_ms.resize(said, Call::PATIENCE_NS as f64 / MS as f64);
    over_ms.iter_mut().for_each(|ms| *ms -= idle_ms);
    let late: Vec<f64> = over_ms.iter().map(|ms| f64::from(u8::from(*ms > LATE_MS))).collect();
    (quantile(&over_ms, 0.99), mean(&late))
}

/// The result of a draw's run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Had {
    /// The rate of each connection in the direction of the draw, in Mbit/s, with QUIC's.
    mbps: Vec<f64>,
    /// The rate of the connection beside the tunnel, if both had to share a bottleneck.
    beside_mbps: Option<f64>,
    /// The rate of the rest: a connection in the other direction, datagrams at a constant rate.
    other_mbps: f64,
    /// The part of that which the tunnel could carry.
    could_mbps: f64,
    /// The capacity of the link that carries most.
    better_mbps: f64,
    /// The call's 99th percentile beyond half of the shortest round trip, in milliseconds.
    p99_ms: Option<f64>,
    /// The part of the call's datagrams that was late.
    late_share: Option<f64>,
    /// Whether everything received is what was sent.
    is_intact: bool,
}

impl Had {
    fn goodput(&self) -> f64 {
        self.mbps.iter().sum::<f64>() + self.other_mbps
    }

    /// The goodput as a share of the capacity of all links.
    pub(super) fn share_of_sum(&self) -> Option<f64> {
        (self.could_mbps > 0.0).then(|| self.goodput() / self.could_mbps)
    }

    /// The same for the best link.
    fn better_link_share(&self) -> Option<f64> {
        (self.better_mbps > 0.0).then(|| self.goodput() / self.better_mbps)
    }

    /// The 99th percentile of the call's delay beyond an idle path, in milliseconds.
    pub(super) const fn p99_ms(&self) -> Option<f64> {
        self.p99_ms
    }

    /// Jain's index among the connections in the tunnel, or between the tunnel and the connection
    /// beside it, whichever is less; `None` for a single connection.
    pub(super) fn fairness(&self) -> Option<f64> {
        let forth = self.mbps.iter().sum();
        let beside = self.beside_mbps.and_then(|beside| jain(&[forth, beside]));
        jain(&self.mbps).into_iter().chain(beside).reduce(f64::min)
    }

    /// Whether everything received is what was sent.
    pub(super) const fn is_intact(&self) -> bool {
        self.is_intact
    }

    fn row(&self, draw: &Draw) -> Row {
        table::row([
            ("draw", draw.name().into()),
            ("links", draw.links().into()),
            ("traffic", draw.traffic().into()),
            ("goodput_mbps", figure(Some(self.goodput()))),
            ("sum_mbps", figure(Some(self.could_mbps))),
            ("share_of_sum", figure(self.share_of_sum())),
            ("better_link_share", figure(self.better_link_share())),
            ("p99_over_idle_ms", figure(self.p99_ms)),
            ("late_share", figure(self.late_share)),
            ("fairness", figure(self.fairness())),
        ])
    }
}

/// Jain's index: 1 if all have the same, the inverse of their number if one has all; `None` for a
/// single one.
fn jain(rates: &[f64]) -> Option<f64> {
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    let count = rates.len();
    let sum: f64 = rates.iter().sum();
    (count > 1 && squares > 0.0).then(|| sum.powi(2) / (count as f64 * squares))
}

/// All draws in a few figures.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    share_median: Option<f64>,
    share_p10: Option<f64>,
    better_median: Option<f64>,
    p99_median_ms: Option<f64>,
    p99_p90_ms: Option<f64>,
    late_mean: Option<f64>,
    fairness_p10: Option<f64>,
}

impl Figures {
    fn of(all: &[Had]) -> Self {
        let each = |what: &dyn Fn(&Had) -> Option<f64>| all.iter().filter_map(what).collect();
        let shares: Vec<f64> = each(&Had::share_of_sum);
        let better: Vec<f64> = each(&Had::better_link_share);
        let p99_ms: Vec<f64> = each(&|had| had.p99_ms);
        let late: Vec<f64> = each(&|had| had.late_share);
        let fairness: Vec<f64> = each(&Had::fairness);
        Self {
            share_median: median(&shares),
            share_p10: quantile(&shares, 0.1),
            better_median: median(&better),
            p99_median_ms: median(&p99_ms),
            p99_p90_ms: quantile(&p99_ms, 0.9),
            late_mean: mean(&late),
            fairness_p10: quantile(&fairness, 0.1),
        }
    }
}

/// Notes the figures of all draws.
fn report(outcome: &mut Outcome, all: &[Had]) {
    let figures = Figures::of(all);
    outcome.measure("share_of_sum_median", figures.share_median);
    outcome.measure("share_of_sum_p10", figures.share_p10);
    outcome.measure("better_link_share_median", figures.better_median);
    outcome.measure("p99_over_idle_ms_median", figures.p99_median_ms);
    outcome.measure("p99_over_idle_ms_p90", figures.p99_p90_ms);
    outcome.measure("late_share_mean", figures.late_mean);
    outcome.measure("fairness_p10", figures.fairness_p10);
    outcome.hold("checksum_ok", !all.is_empty() && all.iter().all(|had| had.is_intact));
}

#[cfg(test)]
#[path = "random_links_tests.rs"]
mod tests;
