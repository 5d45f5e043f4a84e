//! Compressed packets from a peer: an error, or one inner packet of bounded length.
//!
//! What is an inner packet is compressed as well, and comes back.

use rove_proto::codec::coding::Coding;
use rove_proto::codec::compression::{Coder, PADDED_TO};
use rove_proto::codec::dictionary;
use rove_proto::wire::inner::{MAX_PACKET, Pieces, declared_len};

use super::inner_packet::udp_v4;
use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "compressed", run, seeds, mutations: 20_000 };

fn run(data: &[u8]) {
    let mut coder = Coder::default();
    if let Ok(packet) = coder.decompress(data) {
        assert!(packet.len() <= MAX_PACKET, "{} bytes", packet.len());
        assert_eq!(declared_len(packet), Some(packet.len()), "one inner packet, and no more");
    }
    if data.len() > MAX_PACKET || declared_len(data) != Some(data.len()) {
        return;
    }
    for coding in codings() {
        for padded in [false, true] {
            let result = coder.compress(coding, Pieces::whole(data), padded).map(<[u8]>::to_vec);
            let Some(result) = result else { continue };
            assert!(result.len() < data.len(), "no result is larger");
            assert!(!padded || result.len().is_multiple_of(PADDED_TO));
            assert_eq!(coder.decompress(&result), Ok(data), "what goes in comes out");
        }
    }
}

fn codings() -> Vec<Coding> {
    let with = dictionary::ALL.iter().map(|one| Coding::with_dictionary(one.number));
    [Coding::LZ4, Coding::ZSTD].into_iter().chain(with).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let text = b"{\"n\":\"temperature\",\"u\":\"Cel\",\"v\":21.5},".repeat(9);
    let packets = [udp_v4(&text), udp_v4(&[b'a'; 1_400]), udp_v4(b"ping")];
    let mut coder = Coder::default();
    let mut seeds: Vec<Vec<u8>> = packets.to_vec();
    for packet in &packets {
        for coding in codings() {
            for padded in [false, true] {
                let result = coder.compress(coding, Pieces::whole(packet), padded);
                seeds.extend(result.map(<[u8]>::to_vec));
            }
        }
    }
    seeds
}
