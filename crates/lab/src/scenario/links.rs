//! Several links as one: what the stories of bonding have in common.
//!
//! A cell is a pair of links, what they lose, and the congestion control inside the tunnel. In each
//! one connection is carried over both links together, one by Rove with the better of them alone,
//! and the thesis' file over both and over one bare link that is as fast as they are together.
//!
//! Decides what is measured in a cell and what must hold in all of them. Knows no pair.

mod alone;
mod carried;
mod compared;
mod judged;
mod link;
mod measured;

use super::deploy::Deployment;
use super::outage::receiver;
use super::settings::{Setting, Settings};
use super::stage::{Story, USUALLY};
use super::statistics::min;
use super::table::{self, TABLE, figure, least};
use super::{Baseline, CALM_NS, Grid, Key, Outcome, Stage, feedback};
use crate::emu::{Loss, MS, SECOND};
use crate::ground::{
    Assist, Congestion, Connections, Ground, Known, Mode, Receiver, Route, SCHEDULERS, Spread,
    TRANSPORTS, Terrain, Transfer, Trouble,
};
use crate::world::StreamsKnown;
use alone::Alone;
use carried::Goodput;
pub(super) use carried::{Carried, FLOW};
pub(super) use compared::{COMPARE, why_missing};
pub(super) use judged::{
    OFFERED_SHARE_LEAST, OFFERED_SHARE_LOSSY_LEAST, RECORDED_FEEDBACK_MOST, adds_up, limits,
};
pub(super) use link::{Link, is_recorded, name};
use measured::{Measured, OTHERS_SHARE};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The beginning of a transfer that does not count: its sender still finds out what there is.
const FIRST_NS: u64 = 5 * SECOND;
/// The file of Lukaszewski's thesis, in bytes.
const FILE_BYTES: u64 = 16_331_410;
/// How long it may take.
const FILE_LIMIT_NS: u64 = 900 * SECOND;
/// The longest inner packet, in bytes: the MTU of the tunnel's interface, here and in the world.
const INNER_BYTES: f64 = 1_420.0;
/// What of it is no payload: IPv4, TCP, and the time stamps of both.
const INNER_HEADERS: f64 = 52.0;

/// What a dimension of the grid is called that nobody has chosen from.
pub(super) const GRID: &str = "grid";
/// The setting of the mode.
pub(super) const MODE: Setting = Setting::choice(
    "mode",
    &["full", "backup", "single"],
    "what the client makes of its links: all carry, one does, one does and no other is prepared",
);
/// The setting of the scheduler.
pub(super) const SCHEDULER: Setting = Setting::choice(
    "scheduler",
    SCHEDULERS,
    "how client and gateway choose among links that carry together",
);
/// The setting of what carries datagrams.
pub(super) const TRANSPORT: Setting = Setting::choice(
    "transport",
    TRANSPORTS,
    "what carries datagrams by both links; by the better one alone it is the usual",
);
/// The setting of what is acknowledged at the entry.
pub(super) const ASSIST: Setting = Setting::choice(
    "assist",
    &["on", "off"],
    "whether what is sent is acknowledged where it enters the tunnel, and delivered from there",
);
/// The setting of what is put in sequence.
pub(super) const REORDER: Setting = Setting::choice(
    "reorder",
    &["on", "off"],
    "whether what came by several links is delivered in sequence; off in virtual time only",
);
/// The setting of the receiver.
pub(super) const TRANSFER: Setting =
    Setting::choice("transfer", &["down", "up"], "to the client, or from it");
/// The setting of the congestion control; in the default grid it is CUBIC.
pub(super) const CONGESTION: Setting =
    Setting::choice("cc", &[GRID, "cubic", "reno", "bbr"], "congestion control of both ends");
/// The setting of the length.
pub(super) const SECONDS: Setting =
    Setting::number("seconds", 30, (6, 600), "how long each connection is carried");
/// The setting of how many there are.
pub(super) const FLOWS: Setting = Setting::number(
    "flows",
    1,
    (1, 16),
    "how many TCP connections share the links, whose goodput is added up; of QUIC, datagrams and \
     the file there is one",
);

/// The setting of the file.
pub(super) const FILE: Setting = Setting::number(
    "megabytes",
    0,
    (0, 2_000),
    "another size of the file beside; 0 for the 16,331,410 bytes of the thesis",
);

