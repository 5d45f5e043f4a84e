//! Laws of cutting and joining: what is joined and cut again is what went in.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    checksum,
    merge::{self, Allowed, BATCH_MAX, Output},
    packet::Packet,
    split::{self, HEADER_LEN_MAX, Segment},
    vnet::{Checksum, Gso, VNET_LEN, Vnet},
};

const BOTH: Allowed = Allowed { tcp: true, udp: true };
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const ECE: u8 = 0x40;
const CWR: u8 = 0x80;
const TIMESTAMPS: u8 = 8;
const SELECTIVE: u8 = 5;

/// A packet to build.
#[derive(Clone, Debug)]
struct Spec {
    v6: bool,
    udp: bool,
    port: u16,
    identification: u16,
    hop_limit: u8,
    tos: u8,
    sequence: u32,
    acknowledgement: u32,
    flags: u8,
    window: u16,
    timestamp: Option<u32>,
    /// The kind of the option that holds the timestamp.
    option: u8,
    payload: Vec<u8>,
}

impl Spec {
    fn tcp(v6: bool, port: u16, index: usize, size: usize) -> Self {
        Self {
            v6,
            udp: false,
            port,
            identification: 0xfffe_u16.wrapping_add(index as u16),
            hop_limit: 64,
            tos: 0,
            sequence: 0xffff_fe00_u32.wrapping_add((index * size) as u32),
            acknowledgement: 7,
            flags: ACK,
            window: 500,
            timestamp: Some(99),
            option: TIMESTAMPS,
            payload: (0..size).map(|at| (at * 7 + index) as u8).collect(),
        }
    }

    fn udp(v6: bool, port: u16, index: usize, size: usize) -> Self {
        Self { udp: true, timestamp: None, ..Self::tcp(v6, port, index, size) }
    }

    /// A bare acknowledgement of `index` segments.
    fn acknowledgement(v6: bool, port: u16, index: usize) -> Self {
        let acknowledgement = 0xffff_fe00_u32.wrapping_add((index * 1_300) as u32);
        let timestamp = Some(index as u32);
        Self { acknowledgement, timestamp, ..Self::tcp(v6, port, 0, 0) }
    }

    fn build(&self) -> Vec<u8> {
        let mut transport = Vec::new();
        transport.extend(4_000u16.to_be_bytes());
        transport.extend(self.port.to_be_bytes());
        if self.udp {
            transport.extend(((8 + self.payload.len()) as u16).to_be_bytes());
            transport.extend([0, 0]);
        } else {
            let options: Vec<u8> = self.timestamp.map_or_else(Vec::new, |value| {
                let mut options = vec![1, 1, self.option, 10];
                options.extend(value.to_be_bytes());
                options.extend([0; 4]);
                options
            });
            transport.extend(self.sequence.to_be_bytes());
            transport.extend(self.acknowledgement.to_be_bytes());
            transport.extend([((20 + options.len()) << 2) as u8, self.flags]);
            transport.extend(self.window.to_be_bytes());
            transport.extend([0; 4]);
            transport.extend(options);
        }
        transport.extend(&self.payload);
        let mut packet = self.ip_header(transport.len());
        let addresses = if self.v6 { 8..40 } else { 12..20 };
        let protocol = if self.udp { 17 } else { 6 };
        let sum = checksum::pseudo_header(&packet[addresses], protocol, transport.len())
            + checksum::sum(&transport);
        let field = if self.udp { 6 } else { 16 };
        let value = match !checksum::fold(sum) {
            0 if self.udp => 0xffff,
            value => value,
        };
        transport[field..field + 2].copy_from_slice(&value.to_be_bytes());
        packet.extend(transport);
        packet
    }

