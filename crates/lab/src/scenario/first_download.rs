//! `first-download`: a client starts and downloads at once, over a steady link and a mobile modem
//! with a buffer of seconds (bufferbloat).
//!
//! Other scenarios skip the first seconds of a transfer, in which its sender searches for the rate.
//! Here only these count: a search that overshoots fills the modem's buffer, and the losses and the
//! delay of that must not cost the steady link's rate. The figure is the goodput divided by the
//! capacity of both links in this time.

use super::links::{CONGESTION, GRID};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::stage::Story;
use super::table::{self, Row, TABLE, figure, least};
use super::{About, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, MS, SECOND};
use crate::ground::{Congestion, Connections, Ground, Mode, Receiver, Terrain, Transfer, Trouble};
use serde_json::Value;

/// The steady link, in Mbit/s and milliseconds of round trip.
const STEADY: (u64, u64) = (10, 30);
/// The modem's round trip without a queue, and its jitter, in milliseconds.
const MODEM_MS: (u64, u64) = (60, 8);
/// The modems: rate in Mbit/s, and length of the buffer in milliseconds.
const MODEMS: &[(&str, u64, u64)] =
    &[("4/1000", 4, 1_000), ("4/3000", 4, 3_000), ("10/2000", 10, 2_000)];
/// Payload in a byte of layer 3 on a link: 1,368 of an inner packet of 1,420 and 60 around it.
const PAYLOAD: f64 = 1_368.0 / 1_480.0;
/// The least share in any cell.
const SHARE_MIN: f64 = 0.9;
/// How long the client may take to start.
const START_NS: u64 = 10 * SECOND;

/// The column of the share.
const SHARE: &str = "share_of_sum";
/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::choice(
        "modem",
        &[GRID, "4/1000", "4/3000", "10/2000"],
        "the modem's Mbit/s and the milliseconds of its buffer",
    ),
    CONGESTION,
    Setting::number("seconds", 12, (4, 60), "how long the download is carried"),
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("share_of_sum_min"),
    Key::must_hold("checksum_ok"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct FirstDownload;

/// A modem and the congestion control of the download.
#[derive(Clone, Copy, Debug)]
struct Cell {
    modem: (&'static str, u64, u64),
    congestion: Congestion,
}

impl Scenario for FirstDownload {
    fn about(&self) -> About {
        About {
            name: "first-download",
            summary: "the first seconds of a session, over a steady link and a bloated modem",
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
        let mut outcome = Outcome::default();
        let (mut rows, mut intact) = (Vec::new(), true);
        for cell in cells(stage) {
            let transfer = cell.tell(stage, &mut outcome)?;
            intact &= transfer.intact;
            let row = cell.row(stage, &transfer);
            (stage.tell)(&table::line(&row));
            rows.push(Value::Object(row));
        }
        outcome.measure("share_of_sum_min", least(&rows, SHARE));
        outcome.hold("checksum_ok", intact);
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        Ok(outcome)
    }
}

/// The cells to run; a control needs one.
fn cells(stage: &Stage<'_>) -> Vec<Cell> {
    let settings = stage.settings;
    let is = |key: &str, word: &str| [GRID, word].contains(&settings.text(key));
    let mut all = Vec::new();
    for &modem in MODEMS.iter().filter(|modem| is("modem", modem.0)) {
        let controls = [Congestion::Cubic, Congestion::Bbr, Congestion::Reno];
        let asked = controls.into_iter().filter(|one| is(CONGESTION.key, one.name()));
        let count = if settings.text(CONGESTION.key) == GRID { 2 } else { 1 };
        all.extend(asked.take(count).map(|congestion| Cell { modem, congestion }));
    }
    all.truncate(if stage.control() { 1 } else { usize::MAX });
    all
}

impl Cell {
    fn terrain(self, stage: &Stage<'_>) -> Terrain {
        let (_, mbps, queue_ms) = self.modem;
        let steady = LinkConfig::lossless(STEADY.0 * 1_000_000, STEADY.1 * MS);
        let modem = LinkConfig::lossless(mbps * 1_000_000, MODEM_MS.0 * MS).queue_ms(queue_ms);
        // A control has one link only: the session cannot have the rate of both.
        let mode = if stage.control() { Mode::Single } else { Mode::Full };
        let beside = vec![modem.jitter(MODEM_MS.1 * MS)];
        Terrain { beside, mode, ..Terrain::of(steady) }
    }

    /// A client starts and downloads.
    fn tell(self, stage: &Stage<'_>, outcome: &mut Outcome) -> anyhow::Result<Transfer> {
        let length_ns = stage.settings.number("seconds") * SECOND;
        let mut transfer = Transfer::default();
        let story: Story<'_> = &mut |ground: &mut dyn Ground, _| -> Result<(), Trouble> {
            ground.begin_anew(START_NS)?;
            let bulk =
                Connections::outlasting(Receiver::Client, STEADY.0 + self.modem.1, length_ns);
            let kind = Connections { congestion: self.congestion, ..bulk };
            let longest_ns = length_ns + Connections::OPENING_NS;
            transfer = Transfer::together(ground.connect(&[kind], longest_ns, &[])?.concat());
            Ok(())
        };
        let told = stage.on_ground(&self.terrain(stage), story)?;
        outcome.absorb(told);
        Ok(transfer)
    }

    fn row(self, stage: &Stage<'_>, transfer: &Transfer) -> Row {
        let sum_mbps = (STEADY.0 + self.modem.1) as f64 * PAYLOAD;
        let mbps = transfer.mbps_within(0, stage.settings.number("seconds") * SECOND);
        table::row([
            ("modem", self.modem.0.into()),
            ("cc", self.congestion.name().into()),
            ("goodput_mbps", figure(mbps)),
            (SHARE, figure(mbps.map(|mbps| mbps / sum_mbps))),
        ])
    }
}
