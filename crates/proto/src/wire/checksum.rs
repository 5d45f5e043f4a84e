//! The Internet checksum (RFC 1071) over inner packets, whole and mended in place (RFC 1624).

use std::net::IpAddr;

/// A ones' complement sum that grows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes that begin at an even offset of what is summed.
    #[must_use]
    #[inline]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        // 2^32 is 1 where carries come around, so wider words give the same sum; and so do words in
        // the order of the processor, if the folded sum is brought into network order (RFC 1071,
        // section 2 (B)). It then adds several at once.
        let (words, rest) = bytes.as_chunks::<4>();
        let mut native: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        native += u64::from(u32::from_ne_bytes(last));
        self.0 += u64::from(u16::from_be(fold(native)));
        self
    }

    /// Adds a number of 16 bits.
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds another sum, of bytes that follow an even number of bytes.
    #[must_use]
    pub const fn and(self, other: u16) -> Self {
        self.word(other)
    }

    /// Takes away what was added before.
    #[must_use]
    pub const fn without(self, sum: u16) -> Self {
        self.word(!sum)
    }

    /// The pseudo header of TCP and UDP (RFC 9293, 3.1; RFC 8200, 8.1): `length` bytes of transport
    /// header and payload.
    #[must_use]
    pub fn pseudo(self, source: IpAddr, destination: IpAddr, protocol: u8, length: u16) -> Self {
        let mut sum = self.word(u16::from(protocol)).word(length);
        for address in [source, destination] {
            sum = match address {
                IpAddr::V4(v4) => Self(sum.0 + u64::from(v4.to_bits())),
                IpAddr::V6(v6) => sum.bytes(&v6.octets()),
            };
        }
        sum
    }

    /// The sum in 16 bits. The two ways to write zero are made one: no checksum over a pseudo
    /// header tells them apart.
    pub const fn folded(self) -> u16 {
        let sum = fold(self.0);
        if sum == 0xffff { 0 } else { sum }
    }

    /// What a checksum field holds: the complement.
    pub const fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// A sum in 16 bits.
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits")]
    let sum = sum as u16;
    sum
}

/// The checksum after a field under it changed from `old` to `new` (RFC 1624, equation 3). A field
/// at an odd offset enters the sum with its bytes swapped.
pub const fn mended(checksum: u16, old: u16, new: u16) -> u16 {
    !Sum(0).word(!checksum).word(!old).word(new).folded()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().bytes(&bytes).folded(), 0xddf2);
    }

    proptest! {
        #[test]
        fn a_mended_checksum_is_that_of_the_mended_bytes(
            mut bytes in proptest::collection::vec(any::<u8>(), 4..80),
            at in 0usize..100,
            new in any::<u16>(),
        ) {
            let at = at % (bytes.len() / 2) * 2;
            let before = Sum::default().bytes(&bytes).checksum();
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            let after = Sum::default().bytes(&bytes);
            prop_assert_eq!(after.word(mended(before, old, new)).folded(), 0);
        }

        #[test]
        fn a_sum_is_that_of_its_parts(
            head in proptest::collection::vec(any::<u8>(), 0..40),
            tail in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let head = &head[..head.len() / 2 * 2];
            let whole = [head, &tail[..]].concat();
            let sum = Sum::default().bytes(&whole);
            let tail = Sum::default().bytes(&tail).folded();
            prop_assert_eq!(sum.folded(), Sum::default().bytes(head).and(tail).folded());
            let head = Sum::default().bytes(head).folded();
            prop_assert_eq!(sum.without(head).folded(), tail);
        }
    }
}
