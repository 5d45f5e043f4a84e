//! Datagrams on a byte stream: `length 2 | datagram`, and the preface of a plain stream.
//!
//! Normative: docs/spec/wire.md#8-streams. Knows lengths only. A length that no datagram of Rove
//! has ends the stream, because the next frame cannot be found.

use super::StreamError;

/// What a stream without TLS begins with, from the client, before the first length. No TLS record,
/// HTTP request, SSH banner or SOCKS request begins with a zero byte.
pub const PREFACE: [u8; 8] = *b"\0rove/1\n";
/// The name of the protocol inside TLS (ALPN, RFC 7301).
pub const ALPN: &[u8] = b"rove/1";
/// The largest datagram: what UDP over IPv4 carries on Ethernet (docs/spec/wire.md#1-datagrams).
pub const DATAGRAM_LEN_MAX: usize = 1_472;
/// Bytes of a length.
pub(super) const LENGTH_LEN: usize = 2;
/// Bytes of the longest frame.
pub(super) const FRAME_LEN_MAX: usize = LENGTH_LEN + DATAGRAM_LEN_MAX;

const _: () = assert!(DATAGRAM_LEN_MAX <= u16::MAX as usize);

/// What stands before a datagram of `length` bytes; `None` when no datagram is that long.
pub(super) fn length(length: usize) -> Option<[u8; LENGTH_LEN]> {
    match u16::try_from(length) {
        Ok(small) if is_possible(length) => Some(small.to_be_bytes()),
        Ok(_) | Err(_) => None,
    }
}

/// Calls `each` with every whole datagram at the beginning of `bytes`, in order, and returns how
/// many bytes those took. The rest is less than [`FRAME_LEN_MAX`].
///
/// # Errors
/// [`StreamError::BadLength`] after the datagrams that stood before it.
pub(super) fn split(
    bytes: &mut [u8],
    mut each: impl FnMut(&mut [u8]),
) -> Result<usize, StreamError> {
    let mut at = 0;
    while let Some(&[high, low]) = bytes.get(at..at + LENGTH_LEN) {
        let length = usize::from(u16::from_be_bytes([high, low]));
        if !is_possible(length) {
            return Err(StreamError::BadLength { length });
        }
        let start = at + LENGTH_LEN;
        let Some(datagram) = bytes.get_mut(start..start + length) else { break };
        each(datagram);
        at = start + length;
    }
    Ok(at)
}

const fn is_possible(length: usize) -> bool {
    length >= 1 && length <= DATAGRAM_LEN_MAX
}
