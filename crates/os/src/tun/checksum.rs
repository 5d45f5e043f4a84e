//! The Internet checksum (RFC 1071), as sums that can be added before they are folded.
//!
//! A sum is a `u64` of 16-bit words in network order, not yet folded: sums of parts add up to the
//! sum of the whole as long as every part but the last has an even length, which holds for IP, TCP
//! and UDP headers.

/// The sum of `bytes`, an odd last byte padded with zero.
///
/// The words are added as native 32-bit numbers, several at once where the processor can, and
/// brought into network order after folding: RFC 1071 section 2 (B) shows that this is the same.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let mut native: u64 = 0;
    let mut words = bytes.chunks_exact(4);
    for word in words.by_ref() {
        native += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut tail = [0; 4];
    tail[..words.remainder().len()].copy_from_slice(words.remainder());
    native += u64::from(u32::from_ne_bytes(tail));
    u64::from(u16::from_be(fold(native)))
}

/// The 16-bit one's complement sum that `sum` stands for.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum of the pseudo-header: `addresses` (source and destination, as they lie in the IP
/// header), the transport protocol and the length of transport header and payload
/// (RFC 9293 section 3.1, RFC 8200 section 8.1).
pub(crate) fn pseudo_header(addresses: &[u8], protocol: u8, length: usize) -> u64 {
    sum(addresses) + u64::from(protocol) + length as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{fold, sum};

    /// The definition, word by word.
    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in bytes.chunks(2) {
            sum += u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn example_of_rfc_1071() {
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(bytes in proptest::collection::vec(any::<u8>(), 0..3_000)) {
            prop_assert_eq!(fold(sum(&bytes)), plain(&bytes));
        }

        #[test]
        fn sums_of_even_parts_add_up(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0usize..100,
        ) {
            let cut = (2 * cut).min(bytes.len() & !1);
            let (head, tail) = bytes.split_at(cut);
            prop_assert_eq!(fold(sum(head) + sum(tail)), fold(sum(&bytes)));
        }
    }
}
