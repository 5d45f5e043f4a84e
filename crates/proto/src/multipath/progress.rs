//! How far a sequence has been delivered, and which of its last numbers were skipped.

/// Numbers so far ahead are behind.
pub(super) const HALF: u32 = 1 << 31;

/// The receiving side of one sequence, which begins at 0. It remembers the last `64 * WORDS`
/// numbers, so each of those is delivered once, also if it arrives after it was skipped.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress<const WORDS: usize> {
    /// The number that is delivered next.
    next: u32,
    /// Skipped numbers before it. There once a number was skipped.
    missing: Option<Box<Window<WORDS>>>,
}

/// A bit for each of the last `64 * WORDS` numbers of a sequence.
#[derive(Clone, Debug)]
struct Window<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Progress<WORDS> {
    /// Numbers that it remembers.
    #[expect(clippy::cast_possible_truncation, reason = "a few thousand")]
    const WINDOW: u32 = 64 * WORDS as u32;

    /// The number that is delivered next.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    /// Whether a number before the next one is delivered, late: it was skipped and is remembered.
    pub(super) fn take_late(&mut self, sequence: u32) -> bool {
        let is_recent = self.next.wrapping_sub(sequence) <= Self::WINDOW;
        let missing = self.missing.as_mut().filter(|_| is_recent);
        missing.is_some_and(|missing| missing.remove(sequence))
    }

    /// The next number is delivered.
    pub(super) fn advance(&mut self) {
        if let Some(missing) = &mut self.missing {
            missing.remove(self.next);
        }
        self.next = self.next.wrapping_add(1);
    }

    /// Skips all numbers before `sequence`, which is not behind.
    pub(super) fn skip_to(&mut self, sequence: u32) {
        let skipped = sequence.wrapping_sub(self.next);
        if skipped > 0 {
            let missing = self.missing.get_or_insert_default();
            missing.insert_before(sequence, skipped.min(Self::WINDOW));
            self.next = sequence;
        }
    }
}

impl<const WORDS: usize> Window<WORDS> {
    /// Inserts so many numbers before `end`, at most all: word by word, since a peer says how many.
    fn insert_before(&mut self, end: u32, count: u32) {
        let mut left = count;
        while left > 0 {
            let (word, _) = Self::place(end.wrapping_sub(left));
            let from = end.wrapping_sub(left) % 64;
            let some = left.min(64 - from);
            self.0[word] |= (u64::MAX >> (64 - some)) << from;
            left -= some;
        }
    }

    /// Returns whether it was there.
    fn remove(&mut self, sequence: u32) -> bool {
        let (word, bit) = Self::place(sequence);
        let was_there = self.0[word] & bit != 0;
        self.0[word] &= !bit;
        was_there
    }

    const fn place(sequence: u32) -> (usize, u64) {
        ((sequence / 64) as usize % WORDS, 1 << (sequence % 64))
    }
}

impl<const WORDS: usize> Default for Window<WORDS> {
    fn default() -> Self {
        const { assert!(WORDS.is_power_of_two(), "numbers wrap") };
        Self([0; WORDS])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn many_numbers_at_once_are_as_many_one_by_one(end: u32, count in 0..=512u32) {
            let (mut at_once, mut singly) = (Window::<8>::default(), Window::<8>::default());
            at_once.insert_before(end, count);
            (1..=count).for_each(|back| singly.insert_before(end.wrapping_sub(back - 1), 1));
            prop_assert_eq!(at_once.0, singly.0);
            let held = (0..512).filter(|&back| at_once.remove(end.wrapping_sub(back + 1))).count();
            prop_assert_eq!(held, count as usize);
        }

        /// As far back as it remembers, each number is delivered once.
        #[test]
        fn each_is_delivered_once(
            start in prop_oneof![any::<u32>(), u32::MAX - 200..=u32::MAX, Just(0)],
            steps in proptest::collection::vec((any::<bool>(), 0u32..140), 1..500),
        ) {
            let mut progress = Progress::<2> { next: start, missing: None };
            let (mut next, mut skipped) = (0u32, BTreeSet::new());
            for (is_ahead, distance) in steps {
                let behind = next.saturating_sub(distance);
                let number = if is_ahead { next + distance / 8 } else { behind };
                let sequence = start.wrapping_add(number);
                if number < next {
                    let is_remembered = next - number <= 128;
                    let expected = skipped.remove(&number) && is_remembered;
                    prop_assert_eq!(progress.take_late(sequence), expected, "{}", number);
                } else {
                    progress.skip_to(sequence);
                    progress.advance();
                    skipped.extend(next..number);
                    next = number + 1;
                }
                prop_assert_eq!(progress.next(), start.wrapping_add(next));
            }
        }
    }
}
