//! The common part of the scenarios with a call beside transfers over two links.
//!
//! Each cell runs a call over the nearer link alone, without other traffic, and then over both,
//! which carry as much as they can in both directions. This module defines the measurements; it
//! knows no pair and no call.

use super::links::{Carried, Link};
use super::record::Limit;
use super::settings::Setting;
use super::statistics::{max, mean, median, min, quantile};
use super::table::{self, Row, TABLE, figure};
use super::{CALM_NS, Key, Outcome, Stage};
use crate::emu::{LinkConfig, Loss, SECOND};
use crate::ground::{
    Call, CallRun, Connections, Ground, Mode, Receiver, Talk, Terrain, Transfer, Trouble,
};
use serde_json::Value;

/// How much later than on the idle link 99 of 100 datagrams may be, in milliseconds.
pub(super) const OVER_IDLE_MS: f64 = 3.0;
/// The part of all datagrams that may be missing when they have to be played.
const LATE_SHARE_MAX: f64 = 0.002;
/// The load's share of the links' capacity at least: a call that is early on idle links proves
/// nothing. The share cannot be 1. Acknowledgements of the other direction take up to 4 % of a
/// link, and the call and its copies 1 to 2 %.
const BULK_SHARE_MIN: f64 = 0.90;
/// Time of the transfers before the call begins.
const BUSY_NS: u64 = 5 * SECOND;

/// The length.
pub(super) const SECONDS: Setting =
    Setting::number("seconds", 20, (2, 600), "how long they talk beside the load");
/// The load.
pub(super) const LOAD: Setting =
    Setting::choice("load", &["both", "down", "up"], "where connections carry as much as they can");

/// The keys at least.
pub(super) const KEYS: &[Key] = &[
    Key::lower_is_better("p99_over_idle_ms"),
    Key::lower_is_better("lost_packets"),
    Key::lower_is_better("late_share"),
    Key::lower_is_better("jitter_ms"),
    Key::higher_is_better("mos"),
    Key::higher_is_better("bulk_mbps"),
    Key::higher_is_better("bulk_share_min"),
    Key::must_hold("checksum_ok"),
    Key::lower_is_better(TABLE),
];

/// Two links and their losses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// The client's first one comes first.
    pub(super) pair: [Link; 2],
    /// The part of all packets that each loses in each direction.
    pub(super) loss: f64,
}

/// The load beside a call: each transfer, and the greatest share of payload in all bytes on a link.
#[derive(Debug, Default)]
struct Load {
    transfers: Vec<Transfer>,
    payload_share: Option<f64>,
}

/// The limits for any content.
pub(super) fn limits() -> Vec<Limit> {
    vec![
        Limit::at_most("p99_over_idle_ms", OVER_IDLE_MS),
        Limit::at_most("late_share", LATE_SHARE_MAX),
        Limit::at_least("bulk_share_min", BULK_SHARE_MIN),
        Limit::equal("checksum_ok", true),
    ]
}

/// Delays of a call's datagrams, summed up as `ping` does it; in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Took {
    pub(super) average: Option<f64>,
    pub(super) max: Option<f64>,
    /// The standard deviation, which `ping` calls mdev.
    pub(super) mdev: Option<f64>,
}

impl Took {
    fn of(values: &[f64]) -> Self {
        let average = mean(values);
        let squares: Vec<f64> = values.iter().map(|value| value * value).collect();
        let variance = mean(&squares).zip(average).map(|(square, mean)| square - mean * mean);
        Self { average, max: max(values), mdev: variance.map(|it| it.max(0.0).sqrt()) }
    }
}

/// Delays of a call's datagrams beside the load, for a client in this mode.
///
/// # Errors
/// The reason why it could not run.
pub(super) fn took(
    stage: &Stage<'_>,
    cell: &Cell,
    talk: Talk,
    what: (Mode, bool),
    outcome: &mut Outcome,
) -> anyhow::Result<Took> {
    let (loaded, _) = cell.loaded(stage, talk, what, outcome)?;
    Ok(Took::of(&took_ms(talk, &loaded)))
}

