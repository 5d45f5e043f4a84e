//! Elision of headers over recorded packets: each packet that leaves without its constant fields is
//! restored byte for byte, and most packets of a flow leave so. What was recorded, and what of it
//! is here, says `testdata/headers/README.md`.

#![allow(clippy::unwrap_used, reason = "a test: a panic is the report")]

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rove_proto::codec::contexts::{Compact, Contexts, Known, PACKETS_BEFORE, Passing};
use rove_proto::codec::header::Template;
use rove_proto::flow::classify::Class;
use rove_proto::flow::tuple::Direction;
use rove_proto::flow::{Flows, Hold};
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::inner::{InnerPacket, Pieces};

const CAPTURES: &str = include_str!("../testdata/headers/captures.txt");
/// Packets after which the definition of a context has arrived.
const LATER: usize = 3;
/// Packets after which each is sent again, as if it had been lost.
const AGAIN: usize = 10;
/// Time between two packets: no context becomes idle.
const STEP: Duration = Duration::from_millis(20);
/// The fixed part of an RTP header (RFC 3550, section 5.1).
const RTP_HEADER: usize = 12;

/// A capture, and the kind of its flows.
struct Capture {
    name: &'static str,
    kind: &'static str,
    packets: Vec<Recorded>,
}

/// A packet as it was recorded, but for addresses, ports and payload.
struct Recorded {
    flow: u8,
    way: Direction,
    /// Whether its checksums are right.
    is_sound: bool,
    bytes: Vec<u8>,
}

fn captures() -> Vec<Capture> {
    let mut captures: Vec<Capture> = Vec::new();
    for (number, line) in CAPTURES.lines().enumerate() {
        if let Some(about) = line.strip_prefix("capture ") {
            let (name, kind) = about.split_once(' ').unwrap();
            captures.push(Capture { name, kind, packets: Vec::new() });
        } else {
            captures.last_mut().unwrap().packets.push(Recorded::new(line, number));
        }
    }
    captures
}

/// The words of a line.
struct Words<'a>(std::str::Split<'a, char>);

impl<'a> Words<'a> {
    fn word(&mut self) -> &'a str {
        self.0.next().unwrap()
    }

    fn number<T: TryFrom<u64>>(&mut self) -> T {
        T::try_from(self.word().parse().unwrap()).ok().unwrap()
    }

    /// The same, if the line goes on.
    fn next<T: TryFrom<u64>>(&mut self) -> Option<T> {
        self.0.next().and_then(|word| T::try_from(word.parse().unwrap()).ok())
    }
}

impl Recorded {
    fn new(line: &str, number: usize) -> Self {
        let mut words = Words(line.split(' '));
        let flow: u8 = words.number();
        let way = if words.number::<u8>() == 0 { Direction::Out } else { Direction::In };
        let is_v6 = words.number::<u8>() == 6;
        let class = words.number();
        let (head, ip_sum) = if is_v6 { v6(&mut words, class) } else { v4(&mut words, class) };
        let is_tcp = words.word() == "T";
        let (transport, field, sum) =
            if is_tcp { tcp(&mut words, number) } else { udp(&mut words, number) };
        // UDP over IPv4 may do without (RFC 768).
        let is_sound = ip_sum.is_none_or(|sum| sum == "r")
            && (sum == "r" || (sum == "z" && !is_tcp && !is_v6));
        let bytes = whole(head, ip_sum, (flow, way), (transport, field, sum));
        Self { flow, way, is_sound, bytes }
    }
}

/// The fixed IPv4 header without lengths, protocol and addresses, and the state of its checksum.
fn v4<'a>(words: &mut Words<'a>, class: u8) -> (Vec<u8>, Option<&'a str>) {
    let (id, bits, hops) =
        (words.number::<u16>().to_be_bytes(), words.number::<u8>(), words.number());
    (vec![0x45, class, 0, 0, id[0], id[1], bits << 5, 0, hops, 0, 0, 0], Some(words.word()))
}

/// The same of IPv6.
fn v6<'a>(words: &mut Words<'a>, class: u8) -> (Vec<u8>, Option<&'a str>) {
    let [_, high, middle, low] = words.number::<u32>().to_be_bytes();
    (vec![0x60 | class >> 4, class << 4 | high, middle, low, 0, 0, 0, words.number()], None)
}

/// TCP header and payload without ports, where the checksum stands, and its state.
fn tcp<'a>(words: &mut Words<'a>, number: usize) -> (Vec<u8>, usize, &'a str) {
    let (length, sum) = (words.number(), words.word());
    let (sequence, acknowledgement) = (words.number::<u32>(), words.number::<u32>());
    let (flags, window, urgent) =
        (words.number::<u16>(), words.number::<u16>(), words.number::<u16>());
    let options = words.word();
    let options =
        (0..options.len() / 2).map(|at| u8::from_str_radix(&options[2 * at..2 * at + 2], 16));
    let options: Vec<u8> = options.map(Result::unwrap).collect();
    let size = u16::try_from((20 + options.len()) / 4).unwrap();
    let mut segment = vec![0; 4];
    segment.extend(sequence.to_be_bytes());
    segment.extend(acknowledgement.to_be_bytes());
    segment.extend((size << 12 | flags).to_be_bytes());
    segment.extend(window.to_be_bytes());
    segment.extend([0, 0]);
    segment.extend(urgent.to_be_bytes());
    segment.extend(options);
    segment.extend(payload(length, number));
    (segment, 16, sum)
}

