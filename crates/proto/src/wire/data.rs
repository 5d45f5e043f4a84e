//! The data datagram: `kind 1 | session index 4 | profile ID 1 | packet number 4 | ciphertext |
//! tag 16` (docs/spec/wire.md#2-data). Profile ID and number are masked on the wire.

use crate::error::DropReason;
use crate::id::{PacketNumber, SessionIndex};

/// Bytes before the ciphertext.
pub const HEADER_LEN: usize = 10;
/// Bytes of the authentication tag after the ciphertext.
pub const TAG_LEN: usize = 16;
/// What a sealed datagram costs beyond its frames.
pub const OVERHEAD: usize = HEADER_LEN + TAG_LEN;
/// The shortest data datagram: one frame byte.
pub const MIN_LEN: usize = OVERHEAD + 1;
/// The UDP payload that every path is assumed to carry before larger sizes are acknowledged (the
/// BASE_PLPMTU of RFC 8899): an IPv4 path of 1,124 bytes less its headers. Nested tunnels leave
/// less than the 1,232 bytes of IPv6's minimum MTU. A path that carries less than this has no
/// connection. A smaller value would cost every handshake a third datagram.
pub(crate) const BASE_DATAGRAM: usize = 1_096;
/// The largest UDP payload that is ever sent or accepted: a 1,500-byte link less IPv4 and UDP
/// headers.
pub const MAX_DATAGRAM: usize = 1_472;

/// The session index of a data datagram, read before anything is decrypted.
///
/// # Errors
/// [`DropReason::Malformed`] when `datagram` is too short or too long to be one.
pub fn session_index(datagram: &[u8]) -> Result<SessionIndex, DropReason> {
    if datagram.len() < MIN_LEN || datagram.len() > MAX_DATAGRAM {
        return Err(DropReason::Malformed);
    }
    let bytes = datagram[1..5].try_into().map_err(|_| DropReason::Malformed)?;
    Ok(SessionIndex(u32::from_be_bytes(bytes)))
}

/// The full packet number whose low 32 bits are `truncated`, nearest to one above `highest` (the
/// highest number authenticated so far on the path, `None` before the first); RFC 9000, A.3.
pub fn expand_number(highest: Option<PacketNumber>, truncated: u32) -> PacketNumber {
    const SPAN: u64 = 1 << 32;
    let expected = highest.map_or(0, |h| h.saturating_add(1));
    let candidate = (expected & !(SPAN - 1)) | u64::from(truncated);
    if candidate.saturating_add(SPAN / 2) <= expected {
        candidate.saturating_add(SPAN)
    } else if candidate > expected.saturating_add(SPAN / 2) && candidate >= SPAN {
        candidate - SPAN
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_expand_to_the_nearest() {
        assert_eq!(expand_number(None, 0), 0);
        assert_eq!(expand_number(None, 7), 7);
        assert_eq!(expand_number(Some(0xffff_fffe), 0xffff_ffff), 0xffff_ffff);
        assert_eq!(expand_number(Some(0xffff_ffff), 0), 0x1_0000_0000);
        assert_eq!(expand_number(Some(0x1_0000_0003), 0xffff_fff0), 0xffff_fff0);
        assert_eq!(expand_number(Some(0x5_0000_0000), 3), 0x5_0000_0003);
    }

    #[test]
    fn index_needs_a_whole_header() {
        assert_eq!(session_index(&[0x10; MIN_LEN - 1]), Err(DropReason::Malformed));
        assert_eq!(session_index(&[0x10; MAX_DATAGRAM + 1]), Err(DropReason::Malformed));
        let mut datagram = [0u8; MIN_LEN];
        datagram[1..5].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(session_index(&datagram), Ok(SessionIndex(0x0102_0304)));
    }
}
