//! One connection through one end of a tunnel, segment by segment.

mod answers;
mod assisted;
mod balance;
mod broken;
mod chosen;
mod crowd;
mod forged;
mod held;
mod lost;
mod narrowed;
mod over;
mod told;

use std::net::IpAddr;

use super::*;
use crate::wire::checksum::{Sum, mended};
use crate::wire::inner::{InnerPacket, TCP};
use crate::wire::tcp::{Flags, Made, Segment, Seq, Timestamps};
use tuple::Direction;

const LOCAL: ([u8; 4], u16) = ([10, 77, 0, 2], 40_000);
const REMOTE: ([u8; 4], u16) = ([192, 0, 2, 80], 443);
const LOCAL_START: Seq = Seq(u32::MAX - 2_000);
const REMOTE_START: Seq = Seq(5_000);
const MSS: u32 = 1_000;
const TRIP: Duration = Duration::from_millis(40);
/// What both sides shift their windows by where nobody says otherwise,
const SCALE: u8 = 3;
/// and the room that they have, in bytes.
const ROOM: u16 = 64_000;

/// A packet that this end said, read again.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    /// The local side's.
    port: u16,
    output: Output,
    seq: Seq,
    ack: Seq,
    window: u32,
    flags: Flags,
    timestamps: Option<Timestamps>,
    payload: Vec<u8>,
}

struct Scene {
    now: Instant,
    flows: Flows,
    memory: Memory,
    /// What both sides shift their windows by.
    scale: u8,
    /// The longest segment of either side, in bytes.
    mss: u32,
    /// The local side's port.
    port: u16,
    /// What the local side has sent and heard, and the remote one.
    local: (Seq, Seq),
    remote: (Seq, Seq),
}

/// The byte of the local side's stream at a place.
fn byte(at: u32) -> u8 {
    (at.wrapping_mul(31) >> 3) as u8
}

fn bytes(from: Seq, len: u32) -> Vec<u8> {
    (0..len).map(|at| byte(from.plus(at).0)).collect()
}

impl Scene {
    /// A connection that was opened through the tunnel.
    fn new(hold: impl Into<Rules>) -> Self {
        Self::of(hold, SCALE, MSS)
    }

    /// The same where windows are shifted by this, and segments are so long.
    fn of(hold: impl Into<Rules>, scale: u8, mss: u32) -> Self {
        let mut scene = Self {
            now: Instant::ZERO + Duration::from_secs(10),
            flows: Flows::new(hold, 1),
            memory: Memory::new(1 << 20),
            scale,
            mss,
            port: LOCAL.1,
            local: (LOCAL_START, Seq(0)),
            remote: (REMOTE_START, LOCAL_START.plus(1)),
        };
        scene.resume();
        scene.connect();
        scene
    }

    /// Opens it.
    fn connect(&mut self) {
        (self.local, self.remote) = ((LOCAL_START, Seq(0)), (REMOTE_START, LOCAL_START.plus(1)));
        let scale = self.scale;
        let options = |mss: [u8; 2]| [2, 4, mss[0], mss[1], 3, 3, scale, 4, 2, 1, 1, 1];
        let mss = u16::try_from(self.mss + 12).unwrap().to_be_bytes();
        let syn = self.packet(Direction::Out, Flags::SYN, LOCAL_START, &options(mss));
        assert!(self.give_out(&open(syn)));
        self.wait(TRIP);
        let flags = Flags::SYN.and(Flags::ACK);
        let syn = self.packet(Direction::In, flags, REMOTE_START, &options(mss));
        assert_eq!(self.give_in(&open(syn)).1, Verdict::Pass);
        self.local = (LOCAL_START.plus(1), REMOTE_START.plus(1));
        self.remote = (REMOTE_START.plus(1), LOCAL_START.plus(1));
        assert!(self.out(Flags::ACK, self.local.0, &[]));
        self.acknowledge(self.local.0);
    }

    fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn clock(&self) -> u32 {
        (self.now.as_nanos() / 1_000_000) as u32
    }

    fn packet(&self, way: Direction, flags: Flags, seq: Seq, payload: &[u8]) -> Vec<u8> {
        let (source, destination, ack) = match way {
            Direction::Out => ((LOCAL.0, self.port), REMOTE, self.local.1),
            Direction::In => (REMOTE, (LOCAL.0, self.port), self.remote.1),
        };
        let ends = crate::wire::tcp::Ends {
            source: (source.0.into(), source.1),
            destination: (destination.0.into(), destination.1),
        };
        let timestamps = Some(Timestamps { value: self.clock(), echo: 1 });
        let window = ROOM >> self.scale;
        let mut packet = Vec::new();
        Made { ends, seq, ack, flags, window, timestamps }.emit((payload, &[]), &mut packet);
        packet
    }

    fn give_out(&mut self, packet: &[u8]) -> bool {
        let packet = InnerPacket::whole(packet).unwrap();
        let passage = self.flows.outgoing(self.now, &mut self.memory, &packet, true);
        passage.is_some()
    }

    fn give_in(&mut self, packet: &[u8]) -> (Vec<u8>, Verdict) {
        let inner = InnerPacket::whole(packet).unwrap();
        let verdict = self.flows.incoming(self.now, &mut self.memory, &inner);
        let mut packet = packet.to_vec();
        if let Verdict::Change(change) = verdict {
            change.apply(&mut packet);
        }
        (packet, verdict)
    }

    /// The local side says something. Returns whether it goes into the tunnel.
    fn out(&mut self, flags: Flags, seq: Seq, payload: &[u8]) -> bool {
        let packet = self.packet(Direction::Out, flags, seq, payload);
        self.give_out(&packet)
    }

    /// The local side sends a segment that is damaged on its way here; returns where it begins.
    fn send_damaged(&mut self) -> Seq {
        let seq = self.local.0;
        let mut packet = self.packet(Direction::Out, Flags::ACK, seq, &bytes(seq, MSS));
        let last = packet.len() - 1;
        packet[last] ^= 1;
        assert!(self.give_out(&packet));
        self.local.0 = seq.plus(MSS);
        seq
    }

    /// The local side sends so many segments.
    fn send(&mut self, segments: u32) -> bool {
        let mut went = true;
        for _ in 0..segments {
            let seq = self.local.0;
            went &= self.out(Flags::ACK, seq, &bytes(seq, MSS));
            self.local.0 = seq.plus(MSS);
        }
        went
    }

    /// The remote side acknowledges; what becomes of it.
    fn acknowledge(&mut self, ack: Seq) -> Option<Said> {
        self.remote.1 = ack;
        let packet = self.packet(Direction::In, Flags::ACK, self.remote.0, &[]);
        let (packet, verdict) = self.give_in(&packet);
        (verdict != Verdict::Keep).then(|| read(Output::ToLocal, &packet))
    }

    /// What is said now, with everything written down that has to be.
    fn said(&mut self) -> Vec<Said> {
        let mut said = Vec::new();
        for _ in 0..1_000 {
            let mut packet = Vec::new();
            match self.flows.poll(self.now, &mut self.memory, &mut packet) {
                Some(output) => said.push(read(output, &packet)),
                None => match self.flows.poll_record() {
                    Some(tuple) => self.flows.recorded(&tuple),
                    None => return said,
                },
            }
        }
        panic!("it never stops: {:?}", said.last());
    }

    /// The same over a time, each with how long after the beginning it was said.
    fn said_within(&mut self, time: Duration) -> Vec<(Duration, Said)> {
        let (start, mut said) = (self.now, Vec::new());
        while let Some(due) = self.flows.due().filter(|&due| due <= start + time) {
            self.now = self.now.max(due);
            let at = self.now.saturating_since(start);
            said.extend(self.said().into_iter().map(|said| (at, said)));
        }
        self.now = start + time;
        said
    }

