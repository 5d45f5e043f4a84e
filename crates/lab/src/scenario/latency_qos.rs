//! `latency-qos`: questions and answers of which the user has said that they have to be early,
//! beside connections that take all that two links have (the second Table 2 of Springate and
//! Newman's Multilink VPN).
//!
//! As in the paper the mean is held against that of the same without a word of the user; in the
//! first cell, which is the paper's.

use super::calls::{self, Cell, LOAD, SECONDS};
use super::links::Link;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::TABLE;
use super::{About, Key, Outcome, Scenario, Stage};
use crate::emu::MS;
use crate::ground::{Mode, Talk};
use serde_json::{Value, json};

/// What nobody would take for something that has to be early: it is long, and UDP of no kind.
const TALK: Talk = Talk::Echo { every_ns: 20 * MS, bytes: 700 };

/// What the mean may be of that without: the paper's 11.74 ms of 23.03.
const AVERAGE_RATIO_MAX: f64 = 0.51;

/// What is measured at least.
const KEYS: &[Key] =
    &Key::with::<{ calls::KEYS.len() + 1 }>(calls::KEYS, &[Key::lower_is_better("average_ratio")]);

/// The paper's links have 11 and some 35 ms. Then the nearer one loses some, and by the other it
/// would be 12 ms later one way.
const CELLS: &[Cell] = &[
    Cell { pair: [link(20, 11), link(20, 35)], loss: 0.0 },
    Cell { pair: [link(20, 35), link(20, 11)], loss: 0.0 },
    Cell { pair: [link(50, 11), link(20, 35)], loss: 0.005 },
    Cell { pair: [link(50, 11), link(20, 35)], loss: 0.02 },
];

/// The setting of the links.
const LINKS: Setting =
    Setting::choice("links", &["all", "lossless"], "whether there are some that lose packets");
/// What can be set.
const SETTINGS: &[Setting] = &[SECONDS, LOAD, LINKS];

/// The scenario.
#[derive(Debug)]
pub(super) struct LatencyQos;

impl Scenario for LatencyQos {
    fn about(&self) -> About {
        About {
            name: "latency-qos",
            summary: "round trips to a destination that is wanted early, beside transfers",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Value {
        json!({
            "source": "Springate and Newman, QoS for Latency, Table 2: ms, without and with",
            "average_ms": [23.03, 11.74],
            "max_ms": [108, 12.8],
            "mdev_ms": [20.4, 0.47],
        })
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        [calls::limits(), vec![Limit::at_most("average_ratio", AVERAGE_RATIO_MAX)]].concat()
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        calls::OVER_IDLE_MS
    }

    /// In the control nobody has said that they have to be early.
    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let lossless = |cell: &Cell| cell.loss <= 0.0;
        let cells: Vec<_> = match stage.settings.text("links") {
            "lossless" => CELLS.iter().copied().filter(lossless).collect(),
            _ => CELLS.to_vec(),
        };
        let without = (Mode::Full, false);
        let mut outcome = calls::tell(stage, &cells, TALK, without)?;
        let average = outcome.measured.get(TABLE).and_then(|rows| rows[0]["average_ms"].as_f64());
        let usual = calls::average_ms(stage, &cells[0], TALK, without, &mut outcome)?;
        outcome.measure("average_ratio", average.zip(usual).map(|(with, of)| with / of));
        Ok(outcome)
    }
}

const fn link(mbps: u64, round_trip_ms: u64) -> Link {
    Link::of(mbps, round_trip_ms)
}
