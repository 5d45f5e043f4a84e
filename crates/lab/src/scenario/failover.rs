//! `failover`: one of two links fails during a transfer and a call, returns, and fails again. First
//! its carrier goes, which the client's kernel reports; then it drops all packets without a sign.
//!
//! All figures are taken at the receivers.
//!
//! A stall is the longest time without a delivered byte that begins within half a second of the
//! failure. It takes one round trip at least: the sender must hear of the loss on the remaining
//! link, and the lost packets must arrive there. Later pauses are separate, with a bound of their
//! own: a drop in the fair queue tells the sender that the rate is lower, as it does without a
//! failure.
//!
//! The failed link's share is back when the transfer has, for half a second, most of the rate that
//! was gone. A packet of the call is late if it is lost, or so much later than the fastest one
//! before the transfer that a player has gone on without it.

use super::links::{self, CONGESTION, Carried, GRID, Link, MODE, Pair, TRANSFER, name};
use super::outage::{congestion, receiver};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::max;
use super::table::{self, Row, TABLE, figure};
use super::{About, CALM_NS, Grid, Key, Outcome, Scenario, Stage};
use crate::arrivals::Gap;
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{
    Act, Call, Connections, Cue, Ground, Moment, Receiver, Talk, Terrain, Transfer, Trouble,
};
use serde_json::{Value, json};

/// The cost of an announced failure beyond a round trip of the remaining link, and of a silent one
/// beyond two of the failed link, in milliseconds.
const STALL_MARGIN_MS: u64 = 30;
const SILENT_MARGIN_MS: u64 = 50;
/// The longest later pause, in milliseconds: less than a drop in the fair queue costs a sender
/// without local acknowledgement, at least 120. There is hardly any, 3.3 at most in all cells of
/// two seeds.
const LATER_PAUSE_MS: u64 = 100;
/// Time in which a returned link carries its share again, in seconds.
const SHARE_BACK_S: u64 = 2;
/// The transfer's share of the links' capacity before the first failure. If a link carried nothing,
/// its failure causes no stall, and no share comes back.
const BEFORE_SHARE_MIN: f64 = 0.9;
/// The part of the lost rate that must be back,
const SHARE: f64 = 0.8;
/// for this time,
const SHARE_NS: u64 = SECOND / 2;
/// sampled at this interval.
const STEP_NS: u64 = 10 * MS;
/// A pause that begins this long after a failure is not its stall.
const AROUND_NS: u64 = SECOND / 2;
/// Time of the call alone, and of the transfer before the first failure.
const ALONE_NS: u64 = 2 * SECOND;
const UNDISTURBED_NS: u64 = 6 * SECOND;
/// The end of that time, in which the rate is measured.
const BEFORE_NS: u64 = 3 * SECOND;
/// The greatest random delay of a failure, so that the seed decides when in a sender's round it
/// comes.
const CHANCE_NS: u64 = SECOND / 4;
/// A packet of the call sent this long before a failure may be lost by it.
const UNDER_WAY_NS: u64 = SECOND / 5;
/// Failures of each kind.
const DEATHS: usize = 2;

/// Two pairs of DSL, two with longer round trips, fibre and LTE.
const PAIRS: &[Pair] =
    &[[Link::of(10, 20); 2], [Link::of(10, 60); 2], [Link::of(300, 10), Link::of(80, 30)]];
/// The cells that represent the others: a pair, and the link that fails.
const FEW: &[(usize, usize)] = &[(0, 0), (1, 1), (2, 0), (2, 1)];
/// The names of the links.
const LINKS: [&str; 2] = ["first", "second"];

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    TRANSFER,
    CONGESTION,
    Setting::choice(
        "pair",
        &[GRID, "10/20+10/20", "10/60+10/60", "300/10+80/30"],
        "the links, each with its Mbit/s and the milliseconds of its round trip",
    ),
    Setting::choice("dies", &[GRID, "first", "second"], "which link of the pair"),
    Setting::number("down", 3, (1, 60), "seconds until the link returns"),
    Setting::number("up", 5, (3, 60), "seconds until it dies again"),
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("stall_ms_max"),
    Key::lower_is_better("stall_over_ms_max"),
    Key::lower_is_better("silent_stall_ms_max"),
    Key::lower_is_better("silent_stall_over_ms_max"),
    Key::lower_is_better("later_pause_ms_max"),
    Key::higher_is_better("before_share_min"),
    Key::lower_is_better("share_back_s"),
    Key::lower_is_better("voip_late_packets"),
    Key::lower_is_better("voip_extra_share"),
    Key::must_hold("checksum_ok"),
    Key::lower_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Failover;

