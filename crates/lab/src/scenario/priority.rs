//! `priority`: transfers from several servers at the same time over one link, of which the user
//! prefers one (Springate and Newman's Multilink VPN, Table 2).
//!
//! Each cell carries the same transfers twice: once with equal priorities, and once with one server
//! of the first level and one of the third. Beside the rate of the preferred one, the sum of all is
//! measured: rate that one transfer gives up must reach another.

use super::links::{GRID, Link};
use super::outage::congestion;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::{self, Row, TABLE, figure};
use super::{About, CALM_NS, Key, Outcome, Scenario, Stage};
use crate::emu::{Loss, SECOND};
use crate::ground::{Connections, Mode, Receiver, Terrain, Transfer};
use serde_json::{Value, json};

/// The ratio of one level to the next, as in the README.
const OF_NEXT_LEVEL: u32 = 4;
/// The least gain of the preferred one over equal priorities: the paper's, 328 in place of 179
/// kB/s. By the levels its share of two is 0.94 in place of a half, which is 1.88. And the least
/// part of its due share, and of the earlier sum of all: some is lost before a sender has settled
/// at its new rate.
const SHARE_RATIO_MIN: f64 = 1.83;
const PREFERRED_OF_DUE_MIN: f64 = 0.95;
const SHARE_OF_ALL_MIN: f64 = 0.95;
/// The rate of the second level relative to the third: four times, give or take a fifth of either,
/// which is a window's largest step up. With more, the third is limited too much.
const SECOND_OVER_THIRD: (f64, f64) = (3.2, 5.0);
/// The beginning of a transfer that does not count, because its sender still searches for the rate.
const FIRST_NS: u64 = 5 * SECOND;
/// The preferred server, the one of the lowest level, and one without a level.
const PREFERRED: u8 = 1;
const LAST: u8 = 2;
const UNNAMED: u8 = 0;
/// The client's priorities: first equal ones, then the preferred one.
const EQUAL: &[(u8, u8)] = &[(PREFERRED, 2), (LAST, 2)];
const LEVELS: &[(u8, u8)] = &[(PREFERRED, 1), (LAST, 3)];

/// The cells: direction, link, and servers. If data waits in the fair queue, which exists in mode
/// `full`, the sender shares out what it sends.
const CELLS: &[Cell] = &[
    Cell { to: Receiver::Client, mode: Mode::Backup, link: NEAR, servers: TWO },
    Cell { to: Receiver::Client, mode: Mode::Full, link: FAR, servers: TWO },
    Cell { to: Receiver::Server, mode: Mode::Full, link: NEAR, servers: TWO },
    Cell { to: Receiver::Client, mode: Mode::Backup, link: NEAR, servers: THREE },
];
const NEAR: Link = Link::of(10, 20);
const FAR: Link = Link::of(20, 60);
const TWO: &[u8] = &[PREFERRED, LAST];
const THREE: &[u8] = &[PREFERRED, UNNAMED, LAST];

/// The key and the column of the ratio of the second level to the third, if there are both.
const THIRD: &str = "second_over_third";

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::choice("transfer", &[GRID, "down", "up"], "to the client, or from it"),
    Setting::choice("cc", &["cubic", "reno", "bbr"], "congestion control of both ends"),
    Setting::number("seconds", 30, (10, 600), "how long each connection is carried"),
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("share_ratio"),
    Key::higher_is_better("share_of_all_min"),
    Key::higher_is_better("preferred_of_due_min"),
    Key::higher_is_better(THIRD),
    Key::must_hold("checksum_ok"),
    Key::higher_is_better(TABLE),
];

/// The conditions of two rounds of transfers.
#[derive(Clone, Copy, Debug)]
struct Cell {
    to: Receiver,
    mode: Mode,
    link: Link,
    servers: &'static [u8],
}

/// The scenario.
#[derive(Debug)]
pub(super) struct Priority;

impl Scenario for Priority {
    fn about(&self) -> About {
        About {
            name: "priority",
            summary: "transfers from several servers over one link, of which one is preferred",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        const TABLE_2: &str = "QoS for Speed, Table 2";
        Paper::of("Springate and Newman: the second of two downloads, at low and at high priority")
            .cite("share_ratio", 328.0 / 179.0, "times", TABLE_2)
            .beside("share_ratio")
            .note("328 kB/s over 179 kB/s")
            .cite("kilobytes_per_second", json!([179, 328]), "kB/s", TABLE_2)
            .cite("seconds", json!([114, 62]), "s", TABLE_2)
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![
            Limit::at_least("share_ratio", SHARE_RATIO_MIN),
            Limit::at_least("preferred_of_due_min", PREFERRED_OF_DUE_MIN),
            Limit::at_least("share_of_all_min", SHARE_OF_ALL_MIN),
            Limit::equal("checksum_ok", true),
        ]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        super::links::bound_ms(&[[NEAR, FAR]])
    }

    /// In the control no server is preferred the second time, either.
    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let (mut rows, mut intact) = (Vec::new(), true);
        for cell in told(stage) {
            (stage.tell)(&cell.name());
            let levels = if stage.control() { EQUAL } else { LEVELS };
            let equal = cell.carry(stage, EQUAL, &mut outcome)?;
            let preferring = cell.carry(stage, levels, &mut outcome)?;
            intact &= equal.iter().chain(&preferring).all(|transfer| transfer.intact);
            intact &= equal.len() == cell.servers.len() && preferring.len() == equal.len();
            let row = cell.row(stage, &equal, &preferring);
            (stage.tell)(&table::line(&row));
            rows.push(Value::Object(row));
        }
        for (key, column) in [
            ("share_ratio", "share_ratio"),
            ("share_of_all_min", "share_of_all"),
            ("preferred_of_due_min", "preferred_of_due"),
        ] {
            outcome.measure(key, table::least(&rows, column));
        }
        if rows.iter().any(|row| row.get(THIRD).is_some()) {
            outcome.measure(THIRD, table::least(&rows, THIRD));
            outcome.ask(Limit::at_least(THIRD, SECOND_OVER_THIRD.0));
            outcome.ask(Limit::at_most(THIRD, SECOND_OVER_THIRD.1));
        }
        outcome.hold("checksum_ok", intact && !rows.is_empty());
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        Ok(outcome)
    }
}