    /// The remote side has this beyond what it acknowledged.
    fn sack(&mut self, from: Seq, to: Seq) -> Verdict {
        let mut options = vec![1, 1, 5, 10];
        options.extend(from.0.to_be_bytes());
        options.extend(to.0.to_be_bytes());
        let mut packet = self.packet(Direction::In, Flags::ACK, self.remote.0, &options);
        put(&mut packet, 32, 11 << 4);
        self.give_in(&packet).1
    }

    /// A silence is noticed that lasts for a round trip.
    fn suspend(&mut self) {
        self.wait(TRIP);
        self.flows.suspend(self.now, &mut self.memory);
    }

    fn resume(&mut self) {
        self.flows.resume(self.now, &mut self.memory, TRIP);
    }
}

/// A SYN whose payload was its options.
fn open(mut packet: Vec<u8>) -> Vec<u8> {
    put(&mut packet, 32, 11 << 4);
    packet
}

/// Puts another byte at a place of a TCP header, and mends the checksum.
fn put(packet: &mut [u8], at: usize, byte: u8) {
    let word = |at: usize, packet: &[u8]| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let even = at & !1; // headers begin at one
    let before = word(even, packet);
    packet[at] = byte;
    let checksum = mended(word(36, packet), before, word(even, packet));
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
}

fn read(output: Output, packet: &[u8]) -> Said {
    let inner = InnerPacket::whole(packet).unwrap();
    let (headers, segment) = (inner.headers, Segment::parse(&inner).unwrap());
    let tcp = &packet[headers.transport.unwrap()..];
    let length = u16::try_from(tcp.len()).unwrap();
    let sum = Sum::default().pseudo(headers.source, headers.destination, TCP, length).bytes(tcp);
    assert_eq!(sum.folded(), 0, "the checksum of {segment:?}");
    let (from, to) = headers.ports.unwrap();
    let (source, port) = match output {
        Output::ToLocal => (REMOTE.0, to),
        Output::ToRemote => (LOCAL.0, from),
    };
    assert_eq!(headers.source, IpAddr::from(source));
    let Segment { seq, ack, flags, timestamps, .. } = segment;
    let window = u32::from(segment.window) << SCALE;
    Said {
        port,
        output,
        seq,
        ack,
        window,
        flags,
        timestamps,
        payload: packet[segment.payload()].to_vec(),
    }
}

#[test]
fn while_there_is_a_way_nothing_is_said_and_what_arrived_is_not_kept() {
    let mut scene = Scene::new(Hold::Full);
    assert!(scene.send(10));
    assert_eq!(scene.memory.used(), 10_000);
    scene.wait(TRIP);
    let ack = scene.local.0.minus(3_000);
    let passed = scene.acknowledge(ack).unwrap();
    assert_eq!((passed.ack, passed.window), (ack, 64_000));
    assert_eq!(scene.memory.used(), 3_000);
    assert_eq!(scene.flows.due(), None);
}

