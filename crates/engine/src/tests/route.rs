//! A packet of a TCP upload over two links, from the tunnel device to the sockets.
//!
//! `bench/route.py` runs this test twice, with and without the last packet, and compares how often
//! each function ran: so it counts the functions that one packet passes.

use super::*;
use rove_proto::multipath::Mode;
use rove_proto::wire::checksum::Sum;

/// Set to any value, it leaves out the last packet.
const WITHOUT_LAST: &str = "ROVE_ROUTE_WITHOUT_LAST";
/// Payload bytes of a segment.
const SEGMENT: u32 = 1_200;
/// Segments that build up the rate of both links before the packet.
const SEGMENTS: u32 = 6_000;
/// Segments that come at once with the packet, as the kernel hands them over.
const BURST: u32 = 40;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A segment from the client to the server or back.
fn segment(flags: u8, number: u32, acknowledged: u32, len: u32, back: bool) -> Vec<u8> {
    let len = 40 + usize::try_from(len).unwrap();
    let mut packet = packet(len, 0, back);
    packet[9] = 6;
    let (source, destination) = if back { (443u16, 40_000u16) } else { (40_000, 443) };
    packet[20..22].copy_from_slice(&source.to_be_bytes());
    packet[22..24].copy_from_slice(&destination.to_be_bytes());
    packet[24..28].copy_from_slice(&number.to_be_bytes());
    packet[28..32].copy_from_slice(&acknowledged.to_be_bytes());
    packet[32..36].copy_from_slice(&[5 << 4, flags, 0xff, 0xff]);
    packet[36..40].fill(0);
    let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
    let sum = Sum::default().pseudo(address(12), address(16), 6, u16::try_from(len - 20).unwrap());
    let checksum = sum.bytes(&packet[20..]).checksum();
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The server acknowledges what has arrived in order, and the first byte that it waits for.
fn acknowledge(pair: &mut Pair, mut expected: u32) -> u32 {
    let before = expected;
    for packet in std::mem::take(&mut pair.gateway.device.written) {
        let number = u32::from_be_bytes(packet[24..28].try_into().unwrap());
        if number == expected {
            expected += u32::try_from(packet.len() - 40).unwrap();
        }
    }
    if expected != before {
        pair.gateway.device.push(segment(ACK, 1, expected, 0, true));
    }
    expected
}

#[test]
fn a_packet_of_an_upload_over_two_links_leaves() {
    let mut pair = Pair::up();
    pair.client.command(Command::SetMode(Mode::Full));
    let link = |last: u8| Link {
        id: LinkId(u32::from(last)),
        addresses: vec![[203, 0, 113, last].into()],
        stands_by: false,
    };
    pair.client.command(Command::SetLinks(vec![link(5), link(6)]));
    pair.run(Duration::from_secs(1));

    pair.client.device.push(segment(SYN, 0, 0, 0, false));
    pair.run(DELAY + DELAY);
    pair.gateway.device.written.clear();
    pair.gateway.device.push(segment(SYN | ACK, 0, 1, 0, true));
    pair.run(DELAY + DELAY);
    let (mut next, mut expected) = (1, 1);
    let mut send = |pair: &mut Pair| {
        pair.client.device.push(segment(ACK, next, 1, SEGMENT, false));
        next += SEGMENT;
    };
    for _ in 0..SEGMENTS {
        send(&mut pair);
        pair.run(Duration::from_micros(500));
        expected = acknowledge(&mut pair, expected);
    }
    pair.sent.clear();
    (0..BURST).for_each(|_| send(&mut pair));
    if std::env::var_os(WITHOUT_LAST).is_none() {
        send(&mut pair);
    }
    pair.run(DELAY / 2);
    assert_eq!(pair.sent.len(), 2, "both links carry: {:?}", pair.sent);
}
