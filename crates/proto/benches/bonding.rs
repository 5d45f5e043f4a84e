//! What it costs to share packets among paths: nanoseconds a packet, beside a session in which one
//! path carries. `cargo bench -p rove-proto --bench bonding`.
//!
//! A client sends 1 Gbit/s of inner packets over eight links, in virtual time: so the same happens
//! each time, and of each call the shortest of all times is what it costs on this machine. Counted
//! is what the sending side does (`handle_tun`, `handle_timeout`, `poll_timeout`, and the feedback
//! that it takes), nothing of the sealing. Beside it stands what the choice among eight paths costs
//! by itself, by each scheduler.
//!
//! Two figures are told of what it takes more than by one path. *Scheduling* is all that happens
//! to a packet before it leaves: the choice, the wait at the entry and in a line, the pace, the
//! timers. A copy of it is kept by one path as well, so that is no part of either. *All* is with
//! the feedback, of which every path sends its own. Of single packets the longest call of
//! `handle_tun` is told, beside that which one of a thousand takes longer than.

#![allow(clippy::unwrap_used, reason = "a benchmark: a panic is the report")]
#![allow(clippy::print_stdout, reason = "what it is for")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]

#[path = "../tests/pair/mod.rs"]
mod pair;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant as Clock;

use pair::{Pair, links, udp};
use rove_proto::bond::Mode;
use rove_proto::bond::choice::{Scheduler, Tally};
use rove_proto::bond::schedule::Way;
use rove_proto::id::SocketId;
use rove_proto::node::{Command, Event, Meta, Node};
use rove_proto::outbox::Outbox;
use rove_proto::path::PathId;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::inner::InnerPacket;

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
/// Flows that the packets belong to.
const FLOWS: u16 = 8;
/// What waits on a link at most.
const QUEUE: Duration = Duration::from_millis(50);

/// What is done in a round.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    mode: Mode,
    /// Bits per second of each link.
    link_rate: u64,
}

const CASES: [Case; 3] = [
    Case { name: "one path (backup)", mode: Mode::Backup, link_rate: 10_000_000_000 },
    Case { name: "8 links, 1.2 Gbit/s in sum", mode: Mode::Full, link_rate: 150_000_000 },
    Case { name: "8 links, 0.96 Gbit/s in sum", mode: Mode::Full, link_rate: 120_000_000 },
];

/// What a round took: nanoseconds of each call, in the order of the calls.
#[derive(Clone, Default)]
struct Taken {
    tun: Vec<u32>,
    timeout: Vec<u32>,
    feedback: Vec<u32>,
}

