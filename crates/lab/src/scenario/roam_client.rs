//! `roam-client`: the client changes its address, many times, busy and idle, and once during a
//! download (Table 3.1 and Figures 3.8 to 3.10 of Alshalan's thesis).
//!
//! How long data stands still is measured on a steady one-way flow from the server, which no
//! congestion control slows down: from the moment the new address was usable to the first
//! datagram that comes after it. What a TCP download makes of the same move stands beside it.

use super::deploy::{Deployment, openvpn_absent};
use super::record::{Limit, Values};
use super::settings::{Kind, Setting, Settings};
use super::statistics::{max, median, rounded};
use super::story::{
    FLOW_BYTES, FLOW_INTERVAL_US, MovingFlow, MovingFlowPlan, Transfer, flow_stats,
};
use super::testbed::{Move, Route, Testbed};
use super::{Baseline, FAMILY, Grid, Key, Outcome, Scenario, Stage, in_virtual_time};
use crate::emu::{LinkConfig, MS, Rng, SECOND};
use crate::netns::{Capture, Way, monotonic_ns};
use crate::programs::{FlowRequest, Gap, sha256_of};
use crate::world::RoamPlan;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a move may cost beyond a round trip of the new link, in milliseconds.
const MARGIN_MS: f64 = 10.0;
/// Mean time between two moves of the busy part, in nanoseconds.
const PAUSE_NS: u64 = 700 * MS;
/// Moves of the idle part.
const IDLE_MOVES: u32 = 5;
/// How long the tunnel is silent before such a move, in milliseconds.
const IDLE_MS: u64 = 1_200;
/// Datagrams that the server then has to say.
const IDLE_COUNT: u32 = 500;
/// When the client moves during the download, after its start: as in the thesis.
const MOVE_AT_NS: u64 = 7 * SECOND;
/// How long the old link still carries after its routes have gone.
const NOTICE: Duration = Duration::from_millis(300);
/// Moves that others are put through.
const BASELINE_MOVES: u32 = 3;
/// How long the download may take.
const TRANSFER_LIMIT: Duration = Duration::from_secs(300);
/// The same when the mechanism is broken on purpose.
const CONTROL_LIMIT: Duration = Duration::from_secs(3);
/// Moves when the mechanism is broken on purpose.
const CONTROL_MOVES: u32 = 2;

/// What can be set.
const SETTINGS: &[Setting] = &[
    Setting::new(
        "place",
        Kind::Choice(&["distant", "local"]),
        "20 Mbit/s and 40 ms with 40 MB, or 100 Mbit/s and 1 ms with 200 MB",
    ),
    Setting::new("moves", Kind::Number { default: 20, min: 1, max: 200 }, "moves of the busy part"),
    FAMILY,
    Setting::new(
        "baseline",
        Kind::Flag(true),
        "the same without a tunnel, and with OpenVPN if it is installed",
    ),
    Setting::new(
        "megabytes",
        Kind::Number { default: 0, min: 0, max: 2_000 },
        "another size of the download; 0 for the place's own",
    ),
];

