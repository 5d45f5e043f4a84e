//! `roam-gateway`: the gateway changes its address while its clients are silent (Figure 3.12 of
//! Alshalan's thesis). Measured is the time until the last of them is reached again.
//!
//! From the change on, the server calls every client every 10 ms. If the change is announced, the
//! gateway has the new address beside the old one and informs every client. About a second later
//! the old one is gone, and the calls begin. If it is not, the old one is gone at once, and the
//! gateway's name resolves to the new one.
//!
//! Behind a NAT that filters, an uninformed client cannot be reached before it notices by itself.
//! Either it sends a packet of its own a second later, which nobody answers, and the time counts
//! from there. Or it sends nothing, until a keepalive stays unanswered.

use super::drawn::Draw;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, median};
use super::{About, FAMILY, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{Filtering, LinkConfig, MS, SECOND};
use crate::ground::{Act, Called, Calling, Clock, Edge, Ground, Known, Terrain, Trouble};

/// Lifetime of an unused NAT mapping.
const EXPIRY_NS: u64 = 120 * SECOND;
/// The longest pause between two keepalives behind a box that forgets after [`EXPIRY_NS`], and the
/// pause before a client begins to learn that, in milliseconds
/// (docs/spec/wire.md#keepalives-and-idle-sessions).
const INTERVALS_MS: (u64, u64) = (EXPIRY_NS / MS * 95 / 100, 25_000);
/// A client begins to learn with the second keepalive.
const LEARNS_S: u64 = 50;
/// Time from an unanswered keepalive until the client is reached, in milliseconds: a timeout, a
/// second of challenges, a handshake, and the time between two calls.
const NOTICED_MS: u64 = 3_000;
/// Time within which the last client must be reached, in milliseconds.
const LAST_MS: u64 = 1_000;
/// How often the server calls, and for how long.
const CALLS: (u64, u64) = (10 * MS, 3 * SECOND);
/// Between namespaces up to this number of clients is called so often. More are called less often,
/// because two processors run two programs for each.
const CALLED_OFTEN: u64 = 40;
/// If only keepalives show that the gateway is gone: time between two calls, and time of the calls
/// beyond the longest pause between two keepalives.
const CALLS_TO_SILENT: (u64, u64) = (SECOND, 10 * SECOND);
/// The least silence of clients before the move, in seconds: a name that was resolved when a client
/// came is not resolved again within 5 s.
const QUIET_S: u64 = 6;
/// When clients send a packet of their own, after they could not be reached.
const WORD_NS: u64 = SECOND;
/// Approximate time with both addresses, if clients are informed.
const BOTH_NS: u64 = SECOND;
/// The greatest number of clients in the simulated world.
const CLIENTS_MAX: u64 = 1_000;

/// The first packet of a client that was not informed and cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// A packet of its own.
    Word,
    /// Keepalives only.
    Keepalive,
}

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::number("clients", 1, (1, CLIENTS_MAX), "how many; between namespaces up to 200"),
    Setting::flag("announced", true, "every client is told before the old address goes"),
    Setting::choice(
        "nat",
        &["none", "endpoint", "port"],
        "what filters before each client: nothing, by address, by address and port",
    ),
    Setting::choice(
        "says",
        &["word", "keepalive"],
        "what a client that cannot be reached says first: a packet of its own, or keepalives only",
    ),
    Setting::number(
        "quiet",
        QUIET_S,
        (QUIET_S, 86_400),
        "seconds of silence before the move; in 3600 a client learns what its NAT remembers",
    ),
    FAMILY,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("clients"),
    Key::must_hold("announced"),
    Key::lower_is_better("nat_filters"),
    Key::lower_is_better("last_back_ms"),
    Key::lower_is_better("back_ms_median"),
    Key::lower_is_better("never_back"),
    Key::lower_is_better("lost_packets"),
    Key::lower_is_better("gateway_packets"),
    Key::lower_is_better("other_packets_per_client"),
    Key::lower_is_better("gateway_cpu_ms"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct RoamGateway;

impl Scenario for RoamGateway {
    fn about(&self) -> About {
        About {
            name: "roam-gateway",
            summary: "the gateway changes its address under quiet clients",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    /// The thesis shows the times as a picture without numbers.
    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Alshalan 2017, section 3.7.5, local testbed, clients as processes of one host")
            .cite("last_back", "a picture only", "", "Figure 3.12")
            .beside("last_back_ms")
            .note(
                "far below OpenVPN, and it grows slowly with clients; OpenVPN does not run beside, \
                 because its server cannot move its clients",
            )
    }

    /// Behind a NAT that filters, an uninformed client can be reached only after it has sent a
    /// packet itself. Earlier calls are lost.
    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let last_ms = match unreachable_until(settings) {
            Some(First::Keepalive) => interval_ms(settings) + NOTICED_MS,
            Some(First::Word) | None => LAST_MS,
        };
        let mut limits =
            vec![Limit::at_most("last_back_ms", last_ms), Limit::equal("never_back", 0)];
        if unreachable_until(settings).is_none() {
            limits.push(Limit::equal("lost_packets", 0));
        }
        limits
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        LAST_MS as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let terrain = terrain(stage.settings, &mut draw);
        let mut outcome = stage
            .on_ground(&terrain, &mut |ground, outcome| tell(ground, stage, &mut draw, outcome))?;
        draw.report(&mut outcome);
        Ok(outcome)
    }
}

/// How long clients cannot be reached: those behind a NAT that filters, without an announcement.
fn unreachable_until(settings: &Settings) -> Option<First> {
    let unreachable = settings.text("nat") != "none" && !settings.flag("announced");
    let first = if settings.text("says") == "keepalive" { First::Keepalive } else { First::Word };
    unreachable.then_some(first)
}

/// The longest pause between two keepalives after the silence.
fn interval_ms(settings: &Settings) -> u64 {
    let (learned_ms, first_ms) = INTERVALS_MS;
    if settings.number("quiet") < LEARNS_S { first_ms } else { learned_ms }
}

fn terrain(settings: &Settings, draw: &mut Draw) -> Terrain {
    // About half of the usual round trip on either side of a NAT.
    let link = LinkConfig::lossless(USUAL.rate, draw.about(USUAL.round_trip_ns / 2));
    let nat = |filtering| Edge::Nat { filtering, expiry_ns: EXPIRY_NS };
    let edge = match settings.text("nat") {
        "endpoint" => nat(Filtering::Endpoint),
        "port" => nat(Filtering::Port),
        _ => Edge::Open,
    };
    let clients = settings.number("clients") as usize;
    // A client that was not informed and cannot be reached has only the gateway's name.
    let known = match unreachable_until(settings) {
        Some(_) => Known::ByName { keep_s: 0 },
        None => Known::ByAddress,
    };
    let beyond_ns = draw.about(USUAL.round_trip_ns / 4);
    Terrain { edge, clients, known, beyond_ns, ..Terrain::of(link) }
}

/// The run.
fn tell(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    draw: &mut Draw,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let announced = stage.settings.flag("announced");
    let filtered = stage.settings.text("nat") != "none";
    (stage.tell)("a move of the gateway");
    if stage.control() {
        ground.act(Act::Swallow(0))?;
    }
    ground.pause(stage.settings.number("quiet") * SECOND + draw.about(SECOND / 2))?;
    let act = if announced {
        ground.act(Act::AnnounceGateway)?;
        ground.pause(draw.about(BOTH_NS))?;
        Act::RetireGateway
    } else {
        Act::MoveGateway
    };
    let first = unreachable_until(stage.settings);
    let (mut every_ns, length_ns) = if first == Some(First::Keepalive) {
        let (every_ns, beyond_ns) = CALLS_TO_SILENT;
        (every_ns, interval_ms(stage.settings) * MS + beyond_ns)
    } else {
        CALLS
    };
    if ground.clock() == Clock::Real {
        every_ns *= stage.settings.number("clients").div_ceil(CALLED_OFTEN);
    }
    let before = ground.gateway_work()?;
    let word_ns = (first == Some(First::Word)).then_some(WORD_NS);
    let called = ground.call_everybody(Calling { act, every_ns, length_ns, word_ns })?;
    let after = ground.gateway_work()?;
    let back = called.iter().filter_map(|one| reached_ms(one, word_ns.unwrap_or(0)));
    let back: Vec<f64> = back.collect();
    let packets = after.packets - before.packets;
    let calls = (length_ns / every_ns) * called.len() as u64;
    outcome.count("gateway_packets", packets);
    let others = packets.saturating_sub(calls) as f64 / called.len() as f64;
    outcome.measure("other_packets_per_client", Some(others));
    let cpu_ns = after.cpu_ns.zip(before.cpu_ns).map(|(after, before)| after - before);
    outcome.measure("gateway_cpu_ms", cpu_ns.map(|ns| ns as f64 / MS as f64));
    outcome.count("clients", called.len() as u64);
    outcome.hold("announced", announced);
    outcome.count("nat_filters", filtered.into());
    outcome.count("never_back", (called.len() - back.len()) as u64);
    outcome.count("lost_packets", called.iter().map(|one| one.lost).sum());
    outcome.measure("last_back_ms", max(&back));
    outcome.measure("back_ms_median", median(&back));
    outcome.sample("back_ms", back);
    Ok(())
}

fn reached_ms(called: &Called, since_ns: u64) -> Option<f64> {
    called.reached_ns.map(|ns| ns.saturating_sub(since_ns) as f64 / MS as f64)
}
