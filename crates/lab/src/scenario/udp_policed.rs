//! `udp-policed`: a network drops UDP beyond a rate and leaves TCP alone, as some providers and
//! hotels do. One connection runs through the tunnel in mode `full`; a TCP path must take over.
//!
//! Its rate is compared with the same connection where UDP is blocked, so that TCP carries from the
//! start. In the last cells there is no policer, but the link is a radio that loses datagrams at
//! random. TCP carries less there, so UDP must stay. Their goodput has no bound: one connection
//! over such a radio differs by half between seeds.

use super::deploy::{Deployment, Setup, Streams};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::stage::USUALLY;
use super::table::{self, Row, TABLE, figure, least};
use super::{About, CALM_NS, Grid, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, Loss, MS, Policer, SECOND};
use crate::ground::{
    Act, Blockade, Connections, Edge, Ground, Mode, Receiver, Terrain, Transfer, Transport, Trouble,
};
use crate::world::StreamsKnown;
use serde_json::Value;

/// The link, in bits per second and nanoseconds of round trip.
const LINK: (u64, u64) = (25_000_000, 40 * MS);
/// The rate of UDP on it.
const POLICER: Policer = Policer { bits_per_second: 1_000_000, burst_bytes: 30_000 };
/// Loss of the radio in each direction.
const RADIO: Loss = Loss::Bernoulli(0.1);
/// When the transfer must have TCP's rate,
const REACHED_NS: u64 = 10 * SECOND;
/// and when it ends.
const END_NS: u64 = 16 * SECOND;
/// The share of TCP's goodput over a policed link.
const SHARE_MIN: f64 = 0.9;

/// The network's treatment of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// It drops UDP beyond a rate.
    Policed,
    /// It loses datagrams at random, and segments as well.
    Radio,
}

/// A network, the links of its client, and one transfer.
#[derive(Clone, Copy, Debug)]
struct Cell {
    weather: Weather,
    links: usize,
    to: Receiver,
}

