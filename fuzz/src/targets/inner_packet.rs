//! The headers of inner IP packets, from the TUN device or from a peer.

use std::net::IpAddr;

use rove_proto::wire::icmp::{Unreachable, Unreached, may_be_answered, prohibit};
use rove_proto::wire::inner::{InnerPacket, InnerView, MAX_PACKET, declared_len};

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "inner_packet", run, seeds, mutations: 100_000 };

fn run(data: &[u8]) {
    let whole = InnerView::parse(data, data.len());
    let Ok(view) = whole else { return };
    assert!(data.len() <= MAX_PACKET);
    assert_eq!(declared_len(data), Some(data.len()));
    assert_eq!(view.source.is_ipv4(), view.destination.is_ipv4(), "families do not mix");
    if let Some(transport) = view.transport {
        assert!(view.ports.is_none() || transport + 4 <= data.len());
    }
    // The shell may hand a packet over in two pieces: wherever it is cut, nothing panics, and what
    // the head alone tells is not contradicted by the whole.
    for cut in [20, 24, 28, 40, 44, 48, 60, 64].into_iter().filter(|&cut| cut <= data.len()) {
        let (head, tail) = data.split_at(cut);
        let packet = InnerPacket::cut(head, tail);
        if let Ok(part) = InnerView::parse(packet.head, packet.len()) {
            assert_eq!((part.source, part.destination), (view.source, view.destination));
            assert!(part.ports.is_none() || part.ports == view.ports);
        }
        let mut copy = Vec::new();
        packet.copy_to(&mut copy);
        assert_eq!(copy, data);
    }
    errors(&view, data);
}

/// What an error of ICMP quotes was sent by whom it goes to; and what may be answered by one can be
/// told of what it was about.
fn errors(view: &InnerView, packet: &[u8]) {
    if let Some(heard) = Unreached::parse(view, packet) {
        assert_eq!(heard.view.source, view.destination);
    }
    if may_be_answered(view, packet) {
        let from = if view.source.is_ipv4() { [10, 77, 0, 1].into() } else { V6_GATEWAY.into() };
        let mut answer = Vec::new();
        prohibit(from, view, packet, &mut answer);
        let answered = InnerView::parse(&answer, answer.len()).expect("an inner packet");
        let heard = Unreached::parse(&answered, &answer).expect("what it is");
        assert_eq!((heard.by, heard.why), (from, Unreachable::Prohibited));
        assert_eq!((heard.view.source, heard.view.destination), (view.source, view.destination));
        assert!(packet.starts_with(heard.quoted));
        assert!(!may_be_answered(&answered, &answer), "an error about an error");
    }
}

const V6_GATEWAY: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

fn seeds() -> Vec<Vec<u8>> {
    let mut later_fragment = udp_v4(b"later");
    later_fragment[7] = 10;
    let refusal = |from: IpAddr, about: Vec<u8>| {
        let view = InnerView::parse(&about, about.len()).expect("a packet of this file");
        let mut answer = Vec::new();
        prohibit(from, &view, &about, &mut answer);
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
