//! Which packets are compressed: what the allow-list, the first bytes, the samples and the bounds
//! say together.

use super::*;
use crate::codec::allowed::Rule;
use crate::wire::control::{End, Prefix};
use crate::wire::inner::{TCP, UDP};

const DEVICE: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 9];
const MS: Duration = Duration::from_millis(1);
const TEXT: &[u8] = &[b'a'; 400];

/// An IPv4 packet from one end to the other.
fn ipv4(protocol: u8, from: [u8; 4], to: [u8; 4], transport: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + transport.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
    packet.extend_from_slice(&from);
    packet.extend_from_slice(&to);
    packet.extend_from_slice(transport);
    packet
}

fn udp((from, near): ([u8; 4], u16), (to, far): ([u8; 4], u16), payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap();
    let head = [near.to_be_bytes(), far.to_be_bytes(), length.to_be_bytes(), [0, 0]].concat();
    ipv4(UDP, from, to, &[&head, payload].concat())
}

fn tcp(
    (from, near): ([u8; 4], u16),
    (to, far): ([u8; 4], u16),
    flags: Flags,
    payload: &[u8],
) -> Vec<u8> {
    let mut head = [near.to_be_bytes(), far.to_be_bytes()].concat();
    head.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags.0, 0xff, 0xff, 0, 0, 0, 0]);
    ipv4(TCP, from, to, &[&head, payload].concat())
}

/// Entries with a rule for the server.
fn entries(places: usize) -> Entries {
    let network = Prefix { address: SERVER.into(), bits: 32 };
    let rule = Rule { end: End { network, port: None }, coding: Coding::LZ4 };
    let mut entries = Entries::new(places);
    entries.allow(Allowed::new(&[rule]));
    entries
}

/// Whether a packet is to be compressed.
fn pass(entries: &mut Entries, now: Instant, way: Way, packet: &[u8]) -> bool {
    entries.pass(now, way, &InnerPacket::whole(packet).unwrap()).coding().is_some()
}

/// A connection on a port, from its SYN on, which sends `first`, then text. Whether that text is
/// compressed.
fn connection(way: Way, first: &[u8]) -> bool {
    let mut entries = entries(8);
    let (near, far) = ((DEVICE, 40_000), (SERVER, 9_000));
    let sent = |from, to, way, flags, payload, entries: &mut Entries| {
        pass(entries, Instant::ZERO, way, &tcp(from, to, flags, payload))
    };
    sent(near, far, Way::Out, Flags::SYN, &[], &mut entries);
    sent(far, near, Way::In, Flags::SYN.and(Flags::ACK), &[], &mut entries);
    if way == Way::Out {
        sent(near, far, Way::Out, Flags::ACK, first, &mut entries);
    } else {
        sent(far, near, Way::In, Flags::ACK, first, &mut entries);
    }
    sent(near, far, Way::Out, Flags::ACK, TEXT, &mut entries)
}

#[test]
fn a_flow_seen_to_carry_the_web_is_not_compressed_whatever_the_rule_says() {
    assert!(connection(Way::Out, b"220 ready\r\n") && connection(Way::In, b"220 ready\r\n"));
    for way in [Way::Out, Way::In] {
        assert!(!connection(way, b"GET / HTTP/1.1\r\n\r\n"));
        assert!(!connection(way, b"HTTP/1.1 200 OK\r\n\r\n"));
        assert!(!connection(way, &[22, 3, 1, 0, 200, 1, 0, 0, 196]));
    }
}

#[test]
fn a_connection_whose_beginning_nobody_saw_is_not_compressed() {
    let mut entries = entries(8);
    let segment = tcp((DEVICE, 40_000), (SERVER, 9_000), Flags::ACK, TEXT);
    assert!(!pass(&mut entries, Instant::ZERO, Way::Out, &segment));
    assert!(entries.is_empty());
}

#[test]
fn small_packets_and_other_destinations_are_not_compressed() {
    let mut entries = entries(8);
    let mut sent = |to, len| {
        let packet = udp((DEVICE, 40_000), (to, 5_683), &TEXT[..len - 28]);
        pass(&mut entries, Instant::ZERO, Way::Out, &packet)
    };
    assert!(!sent(SERVER, LEN_MIN) && sent(SERVER, LEN_MIN + 1));
    assert!(!sent([192, 0, 2, 8], 400));
}

