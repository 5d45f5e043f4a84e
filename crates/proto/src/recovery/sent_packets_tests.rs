use super::*;
use crate::id::PathSerial;
use crate::packet::Strength;
use crate::wire::frame::FEEDBACK_RUNS_MAX;

fn ms(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A packet of which the last `kept` bytes are kept by its flow.
fn kept(kept: u16) -> Load {
    Load::Packet(PacketRecord { kept, ..PacketRecord::of_bucket(0) })
}

/// A lane and what the peer knows of it.
#[derive(Default)]
struct Scene {
    sent: SentPackets,
    blocks: Blocks,
    rtt: Rtt,
    lost: Vec<LostPacket>,
}

impl Scene {
    /// Datagrams of 1,000 bytes leave, one a millisecond.
    fn leave(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let load = kept(2);
            self.leave_one(ms(number), (number, 1_000), load, &number.to_be_bytes());
        }
    }

    /// One datagram leaves that is not kept, or as much of `frames` as `load` says.
    fn leave_one(&mut self, at: Instant, datagram: (u64, usize), load: Load, frames: &[u8]) {
        self.sent.sent(at, &mut self.blocks, datagram, load, [frames, &[], &[]]);
    }

    /// The peer says at `now` that these ranges have arrived, the highest first, the newest 20 ms
    /// ago by a clock of its own.
    fn tell(&mut self, now: u64, ranges: &[std::ops::RangeInclusive<u64>]) -> Option<Acknowledged> {
        let largest = *ranges[0].end();
        let mut runs = [(0, 0); FEEDBACK_RUNS_MAX];
        for (place, range) in ranges.iter().enumerate() {
            let below = ranges.get(place + 1).map_or(0, |below| below.end() + 1);
            let missing = if place + 1 < ranges.len() { range.start() - below } else { 0 };
            runs[place] = ((range.end() - range.start() + 1) as u32, missing as u32);
        }
        let received = runs.iter().map(|run| u64::from(run.0)).sum::<u64>();
        let arrived_us = u32::try_from((now - 20) * 1_000).unwrap().wrapping_add(u32::MAX - 9_000);
        let feedback = Feedback {
            serial: PathSerial(0),
            largest,
            delay_us: 0,
            arrived_us,
            received,
            bytes: received * 1_000,
            runs,
        };
        let (now, lost) = (ms(now), Some(&mut self.lost));
        self.sent.acknowledged(now, &mut self.blocks, &feedback, &mut self.rtt, lost)
    }

    /// When an overtaken datagram counts as lost, after 10,000 ms of turns with this lateness.
    fn late_due(&mut self, late: Duration) -> Option<Instant> {
        for now in 1..10_000 {
            self.rtt.note_lateness(ms(now), late);
        }
        self.sent.late_due(&self.rtt)
    }

    fn lost(&mut self) -> Vec<u64> {
        self.lost.drain(..).map(|lost| lost.number).collect()
    }

    /// What is lost if the path dies.
    fn dies(&mut self, now: u64) -> Vec<LostPacket> {
        self.sent.lose(ms(now), &mut self.blocks, Cause::DeadPath, Some(&mut self.lost));
        std::mem::take(&mut self.lost)
    }

    /// The numbers of that.
    fn taken(&mut self, now: u64) -> Vec<u64> {
        self.dies(now).into_iter().map(|lost| lost.number).collect()
    }
}

/// A path answers a question, and the feedback for what it carried is lost. Data takes up room
/// until somebody tells of it, so it must be missed, also where no copy of it is kept.
#[test]
fn data_is_owed_until_it_is_told_of() {
    let mut scene = Scene::default();
    scene.leave_one(ms(0), (0, 1_000), Load::Eliciting, &[]); // a challenge
    scene.leave_one(ms(1), (1, 1_000), Load::Unkept(Strength::default()), &[]); // of no use late
    scene.leave(2..3);
    scene.sent.forgive(true);
    assert_eq!(scene.sent.unanswered_since(), Some(ms(1)));
    scene.sent.forget_copies(&mut scene.blocks);
    assert!(scene.tell(43, &[0..=1]).is_some());
    scene.sent.forgive(true);
    assert_eq!(scene.sent.unanswered_since(), Some(ms(2)), "too old to be sent again");
    scene.sent.forgive(false);
    assert_eq!(scene.sent.unanswered_since(), None);
}

