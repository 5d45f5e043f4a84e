//! `family`: the client goes from a network that has IPv4 only to one that has IPv6 only, and back.

use super::deploy::Deployment;
use super::record::Limit;
use super::settings::{Kind, Setting, Settings};
use super::steady::{self, MARGIN_MS, Steady};
use super::{Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, MS, Rng};
use crate::ground::{Act, Cue, Families, Flow, Ground, Harm, Terrain, Trouble};
use crate::netns::Entered;
use serde_json::{Value, json};

/// Rate of each link in bits per second.
const RATE: u64 = 20_000_000;
/// Its round trip in nanoseconds.
const ROUND_TRIP_NS: u64 = 40 * MS;
/// Mean time between two moves; each is up to a quarter shorter or longer.
const PAUSE_NS: u64 = 800 * MS;
/// Moves when the mechanism is broken on purpose.
const CONTROL_MOVES: u32 = 2;

/// What can be set.
const SETTINGS: &[Setting] = &[Setting::new(
    "moves",
    Kind::Number { default: 20, min: 1, max: 200 },
    "moves, there and back",
)];

/// The scenario.
#[derive(Debug)]
pub(super) struct FamilyChange;

impl Scenario for FamilyChange {
    fn name(&self) -> &'static str {
        "family"
    }

    fn summary(&self) -> &'static str {
        "the client goes from IPv4 to IPv6 and back"
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
            Limit::equal("lost_beyond_flight", 0),
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
    Terrain { families: Families::Differ, ..Terrain::of(link) }
}

/// The story.
fn tell(ground: &mut dyn Ground, stage: &Stage<'_>, outcome: &mut Outcome) -> Result<(), Trouble> {
    let mut moves = stage.settings.number("moves") as u32;
    if stage.control() {
        ground.harm(Harm::DeadEnds)?;
        moves = moves.min(CONTROL_MOVES);
    }
    (stage.tell)(&format!("{moves} moves under steady flows both ways"));
    let mut rng = Rng::new(stage.seed);
    let mut at_ns = 0;
    let mut pause = || {
        at_ns += PAUSE_NS * 3 / 4 + rng.below(PAUSE_NS / 2);
        at_ns
    };
    let script: Vec<Cue> = (0..moves).map(|_| Cue::at(pause(), Act::Relocate)).collect();
    let down = Flow::lasting(pause());
    let mut steady = Steady::new(ROUND_TRIP_NS);
    steady.add(&ground.flows(&[down, down.upwards()], &script)?);
    steady.report(outcome);
    Ok(())
}
