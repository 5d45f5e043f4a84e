//! What clients make of their links, in a world of random operations.
//!
//! In a world every client begins with what a Rove does where nobody says anything. The operations
//! of most seeds say something else at once, and let clients change their minds.

use rove_proto::flow::priority::Level;
use rove_proto::flow::rules::Assist;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Manager, Mode, Recovery, Spread};

use super::{ACCESSES, CARDS, CLIENTS_MAX, Network, Op, SECOND_BEST, Way, client};
use crate::emu::Rng;
use crate::world::inner::LEN_MAX;
use crate::world::talk::SERVERS;

/// Most seeds' clients begin with another mode and a second link, and change their minds; there
/// are bursts that several links share.
pub(super) fn strew(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x6d6f_6465);
    if rng.chance(0.3) {
        return;
    }
    let count = rng.below(4);
    insert(&mut rng, count, ops, change);
    for _ in 0..rng.below(6) {
        let at = rng.below(ops.len() as u64) as usize;
        let links = rng.chance(0.5).then(|| second_link(client(&mut rng)));
        ops.splice(at..at, links.into_iter().chain([burst(&mut rng)]));
    }
    spread_some(seed, ops);
    let all = (0..CLIENTS_MAX).flat_map(|client| {
        let mode = if rng.chance(0.75) { Mode::Full } else { Mode::Single };
        let link = rng.chance(0.8).then(|| second_link(client));
        link.into_iter().chain([Op::SetMode { client, mode }])
    });
    ops.splice(0..0, all.collect::<Vec<_>>());
}

/// So many operations come in anywhere.
fn insert(rng: &mut Rng, count: u64, ops: &mut Vec<Op>, one: fn(&mut Rng) -> Op) {
    for _ in 0..count {
        let at = rng.below(ops.len() as u64) as usize;
        ops.insert(at, one(rng));
    }
}

/// Of some seeds other paths carry together, and links stand by.
fn spread_some(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x7370_7264);
    let count = rng.below(4);
    insert(&mut rng, count, ops, spread);
}

/// Other paths of a client carry together, or one of its links is used in another way.
pub(super) fn spread(rng: &mut Rng) -> Op {
    let client = client(rng);
    if rng.chance(0.4) {
        let card = rng.below(CARDS.into()) as u8;
        return Op::StandBy { client, card, stands_by: rng.chance(0.7) };
    }
    let manager = if rng.chance(0.5) { Manager::FullMesh } else { Manager::OnePerLink };
    Op::SetSpread { client, spread: Spread { manager, subflows: 1 + rng.below(3) as u8 } }
}

/// A client changes its mind.
pub(super) fn change(rng: &mut Rng) -> Op {
    let mode = [Mode::Full, Mode::Full, Mode::Backup, Mode::Single][rng.below(4) as usize];
    Op::SetMode { client: client(rng), mode }
}

/// Clients of some seeds choose among paths otherwise, at once or in the middle of things.
pub(super) fn strew_schedulers(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x7363_6864);
    let count = rng.below(4);
    insert(&mut rng, count, ops, other_scheduler);
}

/// Clients of some seeds assist connections, or the gateway does, at once or in the middle of
/// things.
pub(super) fn strew_assists(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x6173_7369);
    if rng.chance(0.3) {
        return;
    }
    let count = rng.below(4);
    insert(&mut rng, count, ops, assist);
    let all = (0..=CLIENTS_MAX).map(|host| Op::SetAssist { host, assist: Assist::On });
    let some: Vec<_> = all.filter(|_| rng.chance(0.7)).collect();
    ops.splice(0..0, some);
}

/// One that does it, or does not any more.
pub(super) fn assist(rng: &mut Rng) -> Op {
    let assist = if rng.chance(0.5) { Assist::On } else { Assist::Off };
    Op::SetAssist { host: rng.below(u64::from(CLIENTS_MAX) + 1) as u8, assist }
}

/// Clients of some seeds prefer some of the server's addresses to others, at once or in the middle
/// of things, and change their minds.
pub(super) fn strew_priorities(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x7072_696f);
    if rng.chance(0.5) {
        return;
    }
    let count = 1 + rng.below(6);
    insert(&mut rng, count, ops, priority);
}

/// One of them, or one that is preferred no more.
pub(super) fn priority(rng: &mut Rng) -> Op {
    let (client, server) = (client(rng), rng.below(SERVERS.into()) as u8);
    let level = Level::ALL.get(rng.below(Level::ALL.len() as u64 + 1) as usize).copied();
    Op::SetPriority { client, server, level }
}

/// Clients of some seeds want some of the server's addresses early, or everything, at once or in
/// the middle of things, and change their minds.
pub(super) fn strew_haste(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x6561_726c);
    if rng.chance(0.5) {
        return;
    }
    let count = 1 + rng.below(6);
    insert(&mut rng, count, ops, haste);
}

/// One of these, or what is lost is mended for another end.
pub(super) fn haste(rng: &mut Rng) -> Op {
    let client = client(rng);
    if rng.chance(0.3) {
        let recovery = if rng.chance(0.6) { Recovery::Latency } else { Recovery::Throughput };
        return Op::SetRecovery { client, recovery };
    }
    Op::SetEarly { client, server: rng.below(SERVERS.into()) as u8, early: rng.chance(0.7) }
}

/// A client and its gateway choose otherwise.
pub(super) fn other_scheduler(rng: &mut Rng) -> Op {
    let scheduler = Scheduler::ALL[rng.below(Scheduler::ALL.len() as u64) as usize];
    Op::SetScheduler { client: client(rng), scheduler }
}

/// More packets at once than one network carries.
pub(super) fn burst(rng: &mut Rng) -> Op {
    let (client, packets) = (client(rng), 50 + rng.below(350) as u16);
    let way = if rng.chance(0.5) { Way::Up } else { Way::Down };
    let len = [0, 1_200, LEN_MAX][rng.below(3) as usize];
    Op::Send { client, way, packets, len, gap_us: [0, 200, 500][rng.below(3) as usize] }
}

/// The card that is free at the beginning is plugged into a network that no other one is in.
fn second_link(client: u8) -> Op {
    let access = Some((client + 1) % ACCESSES);
    Op::Network(Network::Plug { client, card: SECOND_BEST as u8, access })
}
