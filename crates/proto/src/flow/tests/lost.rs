//! What is lost on its way when it is sent in the local side's place.

use super::*;

/// After so long without an answer everything leaves again, and after twice as long once more.
const SILENCE: Duration = Duration::from_millis(200);

/// Twenty segments are owed, and none of them has left since the way is back; the first.
fn owed(with_sack: bool) -> (Scene, Seq) {
    let mut scene = Scene::new(Hold::Full);
    for (_, flow) in scene.flows.table.iter_mut() {
        flow.agree_on_sack(with_sack);
    }
    scene.send(20);
    let first = scene.local.0.minus(20 * MSS);
    scene.suspend();
    scene.said();
    scene.resume();
    scene.remote.1 = first;
    (scene, first)
}

/// The same, and at least ten have left.
fn sent_again(with_sack: bool) -> (Scene, Seq) {
    let (mut scene, first) = owed(with_sack);
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

#[test]
fn what_is_known_to_have_arrived_is_not_sent_again() {
    let (mut scene, first) = owed(true);
    // The first two were lost with the way, and the last two.
    assert_eq!(scene.sack(first.plus(2 * MSS), first.plus(18 * MSS)), Verdict::Keep);
    let said = scene.said_within(TRIP * 2);
    let seqs: Vec<_> = said.iter().map(|(_, said)| said.seq.beyond(first) / MSS).collect();
    assert_eq!(seqs, [0, 1, 18, 19]);
    scene.acknowledge(scene.local.0);
    assert_eq!((scene.flows.due(), scene.memory.used()), (None, 0));
}

/// What it had before the way was lost says nothing about what has left since.
#[test]
fn what_arrived_long_ago_is_no_sign_of_loss() {
    let (mut scene, first) = owed(true);
    scene.sack(first.plus(5 * MSS), first.plus(12 * MSS));
    let mut said = scene.said_within(TRIP * 2);
    for arrived in 1..5 {
        scene.remote.1 = first.plus(arrived * MSS);
        scene.sack(first.plus(5 * MSS), first.plus(12 * MSS));
        said.extend(scene.said_within(Duration::from_millis(1)));
    }
    let seqs: Vec<_> = said.iter().map(|(_, said)| said.seq.beyond(first) / MSS).collect();
    assert_eq!(seqs, [0, 1, 2, 3, 4, 12, 13, 14, 15, 16, 17, 18, 19]);
}

/// The way was lost once more, and nobody noticed: what left again is lost until one arrives.
#[test]
fn what_is_lost_again_is_missed_as_soon_as_something_behind_it_arrives() {
    for silences in 1..4 {
        let (mut scene, first) = sent_again(true);
        let silence = SILENCE * ((1 << silences) - 1) + TRIP;
        let again = scene.said_within(silence);
        assert!(again.iter().filter(|(_, said)| said.seq == first).count() >= silences);
        scene.remote.1 = first;
        let (_, last) = again.last().unwrap();
        scene.sack(last.seq, last.seq.plus(MSS));
        let again = scene.said_within(TRIP);
        let seqs: Vec<_> = again.iter().map(|(_, said)| said.seq.beyond(first) / MSS).collect();
        let last = last.seq.beyond(first) / MSS;
        assert!(last > 0 && seqs.starts_with(&[0]), "{silences} silences, {last}: {seqs:?}");
    }
    // One that can only repeat itself does so for each.
    let (mut scene, first) = sent_again(false);
    scene.said_within(SILENCE + TRIP);
    (0..4).for_each(|_| drop(scene.acknowledge(first)));
    assert_eq!(scene.said_within(TRIP)[0].1.seq, first);
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

/// The end waits behind what is owed. If that turns out to have arrived, nothing is left that it
/// could go with.
#[test]
fn an_end_leaves_although_what_goes_before_has_arrived() {
    for arrives_late in [false, true] {
        let mut scene = Scene::new(Hold::Full);
        scene.send(3);
        let end = scene.local.0;
        scene.suspend();
        scene.said();
        let fin = Flags::ACK.and(Flags::FIN);
        if !arrives_late {
            assert!(!scene.out(fin, end, &[]));
        }
        scene.resume();
        if arrives_late {
            assert!(!scene.out(fin, end, &[]), "it waits for what goes before");
        }
        let told = scene.acknowledge(end).unwrap();
        assert_eq!((told.ack, told.window), (end, 64_000));
        let sent = scene.said_within(TRIP);
        let [(_, said)] = &sent[..] else { panic!("{arrives_late}: {sent:?}") };
        assert_eq!((said.seq, &said.payload[..]), (end, &[][..]));
        assert!(said.flags.has(Flags::FIN));
        // It is lost, and sent again; then it arrives.
        let again = scene.said_within(Duration::from_secs(1));
        assert!(again.iter().all(|(_, said)| said.flags.has(Flags::FIN) && said.seq == end));
        scene.acknowledge(end.plus(1));
        assert_eq!((scene.flows.due(), scene.memory.used()), (None, 0));
    }
}

#[test]
fn who_has_no_room_is_asked_for_as_long_as_it_answers() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(1);
    let end = scene.local.0;
    scene.suspend();
    scene.said();
    scene.resume();
    // It has no room for that byte, and says so each time.
    let shut = |scene: &Scene| {
        let mut packet = scene.packet(Direction::In, Flags::ACK, scene.remote.0, &[]);
        put(&mut packet, 34, 0);
        put(&mut packet, 35, 0);
        packet
    };
    scene.remote.1 = end.minus(MSS);
    for (_, flow) in scene.flows.table.iter_mut() {
        flow.shut_at(end.minus(MSS));
    }
    let mut asked = 0;
    for _ in 0..40 {
        for (_, said) in scene.said_within(Duration::from_secs(30)) {
            assert!(!said.flags.has(Flags::RST), "{said:?}");
            asked += 1;
            scene.give_in(&shut(&scene));
        }
    }
    assert!((20..400).contains(&asked), "{asked}");
    scene.acknowledge(end);
    assert_eq!((scene.flows.due(), scene.memory.used()), (None, 0));
}

#[test]
fn what_follows_the_kept_goes_although_that_has_arrived() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(3);
    let end = scene.local.0;
    scene.suspend();
    scene.said();
    // No room for what comes next: its first segment alone is kept, and its clock grows old.
    while scene.memory.take(0, 1_000).is_ok() {}
    assert!(!scene.out(Flags::ACK, end, &bytes(end, MSS)));
    scene.local.0 = end.plus(MSS);
    scene.wait(Duration::from_secs(1));
    let clock = scene.clock();
    assert!(!scene.out(Flags::ACK, scene.local.0, &[]));
    scene.resume();
    scene.acknowledge(end);
    let sent = scene.said_within(TRIP * 2);
    let of_head = sent.iter().find(|(_, said)| said.seq == end && !said.payload.is_empty());
    let (_, head) = of_head.unwrap_or_else(|| panic!("it has not left: {sent:?}"));
    assert_eq!(head.timestamps.unwrap().value, clock, "else it is taken for old");
}