#[test]
fn what_is_owed_leaves_at_the_old_rate_and_the_local_side_follows_at_the_same() {
    let mut scene = Scene::new(Hold::Full);
    // 20 segments a round trip, for some.
    for _ in 0..5 {
        scene.send(20);
        scene.wait(TRIP);
        scene.acknowledge(scene.local.0);
    }
    scene.send(20);
    let (first, end) = (scene.local.0.minus(20 * MSS), scene.local.0);
    scene.wait(Duration::from_millis(300));
    scene.suspend();
    scene.said();
    scene.wait(Duration::from_secs(10));
    scene.resume();
    let sent = scene.said_within(TRIP);
    assert_eq!(sent.len(), 20);
    let mut next = first;
    for (_, said) in &sent {
        assert_eq!((said.output, said.seq), (Output::ToRemote, next));
        assert_eq!(said.payload, bytes(next, MSS));
        next = next.plus(MSS);
    }
    let halfway = sent[10].0;
    assert!(halfway > TRIP / 3 && halfway < TRIP * 2 / 3, "{halfway:?}");
    // The first answer says what was there already, and gives no room for what did not leave.
    assert_eq!(scene.acknowledge(first.plus(2 * MSS)), None);
    // Then the remote side takes it in, a segment at a time.
    for taken_in in 1..18 {
        let told = scene.acknowledge(first.plus((2 + taken_in) * MSS)).unwrap();
        assert_eq!((told.ack, told.window), (end, taken_in * MSS));
    }
    let told = scene.acknowledge(end).unwrap();
    assert_eq!((told.ack, told.window), (end, 64_000), "it speaks for itself again");
    assert!(scene.send(5));
    assert_eq!(scene.flows.due(), None);
}

#[test]
fn fresh_bytes_follow_what_is_owed_and_never_overtake_it() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(30);
    let first = scene.local.0.minus(30 * MSS);
    scene.suspend();
    scene.said();
    scene.wait(Duration::from_secs(10));
    scene.resume();
    let begun = scene.said_within(TRIP).len() as u32;
    assert!(begun < 30, "{begun}");
    let told = scene.acknowledge(first.plus(2 * MSS));
    assert_eq!(told, None);
    assert!(scene.acknowledge(first.plus(7 * MSS)).is_some());
    // It has room for five, says something of what it received as well, and that it is done.
    assert!(!scene.send(4), "kept, to leave in order");
    assert!(!scene.out(Flags::ACK, scene.local.0, &[]));
    let last = bytes(scene.local.0, MSS);
    let end = scene.local.0.plus(MSS);
    assert!(!scene.out(Flags::ACK.and(Flags::FIN), scene.local.0, &last));
    let mut next = first.plus(begun * MSS);
    while next != end {
        let sent = scene.said_within(TRIP);
        assert!(!sent.is_empty(), "{next:?} of {end:?}");
        for (_, said) in sent {
            assert_eq!((said.output, said.seq), (Output::ToRemote, next));
            assert_eq!(said.payload, bytes(next, said.payload.len() as u32));
            next = next.plus(said.payload.len() as u32);
            assert_eq!(said.flags.has(Flags::FIN), next == end, "{next:?}");
        }
        scene.acknowledge(next);
    }
    scene.acknowledge(end.plus(1));
    assert_eq!((scene.flows.due(), scene.memory.used()), (None, 0));
}

#[test]
fn nothing_is_acknowledged_where_something_is_missing() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(2);
    // A damaged segment: what it says is not what it meant.
    let seq = scene.send_damaged();
    scene.send(2);
    scene.suspend();
    assert!(scene.said().is_empty());
    // Its sender sends it again, and the first two that left first.
    assert!(!scene.out(Flags::ACK, seq, &bytes(seq, MSS)));
    let first = seq.minus(2 * MSS);
    assert!(!scene.out(Flags::ACK, first, &bytes(first, MSS)));
    assert!(scene.said().is_empty());
    scene.resume();
    assert!(!scene.said_within(TRIP).is_empty());
}

#[test]
fn without_acknowledging_the_oldest_segments_are_sent_again_at_once() {
    let mut scene = Scene::new(Hold::Reinject);
    scene.send(10);
    assert_eq!(scene.memory.used(), 0);
    scene.suspend();
    let first = scene.local.0.minus(10 * MSS);
    for _ in 0..3 {
        scene.wait(Duration::from_millis(400));
        assert!(!scene.out(Flags::ACK, first, &bytes(first, MSS)));
        assert!(scene.said().is_empty());
    }
    scene.resume();
    let said = scene.said();
    assert_eq!((said[0].output, said[0].seq), (Output::ToRemote, first));
    assert_eq!((said[1].flags, said.len()), (Flags::ACK, 2), "and what it received");
    let passed = scene.acknowledge(first.plus(MSS)).unwrap();
    assert_eq!(passed.ack, first.plus(MSS));
    assert_eq!(scene.flows.due(), None);
}

