//! Sealing and opening of data datagrams (docs/spec/handshake.md#10-data-datagrams): pure functions
//! of key, nonce and bytes, in place, without allocation, from any thread.
//!
//! Refuses to know which numbers were used: that a nonce is never repeated is the business of
//! who counts (`path`), and so is the replay window.

use std::fmt;

use aws_lc_rs::aead::quic::HeaderProtectionKey;
use aws_lc_rs::aead::{Aad, LessSafeKey};

use super::nonce::Nonce;
use super::padding;
use super::profile::{Profile, ProfileIds};
use super::suite::Suite;
use crate::error::DropReason;
use crate::id::{PacketNumber, PathSerial, ProfileId, SessionIndex};
use crate::wire::Kind;
use crate::wire::data::{HEADER_LEN, MIN_LEN, OVERHEAD, TAG_LEN};
use crate::wire::handshake::{Floor, HeaderCipher};

/// The sending half of an epoch.
pub struct SealKey(DirectionKeys);

impl SealKey {
    pub(super) const fn new(keys: DirectionKeys) -> Self {
        Self(keys)
    }

    /// Writes the header, seals in place and masks the header.
    ///
    /// `datagram` is [`HEADER_LEN`] bytes of space, the plaintext, and [`TAG_LEN`] bytes of space.
    /// In a padded profile the plaintext has its padding already.
    ///
    /// # Panics
    /// When `datagram` has no room for a plaintext byte, or the session has no ID for `profile`
    /// (its suite is below the floor, or the peer knows no padding): both are mistakes of the
    /// caller that must not reach the wire.
    pub fn seal(&self, index: SessionIndex, profile: Profile, nonce: Nonce, datagram: &mut [u8]) {
        assert!(datagram.len() >= MIN_LEN, "a datagram has a header, a plaintext and a tag");
        let id = self.0.ids.id(profile, nonce).expect("a profile of the session");
        let key = self.0.aead(profile).expect("a suite that meets the session's floor");
        let (header, body) = datagram.split_at_mut(HEADER_LEN);
        let aad = associated_data(id, nonce.number as u32);
        header[..5].copy_from_slice(&with_index(index));
        header[5..].copy_from_slice(&aad[1..]);

        let (plaintext, tag_space) = body.split_at_mut(body.len() - TAG_LEN);
        let tag = key
            .seal_in_place_separate_tag(nonce.to_aead(), Aad::from(aad), plaintext)
            .expect("a datagram is far below every suite's limit");
        tag_space.copy_from_slice(tag.as_ref());

        let mask = self.0.mask(datagram).expect("the length was checked");
        for (byte, mask) in datagram[5..HEADER_LEN].iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }

    /// The strength that every suite of the session has.
    pub const fn floor(&self) -> Floor {
        self.0.floor
    }

    /// Whether both ends understand every profile, and IDs that each datagram draws anew.
    pub const fn has_all_profiles(&self) -> bool {
        self.0.ids.are_redrawn()
    }

    /// The cipher of header protection.
    pub const fn header_cipher(&self) -> HeaderCipher {
        self.0.header_cipher
    }
}

/// The receiving half of an epoch.
pub struct OpenKey(DirectionKeys);

/// A header without its mask. Nothing of it is authentic before [`OpenKey::open`] succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unmasked {
    /// The low 32 bits of the datagram's number.
    pub number: u32,
    id: ProfileId,
}

impl OpenKey {
    pub(super) const fn new(keys: DirectionKeys) -> Self {
        Self(keys)
    }

