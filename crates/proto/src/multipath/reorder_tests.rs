use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::multipath::abandoned::RANGES_MAX;

const HOLD: Duration = Duration::from_millis(50);

fn at(us: u64) -> Instant {
    Instant::from_nanos(us * 1_000)
}

/// A resequencer whose bucket 9 begins near where numbers wrap.
#[derive(Default)]
struct Exit {
    reorder: Reorder,
    blocks: Blocks,
    start: u32,
}

impl Exit {
    fn beginning_at(start: u32) -> Self {
        let mut exit = Self { start, ..Self::default() };
        exit.reorder.buckets.resize(BUCKETS, None);
        exit.reorder.buckets[9].get_or_insert_default().progress.skip_to(start);
        exit
    }

    /// Takes the packet of a number, counted from the start. Its bytes tell the number.
    fn take(&mut self, now: Instant, number: u32, hold: Duration) -> Taken {
        let sequence = self.start.wrapping_add(number);
        let bytes = bytes(number);
        let cut = bytes.len() / 2 * (number as usize % 2);
        let packet = Pieces::cut(&bytes[..cut], &bytes[cut..]).with_checksum(checksum(number));
        self.reorder.take(&mut self.blocks, now, 9, sequence, packet, || hold)
    }

    /// The numbers that are given out now.
    fn next(&mut self, now: Instant) -> Vec<u32> {
        let mut all = Vec::new();
        let mut packet = vec![1];
        while let Some(next) = self.reorder.next(&mut self.blocks, now, &mut packet) {
            let number = u32::from_be_bytes(packet[1..5].try_into().unwrap());
            assert_eq!(next, (9, checksum(number)));
            assert_eq!(packet[1..], bytes(number), "it is as it came, behind what was there");
            packet.truncate(1);
            all.push(number);
        }
        assert!(self.reorder.due().is_none_or(|due| due > now), "all was given out");
        all
    }

    fn is_at_rest(&self) -> bool {
        let buckets = || self.reorder.buckets.iter().flatten();
        (self.reorder.bytes(), self.reorder.due()) == (0, None)
            && self.reorder.is_empty()
            && buckets().all(|bucket| bucket.bytes.blocks() == 0 && bucket.arrivals.is_empty())
            && buckets().all(|bucket| bucket.arrivals.capacity() <= RESTING_PLACES)
            && buckets().all(|bucket| bucket.abandoned.len() == 0)
    }
}

fn bytes(number: u32) -> Vec<u8> {
    let len = [40, 1_400, 300, 1_500][number as usize % 4];
    number.to_be_bytes().into_iter().cycle().take(len).collect()
}

/// What is known of the checksum of a packet.
fn checksum(number: u32) -> Checksum {
    [Checksum::Unchecked, Checksum::LeftOut, Checksum::LeftOut][number as usize % 3]
}

#[test]
fn what_is_in_order_is_not_kept() {
    let mut exit = Exit::beginning_at(u32::MAX - 2);
    for number in 0..10 {
        assert_eq!(exit.take(at(0), number, HOLD), Taken::Deliver);
        assert_eq!(exit.next(at(0)), []);
        assert!(exit.is_at_rest());
    }
    assert_eq!(exit.take(at(0), 9, HOLD), Taken::Duplicate);
}

#[test]
fn nothing_goes_on_twice_while_what_is_kept_has_not_been_asked_for() {
    let mut exit = Exit::beginning_at(u32::MAX - 1);
    for number in [1, 2] {
        assert_eq!(exit.take(at(0), number, HOLD), Taken::Kept);
    }
    assert_eq!(exit.take(at(0), 0, HOLD), Taken::Deliver);
    // There was no room for more, and copies come meanwhile.
    for number in [1, 2, 0] {
        assert_eq!(exit.take(at(0), number, HOLD), Taken::Duplicate, "{number}");
    }
    assert_eq!(exit.next(at(0)), [1, 2]);
    assert!(exit.is_at_rest());
    assert_eq!(exit.take(at(0), 3, HOLD), Taken::Deliver);
}

