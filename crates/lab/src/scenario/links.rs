//! The common part of the scenarios with several links.
//!
//! A cell is a pair of links, their loss, and the congestion control inside the tunnel. Each cell
//! carries one connection over both links together, one by Rove over the better link alone, and the
//! thesis' file over both and over one bare link that is as fast as both together.
//!
//! This module defines the measurements of a cell and the limits of all cells. It knows no pair.

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

/// The beginning of a transfer that does not count, because its sender still searches for the rate.
const FIRST_NS: u64 = 5 * SECOND;
/// The file of Lukaszewski's thesis, in bytes.
const FILE_BYTES: u64 = 16_331_410;
/// The longest time that it may take.
const FILE_LIMIT_NS: u64 = 900 * SECOND;
/// The longest inner packet, in bytes: the MTU of the tunnel's interface, here and in the world.
const INNER_BYTES: f64 = 1_420.0;
/// The part of it that is no payload: IPv4, TCP, and the timestamps of both.
const INNER_HEADERS: f64 = 52.0;

/// The value of a setting that covers the whole dimension of the grid.
pub(super) const GRID: &str = "grid";
/// The mode.
pub(super) const MODE: Setting = Setting::choice(
    "mode",
    &["full", "backup", "single"],
    "what the client makes of its links: all carry, one does, one does and no other is prepared",
);
/// The scheduler.
pub(super) const SCHEDULER: Setting = Setting::choice(
    "scheduler",
    SCHEDULERS,
    "how client and gateway choose among links that carry together",
);
/// The transport.
pub(super) const TRANSPORT: Setting = Setting::choice(
    "transport",
    TRANSPORTS,
    "what carries datagrams by both links; by the better one alone it is the usual",
);
/// Local acknowledgement.
pub(super) const ASSIST: Setting = Setting::choice(
    "assist",
    &["on", "off"],
    "whether what is sent is acknowledged where it enters the tunnel, and delivered from there",
);
/// Reordering.
pub(super) const REORDER: Setting = Setting::choice(
    "reorder",
    &["on", "off"],
    "whether what came by several links is delivered in sequence; off in virtual time only",
);
/// The receiver.
pub(super) const TRANSFER: Setting =
    Setting::choice("transfer", &["down", "up"], "to the client, or from it");
/// The congestion control; in the default grid it is CUBIC.
pub(super) const CONGESTION: Setting =
    Setting::choice("cc", &[GRID, "cubic", "reno", "bbr"], "congestion control of both ends");
/// The length.
pub(super) const SECONDS: Setting =
    Setting::number("seconds", 30, (6, 600), "how long each connection is carried");
/// The number of connections.
pub(super) const FLOWS: Setting = Setting::number(
    "flows",
    1,
    (1, 16),
    "how many TCP connections share the links, whose goodput is added up; of QUIC, datagrams and \
     the file there is one",
);

/// The file.
pub(super) const FILE: Setting = Setting::number(
    "megabytes",
    0,
    (0, 2_000),
    "another size of the file beside; 0 for the 16,331,410 bytes of the thesis",
);

/// The keys for TCP.
pub(super) const KEYS: &[Key] = &[
    Key::higher_is_better("share_of_sum_min"),
    Key::higher_is_better("share_of_best_min"),
    Key::higher_is_better("file_share_min"),
    Key::lower_is_better(feedback::MOST),
    Key::lower_is_better(judged::SENT_AGAIN_MOST),
    Key::must_hold("checksum_ok"),
    Key::higher_is_better(TABLE),
];
/// The keys if other traffic is carried as well.
pub(super) const KEYS_OF_ALL: &[Key] = &Key::with::<{ KEYS.len() + 2 }>(
    KEYS,
    &[Key::higher_is_better(judged::OTHERS_SHARE_LEAST), Key::must_hold(judged::QUEUES)],
);

/// Two links; the client's first one comes first.
pub(super) type Pair = [Link; 2];

/// The conditions of one transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cell<const N: usize = 2> {
    pair: [Link; N],
    /// The receiver.
    to: Receiver,
    known: Known,
    spread: Spread,
    /// Loss of each link in each direction, as text.
    loss: &'static str,
    congestion: Congestion,
    carried: Carried,
}

/// The cells of a scenario whose clients have this number of links.
#[derive(Debug)]
pub(super) struct Cells<const N: usize = 2> {
    /// All pairs, or larger sets; that of a control first.
    pub(super) pairs: &'static [[Link; N]],
    /// The receivers, one after the other; none if a setting names them.
    pub(super) to: &'static [Receiver],
    /// How the client finds the gateway.
    pub(super) known: Known,
    /// The paths in use.
    pub(super) spreads: &'static [Spread],
    /// The losses, as [`loss`] knows them; none first.
    pub(super) losses: &'static [&'static str],
    /// The cells that represent the others, by positions in these lists.
    pub(super) few: &'static [(usize, usize)],
    /// The default traffic: in these cells TCP,
    pub(super) carried: &'static [Carried],
    /// in these the other kinds,
    pub(super) few_others: &'static [(usize, usize)],
    /// and further kinds to the client, with another congestion control.
    pub(super) also: &'static [(Carried, Congestion, usize, usize)],
}