#[test]
fn who_waits_longer_with_each_try_begins_again_when_the_remote_side_is_heard() {
    let (mut scene, first) = sent_again(true);
    // Nothing arrives; the next try would be made 3 s after it left.
    let tried = scene.said_within(Duration::from_millis(1_600));
    let tries = tried.iter().filter(|(_, said)| said.seq == first).count();
    assert_eq!(tries, 3, "0.2, 0.6 and 1.4 s after it left");
    scene.acknowledge(first);
    let again = scene.said_within(Duration::from_millis(20));
    assert_eq!(again.first().map(|(at, said)| (*at, said.seq)), Some((Duration::ZERO, first)));
    // It says so again and again: one beginning is enough, and the next try is made in its time.
    for _ in 0..5 {
        scene.wait(SILENCE);
        scene.acknowledge(first);
        assert!(scene.said().iter().all(|said| said.seq != first));
    }
}

/// What left last may still be answered: it begins again when that should have been, and no later.
#[test]
fn who_has_just_tried_begins_again_as_soon_as_that_try_is_seen_to_be_in_vain() {
    let (mut scene, first) = sent_again(true);
    scene.said_within(Duration::from_millis(1_260));
    assert!(scene.said_within(Duration::from_millis(80)).iter().any(|(_, it)| it.seq == first));
    // The next try by itself would be made 1.6 s after the last.
    scene.acknowledge(first);
    let again = scene.said_within(Duration::from_millis(300));
    let (at, _) = again.iter().find(|(_, said)| said.seq == first).expect("it begins again");
    assert!((100..=SILENCE.as_millis()).contains(&at.as_millis()), "{at:?}");
    // Had it been answered, it would not have.
    let (mut scene, first) = sent_again(true);
    scene.said_within(Duration::from_millis(1_340));
    scene.acknowledge(first);
    scene.acknowledge(first.plus(MSS));
    let again = scene.said_within(Duration::from_millis(190));
    let seqs: Vec<_> = again.iter().map(|(_, said)| said.seq.beyond(first) / MSS).collect();
    assert!(seqs.is_sorted_by(|one, next| one < next), "nothing leaves twice: {seqs:?}");
}

