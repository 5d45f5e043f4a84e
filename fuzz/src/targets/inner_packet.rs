//! The headers of inner IP packets, from the TUN device or from a peer.

use std::net::IpAddr;

use rove_proto::wire::icmp::{Unreachable, Unreached, may_be_answered, prohibit};
use rove_proto::wire::inner::{Headers, InnerPacket, MAX_PACKET, Pieces, declared_len};

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "inner_packet", run, seeds, mutations: 100_000 };

fn run(data: &[u8]) {
    let Ok(whole) = InnerPacket::whole(data) else { return };
    let headers = &whole.headers;
    assert!(data.len() <= MAX_PACKET);
    assert_eq!(declared_len(data), Some(data.len()));
    assert_eq!(headers.source.is_ipv4(), headers.destination.is_ipv4(), "families do not mix");
    if let Some(transport) = headers.transport {
        assert!(headers.ports.is_none() || transport + 4 <= data.len());
    }
    // The shell may hand a packet over in two pieces: wherever it is cut, nothing panics, and what
    // the head alone tells is not contradicted by the whole.
    for cut in [20, 24, 28, 40, 44, 48, 60, 64].into_iter().filter(|&cut| cut <= data.len()) {
        let (head, tail) = data.split_at(cut);
        let pieces = Pieces::cut(head, tail);
        if let Ok(InnerPacket { headers: part, .. }) = InnerPacket::parse(pieces) {
            assert_eq!((part.source, part.destination), (headers.source, headers.destination));
            assert!(part.ports.is_none() || part.ports == headers.ports);
        }
        let mut copy = Vec::new();
        pieces.copy_to(&mut copy);
        assert_eq!(copy, data);
    }
    errors(&whole);
}

/// What an error of ICMP quotes was sent by whom it goes to; and what may be answered by one can be
/// told of what it was about.
fn errors(packet: &InnerPacket<'_>) {
    let Headers { source, destination, .. } = packet.headers;
    if let Some(heard) = Unreached::parse(packet) {
        assert_eq!(heard.headers.source, destination);
    }
    if may_be_answered(packet) {
        let from = if source.is_ipv4() { [10, 77, 0, 1].into() } else { V6_GATEWAY.into() };
        let mut answer = Vec::new();
        prohibit(from, packet, &mut answer);
        let answer = InnerPacket::whole(&answer).expect("an inner packet");
        let heard = Unreached::parse(&answer).expect("what it is");
        assert_eq!((heard.by, heard.why), (from, Unreachable::Prohibited));
        assert_eq!((heard.headers.source, heard.headers.destination), (source, destination));
        assert!(packet.pieces.head.starts_with(heard.quoted));
        assert!(!may_be_answered(&answer), "an error about an error");
    }
}

const V6_GATEWAY: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

fn seeds() -> Vec<Vec<u8>> {
    let mut later_fragment = udp_v4(b"later");
    later_fragment[7] = 10;
    let refusal = |from: IpAddr, about: Vec<u8>| {
        let about = InnerPacket::whole(&about).expect("a packet of this file");
        let mut answer = Vec::new();
        prohibit(from, &about, &mut answer);
        answer
    };
    vec![
        refusal([10, 77, 0, 1].into(), udp_v4(b"ping")),
        refusal(V6_GATEWAY.into(), v6(17, &[0, 53, 0xc0, 0, 0, 12, 0, 0, 1, 2, 3, 4])),
        udp_v4(b"ping"),
        later_fragment,
        v6(17, &[0, 53, 0xc0, 0, 0, 12, 0, 0, 1, 2, 3, 4]),
        v6(6, &[0; 20]),
        // Hop-by-hop, routing and destination options before UDP.
        v6(
            0,
            &[[43, 0, 0, 0, 0, 0, 0, 0], [60, 0, 0, 0, 0, 0, 0, 0], [17, 0, 0, 0, 0, 0, 0, 0]]
                .concat(),
        ),
        // A first and a later fragment.
        v6(44, &[17, 0, 0, 1, 0, 0, 0, 1, 0, 53, 0, 53, 0, 8, 0, 0]),
        v6(44, &[17, 0, 0, 9, 0, 0, 0, 1, 1, 2, 3, 4]),
    ]
}

/// An IPv4 UDP packet without checksums.
pub(crate) fn udp_v4(payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(28 + payload.len()).unwrap_or(u8::MAX);
    let mut packet = vec![0x45, 0, 0, length, 0, 1, 0, 0, 64, 17, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1];
    packet.extend_from_slice(&[0xc0, 0, 0, 53, 0, length - 20, 0, 0]);
    packet.extend_from_slice(payload);
    packet
}

/// An IPv6 packet whose first header after the fixed one is of kind `next`.
fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
    let length = u8::try_from(rest.len()).unwrap_or(u8::MAX);
    let mut packet = vec![0x60, 0, 0, 0, 0, length, next, 64];
    for end in [2, 1] {
        packet.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
    }
    packet.extend_from_slice(rest);
    packet
}
