//! File content that both ends can make for themselves.

use crate::emu::Rng;
use sha2::{Digest, Sha256};

/// Content is made in blocks of this size, each from its own seed.
const BLOCK: usize = 16 * 1024;
/// Bytes that one random number makes.
const WORD: usize = 8;

/// The content of the file `/SEED/LENGTH`: random bytes that follow from the seed. No compression
/// on the way can make it smaller.
#[derive(Clone, Debug)]
pub struct Content {
    rng: Rng,
    left: u64,
    /// Bytes of the first block that are not wanted.
    skip: usize,
}

impl Content {
    /// The content of `length` bytes that follows from `seed`.
    pub const fn new(seed: u64, length: u64) -> Self {
        Self { rng: Rng::new(seed), left: length, skip: 0 }
    }

    /// A part of it, which begins at a byte and ends before another.
    pub fn part(seed: u64, from: u64, to: u64) -> Self {
        let word = WORD as u64;
        let mut rng = Rng::new(seed);
        rng.skip(from / word);
        let whole = Self { rng, left: to.saturating_sub(from - from % word), skip: 0 };
        Self { skip: (from % word) as usize, ..whole }
    }

    /// The next bytes, at most 16 KiB; empty at the end.
    pub fn next_block<'a>(&mut self, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        let length = self.left.min(BLOCK as u64) as usize;
        buffer.resize(length, 0);
        self.rng.fill(buffer);
        self.left -= length as u64;
        let skip = std::mem::take(&mut self.skip).min(length);
        &buffer[skip..]
    }
}

/// Holds what arrives, byte by byte, against what must.
#[derive(Debug)]
pub struct Comparison {
    content: Content,
    block: Vec<u8>,
    /// How much of the block has arrived.
    at: usize,
    same: bool,
}

impl Comparison {
    /// With the content of `length` bytes that follows from `seed`.
    pub const fn new(seed: u64, length: u64) -> Self {
        Self { content: Content::new(seed, length), block: Vec::new(), at: 0, same: true }
    }

    /// Takes what has arrived; more than there is to come is no match.
    pub fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.at == self.block.len() {
                self.at = 0;
                if self.content.next_block(&mut self.block).is_empty() {
                    self.same = false;
                    return;
                }
            }
            let expected = &self.block[self.at..];
            let count = expected.len().min(bytes.len());
            self.same &= expected[..count] == bytes[..count];
            self.at += count;
            bytes = &bytes[count..];
        }
    }

    /// Whether all of it was as it must be.
    pub const fn same(&self) -> bool {
        self.same
    }
}

/// The SHA-256 of a file's content, in lowercase hexadecimal.
pub fn sha256_of(seed: u64, length: u64) -> String {
    let mut content = Content::new(seed, length);
    let (mut hash, mut buffer) = (Sha256::new(), Vec::new());
    loop {
        let block = content.next_block(&mut buffer);
        if block.is_empty() {
            return hex(&hash.finalize());
        }
        hash.update(block);
    }
}

/// Lowercase hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Comparison, Content};

    fn read(mut content: Content) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), Vec::new());
        loop {
            let block = content.next_block(&mut buffer);
            if block.is_empty() {
                return all;
            }
            all.extend_from_slice(block);
        }
    }

    #[test]
    fn what_arrives_is_compared_to_the_last_byte() {
        let whole = read(Content::new(7, 40_003));
        let compare = |pieces: &[&[u8]]| {
            let mut comparison = Comparison::new(7, 40_003);
            pieces.iter().for_each(|piece| comparison.take(piece));
            comparison.same()
        };
        assert!(compare(&[&whole]));
        assert!(compare(&[&whole[..1], &whole[1..16_390], &whole[16_390..]]));
        assert!(compare(&[&whole[..17_000]]), "as far as it came");
        assert!(!compare(&[&whole[..100], &whole[50..]]), "a part came twice");
        assert!(!compare(&[&whole[..100], &whole[101..]]), "a byte is missing");
        assert!(!compare(&[&whole, &[0]]), "more than there is");
        let mut turned = whole;
        turned[40_002] ^= 1;
        assert!(!compare(&[&turned]));
    }

    #[test]
    fn a_part_is_what_the_whole_has_there() {
        let whole = read(Content::new(7, 40_003));
        assert_eq!(whole.len(), 40_003);
        for (from, to) in [(0, 40_003), (8, 16_384), (3, 5), (16_383, 16_390), (40_001, 40_003)] {
            let part = read(Content::part(7, from, to));
            assert_eq!(part, whole[from as usize..to as usize], "{from} to {to}");
        }
        assert!(read(Content::part(7, 5, 5)).is_empty() && read(Content::new(7, 0)).is_empty());
    }
}
