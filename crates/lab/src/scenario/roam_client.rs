//! `roam-client`: the client changes its address, many times, busy and idle, and once during a
//! download (Table 3.1 and Figures 3.8 to 3.10 of Alshalan's thesis).
//!
//! The pause is measured on a steady one-way flow from the server, without congestion control: from
//! the moment when the new address is usable to the first datagram after it. The effect of the same
//! move on a TCP download is measured as well.

use super::deploy::{By, Deployment, openvpn_installed};
use super::drawn::Draw;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, median};
use super::steady::{again_and_again, at_rest};
use super::testbed::Testbed;
use super::values::Values;
use super::{
    About, Baseline, CleanLink, FAMILY, Key, LOCAL, MARGIN_MS, Outcome, Scenario, Stage, USUAL,
};
use crate::arrivals::Gap;
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{Act, Clock, Cue, Download, Flow, FlowRun, Ground, Harm, Terrain, Trouble};
use crate::netns::Entered;
use std::collections::BTreeMap;

/// Mean time between two moves of the busy part; each is up to a quarter shorter or longer.
const PAUSE_NS: u64 = 700 * MS;
/// Moves of the idle part.
const IDLE_MOVES: u64 = 5;
/// The least silence of the tunnel before such a move, in real time, so that no packet of the
/// subscription is in flight.
const IDLE_REAL_NS: u64 = 1_200 * MS;
/// The same in virtual time: keepalives are due, the previous epoch is gone, and the move is the
/// first event.
const IDLE_VIRTUAL_NS: u64 = 600 * SECOND;
/// How long the server then sends.
const IDLE_SAID_NS: u64 = 500 * MS;
/// Approximate time of the client's move during the download, after its start: as in the thesis.
const MOVE_AT_NS: u64 = 7 * SECOND;
/// How long a second link exists at least before the first one goes.
const KNOWN_NS: u64 = 1_500 * MS;
/// The length of the flow in which that happens.
const KNOWN_FLOW_NS: u64 = 3 * SECOND;
/// Approximate time of the announcement.
const ANNOUNCED_NS: u64 = 800 * MS;
/// How long the old link still carries after its routes have gone, approximately.
const NOTICE_NS: u64 = 300 * MS;
/// A pause this long after the announcement still counts as its effect.
const BLAMED_NS: u64 = 2 * SECOND;
/// Moves in the runs of other programs.
const BASELINE_MOVES: u64 = 3;
/// Mean time between two of them for OpenVPN. A client that only receives is found again by its
/// next keepalive, 10 s after the one before, and the figure must not end with the next move.
const OPENVPN_PAUSE_NS: u64 = 20 * SECOND;
/// The longest download.
const TRANSFER_LIMIT_NS: u64 = 300 * SECOND;
/// The same if the mechanism is broken on purpose: several times what a working one needs for
/// [`CONTROL_LENGTH`], so that only the fault can make it fail.
const CONTROL_LIMIT_NS: u64 = 10 * SECOND;
/// Bytes of the download in that case.
const CONTROL_LENGTH: u64 = 4_000_000;
/// Moves in that case.
const CONTROL_MOVES: u64 = 2;