#[test]
fn a_sample_a_settlement_and_no_loss() {
    let mut scene = Scene::default();
    scene.leave(0..4);
    assert_eq!(scene.sent.unanswered_since(), Some(ms(0)));
    let news = scene.tell(41, &[0..=1]).unwrap();
    assert_eq!(news.newest, Some((ms(1), Duration::from_millis(40))));
    assert_eq!((news.delivered, news.lost, scene.sent.in_flight()), (2_000, 0, 2_000));
    assert_eq!(scene.sent.unanswered_since(), Some(ms(2)), "two are still open");
    assert!(scene.tell(43, &[0..=3]).is_some());
    assert_eq!((scene.sent.unanswered_since(), scene.sent.in_flight()), (None, 0));
    assert!(scene.sent.loss().share() < 1e-9 && !scene.sent.has_copies());
    assert_eq!(scene.tell(44, &[0..=2]), None, "old news");
    assert_eq!(scene.sent.told_at(), Some(ms(43)), "which tell nothing");
}

#[test]
fn what_is_told_of_after_it_was_taken_has_arrived_once() {
    let mut scene = Scene::default();
    scene.leave(0..6);
    assert_eq!(scene.taken(10).len(), 6, "the path fell silent");
    // It was only slow: the peer tells of them one by one.
    let delivered: Vec<u64> =
        (0..6).filter_map(|n| Some(scene.tell(100 + n, &[0..=n])?.delivered)).collect();
    assert_eq!(delivered, [1_000; 6]);
    scene.leave(6..8);
    assert_eq!(scene.tell(120, &[0..=7]).unwrap().delivered, 2_000);
}

#[test]
fn only_what_elicits_is_owed_an_answer() {
    let mut scene = Scene::default();
    scene.leave(0..1);
    scene.leave_one(ms(1), (1, 100), Load::Quiet, &[]);
    scene.tell(40, &[0..=0]);
    assert_eq!(scene.sent.unanswered_since(), None);
    scene.leave_one(ms(50), (2, 100), Load::Eliciting, &[]);
    assert_eq!(scene.sent.unanswered_since(), Some(ms(50)));
}

#[test]
fn loss_shows() {
    let mut scene = Scene::default();
    for tens in 0..1_000 {
        scene.leave(tens * 10..tens * 10 + 10);
        let received = (tens + 1) * 9;
        let feedback = Feedback {
            serial: PathSerial(0),
            largest: tens * 10 + 9,
            delay_us: 0,
            arrived_us: 0,
            received,
            bytes: received * 1_000,
            runs: [(9, 1), (9, 1), (9, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)],
        };
        let Scene { sent, blocks, rtt, .. } = &mut scene;
        sent.acknowledged(ms(tens * 10 + 9), blocks, &feedback, rtt, None);
    }
    let share = scene.sent.loss().share();
    assert!((0.08..0.12).contains(&share), "{share}");
}

#[test]
fn feedback_about_what_was_never_sent_is_ignored() {
    let mut scene = Scene::default();
    scene.leave(0..1);
    assert_eq!(scene.tell(21, &[0..=7]), None);
    assert_eq!(scene.sent.unanswered_since(), Some(ms(0)));
}

#[test]
fn what_three_have_overtaken_is_lost_and_nothing_else() {
    let mut scene = Scene::default();
    scene.leave(0..10);
    let news = scene.tell(41, &[3..=4, 0..=1]).unwrap();
    assert_eq!((news.delivered, news.lost, scene.lost()), (4_000, 0, vec![]));
    let news = scene.tell(42, &[6..=8, 3..=4, 0..=1]).unwrap();
    assert_eq!((news.lost, scene.lost()), (2_000, vec![2, 5]));
    assert_eq!(scene.sent.in_flight(), 1_000, "the last one");
    assert_eq!(scene.taken(50), [9]);
}

