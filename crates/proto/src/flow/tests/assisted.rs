//! What is acknowledged at the tunnel's entry while there is a way.

use std::collections::VecDeque;

use super::*;
use crate::flow::Entrance;

/// Segments with which a sender is assisted.
const FIRST: u32 = 10;

/// One that is, with its first segments on their way, and what it heard.
fn assisted() -> (Scene, Vec<Said>) {
    let mut scene = Scene::new(Hold::Full);
    scene.flows.set_assist(Assists::All);
    assert!(scene.send(FIRST), "what is sent leaves as it is");
    let said = scene.said();
    (scene, said)
}

fn state(scene: &Scene) -> report::FlowState {
    let mut reports = Vec::new();
    scene.flows.report(scene.now, 0, 10, &mut reports);
    reports[0].state
}

/// Where the room ends that one of these gives.
fn edge(said: &Said) -> Seq {
    said.ack.plus(said.window)
}

#[test]
fn a_first_flight_is_acknowledged_as_soon_as_that_is_written_down() {
    let mut scene = Scene::new(Hold::Full);
    scene.flows.set_assist(Assists::All);
    scene.send(FIRST - 3);
    assert_eq!((scene.said(), state(&scene)), (vec![], report::FlowState::Normal));
    scene.send(3);
    let mut packet = Vec::new();
    assert_eq!(scene.flows.poll(scene.now, &mut scene.memory, &mut packet), None);
    let tuple = scene.flows.poll_record().unwrap();
    assert_eq!(scene.flows.poll(scene.now, &mut scene.memory, &mut packet), None);
    scene.flows.recorded(&tuple);
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.output, told.ack), (Output::ToLocal, scene.local.0));
    assert!(told.window >= 8 * MSS && !scene.local.0.plus(64_000).is_before(edge(told)));
    assert_eq!(state(&scene), report::FlowState::Assisted);
}

#[test]
fn who_sends_little_or_is_not_to_be_kept_is_left_alone() {
    for (rules, assists) in [
        (Rules::from(Hold::Reinject), Assists::All),
        (Rules::from(Hold::Off), Assists::All),
        (Rules::from(Hold::Full), Assists::None),
        (Rules::from(Hold::Full), Assists::Begun),
    ] {
        let mut scene = Scene::new(rules);
        scene.flows.set_assist(assists);
        assert!(scene.send(FIRST));
        assert_eq!((scene.said(), scene.flows.poll_record()), (vec![], None));
        assert!(scene.acknowledge(scene.local.0.minus(MSS)).is_some(), "the remote side is heard");
    }
}

/// A receiver on a fast link shows more room than there is memory for one connection, and its
/// sender fills no more of it than its own window, twice as much in a round trip at most.
#[test]
fn what_is_on_its_way_has_to_find_a_place_twice_and_not_all_that_there_is_room_for() {
    for (memory, state_then) in [
        (Memory::new(400_000), report::FlowState::Assisted),
        (Memory::new(100_000), report::FlowState::Normal),
    ] {
        let mut scene = Scene::new(Hold::Full);
        scene.flows.set_assist(Assists::All);
        scene.memory = memory;
        assert!(scene.memory.share() < ROOM.into());
        scene.send(FIRST);
        scene.said();
        assert_eq!(state(&scene), state_then, "{}", scene.memory.share());
    }
}

