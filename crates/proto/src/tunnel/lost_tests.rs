//! Which numbers the peer hears are abandoned.

use super::*;

/// A lost packet of this epoch and numbering.
fn owed(epoch: u32, framing: Framing) -> Owed {
    let mut frame = Vec::new();
    framing.emit(&mut frame);
    let at = Instant::ZERO;
    let kept = KeptFrame { number: 0, at, first_at: at, attempts: 0, frame, elsewhere: 0 };
    Owed { epoch: EpochId(epoch), serial: PathSerial(0), kept }
}

#[test]
fn adjacent_numbers_of_a_bucket_are_one_range() {
    let mut lost = Lost::default();
    let numbers = [
        (1, 9, u32::MAX),
        (1, 9, 0),
        (1, 9, 1),
        (1, 9, 3), // not adjacent
        (1, 8, 4), // another bucket
        (2, 8, 5), // under other keys
    ];
    for (epoch, bucket, sequence) in numbers {
        lost.leave_out(&owed(epoch, Framing::InOrder { bucket, sequence }));
    }
    let ranges = [(1, 9, u32::MAX, 2), (1, 9, 3, 4), (1, 8, 4, 5), (2, 8, 5, 6)];
    let range = |(epoch, bucket, from, to)| Abandoned { epoch: EpochId(epoch), bucket, from, to };
    assert_eq!(lost.abandoned, ranges.map(range));
}

/// Nobody waits for a packet that is delivered when it arrives, and the first packet of a sequence
/// is needed for what it says of the sequence before.
#[test]
fn other_packets_abandon_nothing() {
    let mut lost = Lost::default();
    let others = [
        Framing::Plain,
        Framing::Once { bucket: 9, sequence: 7 },
        Framing::First { bucket: 9, epoch: 3, end: 5 },
    ];
    others.into_iter().for_each(|framing| lost.leave_out(&owed(1, framing)));
    assert_eq!(lost.abandoned, []);
}