/// What is measured at least, of TCP.
pub(super) const KEYS: &[Key] = &[
    Key::higher_is_better("share_of_sum_min"),
    Key::higher_is_better("share_of_best_min"),
    Key::higher_is_better("file_share_min"),
    Key::lower_is_better(feedback::MOST),
    Key::lower_is_better(judged::SENT_AGAIN_MOST),
    Key::must_hold("checksum_ok"),
    Key::higher_is_better(TABLE),
];
/// And where others are carried as well.
pub(super) const KEYS_OF_ALL: &[Key] = &Key::with::<{ KEYS.len() + 2 }>(
    KEYS,
    &[Key::higher_is_better(judged::OTHERS_SHARE_LEAST), Key::must_hold(judged::QUEUES)],
);

/// Two of them; the client's first one comes first.
pub(super) type Pair = [Link; 2];

/// The conditions of one transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell<const N: usize = 2> {
    pair: [Link; N],
    /// Who receives.
    to: Receiver,
    known: Known,
    spread: Spread,
    /// What each link loses each way, in words.
    loss: &'static str,
    congestion: Congestion,
    carried: Carried,
}

/// The cells of a scenario whose clients have so many links.
#[derive(Debug)]
pub(super) struct Cells<const N: usize = 2> {
    /// All pairs, or larger sets, that of a control first.
    pub(super) pairs: &'static [[Link; N]],
    /// Who receives, one after the other; none where a setting says it.
    pub(super) to: &'static [Receiver],
    /// How the client knows the gateway.
    pub(super) known: Known,
    /// Which paths carry together.
    pub(super) spreads: &'static [Spread],
    /// What they lose, as [`loss`] knows it, nothing first.
    pub(super) losses: &'static [&'static str],
    /// The cells that stand for all, by places in these lists.
    pub(super) few: &'static [(usize, usize)],
    /// What is carried where nothing is set: in these cells TCP,
    pub(super) carried: &'static [Carried],
    /// and in these the rest;
    pub(super) few_others: &'static [(usize, usize)],
    /// and what else, by another congestion control to the client.
    pub(super) also: &'static [(Carried, Congestion, usize, usize)],
}

/// What the shallowest queue of these pairs holds, in milliseconds: lateness costs no goodput as
/// long as no queue runs empty, or over.
pub(super) fn bound_ms<const N: usize>(pairs: &[[Link; N]]) -> f64 {
    let queue_ms = |link: &Link| {
        let bits = link.config(Loss::None).down.queue_bytes * 8;
        bits as f64 / link.kbps[Receiver::Client as usize] as f64
    };
    min(&pairs.iter().flatten().map(queue_ms).collect::<Vec<_>>()).unwrap_or_default()
}

