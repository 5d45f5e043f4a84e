//! Numbers of a sequence that its sender has given up. The receiver does not wait for them.
//!
//! A peer chooses the numbers, so the cost is bounded. A range costs the same as one number, and
//! ranges that touch are merged. If there are too many, the farthest are forgotten. The receiver
//! waits for those as for any other gap.

use std::collections::VecDeque;

use super::bucket::BUCKETS;
use super::progress::HALF;

/// Ranges of one sequence that are remembered. Few are open at once: the sender reports them in
/// order, and each goes when the sequence has passed it.
pub(super) const RANGES_MAX: usize = 256;
// The memory of all buckets of an epoch. A queue has room for up to twice as many as it holds.
const _: () = assert!(BUCKETS * 2 * RANGES_MAX * size_of::<Range>() <= 1 << 20);

/// Abandoned numbers that the sequence has not passed yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Abandoned {
    /// In the order of the sequence. No two of them touch.
    ranges: VecDeque<Range>,
}

/// The numbers from `from` up to but not including `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    from: u32,
    to: u32,
}

impl Abandoned {
    /// Abandons the numbers from `from` up to but not including `to`, as far as they are not before
    /// `next`. A range of no number, or of half of all, is ignored.
    pub(super) fn insert(&mut self, next: u32, from: u32, to: u32) {
        self.pass(next);
        let ahead = |number: u32| number.wrapping_sub(next);
        let is_range = (1..HALF).contains(&to.wrapping_sub(from));
        if !is_range || !(1..HALF).contains(&ahead(to)) {
            return;
        }
        let mut new = Range { from: if ahead(from) < HALF { from } else { next }, to };
        let start = self.ranges.partition_point(|range| ahead(range.to) < ahead(new.from));
        let end = self.ranges.partition_point(|range| ahead(range.from) <= ahead(new.to));
        for range in self.ranges.drain(start..end) {
            new.from = if ahead(range.from) < ahead(new.from) { range.from } else { new.from };
            new.to = if ahead(range.to) > ahead(new.to) { range.to } else { new.to };
        }
        self.ranges.insert(start, new);
        self.ranges.truncate(RANGES_MAX);
    }

    /// The end of the range that begins with `next`, if there is one. Numbers before `next` are
    /// forgotten.
    pub(super) fn end_of_next(&mut self, next: u32) -> Option<u32> {
        self.pass(next);
        self.ranges.front().filter(|range| range.from == next).map(|range| range.to)
    }

    /// How many ranges are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    fn pass(&mut self, next: u32) {
        let is_ahead = |number: u32| (1..HALF).contains(&number.wrapping_sub(next));
        while let Some(first) = self.ranges.front_mut()
            && !is_ahead(first.from)
        {
            if is_ahead(first.to) {
                first.from = next;
                return;
            }
            self.ranges.pop_front();
            if self.ranges.is_empty() {
                self.ranges = VecDeque::new(); // many ranges keep no memory once they are passed
            }
        }
    }
}
