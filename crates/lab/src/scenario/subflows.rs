//! `subflows`: one connection on several paths between each pair of addresses (Figures 3.7 and 3.8
//! of Lukaszewski's thesis: full mesh and ndiffports with more and more sub-flows).
//!
//! The thesis needs sub-flows to hide the rate that each TCP connection loses. Here loss does not
//! slow a path down, so they must only cost nothing: four paths carry as much as one.

use super::links::{
    self, COMPARE, CONGESTION, Carried, Cells, FILE, GRID, KEYS, Link, MODE, SCHEDULER, SECONDS,
    TRANSFER, why_missing,
};
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::{TABLE, figure, least};
use super::{About, Key, Outcome, Scenario, Stage};
use crate::ground::{Known, Spread};
use serde_json::{Value, json};

/// The least share of the sum.
const SHARE_OF_SUM_MIN: f64 = 0.95;

/// By round trip: two links, and one.
const PAIRS: &[[Link; 2]] = &[[Link::of(10, 20); 2], [Link::of(10, 60); 2]];
const ALONE: &[[Link; 1]] = &[[Link::of(10, 20)], [Link::of(10, 60)]];

/// As with `fullmesh` in the thesis.
const OF_TWO: Cells = Cells {
    pairs: PAIRS,
    to: &[],
    known: Known::ByAddress,
    spreads: SPREADS,
    losses: LOSSES,
    few: FEW,
    carried: Carried::TCP,
    few_others: &[],
    also: &[],
};
/// As with `ndiffports`.
const OF_ONE: Cells<1> = Cells {
    pairs: ALONE,
    to: &[],
    known: Known::ByAddress,
    spreads: SPREADS,
    losses: LOSSES,
    few: FEW,
    carried: Carried::TCP,
    few_others: &[],
    also: &[],
};
const SPREADS: &[Spread] = &[by(1), by(2), by(3), by(4)];
const LOSSES: &[&str] = &["0", "1"];
const FEW: &[(usize, usize)] = &[(0, 0), (0, 1)];

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    SCHEDULER,
    TRANSFER,
    CONGESTION,
    Setting::number("links", 2, (1, 2), "how many links the client has"),
    Setting::choice("rtt", &[GRID, "20", "60"], "round trip of all links in milliseconds"),
    Setting::choice("loss", &[GRID, "0", "1"], "what each link loses each way, in per cent"),
    Setting::number("subflows", 0, (0, 4), "paths from each address to the other; 0 for 1 to 4"),
    SECONDS,
    FILE,
    COMPARE,
];

/// The smallest gain of a cell over one link by TCP, and over one link by UDP, in per cent.
const GAINS: [Gain; 2] = [
    Gain { key: "gain_over_tcp_percent", one_link: "tcp_one_link_mbps" },
    Gain { key: "gain_over_udp_percent", one_link: "udp_one_link_mbps" },
];

/// A key, and the column of its comparison.
struct Gain {
    key: &'static str,
    one_link: &'static str,
}

/// The keys at least.
const KEYS_OF_SUBFLOWS: &[Key] = &Key::with::<{ KEYS.len() + 2 }>(
    KEYS,
    &[Key::higher_is_better(GAINS[0].key), Key::higher_is_better(GAINS[1].key)],
);

/// The scenario.
#[derive(Debug)]
pub(super) struct Subflows;

impl Scenario for Subflows {
    fn about(&self) -> About {
        About {
            name: "subflows",
            summary: "one connection by 1 to 4 paths of each of two links, or of one",
            settings: SETTINGS,
            keys: KEYS_OF_SUBFLOWS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Lukaszewski 2017, section 3.1.5: goodput by MPTCP beside TCP, two links")
            .cite("fullmesh_balia_more_than_tcp_percent_at_most", 100, "% at most", "Figure 3.7a")
            .beside(GAINS[0].key)
            .cite("fullmesh_cubic_more_than_tcp_percent_at_least", 100, "% at least", "Figure 3.7b")
            .beside(GAINS[0].key)
            .cite("ndiffports_5_subflows_cubic_more_than_tcp_percent", 100, "%", "Figure 3.8b")
            .beside(GAINS[0].key)
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        links::limits(settings, Some(SHARE_OF_SUM_MIN))
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        links::bound_ms(PAIRS)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        if stage.settings.number("links") == 1 {
            let chosen = links::chosen(stage.settings, "rtt", ALONE, |[link]| trip(link));
            return OF_ONE.tell(stage, chosen.as_slice()).map(with_gains);
        }
        let chosen = links::chosen(stage.settings, "rtt", PAIRS, |[link, _]| trip(link));
        OF_TWO.tell(stage, chosen.as_slice()).map(with_gains)
    }
}

/// The same with the gain over one link.
fn with_gains(mut outcome: Outcome) -> Outcome {
    let rows = outcome.measured.get(TABLE).and_then(Value::as_array).cloned().unwrap_or_default();
    for Gain { key, one_link } in GAINS {
        let gains: Vec<Value> = rows.iter().map(|row| gain(row, &rows, (key, one_link))).collect();
        match least(&gains, key) {
            None => {
                let why = why_missing(&rows, &[one_link.trim_end_matches("_mbps")]);
                outcome.skip(key, why.as_deref().unwrap_or("nothing was compared"));
            }
            least => outcome.measure(key, least),
        }
    }
    outcome
}

/// The gain of a cell over one link under the same conditions, which is in one of the rows.
fn gain(row: &Value, rows: &[Value], (key, one_link): (&str, &str)) -> Value {
    let conditions = ["pair", "to", "loss", "cc"];
    let is_same = |other: &&Value| conditions.iter().all(|&name| other[name] == row[name]);
    let one = rows.iter().filter(is_same).find_map(|other| other.get(one_link)?.as_f64());
    let gain = row["goodput_mbps"].as_f64().zip(one).map(|(all, one)| (all / one - 1.0) * 100.0);
    json!({key: figure(gain)})
}

const fn by(subflows: u8) -> Spread {
    Spread { mesh: false, subflows }
}

fn trip(link: &Link) -> String {
    link.round_trip_ms.to_string()
}
