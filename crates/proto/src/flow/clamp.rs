//! Lowers the maximum segment size that a TCP SYN announces (RFC 9293, 3.7.1) to what fits one
//! datagram, so that bulk flows are never split in pieces.

use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Flags, HEADER, lower_mss};

/// No TCP is asked for segments smaller than this (RFC 9293's default less options).
const MSS_MIN: u16 = 500;

/// Where the TCP header of a packet begins, if it opens a connection: a SYN or its answer.
pub fn place(packet: &InnerPacket<'_>) -> Option<usize> {
    let at = packet.headers.transport.filter(|_| packet.is_tcp())?;
    let fixed = packet.pieces.head.get(at..)?.first_chunk::<HEADER>()?;
    Flags(fixed[13]).has(Flags::SYN).then_some(at)
}

/// Lowers the segment size in the SYN `packet`, whose TCP header starts at `at`, so that a segment
/// makes an inner packet of at most `packet_max` bytes; mends the checksum (RFC 1624). A packet
/// without the option, or with a smaller value, is left alone.
pub fn clamp(packet: &mut [u8], at: usize, packet_max: usize) {
    let Some(tcp) = packet.get_mut(at..) else { return };
    let Some(limit) = packet_max.checked_sub(at + HEADER).and_then(|m| u16::try_from(m).ok())
    else {
        return;
    };
    lower_mss(tcp, limit.max(MSS_MIN));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(tcp: &[u8]) -> u16 {
        let mut sum: u32 = tcp
            .chunks(2)
            .map(|c| u32::from(u16::from_be_bytes([c[0], c.get(1).copied().unwrap_or(0)])))
            .sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        #[expect(clippy::cast_possible_truncation, reason = "folded")]
        let sum = !sum as u16;
        sum
    }

    fn syn(options: &[u8]) -> Vec<u8> {
        let mut tcp = vec![0; HEADER];
        tcp[13] = Flags::SYN.0;
        tcp.extend_from_slice(options);
        tcp.resize(tcp.len().next_multiple_of(4), 0);
        tcp[12] = u8::try_from(tcp.len() / 4).unwrap() << 4;
        let check = sum(&tcp);
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        tcp
    }

    #[test]
    fn lowers_and_mends_the_checksum() {
        for (options, at) in [(&[2, 4, 0x05, 0xb4][..], 22), (&[1, 2, 4, 0x05, 0xb4, 4, 2], 23)] {
            let mut packet = vec![0x45; 20];
            packet.extend_from_slice(&syn(options));
            clamp(&mut packet, 20, 1_205);
            let tcp = &packet[20..];
            assert_eq!(u16::from_be_bytes([tcp[at], tcp[at + 1]]), 1_165);
            assert_eq!(sum(tcp), 0, "checksum after clamping {options:?}");
        }
    }

    #[test]
    fn smaller_values_stay() {
        let mut packet = syn(&[2, 4, 0x02, 0x18]);
        let before = packet.clone();
        clamp(&mut packet, 0, 1_400);
        assert_eq!(packet, before);
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(
            mut packet in proptest::collection::vec(any::<u8>(), 0..80),
            at in 0usize..90,
            max in 0usize..2_000,
        ) {
            clamp(&mut packet, at, max);
        }
    }
}