impl<const N: usize> Cells<N> {
    /// Those to tell of: of what is set only that; for the rest all of the grid, or the first where
    /// the grid is the default. Where nothing is set in the default grid, the few.
    fn told(&self, stage: &Stage<'_>, chosen: &[[Link; N]]) -> Vec<Cell<N>> {
        let settings = stage.settings;
        let full = stage.grid == Grid::Full && !stage.control();
        let loss = self.losses.iter().copied().find(|word| *word == settings.text("loss"));
        let carried = self.carried.iter().find(|one| one.name() == settings.text("flow"));
        let is_chosen = full || stage.control() || !chosen.is_empty() || loss.is_some();
        let conditions: Vec<(Carried, [Link; N], &'static str)> = if is_chosen {
            let all = || some_of(self.pairs, full);
            let pairs = if chosen.is_empty() { all() } else { chosen.to_vec() };
            let losses = loss.map_or_else(|| some_of(self.losses, full), |loss| vec![loss]);
            let carried = carried.map_or_else(|| some_of(self.carried, full), |one| vec![*one]);
            let mut conditions = Vec::new();
            for &one in &carried {
                for &pair in &pairs {
                    conditions.extend(losses.iter().map(|&loss| (one, pair, loss)));
                }
            }
            conditions
        } else {
            let of = |one: Carried| {
                let is_tcp = one == Carried::Tcp;
                let few = if is_tcp || carried.is_some() { self.few } else { self.few_others };
                few.iter().map(move |&(pair, loss)| (one, self.pairs[pair], self.losses[loss]))
            };
            let told = carried.map_or(self.carried, std::slice::from_ref);
            told.iter().copied().flat_map(of).collect()
        };
        let controls = [Congestion::Cubic, Congestion::Reno, Congestion::Bbr];
        let is_few = !is_chosen && carried.is_none() && settings.text(CONGESTION.key) == GRID;
        let one = controls.into_iter().find(|one| one.name() == settings.text("cc"));
        let controls = one.map_or_else(|| some_of(&controls, full), |one| vec![one]);
        let number = settings.number("subflows");
        let is_told = |spread: &&Spread| number == 0 || number == u64::from(spread.subflows);
        let spreads: Vec<Spread> = self.spreads.iter().filter(is_told).copied().collect();
        let spreads = some_of(&spreads, !stage.control());
        let ways = if self.to.is_empty() { vec![receiver(settings)] } else { self.to.to_vec() };
        let mut cells = Vec::new();
        for &(carried, pair, loss) in &conditions {
            // Datagrams by the clock know of no congestion.
            let controls = if carried == Carried::Udp { &controls[..1] } else { &controls };
            for &spread in &spreads {
                for &congestion in controls {
                    let known = self.known;
                    let cell = |&to| Cell { pair, to, known, spread, loss, congestion, carried };
                    cells.extend(ways.iter().map(cell));
                }
            }
        }
        let also = self.also.iter().filter(|_| is_few).map(|&(carried, congestion, at, loss)| {
            let down = Cell::down(self.pairs[at], self.losses[loss], congestion);
            Cell { carried, known: self.known, ..down }
        });
        cells.extend(also);
        cells
    }

    /// Tells the story of each cell, of these links if any are chosen.
    ///
    /// # Errors
    /// What kept one from being told.
    pub(super) fn tell(&self, stage: &Stage<'_>, chosen: &[[Link; N]]) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let (mut rows, mut bare) = (Vec::new(), Vec::new());
        let (mut arrived, mut in_time) = (Vec::new(), Vec::new());
        for cell in self.told(stage, chosen) {
            (stage.tell)(&cell.name());
            let measured = cell.measure(stage, &mut outcome)?;
            let row = measured.row(&cell);
            (stage.tell)(&table::line(&row));
            let alone = figure(measured.bare_file_s);
            if cell.carried == Carried::Tcp {
                bare.push(json!({"pair": name(&cell.pair), "cc": row["cc"], "file_s": alone}));
            }
            rows.push(Value::Object(row));
            arrived.push(measured.is_whole);
            in_time.extend(cell.is_in_time(&measured.datagrams));
        }
        for column in ["share_of_sum", "share_of_best", "file_share"] {
            outcome.measure(&format!("{column}_min"), least(&rows, column));
        }
        outcome.measure(feedback::MOST, table::greatest(&rows, "feedback_percent"));
        judged::besides(&mut outcome, stage.settings, &rows);
        judged::queues(&mut outcome, &in_time);
        outcome.hold("checksum_ok", !arrived.is_empty() && arrived.iter().all(|one| *one));
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        let bare = BTreeMap::from([(TABLE.to_owned(), Value::Array(bare))]);
        let others = compared::openvpn(stage).map(|values| ("openvpn".to_owned(), values));
        let baselines = [("bare".to_owned(), bare)].into_iter().chain(others).collect();
        outcome.baseline = Baseline::Measured(baselines);
        Ok(outcome)
    }
}

/// All of them, or the first.
fn some_of<T: Copy>(all: &[T], every: bool) -> Vec<T> {
    all.iter().copied().take(if every { all.len() } else { 1 }).collect()
}

impl<const N: usize> Cell<N> {
    /// To the client, by one path each to the gateway's only address.
    pub(super) const fn down(pair: [Link; N], loss: &'static str, congestion: Congestion) -> Self {
        let (to, known, spread) = (Receiver::Client, Known::ByAddress, Spread::ONE);
        Self { pair, to, known, spread, loss, congestion, carried: Carried::Tcp }
    }

    /// Whether any of its links loses something by itself.
    fn is_lossy(&self) -> bool {
        self.loss != "0" || self.pair.iter().any(|link| link.loses_ppm > 0)
    }

