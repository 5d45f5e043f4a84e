//! `family`: the client moves from a network with IPv4 only to one with IPv6 only, and back.

use super::drawn::Draw;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::steady::{self, Steady, again_and_again};
use super::{About, CleanLink, Outcome, Scenario, Stage, USUAL};
use crate::emu::{MS, Rng};
use crate::ground::{Act, Families, Flow, Ground, Harm, Terrain, Trouble};

/// Mean time between two moves; each is up to a quarter shorter or longer.
const PAUSE_NS: u64 = 800 * MS;
/// Moves when the mechanism is broken on purpose.
const CONTROL_MOVES: u64 = 2;

/// The settings.
const SETTINGS: &[Setting] = &[Setting::number("moves", 20, (1, 200), "moves, there and back")];

/// The scenario.
#[derive(Debug)]
pub(super) struct FamilyChange;

impl Scenario for FamilyChange {
    fn about(&self) -> About {
        About {
            name: "family",
            summary: "the client goes from IPv4 to IPv6 and back",
            settings: SETTINGS,
            keys: &steady::KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::equal("lost_beyond_flight", 0)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        USUAL.nearest().move_ms()
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let link = draw.link(&USUAL);
        let terrain = Terrain { families: Families::Differ, ..link.terrain() };
        let mut outcome = stage
            .on_ground(&terrain, &mut |ground, outcome| tell(ground, stage, &link, outcome))?;
        outcome.ask(Limit::at_most("still_ms_median", link.move_ms()));
        draw.report(&mut outcome);
        Ok(outcome)
    }
}

/// The run.
fn tell(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    link: &CleanLink,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let mut moves = stage.settings.number("moves");
    if stage.control() {
        ground.harm(Harm::DeadEnds)?;
        moves = moves.min(CONTROL_MOVES);
    }
    (stage.tell)(&format!("{moves} moves under steady flows both ways"));
    let mut rng = Rng::new(stage.seed);
    let (script, end_ns) = again_and_again(&mut rng, PAUSE_NS, moves, Act::Relocate);
    let more_ns = if stage.control() { steady::CONTROL_NS } else { 0 };
    let down = Flow::lasting(end_ns + more_ns);
    let mut steady = Steady::new(link.round_trip_ns);
    steady.add(&ground.flows(&[down, down.upwards()], &script)?);
    steady.report(outcome);
    Ok(())
}
