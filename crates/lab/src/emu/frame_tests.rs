//! Addresses of real packets, and checksums that stay right when they change.

use super::*;

/// The Internet checksum (RFC 1071) over the given parts, each of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A UDP packet with correct checksums.
fn udp(source: &str, destination: &str, payload: &[u8]) -> IpPacket {
    let (from, to): (SocketAddr, SocketAddr) =
        (source.parse().unwrap(), destination.parse().unwrap());
    let length = (8 + payload.len()) as u16;
    let mut segment = Vec::new();
    segment.extend(from.port().to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    segment.extend(length.to_be_bytes());
    segment.extend([0, 0]);
    segment.extend(payload);
    let mut packet = match (from.ip(), to.ip()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            let total = 20 + length;
            let mut header =
                vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0, 0, 64, 17, 0, 0];
            header.extend(a.octets());
            header.extend(b.octets());
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            header
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            let mut header = vec![0x60, 0, 0, 0, (length >> 8) as u8, length as u8, 17, 64];
            header.extend(a.octets());
            header.extend(b.octets());
            header
        }
        _ => unreachable!("one family"),
    };
    let at = packet.len() + 6;
    packet.extend(segment);
    let sum = transport_sum(&packet);
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    IpPacket::new(packet)
}

/// The UDP checksum of a packet, its own field included: 0 when that is right.
fn transport_sum(packet: &[u8]) -> u16 {
    let (header, addresses) = if packet[0] >> 4 == 4 { (20, 12..20) } else { (40, 8..40) };
    let length = (packet.len() - header) as u16;
    checksum(&[&packet[addresses], &[0, 17], &length.to_be_bytes(), &packet[header..]])
}

fn assert_sums_right(packet: &IpPacket) {
    let bytes = packet.bytes();
    if bytes[0] >> 4 == 4 {
        assert_eq!(checksum(&[&bytes[..20]]), 0, "header checksum");
    }
    assert_eq!(transport_sum(bytes), 0, "UDP checksum");
}

#[test]
fn rewriting_keeps_checksums_right() {
    let cases = [
        ("10.0.0.1:5000", "198.51.100.9:53", "203.0.113.77:61000"),
        ("0.0.0.0:0", "255.255.255.255:65535", "255.255.0.0:1"),
        ("[fd00::1]:5000", "[2001:db8::9]:53", "[2001:db8:ffff::1]:61000"),
    ];
    for (source, destination, new) in cases {
        let mut packet = udp(source, destination, b"odd");
        assert_sums_right(&packet);
        packet.set_source(new.parse().unwrap());
        assert_sums_right(&packet);
        assert_eq!(packet.endpoints().unwrap().source, new.parse().unwrap());
        packet.set_destination(source.parse().unwrap());
        assert_sums_right(&packet);
        let endpoints = packet.endpoints().unwrap();
        assert_eq!(endpoints.destination, source.parse().unwrap());
        assert_eq!(endpoints.protocol, Protocol::Udp);
    }
}

#[test]
fn an_absent_udp_checksum_stays_absent() {
    let packet = udp("10.0.0.1:1", "10.0.0.2:2", b"");
    let mut bytes = packet.bytes().to_vec();
    bytes[26..28].copy_from_slice(&[0, 0]);
    let mut packet = IpPacket::new(bytes);
    packet.set_source("192.0.2.1:9".parse().unwrap());
    assert_eq!(&packet.bytes()[26..28], [0, 0]);
}

#[test]
fn an_echo_is_told_by_its_identifier() {
    let mut echo = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    echo.extend([8, 0, 0, 0, 0x12, 0x34, 0, 1]);
    let sum = checksum(&[&echo[20..]]);
    echo[22..24].copy_from_slice(&sum.to_be_bytes());
    let mut packet = IpPacket::new(echo);
    assert_eq!(packet.endpoints().unwrap().source, "10.0.0.1:4660".parse().unwrap());
    packet.set_source("192.0.2.1:7".parse().unwrap());
    assert_eq!(checksum(&[&packet.bytes()[20..]]), 0, "addresses are not covered");
    assert_eq!(packet.endpoints().unwrap().source, "192.0.2.1:7".parse().unwrap());
}

#[test]
fn later_fragments_have_no_ports() {
    let mut bytes = udp("10.0.0.1:1", "10.0.0.2:2", b"x").bytes().to_vec();
    bytes[7] = 1;
    let endpoints = IpPacket::new(bytes).endpoints().unwrap();
    assert_eq!(endpoints.protocol, Protocol::Other(17));
    assert_eq!(endpoints.source.port(), 0);
}

#[test]
fn the_bytes_of_a_connection_lie_behind_tcps_own_header() {
    let mut bytes = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let header = bytes.len();
    // A data offset of six words: 20 bytes and one option of four.
    bytes.extend([0; 24]);
    bytes[header + 12] = 6 << 4;
    bytes.extend(b"hi");
    assert_eq!(IpPacket::new(bytes.clone()).stream_bytes(), b"hi");
    bytes[header + 12] = 15 << 4;
    assert_eq!(IpPacket::new(bytes).stream_bytes(), b"", "a header that is longer than all");
    assert_eq!(udp("10.0.0.1:1", "10.0.0.2:2", b"hi").stream_bytes(), b"");
}

proptest::proptest! {
    /// Whatever a host writes to its card, the emulator takes it.
    #[test]
    fn no_bytes_are_too_strange(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
        bit in 0usize..1000,
    ) {
        let mut packet = IpPacket::new(bytes.clone());
        let endpoints = packet.endpoints();
        packet.set_source("192.0.2.1:9".parse().unwrap());
        packet.set_destination("[2001:db8::1]:9".parse().unwrap());
        proptest::prop_assert!(packet.stream_bytes().len() < 60);
        proptest::prop_assert_eq!(packet.wire_len(), bytes.len());
        packet.flip_bit(bit);
        proptest::prop_assert!(endpoints.is_some() || bytes.len() < 40 || bytes[0] >> 4 != 6);
    }
}
