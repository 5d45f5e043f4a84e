use super::*;

/// A datagram of a stream: version 2, payload type 0, one byte of payload.
fn datagram(sequence: u16, timestamp: u32, source: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, 0];
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(timestamp.to_be_bytes());
    bytes.extend(source.to_be_bytes());
    bytes.push(0xd5);
    bytes
}

fn parse(bytes: &[u8]) -> Option<Header> {
    Header::parse(bytes, bytes.len())
}

#[test]
fn a_header_is_read_or_refused() {
    let plain = datagram(7, 160, 9);
    let header = Header { sequence: 7, timestamp: 160, source: 9 };
    assert_eq!(parse(&plain), Some(header));
    assert_eq!(parse(&plain[..12]), None, "there is nothing in it");
    assert_eq!(Header::parse(&plain[..12], 13), Some(header), "the rest is elsewhere");
    assert_eq!(parse(&plain[..11]), None);
    let with = |at: usize, byte: u8| {
        let mut bytes = plain.clone();
        bytes[at] = byte;
        bytes
    };
    for version in [0x00, 0x40, 0xc0] {
        assert_eq!(parse(&with(0, version)), None);
    }
    for (kind, is_rtp) in [(0, true), (63, true), (64, false), (72, false), (95, false), (96, true)]
    {
        for marker in [0, 0x80] {
            assert_eq!(parse(&with(1, kind | marker)).is_some(), is_rtp, "{kind}");
        }
    }
    assert_eq!(parse(&with(0, 0x81)), None, "a contributing source that is not there");
    let with_source = [&with(0, 0x81)[..], &[0; 4]].concat();
    assert_eq!(parse(&with_source), Some(header));
}

#[test]
fn an_extension_and_padding_have_to_fit() {
    let mut extended = datagram(7, 160, 9);
    extended[0] |= 0x10;
    assert_eq!(parse(&extended), None);
    extended.splice(12..12, [0xbe, 0xde, 0, 1, 1, 2, 3, 4]);
    assert!(parse(&extended).is_some());
    extended[15] = 2;
    assert_eq!(parse(&extended), None, "longer than the datagram");
    let mut padded = datagram(7, 160, 9);
    padded[0] |= 0x20;
    padded.extend([0, 0, 3]);
    assert!(parse(&padded).is_some());
    for padding in [4, 200] {
        *padded.last_mut().unwrap() = padding;
        assert_eq!(parse(&padded), None, "nothing is left");
    }
    *padded.last_mut().unwrap() = 0;
    assert!(parse(&padded).is_some(), "wrong, but harmless");
    assert!(Header::parse(&padded[..13], 200).is_some(), "its end was not read");
}

fn note(likeness: &mut Likeness, bytes: &[u8]) -> bool {
    likeness.note(true, parse(bytes))
}

#[test]
fn what_goes_on_is_a_stream_soon_and_what_does_not_never_is() {
    let mut call = Likeness::default();
    let verdicts: Vec<_> = (65_533..)
        .take(10)
        .map(|n: u32| note(&mut call, &datagram(n as u16, n * 160, 9)))
        .collect();
    assert_eq!(verdicts, [[false; 5], [true; 5]].concat(), "over the numbers' end, too");
    for (what, next) in [
        ("the same again and again", (|_| (7, 7, 9)) as fn(u32) -> (u16, u32, u32)),
        ("leaps of numbers", |n| ((n * 997) as u16, n, 9)),
        ("leaps of time", |n| (n as u16, n.wrapping_mul(0x1234_5678), 9)),
        ("a source of its own each", |n| (n as u16, n, n)),
    ] {
        let mut other = Likeness::default();
        for n in 1..1_000 {
            let (sequence, timestamp, source) = next(n);
            assert!(!note(&mut other, &datagram(sequence, timestamp, source)), "{what}");
        }
    }
}

#[test]
fn gaps_and_the_wrong_order_do_not_end_it() {
    let mut call = Likeness::default();
    for number in [1, 2, 4, 3, 5, 8, 30, 29] {
        note(&mut call, &datagram(number, u32::from(number) * 160, 9));
    }
    assert!(call.is_rtp());
    assert!(call.note(true, None), "something else goes between");
}

#[test]
fn voice_and_picture_of_both_ends_are_streams_beside_each_other() {
    let mut call = Likeness::default();
    for n in 0..8 {
        for (from_here, source) in [(true, 1), (true, 2), (true, 3), (false, 1)] {
            call.note(from_here, parse(&datagram(n, 0, source)));
        }
    }
    assert_eq!(call.recent, u16::MAX);
    let mut crowd = Likeness::default();
    for n in 0..20 {
        for source in 0..4 {
            crowd.note(true, parse(&datagram(n, 0, source)));
        }
    }
    assert!(!crowd.is_rtp(), "of more than are followed none is");
}

#[test]
fn a_flow_that_becomes_something_else_is_not_called_so_for_ever() {
    let mut call = Likeness::default();
    for n in 0..20 {
        note(&mut call, &datagram(n, 0, 9));
    }
    let lasts = (0..100).take_while(|_| call.note(false, None)).count();
    assert_eq!(lasts, 12, "until fewer than four of sixteen are left");
}
