//! Loss recovery alone: each cause of a loss, what is sent again then, and the bounds.

use super::*;
use crate::id::{PacketNumber, PathSerial};
use crate::packet::{Instance, PacketRecord, Strength};
use crate::time::Duration;
use crate::wire::frame::{FEEDBACK_RUNS_MAX, Framing};
use packet::Load;
use queue::ATTEMPTS_MAX;
use sent_packets::{KEPT_BYTES_MAX, KEPT_TIME};

const PATH: PathId = PathId(1);
const OTHER: PathId = PathId(2);
const OLD: EpochId = EpochId(1);
const NEW: EpochId = EpochId(2);
const KEPT: Load = Load::Packet(PacketRecord::of_bucket(0));
const DOUBLED: Load = Load::Packet(PacketRecord::of_bucket(0).copied(Instance::Original));
/// Bytes of a datagram.
const LEN: usize = 1_000;

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// The space of a path under an epoch.
const fn space(epoch: EpochId, path: PathId) -> SpaceId {
    SpaceId { epoch, serial: PathSerial(path.0) }
}

#[derive(Default)]
struct Scene {
    recovery: LossRecovery,
    blocks: Blocks,
    drops: Drops,
    rtt: Rtt,
}

impl Scene {
    /// A round trip of 40 ms is known.
    fn new() -> Self {
        let mut scene = Self::default();
        scene.rtt.sample(Duration::from_millis(40), Duration::ZERO);
        scene
    }

    /// A datagram leaves on a path at each of these milliseconds, the first with the number
    /// `first`. Its frame holds its number.
    fn send(&mut self, at: (EpochId, PathId), first: PacketNumber, times: &[u64], load: Load) {
        for (number, &time) in (first..).zip(times) {
            let mut frame = Vec::new();
            Framing::InOrder { bucket: 0, sequence: number as u32 }.emit(&mut frame);
            let sent = self.recovery.space(space(at.0, at.1), at.1);
            sent.sent(ms(time), &mut self.blocks, (number, LEN), load, [&frame, &[], &[]]);
        }
    }

    /// Feedback says at `now` that the datagrams from `first` to `largest` arrived.
    fn tell(
        &mut self,
        (epoch, path): (EpochId, PathId),
        now: u64,
        (first, largest): (u64, u64),
    ) -> Acknowledged {
        let count = largest - first + 1;
        let mut runs = [(0, 0); FEEDBACK_RUNS_MAX];
        runs[0] = (count as u32, 0);
        let feedback = Feedback {
            serial: space(epoch, path).serial,
            largest,
            delay_us: 0,
            arrived_us: now as u32 * 1_000,
            received: count,
            bytes: count * LEN as u64,
            runs,
        };
        let memory = (&mut self.blocks, &mut self.drops);
        let about = (epoch, &feedback);
        self.recovery.acknowledged(ms(now), memory, about, &mut self.rtt, true).unwrap()
    }

    fn lose_late(&mut self, now: Instant) -> bool {
        let memory = (&mut self.blocks, &mut self.drops);
        self.recovery.lose_late(now, memory, |_| Some(&self.rtt))
    }

    fn lose_dead(&mut self, now: u64, path: PathId) {
        let memory = (&mut self.blocks, &mut self.drops);
        self.recovery.lose_dead(ms(now), memory, |id| id == path);
    }

    /// Everything that is sent again now: where it was lost, its number and how often.
    fn sent_again(&mut self, now: Instant) -> Vec<(SpaceId, u64, u8)> {
        let next = || self.recovery.queue.next(now, &mut self.drops);
        std::iter::from_fn(next).map(|it| (it.space, it.number, it.attempts)).collect()
    }

    fn has_lost(&self) -> bool {
        !self.recovery.queue.is_empty()
    }

    fn dropped(&self) -> u64 {
        self.drops.iter().map(|(_, count)| count).sum()
    }

    fn numbers_sent_again(&mut self, now: u64) -> Vec<u64> {
        self.sent_again(ms(now)).into_iter().map(|(_, number, _)| number).collect()
    }
}

