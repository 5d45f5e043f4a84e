//! Headers that a peer says once, and packets without them: what is restored is a packet that its
//! own sender could have sent so.
//!
//! An input is `form 1 | length 1 | headers | body`.

use rove_proto::codec::header::Template;
use rove_proto::wire::inner::{InnerPacket, MAX_PACKET, Pieces};

use super::inner_packet::udp_v4;
use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "compact", run, seeds, mutations: 100_000 };

fn run(data: &[u8]) {
    let Some((&[form, length], rest)) = data.split_first_chunk() else { return };
    let Some((header, body)) = rest.split_at_checked(length.into()) else { return };
    let Ok(template) = Template::parse(form, header) else { return };
    assert_eq!((template.form(), template.header()), (form, header), "said again, it is another");
    let mut head = Vec::new();
    let Ok(restored) = template.restore(body, &mut head) else { return };
    assert!(InnerPacket::parse(restored).is_ok(), "its headers are read before it is whole");
    let packet = restored.to_vec();
    assert!(packet.len() <= MAX_PACKET && InnerPacket::whole(&packet).is_ok());
    let pieces = Pieces::whole(&packet);
    assert!(template.matches(&packet), "it is of another flow than its context");
    let fields = template.elide(pieces).expect("its lengths and checksums are right");
    let mut again = Vec::new();
    fields.append(pieces, &mut again);
    assert_eq!(again, body);
}

fn seeds() -> Vec<Vec<u8>> {
    let rtp = [0x80, 0x60, 0, 1, 0, 0, 0, 160, 1, 2, 3, 4, 9, 9, 9];
    let tcp_v4 = tcp(&[]);
    let sacked = tcp(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 10, 0, 0, 0, 3, 0, 0, 0, 4]);
    let mut v6 = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
    v6.extend([0xfd; 32]);
    v6.extend([0x9c, 0x40, 1, 0xbb, 0, 12, 0, 0, 7, 7, 7, 7]);
    let packets = [udp_v4(b"ping"), udp_v4(&rtp), tcp_v4, sacked, v6];
    let seed = |(packet, is_rtp): (&Vec<u8>, bool)| {
        let template = Template::of(packet, is_rtp)?;
        let header = template.header();
        let length = u8::try_from(header.len()).ok()?;
        // Any body: it is the peer's to choose.
        Some([&[template.form(), length], header, &packet[..30], &[1; 9]].concat())
    };
    packets.iter().flat_map(|packet| [(packet, false), (packet, true)]).filter_map(seed).collect()
}

/// A TCP segment with these options and four bytes of payload.
fn tcp(options: &[u8]) -> Vec<u8> {
    let len = u8::try_from(44 + options.len()).expect("a short packet");
    let mut packet =
        vec![0x45, 0, 0, len, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 2, 198, 51, 100, 7];
    packet.extend([0x9c, 0x40, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 2]);
    let words = u8::try_from(5 + options.len() / 4).expect("a short header");
    packet.extend([words << 4, 0x10, 1, 0xf5, 0, 0, 0, 0]);
    packet.extend(options);
    packet.extend(b"data");
    packet
}
