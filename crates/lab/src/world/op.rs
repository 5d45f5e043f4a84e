//! What can happen in the world: operations, made from a seed, printable, each meaningful alone.
//!
//! An operation carries everything that it needs, so a list of them can be cut anywhere and still
//! be replayed: that is what makes failures small. Which kinds a list contains is drawn first
//! ("swarm testing", Groce et al., ISSTA 2012): a run without restarts gets deeper into moves than
//! one that has a bit of everything.

mod connect;
mod disturbs;
mod gateways;
mod modes;

use rove_proto::flow::priority::Level;
use rove_proto::flow::rules::Assist;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Mode, Recovery, Spread};

pub(super) use disturbs::Disturbs;
pub use gateways::Whom;

use super::streams::{Known, LISTENS};
use super::talk::Talk;
use crate::emu::{Carrier, Filter, Rng};

/// Clients of a world.
pub(super) const CLIENTS_MAX: u8 = 3;
/// Access networks that each client can use: at home (NAT), in a café (none), mobile (symmetric
/// NAT).
pub(super) const ACCESSES: u8 = 3;
/// Cards of each client.
pub(super) const CARDS: u8 = 2;
/// The card whose link comes first, and the other.
pub(super) const FIRST: usize = 0;
pub(super) const SECOND_BEST: usize = 1;

/// A direction of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From the client to the gateway.
    Up,
    /// From the gateway to the client.
    Down,
}

/// What the attacker does to datagrams on a client's access, each for a number of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intercept {
    /// They vanish.
    Drop,
    /// They arrive later by this many milliseconds.
    Hold {
        /// How much later.
        ms: u16,
    },
    /// They arrive from the attacker's address instead of the client's (from the client only).
    Move,
    /// A copy from the attacker's address arrives first (from the client only).
    Race,
}

/// Which store a restarted client finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The one that it wrote.
    Latest,
    /// An older one, as from a backup or a cloned disk.
    Backup,
}

/// One thing that happens. Clients, accesses and cards beyond those of the world wrap around.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say what, and their fields are named for it")]
pub enum Op {
    /// Inner packets are sent; a length of 0 means random ones from 20 to 1,420 bytes.
    Send { client: u8, way: Way, packets: u16, len: u16, gap_us: u32 },
    /// A TCP SYN is sent, whose segment size must fit the tunnel.
    Syn { client: u8, way: Way, mss: u16 },
    /// A client opens a connection to the server; only so many in one world.
    Connect { client: u8, talk: Talk },
    /// A client makes this of its links from now on, also when it starts anew.
    SetMode { client: u8, mode: Mode },
    /// A client and its gateway choose so among paths that share data from now on, also when it
    /// starts anew.
    SetScheduler { client: u8, scheduler: Scheduler },
    /// What a client and its gateway mend of what is lost is to serve this from now on, also when
    /// it starts anew.
    SetRecovery { client: u8, recovery: Recovery },
    /// Other paths of a client carry together from now on, also when it starts anew.
    SetSpread { client: u8, spread: Spread },
    /// From now on the link of one of a client's cards is for when no other carries, or it is not.
    StandBy { client: u8, card: u8, stands_by: bool },
    /// What is sent much of is acknowledged where it enters the tunnel from now on, or it is not,
    /// also when the machine starts anew: by a gateway or a client, in this order.
    SetAssist { host: u8, assist: Assist },
    /// A client prefers what goes to this one of the server's addresses so much from now on, or no
    /// more than others, also when it starts anew.
    SetPriority { client: u8, server: u8, level: Option<Level> },
    /// A client wants what goes to this one of the server's addresses early from now on, or no more
    /// than other things, also when it starts anew.
    SetEarly { client: u8, server: u8, early: bool },
    /// Time passes.
    Wait { ms: u32 },
    /// Something changes on the way.
    Network(Network),
    /// Something happens to a machine.
    Machine(Machine),
    /// The attacker acts.
    Attack(Attack),
    /// The operator takes a client's access away.
    Revoke { client: u8 },
    /// The operator gives it back, and the user connects.
    Readmit { client: u8 },
    /// A stranger tries the invite that a client has used, or one that it made up.
    Enrol { client: u8 },
    /// A client that is let in sends what it may not.
    Overreach { client: u8, what: Overreach },
    /// Trouble ends; everything must work again within a bounded time. With `quiet` also while an
    /// attacker races, and then comes an idle hour.
    Settle { quiet: bool },
}

