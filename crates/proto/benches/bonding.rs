//! What it costs to share packets among paths: nanoseconds a packet, beside a session in which one
//! path carries. `cargo bench -p rove-proto --bench bonding`.
//!
//! A client sends 1 Gbit/s of inner packets over eight links, in virtual time. What it is given
//! meanwhile is noted, and given once more to a client that is alone in the process, which does
//! the same: so the caches hold its own memory and no other end's, and of each call the shortest of
//! all times is what it costs on this machine. Counted is what the sending side does (`handle_tun`,
//! `handle_timeout`, `poll_timeout`, and the feedback that it takes), nothing of the sealing.
//!
//! Two figures are told of what it takes more than by one path. *Scheduling* is all that happens
//! to a packet before it leaves: the choice, the wait at the entry and in a line, the pace, the
//! timers. A copy of it is kept by one path as well, so that is no part of either. *All* is with
//! the feedback, of which every path sends its own. Of single packets the longest call of
//! `handle_tun` is told, beside that which one of a thousand takes longer than. Where one link is
//! much longer than another, packets wait for the short ones until the caches hold them no more,
//! and most of the figure is the way to the memory and back; so there are links alike beside.
//!
//! Beside that stands *the scheduler by itself*, of packets with next to no bytes, which wait for
//! nothing but their turn: from the entry through the choice to a line, and out of it at its
//! path's pace. It must stay below 150 ns on the average, or the benchmark fails. And what the
//! choice alone costs, by each scheduler.

#![allow(clippy::unwrap_used, reason = "a benchmark: a panic is the report")]
#![allow(clippy::print_stdout, reason = "what it is for")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]

#[path = "../tests/pair/mod.rs"]
mod pair;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Instant as Clock;

use pair::{Pair, links, udp};
use rove_proto::blocks::Blocks;
use rove_proto::id::SocketId;
use rove_proto::multipath::codel::Bound;
use rove_proto::multipath::fq_codel::FqCodel;
use rove_proto::multipath::path_queues::{Numbered, PathQueues};
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::snapshot::{Measured, PathSnapshot, Tally};
use rove_proto::multipath::{Mode, Numbers};
use rove_proto::node::{Command, Event, Meta, Node};
use rove_proto::outbox::Outbox;
use rove_proto::packet::PacketRecord;
use rove_proto::path::PathId;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::inner::Pieces;

/// Inner bytes of a packet.
const PACKET: usize = 1_400;
/// Inner bits per second that are sent.
const RATE: u64 = 1_000_000_000;
/// How often the device hands over what there is.
const STEP: Duration = Duration::from_micros(100);
/// Time in which the paths are found out, and in which is measured.
const PHASES: [Duration; 2] = [Duration::from_millis(1_500), Duration::from_millis(500)];
/// How often the same is done.
const ROUNDS: usize = 7;
/// And what takes no time.
const SHORT_ROUNDS: usize = 50;
/// Flows that the packets belong to.
const FLOWS: u16 = 8;
/// Inner bytes of a packet of which only what is decided is measured.
const SHORT: usize = 64;
/// How many of them.
const TURNS: usize = 50_000;
/// What the scheduler may cost by itself, on the average.
const SCHEDULER_NS_MAX: f64 = 150.0;
/// What waits on a link at most.
const QUEUE: Duration = Duration::from_millis(50);

/// What is done in a round.
#[derive(Clone, Copy)]
struct Case {
    mode: Mode,
    /// Bits per second of each link.
    link_rate: u64,
    /// The round trip of the shortest link, and by how much that of each other is longer than the
    /// one before.
    trips: (Duration, Duration),
}

const SPREAD: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(5));
const ALIKE: (Duration, Duration) = (Duration::from_millis(10), Duration::ZERO);

const CASES: [Case; 5] = [
    Case { mode: Mode::Backup, link_rate: 10_000_000_000, trips: ALIKE },
    Case { mode: Mode::Full, link_rate: 150_000_000, trips: ALIKE },
    Case { mode: Mode::Backup, link_rate: 10_000_000_000, trips: SPREAD },
    Case { mode: Mode::Full, link_rate: 150_000_000, trips: SPREAD },
    Case { mode: Mode::Full, link_rate: 120_000_000, trips: SPREAD },
];