#[test]
fn a_packet_that_three_later_ones_overtook_is_lost() {
    let mut scene = Scene::new();
    scene.send((NEW, PATH), 0, &[0, 1, 2, 3], KEPT);
    let told = scene.tell((NEW, PATH), 41, (1, 2));
    assert_eq!((told.lost, scene.has_lost()), (0, false), "two are few");
    let told = scene.tell((NEW, PATH), 42, (1, 3));
    assert_eq!((told.lost, told.in_flight), (LEN as u64, 0));
    assert_eq!(scene.sent_again(ms(42)), [(space(NEW, PATH), 0, 1)]);
}

#[test]
fn an_overtaken_packet_is_lost_when_its_time_is_over() {
    let mut scene = Scene::new();
    scene.send((NEW, PATH), 0, &[0, 1], KEPT);
    assert_eq!(scene.recovery.late_due(|_| Some(&scene.rtt)), None, "nothing overtook it");
    scene.tell((NEW, PATH), 41, (1, 1));
    assert_eq!(scene.recovery.late_due(|_| None), None, "the path repairs nothing");
    let due = scene.recovery.late_due(|_| Some(&scene.rtt)).unwrap();
    assert!(!scene.lose_late(due - Duration::from_micros(1)));
    assert!(scene.lose_late(due));
    assert_eq!(scene.sent_again(due), [(space(NEW, PATH), 0, 1)]);
}

#[test]
fn packets_from_before_the_challenge_are_lost_when_a_silent_path_answers() {
    let mut scene = Scene::new();
    scene.send((OLD, PATH), 0, &[0], KEPT);
    scene.send((NEW, PATH), 0, &[10, 20, 30], KEPT);
    scene.send((NEW, OTHER), 0, &[10], KEPT);
    let memory = (&mut scene.blocks, &mut scene.drops);
    let (bytes, _) = scene.recovery.lose_unanswered(ms(500), memory, (PATH, ms(25)));
    assert_eq!(bytes, 3 * LEN as u64);
    assert_eq!(scene.recovery.in_flight(PATH), LEN as u64, "it left after the challenge");
    let lost = [(space(NEW, PATH), 0, 0), (space(NEW, PATH), 1, 0), (space(OLD, PATH), 0, 0)];
    assert_eq!(scene.sent_again(ms(500)), lost, "no attempt: the path did not carry");
}

#[test]
fn a_dead_paths_packets_are_sent_again_unless_a_copy_left_by_another() {
    let mut scene = Scene::new();
    scene.send((NEW, PATH), 0, &[0, 1], KEPT);
    scene.send((NEW, PATH), 2, &[2], DOUBLED);
    scene.send((NEW, PATH), 3, &[3], Load::Unkept(Strength::default()));
    scene.send((NEW, PATH), 4, &[4], KEPT);
    scene.send((NEW, OTHER), 0, &[0], KEPT);
    scene.tell((NEW, PATH), 40, (0, 0));
    scene.lose_dead(300, PATH);
    assert_eq!(scene.numbers_sent_again(300), [1, 4]);
    assert_eq!(scene.recovery.in_flight(OTHER), LEN as u64);
}

/// On a path that carries, the copy of a lost packet may be lost as well.
#[test]
fn a_packet_with_a_copy_is_repaired_on_a_path_that_carries() {
    let mut scene = Scene::new();
    scene.send((NEW, PATH), 0, &[0], DOUBLED);
    scene.send((NEW, PATH), 1, &[1, 2, 3], KEPT);
    scene.tell((NEW, PATH), 43, (1, 3));
    assert_eq!(scene.numbers_sent_again(43), [0]);
}

#[test]
fn packets_under_earlier_keys_are_overtaken_by_later_ones_under_new_keys() {
    let mut scene = Scene::new();
    scene.send((OLD, PATH), 0, &[0], KEPT);
    scene.send((NEW, PATH), 0, &[5], KEPT);
    assert_eq!(scene.recovery.in_flight(PATH), 2 * LEN as u64, "under whatever keys");
    assert_eq!(scene.recovery.late_due(|_| Some(&scene.rtt)), None);
    scene.recovery.overtake(NEW, PATH);
    let due = scene.recovery.late_due(|_| Some(&scene.rtt)).unwrap();
    assert!(scene.lose_late(due));
    let lost = scene.recovery.queue.next(due, &mut scene.drops).unwrap();
    assert_eq!(lost.space, space(OLD, PATH));
    // Perhaps the peer has lost those keys. It waits until they are heard.
    scene.recovery.queue.put_aside(lost);
    assert!(!scene.has_lost());
    assert_eq!(scene.recovery.due(|_| true), Some(ms(0) + KEPT_TIME));
    scene.recovery.queue.put_forward();
    assert_eq!(scene.sent_again(due), [(space(OLD, PATH), 0, 1)]);
    scene.recovery.forget_spaces(|space| space.epoch == OLD);
    assert_eq!(scene.recovery.path_of(space(OLD, PATH)), None);
}