#[test]
fn what_arrives_is_only_looked_at() {
    let mut entries = entries(8);
    let answer = udp((SERVER, 5_683), (DEVICE, 40_000), TEXT);
    assert!(!pass(&mut entries, Instant::ZERO, Way::In, &answer));
    assert_eq!(entries.len(), 1);
}

#[test]
fn closed_connections_leave_and_begin_anew() {
    let (near, far) = ((DEVICE, 40_000), (SERVER, 9_000));
    let mut entries = entries(8);
    let mut sent = |way, flags, payload: &[u8]| {
        let (from, to) = if way == Way::Out { (near, far) } else { (far, near) };
        let may = pass(&mut entries, Instant::ZERO, way, &tcp(from, to, flags, payload));
        (may, entries.len())
    };
    sent(Way::Out, Flags::SYN, &[]);
    assert_eq!(sent(Way::Out, Flags::ACK, b"GET / HTTP/1.1\r\n"), (false, 1));
    sent(Way::Out, Flags::ACK.and(Flags::FIN), &[]);
    assert_eq!(sent(Way::In, Flags::ACK.and(Flags::FIN), &[]), (false, 0));
    sent(Way::Out, Flags::SYN, &[]);
    assert_eq!(sent(Way::Out, Flags::ACK, TEXT), (true, 1), "another connection");
    assert_eq!(sent(Way::In, Flags::RST, &[]), (false, 0));
    // One end has ended, and the same ends begin anew before the other one says so.
    sent(Way::Out, Flags::SYN, &[]);
    sent(Way::Out, Flags::ACK, b"GET / HTTP/1.1\r\n");
    sent(Way::Out, Flags::ACK.and(Flags::FIN), &[]);
    sent(Way::Out, Flags::SYN, &[]);
    assert_eq!(sent(Way::Out, Flags::ACK, TEXT), (true, 1));
    // A repeated SYN is no other connection.
    sent(Way::Out, Flags::ACK, b"GET / HTTP/1.1\r\n");
    sent(Way::Out, Flags::SYN, &[]);
    assert_eq!(sent(Way::Out, Flags::ACK, TEXT), (false, 1));
}

#[test]
fn idle_flows_leave_for_new_ones() {
    let mut entries = entries(4);
    for port in 1..=4 {
        pass(&mut entries, Instant::ZERO, Way::Out, &udp((DEVICE, port), (SERVER, 5_683), TEXT));
    }
    assert_eq!(entries.len(), 4);
    let later = Instant::ZERO + IDLE;
    assert!(pass(&mut entries, later, Way::Out, &udp((DEVICE, 5), (SERVER, 5_683), TEXT)));
    assert_eq!(entries.len(), 1, "four are looked at when one is added");
}

#[test]
fn so_many_flows_have_an_entry_and_the_others_one_decision() {
    let mut entries = entries(ENTRIES_MAX);
    let now = Instant::ZERO;
    let flow = |number: u32| {
        let [_, a, b, c] = number.to_be_bytes();
        udp(([10, a, b, c], 40_000), (SERVER, 5_683), TEXT)
    };
    let full = u32::try_from(ENTRIES_MAX).unwrap();
    for number in 0..full {
        assert!(pass(&mut entries, now, Way::Out, &flow(number)), "{number}");
    }
    assert_eq!(entries.len(), ENTRIES_MAX);
    // All others are sampled together, for two seconds, whatever each of them is.
    for ms in 0..=2_000 {
        let (now, packet) = (now + MS * ms, flow(full + ms));
        assert!(pass(&mut entries, now, Way::Out, &packet), "{ms}");
        entries.left(now, &InnerPacket::whole(&packet).unwrap(), None, Scarce::Nothing);
    }
    let now = now + MS * 2_001;
    assert!(!pass(&mut entries, now, Way::Out, &flow(full + 9_000)));
    assert_eq!(entries.len(), ENTRIES_MAX);
    // Those with an entry have decisions of their own, and TCP without one is not compressed.
    assert!(pass(&mut entries, now, Way::Out, &flow(7)));
    let begun = |flags, payload| tcp((DEVICE, 40_000), (SERVER, 9_000), flags, payload);
    let later = now + MS * 3_000;
    assert!(!pass(&mut entries, later, Way::Out, &begun(Flags::SYN, &[])));
    assert!(!pass(&mut entries, later, Way::Out, &begun(Flags::ACK, TEXT)));
    assert!(!pass(
        &mut entries,
        later,
        Way::Out,
        &udp((SERVER, 1), (SERVER, 2), b"GET / HTTP/1.1")
    ));
}

