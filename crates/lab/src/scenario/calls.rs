//! Talks beside bulk over two links: what the stories of calm latency have in common.
//!
//! In each cell a talk is had over the nearer of the two links alone, with nothing beside it, and
//! then over both, which carry as much as they can both ways. Decides what is measured and how
//! figures follow from it; knows no pair and no talk.

use super::links::Link;
use super::record::Limit;
use super::settings::Setting;
use super::statistics::{max, median, min, quantile};
use super::table::{self, Row, TABLE, figure};
use super::{Key, Outcome, Stage};
use crate::emu::{LinkConfig, Loss, SECOND};
use crate::ground::{
    Call, CallRun, Connections, Ground, Mode, Receiver, Talk, Terrain, Transfer, Trouble,
};
use serde_json::Value;

/// How much later than over the idle link 99 of 100 may be, in milliseconds.
pub(super) const OVER_IDLE_MS: f64 = 3.0;
/// Time in which links are found.
const CALM_NS: u64 = 2 * SECOND;
/// How long connections are carried before anybody speaks.
const BUSY_NS: u64 = 5 * SECOND;

/// The setting of the length.
pub(super) const SECONDS: Setting =
    Setting::number("seconds", 20, (2, 600), "how long they talk beside the load");
/// The setting of the load.
pub(super) const LOAD: Setting =
    Setting::choice("load", &["both", "down", "up"], "where connections carry as much as they can");

/// What is measured at least.
pub(super) const KEYS: &[Key] = &[
    Key::lower_is_better("p99_over_idle_ms"),
    Key::lower_is_better("lost_packets"),
    Key::lower_is_better("late_share"),
    Key::lower_is_better("jitter_ms"),
    Key::higher_is_better("mos"),
    Key::higher_is_better("bulk_mbps"),
    Key::lower_is_better(TABLE),
];

/// Two links and what each loses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// The client's first one comes first.
    pub(super) pair: [Link; 2],
    /// The part of all packets that each loses each way.
    pub(super) loss: f64,
}

/// What must hold whatever is said.
pub(super) fn over_idle() -> Limit {
    Limit::at_most("p99_over_idle_ms", OVER_IDLE_MS)
}

/// The mean of what a talk's datagrams took beside the load, in milliseconds, where the client does
/// this.
///
/// # Errors
/// What kept it from being told.
pub(super) fn average_ms(
    stage: &Stage<'_>,
    cell: &Cell,
    talk: Talk,
    what: (Mode, bool),
    outcome: &mut Outcome,
) -> anyhow::Result<Option<f64>> {
    let (loaded, _) = cell.loaded(stage, talk, what, outcome)?;
    Ok(mean(&took_ms(talk, &loaded)))
}

/// Tells the story of each cell. A client that is told nothing else shares its links and, if it has
/// to be told, knows that the talk is wanted early; in a control it does what `broken` says.
///
/// # Errors
/// What kept one from being told.
pub(super) fn tell(
    stage: &Stage<'_>,
    cells: &[Cell],
    talk: Talk,
    broken: (Mode, bool),
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut rows, mut lost) = (Vec::new(), 0);
    let cells = if stage.control() { &cells[..1] } else { cells };
    for cell in cells {
        (stage.tell)(&cell.name());
        let idle = cell.idle(stage, talk, &mut outcome)?;
        let (mode, early) = if stage.control() { broken } else { (Mode::Full, true) };
        let (loaded, bulk) = cell.loaded(stage, talk, (mode, early), &mut outcome)?;
        lost += loaded.lost();
        let row = row(cell, talk, &idle, (&loaded, &bulk));
        (stage.tell)(&table::line(&row));
        rows.push(Value::Object(row));
    }
    let column = |name: &str| -> Option<Vec<f64>> {
        rows.iter().map(|row: &Value| row.get(name)?.as_f64()).collect()
    };
    for key in ["p99_over_idle_ms", "late_share", "jitter_ms"] {
        outcome.measure(key, column(key).as_deref().and_then(max));
    }
    for key in ["mos", "bulk_mbps"] {
        outcome.measure(key, column(key).as_deref().and_then(min));
    }
    outcome.count("lost_packets", lost);
    outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
    Ok(outcome)
}

/// What a talk's datagrams took, in milliseconds: each way for a voice, there and back for a
/// question.
fn took_ms(talk: Talk, run: &CallRun) -> Vec<f64> {
    match talk {
        Talk::Voice => run.delays_ms(),
        Talk::Echo { .. } => run.round_trips_ms(),
    }
}

