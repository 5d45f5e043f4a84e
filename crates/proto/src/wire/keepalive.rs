//! Keepalive and its answer: the cheapest exchange that refreshes a NAT's mapping and proves that
//! the gateway is still there (docs/spec/wire.md#9-keepalive).
//!
//! A sealed datagram takes 27 bytes at least, beside 28 of IPv4 and UDP; these take 7 and 5.

use super::Kind;
use super::cursor::{Reader, Writer};
use crate::error::DropReason;
use crate::id::SessionIndex;

/// Bytes of the proof in an answer. A blind guess passes once in 2^32, and only while the one
/// keepalive that it would answer is open; each byte more costs 770 a day behind a NAT
/// that forgets after 120 s.
pub(crate) const PROOF_LEN: usize = 4;
/// Bytes of a keepalive.
pub(crate) const KEEPALIVE_LEN: usize = 1 + 4 + 2;
/// Bytes of an answer.
pub const ANSWER_LEN: usize = 1 + PROOF_LEN;

const _: () = assert!(ANSWER_LEN < KEEPALIVE_LEN, "an answer amplifies nothing");

/// A keepalive: `kind 1 | session index 4 | number 2`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// The gateway's index of the path that is kept alive.
    pub index: SessionIndex,
    /// One more with each, so that an answer that was recorded earlier does not fit: 65,536 of them
    /// take 18 days at the least interval.
    pub number: u16,
}

/// What only the gateway and the client can compute for one keepalive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeepaliveProof(pub [u8; PROOF_LEN]);

impl Keepalive {
    /// Reads a keepalive.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] for a wrong length or kind.
    pub fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        if bytes.len() != KEEPALIVE_LEN || Kind::of(bytes) != Some(Kind::Keepalive) {
            return Err(DropReason::Malformed);
        }
        let mut reader = Reader::new(&bytes[1..]);
        Ok(Self { index: SessionIndex(reader.u32()?), number: reader.u16()? })
    }

    /// The keepalive as bytes.
    pub fn emit(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(KEEPALIVE_LEN);
        let mut writer = Writer::new(&mut out);
        writer.u8(Kind::Keepalive as u8);
        writer.u32(self.index.0);
        writer.u16(self.number);
        out
    }
}

impl KeepaliveProof {
    /// Reads an answer: `kind 1 | proof 4`.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] for a wrong length or kind.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        if bytes.len() != ANSWER_LEN || Kind::of(bytes) != Some(Kind::KeepaliveAnswer) {
            return Err(DropReason::Malformed);
        }
        Ok(Self(Reader::new(&bytes[1..]).array()?))
    }

    /// The answer as bytes.
    pub(crate) fn emit(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ANSWER_LEN);
        let mut writer = Writer::new(&mut out);
        writer.u8(Kind::KeepaliveAnswer as u8);
        writer.bytes(&self.0);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_they_are_written_so_they_are_read() {
        let keepalive = Keepalive { index: SessionIndex(0x0102_0304), number: 0x0506 };
        let proof = KeepaliveProof([9, 8, 7, 6]);
        let (asked, answer) = (keepalive.emit(), proof.emit());
        assert_eq!(asked, [7, 1, 2, 3, 4, 5, 6]);
        assert_eq!(answer, [8, 9, 8, 7, 6]);
        assert_eq!(Keepalive::parse(&asked), Ok(keepalive));
        assert_eq!(KeepaliveProof::parse(&answer), Ok(proof));
        for len in 0..12 {
            let (mut asked, mut answer) = (asked.clone(), answer.clone());
            asked.resize(len, 0);
            answer.resize(len, 0);
            assert_eq!(Keepalive::parse(&asked).is_ok(), len == KEEPALIVE_LEN, "{len}");
            assert_eq!(KeepaliveProof::parse(&answer).is_ok(), len == ANSWER_LEN, "{len}");
        }
    }
}
