//! `mesh`: one connection over four links to a gateway with two addresses.

use super::links::{
    self, CONGESTION, Carried, Cells, FILE, GRID, KEYS, Link, MODE, SCHEDULER, SECONDS, TRANSFER,
    name,
};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, Outcome, Scenario, Stage};
use crate::ground::{Known, Spread};

/// The least share of the sum.
const SHARE_OF_SUM_MIN: f64 = 0.90;

/// Four equal links; and fibre, DSL, LTE and a link with a long round trip.
const MESHES: &[[Link; 4]] = &[
    [Link::of(10, 20); 4],
    [Link::of(50, 10), Link::of(20, 30), Link::of(10, 60), Link::of(10, 40)],
];

const CELLS: Cells<4> = Cells {
    pairs: MESHES,
    to: &[],
    known: Known::ByTwoAddresses,
    spreads: &[Spread { mesh: true, subflows: 1 }],
    losses: &["0", "0.5", "1"],
    few: &[(0, 0), (0, 2), (1, 0), (1, 1)],
    carried: Carried::TCP,
    few_others: &[],
    also: &[],
};

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    SCHEDULER,
    TRANSFER,
    CONGESTION,
    Setting::choice(
        "links",
        &[GRID, "10/20+10/20+10/20+10/20", "50/10+20/30+10/60+10/40"],
        "the links, each with its Mbit/s and the milliseconds of its round trip",
    ),
    Setting::choice("loss", &[GRID, "0", "0.5", "1"], "what each loses each way, in per cent"),
    SECONDS,
    FILE,
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Mesh;

impl Scenario for Mesh {
    fn about(&self) -> About {
        About {
            name: "mesh",
            summary: "one connection over four links to a gateway with two addresses",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        links::limits(settings, Some(SHARE_OF_SUM_MIN))
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        links::bound_ms(MESHES)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        CELLS.tell(stage, links::chosen(stage.settings, "links", MESHES, name).as_slice())
    }
}
