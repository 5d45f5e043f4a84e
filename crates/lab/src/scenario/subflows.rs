//! `subflows`: one connection by several paths from each address to the other (Figures 3.7 and 3.8
//! of Lukaszewski's thesis: full mesh and ndiffports with more and more sub-flows).
//!
//! The thesis needs sub-flows to hide what each TCP connection loses of the rate. Here a path is
//! not slowed down by loss, so they must not cost anything: as much arrives by four as by one.

use super::links::{
    self, CONGESTION, Carried, Cells, FILE, GRID, KEYS, Link, MODE, SCHEDULER, SECONDS, TRANSFER,
};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, Outcome, Scenario, Stage};
use crate::ground::{Known, Spread};
use serde_json::{Value, json};

/// The share of the sum that must be there.
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
};
const SPREADS: &[Spread] = &[by(1), by(2), by(3), by(4)];
const LOSSES: &[&str] = &["0", "1"];
const FEW: &[(usize, usize)] = &[(0, 0), (0, 1)];

/// What can be set.
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
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Subflows;

impl Scenario for Subflows {
    fn about(&self) -> About {
        About {
            name: "subflows",
            summary: "one connection by 1 to 4 paths of each of two links, or of one",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Value {
        json!({
            "source": "Lukaszewski 2017, Figures 3.7 and 3.8, read from the text: goodput of a \
                       tunnel by MPTCP beside one by TCP, two links",
            "fullmesh_balia_more_than_tcp_percent_at_most": 100,
            "fullmesh_cubic_more_than_tcp_percent_at_least": 100,
            "ndiffports_5_subflows_cubic_more_than_tcp_percent": 100,
        })
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
            return OF_ONE.tell(stage, chosen);
        }
        let chosen = links::chosen(stage.settings, "rtt", PAIRS, |[link, _]| trip(link));
        OF_TWO.tell(stage, chosen)
    }
}

const fn by(subflows: u8) -> Spread {
    Spread { mesh: false, subflows }
}

fn trip(link: &Link) -> String {
    link.round_trip_ms.to_string()
}