/// Probes of the MTU are lost until one fits, which says nothing of congestion.
#[test]
fn a_lost_probe_of_the_mtu_counts_as_no_loss() {
    let lost = |load| {
        let mut scene = Scene::default();
        scene.leave_one(ms(0), (0, 1_452), load, &[]);
        scene.leave(1..5);
        assert_eq!(scene.sent.in_flight(), if load == Load::Probe { 4_000 } else { 5_452 });
        scene.tell(41, &[1..=4]).unwrap().lost
    };
    assert_eq!((lost(Load::Probe), lost(Load::Unkept(Strength::default()))), (0, 1_452));
}

#[test]
fn what_time_shows_to_be_lost_is_told_with_the_next_feedback() {
    let mut scene = Scene::default();
    scene.leave(0..10);
    scene.tell(41, &[2..=2, 0..=0]);
    let due = scene.sent.late_due(&scene.rtt).unwrap();
    let Scene { sent, blocks, rtt, lost } = &mut scene;
    sent.lose(due, blocks, Cause::Late { rtt }, Some(lost));
    assert_eq!(scene.lost(), [1]);
    let later = due.as_nanos() / 1_000_000 + 1;
    assert_eq!(scene.tell(later, &[2..=5, 0..=0]).unwrap().lost, 1_000);
    assert_eq!(scene.tell(later + 1, &[2..=9, 0..=0]).unwrap().lost, 0, "once");
}

#[test]
fn what_leaves_again_is_as_old_as_it_was() {
    let mut scene = Scene::default();
    let strength = Strength::default();
    let load = Load::Repair { flow: None, first_at: ms(20), attempts: 2, strength };
    scene.leave_one(ms(90), (0, 1_000), load, &[7; 8]);
    let [lost] = &scene.dies(100)[..] else { panic!() };
    assert_eq!((lost.at, lost.first_at, lost.attempts), (ms(90), ms(20), 2));
}

#[test]
fn a_peer_that_tells_of_more_than_left_is_not_believed() {
    let mut scene = Scene::default();
    scene.leave(0..4);
    let mut runs = [(0, 0); FEEDBACK_RUNS_MAX];
    runs[0] = (4, 0);
    let feedback = Feedback {
        serial: PathSerial(0),
        largest: 3,
        delay_us: 40_000,
        arrived_us: 0,
        received: 4,
        bytes: 1 << 40,
        runs,
    };
    let Scene { sent, blocks, rtt, .. } = &mut scene;
    assert_eq!(sent.acknowledged(ms(40), blocks, &feedback, rtt, None), None);
    // Nor is one that claims to have waited for the whole time.
    let feedback = Feedback { bytes: 4_000, ..feedback };
    let news = sent.acknowledged(ms(43), blocks, &feedback, rtt, None).unwrap();
    assert_eq!(news.newest.map(|(_, trip)| trip), Some(Duration::from_millis(40)));
}

#[test]
fn what_was_only_late_makes_others_wait() {
    let mut scene = Scene::default();
    scene.leave(0..20);
    scene.tell(60, &[1..=4]);
    assert_eq!(scene.lost(), [0]);
    scene.tell(61, &[0..=5]); // it has arrived after all
    let window = scene.sent.reordering.window();
    assert!(window > Duration::from_millis(5), "{window:?}");
    scene.tell(62, &[7..=10, 0..=5]);
    assert_eq!(scene.lost(), [], "not so soon");
    scene.tell(63, &[7..=19, 0..=5]);
    assert_eq!(scene.lost(), [6]);
}

#[test]
fn a_dead_paths_packets_are_those_that_may_not_have_arrived() {
    let mut scene = Scene::default();
    scene.leave(0..10);
    scene.tell(40, &[5..=6, 0..=3]);
    let lost = scene.dies(50);
    assert_eq!(lost.iter().map(|lost| lost.number).collect::<Vec<_>>(), [4, 7, 8, 9]);
    assert_eq!((lost[0].at, &lost[0].frame, lost[0].kept), (ms(4), &vec![0; 6], 2));
    assert!(!scene.sent.has_copies());
}

