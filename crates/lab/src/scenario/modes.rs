//! `modes`: the effect of the client's mode when one of its two links fails during a transfer
//! (Lukaszewski 2017, section 2.3.2). With `full` both links carry traffic, with `backup` the
//! second one is ready, with `single` no path is prepared.
//!
//! In each mode the first link fails twice, in a run of its own each: its carrier goes, which the
//! client's kernel reports, or it drops all packets without a sign. The recovery time of a transfer
//! is the time in which the remaining link could have carried the missing bytes: a stall counts in
//! full, and a slow start for what it lacks.

use super::drawn::Draw;
use super::links::Carried;
use super::outage::{TRANSFER, receiver};
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::min;
use super::table::{self, Row, TABLE, figure};
use super::{About, CALM_NS, CleanLink, Key, Outcome, Scenario, Stage};
use crate::emu::{MS, SECOND};
use crate::ground::{
    Act, Connections, Cue, Ground, Mode, Receiver, Reported, Terrain, Transfer, Trouble,
};
use serde_json::Value;

/// The link that fails, and the one that remains.
const FIRST: CleanLink = CleanLink { rate: 10_000_000, round_trip_ns: 20 * MS };
const LEFT: CleanLink = CleanLink { rate: 10_000_000, round_trip_ns: 80 * MS };
/// Approximate time of the failure, after the transfer began.
const DIES_NS: u64 = 3 * SECOND;
/// Time after the failure that counts, and the time until the transfer ends.
const JUDGED_NS: u64 = 3 * SECOND;
const AFTERWARDS_NS: u64 = JUDGED_NS + SECOND / 2;
/// Length of a transfer without a failure, which shows the traffic of a standby link.
const UNDISTURBED_NS: u64 = 3 * SECOND;

/// The longest recovery with both links in use, in milliseconds, and with a standby path for both
/// kinds of failure: over ten seeds in virtual time 43 at most, 857 and 1,159, and a fifth more.
/// The rest is the transfer's own congestion control, which had less in flight than the farther
/// link has room for.
const FULL_MS: f64 = 52.0;
const BACKUP_MS: [f64; 2] = [1_030.0, 1_390.0];
/// The least difference to the next mode: 112 ms at worst in the same seeds (a packet takes 1.2
/// ms). Without a prepared path, data also leaves at once; only that path is not proven yet.
const BACKUP_AFTER_FULL_MS: f64 = 90.0;
const SINGLE_AFTER_BACKUP_MS: f64 = 0.9;

/// Random difference in the time that the kernel's TCP takes to fill the farther link, in any mode:
/// 150 ms between namespaces. So one run there does not tell `backup` from `single`. It does tell
/// `full`, which has nothing to recover from.
const CHANCE_MS: f64 = 150.0;

/// The modes, the best first, each with its key for a failure that the kernel reports and for a
/// silent one.
const MODES: [(Mode, &str, [&str; 2]); 3] = [
    (Mode::Full, "full", ["full_recovery_ms", "full_silent_recovery_ms"]),
    (Mode::Backup, "backup", ["backup_recovery_ms", "backup_silent_recovery_ms"]),
    (Mode::Single, "single", ["single_recovery_ms", "single_silent_recovery_ms"]),
];
/// The kinds of failure of the first link.
const DEATHS: [(&str, Act); 2] = [("event", Act::Unplug(0)), ("silence", Act::Swallow(0))];

