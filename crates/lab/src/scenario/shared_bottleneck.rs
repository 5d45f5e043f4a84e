//! `shared-bottleneck`: several paths through one queue, beside a connection of a host without a
//! tunnel.
//!
//! Each cell has three runs: Rove carries one connection on several paths, on one path, or not at
//! all (CUBIC). All paths together must take no more than that one flow (RFC 6356, section 3), and
//! leave to the other what it leaves. It takes time until the first and the last sender have their
//! shares, so transfers are long and their beginning does not count. Each run is repeated four
//! times, with slightly different round trips and in both orders, because the shares of two senders
//! in one queue depend on chance.
//!
//! In a control the paths know nothing of each other. In namespaces the real binary always couples
//! them; there, each link has a queue of its own in place of the shared one.

use super::beside::{self, BESIDE, CONGESTION, LINKS_TIMES, MBPS, RTT, STORIES};
use super::links::{GRID, TRANSFER};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::{self, Row, TABLE, figure, greatest, least};
use super::{About, Baseline, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, SECOND};
use crate::ground::{Congestion, Connections, Mode, Route, Spread, Terrain};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The greatest rate of all paths together, relative to one flow without a tunnel.
const RATIO_MAX: f64 = 1.3;
/// The other's least rate beside them, in the mean of all cells and in each of them, relative to
/// its rate beside our connection without a tunnel. Paths use CUBIC's window beside a competitor.
/// To a sender of its own kind Reno would leave more, and BBR less.
const LEFT_LEAST: (f64, f64) = (0.85, 0.6);
/// The beginning of a transfer that does not count.
const FIRST_NS: u64 = 30 * SECOND;

/// Paths of one client.
#[derive(Clone, Copy, Debug)]
struct Paths {
    name: &'static str,
    links: usize,
    subflows: u8,
}

/// The cases, and the keys that measure them.
const SEVERAL: &[Paths] = &[
    Paths { name: "2-links", links: 2, subflows: 1 },
    Paths { name: "4-subflows", links: 1, subflows: 4 },
];
const ONE: Paths = Paths { name: "1-path", links: 1, subflows: 1 };

/// The settings.
const SETTINGS: &[Setting] = &[
    TRANSFER,
    Setting::choice("paths", &[GRID, "2-links", "4-subflows"], "what leads through the queue"),
    BESIDE,
    CONGESTION,
    MBPS,
    RTT,
    Setting::number("queue", 40, (5, 1_000), "what the queue holds, in milliseconds"),
    Setting::number("seconds", 120, (20, 600), "how long each connection is carried"),
    STORIES,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("ratio_to_one_flow"),
    Key::higher_is_better("left_share"),
    Key::higher_is_better("left_share_min"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct SharedBottleneck;

impl Scenario for SharedBottleneck {
    fn about(&self) -> About {
        About {
            name: "shared-bottleneck",
            summary: "several paths through one queue, beside somebody who has no tunnel",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![
            Limit::at_most("ratio_to_one_flow", RATIO_MAX),
            Limit::at_least("left_share", LEFT_LEAST.0),
            Limit::at_least("left_share_min", LEFT_LEAST.1),
        ]
    }

    fn bound_ms(&self, settings: &Settings) -> f64 {
        settings.number("queue") as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let is_set = |paths: &&Paths| [GRID, paths.name].contains(&stage.settings.text("paths"));
        let (mut rows, mut plain) = (Vec::new(), Vec::new());
        for other in beside::others(stage) {
            let beside = Beside { stage, other };
            let bare = beside.take(None, &mut outcome)?;
            plain.push(json!({
                "beside": other.name(),
                "mbps": figure(bare.mbps),
                "left_mbps": figure(bare.left_mbps),
            }));
            for ours in beside::ours(stage) {
                let one = beside.take(Some((ONE, ours)), &mut outcome)?;
                for paths in SEVERAL.iter().filter(is_set) {
                    let all = beside.take(Some((*paths, ours)), &mut outcome)?;
                    let row = row(paths, [other, ours], [&all, &one, &bare]);
                    (stage.tell)(&table::line(&row));
                    rows.push(Value::Object(row));
                }
            }
        }
        outcome.measure("ratio_to_one_flow", greatest(&rows, "ratio_to_flow"));
        outcome.measure("left_share", table::mean(&rows, "left_share"));
        outcome.measure("left_share_min", least(&rows, "left_share"));
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        let plain = BTreeMap::from([(TABLE.to_owned(), Value::Array(plain))]);
        outcome.baseline = Baseline::Measured(BTreeMap::from([("plain".to_owned(), plain)]));
        Ok(outcome)
    }
}

/// The rates of both, in Mbit/s.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    mbps: Option<f64>,
    left_mbps: Option<f64>,
}

fn row(paths: &Paths, [other, ours]: [Congestion; 2], [all, one, bare]: [&Taken; 3]) -> Row {
    let share = |part: Option<f64>, of: Option<f64>| Some(part? / of?);
    table::row([
        ("paths", paths.name.into()),
        ("beside", other.name().into()),
        ("cc", ours.name().into()),
        ("mbps", figure(all.mbps)),
        ("left_mbps", figure(all.left_mbps)),
        ("one_mbps", figure(one.mbps)),
        ("one_left_mbps", figure(one.left_mbps)),
        ("flow_mbps", figure(bare.mbps)),
        ("ratio_to_one", figure(share(all.mbps, one.mbps))),
        ("ratio_to_flow", figure(share(all.mbps, bare.mbps))),
        ("left_share", figure(share(all.left_mbps, bare.left_mbps))),
    ])
}

/// Runs beside a connection of this kind.
struct Beside<'a> {
    stage: &'a Stage<'a>,
    other: Congestion,
}

impl Beside<'_> {
    /// The rate of our connection on these paths with this congestion control, or without a tunnel,
    /// in the mean of all runs.
    fn take(
        &self,
        by: Option<(Paths, Congestion)>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Taken> {
        let settings = self.stage.settings;
        let usual = beside::lasting(settings, settings.number("seconds") * SECOND);
        let theirs = Connections { route: Route::Open, congestion: self.other, ..usual };
        let both = [beside::by(by.map(|(_, ours)| ours), usual), theirs];
        let terrain = |story| self.terrain(by.map_or(ONE, |(paths, _)| paths), story);
        let [mbps, left_mbps] = beside::mean_mbps(self.stage, terrain, both, FIRST_NS, outcome)?;
        Ok(Taken { mbps, left_mbps })
    }

    fn terrain(&self, paths: Paths, story: u64) -> Terrain {
        let settings = self.stage.settings;
        let (bits, rtt_ns) =
            (settings.number("mbps") * 1_000_000, beside::round_trip_ns(self.stage, story));
        let queue_ms = settings.number("queue");
        let behind = LinkConfig::lossless(bits, 0).queue_ms(queue_ms);
        let link = LinkConfig::lossless(bits * LINKS_TIMES, rtt_ns);
        let alone = LinkConfig::lossless(bits, rtt_ns).queue_ms(queue_ms);
        let is_apart = self.stage.control() && self.stage.entered.is_some();
        let (link, bottleneck) = if is_apart { (alone, None) } else { (link, Some(behind)) };
        Terrain {
            beside: vec![link.clone(); paths.links - 1],
            bottleneck,
            mode: Mode::Full,
            spread: Spread { mesh: false, subflows: paths.subflows },
            couples: !self.stage.control(),
            ..Terrain::of(link)
        }
    }
}
