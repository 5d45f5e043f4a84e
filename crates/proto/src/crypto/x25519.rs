//! X25519 (RFC 7748) from aws-lc, and the identity that rests on it.
//!
//! A shared secret that comes out all zero (a point of small order as public key) is refused, as
//! RFC 7748, 6.1 allows: Noise itself does not ask for it, but without it a peer could fix the
//! secret. aws-lc checks this; the tests hold it to that.

use std::fmt;

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use zeroize::Zeroizing;

use super::kdf::Secret;
use super::rng::Rng;
use crate::id::PeerKey;

/// A long-term secret key: a node's identity. Erased when dropped; `Debug` shows the public key.
#[derive(Clone)]
pub struct StaticSecret {
    secret: Secret,
    public: PeerKey,
}

impl StaticSecret {
    /// The identity with these 32 bytes as its secret (any are valid: RFC 7748, 5).
    pub fn new(bytes: [u8; 32]) -> Self {
        let secret = Zeroizing::new(bytes);
        let public = PeerKey(KeyPair::new(&secret).public);
        Self { secret, public }
    }

    /// A new identity.
    pub fn generate(rng: &mut dyn Rng) -> Self {
        Self::new(super::rng::draw(rng))
    }

    /// The key by which others know it.
    pub const fn public(&self) -> PeerKey {
        self.public
    }

    /// The secret itself, for the store that keeps it.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl fmt::Debug for StaticSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticSecret({:?})", self.public)
    }
}

/// A key pair ready for agreements.
pub(super) struct KeyPair {
    secret: Secret,
    private: PrivateKey,
    public: [u8; 32],
}

impl KeyPair {
    pub(super) fn new(secret: &[u8; 32]) -> Self {
        let private = PrivateKey::from_private_key(&X25519, secret).expect("any 32 bytes are one");
        let computed = private.compute_public_key().expect("every private key has a public key");
        let mut public = [0; 32];
        public.copy_from_slice(computed.as_ref());
        Self { secret: Zeroizing::new(*secret), private, public }
    }

    pub(super) const fn public(&self) -> &[u8; 32] {
        &self.public
    }

    pub(super) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The shared secret with `public`; `None` when it would be all zero.
    pub(super) fn agree(&self, public: &[u8; 32]) -> Option<Secret> {
        let public = UnparsedPublicKey::new(&X25519, public);
        agree(&self.private, public, (), |shared| {
            Ok(Zeroizing::new(<[u8; 32]>::try_from(shared).map_err(|_| ())?))
        })
        .ok()
    }
}

#[cfg(test)]
#[path = "x25519_tests.rs"]
mod tests;