#[test]
fn the_oldest_copies_go_first_by_size_and_by_age() {
    let mut scene = Scene::default();
    let frames = KEPT_BYTES_MAX as u64 / 1_000;
    for number in 0..2 * frames {
        let load = kept(if number % 2 == 0 { 0 } else { 950 });
        scene.leave_one(ms(number), (number, 1_000), load, &[0; 1_000]);
    }
    let kept = scene.sent.copies.len();
    assert!(kept <= KEPT_BYTES_MAX && kept + 1_000 > KEPT_BYTES_MAX);
    assert_eq!(scene.sent.copies_due(), Some(ms(2 * frames - 1) + KEPT_TIME));
    let left = scene.taken(2 * frames + 1_000);
    assert_eq!((left[0], left.len()), (2 * frames - 1_999, 1_999), "of two seconds");
}

/// A long, fast path has more in flight than a lane may keep, if connections keep the payloads.
#[test]
fn what_is_kept_elsewhere_takes_no_room() {
    let mut scene = Scene::default();
    let frames = 4 * KEPT_BYTES_MAX as u64 / 1_000;
    for number in 0..frames {
        let load = kept(950);
        scene.leave_one(ms(1), (number, 1_000), load, &[0; 1_000]);
    }
    assert_eq!(scene.taken(2).len() as u64, frames);
}

#[test]
fn a_lane_that_rests_holds_little() {
    let mut scene = Scene::default();
    for number in 0..200 {
        let load = kept(0);
        scene.leave_one(ms(number), (number, 1_400), load, &[0; 1_400]);
    }
    scene.tell(230, &[0..=199]);
    assert!(scene.sent.entries.capacity() <= RESTING_ENTRIES);
    assert_eq!(scene.sent.copies.blocks(), 0);
}

#[test]
fn nobody_answers_for_long_and_the_account_is_bounded() {
    let mut scene = Scene::default();
    scene.leave(0..ENTRIES_MAX as u64 + 100);
    assert_eq!((scene.sent.entries.len(), scene.sent.first), (ENTRIES_MAX, 100));
    assert_eq!(scene.sent.in_flight(), ENTRIES_MAX as u64 * 1_000);
}

#[test]
fn the_rate_is_that_at_which_they_arrive_by_the_peers_clock() {
    let mut scene = Scene::default();
    scene.leave(0..100);
    let rate = scene.tell(60, &[0..=10]).unwrap().rate.unwrap();
    assert!(
        (rate.bytes_per_second - 11_000.0 / 0.060).abs() < 1.0,
        "by this end's clock: {rate:?}"
    );
    scene.leave(100..200);
    // Those of the first ten left by then, eleven more of one a millisecond.
    let rate = scene.tell(280, &[0..=120]).unwrap().rate.unwrap();
    assert_eq!(rate.prior_delivered, 11_000);
    assert!((rate.bytes_per_second - 500_000.0).abs() < 1.0, "{rate:?}");
    assert!(!rate.is_limited);
}

#[test]
fn a_pause_is_no_part_of_the_rate_and_what_follows_it_is_limited() {
    let mut scene = Scene::default();
    scene.leave(0..10);
    scene.tell(60, &[0..=9]);
    scene.sent.limited();
    let leave = |scene: &mut Scene, numbers: std::ops::Range<u64>, from: u64| {
        for number in numbers {
            let at = ms(from + number);
            scene.leave_one(at, (number, 1_000), Load::Eliciting, &[]);
        }
    };
    leave(&mut scene, 10..20, 5_000);
    let rate = scene.tell(5_062, &[0..=12]).unwrap().rate.unwrap();
    assert!(
        (rate.bytes_per_second - 3_000.0 / 0.052).abs() < 1.0,
        "since it began again: {rate:?}"
    );
    leave(&mut scene, 20..30, 5_050);
    assert!(!scene.tell(5_130, &[0..=29]).unwrap().rate.unwrap().is_limited);
    leave(&mut scene, 30..31, 5_100);
    scene.sent.limited();
    leave(&mut scene, 31..34, 5_100);
    scene.tell(5_180, &[0..=30]);
    leave(&mut scene, 34..36, 5_150);
    let rate = scene.tell(5_254, &[0..=35]).unwrap().rate.unwrap();
    assert!(rate.is_limited, "{rate:?}");
}

