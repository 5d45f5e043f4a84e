//! What happens in one run, all of it from a seed: connections, links, and what befalls them.

use std::net::SocketAddr;

use rove_lab::emu::{BitErrors, LinkConfig, Loss, MS, PipeConfig, Rate, Reorder, Rng, SECOND};
use rove_lab::tcp::{Config, CongestionControl, KeepAlive};
use rove_proto::flow::Hold;

/// The two sides of the tunnel: the client's and the gateway's.
pub(super) const SIDES: [usize; 2] = [0, 1];
/// Connections of one run at most.
const CONNECTIONS_MAX: u64 = 3;
/// Times that something befalls a run at most.
const TROUBLES_MAX: u64 = 4;
/// Pieces in which a program writes at most.
const CHUNKS_MAX: u64 = 200;
/// The part of runs that begin with a crash, and of those that end with the session.
const SOME: f64 = 0.15;
/// The part of runs in which connections are assisted.
const ASSISTED: f64 = 0.4;
/// Memory that is enough for every connection.
const PLENTY: usize = 64 << 20;
/// Who does not notice that the path is dead for longer has no traffic (2 s in the core).
const NOTICES_MS: u64 = 3_000;
/// An outage that is not longer may pass unnoticed.
const SHORT_NS: u64 = 2 * SECOND;

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// All chance follows from it.
    pub(super) seed: u64,
    /// What each side's node does for connections.
    pub(super) holds: [Hold; 2],
    /// Whether both assist connections.
    pub(super) assists: bool,
    /// The bytes that it may hold.
    pub(super) memory: [usize; 2],
    /// Between programs and node, on each side; up is from the program.
    pub(super) legs: [LinkConfig; 2],
    /// Between the nodes; up is from the client.
    pub(super) tunnel: LinkConfig,
    /// How much is lost, damaged, doubled or overtaken on any of these.
    pub(super) air: Air,
    /// A node that hears something takes the way to be there again.
    pub(super) hears: bool,
    /// Who talks to whom.
    pub(super) connections: Vec<Connection>,
    /// What happens, and when.
    pub(super) agenda: Vec<(u64, Event)>,
}

/// What befalls packets on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Air {
    /// Nothing.
    Clean,
    /// One is lost, damaged, doubled or overtaken here and there.
    Lossy,
    /// Many are lost one after the other, so that a connection which gives up soon may do so for
    /// that: there is none of those.
    Bursty,
}

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    /// When it is opened.
    pub(super) opens_ns: u64,
    /// The side that opens it.
    pub(super) opener: usize,
    /// What each side does.
    pub(super) parties: [Party; 2],
}

/// What one program does with its end.
#[derive(Clone, Debug)]
pub(super) struct Party {
    /// How its end is set up.
    pub(super) config: Config,
    /// Bytes that it sends.
    pub(super) bytes: u64,
    /// So many at a time,
    pub(super) chunk: usize,
    /// and then nothing for so long.
    pub(super) gap_ns: u64,
    /// When it closes.
    pub(super) closes: Closes,
    /// Reads nothing in between.
    pub(super) dozes_ns: (u64, u64),
    /// Bytes that it reads at a time, 10 ms apart.
    pub(super) reads: usize,
}

/// When a program closes its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Closes {
    /// After its last byte.
    First,
    /// When the other has closed.
    Second,
    /// Never.
    Never,
    /// It ends the connection at once after its last byte was taken.
    Aborts,
}

/// Something happens to the tunnel.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The path carries nothing any more.
    Cut,
    /// It carries again, maybe by another link.
    Mend(Option<Box<LinkConfig>>),
    /// A side notices that there is no way.
    Lost(usize),
    /// A side knows of a way again.
    Back(usize),
    /// A side asks for the path, and says what it received last.
    Asks(usize),
    /// A side's process dies.
    Crash(usize),
    /// The next begins.
    Restart(usize),
    /// The session is over for good on one side.
    End(usize),
    /// From now on nothing is lost, and everybody reads.
    Calm,
}

