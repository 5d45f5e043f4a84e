//! `busy-sessions`: many sessions one after another over two fast links that lose a little, each
//! with one download.
//!
//! Two of 45 such sessions on a busy machine once had the rate that plain TCP has at this loss, as
//! if nothing were repaired. A mean hides that, so the figure is the worst session of all. The
//! client restarts for each session. `--set busy=equal` keeps the machines busy.

use super::links::CONGESTION;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::stage::Story;
use super::statistics::median;
use super::table::{self, Row, TABLE, figure, least};
use super::{About, Key, Outcome, Scenario, Stage};
use crate::arrivals::Gap;
use crate::emu::{LinkConfig, Loss, MS, SECOND};
use crate::ground::{Congestion, Connections, Ground, Mode, Receiver, Terrain, Transfer, Trouble};
use serde_json::Value;

/// The links: Mbit/s, and milliseconds of round trip.
const LINKS: [(u64, u64); 2] = [(300, 10), (80, 30)];
/// The part of the packets that each loses each way.
const LOSS: f64 = 0.005;
/// Payload in a byte of layer 3 on a link: 1,368 of an inner packet of 1,420 and 60 around it.
const PAYLOAD: f64 = 1_368.0 / 1_480.0;
/// The least share of the sum in any session.
const SHARE_MIN: f64 = 0.5;
/// The beginning of a download that does not count, because its sender still searches for the rate.
const FIRST_NS: u64 = 3 * SECOND;
/// How long the client may take to start.
const START_NS: u64 = 10 * SECOND;

/// The column of the share.
const SHARE: &str = "share_of_sum";
/// The settings.
const SETTINGS: &[Setting] = &[
    CONGESTION,
    Setting::number("sessions", 5, (1, 200), "how often the client restarts and downloads"),
    Setting::number("seconds", 8, (4, 60), "how long each download is carried"),
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("share_of_sum_min"),
    Key::higher_is_better("share_of_sum_median"),
    Key::must_hold("checksum_ok"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct BusySessions;

impl Scenario for BusySessions {
    fn about(&self) -> About {
        About {
            name: "busy-sessions",
            summary: "a new session for each download, over two fast links that lose a little",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::at_least("share_of_sum_min", SHARE_MIN), Limit::equal("checksum_ok", true)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        100.0
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let (mut rows, mut intact) = (Vec::new(), true);
        let story: Story<'_> = &mut |ground: &mut dyn Ground, _| -> Result<(), Trouble> {
            for session in 0..sessions(stage) {
                let transfer = download(stage, ground)?;
                intact &= transfer.intact;
                let row = row(stage, session, &transfer);
                (stage.tell)(&table::line(&row));
                rows.push(Value::Object(row));
            }
            Ok(())
        };
        let mut outcome = stage.on_ground(&terrain(stage), story)?;
        outcome.measure("share_of_sum_min", least(&rows, SHARE));
        let shares = rows.iter().map(|row| row[SHARE].as_f64()).collect::<Option<Vec<_>>>();
        outcome.measure("share_of_sum_median", shares.as_deref().and_then(median));
        outcome.hold("checksum_ok", intact);
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        Ok(outcome)
    }
}

/// The number of sessions; a control needs one.
fn sessions(stage: &Stage<'_>) -> u64 {
    if stage.control() { 1 } else { stage.settings.number("sessions") }
}

fn terrain(stage: &Stage<'_>) -> Terrain {
    let link = |(mbps, ms): (u64, u64)| {
        LinkConfig::lossless(mbps * 1_000_000, ms * MS).loss(Loss::Bernoulli(LOSS))
    };
    // A control has one link only, and there nothing is repaired: the rate of plain TCP.
    let mode = if stage.control() { Mode::Single } else { Mode::Full };
    let [first, second] = LINKS.map(link);
    Terrain { beside: vec![second], mode, ..Terrain::of(first) }
}

/// A client starts and downloads.
fn download(stage: &Stage<'_>, ground: &mut dyn Ground) -> Result<Transfer, Trouble> {
    ground.begin_anew(START_NS)?;
    let length_ns = stage.settings.number("seconds") * SECOND;
    let bulk = Connections::outlasting(Receiver::Client, sum_mbps(), length_ns);
    let kind = Connections { congestion: congestion(stage), ..bulk };
    let longest_ns = length_ns + Connections::OPENING_NS;
    Ok(Transfer::together(ground.connect(&[kind], longest_ns, &[])?.concat()))
}

/// The congestion control of the downloads: CUBIC unless another one is asked for.
fn congestion(stage: &Stage<'_>) -> Congestion {
    let asked = stage.settings.text(CONGESTION.key);
    let all = [Congestion::Cubic, Congestion::Bbr, Congestion::Reno];
    all.into_iter().find(|one| one.name() == asked).unwrap_or(Congestion::Cubic)
}

fn sum_mbps() -> u64 {
    LINKS.iter().map(|(mbps, _)| mbps).sum()
}

fn row(stage: &Stage<'_>, session: u64, transfer: &Transfer) -> Row {
    let mbps = transfer.mbps_within(FIRST_NS, stage.settings.number("seconds") * SECOND);
    let pause_ns = Gap::longest_within(&transfer.gaps, transfer.start_ns, transfer.end_ns);
    table::row([
        ("session", session.to_string().into()),
        ("goodput_mbps", figure(mbps)),
        ("longest_pause_ms", figure(Some(pause_ns as f64 / MS as f64))),
        (SHARE, figure(mbps.map(|mbps| mbps / (sum_mbps() as f64 * PAYLOAD)))),
    ])
}
