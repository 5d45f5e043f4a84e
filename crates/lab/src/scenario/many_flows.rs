//! `many-flows`: hundreds of connections are suspended and resumed at once.
//!
//! Half of them send to the client, half to the server, each a little every half second, so that
//! the link has room for all. Measured is the time until each of them carries again after an
//! outage. The packets that waited for the link have to pass it first, and that time is allowed.

use super::outage::{BASELINE, BY, MODE, Outages, acts, over_outages, restart_ms};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, median};
use super::{About, FAMILY, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{MS, SECOND};
use crate::ground::{Connections, Ground, Pace, Receiver, Transfer, Trouble};

/// When the outage begins, after the connections were opened.
const BEGINS_NS: u64 = 4 * SECOND;
/// How long the connections continue after it.
const AFTERWARDS_NS: u64 = 4 * SECOND;
/// Bytes that each sends at a time.
const PIECE_BYTES: u32 = 100;
/// Time between two pieces.
const PIECE_NS: u64 = 500 * MS;
/// Bytes around each piece, at most: those of the tunnel, and IP and TCP headers twice.
const HEADERS: u64 = 120;
/// How long a connection may be silent after the outage before it counts as dead, in multiples of
/// the outage; and at least this long.
const SILENCE: (u64, u64) = (2, 20 * SECOND);
/// How long a control continues after the link is gone for good.
const CONTROL_NS: u64 = 6 * SECOND;

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    BY,
    Setting::number("connections", 500, (2, 2_000), "how many at once; half of them each way"),
    Setting::number("seconds", 10, (1, 600), "how long the link is gone"),
    BASELINE,
    FAMILY,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("connections"),
    Key::higher_is_better("survived"),
    Key::lower_is_better("restart_ms_median"),
    Key::lower_is_better("restart_ms_max"),
    Key::lower_is_better("held_bytes_max"),
    Key::must_hold("checksum_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct ManyFlows;

impl Scenario for ManyFlows {
    fn about(&self) -> About {
        About {
            name: "many-flows",
            summary: "500 connections are suspended and resumed at once",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        vec![
            Limit::at_least("survived", each_way(settings) * 2),
            Limit::equal("checksum_ok", true),
            Limit::at_most("restart_ms_max", allowed_ms(settings)),
        ]
    }

    fn bound_ms(&self, settings: &Settings) -> f64 {
        allowed_ms(settings)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let terrain = USUAL.terrain();
        let mut story =
            |ground: &mut dyn Ground, outcome: &mut Outcome| tell(ground, stage, outcome);
        over_outages(stage, &terrain, &mut story)
    }
}

fn each_way(settings: &Settings) -> u64 {
    settings.number("connections") / 2
}

/// The longest restart of the last of them: that of any restart, and the time in which the link
/// carries the waiting packets, one by one at worst.
fn allowed_ms(settings: &Settings) -> f64 {
    let pieces = (settings.number("seconds") * SECOND).div_ceil(PIECE_NS) * each_way(settings);
    let bits = pieces * (u64::from(PIECE_BYTES) + HEADERS) * 8;
    restart_ms(&USUAL) + (bits * 1_000 / USUAL.rate) as f64
}

/// The run.
fn tell(ground: &mut dyn Ground, stage: &Stage<'_>, outcome: &mut Outcome) -> Result<(), Trouble> {
    let settings = stage.settings;
    let length_ns = settings.number("seconds") * SECOND;
    (stage.tell)(&format!("{} connections, and an outage", each_way(settings) * 2));
    let outage = Outages::one(BEGINS_NS, length_ns);
    let script = outage.script(acts(settings), stage);
    let (shares, least_ns) = SILENCE;
    let speaking_ns = BEGINS_NS + length_ns + AFTERWARDS_NS;
    let limit_ns = match stage.control() {
        true => BEGINS_NS + CONTROL_NS,
        false => speaking_ns + least_ns.max(shares * length_ns),
    };
    let kind = |to: Receiver| Connections {
        count: each_way(settings) as u32,
        pace: Pace::Pieces { bytes: PIECE_BYTES, every_ns: PIECE_NS },
        ..Connections::bulk(to, speaking_ns / PIECE_NS * u64::from(PIECE_BYTES))
    };
    let kinds = [kind(Receiver::Client), kind(Receiver::Server)];
    let transfers = ground.connect(&kinds, limit_ns, &script)?.concat();
    let restart: Vec<f64> = transfers.iter().flat_map(Transfer::restart_ms).collect();
    let held = ground.held_bytes_max()?;
    outcome.count("connections", transfers.len() as u64);
    outcome.count("survived", transfers.iter().filter(|one| one.complete).count() as u64);
    outcome.measure("restart_ms_median", median(&restart));
    outcome.measure("restart_ms_max", max(&restart));
    outcome.measure("held_bytes_max", held.map(|bytes| bytes as f64));
    outcome.hold("checksum_ok", transfers.iter().all(|one| one.intact));
    outcome.sample("restart_ms", restart);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{SETTINGS, allowed_ms};
    use crate::scenario::settings::Settings;

    #[test]
    fn what_waited_may_pass_the_link_first() {
        let allowed = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            allowed_ms(&Settings::parse(SETTINGS, &texts).unwrap())
        };
        // 250 x 20 pieces of 220 bytes at 20 Mbit/s, and 40 ms and 20 ms.
        assert_eq!(allowed(&[]), 440.0 + 60.0);
        assert_eq!(allowed(&["connections=2", "seconds=1"]), 60.0);
    }
}