impl Plan {
    /// The plan of a seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed).fork(1);
        let air = match rng.below(10) {
            0..4 => Air::Clean,
            4..7 => Air::Lossy,
            _ => Air::Bursty,
        };
        let tunnel = link(&mut rng, air, 0.5);
        let legs = [leg(&mut rng, air, 0.2), leg(&mut rng, air, 0.6)];
        let holds = match rng.below(8) {
            0 => [Hold::Reinject; 2],
            1 => [Hold::Off, Hold::Full],
            2 => [Hold::Full, Hold::Reinject],
            _ => [Hold::Full; 2],
        };
        let memory = SIDES.map(|_| if rng.chance(0.7) { PLENTY } else { small(&mut rng) });
        let hears = rng.chance(0.5);
        let v6 = rng.chance(0.3);
        let count = 1 + rng.below(CONNECTIONS_MAX);
        let connections = (0..count).map(|nth| connection(&mut rng, nth as u16, v6, air)).collect();
        let [crashes, ends] = [2, 3].map(|label| Rng::new(seed).fork(label).chance(SOME));
        let assists = Rng::new(seed).fork(4).chance(ASSISTED);
        let agenda = agenda(&mut rng, air, crashes, ends);
        Self { seed, holds, assists, memory, legs, tunnel, air, hears, connections, agenda }
    }

    /// When nothing happens any more.
    pub(super) fn calm_ns(&self) -> u64 {
        self.agenda.last().map_or(0, |&(at_ns, _)| at_ns)
    }

    /// Whether what was promised may have to be taken back.
    pub(super) fn breaks(&self) -> bool {
        let breaks = |event: &Event| matches!(event, Event::Crash(_) | Event::End(_));
        self.agenda.iter().any(|(_, event)| breaks(event))
    }
}

fn small(rng: &mut Rng) -> usize {
    4_000 + rng.below(400_000) as usize
}

/// A link that loses, doubles and reorders, unless it is clean.
fn link(rng: &mut Rng, air: Air, bad: f64) -> LinkConfig {
    let rate = if rng.chance(0.3) {
        Rate::Unlimited
    } else {
        Rate::BitsPerSecond(500_000 + rng.below(20_000_000))
    };
    let delay_ns = rng.below(100) * MS + rng.below(MS);
    let mut pipe = || {
        let plain = PipeConfig {
            rate: rate.clone(),
            queue_bytes: if air == Air::Clean { 4 << 20 } else { 10_000 + rng.below(200_000) },
            delay_ns,
            ..PipeConfig::default()
        };
        if air == Air::Clean || !rng.chance(bad) {
            return plain;
        }
        PipeConfig {
            jitter_ns: rng.below(10) * MS,
            loss: if air == Air::Lossy {
                Loss::Bernoulli(rng.unit() * 0.03)
            } else {
                Loss::bursts(rng.unit() * 0.03, 1.0 + rng.unit() * 5.0)
            },
            duplicate: if rng.chance(0.5) { rng.unit() * 0.05 } else { 0.0 },
            reorder: Reorder { probability: rng.unit() * 0.1, hold_ns: rng.below(40) * MS },
            ..plain
        }
    };
    LinkConfig { up: pipe(), down: pipe() }
}

/// What lies between programs and node: bits may be turned there, nobody sealed anything.
fn leg(rng: &mut Rng, air: Air, far: f64) -> LinkConfig {
    if !rng.chance(far) {
        return LinkConfig { up: PipeConfig::default(), down: PipeConfig::default() };
    }
    let mut leg = link(rng, air, 0.6);
    let turned = rng.unit() * 1e-6;
    for pipe in [&mut leg.up, &mut leg.down] {
        match air {
            // The tunnel is the narrowest part.
            Air::Clean => pipe.rate = Rate::Unlimited,
            // Nobody can hold what does not get here.
            Air::Lossy => pipe.loss = Loss::None,
            Air::Bursty if turned < 5e-7 => pipe.bit_errors = BitErrors::Delivered(turned),
            Air::Bursty => {}
        }
    }
    leg
}