/// What a round took: nanoseconds of each call, in the order of the calls.
#[derive(Clone, Default)]
struct Taken {
    tun: Vec<u32>,
    timeout: Vec<u32>,
    feedback: Vec<u32>,
}

/// What a client was given, in order, and what came out of it.
#[derive(Default)]
struct Tape {
    inputs: Vec<Input>,
    /// How much of it belongs to the time in which the paths are found out.
    before: usize,
    left: Left,
}

enum Input {
    /// Time has passed.
    Wake(Instant),
    /// A packet of the flow with this number.
    Packet(Instant, usize),
    /// A datagram has come.
    Datagram(Instant, Meta, Vec<u8>),
    /// The device has handed over what there was: what is in the outbox leaves.
    Flush,
}

/// What left, to compare two runs by.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Left {
    datagrams: u64,
    bytes: u64,
    /// Of some of the sealed bytes of each.
    sum: u64,
}

impl Left {
    fn note(&mut self, bytes: &[u8], segment: usize) {
        for datagram in bytes.chunks(segment) {
            self.datagrams += 1;
            self.bytes += datagram.len() as u64;
            let tag = datagram.last_chunk().copied().map_or(0, u64::from_le_bytes);
            self.sum = self.sum.rotate_left(1) ^ tag;
        }
    }
}

