//! `hop`: the gateway changes its address every five seconds for a minute, under load.
//!
//! Each time it has the new address beside the old one, informs every client, and gives the old one
//! up about a second later. With `announced=false` it acts like a host that gets another address
//! from its network: the old one is gone at once, and nobody was informed. Nothing filters on the
//! way.

use super::drawn::Draw;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::steady::{self, Steady};
use super::{About, CleanLink, Outcome, Scenario, Stage, USUAL};
use crate::emu::{Rng, SECOND};
use crate::ground::{Act, Cue, Edge, Flow, Ground, Terrain, Trouble};

/// Time between two hops.
const PAUSE_NS: u64 = 5 * SECOND;
/// Approximate time with both addresses, if clients are informed.
const BOTH_NS: u64 = SECOND;
/// When the first comes; up to half as much later.
const FIRST_NS: u64 = SECOND;
/// How long the flows continue after the last.
const AFTERWARDS_NS: u64 = 2 * SECOND;

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::number("hops", 12, (1, 200), "changes of address"),
    Setting::flag("announced", true, "every client is told before the old address goes"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Hop;

impl Scenario for Hop {
    fn about(&self) -> About {
        About {
            name: "hop",
            summary: "the gateway changes its address every 5 s for a minute, under load",
            settings: SETTINGS,
            keys: &steady::KEYS,
        }
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let lost = if settings.flag("announced") { "lost_packets" } else { "lost_beyond_flight" };
        vec![Limit::equal(lost, 0)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        USUAL.nearest().move_ms()
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let link = draw.link(&USUAL);
        let terrain = Terrain { edge: Edge::Open, ..link.terrain() };
        let mut outcome = stage.on_ground(&terrain, &mut |ground, outcome| {
            tell(ground, stage, (&link, &mut draw), outcome)
        })?;
        outcome.ask(Limit::at_most("still_ms_median", link.move_ms()));
        draw.report(&mut outcome);
        Ok(outcome)
    }
}

/// The run.
fn tell(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    (link, draw): (&CleanLink, &mut Draw),
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let hops = if stage.control() { 1 } else { stage.settings.number("hops") };
    (stage.tell)(&format!("{hops} hops of the gateway under steady flows both ways"));
    let first_ns = FIRST_NS + Rng::new(stage.seed).below(FIRST_NS / 2);
    let mut script = Vec::new();
    for number in 0..hops {
        let at_ns = first_ns + number * PAUSE_NS;
        if stage.settings.flag("announced") {
            script.push(Cue::at(at_ns, Act::AnnounceGateway));
            script.push(Cue::at(at_ns + draw.about(BOTH_NS), Act::RetireGateway));
        } else {
            script.push(Cue::at(at_ns, Act::MoveGateway));
        }
    }
    if stage.control() {
        script.insert(1, Cue::at(first_ns + 1, Act::Swallow(0)));
    }
    let down = Flow::lasting(first_ns + (hops - 1) * PAUSE_NS + AFTERWARDS_NS);
    let mut steady = Steady::new(link.round_trip_ns);
    steady.add(&ground.flows(&[down, down.upwards()], &script)?);
    steady.report(outcome);
    Ok(())
}