impl Op {
    /// A connection by chance.
    pub(super) fn connect(rng: &mut Rng) -> Self {
        let client = client(rng);
        Self::Connect { client, talk: Talk::draw(rng) }
    }

    /// Of which streams clients know from then on.
    pub(super) const fn streams_known(&self) -> Known {
        match self {
            Self::Network(Network::Filter { filter: Some(Filter::End(_)), .. }) => Known::Proxy,
            Self::Network(Network::Filter { .. }) | Self::Attack(Attack::Cut { .. }) => {
                Known::Direct
            }
            Self::Network(_)
            | Self::Attack(_)
            | Self::Machine(_)
            | Self::Send { .. }
            | Self::Syn { .. }
            | Self::Connect { .. }
            | Self::SetMode { .. }
            | Self::SetScheduler { .. }
            | Self::SetRecovery { .. }
            | Self::SetSpread { .. }
            | Self::StandBy { .. }
            | Self::SetAssist { .. }
            | Self::SetPriority { .. }
            | Self::SetEarly { .. }
            | Self::Wait { .. }
            | Self::Revoke { .. }
            | Self::Readmit { .. }
            | Self::Enrol { .. }
            | Self::Overreach { .. }
            | Self::Settle { .. } => Known::None,
        }
    }
}

/// What a client may not send: nothing of it ever comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overreach {
    /// A packet from another client's address.
    Source,
    /// A packet to another client.
    Neighbour,
    /// A packet to a private network behind the gateway.
    Private,
    /// A packet to a network of the gateway's own that has global addresses.
    Local,
    /// A packet to the gateway itself, for a service that it does not offer to clients.
    Gateway,
}

impl Overreach {
    /// Every kind.
    pub(super) const ALL: [Self; 5] =
        [Self::Source, Self::Neighbour, Self::Private, Self::Local, Self::Gateway];
}

/// A change on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say what, and their fields are named for it")]
pub enum Network {
    /// An access network becomes like this, in both directions.
    Quality { client: u8, access: u8, quality: Quality },
    /// An access network is unplugged (the client sees it), dead (it does not), or well again.
    Carrier { client: u8, access: u8, carrier: Carrier },
    /// One direction of an access network dies silently.
    OneWay { client: u8, access: u8, way: Way },
    /// An access network carries no larger layer-3 packets than this any more.
    Mtu { client: u8, access: u8, mtu: u16 },
    /// A middlebox lets only some packets through an access network, or all of the client's, from
    /// now on; or everything again.
    Filter { client: u8, access: Option<u8>, filter: Option<Filter> },
    /// The client gets another address in the same network.
    Readdress { client: u8, card: u8 },
    /// A card is plugged into an access network, or out.
    Plug { client: u8, card: u8, access: Option<u8> },
    /// A card is about to be plugged out, after so long: from now on the other one's link is
    /// preferred.
    Depart { client: u8, card: u8, ahead_ms: u16 },
    /// A gateway gets other addresses; its clients learn them by name after a while. With some time
    /// ahead it has both for so long, and announces the new ones on every session.
    MoveGateway { gateway: u8, told_after_ms: u32, ahead_ms: u32 },
    /// A NAT box maps to other ports.
    RebindNat { client: u8, access: u8 },
    /// A NAT box forgets everything, perhaps gets another address.
    RebootNat { client: u8, access: u8, readdress: bool },
}

/// What happens to a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say what, and their fields are named for it")]
pub enum Machine {
    /// The client's lid is closed; its clock runs on.
    Sleep { client: u8, seconds: u32 },
    /// The client's process starts anew; with `reboot` its clock does too.
    RestartClient { client: u8, found: Found, reboot: bool, down_ms: u32 },
    /// A gateway's process starts anew.
    RestartGateway { gateway: u8, reboot: bool, down_ms: u32 },
    /// A copy is made of the client's store.
    Backup { client: u8 },
    /// A machine is busy: its program gets its turn so much later than what arrives, and finds
    /// all of it at once, and so much later than it wants one. Gateways come first.
    Late { host: u8, by_us: u16 },
    /// A gateway's wall clock is wrong by so much from now on, by years if need be: invites expire
    /// by it, and nothing else may.
    StepClock { gateway: u8, by_s: i64 },
}

