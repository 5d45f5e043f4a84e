//! Many connections at once.

use std::collections::BTreeMap;

use super::*;

const CONNECTIONS: u16 = 100;
/// What each has said and nobody acknowledged, when the way is lost.
const SMALL: u32 = 100;
/// What each says as soon as there is a way again.
const SEGMENTS: u32 = 2;

/// Each has little on its way when that is lost, and much to say when there is one: together that
/// must not be more at once than a few segments, and twice as much with each round trip.
#[test]
fn those_that_go_on_at_once_share_what_the_way_takes() {
    let mut scene = Scene::new(Hold::Full);
    let mut ends = BTreeMap::new();
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
    let told = scene.said();
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
    while arrived < all {
        let said = scene.said_within(TRIP);
        left.extend(said.iter().map(|(_, said)| said).filter(leave).map(of));
        let round: u32 = left.iter().map(|(_, _, len)| len).sum();
        assert!(round > 0 && round <= window + MSS, "{round} of {window}, {arrived}");
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
