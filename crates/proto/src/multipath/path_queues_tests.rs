use super::*;
use crate::multipath::scheduler::Scheduler;
use crate::packet::Checksum;
use crate::time::{Duration, Instant};

const NOW: Instant = Instant::from_nanos(1_000_000_000);
const EARLIEST: Scheduler = Scheduler::Earliest;

fn way(path: u32, mbps: f64, delay_ms: u64) -> PathSnapshot {
    PathSnapshot::free(path, NOW, mbps, Duration::from_millis(delay_ms) * 2)
}

fn packet(sequence: u32) -> Numbered {
    Numbered::new(PacketRecord::of_bucket(0), sequence)
}

fn bytes(packet: &[u8]) -> Parcel {
    Blocks::default().parcel((packet, &[]), Checksum::Unchecked).unwrap()
}

/// Gives packets as long as a path has need, and says which got which.
fn fill(lines: &mut PathQueues, ways: &mut [PathSnapshot]) -> Vec<u32> {
    let mut given = Vec::new();
    lines.settle(ways);
    while EARLIEST.needs(NOW, ways) {
        let place = EARLIEST.choose(NOW, ways, 1_000, Duration::ZERO).unwrap();
        lines.push(&mut ways[place], packet(given.len() as u32), bytes(&[0; 1_000]));
        given.push(ways[place].path.0);
    }
    given
}

#[test]
fn each_goes_where_it_arrives_first() {
    let mut lines = PathQueues::default();
    let mut ways = [way(1, 8.0, 0), way(2, 8.0, 5)];
    // The longer path gets its first when five have been given to the shorter one.
    let given = fill(&mut lines, &mut ways);
    assert_eq!(given[..7], [1, 1, 1, 1, 1, 1, 2]);
    assert!(given.iter().filter(|&&path| path == 2).count() <= 3, "{given:?}");
}

#[test]
fn a_path_gets_as_much_as_it_carries() {
    let mut lines = PathQueues::default();
    let mut ways = [way(1, 80.0, 0), way(2, 8.0, 0)];
    let given = fill(&mut lines, &mut ways);
    let slow = given.iter().filter(|&&path| path == 2).count();
    assert!((2..=3).contains(&slow) && given.len() >= 11 * slow - 12, "{given:?}");
}

#[test]
fn what_waits_is_known_by_the_first_of_each_bucket() {
    let mut lines = PathQueues::default();
    let mut ways = [way(1, 8.0, 0), way(2, 8.0, 0)];
    lines.settle(&mut ways);
    let given = [(0, 0, u32::MAX), (1, 0, 1), (1, 7, 40), (0, 7, 41), (0, 9, 3)];
    for (place, bucket, sequence) in given {
        let is_earlier = bucket == 9;
        let record = PacketRecord::of_bucket(bucket);
        let given = Numbered { record, is_earlier, ..packet(sequence) };
        lines.push(&mut ways[place], given, bytes(&[0; 1_000]));
    }
    let firsts = lines.firsts();
    assert_eq!(
        [firsts[0], firsts[7], firsts[9], firsts[1]],
        [Some(u32::MAX), Some(40), None, None]
    );
}

#[test]
fn a_line_has_a_longest() {
    let mut lines = PathQueues::default();
    let mut ways = [way(1, 8_000.0, 0), way(2, 8.0, 2_000)];
    let given = fill(&mut lines, &mut ways);
    assert!(lines.bytes() <= LINE_BYTES_MAX + 3_000, "{}", given.len());
    assert!(given.contains(&2));
}

#[test]
fn they_leave_in_the_order_in_which_they_were_given() {
    let mut lines = PathQueues::default();
    let mut ways = [way(1, 8.0, 0)];
    lines.settle(&mut ways);
    for number in 0..5 {
        lines.push(&mut ways[0], packet(number), bytes(&[number as u8; 1_000]));
    }
    assert_eq!(ways[0].waiting, 5_000);
    for number in 0..5 {
        let Job { path, given, packet, next } = lines.pop(&mut ways[0]).unwrap();
        assert_eq!(path, ways[0].path);
        assert_eq!((given.sequence, packet.packet()), (number, &[number as u8; 1_000][..]));
        assert_eq!(next.map(|(_, len)| len), (number < 4).then_some(1_000));
    }
    assert!(lines.is_empty() && ways[0].waiting == 0 && lines.pop(&mut ways[0]).is_none());
}

