use proptest::prelude::*;

use super::*;
use crate::wire::inner::Headers;

fn ends(v6: bool) -> Ends {
    if v6 {
        let address = |last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        Ends { source: (address(1), 4_000), destination: (address(2), 443) }
    } else {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        Ends { source: (address(1), 4_000), destination: (address(2), 443) }
    }
}

fn made(v6: bool, timestamps: bool) -> Made {
    Made {
        ends: ends(v6),
        seq: Seq(0xffff_fff0),
        ack: Seq(7),
        flags: Flags::ACK.and(Flags::PSH),
        window: 1_000,
        timestamps: timestamps.then_some(Timestamps { value: 90, echo: 0x0102_0304 }),
    }
}

fn whole(packet: &[u8]) -> InnerPacket<'_> {
    InnerPacket::whole(packet).unwrap()
}

fn read(packet: &[u8]) -> (Headers, Segment) {
    let packet = whole(packet);
    (packet.headers, Segment::parse(&packet).unwrap())
}

/// Zero for a segment whose checksum is right.
fn error_of(packet: &[u8]) -> u16 {
    let view = Headers::parse(packet, packet.len()).unwrap();
    let tcp = &packet[view.transport.unwrap()..];
    let length = u16::try_from(tcp.len()).unwrap();
    Sum::default().pseudo(view.source, view.destination, TCP, length).bytes(tcp).folded()
}

#[test]
fn what_is_written_is_read() {
    for (v6, timestamps) in [(false, false), (false, true), (true, false), (true, true)] {
        let made = made(v6, timestamps);
        let mut packet = Vec::new();
        made.emit((b"hel", b"lo"), &mut packet);
        assert_eq!(packet.len(), made.overhead() + 5);
        let (view, segment) = read(&packet);
        assert_eq!((view.source, view.destination), (made.ends.source.0, made.ends.destination.0));
        assert_eq!(view.ports, Some((4_000, 443)));
        assert_eq!((segment.seq, segment.ack, segment.flags), (made.seq, made.ack, made.flags));
        assert_eq!((segment.window, segment.timestamps), (1_000, made.timestamps));
        assert_eq!(&packet[segment.payload()], b"hello");
        assert_eq!(segment.end(), made.seq.plus(5));
        assert_eq!(error_of(&packet), 0);
        if !v6 {
            assert_eq!(Sum::default().bytes(&packet[..20]).folded(), 0, "IPv4 header");
        }
    }
}

#[test]
fn the_options_of_a_syn() {
    let mut packet = Vec::new();
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 20];
    Made { flags: Flags::SYN, ..made(false, false) }.emit((&options, &[]), &mut packet);
    packet[32] = 10 << 4;
    let (_, segment) = read(&packet);
    assert_eq!((segment.len, segment.end()), (0, Seq(0xffff_fff1)));
    assert_eq!(segment.timestamps, Some(Timestamps { value: 9, echo: 0 }));
    let opening = segment.opening(&whole(&packet));
    let expected =
        Opening { mss: Some(1_460), scale: Some(14), sack: true, closed_to_others: false };
    assert_eq!(opening, expected);
    packet[40] = 30; // MPTCP in the place of the MSS
    assert!(segment.opening(&whole(&packet)).closed_to_others);
}

#[test]
fn acknowledgements_are_changed_in_place() {
    let sacks = [1, 1, 5, 10, 0, 0, 0, 50, 0, 0, 0, 60];
    let mut packet = Vec::new();
    made(false, true).emit((&sacks, b"data"), &mut packet);
    packet[32] = 11 << 4;
    // The header is another now, so its checksum is written anew.
    packet[36..38].fill(0);
    let checksum = !error_of(&packet);
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(error_of(&packet), 0);
    let (_, segment) = read(&packet);
    assert_eq!(segment.sacked(&whole(&packet)).collect::<Vec<_>>(), [(Seq(50), Seq(60))]);
    let what = Rewrite {
        ack: Some(Seq(0xdead_beef)),
        window: Some(0x0123),
        echo: Some(0x0a0b_0c0d),
        removes_sacks: true,
        clock: None,
    };
    segment.rewrite(&mut packet, &what);
    let (_, changed) = read(&packet);
    assert_eq!((changed.ack, changed.window), (Seq(0xdead_beef), 0x0123));
    assert_eq!(changed.timestamps, Some(Timestamps { value: 90, echo: 0x0a0b_0c0d }));
    assert_eq!(changed.sacked(&whole(&packet)).count(), 0);
    assert_eq!(&packet[changed.payload()], b"data");
    assert_eq!(error_of(&packet), 0);
}

#[test]
fn numbers_wrap() {
    let (before, after) = (Seq(u32::MAX - 1), Seq(3));
    assert!(before.is_before(after));
    assert_eq!((after.since(before), after.beyond(before), before.beyond(after)), (5, 5, 0));
    assert_eq!((before.max(after), before.min(after)), (after, before));
}

proptest! {
    #[test]
    fn the_declared_sum_is_that_of_the_payload(
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        v6 in any::<bool>(),
        timestamps in any::<bool>(),
        damage in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let mut packet = Vec::new();
        made(v6, timestamps).emit((&payload, &[]), &mut packet);
        let (_, segment) = read(&packet);
        let place = damage.filter(|_| !payload.is_empty()).map(|at| {
            segment.payload().start + at.index(payload.len())
        });
        if let Some(place) = place {
            packet[place] ^= 0x55;
        }
        let declared = segment.declared_sum(&whole(&packet));
        let actual = Sum::default().bytes(&packet[segment.payload()]).folded();
        prop_assert_eq!(declared == actual, place.is_none());
    }

    #[test]
    fn any_bytes_never_panic(
        mut packet in proptest::collection::vec(any::<u8>(), 20..120),
        v6 in any::<bool>(),
    ) {
        packet[0] = if v6 { 0x60 } else { 0x45 };
        let len = u16::try_from(packet.len()).unwrap();
        if v6 {
            packet.resize(packet.len().max(40), 0);
            let body = u16::try_from(packet.len()).unwrap() - 40;
            packet[4..6].copy_from_slice(&body.to_be_bytes());
            packet[6] = TCP;
        } else {
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            packet[9] = TCP;
        }
        let Ok(whole) = InnerPacket::whole(&packet) else { return Ok(()) };
        let Some(segment) = Segment::parse(&whole) else { return Ok(()) };
        let _ = (segment.opening(&whole), segment.declared_sum(&whole));
        prop_assert!(segment.sacked(&whole).count() <= SACK_MAX);
        prop_assert!(packet.get(segment.payload()).is_some());
        let before = error_of(&packet);
        let (ack, window, echo) = (Some(Seq(1)), Some(2), Some(3));
        let what = Rewrite { ack, window, echo, removes_sacks: true, clock: None };
        segment.rewrite(&mut packet, &what);
        prop_assert_eq!(error_of(&packet), before, "what was damaged before stays as damaged");
    }
}
