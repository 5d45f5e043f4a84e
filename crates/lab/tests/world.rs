//! The simulated world at fixed seeds: every law holds, a seed means the same every time, and the
//! seeds reach what they are for.
//!
//! `rove-lab world --seconds 3600` goes on with further seeds, and with `--save` all nodes save
//! bytes in every way. A failure prints the operations that lead to it.

use std::collections::BTreeMap;

use rove_lab::world::{
    self, Attack, Found, Intercept, Machine, Network, Op, Report, STEPS, Saves, Start, Way,
};

/// Seeds that every test run goes through.
const SEEDS: std::ops::Range<u64> = 0..40;
/// Further ones, in which ends of connections are promised something: few seeds come to that.
const PROMISING: [u64; 3] = [65, 69, 73];
/// Seeds for nodes that save bytes in every way.
const SAVING_SEEDS: std::ops::Range<u64> = 100..130;
/// Seeds of worlds with two and with three gateways.
const WITH_GATEWAYS: std::ops::Range<u64> = 0..12;
/// How soon everybody is back at these seeds, in seconds: the law allows 60 and more.
const BACK_S: u64 = 10;
/// What must have been thrown away for somewhere in them.
const REASONS: [&str; 13] = [
    "malformed",
    "unknown_kind",
    "unknown_index",
    "bad_tag",
    "replay",
    "bad_mac",
    "no_cookie",
    "bad_handshake",
    "stale_counter",
    "no_route",
    "not_allowed",
    "queue_full",
    "amplification",
];

fn holds(start: impl Into<Start>) -> Report {
    match world::run(start, STEPS) {
        Ok(report) => report,
        Err(failure) => panic!("{}", world::shrink(failure)),
    }
}

#[test]
fn every_law_holds_at_fixed_seeds_which_reach_what_they_are_for() {
    let reports: Vec<_> = SEEDS.chain(PROMISING).map(holds).collect();
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum::<u64>();
    assert!(sum(|report| report.moves) > 100, "sessions move");
    let streams = sum(|report| report.streams.into());
    assert!(streams > 50, "{streams} streams stand in for UDP");
    assert!(sum(|report| report.quiet.into()) > 10, "idle hours are watched");
    let promises = sum(|report| report.promises.into());
    assert!(promises > 5, "{promises} promises are made to ends of connections");
    let refused = sum(|report| report.refused as u64);
    assert!(refused > 5, "{refused} packets are refused in so many words");
    for reason in REASONS {
        let count: u64 = reports.iter().filter_map(|report| report.drops.get(reason)).sum();
        assert!(count > 0, "nothing was dropped as {reason}");
    }
    let back_ns = reports.iter().map(|report| report.back_ns).max().unwrap();
    assert!(back_ns <= BACK_S * 1_000_000_000, "back after {back_ns} ns");
}

/// Each packet that is delivered is byte for byte one that was sent, however few bytes travelled.
#[test]
fn every_law_holds_where_bytes_are_saved_in_every_way() {
    let run = |seed| holds(Start { saves: Saves::All, ..Start::from(seed) });
    let reports: Vec<_> = SAVING_SEEDS.map(run).collect();
    let least = |of: fn(&Report) -> u64| reports.iter().filter(|report| of(report) > 0).count();
    // Most sessions are new at the end of their run, and have had no time to save much.
    let saved = [
        least(|report| report.saved.elision),
        least(|report| report.saved.compression),
        least(|report| report.saved.aggregation),
    ];
    assert!(saved.iter().all(|seeds| *seeds >= 5), "{saved:?} seeds saved something");
    assert!(reports.iter().all(|report| report.back_ns <= BACK_S * 1_000_000_000));
}