#[test]
fn what_nobody_will_send_is_not_waited_for() {
    let mut exit = Exit::beginning_at(u32::MAX - 4);
    // 0, 2 and 5 are missing, and the rest is kept; nobody will send what is before 4.
    for number in [1, 3, 4, 6] {
        assert_eq!(exit.take(at(0), number, HOLD), Taken::Kept);
    }
    exit.abandon(0, 4);
    assert_eq!(exit.next(at(0)), [1, 3, 4], "5 may come");
    assert_eq!(exit.take(at(0), 2, HOLD), Taken::Late);
    assert_eq!(exit.take(at(0), 2, HOLD), Taken::Duplicate);
    // It is said once more, and of what has gone on already.
    exit.abandon(0, 4);
    assert_eq!(exit.next(at(0)), []);
    // Nothing is kept that is before the end: what comes first after it is next.
    exit.abandon(0, 20);
    assert_eq!(exit.next(at(0)), [6]);
    assert_eq!(exit.take(at(0), 20, HOLD), Taken::Deliver);
    assert_eq!(exit.take(at(0), 5, HOLD), Taken::Late);
    assert!(exit.is_at_rest());
    // Of a bucket of which nothing came yet, too.
    exit.reorder.abandon(8, 0, 3);
    let packet = bytes(3);
    let packet = Pieces::whole(&packet);
    let first = exit.reorder.take(&mut exit.blocks, at(0), 8, 3, packet, || HOLD);
    assert_eq!(first, Taken::Deliver);
}

#[test]
fn a_gap_waits_from_the_first_that_came_after_it() {
    let mut exit = Exit::default();
    let ms = |ms: u64| at(ms * 1_000);
    // 0 and 2 are missing; 3 came first, and may wait for less than who came later.
    assert_eq!(exit.take(ms(10), 3, HOLD), Taken::Kept);
    assert_eq!(exit.take(ms(20), 1, HOLD * 2), Taken::Kept);
    assert_eq!(exit.take(ms(30), 5, HOLD), Taken::Kept);
    assert_eq!(exit.take(ms(30), 3, HOLD), Taken::Duplicate, "it is kept");
    assert_eq!((exit.next(ms(59)), exit.reorder.due()), (vec![], Some(ms(60))));
    assert_eq!((exit.next(ms(60)), exit.reorder.due()), (vec![1, 3], Some(ms(80))));
    assert_eq!(exit.take(ms(61), 2, HOLD), Taken::Late);
    assert_eq!(exit.take(ms(61), 2, HOLD), Taken::Duplicate);
    assert_eq!(exit.take(ms(62), 4, HOLD), Taken::Deliver);
    assert_eq!(exit.next(ms(62)), [5]);
    assert_eq!(exit.take(ms(63), 0, HOLD), Taken::Late);
    assert!(exit.is_at_rest());
}

#[test]
fn a_sequence_goes_on_after_the_one_that_it_follows_or_when_its_time_is_over() {
    let mut exit = Exit::default();
    exit.reorder.follow(9, 7);
    assert_eq!(exit.take(at(0), 0, HOLD), Taken::Kept);
    assert_eq!(exit.take(at(10), 1, HOLD), Taken::Kept);
    exit.reorder.go_on(|bucket, end| (bucket, end) != (9, 7));
    assert_eq!((exit.next(at(20)), exit.reorder.due()), (vec![], Some(at(0) + HOLD)));
    exit.reorder.go_on(|bucket, end| (bucket, end) == (9, 7));
    assert_eq!(exit.next(at(20)), [0, 1]);
    exit.reorder.follow(9, 7); // comes too late
    assert_eq!(exit.take(at(30), 2, HOLD), Taken::Deliver);
    assert!(exit.is_at_rest());

    let mut exit = Exit::default();
    exit.reorder.follow(9, 7);
    assert_eq!(exit.take(at(5), 0, HOLD), Taken::Kept);
    assert_eq!(exit.take(at(10), 3, HOLD * 2), Taken::Kept);
    assert!(exit.next(at(4) + HOLD).is_empty());
    assert_eq!(exit.next(at(5) + HOLD), [0], "what came first has waited for long enough");
    assert_eq!(exit.take(at(20) + HOLD, 1, HOLD), Taken::Deliver);
    assert_eq!(exit.next(at(20) + HOLD), []);
    assert_eq!(exit.take(at(30) + HOLD, 2, HOLD), Taken::Deliver);
    assert_eq!(exit.next(at(30) + HOLD), [3]);
    assert!(exit.is_at_rest());
}

