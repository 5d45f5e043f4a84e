//! Inner packets that left by a path and that the peer has not told of yet: what is sent again by
//! another path when theirs is found dead.
//!
//! Not a repair of loss on a path that carries: that needs a congestion controller beside it.

use std::collections::VecDeque;

use crate::blocks::{Blocks, Queue};
use crate::id::PacketNumber;
use crate::time::{Duration, Instant};

/// Bytes kept of one lane: what is in flight at 100 Mbit/s and 80 ms. Beyond that the oldest go.
pub const KEPT_BYTES_MAX: usize = 1 << 20;
/// How long a packet is worth sending again: after this its sender has done so itself.
pub const KEPT_TIME: Duration = Duration::from_secs(3);
/// A lane that rests remembers no more than so many packets' places.
const RESTING_ENTRIES: usize = 16;

/// Copies of frames in the order in which they left, end to end; without the payload of a
/// connection that is kept there, where it is.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    bytes: Queue,
    entries: VecDeque<Entry>,
    /// Bytes of all the frames, with what of them is kept elsewhere.
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: PacketNumber,
    len: usize,
    elsewhere: usize,
    at: Instant,
}

/// A frame that is taken out to be sent again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptFrame {
    /// The number of the datagram that it left in.
    pub number: PacketNumber,
    /// When it left.
    pub at: Instant,
    /// The frame with its type.
    pub frame: Vec<u8>,
    /// How many bytes of its end are kept elsewhere.
    pub elsewhere: usize,
}

impl KeptFrame {
    /// Bytes of the whole frame, wherever they are kept.
    pub const fn whole_len(&self) -> usize {
        self.frame.len() + self.elsewhere
    }
}

impl Kept {
    /// Keeps a copy of `frame`, which leaves in the datagram `number`, but for the last
    /// `elsewhere` bytes.
    pub fn push(
        &mut self,
        blocks: &mut Blocks,
        now: Instant,
        number: PacketNumber,
        frame: &[u8],
        elsewhere: usize,
    ) {
        let len = frame.len().saturating_sub(elsewhere);
        while self.len + frame.len() > KEPT_BYTES_MAX && self.forget_oldest(blocks) {}
        self.len += len + elsewhere;
        self.bytes.push(blocks, &frame[..len]);
        self.entries.push_back(Entry { number, len, elsewhere, at: now });
    }

    /// The peer has told of everything up to `largest`: it arrived, or was lost on a path that
    /// carries.
    pub fn acknowledged(&mut self, blocks: &mut Blocks, largest: PacketNumber) {
        while self.entries.front().is_some_and(|entry| entry.number <= largest) {
            self.forget_oldest(blocks);
        }
        if self.entries.is_empty() {
            self.entries.shrink_to(RESTING_ENTRIES);
        }
    }

    /// Takes out the oldest of what left within [`KEPT_TIME`]; what left before is forgotten.
    pub fn take(&mut self, blocks: &mut Blocks, now: Instant) -> Option<KeptFrame> {
        while let Some(&Entry { number, len, elsewhere, at }) = self.entries.front() {
            let is_fresh = now.saturating_since(at) < KEPT_TIME;
            let frame = is_fresh.then(|| self.bytes.to_vec(len));
            self.forget_oldest(blocks);
            if let Some(frame) = frame {
                return Some(KeptFrame { number, at, frame, elsewhere });
            }
        }
        None
    }

    /// Forgets everything.
    pub fn clear(&mut self, blocks: &mut Blocks) {
        self.bytes.truncate(blocks, 0);
        self.entries = VecDeque::new();
        self.len = 0;
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the newest will have been kept for too long; `None` while nothing is kept.
    pub fn due(&self) -> Option<Instant> {
        self.entries.back().map(|newest| newest.at + KEPT_TIME)
    }

    fn forget_oldest(&mut self, blocks: &mut Blocks) -> bool {
        let Some(oldest) = self.entries.pop_front() else { return false };
        self.len -= oldest.len + oldest.elsewhere;
        self.bytes.forget_first(blocks, oldest.len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn all(kept: &mut Kept, blocks: &mut Blocks, now: Instant) -> Vec<KeptFrame> {
        std::iter::from_fn(|| kept.take(blocks, now)).collect()
    }

    #[test]
    fn what_was_told_of_is_not_kept() {
        let (mut kept, mut blocks) = (Kept::default(), Blocks::default());
        for number in 0..10 {
            kept.push(&mut blocks, at(number), number, &[number as u8; 3], 0);
        }
        kept.acknowledged(&mut blocks, 6);
        let left = all(&mut kept, &mut blocks, at(20));
        let left: Vec<_> = left.into_iter().map(|kept| (kept.number, kept.frame)).collect();
        assert_eq!(left, [(7, vec![7; 3]), (8, vec![8; 3]), (9, vec![9; 3])]);
        assert!(kept.is_empty());
    }

    #[test]
    fn what_is_kept_elsewhere_is_not_kept_twice() {
        let (mut kept, mut blocks) = (Kept::default(), Blocks::default());
        kept.push(&mut blocks, at(0), 0, b"headpayload", 7);
        kept.push(&mut blocks, at(0), 1, b"whole", 0);
        let left = all(&mut kept, &mut blocks, at(1));
        let left: Vec<_> = left.iter().map(|kept| (&kept.frame[..], kept.elsewhere)).collect();
        assert_eq!(left, [(&b"head"[..], 7), (b"whole", 0)]);
    }

    #[test]
    fn the_oldest_go_first_by_size_and_by_age() {
        let (mut kept, mut blocks) = (Kept::default(), Blocks::default());
        for number in 0..2_000 {
            kept.push(&mut blocks, at(number), number, &[0; 1_000], 0);
        }
        assert!(kept.bytes.len() <= KEPT_BYTES_MAX);
        let left = all(&mut kept, &mut blocks, at(4_500));
        let numbers: Vec<_> = left.into_iter().map(|kept| kept.number).collect();
        assert_eq!((numbers.first(), numbers.last()), (Some(&1_501), Some(&1_999)));
    }

    #[test]
    fn what_is_kept_elsewhere_counts() {
        let (mut kept, mut blocks) = (Kept::default(), Blocks::default());
        for number in 0..2_000 {
            kept.push(&mut blocks, at(0), number, &[0; 1_000], 950);
        }
        let left = all(&mut kept, &mut blocks, at(1));
        let bytes: usize = left.iter().map(KeptFrame::whole_len).sum();
        assert!(bytes <= KEPT_BYTES_MAX && bytes + 1_000 > KEPT_BYTES_MAX, "{bytes}");
    }

    #[test]
    fn a_lane_that_rests_holds_little() {
        let (mut kept, mut blocks) = (Kept::default(), Blocks::default());
        for number in 0..200 {
            kept.push(&mut blocks, at(0), number, &[0; 1_400], 0);
        }
        kept.acknowledged(&mut blocks, 199);
        assert!(kept.entries.capacity() <= RESTING_ENTRIES);
        assert_eq!(kept.bytes.blocks(), 0);
    }
}