/// The way is lost under what was repeated last, which may have been the last time.
#[test]
fn what_was_repeated_just_before_the_way_is_lost_is_sent_again_when_there_is_one() {
    let mut scene = Scene::new(Hold::Reinject);
    scene.send(10);
    let first = scene.local.0.minus(10 * MSS);
    assert!(scene.out(Flags::ACK, first, &bytes(first, MSS)), "it leaves as it is");
    assert_eq!(scene.said(), [], "and once");
    scene.suspend();
    scene.resume();
    let said = scene.said();
    assert_eq!((said[0].seq, &said[0].payload), (first, &bytes(first, MSS)));
    assert_eq!(scene.said_within(TRIP), [], "no more is kept");
    scene.acknowledge(scene.local.0);
    assert_eq!((scene.memory.used(), scene.flows.due()), (0, None));
}

#[test]
fn an_end_is_delivered_behind_what_is_owed() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(2);
    scene.suspend();
    scene.said();
    let end = scene.local.0;
    assert!(!scene.out(Flags::ACK.and(Flags::FIN), end, &[]));
    assert!(scene.said_within(TRIP).iter().all(|(_, told)| told.ack == end), "FIN is not answered");
    scene.resume();
    let sent = scene.said_within(TRIP * 2);
    let (_, last) = sent.last().unwrap();
    assert!(last.flags.has(Flags::FIN) && !last.payload.is_empty(), "{last:?}");
}

#[test]
fn a_connection_opened_while_there_was_no_way_opens_at_once_when_there_is() {
    let mut scene = Scene::new(Hold::Full);
    scene.suspend();
    let mut syn = scene.packet(Direction::Out, Flags::SYN, LOCAL_START, &[]);
    put(&mut syn, 20, LOCAL.1.to_be_bytes()[0] ^ 1); // another port
    for _ in 0..3 {
        scene.wait(Duration::from_secs(1));
        assert!(!scene.give_out(&syn));
    }
    scene.resume();
    let said: Vec<_> = std::iter::from_fn(|| {
        let mut packet = Vec::new();
        scene.flows.poll(scene.now, &mut scene.memory, &mut packet).map(|output| (output, packet))
    })
    .collect();
    // The other connection says what it received.
    assert_eq!(said.iter().filter(|(_, packet)| *packet == syn).count(), 1);
    assert_eq!(said.len(), 2);
}

#[test]
fn a_question_in_the_midst_of_a_connection_changes_nothing() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(4);
    for way in [Direction::In, Direction::Out] {
        let syn = scene.packet(way, Flags::SYN, Seq(1 << 31), &[]);
        match way {
            Direction::In => assert_eq!(scene.give_in(&syn).1, Verdict::Pass),
            Direction::Out => assert!(scene.give_out(&syn)),
        }
    }
    scene.suspend();
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.seq, told.ack, told.window), (scene.remote.0, scene.local.0, 0));
}

#[test]
fn it_is_held_again_and_again() {
    let mut scene = Scene::new(Hold::Full);
    for _ in 0..3 {
        scene.send(5);
        scene.wait(TRIP * 8);
        scene.suspend();
        let mut packet = Vec::new();
        assert_eq!(scene.flows.poll(scene.now, &mut scene.memory, &mut packet), None);
        let tuple = scene.flows.poll_record().unwrap();
        scene.flows.recorded(&tuple);
        let told = scene.said();
        assert_eq!((told.len(), told[0].ack, told[0].window), (1, scene.local.0, 0));
        scene.wait(Duration::from_secs(5));
        scene.resume();
        assert!(scene.said_within(TRIP).len() >= 5);
        scene.acknowledge(scene.local.0);
        assert_eq!(scene.flows.poll_settled(), Some(tuple));
        assert_eq!(scene.flows.due(), None);
        assert_eq!(scene.memory.used(), 0);
    }
}

