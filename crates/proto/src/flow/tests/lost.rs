//! What is lost on its way when it is sent in the local side's place.

use super::*;

/// Twenty segments are owed, and at least ten of them have left since the way is back; the first.
fn sent_again(with_sack: bool) -> (Scene, Seq) {
    let mut scene = Scene::new(Hold::Full);
    for (_, flow) in scene.flows.table.iter_mut() {
        flow.terms.as_mut().unwrap().sack = with_sack;
    }
    scene.acknowledge(scene.local.0);
    scene.send(20);
    let first = scene.local.0.minus(20 * MSS);
    scene.suspend();
    scene.said();
    scene.resume();
    let sent = scene.said_within(TRIP * 2).len();
    assert!(sent >= 10, "{sent}");
    (scene, first)
}

#[test]
fn what_is_lost_is_found_and_sent_again() {
    let (mut scene, first) = sent_again(true);
    // All but the second arrived.
    scene.remote.1 = first.plus(MSS);
    assert_eq!(scene.sack(first.plus(2 * MSS), first.plus(10 * MSS)), Verdict::Keep);
    let again = scene.said_within(Duration::from_millis(100));
    assert_eq!(again[0].1.seq, first.plus(MSS), "{again:?}");
    assert!(again[1..].iter().all(|(_, said)| !said.seq.is_before(first.plus(10 * MSS))));
}

#[test]
fn all_of_a_gap_is_sent_again_while_more_and_more_behind_it_arrives() {
    let (mut scene, first) = sent_again(true);
    scene.remote.1 = first.plus(MSS);
    // What follows the gap comes a segment at a time.
    let mut again = Vec::new();
    for arrived in 5..10 {
        scene.sack(first.plus(4 * MSS), first.plus(arrived * MSS));
        again.extend(scene.said_within(Duration::from_millis(1)));
    }
    again.extend(scene.said_within(Duration::from_millis(100)));
    let seqs: Vec<_> = again.iter().map(|(_, said)| said.seq.beyond(first) / MSS).collect();
    assert_eq!(seqs[..3], [1, 2, 3], "not after a time-out: {seqs:?}");
}

/// Without selective acknowledgements its repetitions say that something is missing, and which that
/// is its next word (RFC 6582).
#[test]
fn a_receiver_that_cannot_say_what_it_has_gets_what_it_misses() {
    let (mut scene, first) = sent_again(false);
    // The second and the fourth are missing of ten.
    let mut heard = |ack: Seq, times: u32| -> Vec<u32> {
        (0..times).for_each(|_| drop(scene.acknowledge(ack)));
        let said = scene.said_within(Duration::from_millis(10));
        said.iter().map(|(_, said)| said.seq.beyond(first) / MSS).collect()
    };
    assert_eq!(heard(first.plus(MSS), 3), [], "others may have overtaken it");
    assert_eq!(heard(first.plus(MSS), 1)[..1], [1]);
    assert_eq!(heard(first.plus(MSS), 5), [], "it is on its way");
    assert_eq!(heard(first.plus(3 * MSS), 1)[..1], [3]);
}