/// The settings.
const SETTINGS: &[Setting] = &[
    TRANSFER,
    Setting::choice("by", &["both", "event", "silence"], "how the first link dies"),
    Setting::flag("standby", true, "whether the second link stands by with mode backup"),
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better(MODES[0].2[0]),
    Key::lower_is_better(MODES[0].2[1]),
    Key::lower_is_better(MODES[1].2[0]),
    Key::lower_is_better(MODES[1].2[1]),
    Key::lower_is_better(MODES[2].2[0]),
    Key::lower_is_better(MODES[2].2[1]),
    Key::higher_is_better("backup_after_full_ms"),
    Key::higher_is_better("single_after_backup_ms"),
    Key::lower_is_better("standby_bytes"),
    Key::must_hold("checksum_ok"),
    Key::lower_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Modes;

impl Scenario for Modes {
    fn about(&self) -> About {
        About {
            name: "modes",
            summary: "how soon a transfer recovers from the death of a link in each mode",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Lukaszewski 2017, of MPTCP over Wi-Fi and 3G, after others' measurements")
            .cite("backup_after_full", "full recovers first", "", "section 2.3.2")
            .beside("backup_after_full_ms")
            .cite("single_after_backup", "single recovers last", "", "section 2.3.2")
            .beside("single_after_backup_ms")
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::equal("standby_bytes", 0), Limit::equal("checksum_ok", true)]
    }

    /// The least difference between the modes.
    fn bound_ms(&self, _settings: &Settings) -> f64 {
        (FIRST.round_trip_ns / MS) as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut draw = Draw::new(stage.seed);
        let links = [FIRST, LEFT].map(|usual| draw.link(&usual));
        let dies_ns = draw.about(DIES_NS);
        draw.report(&mut outcome);
        let (mut rows, mut intact) = (Vec::new(), true);
        let mut recovered = [[None; DEATHS.len()]; MODES.len()];
        for ((mode, name, keys), recovered) in MODES.into_iter().zip(&mut recovered) {
            let [first, left] = links.map(|link| link.link());
            let mode = told_as(stage, mode);
            let terrain = Terrain { beside: vec![left], mode, ..Terrain::of(first) };
            for (at, (death, act)) in deaths(stage) {
                let mut seen = Seen::default();
                outcome.absorb(stage.on_ground(&terrain, &mut |ground, outcome| {
                    // Until there is a path on each link that should have one.
                    ground.pause(CALM_NS)?;
                    if name == "backup" {
                        outcome.measure("standby_bytes", standby_bytes(ground, stage)?);
                    }
                    seen = tell(ground, stage, Cue::at(dies_ns, act))?;
                    Ok(())
                })?);
                outcome.measure(keys[at], seen.recovery_ms);
                let row = seen.row(name, death);
                (stage.tell)(&table::line(&row));
                rows.push(Value::Object(row));
                recovered[at] = seen.recovery_ms;
                intact &= seen.is_intact;
            }
        }
        let [full, backup, single] = recovered;
        let least_later = |first: &[Option<f64>; 2], second: &[Option<f64>; 2]| {
            let later = |at: usize| Some(second[at]? - first[at]?);
            min(&deaths(stage).map(|(at, _)| later(at)).collect::<Option<Vec<_>>>()?)
        };
        outcome.measure("backup_after_full_ms", least_later(&full, &backup));
        outcome.measure("single_after_backup_ms", least_later(&backup, &single));
        outcome.hold("checksum_ok", intact);
        let is_virtual = stage.entered.is_none();
        let chance_ms = if is_virtual { 0.0 } else { CHANCE_MS };
        let apart_ms = BACKUP_AFTER_FULL_MS + chance_ms;
        outcome.ask(Limit::at_least("backup_after_full_ms", apart_ms));
        for (at, _) in deaths(stage) {
            outcome.ask(Limit::at_most(MODES[0].2[at], FULL_MS + chance_ms));
            if is_virtual {
                outcome.ask(Limit::at_most(MODES[1].2[at], BACKUP_MS[at]));
            }
        }
        if is_virtual {
            outcome.ask(Limit::at_least("single_after_backup_ms", SINGLE_AFTER_BACKUP_MS));
        }
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        Ok(outcome)
    }
}

/// The mode that runs in place of this one: without a standby link, and in a control, no path is
/// prepared.
fn told_as(stage: &Stage<'_>, mode: Mode) -> Mode {
    let stands_by = stage.settings.flag("standby");
    let is_single = stage.control() || (mode == Mode::Backup && !stands_by);
    if is_single { Mode::Single } else { mode }
}

/// The failures to run, by their numbers; a control needs one.
fn deaths(stage: &Stage<'_>) -> impl Iterator<Item = (usize, (&'static str, Act))> {
    let by = match stage.settings.text("by") {
        "both" if stage.control() => DEATHS[0].0,
        by => by,
    }
    .to_owned();
    let is_told = move |(_, (death, _)): &(usize, (&str, Act))| by == "both" || by == *death;
    DEATHS.into_iter().enumerate().filter(is_told)
}

/// Bytes of UDP payload on the second link while the first one carries a transfer; `None` if the
/// backend does not count each path.
fn standby_bytes(ground: &mut dyn Ground, stage: &Stage<'_>) -> Result<Option<f64>, Trouble> {
    let before = ground.reported(Receiver::Client)?;
    carry(ground, stage, UNDISTURBED_NS, &[])?;
    let bytes = by_all_but_one(&before, &ground.reported(Receiver::Client)?);
    ground.pause(CALM_NS)?;
    Ok(bytes.map(|bytes| bytes as f64))
}

