//! `both-move`: client and gateway change their addresses at the same moment, and neither can tell
//! the other. The client still knows three other things: the gateway's name, which resolves to the
//! new address (outside the tunnel); another address that the gateway had announced; or an address
//! where it answered earlier.

use super::drawn::Draw;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, median};
use super::{About, CleanLink, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{Rng, SECOND};
use crate::ground::{
    Act, Cue, Download, Edge, Flow, FlowRun, Ground, Harm, Known, Terrain, Trouble,
};

/// The longest pause of the data, in milliseconds: the limit for a gateway that moved.
const STILL_MS: u64 = 1_000;
/// When both move, after the flows began; up to half as much later.
const MOVES_NS: u64 = SECOND;
/// How long the flows continue: longer than any pause between two DNS queries.
const AFTERWARDS_NS: u64 = 6 * SECOND;
/// How long the gateway has two addresses before it moves to the second.
const BOTH_NS: u64 = SECOND;
/// How long a client has to settle at an address that the gateway leaves again.
const SETTLING_NS: u64 = 2 * SECOND;
/// Bytes of the download.
const LENGTH: u64 = 5_000_000;
/// Approximate time of both moves in it.
const MOVES_IN_DOWNLOAD_NS: u64 = SECOND;
/// The longest download.
const TRANSFER_LIMIT_NS: u64 = 60 * SECOND;

/// How the client finds the gateway, the word for it, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Name,
    Announced,
    Earlier,
}

