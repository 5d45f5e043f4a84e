//! Connections for which rules say what is done.

use super::*;
use crate::flow::report::Why;
use crate::flow::rules::{By, Matches, Rule};
use crate::wire::control::Prefix;

fn to_the_other_end(hold: Hold) -> [Rule; 1] {
    let network = Prefix::host(REMOTE.0.into());
    [Rule { of: Matches::End { network, port: Some(REMOTE.1) }, hold }]
}

fn why(scene: &Scene) -> Option<Why> {
    let mut reports = Vec::new();
    scene.flows.report(scene.now, 0, 10, &mut reports);
    reports.first().map(|report| report.why)
}

#[test]
fn one_that_is_to_be_left_alone_is_while_others_are_held() {
    let mut scene = Scene::new(Rules::new(Hold::Full, &to_the_other_end(Hold::Off)));
    scene.send(3);
    assert_eq!(scene.memory.used(), 0);
    scene.suspend();
    assert!(!scene.flows.is_waiting());
    assert!(scene.send(1), "what becomes of it is not decided here");
    assert_eq!((scene.said(), scene.memory.used()), (vec![], 0));
    assert_eq!(why(&scene), Some(Why::LeftAlone(By::Rule(1))));
    scene.resume();
    assert_eq!(scene.said(), []);
    assert!(scene.send(1));
}

#[test]
fn one_that_is_to_be_held_is_while_others_are_left_alone() {
    let mut scene = Scene::new(Rules::new(Hold::Off, &to_the_other_end(Hold::Full)));
    scene.send(3);
    scene.suspend();
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.ack, told.window), (scene.local.0, 0));
    assert_eq!(why(&scene), Some(Why::Acknowledged));
}

#[test]
fn where_nothing_is_done_nothing_is_remembered() {
    let scene = Scene::new(Rules::new(Hold::Off, &to_the_other_end(Hold::Off)));
    assert_eq!((scene.flows.len(), why(&scene)), (0, None));
}

#[test]
fn what_was_promised_before_other_rules_came_is_kept_by() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(3);
    scene.suspend();
    scene.said();
    scene.flows.set_rules(Hold::Off.into());
    assert!(!scene.out(Flags::ACK, scene.local.0.minus(1), &[]), "it is answered for");
    assert_eq!(scene.said().len(), 1);
    scene.resume();
    let said = scene.said_within(TRIP);
    let sent = said.iter().filter(|(_, said)| said.output == Output::ToRemote);
    assert_eq!(sent.count(), 3);
    scene.acknowledge(scene.local.0);
    assert_eq!((why(&scene), scene.memory.used()), (Some(Why::Carried), 0));
}
