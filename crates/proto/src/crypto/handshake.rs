//! The handshake of both ends: Noise IKpsk2 with an ML-KEM-768 secret in the psk slot, one round
//! trip, message 1 in two datagrams (docs/spec/handshake.md#11-processing-of-messages).
//!
//! Decides what is authentic and which keys follow from it. Refuses to know who is enrolled,
//! which counter was accepted last, what the load is and when to repeat: the caller decides these
//! between the steps, which are laid out so that it can. Nothing forged changes any state here:
//! a wrong message leaves initiator and waiting A as they were. What an attacker with the
//! responder's secret can do stands in docs/spec/handshake.md#12-limits.

use std::fmt;

use super::kdf;
use super::mac::Mac1Key;
use crate::error::DropReason;
use crate::wire::handshake::{LINK_LEN, MAC_LEN, MessageA};

mod initiator;
mod responder;

pub use initiator::{Initiator, MessagePair, UnusableKey};
pub use responder::{Complete, PendingA};

/// What names message A: the first half of the SHA-256 of all of it but mac2. B carries it, so
/// that a B belongs to one A only, whoever mixes halves of different exchanges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExchangeId(pub [u8; LINK_LEN]);

impl ExchangeId {
    /// The name of this A; cheap, so that a repeated A is known before it is decrypted.
    pub fn of(a: MessageA<'_>) -> Self {
        let hash = kdf::sha256(&[a.linked()]);
        let mut id = [0; LINK_LEN];
        id.copy_from_slice(&hash[..LINK_LEN]);
        Self(id)
    }
}

impl fmt::Debug for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "exchange:{a:02x}{b:02x}{c:02x}{d:02x}")
    }
}

/// Fills the mac1 field of `message`, which is followed by `after` bytes.
fn put_mac1(key: &Mac1Key, message: &mut [u8], after: usize) {
    let at = message.len() - after - MAC_LEN;
    let mac = key.mac(&message[..at]);
    message[at..at + MAC_LEN].copy_from_slice(&mac);
}

/// A failure inside Noise, whatever its kind: the peer must not learn which.
fn noise_failed(_: snow::Error) -> DropReason {
    DropReason::BadHandshake
}

/// Noise's Split as one secret.
fn raw_split(noise: &mut snow::HandshakeState) -> zeroize::Zeroizing<[u8; 64]> {
    let (first, second) = noise.dangerously_get_raw_split();
    let (first, second) = (zeroize::Zeroizing::new(first), zeroize::Zeroizing::new(second));
    let mut split = zeroize::Zeroizing::new([0; 64]);
    split[..32].copy_from_slice(first.as_ref());
    split[32..].copy_from_slice(second.as_ref());
    split
}

#[cfg(test)]
mod tests;