/// The share that the first of these servers is due by the priorities, if each wants all.
fn due_share(servers: &[u8]) -> Option<f64> {
    let level = |server| LEVELS.iter().find(|(named, _)| *named == server).map_or(2, |(_, at)| *at);
    let weight = |server: &u8| f64::from(OF_NEXT_LEVEL.pow(3 - u32::from(level(*server))));
    Some(servers.first().map(weight)? / servers.iter().map(weight).sum::<f64>())
}

/// The cells to run.
fn told(stage: &Stage<'_>) -> Vec<Cell> {
    let transfer = stage.settings.text("transfer");
    let is_told = |cell: &&Cell| match transfer {
        "down" => cell.to == Receiver::Client,
        "up" => cell.to == Receiver::Server,
        _ => true,
    };
    let count = if stage.control() { 1 } else { CELLS.len() };
    CELLS.iter().filter(is_told).take(count).copied().collect()
}

impl Cell {
    fn name(&self) -> String {
        let way = if self.to == Receiver::Client { "down" } else { "up" };
        let mode = if self.mode == Mode::Full { "full" } else { "backup" };
        let links = super::links::name(&[self.link]);
        format!("{} {way} over {links}, mode {mode}", self.servers.len())
    }

    /// The transfers, one with each server, with these priorities of the client.
    fn carry(
        &self,
        stage: &Stage<'_>,
        levels: &'static [(u8, u8)],
        outcome: &mut Outcome,
    ) -> anyhow::Result<Vec<Transfer>> {
        let seconds = stage.settings.number("seconds");
        let length_ns = seconds * SECOND;
        let kinds: Vec<Connections> = self
            .servers
            .iter()
            .map(|&server| Connections {
                server,
                congestion: congestion(stage.settings),
                ..Connections::outlasting(self.to, self.link.mbps(), length_ns)
            })
            .collect();
        let terrain =
            Terrain { mode: self.mode, levels, ..Terrain::of(self.link.config(Loss::None)) };
        let mut transfers = Vec::new();
        outcome.absorb(stage.on_ground(&terrain, &mut |ground, _| {
            ground.pause(CALM_NS)?;
            let longest_ns = length_ns + Connections::OPENING_NS;
            transfers = ground.connect(&kinds, longest_ns, &[])?.concat();
            Ok(())
        })?);
        Ok(transfers)
    }

    fn row(&self, stage: &Stage<'_>, equal: &[Transfer], preferring: &[Transfer]) -> Row {
        let to_ns = stage.settings.number("seconds") * SECOND;
        // Short runs are tests of the lab: they skip in proportion.
        let from_ns = FIRST_NS.min(to_ns / 3);
        let rates = |transfers: &[Transfer]| -> Option<Vec<f64>> {
            transfers.iter().map(|one| one.mbps_within(from_ns, to_ns)).collect()
        };
        let [before, after] = [equal, preferring].map(rates);
        let [of_all, of_all_after] =
            [&before, &after].map(|rates| rates.as_ref().map(|all| all.iter().sum::<f64>()));
        let first_after = after.as_ref().and_then(|all| all.first().copied());
        let share = |part: Option<f64>, of: Option<f64>| Some(part? / of?);
        // In a drop-tail queue, chance decides which of two equals has more: the share is the mean.
        let equal = of_all.map(|all| all / self.servers.len() as f64);
        let preferred_share = share(first_after, of_all_after);
        let mut row = table::row([
            ("cell", self.name().into()),
            ("cc", stage.settings.text("cc").into()),
            ("before_mbps", json!(before)),
            ("after_mbps", json!(after)),
            ("share_ratio", figure(share(first_after, equal))),
            ("preferred_share", figure(preferred_share)),
            ("preferred_of_due", figure(share(preferred_share, due_share(self.servers)))),
            ("share_of_all", figure(share(of_all_after, of_all))),
        ]);
        if self.servers == THREE {
            let at = |place: usize| after.as_ref().and_then(|all| all.get(place).copied());
            row.insert(THIRD.to_owned(), figure(share(at(1), at(2))));
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::{THREE, TWO, due_share};

    #[test]
    fn what_is_due_follows_from_the_levels() {
        assert_eq!(due_share(TWO), Some(16.0 / 17.0));
        assert_eq!(due_share(THREE), Some(16.0 / 21.0));
        assert_eq!(due_share(&[]), None);
    }
}
