//! Inner packets that left by a path and that the peer has not told of yet: what is sent again by
//! another path when theirs is found dead.
//!
//! Not a repair of loss on a path that carries: that needs a congestion controller beside it.

use std::collections::VecDeque;

use crate::id::PacketNumber;
use crate::time::{Duration, Instant};

/// Bytes kept of one lane: what is in flight at 100 Mbit/s and 80 ms. Beyond that the oldest go.
pub const KEPT_BYTES_MAX: usize = 1 << 20;
/// How long a packet is worth sending again: after this its sender has done so itself.
pub const KEPT_TIME: Duration = Duration::from_secs(3);
/// A lane that rests holds no more memory than this.
const RESTING_BYTES_MAX: usize = 1 << 14;

/// Copies of frames in the order in which they left, end to end.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    bytes: VecDeque<u8>,
    entries: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: PacketNumber,
    len: usize,
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
}

impl Kept {
    /// Keeps a copy of `frame`, which leaves in the datagram `number`.
    pub fn push(&mut self, now: Instant, number: PacketNumber, frame: &[u8]) {
        while self.bytes.len() + frame.len() > KEPT_BYTES_MAX && self.forget_oldest() {}
        self.bytes.extend(frame);
        self.entries.push_back(Entry { number, len: frame.len(), at: now });
    }

    /// The peer has told of everything up to `largest`: it arrived, or was lost on a path that
    /// carries.
    pub fn acknowledged(&mut self, largest: PacketNumber) {
        while self.entries.front().is_some_and(|entry| entry.number <= largest) {
            self.forget_oldest();
        }
        if self.entries.is_empty() && self.bytes.capacity() > RESTING_BYTES_MAX {
            *self = Self::default();
        }
    }

    /// Takes out what left within [`KEPT_TIME`], in the order in which it left.
    pub fn take(&mut self, now: Instant) -> impl Iterator<Item = KeptFrame> + use<> {
        let Self { mut bytes, entries } = std::mem::take(self);
        let frames = entries.into_iter().map(move |Entry { number, len, at }| KeptFrame {
            number,
            at,
            frame: bytes.drain(..len).collect(),
        });
        frames.filter(move |kept| now.saturating_since(kept.at) < KEPT_TIME)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the newest will have been kept for too long; `None` while nothing is kept.
    pub fn due(&self) -> Option<Instant> {
        self.entries.back().map(|newest| newest.at + KEPT_TIME)
    }

    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.entries.pop_front() else { return false };
        self.bytes.drain(..oldest.len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn what_was_told_of_is_not_kept() {
        let mut kept = Kept::default();
        for number in 0..10 {
            kept.push(at(number), number, &[number as u8; 3]);
        }
        kept.acknowledged(6);
        let left: Vec<_> = kept.take(at(20)).map(|k| (k.number, k.frame)).collect();
        assert_eq!(left, [(7, vec![7; 3]), (8, vec![8; 3]), (9, vec![9; 3])]);
        assert!(kept.is_empty());
    }

    #[test]
    fn the_oldest_go_first_by_size_and_by_age() {
        let mut kept = Kept::default();
        for number in 0..2_000 {
            kept.push(at(number), number, &[0; 1_000]);
        }
        assert!(kept.bytes.len() <= KEPT_BYTES_MAX);
        let numbers: Vec<_> = kept.take(at(4_500)).map(|kept| kept.number).collect();
        assert_eq!((numbers.first(), numbers.last()), (Some(&1_501), Some(&1_999)));
    }

    #[test]
    fn a_lane_that_rests_holds_little() {
        let mut kept = Kept::default();
        for number in 0..200 {
            kept.push(at(0), number, &[0; 1_400]);
        }
        kept.acknowledged(199);
        assert!(kept.bytes.capacity() <= RESTING_BYTES_MAX);
    }
}