#[test]
fn it_is_known_how_far_a_sequence_has_gone_on_by_the_low_bits() {
    for start in [0, u32::MAX - 2, 0x1_fffe] {
        let mut exit = Exit::beginning_at(start);
        let has_reached = |exit: &Exit, number: u32| {
            exit.reorder.has_reached(9, start.wrapping_add(number) as u16)
        };
        for number in 0..5 {
            assert!(has_reached(&exit, number) && !has_reached(&exit, number + 1));
            assert_eq!(exit.take(at(0), number, HOLD), Taken::Deliver);
        }
        assert_eq!(exit.take(at(0), 6, HOLD), Taken::Kept);
        assert!(!has_reached(&exit, 7));
        assert_eq!(exit.next(at(0) + HOLD), [6]);
        assert!(has_reached(&exit, 7), "what is given up has gone on");
    }
    let nothing = Reorder::default();
    assert!(nothing.has_reached(9, 0) && !nothing.has_reached(9, 1));
}

#[test]
fn when_nobody_will_send_what_is_missing_all_that_is_kept_goes_on() {
    let mut exit = Exit::default();
    exit.reorder.give_up();
    for number in [5, 2, 3] {
        assert_eq!(exit.take(at(10), number, HOLD), Taken::Kept);
    }
    exit.reorder.give_up();
    assert_eq!(exit.next(at(10)), [2, 3, 5]);
    assert!(exit.is_at_rest());
}

#[test]
fn no_bucket_waits_for_another() {
    let (mut reorder, mut blocks) = (Reorder::default(), Blocks::default());
    let mut take = |bucket, sequence| {
        let packet = [bucket];
        reorder.take(&mut blocks, at(0), bucket, sequence, Pieces::whole(&packet), || HOLD)
    };
    assert_eq!(
        (take(0, 1), take(255, 0), take(255, 2)),
        (Taken::Kept, Taken::Deliver, Taken::Kept)
    );
    assert_eq!(take(255, 1), Taken::Deliver);
    let mut packet = Vec::new();
    assert_eq!(reorder.next(&mut blocks, at(0), &mut packet), Some((255, Checksum::Unchecked)));
    assert_eq!(reorder.next(&mut blocks, at(0), &mut packet), None);
    assert_eq!((packet, reorder.due()), (vec![255], Some(at(0) + HOLD)));
    reorder.clear(&mut blocks);
    assert_eq!((reorder.bytes(), reorder.due(), reorder.is_empty()), (0, None, true));
    assert_eq!(reorder.take(&mut blocks, at(0), 0, 0, Pieces::whole(&[]), || HOLD), Taken::Deliver);
}

#[test]
fn what_was_given_up_is_known_for_a_window() {
    const LAST: u32 = 20_000;
    let mut exit = Exit::beginning_at(u32::MAX - LAST / 2);
    assert_eq!(exit.take(at(0), LAST, HOLD), Taken::Kept);
    assert_eq!(exit.next(at(0) + HOLD), [LAST]);
    for number in [LAST - WINDOW, 0, 5_000] {
        assert_eq!(exit.take(at(0), number, HOLD), Taken::Duplicate, "nobody remembers {number}");
    }
    assert_eq!(exit.take(at(0), LAST + 1 - WINDOW, HOLD), Taken::Late);
    assert_eq!(exit.take(at(0), LAST, HOLD), Taken::Duplicate);
    // Each that is delivered takes the place of one of those.
    assert_eq!(exit.take(at(0), LAST + 1, HOLD), Taken::Deliver);
    assert_eq!(exit.take(at(0), LAST + 2, HOLD), Taken::Deliver);
    assert_eq!(exit.take(at(0), LAST + 2 - WINDOW, HOLD), Taken::Duplicate);
    assert_eq!(exit.take(at(0), LAST + 3 - WINDOW, HOLD), Taken::Late);
    assert_eq!(exit.take(at(0), LAST + 3 + HALF, HOLD), Taken::Duplicate, "far behind");
    assert_eq!(exit.take(at(0), LAST + 2 + HALF, HOLD), Taken::Kept, "as far ahead as can be");
}