const WAYS: [(By, &str, &str); 3] = [
    (By::Name, "name", "name_still_ms_max"),
    (By::Announced, "announced", "announced_still_ms_max"),
    (By::Earlier, "earlier", "earlier_still_ms_max"),
];

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::choice(
        "by",
        &["all", "name", "announced", "earlier"],
        "by what the gateway is found: its name, an address that it announced, or an earlier one",
    ),
    Setting::number("moves", 3, (1, 50), "moves for each of these"),
    Setting::number(
        "keep",
        1,
        (0, 60),
        "seconds for which the name's record may be kept, and is, by the name server",
    ),
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("lost_packets"),
    Key::lower_is_better("still_ms_median"),
    Key::lower_is_better("still_ms_max"),
    Key::lower_is_better(WAYS[0].2),
    Key::lower_is_better(WAYS[1].2),
    Key::lower_is_better(WAYS[2].2),
    Key::must_hold("checksum_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct BothMove;

impl Scenario for BothMove {
    fn about(&self) -> About {
        About {
            name: "both-move",
            summary: "client and gateway move in the same moment, and nobody is told",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::at_most("still_ms_max", STILL_MS), Limit::equal("checksum_ok", true)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        STILL_MS as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut all = Outcome::default();
        let mut seen = Seen::default();
        let mut draw = Draw::new(stage.seed);
        for (by, key) in ways(stage) {
            let terrain = terrain(stage, &draw.link(&USUAL), by);
            let one = stage.on_ground(&terrain, &mut |ground, outcome| {
                let rng = Rng::new(stage.seed);
                let mut telling = Telling { ground, stage, by, rng, draw: &mut draw };
                outcome.measure(key, telling.moves(&mut seen)?);
                seen.intact.push(telling.download()?);
                Ok(())
            })?;
            all.absorb(one);
        }
        seen.report(&mut all);
        draw.report(&mut all);
        Ok(all)
    }
}

/// The cases to run; a control breaks one.
fn ways<'a>(stage: &Stage<'a>) -> impl Iterator<Item = (By, &'static str)> + use<'a> {
    let asked = stage.settings.text("by");
    let ways = WAYS.iter().filter(move |(_, word, _)| asked == "all" || asked == *word);
    ways.take(if stage.control() { 1 } else { WAYS.len() }).map(|(by, _, key)| (*by, *key))
}

fn terrain(stage: &Stage<'_>, link: &CleanLink, by: By) -> Terrain {
    let known = match by {
        By::Name => Known::ByName { keep_s: stage.settings.number("keep") },
        By::Announced => Known::ByTwoAddresses,
        By::Earlier => Known::ByAddress,
    };
    Terrain { edge: Edge::Open, known, ..link.terrain() }
}

/// The results of all cases.
#[derive(Default)]
struct Seen {
    lost: u64,
    still_ms: Vec<f64>,
    intact: Vec<bool>,
}

impl Seen {
    fn report(self, outcome: &mut Outcome) {
        let survived = !self.intact.is_empty() && self.intact.into_iter().all(|one| one);
        outcome.count("lost_packets", self.lost);
        outcome.hold("checksum_ok", survived);
        outcome.measure("still_ms_median", median(&self.still_ms));
        outcome.measure("still_ms_max", max(&self.still_ms));
        outcome.sample("still_ms", self.still_ms);
    }
}

/// The run of one case.
struct Telling<'a> {
    ground: &'a mut dyn Ground,
    stage: &'a Stage<'a>,
    by: By,
    rng: Rng,
    draw: &'a mut Draw,
}

impl Telling<'_> {
    /// Moves under steady flows in both directions; returns the longest pause in milliseconds.
    fn moves(&mut self, seen: &mut Seen) -> Result<Option<f64>, Trouble> {
        let moves = if self.stage.control() { 1 } else { self.stage.settings.number("moves") };
        (self.stage.tell)(&format!("{moves} moves of both, found by {:?}", self.by));
        if self.stage.control() {
            self.ground.harm(Harm::StaleName)?;
        }
        let mut still = Vec::new();
        for _ in 0..moves {
            self.prepare()?;
            let at_ns = MOVES_NS + self.rng.below(MOVES_NS / 2);
            let down = Flow::lasting(at_ns + AFTERWARDS_NS);
            let runs = self.ground.flows(&[down, down.upwards()], &self.both_move(at_ns))?;
            // A pause in either direction counts.
            let of_one = |run: &FlowRun| run.still_ms().last().copied();
            still.extend(max(&runs.iter().filter_map(of_one).collect::<Vec<_>>()));
            seen.lost += runs.iter().map(|run| run.lost).sum::<u64>();
        }
        seen.still_ms.extend(&still);
        Ok(max(&still))
    }

    /// Prepares what the client knows.
    fn prepare(&mut self) -> Result<(), Trouble> {
        match self.by {
            By::Name => Ok(()),
            By::Announced => {
                self.ground.act(Act::ReviveGateway)?;
                self.ground.pause(SETTLING_NS)
            }
            // Twice, so that it is not the address of the invite either.
            By::Earlier => {
                for _ in 0..2 {
                    self.ground.act(Act::AnnounceGateway)?;
                    self.ground.pause(BOTH_NS)?;
                    self.ground.act(Act::RetireGateway)?;
                    self.ground.pause(SETTLING_NS)?;
                }
                Ok(())
            }
        }
    }

    /// The gateway moves, and at once the client. On a busy machine "at once" is late enough for a
    /// packet from the gateway's new address to reach the client at its old one, so all packets are
    /// dropped.
    const fn both_move(&self, at_ns: u64) -> [Cue; 3] {
        let gateway = match self.by {
            By::Name => Act::MoveGateway,
            By::Announced => Act::RetireGateway,
            By::Earlier => Act::ReturnGateway,
        };
        [Cue::at(at_ns, Act::Swallow(0)), Cue::at(at_ns, gateway), Cue::at(at_ns, Act::Relocate)]
    }

    /// A download in which both move; returns whether it is whole.
    fn download(&mut self) -> Result<bool, Trouble> {
        if self.stage.control() {
            return Ok(false);
        }
        (self.stage.tell)("a download in which both move");
        self.prepare()?;
        let at_ns = self.draw.about(MOVES_IN_DOWNLOAD_NS);
        let script = self.both_move(at_ns);
        let download = Download::tunnelled(LENGTH, TRANSFER_LIMIT_NS);
        let transfer = self.ground.download(download, &script, &mut |_| {})?;
        Ok(transfer.intact && transfer.moments.len() == script.len())
    }
}
