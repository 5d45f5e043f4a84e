//! The single source of randomness. Nothing in this crate asks the operating system: the shell
//! hands in an [`Rng`] that does, tests and the simulated world one that does not.

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use super::kdf;

/// Where every random byte comes from: ephemeral keys, session indices, challenges, cookies.
///
/// The shell's implementation draws from the operating system and must not fail (a system that
/// cannot give randomness ends the process before the node is built). One stream of the same
/// bytes gives the same handshake, byte for byte.
pub trait Rng: Send {
    /// Fills `dest` with random bytes.
    fn fill(&mut self, dest: &mut [u8]);
}

/// `N` bytes from `rng`.
pub fn draw<const N: usize>(rng: &mut dyn Rng) -> [u8; N] {
    let mut bytes = [0; N];
    rng.fill(&mut bytes);
    bytes
}

/// A stream that its seed determines: for tests and the simulated world, never for real keys.
///
/// The ChaCha20 keystream (RFC 8439, 2.4) under SHA-256("rove seeded rng" || seed), block by
/// block. How the bytes are asked for does not matter, only how many were taken before.
pub struct SeededRng {
    cipher: LessSafeKey,
    next_block: u64,
    block: [u8; BLOCK_LEN],
    used: usize,
}

/// Bytes of keystream made at once.
const BLOCK_LEN: usize = 1_024;

impl SeededRng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        let key = kdf::sha256(&[b"rove seeded rng", &seed.to_be_bytes()]);
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).expect("a key of the right length");
        let cipher = LessSafeKey::new(key);
        Self { cipher, next_block: 0, block: [0; BLOCK_LEN], used: BLOCK_LEN }
    }

    /// Sealed zeros are the keystream; the tag is not wanted.
    fn refill(&mut self) {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.next_block.to_be_bytes());
        self.next_block += 1;
        self.block = [0; BLOCK_LEN];
        let nonce = Nonce::assume_unique_for_key(nonce);
        let _tag = self
            .cipher
            .seal_in_place_separate_tag(nonce, Aad::empty(), &mut self.block)
            .expect("one block is far below the cipher's limit");
        self.used = 0;
    }
}

impl Rng for SeededRng {
    fn fill(&mut self, mut dest: &mut [u8]) {
        while !dest.is_empty() {
            if self.used == BLOCK_LEN {
                self.refill();
            }
            let len = dest.len().min(BLOCK_LEN - self.used);
            let (now, later) = dest.split_at_mut(len);
            now.copy_from_slice(&self.block[self.used..self.used + len]);
            self.used += len;
            dest = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_stream_however_it_is_cut() {
        let (mut whole, mut parts) = ([0; 3_000], [0; 3_000]);
        SeededRng::new(7).fill(&mut whole);
        let mut rng = SeededRng::new(7);
        for chunk in parts.chunks_mut(37) {
            rng.fill(chunk);
        }
        assert_eq!(whole, parts);
        let other: [u8; 32] = draw(&mut SeededRng::new(8));
        assert_ne!(other, whole[..32]);
    }
}