#[test]
fn what_elicits_nothing_is_not_waited_for() {
    let mut scene = Scene::default();
    scene.leave(0..2);
    for number in 2..1_000 {
        scene.leave_one(ms(number), (number, 1_000), Load::Quiet, &[]);
    }
    assert_eq!(scene.sent.in_flight(), 2_000);
    scene.tell(1_100, &[500..=999, 0..=1]);
    assert_eq!(scene.sent.in_flight(), 0);
    scene.leave_one(ms(1_200), (1_000, 80), Load::Quiet, &[]);
    scene.leave_one(ms(1_200), (1_001, 1_000), Load::Eliciting, &[]);
    assert_eq!(scene.sent.in_flight(), 1_000);
}

/// If the peer's machine or this one is busy, reports come late, and a missing datagram may still
/// be reported.
#[test]
fn where_hosts_are_late_more_time_passes_until_something_counts_as_lost() {
    let due = |late| {
        let mut scene = Scene::default();
        scene.leave(0..3);
        scene.tell(22, &[1..=2]).unwrap();
        scene.late_due(late).unwrap()
    };
    let quiet = due(Duration::ZERO);
    let late = due(Duration::from_millis(11));
    assert!(late >= quiet + Duration::from_millis(9), "{quiet:?} {late:?}");
}

/// A datagram whose frames are these, each of a flow that keeps its last `kept` bytes.
fn leave_joined(scene: &mut Scene, number: u64, frames: &[(&[u8], u16)]) {
    let (first, rest) = frames.split_first().unwrap();
    scene.leave_one(ms(number), (number, 1_000), kept(first.1), first.0);
    for (frame, kept) in rest {
        let record = PacketRecord { kept: *kept, ..PacketRecord::of_bucket(0) };
        scene.sent.joined(ms(number), &mut scene.blocks, record, frame);
    }
}

#[test]
fn frames_that_share_a_datagram_are_lost_each_by_itself() {
    let mut scene = Scene::default();
    leave_joined(&mut scene, 0, &[(b"one", 0), (b"second", 2), (b"3", 0)]);
    scene.leave(1..5);
    leave_joined(&mut scene, 5, &[(b"four", 1), (b"fifth", 0)]);
    scene.tell(60, &[1..=4]);
    let lost = std::mem::take(&mut scene.lost);
    let seen: Vec<_> = lost.iter().map(|it| (it.number, &it.frame[..], it.kept)).collect();
    let expected: [(u64, &[u8], u16); 3] = [(0, b"one", 0), (0, b"seco", 2), (0, b"3", 0)];
    assert_eq!(seen, expected);
    assert!(lost.iter().all(|it| it.attempts == 1));
    let owed: Vec<_> = scene.dies(80).into_iter().map(|it| it.frame).collect();
    assert_eq!(owed, [b"fou".to_vec(), b"fifth".to_vec()]);
    assert!(!scene.sent.has_copies(), "no byte of a copy is left");
}

#[test]
fn the_copies_of_a_datagram_are_forgotten_together() {
    let mut scene = Scene::default();
    leave_joined(&mut scene, 0, &[(b"one", 0), (b"second", 0)]);
    scene.leave(1..2);
    leave_joined(&mut scene, 2, &[(b"three", 0), (b"four", 0)]);
    assert!(scene.sent.forget_oldest_copy(&mut scene.blocks));
    let owed = |scene: &mut Scene| scene.dies(50).into_iter().map(|it| it.number);
    assert_eq!(owed(&mut scene).collect::<Vec<_>>(), [1, 2, 2]);
    leave_joined(&mut scene, 3, &[(b"five", 0), (b"six", 0)]);
    scene.tell(60, &[0..=3]);
    assert!(!scene.sent.has_copies(), "what arrived is not kept");
}
