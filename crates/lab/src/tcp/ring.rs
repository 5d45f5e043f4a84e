//! Bytes out of a ring, in whole runs: byte by byte was the dearest thing that a world did.

use std::collections::VecDeque;
use std::ops::Range;

/// A range of a ring's bytes, which it has to hold.
pub(super) fn copy(ring: &VecDeque<u8>, range: Range<usize>) -> Vec<u8> {
    let (first, second) = ring.as_slices();
    let middle = first.len();
    let mut bytes = Vec::with_capacity(range.len());
    bytes.extend_from_slice(&first[range.start.min(middle)..range.end.min(middle)]);
    let (start, end) = (range.start.saturating_sub(middle), range.end.saturating_sub(middle));
    bytes.extend_from_slice(&second[start..end]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_is_what_lies_there_wherever_the_ring_begins() {
        let mut ring = VecDeque::with_capacity(16);
        for turn in 0..40_u8 {
            ring.push_back(turn);
            if ring.len() > 11 {
                ring.pop_front();
            }
            for (start, end) in (0..=ring.len()).flat_map(|end| (0..=end).map(move |at| (at, end)))
            {
                let plain: Vec<u8> = ring.range(start..end).copied().collect();
                assert_eq!(copy(&ring, start..end), plain, "{turn}: {start}..{end}");
            }
        }
    }
}