/// The way before took a second, and so would a time-out by Equation 4.10. An answer is measured.
#[test]
fn once_an_answer_was_timed_no_more_is_waited_than_twice_as_long() {
    let mut scene = Scene::new(Hold::Full);
    for _ in 0..20 {
        scene.send(1);
        scene.wait(Duration::from_secs(1));
        scene.acknowledge(scene.local.0);
    }
    scene.send(20);
    let first = scene.local.0.minus(20 * MSS);
    scene.suspend();
    scene.said_within(Duration::from_secs(1));
    scene.resume();
    // Each is answered a round trip after it left, but for the last three.
    let (missed, mut sent) = (first.plus(17 * MSS), std::collections::VecDeque::new());
    let mut answered_at = scene.now;
    while sent.back().is_none_or(|&(_, end)| end != first.plus(20 * MSS)) {
        let begin = scene.now;
        let said = scene.said_within(Duration::from_millis(10));
        sent.extend(said.iter().map(|(at, said)| (begin + *at, said.seq.plus(MSS))));
        while let Some(&(_, end)) = sent.front().filter(|&&(at, _)| at + TRIP <= scene.now)
            && !missed.is_before(end)
        {
            scene.acknowledge(end);
            (_, answered_at) = (sent.pop_front(), scene.now);
        }
        assert!(scene.now.saturating_since(answered_at) < Duration::from_secs(1));
    }
    let begin = scene.now;
    let again = scene.said_within(Duration::from_millis(500));
    let (at, _) = again.iter().find(|(_, said)| said.seq == missed).expect("it is missed");
    assert!((begin + *at).saturating_since(answered_at) <= SILENCE + TRIP);
}

#[test]
fn what_followed_and_arrived_shows_what_was_lost_before() {
    let (mut scene, first) = owed(true);
    let (_, last) = scene.said_within(TRIP * 4).pop().unwrap();
    assert_eq!(last.seq, first.plus(19 * MSS), "all have left");
    scene.acknowledge(first.plus(10 * MSS));
    assert!(scene.send(4), "what is new follows");
    // All that was owed has arrived but for the last two, and of what the local side said since
    // then enough that it cannot be out of order.
    scene.remote.1 = first.plus(18 * MSS);
    let end = first.plus(20 * MSS);
    for arrived in 1..=4 {
        scene.sack(end, end.plus(arrived * MSS));
    }
    let again = scene.said_within(Duration::from_millis(20));
    let seqs: Vec<_> = again.iter().map(|(_, said)| said.seq.beyond(first) / MSS).collect();
    assert_eq!(seqs.first(), Some(&18), "not after a time-out: {seqs:?}");
}