#[test]
fn where_there_is_no_room_the_gap_is_given_up() {
    let mut exit = Exit::default();
    let (mut given, mut most) = (Vec::new(), 0);
    // The first is missing, and one near the end.
    for number in (1..20_000).filter(|&number| number != 18_000) {
        assert!(matches!(exit.take(at(0), number, HOLD), Taken::Kept | Taken::Deliver));
        most = most.max(exit.reorder.bytes());
        let more = exit.next(at(0));
        assert!(exit.reorder.bytes() <= BUCKET_BYTES_MAX);
        if !more.is_empty() && given.is_empty() {
            assert_eq!(more[0], 1);
            assert!(number > 9_000, "{number}");
        }
        given.extend(more);
    }
    assert!(most > BUCKET_BYTES_MAX && most < BUCKET_BYTES_MAX + 2_000, "{most}");
    given.extend(exit.next(at(0) + HOLD));
    assert!(given.is_sorted());
    assert_eq!(exit.take(at(0), 18_000, HOLD), Taken::Late);
    assert!(exit.is_at_rest());
}

#[test]
fn all_buckets_together_keep_no_more_than_there_is_room_for() {
    let (mut reorder, mut blocks) = (Reorder::default(), Blocks::default());
    let (mut packet, mut given) = (Vec::new(), BTreeMap::<u8, u32>::new());
    // Of each bucket every second is missing.
    for sequence in (1..18_000).step_by(2) {
        for bucket in [1, 2, 3] {
            let bytes = [bucket; 1_000];
            reorder.take(&mut blocks, at(0), bucket, sequence, Pieces::whole(&bytes), || HOLD);
            assert!(reorder.bytes() <= BYTES_MAX + 2_000);
            while let Some((bucket, _)) = reorder.next(&mut blocks, at(0), &mut packet) {
                *given.entry(bucket).or_default() += 1;
            }
            assert!(reorder.bytes() <= BYTES_MAX);
        }
    }
    assert!(given.len() == 3 && reorder.bytes() > BYTES_MAX - 2_000, "{given:?}");
}

#[test]
fn what_came_far_too_early_goes_when_its_time_has_come() {
    let mut exit = Exit::default();
    assert_eq!(exit.take(at(0), 5_000_000, HOLD), Taken::Kept);
    let mut delivered = 0;
    for number in 0..40_000u32 {
        let now = at(u64::from(number));
        // In pairs, the second first: each pair is kept and given out behind what came too early.
        delivered += u32::from(exit.take(now, number ^ 1, HOLD) == Taken::Deliver);
        delivered += u32::try_from(exit.next(now).len()).unwrap();
        assert!(exit.reorder.bytes() <= BUCKET_BYTES_MAX);
    }
    // It waited for no longer than any other, or for as long as there was room; what comes behind
    // it is late, or nobody remembers it.
    assert!((5_000..40_000).contains(&delivered), "{delivered}");
    assert!(exit.is_at_rest());
}

/// What a packet meets on its way.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    Arrives { after_us: u64 },
    Twice { after_us: u64, and_after_us: u64 },
}

fn fates(losses: u32) -> impl Strategy<Value = Vec<Fate>> {
    let hold_us = u64::try_from(HOLD.as_micros()).unwrap();
    let fate = prop_oneof![
        20 => (0..hold_us).prop_map(|after_us| Fate::Arrives { after_us }),
        2 => (0..hold_us, 0..3 * hold_us)
            .prop_map(|(after_us, and_after_us)| Fate::Twice { after_us, and_after_us }),
        losses => Just(Fate::Lost),
    ];
    proptest::collection::vec(fate, 1..500)
}

/// Sends a packet every 300 us; returns what was delivered and when, in order.
fn deliver(exit: &mut Exit, fates: &[Fate]) -> Vec<(Instant, u32)> {
    let mut events = Vec::new();
    for (number, fate) in (0u32..).zip(fates) {
        let left_us = u64::from(number) * 300;
        match *fate {
            Fate::Lost => {}
            Fate::Arrives { after_us } => events.push((at(left_us + after_us), number)),
            Fate::Twice { after_us, and_after_us } => events
                .extend([after_us, and_after_us].map(|after_us| (at(left_us + after_us), number))),
        }
    }
    events.sort_unstable();
    let mut delivered = Vec::new();
    for (now, number) in events {
        while let Some(due) = exit.reorder.due().filter(|&due| due <= now) {
            delivered.extend(exit.next(due).into_iter().map(|number| (due, number)));
        }
        match exit.take(now, number, HOLD) {
            Taken::Deliver => delivered.push((now, number)),
            Taken::Late => panic!("{number} is late"),
            Taken::Kept | Taken::Duplicate => {}
        }
        delivered.extend(exit.next(now).into_iter().map(|number| (now, number)));
    }
    while let Some(due) = exit.reorder.due() {
        delivered.extend(exit.next(due).into_iter().map(|number| (due, number)));
    }
    delivered
}

