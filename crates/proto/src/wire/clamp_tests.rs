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
