//! `disconnects`: a transfer over a link that goes and comes back, once or more often (Figures
//! 4.13, 4.14 and 4.16 of Alshalan's thesis).
//!
//! As there, the first outage comes after five seconds, and eight are between two. Every transfer
//! with outages stands beside one without, over the same tunnel and link, just before it: what is
//! judged is the goodput over the time that the link was up, the restart included.

use super::outage::{
    BASELINE, BY, CONGESTION, FIRST_NS, KEYS, MODE, Outages, SHARE_MIN, Shares, TRANSFER, acts,
    congestion, rate_in_words, receiver, restart_ms,
};
use super::plot::{Panel, plot};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::rounded;
use super::{About, CleanLink, FAMILY, Grid, LOCAL, Outcome, Scenario, Stage, USUAL};
use crate::emu::{MS, SECOND};
use crate::ground::{Connections, Cue, Ground, Transfer, Trouble};
use serde_json::{Value, json};

/// How long the link is up between two, as there.
const BETWEEN_NS: u64 = 8 * SECOND;
/// How long a transfer takes at least where nothing goes wrong, in seconds: [`FIRST_NS`] and the
/// time that counts.
const SECONDS: u64 = 36;
/// The intervals of the rates over time.
const INTERVAL_NS: u64 = 250 * MS;
/// How long a transfer may take, in shares of what it takes at best.
const SLOWNESS: u64 = 3;
/// How long a control goes on after the link is gone for good.
const CONTROL_NS: u64 = 3 * SECOND;
/// Bytes of its transfers, in seconds of the link.
const CONTROL_SECONDS: u64 = 7;

/// Outages of a cell: how many, and of how many seconds.
const CELLS: &[(u64, u64)] = &[(3, 1), (3, 15), (1, 45)];
/// The lengths of the full grid, in seconds, once, twice and three times.
const FULL_S: &[u64] = &[1, 5, 15, 20, 45];

