//! File content that both ends can make for themselves.

use crate::emu::Rng;
use sha2::{Digest, Sha256};

/// Content is made in blocks of this size, each from its own seed.
const BLOCK: usize = 16 * 1024;

/// The content of the file `/SEED/LENGTH`: random bytes that follow from the seed. No compression
/// on the way can make it smaller.
#[derive(Clone, Debug)]
pub struct Content {
    rng: Rng,
    left: u64,
}

impl Content {
    /// The content of `length` bytes that follows from `seed`.
    pub const fn new(seed: u64, length: u64) -> Self {
        Self { rng: Rng::new(seed), left: length }
    }

    /// The next bytes, at most 16 KiB; empty at the end.
    pub fn next_block<'a>(&mut self, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        let length = self.left.min(BLOCK as u64) as usize;
        buffer.resize(length, 0);
        self.rng.fill(buffer);
        self.left -= length as u64;
        buffer
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