/// What is measured at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("still_ms_median"),
    Key::lower_is_better("still_ms_max"),
    Key::lower_is_better("download_still_ms"),
    Key::lower_is_better("rtt_ms"),
    Key::lower_is_better("resumption_ms"),
    Key::lower_is_better("signalling_ms"),
    Key::lower_is_better("idle_still_ms"),
    Key::lower_is_better("known_link_still_ms"),
    Key::lower_is_better("known_link_lost"),
    Key::lower_is_better("transfer_s"),
    Key::lower_is_better("lost_packets"),
    Key::must_hold("checksum_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct RoamClient;

/// One of the thesis' two settings.
struct Place {
    link: LinkConfig,
    round_trip_ms: f64,
    /// Bytes of the download.
    length: u64,
}

impl Place {
    fn of(settings: &Settings) -> Self {
        let (rate, round_trip_ns, length) = match settings.text("place") {
            "local" => (100_000_000, MS, 200_000_000),
            _ => (20_000_000, 40 * MS, 40_000_000),
        };
        let megabytes = settings.number("megabytes");
        Self {
            link: LinkConfig::lossless(rate, round_trip_ns),
            round_trip_ms: round_trip_ns as f64 / MS as f64,
            length: if megabytes == 0 { length } else { megabytes * 1_000_000 },
        }
    }
}

impl Scenario for RoamClient {
    fn name(&self) -> &'static str {
        "roam-client"
    }

    fn summary(&self) -> &'static str {
        "the client changes its address, busy, idle and during a download"
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn keys(&self) -> &'static [Key] {
        KEYS
    }

    fn paper(&self, settings: &Settings) -> Value {
        match settings.text("place") {
            "local" => json!({
                "source": "Alshalan 2017, Table 3.1, local testbed",
                "still_ms_median": 222, "signalling_ms": 8, "transfer_s": 24.0,
                "openvpn_3s_still_ms": 6_907, "openvpn_3s_transfer_s": 33.1,
                "openvpn_60s_still_ms": 64_123, "openvpn_60s_transfer_s": 130.1,
            }),
            _ => json!({
                "source": "Alshalan 2017, Table 3.1, distant testbed",
                "still_ms_median": 558, "signalling_ms": 46, "transfer_s": 87.0,
                "openvpn_3s_still_ms": 8_172, "openvpn_3s_transfer_s": 104.0,
                "openvpn_60s_still_ms": 65_374, "openvpn_60s_transfer_s": 207.0,
            }),
        }
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let bound_ms = Place::of(settings).round_trip_ms + MARGIN_MS;
        vec![
            Limit::at_most("still_ms_median", bound_ms),
            Limit::at_most("idle_still_ms", bound_ms),
            Limit::equal("checksum_ok", true),
        ]
    }

    fn bound_ms(&self, settings: &Settings) -> f64 {
        Place::of(settings).round_trip_ms + MARGIN_MS
    }

    fn run_netns(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let place = Place::of(stage.settings);
        let mut testbed = Testbed::new(stage.entered, &place.link, stage.family(), stage.seed)?;
        (stage.tell)("deploying");
        let deployment = Deployment::start(&testbed, stage.rove)?;
        let mut story = Story { stage, place, deployment, outcome: Outcome::default() };
        let mut rng = Rng::new(stage.seed);
        let moves = stage.settings.number("moves") as u32;
        story.rest(&testbed)?;
        story.busy(&mut testbed, moves, &mut rng)?;
        story.download(&mut testbed)?;
        if !stage.control() {
            story.idle(&mut testbed)?;
            story.known_link(&mut testbed)?;
            story.deployment.check()?;
        }
        let mut outcome = story.outcome;
        outcome.lateness = Some(testbed.network.take_lateness()?);
        drop(testbed);
        outcome.baseline = tell_of_others(stage)?;
        Ok(outcome)
    }

    fn run_virtual(
        &self,
        seed: u64,
        _grid: Grid,
        settings: &Settings,
    ) -> Option<anyhow::Result<Outcome>> {
        let place = Place::of(settings);
        let (moves, broken) = (settings.number("moves") as u32, settings.flag("control"));
        let plan = RoamPlan {
            moves: if broken { moves.min(CONTROL_MOVES) } else { moves },
            pause_ns: PAUSE_NS,
            idle: (moves.min(IDLE_MOVES), IDLE_MS * MS),
            length: place.length,
            move_at_ns: MOVE_AT_NS,
            broken,
        };
        let told = in_virtual_time::check(settings)
            .and_then(|()| in_virtual_time::roam_client(seed, &place.link, &plan));
        Some(told)
    }
}

/// The same story without a tunnel, and with OpenVPN if it is installed: with fewer moves, because
/// each may cost OpenVPN a minute, and without the idle ones.
fn tell_of_others(stage: &Stage<'_>) -> anyhow::Result<Baseline> {
    if stage.rove.is_none() {
        return Ok(Baseline::None("the bare link is what was measured".to_owned()));
    }
    if stage.control() || !stage.settings.flag("baseline") {
        return Ok(Baseline::None("not asked for".to_owned()));
    }
    (stage.tell)("the same without a tunnel");
    let mut baselines = BTreeMap::new();
    baselines.insert("bare".to_owned(), tell_of_other(stage, |_| Ok(Deployment::Bare))?);
    if openvpn_absent().is_none() {
        (stage.tell)("the same with OpenVPN");
        let values = tell_of_other(stage, Deployment::start_openvpn)?;
        baselines.insert("openvpn".to_owned(), values);
    }
    Ok(Baseline::Measured(baselines))
}

