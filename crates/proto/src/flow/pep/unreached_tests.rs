use super::*;
use crate::flow::pep::memory::Memory;
use crate::flow::tuple::Direction;
use crate::flow::{Flows, Hold};
use crate::time::{Duration, Instant};
use crate::wire::icmp::{Unreached, prohibit};
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Ends, Flags, Made, Seq};

const SEQ: u32 = u32::MAX - 3;

fn segment(way: Direction, port: u16, seq: u32, flags: Flags) -> Vec<u8> {
    let (local, remote) = (([10, 77, 0, 2].into(), port), ([192, 168, 7, 1].into(), 80));
    let (source, destination) =
        if way == Direction::Out { (local, remote) } else { (remote, local) };
    let ends = Ends { source, destination };
    let ack = match way {
        Direction::In => SEQ.wrapping_add(1),
        Direction::Out if flags.has(Flags::ACK) => 5_001,
        Direction::Out => 0,
    };
    let ack = Seq(ack);
    let mut packet = Vec::new();
    let made = Made { ends, seq: Seq(seq), ack, flags, window: 9_000, timestamps: None };
    made.emit((&[], &[]), &mut packet);
    packet
}

struct Scene {
    now: Instant,
    flows: Flows,
    memory: Memory,
}

impl Scene {
    fn new() -> Self {
        let now = Instant::ZERO + Duration::from_secs(10);
        let mut scene =
            Self { now, flows: Flows::new(Hold::Full, 1), memory: Memory::new(1 << 20) };
        scene.flows.resume(now, &mut scene.memory, Duration::from_millis(40));
        scene
    }

    fn open(&mut self, port: u16) {
        let syn = segment(Direction::Out, port, SEQ, Flags::SYN);
        self.flows.outgoing(self.now, &mut self.memory, &InnerPacket::whole(&syn).unwrap(), true);
    }

    /// The gateway refuses a packet of this side's.
    fn refuse(&mut self, about: &[u8], by_peer: bool) {
        let (about, mut said) = (InnerPacket::whole(about).unwrap(), Vec::new());
        prohibit([10, 77, 0, 1].into(), &about, &mut said);
        let said = InnerPacket::whole(&said).unwrap();
        self.flows.hear_unreached(&Unreached::parse(&said).unwrap(), by_peer);
    }

    fn told(&self) -> Vec<Why> {
        let mut reports = Vec::new();
        self.flows.report(self.now, 0, 1_000, &mut reports);
        reports.iter_mut().for_each(|report| self.flows.complete(report));
        reports.into_iter().map(|report| report.why).collect()
    }
}

#[test]
fn who_is_refused_is_told_by_whom() {
    let mut scene = Scene::new();
    scene.open(40_000);
    let before = scene.told();
    assert!(!before.contains(&Why::Refused));
    scene.refuse(&segment(Direction::Out, 40_000, SEQ, Flags::SYN), true);
    assert_eq!(scene.told(), [Why::Refused]);
    scene.refuse(&segment(Direction::Out, 40_000, SEQ, Flags::SYN), false);
    assert_eq!(scene.told(), [Why::RefusedOnTheWay], "the newest word counts");
}

#[test]
fn who_guesses_is_not_believed() {
    let mut scene = Scene::new();
    scene.open(40_000);
    let before = scene.told();
    scene.refuse(&segment(Direction::Out, 40_001, SEQ, Flags::SYN), true);
    scene.refuse(&segment(Direction::Out, 40_000, SEQ.wrapping_add(1), Flags::SYN), true);
    scene.refuse(&segment(Direction::Out, 40_000, SEQ.wrapping_sub(9_000), Flags::SYN), true);
    assert_eq!(scene.told(), before);
}

#[test]
fn who_is_answered_is_reached() {
    let mut scene = Scene::new();
    scene.open(40_000);
    scene.refuse(&segment(Direction::Out, 40_000, SEQ, Flags::SYN), true);
    let answer = segment(Direction::In, 40_000, 5_000, Flags::SYN.and(Flags::ACK));
    let answer = InnerPacket::whole(&answer).unwrap();
    scene.flows.incoming(scene.now, &mut scene.memory, &answer);
    assert!(!scene.told().contains(&Why::Refused), "the answer is enough");
    let ack = segment(Direction::Out, 40_000, SEQ.wrapping_add(1), Flags::ACK);
    let ack = InnerPacket::whole(&ack).unwrap();
    scene.flows.outgoing(scene.now, &mut scene.memory, &ack, true);
    assert!(!scene.told().contains(&Why::Refused));
    scene.refuse(&segment(Direction::Out, 40_000, SEQ, Flags::SYN), true);
    assert!(!scene.told().contains(&Why::Refused));
}

#[test]
fn few_are_kept() {
    let mut scene = Scene::new();
    for port in 40_000..40_200 {
        scene.open(port);
        scene.refuse(&segment(Direction::Out, port, SEQ, Flags::SYN), true);
    }
    let told = scene.told();
    assert_eq!(told.len(), 200);
    assert_eq!(told.iter().filter(|why| **why == Why::Refused).count(), UNREACHED_MAX);
}
