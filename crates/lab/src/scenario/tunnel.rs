//! `tunnel`: what the tunnel costs, beside the same link without it, in one run.

use super::deploy::Deployment;
use super::record::{Limit, Values};
use super::settings::{Kind, Setting, Settings};
use super::statistics::{median, rounded};
use super::story::{FLOW_BYTES, FLOW_INTERVAL_US, Transfer, flow_stats};
use super::testbed::{Route, Testbed};
use super::{Baseline, FAMILY, Grid, Key, Outcome, Scenario, Stage, in_virtual_time};
use crate::emu::{BitErrors, End, LinkConfig, MS, SECOND};
use crate::netns::{Capture, Way};
use crate::programs::{EchoStats, FlowRequest, sha256_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Rate of the link in bits per second.
const RATE: u64 = 20_000_000;
/// Its round trip in nanoseconds.
const ROUND_TRIP_NS: u64 = 40 * MS;
/// The beginning of a transfer that does not count, as LAB.md has it.
const SLOW_START_NS: u64 = 5 * SECOND;
/// Round trips measured, without and with the tunnel.
const PINGS: u32 = 100;
/// Microseconds between two.
const PING_INTERVAL_US: u64 = 20_000;
/// IPv4 and UDP header of the flow inside the tunnel.
const INNER_HEADERS: usize = 28;
/// The longest flow on which losses are counted, in seconds.
const FLOW_SECONDS_MAX: u64 = 5;
/// The share of bits that are turned when the mechanism is broken on purpose.
const CONTROL_BIT_ERRORS: f64 = 3e-5;

/// What can be set.
const SETTINGS: &[Setting] = &[
    Setting::new(
        "seconds",
        Kind::Number { default: 30, min: 2, max: 600 },
        "length of each transfer",
    ),
    FAMILY,
];

/// What is measured at least.
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
    fn name(&self) -> &'static str {
        "tunnel"
    }

    fn summary(&self) -> &'static str {
        "one client, one gateway: goodput, round trip and overhead beside the bare link"
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn paper(&self, _settings: &Settings) -> Value {
        Value::Null
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

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        ROUND_TRIP_NS as f64 / MS as f64
    }

    fn run_netns(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let link = LinkConfig::lossless(RATE, ROUND_TRIP_NS);
        let testbed = Testbed::new(stage.entered, &link, stage.family(), stage.seed)?;
        (stage.tell)("deploying");
        let mut deployment = Deployment::start(&testbed, stage.rove)?;
        if stage.control() {
            for (end, mut pipe) in [(End::A, link.up), (End::B, link.down)] {
                pipe.bit_errors = BitErrors::Delivered(CONTROL_BIT_ERRORS);
                testbed.network.set_pipe(testbed.home, end, pipe)?;
            }
        }
        let mut outcome = Outcome::default();
        (stage.tell)("round trips");
        measure_round_trips(&testbed, &mut outcome)?;
        (stage.tell)("losses and overhead");
        measure_flow(&testbed, stage, &mut outcome.measured)?;
        (stage.tell)("goodput, without and with the tunnel");
        measure_goodput(&testbed, stage, &mut outcome)?;
        deployment.check()?;
        outcome.lateness = Some(testbed.network.take_lateness()?);
        Ok(outcome)
    }

    fn run_virtual(
        &self,
        seed: u64,
        _grid: Grid,
        settings: &Settings,
    ) -> Option<anyhow::Result<Outcome>> {
        let link = LinkConfig::lossless(RATE, ROUND_TRIP_NS);
        let seconds = settings.number("seconds");
        let skip_ns = SLOW_START_NS.min(seconds * SECOND / 6);
        let told = in_virtual_time::check(settings).and_then(|()| {
            let (length, control) = (RATE / 8 * seconds, settings.flag("control"));
            in_virtual_time::tunnel(seed, &link, length, skip_ns, control)
        });
        Some(told)
    }
}