impl Scenario for Failover {
    fn about(&self) -> About {
        About {
            name: "failover",
            summary: "one of two links dies under a transfer and a call, announced and not, and \
                      returns",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let before = Limit::at_least("before_share_min", BEFORE_SHARE_MIN);
        let mut limits = vec![
            Limit::at_most("stall_over_ms_max", STALL_MARGIN_MS),
            Limit::at_most("silent_stall_over_ms_max", SILENT_MARGIN_MS),
            Limit::at_most("later_pause_ms_max", LATER_PAUSE_MS),
            Limit::at_most("share_back_s", SHARE_BACK_S),
            Limit::at_most("voip_late_packets", 0u64),
            Limit::equal("checksum_ok", true),
        ];
        limits.extend(is_by_all(settings).then_some(before));
        limits
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        STALL_MARGIN_MS as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut rows = Vec::new();
        let mut deaths = Vec::new();
        let mut costs = Vec::new();
        let (mut intact, mut late) = (true, 0);
        for cell in told(stage) {
            (stage.tell)(&cell.name());
            let terrain = cell.terrain(stage);
            let mut seen = None;
            let told = stage.on_ground(&terrain, &mut |ground, _| {
                seen = Some(cell.tell(ground, stage)?);
                Ok(())
            })?;
            outcome.absorb(told);
            let Some(seen) = seen else {
                intact = false;
                continue;
            };
            let of_cell = seen.deaths(&cell);
            // A transfer that ended before all acts proves nothing.
            intact &= seen.transfer.intact && of_cell.len() == 2 * DEATHS;
            costs.extend(seen.extra_share);
            let to = receiver(stage.settings);
            let before = is_by_all(stage.settings).then(|| seen.before_share(&cell, to));
            for one in &of_cell {
                let mut row = one.row(&cell);
                // It is the same for all failures of a cell.
                row.extend(before.map(|share| ("before_share".to_owned(), figure(share))));
                (stage.tell)(&table::line(&row));
                rows.push(Value::Object(row));
            }
            late += seen.late_ns.len() as u64;
            deaths.extend(of_cell);
        }
        report(&mut outcome, &deaths, rows);
        outcome.count("voip_late_packets", late);
        outcome.measure("voip_extra_share", max(&costs));
        outcome.hold("checksum_ok", intact && !deaths.is_empty());
        Ok(outcome)
    }
}

/// Writes the results: the worst of all cells.
fn report(outcome: &mut Outcome, deaths: &[Death], rows: Vec<Value>) {
    let worst = |told: bool, of: &dyn Fn(&Death) -> f64| {
        max(&deaths.iter().filter(|one| one.is_told == told).map(of).collect::<Vec<_>>())
    };
    outcome.measure("stall_ms_max", worst(true, &|one| one.stall_ms));
    outcome.measure("stall_over_ms_max", worst(true, &|one| one.over_ms));
    outcome.measure("silent_stall_ms_max", worst(false, &|one| one.stall_ms));
    outcome.measure("silent_stall_over_ms_max", worst(false, &|one| one.over_ms));
    let later: Vec<f64> = deaths.iter().map(|one| one.later_pause_ms).collect();
    outcome.measure("later_pause_ms_max", max(&later));
    let back: Vec<f64> = deaths.iter().map(|one| one.share_back_s).collect();
    outcome.measure("share_back_s", max(&back));
    if rows.iter().any(|row| row.get("before_share").is_some()) {
        outcome.measure("before_share_min", table::least(&rows, "before_share"));
    }
    outcome.sample("share_back_s", back);
    outcome.sample("stall_ms", deaths.iter().map(|one| one.stall_ms).collect());
    outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
}

/// Whether all links carry traffic. A control does not say otherwise, because that is what it
/// breaks.
fn is_by_all(settings: &Settings) -> bool {
    settings.text(MODE.key) == "full"
}

/// A pair, and the link that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    pair: Pair,
    dies: usize,
}