/// The place of the thesis' figures, and their testbed.
const TABLE_3_1: &str = "Table 3.1";
const LOCAL_TESTBED: &str = "Alshalan 2017, section 3.7.4, local testbed";
const DISTANT_TESTBED: &str = "Alshalan 2017, section 3.7.4, distant testbed";

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::choice(
        "place",
        &["distant", "local"],
        "20 Mbit/s and 40 ms with 40 MB, or 100 Mbit/s and 1 ms with 200 MB",
    ),
    Setting::number("moves", 20, (1, 200), "moves of the busy part"),
    Setting::number("known", 5, (1, 50), "cuts with a second link known; as many announced ones"),
    FAMILY,
    Setting::flag(
        "baseline",
        true,
        "the same without a tunnel, and with OpenVPN if it is installed",
    ),
    Setting::number(
        "megabytes",
        0,
        (0, 2_000),
        "another size of the download; 0 for the place's own",
    ),
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("still_ms_median"),
    Key::lower_is_better("still_ms_max"),
    Key::lower_is_better("still_with_detection_ms"),
    Key::lower_is_better("download_still_ms"),
    Key::lower_is_better("rtt_ms"),
    Key::lower_is_better("resumption_ms"),
    Key::lower_is_better("signalling_ms"),
    Key::lower_is_better("idle_still_ms"),
    Key::lower_is_better("known_link_still_ms"),
    Key::lower_is_better("known_link_lost"),
    Key::lower_is_better("cut_up_still_ms"),
    Key::lower_is_better("cut_down_still_ms"),
    Key::lower_is_better("cut_lost"),
    Key::lower_is_better("transfer_s"),
    Key::lower_is_better("lost_packets"),
    Key::must_hold("checksum_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct RoamClient;

/// One of the thesis' two testbeds.
struct Distance {
    terrain: Terrain,
    link: CleanLink,
    /// Bytes of the download.
    length: u64,
}

/// The link of the testbed, and the bytes of its download.
fn place(settings: &Settings) -> (CleanLink, u64) {
    match settings.text("place") {
        "local" => (LOCAL, 200_000_000),
        _ => (USUAL, 40_000_000),
    }
}

impl Distance {
    fn of(settings: &Settings, draw: &mut Draw) -> Self {
        let (usual, length) = place(settings);
        let link = draw.link(&usual);
        let megabytes = settings.number("megabytes");
        Self {
            terrain: link.terrain(),
            link,
            length: if megabytes == 0 { length } else { megabytes * 1_000_000 },
        }
    }
}

impl Scenario for RoamClient {
    fn about(&self) -> About {
        About {
            name: "roam-client",
            summary: "the client changes its address, busy, idle and during a download",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    /// The thesis counts a pause from the end of the old address, so that its figures include the
    /// time in which the system notices. `still_with_detection_ms` does the same.
    fn paper(&self, settings: &Settings) -> Paper {
        let is_local = settings.text("place") == "local";
        let [still, signalling] = if is_local { [222, 8] } else { [558, 46] };
        let [still_3s, still_60s] = if is_local { [6_907, 64_123] } else { [8_172, 65_374] };
        let transfers = if is_local { [24.0, 33.1, 130.1] } else { [87.0, 104.0, 207.0] };
        let [transfer, transfer_3s, transfer_60s] = transfers;
        Paper::of(if is_local { LOCAL_TESTBED } else { DISTANT_TESTBED })
            .cite("still_with_detection_ms", still, "ms", TABLE_3_1)
            .beside("still_with_detection_ms")
            .cite("signalling_ms", signalling, "ms", TABLE_3_1)
            .beside("signalling_ms")
            .cite("wifi_cellular_transfer_s", transfer, "s", TABLE_3_1)
            .beside("transfer_s")
            .note("over real Wi-Fi and cellular links")
            .cite("openvpn_3s_still_with_detection_ms", still_3s, "ms", TABLE_3_1)
            .cite("openvpn_3s_wifi_cellular_transfer_s", transfer_3s, "s", TABLE_3_1)
            .cite("openvpn_60s_still_with_detection_ms", still_60s, "ms", TABLE_3_1)
            .cite("openvpn_60s_wifi_cellular_transfer_s", transfer_60s, "s", TABLE_3_1)
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let mut limits = vec![Limit::equal("checksum_ok", true)];
        if has_second_link(settings) {
            limits.push(Limit::at_most("known_link_still_ms", MARGIN_MS));
            limits.push(Limit::equal("known_link_lost", 0));
            limits.push(Limit::at_most("cut_up_still_ms", MARGIN_MS));
            limits.push(Limit::equal("cut_lost", 0));
        }
        limits
    }

    fn bound_ms(&self, settings: &Settings) -> f64 {
        let move_ms = place(settings).0.nearest().move_ms();
        if has_second_link(settings) { MARGIN_MS as f64 } else { move_ms }
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let distance = Distance::of(stage.settings, &mut draw);
        let mut outcome = stage.on_ground(&distance.terrain, &mut |ground, outcome| {
            let (distance, draw) = (&distance, &mut draw);
            tell(&mut Telling { ground, stage, distance, draw, outcome })
        })?;
        for key in moves_judged(stage.settings) {
            outcome.ask(Limit::at_most(key, distance.link.move_ms()));
        }
        if has_second_link(stage.settings) {
            let still_ms = distance.link.download_still_ms();
            outcome.ask(Limit::at_most("download_still_ms", still_ms));
        }
        draw.report(&mut outcome);
        outcome.baseline = match stage.entered {
            Some(entered) => tell_of_others(entered, stage, &distance)?,
            None => Baseline::None("another program does not run in virtual time".to_owned()),
        };
        Ok(outcome)
    }
}

/// The keys with the limit of a move. A control, and the bare link, must not fail by keys that they
/// do not measure.
fn moves_judged(settings: &Settings) -> impl Iterator<Item = &'static str> {
    let idle = (!settings.flag("control")).then_some("idle_still_ms");
    let cut = has_second_link(settings).then_some("cut_down_still_ms");
    ["still_ms_median"].into_iter().chain(idle).chain(cut)
}

/// Whether there is a part with a second link. A bare connection has one address, so there is none
/// for it.
fn has_second_link(settings: &Settings) -> bool {
    !settings.flag("control") && !settings.flag("bare")
}

/// The run.
fn tell(telling: &mut Telling<'_>) -> Result<(), Trouble> {
    let moves = telling.stage.settings.number("moves");
    if telling.stage.control() {
        telling.ground.harm(Harm::DeadEnds)?;
        at_rest(telling.ground, telling.outcome)?;
        telling.busy(moves.min(CONTROL_MOVES), PAUSE_NS)?;
        return telling.download(CONTROL_LENGTH, CONTROL_LIMIT_NS);
    }
    at_rest(telling.ground, telling.outcome)?;
    telling.busy(moves, PAUSE_NS)?;
    telling.download(telling.distance.length, TRANSFER_LIMIT_NS)?;
    telling.idle(moves.min(IDLE_MOVES))?;
    if !has_second_link(telling.stage.settings) {
        return Ok(());
    }
    telling.known_link()?;
    telling.cut()
}

/// The same without a tunnel, and with OpenVPN if it is installed: with fewer moves, because each
/// may cost OpenVPN a minute, and without the idle ones.
fn tell_of_others(
    entered: &Entered,
    stage: &Stage<'_>,
    distance: &Distance,
) -> anyhow::Result<Baseline> {
    if stage.rove.is_none() {
        return Ok(Baseline::None("the bare link is what was measured".to_owned()));
    }
    if stage.control() || !stage.settings.flag("baseline") {
        return Ok(Baseline::None("not asked for".to_owned()));
    }
    (stage.tell)("the same without a tunnel");
    let mut baselines = BTreeMap::new();
    let bare = |testbed: &_| Deployment::start(testbed, None);
    let bare = tell_of_other(entered, stage, distance, PAUSE_NS, &bare)?;
    baselines.insert("bare".to_owned(), bare);
    if openvpn_installed().is_ok() {
        (stage.tell)("the same with OpenVPN");
        let openvpn = |testbed: &_| Deployment::start_openvpn(testbed, By::Udp);
        let values = tell_of_other(entered, stage, distance, OPENVPN_PAUSE_NS, &openvpn)?;
        baselines.insert("openvpn".to_owned(), values);
    }
    Ok(Baseline::Measured(baselines))
}

/// The shorter run, with another program than Rove.
fn tell_of_other(
    entered: &Entered,
    stage: &Stage<'_>,
    distance: &Distance,
    pause_ns: u64,
    deploy: &dyn Fn(&Testbed) -> anyhow::Result<Deployment>,
) -> anyhow::Result<Values> {
    let mut draw = Draw::new(stage.seed);
    let outcome = stage.on_hosts(entered, &distance.terrain, deploy, &mut |ground, outcome| {
        let telling = &mut Telling { ground, stage, distance, draw: &mut draw, outcome };
        at_rest(telling.ground, telling.outcome)?;
        telling.busy(BASELINE_MOVES, pause_ns)?;
        telling.download(telling.distance.length, TRANSFER_LIMIT_NS)
    })?;
    Ok(outcome.measured)
}

/// The run in progress.
struct Telling<'a> {
    ground: &'a mut dyn Ground,
    stage: &'a Stage<'a>,
    distance: &'a Distance,
    draw: &'a mut Draw,
    outcome: &'a mut Outcome,
}

impl Telling<'_> {
    /// A steady flow with repeated moves.
    fn busy(&mut self, moves: u64, pause_ns: u64) -> Result<(), Trouble> {
        (self.stage.tell)(&format!("{moves} moves under a steady flow"));
        let mut rng = Rng::new(self.stage.seed);
        let (script, end_ns) = again_and_again(&mut rng, pause_ns, moves, Act::Relocate);
        let run = self.ground.flow(Flow::lasting(end_ns), &script)?;
        let (still, resumption) = (run.still_ms(), run.resumption_ms());
        self.outcome.measure("still_ms_median", median(&still));
        self.outcome.measure("still_ms_max", max(&still));
        self.outcome.measure("still_with_detection_ms", median(&run.still_from_loss_ms()));
        self.outcome.measure("resumption_ms", median(&resumption));
        self.outcome.measure("signalling_ms", median(&run.signalling_ms()));
        self.outcome.count("lost_packets", run.lost);
        self.outcome.sample("still_ms", still);
        self.outcome.sample("resumption_ms", resumption);
        Ok(())
    }

    /// The thesis' own experiment: a download, one move after seven seconds.
    fn download(&mut self, length: u64, limit_ns: u64) -> Result<(), Trouble> {
        (self.stage.tell)("a download, and one move in it");
        let at_ns = self.draw.about(MOVE_AT_NS);
        let script = [Cue { at_ns, at_bytes: length / 2, act: Act::Relocate }];
        let download = Download::tunnelled(length, limit_ns);
        let transfer = self.ground.download(download, &script, &mut |_| {})?;
        self.outcome.measure("download_still_ms", transfer.still_ms());
        self.outcome.transferred(&transfer, script.len());
        Ok(())
    }

    /// Moves during silence, after which the server sends at once. Only a client that announces its
    /// move by itself can be reached.
    fn idle(&mut self, moves: u64) -> Result<(), Trouble> {
        (self.stage.tell)("moves while the tunnel is idle");
        let silence_ns = match self.ground.clock() {
            Clock::Real => IDLE_REAL_NS,
            Clock::Virtual => IDLE_VIRTUAL_NS,
        };
        let mut still = Vec::new();
        for _ in 0..moves {
            let silence_ns = self.draw.longer(silence_ns);
            let flow = Flow::after(silence_ns, IDLE_SAID_NS);
            let run = self.ground.flow(flow, &[Cue::at(silence_ns, Act::Relocate)])?;
            still.append(&mut run.back_ms());
        }
        self.outcome.measure("idle_still_ms", median(&still));
        self.outcome.sample("idle_still_ms", still);
        Ok(())
    }

    /// A second link exists before the first one goes, and that is announced: first the routes go,
    /// later the carrier.
    fn known_link(&mut self) -> Result<(), Trouble> {
        (self.stage.tell)("a known second link takes over");
        let (mut still, mut lost) = (Vec::new(), 0);
        for _ in 0..self.stage.settings.number("known") {
            let announced_ns = self.draw.about(ANNOUNCED_NS);
            let announced = Cue::at(announced_ns, Act::AnnounceDeparture);
            let gone = Cue::at(announced_ns + self.draw.about(NOTICE_NS), Act::Depart);
            let runs = self.with_spare(&[announced, gone])?;
            let of_one = |run: &FlowRun| {
                let from_ns = run.moments.first()?.began_ns;
                let still_ns = Gap::longest_within(&run.gaps, from_ns, from_ns + BLAMED_NS);
                Some(still_ns as f64 / MS as f64)
            };
            still.extend(max(&runs.iter().filter_map(of_one).collect::<Vec<_>>()));
            lost += runs.iter().map(|run| run.lost).sum::<u64>();
        }
        self.outcome.measure("known_link_still_ms", median(&still));
        self.outcome.count("known_link_lost", lost);
        self.outcome.sample("known_link_still_ms", still);
        Ok(())
    }

    /// The same without an announcement: the cable is pulled. Counted from when the client's kernel
    /// knows it; packets in flight are sent again.
    fn cut(&mut self) -> Result<(), Trouble> {
        (self.stage.tell)("a cut, with a second link known");
        let (mut still, mut lost) = ([Vec::new(), Vec::new()], 0);
        for _ in 0..self.stage.settings.number("known") {
            let at_ns = self.draw.about(ANNOUNCED_NS);
            let runs = self.with_spare(&[Cue::at(at_ns, Act::Depart)])?;
            for (still, run) in still.iter_mut().zip(&runs) {
                still.append(&mut run.still_ms());
                lost += run.lost;
            }
        }
        let [down, up] = still;
        self.outcome.measure("cut_down_still_ms", median(&down));
        self.outcome.measure("cut_up_still_ms", median(&up));
        self.outcome.count("cut_lost", lost);
        self.outcome.sample("cut_down_still_ms", down);
        self.outcome.sample("cut_up_still_ms", up);
        Ok(())
    }

    /// Flows to the client and from it, after a second link has existed for a while.
    fn with_spare(&mut self, script: &[Cue]) -> Result<Vec<FlowRun>, Trouble> {
        self.ground.act(Act::PlugSpare)?;
        self.ground.pause(self.draw.longer(KNOWN_NS))?;
        let down = Flow::lasting(KNOWN_FLOW_NS);
        let runs = self.ground.flows(&[down, down.upwards()], script)?;
        // Back to the first interface: a client may have an order of its own for its links, and
        // would leave the second for the first before that is cut.
        self.ground.act(Act::ChangeCard)?;
        self.ground.pause(KNOWN_NS)?;
        Ok(runs)
    }
}
