use proptest::prelude::*;

use super::*;

fn v4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet.extend_from_slice(payload);
    let len = u16::try_from(packet.len()).unwrap();
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
    packet.extend_from_slice(&[0xfd; 16]);
    packet.extend_from_slice(&[0xfe; 16]);
    packet.extend_from_slice(payload);
    packet[4..6].copy_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
    packet
}

#[test]
fn udp_over_ipv4() {
    let packet = v4(UDP, 0, &[0, 53, 1, 0, 0, 8, 0, 0]);
    let view = Headers::parse(&packet, packet.len()).unwrap();
    assert_eq!(view.source, IpAddr::from([10, 0, 0, 1]));
    assert_eq!(view.destination, IpAddr::from([10, 0, 0, 2]));
    assert_eq!((view.protocol, view.ports, view.transport), (UDP, Some((53, 256)), Some(20)));
}

#[test]
fn the_payload_of_a_datagram_is_read_where_it_lies() {
    let bytes = v4(UDP, 0, &[0, 53, 1, 0, 0, 12, 0, 0, 1, 2, 3, 4]);
    for (cut, first) in [(32, 4), (30, 2), (28, 4)] {
        let (head, tail) = bytes.split_at(cut);
        let packet = InnerPacket::parse(Pieces::cut(head, tail)).unwrap();
        assert_eq!(packet.datagram(), Some((&[1, 2, 3, 4][..first], 4)));
    }
    let bytes = v4(UDP, 0, &[0, 53, 1, 0, 0, 8, 0, 0]);
    assert_eq!(InnerPacket::whole(&bytes).unwrap().datagram(), Some((&[][..], 0)));
}

#[test]
fn later_fragments_have_no_ports() {
    let packet = v4(UDP, 0x00b9, &[0; 16]);
    let view = Headers::parse(&packet, packet.len()).unwrap();
    assert_eq!((view.ports, view.transport), (None, None));
    let mut payload = vec![UDP, 0, 0x05, 0xa8, 0, 0, 0, 1];
    payload.extend_from_slice(&[0; 16]);
    let packet = v6(FRAGMENT, &payload);
    let view = Headers::parse(&packet, packet.len()).unwrap();
    assert_eq!((view.protocol, view.ports, view.transport), (UDP, None, None));
}

#[test]
fn extension_headers_are_walked() {
    let mut payload = vec![TCP, 1];
    payload.extend_from_slice(&[0; 14]);
    payload.extend_from_slice(&[0, 80, 0x1f, 0x90]);
    payload.extend_from_slice(&[0; 16]);
    let packet = v6(HOP_BY_HOP, &payload);
    let view = Headers::parse(&packet, packet.len()).unwrap();
    assert_eq!((view.protocol, view.ports, view.transport), (TCP, Some((80, 8080)), Some(56)));
}

#[test]
fn an_extension_header_longer_than_the_packet_hides_the_transport() {
    let packet = v6(DESTINATION, &[TCP, 255, 0, 0, 0, 0, 0, 0]);
    let view = Headers::parse(&packet, packet.len()).unwrap();
    assert_eq!((view.ports, view.transport), (None, None));
}

#[test]
fn wrong_lengths_are_refused() {
    let mut packet = v4(UDP, 0, &[0; 8]);
    packet.push(0);
    assert_eq!(Headers::parse(&packet, packet.len()), Err(DropReason::BadInner));
    packet.truncate(27);
    assert_eq!(Headers::parse(&packet, packet.len()), Err(DropReason::BadInner));
    assert_eq!(declared_len(&[0x44; 20]), None, "header shorter than the minimum");
}

proptest! {
    #[test]
    fn any_bytes_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
        v6 in any::<bool>(),
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { 0x60 } else { 0x45 };
        }
        for len in [declared_len(&bytes).unwrap_or(0), bytes.len()] {
            if let Ok(view) = Headers::parse(&bytes, len) {
                let packet = InnerPacket::read(view, Pieces::whole(&bytes));
                let _ = packet.opens_at();
                prop_assert!(view.transport.is_none_or(|at| at <= bytes.len()));
            }
        }
    }
}
