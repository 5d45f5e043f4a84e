//! From a finished handshake to the keys of an epoch (docs/spec/handshake.md#8-key-schedule).
//!
//! Everything below the epoch secret is separated by a label that names direction, suite and
//! zone, so no two uses share a key and adding a use changes none of the others.

use std::sync::Arc;

use aws_lc_rs::aead::quic::{self, HeaderProtectionKey};
use aws_lc_rs::aead::{LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::Prk;

use super::datagram::{DirectionKeys, OpenKey, SealKey};
use super::kdf::{self, Secret};
use super::keepalive::KeepaliveKey;
use super::profile::{ProfileIds, ProfileTable};
use super::suite::Suite;
use crate::wire::features::Features;
use crate::wire::handshake::{Floor, HeaderCipher};

/// The keys of one epoch of one session, as one end holds them. Both halves are shared by
/// reference and usable from any thread: sealing and opening change nothing in them.
#[derive(Clone, Debug)]
pub struct EpochKeys {
    /// Seals what this end sends.
    pub seal: Arc<SealKey>,
    /// Opens what the peer sends.
    pub open: Arc<OpenKey>,
    /// Answers keepalives.
    pub(crate) keepalive: Arc<KeepaliveKey>,
}

/// Which end of the handshake this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Initiator,
    Responder,
}

/// What a finished handshake gives.
pub(super) struct Finished<'a> {
    pub(super) handshake_hash: &'a [u8; 32],
    /// Noise's Split: both keys, initiator's first.
    pub(super) split: &'a [u8; 64],
    pub(super) header_cipher: HeaderCipher,
    pub(super) floor: Floor,
    /// Those that both ends have.
    pub(super) features: Features,
}

impl EpochKeys {
    /// epoch secret = HKDF-Extract(salt = handshake hash, ikm = split); the rest expands from it.
    pub(super) fn derive(role: Role, finished: &Finished<'_>) -> Self {
        let epoch = kdf::extract(finished.handshake_hash, finished.split);
        let keys = |direction| direction_keys(&epoch, direction, finished);
        let (initiators, responders) =
            (keys(Direction::FromInitiator), keys(Direction::FromResponder));
        let (sends, receives) = match role {
            Role::Initiator => (initiators, responders),
            Role::Responder => (responders, initiators),
        };
        Self {
            seal: Arc::new(SealKey::new(sends)),
            open: Arc::new(OpenKey::new(receives)),
            keepalive: Arc::new(KeepaliveKey::derive(&epoch)),
        }
    }
}

/// Who sends what the keys protect. The numbers are part of the labels.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Direction {
    FromInitiator = 0,
    FromResponder = 1,
}

/// The part of a packet that a key protects. The numbers are part of the labels; 1 (header) and
/// 2 (payload) belong to zoned profiles, which this version does not define.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Zone {
    Whole = 0,
}

fn direction_keys(epoch: &Prk, direction: Direction, finished: &Finished<'_>) -> DirectionKeys {
    let floor = finished.floor;
    let aead = |suite| aead_key(epoch, direction, suite, Zone::Whole);
    DirectionKeys {
        aead: Suite::ALL.map(|suite| suite.meets(floor).then(|| aead(suite))),
        header: mask_key(epoch, HEADER_LABEL, direction, finished.header_cipher),
        ids: profile_ids(epoch, direction, finished),
        floor,
        header_cipher: finished.header_cipher,
    }
}

fn profile_ids(epoch: &Prk, direction: Direction, finished: &Finished<'_>) -> ProfileIds {
    let by = [direction as u8];
    let pick = u64::from_be_bytes(*kdf::expand::<8>(epoch, &[b"rove v1 alias pick", &by]));
    let table = ProfileTable::derive(epoch, &[b"rove v1 profiles", &by]);
    if !finished.features.has(Features::PROFILES) {
        return ProfileIds::fixed(table, pick, finished.floor);
    }
    let key = mask_key(epoch, REDRAW_LABEL, direction, finished.header_cipher);
    ProfileIds::redrawn(table, pick, finished.floor, key)
}

fn aead_key(epoch: &Prk, direction: Direction, suite: Suite, zone: Zone) -> LessSafeKey {
    let key = aead_key_bytes(epoch, direction, suite, zone);
    let key = &key[..suite.algorithm().key_len()];
    LessSafeKey::new(UnboundKey::new(suite.algorithm(), key).expect("the suite's own length"))
}

/// AES-128-GCM takes the first half.
fn aead_key_bytes(epoch: &Prk, direction: Direction, suite: Suite, zone: Zone) -> Secret {
    let label = [direction as u8, suite as u8, zone as u8];
    kdf::expand(epoch, &[b"rove v1 aead", &label])
}

/// Labels of the keys that make masks.
const HEADER_LABEL: &[u8] = b"rove v1 header";
const REDRAW_LABEL: &[u8] = b"rove v1 redraw";

fn mask_key(
    epoch: &Prk,
    label: &[u8],
    direction: Direction,
    cipher: HeaderCipher,
) -> HeaderProtectionKey {
    let key = mask_key_bytes(epoch, label, direction, cipher);
    let algorithm = match cipher {
        HeaderCipher::Aes => &quic::AES_256,
        HeaderCipher::ChaCha20 => &quic::CHACHA20,
    };
    HeaderProtectionKey::new(algorithm, key.as_ref()).expect("both ciphers take 32 bytes")
}

fn mask_key_bytes(epoch: &Prk, label: &[u8], direction: Direction, cipher: HeaderCipher) -> Secret {
    kdf::expand(epoch, &[label, &[direction as u8, cipher.to_byte()]])
}

/// An initiator's keys of a session with these properties, for tests of other modules.
#[cfg(test)]
pub(crate) fn test_keys(
    header_cipher: HeaderCipher,
    floor: Floor,
    features: Features,
) -> EpochKeys {
    let (handshake_hash, split) = (&[0xaa; 32], &[0xbb; 64]);
    let finished = Finished { handshake_hash, split, header_cipher, floor, features };
    EpochKeys::derive(Role::Initiator, &finished)
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