/// The same of UDP.
fn udp<'a>(words: &mut Words<'a>, number: usize) -> (Vec<u8>, usize, &'a str) {
    let (length, sum) = (words.number(), words.word());
    let mut payload = payload(length, number);
    if let Some(first) = payload.first_mut() {
        *first = 0; // unlike RTP, which has version 2
    }
    if let Some(first) = words.next::<u8>() {
        let (kind, sequence, timestamp) =
            (words.number::<u8>(), words.number::<u16>(), words.number::<u32>());
        let source: u32 = words.number();
        let rest = [&sequence.to_be_bytes()[..], &timestamp.to_be_bytes(), &source.to_be_bytes()];
        payload[..2].copy_from_slice(&[first, kind]);
        payload[2..RTP_HEADER].copy_from_slice(&rest.concat());
    }
    let size = u16::try_from(8 + length).unwrap().to_be_bytes();
    ([&[0; 4][..], &size, &[0, 0], &payload].concat(), 6, sum)
}

/// A payload that differs from packet to packet.
fn payload(length: usize, number: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 31 + number * 97) % 251) as u8).collect()
}

/// The packet: flows differ by their ports, none of which means anything.
fn whole(
    mut packet: Vec<u8>,
    ip_sum: Option<&str>,
    (flow, way): (u8, Direction),
    (mut transport, field, sum): (Vec<u8>, usize, &str),
) -> Vec<u8> {
    let is_v6 = ip_sum.is_none();
    let mut ends: [(IpAddr, u16); 2] = if is_v6 {
        [
            (Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2).into(), 40_000),
            (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).into(), 0),
        ]
    } else {
        [(Ipv4Addr::new(10, 77, 0, 2).into(), 40_000), (Ipv4Addr::new(192, 0, 2, 9).into(), 0)]
    };
    ends[1].1 = 50_000 + u16::from(flow);
    if way == Direction::In {
        ends.reverse();
    }
    let addresses: Vec<u8> = ends.iter().flat_map(|(address, _)| octets(*address)).collect();
    for (place, (_, port)) in ends.iter().enumerate() {
        transport[2 * place..2 * place + 2].copy_from_slice(&port.to_be_bytes());
    }
    let protocol = if field == 16 { 6 } else { 17 };
    let length = transport.len() + if is_v6 { 0 } else { 20 };
    let place = if is_v6 { 4 } else { 2 };
    packet[place..place + 2].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
    packet[if is_v6 { 6 } else { 9 }] = protocol;
    packet.extend(&addresses);
    if let Some(state) = ip_sum {
        set_checksum(&mut packet, 10, 0, state);
    }
    let pseudo = words(&addresses) + u32::from(protocol) + u32::try_from(transport.len()).unwrap();
    set_checksum(&mut transport, field, pseudo, sum);
    packet.extend(transport);
    packet
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Writes a checksum that is right, wrong or zero.
fn set_checksum(bytes: &mut [u8], field: usize, more: u32, state: &str) {
    let mut sum = words(bytes) + more;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let right = match !u16::try_from(sum).unwrap() {
        0 => 0xffff,
        other => other,
    };
    let written = match state {
        "r" => right,
        "w" => right ^ 0x0101,
        "z" => 0,
        other => panic!("{other}"),
    };
    bytes[field..field + 2].copy_from_slice(&written.to_be_bytes());
}

