//! `lossy-uplink`: an upload over two links. One of them loses half of the client's packets and
//! none of those to the client, as a radio at the edge of its range does. The upload must have at
//! least 0.9 of the rate of the sound link alone, which carries the same upload in another run.
//!
//! The lossy link may be the nearer one, so that repairs seem to arrive there first. In a control
//! both links lose.

use super::links::{CONGESTION, GRID};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::stage::Story;
use super::table::{self, Row, TABLE, figure, least};
use super::{About, CALM_NS, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, Loss, MS, SECOND};
use crate::ground::{Congestion, Connections, Ground, Mode, Receiver, Terrain, Transfer, Trouble};
use serde_json::Value;

/// A link: Mbit/s and milliseconds of round trip.
type Link = (u64, u64);
/// The pairs by their names: the sound link and the lossy one.
const PAIRS: &[(&str, Link, Link)] =
    &[("10/30+10/30", (10, 30), (10, 30)), ("10/60+40/20", (10, 60), (40, 20))];
/// The least share of the sound link's rate alone.
const SHARE_MIN: f64 = 0.9;
/// The beginning of a transfer that does not count.
const FIRST_NS: u64 = 2 * SECOND;

/// The column of the share.
const SHARE: &str = "share_of_sound";
/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::choice(
        "pair",
        &[GRID, "10/30+10/30", "10/60+40/20"],
        "the sound link and the lossy one: Mbit/s and milliseconds of round trip",
    ),
    Setting::choice("transfer", &["up", "down"], "from the client, or to it"),
    Setting::number("loss", 50, (1, 99), "what the lossy link loses upwards, in per cent"),
    CONGESTION,
    Setting::number("seconds", 15, (4, 60), "how long the upload is carried"),
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("share_of_sound_min"),
    Key::must_hold("checksum_ok"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct LossyUplink;

/// Two links and the congestion control of the upload.
#[derive(Clone, Copy, Debug)]
struct Cell {
    name: &'static str,
    sound: Link,
    lossy: Link,
    congestion: Congestion,
}

impl Scenario for LossyUplink {
    fn about(&self) -> About {
        About {
            name: "lossy-uplink",
            summary: "an upload over two links, of which one loses half upwards",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::at_least("share_of_sound_min", SHARE_MIN), Limit::equal("checksum_ok", true)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        100.0
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let (mut rows, mut intact) = (Vec::new(), true);
        for cell in cells(stage) {
            let alone = Terrain { mode: Mode::Full, ..Terrain::of(link(cell.sound)) };
            let measure = cell.tell(stage, &alone, &mut outcome)?;
            let told = cell.tell(stage, &cell.terrain(stage), &mut outcome)?;
            intact &= told.intact && measure.intact;
            let row = cell.row(stage, &told, &measure);
            (stage.tell)(&table::line(&row));
            rows.push(Value::Object(row));
        }
        outcome.measure("share_of_sound_min", least(&rows, SHARE));
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
    for &(name, sound, lossy) in PAIRS.iter().filter(|pair| is("pair", pair.0)) {
        let controls = [Congestion::Cubic, Congestion::Bbr, Congestion::Reno];
        let asked = controls.into_iter().filter(|one| is(CONGESTION.key, one.name()));
        let count = if settings.text(CONGESTION.key) == GRID { 2 } else { 1 };
        let of = |congestion| Cell { name, sound, lossy, congestion };
        all.extend(asked.take(count).map(of));
    }
    all.truncate(if stage.control() { 1 } else { usize::MAX });
    all
}

fn link((mbps, trip_ms): Link) -> LinkConfig {
    LinkConfig::lossless(mbps * 1_000_000, trip_ms * MS)
}

impl Cell {
    fn terrain(self, stage: &Stage<'_>) -> Terrain {
        let part = stage.settings.number("loss") as f64 / 100.0;
        let (mut sound, mut lossy) = (link(self.sound), link(self.lossy));
        lossy.up.loss = Loss::Bernoulli(part);
        if stage.control() {
            sound.up.loss = Loss::Bernoulli(part);
        }
        Terrain { beside: vec![lossy], mode: Mode::Full, ..Terrain::of(sound) }
    }

    /// One transfer.
    fn tell(
        self,
        stage: &Stage<'_>,
        terrain: &Terrain,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Transfer> {
        let length_ns = stage.settings.number("seconds") * SECOND;
        let mut transfer = Transfer::default();
        let story: Story<'_> = &mut |ground: &mut dyn Ground, _| -> Result<(), Trouble> {
            ground.pause(CALM_NS)?;
            let mbps = self.sound.0 + self.lossy.0;
            let is_down = stage.settings.text("transfer") == "down";
            let to = if is_down { Receiver::Client } else { Receiver::Server };
            let bulk = Connections::outlasting(to, mbps, length_ns);
            let kind = Connections { congestion: self.congestion, ..bulk };
            let longest_ns = length_ns + Connections::OPENING_NS;
            transfer = Transfer::together(ground.connect(&[kind], longest_ns, &[])?.concat());
            Ok(())
        };
        let told = stage.on_ground(terrain, story)?;
        outcome.absorb(told);
        Ok(transfer)
    }

    fn row(self, stage: &Stage<'_>, told: &Transfer, measure: &Transfer) -> Row {
        let length_ns = stage.settings.number("seconds") * SECOND;
        let [ours, alone] = [told, measure].map(|one| one.mbps_within(FIRST_NS, length_ns));
        table::row([
            ("pair", self.name.into()),
            ("cc", self.congestion.name().into()),
            ("goodput_mbps", figure(ours)),
            ("sound_mbps", figure(alone)),
            (SHARE, figure(ours.zip(alone).map(|(ours, alone)| ours / alone))),
        ])
    }
}