/// The column of the share.
const SHARE: &str = "policed_share";
/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::choice("network", &["grid", "policed", "radio"], "what happens to UDP"),
    Setting::choice("transfer", &["grid", "down", "up"], "to the client, or from it"),
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("policed_share_min"),
    Key::must_hold("checksum_ok"),
    Key::must_hold("transports_ok"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct UdpPoliced;

impl Scenario for UdpPoliced {
    fn about(&self) -> About {
        About {
            name: "udp-policed",
            summary: "a network limits UDP and not TCP: a TCP path takes over",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::equal("checksum_ok", true), Limit::equal("transports_ok", true)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        100.0
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let (mut rows, mut intact, mut expected) = (Vec::new(), true, true);
        for cell in cells(stage) {
            let streams = if stage.control() { StreamsKnown::None } else { StreamsKnown::Direct };
            let (told, by) = cell.tell(stage, streams, None, &mut outcome)?;
            let mut row = cell.row(&told, by);
            intact &= told.intact;
            if cell.weather == Weather::Policed {
                let no_udp = Some(Blockade::NoUdp);
                let (measure, _) = cell.tell(stage, StreamsKnown::Direct, no_udp, &mut outcome)?;
                intact &= measure.intact;
                compare(&mut row, &told, &measure);
            }
            expected &= cell.is_wanted(by);
            (stage.tell)(&table::line(&row));
            rows.push(Value::Object(row));
        }
        if rows.iter().any(|row| row.get(SHARE).is_some()) {
            outcome.measure("policed_share_min", least(&rows, SHARE));
            outcome.ask(Limit::at_least("policed_share_min", SHARE_MIN));
        } else {
            outcome.skip("policed_share_min", "no policed network was asked for");
        }
        outcome.hold("checksum_ok", intact);
        outcome.hold("transports_ok", expected);
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        Ok(outcome)
    }
}

/// The cells to run: in the default grid those that represent the others; a control needs one.
fn cells(stage: &Stage<'_>) -> Vec<Cell> {
    let settings = stage.settings;
    let (down, up) = (Receiver::Client, Receiver::Server);
    let mut all = Vec::new();
    for weather in [Weather::Policed, Weather::Radio] {
        for links in [1, 2] {
            all.extend([down, up].map(|to| Cell { weather, links, to }));
        }
    }
    let is = |key: &str, word: &str| ["grid", word].contains(&settings.text(key));
    all.retain(|cell| is("network", cell.network()) && is("transfer", cell.way()));
    if stage.grid == Grid::Default {
        all.retain(|cell| cell.links == 1);
    }
    all.truncate(if stage.control() { 1 } else { usize::MAX });
    all
}

impl Cell {
    const fn network(self) -> &'static str {
        match self.weather {
            Weather::Policed => "policed",
            Weather::Radio => "radio",
        }
    }

    const fn way(self) -> &'static str {
        match self.to {
            Receiver::Client => "down",
            Receiver::Server => "up",
        }
    }

    /// Whether this transport should carry in the end.
    fn is_wanted(self, by: Option<Transport>) -> bool {
        let is_udp = by == Some(Transport::Udp);
        by.is_some() && is_udp == (self.weather == Weather::Radio)
    }

    fn terrain(self) -> Terrain {
        let usual = LinkConfig::lossless(LINK.0, LINK.1);
        let link = match self.weather {
            Weather::Policed => usual.policed(POLICER),
            Weather::Radio => usual.loss(RADIO),
        };
        let beside = vec![link.clone(); self.links - 1];
        Terrain { beside, mode: Mode::Full, edge: Edge::Open, ..Terrain::of(link) }
    }

    /// One transfer, and the transport at its end.
    fn tell(
        self,
        stage: &Stage<'_>,
        streams: StreamsKnown,
        blockade: Option<Blockade>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<(Transfer, Option<Transport>)> {
        let mut told = (Transfer::default(), None);
        let mut story = |ground: &mut dyn Ground, _: &mut Outcome| -> Result<(), Trouble> {
            if let Some(blockade) = blockade {
                ground.act(Act::Block(blockade))?;
            }
            ground.begin_anew(10 * SECOND)?; // streams are known from the start of a client
            ground.pause(CALM_NS)?;
            let mbps = LINK.0 / 1_000_000 * self.links as u64;
            let bulk = Connections::outlasting(self.to, mbps, END_NS);
            let longest_ns = END_NS + Connections::OPENING_NS;
            let transfer = ground.connect(&[bulk], longest_ns, &[])?.concat().pop();
            told = (transfer.unwrap_or_default(), ground.transport()?);
            Ok(())
        };
        let terrain = self.terrain();
        outcome.absorb(match stage.entered {
            Some(entered) => {
                let known =
                    if streams == StreamsKnown::None { Streams::Off } else { Streams::Usual };
                let setup = Setup { streams: known, ..Setup::default() };
                let deploy = |testbed: &_| Deployment::start_with(testbed, stage.rove, &setup);
                stage.on_hosts(entered, &terrain, &deploy, &mut story)?
            }
            None => stage.in_virtual_time(&terrain, streams, USUALLY, &mut story)?,
        });
        Ok(told)
    }

    fn row(self, told: &Transfer, by: Option<Transport>) -> Row {
        let by = by.map_or("nothing", |by| if by == Transport::Udp { "udp" } else { "tcp" });
        let mut row = table::row([
            ("network", self.network().into()),
            ("links", self.links.into()),
            ("transfer", self.way().into()),
            ("by", by.into()),
        ]);
        row.insert("goodput_mbps".to_owned(), figure(late(told)));
        row
    }
}

/// The goodput when TCP must have taken over.
fn late(one: &Transfer) -> Option<f64> {
    one.mbps_within(REACHED_NS, END_NS)
}

/// Notes the rate of TCP from the start, and the share of that.
fn compare(row: &mut Row, told: &Transfer, measure: &Transfer) {
    let share = late(told).zip(late(measure)).map(|(ours, theirs)| ours / theirs);
    row.insert("measure_mbps".to_owned(), figure(late(measure)));
    row.insert(SHARE.to_owned(), figure(share));
}
