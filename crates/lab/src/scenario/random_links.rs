//! `random-links`: TCP and a call over links that a seed draws and nobody tuned for.
//!
//! Each draw is a story of its own: two or three links, one or four connections in one direction,
//! and a call beside them. What the connections have is held against what the links can carry, and
//! what the call's datagrams take against half of the shortest round trip.
//!
//! `--set without=HEURISTIC` tells the same draws without one heuristic of the tunnel, and
//! `--set without=all-in-turn` without each of them, one after the other (`ablated`). That takes a
//! lab that is built with the cargo feature `ablation`.

mod ablated;
mod draw;

use super::jobs::in_order;
use super::links::Carried;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, mean, median, quantile};
use super::table::{self, Row, TABLE, figure};
use super::{About, CALM_NS, Key, Outcome, Scenario, Stage};
use crate::emu::{MS, SECOND};
use crate::ground::{Call, CallRun, Connections, Ground, Mode, Receiver, Talk, Transfer, Trouble};
use crate::world::{ABLATES, Heuristic};
use anyhow::ensure;
use draw::Draw;
use serde_json::Value;

/// How long connections are carried before anybody speaks and anything counts.
const BUSY_NS: u64 = 5 * SECOND;
/// A datagram of the call is late that takes so much longer than half of the shortest round trip,
/// in milliseconds: ITU-T G.114 calls 150 ms one way the most that nobody notices.
const LATE_MS: f64 = 150.0;
/// The share of the sum that must be there in the median. The worst draws have no bound: a fast
/// link that is far or has a short queue may collapse (bench/README.md).
const SHARE_MEDIAN_MIN: f64 = 0.80;
/// The setting that names a heuristic, and its words for none and for each of them.
const WITHOUT: &str = "without";
const NOTHING: &str = "nothing";
const IN_TURN: &str = "all-in-turn";
const WORDS: &[&str] = &{
    let mut words = [NOTHING; Heuristic::NAMES.len() + 2];
    words[1] = IN_TURN;
    let mut at = 0;
    while at < Heuristic::NAMES.len() {
        words[at + 2] = Heuristic::NAMES[at];
        at += 1;
    }
    words
};

/// What can be set.
const SETTINGS: &[Setting] = &[
    Setting::number("draws", 12, (1, 1_000), "how many draws of links each seed tells"),
    Setting::number("draw", 0, (0, 1_000), "only the draw of this number; 0 for all"),
    Setting::number("seconds", 10, (2, 600), "how long the call and what counts of TCP lasts"),
    Setting::number("at-once", 0, (0, 1_024), "draws told at once; 0 for one on each core"),
    Setting::choice(WITHOUT, WORDS, "the heuristic that the tunnel goes without, or each in turn"),
];

/// What is measured at least.
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
        draw::QUEUE_MS.0
    }

    /// In the control one link carries.
    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let word = stage.settings.text(WITHOUT);
        let needs = "build the lab with --features rove-lab/ablation";
        ensure!(word == NOTHING || ABLATES, "--set {WITHOUT}={word}: {needs}");
        let draws = draws(stage);
        if word == IN_TURN {
            return ablated::tell_all(stage, &draws);
        }
        let without = Heuristic::NAMES.iter().copied().find(|name| *name == word);
        let stories: Vec<Story<'_>> = draws.iter().map(|draw| Story { draw, without }).collect();
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

/// The draws that were asked for.
fn draws(stage: &Stage<'_>) -> Vec<Draw> {
    let length_ns = stage.settings.number("seconds") * SECOND + 4 * BUSY_NS;
    let numbers = match stage.settings.number("draw") {
        0 => 1..=stage.settings.number("draws"),
        only => only..=only,
    };
    numbers.map(|number| Draw::new(stage.seed, number, length_ns)).collect()
}

/// What is told of a draw.
#[derive(Clone, Copy, Debug)]
struct Story<'a> {
    draw: &'a Draw,
    /// The heuristic that the tunnel goes without.
    without: Option<&'static str>,
}

/// Tells stories, in virtual time several at once, and hands over in order what each brought to
/// light.
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
        let one = Stage::quiet(story.draw.chance, settings, grid);
        // What is captured of each has a number of its own.
        one.captured.set(at as u32);
        Ok((at, story.tell(&one)?))
    };
    in_order(stories.len(), threads, work, |(at, (told, had))| {
        take(&stories[at], told, had);
        Ok(())
    })
}

