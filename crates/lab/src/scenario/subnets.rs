//! `subnets`: a browser downloads while the client moves from one subnet to another and to a third
//! (Lukaszewski, section 3.2): each time one interface is disconnected, then another connected.

use super::drawn::Draw;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, FAMILY, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::SECOND;
use crate::ground::{Act, Cue, Download, Downloader, Ground, Harm, Trouble};

/// The latest time of each change, after the request: as in the paper.
const CHANGES_NS: [u64; 2] = [5 * SECOND, 17 * SECOND];
/// The longest download.
const LIMIT_NS: u64 = 120 * SECOND;
/// The same when the mechanism is broken on purpose.
const CONTROL_LIMIT_NS: u64 = 10 * SECOND;
/// The paper's own pause: OpenVPN over TCP came back after 30 s and more.
const PAPER_STILL_MS: u64 = 30_000;

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::number(
        "megabytes",
        50,
        (1, 500),
        "size of the download; the client changes after each third, if not before",
    ),
    FAMILY,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("still_ms_max"),
    Key::lower_is_better("transfer_s"),
    Key::must_hold("checksum_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Subnets;

impl Scenario for Subnets {
    fn about(&self) -> About {
        About {
            name: "subnets",
            summary: "a browser downloads across three subnets",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Lukaszewski 2017, section 3.2")
            .cite("openvpn_tcp_still_ms", PAPER_STILL_MS, "ms at least", "Figure 3.11")
            .beside("still_ms_max")
            .note("OpenVPN over TCP")
            .cite("openvpn_tcp_browser", "its downloads die", "", "section 3.2")
            .cite("openvpn_mptcp", "its downloads live", "", "Figure 3.12")
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::equal("checksum_ok", true)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        USUAL.nearest().download_still_ms()
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let link = draw.link(&USUAL);
        let mut outcome = stage.on_ground(&link.terrain(), &mut |ground, outcome| {
            tell(ground, stage, &mut draw, outcome)
        })?;
        outcome.ask(Limit::at_most("still_ms_max", link.download_still_ms()));
        draw.report(&mut outcome);
        Ok(outcome)
    }
}

/// The run.
fn tell(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    draw: &mut Draw,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let mut limit_ns = LIMIT_NS;
    if stage.control() {
        ground.harm(Harm::DeadEnds)?;
        limit_ns = CONTROL_LIMIT_NS;
    }
    (stage.tell)("a download by a browser, and two changes in it");
    let length = stage.settings.number("megabytes") * 1_000_000;
    let thirds = [length / 3, length / 3 * 2];
    let script: Vec<Cue> = CHANGES_NS
        .map(|at_ns| draw.about(at_ns))
        .into_iter()
        .zip(thirds)
        .map(|(at_ns, at_bytes)| Cue { at_ns, at_bytes, act: Act::ChangeCard })
        .collect();
    let download = Download { by: Downloader::Browser, ..Download::tunnelled(length, limit_ns) };
    let transfer = ground.download(download, &script, &mut |_| {})?;
    outcome.measure("still_ms_max", transfer.still_ms());
    outcome.transferred(&transfer, script.len());
    Ok(())
}
