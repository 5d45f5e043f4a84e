//! What answers a keepalive (docs/spec/wire.md#9-keepalive).
//!
//! The key follows from the epoch, so only the two ends of a living session can make an answer. It
//! does not follow from the restart token of the index: a gateway tells that to whoever asks for an
//! index that leads nowhere.

use aws_lc_rs::hkdf::Prk;
use aws_lc_rs::hmac;

use super::kdf::{self, Secret};
use super::mac;
use crate::wire::keepalive::{Keepalive, KeepaliveProof, PROOF_LEN};

/// Makes the answers of one epoch.
pub(crate) struct KeepaliveKey(hmac::Key);

impl KeepaliveKey {
    pub(super) fn derive(epoch: &Prk) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key_bytes(epoch).as_ref()))
    }

    /// What answers this keepalive.
    pub(crate) fn answer(&self, keepalive: Keepalive) -> KeepaliveProof {
        let mut proof = [0; PROOF_LEN];
        let mac = mac::truncated(&self.0, &keepalive.emit());
        proof.copy_from_slice(&mac[..PROOF_LEN]);
        KeepaliveProof(proof)
    }
}

pub(super) fn key_bytes(epoch: &Prk) -> Secret {
    kdf::expand(epoch, &[b"rove v1 keepalive"])
}

impl std::fmt::Debug for KeepaliveKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeepaliveKey(..)")
    }
}
