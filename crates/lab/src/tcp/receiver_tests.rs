use super::*;
use crate::tcp::stream::Source;

const FIRST: u64 = ORIGIN + 1;

fn receiver(capacity: u64, shift: u8) -> Receiver {
    Receiver::new(Numbering::new(0), capacity, shift)
}

/// The wire numbers of `offer` as offsets from the first byte.
fn blocks(offer: &Offer) -> Vec<(u32, u32)> {
    offer.sacks.iter().map(|(from, to)| (from - 1, to - 1)).collect()
}

#[test]
fn what_comes_too_early_is_named_latest_first_and_read_in_order() {
    let mut receiver = receiver(65_536, 0);
    let bytes = Source::new(1).take(500);
    for at in [100usize, 300, 200] {
        receiver.arrives(0, FIRST + at as u64, &bytes[at..at + 50], false);
        assert!(receiver.is_due(0));
    }
    let offer = receiver.offer();
    assert_eq!(blocks(&offer), [(200, 250), (300, 350), (100, 150)]);
    receiver.arrives(0, FIRST + 140, &bytes[140..220], false);
    let offer = receiver.offer();
    assert_eq!(blocks(&offer), [(100, 250), (300, 350)], "joined");
    receiver.arrives(0, FIRST, &bytes[..300], false);
    let offer = receiver.offer();
    assert_eq!(offer.acknowledgment, 351);
    assert!(offer.sacks.is_empty());
    assert_eq!(receiver.read(1_000), &bytes[..350]);
}

#[test]
fn a_duplicate_is_named_once() {
    let mut receiver = receiver(65_536, 0);
    receiver.arrives(0, FIRST, &[1; 100], false);
    receiver.offer();
    receiver.arrives(0, FIRST + 20, &[1; 30], false);
    assert_eq!(blocks(&receiver.offer()), [(20, 50)]);
    assert!(receiver.offer().sacks.is_empty());
}

#[test]
fn the_window_closes_stays_closed_and_opens_when_it_is_worth_it() {
    let mut receiver = receiver(10_000, 0);
    for at in 0..10u64 {
        receiver.arrives(0, FIRST + at * 1_000, &[0; 1_000], false);
        receiver.offer();
    }
    assert_eq!(receiver.offer().window, 0);
    receiver.arrives(0, FIRST + 10_000, &[0; 1_000], false);
    assert_eq!(receiver.offer().acknowledgment, 10_001, "there is no room");
    receiver.read(300);
    assert!(!receiver.is_due(0), "too little to speak of");
    receiver.read(2_000);
    assert!(receiver.is_due(0));
    assert_eq!(receiver.offer().window, 2_300);
}

#[test]
fn every_second_segment_is_acknowledged_and_a_single_one_after_40_ms() {
    let mut receiver = receiver(1 << 20, 5);
    for at in 0..40u64 {
        receiver.arrives(at, FIRST + at * 1_000, &[0; 1_000], false);
        receiver.read(usize::MAX);
        if receiver.is_due(at) {
            receiver.offer();
        }
    }
    receiver.offer();
    receiver.arrives(100, FIRST + 40_000, &[0; 1_000], false);
    receiver.read(usize::MAX);
    assert!(!receiver.is_due(100));
    assert!(receiver.is_due(100 + 44 * MS));
    receiver.arrives(101, FIRST + 41_000, &[0; 1_000], false);
    receiver.read(usize::MAX);
    assert!(receiver.is_due(101));
}

#[test]
fn the_end_counts_when_everything_before_it_is_there() {
    let mut receiver = receiver(65_536, 0);
    receiver.arrives(0, FIRST + 10, &[2; 10], true);
    assert!(!receiver.is_finished());
    receiver.arrives(0, FIRST, &[1; 10], false);
    assert!(receiver.is_finished());
    assert_eq!(receiver.offer().acknowledgment, 22);
    assert_eq!(receiver.delivered(), 20);
}

#[test]
fn timestamps_from_before_are_known() {
    let mut receiver = receiver(65_536, 0);
    receiver.take_timestamp(0, FIRST, 5);
    assert!(receiver.is_from_before(0, 4));
    assert!(!receiver.is_from_before(0, 5));
    assert!(!receiver.is_from_before(RECENT_AGE_NS, 4), "nobody remembers");
    receiver.take_timestamp(0, FIRST + 1, 9);
    assert_eq!(receiver.offer().echo, 5, "what lies beyond what is missing is not echoed");
}