/// The sum of 16-bit words.
fn words(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

/// One direction of a tunnel: what its sender knows, and its receiver.
#[derive(Default)]
struct Side {
    contexts: Contexts,
    known: Known,
    /// Definitions on their way, each with the number of the packet with which it arrives.
    coming: VecDeque<(usize, u16, u8, Vec<u8>)>,
    defined: u32,
    arrived: u32,
    sent: usize,
}

impl Side {
    /// Sends a packet. Returns whether it left without its headers.
    fn send(&mut self, now: Instant, bucket: u8, is_rtp: bool, packet: &[u8]) -> bool {
        self.sent += 1;
        while self.coming.front().is_some_and(|one| one.0 <= self.sent)
            && let Some((_, id, form, header)) = self.coming.pop_front()
        {
            let template = Template::parse(form, &header).unwrap();
            self.known.define(id, Some(template)).unwrap();
            self.arrived += 1;
        }
        // Half of them come in two pieces, as from the queue.
        let cut = if self.sent.is_multiple_of(2) { packet.len() } else { packet.len().min(120) };
        let packet = Pieces::cut(&packet[..cut], &packet[cut..]);
        let (coming, defined, at) = (&mut self.coming, &mut self.defined, self.sent + LATER);
        let passing = Passing { bucket, is_rtp, packet };
        let compact = self.contexts.elide(now, passing, self.arrived, |id, template| {
            coming.push_back((at, id, template.form(), template.header().to_vec()));
            *defined += 1;
            Some(*defined - 1)
        });
        compact.inspect(|compact| self.check(compact, packet)).is_some()
    }

    /// Sends a packet once more.
    fn send_again(&self, bucket: u8, packet: &[u8]) {
        let packet = Pieces::whole(packet);
        if let Some(compact) = self.contexts.elide_again(bucket, packet) {
            self.check(&compact, packet);
        }
    }

    /// The law: what is restored is what was sent, and it was shorter on the way.
    fn check(&self, compact: &Compact, packet: Pieces<'_>) {
        let (mut body, mut head) = (Vec::new(), vec![1]);
        compact.fields.append(packet, &mut body);
        let restored = self.known.restore(compact.context, &body, &mut head).unwrap();
        assert_eq!(restored.to_vec(), packet.to_vec());
        assert!(body.len() < packet.len() && body.len() == compact.fields.len(&packet));
    }
}

/// Packets of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Those that left without their headers.
    elided: usize,
    /// Those with right checksums of flows that have had time for their contexts,
    settled: usize,
    /// and those of them that left without their headers.
    settled_elided: usize,
}

/// Sends a capture through a tunnel, in its order.
fn pass(capture: &Capture) -> Count {
    let mut flows = Flows::new(Hold::Off, 1);
    let mut sides: BTreeMap<bool, Side> = BTreeMap::new();
    let mut passed: BTreeMap<(bool, u8), usize> = BTreeMap::new();
    let mut count = Count::default();
    let mut now = Instant::ZERO;
    for (place, Recorded { flow, way, is_sound, bytes }) in capture.packets.iter().enumerate() {
        now = now + STEP;
        let packet = InnerPacket::whole(bytes).unwrap();
        let class = flows.observe(now, *way, &packet).and_then(|place| flows.flow(place));
        let is_rtp = class.is_some_and(|flow| flow.class() == Class::RealTime);
        let is_up = *way == Direction::Out;
        let is_elided = sides.entry(is_up).or_default().send(now, *flow, is_rtp, bytes);
        assert!(*is_sound || !is_elided, "{}, packet {place}", capture.name);
        let before = passed.entry((is_up, *flow)).or_default();
        *before += 1;
        let is_settled = *is_sound && *before > SETTLED;
        count.elided += usize::from(is_elided);
        count.settled += usize::from(is_settled);
        count.settled_elided += usize::from(is_settled && is_elided);
        if let Some(lost) = place.checked_sub(AGAIN).map(|place| &capture.packets[place])
            && let Some(side) = sides.get(&(lost.way == Direction::Out))
        {
            side.send_again(lost.flow, &lost.bytes);
        }
    }
    count
}

/// Kinds of flows of which many packets leave without their headers. A flow of names has one packet
/// each way.
const KINDS: [&str; 6] = ["tcp", "tcp-plain", "tcp-v6", "quic", "udp", "rtp"];
/// Packets of a flow after which it has its contexts: two, each after four packets and those until
/// it arrives.
const SETTLED: usize = 2 * (PACKETS_BEFORE as usize + LATER);
/// Four of five settled packets leave without their headers. The others have further options, or
/// are the first of their flow with selective acknowledgements.
const SHARE: (usize, usize) = (4, 5);

#[test]
fn each_recorded_packet_is_restored_and_most_travel_without_headers() {
    let captures = captures();
    assert_eq!(captures.len(), 22);
    let mut elided: BTreeMap<&str, usize> = BTreeMap::new();
    for capture in &captures {
        let count = pass(capture);
        *elided.entry(capture.kind).or_default() += count.elided;
        let (part, whole) = SHARE;
        let is_enough = count.settled_elided * whole >= count.settled * part;
        assert!(is_enough, "{}: {count:?}", capture.name);
    }
    assert!(KINDS.iter().all(|kind| elided[kind] > 150), "{elided:?}");
    assert_eq!(elided["names"], 0);
}

/// What is counted above counts what leaves: with wrong checksums nothing does.
#[test]
fn a_capture_with_wrong_checksums_travels_whole() {
    for mut capture in captures() {
        for Recorded { bytes, is_sound, .. } in &mut capture.packets {
            let last = bytes.len() - 1;
            let is_summed = bytes[0] >> 4 == 6 || bytes[9] == 6 || bytes[26..28] != [0, 0];
            let place = if is_summed { last } else { 11 };
            bytes[place] ^= 0x55;
            *is_sound = false;
        }
        assert_eq!(pass(&capture).elided, 0, "{}", capture.name);
    }
}