/// The cells to run: the few, if nothing is set in the default grid.
fn told(stage: &Stage<'_>) -> Vec<Cell> {
    let settings = stage.settings;
    let pair = links::chosen(settings, "pair", PAIRS, name);
    let dies = LINKS.iter().position(|link| *link == settings.text("dies"));
    let is_told = |cell: &Cell| {
        pair.is_none_or(|pair| cell.pair == pair) && dies.is_none_or(|dies| cell.dies == dies)
    };
    let cell = |(pair, dies): (usize, usize)| Cell { pair: PAIRS[pair], dies };
    let all = (0..PAIRS.len()).flat_map(|pair| [0, 1].map(|dies| cell((pair, dies))));
    let few = FEW.iter().copied().map(cell);
    let is_chosen = pair.is_some() || dies.is_some();
    let every = is_chosen || stage.grid == Grid::Full || stage.control();
    let cells: Vec<Cell> = if every { all.collect() } else { few.collect() };
    let cells = cells.into_iter().filter(is_told);
    cells.take(if stage.control() { 1 } else { usize::MAX }).collect()
}

impl Cell {
    fn name(&self) -> String {
        format!("{}, the {} dies", name(&self.pair), LINKS[self.dies])
    }

    fn terrain(&self, stage: &Stage<'_>) -> Terrain {
        let [first, second] = self.pair.map(|link| link.config(crate::emu::Loss::None));
        Terrain { beside: vec![second], mode: links::mode(stage), ..Terrain::of(first) }
    }

    /// The link fails and returns, several times in each way.
    fn script(&self, stage: &Stage<'_>) -> Vec<Cue> {
        let mut rng = Rng::new(stage.seed).fork(0x6661_696c);
        let [down_ns, up_ns] = ["down", "up"].map(|key| stage.settings.number(key) * SECOND);
        let (announced, silent) = (
            [Act::Unplug(self.dies), Act::Replug(self.dies)],
            [Act::Swallow(self.dies), Act::Return(self.dies)],
        );
        let mut at_ns = UNDISTURBED_NS;
        let mut script = Vec::new();
        for [dies, returns] in [[announced; DEATHS], [silent; DEATHS]].concat() {
            at_ns += rng.below(CHANCE_NS);
            script.push(Cue::at(at_ns, dies));
            at_ns += down_ns;
            script.push(Cue::at(at_ns, returns));
            at_ns += up_ns;
        }
        script
    }

    fn tell(&self, ground: &mut dyn Ground, stage: &Stage<'_>) -> Result<Seen, Trouble> {
        let call = |length_ns: u64| Call { talk: Talk::Voice, silence_ns: 0, length_ns };
        ground.pause(CALM_NS)?;
        let (alone, _) = ground.call(call(ALONE_NS), &[], &[])?;
        let script = self.script(stage);
        let last_ns = script.last().map_or(0, |cue| cue.at_ns);
        let length_ns = last_ns + stage.settings.number("up") * SECOND;
        let mbps: u64 = self.pair.iter().map(Link::mbps).sum();
        let bulk = Connections::outlasting(receiver(stage.settings), mbps, length_ns);
        let bulk = Connections { congestion: congestion(stage.settings), ..bulk };
        let (beside, transfers) = ground.call(call(length_ns), &[bulk], &script)?;
        ground.pause(CALM_NS)?;
        let payload_share = Carried::Tcp.payload_share(ground)?;
        Ok(Seen {
            transfer: transfers.concat().pop().unwrap_or_default(),
            late_ns: beside.late_beside(&alone, Talk::Voice.interval_ns()),
            extra_share: beside.extra_share(),
            payload_share,
            script,
        })
    }
}

/// The receivers' view of one cell.
struct Seen {
    script: Vec<Cue>,
    transfer: Transfer,
    /// When the late packets of the call were sent, from its beginning.
    late_ns: Vec<u64>,
    /// Packets that protect the call, as a share of it.
    extra_share: Option<f64>,
    /// The greatest share of payload in all bytes on a link.
    payload_share: Option<f64>,
}

