//! `bond`: one connection over two slow radio links, in each direction (Table 1 of Multilink VPN).
//!
//! The paper's links were two wireless hotspots. It does not name their round trips, so these are
//! typical ones. Its speed test is several connections side by side; here one alone must get the
//! rate of both links.

use super::links::{
    self, ASSIST, CONGESTION, Carried, Cells, FILE, FLOW, GRID, KEYS_OF_ALL, Link, MODE, Pair,
    REORDER, SCHEDULER, SECONDS,
};
use super::outage::congestion;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::{self, TABLE};
use super::{About, Key, Outcome, Scenario, Stage};
use crate::ground::{Known, Receiver, Spread};
use serde_json::{Value, json};

/// The reason why a cell has no figure.
const NOT_ASKED: &str = "the cell to it without loss was not asked for";
/// The least share of the sum.
const SHARE_OF_SUM_MIN: f64 = 0.95;
/// The least rate of one connection relative to the better link alone, to the client and from it.
/// The paper's speed test had 1.29 and 1.82, the latter more than its links together (1.81). Over
/// ten seeds in virtual time the least here is 1.526 and 1.77.
const GAINS: [(&str, &str, f64); 2] =
    [("gain_down_min", "client", 1.45), ("gain_up_min", "server", 1.68)];

/// The paper's links, by the speed test on each: to the client, and from it.
const PAIRS: &[Pair] = &[[Link::of_kbps([6_210, 1_860], 20), Link::of_kbps([3_350, 2_310], 40)]];

const CELLS: Cells = Cells {
    pairs: PAIRS,
    to: &[Receiver::Client, Receiver::Server],
    known: Known::ByAddress,
    spreads: &[Spread::ONE],
    losses: &["0", "1"],
    few: &[(0, 0), (0, 1)],
    carried: Carried::ALL,
    few_others: &[(0, 0), (0, 1)],
    also: &[],
};

/// Goodput of Multilink's schedulers to the client without loss, relative to the better link alone
/// and to each other. `latency` uses the link with the lowest latency, `rate` counts bytes.
const LATENCY_OVER_BEST: &str = "latency_over_best";
const RATE_OVER_BEST: &str = "rate_over_best";
const LATENCY_OVER_RATE: &str = "latency_over_rate";

/// The keys at least.
const KEYS: &[Key] = &Key::with::<{ KEYS_OF_ALL.len() + 7 }>(
    KEYS_OF_ALL,
    &[
        Key::higher_is_better("down_mbps"),
        Key::higher_is_better("up_mbps"),
        Key::higher_is_better(GAINS[0].0),
        Key::higher_is_better(GAINS[1].0),
        Key::higher_is_better(LATENCY_OVER_BEST),
        Key::higher_is_better(RATE_OVER_BEST),
        Key::higher_is_better(LATENCY_OVER_RATE),
    ],
);

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    SCHEDULER,
    ASSIST,
    REORDER,
    CONGESTION,
    Setting::choice("loss", &[GRID, "0", "1"], "what each loses each way, in per cent"),
    FLOW,
    SECONDS,
    FILE,
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Bond;

impl Scenario for Bond {
    fn about(&self) -> About {
        About {
            name: "bond",
            summary: "one connection each way over the two hotspots of Multilink VPN",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Multilink VPN, dropped packet strategy: speed test down and up, TCP download")
            .cite("both_down_mbps", 7.99, "Mbit/s", "Table 1")
            .beside("down_mbps")
            .note("several connections; 995 kB/s, or 7.96 Mbit/s, by one TCP connection")
            .cite("both_up_mbps", 4.20, "Mbit/s", "Table 1")
            .beside("up_mbps")
            .note("several connections")
            .cite("gain_down", 7.99 / 6.21, "times the better link", "Table 1")
            .beside(GAINS[0].0)
            .cite("gain_up", 4.20 / 2.31, "times the better link", "Table 1")
            .beside(GAINS[1].0)
            .note("more than its links together, which have 1.81 times as much")
            .cite("latency_over_fastest", 3.47 / 2.90, "times", "Bandwidth Aggregation")
            .beside(LATENCY_OVER_BEST)
            .note("3.47 MB/s over 2.90 MB/s, by other links: lowest latency was its best strategy")
            .cite("byte_counting_over_fastest", "no faster than the fastest link", "", "Table 1")
            .beside(RATE_OVER_BEST)
            .list("link_one", json!([6_210, 1_860, 1_010]))
            .list("link_two", json!([3_350, 2_310, 397]))
            .list("both_without_reordering", json!([3_930, 3_140, 488]))
            .list("both_with_reordering", json!([7_990, 4_200, 995]))
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        links::limits(settings, Some(SHARE_OF_SUM_MIN))
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        links::bound_ms(PAIRS)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = CELLS.tell(stage, &[])?;
        let rows = outcome.measured.get(TABLE).and_then(Value::as_array).cloned();
        let rows = rows.unwrap_or_default();
        let lossless = |to: &str| {
            let cell = [("to", to), ("loss", "0"), ("flow", "tcp")];
            rows.iter().find(|row| cell.iter().all(|(key, word)| row[*key] == *word))
        };
        let [down, up] = ["client", "server"].map(lossless);
        for (key, row) in [("down_mbps", down), ("up_mbps", up)] {
            match row {
                Some(row) => outcome.measure(key, row["goodput_mbps"].as_f64()),
                None => outcome.skip(key, NOT_ASKED),
            }
        }
        schedulers(stage, down.and_then(|row| row["best_mbps"].as_f64()), &mut outcome)?;
        for (key, to, least) in GAINS {
            let rows: Vec<Value> = rows.iter().filter(|row| row["to"] == to).cloned().collect();
            outcome.measure(key, table::least(&rows, "share_of_best"));
            if links::adds_up(stage.settings) {
                outcome.ask(Limit::at_least(key, least));
            }
        }
        Ok(outcome)
    }
}

/// Measures Multilink's schedulers; the better link alone has this rate in Mbit/s.
fn schedulers(
    stage: &Stage<'_>,
    best_mbps: Option<f64>,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let keys = [LATENCY_OVER_BEST, RATE_OVER_BEST, LATENCY_OVER_RATE];
    if stage.control() || best_mbps.is_none() {
        keys.iter().for_each(|key| outcome.skip(key, NOT_ASKED));
        return Ok(());
    }
    let mut had = [None; 2];
    for (had, scheduler) in had.iter_mut().zip(["latency", "rate"]) {
        (stage.tell)(&format!("scheduler {scheduler}"));
        let settings = &stage.settings.with(SCHEDULER.key, scheduler);
        let other = Stage { settings, captured: stage.captured.clone(), ..*stage };
        let cell = links::Cell::down(PAIRS[0], "0", congestion(settings));
        *had = cell.rates_mbps(&other, outcome)?.0;
        stage.captured.set(other.captured.get());
    }
    let [latency, rate] = had;
    let share = |part: Option<f64>, of: Option<f64>| part.zip(of).map(|(a, b)| a / b);
    outcome.measure(LATENCY_OVER_BEST, share(latency, best_mbps));
    outcome.measure(RATE_OVER_BEST, share(rate, best_mbps));
    outcome.measure(LATENCY_OVER_RATE, share(latency, rate));
    Ok(())
}
