//! RTP among what real applications send: all of it is found, and nothing else is taken for it.
//! What was captured, and what of it is here, says `testdata/rtp/README.md`.

#![allow(clippy::unwrap_used, reason = "a test: a panic is the report")]

use rove_proto::flow::classify::Class;
use rove_proto::flow::tuple::Direction;
use rove_proto::flow::{Flows, Hold};
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::inner::InnerPacket;

const CAPTURES: &str = include_str!("../testdata/rtp/captures.txt");
/// IPv4 and UDP.
const HEADERS: usize = 28;
/// No inner packet is longer.
const PAYLOAD_MAX: usize = 1_472;

/// One capture.
struct Capture {
    name: &'static str,
    is_rtp: bool,
    datagrams: Vec<Datagram>,
}

struct Datagram {
    flow: u16,
    way: Direction,
    since_us: u64,
    payload: Vec<u8>,
}

fn captures() -> Vec<Capture> {
    let mut captures: Vec<Capture> = Vec::new();
    for line in CAPTURES.lines() {
        let mut words = line.split(' ');
        if line.starts_with("capture ") {
            let name = words.nth(1).unwrap();
            let is_rtp = words.next() == Some("rtp");
            captures.push(Capture { name, is_rtp, datagrams: Vec::new() });
        } else {
            let fields: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
            captures.last_mut().unwrap().datagrams.push(Datagram::new(&fields));
        }
    }
    captures
}

impl Datagram {
    /// A datagram that looks as these fields say; where they say nothing there is zero.
    fn new(fields: &[u64]) -> Self {
        let &[flow, way, since_us, length, ref rtp @ ..] = fields else { panic!("{fields:?}") };
        let mut payload = vec![0; usize::try_from(length).unwrap().min(PAYLOAD_MAX)];
        if let &[first, kind, sequence, timestamp, source, words, padding] = rtp {
            let number = |field: u64, bytes: usize| field.to_be_bytes()[8 - bytes..].to_vec();
            let parts = [(first, 1), (kind, 1), (sequence, 2), (timestamp, 4), (source, 4)];
            let header: Vec<u8> =
                parts.iter().flat_map(|&(field, bytes)| number(field, bytes)).collect();
            payload[..header.len()].copy_from_slice(&header);
            let extension_at = header.len() + (usize::from(header[0]) & 0xf) * 4 + 2;
            if first & 0x10 != 0
                && let Some(place) = payload.get_mut(extension_at..extension_at + 2)
            {
                place.copy_from_slice(&number(words, 2));
            }
            if first & 0x20 != 0 {
                *payload.last_mut().unwrap() = u8::try_from(padding).unwrap();
            }
        }
        let way = if way == 0 { Direction::Out } else { Direction::In };
        Self { flow: u16::try_from(flow).unwrap(), way, since_us, payload }
    }

    /// The packet around it: flows differ by their ports, none of which means anything.
    fn packet(&self) -> Vec<u8> {
        let len = u16::try_from(HEADERS + self.payload.len()).unwrap();
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        let mut ends = [([10, 0, 0, 2], 40_000 + self.flow), ([192, 0, 2, 9], 50_000)];
        if self.way == Direction::In {
            ends.reverse();
        }
        ends.iter().for_each(|(address, _)| packet.extend(address));
        ends.iter().for_each(|(_, port)| packet.extend(port.to_be_bytes()));
        packet.extend((len - 20).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(&self.payload);
        packet
    }
}

/// How many datagrams of a capture were looked at before one was taken for RTP, if any was, and how
/// many of those after it.
fn recognised(capture: &Capture) -> (Option<usize>, usize) {
    let mut flows = Flows::new(Hold::Off, 1);
    let mut now = Instant::ZERO;
    let (mut first, mut count) = (None, 0);
    for (place, datagram) in capture.datagrams.iter().enumerate() {
        now = now + Duration::from_micros(datagram.since_us);
        let packet = datagram.packet();
        let packet = InnerPacket::whole(&packet).unwrap();
        let flow = flows.observe(now, datagram.way, &packet).and_then(|place| flows.flow(place));
        if flow.unwrap().class() == Class::RealTime {
            first.get_or_insert(place);
            count += 1;
        }
    }
    (first, count)
}

#[test]
fn every_call_is_found_and_nothing_else_is_taken_for_one() {
    let captures = captures();
    let of = |is_rtp| captures.iter().filter(move |capture| capture.is_rtp == is_rtp);
    assert_eq!((of(true).count(), of(false).count()), (19, 34));
    for capture in of(false) {
        assert!(capture.datagrams.len() > 30, "{}", capture.name);
        assert_eq!(recognised(capture).0, None, "{} is no RTP", capture.name);
    }
    for capture in of(true) {
        let (first, count) = recognised(capture);
        let all = capture.datagrams.len();
        let first = first.unwrap_or_else(|| panic!("{} is RTP", capture.name));
        // The slowest begins with 84 datagrams of STUN. In all, four of five are taken for it.
        assert!(first <= 90, "{}: after {first}", capture.name);
        assert!(count * 5 >= (all - first) * 4, "{}: {count} of {all}", capture.name);
    }
}

/// It is not by chance: what is not RTP is far from looking like it.
#[test]
fn one_in_ten_of_another_kind_between_changes_nothing() {
    for capture in captures().iter().filter(|capture| capture.is_rtp) {
        let datagrams = capture.datagrams.iter().enumerate().map(|(place, one)| {
            let other = place % 10 == 9;
            let payload = if other { vec![0; one.payload.len()] } else { one.payload.clone() };
            Datagram { flow: one.flow, way: one.way, since_us: one.since_us, payload }
        });
        let datagrams = datagrams.collect();
        let disturbed = Capture { name: capture.name, is_rtp: true, datagrams };
        assert!(recognised(&disturbed).0.is_some(), "{}", capture.name);
    }
}
