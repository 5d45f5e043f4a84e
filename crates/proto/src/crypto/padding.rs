//! Padding of datagrams whose profile says so (docs/spec/handshake.md#9-suites-and-profiles).
//!
//! Padding frames cannot do it: a fragment and a retransmission take the rest of their datagram.
//! So padding follows all frames, and the receiver takes it off before it reads them.

use crate::error::DropReason;

/// Bytes that the least padding has: those that say how much there is.
pub const PADDING_MIN: usize = 2;

/// Appends padding of `len` bytes, which are zero but for the last two.
///
/// # Panics
/// When `len` is less than [`PADDING_MIN`] or more than 65,535.
pub fn append(frames: &mut Vec<u8>, len: usize) {
    let said = u16::try_from(len).expect("a datagram is shorter");
    frames.resize(frames.len() + len - PADDING_MIN, 0);
    frames.extend_from_slice(&said.to_be_bytes());
}

/// The frames before the padding.
///
/// # Errors
/// [`DropReason::BadFrame`] when the padding says that it has less than [`PADDING_MIN`] bytes, or
/// leaves no frame.
pub(super) fn strip(plaintext: &mut [u8]) -> Result<&mut [u8], DropReason> {
    let said = plaintext.last_chunk().copied().map_or(0, u16::from_be_bytes);
    let padding = usize::from(said);
    if padding < PADDING_MIN || padding >= plaintext.len() {
        return Err(DropReason::BadFrame);
    }
    let frames = plaintext.len() - padding;
    Ok(&mut plaintext[..frames])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_comes_off() {
        for frames in [1, 2, 300] {
            for len in [PADDING_MIN, 3, 255, 256, 1_100] {
                let mut plaintext = vec![7; frames];
                append(&mut plaintext, len);
                assert_eq!(plaintext.len(), frames + len);
                assert_eq!(strip(&mut plaintext).unwrap(), vec![7; frames]);
            }
        }
    }

    #[test]
    fn padding_that_does_not_fit_is_refused() {
        let wrong: [&[u8]; 8] =
            [&[], &[2], &[0, 0], &[0, 1], &[0, 2], &[9, 0, 0], &[9, 0, 1], &[9, 0, 3]];
        for wrong in wrong {
            assert_eq!(strip(&mut wrong.to_vec()), Err(DropReason::BadFrame), "{wrong:?}");
        }
        assert_eq!(strip(&mut [9, 0, 2]).unwrap(), [9]);
    }
}
