//! `competition`: one connection in the tunnel beside one of somebody who has none and fills the
//! queue that both lead through.
//!
//! Who only wants a short queue gets little there. In each cell Rove carries a connection by one
//! path; in other runs the same two connections are there without a tunnel, ours by CUBIC: that is
//! what the user would have without Rove, and about what he is to have with it. A call beside both
//! shows how long the queue is in either case.
//!
//! Two who fill one queue share it by chance: whose datagram meets its end first, and who began. Of
//! two bare connections one has up to twice what the other has, for a minute and more. So each cell
//! is the mean of several stories, in both orders and with round trips a little apart, and what is
//! asked for is asked of the mean of all cells; of each only that nobody starves.
//!
//! In a control the path does not heed that somebody else fills the queue. In namespaces, where the
//! real binary always does, there are several others beside the tunnel.

use super::beside::{self, BESIDE, CALM_NS, LINKS_TIMES, MBPS, RTT};
use super::links::{GRID, TRANSFER};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::quantile;
use super::table::{self, Row, TABLE, figure, greatest, least};
use super::{About, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, SECOND};
use crate::ground::{Call, Congestion, Connections, Mode, Route, Talk, Terrain};
use serde_json::Value;

/// What it takes at least and at most, as a share of what it would without a tunnel,
const SHARE_OF_BARE: (f64, f64) = (0.85, 1.15);
/// and what the other has beside it at least, as a share of what that has beside one without: in
/// the mean of all cells,
const LEFT_SHARE_LEAST: f64 = 0.85;
/// and in each of them.
const STARVED: f64 = 0.6;
/// So many stories of each cell, half of them in either order.
const STORIES: u64 = 4;
/// Others in a control between namespaces.
const MANY: u32 = 8;
/// The beginning of a transfer that does not count.
const FIRST_NS: u64 = 15 * SECOND;
/// How long the call takes.
const CALL_NS: u64 = 20 * SECOND;

/// What the queue holds, in milliseconds.
const QUEUES: &[&str] = &["40", "100"];

/// What can be set.
const SETTINGS: &[Setting] = &[
    TRANSFER,
    BESIDE,
    Setting::choice("queue", &[GRID, "40", "100"], "what the queue holds, in milliseconds"),
    MBPS,
    RTT,
    Setting::number("seconds", 60, (20, 600), "how long each connection is carried"),
];

/// What is measured at least.
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
            let row = cell.row(&mut outcome)?;
            (stage.tell)(&table::line(&row));
            rows.push(Value::Object(row));
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

/// Stories beside a connection of this kind, and a queue of so many milliseconds.
struct Cell<'a> {
    stage: &'a Stage<'a>,
    other: Congestion,
    queue_ms: u64,
}

impl Cell<'_> {
    fn row(&self, outcome: &mut Outcome) -> anyhow::Result<Row> {
        let [ours, left] = self.mean(Route::Tunnelled, outcome)?;
        let [bare, bare_left] = self.mean(Route::Open, outcome)?;
        let call = self.call(Route::Tunnelled, outcome)?;
        let bare_call = self.call(Route::Open, outcome)?;
        let share = |part: Option<f64>, of: Option<f64>| Some(part? / of?);
        Ok(table::row([
            ("beside", self.other.name().into()),
            ("queue_ms", self.queue_ms.into()),
            ("mbps", figure(ours)),
            ("left_mbps", figure(left)),
            ("bare_mbps", figure(bare)),
            ("bare_left_mbps", figure(bare_left)),
            ("share_of_bare", figure(share(ours, bare))),
            ("left_share", figure(share(left, bare_left))),
            ("ratio_to_other", figure(share(ours, left))),
            ("call_p99_ms", figure(call)),
            ("bare_call_p99_ms", figure(bare_call)),
        ]))
    }

    /// What ours, which takes this route, and theirs have in Mbit/s, in the mean of all stories.
    fn mean(&self, route: Route, outcome: &mut Outcome) -> anyhow::Result<[Option<f64>; 2]> {
        let both = self.both(route, self.stage.settings.number("seconds") * SECOND);
        // Each round trip in either order.
        let terrain = |story| self.terrain(story / 2);
        beside::mean_mbps(self.stage, STORIES, terrain, both, FIRST_NS, outcome)
    }

    /// How long 99 of 100 datagrams of a call in the tunnel took beside both, in milliseconds.
    fn call(&self, route: Route, outcome: &mut Outcome) -> anyhow::Result<Option<f64>> {
        let call = Call { talk: Talk::Voice, silence_ns: FIRST_NS, length_ns: CALL_NS };
        let both = self.both(route, call.end_ns());
        let mut p99 = None;
        let told = self.stage.on_ground(&self.terrain(0), &mut |ground, _| {
            ground.pause(CALM_NS)?;
            p99 = quantile(&ground.call(call, &both, &[])?.0.delays_ms(), 0.99);
            Ok(())
        })?;
        outcome.absorb(told);
        Ok(p99)
    }

    /// Our connection by this route and the other, of more than there is time for.
    fn both(&self, route: Route, length_ns: u64) -> [Connections; 2] {
        let ours = Connections { route, ..beside::lasting(self.stage.settings, length_ns) };
        let is_broken = self.stage.control() && self.stage.entered.is_some();
        let count = if is_broken && route == Route::Tunnelled { MANY } else { 1 };
        [ours, Connections { route: Route::Open, congestion: self.other, count, ..ours }]
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