    /// Undoes header protection only: one block of a cipher, so that a replay is recognised
    /// before the datagram is opened.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] when `datagram` is too short or of another kind.
    pub fn unmask(&self, datagram: &[u8]) -> Result<Unmasked, DropReason> {
        if datagram.len() < MIN_LEN || datagram[0] != Kind::Data as u8 {
            return Err(DropReason::Malformed);
        }
        let mask = self.0.mask(datagram).ok_or(DropReason::Malformed)?;
        let mut header = [0; 5];
        for (out, (masked, mask)) in header.iter_mut().zip(datagram[5..].iter().zip(mask)) {
            *out = masked ^ mask;
        }
        let [id, number @ ..] = header;
        Ok(Unmasked { number: u32::from_be_bytes(number), id: ProfileId(id) })
    }

    /// Opens `datagram` in place and returns its frames. `number` is the full number that the
    /// caller reconstructed from `unmasked.number`.
    ///
    /// # Errors
    /// [`DropReason::Decoy`] when its profile ID has no meaning, [`DropReason::BelowFloor`] when it
    /// means a suite below the session's floor: no key was made for that. Nothing is opened then,
    /// so noise may have such an ID as well. [`DropReason::BadTag`] when the datagram does not
    /// verify: the bytes, the path or the number are not what the peer sealed.
    /// [`DropReason::BadFrame`] when the peer sealed padding that does not fit. After the last two
    /// the content of `datagram` is undefined.
    pub fn open<'d>(
        &self,
        serial: PathSerial,
        number: PacketNumber,
        unmasked: &Unmasked,
        datagram: &'d mut [u8],
    ) -> Result<&'d mut [u8], DropReason> {
        if datagram.len() < OVERHEAD {
            return Err(DropReason::Malformed);
        }
        let nonce = Nonce { serial, number };
        let profile = self.0.ids.profile(unmasked.id, nonce)?;
        let key = self.0.aead(profile).ok_or(DropReason::BelowFloor)?;
        let aad = Aad::from(associated_data(unmasked.id, unmasked.number));
        let plaintext = key
            .open_in_place(nonce.to_aead(), aad, &mut datagram[HEADER_LEN..])
            .map_err(|_| DropReason::BadTag)?;
        if profile.is_padded() { padding::strip(plaintext) } else { Ok(plaintext) }
    }

    /// The strength that every suite of the session has.
    pub const fn floor(&self) -> Floor {
        self.0.floor
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

impl fmt::Debug for OpenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenKey(..)")
    }
}

/// Everything that protects what one end sends in one epoch.
pub(super) struct DirectionKeys {
    /// The key of each suite that meets the floor, in the order of the suites' numbers.
    pub(super) aead: [Option<LessSafeKey>; Suite::ALL.len()],
    pub(super) header: HeaderProtectionKey,
    pub(super) ids: ProfileIds,
    pub(super) floor: Floor,
    pub(super) header_cipher: HeaderCipher,
}

impl DirectionKeys {
    /// The key of the suite of `profile`, unless the floor forbids it.
    const fn aead(&self, profile: Profile) -> Option<&LessSafeKey> {
        self.aead[profile.suite() as usize].as_ref()
    }

    /// The mask over profile ID and number, from the first 16 bytes after the header: always
    /// there, because the tag alone is that long.
    fn mask(&self, datagram: &[u8]) -> Option<[u8; 5]> {
        let sample = datagram.get(HEADER_LEN..HEADER_LEN + SAMPLE_LEN)?;
        self.header.new_mask(sample).ok()
    }
}

/// Bytes that header protection looks at (RFC 9001, 5.4.2).
const SAMPLE_LEN: usize = 16;
const _: () = assert!(SAMPLE_LEN <= TAG_LEN, "an empty plaintext still has a sample");

/// kind 1 | profile ID 1 | number 4, unmasked. The index is not in it, so a relay may change it.
const fn associated_data(id: ProfileId, number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [Kind::Data as u8, id.0, a, b, c, d]
}

const fn with_index(index: SessionIndex) -> [u8; 5] {
    let [a, b, c, d] = index.0.to_be_bytes();
    [Kind::Data as u8, a, b, c, d]
}

#[cfg(test)]
#[path = "datagram_tests.rs"]
mod tests;