/// Two ends and the links between them.
struct Network {
    tape: Tape,
    now: Instant,
    client: Node,
    gateway: Node,
    at: SocketAddr,
    sockets: Vec<(SocketId, SocketAddr)>,
    wire: BTreeMap<(Instant, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    /// Until when a link carries something, by the client's address and direction.
    busy: BTreeMap<(IpAddr, bool), Instant>,
    case: Case,
    /// Datagrams.
    put: u64,
    /// Inner packets.
    sent: u64,
    delivered: u64,
    used: BTreeMap<IpAddr, u64>,
}

fn main() -> ExitCode {
    sending();
    let is_cheap = scheduling();
    choosing();
    if is_cheap { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What sending costs.
fn sending() {
    let mut best: Vec<Option<Taken>> = vec![None; CASES.len()];
    let recorded = CASES.map(record);
    for _ in 0..ROUNDS {
        for (best, (case, (tape, ..))) in best.iter_mut().zip(CASES.iter().zip(&recorded)) {
            let taken = replay(*case, tape);
            *best = Some(match best.take() {
                Some(before) => before.least(taken),
                None => taken,
            });
        }
    }
    let best: Vec<Taken> = best.into_iter().flatten().collect();
    let mut base = Taken::default();
    println!(
        "nanoseconds a packet           paths arrived |  tun  timer feedback | \
         scheduling,  all | 99.9 %, worst call"
    );
    for ((case, taken), (_, share, paths)) in CASES.iter().zip(&best).zip(recorded) {
        let packets = taken.tun.len() as f64;
        let mean = |times: &[u32]| times.iter().map(|&ns| f64::from(ns)).sum::<f64>() / packets;
        let name = match case.mode {
            Mode::Backup => {
                base = taken.clone();
                "one path (backup)".to_owned()
            }
            Mode::Single | Mode::Full => {
                format!("8 links of {} Mbit/s", case.link_rate / 1_000_000)
            }
        };
        let parts = |t: &Taken| [mean(&t.tun), mean(&t.timeout), mean(&t.feedback)];
        let [tun, timer, feedback] = parts(taken);
        let [tun_alone, timer_alone, feedback_alone] = parts(&base);
        let scheduling = tun + timer - tun_alone - timer_alone;
        let all = scheduling + feedback - feedback_alone;
        let mut sorted = taken.tun.clone();
        sorted.sort_unstable();
        let rare = sorted[sorted.len() * 999 / 1_000];
        println!(
            "{name:<30} {paths:>5} {share:>7.3} | {tun:>4.0} {timer:>6.0} {feedback:>8.0} | \
             {scheduling:>10.0} {all:>5.0} | {rare:>6} {:>11}",
            sorted.last().unwrap(),
        );
    }
}

/// What the scheduler costs by itself: turns at the entry, the choice, the lines, the pace, of
/// packets so short that nothing is measured of moving their bytes. Returns whether that is within
/// [`SCHEDULER_NS_MAX`].
fn scheduling() -> bool {
    let mut best: Vec<u32> = Vec::new();
    for _ in 0..SHORT_ROUNDS {
        let times = turns();
        best = if best.is_empty() { times } else { least(best, times) };
    }
    let mut clock = Vec::new();
    (0..TURNS).for_each(|_| timed(&mut clock, || ()));
    let clock = clock.iter().map(|&ns| f64::from(ns)).sum::<f64>() / clock.len() as f64;
    let mean = best.iter().map(|&ns| f64::from(ns)).sum::<f64>() / best.len() as f64 - clock;
    best.sort_unstable();
    let rare = best[best.len() * 999 / 1_000];
    let worst = best.last().unwrap();
    println!("\nnanoseconds a packet            mean | 99.9 %, worst, with the clock's {clock:.0}");
    println!("the scheduler by itself        {mean:>5.0} | {rare:>6} {worst:>6}");
    mean < SCHEDULER_NS_MAX
}

/// How long each of many packets takes from the entry until its path carries it, with the clock.
/// They come and leave at the times of full ones.
fn turns() -> Vec<u32> {
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut ways: Vec<PathSnapshot> = (0..8).map(|number| way(now, number)).collect();
    for way in &mut ways {
        way.byte_ns *= PACKET as f64 / SHORT as f64;
    }
    let (mut entry, mut lines, mut numbers) =
        (FqCodel::default(), PathQueues::default(), Numbers::default());
    let (mut blocks, mut times, mut left) = (Blocks::default(), Vec::new(), 0);
    lines.settle(&mut ways);
    let packet = [7; SHORT];
    for number in 0..TURNS {
        now = now + Duration::from_nanos(PACKET as u64 * 8_000_000_000 / RATE);
        timed(&mut times, || {
            let packet = Pieces::whole(&packet);
            let bucket = (number % usize::from(FLOWS)) as u8;
            let record = PacketRecord::of_bucket(bucket);
            entry.push(&mut blocks, now, record, packet, Bound::SHORT);
            while Scheduler::Earliest.needs(now, &ways)
                && let Some((record, packet)) = entry.pop(&mut blocks, now)
            {
                let given = Numbered::new(record, numbers.in_order(record.bucket));
                let len = packet.len();
                let place =
                    Scheduler::Earliest.choose(now, &mut ways, len, Duration::ZERO).unwrap();
                lines.push(&mut ways[place], given, packet);
            }
            for way in &mut ways {
                while way.waiting > 0 && way.is_ready(now) {
                    let packet = lines.pop(way).unwrap().packet;
                    let takes = Duration::from_nanos((packet.len() as f64 * way.byte_ns) as u64);
                    way.next_at = way.next_at.max(now) + takes;
                    blocks.discard(packet);
                    left += 1;
                }
            }
        });
    }
    assert!(left + 1_000 > TURNS, "what comes leaves");
    times
}

fn least(a: Vec<u32>, b: Vec<u32>) -> Vec<u32> {
    assert_eq!(a.len(), b.len(), "the same happens each time");
    a.into_iter().zip(b).map(|(a, b)| a.min(b)).collect()
}

/// What the choice costs, of eight paths of 150 Mbit/s for packets that come at 1 Gbit/s.
fn choosing() {
    println!("\nnanoseconds a choice            mean, worst");
    for scheduler in Scheduler::ALL {
        let mut best: Vec<u32> = Vec::new();
        for _ in 0..ROUNDS {
            let times = choices(scheduler);
            best = if best.is_empty() { times } else { least(best, times) };
        }
        let mean = best.iter().map(|&ns| f64::from(ns)).sum::<f64>() / best.len() as f64;
        println!("{:<30} {mean:>5.0} {:>6}", scheduler.name(), best.iter().max().unwrap());
    }
}

/// How long each of many choices takes; the clock itself is in it.
fn choices(scheduler: Scheduler) -> Vec<u32> {
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut ways: Vec<PathSnapshot> = (0..8).map(|number| way(now, number)).collect();
    let mut times = Vec::new();
    for _ in 0..50_000 {
        now = now + Duration::from_nanos(PACKET as u64 * 8_000_000_000 / RATE);
        for way in &mut ways {
            // What was given to it leaves at its rate.
            let left = if way.next_at <= now { PACKET.min(way.waiting) } else { 0 };
            way.waiting -= left;
            if left > 0 {
                way.next_at = now + Duration::from_nanos((left as f64 * way.byte_ns) as u64);
            }
        }
        let chosen = timed(&mut times, || {
            if scheduler.needs(now, &ways) {
                scheduler.choose(now, &mut ways, PACKET, Duration::ZERO)
            } else {
                None
            }
        });
        if let Some(place) = chosen {
            ways[place].waiting += PACKET;
        }
    }
    times
}

fn way(now: Instant, number: u32) -> PathSnapshot {
    let trip = Duration::from_millis(10 + 5 * u64::from(number));
    PathSnapshot {
        path: PathId(number),
        next_at: now,
        byte_ns: 8e9 / 150e6,
        delay: trip / 2,
        trip,
        least_trip: trip,
        measured: Measured { loss: 0.001 * f64::from(number), ..Measured::default() },
        room: 1 << 40,
        waiting: 0,
        tally: Tally::default(),
    }
}

/// A case with both ends. Returns what the client was given, which part of what it sent arrived,
/// and by how many paths.
fn record(case: Case) -> (Tape, f64, usize) {
    let mut network = Network::new(case);
    network.carry(PHASES[0]);
    (network.sent, network.delivered) = (0, 0);
    network.used.clear();
    network.tape.before = network.tape.inputs.len();
    network.carry(PHASES[1]);
    let share = network.delivered as f64 / network.sent as f64;
    let paths = network.used.values().filter(|&&bytes| bytes > 100_000).count();
    (network.tape, share, paths)
}

/// The client alone is given the same once more, and does the same. Returns what it took.
fn replay(case: Case, tape: &Tape) -> Taken {
    let Pair { mut client, .. } = prepared(case);
    let packets = packets();
    let (mut taken, mut left, mut out) = (Taken::default(), Left::default(), Outbox::new());
    let mut datagram = Vec::new();
    for (place, input) in tape.inputs.iter().enumerate() {
        if place == tape.before {
            taken = Taken::default();
        }
        match input {
            Input::Wake(now) => wake(&mut client, *now, &mut taken, &mut out),
            Input::Packet(now, number) => {
                let packet = Pieces::whole(&packets[*number]);
                timed(&mut taken.tun, || client.handle_tun(*now, packet, &mut out));
            }
            Input::Datagram(now, meta, bytes) => {
                datagram.clone_from(bytes);
                timed(&mut taken.feedback, || {
                    client.handle_datagram(*now, *meta, &mut datagram, &mut out);
                });
            }
            Input::Flush => {
                while client.poll_event().is_some() {}
                out.seal();
                out.runs().for_each(|(run, bytes)| left.note(bytes, run.segment));
                out.clear();
            }
        }
    }
    assert_eq!(left, tape.left, "the same happens each time");
    taken
}

/// What the client does because time has passed.
fn wake(client: &mut Node, now: Instant, taken: &mut Taken, out: &mut Outbox) {
    timed(&mut taken.timeout, || {
        if client.poll_timeout().is_some_and(|(at, _)| at <= now) {
            client.handle_timeout(now, out);
        }
    });
}

/// A packet of each flow.
fn packets() -> Vec<Vec<u8>> {
    (0..FLOWS).map(|n| udp((40_000 + n, 443), &[n as u8; PACKET - 28], false)).collect()
}

/// A session over eight links.
fn prepared(case: Case) -> Pair {
    let mut pair = Pair::up();
    let addresses: Vec<[u8; 4]> = (0..8).map(|link| [203, 0, 113, 5 + link]).collect();
    pair.tell_client(links(&addresses));
    pair.tell_client(Command::SetMode(case.mode));
    pair.run(Duration::from_secs(2));
    pair
}

impl Taken {
    /// The shorter of each two times: the calls are the same.
    fn least(self, other: Self) -> Self {
        Self {
            tun: least(self.tun, other.tun),
            timeout: least(self.timeout, other.timeout),
            feedback: least(self.feedback, other.feedback),
        }
    }
}

fn timed<T>(times: &mut Vec<u32>, what: impl FnOnce() -> T) -> T {
    let from = Clock::now();
    let done = what();
    times.push(u32::try_from(from.elapsed().as_nanos()).unwrap_or(u32::MAX));
    done
}

impl Network {
    /// Eight links, each 5 ms longer there and back than the one before.
    fn new(case: Case) -> Self {
        let pair = prepared(case);
        let socket = |event: &Event| {
            let Event::OpenSocket { socket, local, .. } = event else { return None };
            let port = 40_000 + u16::try_from(socket.0).unwrap();
            Some((*socket, SocketAddr::new(*local, port)))
        };
        Self {
            tape: Tape::default(),
            now: pair.now,
            sockets: pair.client_events.iter().filter_map(socket).collect(),
            at: pair.gateway_at[0],
            client: pair.client,
            gateway: pair.gateway,
            wire: BTreeMap::new(),
            busy: BTreeMap::new(),
            case,
            put: 0,
            sent: 0,
            delivered: 0,
            used: BTreeMap::new(),
        }
    }

    /// Packets come at their rate for so long.
    fn carry(&mut self, time: Duration) {
        let packets = packets();
        let (end, mut owed, mut out) = (self.now + time, 0, Outbox::new());
        while self.now < end {
            self.now = self.now + STEP;
            self.tape.inputs.push(Input::Wake(self.now));
            wake(&mut self.client, self.now, &mut Taken::default(), &mut out);
            self.flush(&mut out, true);
            self.deliver();
            owed += RATE * u64::try_from(STEP.as_nanos()).unwrap() / 8_000_000_000;
            while owed >= PACKET as u64 {
                owed -= PACKET as u64;
                let number = self.sent as usize % packets.len();
                self.tape.inputs.push(Input::Packet(self.now, number));
                let packet = Pieces::whole(&packets[number]);
                self.client.handle_tun(self.now, packet, &mut out);
                self.sent += 1;
            }
            self.flush(&mut out, true);
            self.gateway.handle_timeout(self.now, &mut out);
            self.flush(&mut out, false);
        }
    }

    /// What has arrived by now is taken.
    fn deliver(&mut self) {
        let mut out = Outbox::new();
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (from, to, mut bytes) = entry.remove();
            let now = self.now;
            if to == self.at {
                let meta = Meta {
                    socket: SocketId(0),
                    local: Some(to.ip()),
                    remote: from,
                    waited: Duration::ZERO,
                };
                self.gateway.handle_datagram(now, meta, &mut bytes, &mut out);
                self.delivered += out.inner().count() as u64;
                self.flush(&mut out, false);
            } else if let Some(&(socket, at)) = self.sockets.iter().find(|s| s.1 == to) {
                let meta =
                    Meta { socket, local: Some(at.ip()), remote: from, waited: Duration::ZERO };
                self.tape.inputs.push(Input::Datagram(now, meta, bytes.clone()));
                self.client.handle_datagram(now, meta, &mut bytes, &mut out);
                self.flush(&mut out, true);
            }
        }
    }

    fn flush(&mut self, out: &mut Outbox, up: bool) {
        let node = if up { &mut self.client } else { &mut self.gateway };
        while node.poll_event().is_some() {}
        out.seal();
        if up {
            self.tape.inputs.push(Input::Flush);
        }
        let mut leaving = VecDeque::new();
        for (run, bytes) in out.runs() {
            let own = self.sockets.iter().find(|s| s.0 == run.route.socket).map(|s| s.1);
            let from = if up { own.unwrap() } else { self.at };
            if up {
                self.tape.left.note(bytes, run.segment);
            }
            for datagram in bytes.chunks(run.segment) {
                leaving.push_back((from, run.route.remote, datagram.to_vec()));
            }
        }
        out.clear();
        for (from, to, bytes) in leaving {
            self.put(from, to, bytes, up);
        }
    }

    /// A datagram goes by the link of the client's address.
    fn put(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>, up: bool) {
        let link = if up { from.ip() } else { to.ip() };
        let IpAddr::V4(address) = link else { return };
        // Of one path alone, what all have on the average: so as much is on its way.
        let number = f64::from(address.octets()[3]) - 5.0;
        let number = if self.case.mode == Mode::Backup { 3.5 } else { number };
        let busy = self.busy.entry((link, up)).or_default();
        let begins = (*busy).max(self.now);
        if begins.saturating_since(self.now) > QUEUE {
            return;
        }
        let bits = (bytes.len() as u64 + 28) * 8;
        *busy = begins + Duration::from_nanos(bits * 1_000_000_000 / self.case.link_rate);
        let (shortest, longer) = self.case.trips;
        let arrives = *busy + (shortest + longer.mul_f64(number)) / 2;
        *self.used.entry(link).or_default() += if up { bytes.len() as u64 } else { 0 };
        self.put += 1;
        self.wire.insert((arrives, self.put), (from, to, bytes));
    }
}