    fn name(&self) -> String {
        let subflows = match self.spread.subflows {
            1 => String::new(),
            number => format!(", {number} subflows"),
        };
        let carried = match self.carried {
            Carried::Tcp => String::new(),
            other @ (Carried::Quic | Carried::Udp) => format!(", {}", other.name()),
        };
        let (name, congestion) = (name(&self.pair), self.congestion.name());
        format!("{name}, loss {}{subflows}, {congestion}{carried}", self.loss)
    }

    fn measure(&self, stage: &Stage<'_>, outcome: &mut Outcome) -> anyhow::Result<Measured> {
        let mut measured = Measured::default();
        let told = stage.on_ground(&self.terrain(stage), &mut |ground, _| {
            // Until there is a path by every link.
            ground.pause(CALM_NS)?;
            let before = ground.reported(self.to)?;
            let Goodput { mbps, window, run } = self.goodput(stage, ground)?;
            (measured.goodput_mbps, measured.datagrams) = (mbps, run);
            measured.feedback_percent = feedback::percent(&before, &ground.reported(self.to)?);
            ground.pause(CALM_NS)?;
            measured.is_whole = measured.datagrams.transfer.intact;
            measured.broke = measured.datagrams.transfer.broke.clone();
            if self.carried == Carried::Tcp {
                let file = self.carry_file(stage, ground, Route::Tunnelled)?;
                measured.file_s = file.seconds();
                measured.bare_file_s = self.offered_s(file.start_ns, Self::file_bytes(stage));
                measured.is_whole = file.complete && file.intact;
                ground.pause(CALM_NS)?;
            }
            measured.sum_mbps = self.sum_mbps(ground, window)?;
            Ok(())
        })?;
        outcome.absorb(told);
        let Alone { best_mbps, single, broke } = self.alone(stage, outcome)?;
        measured.best_mbps = best_mbps;
        // What ended early or was altered is no measure for others either.
        measured.is_whole &= broke.is_none();
        measured.broke = measured.broke.or(broke);
        if self.carried != Carried::Tcp {
            return Ok(measured);
        }
        measured.compared = self.compare(stage, single, outcome);
        // No bare link is the sum of recorded ones: what they carry differs from moment to moment.
        if is_recorded(self.pair) {
            return Ok(measured);
        }
        outcome.absorb(on_bare_ground(stage, &self.as_one(), &mut |ground, _| {
            let file = self.carry_file(stage, ground, Route::Open)?;
            measured.bare_file_s = file.seconds();
            Ok(())
        })?);
        Ok(measured)
    }

    /// What one connection has by all links, and what they can carry; in Mbit/s.
    ///
    /// # Errors
    /// What kept it from being measured.
    pub(super) fn rates_mbps(
        &self,
        stage: &Stage<'_>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<(Option<f64>, Option<f64>)> {
        let mut rates = (None, None);
        let told = stage.on_ground(&self.terrain(stage), &mut |ground, _| {
            ground.pause(CALM_NS)?;
            let Goodput { mbps, window, .. } = self.goodput(stage, ground)?;
            rates.0 = mbps;
            ground.pause(CALM_NS)?;
            rates.1 = self.sum_mbps(ground, window)?;
            Ok(())
        })?;
        outcome.absorb(told);
        Ok(rates)
    }

    /// All links together.
    fn terrain(&self, stage: &Stage<'_>) -> Terrain {
        let mut links = self.pair.iter().map(|link| link.config(link.loss(self.loss)));
        let usual = Terrain::of(links.next().unwrap_or_default());
        let settings = stage.settings;
        Terrain {
            beside: links.collect(),
            mode: mode(stage),
            scheduler: scheduler(settings),
            transport: transport(settings),
            spread: self.spread,
            assist: assist(settings),
            reorders: settings.text(REORDER.key) != "off",
            known: self.known,
            ..usual
        }
    }

    /// One link without losses, as fast as both together and as near as the nearer one.
    fn as_one(&self) -> Terrain {
        let kbps = [0, 1].map(|way| self.pair.iter().map(|link| link.kbps[way]).sum());
        let round_trip_ms = self.pair.iter().map(|link| link.round_trip_ms).min();
        Terrain::of(Link::of_kbps(kbps, round_trip_ms.unwrap_or_default()).config(Loss::None))
    }