fn row(cell: &Cell, talk: Talk, idle: &CallRun, loaded: (&CallRun, &[Transfer])) -> Row {
    let (loaded, bulk) = loaded;
    let [before, after] = [idle, loaded].map(|run| took_ms(talk, run));
    let [idle_p99, p99] = [&before, &after].map(|took| quantile(took, 0.99));
    let over = p99.zip(idle_p99).map(|(p99, idle)| p99 - idle);
    let said = loaded.up.len() + loaded.down.len();
    let late = loaded.late() as f64 / said.max(1) as f64;
    let carried = bulk.iter().map(|one| one.mbps_within(BUSY_NS, one.end_ns - one.start_ns));
    let carried: Option<Vec<f64>> = carried.collect();
    table::row([
        ("links", cell.name().into()),
        ("idle_ms", figure(median(&before))),
        ("idle_p99_ms", figure(idle_p99)),
        ("average_ms", figure(mean(&after))),
        ("max_ms", figure(max(&after))),
        ("p99_over_idle_ms", figure(over)),
        ("lost_packets", loaded.lost().into()),
        ("late_share", figure(Some(late))),
        ("jitter_ms", figure(loaded.jitter_ms())),
        ("mos", figure(loaded.mos())),
        ("bulk_mbps", figure(carried.map(|all| all.iter().sum()))),
    ])
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl Cell {
    fn name(&self) -> String {
        format!("{} loss {}", super::links::name(&self.pair), self.loss * 100.0)
    }

    fn configs(&self) -> [LinkConfig; 2] {
        let loss = if self.loss > 0.0 { Loss::Bernoulli(self.loss) } else { Loss::None };
        self.pair.map(|link| link.config(loss))
    }

    /// The talk over the nearer link, which alone is there and carries nothing else.
    fn idle(
        &self,
        stage: &Stage<'_>,
        talk: Talk,
        outcome: &mut Outcome,
    ) -> anyhow::Result<CallRun> {
        let [first, second] = self.configs();
        let is_first = self.pair[0].round_trip_ms <= self.pair[1].round_trip_ms;
        let nearer = if is_first { first } else { second };
        let alone = Terrain { mode: Mode::Single, ..Terrain::of(nearer) };
        let mut run = CallRun::default();
        let length_ns = stage.settings.number("seconds") * SECOND;
        outcome.absorb(stage.on_ground(&alone, &mut |ground, _| {
            run = ground.call(Call { talk, silence_ns: CALM_NS, length_ns }, &[], &[])?.0;
            Ok(())
        })?);
        Ok(run)
    }

    /// The talk over both, beside connections that carry all that they can.
    fn loaded(
        &self,
        stage: &Stage<'_>,
        talk: Talk,
        (mode, early): (Mode, bool),
        outcome: &mut Outcome,
    ) -> anyhow::Result<(CallRun, Vec<Transfer>)> {
        let [first, second] = self.configs();
        let terrain = Terrain { beside: vec![second], mode, early, ..Terrain::of(first) };
        let mut had = (CallRun::default(), Vec::new());
        let told = stage.on_ground(&terrain, &mut |ground, _| {
            ground.pause(CALM_NS)?;
            had = self.talk_beside(stage, ground, talk)?;
            Ok(())
        })?;
        outcome.absorb(told);
        Ok(had)
    }

    fn talk_beside(
        &self,
        stage: &Stage<'_>,
        ground: &mut dyn Ground,
        talk: Talk,
    ) -> Result<(CallRun, Vec<Transfer>), Trouble> {
        let length_ns = stage.settings.number("seconds") * SECOND;
        let call = Call { talk, silence_ns: BUSY_NS, length_ns };
        let mbps: u64 = self.pair.iter().map(|link| link.mbps()).sum();
        // More than there is time for.
        let bytes = mbps * 1_000_000 / 8 * (call.end_ns() / SECOND + 10);
        let to = match stage.settings.text("load") {
            "down" => vec![Receiver::Client],
            "up" => vec![Receiver::Server],
            _ => vec![Receiver::Client, Receiver::Server],
        };
        let bulk: Vec<_> = to.into_iter().map(|to| Connections::bulk(to, bytes)).collect();
        let (run, transfers) = ground.call(call, &bulk, &[])?;
        Ok((run, transfers.concat()))
    }
}
