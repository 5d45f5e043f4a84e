//! `hop`: the gateway changes its address every five seconds for a minute, under load.
//!
//! It does so as a host does whose network gives it another address: the old one is gone at once,
//! and nobody was told before. Nothing filters between it and the client.

use super::deploy::Deployment;
use super::record::Limit;
use super::settings::{Kind, Setting, Settings};
use super::steady::{self, MARGIN_MS, Steady};
use super::{Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, MS, Rng, SECOND};
use crate::ground::{Act, Cue, Edge, Flow, Ground, Terrain, Trouble};
use crate::netns::Entered;
use serde_json::{Value, json};

/// Rate of each link in bits per second.
const RATE: u64 = 20_000_000;
/// Its round trip in nanoseconds.
const ROUND_TRIP_NS: u64 = 40 * MS;
/// Time between two hops.
const PAUSE_NS: u64 = 5 * SECOND;
/// When the first comes; up to half as much later.
const FIRST_NS: u64 = SECOND;
/// How long after the last the flows go on.
const AFTERWARDS_NS: u64 = 2 * SECOND;

/// What can be set.
const SETTINGS: &[Setting] =
    &[Setting::new("hops", Kind::Number { default: 12, min: 1, max: 200 }, "changes of address")];

/// The scenario.
#[derive(Debug)]
pub(super) struct Hop;

impl Scenario for Hop {
    fn name(&self) -> &'static str {
        "hop"
    }

    fn summary(&self) -> &'static str {
        "the gateway changes its address every 5 s for a minute, under load"
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn keys(&self) -> &'static [Key] {
        &steady::KEYS
    }

    fn paper(&self, _settings: &Settings) -> Value {
        json!({})
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![
            Limit::at_most("still_ms_median", ROUND_TRIP_NS / MS + MARGIN_MS),
            Limit::equal("lost_packets", 0),
        ]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        (ROUND_TRIP_NS / MS + MARGIN_MS) as f64
    }

    fn run_netns(&self, entered: &Entered, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let deploy = |testbed: &_| Deployment::start(testbed, stage.rove);
        stage.on_hosts(entered, &terrain(), &deploy, &mut |ground, outcome| {
            tell(ground, stage, outcome)
        })
    }

    fn run_virtual(&self, stage: &Stage<'_>) -> Option<anyhow::Result<Outcome>> {
        Some(stage.in_virtual_time(&terrain(), &mut |ground, outcome| tell(ground, stage, outcome)))
    }
}

fn terrain() -> Terrain {
    let link = LinkConfig::lossless(RATE, ROUND_TRIP_NS);
    Terrain { edge: Edge::Open, ..Terrain::of(link) }
}

/// The story.
fn tell(ground: &mut dyn Ground, stage: &Stage<'_>, outcome: &mut Outcome) -> Result<(), Trouble> {
    let hops = if stage.control() { 1 } else { stage.settings.number("hops") };
    (stage.tell)(&format!("{hops} hops of the gateway under steady flows both ways"));
    let first_ns = FIRST_NS + Rng::new(stage.seed).below(FIRST_NS / 2);
    let hop = |number| Cue::at(first_ns + number * PAUSE_NS, Act::MoveGateway);
    let mut script: Vec<Cue> = (0..hops).map(hop).collect();
    if stage.control() {
        script.push(Cue::at(first_ns + 1, Act::Swallow));
    }
    let down = Flow::lasting(first_ns + (hops - 1) * PAUSE_NS + AFTERWARDS_NS);
    let mut steady = Steady::new(ROUND_TRIP_NS);
    steady.add(&ground.flows(&[down, down.upwards()], &script)?);
    steady.report(outcome);
    Ok(())
}
