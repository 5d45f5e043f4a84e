//! What somebody says who guesses, and what looks as if somebody did.

use super::*;
use crate::flow::report::Stage;

impl Scene {
    /// The remote side seems to say something.
    fn forge_in(&mut self, flags: Flags, seq: Seq, ack: Seq, payload: &[u8]) -> Verdict {
        let before = std::mem::replace(&mut self.remote.1, ack);
        let packet = self.packet(Direction::In, flags, seq, payload);
        self.remote.1 = before;
        self.give_in(&packet).1
    }

    fn stage(&mut self) -> Stage {
        self.flows.table.iter_mut().next().unwrap().1.tracker().stage
    }
}

#[test]
fn an_acknowledgement_counts_only_with_a_number_that_its_receiver_would_take() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(5);
    let (end, expected) = (scene.local.0, scene.remote.0);
    // Its window is 64,000 bytes wide, and cannot become wider than 524,280.
    for far in [expected.plus(70_000), expected.plus(1 << 30), expected.minus(600_000)] {
        assert_eq!(scene.forge_in(Flags::ACK, far, end, &[]), Verdict::Pass, "its TCP sees to it");
        assert_eq!(scene.memory.used(), 5_000, "{far:?}");
    }
    // What was never sent is acknowledged by nobody, nor what was long ago.
    for ack in [end.plus(1), end.plus(1 << 30), end.minus(1 << 30)] {
        scene.forge_in(Flags::ACK, expected, ack, b"forged");
        assert_eq!(scene.memory.used(), 5_000, "{ack:?}");
    }
    scene.suspend();
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.seq, told.ack), (expected, end), "nothing of that was believed");
    scene.resume();
    let said = scene.said_within(TRIP * 2);
    assert_eq!(said.iter().filter(|(_, said)| said.output == Output::ToRemote).count(), 5);
}

#[test]
fn what_lies_beyond_the_window_is_neither_kept_nor_waited_for() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(3);
    let end = scene.local.0;
    for far in [end.plus(70_000), end.plus(1 << 30)] {
        assert!(scene.out(Flags::ACK, far, b"forged"), "whom it is for will not take it");
    }
    assert_eq!(scene.memory.used(), 3_000);
    scene.suspend();
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.ack, told.window), (end, 0), "all is there");
    assert!(!scene.out(Flags::ACK, end.plus(70_000), b"forged"));
    assert_eq!((scene.memory.used(), scene.said()), (3_000, vec![]));
}

#[test]
fn a_reset_counts_with_the_number_that_is_expected() {
    let reset = Flags::RST.and(Flags::ACK);
    for (beyond, ends) in [(5_000, false), (1, false), (0, true)] {
        let mut scene = Scene::new(Hold::Full);
        scene.send(1);
        let (seq, ack) = (scene.remote.0.plus(beyond), scene.local.0);
        assert_eq!(scene.forge_in(reset, seq, ack, &[]), Verdict::Pass);
        assert_eq!(scene.stage() == Stage::Closed, ends, "{beyond}");
    }
}

/// Both ends were switched off. They begin again, of all ports with the same.
#[test]
fn what_begins_between_the_same_ends_is_another_connection_if_both_say_so() {
    for [ahead, behind] in [[1 << 20, 1 << 20], [1 << 20, 0u32.wrapping_sub(1 << 20)]] {
        let mut scene = Scene::new(Hold::Full);
        scene.send(3);
        let (local, remote) = (scene.local.0.plus(ahead), scene.remote.0.plus(behind));
        let options = [2, 4, 4, 0, 3, 3, SCALE, 4, 2, 1, 1, 1];
        let syn = open(scene.packet(Direction::Out, Flags::SYN, local, &options));
        assert!(scene.give_out(&syn));
        assert_eq!(scene.memory.used(), 3_000, "so far it may be a question");
        scene.remote.1 = local.plus(1);
        let both = Flags::SYN.and(Flags::ACK);
        let syn = open(scene.packet(Direction::In, both, remote, &options));
        assert_eq!(scene.give_in(&syn).1, Verdict::Pass);
        assert_eq!((scene.memory.used(), scene.flows.len()), (0, 1));
        scene.local = (local.plus(1), remote.plus(1));
        scene.remote = (remote.plus(1), local.plus(1));
        assert!(scene.out(Flags::ACK, scene.local.0, &[]));
        scene.acknowledge(scene.local.0);
        scene.send(2);
        scene.suspend();
        let [told] = &scene.said()[..] else { panic!() };
        assert_eq!((told.seq, told.ack, told.window), (scene.remote.0, scene.local.0, 0));
    }
}

/// What is damaged on its way here while nobody can be reached may look like another connection.
#[test]
fn what_is_damaged_is_not_kept_in_any_form() {
    let mut scene = Scene::new(Hold::Full);
    scene.suspend();
    for at in [20, 21, 24, 40, 60] {
        let seq = scene.local.0;
        let mut packet = scene.packet(Direction::Out, Flags::ACK, seq, &bytes(seq, MSS));
        packet[at] ^= 0x10;
        assert!(!scene.give_out(&packet));
    }
    scene.resume();
    let said = scene.said_within(Duration::from_secs(1));
    assert!(said.iter().all(|(_, said)| said.payload.is_empty()), "{said:?}");
}

#[test]
fn urgent_bytes_leave_as_they_are() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(1);
    let seq = scene.local.0;
    assert!(scene.out(Flags::ACK.and(Flags::URG), seq, b"!"));
    assert_eq!(scene.memory.used(), 1_000);
    scene.suspend();
    assert_eq!(scene.said(), [], "not all is there that could be acknowledged");
}

#[test]
fn a_clock_that_was_damaged_on_its_way_is_not_passed_on() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(3);
    let clock = scene.clock();
    let mut damaged = scene.packet(Direction::Out, Flags::ACK, scene.local.0, &[]);
    damaged[44] ^= 0x40; // the clock's highest byte
    assert!(scene.give_out(&damaged), "whose it is will see that");
    let mut damaged = scene.packet(Direction::In, Flags::ACK, scene.remote.0, &[]);
    damaged[44] ^= 0x40;
    assert_eq!(scene.give_in(&damaged).1, Verdict::Pass);
    scene.suspend();
    let said = scene.said_within(TRIP * 4);
    let clocks = said.iter().map(|(_, said)| said.timestamps.unwrap());
    assert!(clocks.clone().count() > 0);
    assert!(clocks.clone().all(|clocks| clocks.value <= clock && clocks.echo <= clock));
}
