//! `bond`: one connection over two slow radio links, each way (Table 1 of Multilink VPN).
//!
//! The paper's links were two wireless hotspots; of their round trips it says nothing, so they are
//! those of such networks. What it calls a speed test are connections side by side; here one alone
//! is to have what both links carry.

use super::links::{
    self, ASSIST, CONGESTION, Carried, Cells, FILE, FLOW, GRID, KEYS_OF_ALL, Link, MODE, Pair,
    SCHEDULER, SECONDS,
};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, Outcome, Scenario, Stage};
use crate::ground::{Known, Receiver, Spread};
use serde_json::{Value, json};

/// The share of the sum that must be there.
const SHARE_OF_SUM_MIN: f64 = 0.95;

/// The paper's, by what the speed test found on each: to the client, and from it.
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
};

/// What can be set.
const SETTINGS: &[Setting] = &[
    MODE,
    SCHEDULER,
    ASSIST,
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
            keys: KEYS_OF_ALL,
        }
    }

    fn paper(&self, _settings: &Settings) -> Value {
        json!({
            "source": "Multilink VPN, Table 1: dropped packet strategy; speed test down and up in \
                       kbit/s, one TCP download in KB/s",
            "link_one": [6_210, 1_860, 1_010],
            "link_two": [3_350, 2_310, 397],
            "both_without_reordering": [3_930, 3_140, 488],
            "both_with_reordering": [7_990, 4_200, 995],
        })
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        links::limits(settings, Some(SHARE_OF_SUM_MIN))
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        links::bound_ms(PAIRS)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        CELLS.tell(stage, None)
    }
}