/// What the attacker does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say what, and their fields are named for it")]
pub enum Attack {
    /// It interferes with the next datagrams of a client.
    Intercept { client: u8, way: Way, how: Intercept, datagrams: u16 },
    /// It sends again what it recorded, from where it came from or from its own address,
    /// unaltered or with bits turned.
    Replay { count: u16, own_address: bool, altered: bool, chance: u64 },
    /// It sends noise that looks like datagrams.
    Garbage { to: Whom, count: u16, chance: u64 },
    /// It cuts the streams of a client in the midst of what they carry.
    Cut { client: u8 },
    /// It passes on to the client what the gateway sent to the attacker's address.
    Reflect { client: u8 },
    /// It sends a gateway first halves of handshakes from spoofed addresses, well formed.
    Flood { gateway: u8, messages: u16, chance: u64 },
    /// It sends what it recorded of one gateway's sessions to another gateway and its clients, and
    /// shows that gateway an invite of a client that is not its own.
    Cross { client: u8, count: u16, chance: u64 },
}

/// What an access network is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Quality {
    /// Delay of one direction, in milliseconds.
    pub delay_ms: u16,
    /// Random further delay that keeps order, in milliseconds.
    pub jitter_ms: u16,
    /// Lost packets of a thousand.
    pub loss: u16,
    /// Doubled packets of a thousand.
    pub duplicate: u16,
    /// Packets of a thousand that are overtaken.
    pub reorder: u16,
    /// Packets of a million bits that are altered.
    pub bit_errors: u16,
    /// Rate in kbit/s.
    pub rate_kbps: u32,
}

impl Quality {
    /// A network that loses nothing.
    pub const CLEAN: Self = Self {
        delay_ms: 20,
        jitter_ms: 0,
        loss: 0,
        duplicate: 0,
        reorder: 0,
        bit_errors: 0,
        rate_kbps: 20_000,
    };

    fn draw(rng: &mut Rng) -> Self {
        let mut some = |most: u64| match rng.below(2) {
            0 => 0,
            _ => rng.below(most + 1) as u16,
        };
        Self {
            delay_ms: 1 + some(150),
            jitter_ms: some(40),
            loss: some(300),
            duplicate: some(200),
            reorder: some(300),
            bit_errors: some(20),
            rate_kbps: 300 + 100 * u32::from(some(200)),
        }
    }
}

/// The kinds that a list may contain or not.
const KINDS: u64 = 27;
/// Of these, those that [`decode`] makes of the first 64 kind bytes; all have one each behind them.
const KINDS_OLD: u64 = 22;

/// Makes a list of `steps` operations for a world of one gateway, and of some seeds a few
/// connections more among them and what concerns several links; the last is always [`Op::Settle`].
pub fn generate(seed: u64, steps: usize) -> Vec<Op> {
    let mut rng = Rng::new(seed).fork(0x6f70);
    let allowed: Vec<u64> = (0..KINDS).filter(|_| rng.chance(0.45)).collect();
    let mut ops = Vec::with_capacity(steps);
    for _ in 1..steps {
        ops.push(match rng.below(10) {
            0..3 => traffic(&mut rng),
            3..6 => Op::Wait { ms: wait(&mut rng) },
            _ if allowed.is_empty() => traffic(&mut rng),
            _ => {
                let kind = allowed[rng.below(allowed.len() as u64) as usize];
                trouble(&mut rng, kind)
            }
        });
    }
    ops.push(Op::Settle { quiet: rng.chance(0.5) });
    connect::strew(seed, &mut ops);
    modes::strew(seed, &mut ops);
    modes::strew_schedulers(seed, &mut ops);
    modes::strew_assists(seed, &mut ops);
    modes::strew_priorities(seed, &mut ops);
    modes::strew_haste(seed, &mut ops);
    ops
}

/// The same for a world of so many gateways.
pub fn generate_among(gateways: u8, seed: u64, steps: usize) -> Vec<Op> {
    let mut ops = generate(seed, steps);
    gateways::strew(gateways, seed, &mut ops);
    ops
}