/// The cost of one failure.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Death {
    /// Whether the client's kernel reported it.
    is_told: bool,
    stall_ms: f64,
    /// The part of it beyond the allowed round trips.
    over_ms: f64,
    later_pause_ms: f64,
    share_back_s: f64,
    late_packets: u64,
}

impl Seen {
    fn deaths(&self, cell: &Cell) -> Vec<Death> {
        let moments = &self.transfer.moments;
        let before_mbps = self.before_mbps();
        let pairs = moments.chunks_exact(2).zip(self.script.chunks(2)).enumerate();
        let death = |(at, (pair, cues)): (usize, (&[Moment], &[Cue]))| {
            let next_ns = moments.get(2 * at + 2).map_or(self.transfer.end_ns, |m| m.began_ns);
            let later = self.script.get(2 * at + 2).map_or(u64::MAX, |cue| cue.at_ns);
            let from_ns = cues[0].at_ns.saturating_sub(UNDER_WAY_NS);
            let of_it = from_ns..later.saturating_sub(UNDER_WAY_NS);
            let late = self.late_ns.iter().filter(|sent_ns| of_it.contains(sent_ns)).count();
            let death = self.death(cell, (&pair[0], &pair[1], next_ns), before_mbps);
            Death { late_packets: late as u64, ..death }
        };
        pairs.map(death).collect()
    }

    /// The rate before the first death, in Mbit/s.
    fn before_mbps(&self) -> f64 {
        let first_ns = self.transfer.moments.first().map_or(0, |one| one.began_ns);
        self.mbps(first_ns.saturating_sub(BEFORE_NS), first_ns)
    }

    /// The same as a share of the capacity of both links; `None` if that is unknown.
    fn before_share(&self, cell: &Cell, to: Receiver) -> Option<f64> {
        let sum_mbps: f64 = cell.pair.iter().map(|link| link.mbps_to(to)).sum();
        Some(self.before_mbps() / (sum_mbps * self.payload_share?))
    }

    /// The cost of a failure for the transfer, up to the next one.
    fn death(
        &self,
        cell: &Cell,
        (dies, returns, next_ns): (&Moment, &Moment, u64),
        before_mbps: f64,
    ) -> Death {
        let is_told = matches!(dies.act, Act::Unplug(_));
        let around = |gap: &&Gap| gap.from_ns < dies.done_ns + AROUND_NS;
        let (around, later): (Vec<Gap>, Vec<Gap>) =
            self.transfer.gaps.iter().copied().partition(|gap| around(&gap));
        let longest = |gaps: &[Gap]| {
            Gap::longest_within(gaps, dies.done_ns, returns.began_ns) as f64 / MS as f64
        };
        let stall_ms = longest(&around);
        let left = cell.pair[1 - cell.dies].round_trip_ms;
        let may_ms = if is_told { left } else { 2 * cell.pair[cell.dies].round_trip_ms };
        let down_ns = returns.began_ns.saturating_sub(dies.done_ns);
        let without_mbps = self.mbps(returns.began_ns - down_ns / 2, returns.began_ns);
        let enough_mbps = without_mbps + SHARE * (before_mbps - without_mbps);
        Death {
            is_told,
            stall_ms,
            over_ms: stall_ms - may_ms as f64,
            later_pause_ms: longest(&later),
            share_back_s: self.back_s(returns.done_ns, next_ns, enough_mbps),
            late_packets: 0,
        }
    }

    /// Time until the rate was high enough for long enough; up to `until_ns` if it never was.
    fn back_s(&self, from_ns: u64, until_ns: u64, enough_mbps: f64) -> f64 {
        let ends = (from_ns + SHARE_NS..until_ns).step_by(STEP_NS as usize);
        let mut back = ends.filter(|end_ns| self.mbps(end_ns - SHARE_NS, *end_ns) >= enough_mbps);
        let back_ns = back.next().unwrap_or(until_ns).saturating_sub(from_ns);
        back_ns as f64 / SECOND as f64
    }

    fn mbps(&self, from_ns: u64, to_ns: u64) -> f64 {
        let start_ns = self.transfer.start_ns;
        let within = (from_ns.saturating_sub(start_ns), to_ns.saturating_sub(start_ns));
        self.transfer.mbps_within(within.0, within.1).unwrap_or(0.0)
    }
}