/// Round trips with and without the tunnel at the same time, so that what the machine does
/// meanwhile befalls both.
fn measure_round_trips(testbed: &Testbed, outcome: &mut Outcome) -> anyhow::Result<()> {
    let bare = testbed.ping(Route::Open, PINGS, PING_INTERVAL_US)?;
    let tunnelled = testbed.ping(Route::Tunnelled, PINGS, PING_INTERVAL_US)?;
    let microseconds = |stats: EchoStats| -> Vec<f64> {
        stats.round_trips_ns.iter().map(|ns| *ns as f64 / 1e3).collect()
    };
    let (bare, tunnelled) = (microseconds(bare.finish()?), microseconds(tunnelled.finish()?));
    let over = median(&bare).zip(median(&tunnelled)).map(|(bare, through)| through - bare);
    let measured = [
        ("rtt_us", median(&tunnelled)),
        ("bare_rtt_us", median(&bare)),
        ("rtt_over_bare_us", over),
    ];
    for (key, value) in measured {
        outcome.measured.insert(key.to_owned(), json!(value.map(rounded)));
    }
    outcome.samples.insert("bare_rtt_us".to_owned(), bare);
    outcome.samples.insert("rtt_us".to_owned(), tunnelled);
    Ok(())
}

/// Datagrams lost on a link that loses none, and bytes that the tunnel adds to each.
fn measure_flow(testbed: &Testbed, stage: &Stage<'_>, measured: &mut Values) -> anyhow::Result<()> {
    let seconds = stage.settings.number("seconds").min(FLOW_SECONDS_MAX);
    let count = (seconds * 1_000_000 / FLOW_INTERVAL_US) as u32;
    let request =
        FlowRequest { interval_us: FLOW_INTERVAL_US, size: FLOW_BYTES, wait_ms: 0, count };
    testbed.network.start_capture(testbed.wlan)?;
    let flow = testbed.subscribe(Route::Tunnelled, &request)?;
    let stats = flow_stats(flow, Duration::from_secs(30))?;
    let capture = testbed.network.take_capture(testbed.wlan)?;
    measured.insert("lost_packets".to_owned(), json!(stats.lost));
    let overhead = match stage.rove {
        Some(_) => overhead_bytes(testbed, &capture),
        None => Some(0.0),
    };
    measured.insert("overhead_bytes".to_owned(), json!(overhead));
    Ok(())
}

/// What the UDP payload from the gateway is longer than the inner packets of the flow.
fn overhead_bytes(testbed: &Testbed, capture: &Capture) -> Option<f64> {
    let inner = usize::from(FLOW_BYTES) + INNER_HEADERS;
    let headers = testbed.family().udp_headers();
    let gateway = testbed.gateway_address();
    let outer: Vec<f64> = capture
        .packets
        .iter()
        .filter(|packet| packet.way == Way::In && packet.bytes > inner + headers)
        .filter(|packet| packet.endpoints.is_some_and(|ends| ends.source.ip() == gateway))
        .map(|packet| (packet.bytes - headers - inner) as f64)
        .collect();
    median(&outer)
}

/// One transfer over the bare link, one through the tunnel.
fn measure_goodput(
    testbed: &Testbed,
    stage: &Stage<'_>,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let seconds = stage.settings.number("seconds");
    let length = RATE / 8 * seconds;
    // Short runs are for tests of the lab: they skip in proportion.
    let skip_ns = SLOW_START_NS.min(seconds * SECOND / 6);
    let expected = sha256_of(stage.seed, length);
    let mut intact = true;
    let mut rates = [None, None];
    for (rate, route) in rates.iter_mut().zip([Route::Open, Route::Tunnelled]) {
        let download = testbed.download(route, stage.seed, length)?;
        let limit =
            Duration::from_secs(if stage.control() { seconds + 3 } else { seconds * 4 + 10 });
        let transfer = Transfer::watch(download, limit, |_| Ok(()))?;
        *rate = transfer.goodput_mbps(skip_ns).map(rounded);
        intact &= transfer.is_intact(&expected);
    }
    let [bare, tunnelled] = rates;
    let over = bare.zip(tunnelled).map(|(bare, tunnelled)| rounded(tunnelled / bare));
    let measured = &mut outcome.measured;
    measured.insert("bare_goodput_mbps".to_owned(), json!(bare));
    measured.insert("goodput_mbps".to_owned(), json!(tunnelled));
    measured.insert("goodput_over_bare".to_owned(), json!(over));
    measured.insert("checksum_ok".to_owned(), json!(intact));
    let bare_values = [("goodput_mbps", json!(bare)), ("rtt_us", measured["bare_rtt_us"].clone())];
    let bare_values = bare_values.map(|(key, value)| (key.to_owned(), value));
    outcome.baseline =
        Baseline::Measured(BTreeMap::from([("bare".to_owned(), BTreeMap::from(bare_values))]));
    Ok(())
}