#[test]
fn each_flow_is_judged_by_itself() {
    let mut entries = entries(8);
    let packets = [1, 2].map(|port| udp((DEVICE, port), (SERVER, 5_683), TEXT));
    let mut on = [0, 0];
    for ms in 0..1_000 {
        let now = Instant::ZERO + MS * ms;
        for (place, packet) in packets.iter().enumerate() {
            if pass(&mut entries, now, Way::Out, packet) {
                on[place] += 1;
                let saves = (place == 0).then_some(40);
                let packet = InnerPacket::whole(packet).unwrap();
                entries.left(now, &packet, saves, Scarce::Nothing);
            }
        }
    }
    assert_eq!(on, [1_000, 201]);
}

#[test]
fn what_no_rule_names_any_more_leaves() {
    let mut entries = entries(8);
    let packet = udp((DEVICE, 1), (SERVER, 5_683), TEXT);
    assert!(pass(&mut entries, Instant::ZERO, Way::Out, &packet));
    entries.allow(Allowed::default());
    assert!(entries.is_off() && entries.is_empty());
    assert!(!pass(&mut entries, Instant::ZERO, Way::Out, &packet));
}

#[test]
fn small_packets_wait_for_others_while_their_flow_pays() {
    let mut entries = entries(8);
    let mut sent = |ms: u32, len: usize| {
        let packet = udp((DEVICE, 40_000), (SERVER, 5_683), &TEXT[..len - 28]);
        let packet = InnerPacket::whole(&packet).unwrap();
        let now = Instant::ZERO + MS * ms;
        let saving = entries.pass(now, Way::Out, &packet);
        if saving.coding().is_some() {
            entries.left(now, &packet, None, Scarce::Nothing);
        }
        saving
    };
    assert_eq!(sent(0, 60), Saving::JOINED);
    assert_eq!(sent(200, 400), Saving::compressed(Coding::LZ4.to_byte()));
    assert_eq!((sent(201, 60), sent(202, 400)), (Saving::DIRECT, Saving::DIRECT));
}

#[test]
fn a_rule_may_ask_for_nothing_but_sharing() {
    let network = Prefix { address: SERVER.into(), bits: 32 };
    let mut entries = Entries::new(8);
    entries.allow(Allowed::new(&[Rule { end: End { network, port: None }, coding: Coding::NONE }]));
    let packet = udp((DEVICE, 1), (SERVER, 5_683), TEXT);
    let saving = entries.pass(Instant::ZERO, Way::Out, &InnerPacket::whole(&packet).unwrap());
    assert_eq!(saving, Saving::JOINED);
}

#[test]
fn what_is_sent_again_is_compressed_as_its_flow_is() {
    let mut entries = entries(8);
    let again = |entries: &Entries, len: usize| {
        let packet = udp((DEVICE, 1), (SERVER, 5_683), &TEXT[..len - 28]);
        entries.coding_again(&InnerPacket::whole(&packet).unwrap())
    };
    assert_eq!(again(&entries, 400), None);
    pass(&mut entries, Instant::ZERO, Way::Out, &udp((DEVICE, 1), (SERVER, 5_683), TEXT));
    assert_eq!((again(&entries, 400), again(&entries, LEN_MIN)), (Some(Coding::LZ4), None));
    let web = udp((SERVER, 5_683), (DEVICE, 1), b"HTTP/1.1 200 OK");
    pass(&mut entries, Instant::ZERO, Way::In, &web);
    assert_eq!(again(&entries, 400), None);
}