#[test]
fn every_second_segment_is_acknowledged_and_the_last_after_a_moment() {
    let (mut scene, _) = assisted();
    for _ in 0..3 {
        assert!(scene.send(1));
        assert!(scene.said().is_empty());
        assert!(scene.send(1));
        let [told] = &scene.said()[..] else { panic!() };
        assert_eq!((told.output, told.ack), (Output::ToLocal, scene.local.0));
        assert!(told.timestamps.is_some());
    }
    scene.send(1);
    let said = scene.said_within(Duration::from_millis(20));
    let [(after, told)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((*after, told.ack), (Duration::from_millis(5), scene.local.0));
}

#[test]
fn what_the_remote_side_has_is_no_news_and_what_is_kept_of_it_goes() {
    let (mut scene, _) = assisted();
    let held = scene.memory.used();
    scene.wait(TRIP);
    assert_eq!(scene.acknowledge(scene.local.0.minus(2 * MSS)), None);
    assert!(scene.memory.used() < held);
    let told = scene.acknowledge(scene.local.0).unwrap();
    assert_eq!(told.ack, scene.local.0, "nothing is owed: it hears the remote side");
    assert_eq!(scene.memory.used(), 0);
    assert_eq!(scene.flows.poll_settled(), None, "more will follow");
    scene.send(2);
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!(told.ack, scene.local.0, "it need not be written down again");
    assert_eq!(scene.flows.poll_record(), None);
}

#[test]
fn what_was_on_its_way_before_is_sent_again_if_nobody_answers() {
    let mut scene = Scene::new(Hold::Full);
    scene.flows.set_assist(Assists::None);
    scene.send(FIRST);
    scene.flows.set_assist(Assists::All);
    assert!(scene.out(Flags::ACK, scene.local.0, &[]), "its own acknowledgement begins it");
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.output, told.ack), (Output::ToLocal, scene.local.0));
    let said = scene.said_within(Duration::from_secs(2));
    let [(_, again), ..] = &said[..] else { panic!("promised, and nobody's") };
    let first = scene.local.0.minus(FIRST * MSS);
    assert_eq!((again.output, again.seq), (Output::ToRemote, first));
}

#[test]
fn what_the_remote_side_misses_is_sent_from_here_and_the_local_one_hears_nothing_of_it() {
    let (mut scene, _) = assisted();
    let first = scene.local.0.minus(FIRST * MSS);
    scene.wait(TRIP);
    scene.acknowledge(first);
    assert_eq!(scene.sack(first.plus(MSS), scene.local.0), Verdict::Keep);
    let [again] = &scene.said()[..] else { panic!() };
    assert_eq!((again.output, again.seq), (Output::ToRemote, first));
    assert_eq!(again.payload, bytes(first, MSS));
    // Who repeats it all the same took no notice, and is told again.
    assert!(!scene.out(Flags::ACK, first, &bytes(first, MSS)));
    let [told] = &scene.said()[..] else { panic!() };
    assert_eq!((told.output, told.ack), (Output::ToLocal, scene.local.0));
}

#[test]
fn what_nobody_answers_is_sent_again_by_time_and_what_follows_waits_behind_it() {
    let (mut scene, _) = assisted();
    let first = scene.local.0.minus(FIRST * MSS);
    let entrance = Entrance { carried: 100_000, longest: TRIP, target: 20_000 };
    scene.flows.heed_entry(scene.now, true, || entrance, |_| 0);
    scene.send(1); // timed with that in mind
    scene.wait(TRIP);
    scene.acknowledge(first.plus(MSS));
    let first = first.plus(MSS);
    let mut said = scene.said_within(Duration::from_secs(1));
    said.retain(|(_, said)| said.output == Output::ToRemote);
    let (after, again) = &said[0];
    assert!(*after >= Duration::from_millis(300), "a gap may be repaired meanwhile: {after:?}");
    assert_eq!((again.output, again.seq), (Output::ToRemote, first));
    let seqs: Vec<Seq> = said.iter().map(|(_, said)| said.seq).collect();
    assert!((0..FIRST).all(|at| seqs.contains(&first.plus(at * MSS))), "{seqs:?}");
    // What is said meanwhile is acknowledged, and leaves behind those that leave again.
    let (mut scene, _) = assisted();
    let first = scene.local.0.minus(FIRST * MSS);
    let due = scene.flows.due().unwrap();
    scene.now = due;
    let said = scene.said();
    let sent = said.iter().filter(|said| said.output == Output::ToRemote).count();
    assert!((1..FIRST as usize).contains(&sent), "it is paced: {sent}");
    assert!(!scene.send(2), "nothing overtakes");
    assert_eq!(scene.said().last().unwrap().ack, scene.local.0);
    scene.acknowledge(first.plus(4 * MSS));
    let said = scene.said_within(TRIP * 4);
    let last = scene.local.0.minus(MSS);
    assert!(said.iter().any(|(_, said)| (said.output, said.seq) == (Output::ToRemote, last)));
}

