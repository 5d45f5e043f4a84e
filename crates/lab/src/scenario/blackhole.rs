//! `blackhole`: the link is up and carries nothing, without a sign.
//!
//! - One link, with data in both directions all the time, so that something always waits to be
//!   sent: the time from the path's return until data flows again, and the time until the status
//!   reports the outage.
//! - One link, and both ends fall silent soon after it, as TCP does: the time until the tunnel
//!   itself notices the return. No limit applies to outages below a minute: the tunnel does not yet
//!   know the flows for which it should probe so often.
//! - Two links: the time until either end uses the second one.

use super::drawn::Draw;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, median};
use super::steady::at_rest;
use super::{About, CleanLink, FAMILY, Grid, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{Act, Cue, Flow, FlowRun, Ground, Trouble};

/// Round trips and milliseconds within which a black hole must be noticed.
const NOTICED: (f64, f64) = (3.0, 200.0);
/// The cost of a path's return beyond a round trip, in milliseconds.
const RETURN_MARGIN_MS: f64 = 20.0;
/// Its cost after a long outage, as a share of that.
const LATE_SHARE: f64 = 0.02;
/// Time within which the status must report it, in milliseconds.
const STATUS_MS: u64 = 2_000;
/// When the link begins to drop all packets, after the flows began; up to half as much later.
const SWALLOWED_AT_NS: u64 = 400 * MS;
/// How long packets are awaited after the return: more than the limit.
const AFTERWARDS_NS: u64 = 2 * SECOND;
/// The outages in seconds, up to the longest that is selected.
const OUTAGES_S: &[u64] = &[1, 3, 10, 20, 60];
/// The same on the full grid.
const OUTAGES_FULL_S: &[u64] = &[1, 2, 3, 5, 10, 15, 20, 30, 45, 60];
/// Outages shorter than this say nothing about the status, in seconds.
const TELLING_S: u64 = 3;
/// How long the ends send after the failure, if they fall silent.
const UNHEARD_NS: u64 = SECOND;
/// How long they send again at the end.
const LAST_NS: u64 = 100 * MS;
/// Outages shorter than this are over before the ends fall silent, in seconds.
const SILENT_S: u64 = 3;
/// How long a second link is known at least before the first one swallows everything.
const KNOWN_NS: u64 = 1_500 * MS;
/// How long the first link drops all packets when there is a second one.
const HOLE_NS: u64 = 2_500 * MS;
/// The longest time until a client returns to its first link.
const SETTLING_NS: u64 = SECOND;

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::number("outage", 20, (1, 60), "seconds of the longest of the shorter outages"),
    Setting::number(
        "late",
        90,
        (0, 86_400),
        "seconds of an outage of more than a minute; 0 leaves it out",
    ),
    Setting::number(
        "holes",
        5,
        (1, 100),
        "how often a link swallows everything while a second one is known",
    ),
    FAMILY,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("noticed_ms"),
    Key::lower_is_better("noticed_ms_max"),
    Key::lower_is_better("still_ms_max"),
    Key::lower_is_better("rtt_ms"),
    Key::lower_is_better("status_ms"),
    Key::lower_is_better("return_ms_max"),
    Key::lower_is_better("found_ms_max"),
    Key::lower_is_better("late_return_share"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Blackhole;

impl Scenario for Blackhole {
    fn about(&self) -> About {
        About {
            name: "blackhole",
            summary: "a link that is up carries nothing: who notices when, and how soon all is \
                      well again",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    /// The thesis' connection monitor needs an event of the kernel, which a black hole does not
    /// cause.
    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Alshalan 2017, section 3.7.4, local testbed")
            .cite("detection_ms", 214, "ms", "Table 3.1")
            .beside("noticed_ms")
            .note("after an event of the kernel, which a black hole does not cause")
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let mut limits = Vec::new();
        if settings.number("late") > 0 {
            limits.push(Limit::at_most("late_return_share", LATE_SHARE));
        }
        if settings.number("outage") >= TELLING_S {
            limits.push(Limit::at_most("status_ms", STATUS_MS));
        }
        limits
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        return_ms(&USUAL.nearest())
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let link = draw.link(&USUAL);
        let mut outcome = stage.on_ground(&link.terrain(), &mut |ground, outcome| {
            let rng = Rng::new(stage.seed);
            tell(&mut Telling { ground, stage, outcome, rng, draw: &mut draw })
        })?;
        let (round_trips, more_ms) = NOTICED;
        let noticed_ms = link.round_trips_ms(round_trips) + more_ms;
        outcome.ask(Limit::at_most("noticed_ms_max", noticed_ms));
        outcome.ask(Limit::at_most("return_ms_max", return_ms(&link)));
        draw.report(&mut outcome);
        Ok(outcome)
    }
}

/// The longest return of a path, in milliseconds.
fn return_ms(link: &CleanLink) -> f64 {
    link.round_trips_ms(1.0) + RETURN_MARGIN_MS
}

/// The run.
fn tell(telling: &mut Telling<'_>) -> Result<(), Trouble> {
    at_rest(telling.ground, telling.outcome)?;
    telling.outages()?;
    telling.late_outage()?;
    telling.holes()
}

/// The run in progress.
struct Telling<'a> {
    ground: &'a mut dyn Ground,
    stage: &'a Stage<'a>,
    outcome: &'a mut Outcome,
    rng: Rng,
    draw: &'a mut Draw,
}

/// The result of one outage.
struct Seen {
    noticed_ms: Option<f64>,
    told_ms: Option<f64>,
    still_ms: f64,
    back_ms: f64,
}

impl Telling<'_> {
    /// The only link drops all packets, and later carries again.
    fn outages(&mut self) -> Result<(), Trouble> {
        (self.stage.tell)("one link that swallows everything, and carries again");
        let outages = if self.stage.grid == Grid::Full { OUTAGES_FULL_S } else { OUTAGES_S };
        let longest = self.stage.settings.number("outage");
        let (mut back, mut told, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for &seconds in outages.iter().filter(|seconds| **seconds <= longest) {
            let seen = self.outage(seconds * SECOND)?;
            back.push(seen.back_ms);
            if seconds >= SILENT_S && !self.stage.control() {
                found.push(self.silent_outage(seconds * SECOND)?);
            }
            if seconds >= TELLING_S {
                told.push(seen.told_ms.unwrap_or(seconds as f64 * 1e3));
            }
        }
        self.outcome.measure("return_ms_max", max(&back));
        self.outcome.measure("status_ms", max(&told));
        self.outcome.measure("found_ms_max", max(&found));
        self.outcome.sample("return_ms", back);
        self.outcome.sample("status_ms", told);
        self.outcome.sample("found_ms", found);
        Ok(())
    }

    /// The same for longer than a minute.
    fn late_outage(&mut self) -> Result<(), Trouble> {
        let seconds = self.stage.settings.number("late");
        if seconds == 0 || self.stage.control() {
            return Ok(());
        }
        (self.stage.tell)(&format!("the same for {seconds} s"));
        let share = self.silent_outage(seconds * SECOND)? / (seconds as f64 * 1e3);
        self.outcome.measure("late_return_share", Some(share));
        Ok(())
    }

    /// The first of two links drops all packets.
    fn holes(&mut self) -> Result<(), Trouble> {
        if self.stage.control() {
            return Ok(());
        }
        (self.stage.tell)("a link that swallows everything, while a second one is known");
        let (mut noticed, mut still) = (Vec::new(), Vec::new());
        for _ in 0..self.stage.settings.number("holes") {
            self.ground.act(Act::PlugSpare)?;
            self.ground.pause(self.draw.longer(KNOWN_NS))?;
            let seen = self.outage(HOLE_NS)?;
            noticed.push(seen.noticed_ms.unwrap_or(HOLE_NS as f64 / MS as f64));
            still.push(seen.still_ms);
            self.ground.act(Act::UnplugSpare)?;
            self.ground.pause(SETTLING_NS)?;
        }
        self.outcome.measure("noticed_ms", median(&noticed));
        self.outcome.measure("noticed_ms_max", max(&noticed));
        self.outcome.measure("still_ms_max", max(&still));
        self.outcome.sample("noticed_ms", noticed);
        self.outcome.sample("still_ms", still);
        Ok(())
    }

    /// Flows in both directions, in which the first link drops all packets for this time; in a
    /// control for ever.
    fn outage(&mut self, length_ns: u64) -> Result<Seen, Trouble> {
        let [hole, back] = self.script(length_ns);
        // Packets in flight when the link began to drop still arrive.
        let then = if self.stage.control() { Cue::at(back.at_ns, hole.act) } else { back };
        let down = Flow::lasting(back.at_ns + AFTERWARDS_NS);
        let runs = self.ground.flows(&[down, down.upwards()], &[hole, then])?;
        let worst = |of: fn(&FlowRun) -> Option<f64>| {
            max(&runs.iter().filter_map(of).collect::<Vec<_>>()).unwrap_or_default()
        };
        let swallowed = runs.first().and_then(|run| run.moments.first());
        Ok(Seen {
            noticed_ms: swallowed.and_then(|moment| moment.noticed_ms()),
            told_ms: swallowed.and_then(|moment| moment.told_ms()),
            still_ms: worst(|run| run.still_ms().first().copied()),
            back_ms: worst(|run| run.back_ms().last().copied()),
        })
    }

    /// The same, but both ends fall silent a while after the link. Returns the time from its return
    /// to the first tunnel packet at the client, in milliseconds.
    fn silent_outage(&mut self, length_ns: u64) -> Result<f64, Trouble> {
        let script = self.script(length_ns);
        let [swallowed, back] = script;
        let down = Flow::lasting(swallowed.at_ns + UNHEARD_NS);
        // The limit, and longer.
        let end_ns = back.at_ns + AFTERWARDS_NS + length_ns / 10;
        let last = Flow::after(end_ns, LAST_NS);
        let runs = self.ground.flows(&[down, down.upwards(), last], &script)?;
        let found = runs.last().and_then(|run| run.resumption_ms().last().copied());
        Ok(found.unwrap_or(end_ns as f64 / MS as f64))
    }

    fn script(&mut self, length_ns: u64) -> [Cue; 2] {
        let from_ns = SWALLOWED_AT_NS + self.rng.below(SWALLOWED_AT_NS / 2);
        [Cue::at(from_ns, Act::Swallow(0)), Cue::at(from_ns + length_ns, Act::Return(0))]
    }
}
