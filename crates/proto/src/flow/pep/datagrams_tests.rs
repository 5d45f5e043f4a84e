use proptest::prelude::*;

use super::*;
use crate::flow::rules::{Matches, Rule};
use crate::flow::{Flows, Output, Verdict};
use crate::wire::control::Prefix;
use crate::wire::inner::UDP;

const CLIENT: [u8; 4] = [10, 77, 0, 2];
const SERVER: [u8; 4] = [192, 0, 2, 53];
const TRIP: Duration = Duration::from_millis(40);

/// A UDP packet from one end and port to another.
fn udp(from: ([u8; 4], u16), to: ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45; 28 + payload.len()];
    let length = u16::try_from(packet.len()).unwrap();
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6..8].copy_from_slice(&[0x40, 0]);
    packet[9] = UDP;
    packet[12..16].copy_from_slice(&from.0);
    packet[16..20].copy_from_slice(&to.0);
    packet[20..22].copy_from_slice(&from.1.to_be_bytes());
    packet[22..24].copy_from_slice(&to.1.to_be_bytes());
    packet[24..26].copy_from_slice(&(length - 20).to_be_bytes());
    packet[28..].copy_from_slice(payload);
    packet
}

/// The same by IPv6.
fn udp6(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 48 + payload.len()];
    packet[0] = 0x60;
    let length = u16::try_from(8 + payload.len()).unwrap();
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet[6] = UDP;
    (packet[23], packet[39]) = (1, 2);
    packet[40..42].copy_from_slice(&5_000u16.to_be_bytes());
    packet[42..44].copy_from_slice(&port.to_be_bytes());
    packet[44..46].copy_from_slice(&length.to_be_bytes());
    packet[48..].copy_from_slice(payload);
    packet
}

fn query(number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let header = [high, low, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header[..], &[4], b"rove", &[7], b"example", &[0, 0, 1, 0, 1]].concat()
}

fn question(port: u16, number: u16) -> Vec<u8> {
    udp((CLIENT, port), (SERVER, 53), &query(number))
}

fn answer(port: u16, number: u16) -> Vec<u8> {
    let mut payload = query(number);
    payload[2] |= 0x80;
    udp((SERVER, 53), (CLIENT, port), &payload)
}