#[test]
fn the_room_shown_never_shrinks_and_never_exceeds_that_of_the_remote_side() {
    let (mut scene, said) = assisted();
    let mut shown = edge(&said[0]);
    for round in 0..200 {
        let room = shown.beyond(scene.local.0) / MSS;
        scene.send(room.min(7));
        for told in scene.said() {
            assert!(!edge(&told).is_before(shown), "round {round}: {told:?}");
            assert!(!scene.remote.1.plus(64_000).is_before(edge(&told)), "round {round}");
            shown = edge(&told);
        }
        scene.wait(TRIP / 4);
        let arrived = scene.local.0.minus(scene.local.0.beyond(scene.remote.1) / 2 / MSS * MSS);
        if let Some(told) = scene.acknowledge(arrived) {
            assert!(!edge(&told).is_before(shown), "round {round}: {told:?}");
            shown = edge(&told);
        }
        scene.flows.heed_entry(
            scene.now,
            false,
            || Entrance { carried: 20_000, longest: TRIP, target: 5_000 },
            |_| 4_000,
        );
    }
    assert!(shown.beyond(LOCAL_START) > 300_000);
}

#[test]
fn a_full_entry_gives_no_room_and_an_empty_one_does() {
    let (mut scene, said) = assisted();
    let heed = |scene: &mut Scene, queued: usize| {
        scene.wait(Duration::from_millis(2));
        scene.acknowledge(scene.remote.1.plus(MSS));
        let entrance = Entrance { carried: 100_000, longest: TRIP, target: 20_000 };
        scene.flows.heed_entry(scene.now, queued == 0, || entrance, |_| queued);
        scene.said()
    };
    let shown = edge(&said[0]);
    scene.send(shown.beyond(scene.local.0) / MSS);
    scene.said();
    scene.remote.1 = scene.local.0.minus(20 * MSS);
    assert_eq!(heed(&mut scene, 70_000), []);
    let told = heed(&mut scene, 0);
    let [told] = &told[..] else { panic!("{told:?}") };
    assert!(shown.plus(10 * MSS).is_before(edge(told)));
}

/// The bytes of a segment in the mean, of a sender that is held by its window alone and cuts a
/// segment at its end as kernels do. What it sends waits in a queue of which `rate` bytes leave in
/// a millisecond, segment by segment, and 12 ms of that are what should wait.
fn mean_of_held(scale: u8, mss: u32, rate: u32) -> u32 {
    const MILLISECONDS: u32 = 1_000;
    const HEADERS: u32 = 52;
    let mut scene = Scene::of(Hold::Full, scale, mss);
    scene.flows.set_assist(Assists::All);
    scene.send(FIRST);
    let (mut edge, mut segments, from) = (scene.local.0, 0, scene.local.0);
    let (mut waiting, mut leaving) = (VecDeque::new(), VecDeque::new());
    leaving.push_back((scene.now, from));
    let (mut credit, mut busy) = (0, 0);
    for _ in 0..MILLISECONDS {
        for told in scene.said() {
            edge = told.ack.plus(told.window >> SCALE << scale);
        }
        while scene.local.0.is_before(edge) {
            let (seq, len) = (scene.local.0, edge.beyond(scene.local.0).min(mss));
            scene.out(Flags::ACK, seq, &bytes(seq, len));
            (scene.local.0, segments) = (seq.plus(len), segments + 1);
            waiting.push_back((len + HEADERS, scene.local.0));
        }
        scene.wait(Duration::from_millis(1));
        credit += rate;
        while let Some(&(len, end)) = waiting.front().filter(|(len, _)| *len <= credit) {
            (credit, busy) = (credit - len, busy + len);
            waiting.pop_front();
            leaving.push_back((scene.now, end));
        }
        credit = if waiting.is_empty() { 0 } else { credit };
        while let Some(&(_, end)) = leaving.front().filter(|(at, _)| *at + TRIP <= scene.now) {
            leaving.pop_front();
            if let Some(told) = scene.acknowledge(end) {
                edge = told.ack.plus(told.window >> SCALE << scale);
            }
        }
        let queued = waiting.iter().map(|&(len, _)| len as usize).sum::<usize>();
        let entrance = Entrance { carried: 40 * rate, longest: TRIP, target: 12 * rate };
        scene.flows.heed_entry(scene.now, queued == 0, || entrance, |_| queued);
    }
    assert!(busy > (MILLISECONDS - 100) * rate, "it keeps the way busy: {busy}");
    scene.local.0.beyond(from) / segments
}

