//! Suites of the data plane (docs/spec/handshake.md#9-suites-and-profiles).

use aws_lc_rs::aead;

use crate::wire::handshake::Floor;

/// An AEAD of the data plane. All are keyed at the handshake, so changing from one to another
/// costs nothing. The numbers are those of the key schedule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Suite {
    /// AES-256-GCM.
    Aes256Gcm = 0,
    /// AES-128-GCM.
    Aes128Gcm = 1,
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305 = 2,
}

impl Suite {
    /// Every suite, in the order of its number.
    pub const ALL: [Self; 3] = [Self::Aes256Gcm, Self::Aes128Gcm, Self::ChaCha20Poly1305];

    /// The name by which status shows it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Aes256Gcm => "aes-256-gcm",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// Whether the suite is strong enough for `floor`.
    pub fn meets(self, floor: Floor) -> bool {
        self.strength() >= floor
    }

    /// The highest floor that the suite meets.
    pub const fn strength(self) -> Floor {
        match self {
            Self::Aes128Gcm => Floor::BITS_128,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => Floor::BITS_256,
        }
    }

    pub(super) const fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

#[cfg(test)]
#[path = "suite_tests.rs"]
mod tests;
