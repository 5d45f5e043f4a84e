//! Packets of a peer, joined for the TUN. Split again, they must be the same packets, and those of
//! one flow must keep their order. If their checksums were left out, whatever is written can be
//! split.
//!
//! The input describes packets, six bytes each (`Fields::described`); a description that begins
//! with `RAW` is followed by a length and the bytes of a packet as they are.

use rove_os::fuzz::{MERGE_MAX, tun_merge, tun_split};
use rove_os::tun::Packet;

use crate::Target;
use crate::internet::Fields;

/// The target.
pub const TARGET: Target = Target { name: "tun_merge", run, seeds, mutations: 10_000 };

/// The bytes of a packet follow as they are.
const RAW: u8 = 0xff;

fn run(data: &[u8]) {
    let packets = described(data);
    let borrowed: Vec<Packet<'_>> = packets.iter().map(|packet| Packet::whole(packet)).collect();
    let mut cut: Vec<Vec<u8>> = Vec::new();
    tun_merge(&borrowed, |written, joined| {
        let mut written = written.to_vec();
        let before = cut.len();
        let count = tun_split(&mut written, |(header, payload, _)| {
            cut.push([header, payload].concat());
        });
        if written.len() > 10 {
            assert_eq!(count, Some(cut.len() - before), "the kernel would refuse it");
            assert!(joined || count == Some(1));
        } else {
            // An empty packet, which is not written to the kernel either.
            cut.push(Vec::new());
        }
    });
    let (mut came, mut left) = (packets.clone(), cut.clone());
    came.sort();
    left.sort();
    assert_eq!(left, came, "other packets leave than came");
    for flow in packets.iter().map(|packet| flow_of(packet)) {
        let of = |all: &[Vec<u8>]| -> Vec<Vec<u8>> {
            all.iter().filter(|packet| flow_of(packet) == flow).cloned().collect()
        };
        assert_eq!(of(&cut), of(&packets), "the packets of one flow have changed places");
    }
    let bare = packets.iter().map(|packet| Packet::without_checksum(packet));
    tun_merge(&bare.collect::<Vec<_>>(), |written, _| {
        let is_taken = written.len() <= 10 || tun_split(&mut written.to_vec(), |_| ()).is_some();
        assert!(is_taken, "the kernel would refuse it");
    });
}

/// The flow of a packet that can be joined: addresses, protocol, ports.
fn flow_of(packet: &[u8]) -> Option<Vec<u8>> {
    let (addresses, protocol, ports) = match packet.first()? {
        0x45 => (12..20, 9, 20..24),
        0x60..=0x6f => (8..40, 6, 40..44),
        _ => return None,
    };
    let protocol = packet.get(protocol).filter(|protocol| matches!(protocol, 6 | 17))?;
    Some([packet.get(addresses)?, &[*protocol], packet.get(ports)?].concat())
}

fn described(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    while packets.len() < MERGE_MAX {
        if let [RAW, length, rest @ ..] = data {
            let (packet, rest) = rest.split_at(usize::from(*length).min(rest.len()));
            packets.push(packet.to_vec());
            data = rest;
        } else if let Some((fields, rest)) = data.split_first_chunk::<6>() {
            packets.push(Fields::described(*fields).packet());
            data = rest;
        } else {
            break;
        }
    }
    packets
}

fn seeds() -> Vec<Vec<u8>> {
    // TCP of one flow in order, with a short last one; flows that alternate; UDP; IPv6.
    let flow = |what: u8, port: u8, lengths: &[u8]| -> Vec<u8> {
        let each = |(number, length): (usize, &u8)| {
            [what, port, u8::try_from(number).unwrap_or(0), 0, *length, 0]
        };
        lengths.iter().enumerate().flat_map(each).collect()
    };
    let raw = |packet: &[u8]| [&[RAW, u8::try_from(packet.len()).unwrap_or(0)], packet].concat();
    let fragment = [&[0x45, 0, 0, 24, 0, 1, 0x20, 0, 64, 17][..], &[0; 14]].concat();
    vec![
        flow(0, 1, &[100, 100, 100, 40]),
        flow(1, 1, &[100, 100, 100, 100]),
        flow(2, 1, &[90; 20]),
        flow(3, 1, &[90, 90, 10, 90]),
        (0..9).flat_map(|port| flow(0, port, &[50, 50])).collect(),
        [flow(0, 1, &[60, 60]), raw(&fragment), flow(0, 1, &[60])].concat(),
        [flow(2, 1, &[60, 60]), raw(b""), raw(&[0x60; 50])].concat(),
    ]
}