/// The first datagram of a connection, or one of that flight.
fn initial(port: u16, nth: u8) -> Vec<u8> {
    let mut payload = vec![nth; 1_200];
    payload[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
    udp((CLIENT, port), (SERVER, 443), &payload)
}

/// What is no beginning of anything.
fn voice(port: u16, len: usize) -> Vec<u8> {
    udp((CLIENT, port), (SERVER, 443), &vec![0x80; len])
}

struct Scene {
    now: Instant,
    flows: Flows,
    memory: Memory,
}

impl Scene {
    fn new(hold: impl Into<Rules>, is_up: bool) -> Self {
        let (flows, memory) = (Flows::new(hold, 1), Memory::new(1 << 20));
        let mut scene = Self { now: Instant::ZERO + Duration::from_secs(9), flows, memory };
        if is_up {
            scene.resume();
        }
        scene
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }

    fn send(&mut self, packet: &[u8]) -> bool {
        let packet = InnerPacket::whole(packet).unwrap();
        let passage = self.flows.outgoing(self.now, &mut self.memory, &packet, true);
        passage.is_some()
    }

    fn receive(&mut self, packet: &[u8]) {
        let inner = InnerPacket::whole(packet).unwrap();
        let verdict = self.flows.incoming(self.now, &mut self.memory, &inner);
        assert_eq!(verdict, Verdict::Pass);
    }

    fn suspend(&mut self) {
        self.flows.suspend(self.now, &mut self.memory);
    }

    fn resume(&mut self) {
        self.flows.resume(self.now, &mut self.memory, TRIP);
    }

    /// What leaves now.
    fn said(&mut self) -> Vec<Vec<u8>> {
        let (mut said, mut packet) = (Vec::new(), Vec::new());
        while let Some(output) = self.flows.poll(self.now, &mut self.memory, &mut packet) {
            assert_eq!(output, Output::ToRemote);
            said.push(std::mem::take(&mut packet));
        }
        assert!(self.flows.due().is_none_or(|due| due > self.now), "{:?}", self.flows.due());
        said
    }

    fn drops(&mut self) -> Vec<DropReason> {
        std::iter::from_fn(|| self.flows.poll_drop()).collect()
    }
}

#[test]
fn what_is_asked_while_there_is_no_way_leaves_in_order_when_there_is_one() {
    let mut scene = Scene::new(Hold::Reinject, false);
    let asked = [question(5_000, 1), question(5_000, 2), initial(6_000, 0), initial(6_000, 1)];
    for packet in &asked {
        assert!(!scene.send(packet));
        scene.wait(10);
    }
    assert!(scene.flows.is_waiting(), "its return is looked for");
    assert!(scene.said().is_empty());
    scene.wait(2_000);
    scene.resume();
    assert_eq!(scene.flows.due(), Some(Instant::ZERO));
    assert_eq!(scene.said(), asked);
    assert!(scene.said().is_empty(), "once");
    assert!(scene.drops().is_empty());
}

#[test]
fn what_had_no_answer_when_the_way_was_lost_is_asked_again() {
    let mut scene = Scene::new(Hold::Full, true);
    for packet in [question(5_000, 1), question(5_000, 2), initial(6_000, 0), initial(6_001, 0)] {
        assert!(scene.send(&packet), "it leaves as ever");
    }
    scene.receive(&answer(5_000, 2));
    scene.receive(&answer(5_001, 1)); // somebody else's
    scene.receive(&udp((SERVER, 443), (CLIENT, 6_001), &[0xf0; 60])); // a Retry
    scene.suspend();
    assert!(scene.flows.is_waiting());
    scene.wait(3_000);
    scene.resume();
    assert_eq!(scene.said(), [question(5_000, 1), initial(6_000, 0)]);
    // And once more, if that was in vain.
    scene.suspend();
    scene.wait(500);
    scene.resume();
    assert_eq!(scene.said().len(), 2);
    scene.receive(&answer(5_000, 1));
    scene.receive(&udp((SERVER, 443), (CLIENT, 6_000), &[0xf0; 60]));
    assert_eq!((scene.memory.used(), scene.flows.due()), (0, None));
}

#[test]
fn the_newest_takes_the_place_of_the_same_asked_before() {
    let mut scene = Scene::new(Hold::Reinject, false);
    scene.send(&question(5_000, 1));
    let first = [initial(6_000, 0), initial(6_000, 1)];
    first.iter().for_each(|packet| assert!(!scene.send(packet)));
    scene.wait(1_000);
    scene.send(&question(5_000, 1));
    let second = [initial(6_000, 2), initial(6_000, 3)];
    second.iter().for_each(|packet| assert!(!scene.send(packet)));
    let bytes: usize = second.iter().map(Vec::len).sum();
    assert_eq!(scene.memory.used(), question(5_000, 1).len() + bytes);
    scene.wait(4_100);
    scene.resume();
    let [asked, flight @ ..] = &scene.said()[..] else { panic!() };
    assert_eq!(*asked, question(5_000, 1), "five seconds from the newest");
    assert_eq!(flight, second, "a flight as a whole");
    assert!(scene.drops().is_empty());
}

#[test]
fn what_nobody_waits_for_any_more_is_forgotten() {
    let mut scene = Scene::new(Hold::Reinject, false);
    scene.send(&question(5_000, 1));
    scene.send(&initial(6_000, 0));
    scene.wait(4_999);
    assert!(scene.said().is_empty());
    scene.wait(1);
    scene.resume();
    assert_eq!(scene.said(), [initial(6_000, 0)]);
    assert_eq!(scene.drops(), [DropReason::NoRoute]);
    scene.suspend();
    scene.wait(3_000);
    assert!(scene.flows.due().is_some_and(|due| due <= scene.now), "it asks to be woken");
    assert!(scene.said().is_empty());
    assert_eq!((scene.memory.used(), scene.flows.due()), (0, None));
    assert!(scene.drops().is_empty(), "that one has left");
}

#[test]
fn nothing_of_a_flow_goes_before_its_question() {
    let mut scene = Scene::new(Hold::Reinject, false);
    scene.send(&initial(6_000, 0));
    assert!(!scene.send(&voice(6_000, 100)), "the same flow");
    assert!(scene.send(&voice(6_001, 100)), "another");
    assert_eq!(scene.drops(), [DropReason::NoRoute]);
    scene.resume();
    assert!(!scene.send(&initial(6_000, 1)), "it queues up");
    assert!(!scene.send(&voice(6_000, 100)));
    assert_eq!(scene.drops(), [DropReason::NoRoute]);
    assert_eq!(scene.said(), [initial(6_000, 0), initial(6_000, 1)]);
    assert!(scene.send(&voice(6_000, 100)));
}

#[test]
fn few_are_kept_and_only_while_there_is_memory() {
    let mut scene = Scene::new(Hold::Reinject, false);
    for number in 0..200 {
        assert!(!scene.send(&question(5_000, number)));
    }
    assert_eq!(scene.drops(), [DropReason::QueueFull; 200 - QUESTIONS_MAX]);
    for port in 0..100 {
        assert!(!scene.send(&initial(port, 0)));
        assert!(scene.memory.used() <= BYTES_MAX);
    }
    scene.resume();
    let said = scene.said();
    assert_eq!(said.last(), Some(&initial(99, 0)));
    assert_eq!(said.len() + scene.drops().len(), QUESTIONS_MAX + 100);
    // One flow cannot push out all others.
    let mut scene = Scene::new(Hold::Reinject, false);
    assert!(!scene.send(&question(5_000, 1)));
    (0..100).for_each(|nth| assert!(!scene.send(&initial(6_000, nth))));
    scene.resume();
    assert_eq!(scene.said().len(), 1 + FLIGHT_MAX);
    // Where there is none, it goes as it would have gone.
    let mut scene = Scene::new(Hold::Reinject, false);
    scene.memory = Memory::new(200);
    assert!(scene.send(&question(5_000, 1)));
    assert_eq!((scene.memory.used(), scene.flows.due()), (0, None));
}

#[test]
fn the_memory_is_given_back_when_the_session_ends() {
    let mut scene = Scene::new(Hold::Full, true);
    scene.send(&question(5_000, 1));
    scene.suspend();
    scene.send(&initial(6_000, 1));
    assert!(scene.memory.used() > 0);
    scene.flows.terminate(&mut scene.memory, &mut Vec::new(), &mut Vec::new());
    assert_eq!((scene.memory.used(), scene.flows.due()), (0, None));
}

#[test]
fn nothing_is_kept_where_that_is_switched_off() {
    let mut scene = Scene::new(Hold::Off, false);
    assert!(scene.send(&question(5_000, 1)));
    assert!(scene.send(&initial(6_000, 1)));
    assert_eq!(scene.memory.used(), 0);
}

#[test]
fn rules_are_for_questions_as_well() {
    let off = |of| Rules::new(Hold::Full, &[Rule { of, hold: Hold::Off }]);
    let mut scene = Scene::new(off(Matches::Class(Class::Names)), false);
    assert!(scene.send(&question(5_000, 1)), "it is not kept");
    assert!(!scene.send(&initial(6_000, 1)));
    let network = Prefix { address: [0; 4].into(), bits: 0 };
    let mut scene = Scene::new(off(Matches::End { network, port: Some(443) }), false);
    assert!(!scene.send(&question(5_000, 1)));
    assert!(scene.send(&initial(6_000, 1)));
    // Who is not looked at any more does not leave behind what was kept.
    scene.flows.set_rules(Hold::Off.into());
    assert!(scene.memory.used() > 0);
    scene.wait(60_000);
    scene.resume();
    assert_eq!((scene.said(), scene.memory.used()), (vec![], 0));
}

#[test]
fn what_was_kept_with_its_path_does_not_leave_twice() {
    let mut scene = Scene::new(Hold::Reinject, true);
    let packet = question(5_000, 1);
    let (whole, left_at) = (InnerPacket::whole(&packet).unwrap(), scene.now);
    scene.send(&packet);
    assert!(!scene.flows.sends_again(left_at, None, &whole), "another path has it");
    scene.wait(200);
    scene.suspend();
    assert!(scene.flows.sends_again(left_at, None, &whole));
    scene.resume();
    scene.said();
    assert!(scene.flows.sends_again(left_at, None, &whole));
    assert!(!scene.flows.sends_again(scene.now, None, &whole), "this one has left since");
}

#[test]
fn only_what_begins_something_is_kept() {
    let mut kept = vec![question(5_000, 1), initial(6_000, 0)];
    kept.extend([udp6(53, &query(1)), udp6(443, &initial(1, 0)[28..])]);
    let mut second = initial(6_000, 0);
    second[28..33].copy_from_slice(&[0xd3, 0x6b, 0x33, 0x43, 0xcf]);
    kept.push(second.clone());
    let mut greased = initial(6_000, 0);
    greased[28] = 0x83;
    kept.push(greased);
    for packet in &kept {
        let mut scene = Scene::new(Hold::Reinject, false);
        assert!(!scene.send(packet), "{packet:02x?}");
        scene.resume();
        assert_eq!(&scene.said()[..], std::slice::from_ref(packet));
    }

    let changed = |packet: &[u8], at: usize, byte: u8| {
        let mut packet = packet.to_vec();
        packet[at] = byte;
        packet
    };
    let (question, initial) = (question(5_000, 1), initial(6_000, 0));
    let short = [0xc3, 0, 0, 0, 1, 8].into_iter().chain([0; 1_193]).collect::<Vec<u8>>();
    let mut behind = udp6(53, &query(1));
    behind[6] = 60; // a header with options, then UDP
    behind.splice(40..40, [UDP, 0, 1, 4, 0, 0, 0, 0]);
    behind[5] += 8;
    let others = [
        answer(5_000, 1),
        changed(&question, 30, 0x80 | 1), // an answer to the port of questions
        changed(&question, 30, 0x28),     // an update
        changed(&question, 33, 0),        // about nothing
        udp((CLIENT, 5_000), (SERVER, 53), &query(1)[..16]),
        changed(&question, 6, 0x20), // the first of some fragments
        changed(&question, 7, 5),    // a later one
        changed(&question, 25, 200), // shorter than it says
        behind,
        changed(&initial, 28, 0xd3), // 0-RTT
        changed(&initial, 28, 0xe3), // Handshake
        changed(&initial, 28, 0x43), // a connection that goes on
        changed(&initial, 32, 2),    // another version
        changed(&second, 28, 0xc3),  // Retry
        udp((CLIENT, 6_000), (SERVER, 443), &short),
        voice(6_000, 1_300),
        changed(&question, 9, 1), // ICMP
        changed(&question, 9, 132),
    ];
    for packet in &others {
        let mut scene = Scene::new(Hold::Reinject, false);
        assert!(scene.send(packet), "{packet:02x?}");
        assert_eq!(scene.memory.used(), 0, "{packet:02x?}");
    }
}

proptest! {
    #[test]
    fn whatever_comes_it_stays_small_forgets_and_never_waits_for_what_is_due(
        ops in prop::collection::vec((0u8..7, 0u16..6, 0u64..1_500), 1..400),
    ) {
        let mut scene = Scene::new(Hold::Full, true);
        for (op, which, ms) in ops {
            match op {
                0 => drop(scene.send(&question(5_000 + which / 3, which))),
                1 => drop(scene.send(&initial(6_000 + which / 2, 0))),
                2 => drop(scene.send(&voice(6_000 + which, 200))),
                3 => scene.receive(&answer(5_000 + which / 3, which)),
                4 => scene.receive(&udp((SERVER, 443), (CLIENT, 6_000 + which), &[0x40; 30])),
                5 => scene.suspend(),
                _ => scene.resume(),
            }
            let waited = scene.said().len();
            prop_assert!(waited == 0 || scene.flows.is_up());
            scene.wait(ms);
            scene.said();
            let questions = &scene.flows.questions;
            let bytes: usize = questions.list.iter().map(|question| question.packet.len()).sum();
            prop_assert_eq!((questions.bytes, scene.memory.used()), (bytes, bytes));
            prop_assert!(bytes <= BYTES_MAX && questions.list.len() <= QUESTIONS_MAX);
            for question in &questions.list {
                let same = questions.list.iter().filter(|other| other.key == question.key);
                let max = if question.key.asks == Asks::Connection { FLIGHT_MAX } else { 1 };
                prop_assert!(same.count() <= max, "{:?}", question.key);
            }
        }
        scene.wait(8_000);
        scene.said();
        prop_assert_eq!((scene.memory.used(), scene.flows.due()), (0, None));
    }
}