proptest! {
    /// What arrives within the hold is delivered once and in order, whatever is lost beside it;
    /// nothing waits for longer than the hold, and nothing is left.
    #[test]
    fn what_arrives_in_time_is_delivered_once_and_in_order(
        start in prop_oneof![Just(0), any::<u32>(), u32::MAX - 300..=u32::MAX],
        fates in prop_oneof![fates(0), fates(2)],
    ) {
        let mut exit = Exit::beginning_at(start);
        let delivered = deliver(&mut exit, &fates);
        let order: Vec<u32> = delivered.iter().map(|&(_, number)| number).collect();
        let arrived = (0u32..).zip(&fates).filter(|(_, fate)| !matches!(fate, Fate::Lost));
        let arrived: Vec<u32> = arrived.map(|(number, _)| number).collect();
        prop_assert_eq!(order, arrived);
        for (now, number) in delivered {
            let first_us = match fates[number as usize] {
                Fate::Arrives { after_us } => after_us,
                Fate::Twice { after_us, and_after_us } => after_us.min(and_after_us),
                Fate::Lost => unreachable!("it was lost"),
            };
            let arrived = at(u64::from(number) * 300 + first_us);
            prop_assert!(now.saturating_since(arrived) <= HOLD);
        }
        prop_assert!(exit.is_at_rest());
    }

    /// Whatever comes, it is told rightly what becomes of it.
    #[test]
    fn late_and_twice_are_told_apart(
        start in any::<u32>(),
        steps in proptest::collection::vec((0u32..3_000, 0u64..60, 0u64..90), 1..500),
    ) {
        let mut exit = Exit::beginning_at(start);
        let (mut now, mut next, mut base) = (at(0), 0u32, 0);
        let (mut kept, mut delivered) = (BTreeSet::new(), BTreeSet::new());
        for (near, pause_ms, hold_ms) in steps {
            now = now + Duration::from_millis(pause_ms / 4);
            for number in exit.next(now) {
                prop_assert!(number >= next && kept.remove(&number) && delivered.insert(number));
                next = number + 1;
            }
            base = (base + near / 100).max(next.saturating_sub(WINDOW + 2_000));
            let number = base + near * 6;
            let known = kept.contains(&number) || delivered.contains(&number);
            let expected = match number {
                _ if known || number + WINDOW < next => Taken::Duplicate,
                _ if number < next => Taken::Late,
                _ if number == next => Taken::Deliver,
                _ => Taken::Kept,
            };
            let taken = exit.take(now, number, Duration::from_millis(hold_ms));
            prop_assert_eq!(taken, expected, "{} while {} is next", number, next);
            match taken {
                Taken::Deliver => next = number + 1,
                Taken::Kept => drop(kept.insert(number)),
                Taken::Late | Taken::Duplicate => {}
            }
            if matches!(taken, Taken::Deliver | Taken::Late) {
                prop_assert!(delivered.insert(number));
            }
        }
        let rest = exit.next(now + Duration::from_secs(1));
        prop_assert!(rest.into_iter().eq(kept));
        prop_assert!(exit.is_at_rest());
    }
}

impl Exit {
    /// The sender abandons the numbers from `from` up to but not including `to`.
    fn abandon(&mut self, from: u32, to: u32) {
        let [from, to] = [from, to].map(|number| self.start.wrapping_add(number));
        self.reorder.abandon(9, from, to);
    }

    /// How many ranges of abandoned numbers are remembered.
    fn ranges(&self) -> usize {
        self.reorder.buckets[9].as_ref().map_or(0, |bucket| bucket.abandoned.len())
    }
}

#[test]
fn abandoned_numbers_are_not_waited_for() {
    let mut exit = Exit::beginning_at(u32::MAX - 1);
    assert_eq!(exit.take(at(0), 1, HOLD), Taken::Kept);
    assert_eq!(exit.take(at(0), 4, HOLD), Taken::Kept);
    exit.abandon(0, 1); // its turn is now
    assert_eq!(exit.next(at(1)), [1]);
    exit.abandon(3, 4); // its turn comes
    assert_eq!(exit.next(at(2)), []);
    assert_eq!(exit.take(at(3), 2, HOLD), Taken::Deliver);
    assert_eq!(exit.next(at(3)), [4]);
    assert!(exit.is_at_rest());
}