impl Story<'_> {
    fn tell(&self, stage: &Stage<'_>) -> anyhow::Result<(Outcome, Had)> {
        let mode = if stage.control() { Mode::Backup } else { Mode::Full };
        let mut had = Had::default();
        let told = stage.on_ground(&self.draw.terrain(mode, self.without), &mut |ground, _| {
            // Until there is a path by every link.
            ground.pause(CALM_NS)?;
            had = self.measure(stage, ground)?;
            Ok(())
        })?;
        Ok((told, had))
    }

    fn measure(&self, stage: &Stage<'_>, ground: &mut dyn Ground) -> Result<Had, Trouble> {
        let draw = self.draw;
        let length_ns = stage.settings.number("seconds") * SECOND;
        let call = Call { talk: Talk::Voice, silence_ns: BUSY_NS, length_ns };
        let bulk = Connections::outlasting(draw.to, draw.most_mbps(), call.end_ns());
        let (run, transfers) =
            ground.call(call, &[Connections { count: draw.flows, ..bulk }], &[])?;
        let transfers = transfers.concat();
        ground.pause(CALM_NS)?;
        let payload_share = Carried::Tcp.payload_share(ground)?.unwrap_or(1.0);
        let window = transfers.first().map(|one| (one.start_ns + BUSY_NS, one.end_ns));
        let carried = window.map_or_else(Vec::new, |window| draw.carry_mbps(window));
        let (p99_ms, late_share) = heard(&run, draw.shortest_ms() / 2.0);
        Ok(Had {
            // One that was over sooner carried nothing that counts.
            mbps: transfers.iter().map(|one| mbps(one).unwrap_or(0.0)).collect(),
            can_mbps: carried.iter().map(|mbps| mbps * payload_share).collect(),
            p99_ms,
            late_share,
            is_intact: transfers.len() == draw.flows as usize
                && transfers.iter().all(|one| one.intact && one.broke.is_none()),
        })
    }
}

/// The rate of a connection since the call began, in Mbit/s.
fn mbps(one: &Transfer) -> Option<f64> {
    one.mbps_within(BUSY_NS, one.end_ns - one.start_ns)
}

/// By how much longer than `idle_ms` 99 of 100 datagrams of a call took at most, in milliseconds,
/// and which part of all was late by more than [`LATE_MS`]. A datagram that never came took as long
/// as anybody waits for it.
fn heard(run: &CallRun, idle_ms: f64) -> (Option<f64>, Option<f64>) {
    let said = run.up.len() + run.down.len();
    let mut over_ms = run.delays_ms();
    over_ms.resize(said, Call::PATIENCE_NS as f64 / MS as f64);
    over_ms.iter_mut().for_each(|ms| *ms -= idle_ms);
    let late: Vec<f64> = over_ms.iter().map(|ms| f64::from(u8::from(*ms > LATE_MS))).collect();
    (quantile(&over_ms, 0.99), mean(&late))
}

/// What a draw's story measured.
#[derive(Clone, Debug, Default, PartialEq)]
struct Had {
    /// What each connection had, in Mbit/s.
    mbps: Vec<f64>,
    /// What each link can carry of TCP's payload, in Mbit/s.
    can_mbps: Vec<f64>,
    /// The call's 99th percentile beyond half of the shortest round trip, in milliseconds.
    p99_ms: Option<f64>,
    /// The part of the call's datagrams that was late.
    late_share: Option<f64>,
    /// Whether what came of every connection is what was sent.
    is_intact: bool,
}

impl Had {
    fn goodput(&self) -> f64 {
        self.mbps.iter().sum()
    }

    fn share_of_sum(&self) -> Option<f64> {
        let sum: f64 = self.can_mbps.iter().sum();
        (sum > 0.0).then(|| self.goodput() / sum)
    }

    /// Of what the link can carry that carries most.
    fn better_link_share(&self) -> Option<f64> {
        max(&self.can_mbps).filter(|most| *most > 0.0).map(|most| self.goodput() / most)
    }

    /// Jain's index: 1 where all connections have the same, one of their number where one has all;
    /// `None` of a single one.
    fn fairness(&self) -> Option<f64> {
        let squares: f64 = self.mbps.iter().map(|mbps| mbps * mbps).sum();
        let count = self.mbps.len();
        (count > 1 && squares > 0.0).then(|| self.goodput().powi(2) / (count as f64 * squares))
    }

    fn row(&self, draw: &Draw) -> Row {
        let to = if draw.to == Receiver::Client { "client" } else { "server" };
        table::row([
            ("draw", draw.name().into()),
            ("links", draw.links().into()),
            ("to", to.into()),
            ("flows", draw.flows.to_string().into()),
            ("goodput_mbps", figure(Some(self.goodput()))),
            ("sum_mbps", figure(Some(self.can_mbps.iter().sum()))),
            ("share_of_sum", figure(self.share_of_sum())),
            ("better_link_share", figure(self.better_link_share())),
            ("p99_over_idle_ms", figure(self.p99_ms)),
            ("late_share", figure(self.late_share)),
            ("fairness", figure(self.fairness())),
        ])
    }
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
