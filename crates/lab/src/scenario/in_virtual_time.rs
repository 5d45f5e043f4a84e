//! The scenarios in virtual time: the same stories and keys, over the production core.
//!
//! Decides how a tale becomes measured values. What only a processor or another program could
//! show has no value here: the baseline is the bare link, never OpenVPN.

use super::record::Values;
use super::settings::Settings;
use super::statistics::{max, median, rounded};
use super::{Baseline, Outcome};
use crate::emu::LinkConfig;
use crate::world::{self, RoamPlan};
use anyhow::ensure;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Refuses settings that mean nothing here.
pub(super) fn check(settings: &Settings) -> anyhow::Result<()> {
    ensure!(!settings.flag("bare"), "--set bare=true is told in namespaces only");
    let family = settings.text("family");
    ensure!(family == "4", "--set family={family} is told in namespaces only");
    Ok(())
}

/// `tunnel`: a transfer of `length` bytes over `link` of which the first `skip_ns` do not count.
pub(super) fn tunnel(
    seed: u64,
    link: &LinkConfig,
    length: u64,
    skip_ns: u64,
    control: bool,
) -> anyhow::Result<Outcome> {
    let tale = world::tunnel(seed, link, length, skip_ns, control)?;
    let [bare_mbps, mbps] = tale.goodput_mbps;
    let [bare_us, us] = &tale.round_trips_us;
    let over = |pair: (Option<f64>, Option<f64>), of: fn(f64, f64) -> f64| {
        value(pair.0.zip(pair.1).map(|(bare, through)| of(bare, through)))
    };
    let measured = [
        ("goodput_mbps", value(mbps)),
        ("bare_goodput_mbps", value(bare_mbps)),
        ("goodput_over_bare", over((bare_mbps, mbps), |bare, through| through / bare)),
        ("rtt_us", value(median(us))),
        ("bare_rtt_us", value(median(bare_us))),
        ("rtt_over_bare_us", over((median(bare_us), median(us)), |bare, through| through - bare)),
        ("overhead_bytes", value(median(&tale.overhead_bytes))),
        ("lost_packets", json!(tale.lost)),
        ("checksum_ok", json!(tale.intact)),
    ];
    let bare = values([("goodput_mbps", value(bare_mbps)), ("rtt_us", value(median(bare_us)))]);
    Ok(Outcome {
        measured: values(measured),
        samples: BTreeMap::from([
            ("bare_rtt_us".to_owned(), bare_us.clone()),
            ("rtt_us".to_owned(), us.clone()),
        ]),
        baseline: Baseline::Measured(BTreeMap::from([("bare".to_owned(), bare)])),
        lateness: None,
    })
}

/// `roam-client`.
pub(super) fn roam_client(
    seed: u64,
    link: &LinkConfig,
    plan: &RoamPlan,
) -> anyhow::Result<Outcome> {
    let tale = world::roam_client(seed, link, plan)?;
    let (download_still_ms, transfer_s) = tale.download.unzip();
    let (known_still_ms, known_lost) = tale.known_link.unzip();
    let measured = [
        ("rtt_ms", value(median(&tale.round_trips_ms))),
        ("still_ms_median", value(median(&tale.still_ms))),
        ("still_ms_max", value(max(&tale.still_ms))),
        ("resumption_ms", value(median(&tale.resumption_ms))),
        ("signalling_ms", value(median(&tale.signalling_ms))),
        ("lost_packets", json!(tale.lost)),
        ("idle_still_ms", value(median(&tale.idle_still_ms))),
        ("download_still_ms", value(download_still_ms)),
        ("transfer_s", value(transfer_s)),
        ("checksum_ok", json!(tale.download.is_some())),
        ("known_link_still_ms", value(known_still_ms)),
        ("known_link_lost", json!(known_lost)),
    ];
    let samples = [
        ("still_ms", tale.still_ms),
        ("resumption_ms", tale.resumption_ms),
        ("idle_still_ms", tale.idle_still_ms),
    ];
    Ok(Outcome {
        measured: values(measured),
        samples: samples.into_iter().map(|(key, all)| (key.to_owned(), all)).collect(),
        baseline: Baseline::None("another program does not run in virtual time".to_owned()),
        lateness: None,
    })
}

fn values<const N: usize>(pairs: [(&str, Value); N]) -> Values {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn value(number: Option<f64>) -> Value {
    json!(number.map(rounded))
}