/// Runs each cell. Without other settings the client uses all links. If the call is not RTP, its
/// configuration asks for low latency for it. In a control the client does what `broken` says.
///
/// # Errors
/// The reason why one could not run.
pub(super) fn tell(
    stage: &Stage<'_>,
    cells: &[Cell],
    talk: Talk,
    broken: (Mode, bool),
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut rows, mut lost, mut intact) = (Vec::new(), 0, true);
    let cells = if stage.control() { &cells[..1] } else { cells };
    for cell in cells {
        (stage.tell)(&cell.name());
        let idle = cell.idle(stage, talk, &mut outcome)?;
        let (mode, early) = if stage.control() { broken } else { (Mode::Full, true) };
        let (loaded, load) = cell.loaded(stage, talk, (mode, early), &mut outcome)?;
        lost += loaded.lost();
        let ways = receivers(stage);
        intact &= load.is_intact(ways.len());
        let row = cell.row(talk, &idle, &loaded, (load.mbps(), cell.can_carry_mbps(&load, &ways)));
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
    outcome.measure("bulk_share_min", table::least(&rows, "bulk_share"));
    outcome.count("lost_packets", lost);
    outcome.hold("checksum_ok", intact && !rows.is_empty());
    outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
    Ok(outcome)
}

/// The delays of a call's datagrams, in milliseconds: one-way for voice, the round trip for
/// requests.
fn took_ms(talk: Talk, run: &CallRun) -> Vec<f64> {
    match talk {
        Talk::Voice => run.delays_ms(),
        Talk::Echo { .. } => run.round_trips_ms(),
    }
}

/// The 99th percentile in milliseconds, where lost datagrams count as infinitely late; `None` if
/// more than one of 100 are lost.
fn p99_ms(talk: Talk, run: &CallRun) -> Option<f64> {
    let mut took = took_ms(talk, run);
    let all = match talk {
        Talk::Voice => run.up.len() + run.down.len(),
        Talk::Echo { .. } => run.up.len(),
    };
    took.resize(all, f64::INFINITY);
    quantile(&took, 0.99).filter(|ms| ms.is_finite())
}

/// The receivers of the load.
fn receivers(stage: &Stage<'_>) -> Vec<Receiver> {
    match stage.settings.text("load") {
        "down" => vec![Receiver::Client],
        "up" => vec![Receiver::Server],
        _ => vec![Receiver::Client, Receiver::Server],
    }
}

impl Load {
    /// The rate of the whole load during the call, in Mbit/s.
    fn mbps(&self) -> Option<f64> {
        let mbps = |one: &Transfer| one.mbps_within(BUSY_NS, one.end_ns - one.start_ns);
        self.transfers.iter().map(mbps).sum()
    }

    /// Whether there were this many transfers, none broke, and everything received is what was
    /// sent.
    fn is_intact(&self, count: usize) -> bool {
        let is_intact = |one: &Transfer| one.intact && one.broke.is_none();
        self.transfers.len() == count && self.transfers.iter().all(is_intact)
    }
}

impl Cell {
    fn name(&self) -> String {
        format!("{} loss {}", super::links::name(&self.pair), self.loss * 100.0)
    }

    /// The capacity of both links for such a load to these receivers, in Mbit/s.
    fn can_carry_mbps(&self, load: &Load, to: &[Receiver]) -> Option<f64> {
        let ways = to.iter().flat_map(|to| self.pair.iter().map(|link| link.mbps_to(*to)));
        Some(ways.sum::<f64>() * (1.0 - self.loss) * load.payload_share?)
    }

    fn row(
        &self,
        talk: Talk,
        idle: &CallRun,
        loaded: &CallRun,
        (bulk, most): (Option<f64>, Option<f64>),
    ) -> Row {
        let [before, after] = [idle, loaded].map(|run| took_ms(talk, run));
        let took = Took::of(&after);
        // The single link repairs nothing. Only received datagrams count there, which is stricter.
        let idle_p99 = quantile(&before, 0.99);
        let over = p99_ms(talk, loaded).zip(idle_p99).map(|(p99, idle)| p99 - idle);
        let said = loaded.up.len() + loaded.down.len();
        let late = loaded.late() as f64 / said.max(1) as f64;
        table::row([
            ("links", self.name().into()),
            ("idle_ms", figure(median(&before))),
            ("idle_p99_ms", figure(idle_p99)),
            ("average_ms", figure(took.average)),
            ("max_ms", figure(took.max)),
            ("mdev_ms", figure(took.mdev)),
            ("p99_over_idle_ms", figure(over)),
            ("lost_packets", loaded.lost().into()),
            ("late_share", figure(Some(late))),
            ("jitter_ms", figure(loaded.jitter_ms())),
            // For requests, the score of a voice call with the same delays.
            ("mos", figure(loaded.mos())),
            ("bulk_mbps", figure(bulk)),
            ("bulk_share", figure(bulk.zip(most).map(|(bulk, most)| bulk / most))),
        ])
    }