    fn carry_file(
        &self,
        stage: &Stage<'_>,
        ground: &mut dyn Ground,
        route: Route,
    ) -> Result<Transfer, Trouble> {
        let kind = Connections { route, ..self.kind(Self::file_bytes(stage)) };
        Ok(ground.connect(&[kind], FILE_LIMIT_NS, &[])?.concat().pop().unwrap_or_default())
    }

    fn file_bytes(stage: &Stage<'_>) -> u64 {
        match stage.settings.number("megabytes") {
            0 => FILE_BYTES,
            megabytes => megabytes * 1_000_000,
        }
    }

    /// After how many seconds from that moment on both links together have had room for so many
    /// bytes of payload: of recorded ones that is other at any moment.
    fn offered_s(&self, from_ns: u64, bytes: u64) -> Option<f64> {
        let (inner, payload) = self.carried.packet_bytes();
        let bits = bytes as f64 * 8.0 * inner / payload;
        let had = |after_ns: u64| {
            let window = (from_ns, from_ns + after_ns);
            let rate: f64 = self.pair.iter().map(|link| link.mbps_between(self.to, window)).sum();
            rate * after_ns as f64 / 1e3
        };
        let (mut less_ms, mut enough_ms) = (0, FILE_LIMIT_NS / MS);
        if had(enough_ms * MS) < bits {
            return None;
        }
        while less_ms + 1 < enough_ms {
            let half_ms = less_ms.midpoint(enough_ms);
            let is_enough = had(half_ms * MS) >= bits;
            *if is_enough { &mut enough_ms } else { &mut less_ms } = half_ms;
        }
        Some(enough_ms as f64 / 1e3)
    }

    fn kind(&self, length: u64) -> Connections {
        let bulk = Connections::bulk(self.to, length);
        Connections { congestion: self.congestion, ..bulk }
    }

    /// What both links can carry of what is inside at best, by what this tunnel adds to each
    /// packet at least.
    fn sum_mbps(
        &self,
        ground: &mut dyn Ground,
        window: (u64, u64),
    ) -> Result<Option<f64>, Trouble> {
        let payload_share = self.carried.payload_share(ground)?;
        let arrives = |link: &Link| 1.0 - link.loss(self.loss).mean();
        let rates = self.pair.iter().map(|link| link.mbps_between(self.to, window) * arrives(link));
        let carried: f64 = rates.sum();
        Ok(payload_share.map(|share| carried * share))
    }
}

/// What the client makes of its links: in a control, one carries.
pub(super) fn mode(stage: &Stage<'_>) -> Mode {
    match stage.settings.text("mode") {
        _ if stage.control() => Mode::Backup,
        "backup" => Mode::Backup,
        "single" => Mode::Single,
        _ => Mode::Full,
    }
}

/// How the links are chosen among.
fn scheduler(settings: &Settings) -> &'static str {
    let set = settings.text("scheduler");
    SCHEDULERS.iter().find(|&&name| name == set).unwrap_or(&SCHEDULERS[0])
}

/// What carries datagrams; of a scenario without the setting the usual.
fn transport(settings: &Settings) -> &'static str {
    let set = settings.text("transport");
    TRANSPORTS.iter().find(|&&name| name == set).unwrap_or(&TRANSPORTS[0])
}

/// Which connections the tunnel assists.
fn assist(settings: &Settings) -> Assist {
    match settings.text("assist") {
        "off" => Assist::Off,
        _ => Assist::On,
    }
}

/// The pair that a setting names, by how each is called there.
pub(super) fn chosen<const N: usize>(
    settings: &Settings,
    key: &str,
    pairs: &[[Link; N]],
    called: impl Fn(&[Link; N]) -> String,
) -> Option<[Link; N]> {
    pairs.iter().copied().find(|pair| called(pair) == settings.text(key))
}

/// Tells a story that needs no tunnel.
fn on_bare_ground(
    stage: &Stage<'_>,
    terrain: &Terrain,
    story: Story<'_>,
) -> anyhow::Result<Outcome> {
    let Some(entered) = stage.entered else {
        return stage.in_virtual_time(terrain, StreamsKnown::Direct, USUALLY, story);
    };
    stage.on_hosts(entered, terrain, &|testbed| Deployment::start(testbed, None), story)
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
