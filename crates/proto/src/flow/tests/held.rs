//! What the local side hears while there is no way.

use super::*;

#[test]
fn probes_and_keepalives_are_answered_however_long_it_takes() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(3);
    scene.suspend();
    scene.said();
    for _ in 0..100 {
        scene.wait(Duration::from_secs(100));
        assert!(!scene.out(Flags::ACK, scene.local.0.minus(1), &[]));
        let [told] = &scene.said()[..] else { panic!() };
        assert_eq!((told.ack, told.window), (scene.local.0, 0));
    }
}

#[test]
fn an_idle_connection_is_kept_alive_and_its_window_stays_open() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(1);
    scene.wait(TRIP);
    scene.acknowledge(scene.local.0);
    scene.suspend();
    assert!(scene.said().is_empty());
    scene.wait(Duration::from_secs(10));
    assert!(!scene.out(Flags::ACK, scene.local.0.minus(1), &[]));
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.ack, told.window), (scene.local.0, 64_000));
    assert_eq!(scene.flows.poll_record(), None, "nothing is owed");
}

#[test]
fn a_sender_that_is_about_to_give_up_is_shown_a_closed_window() {
    let mut scene = Scene::new(Hold::Reinject);
    scene.send(4);
    scene.suspend();
    let first = scene.local.0.minus(4 * MSS);
    let mut told = Vec::new();
    for _ in 0..8 {
        scene.wait(Duration::from_secs(2));
        scene.out(Flags::ACK, first, &bytes(first, MSS));
        told.extend(scene.said());
    }
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|told| (told.ack, told.window) == (first, 0)));
    // Its question may be lost, or the answer: it hears of it without asking, as long as it takes.
    let reminded = scene.said_within(Duration::from_secs(600));
    assert!((20..31).contains(&reminded.len()), "{reminded:?}");
    assert!(reminded.iter().all(|(_, told)| (told.ack, told.window) == (first, 0)));
}

#[test]
fn a_sender_that_has_waited_before_is_shown_it_at_once() {
    let mut scene = Scene::new(Hold::Reinject);
    scene.send(4);
    let first = scene.local.0.minus(4 * MSS);
    // It repeats, slower and slower, until the way is lost: when its timer fires next it gives up.
    for seconds in [1, 2, 4, 8, 16] {
        scene.wait(Duration::from_secs(seconds));
        assert!(scene.out(Flags::ACK, first, &bytes(first, MSS)));
    }
    scene.suspend();
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.output, told.ack, told.window), (Output::ToLocal, first, 0));
}

#[test]
fn a_sender_that_took_no_notice_of_an_acknowledgement_is_told_again() {
    let mut scene = Scene::new(Hold::Reinject);
    scene.send(4);
    scene.wait(TRIP);
    // The segment that says so is one that was overtaken, which no TCP looks at.
    let arrived = scene.local.0.minus(2 * MSS);
    scene.acknowledge(arrived);
    scene.suspend();
    assert!(scene.said().is_empty(), "not all that is outstanding is kept");
    let first = scene.local.0.minus(4 * MSS);
    scene.wait(Duration::from_secs(1));
    assert!(!scene.out(Flags::ACK, first, &bytes(first, MSS)));
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.output, told.ack, told.window), (Output::ToLocal, arrived, 64_000));
    // Nor does it matter whether it says that while it is heard on the other side for all it knows.
    scene.resume();
    scene.said();
    scene.out(Flags::ACK, first, &bytes(first, MSS));
    scene.suspend();
    let said = scene.said();
    assert!(said.iter().any(|told| (told.output, told.ack) == (Output::ToLocal, arrived)));
    // What it repeats after that is not answered before it is about to give up.
    scene.wait(Duration::from_secs(1));
    assert!(!scene.out(Flags::ACK, arrived, &bytes(arrived, MSS)));
    assert!(scene.said().is_empty());
}
