//! What is told of connections.

use super::*;
use crate::flow::pep::cache::{Cache, Payload};
use crate::flow::report::{Because, FlowReport, FlowState, Stage, Why};
use crate::flow::rules::By;

impl Scene {
    /// What is told of the only connection.
    fn told(&self) -> FlowReport {
        let mut reports = Vec::new();
        assert_eq!(self.flows.report(self.now, 0, 10, &mut reports), 1);
        let [report] = reports[..] else { panic!("{reports:?}") };
        report
    }

    fn told_why(&self) -> (FlowState, usize, u32, Why) {
        let told = self.told();
        (told.state, told.held_bytes, told.owed_bytes, told.why)
    }
}

#[test]
fn a_held_connection_from_its_loss_to_its_return() {
    let mut scene = Scene::new(Hold::Full);
    assert_eq!(scene.told_why(), (FlowState::Normal, 0, 0, Why::Carried));
    scene.send(10);
    scene.wait(TRIP);
    let told = scene.told();
    assert_eq!((told.idle, told.stage, told.held_bytes), (TRIP, Stage::Established, 10_000));
    scene.suspend();
    assert_eq!(scene.told_why(), (FlowState::Suspended, 10_000, 0, Why::Kept));
    let mut packet = Vec::new();
    scene.flows.poll(scene.now, &mut scene.memory, &mut packet);
    assert_eq!(scene.told().why, Why::Recording);
    scene.said();
    assert_eq!(scene.told_why(), (FlowState::Suspended, 10_000, 10_000, Why::Acknowledged));
    scene.resume();
    assert_eq!(scene.told_why(), (FlowState::Resuming, 10_000, 10_000, Why::Delivering));
    scene.said();
    scene.acknowledge(scene.local.0.minus(3_000));
    assert_eq!(scene.told_why(), (FlowState::Resuming, 3_000, 3_000, Why::Delivering));
    scene.acknowledge(scene.local.0);
    assert_eq!(scene.told_why(), (FlowState::Normal, 0, 0, Why::Carried));
}

#[test]
fn one_that_is_only_sent_again_says_by_whose_word() {
    let mut scene = Scene::new(Hold::Reinject);
    let by = Because::Chosen(By::Setting);
    assert_eq!(scene.told_why(), (FlowState::Normal, 0, 0, Why::CarriedInPart(by)));
    scene.suspend();
    assert!(!scene.send(1));
    let (state, held, owed, why) = scene.told_why();
    assert_eq!((state, owed, why), (FlowState::Suspended, 0, Why::KeptInPart(by)));
    assert!(held > MSS as usize, "the segment as it came: {held}");
    scene.resume();
    assert_eq!(scene.told_why(), (FlowState::Resuming, held, 0, Why::SentAgain));
}

#[test]
fn what_was_not_on_its_way_waits_for_nothing() {
    let mut scene = Scene::new(Hold::Full);
    scene.suspend();
    let recent = FlowState::Suspended; // the other end's last word may be lost
    assert_eq!(scene.told_why(), (recent, 0, 0, Why::Quiet));
    scene.resume();
    scene.said();
    scene.wait(Duration::from_secs(60));
    scene.suspend();
    assert_eq!(scene.told_why(), (FlowState::Normal, 0, 0, Why::Quiet));
}

#[test]
fn want_of_room_is_told_apart() {
    let because = |memory| {
        let mut scene = Scene::new(Hold::Full);
        scene.memory = memory;
        scene.send(5);
        scene.suspend();
        scene.told().why
    };
    assert_eq!(because(Memory::new(8 * 5_000)), Why::Kept);
    assert_eq!(because(Memory::new(8 * 4_999)), Why::KeptInPart(Because::Share));
    let mut nearly_full = Memory::new(8 * 5_000);
    for _ in 0..36 {
        let mut other = Cache::default();
        let bytes = (&[0; 1_000][..], &[][..]);
        other.push(
            &mut nearly_full,
            Payload { seq: Seq(1), bytes, home: None, sum: 0, push: false },
        );
    }
    assert_eq!(because(nearly_full), Why::KeptInPart(Because::Memory));
}

#[test]
fn room_that_is_there_again_is_used_and_no_want_of_it_is_told() {
    let mut scene = Scene::new(Hold::Full);
    scene.memory = Memory::new(8 * 2_000);
    scene.send(3);
    scene.acknowledge(scene.local.0);
    scene.send(2);
    scene.suspend();
    assert_eq!(scene.told().why, Why::Kept);
}

#[test]
fn whose_beginning_was_not_seen_is_told_apart() {
    let mut scene = Scene::new(Hold::Full);
    scene.flows = Flows::new(Hold::Full, 3);
    scene.resume();
    scene.send(2);
    assert_eq!(scene.told().why, Why::CarriedInPart(Because::Midst));
    scene.send(1);
    scene.suspend();
    assert_eq!(scene.told().why, Why::KeptInPart(Because::Midst));
}

#[test]
fn what_has_ended_is_not_told_of() {
    let mut scene = Scene::new(Hold::Full);
    scene.out(Flags::RST, scene.local.0, &[]);
    let mut reports = Vec::new();
    assert_eq!(scene.flows.report(scene.now, 0, 10, &mut reports), 1);
    assert_eq!(reports, []);
}

#[test]
fn no_sentence_is_longer_than_a_line() {
    let chosen = [By::Setting, By::Rule(64), By::Names].map(Because::Chosen);
    let because = [
        Because::Opening,
        Because::Midst,
        Because::ClosedToOthers,
        Because::Share,
        Because::PeerShare,
        Because::Memory,
        Because::Missing,
    ];
    for because in because.into_iter().chain(chosen) {
        for why in [Why::CarriedInPart(because), Why::KeptInPart(because)] {
            assert!(why.to_string().len() <= 98, "{why}");
        }
    }
}