/// Two ends and the links between them.
struct Network {
    now: Instant,
    client: Node,
    gateway: Node,
    at: SocketAddr,
    sockets: Vec<(SocketId, SocketAddr)>,
    wire: BTreeMap<(Instant, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    /// Until when a link carries something, by the client's address and direction.
    busy: BTreeMap<(IpAddr, bool), Instant>,
    rate: u64,
    is_alone: bool,
    /// Datagrams.
    put: u64,
    /// Inner packets.
    sent: u64,
    delivered: u64,
    used: BTreeMap<IpAddr, u64>,
}

fn main() {
    sending();
    choosing();
}

/// What sending costs.
fn sending() {
    let mut best: Vec<Option<Taken>> = vec![None; CASES.len()];
    let mut arrived = vec![(0.0, 0); CASES.len()];
    for _ in 0..ROUNDS {
        for (place, case) in CASES.iter().enumerate() {
            let (taken, share, paths) = round(*case);
            arrived[place] = (share, paths);
            best[place] = Some(match best[place].take() {
                Some(before) => before.least(taken),
                None => taken,
            });
        }
    }
    let best: Vec<Taken> = best.into_iter().flatten().collect();
    let base = best[0].clone();
    println!(
        "nanoseconds a packet           paths arrived |  tun  timer feedback | \
         scheduling,  all | 99.9 %, worst call"
    );
    for ((case, taken), (share, paths)) in CASES.iter().zip(&best).zip(arrived) {
        let packets = taken.tun.len() as f64;
        let mean = |times: &[u32]| times.iter().map(|&ns| f64::from(ns)).sum::<f64>() / packets;
        let parts = |t: &Taken| [mean(&t.tun), mean(&t.timeout), mean(&t.feedback)];
        let [tun, timer, feedback] = parts(taken);
        let [tun_alone, timer_alone, feedback_alone] = parts(&base);
        let scheduling = tun + timer - tun_alone - timer_alone;
        let all = scheduling + feedback - feedback_alone;
        let mut sorted = taken.tun.clone();
        sorted.sort_unstable();
        let rare = sorted[sorted.len() * 999 / 1_000];
        println!(
            "{:<30} {paths:>5} {share:>7.3} | {tun:>4.0} {timer:>6.0} {feedback:>8.0} | \
             {scheduling:>10.0} {all:>5.0} | {rare:>6} {:>11}",
            case.name,
            sorted.last().unwrap(),
        );
    }
}

/// What the choice costs, of eight paths of 150 Mbit/s for packets that come at 1 Gbit/s.
fn choosing() {
    println!("\nnanoseconds a choice            mean, worst");
    for scheduler in Scheduler::ALL {
        let mut best: Vec<u32> = Vec::new();
        for _ in 0..ROUNDS {
            let times = choices(scheduler);
            best = if best.is_empty() {
                times
            } else {
                best.into_iter().zip(times).map(|(a, b)| a.min(b)).collect()
            };
        }
        let mean = best.iter().map(|&ns| f64::from(ns)).sum::<f64>() / best.len() as f64;
        println!("{:<30} {mean:>5.0} {:>6}", scheduler.name(), best.iter().max().unwrap());
    }
}

/// How long each of many choices takes; the clock itself is in it.
fn choices(scheduler: Scheduler) -> Vec<u32> {
    let mut now = Instant::from_nanos(1_000_000_000);
    let mut ways: Vec<Way> = (0..8).map(|number| way(now, number)).collect();
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
                scheduler.choose(now, &mut ways, PACKET)
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

fn way(now: Instant, number: u32) -> Way {
    let trip = Duration::from_millis(10 + 5 * u64::from(number));
    Way {
        path: PathId(number),
        next_at: now,
        byte_ns: 8e9 / 150e6,
        delay: trip / 2,
        least: None,
        trip,
        loss: 0.001 * f64::from(number),
        arrives: None,
        room: 1 << 40,
        waiting: 0,
        line: 0,
        tally: Tally::default(),
    }
}

/// One round. Returns what it took, which part of what was sent arrived, and by how many paths.
fn round(case: Case) -> (Taken, f64, usize) {
    let mut network = Network::new(case);
    let mut ignored = Taken::default();
    network.carry(PHASES[0], &mut ignored);
    (network.sent, network.delivered) = (0, 0);
    network.used.clear();
    let mut taken = Taken::default();
    network.carry(PHASES[1], &mut taken);
    let share = network.delivered as f64 / network.sent as f64;
    let paths = network.used.values().filter(|&&bytes| bytes > 100_000).count();
    (taken, share, paths)
}

impl Taken {
    /// The shorter of each two times: the calls are the same.
    fn least(self, other: Self) -> Self {
        let least = |a: Vec<u32>, b: Vec<u32>| {
            assert_eq!(a.len(), b.len(), "the same happens each time");
            a.into_iter().zip(b).map(|(a, b)| a.min(b)).collect()
        };
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
    times.push(u32::try_from(from.elapsed().as_nanos()).unwrap());
    done
}

impl Network {
    /// A session over eight links, each 5 ms longer there and back than the one before.
    fn new(case: Case) -> Self {
        let mut pair = Pair::up();
        let addresses: Vec<[u8; 4]> = (0..8).map(|link| [203, 0, 113, 5 + link]).collect();
        pair.tell_client(links(&addresses));
        pair.tell_client(Command::SetMode(case.mode));
        pair.run(Duration::from_secs(2));
        let socket = |event: &Event| {
            let Event::OpenSocket { socket, local, .. } = event else { return None };
            let port = 40_000 + u16::try_from(socket.0).unwrap();
            Some((*socket, SocketAddr::new(*local, port)))
        };
        Self {
            now: pair.now,
            sockets: pair.client_events.iter().filter_map(socket).collect(),
            at: pair.gateway_at[0],
            client: pair.client,
            gateway: pair.gateway,
            wire: BTreeMap::new(),
            busy: BTreeMap::new(),
            rate: case.link_rate,
            is_alone: case.mode == Mode::Backup,
            put: 0,
            sent: 0,
            delivered: 0,
            used: BTreeMap::new(),
        }
    }

    /// Packets come at their rate for so long.
    fn carry(&mut self, time: Duration, taken: &mut Taken) {
        let packets: Vec<_> =
            (0..FLOWS).map(|n| udp((40_000 + n, 443), &[n as u8; PACKET - 28], false)).collect();
        let (end, mut owed, mut out) = (self.now + time, 0, Outbox::new());
        while self.now < end {
            self.now = self.now + STEP;
            self.wake(taken, &mut out);
            self.deliver(taken);
            owed += RATE * u64::try_from(STEP.as_nanos()).unwrap() / 8_000_000_000;
            while owed >= PACKET as u64 {
                owed -= PACKET as u64;
                let packet = &packets[self.sent as usize % packets.len()];
                let (client, now) = (&mut self.client, self.now);
                timed(&mut taken.tun, || {
                    client.handle_tun(now, InnerPacket::whole(packet), &mut out);
                });
                self.sent += 1;
            }
            self.flush(&mut out, true);
            self.gateway.handle_timeout(self.now, &mut out);
            self.flush(&mut out, false);
        }
    }

    /// What the client does because time has passed.
    fn wake(&mut self, taken: &mut Taken, out: &mut Outbox) {
        let (client, now) = (&mut self.client, self.now);
        timed(&mut taken.timeout, || {
            if client.poll_timeout().is_some_and(|(at, _)| at <= now) {
                client.handle_timeout(now, out);
            }
        });
        self.flush(out, true);
    }

    /// What has arrived by now is taken.
    fn deliver(&mut self, taken: &mut Taken) {
        let mut out = Outbox::new();
        while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let (from, to, mut bytes) = entry.remove();
            let now = self.now;
            if to == self.at {
                let meta = Meta { socket: SocketId(0), local: Some(to.ip()), remote: from };
                self.gateway.handle_datagram(now, meta, &mut bytes, &mut out);
                self.delivered += out.inner().count() as u64;
                self.flush(&mut out, false);
            } else if let Some(&(socket, at)) = self.sockets.iter().find(|s| s.1 == to) {
                let meta = Meta { socket, local: Some(at.ip()), remote: from };
                let client = &mut self.client;
                timed(&mut taken.feedback, || {
                    client.handle_datagram(now, meta, &mut bytes, &mut out);
                });
                self.flush(&mut out, true);
            }
        }
    }

    fn flush(&mut self, out: &mut Outbox, up: bool) {
        let node = if up { &mut self.client } else { &mut self.gateway };
        while node.poll_event().is_some() {}
        out.seal();
        let mut leaving = VecDeque::new();
        for (run, bytes) in out.runs() {
            let own = self.sockets.iter().find(|s| s.0 == run.route.socket).map(|s| s.1);
            let from = if up { own.unwrap() } else { self.at };
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
        let number = if self.is_alone { 3.5 } else { number };
        let busy = self.busy.entry((link, up)).or_default();
        let begins = (*busy).max(self.now);
        if begins.saturating_since(self.now) > QUEUE {
            return;
        }
        let bits = (bytes.len() as u64 + 28) * 8;
        *busy = begins + Duration::from_nanos(bits * 1_000_000_000 / self.rate);
        let arrives = *busy + Duration::from_millis(5).mul_f64(1.0 + number / 2.0);
        *self.used.entry(link).or_default() += if up { bytes.len() as u64 } else { 0 };
        self.put += 1;
        self.wire.insert((arrives, self.put), (from, to, bytes));
    }
}
