//! `competition`: one connection in the tunnel beside one of another host without a tunnel. The
//! other one fills the queue that both share.
//!
//! A path that only wants a short queue gets little there. In each cell Rove carries a connection
//! on one path. Other runs have the same two connections without a tunnel, ours with CUBIC: that is
//! the user's rate without Rove, and about the rate that Rove must reach. A call beside both shows
//! the length of the queue. The path is compared with CUBIC whatever the inner congestion control,
//! because the path itself uses CUBIC's window.
//!
//! The share of two senders that fill one queue depends on chance: on whose packet is dropped
//! first, and on who began. One of two bare connections has up to twice the other's rate, for a
//! minute and more. So each cell is the mean of several runs, in both orders and with slightly
//! different round trips. The limits are for the mean of all cells; each cell only must not starve.
//!
//! In a control the path ignores the competitor. In namespaces the real binary never does; there
//! the control has several others beside the tunnel.

use super::beside::{self, BESIDE, CONGESTION, LINKS_TIMES, MBPS, RTT, STORIES};
use super::links::{GRID, TRANSFER};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::quantile;
use super::table::{self, Row, TABLE, figure, greatest, least};
use super::{About, CALM_NS, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, SECOND};
use crate::ground::{Call, Congestion, Connections, Mode, Route, Talk, Terrain};
use serde_json::Value;

/// Its rate at least and at most, as a share of the rate without a tunnel,
const SHARE_OF_BARE: (f64, f64) = (0.85, 1.15);
/// and the other's least rate, as a share of its rate beside a connection without a tunnel: in the
/// mean of all cells,
const LEFT_SHARE_LEAST: f64 = 0.85;
/// and in each of them.
const STARVED: f64 = 0.6;
/// Others in a control between namespaces.
const MANY: u32 = 8;
/// The beginning of a transfer that does not count.
const FIRST_NS: u64 = 15 * SECOND;
/// How long the call takes.
const CALL_NS: u64 = 20 * SECOND;

/// The length of the queue, in milliseconds.
const QUEUES: &[&str] = &["40", "100"];