#[test]
fn a_sender_that_is_held_by_its_window_cuts_few_segments() {
    let usual = (0..=10).flat_map(|scale| [(scale, 1_340), (scale, 1_368)]);
    for (scale, mss) in usual.chain([(3, 1_000), (7, 1_000)]) {
        for rate in [100, 520, 1_000] {
            let mean = mean_of_held(scale, mss, rate);
            // A quarter of the queue is three segments once, of which 2^9 says two and a half.
            let is_unlucky = (scale, mss, rate) == (9, 1_340, 1_000);
            let cut = if is_unlucky { mss / 8 } else { mss / 20 };
            assert!(mean > mss - cut, "scale {scale}, rate {rate}: {mean} of {mss}");
        }
    }
}

#[test]
fn what_was_damaged_on_its_way_here_is_not_acknowledged() {
    let (mut scene, _) = assisted();
    let seq = scene.send_damaged();
    scene.send(1);
    assert!(scene.said().iter().all(|told| told.ack == seq));
    // Its sender repeats it, and all goes on.
    assert!(scene.out(Flags::ACK, seq, &bytes(seq, MSS)));
    scene.wait(TRIP);
    scene.acknowledge(scene.local.0);
    scene.send(2);
    assert_eq!(scene.said().last().unwrap().ack, scene.local.0);
}

#[test]
fn the_end_of_the_stream_is_only_acknowledged_by_the_remote_side() {
    let (mut scene, _) = assisted();
    let seq = scene.local.0;
    assert!(scene.out(Flags::ACK.and(Flags::FIN), seq, &bytes(seq, MSS)));
    let said = scene.said_within(Duration::from_millis(10));
    assert!(said.iter().all(|(_, told)| !seq.plus(MSS).is_before(told.ack)), "{said:?}");
    // The bytes that it came with are owed, whoever repeats the end.
    scene.wait(TRIP);
    scene.acknowledge(seq);
    assert!(scene.out(Flags::ACK.and(Flags::FIN), seq.plus(MSS), &[]));
    let said = scene.said_within(Duration::from_secs(1));
    let again = said.iter().find(|(_, said)| said.output == Output::ToRemote).unwrap();
    assert_eq!((again.1.seq, again.1.flags.has(Flags::FIN)), (seq, true));
    assert_eq!(again.1.payload, bytes(seq, MSS));
    let told = scene.acknowledge(seq.plus(MSS + 1)).unwrap();
    assert_eq!(told.ack, seq.plus(MSS + 1));
    assert_eq!(scene.memory.used(), 0);
}

#[test]
fn it_ends_when_it_is_not_wanted_and_what_is_owed_is_delivered() {
    let (mut scene, _) = assisted();
    scene.flows.set_assist(Assists::None);
    scene.send(4);
    assert!(scene.said().is_empty(), "nothing more is acknowledged ahead");
    assert_eq!(state(&scene), report::FlowState::Resuming);
    let owed = scene.local.0.minus(4 * MSS);
    scene.wait(TRIP);
    assert_eq!(scene.flows.poll_settled(), None);
    scene.acknowledge(owed);
    assert!(scene.flows.poll_settled().is_some());
    let told = scene.acknowledge(scene.local.0).unwrap();
    assert_eq!((told.ack, told.window), (scene.local.0, 64_000));
    assert_eq!(state(&scene), report::FlowState::Normal);
    assert_eq!(scene.memory.used(), 0);
}

