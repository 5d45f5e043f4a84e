//! `resume-loss`: losses of a steady flow of 1 Mbit/s while the client moves once to five times
//! (Figure 3.13 of Alshalan's thesis), with and without an announcement.
//!
//! An announced move: a second link exists, the routes of the first one go, it carries for about
//! another 300 ms, and is gone. The next such move goes back. Without an announcement, the address
//! is gone before there is another.

use super::drawn::Draw;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::max;
use super::steady::{self, Steady, again_and_again};
use super::{About, CleanLink, FAMILY, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{Act, Cue, Flow, Ground, Harm, Trouble};

/// Mean time between two moves without an announcement; each is up to a quarter shorter or longer.
const PAUSE_NS: u64 = 800 * MS;
/// How long a second link exists before the first one's departure is announced, approximately.
const KNOWN_NS: u64 = SECOND;
/// How long the old link still carries after its routes have gone, approximately.
const NOTICE_NS: u64 = 300 * MS;
/// Time after its departure until the next one is connected, approximately.
const REST_NS: u64 = 500 * MS;

/// The settings.
const SETTINGS: &[Setting] =
    &[Setting::number("moves", 5, (1, 5), "the most moves of a run"), FAMILY];

/// The keys at least.
const KEYS: &[Key] = &{
    let [a, b, c, d, e] = steady::KEYS;
    [
        a,
        b,
        c,
        d,
        e,
        Key::lower_is_better("announced_lost"),
        Key::lower_is_better("announced_still_ms_max"),
    ]
};

/// The scenario.
#[derive(Debug)]
pub(super) struct ResumeLoss;

impl Scenario for ResumeLoss {
    fn about(&self) -> About {
        About {
            name: "resume-loss",
            summary: "what a steady flow loses in one to five moves, announced and not",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    /// The thesis shows the losses as a picture without numbers.
    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Alshalan 2017, section 3.7.6: 1 Mbit/s for 60 s, one to five resumptions")
            .cite("lost", "a picture only", "", "Figure 3.13")
            .beside("lost_packets")
            .note(
                "some datagrams, where OpenVPN's full handshake loses hundreds; OpenVPN does not \
                 run beside, because it has no move without a handshake",
            )
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let mut limits = vec![Limit::equal("lost_beyond_flight", 0)];
        if !settings.flag("control") {
            limits.push(Limit::equal("announced_lost", 0));
        }
        limits
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        USUAL.nearest().move_ms()
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let link = draw.link(&USUAL);
        let mut outcome = stage.on_ground(&link.terrain(), &mut |ground, outcome| {
            tell(ground, stage, (&link, &mut draw), outcome)
        })?;
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
    let mut rng = Rng::new(stage.seed);
    let most = stage.settings.number("moves");
    if stage.control() {
        ground.harm(Harm::DeadEnds)?;
    }
    let mut steady = Steady::new(link.round_trip_ns);
    let mut by_moves = Vec::new();
    for moves in 1..=if stage.control() { 1 } else { most } {
        (stage.tell)(&format!("{moves} moves that nobody announces"));
        let (script, end_ns) = again_and_again(&mut rng, PAUSE_NS, moves, Act::Relocate);
        let more_ns = if stage.control() { steady::CONTROL_NS } else { 0 };
        let run = ground.flow(Flow::lasting(end_ns + more_ns), &script)?;
        by_moves.push(run.lost as f64);
        steady.add(&[run]);
    }
    outcome.sample("lost_by_moves", by_moves);
    steady.report(outcome);
    if stage.control() { Ok(()) } else { announced(ground, stage, draw, outcome) }
}

/// The same with announced moves.
fn announced(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    draw: &mut Draw,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let (mut by_moves, mut still) = (Vec::new(), Vec::new());
    for moves in 1..=stage.settings.number("moves") {
        (stage.tell)(&format!("{moves} moves that are announced"));
        let mut script = Vec::new();
        let mut at_ns = 0;
        for _ in 0..moves {
            let acts = [
                (REST_NS, Act::PlugSpare),
                (KNOWN_NS, Act::AnnounceDeparture),
                (NOTICE_NS, Act::Depart),
            ];
            for (after_ns, act) in acts {
                at_ns += draw.about(after_ns);
                script.push(Cue::at(at_ns, act));
            }
        }
        let run = ground.flow(Flow::lasting(at_ns + REST_NS), &script)?;
        by_moves.push(run.lost as f64);
        still.append(&mut run.still_ms());
    }
    outcome.count("announced_lost", by_moves.iter().sum::<f64>() as u64);
    outcome.measure("announced_still_ms_max", max(&still));
    outcome.sample("announced_lost_by_moves", by_moves);
    Ok(())
}