#[test]
fn a_parked_space_owes_nothing_and_goes_on_with_another_path() {
    let mut scene = Scene::new();
    scene.send((NEW, PATH), 0, &[0, 1], KEPT);
    scene.recovery.park(&mut scene.blocks, NEW, PATH);
    assert_eq!(
        (scene.recovery.path_of(space(NEW, PATH)), scene.recovery.in_flight(PATH)),
        (None, 0)
    );
    scene.lose_dead(300, PATH);
    assert!(!scene.has_lost(), "it was told before if it was dead");
    let sent = scene.recovery.space(space(NEW, PATH), OTHER);
    assert_eq!(sent.unanswered_since(), None);
    sent.sent(ms(400), &mut scene.blocks, (2, LEN), KEPT, [&[0], &[], &[]]);
    assert!(scene.recovery.sent_on(NEW, OTHER).is_some());
}

#[test]
fn a_packet_is_sent_again_only_so_often_and_for_so_long() {
    let mut scene = Scene::new();
    for attempts in [ATTEMPTS_MAX, ATTEMPTS_MAX - 1] {
        let number = u64::from(ATTEMPTS_MAX - attempts);
        let strength = Strength::default();
        let load = Load::Repair { flow: None, first_at: ms(0), attempts, strength };
        scene.send((NEW, PATH), number, &[10], load);
    }
    scene.send((NEW, PATH), 2, &[10, 10, 10], KEPT);
    scene.tell((NEW, PATH), 50, (2, 4));
    assert_eq!(scene.numbers_sent_again(50), [1], "the other one was lost too often");
    assert_eq!(scene.dropped(), 1);
    let (epoch, abandoned) = scene.recovery.queue.take_abandoned(9).unwrap();
    assert_eq!((epoch, abandoned[0].from, abandoned.len()), (NEW, 0, 1), "the peer hears of it");

    scene.send((NEW, PATH), 5, &[100], KEPT);
    scene.lose_dead(100, PATH);
    let lost = scene.recovery.queue.next(ms(100), &mut scene.drops).unwrap();
    let due = ms(100) + KEPT_TIME;
    scene.recovery.queue.put_back(lost, due);
    assert_eq!(scene.recovery.due(|_| true), Some(due));
    assert_eq!(scene.recovery.queue.next(due, &mut scene.drops), None);
    assert_eq!((scene.dropped(), scene.recovery.due(|_| true)), (2, None));
}

#[test]
fn small_packets_are_sent_again_first_and_the_oldest_are_dropped_at_the_bound() {
    let mut scene = Scene::new();
    let mut first = 0;
    let frame = vec![0; 1 << 12];
    for _ in 0..=2 * KEPT_BYTES_MAX / frame.len() {
        let sent = scene.recovery.space(space(NEW, PATH), PATH);
        sent.sent(ms(1), &mut scene.blocks, (first, LEN), KEPT, [&frame, &[], &[]]);
        first += 1;
        scene.lose_dead(2, PATH);
    }
    scene.send((NEW, PATH), first, &[1], KEPT);
    scene.lose_dead(2, PATH);
    let sent_again = scene.numbers_sent_again(2);
    assert_eq!(sent_again[0], first, "small");
    let most = (KEPT_BYTES_MAX / frame.len()) as u64;
    assert!((most - 1..=most + 1).contains(&(sent_again.len() as u64)));
    assert_eq!(sent_again[1], first - sent_again.len() as u64 + 1, "the newest");
    assert_eq!(scene.dropped(), first + 1 - sent_again.len() as u64);
}