#[test]
fn it_ends_when_nothing_is_said_for_a_while_and_begins_again() {
    let (mut scene, _) = assisted();
    scene.wait(TRIP);
    scene.acknowledge(scene.local.0);
    assert_eq!(scene.said_within(Duration::from_secs(2)), []);
    assert_eq!(scene.flows.poll_settled(), None);
    assert_eq!(scene.said_within(Duration::from_secs(3)), []);
    assert!(scene.flows.poll_settled().is_some());
    assert_eq!(state(&scene), report::FlowState::Normal);
    scene.send(FIRST);
    assert_eq!(scene.said().last().unwrap().ack, scene.local.0);
}

#[test]
fn the_way_may_be_lost_and_come_back() {
    let (mut scene, _) = assisted();
    let first = scene.local.0.minus(FIRST * MSS);
    scene.wait(TRIP);
    scene.acknowledge(first.plus(2 * MSS));
    scene.send(1);
    scene.suspend();
    let said = scene.said_within(Duration::from_secs(1));
    let (_, told) = said.last().unwrap();
    assert_eq!((told.output, told.ack), (Output::ToLocal, scene.local.0));
    assert_eq!(scene.flows.poll_settled(), None);
    scene.resume();
    let said = scene.said_within(TRIP);
    let again: Vec<Seq> = (2..=FIRST).map(|at| first.plus(at * MSS)).collect();
    let seqs = said.iter().filter(|(_, said)| said.output == Output::ToRemote);
    assert_eq!(seqs.map(|(_, said)| said.seq).collect::<Vec<_>>(), again);
    scene.acknowledge(scene.local.0);
    assert!(scene.flows.poll_settled().is_some());
    assert_eq!(scene.memory.used(), 0);
}

#[test]
fn a_line_that_is_written_too_late_is_struck_out() {
    let mut scene = Scene::new(Hold::Full);
    scene.flows.set_assist(Assists::All);
    scene.send(FIRST);
    let tuple = scene.flows.poll_record().unwrap();
    scene.flows.set_assist(Assists::None);
    scene.wait(TRIP);
    scene.acknowledge(scene.local.0);
    scene.flows.recorded(&tuple);
    assert_eq!(scene.flows.poll_settled(), Some(tuple));
    assert_eq!(scene.said(), []);
}

#[test]
fn what_was_marked_beyond_is_told_to_the_local_side_and_less_is_on_its_way() {
    let room_after = |flags: Flags| {
        let (mut scene, said) = assisted();
        scene.send(edge(&said[0]).beyond(scene.local.0) / MSS);
        scene.said();
        scene.wait(TRIP);
        let heard = |scene: &mut Scene, less: u32| {
            scene.remote.1 = scene.local.0.minus(less * MSS);
            let packet = scene.packet(Direction::In, Flags::ACK.and(flags), scene.remote.0, &[]);
            let (packet, verdict) = scene.give_in(&packet);
            (verdict != Verdict::Keep).then(|| read(Output::ToLocal, &packet))
        };
        let told = heard(&mut scene, 9);
        assert_eq!(told.is_some_and(|told| told.flags.has(Flags::ECE)), flags == Flags::ECE);
        assert_eq!(heard(&mut scene, 9), None, "that is no news");
        let entrance = Entrance { carried: 0, longest: TRIP, target: 60_000 };
        let mut told = heard(&mut scene, 0).unwrap();
        for _ in 0..6 {
            scene.send(10);
            scene.said();
            scene.wait(TRIP);
            scene.flows.heed_entry(scene.now, true, || entrance, |_| 0);
            told = heard(&mut scene, 0).unwrap();
        }
        // The remote side says so until it hears from the local one, and so does this node.
        scene.send(2);
        let [answer] = &scene.said()[..] else { panic!() };
        assert_eq!(
            (answer.flags.has(Flags::ECE), answer.ack),
            (flags == Flags::ECE, scene.local.0)
        );
        scene.acknowledge(scene.local.0);
        scene.send(2);
        assert!(!scene.said().last().unwrap().flags.has(Flags::ECE));
        edge(&told).beyond(told.ack)
    };
    let (usual, marked) = (room_after(Flags::default()), room_after(Flags::ECE));
    assert!(marked * 3 < usual * 2, "{marked} of {usual} bytes");
}
