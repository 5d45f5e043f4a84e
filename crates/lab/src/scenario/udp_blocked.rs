//! `udp-blocked`: the client is in a network that blocks some packets, in four cells: all UDP;
//! everything but TCP to port 443; the same, and only TLS; everything but an HTTP proxy.
//!
//! In each the client starts a few times and downloads a file. Then the network blocks nothing any
//! more while data flows in both directions, and UDP takes over. Last, the same network begins to
//! block during a flow.
//!
//! In virtual time TCP is a model, TLS is its round trip and its first bytes, and the proxy answers
//! at once. There is no MPTCP, and a program starts in no time.

use super::deploy::{Deployment, Setup, Streams};
use super::drawn::Draw;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::stage::USUALLY;
use super::statistics::{max, median};
use super::testbed::Testbed;
use super::{About, FAMILY, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{MS, Rng, SECOND};
use crate::ground::{Act, Blockade, Cue, Download, Flow, FlowRun, Ground, Transport, Trouble};
use crate::world::StreamsKnown;

/// Time from the start of the client's program within which it must have reached the server: the
/// limit for a gateway that moved. UDP has a quarter of it to answer. Then come a connection, TLS,
/// the handshake and the first answer, a round trip each, and two more with a proxy.
const CONNECT_MS: u64 = 1_000;
/// Time within which UDP must take over beyond a round trip: it is probed once a second, and the
/// answer has the margin of every return.
const BACK_MARGIN_MS: f64 = 1_020.0;
/// How long a client is awaited.
const PATIENCE_NS: u64 = 10 * SECOND;
/// The same when the mechanism is broken on purpose.
const CONTROL_PATIENCE_NS: u64 = 4 * SECOND;
/// Bytes of the download.
const LENGTH: u64 = 5_000_000;
/// How long that may take.
const TRANSFER_LIMIT_NS: u64 = 60 * SECOND;
/// When the network changes, after the flows began; up to a second later, so that it is not in step
/// with probes once a second.
const CHANGES_NS: u64 = SECOND;
/// How long the flows continue.
const AFTERWARDS_NS: u64 = 4 * SECOND;

/// A network, its word in `--set`, and its keys: until the first answer, and until UDP takes over.
struct Cell {
    word: &'static str,
    blockade: Blockade,
    keys: [&'static str; 2],
}

const CELLS: [Cell; 4] = [
    Cell {
        word: "no-udp",
        blockade: Blockade::NoUdp,
        keys: ["no_udp_connect_ms", "no_udp_back_ms"],
    },
    Cell {
        word: "only-443",
        blockade: Blockade::Only443,
        keys: ["only_443_connect_ms", "only_443_back_ms"],
    },
    Cell {
        word: "only-tls",
        blockade: Blockade::OnlyTls,
        keys: ["only_tls_connect_ms", "only_tls_back_ms"],
    },
    Cell {
        word: "only-proxy",
        blockade: Blockade::OnlyProxy,
        keys: ["only_proxy_connect_ms", "only_proxy_back_ms"],
    },
];

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::choice(
        "cell",
        &["all", "no-udp", "only-443", "only-tls", "only-proxy"],
        "one of the networks alone",
    ),
    Setting::number("starts", 3, (1, 50), "how often the client begins anew in each"),
    FAMILY,
];

/// The keys at least: the worst of all cells, then of each.
const KEYS: &[Key] = &[
    Key::lower_is_better("connect_ms"),
    Key::lower_is_better("back_to_udp_ms"),
    Key::lower_is_better("back_still_ms"),
    Key::lower_is_better("cut_still_ms"),
    Key::lower_is_better("transfer_s"),
    Key::must_hold("checksum_ok"),
    Key::must_hold("transports_ok"),
    Key::lower_is_better(CELLS[0].keys[0]),
    Key::lower_is_better(CELLS[0].keys[1]),
    Key::lower_is_better(CELLS[1].keys[0]),
    Key::lower_is_better(CELLS[1].keys[1]),
    Key::lower_is_better(CELLS[2].keys[0]),
    Key::lower_is_better(CELLS[2].keys[1]),
    Key::lower_is_better(CELLS[3].keys[0]),
    Key::lower_is_better(CELLS[3].keys[1]),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct UdpBlocked;

impl Scenario for UdpBlocked {
    fn about(&self) -> About {
        About {
            name: "udp-blocked",
            summary: "a network blocks UDP, or more: streams stand in, and UDP takes over again",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![
            Limit::at_most("connect_ms", CONNECT_MS),
            Limit::equal("checksum_ok", true),
            Limit::equal("transports_ok", true),
        ]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        CONNECT_MS as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut all = Outcome::default();
        let mut seen = Seen::default();
        let mut draw = Draw::new(stage.seed);
        let link = draw.link(&USUAL);
        for cell in cells(stage) {
            let terrain = link.terrain();
            let mut story = |ground: &mut dyn Ground, outcome: &mut Outcome| {
                Telling { ground, stage, cell, outcome, seen: &mut seen }.tell()
            };
            all.absorb(match stage.entered {
                Some(entered) => {
                    let deploy = |testbed: &_| deploy(testbed, stage, cell);
                    stage.on_hosts(entered, &terrain, &deploy, &mut story)?
                }
                None => {
                    let known = known(stage, cell);
                    stage.in_virtual_time(&terrain, known, USUALLY, &mut story)?
                }
            });
        }
        seen.report(&mut all);
        let back_ms = link.round_trips_ms(1.0) + BACK_MARGIN_MS;
        all.ask(Limit::at_most("back_to_udp_ms", back_ms));
        draw.report(&mut all);
        Ok(all)
    }
}

/// The cells to run; a control needs one.
fn cells<'a>(stage: &Stage<'a>) -> impl Iterator<Item = &'static Cell> + use<'a> {
    let word = stage.settings.text("cell");
    let asked = move |cell: &&Cell| word == "all" || word == cell.word;
    CELLS.iter().filter(asked).take(if stage.control() { 1 } else { CELLS.len() })
}

/// Deploys like a person who knows the network.
fn deploy(testbed: &Testbed, stage: &Stage<'_>, cell: &Cell) -> anyhow::Result<Deployment> {
    let streams = match cell.blockade {
        _ if stage.control() => Streams::Off,
        Blockade::OnlyProxy => Streams::On443(Some(testbed.proxy()?)),
        Blockade::NoUdp | Blockade::Only443 | Blockade::OnlyTls => Streams::On443(None),
    };
    Deployment::start_with(testbed, stage.rove, &Setup { streams, ..Setup::default() })
}

/// The same in virtual time.
fn known(stage: &Stage<'_>, cell: &Cell) -> StreamsKnown {
    match cell.blockade {
        _ if stage.control() => StreamsKnown::None,
        Blockade::OnlyProxy => StreamsKnown::Proxy,
        Blockade::NoUdp | Blockade::Only443 | Blockade::OnlyTls => StreamsKnown::Direct,
    }
}

/// The results of all cells.
#[derive(Default)]
struct Seen {
    connect_ms: Vec<Option<f64>>,
    back_ms: Vec<f64>,
    back_still_ms: Vec<f64>,
    cut_still_ms: Vec<f64>,
    transfer_s: Vec<Option<f64>>,
    intact: Vec<bool>,
    /// Whether it was a stream or UDP as it had to be.
    as_expected: Vec<bool>,
}

impl Seen {
    fn report(self, outcome: &mut Outcome) {
        // A case that never ended has no figure, and then the worst has none.
        let worst = |all: Vec<Option<f64>>| {
            all.into_iter().collect::<Option<Vec<_>>>().and_then(|all| max(&all))
        };
        let hold = |all: Vec<bool>| !all.is_empty() && all.into_iter().all(|one| one);
        outcome.measure("connect_ms", worst(self.connect_ms));
        outcome.measure("back_to_udp_ms", max(&self.back_ms));
        outcome.measure("back_still_ms", max(&self.back_still_ms));
        outcome.measure("cut_still_ms", max(&self.cut_still_ms));
        outcome.measure("transfer_s", worst(self.transfer_s));
        outcome.hold("checksum_ok", hold(self.intact));
        outcome.hold("transports_ok", hold(self.as_expected));
        outcome.sample("cut_still_ms", self.cut_still_ms);
    }
}

/// The run of one cell.
struct Telling<'a> {
    ground: &'a mut dyn Ground,
    stage: &'a Stage<'a>,
    cell: &'a Cell,
    outcome: &'a mut Outcome,
    seen: &'a mut Seen,
}

impl Telling<'_> {
    fn tell(&mut self) -> Result<(), Trouble> {
        (self.stage.tell)(&format!("a network that lets by: {:?}", self.cell.blockade));
        self.ground.act(Act::Block(self.cell.blockade))?;
        let patience_ns = if self.stage.control() { CONTROL_PATIENCE_NS } else { PATIENCE_NS };
        if !self.starts(patience_ns)? {
            return Ok(());
        }
        self.download()?;
        self.changes()
    }

    /// The client starts; false if it never reaches the server.
    fn starts(&mut self, patience_ns: u64) -> Result<bool, Trouble> {
        let mut all = Vec::new();
        for _ in 0..self.stage.settings.number("starts") {
            let Some(reached_ns) = self.ground.begin_anew(patience_ns)? else {
                self.seen.connect_ms.push(None);
                return Ok(false);
            };
            all.push(reached_ns as f64 / MS as f64);
            let by = self.ground.transport()?;
            (self.stage.tell)(&format!("the client is there by {by:?}"));
            let only_tls = self.cell.blockade != Blockade::NoUdp;
            let expected = by == Some(Transport::Tls) || (!only_tls && by == Some(Transport::Tcp));
            self.seen.as_expected.push(expected);
        }
        self.outcome.measure(self.cell.keys[0], median(&all));
        self.seen.connect_ms.push(median(&all));
        self.outcome.samples.insert(self.cell.keys[0].to_owned(), all);
        Ok(true)
    }

    fn download(&mut self) -> Result<(), Trouble> {
        let download = Download::tunnelled(LENGTH, TRANSFER_LIMIT_NS);
        let transfer = self.ground.download(download, &[], &mut |_| {})?;
        self.seen.transfer_s.push(transfer.seconds());
        self.seen.intact.push(transfer.intact);
        Ok(())
    }

    /// Flows in both directions, in which the network stops blocking, and blocks again.
    fn changes(&mut self) -> Result<(), Trouble> {
        let at_ns = CHANGES_NS + Rng::new(self.stage.seed).below(SECOND);
        let script = [
            Cue::at(at_ns, Act::Unblock),
            Cue::at(at_ns + AFTERWARDS_NS, Act::Block(self.cell.blockade)),
        ];
        let down = Flow::lasting(at_ns + 2 * AFTERWARDS_NS);
        let runs = self.ground.flows(&[down, down.upwards()], &script)?;
        let told = runs.first().and_then(|run| run.moments.first()?.told_ms());
        let back_ms = told.unwrap_or((AFTERWARDS_NS / MS) as f64);
        self.seen.as_expected.push(told.is_some());
        self.seen.back_ms.push(back_ms);
        self.outcome.measure(self.cell.keys[1], Some(back_ms));
        let still = |act: usize| {
            let of = |run: &FlowRun| run.still_ms().get(act).copied();
            max(&runs.iter().filter_map(of).collect::<Vec<_>>())
        };
        self.seen.back_still_ms.extend(still(0));
        self.seen.cut_still_ms.extend(still(1));
        Ok(())
    }
}
