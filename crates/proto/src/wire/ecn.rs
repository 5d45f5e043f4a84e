//! Explicit congestion notification in the header of an inner packet (RFC 3168). When to mark is
//! for `multipath::codel`.

use super::checksum::mended;

/// Marks an inner packet "congestion experienced" (RFC 3168, 5; RFC 8200, 7) if its sender
/// understands that; returns whether it is marked now. The header checksum of IPv4 is mended, those
/// of transports do not cover the mark.
pub fn mark(packet: &mut [u8]) -> bool {
    const CONGESTION_EXPERIENCED: u8 = 3;
    match *packet {
        [first, ref mut service, _, _, _, _, _, _, _, _, ref mut high, ref mut low, ..]
            if first >> 4 == 4 =>
        {
            if *service & CONGESTION_EXPERIENCED == 0 {
                return false;
            }
            let marked = *service | CONGESTION_EXPERIENCED;
            let word = |service| u16::from_be_bytes([first, service]);
            let checksum = u16::from_be_bytes([*high, *low]);
            if marked != *service {
                [*high, *low] = mended(checksum, word(*service), word(marked)).to_be_bytes();
                *service = marked;
            }
            true
        }
        // The traffic class lies across two bytes, its last two bits in the middle of the second.
        [first, ref mut second, ..] if first >> 4 == 6 => {
            let bits = CONGESTION_EXPERIENCED << 4;
            let understands = *second & bits != 0;
            if understands {
                *second |= bits;
            }
            understands
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::checksum::Sum;

    #[test]
    fn who_does_not_understand_marks_is_not_marked() {
        for first in [0x45, 0x60, 0x00, 0x50] {
            let mut packet = [first, 0, 0, 40, 0, 0, 0, 0, 64, 6, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0];
            let before = packet;
            assert!(!mark(&mut packet));
            assert_eq!(packet, before);
        }
        assert!(!mark(&mut [0x45, 2]), "half a header");
    }

    #[test]
    fn ipv6_is_marked_in_the_middle_of_its_second_byte() {
        for (class, flow) in [(0x1u8, 0xfu8), (0x2, 0x0), (0xd, 0x5), (0x3, 0x1)] {
            let mut packet = [0x6a, class << 4 | flow, 0xbc, 0xde];
            assert!(mark(&mut packet));
            assert_eq!(packet, [0x6a, (class | 3) << 4 | flow, 0xbc, 0xde]);
        }
    }

    proptest! {
        #[test]
        fn the_header_checksum_of_ipv4_stays_right(
            mut header in any::<[u8; 20]>(),
            capable in 1u8..4,
        ) {
            header[0] = 0x45;
            header[1] = header[1] & !3 | capable;
            (header[10], header[11]) = (0, 0);
            let checksum = Sum::default().bytes(&header).checksum();
            [header[10], header[11]] = checksum.to_be_bytes();
            let mut marked = header;
            prop_assert!(mark(&mut marked));
            prop_assert_eq!(marked[1], header[1] | 3);
            prop_assert_eq!(Sum::default().bytes(&marked).folded(), 0);
            (marked[1], marked[10], marked[11]) = (header[1], header[10], header[11]);
            prop_assert_eq!(marked, header, "nothing else changed");
        }
    }
}
