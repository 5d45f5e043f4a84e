use super::*;
use crate::multipath::snapshot::Measured;

const START: Instant = Instant::from_nanos(3_000_000_000);
const MBIT: f64 = 125_000.0;
const SECOND: Duration = Duration::from_secs(1);
const LEN: usize = 1_200;
/// Who sends in bulk, and who does not.
const BULK_BUCKET: u8 = 7;
const LITTLE_BUCKET: u8 = 8;

/// A path that proved to carry so much, of which so much arrived of late.
fn way(path: u32, delay_ms: u64, proven: f64, arrives: f64) -> PathSnapshot {
    let delay = Duration::from_millis(delay_ms);
    PathSnapshot {
        byte_ns: 1e9 / (proven * MBIT).max(MBIT),
        delay,
        least_trip: Duration::from_millis(10) + delay,
        measured: Measured {
            arrives: Some(arrives * MBIT),
            proven: Some(proven * MBIT),
            is_known: true,
            loss: 0.0,
        },
        ..PathSnapshot::free(path, START, proven, Duration::from_millis(15))
    }
}

/// The near one is full of 10 Mbit/s; 30 ms farther is one that carries `far`.
fn near_and_far(far: f64) -> [PathSnapshot; 2] {
    [way(1, 0, 10.0, 9.7), way(2, 30, far, 0.1)]
}

/// One of which nobody knows what it carries.
fn unknown(way: PathSnapshot) -> PathSnapshot {
    let measured = Measured { proven: None, is_known: false, ..way.measured };
    PathSnapshot { measured, ..way }
}

/// The terms of who has just sent half a megabyte.
fn terms_of_bulk(far: &mut Far, now: Instant) -> Terms {
    (0..400).map(|_| far.terms(now, BULK_BUCKET, LEN)).last().unwrap()
}

fn floor_ms(far: &mut Far, now: Instant) -> u128 {
    terms_of_bulk(far, now).floor.as_millis()
}

#[test]
fn where_the_near_is_full_bulk_finds_all_as_far_as_one_that_carries_as_much() {
    let mut far = Far::default();
    far.look(START, &near_and_far(40.0));
    assert_eq!(floor_ms(&mut far, START), 30);
    assert_eq!(far.terms(START, LITTLE_BUCKET, LEN), Terms::default(), "who sends little");
    let mut far = Far::default();
    far.look(START, &[way(1, 0, 10.0, 7.5), way(2, 30, 40.0, 0.1)]);
    assert_eq!(floor_ms(&mut far, START), 0, "there is room near");
}

#[test]
fn all_nearer_ones_together_are_the_measure() {
    let mut far = Far::default();
    far.look(START, &[way(1, 0, 10.0, 9.7), way(2, 5, 30.0, 29.0), way(3, 8, 28.0, 0.0)]);
    assert_eq!(floor_ms(&mut far, START), 5, "the third carries less than what is nearer");
    far.look(START, &[way(1, 0, 10.0, 9.7), way(2, 5, 30.0, 29.0), way(3, 8, 40.0, 0.0)]);
    assert_eq!(floor_ms(&mut far, START), 8);
}

#[test]
fn who_sent_in_bulk_is_forgotten_after_a_few_seconds() {
    let mut far = Far::default();
    far.look(START, &near_and_far(40.0));
    assert_eq!(floor_ms(&mut far, START), 30);
    assert_eq!(far.terms(START + SECOND, BULK_BUCKET, LEN).floor.as_millis(), 30);
    assert_eq!(far.terms(START + SECOND * 9, BULK_BUCKET, LEN), Terms::default());
}

