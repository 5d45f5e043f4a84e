//! `latency-qos`: requests and replies for which the user asks low latency, beside connections that
//! take all of two links (the second Table 2 of Springate and Newman's Multilink VPN).
//!
//! As in the paper, the mean is compared with that without the user's setting; in the first cell,
//! which is the paper's.

use super::calls::{self, Cell, LOAD, SECONDS};
use super::links::Link;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::TABLE;
use super::{About, Key, Outcome, Scenario, Stage};
use crate::emu::MS;
use crate::ground::{Mode, Talk};
use serde_json::json;

/// Nothing shows that it needs low latency: it is long, and UDP of no known kind.
const TALK: Talk = Talk::Echo { every_ns: 20 * MS, bytes: 700 };

/// The greatest mean relative to that without: the paper's 11.74 ms of 23.03.
const AVERAGE_RATIO_MAX: f64 = 0.51;

/// Upper bound of the round trips' standard deviation in milliseconds: the paper's mdev. 0.38 was
/// measured, and 0.69 without the user's setting.
const MDEV_MS_MAX: f64 = 0.47;

/// The keys at least.
const KEYS: &[Key] = &Key::with::<{ calls::KEYS.len() + 7 }>(
    calls::KEYS,
    &[
        Key::lower_is_better("average_ratio"),
        Key::lower_is_better(WITH[0]),
        Key::lower_is_better(WITH[1]),
        Key::lower_is_better(WITH[2]),
        Key::lower_is_better("average_without_ms"),
        Key::lower_is_better("max_without_ms"),
        Key::lower_is_better("mdev_without_ms"),
    ],
);

/// The columns of the first cell that are keys as well.
const WITH: [&str; 3] = ["average_ms", "max_ms", "mdev_ms"];

/// The paper's links have 11 and some 35 ms. Then the nearer one is lossy, and the other one would
/// be 12 ms later one way.
const CELLS: &[Cell] = &[
    Cell { pair: [link(20, 11), link(20, 35)], loss: 0.0 },
    Cell { pair: [link(20, 35), link(20, 11)], loss: 0.0 },
    Cell { pair: [link(50, 11), link(20, 35)], loss: 0.005 },
    Cell { pair: [link(50, 11), link(20, 35)], loss: 0.02 },
];

/// The links.
const LINKS: Setting =
    Setting::choice("links", &["all", "lossless"], "whether there are some that lose packets");
/// The settings.
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

    fn paper(&self, _settings: &Settings) -> Paper {
        const TABLE_2: &str = "QoS for Latency, Table 2";
        Paper::of("Springate and Newman: ping by two interfaces, without the service and with it")
            .cite("average_with_ms", 11.74, "ms", TABLE_2)
            .beside("average_ms")
            .cite("average_without_ms", 23.03, "ms", TABLE_2)
            .beside("average_without_ms")
            .cite("max_with_ms", 12.8, "ms", TABLE_2)
            .beside("max_ms")
            .cite("max_without_ms", 108.08, "ms", TABLE_2)
            .beside("max_without_ms")
            .cite("mdev_with_ms", 0.47, "ms", TABLE_2)
            .beside("mdev_ms")
            .cite("mdev_without_ms", 20.4, "ms", TABLE_2)
            .beside("mdev_without_ms")
            .cite("average_ratio", 11.74 / 23.03, "", TABLE_2)
            .beside("average_ratio")
            .note("11.74 ms over 23.03 ms")
            .list("average_ms", json!([23.03, 11.74]))
            .list("max_ms", json!([108, 12.8]))
            .list("mdev_ms", json!([20.4, 0.47]))
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        let own = [
            Limit::at_most("average_ratio", AVERAGE_RATIO_MAX),
            Limit::at_most("mdev_ms", MDEV_MS_MAX),
        ];
        [calls::limits(), own.to_vec()].concat()
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        calls::OVER_IDLE_MS
    }

    /// In the control nobody asks for low latency.
    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let lossless = |cell: &Cell| cell.loss <= 0.0;
        let cells: Vec<_> = match stage.settings.text("links") {
            "lossless" => CELLS.iter().copied().filter(lossless).collect(),
            _ => CELLS.to_vec(),
        };
        let without = (Mode::Full, false);
        let mut outcome = calls::tell(stage, &cells, TALK, without)?;
        let first = outcome.measured.get(TABLE).map(|rows| rows[0].clone()).unwrap_or_default();
        let [average, max, mdev] = WITH.map(|column| first[column].as_f64());
        for (key, value) in WITH.into_iter().zip([average, max, mdev]) {
            outcome.measure(key, value);
        }
        let usual = calls::took(stage, &cells[0], TALK, without, &mut outcome)?;
        outcome.measure("average_without_ms", usual.average);
        outcome.measure("max_without_ms", usual.max);
        outcome.measure("mdev_without_ms", usual.mdev);
        outcome.measure("average_ratio", average.zip(usual.average).map(|(with, of)| with / of));
        Ok(outcome)
    }
}

const fn link(mbps: u64, round_trip_ms: u64) -> Link {
    Link::of(mbps, round_trip_ms)
}
