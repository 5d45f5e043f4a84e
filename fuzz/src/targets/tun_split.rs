//! The bytes of one read of the TUN: a virtio-net header, and a packet or a super-packet to split.
//!
//! The input is `header 10 | packet`.

use rove_os::fuzz::{VNET_HEADER_LEN, tun_split};

use crate::Target;
use crate::internet::{Fields, checksum, pseudo_header};

/// The target.
pub const TARGET: Target = Target { name: "tun_split", run, seeds, mutations: 50_000 };

/// Kinds of super-packet (linux/virtio_net.h); the flag of ECN is left out.
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_UDP: u8 = 5;
const GSO_TCPV6: u8 = 4;
const GSO_ECN: u8 = 0x80;
/// The packet's checksum is to be completed.
const NEEDS_CHECKSUM: u8 = 1;

fn run(data: &[u8]) {
    let mut read = data.to_vec();
    let mut cuts: Vec<(Vec<u8>, Vec<u8>, usize)> = Vec::new();
    let count = tun_split(&mut read, |(header, payload, at)| {
        cuts.push((header.to_vec(), payload.to_vec(), at));
    });
    let Some(count) = count else {
        assert!(cuts.is_empty(), "what is malformed is dropped as a whole");
        return;
    };
    assert_eq!(count, cuts.len());
    let packet = &read[VNET_HEADER_LEN..];
    let kind = data[1] & !GSO_ECN;
    if kind == GSO_NONE {
        assert_eq!((count, cuts[0].0.as_slice()), (1, packet), "a packet stays one");
        return;
    }
    let size = usize::from(u16::from_ne_bytes([data[4], data[5]]));
    let header_len = cuts[0].0.len();
    let mut at = header_len;
    for (number, (header, payload, place)) in cuts.iter().enumerate() {
        assert_eq!((header.len(), *place), (header_len, at));
        assert!(payload.len() == size || number + 1 == count, "only the last is shorter");
        assert_eq!(payload.as_slice(), &packet[at..at + payload.len()], "a payload is changed");
        at += payload.len();
        verified(
            header,
            payload,
            kind == GSO_UDP,
            usize::from(data[6]) | usize::from(data[7]) << 8,
        );
    }
    assert_eq!(at, packet.len(), "every byte is in one packet");
}

/// Checks that a split packet is whole, with correct lengths and checksums.
fn verified(header: &[u8], payload: &[u8], udp: bool, transport: usize) {
    let len = header.len() + payload.len();
    let said = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let v6 = header[0] >> 4 == 6;
    if v6 {
        assert_eq!(said(4), len - 40, "length of IPv6");
    } else {
        assert_eq!(said(2), len, "length of IPv4");
        assert_eq!(checksum(0, &header[..transport]), 0, "checksum of IPv4");
    }
    let protocol = if udp { 17 } else { 6 };
    let transport_len = len - transport;
    if udp {
        assert_eq!(said(transport + 4), transport_len, "length of UDP");
    }
    let covered = [&header[transport..], payload].concat();
    let sum = pseudo_header(header, protocol, transport_len);
    assert_eq!(checksum(sum, &covered), 0, "checksum of the transport");
}

fn seeds() -> Vec<Vec<u8>> {
    let fields = |v6: bool, udp: bool, len: usize| Fields { v6, udp, len, ..Fields::default() };
    let read = |gso: u8, size: u16, fields: Fields| {
        let packet = fields.packet();
        let transport: u16 = if fields.v6 { 40 } else { 20 };
        let offset: u16 = if fields.udp { 6 } else { 16 };
        let mut bytes = vec![NEEDS_CHECKSUM, gso];
        for word in [transport + if fields.udp { 8 } else { 32 }, size, transport, offset] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(packet);
        bytes
    };
    let mut plain = vec![0; VNET_HEADER_LEN];
    plain.extend(fields(false, true, 60).packet());
    vec![
        plain,
        read(GSO_NONE, 0, fields(false, false, 100)),
        read(GSO_NONE, 0, fields(true, true, 100)),
        read(GSO_TCPV4, 100, fields(false, false, 350)),
        read(GSO_TCPV4 | GSO_ECN, 7, fields(false, false, 70)),
        read(GSO_TCPV6, 100, fields(true, false, 400)),
        read(GSO_UDP, 50, fields(false, true, 175)),
        read(GSO_UDP, 50, fields(true, true, 200)),
        read(GSO_TCPV4, 0, fields(false, false, 70)),
        read(GSO_TCPV6, 1, fields(true, false, 1)),
    ]
}
