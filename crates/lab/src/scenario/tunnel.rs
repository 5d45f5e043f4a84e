//! `tunnel`: the cost of the tunnel, compared with the same link without it, in one run.

use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{median, rounded};
use super::values::Values;
use super::{About, Baseline, FAMILY, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{MS, SECOND};
use crate::ground::{Download, Flow, Ground, Harm, Pings, Route, Trouble};
use serde_json::json;
use std::collections::BTreeMap;

/// The beginning of a transfer that does not count, because its sender still searches for the rate.
const SLOW_START_NS: u64 = 5 * SECOND;
/// Round trips measured, without and with the tunnel.
const PINGS: Pings = Pings { count: 100, interval_ns: 20 * MS };
/// The longest flow on which losses are counted, in seconds.
const FLOW_SECONDS_MAX: u64 = 5;
/// The share of flipped bits if the mechanism is broken on purpose.
const CONTROL_BIT_ERRORS: f64 = 3e-5;

/// The settings.
const SETTINGS: &[Setting] =
    &[Setting::number("seconds", 30, (2, 600), "length of each transfer"), FAMILY];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("goodput_mbps"),
    Key::higher_is_better("bare_goodput_mbps"),
    Key::higher_is_better("goodput_over_bare"),
    Key::lower_is_better("rtt_us"),
    Key::lower_is_better("bare_rtt_us"),
    Key::lower_is_better("rtt_over_bare_us"),
    Key::lower_is_better("overhead_bytes"),
    Key::lower_is_better("lost_packets"),
    Key::must_hold("checksum_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Tunnel;

impl Scenario for Tunnel {
    fn about(&self) -> About {
        About {
            name: "tunnel",
            summary: "one client, one gateway: goodput, round trip and overhead beside the bare \
                      link",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let mut limits = vec![
            Limit::at_least("goodput_over_bare", 0.92),
            Limit::at_most("rtt_over_bare_us", 1_000),
            Limit::equal("lost_packets", 0),
            Limit::equal("checksum_ok", true),
        ];
        if !settings.flag("bare") {
            limits.push(Limit::at_most("overhead_bytes", 32));
        }
        limits
    }

    /// The round trip, not the millisecond that the tunnel may add to it. That millisecond is a
    /// median of differences between two series over the same link at the same time, which lateness
    /// affects alike (decision 0014).
    fn bound_ms(&self, _settings: &Settings) -> f64 {
        USUAL.round_trip_ns as f64 / MS as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        stage.on_ground(&USUAL.terrain(), &mut |ground, outcome| tell(ground, stage, outcome))
    }
}

/// The run.
fn tell(ground: &mut dyn Ground, stage: &Stage<'_>, outcome: &mut Outcome) -> Result<(), Trouble> {
    if stage.control() {
        ground.harm(Harm::BitErrors(CONTROL_BIT_ERRORS))?;
    }
    (stage.tell)("round trips");
    measure_round_trips(ground, outcome)?;
    (stage.tell)("losses and overhead");
    let seconds = stage.settings.number("seconds");
    let run = ground.flow(Flow::lasting(seconds.min(FLOW_SECONDS_MAX) * SECOND), &[])?;
    outcome.count("lost_packets", run.lost);
    outcome.measure("overhead_bytes", median(&run.added_bytes));
    (stage.tell)("goodput, without and with the tunnel");
    measure_goodput(ground, seconds, stage.control(), outcome)
}

/// Round trips with and without the tunnel, and the difference of each pair.
fn measure_round_trips(ground: &mut dyn Ground, outcome: &mut Outcome) -> Result<(), Trouble> {
    let series = ground.ping(&[Route::Open, Route::Tunnelled], PINGS)?;
    let [bare, tunnelled] = series.as_slice() else { return Ok(()) };
    outcome.measure("rtt_over_bare_us", median(&tunnelled.longer_than(bare)));
    let (bare, tunnelled) = (bare.microseconds(), tunnelled.microseconds());
    outcome.measure("bare_rtt_us", median(&bare));
    outcome.measure("rtt_us", median(&tunnelled));
    outcome.sample("bare_rtt_us", bare);
    outcome.sample("rtt_us", tunnelled);
    Ok(())
}

/// One transfer over the bare link, one through the tunnel.
fn measure_goodput(
    ground: &mut dyn Ground,
    seconds: u64,
    control: bool,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let length = USUAL.rate / 8 * seconds;
    // Short runs are tests of the lab: they skip in proportion.
    let skip_ns = SLOW_START_NS.min(seconds * SECOND / 6);
    // A broken tunnel gets the time of a working one, and little more.
    let limit_ns = match control {
        true => seconds * SECOND * 5 / 4 + SECOND,
        false => seconds * SECOND * 4 + 5 * SECOND,
    };
    let mut intact = true;
    let mut rates = [None, None];
    for (rate, route) in rates.iter_mut().zip([Route::Open, Route::Tunnelled]) {
        let download = Download { route, ..Download::tunnelled(length, limit_ns) };
        let transfer = ground.download(download, &[], &mut |_| {})?;
        *rate = transfer.goodput_mbps(skip_ns).map(rounded);
        intact &= transfer.intact;
    }
    let [bare, tunnelled] = rates;
    let over = bare.zip(tunnelled).map(|(bare, tunnelled)| tunnelled / bare);
    outcome.measure("bare_goodput_mbps", bare);
    outcome.measure("goodput_mbps", tunnelled);
    outcome.measure("goodput_over_bare", over);
    outcome.hold("checksum_ok", intact);
    let round_trip = outcome.measured.get("bare_rtt_us").cloned().unwrap_or_default();
    let bare = [("goodput_mbps", json!(bare)), ("rtt_us", round_trip)];
    let bare: Values = bare.map(|(key, value)| (key.to_owned(), value)).into();
    outcome.baseline = Baseline::Measured(BTreeMap::from([("bare".to_owned(), bare)]));
    Ok(())
}
