use super::*;

const NOW: Instant = Instant::from_nanos(1_000_000_000);

fn way(path: u32, mbps: f64, delay_ms: u64) -> Way {
    let delay = Duration::from_millis(delay_ms);
    Way { path: PathId(path), next_at: NOW, rate: mbps * 125_000.0, delay, is_open: true }
}

fn packet(sequence: u32) -> Given {
    Given { bucket: 0, sequence, len: 1_000, elsewhere: 0 }
}

/// Gives packets as long as a path has need, and says which got which.
fn fill(lines: &mut Lines, blocks: &mut Blocks, ways: &[Way]) -> Vec<u32> {
    let mut given = Vec::new();
    while lines.starve(NOW, ways) {
        let path = lines.choose(NOW, ways, 1_000).unwrap();
        lines.push(blocks, path, packet(given.len() as u32), &[0; 1_000]);
        given.push(path.0);
    }
    given
}

#[test]
fn each_goes_where_it_arrives_first() {
    let (mut lines, mut blocks) = (Lines::default(), Blocks::default());
    let ways = [way(1, 8.0, 0), way(2, 8.0, 5)];
    // The longer path gets its first when five have been given to the shorter one.
    let given = fill(&mut lines, &mut blocks, &ways);
    assert_eq!(given[..7], [1, 1, 1, 1, 1, 1, 2]);
    assert!(given.iter().filter(|&&path| path == 2).count() <= 3, "{given:?}");
}

#[test]
fn a_path_gets_as_much_as_it_carries() {
    let (mut lines, mut blocks) = (Lines::default(), Blocks::default());
    let ways = [way(1, 80.0, 0), way(2, 8.0, 0)];
    let given = fill(&mut lines, &mut blocks, &ways);
    let slow = given.iter().filter(|&&path| path == 2).count();
    assert!((2..=3).contains(&slow) && given.len() >= 11 * slow - 12, "{given:?}");
}

#[test]
fn what_is_closed_gets_nothing_and_needs_nothing() {
    let (lines, closed) = (Lines::default(), Way { is_open: false, ..way(1, 8.0, 0) });
    assert!(!lines.starve(NOW, &[closed]) && lines.choose(NOW, &[closed], 100).is_none());
    let far = way(2, 1.0, 900);
    assert_eq!(lines.choose(NOW, &[closed, far], 100), Some(PathId(2)));
    assert_eq!(Lines::quickest(NOW, &[closed, far], 100), Some(PathId(1)), "it does not wait");
}

#[test]
fn a_line_has_a_longest() {
    let (mut lines, mut blocks) = (Lines::default(), Blocks::default());
    let ways = [way(1, 8_000.0, 0), way(2, 8.0, 2_000)];
    let given = fill(&mut lines, &mut blocks, &ways);
    assert!(lines.bytes() <= LINE_BYTES_MAX + 3_000, "{}", given.len());
    assert!(given.contains(&2));
}

#[test]
fn they_leave_in_the_order_in_which_they_were_given() {
    let (mut lines, mut blocks) = (Lines::default(), Blocks::default());
    for number in 0..5 {
        lines.push(&mut blocks, PathId(1), packet(number), &[number as u8; 1_000]);
    }
    for number in 0..5 {
        let (given, front, back) = lines.front(PathId(1)).unwrap();
        assert_eq!((given.sequence, [front, back].concat()), (number, vec![number as u8; 1_000]));
        lines.pop(&mut blocks, PathId(1));
    }
    assert!(lines.is_empty() && lines.front(PathId(1)).is_none());
}

#[test]
fn what_is_stranded_is_given_out_again() {
    let (mut lines, mut blocks, mut taken) = (Lines::default(), Blocks::default(), Vec::new());
    lines.push(&mut blocks, PathId(1), packet(0), &[1; 1_000]);
    lines.push(&mut blocks, PathId(2), packet(1), &[2; 1_000]);
    let ways = [way(2, 8.0, 0)];
    assert_eq!(lines.take_stranded(&mut blocks, &ways, &mut taken), Some(packet(0)));
    assert_eq!(taken, vec![1; 1_000]);
    assert_eq!(lines.take_stranded(&mut blocks, &ways, &mut taken), None);
    assert!(lines.front(PathId(2)).is_some());
}

#[test]
fn new_keys_number_anew_what_waits_in_the_order_that_it_had() {
    let (mut lines, mut blocks) = (Lines::default(), Blocks::default());
    let numbers = [(1, u32::MAX), (2, 0), (1, 1), (2, u32::MAX - 1)];
    for (path, sequence) in numbers {
        lines.push(&mut blocks, PathId(path), packet(sequence), &[0; 1_000]);
    }
    let mut next = 0..;
    lines.renumber(|_| next.next().unwrap());
    let mut left = |path| {
        let (given, ..) = lines.front(PathId(path)).unwrap();
        lines.pop(&mut blocks, PathId(path));
        given.sequence
    };
    assert_eq!([1, 2, 1, 2].map(&mut left), [1, 2, 3, 0]);
}