fn connection(rng: &mut Rng, nth: u16, v6: bool, air: Air) -> Connection {
    let address = |side: usize, port: u16| -> SocketAddr {
        match (v6, side) {
            (false, 0) => ([10, 77, 0, 2], port).into(),
            (false, _) => ([192, 0, 2, 80], port).into(),
            (true, 0) => ([0xfd77, 0, 0, 0, 0, 0, 0, 2], port).into(),
            (true, _) => ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x80], port).into(),
        }
    };
    let opener = usize::from(rng.chance(0.25));
    let ports = SIDES.map(|side| if side == opener { 40_000 + nth } else { 443 });
    let ends = SIDES.map(|side| address(side, ports[side]));
    let parties = SIDES.map(|side| party(rng, (ends[side], ends[1 - side]), air));
    Connection { opens_ns: rng.below(3_000) * MS, opener, parties }
}

fn party(rng: &mut Rng, ends: (SocketAddr, SocketAddr), air: Air) -> Party {
    let bulk = rng.chance(0.6);
    let (bytes, chunk, gap_ns) = match (rng.below(8), bulk) {
        (0, _) => (0, 1, 0),
        (_, true) => (rng.below(1_500_000), 1 << 20, 0),
        (1..4, false) => (rng.below(200), 1, rng.below(400) * MS),
        (_, false) => (rng.below(60_000), 1 + rng.below(9_000) as usize, rng.below(2_000) * MS),
    };
    let bytes = bytes.min(chunk as u64 * CHUNKS_MAX);
    let closes = match rng.below(10) {
        0..5 => Closes::First,
        5..8 => Closes::Second,
        8 => Closes::Aborts,
        _ => Closes::Never,
    };
    let slow = rng.chance(0.15);
    let doze = rng.below(20_000) * MS;
    Party {
        config: config(rng, ends, air),
        bytes,
        chunk,
        gap_ns,
        closes,
        dozes_ns: if rng.chance(0.2) { (doze, doze + rng.below(30_000) * MS) } else { (0, 0) },
        reads: if slow { 100 + rng.below(10_000) as usize } else { usize::MAX },
    }
}

fn config(rng: &mut Rng, ends: (SocketAddr, SocketAddr), air: Air) -> Config {
    let gives_up = air != Air::Bursty;
    let receive_buffer = match rng.below(4) {
        0 => 4_000 + rng.below(60_000),
        1 => 65_535 + rng.below(300_000),
        _ => 6 << 20,
    };
    let keep_alive = KeepAlive { idle_ns: 10 * SECOND, interval_ns: 5 * SECOND, probes: 3 };
    Config {
        initial_sequence: rng.next_u64() as u32,
        mtu: if rng.chance(0.3) { 576 + rng.below(925) as u16 } else { 1_400 },
        congestion: match rng.below(3) {
            0 => CongestionControl::Reno,
            1 => CongestionControl::Cubic,
            _ => CongestionControl::Bbr,
        },
        receive_buffer,
        timestamps: rng.chance(0.75),
        sack: rng.chance(0.75),
        window_scaling: rng.chance(0.75),
        no_delay: rng.chance(0.5),
        retries: if gives_up && rng.chance(0.4) { 6 } else { 15 },
        // What is not open yet nobody can hold.
        opening_retries: 500,
        keep_alive: (gives_up && rng.chance(0.4)).then_some(keep_alive),
        // The last acknowledgment may be lost in any outage.
        time_wait_ns: 4_000 * SECOND,
        ..Config::new(ends.0, ends.1, rng.next_u64())
    }
}

/// Troubles, one after the other.
fn agenda(rng: &mut Rng, air: Air, crashes: bool, ends: bool) -> Vec<(u64, Event)> {
    let mut agenda = Vec::new();
    let mut now_ns = rng.below(4_000) * MS;
    if crashes {
        now_ns = crash(rng, &mut agenda, now_ns);
    }
    let troubles = if ends { 0 } else { rng.below(TROUBLES_MAX + 1) };
    for _ in 0..troubles {
        let pause_ms = if rng.chance(0.3) { 20_000 } else { 1_500 };
        now_ns += rng.below(pause_ms) * MS;
        match rng.below(10) {
            0 => now_ns = crash(rng, &mut agenda, now_ns),
            1 if rng.chance(0.4) => break,
            2 if rng.chance(0.5) => now_ns = false_alarm(rng, &mut agenda, now_ns),
            _ => now_ns = outage(rng, &mut agenda, now_ns, air),
        }
    }
    if ends {
        now_ns = end(rng, &mut agenda, now_ns);
    }
    agenda.push((now_ns + 10 * SECOND, Event::Calm));
    agenda.sort_by_key(|&(at_ns, _)| at_ns);
    agenda
}