    fn ip_header(&self, transport_len: usize) -> Vec<u8> {
        let protocol = if self.udp { 17 } else { 6 };
        let mut header = Vec::new();
        if self.v6 {
            header.extend([0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
            header.extend((transport_len as u16).to_be_bytes());
            header.extend([protocol, self.hop_limit]);
            header.extend([[0xfd; 16], [0xfe; 16]].concat());
        } else {
            header.extend([0x45, self.tos]);
            header.extend(((20 + transport_len) as u16).to_be_bytes());
            header.extend(self.identification.to_be_bytes());
            header.extend([0x40, 0, self.hop_limit, protocol, 0, 0, 10, 1, 2, 3, 10, 4, 5, 6]);
            let sum = !checksum::fold(checksum::sum(&header));
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        header
    }
}

/// What the kernel would be given, as (header, packet).
fn merged(packets: &[Vec<u8>], allowed: Allowed) -> Vec<(Vnet, Vec<u8>)> {
    let packets: Vec<Packet<'_>> = packets.iter().map(|packet| Packet::whole(packet)).collect();
    written(&packets, allowed)
}

/// The same of packets that may lack their checksums.
fn written(packets: &[Packet<'_>], allowed: Allowed) -> Vec<(Vnet, Vec<u8>)> {
    let mut outputs = Vec::new();
    merge::merge(packets, allowed, &mut |output| {
        outputs.push(match output {
            Output::Single { packet, verified: _ } => {
                (Vnet::plain(Checksum::Present), finished(packet))
            }
            Output::Super { vnet, header, payloads, packets } => {
                assert_eq!(payloads.len(), packets.len());
                (vnet, [header, &payloads.concat()].concat())
            }
        });
    });
    outputs
}

/// A packet as it is written alone.
fn finished(packet: Packet<'_>) -> Vec<u8> {
    packet.finish(&mut [0; HEADER_LEN_MAX]).concat()
}

/// The packet with other bytes in the field of its checksum.
fn blank(mut packet: Vec<u8>, bytes: u16) -> Vec<u8> {
    let field = checksum_at(&packet);
    packet[field..field + 2].copy_from_slice(&bytes.to_be_bytes());
    packet
}

/// Where the checksum of a packet lies that [`Spec`] built.
fn checksum_at(packet: &[u8]) -> usize {
    let (start, protocol) = if packet[0] == 0x45 { (20, packet[9]) } else { (40, packet[6]) };
    start + if protocol == 17 { 6 } else { 16 }
}

fn cut(outputs: Vec<(Vnet, Vec<u8>)>) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for (vnet, mut packet) in outputs {
        split::finish(vnet, &mut packet).unwrap();
        split::split(vnet, &packet, |segment| {
            assert_eq!(segment.is_cut(), vnet.gso != Gso::None);
            let Segment { header, payload, at } = segment;
            assert_eq!(payload, &packet[at..at + payload.len()]);
            packets.push([header, payload].concat());
        })
        .unwrap();
    }
    packets
}

/// The packets of each flow in order; what has no flow, under its own bytes.
fn by_flow(packets: &[Vec<u8>]) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for packet in packets {
        let key = match packet.first() {
            Some(0x45) if packet.len() >= 28 => [&packet[9..10], &packet[12..24]].concat(),
            Some(0x60..=0x6f) if packet.len() >= 48 => [&packet[6..7], &packet[8..44]].concat(),
            _ => packet.clone(),
        };
        flows.entry(key).or_default().push(packet.clone());
    }
    flows
}

fn run(count: usize, make: impl Fn(usize) -> Spec) -> Vec<Vec<u8>> {
    (0..count).map(|index| make(index).build()).collect()
}

#[test]
fn forty_segments_become_one_and_come_back() {
    for v6 in [false, true] {
        for udp in [false, true] {
            let packets = run(40, |index| match udp {
                true => Spec::udp(v6, 80, index, 1_300),
                false => Spec::tcp(v6, 80, index, 1_300),
            });
            let outputs = merged(&packets, BOTH);
            assert_eq!(outputs.len(), 1, "v6 {v6} udp {udp}");
            assert_eq!(outputs[0].0.gso, if udp { Gso::Udp } else { Gso::Tcp });
            assert_eq!(outputs[0].0.gso_size, 1_300);
            assert_eq!(cut(outputs), packets);
        }
    }
}

#[test]
fn a_short_or_pushed_packet_ends_the_run() {
    let mut specs: Vec<Spec> = (0..4).map(|index| Spec::tcp(false, 80, index, 100)).collect();
    specs[1].flags |= PSH;
    let packets: Vec<_> = specs.iter().map(Spec::build).collect();
    let outputs = merged(&packets, BOTH);
    assert_eq!(outputs.len(), 2);
    assert_eq!(cut(outputs), packets);

    let mut specs: Vec<Spec> = (0..2).map(|index| Spec::tcp(false, 80, index, 100)).collect();
    specs[1].payload.truncate(40);
    let mut after = Spec::tcp(false, 80, 2, 100);
    after.sequence = specs[1].sequence.wrapping_add(40);
    specs.push(after);
    let packets: Vec<_> = specs.iter().map(Spec::build).collect();
    let outputs = merged(&packets, BOTH);
    assert_eq!(outputs.len(), 2);
    assert_eq!(cut(outputs), packets);
}

#[test]
fn what_differs_is_never_joined() {
    type Change = fn(&mut Spec);
    let changes: [(&str, Change); 10] = [
        ("hop limit", |spec| spec.hop_limit = 63),
        ("congestion mark", |spec| spec.tos = 3),
        ("acknowledgement", |spec| spec.acknowledgement = 8),
        ("window", |spec| spec.window = 501),
        ("timestamp", |spec| spec.timestamp = Some(100)),
        ("options", |spec| spec.timestamp = None),
        ("hole", |spec| spec.sequence = spec.sequence.wrapping_add(1)),
        ("FIN", |spec| spec.flags |= FIN),
        ("SYN", |spec| spec.flags |= SYN),
        ("CWR", |spec| spec.flags |= CWR),
    ];
    for v6 in [false, true] {
        for (what, change) in changes {
            let first = Spec::tcp(v6, 80, 0, 100);
            let mut second = Spec::tcp(v6, 80, 1, 100);
            change(&mut second);
            let packets = vec![first.build(), second.build()];
            let outputs = merged(&packets, BOTH);
            assert_eq!(outputs.len(), 2, "{what}");
            assert_eq!(cut(outputs), packets, "{what}");
        }
    }
    let first = Spec::tcp(false, 80, 0, 100);
    let second = Spec { identification: 9, ..Spec::tcp(false, 80, 1, 100) };
    assert_eq!(merged(&[first.build(), second.build()], BOTH).len(), 2);
}

#[test]
fn a_batch_of_several_flows_in_turns_becomes_one_of_each() {
    for v6 in [false, true] {
        let flow = |port| move |index| Spec::tcp(v6, port, index, 100);
        let packets: Vec<_> = (0..400)
            .map(|number| (80 + (number / 5 % 4) as u16, number / 20 * 5 + number % 5))
            .map(|(port, index)| flow(port)(index).build())
            .collect();
        let outputs = merged(&packets, BOTH);
        assert_eq!(outputs.len(), 4, "each flow once, though it came in twenty pieces");
        let all = merged(&run(300, flow(80)), BOTH);
        assert_eq!(all.len(), 300_usize.div_ceil(merge::RUN_MAX), "as many as one may hold");
    }
}

#[test]
fn of_bare_acknowledgements_the_newest_arrives() {
    for v6 in [false, true] {
        let spec = |number| Spec::acknowledgement(v6, 80 + (number % 4) as u16, number / 4);
        let outputs = merged(&run(40, spec), BOTH);
        assert_eq!(cut(outputs), run(4, |flow| spec(36 + flow)), "one of each flow");
        // None overtakes data of its flow, and data separates those before and after it.
        let data = Spec { acknowledgement: 9, ..Spec::tcp(v6, 80, 1, 100) };
        let acknowledgements = [1, 2, 3].map(|index| Spec::acknowledgement(v6, 80, index));
        let [one, two, three] = acknowledgements.map(|spec| spec.build());
        let outputs = cut(merged(&[one, two.clone(), data.build(), three.clone()], BOTH));
        assert_eq!(outputs, [two, data.build(), three]);
    }
}

#[test]
fn an_acknowledgement_that_says_more_than_how_far_its_sender_is_arrives() {
    type Change = fn(&mut Spec);
    let changes: [(&str, Change); 9] = [
        ("again the same: a sign of loss", |spec| spec.acknowledgement = 0xffff_fe00),
        ("less", |spec| spec.acknowledgement = 0xffff_fdff),
        ("an earlier sequence number", |spec| spec.sequence = spec.sequence.wrapping_sub(1)),
        ("congestion mark", |spec| spec.tos = 3),
        ("ECE", |spec| spec.flags |= ECE),
        ("PSH", |spec| spec.flags |= PSH),
        ("FIN", |spec| spec.flags |= FIN),
        ("no timestamp", |spec| spec.timestamp = None),
        ("selective acknowledgement", |spec| spec.option = SELECTIVE),
    ];
    for v6 in [false, true] {
        let [first, second] = [0, 1].map(|index| Spec::acknowledgement(v6, 80, index));
        let unchanged = merged(&[first.build(), second.build()], BOTH);
        assert_eq!(cut(unchanged), [second.build()], "the newer says it all");
        for (what, change) in changes {
            let mut second = second.clone();
            change(&mut second);
            let both = vec![first.build(), second.build()];
            assert_eq!(cut(merged(&both, BOTH)), both, "{what}");
        }
        let mut first = first;
        first.option = SELECTIVE;
        let both = vec![first.build(), second.build()];
        assert_eq!(cut(merged(&both, BOTH)), both, "a selective one stays");
    }
}

#[test]
fn a_corrupted_packet_stays_corrupted() {
    let mut packets = run(3, |index| Spec::tcp(false, 80, index, 100));
    packets[1][70] ^= 1;
    let outputs = merged(&packets, BOTH);
    assert_eq!(outputs.len(), 3);
    assert_eq!(cut(outputs), packets);
}

#[test]
fn packets_without_checksums_are_joined_and_come_back_with_them() {
    for v6 in [false, true] {
        for udp in [false, true] {
            let packets = run(40, |index| match udp {
                true => Spec::udp(v6, 80, index, 1_300),
                false => Spec::tcp(v6, 80, index, 1_300),
            });
            // Some are whole, as those that had to travel so.
            let bytes: Vec<Vec<u8>> = (0..)
                .zip(&packets)
                .map(|(at, it)| if at % 5 == 4 { it.clone() } else { blank(it.clone(), at) })
                .collect();
            let given = (0..).zip(&bytes).map(|(at, it)| match at % 5 {
                4 => Packet::whole(it),
                _ => Packet::without_checksum(it),
            });
            let given: Vec<Packet<'_>> = given.collect();
            let outputs = written(&given, BOTH);
            assert_eq!(outputs.len(), 1, "v6 {v6} udp {udp}");
            assert_eq!(cut(outputs), packets);
            let alone = written(&given, Allowed { tcp: false, udp: false });
            assert_eq!(alone.len(), 40);
            assert_eq!(cut(alone), packets);
        }
    }
}

#[test]
fn what_is_no_tcp_and_no_udp_is_written_as_it_is() {
    let mut short = [0; 24];
    (short[0], short[9]) = (0x45, 17);
    for packet in [&[][..], &[0x45; 9], &[0x45; 20], &[0x60; 41], &short, &[7; 90]] {
        assert_eq!(finished(Packet::without_checksum(packet)), packet);
    }
}

#[test]
fn nothing_is_joined_that_was_not_agreed() {
    let packets = run(3, |index| Spec::udp(false, 80, index, 100));
    assert_eq!(merged(&packets, Allowed { tcp: true, udp: false }).len(), 3);
    let packets = run(3, |index| Spec::tcp(false, 80, index, 100));
    assert_eq!(merged(&packets, Allowed { tcp: false, udp: false }).len(), 3);
}

#[test]
fn only_the_first_segment_says_cwr_and_only_the_last_fin_and_psh() {
    let size = 500;
    let spec = Spec { flags: ACK | PSH | FIN | CWR, ..Spec::tcp(false, 80, 0, 3 * size) };
    let vnet = Vnet {
        gso: Gso::Tcp,
        gso_size: size as u16,
        header_len: 52,
        checksum: Checksum::Partial { start: 20, offset: 16 },
    };
    let flags: Vec<u8> = cut(vec![(vnet, spec.build())]).iter().map(|p| p[33]).collect();
    assert_eq!(flags, [ACK | CWR, ACK, ACK | PSH | FIN]);
}

#[test]
fn a_checksum_left_to_us_is_completed() {
    for (v6, start) in [(false, 20u16), (true, 40)] {
        for udp in [false, true] {
            let spec = if udp { Spec::udp(v6, 80, 0, 99) } else { Spec::tcp(v6, 80, 0, 99) };
            let whole = spec.build();
            let mut partial = whole.clone();
            let offset = if udp { 6u16 } else { 16 };
            let field = usize::from(start + offset);
            let addresses = if v6 { 8..40 } else { 12..20 };
            let protocol = if udp { 17 } else { 6 };
            let pseudo = checksum::pseudo_header(
                &whole[addresses],
                protocol,
                whole.len() - usize::from(start),
            );
            partial[field..field + 2].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
            let vnet = Vnet::plain(Checksum::Partial { start, offset });
            assert_eq!(cut(vec![(vnet, partial)]), vec![whole]);
        }
    }
}

fn spec() -> impl Strategy<Value = Spec> {
    let size = prop_oneof![Just(0usize), Just(100), Just(100), Just(100), 1usize..200];
    (any::<(bool, bool)>(), 80u16..83, 0usize..6, size, 0u8..40).prop_map(
        |((v6, udp), port, index, size, odd)| {
            let mut spec =
                if udp { Spec::udp(v6, port, index, 100) } else { Spec::tcp(v6, port, index, 100) };
            spec.payload.resize(size, 1);
            match odd {
                0 => spec.flags |= PSH,
                1 => spec.flags |= FIN,
                2 => spec.tos = 1,
                3 => spec.window += 1,
                _ => {}
            }
            spec
        },
    )
}

/// Mostly orderly flows, so that joining happens, with disorder and damage among them.
fn traffic() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let orderly = (any::<(bool, bool)>(), 80u16..90, 1usize..12, 1usize..400).prop_map(
        |((v6, udp), port, count, size)| {
            run(count, |index| match udp {
                true => Spec::udp(v6, port, index, size),
                false => Spec::tcp(v6, port, index, size),
            })
        },
    );
    let single = spec().prop_map(|spec| vec![spec.build()]);
    let damaged = (spec(), any::<prop::sample::Index>(), 1u8..).prop_map(|(spec, at, flip)| {
        let mut packet = spec.build();
        let at = at.index(packet.len());
        packet[at] ^= flip;
        vec![packet]
    });
    let noise = prop::collection::vec(any::<u8>(), 1..80).prop_map(|packet| vec![packet]);
    let part = prop_oneof![4 => orderly, 2 => single, 1 => damaged, 1 => noise];
    prop::collection::vec(part, 1..12).prop_map(|parts| {
        let mut packets = parts.concat();
        packets.truncate(BATCH_MAX);
        packets
    })
}

proptest! {
    #[test]
    fn joined_and_cut_is_what_went_in(packets in traffic(), interleave in any::<bool>()) {
        let mut packets = packets;
        if interleave {
            // A riffle, which keeps each half in order.
            let half = packets.split_off(packets.len() / 2);
            packets = packets.into_iter().map(Some).chain([None]).zip(
                half.into_iter().map(Some).chain(std::iter::repeat(None)),
            ).flat_map(|(one, other)| [one, other]).flatten().collect();
        }
        let outputs = merged(&packets, BOTH);
        prop_assert!(outputs.iter().all(|(_, packet)| packet.len() <= super::PACKET_LEN_MAX));
        prop_assert_eq!(by_flow(&cut(outputs)), by_flow(&packets));
    }

    /// Also that of a packet that is joined with none because a reserved bit is set.
    #[test]
    fn a_checksum_that_was_left_out_is_made(spec in spec(), bytes: u16, reserved: bool) {
        let mut packet = spec.build();
        if reserved && !spec.v6 {
            packet[6] |= 0x80; // a bit of the fragment field that means nothing (RFC 791, 3.1)
        }
        let field = checksum_at(&packet);
        let blank = blank(packet.clone(), bytes);
        if packet[field..field + 2] == [0, 0] {
            packet[field..field + 2].fill(0xff); // the same, as UDP writes it
        }
        let outputs = written(&[Packet::without_checksum(&blank)], BOTH);
        prop_assert_eq!(cut(outputs), [packet]);
    }

    #[test]
    fn no_bytes_of_a_kernel_make_cutting_panic(
        header in any::<[u8; VNET_LEN]>(),
        packet in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        if let Some(vnet) = Vnet::decode(&header) {
            let mut packet = packet;
            if split::finish(vnet, &mut packet).is_ok() {
                let _ = split::split(vnet, &packet, |segment| assert!(!segment.is_empty()));
            }
        }
    }

    #[test]
    fn nearly_right_super_packets_do_not_panic(
        spec in spec(),
        start in prop_oneof![Just(20u16), Just(40u16), any::<u16>()],
        gso_size in prop_oneof![1u16..300, any::<u16>()],
        udp in any::<bool>(),
    ) {
        let gso = if udp { Gso::Udp } else { Gso::Tcp };
        let checksum = Checksum::Partial { start, offset: 16 };
        let vnet = Vnet { gso, gso_size, header_len: 0, checksum };
        let mut bytes = 0;
        let packet = spec.build();
        if split::split(vnet, &packet, |segment| bytes += segment.payload.len()).is_ok() {
            prop_assert!(bytes > 0 && bytes < packet.len());
        }
    }
}
