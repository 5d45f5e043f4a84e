//! Inner packets larger than the path: split into pieces, put together again.
//!
//! What is split is the packet's whole frame, its sequence included: a packet that travels whole by
//! one path and in pieces by another is still delivered once.
//!
//! Only until the path's MTU is known, or on paths whose MTU really is small: the table is small
//! and a packet's pieces must arrive within two seconds.

use crate::error::DropReason;
use crate::time::{Duration, Instant};
use crate::wire::frame::{
    FRAGMENT_LAST, FRAGMENT_PIECES_MAX, NUMBERED_OVERHEAD, RETRANSMISSION_OVERHEAD,
};
use crate::wire::inner::MAX_PACKET;

/// Packets that may be incomplete at once.
pub(crate) const INCOMPLETE_MAX: usize = 32;
/// How long a packet may stay incomplete.
pub(crate) const INCOMPLETE_TIME: Duration = Duration::from_secs(2);

/// The longest frame that is split, in bytes.
pub(crate) const FRAME_MAX: usize = MAX_PACKET + RETRANSMISSION_OVERHEAD;

const _: () = assert!(NUMBERED_OVERHEAD <= RETRANSMISSION_OVERHEAD);
const _: () = assert!(INCOMPLETE_MAX * FRAME_MAX <= 48 * 1_024);
const _: () = assert!(FRAGMENT_PIECES_MAX <= 8, "arrivals are bits of a byte");

/// The pieces of a frame of `len` bytes, none longer than `room`: index byte and range. Empty
/// when it would take too many.
pub fn pieces(len: usize, room: usize) -> impl Iterator<Item = (u8, std::ops::Range<usize>)> {
    let count = len.div_ceil(room.max(1));
    let count = if count <= usize::from(FRAGMENT_PIECES_MAX) { count } else { 0 };
    (0..count).map(move |i| {
        let last = if i + 1 == count { FRAGMENT_LAST } else { 0 };
        #[expect(clippy::cast_possible_truncation, reason = "below FRAGMENT_PIECES_MAX")]
        let index = i as u8 | last;
        // Even pieces: the last must not be a sliver that doubles the cost of the packet.
        (index, len * i / count..len * (i + 1) / count)
    })
}

/// Puts pieces together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reassembly {
    incomplete: Vec<Incomplete>,
}

#[derive(Clone, Debug)]
struct Incomplete {
    packet_id: u32,
    since: Instant,
    pieces: [Vec<u8>; FRAGMENT_PIECES_MAX as usize],
    arrived: u8,
    last: Option<u8>,
}

impl Reassembly {
    /// Takes a piece. Returns the frame when this completes it.
    ///
    /// # Errors
    /// [`DropReason::Fragment`] when the piece contradicts what is known of its packet.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        packet_id: u32,
        index: u8,
        piece: &[u8],
    ) -> Result<Option<Vec<u8>>, DropReason> {
        let (number, is_last) = (index & !FRAGMENT_LAST, index & FRAGMENT_LAST != 0);
        if number >= FRAGMENT_PIECES_MAX || piece.is_empty() || piece.len() > FRAME_MAX {
            return Err(DropReason::Fragment);
        }
        let place = self.place(now, packet_id);
        let entry = &mut self.incomplete[place];
        let contradicts =
            entry.last.is_some_and(|last| number > last || (is_last && number != last));
        if contradicts || entry.arrived & (1 << number) != 0 {
            return Err(DropReason::Fragment);
        }
        let held: usize = entry.pieces.iter().map(Vec::len).sum();
        if held + piece.len() > FRAME_MAX {
            return Err(DropReason::Fragment);
        }
        if is_last {
            entry.last = Some(number);
        }
        entry.arrived |= 1 << number;
        entry.pieces[usize::from(number)] = piece.to_vec();
        let Some(last) = entry.last else { return Ok(None) };
        if entry.arrived != (2u8 << last) - 1 {
            return Ok(None);
        }
        let entry = self.incomplete.swap_remove(place);
        let packet = entry.pieces.concat();
        if packet.len() > FRAME_MAX { Err(DropReason::Fragment) } else { Ok(Some(packet)) }
    }

    /// Packets that are incomplete now.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.incomplete.len()
    }

    /// The packet's entry, made if need be at the cost of the oldest.
    fn place(&mut self, now: Instant, packet_id: u32) -> usize {
        self.incomplete.retain(|entry| now.saturating_since(entry.since) < INCOMPLETE_TIME);
        if let Some(place) = self.incomplete.iter().position(|e| e.packet_id == packet_id) {
            return place;
        }
        if self.incomplete.len() >= INCOMPLETE_MAX
            && let Some(oldest) =
                (0..self.incomplete.len()).min_by_key(|&i| self.incomplete[i].since)
        {
            self.incomplete.swap_remove(oldest);
        }
        self.incomplete.push(Incomplete {
            packet_id,
            since: now,
            pieces: Default::default(),
            arrived: 0,
            last: None,
        });
        self.incomplete.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn contradictions_are_refused() {
        let mut table = Reassembly::default();
        let mut receive = |index, piece: &[u8]| table.receive(Instant::ZERO, 1, index, piece);
        assert_eq!(receive(FRAGMENT_PIECES_MAX, b"x"), Err(DropReason::Fragment));
        assert_eq!(receive(0, b""), Err(DropReason::Fragment));
        assert_eq!(receive(1 | FRAGMENT_LAST, b"x"), Ok(None));
        assert_eq!(receive(1, b"x"), Err(DropReason::Fragment), "repeated");
        assert_eq!(receive(2, b"x"), Err(DropReason::Fragment), "beyond the last");
        assert_eq!(receive(0, b"y"), Ok(Some(b"yx".to_vec())));
    }

    #[test]
    fn the_table_is_bounded_and_forgets() {
        let mut table = Reassembly::default();
        for id in 0..100 {
            assert_eq!(table.receive(Instant::ZERO, id, 0, b"x"), Ok(None));
        }
        assert_eq!(table.len(), INCOMPLETE_MAX);
        let later = Instant::ZERO + INCOMPLETE_TIME;
        assert_eq!(table.receive(later, 200, 0, b"x"), Ok(None));
        assert_eq!(table.len(), 1);
    }

    proptest! {
        #[test]
        fn split_then_joined_is_the_same(
            packet in proptest::collection::vec(any::<u8>(), 1..MAX_PACKET),
            room in 400usize..1_300,
            rotate in 0usize..4,
        ) {
            let mut order: Vec<_> = pieces(packet.len(), room).collect();
            prop_assert!(order.iter().all(|(_, range)| range.len() <= room && !range.is_empty()));
            let count = order.len();
            order.rotate_left(rotate % count);
            let mut table = Reassembly::default();
            let mut joined = None;
            for (index, range) in order {
                joined = table.receive(Instant::ZERO, 9, index, &packet[range]).unwrap();
            }
            prop_assert_eq!(joined, Some(packet));
            prop_assert!(table.len() == 0);
        }
    }
}
