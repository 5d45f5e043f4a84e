//! `voip`: a phone call beside connections that take all of two links.

use super::calls::{self, Cell, KEYS, LOAD, SECONDS};
use super::links::Link;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, Outcome, Scenario, Stage};
use crate::ground::{Mode, Talk};

/// The least quality: R above 90, "very satisfied" (ITU-T G.107, Annex B).
const MOS_MIN: f64 = 4.3;

const CELLS: &[Cell] = &[
    Cell { pair: [link(20, 20), link(20, 20)], loss: 0.0 },
    Cell { pair: [link(40, 10), link(10, 60)], loss: 0.0 },
    Cell { pair: [link(20, 20), link(20, 20)], loss: 0.01 },
    Cell { pair: [link(100, 25), link(100, 25)], loss: 0.02 },
];

/// The settings.
const SETTINGS: &[Setting] = &[SECONDS, LOAD];

/// The scenario.
#[derive(Debug)]
pub(super) struct Voip;

impl Scenario for Voip {
    fn about(&self) -> About {
        About {
            name: "voip",
            summary: "a call beside transfers that take all that two links have",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Springate and Newman, and what others measured of mqvpn")
            .cite("voip", "no figures: Discord recognised, DNS not", "", "VOIP Extension")
            .cite("mqvpn_p99_ms", 53, "ms", "others, without its hybrid lane")
            .cite("mqvpn_idle_p99_ms", 5.5, "ms", "others, without its hybrid lane")
            .cite("mqvpn_hybrid_queue_ms", 2_800, "ms", "others, in its hybrid lane")
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        [calls::limits(), vec![Limit::at_least("mos", MOS_MIN)]].concat()
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        calls::OVER_IDLE_MS
    }

    /// In the control one link carries, and nobody keeps its queue short.
    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        calls::tell(stage, CELLS, Talk::Voice, (Mode::Backup, false))
    }
}

const fn link(mbps: u64, round_trip_ms: u64) -> Link {
    Link::of(mbps, round_trip_ms)
}