impl Death {
    fn row(&self, cell: &Cell) -> Row {
        table::row([
            ("pair", name(&cell.pair).into()),
            ("dies", LINKS[cell.dies].into()),
            ("by", if self.is_told { "event" } else { "silence" }.into()),
            ("stall_ms", figure(Some(self.stall_ms))),
            ("over_ms", figure(Some(self.over_ms))),
            ("later_pause_ms", figure(Some(self.later_pause_ms))),
            ("share_back_s", figure(Some(self.share_back_s))),
            ("late_packets", json!(self.late_packets)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Death, PAIRS, Seen};
    use crate::arrivals::Gap;
    use crate::emu::{MS, SECOND};
    use crate::ground::{Act, Cue, Moment, Receiver, Transfer};

    const CELL: Cell = Cell { pair: PAIRS[1], dies: 0 };

    /// 10 Mbit/s, but 5 while one of two links is gone, from 6 to 9 s, and 700 ms more. The
    /// transfer stalls for this long from the failure on, and for 200 ms later.
    fn seen(dies: Act, returns: Act, still_ms: u64) -> Seen {
        let progress = |at_ms: u64| {
            let slow_ms = at_ms.clamp(6_000, 9_700) - 6_000;
            (at_ms * MS, (at_ms - slow_ms) * 1_250 + slow_ms * 625)
        };
        let gap = |from_ms: u64, ms: u64| Gap { from_ns: from_ms * MS, to_ns: (from_ms + ms) * MS };
        let moment = |act, at_ns| Moment::new(act, at_ns, at_ns);
        let script = vec![Cue::at(6 * SECOND, dies), Cue::at(9 * SECOND, returns)];
        Seen {
            transfer: Transfer {
                end_ns: 14 * SECOND,
                progress: (0..=1_400).map(|at| progress(at * 10)).collect(),
                gaps: vec![gap(3_000, 90), gap(6_000, still_ms), gap(6_800, 200)],
                moments: script.iter().map(|cue| moment(cue.act, cue.at_ns)).collect(),
                ..Transfer::default()
            },
            script,
            late_ns: vec![SECOND, 5_900 * MS, 6_100 * MS, 13_900 * MS],
            extra_share: None,
            payload_share: Some(0.5),
        }
    }

    #[test]
    fn a_stall_is_held_against_what_it_must_cost_and_the_share_against_what_went() {
        let deaths = seen(Act::Unplug(0), Act::Replug(0), 75).deaths(&CELL);
        let [Death { is_told, stall_ms, over_ms, later_pause_ms, share_back_s, late_packets }] =
            deaths[..]
        else {
            panic!("{deaths:?}")
        };
        // A round trip of the other link is 60 ms.
        assert!(is_told);
        assert_eq!((stall_ms, over_ms, later_pause_ms), (75.0, 15.0, 200.0));
        // Of the half second after 700 ms four fifths are enough.
        assert!((1.09..=1.12).contains(&share_back_s), "{share_back_s}");
        assert_eq!(late_packets, 3, "one was late before anything happened");
        let silent = seen(Act::Swallow(0), Act::Return(0), 150).deaths(&CELL);
        assert_eq!((silent[0].is_told, silent[0].over_ms), (false, 30.0));
    }

    #[test]
    fn what_there_was_before_is_held_against_what_both_links_can_carry() {
        let mut seen = seen(Act::Unplug(0), Act::Replug(0), 75);
        // 10 Mbit/s over two links of 10, of which half is payload.
        assert_eq!(seen.before_share(&CELL, Receiver::Client), Some(1.0));
        seen.payload_share = None;
        assert_eq!(seen.before_share(&CELL, Receiver::Client), None);
    }

    #[test]
    fn a_share_that_never_comes_back_counts_to_the_end() {
        let mut seen = seen(Act::Unplug(0), Act::Replug(0), 75);
        let (_, last) = seen.transfer.progress[970];
        seen.transfer.progress.iter_mut().skip(970).for_each(|(_, bytes)| *bytes = last);
        assert_eq!(seen.deaths(&CELL)[0].share_back_s, 5.0);
        seen.transfer.moments.truncate(1);
        assert!(seen.deaths(&CELL).is_empty(), "it did not come so far");
    }
}
