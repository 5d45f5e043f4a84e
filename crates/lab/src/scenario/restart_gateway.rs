//! `restart-gateway`: the gateway's process is gone for a second, killed or stopped, while data
//! flows in both directions and during a download.
//!
//! Packets to a missing process are lost unless their sender retransmits them. Measured is the time
//! after it: every client is back within one handshake, which begins with a notice of the new
//! process and not with a timeout.

use super::drawn::Draw;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, median};
use super::{About, CleanLink, FAMILY, Key, MARGIN_MS, Outcome, Scenario, Stage, USUAL};
use crate::arrivals::Gap;
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{Act, Cue, Download, Flow, FlowRun, Ground, Trouble};

/// How long the gateway is gone, approximately.
const GONE_NS: u64 = SECOND;
/// When it goes, after the flows began; up to half as much later.
const GOES_NS: u64 = 500 * MS;
/// How long it is awaited afterwards: longer than any timeout of the session.
const AFTERWARDS_NS: u64 = 7 * SECOND;
/// Bytes of the download.
const LENGTH: u64 = 5_000_000;
/// How long that may take.
const TRANSFER_LIMIT_NS: u64 = 60 * SECOND;

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::number(
        "restarts",
        4,
        (1, 100),
        "how often the gateway is gone; killed the first time, asked the second, and so on",
    ),
    FAMILY,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("lost_packets"),
    Key::lower_is_better("lost_beyond_absence"),
    Key::lower_is_better("still_ms_max"),
    Key::lower_is_better("back_ms_median"),
    Key::lower_is_better("back_ms_max"),
    Key::lower_is_better("transfer_s"),
    Key::must_hold("checksum_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct RestartGateway;

impl Scenario for RestartGateway {
    fn about(&self) -> About {
        About {
            name: "restart-gateway",
            summary: "the gateway's process is gone for a second, killed or in order",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::equal("lost_beyond_absence", 0), Limit::equal("checksum_ok", true)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        back_ms(&USUAL.nearest())
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let link = draw.link(&USUAL);
        let mut outcome = stage.on_ground(&link.terrain(), &mut |ground, outcome| {
            tell(ground, stage, (&link, &mut draw), outcome)
        })?;
        outcome.ask(Limit::at_most("back_ms_max", back_ms(&link)));
        draw.report(&mut outcome);
        Ok(outcome)
    }
}

/// The time of one handshake that a notice begins: half a round trip until the notice arrives, one
/// for the handshake, half until the gateway receives data under the new keys, half until the
/// client receives it; and the margin of every move.
fn back_ms(link: &CleanLink) -> f64 {
    link.round_trips_ms(2.5) + MARGIN_MS as f64
}

/// The run.
fn tell(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    (link, draw): (&CleanLink, &mut Draw),
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let mut rng = Rng::new(stage.seed);
    let (mut back, mut still, mut lost, mut beyond) = (Vec::new(), Vec::new(), 0, 0);
    let restarts = if stage.control() { 1 } else { stage.settings.number("restarts") };
    for number in 0..restarts {
        let end = if number.is_multiple_of(2) { Act::KillGateway } else { Act::StopGateway };
        (stage.tell)(&format!("{end:?}, and a start, under steady flows both ways"));
        let goes_ns = GOES_NS + rng.below(GOES_NS / 2);
        let mut script = script(goes_ns, draw.about(GONE_NS), end);
        if stage.control() {
            // The gateway is there again, and the client's network is gone.
            script.insert(1, Cue::at(goes_ns + 1, Act::Swallow(0)));
        }
        let back_ns = script.last().map_or(goes_ns, |back| back.at_ns);
        let down = Flow::lasting(back_ns + AFTERWARDS_NS);
        for run in ground.flows(&[down, down.upwards()], &script)? {
            lost += run.lost;
            beyond += run.lost.saturating_sub(absent_for(&run, link));
            back.extend(run.back_ms().last());
            let gone_ns = run.moments.first().map_or(0, |gone| gone.began_ns);
            still.push(Gap::longest_within(&run.gaps, gone_ns, run.end_ns) as f64 / MS as f64);
        }
    }
    outcome.count("lost_packets", lost);
    outcome.count("lost_beyond_absence", beyond);
    outcome.measure("back_ms_median", median(&back));
    outcome.measure("back_ms_max", max(&back));
    outcome.measure("still_ms_max", max(&still));
    outcome.sample("back_ms", back);
    download(ground, stage, draw, outcome)
}

fn script(goes_ns: u64, gone_ns: u64, end: Act) -> Vec<Cue> {
    vec![Cue::at(goes_ns, end), Cue::at(goes_ns + gone_ns, Act::StartGateway)]
}

/// Datagrams of a flow that were sent while no gateway knew its client.
fn absent_for(run: &FlowRun, link: &CleanLink) -> u64 {
    let (Some(gone), Some(back)) = (run.moments.first(), run.moments.last()) else { return 0 };
    let absent_ns = back.done_ns - gone.began_ns;
    absent_ns.div_ceil(Flow::INTERVAL_NS) + back_ms(link) as u64
}

/// A download in which the gateway is killed.
fn download(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    draw: &mut Draw,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    if stage.control() {
        return Ok(());
    }
    (stage.tell)("a download in which it is killed");
    let download = Download::tunnelled(LENGTH, TRANSFER_LIMIT_NS);
    let script = script(draw.longer(GOES_NS), draw.about(GONE_NS), Act::KillGateway);
    let transfer = ground.download(download, &script, &mut |_| {})?;
    outcome.transferred(&transfer, script.len());
    Ok(())
}
