//! ML-KEM-768 (FIPS 203) from libcrux, with the randomness handed in, and how its secret enters
//! Noise (docs/spec/handshake.md#7-noise-and-ml-kem).

use libcrux_ml_kem::mlkem768::{self, MlKem768Ciphertext, MlKem768KeyPair, MlKem768PublicKey};
use zeroize::Zeroizing;

use super::kdf::{self, Secret};
use super::rng::{Rng, draw};
use crate::id::SessionIndex;
use crate::wire::handshake::{CT_LEN, EK_LEN};

/// An ephemeral decapsulation key, kept as the seed it grows from: erasing 64 bytes is certain,
/// and growing it again costs a fifth of what a Diffie-Hellman does.
pub(super) struct KemSecret {
    seed: Zeroizing<[u8; 64]>,
}

impl KemSecret {
    pub(super) fn generate(rng: &mut dyn Rng) -> Self {
        Self { seed: Zeroizing::new(draw(rng)) }
    }

    pub(super) fn encapsulation_key(&self) -> [u8; EK_LEN] {
        *self.key_pair().public_key().as_slice()
    }

    /// The shared secret in `ciphertext`. A ciphertext that nobody made for this key gives a
    /// secret that nobody knows (implicit rejection), so the failure shows in Noise message 2.
    pub(super) fn decapsulate(&self, ciphertext: &[u8; CT_LEN]) -> Secret {
        let ciphertext = MlKem768Ciphertext::from(ciphertext);
        Zeroizing::new(mlkem768::decapsulate(self.key_pair().private_key(), &ciphertext))
    }

    fn key_pair(&self) -> MlKem768KeyPair {
        mlkem768::generate_key_pair(*self.seed)
    }
}

/// A peer's encapsulation key that passed the check of FIPS 203, 7.2.
pub(super) struct KemPublic {
    key: MlKem768PublicKey,
}

impl KemPublic {
    /// `None` when a coefficient is out of range: such a key was not made by ML-KEM.
    pub(super) fn new(bytes: [u8; EK_LEN]) -> Option<Self> {
        let key = MlKem768PublicKey::from(bytes);
        mlkem768::validate_public_key(&key).then_some(Self { key })
    }

    pub(super) fn encapsulate(&self, rng: &mut dyn Rng) -> ([u8; CT_LEN], Secret) {
        let randomness: Secret = Zeroizing::new(draw(rng));
        let (ciphertext, secret) = mlkem768::encapsulate(&self.key, *randomness);
        (ciphertext.into(), Zeroizing::new(secret))
    }
}

/// What of an exchange goes into its psk beside the secrets: everything of the response that
/// Noise does not see, so that a change of any of it makes Noise message 2 fail, before the
/// initiator's state has moved.
pub(super) struct Exchange<'a> {
    /// The handshake hash after message 1.
    pub(super) h1: &'a [u8; 32],
    /// SHA-256 of the encapsulation key.
    pub(super) ek_hash: &'a [u8; 32],
    pub(super) ciphertext: &'a [u8; CT_LEN],
    /// The sender index of the response.
    pub(super) sender: SessionIndex,
    /// The receiver index of the response.
    pub(super) receiver: SessionIndex,
}

impl Exchange<'_> {
    /// The key for Noise's psk slot: HKDF(static psk or zeros || KEM secret,
    /// "rove pq v1" || h1 || H(ek) || H(ct) || sender || receiver).
    pub(super) fn psk(&self, static_psk: Option<&[u8; 32]>, kem_secret: &Secret) -> Secret {
        let mut secret = Zeroizing::new([0; 64]);
        if let Some(psk) = static_psk {
            secret[..32].copy_from_slice(psk);
        }
        secret[32..].copy_from_slice(kem_secret.as_ref());
        let ct_hash = kdf::sha256(&[self.ciphertext]);
        let (sender, receiver) = (self.sender.0.to_be_bytes(), self.receiver.0.to_be_bytes());
        let info: [&[u8]; 6] = [b"rove pq v1", self.h1, self.ek_hash, &ct_hash, &sender, &receiver];
        kdf::expand(&kdf::extract(&[], secret.as_ref()), &info)
    }
}

#[cfg(test)]
#[path = "kem_tests.rs"]
mod tests;
