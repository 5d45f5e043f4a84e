//! Sealing and opening of data datagrams (docs/spec/handshake.md#10-data-datagrams): pure functions
//! of key, nonce and bytes, in place, without allocation, from any thread.
//!
//! Refuses to know which numbers were used: that a nonce is never repeated is the business of
//! who counts (`path`), and so is the replay window.

use std::fmt;

use aws_lc_rs::aead::quic::HeaderProtectionKey;
use aws_lc_rs::aead::{Aad, LessSafeKey};

use super::nonce::Nonce;
use super::profile::{Profile, ProfileTable};
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

    /// The profile ID under which datagram `number` of `profile` travels. Aliases are spread over
    /// the numbers by a keyed multiplication, so that they do not follow each other in a pattern;
    /// nothing rests on it, and the receiver takes any.
    pub(crate) const fn profile_id(&self, profile: Profile, number: PacketNumber) -> ProfileId {
        let spread = (number ^ self.0.alias_pick).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0.profiles.alias(profile, (spread >> 62) as u8)
    }

    /// Writes the header, seals in place and masks the header.
    ///
    /// `datagram` is [`HEADER_LEN`] bytes of space, the plaintext, and [`TAG_LEN`] bytes of space.
    ///
    /// # Panics
    /// When `datagram` has no room for a plaintext byte, or `profile` has no suite that meets the
    /// session's floor: both are mistakes of the caller that must not reach the wire.
    pub fn seal(&self, index: SessionIndex, profile: Profile, nonce: Nonce, datagram: &mut [u8]) {
        assert!(datagram.len() >= MIN_LEN, "a datagram has a header, a plaintext and a tag");
        let suite = self.0.suite(profile).expect("a profile that meets the session's floor");
        let (header, body) = datagram.split_at_mut(HEADER_LEN);
        let id = self.profile_id(profile, nonce.number);
        let aad = associated_data(id, nonce.number as u32);
        header[..5].copy_from_slice(&with_index(index));
        header[5..].copy_from_slice(&aad[1..]);

        let (plaintext, tag_space) = body.split_at_mut(body.len() - TAG_LEN);
        let tag = self.0.aead[suite as usize]
            .seal_in_place_separate_tag(nonce.to_aead(), Aad::from(aad), plaintext)
            .expect("a datagram is far below every suite's limit");
        tag_space.copy_from_slice(tag.as_ref());

        let mask = self.0.mask(datagram).expect("the length was checked");
        for (byte, mask) in datagram[5..HEADER_LEN].iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }

    /// The weakest suite that the session uses.
    pub const fn floor(&self) -> Floor {
        self.0.floor
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
    /// The profile of the datagram.
    pub profile: Profile,
    /// The low 32 bits of its number.
    pub number: u32,
    id: ProfileId,
    suite: Suite,
}

impl OpenKey {
    pub(super) const fn new(keys: DirectionKeys) -> Self {
        Self(keys)
    }

    /// Undoes header protection only: one block of a cipher, so that a replay is recognised
    /// before the datagram is opened.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] when `datagram` is too short or of another kind;
    /// [`DropReason::Decoy`] when its profile ID means no profile of this version, or one whose
    /// suite is below the session's floor.
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
        let (id, number) = (ProfileId(id), u32::from_be_bytes(number));
        let profile = self.0.profiles.lookup(id).ok_or(DropReason::Decoy)?;
        let suite = self.0.suite(profile).ok_or(DropReason::Decoy)?;
        Ok(Unmasked { profile, number, id, suite })
    }

    /// Opens `datagram` in place and returns its plaintext. `number` is the full number that the
    /// caller reconstructed from `unmasked.number`.
    ///
    /// # Errors
    /// [`DropReason::BadTag`] when it does not verify: the bytes, the path or the number are not
    /// what the peer sealed. The content of `datagram` is then undefined.
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
        let nonce = Nonce { serial, number }.to_aead();
        let aad = Aad::from(associated_data(unmasked.id, unmasked.number));
        self.0.aead[unmasked.suite as usize]
            .open_in_place(nonce, aad, &mut datagram[HEADER_LEN..])
            .map_err(|_| DropReason::BadTag)
    }

    /// The weakest suite that the session uses.
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
    /// One key per suite, in the order of the suites' numbers.
    pub(super) aead: [LessSafeKey; Suite::ALL.len()],
    pub(super) header: HeaderProtectionKey,
    pub(super) profiles: ProfileTable,
    pub(super) alias_pick: u64,
    pub(super) floor: Floor,
    pub(super) header_cipher: HeaderCipher,
}

impl DirectionKeys {
    /// The suite of `profile`, unless the floor forbids it.
    fn suite(&self, profile: Profile) -> Option<Suite> {
        profile.suite().filter(|suite| suite.meets(self.floor))
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
