//! What the local side is told while nobody else hears it, and when.

use super::*;

#[test]
fn what_is_outstanding_is_acknowledged_and_the_window_closed() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(10);
    scene.suspend();
    let mut packet = Vec::new();
    assert_eq!(
        scene.flows.poll(scene.now, &mut scene.memory, &mut packet),
        None,
        "not before it is written down"
    );
    let tuple = scene.flows.poll_record().unwrap();
    assert_eq!(scene.flows.poll(scene.now, &mut scene.memory, &mut packet), None);
    scene.flows.recorded(&tuple);
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.output, told.ack, told.window), (Output::ToLocal, scene.local.0, 0));
    assert_eq!(told.seq, scene.remote.0);
    let clock = scene.clock() - 40;
    assert_eq!(told.timestamps.unwrap().echo, clock, "the newest that the local side said");
    // What was on its way already is acknowledged too, a round trip later.
    assert!(!scene.send(2));
    assert!(scene.said().is_empty());
    let [(at, told)] = &scene.said_within(TRIP * 2)[..] else { panic!() };
    assert_eq!((*at, told.ack, told.window), (TRIP, scene.local.0, 0));
}

/// Else the round trip looks short, to a BBR for ten seconds.
#[test]
fn what_left_just_now_is_answered_a_round_trip_later() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(10);
    scene.flows.suspend(scene.now, &mut scene.memory);
    assert!(scene.said().is_empty(), "a link says at once that it is gone");
    scene.wait(TRIP / 2);
    assert!(!scene.send(2));
    let said = scene.said_within(TRIP * 2);
    let [(at, told)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((*at, told.ack, told.window), (TRIP, scene.local.0, 0));
    // Who never stops is answered all the same.
    let mut told = Vec::new();
    for _ in 0..40 {
        scene.send(1);
        told.extend(scene.said_within(TRIP / 2));
    }
    assert!((3..=10).contains(&told.len()), "{told:?}");
}

/// So much a BBR has to say that heard acknowledgements in bunches.
#[test]
fn who_goes_on_for_four_round_trips_is_answered_a_round_trip_after_the_last() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(10);
    scene.flows.suspend(scene.now, &mut scene.memory);
    assert!(scene.said().is_empty());
    for half in 0..8 {
        scene.send(1);
        let said = scene.said_within(TRIP / 2);
        assert!(said.is_empty(), "after {half} half round trips: {said:?}");
    }
    let said = scene.said_within(TRIP);
    let [(at, told)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((*at, told.ack), (TRIP / 2, scene.local.0));
}