/// The settings.
const SETTINGS: &[Setting] = &[
    TRANSFER,
    BESIDE,
    CONGESTION,
    Setting::choice("queue", &[GRID, "40", "100"], "what the queue holds, in milliseconds"),
    MBPS,
    RTT,
    Setting::number("seconds", 60, (20, 600), "how long each connection is carried"),
    STORIES,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("share_of_bare"),
    Key::higher_is_better("left_share"),
    Key::higher_is_better("share_of_bare_min"),
    Key::lower_is_better("share_of_bare_max"),
    Key::higher_is_better("left_share_min"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Competition;

impl Scenario for Competition {
    fn about(&self) -> About {
        About {
            name: "competition",
            summary: "one connection beside one of somebody who has no tunnel and fills the queue",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![
            Limit::at_least("share_of_bare", SHARE_OF_BARE.0),
            Limit::at_most("share_of_bare", SHARE_OF_BARE.1),
            Limit::at_least("left_share", LEFT_SHARE_LEAST),
            Limit::at_least("share_of_bare_min", STARVED),
            Limit::at_least("left_share_min", STARVED),
        ]
    }

    fn bound_ms(&self, settings: &Settings) -> f64 {
        let queues = queues(settings);
        queues.iter().filter_map(|queue| queue.parse().ok()).fold(f64::INFINITY, f64::min)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let queues = queues(stage.settings);
        let cells =
            beside::others(stage).flat_map(|other| queues.iter().map(move |queue| (other, *queue)));
        let mut rows = Vec::new();
        for (other, queue) in cells.take(if stage.control() { 1 } else { usize::MAX }) {
            let cell = Cell { stage, other, queue_ms: queue.parse()? };
            let bare = cell.measure(None, &mut outcome)?;
            for ours in beside::ours(stage) {
                let row = cell.row(ours, &bare, &mut outcome)?;
                (stage.tell)(&table::line(&row));
                rows.push(Value::Object(row));
            }
        }
        outcome.measure("share_of_bare", table::mean(&rows, "share_of_bare"));
        outcome.measure("left_share", table::mean(&rows, "left_share"));
        outcome.measure("share_of_bare_min", least(&rows, "share_of_bare"));
        outcome.measure("share_of_bare_max", greatest(&rows, "share_of_bare"));
        outcome.measure("left_share_min", least(&rows, "left_share"));
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        Ok(outcome)
    }
}

fn queues(settings: &Settings) -> Vec<&'static str> {
    let is_set = |queue: &&str| [GRID, *queue].contains(&settings.text("queue"));
    QUEUES.iter().copied().filter(is_set).collect()
}

/// The rates of both, in Mbit/s, and the delay of a call beside them.
struct Had {
    mbps: Option<f64>,
    left_mbps: Option<f64>,
    call_p99_ms: Option<f64>,
}

/// Runs beside a connection of this kind, and a queue of this length in milliseconds.
struct Cell<'a> {
    stage: &'a Stage<'a>,
    other: Congestion,
    queue_ms: u64,
}

impl Cell<'_> {
    /// A row for this inner congestion control, compared with the run without a tunnel.
    fn row(&self, ours: Congestion, bare: &Had, outcome: &mut Outcome) -> anyhow::Result<Row> {
        let had = self.measure(Some(ours), outcome)?;
        let share = |part: Option<f64>, of: Option<f64>| Some(part? / of?);
        Ok(table::row([
            ("beside", self.other.name().into()),
            ("cc", ours.name().into()),
            ("queue_ms", self.queue_ms.into()),
            ("mbps", figure(had.mbps)),
            ("left_mbps", figure(had.left_mbps)),
            ("bare_mbps", figure(bare.mbps)),
            ("bare_left_mbps", figure(bare.left_mbps)),
            ("share_of_bare", figure(share(had.mbps, bare.mbps))),
            ("left_share", figure(share(had.left_mbps, bare.left_mbps))),
            ("ratio_to_other", figure(share(had.mbps, had.left_mbps))),
            ("call_p99_ms", figure(had.call_p99_ms)),
            ("bare_call_p99_ms", figure(bare.call_p99_ms)),
        ]))
    }

    /// The rates of ours, in the tunnel with this congestion control or without a tunnel, and of
    /// the other.
    fn measure(&self, ours: Option<Congestion>, outcome: &mut Outcome) -> anyhow::Result<Had> {
        let [mbps, left_mbps] = self.mean(ours, outcome)?;
        Ok(Had { mbps, left_mbps, call_p99_ms: self.call(ours, outcome)? })
    }

    /// The rates of both, in Mbit/s, in the mean of all runs.
    fn mean(
        &self,
        ours: Option<Congestion>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<[Option<f64>; 2]> {
        let both = self.both(ours, self.stage.settings.number("seconds") * SECOND);
        // Each round trip in both orders.
        let terrain = |story| self.terrain(story / 2);
        beside::mean_mbps(self.stage, terrain, both, FIRST_NS, outcome)
    }

    /// The 99th percentile of a call's delay in the tunnel beside both, in milliseconds.
    fn call(&self, ours: Option<Congestion>, outcome: &mut Outcome) -> anyhow::Result<Option<f64>> {
        let call = Call { talk: Talk::Voice, silence_ns: FIRST_NS, length_ns: CALL_NS };
        let both = self.both(ours, call.end_ns());
        let mut p99 = None;
        let told = self.stage.on_ground(&self.terrain(0), &mut |ground, _| {
            ground.pause(CALM_NS)?;
            p99 = quantile(&ground.call(call, &both, &[])?.0.delays_ms(), 0.99);
            Ok(())
        })?;
        outcome.absorb(told);
        Ok(p99)
    }

    /// Our connection and the other; both outlast the run.
    fn both(&self, ours: Option<Congestion>, length_ns: u64) -> [Connections; 2] {
        let usual = beside::lasting(self.stage.settings, length_ns);
        let ours = beside::by(ours, usual);
        let is_broken = self.stage.control() && self.stage.entered.is_some();
        let count = if is_broken && ours.route == Route::Tunnelled { MANY } else { 1 };
        [ours, Connections { route: Route::Open, congestion: self.other, count, ..usual }]
    }

    fn terrain(&self, story: u64) -> Terrain {
        let settings = self.stage.settings;
        let (bits, rtt_ns) =
            (settings.number("mbps") * 1_000_000, beside::round_trip_ns(self.stage, story));
        let behind = LinkConfig::lossless(bits, 0).queue_ms(self.queue_ms);
        Terrain {
            bottleneck: Some(behind),
            mode: Mode::Full,
            competes: !self.stage.control(),
            ..Terrain::of(LinkConfig::lossless(bits * LINKS_TIMES, rtt_ns))
        }
    }
}
