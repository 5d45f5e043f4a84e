//! Many connections at once.

use std::collections::BTreeMap;

use super::*;

const CONNECTIONS: u16 = 100;
/// What each has said and nobody acknowledged, when the way is lost.
const SMALL: u32 = 100;
/// What each says as soon as there is a way again.
const SEGMENTS: u32 = 2;

/// What both ends of a connection have said and heard, by the local port.
type Ends = BTreeMap<u16, ((Seq, Seq), (Seq, Seq))>;

/// Each has little on its way when that is lost; there is a way again, and this is said.
fn resumed() -> (Scene, Ends, Vec<Said>) {
    let mut scene = Scene::new(Hold::Full);
    let mut ends = Ends::new();
    for port in LOCAL.1 + 1..=LOCAL.1 + CONNECTIONS {
        scene.port = port;
        scene.connect();
        let seq = scene.local.0;
        assert!(scene.out(Flags::ACK, seq, &bytes(seq, SMALL)));
        scene.local.0 = seq.plus(SMALL);
        ends.insert(port, (scene.local, scene.remote));
    }
    scene.suspend();
    scene.said();
    scene.wait(Duration::from_secs(10));
    scene.resume();
    let said = scene.said();
    (scene, ends, said)
}

/// They have much to say when there is a way: together that must not be more at once than a few
/// segments, as much again before anything can be answered, and twice as much with each round trip.
#[test]
fn those_that_go_on_at_once_share_what_the_way_takes() {
    let (mut scene, mut ends, told) = resumed();
    let of = |said: &Said| (said.port, said.seq, said.payload.len() as u32);
    let leave = |said: &&Said| said.output == Output::ToRemote;
    let mut left: Vec<_> = told.iter().filter(leave).map(of).collect();
    for (&port, end) in &mut ends {
        let room = told.iter().find(|said| said.port == port && said.output == Output::ToLocal);
        assert!(room.is_some_and(|said| said.window >= SEGMENTS * MSS), "{port}: {room:?}");
        (scene.port, (scene.local, scene.remote)) = (port, *end);
        for _ in 0..SEGMENTS {
            let seq = scene.local.0;
            if scene.send(1) {
                left.push((port, seq, MSS));
            }
        }
        end.0 = scene.local;
    }
    let all = u32::from(CONNECTIONS) * (SMALL + SEGMENTS * MSS);
    let (mut arrived, mut window, mut rounds) = (0, 14_600, 0);
    let at_once: u32 = left.iter().map(|(_, _, len)| len).sum();
    assert!(at_once <= window + MSS, "{at_once}");
    while arrived < all {
        let said = scene.said_within(TRIP);
        left.extend(said.iter().map(|(_, said)| said).filter(leave).map(of));
        let round: u32 = left.iter().map(|(_, _, len)| len).sum();
        let most = if rounds == 0 { window * 2 } else { window };
        assert!(round > 0 && round <= most + MSS, "{round} of {most}, {arrived}");
        for (port, seq, len) in left.drain(..) {
            let (local, remote) = ends[&port];
            assert_eq!(seq, remote.1, "{port}: in order, and each once");
            (scene.port, (scene.local, scene.remote)) = (port, (local, remote));
            scene.acknowledge(seq.plus(len));
            ends.insert(port, (local, scene.remote));
        }
        (arrived, window, rounds) = (arrived + round, window + round, rounds + 1);
    }
    assert!(rounds <= 6, "{rounds}");
    assert_eq!((scene.flows.due(), scene.memory.used()), (None, 0));
}

/// What went as it was, before the others came, is lost, and its sender says it again while no more
/// may leave: it is not taken for something that is on its way.
#[test]
fn what_is_said_again_in_a_crowd_has_its_turn() {
    let (mut scene, ends, _) = resumed();
    let enter = |scene: &mut Scene, port: u16| {
        (scene.port, (scene.local, scene.remote)) = (port, ends[&port]);
    };
    let first = LOCAL.1 + 1;
    enter(&mut scene, first);
    let seq = scene.local.0;
    assert!(scene.send(1), "there is room");
    for port in first + 1..=LOCAL.1 + CONNECTIONS {
        enter(&mut scene, port);
        scene.send(SEGMENTS);
    }
    enter(&mut scene, first);
    assert!(!scene.send(1), "there is none");
    for port in first..=LOCAL.1 + CONNECTIONS {
        enter(&mut scene, port);
        scene.acknowledge(scene.local.0);
    }
    let said = scene.said_within(TRIP);
    let again = said.iter().find(|(_, said)| (said.port, said.seq) == (first, seq));
    assert!(again.is_some_and(|(_, said)| said.payload == bytes(seq, MSS)));
}