#[test]
fn an_abandoned_number_that_arrives_after_its_turn_is_late_once() {
    let mut exit = Exit::beginning_at(u32::MAX - 1);
    exit.abandon(0, 1);
    assert_eq!(exit.take(at(0), 0, HOLD), Taken::Late);
    assert_eq!(exit.take(at(0), 0, HOLD), Taken::Duplicate);
    exit.abandon(2, 3);
    assert_eq!(exit.take(at(1), 1, HOLD), Taken::Deliver);
    assert_eq!(exit.take(at(2), 2, HOLD), Taken::Late);
    assert!(exit.is_at_rest());
}

#[test]
fn abandoning_what_has_arrived_changes_nothing() {
    let mut exit = Exit::beginning_at(u32::MAX - 1);
    assert_eq!(exit.take(at(0), 1, HOLD), Taken::Kept);
    exit.abandon(1, 2); // it is kept
    exit.abandon(1, 2);
    assert_eq!(exit.next(at(60_000)), [1], "the gap was given up");
    exit.abandon(0, 2);
    assert_eq!(exit.take(at(60_002), 0, HOLD), Taken::Late);
    assert_eq!(exit.take(at(60_002), 1, HOLD), Taken::Duplicate);
    assert!(exit.is_at_rest());
}

#[test]
fn an_abandoned_number_that_arrives_before_its_turn_is_delivered_in_order() {
    let mut exit = Exit::beginning_at(u32::MAX - 1);
    exit.abandon(2, 3);
    assert_eq!(exit.take(at(1), 3, HOLD), Taken::Kept);
    assert_eq!(exit.take(at(2), 2, HOLD), Taken::Kept);
    assert_eq!(exit.take(at(3), 2, HOLD), Taken::Duplicate);
    exit.abandon(2, 3); // it is there
    assert_eq!(exit.take(at(4), 1, HOLD), Taken::Kept);
    assert_eq!(exit.take(at(5), 0, HOLD), Taken::Deliver);
    assert_eq!(exit.next(at(5)), [1, 2, 3]);
    assert!(exit.is_at_rest());
}

#[test]
fn a_range_before_the_next_number_or_without_numbers_changes_nothing() {
    let mut exit = Exit::beginning_at(u32::MAX - 1);
    for number in [0, 1, 2, 4] {
        exit.take(at(0), number, HOLD);
    }
    let behind = 0u32.wrapping_sub(50);
    for (from, to) in [(0, 3), (behind, 2), (behind, behind + 1), (3, 3), (4, 3), (3, 3 + HALF)] {
        exit.abandon(from, to);
        assert_eq!((exit.next(at(1)), exit.ranges()), (vec![], 0), "{from} to {to}");
    }
    assert_eq!(exit.take(at(2), 3, HOLD), Taken::Deliver);
    assert_eq!(exit.next(at(2)), [4]);
    assert!(exit.is_at_rest());
}

#[test]
fn a_range_beyond_the_window_costs_no_more_than_one_number() {
    let mut exit = Exit::beginning_at(u32::MAX - 1);
    exit.abandon(1, HALF - 1);
    assert_eq!((exit.next(at(0)), exit.ranges()), (vec![], 1), "0 may come");
    assert_eq!(exit.take(at(1), 0, HOLD), Taken::Deliver);
    assert_eq!((exit.next(at(1)), exit.ranges()), (vec![], 0));
    assert_eq!(exit.take(at(2), HALF - 1, HOLD), Taken::Deliver);
    assert_eq!(exit.take(at(2), HALF - WINDOW, HOLD), Taken::Late, "it is remembered");
    assert_eq!(exit.take(at(2), HALF - WINDOW - 1, HOLD), Taken::Duplicate);
    assert!(exit.is_at_rest());
}

#[test]
fn a_peer_that_abandons_much_fills_no_memory() {
    let mut exit = Exit::beginning_at(7);
    // From the middle outwards, so that each has to be put between others.
    let flood = 20 * RANGES_MAX as u32;
    for step in 0..flood {
        let number = if step % 2 == 0 { flood + step } else { flood - step };
        exit.abandon(2 * number, 2 * number + 1);
        assert!(exit.ranges() <= RANGES_MAX);
    }
    assert!(exit.ranges() == RANGES_MAX && exit.reorder.bytes() == 0);
    // The nearest are remembered: 1 is in the way of none of them.
    assert_eq!(exit.take(at(0), 1, HOLD), Taken::Kept);
    exit.abandon(0, 2 * flood);
    assert_eq!((exit.next(at(0)), exit.ranges()), (vec![1], 0));
    assert!(exit.is_at_rest());
}