/// What of an operation the fixed seeds must have somewhere.
fn kind(op: &Op) -> &'static str {
    match op {
        Op::Attack(Attack::Intercept { how: Intercept::Drop, .. }) => "dropped",
        Op::Attack(Attack::Intercept { how: Intercept::Hold { .. }, .. }) => "held",
        Op::Attack(Attack::Intercept { how: Intercept::Move, .. }) => "moved",
        Op::Attack(Attack::Intercept { how: Intercept::Race, .. }) => "raced",
        Op::Attack(Attack::Replay { altered: true, .. }) => "altered",
        Op::Attack(Attack::Replay { own_address: true, .. }) => "replayed from elsewhere",
        Op::Attack(Attack::Replay { .. }) => "replayed",
        Op::Attack(Attack::Garbage { .. }) => "noise",
        Op::Attack(Attack::Reflect { .. }) => "reflected",
        Op::Attack(Attack::Cut { .. }) => "streams cut",
        Op::Attack(Attack::Flood { .. }) => "flooded",
        Op::Attack(Attack::Cross { .. }) => "crossed",
        Op::Machine(Machine::Sleep { .. }) => "slept",
        Op::Machine(Machine::RestartClient { found: Found::Backup, .. }) => "an older store",
        Op::Machine(Machine::RestartClient { .. }) => "a client restarts",
        Op::Machine(Machine::RestartGateway { .. }) => "the gateway restarts",
        Op::Machine(Machine::Backup { .. }) => "a backup",
        Op::Machine(Machine::StepClock { .. }) => "a wrong clock",
        Op::Machine(Machine::Late { .. }) => "a busy machine",
        Op::Network(Network::Depart { .. }) => "a departure",
        Op::Network(Network::Filter { filter: Some(_), .. }) => "a middlebox",
        Op::Network(_) => "the network changes",
        Op::Connect { .. } => "a connection",
        Op::SetMode { .. } => "another mode",
        Op::SetScheduler { .. } => "another scheduler",
        Op::SetRecovery { .. } => "mended for another end",
        Op::SetSpread { .. } => "other paths",
        Op::StandBy { .. } => "a link stands by",
        Op::SetAssist { .. } => "assisted",
        Op::SetPriority { .. } => "preferred",
        Op::SetEarly { .. } => "wanted early",
        Op::Send { .. } | Op::Syn { .. } | Op::Wait { .. } => "traffic",
        Op::Revoke { .. } => "revoked",
        Op::Readmit { .. } => "readmitted",
        Op::Enrol { .. } => "a stranger asks",
        Op::Overreach { .. } => "not allowed",
        Op::Settle { .. } => "settled",
    }
}

/// Kinds that [`kind`] can tell.
const KINDS: usize = 36;

#[test]
fn the_fixed_seeds_have_operations_of_every_kind() {
    let mut kinds = BTreeMap::<_, u32>::new();
    for op in SEEDS.flat_map(|seed| world::generate(seed, STEPS)) {
        *kinds.entry(kind(&op)).or_default() += 1;
    }
    assert_eq!(kinds.len(), KINDS, "{kinds:?}");
}

#[test]
fn a_seed_means_the_same_every_time() {
    for seed in 0..3 {
        assert_eq!(holds(seed), holds(seed));
    }
    assert_ne!(holds(0).trace, holds(1).trace);
}

#[test]
fn every_law_holds_with_several_gateways() {
    let mut crossed = 0;
    for gateways in [2, 3] {
        for start in WITH_GATEWAYS.map(|seed| Start { gateways, ..Start::from(seed) }) {
            let ops = world::generate_among(gateways, start.seed, STEPS);
            crossed += ops.iter().filter(|op| kind(op) == "crossed").count();
            assert!(holds(start).delivered > 0, "{start:?}");
        }
    }
    assert!(crossed > 20, "the attacker crosses sessions {crossed} times");
}

/// Ten thousand well-formed first halves a second from spoofed addresses, for ten seconds.
#[test]
fn a_flood_of_handshakes_costs_a_session_nothing_and_keeps_nobody_out() {
    let send = |client, way, packets| Op::Send { client, way, packets, len: 200, gap_us: 10_000 };
    let mut ops = vec![Op::Wait { ms: 3_000 }];
    for (number, chance) in (0..100).enumerate() {
        ops.push(Op::Attack(Attack::Flood { gateway: 0, messages: 1_000, chance }));
        ops.extend([Way::Up, Way::Down].map(|way| send(0, way, 10)));
        if number == 30 {
            let found = Found::Latest;
            let restart = Machine::RestartClient { client: 1, found, reboot: false, down_ms: 0 };
            ops.push(Op::Machine(restart));
        }
        if number == 60 {
            ops.extend([Way::Up, Way::Down].map(|way| send(1, way, 10)));
        }
        ops.push(Op::Wait { ms: 100 });
    }
    ops.push(Op::Wait { ms: 1_000 });
    let report = world::replay(WITH_TWO_CLIENTS, &ops).unwrap_or_else(|broken| panic!("{broken}"));
    assert_eq!(report.sent, 2 * 10 * 100 + 2 * 10);
    assert_eq!(report.delivered, report.sent, "packets were lost: {:?}", report.drops);
    assert!(report.drops["no_cookie"] > 50_000, "the flood was answered with cookies only");
}

/// A seed whose world has at least two clients.
const WITH_TWO_CLIENTS: u64 = 12;

#[test]
fn links_are_used_in_their_order_and_left_without_loss() {
    for seed in 0..20 {
        if let Err(failure) = world::replay(seed, &[Op::Settle { quiet: true }]) {
            panic!("{failure}");
        }
    }
}