/// What can be set.
const SETTINGS: &[Setting] = &[
    MODE,
    BY,
    TRANSFER,
    CONGESTION,
    Setting::choice("place", &["distant", "local"], "20 Mbit/s and 40 ms, or 100 Mbit/s and 1 ms"),
    Setting::number("outages", 0, (0, 20), "how many in the only cell; 0 for the grid"),
    Setting::number("seconds", 15, (1, 600), "how long each of those lasts"),
    Setting::number(
        "megabytes",
        0,
        (0, 2_000),
        "another size of each transfer; 0 for 36 s of the link",
    ),
    Setting::text("plot", "a file for the rates over time, as SVG; the last seed's stays"),
    BASELINE,
    FAMILY,
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Disconnects;

impl Scenario for Disconnects {
    fn about(&self) -> About {
        About {
            name: "disconnects",
            summary: "a transfer over a link that is gone for seconds, up to three times",
            settings: SETTINGS,
            keys: &KEYS,
        }
    }

    /// Of the figures there is a number in the text for one cell only, and the means of all.
    fn paper(&self, _settings: &Settings) -> Value {
        json!({
            "source": "Alshalan 2017, section 4.8.3 and Figures 4.13 to 4.16, beside OpenVPN",
            "buffered_3x15s_gain_percent": 54, "unbuffered_3x15s_gain_percent": 45,
            "buffered_mean_gain_percent": 30.08, "unbuffered_mean_gain_percent": 20.93,
        })
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        vec![
            Limit::at_least("goodput_share", SHARE_MIN),
            Limit::at_most("restart_ms_max", restart_ms(&link(settings))),
            Limit::equal("checksum_ok", true),
        ]
    }

    fn bound_ms(&self, settings: &Settings) -> f64 {
        restart_ms(&link(settings)) as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let terrain = link(stage.settings).terrain();
        let mut panels = None;
        let outcome = stage.over_outages(&terrain, &mut |ground, outcome| {
            let mut drawn = Vec::new();
            let told = tell(ground, stage, outcome, &mut drawn);
            // The first to be told of is Rove.
            panels.get_or_insert(drawn);
            told
        })?;
        let path = stage.settings.text("plot");
        if !path.is_empty() {
            plot(path, &panels.unwrap_or_default())?;
        }
        Ok(outcome)
    }
}

fn link(settings: &Settings) -> CleanLink {
    if settings.text("place") == "local" { LOCAL } else { USUAL }
}

/// The cells to tell of: how many outages, and of how many seconds; a control needs one.
fn cells(stage: &Stage<'_>) -> Vec<(u64, u64)> {
    let settings = stage.settings;
    match settings.number("outages") {
        _ if stage.control() => vec![(1, settings.number("seconds"))],
        0 if stage.grid == Grid::Full => {
            let of_count = |count| FULL_S.iter().map(move |&seconds| (count, seconds));
            (1..=3).flat_map(of_count).collect()
        }
        0 => CELLS.to_vec(),
        count => vec![(count, settings.number("seconds"))],
    }
}

/// The story.
fn tell(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    outcome: &mut Outcome,
    panels: &mut Vec<Panel>,
) -> Result<(), Trouble> {
    let mut shares = Shares::default();
    let rate = link(stage.settings).rate;
    let capacity = |from_ns: u64, to_ns: u64| (to_ns - from_ns) as f64 * rate as f64;
    for (count, seconds) in cells(stage) {
        (stage.tell)(&format!("a transfer, and one with outages: {count} of {seconds} s"));
        let outages = Outages {
            first_ns: FIRST_NS,
            count,
            length_ns: seconds * SECOND,
            between_ns: BETWEEN_NS,
        };
        let undisturbed = transfer(ground, stage, &outages, &[])?;
        let script = outages.script(acts(stage.settings), stage);
        let disturbed = transfer(ground, stage, &outages, &script)?;
        let key = format!("rate_mbps_{count}x{seconds}s");
        outcome.sample(&key, rates(&disturbed));
        panels.push(Panel {
            title: format!("{count} x {seconds} s"),
            interval_ns: INTERVAL_NS,
            outages: disturbed
                .outages()
                .map(|(down_ns, up_ns)| {
                    let within = |ns: u64| ns.min(disturbed.end_ns) - disturbed.start_ns;
                    (within(down_ns), within(up_ns))
                })
                .collect(),
            undisturbed: rates(&undisturbed),
            disturbed: rates(&disturbed),
        });
        shares.add(&undisturbed, &disturbed, &capacity);
        let [alone, with] = [&undisturbed, &disturbed].map(rate_in_words);
        (stage.tell)(&format!("without outages: {alone}; while the link was up: {with}"));
    }
    shares.report(outcome);
    Ok(())
}

/// One transfer, long enough to have all outages in it.
fn transfer(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    outages: &Outages,
    script: &[Cue],
) -> Result<Transfer, Trouble> {
    let (settings, rate) = (stage.settings, link(stage.settings).rate);
    let seconds = if stage.control() { CONTROL_SECONDS } else { SECONDS };
    let length = match settings.number("megabytes") {
        0 => rate / 8 * seconds,
        megabytes => megabytes * 1_000_000,
    };
    let alone_ns = length * 8 * SECOND / rate;
    let limit_ns = SLOWNESS * (alone_ns + outages.total_ns());
    let gone_for_good = stage.control() && !script.is_empty();
    let limit_ns = if gone_for_good { FIRST_NS + CONTROL_NS } else { limit_ns };
    let bulk = Connections {
        congestion: congestion(settings),
        ..Connections::bulk(receiver(settings), length)
    };
    let mut transfers = ground.connect(&[bulk], limit_ns, script)?.concat();
    Ok(transfers.pop().unwrap_or_default())
}

fn rates(transfer: &Transfer) -> Vec<f64> {
    transfer.rates_mbps(INTERVAL_NS).into_iter().map(rounded).collect()
}