#[test]
fn far_stays_far_until_a_sender_has_forgotten_his_shortest_round_trip() {
    let mut far = Far::default();
    far.look(START, &near_and_far(40.0));
    // He still counts by the short one, and has less than before on both.
    let halved = [way(1, 0, 10.0, 1.0), way(2, 30, 40.0, 4.0)];
    for at in 1..12 {
        far.look(START + SECOND * at, &halved);
        assert_eq!(floor_ms(&mut far, START + SECOND * at), 30, "{at} s");
    }
    // Now he knows: it lasts while he has more than was near.
    let both = [way(1, 0, 10.0, 6.0), way(2, 30, 40.0, 24.0)];
    for at in 11..40 {
        far.look(START + SECOND * at, &both);
        assert_eq!(floor_ms(&mut far, START + SECOND * at), 30, "{at} s");
    }
}

#[test]
fn who_never_fills_them_again_has_the_nearest_back() {
    let mut far = Far::default();
    far.look(START, &near_and_far(40.0));
    let last = START + SECOND * 11;
    far.look(last, &[way(1, 0, 10.0, 1.0), way(2, 30, 40.0, 4.0)]);
    assert_eq!(floor_ms(&mut far, last), 30);
    far.look(last + SECOND, &[way(1, 0, 10.0, 1.0), way(2, 30, 40.0, 4.0)]);
    assert_eq!(floor_ms(&mut far, last + SECOND), 0);
}

#[test]
fn the_farther_it_is_the_more_it_has_to_carry() {
    // The nearer one's round trip is 10 ms.
    for (delay_ms, carries, floor) in [(30, 31.0, 30), (30, 29.0, 0), (5, 8.0, 5), (5, 7.0, 0)] {
        let mut far = Far::default();
        far.look(START, &[way(1, 0, 10.0, 9.7), way(2, delay_ms, carries, 0.0)]);
        assert_eq!(floor_ms(&mut far, START), floor, "{delay_ms} ms, {carries} Mbit/s");
    }
}

#[test]
fn what_nobody_knows_is_tried_with_copies_for_a_moment() {
    let mut far = Far::default();
    let [near, other] = near_and_far(40.0);
    let ways = [near, unknown(other)];
    far.look(START, &ways);
    assert!(far.copies());
    let tried = Terms { floor: Duration::ZERO, copied_to: Some(PathId(2)) };
    assert_eq!(terms_of_bulk(&mut far, START), tried);
    assert_eq!(far.terms(START, LITTLE_BUCKET, LEN), Terms::default());
    assert_eq!(terms_of_bulk(&mut far, START + TRIED), Terms::default(), "nobody looked since");
    for at in 2..60 {
        far.look(START + SECOND * at, &ways);
        assert!(!far.copies(), "{at} s");
    }
    far.look(START + SECOND * 60, &ways);
    assert!(far.copies());
    // It is known now.
    far.look(START + SECOND * 61, &[near, other]);
    assert!(!far.copies());
    assert_eq!(floor_ms(&mut far, START + SECOND * 61), 30);
}

#[test]
fn a_far_one_that_is_known_to_carry_little_is_not_tried_nor_one_beside_room() {
    let mut far = Far::default();
    far.look(START, &near_and_far(1.0));
    assert!(!far.copies(), "it is known");
    far.look(START, &[way(1, 0, 10.0, 7.0), unknown(way(2, 30, 0.0, 0.0))]);
    assert!(!far.copies(), "there is room near");
    far.look(START, &[unknown(way(1, 0, 0.0, 9.7)), unknown(way(2, 30, 0.0, 0.0))]);
    assert!(!far.copies(), "nothing is known of the near one");
    far.look(START, &[]);
    assert!(!far.copies());
}

#[test]
fn what_is_forgotten_holds_no_more() {
    let mut far = Far::default();
    let [near, other] = near_and_far(40.0);
    far.look(START, &[near, other, unknown(way(3, 40, 0.0, 0.0))]);
    assert_eq!(floor_ms(&mut far, START), 30);
    far.forget();
    assert!(!far.copies());
    assert_eq!(terms_of_bulk(&mut far, START), Terms::default());
}