    fn configs(&self) -> [LinkConfig; 2] {
        let loss = if self.loss > 0.0 { Loss::Bernoulli(self.loss) } else { Loss::None };
        self.pair.map(|link| link.config(loss))
    }

    /// The call over the nearer link alone, without other traffic.
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

    /// The call over both links, beside connections that carry all they can.
    fn loaded(
        &self,
        stage: &Stage<'_>,
        talk: Talk,
        (mode, early): (Mode, bool),
        outcome: &mut Outcome,
    ) -> anyhow::Result<(CallRun, Load)> {
        let [first, second] = self.configs();
        let terrain = Terrain { beside: vec![second], mode, early, ..Terrain::of(first) };
        let mut had = (CallRun::default(), Load::default());
        let told = stage.on_ground(&terrain, &mut |ground, _| {
            ground.pause(CALM_NS)?;
            had = self.talk_beside(stage, ground, talk)?;
            ground.pause(CALM_NS)?;
            had.1.payload_share = Carried::Tcp.payload_share(ground)?;
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
    ) -> Result<(CallRun, Load), Trouble> {
        let length_ns = stage.settings.number("seconds") * SECOND;
        let call = Call { talk, silence_ns: BUSY_NS, length_ns };
        let mbps: u64 = self.pair.iter().map(|link| link.mbps()).sum();
        let bulk = |to| Connections::outlasting(to, mbps, call.end_ns());
        let bulk: Vec<_> = receivers(stage).into_iter().map(bulk).collect();
        let (run, transfers) = ground.call(call, &bulk, &[])?;
        Ok((run, Load { transfers: transfers.concat(), payload_share: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::{CallRun, Load, Talk, Took, p99_ms};
    use crate::emu::MS;
    use crate::ground::Transfer;

    const ECHO: Talk = Talk::Echo { every_ns: 20 * MS, bytes: 700 };

    #[test]
    fn what_never_came_took_for_ever() {
        let mut run = CallRun { up: vec![Some(5 * MS); 200], ..CallRun::default() };
        run.down.clone_from(&run.up);
        run.down[..2].fill(None);
        assert_eq!(p99_ms(ECHO, &run), Some(10.0));
        run.up[2] = None;
        assert_eq!(p99_ms(ECHO, &run), None, "of 200 questions three had no answer");
        assert_eq!(p99_ms(Talk::Voice, &run), Some(5.0), "of 400 datagrams three were lost");
        run.down[3..5].fill(None);
        assert_eq!(p99_ms(Talk::Voice, &run), None);
        assert_eq!(p99_ms(Talk::Voice, &CallRun::default()), None);
    }

    #[test]
    fn what_was_taken_is_summed_up_as_ping_does() {
        let (average, max) = (Some(11.0), Some(12.0));
        assert_eq!(Took::of(&[10.0, 12.0]), Took { average, max, mdev: Some(1.0) });
        assert_eq!(Took::of(&[]), Took { average: None, max: None, mdev: None });
    }

    #[test]
    fn a_load_is_whole_where_all_of_it_is_there_and_as_it_was_sent() {
        let whole = Transfer { intact: true, ..Transfer::default() };
        let load = |second| Load { transfers: vec![whole.clone(), second], payload_share: None };
        assert!(load(whole.clone()).is_intact(2) && !load(whole.clone()).is_intact(3));
        assert!(!load(Transfer::default()).is_intact(2));
        let broke = Transfer { broke: Some("reset".to_owned()), ..whole.clone() };
        assert!(!load(broke).is_intact(2));
    }
}