/// The shorter story, with something else than Rove.
fn tell_of_other(
    stage: &Stage<'_>,
    deploy: impl Fn(&Testbed) -> anyhow::Result<Deployment>,
) -> anyhow::Result<Values> {
    let place = Place::of(stage.settings);
    let mut testbed = Testbed::new(stage.entered, &place.link, stage.family(), stage.seed)?;
    let deployment = deploy(&testbed)?;
    let mut story = Story { stage, place, deployment, outcome: Outcome::default() };
    story.rest(&testbed)?;
    story.busy(&mut testbed, BASELINE_MOVES, &mut Rng::new(stage.seed))?;
    story.download(&mut testbed)?;
    Ok(story.outcome.measured)
}

/// The story as it is told.
struct Story<'a> {
    stage: &'a Stage<'a>,
    place: Place,
    deployment: Deployment,
    outcome: Outcome,
}

impl Story<'_> {
    /// Round trips before anything moves.
    fn rest(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        let stats = testbed.ping(Route::Tunnelled, 20, 50_000)?.finish()?;
        self.measure("rtt_ms", median(&stats.round_trips_ms()));
        Ok(())
    }

    /// A steady flow, and moves.
    fn busy(&mut self, testbed: &mut Testbed, moves: u32, rng: &mut Rng) -> anyhow::Result<()> {
        let control = self.stage.control();
        let moves = if control { moves.min(CONTROL_MOVES) } else { moves };
        (self.stage.tell)(&format!("{moves} moves under a steady flow"));
        let plan = MovingFlowPlan { moves, pause_ns: PAUSE_NS, dead_ends: control };
        testbed.network.start_capture(testbed.wlan)?;
        let flow = MovingFlow::run(testbed, &self.deployment, plan, rng)?;
        let capture = testbed.network.take_capture(testbed.wlan)?;
        let still = flow.still_ms();
        self.measure("still_ms_median", median(&still));
        self.measure("still_ms_max", max(&still));
        self.outcome.measured.insert("lost_packets".to_owned(), json!(flow.stats.lost));
        let seen: Vec<Seen> = flow.moves.iter().filter_map(|one| Seen::of(&capture, one)).collect();
        let resumption: Vec<f64> = seen.iter().map(|seen| seen.resumption_ms).collect();
        let signalling: Vec<f64> = seen.iter().map(|seen| seen.signalling_ms).collect();
        self.measure("resumption_ms", median(&resumption));
        self.measure("signalling_ms", median(&signalling));
        self.outcome.samples.insert("still_ms".to_owned(), still);
        self.outcome.samples.insert("resumption_ms".to_owned(), resumption);
        Ok(())
    }

    /// The thesis' own experiment: a download, one move after seven seconds.
    fn download(&mut self, testbed: &mut Testbed) -> anyhow::Result<()> {
        (self.stage.tell)("a download, and one move in it");
        let length = self.place.length;
        let download = testbed.download(Route::Tunnelled, self.stage.seed, length)?;
        let start_ns = monotonic_ns();
        let on_move = self.deployment.on_move();
        let mut moved: Option<Move> = None;
        let limit = if self.stage.control() { CONTROL_LIMIT } else { TRANSFER_LIMIT };
        let transfer = Transfer::watch(download, limit, |bytes| {
            let due = monotonic_ns() - start_ns >= MOVE_AT_NS || bytes >= length / 2;
            if moved.is_none() && due {
                moved = Some(testbed.relocate(on_move)?);
            }
            Ok(())
        })?;
        let end_ns = transfer.progress.last().map_or(start_ns, |last| last.0);
        let still = moved.map(|one| Gap::longest_after(&transfer.gaps, one.usable_ns, end_ns));
        self.measure("download_still_ms", still.map(|ns| ns as f64 / MS as f64));
        let seconds = transfer.done.as_ref().map(|done| done.end_ns - done.start_ns);
        self.measure("transfer_s", seconds.map(|ns| ns as f64 / SECOND as f64));
        let intact = transfer.is_intact(&sha256_of(self.stage.seed, length));
        self.outcome.measured.insert("checksum_ok".to_owned(), json!(intact));
        Ok(())
    }

    /// Moves while nothing is sent; then the server has something to say at once. Only a client
    /// that announces its move of its own accord can be reached.
    fn idle(&mut self, testbed: &mut Testbed) -> anyhow::Result<()> {
        (self.stage.tell)("moves while the tunnel is idle");
        let half_trip_ns = (self.place.round_trip_ms * MS as f64 / 2.0) as u64;
        let mut still = Vec::new();
        let moves = u64::from(IDLE_MOVES).min(self.stage.settings.number("moves"));
        for _ in 0..moves {
            let request = FlowRequest {
                interval_us: FLOW_INTERVAL_US,
                size: FLOW_BYTES,
                wait_ms: IDLE_MS,
                count: IDLE_COUNT,
            };
            let flow = testbed.subscribe(Route::Tunnelled, &request)?;
            // The server counts from when the subscription reached it, half a round trip ago.
            let wait_ns = (IDLE_MS * MS).saturating_sub(half_trip_ns);
            std::thread::sleep(Duration::from_nanos(wait_ns));
            let moved = testbed.relocate(self.deployment.on_move())?;
            let stats = flow_stats(flow, Duration::from_secs(10))?;
            let first_ns = stats.gaps.iter().map(|gap| gap.to_ns).find(|to| *to > moved.usable_ns);
            let first_ns =
                if stats.first_ns > moved.usable_ns { Some(stats.first_ns) } else { first_ns };
            let end_ns = moved.usable_ns + u64::from(IDLE_COUNT) * FLOW_INTERVAL_US * 1_000;
            still.push((first_ns.unwrap_or(end_ns) - moved.usable_ns) as f64 / 1e6);
        }
        self.measure("idle_still_ms", median(&still));
        self.outcome.samples.insert("idle_still_ms".to_owned(), still);
        Ok(())
    }

    /// A second link is there before the first one goes, and the going is announced: first the
    /// routes, 300 ms later the carrier.
    fn known_link(&mut self, testbed: &mut Testbed) -> anyhow::Result<()> {
        if matches!(self.deployment, Deployment::Bare) {
            // A bare connection has one address: there is no second link for it.
            return Ok(());
        }
        (self.stage.tell)("a known second link takes over");
        testbed.add_spare()?;
        std::thread::sleep(Duration::from_millis(1_500));
        let request = FlowRequest {
            interval_us: FLOW_INTERVAL_US,
            size: FLOW_BYTES,
            wait_ms: 0,
            count: 3_000,
        };
        let flow = testbed.subscribe(Route::Tunnelled, &request)?;
        std::thread::sleep(Duration::from_millis(800));
        let announced_ns = monotonic_ns();
        testbed.announce_departure()?;
        std::thread::sleep(NOTICE);
        testbed.network.set_carrier(testbed.wlan, false)?;
        let stats = flow_stats(flow, Duration::from_secs(20))?;
        let mut gaps = stats.gaps;
        let end_ns = announced_ns + 2 * SECOND;
        gaps.push(Gap { from_ns: stats.last_ns, to_ns: end_ns.max(stats.last_ns) });
        let still = Gap::longest_after(&gaps, announced_ns, end_ns) as f64 / 1e6;
        self.measure("known_link_still_ms", Some(still));
        self.outcome.measured.insert("known_link_lost".to_owned(), json!(stats.lost));
        Ok(())
    }

    fn measure(&mut self, key: &str, value: Option<f64>) {
        self.outcome.measured.insert(key.to_owned(), json!(value.map(rounded)));
    }
}

/// What passed the client's card around a move.
struct Seen {
    /// From the new address being usable to the first packet that arrives at it.
    resumption_ms: f64,
    /// From the first packet that leaves from it to the first that arrives: one round trip at
    /// least.
    signalling_ms: f64,
}

impl Seen {
    fn of(capture: &Capture, moved: &Move) -> Option<Self> {
        let first = |way: Way| {
            capture.packets.iter().find(|packet| {
                let here = packet.endpoints.map(|ends| match way {
                    Way::Out => ends.source.ip(),
                    Way::In => ends.destination.ip(),
                });
                packet.at_ns >= moved.usable_ns && packet.way == way && here == Some(moved.address)
            })
        };
        let (out, back) = (first(Way::Out)?.at_ns, first(Way::In)?.at_ns);
        let ms = |from_ns: u64| rounded(back.saturating_sub(from_ns) as f64 / MS as f64);
        Some(Self { resumption_ms: ms(moved.usable_ns), signalling_ms: ms(out) })
    }
}
