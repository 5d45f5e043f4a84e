//! Which numbers the peer hears are abandoned.

use super::*;
use crate::id::PathSerial;
use crate::recovery::packet::SpaceId;

/// A lost packet of this epoch and numbering.
fn lost(epoch: u32, framing: Framing) -> LostPacket {
    let mut frame = Vec::new();
    framing.emit(&mut frame);
    let at = Instant::ZERO;
    let space = SpaceId { epoch: EpochId(epoch), serial: PathSerial(0) };
    LostPacket { space, number: 0, at, first_at: at, attempts: 0, flow: None, kept: 0, frame }
}

#[test]
fn adjacent_numbers_of_a_bucket_are_one_range() {
    let mut queue = RetransmissionQueue::default();
    let numbers = [
        (1, 9, u32::MAX),
        (1, 9, 0),
        (1, 9, 1),
        (1, 9, 3), // not adjacent
        (1, 8, 4), // another bucket
        (2, 8, 5), // under other keys
    ];
    for (epoch, bucket, sequence) in numbers {
        queue.leave_out(&lost(epoch, Framing::InOrder { bucket, sequence }));
    }
    let ranges = [(1, 9, u32::MAX, 2), (1, 9, 3, 4), (1, 8, 4, 5), (2, 8, 5, 6)];
    let range = |(epoch, bucket, from, to)| Abandoned { epoch: EpochId(epoch), bucket, from, to };
    assert_eq!(queue.abandoned, ranges.map(range));
}

/// Nobody waits for a packet that is delivered when it arrives, and the first packet of a sequence
/// is needed for what it says of the sequence before.
#[test]
fn other_packets_abandon_nothing() {
    let mut queue = RetransmissionQueue::default();
    let others = [
        Framing::Plain,
        Framing::Once { bucket: 9, sequence: 7 },
        Framing::First { bucket: 9, epoch: 3, end: 5 },
    ];
    others.into_iter().for_each(|framing| queue.leave_out(&lost(1, framing)));
    assert_eq!(queue.abandoned, []);
}
