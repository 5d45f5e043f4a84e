//! The restart notice: a gateway that has no session for an index says so, and proves that it is
//! the one that issued it (docs/spec/wire.md#7-restart-notice).

use std::fmt;

use super::Kind;
use super::cursor::{Reader, Writer};
use crate::error::DropReason;
use crate::id::SessionIndex;

/// Bytes of the token in a notice.
pub(crate) const RESTART_TOKEN_LEN: usize = 16;
/// Bytes of a notice: fewer than any data datagram, so it amplifies nothing.
pub const RESTART_NOTICE_LEN: usize = 1 + 4 + RESTART_TOKEN_LEN;

const _: () = assert!(RESTART_NOTICE_LEN < super::data::MIN_LEN);

/// What proves a restart to the one client that was told of it beforehand.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RestartToken(pub [u8; RESTART_TOKEN_LEN]);

impl fmt::Debug for RestartToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RestartToken(..)")
    }
}

/// A restart notice: `kind 1 | session index 4 | token 16`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestartNotice {
    /// The index that leads nowhere, which the gateway issued before.
    pub index: SessionIndex,
    /// The proof.
    pub token: RestartToken,
}

impl RestartNotice {
    /// Reads a notice.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] for a wrong length or kind.
    pub fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        if bytes.len() != RESTART_NOTICE_LEN || Kind::of(bytes) != Some(Kind::RestartNotice) {
            return Err(DropReason::Malformed);
        }
        let mut reader = Reader::new(&bytes[1..]);
        Ok(Self { index: SessionIndex(reader.u32()?), token: RestartToken(reader.array()?) })
    }

    /// The notice as bytes.
    pub fn emit(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RESTART_NOTICE_LEN);
        let mut writer = Writer::new(&mut out);
        writer.u8(Kind::RestartNotice as u8);
        writer.u32(self.index.0);
        writer.bytes(&self.token.0);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_it_is_written_so_it_is_read() {
        let notice = RestartNotice {
            index: SessionIndex(0x0102_0304),
            token: RestartToken([7; RESTART_TOKEN_LEN]),
        };
        let bytes = notice.emit();
        assert_eq!(bytes[..5], [5, 1, 2, 3, 4]);
        assert_eq!(RestartNotice::parse(&bytes), Ok(notice));
        for len in (0..bytes.len()).chain([bytes.len() + 1]) {
            let mut other = bytes.clone();
            other.resize(len, 0);
            assert_eq!(RestartNotice::parse(&other), Err(DropReason::Malformed), "{len}");
        }
    }
}