#[test]
fn what_is_stranded_is_given_out_again() {
    let mut lines = PathQueues::default();
    let mut both = [way(1, 8.0, 0), way(2, 8.0, 0)];
    lines.settle(&mut both);
    lines.push(&mut both[0], packet(0), bytes(&[1; 1_000]));
    lines.push(&mut both[1], packet(1), bytes(&[2; 1_000]));
    let mut ways = [both[1]];
    lines.settle(&mut ways);
    assert!(lines.has_stranded(&ways));
    let (given, stranded) = lines.take_stranded(&ways).unwrap();
    assert_eq!((given, stranded.packet()), (packet(0), &[1; 1_000][..]));
    assert!(lines.take_stranded(&ways).is_none());
    assert!(!lines.has_stranded(&ways));
    // The line that nobody needs goes, and the other is found where it is then.
    lines.settle(&mut ways);
    assert!(lines.pop(&mut ways[0]).is_some_and(|job| job.given == packet(1)));
}

#[test]
fn what_waits_over_new_keys_keeps_its_place_and_over_two_gets_one_in_the_order_that_it_had() {
    let (mut lines, mut blocks) = (PathQueues::default(), Blocks::default());
    let mut ways = [way(1, 8.0, 0), way(2, 8.0, 0)];
    lines.settle(&mut ways);
    let numbers = [(0, u32::MAX), (1, 0), (0, 1), (1, u32::MAX - 1)];
    for (place, sequence) in numbers {
        let whole = [place as u8; 1_000];
        lines.push(&mut ways[place], packet(sequence), bytes(&whole));
        // What another path got as well is not numbered twice: it goes.
        let record = PacketRecord::of_bucket(0).copied(Instance::Duplicate);
        let copy = Numbered::new(record, sequence);
        lines.push(&mut ways[1 - place], copy, bytes(&[9; 1_000]));
    }
    // It keeps its places while the keys that it has them under are there,
    let before = lines.bytes();
    lines.renumber(&mut blocks, |_| unreachable!());
    assert_eq!(lines.bytes(), before);
    assert!(lines.lines[0].given.front().is_some_and(|(given, _)| given.is_earlier));
    // and beside what came since.
    lines.push(&mut ways[0], packet(0), bytes(&[0; 1_000]));
    let mut next = 0..;
    lines.renumber(&mut blocks, |_| next.next().unwrap());
    lines.settle(&mut ways);
    let mut left = |place: usize| {
        let Job { given, packet, .. } = lines.pop(&mut ways[place]).unwrap();
        assert_eq!(packet.packet(), [place as u8; 1_000]);
        (given.sequence, given.is_earlier)
    };
    let numbers = [(1, false), (2, false), (3, false), (0, false), (0, true)];
    assert_eq!([0, 1, 0, 1, 0].map(&mut left), numbers);
    assert!(lines.is_empty());
}

#[test]
fn what_is_of_no_use_any_more_is_forgotten_and_the_rest_keeps_its_order() {
    let (mut lines, mut blocks) = (PathQueues::default(), Blocks::default());
    let mut ways = [way(1, 8.0, 0)];
    lines.settle(&mut ways);
    for sequence in 0..6 {
        lines.push(&mut ways[0], packet(sequence), bytes(&[sequence as u8; 1_000]));
    }
    lines.forget(&mut blocks, |_, packet| packet[0].is_multiple_of(2));
    lines.settle(&mut ways);
    assert_eq!((lines.bytes(), ways[0].waiting), (3_000, 3_000));
    let left = std::iter::from_fn(|| lines.pop(&mut ways[0])).map(|job| job.given.sequence);
    assert_eq!(left.collect::<Vec<_>>(), [1, 3, 5]);
    assert!(lines.is_empty());
}

#[test]
fn short_packets_take_room_as_well() {
    let mut lines = PathQueues::default();
    let mut ways = [way(1, 8_000.0, 0)];
    lines.settle(&mut ways);
    for _ in 0..PACKETS_MAX {
        assert!(!lines.are_full());
        lines.push(&mut ways[0], packet(0), bytes(&[0; 20]));
    }
    assert!(lines.are_full());
    lines.pop(&mut ways[0]);
    assert!(!lines.are_full());
}