/// The path is gone for a while, which both sides notice, each in its time.
fn outage(rng: &mut Rng, agenda: &mut Vec<(u64, Event)>, from_ns: u64, air: Air) -> u64 {
    let length_ns = match rng.below(4) {
        0 => (100 + rng.below(3_000)) * MS,
        1 | 2 => rng.below(60) * SECOND + rng.below(1_000) * MS,
        _ => rng.below(600) * SECOND,
    };
    let to_ns = from_ns + length_ns;
    let other = rng.chance(0.3).then(|| Box::new(link(rng, air, 0.5)));
    agenda.push((from_ns, Event::Cut));
    agenda.push((to_ns, Event::Mend(other)));
    let mut done_ns = to_ns;
    for side in SIDES {
        let lost_ns = from_ns + rng.below(NOTICES_MS) * MS;
        if length_ns < SHORT_NS && rng.chance(0.4) {
            continue;
        }
        let late_ms = if rng.chance(0.5) { 30 } else { 1_000 };
        let back_ns = lost_ns.max(to_ns) + rng.below(late_ms) * MS;
        agenda.push((lost_ns, Event::Lost(side)));
        for _ in 0..rng.below(4) {
            let ask_ns = to_ns.max(lost_ns) + rng.below(back_ns - to_ns.max(lost_ns) + 1);
            agenda.push((ask_ns, Event::Asks(side)));
        }
        agenda.push((back_ns, Event::Back(side)));
        done_ns = done_ns.max(back_ns);
    }
    done_ns
}

/// One side takes the path to be lost, and it is not.
fn false_alarm(rng: &mut Rng, agenda: &mut Vec<(u64, Event)>, from_ns: u64) -> u64 {
    let side = rng.below(2) as usize;
    let to_ns = from_ns + rng.below(3_000) * MS;
    agenda.push((from_ns, Event::Lost(side)));
    agenda.push((to_ns, Event::Back(side)));
    to_ns
}

/// A process dies, maybe while there is no path, and another takes its place.
fn crash(rng: &mut Rng, agenda: &mut Vec<(u64, Event)>, from_ns: u64) -> u64 {
    let side = rng.below(2) as usize;
    let mut at_ns = from_ns;
    let is_cut = rng.chance(0.7);
    if is_cut {
        agenda.push((from_ns, Event::Cut));
        agenda.push((from_ns + rng.below(200) * MS, Event::Lost(side)));
        at_ns += rng.below(5_000) * MS + 200 * MS;
    }
    let up_ns = at_ns + rng.below(5_000) * MS;
    agenda.push((at_ns, Event::Crash(side)));
    agenda.push((up_ns, Event::Restart(side)));
    if is_cut {
        agenda.push((up_ns, Event::Mend(None)));
    }
    if is_cut || rng.chance(0.5) {
        agenda.push((from_ns + rng.below(NOTICES_MS) * MS, Event::Lost(1 - side)));
        agenda.push((up_ns + 3 * SECOND + rng.below(500) * MS, Event::Back(1 - side)));
    }
    let back_ns = up_ns + rng.below(3_000) * MS;
    agenda.push((back_ns, Event::Back(side)));
    back_ns.max(up_ns + 4 * SECOND)
}

/// The session ends for good, mostly while there is no path.
fn end(rng: &mut Rng, agenda: &mut Vec<(u64, Event)>, from_ns: u64) -> u64 {
    let mut at_ns = from_ns;
    if rng.chance(0.8) {
        agenda.push((from_ns, Event::Cut));
        for side in SIDES {
            agenda.push((from_ns + rng.below(NOTICES_MS) * MS, Event::Lost(side)));
        }
        at_ns += (NOTICES_MS + rng.below(60_000)) * MS;
    }
    for side in SIDES {
        agenda.push((at_ns + rng.below(5_000) * MS, Event::End(side)));
    }
    at_ns + 5 * SECOND
}