/// The most operations that [`decode`] makes: a run of a fraction of a second.
pub(super) const DECODED_MAX: usize = 40;
/// What [`decode`] has behind those that have a number.
const DECODED_MODE: u64 = KINDS + 1;
const DECODED_BURST: u64 = KINDS + 2;
const DECODED_SCHEDULER: u64 = KINDS + 3;
const DECODED_SPREAD: u64 = KINDS + 4;
const DECODED_ASSIST: u64 = KINDS + 5;
const DECODED_PRIORITY: u64 = KINDS + 6;
const DECODED_HASTE: u64 = KINDS + 7;
/// Bytes of one operation in the input of [`decode`].
const DECODED_LEN: usize = 3;

/// Any bytes as a world's seed and operations, for fuzzing: a byte of seed, then three for each
/// operation, its kind and what the rest follows from. To change one changes nothing before it, and
/// leaves those behind it what they are. At the end trouble ends: every law must hold.
pub fn decode(bytes: &[u8]) -> (u64, Vec<Op>) {
    let Some((&seed, rest)) = bytes.split_first() else { return (0, Vec::new()) };
    let op = |chunk: &[u8]| {
        let [kind, high, low] = [chunk[0], chunk[1], chunk[2]];
        let mut rng = Rng::new(u64::from(u16::from_be_bytes([high, low])));
        match kind % 128 {
            0..16 => traffic(&mut rng),
            16..28 => Op::Wait { ms: wait(&mut rng) },
            other @ 28..64 => trouble(&mut rng, u64::from(other) % KINDS_OLD),
            other => match u64::from(other - 64) {
                kind @ 0..KINDS => trouble(&mut rng, kind),
                KINDS => Op::connect(&mut rng),
                DECODED_MODE => modes::change(&mut rng),
                DECODED_BURST => modes::burst(&mut rng),
                DECODED_SCHEDULER => modes::other_scheduler(&mut rng),
                DECODED_SPREAD => modes::spread(&mut rng),
                DECODED_ASSIST => modes::assist(&mut rng),
                DECODED_PRIORITY => modes::priority(&mut rng),
                DECODED_HASTE => modes::haste(&mut rng),
                spare => trouble(&mut rng, spare % KINDS_OLD), // a new kind takes one of these
            },
        }
    };
    let mut ops: Vec<Op> = rest.chunks_exact(DECODED_LEN).take(DECODED_MAX).map(op).collect();
    ops.push(Op::Settle { quiet: seed & 1 == 1 });
    (seed.into(), ops)
}

fn wait(rng: &mut Rng) -> u32 {
    match rng.below(12) {
        0..4 => rng.below(60) as u32,
        4..8 => rng.below(1_000) as u32,
        8..10 => rng.below(8_000) as u32,
        10 => rng.below(60_000) as u32,
        // Longer than a session is kept that nobody speaks by.
        _ if rng.chance(0.05) => 90_000_000 + rng.below(100_000_000) as u32,
        _ => rng.below(400_000) as u32,
    }
}

pub(super) fn client(rng: &mut Rng) -> u8 {
    rng.below(CLIENTS_MAX.into()) as u8
}

fn way(rng: &mut Rng) -> Way {
    if rng.chance(0.5) { Way::Up } else { Way::Down }
}

fn traffic(rng: &mut Rng) -> Op {
    let (client, way) = (client(rng), way(rng));
    match rng.below(8) {
        0 => Op::Syn { client, way, mss: 400 + rng.below(1_300) as u16 },
        1 => Op::Send { client, way, packets: 60, len: 1_420, gap_us: 200 },
        2 => Op::Send { client, way, packets: 1, len: 0, gap_us: 0 },
        _ => {
            let packets = 1 + rng.below(12) as u16;
            let gap_us = [0, 500, 20_000, 300_000][rng.below(4) as usize];
            Op::Send { client, way, packets, len: 0, gap_us }
        }
    }
}