#[test]
fn what_comes_while_it_is_held_is_looked_at_before_it_is_acknowledged() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(2);
    scene.suspend();
    scene.said();
    let told = scene.local.0;
    let mut packet = scene.packet(Direction::Out, Flags::ACK, told, &bytes(told, MSS));
    let last = packet.len() - 1;
    packet[last] ^= 1;
    assert!(!scene.give_out(&packet));
    assert!(scene.said_within(TRIP * 2).iter().all(|(_, said)| said.ack == told));
    assert!(!scene.out(Flags::ACK, told, &bytes(told, MSS)));
    let said = scene.said_within(TRIP * 2);
    assert_eq!(said.last().unwrap().1.ack, told.plus(MSS));
}

#[test]
fn room_that_was_given_is_not_taken_back() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(6);
    let end = scene.local.0;
    scene.suspend();
    scene.said();
    scene.resume();
    scene.said_within(TRIP);
    assert_eq!(scene.acknowledge(end.minus(6 * MSS)), None);
    let told = scene.acknowledge(end.minus(3 * MSS)).unwrap();
    assert_eq!(told.window, (4 + 3) * MSS);
    scene.suspend();
    let told = scene.said();
    assert_eq!((told[0].ack, told[0].window), (end, (4 + 3) * MSS));
}

#[test]
fn what_the_owed_leaves_in_flight_is_given_at_once() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(2);
    let end = scene.local.0;
    scene.suspend();
    scene.said();
    scene.wait(Duration::from_secs(10));
    scene.resume();
    // Of ten segments that may be in flight two are owed: maybe they have arrived, and only that
    // word was lost.
    let said = scene.said();
    let [told] = &said[..1] else { panic!() };
    assert_eq!((told.output, told.ack, told.window), (Output::ToLocal, end, 8 * MSS));
    let told = scene.acknowledge(end.minus(MSS));
    assert_eq!(told, None, "what was there already gives no more room");
    assert!(!scene.send(8), "it follows what is owed");
    let sent = scene.said_within(TRIP * 3);
    let seqs: Vec<_> = sent.iter().map(|(_, said)| said.seq.beyond(end.minus(MSS)) / MSS).collect();
    assert_eq!(seqs, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let told = scene.acknowledge(end.plus(MSS)).unwrap();
    assert_eq!((told.ack, told.window), (end.plus(MSS), 64_000), "it speaks for itself again");
}

#[test]
fn where_memory_is_short_who_begins_is_kept_only_if_that_pays() {
    for (trips, pays) in [([50, 50, 50, 20], false), ([20, 20, 20, 50], true)] {
        let mut scene = Scene::new(Hold::Full);
        for (place, trip) in trips.into_iter().enumerate() {
            let client = [10, 0, 0, u8::try_from(place).unwrap()].into();
            scene.flows.visit(client, Duration::from_millis(trip));
        }
        scene.send(2);
        let others = 600_000;
        let taken = (0..6).all(|_| scene.memory.take(0, others / 6).is_ok());
        assert!(taken);
        scene.send(2);
        assert_eq!(scene.memory.used() - others, 4_000, "who has begun goes on");
        scene.acknowledge(scene.local.0);
        scene.send(2);
        assert_eq!(scene.memory.used() - others, if pays { 2_000 } else { 0 });
        // Then it is as if there were no memory at all: the window stays open, nobody is deceived.
        scene.suspend();
        assert_eq!(scene.said().len(), usize::from(pays));
        scene.resume();
        scene.memory.give_back(others);
        scene.acknowledge(scene.local.0);
        scene.send(2);
        assert!(scene.memory.used() >= 2_000);
    }
}