/// An event at a bucket.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives(u32),
    Abandoned(u32, u32),
}

fn events() -> impl Strategy<Value = Vec<(Event, u64)>> {
    let event = prop_oneof![
        2 => (0u32..300).prop_map(Event::Arrives),
        1 => (0u32..300, 0u32..40).prop_map(|(from, count)| Event::Abandoned(from, from + count)),
    ];
    proptest::collection::vec((event, 0u64..20_000), 1..200)
}

fn beginning() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), any::<u32>(), u32::MAX - 300..=u32::MAX]
}

proptest! {
    /// A range is its numbers one by one, in whatever order, also behind and far ahead.
    #[test]
    fn a_range_is_its_numbers_one_by_one(
        start in beginning(),
        events in events(),
        is_backwards in any::<bool>(),
    ) {
        let (mut whole, mut singly) = (Exit::beginning_at(start), Exit::beginning_at(start));
        let mut now_us = 0;
        for (event, pause_us) in events {
            now_us += pause_us;
            let now = at(now_us);
            match event {
                Event::Arrives(number) => {
                    let taken = whole.take(now, number, HOLD);
                    prop_assert_eq!(taken, singly.take(now, number, HOLD));
                }
                Event::Abandoned(from, to) => {
                    whole.abandon(from, to);
                    let mut numbers: Vec<u32> = (from..to).collect();
                    if is_backwards {
                        numbers.reverse();
                    }
                    numbers.into_iter().for_each(|number| singly.abandon(number, number + 1));
                }
            }
            prop_assert_eq!(whole.next(now), singly.next(now));
            prop_assert_eq!(whole.reorder.due(), singly.reorder.due());
            prop_assert_eq!(whole.ranges(), singly.ranges());
        }
    }

    /// The receiver passes abandoned numbers and delivers all others in order.
    #[test]
    fn what_is_abandoned_is_passed_and_what_arrived_is_delivered(
        start in beginning(),
        events in events(),
    ) {
        let mut exit = Exit::beginning_at(start);
        let (mut next, mut now_us) = (0, 0);
        let (mut kept, mut gone) = (BTreeSet::new(), BTreeSet::new());
        let mut delivered = BTreeSet::new();
        for (event, pause_us) in events {
            now_us += pause_us;
            // Nobody waits so long that a gap is given up: that is tested above.
            let hold = Duration::from_secs(1_000);
            let mut expected = Vec::new();
            match event {
                Event::Arrives(number) => {
                    let is_new = !kept.contains(&number) && delivered.insert(number);
                    let taken = match number {
                        _ if !is_new => Taken::Duplicate,
                        _ if number < next => Taken::Late,
                        _ if number == next => Taken::Deliver,
                        _ => Taken::Kept,
                    };
                    prop_assert_eq!(exit.take(at(now_us), number, hold), taken);
                    match taken {
                        Taken::Deliver => next += 1,
                        Taken::Kept => drop(kept.insert(number)),
                        Taken::Late | Taken::Duplicate => {}
                    }
                }
                Event::Abandoned(from, to) => {
                    exit.abandon(from, to);
                    gone.extend(from..to);
                }
            }
            loop {
                if kept.remove(&next) {
                    expected.push(next);
                } else if !gone.contains(&next) {
                    break;
                }
                next += 1;
            }
            prop_assert_eq!(exit.next(at(now_us)), expected);
        }
        prop_assert_eq!(exit.reorder.is_empty(), kept.is_empty());
    }

    /// Copies of packets that are delivered as they arrive are dropped, and no order is kept.
    #[test]
    fn what_is_delivered_as_it_arrives_is_delivered_once(
        order in proptest::collection::vec(0u32..100, 1..300),
    ) {
        let (mut exit, mut seen) = (Exit::default(), BTreeSet::new());
        for number in order {
            prop_assert_eq!(exit.reorder.take_once(9, number), seen.insert(number));
            prop_assert!(exit.reorder.take_once(200, number) || seen.contains(&number));
        }
        // The numbers of packets in order are others.
        prop_assert_eq!(exit.take(at(0), 0, HOLD), Taken::Deliver);
    }
}
