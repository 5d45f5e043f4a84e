//! `persist`: open connections survive a gap in which their server would give them up (Table 4.1 of
//! Alshalan's thesis).
//!
//! In each gap there are three: a transfer to the client from a server that gives up after six
//! retransmissions, one to a server that sends keepalives to a silent client, and a silent one
//! whose server sends keepalives as well. All three are real connections at the same time. The
//! transfers have opposite directions and share nothing.

use super::outage::{BY, CONGESTION, MODE, Outages, acts, congestion, obituary, over_outages};
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, rounded};
use super::{About, FAMILY, Grid, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::SECOND;
use crate::ground::{
    Clock, Congestion, Connections, Ground, Pace, Patience, Receiver, Transfer, Trouble,
};

/// The gaps of the thesis, in seconds.
const GAPS_S: &[u64] = &[10, 45];
/// The same on the full grid.
const GAPS_FULL_S: &[u64] = &[10, 45, 600];
/// and one more in virtual time.
const DAY_S: u64 = 86_400;
/// When the gap begins, after the connections were opened.
const BEGINS_NS: u64 = 3 * SECOND;
/// The server's `tcp_retries2`.
const RETRIES: u32 = 6;
/// Bytes over the connection that is silent in the gap: half of them before, half after.
const WORDS: u32 = 200;
/// When the second half is sent, after the gap.
const AFTERWARDS_NS: u64 = 2 * SECOND;
/// The longest rest of the transfers, in multiples of its time without other traffic.
const SLOWNESS: u64 = 4;
/// How long a control continues after the link is gone for good.
const CONTROL_NS: u64 = 12 * SECOND;
/// The cost of a restart beyond a round trip, in milliseconds: at most 17 over ten seeds in virtual
/// time, and a fifth of the whole. If one segment of each connection is sent again in place of all,
/// it is 43 at least.
const RESTART_MARGIN_MS: f64 = 28.0;
/// Connections in each gap.
const CONNECTIONS: usize = 3;

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    BY,
    CONGESTION,
    Setting::number(
        "gap",
        0,
        (0, 86_400),
        "seconds of the only gap; 0 for 10 and 45, on the full grid 600, in virtual time a day",
    ),
    Setting::number("megabytes", 20, (10, 1_000), "size of each transfer"),
    Setting::flag(
        "baseline",
        true,
        "the same without a tunnel, and with OpenVPN if it is installed",
    ),
    FAMILY,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("cases"),
    Key::higher_is_better("survived"),
    Key::lower_is_better("died"),
    Key::lower_is_better("held_bytes_max"),
    Key::lower_is_better("restart_ms_max"),
    Key::must_hold("checksum_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Persist;

impl Scenario for Persist {
    fn about(&self) -> About {
        About {
            name: "persist",
            summary: "open connections outlive gaps in which their server would give them up",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    /// The thesis has two gaps and two directions, and no silent connection.
    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Alshalan 2017, Table 4.1, local testbed: two gaps, two directions")
            .cite("cases", 4, "transfers", "Table 4.1")
            .beside("cases")
            .cite("survived", 4, "transfers", "Table 4.1")
            .beside("survived")
            .cite("openvpn_survived", 2, "transfers", "Table 4.1")
    }

    /// Connections that did not survive must not be altered either.
    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        let restart_ms = USUAL.round_trips_ms(1.0) + RESTART_MARGIN_MS;
        vec![
            Limit::equal("died", 0),
            Limit::at_most("restart_ms_max", restart_ms),
            Limit::equal("checksum_ok", true),
        ]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        USUAL.round_trips_ms(1.0) + RESTART_MARGIN_MS
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let terrain = USUAL.terrain();
        let mut story =
            |ground: &mut dyn Ground, outcome: &mut Outcome| tell(ground, stage, outcome);
        over_outages(stage, &terrain, &mut story)
    }
}

/// The run.
fn tell(ground: &mut dyn Ground, stage: &Stage<'_>, outcome: &mut Outcome) -> Result<(), Trouble> {
    let (mut transfers, mut restart, mut held) = (Vec::new(), Vec::new(), None);
    for seconds in gaps_s(stage, ground.clock()) {
        (stage.tell)(&format!("three connections, and a gap of {seconds} s"));
        let of_gap = gap(ground, stage, seconds * SECOND)?;
        // The last one has no traffic when the link is back.
        let speaking = of_gap.iter().take(CONNECTIONS - 1);
        restart.extend(speaking.flat_map(Transfer::restart_ms));
        of_gap.iter().filter_map(obituary).for_each(|text| (stage.tell)(&text));
        transfers.extend(of_gap);
        held = held.max(ground.held_bytes_max()?);
    }
    let died_after_s = transfers.iter().filter_map(Transfer::broke_after_s).map(rounded).collect();
    outcome.sample("died_after_s", died_after_s);
    let survived = transfers.iter().filter(|one| one.complete).count();
    outcome.count("cases", transfers.len() as u64);
    outcome.count("survived", survived as u64);
    outcome.count("died", (transfers.len() - survived) as u64);
    outcome.measure("held_bytes_max", held.map(|bytes| bytes as f64));
    outcome.measure("restart_ms_max", max(&restart));
    outcome.hold("checksum_ok", transfers.iter().all(|one| one.intact));
    outcome.sample("restart_ms", restart);
    Ok(())
}

/// The gaps to run; a control needs one.
fn gaps_s(stage: &Stage<'_>, clock: Clock) -> Vec<u64> {
    match (stage.settings.number("gap"), stage.grid) {
        _ if stage.control() => vec![GAPS_S[0]],
        (0, Grid::Full) if clock == Clock::Virtual => [GAPS_FULL_S, &[DAY_S]].concat(),
        (0, Grid::Full) => GAPS_FULL_S.to_vec(),
        (0, Grid::Default) => GAPS_S.to_vec(),
        (seconds, _) => vec![seconds],
    }
}

/// Three connections and one gap.
fn gap(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    length_ns: u64,
) -> Result<Vec<Transfer>, Trouble> {
    let settings = stage.settings;
    let outage = Outages::one(BEGINS_NS, length_ns);
    let bytes = settings.number("megabytes") * 1_000_000;
    let kinds = kinds(bytes, congestion(settings), length_ns);
    let alone_ns = bytes * 8 * SECOND / USUAL.rate;
    // A sender that doubles its timeout may be silent for as long again as the gap was.
    let limit_ns = BEGINS_NS + 2 * length_ns + SLOWNESS * alone_ns;
    let limit_ns = if stage.control() { BEGINS_NS + CONTROL_NS } else { limit_ns };
    let script = outage.script(acts(settings), stage);
    Ok(ground.connect(&kinds, limit_ns, &script)?.concat())
}

/// The connections of one gap. The client sends over the silent one: a server that sends learns
/// only with its next write that its kernel gave up.
fn kinds(length: u64, congestion: Congestion, gap_ns: u64) -> [Connections; CONNECTIONS] {
    let by_retries = Patience { retries: Some(RETRIES), keeps_alive: false };
    let by_keepalive = Patience { retries: None, keeps_alive: true };
    let silent = Connections {
        pace: Pace::Pieces { bytes: WORDS / 2, every_ns: BEGINS_NS + gap_ns + AFTERWARDS_NS },
        patience: by_keepalive,
        ..Connections::bulk(Receiver::Server, WORDS.into())
    };
    let to = |receiver, patience| Connections {
        congestion,
        patience,
        ..Connections::bulk(receiver, length)
    };
    [to(Receiver::Client, by_retries), to(Receiver::Server, by_keepalive), silent]
}