fn trouble(rng: &mut Rng, kind: u64) -> Op {
    let client = client(rng);
    match kind {
        0..=10 | 24 | 25 => Op::Network(network(rng, kind, client)),
        11 | 12 => Op::Machine(client_machine(rng, kind, client)),
        13 => {
            let (reboot, down_ms) = (rng.chance(0.3), down(rng));
            Op::Machine(Machine::RestartGateway { gateway: 0, reboot, down_ms })
        }
        14 if rng.chance(0.5) => Op::Machine(Machine::Backup { client }),
        14 => {
            let by_s = rng.below(1 << 30) as i64 - (1 << 29);
            Op::Machine(Machine::StepClock { gateway: 0, by_s })
        }
        15 => match rng.below(3) {
            0 => Op::Revoke { client },
            1 => Op::Readmit { client },
            _ => Op::Enrol { client },
        },
        16..=20 => Op::Attack(attack(rng, kind, client)),
        26 => Op::Attack(Attack::Cut { client }),
        21 => Op::Settle { quiet: false },
        22 => Op::Overreach { client, what: Overreach::ALL[rng.below(5) as usize] },
        _ => {
            let host = rng.below(u64::from(CLIENTS_MAX) + 1) as u8;
            let by_us = [0, 50, 1_000, 20_000][rng.below(4) as usize];
            Op::Machine(Machine::Late { host, by_us })
        }
    }
}

fn network(rng: &mut Rng, kind: u64, client: u8) -> Network {
    let access = rng.below(ACCESSES.into()) as u8;
    let card = rng.below(CARDS.into()) as u8;
    match kind {
        0 | 1 => Network::Quality { client, access, quality: Quality::draw(rng) },
        2 => {
            let carriers = [Carrier::Up, Carrier::Down, Carrier::Down, Carrier::BlackHole];
            Network::Carrier { client, access, carrier: carriers[rng.below(4) as usize] }
        }
        3 => Network::OneWay { client, access, way: way(rng) },
        4 => {
            let mtu = [1_280, 1_300, 1_400, 1_500][rng.below(4) as usize];
            Network::Mtu { client, access, mtu }
        }
        5 => Network::Readdress { client, card },
        6 | 7 => Network::Plug { client, card, access: rng.chance(0.75).then_some(access) },
        8 => Network::MoveGateway {
            gateway: 0,
            told_after_ms: rng.below(20_000) as u32,
            ahead_ms: [0, 0, 300, 5_000][rng.below(4) as usize],
        },
        9 => Network::RebindNat { client, access },
        25 => {
            let access = rng.chance(0.3).then_some(access);
            Network::Filter { client, access, filter: FILTERS[rng.below(8) as usize] }
        }
        24 => {
            let ahead_ms = [0, 20, 300, 5_000][rng.below(4) as usize];
            Network::Depart { client, card, ahead_ms }
        }
        _ => Network::RebootNat { client, access, readdress: rng.chance(0.5) },
    }
}

/// What networks let by; with each of them either UDP or a stream works.
const FILTERS: [Option<Filter>; 8] = [
    None,
    None,
    Some(Filter::NoUdp),
    Some(Filter::NoUdp),
    Some(Filter::Port(443)),
    Some(Filter::TlsPort(443)),
    Some(Filter::End(LISTENS)),
    Some(Filter::NoBytes),
];

fn down(rng: &mut Rng) -> u32 {
    [0, 200, 10_000][rng.below(3) as usize]
}

fn client_machine(rng: &mut Rng, kind: u64, client: u8) -> Machine {
    if kind == 11 {
        let most = [60, 600, 28_800][rng.below(3) as usize];
        return Machine::Sleep { client, seconds: 1 + rng.below(most) as u32 };
    }
    let found = if rng.chance(0.25) { Found::Backup } else { Found::Latest };
    let (reboot, down_ms) = (rng.chance(0.3), down(rng));
    Machine::RestartClient { client, found, reboot, down_ms }
}

fn attack(rng: &mut Rng, kind: u64, client: u8) -> Attack {
    let count = 1 + rng.below(60) as u16;
    let chance = rng.next_u64();
    match kind {
        16 | 17 => {
            let how = match rng.below(4) {
                0 => Intercept::Drop,
                1 => Intercept::Hold { ms: 1 + rng.below(3_000) as u16 },
                2 => Intercept::Move,
                _ => Intercept::Race,
            };
            Attack::Intercept { client, way: way(rng), how, datagrams: 1 + rng.below(30) as u16 }
        }
        18 => {
            let (own_address, altered) = (rng.chance(0.5), rng.chance(0.4));
            Attack::Replay { count, own_address, altered, chance }
        }
        19 => {
            let to = if rng.chance(0.5) { Whom::Client(client) } else { Whom::Gateway(0) };
            Attack::Garbage { to, count, chance }
        }
        _ if rng.chance(0.7) => Attack::Reflect { client },
        _ => Attack::Flood { gateway: 0, messages: 1 + rng.below(300) as u16, chance },
    }
}
