//! The two MACs that guard the handshake's door, and the cookie that the second one proves
//! (docs/spec/handshake.md#4-macs-and-cookies). What they decide is cheap on purpose: one hash
//! before any Diffie-Hellman.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, hmac};
use zeroize::Zeroize;

use super::kdf::{self, Secret};
use crate::error::DropReason;
use crate::id::PeerKey;
use crate::wire::handshake::{COOKIE_LEN, COOKIE_NONCE_LEN, MAC_LEN};

/// A key of mac1. It is no secret: the MAC keeps out who does not even know whom he talks to, for
/// the price of one hash, and binds nothing else.
pub(super) struct Mac1Key(hmac::Key);

impl Mac1Key {
    /// For A and B: whoever knows the responder's public key can make it.
    pub(super) fn of_responder(responder: PeerKey) -> Self {
        Self::derive(b"rove mac1 v1", &responder.0)
    }

    /// For the response: whoever saw A can make it. Not keyed by the initiator's public key, or an
    /// observer could try the keys he knows and learn who asked.
    pub(super) fn of_exchange(h1: &[u8; 32]) -> Self {
        Self::derive(b"rove response mac v1", h1)
    }

    fn derive(label: &[u8], input: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &kdf::sha256(&[label, input])))
    }

    pub(super) fn mac(&self, message: &[u8]) -> [u8; MAC_LEN] {
        truncated(&self.0, message)
    }
}

/// What a responder under load hands to an address, and what mac2 is made with. Whoever holds it
/// can receive at the address it was made for.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookie([u8; COOKIE_LEN]);

impl Cookie {
    /// The cookie of `source` under `secret`.
    pub(super) fn of(secret: &Secret, source: SocketAddr) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref());
        let mut input = [0; 1 + 16 + 2];
        match source.ip() {
            IpAddr::V4(v4) => {
                input[0] = 4;
                input[1..5].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                input[0] = 6;
                input[1..17].copy_from_slice(&v6.octets());
            }
        }
        input[17..].copy_from_slice(&source.port().to_be_bytes());
        Self(truncated(&key, &input))
    }

    /// The mac2 of `message`, which ends before its mac2 field.
    pub(super) fn mac(&self, message: &[u8]) -> [u8; MAC_LEN] {
        truncated(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), message)
    }

    /// The cookie under a key that only who knows `responder` can make, bound to the message that
    /// it answers by that message's mac1: a reply to another message, or from off the path, does
    /// not open.
    pub(super) fn seal(
        &self,
        responder: PeerKey,
        nonce: &[u8; COOKIE_NONCE_LEN],
        mac1: &[u8; MAC_LEN],
    ) -> [u8; COOKIE_LEN + 16] {
        let mut cookie = self.0;
        let tag = sealing_key(responder, nonce)
            .seal_in_place_separate_tag(zero_nonce(), Aad::from(mac1), &mut cookie)
            .expect("16 bytes are far below the cipher's limit");
        let mut sealed = [0; COOKIE_LEN + 16];
        sealed[..COOKIE_LEN].copy_from_slice(&cookie);
        sealed[COOKIE_LEN..].copy_from_slice(tag.as_ref());
        sealed
    }

    /// The mirror of [`Self::seal`].
    pub(super) fn open(
        responder: PeerKey,
        nonce: &[u8; COOKIE_NONCE_LEN],
        mac1: &[u8; MAC_LEN],
        sealed: &[u8; COOKIE_LEN + 16],
    ) -> Result<Self, DropReason> {
        let mut sealed = *sealed;
        let opened = sealing_key(responder, nonce)
            .open_in_place(zero_nonce(), Aad::from(mac1), &mut sealed)
            .map_err(|_| DropReason::BadMac)?;
        Ok(Self(opened.try_into().map_err(|_| DropReason::BadMac)?))
    }
}

impl Drop for Cookie {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cookie(..)")
    }
}

/// Equality whose time does not tell where two MACs differ.
pub(crate) fn same(left: &[u8], right: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(left, right).is_ok()
}

pub(super) fn truncated(key: &hmac::Key, message: &[u8]) -> [u8; MAC_LEN] {
    let tag = hmac::sign(key, message);
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(&tag.as_ref()[..MAC_LEN]);
    mac
}

/// A fresh key for every nonce, so the AEAD's own nonce can be zero.
fn sealing_key(responder: PeerKey, nonce: &[u8; COOKIE_NONCE_LEN]) -> LessSafeKey {
    let key = kdf::expand::<32>(&kdf::extract(nonce, &responder.0), &[b"rove cookie v1"]);
    let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).expect("32 bytes");
    LessSafeKey::new(key)
}

fn zero_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}