/// The shallowest queue of these pairs, in milliseconds: lateness costs no goodput as long as no
/// queue runs empty or overflows.
pub(super) fn bound_ms<const N: usize>(pairs: &[[Link; N]]) -> f64 {
    let queue_ms = |link: &Link| {
        let bits = link.config(Loss::None).down.queue_bytes * 8;
        bits as f64 / link.kbps[Receiver::Client as usize] as f64
    };
    min(&pairs.iter().flatten().map(queue_ms).collect::<Vec<_>>()).unwrap_or_default()
}

impl<const N: usize> Cells<N> {
    /// The cells to run. A setting limits its dimension; the others cover the whole grid, or their
    /// first value in the default grid. Without settings, the default grid has the few cells.
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
            // Datagrams at a constant rate have no congestion control.
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

    /// Runs each cell, of these links if any are chosen.
    ///
    /// # Errors
    /// The reason why one could not run.
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
    /// To the client, on one path for each link to the gateway's only address.
    pub(super) const fn down(pair: [Link; N], loss: &'static str, congestion: Congestion) -> Self {
        let (to, known, spread) = (Receiver::Client, Known::ByAddress, Spread::ONE);
        Self { pair, to, known, spread, loss, congestion, carried: Carried::Tcp }
    }

    /// Whether any of its links loses packets by itself.
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
            // Until there is a path on every link.
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
            measured.sum_mbps = self.sum_mbps(stage, ground, window)?;
            Ok(())
        })?;
        outcome.absorb(told);
        let Alone { best_mbps, single, broke } = self.alone(stage, outcome)?;
        measured.best_mbps = best_mbps;
        // A transfer that ended early or was altered is no measure for others either.
        measured.is_whole &= broke.is_none();
        measured.broke = measured.broke.or(broke);
        if self.carried != Carried::Tcp {
            return Ok(measured);
        }
        measured.compared = self.compare(stage, single, outcome);
        // No bare link equals the sum of recorded ones, because their rates change all the time.
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

    /// The rate of one connection over all links, and their capacity; in Mbit/s.
    ///
    /// # Errors
    /// The reason why it could not be measured.
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
            rates.1 = self.sum_mbps(stage, ground, window)?;
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

    /// Seconds from that moment until both links together had room for this payload. Recorded links
    /// differ from moment to moment.
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

    /// The greatest inner rate of both links, by the least that this tunnel adds to each packet.
    fn sum_mbps(
        &self,
        stage: &Stage<'_>,
        ground: &mut dyn Ground,
        window: (u64, u64),
    ) -> Result<Option<f64>, Trouble> {
        let payload_share = self.carried.payload_share_over(stage.family(), ground)?;
        let arrives = |link: &Link| 1.0 - link.loss(self.loss).mean();
        let rates = self.pair.iter().map(|link| link.mbps_between(self.to, window) * arrives(link));
        let carried: f64 = rates.sum();
        Ok(payload_share.map(|share| carried * share))
    }
}

/// How the client uses its links: in a control, one carries traffic.
pub(super) fn mode(stage: &Stage<'_>) -> Mode {
    match stage.settings.text("mode") {
        _ if stage.control() => Mode::Backup,
        "backup" => Mode::Backup,
        "single" => Mode::Single,
        _ => Mode::Full,
    }
}

/// The scheduler.
fn scheduler(settings: &Settings) -> &'static str {
    let set = settings.text("scheduler");
    SCHEDULERS.iter().find(|&&name| name == set).unwrap_or(&SCHEDULERS[0])
}

/// The transport; the default in a scenario without the setting.
fn transport(settings: &Settings) -> &'static str {
    let set = settings.text("transport");
    TRANSPORTS.iter().find(|&&name| name == set).unwrap_or(&TRANSPORTS[0])
}

/// The connections that the tunnel acknowledges locally.
fn assist(settings: &Settings) -> Assist {
    match settings.text("assist") {
        "off" => Assist::Off,
        _ => Assist::On,
    }
}

/// The pair that a setting names.
pub(super) fn chosen<const N: usize>(
    settings: &Settings,
    key: &str,
    pairs: &[[Link; N]],
    called: impl Fn(&[Link; N]) -> String,
) -> Option<[Link; N]> {
    pairs.iter().copied().find(|pair| called(pair) == settings.text(key))
}

/// Runs a part that needs no tunnel.
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