/// The receiver's view.
#[derive(Default)]
struct Seen {
    /// Time from the failure until the transfer had recovered.
    recovery_ms: Option<f64>,
    /// The longest time without arrivals.
    stall_ms: Option<f64>,
    is_intact: bool,
}

impl Seen {
    fn row(&self, mode: &str, death: &str) -> Row {
        table::row([
            ("mode", mode.into()),
            ("by", death.into()),
            ("recovery_ms", figure(self.recovery_ms)),
            ("stall_ms", figure(self.stall_ms)),
        ])
    }
}

/// A transfer in which the first link fails.
fn tell(ground: &mut dyn Ground, stage: &Stage<'_>, dies: Cue) -> Result<Seen, Trouble> {
    let payload_share = Carried::Tcp.payload_share(ground)?;
    let transfer = carry(ground, stage, dies.at_ns + AFTERWARDS_NS, &[dies])?;
    let left_mbps = payload_share.map(|share| LEFT.rate as f64 / 1e6 * share);
    Ok(Seen {
        recovery_ms: left_mbps.and_then(|mbps| recovery_ms(&transfer, mbps)),
        stall_ms: transfer.still_ms(),
        is_intact: transfer.intact && transfer.moments.len() == 1,
    })
}

/// A transfer of this length.
fn carry(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    length_ns: u64,
    script: &[Cue],
) -> Result<Transfer, Trouble> {
    let mbps = (FIRST.rate + LEFT.rate) / 1_000_000;
    let bulk = Connections::outlasting(receiver(stage.settings), mbps, length_ns);
    let mut transfers = ground.connect(&[bulk], length_ns, script)?.concat();
    Ok(transfers.pop().unwrap_or_default())
}

/// The time for which a transfer lacked this rate after its act, in milliseconds; `None` without an
/// act.
fn recovery_ms(transfer: &Transfer, mbps: f64) -> Option<f64> {
    let died_ns = transfer.moments.first()?.done_ns.checked_sub(transfer.start_ns)?;
    let had_mbps = transfer.mbps_within(died_ns, died_ns + JUDGED_NS)?;
    Some((1.0 - had_mbps / mbps) * JUDGED_NS as f64 / MS as f64)
}

/// Bytes received between two moments on all paths but the one with most.
fn by_all_but_one(before: &[Reported], after: &[Reported]) -> Option<u64> {
    let had =
        |path: u64| before.iter().find(|one| one.path == path).map_or(0, |one| one.came_bytes);
    let came = || after.iter().map(|one| one.came_bytes.saturating_sub(had(one.path)));
    Some(came().sum::<u64>() - came().max()?)
}

#[cfg(test)]
mod tests {
    use super::{Act, by_all_but_one, recovery_ms};
    use crate::emu::{MS, SECOND};
    use crate::ground::{Moment, Reported, Transfer};

    #[test]
    fn what_is_missing_counts_as_time_of_the_link_that_is_left() {
        // 10 Mbit/s, but from 4 s on nothing for 100 ms, and a half for 200 ms.
        let came = |at_ms: u64| {
            let still = at_ms.clamp(4_000, 4_100) - 4_000;
            let slow = at_ms.clamp(4_100, 4_300) - 4_100;
            (at_ms * MS, (at_ms - still - slow) * 1_250 + slow * 625)
        };
        let transfer = Transfer {
            end_ns: 8 * SECOND,
            progress: (0..=8_000).map(came).collect(),
            moments: vec![Moment::new(Act::Unplug(0), 4 * SECOND, 4 * SECOND)],
            ..Transfer::default()
        };
        let lacked = |mbps| recovery_ms(&transfer, mbps).map(f64::round);
        assert_eq!(lacked(10.0), Some(200.0));
        assert_eq!(lacked(20.0), Some(1_600.0), "half of three seconds, and half of that");
        let nothing = Transfer { moments: Vec::new(), ..transfer.clone() };
        assert_eq!(recovery_ms(&nothing, 10.0), None);
    }

    #[test]
    fn what_came_by_the_other_paths_counts() {
        let path = |path, came_bytes| Reported { path, came_bytes, ..Reported::default() };
        let before = [path(1, 500), path(2, 100)];
        let after = [path(2, 140), path(1, 90_500), path(3, 7)];
        assert_eq!(by_all_but_one(&before, &after), Some(47));
        assert_eq!(by_all_but_one(&[], &[]), None);
    }
}
