//! Every frame and control message beside its bytes, written by hand from
//! docs/spec/wire.md#3-frames and docs/spec/wire.md#4-control. (Headers, sealing and the handshake
//! have vectors of their own, made by a second implementation.)

use rove_proto::codec::header::Template;
use rove_proto::error::{CloseCode, DropReason};
use rove_proto::id::{PathSerial, SessionIndex};
use rove_proto::multipath::Recovery;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::wire::control::{Control, End, Lease, Prefix};
use rove_proto::wire::frame::{
    Challenge, CompactHead, ControlAck, FEEDBACK_RUNS_MAX, Feedback, Frame, Frames, Framing,
    Response, emit_again, packet_of,
};
use rove_proto::wire::inner::Pieces;

/// The shortest IPv4 packet: a header that says so.
const PACKET: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 2, 198, 51, 100, 80];
const PACKET_HEX: &str = "45000014 00000000 40110000 0a4d0002 c6336450";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
    digits.chunks(2).map(|pair| byte(pair).expect("two hexadecimal digits")).collect()
}

#[test]
fn frames_of_packets() {
    let numbered = |framing| Frame::Packet { framing, packet: &PACKET };
    let once = Framing::Once { bucket: 254, sequence: 0x0a0b_0c0d };
    let in_order = Framing::InOrder { bucket: 255, sequence: 0xffff_ffff };
    let first = Framing::First { bucket: 253, epoch: 0x0a0b, end: 0x0c0d };
    let compressed = |framing| Frame::Compressed { framing, result: &[1, 0xaa, 0xbb] };
    let fragment = Frame::Fragment { packet_id: 9, index: 0x81, piece: &[1, 2, 3] };
    let (serial, number) = (PathSerial(7), 0xffff_fffe);
    let again = Frame::Retransmission { serial, number, packet: &PACKET };
    compare(&[
        (numbered(Framing::Plain), format!("08 {PACKET_HEX}")),
        (numbered(once), format!("09 fe 0a0b0c0d {PACKET_HEX}")),
        (numbered(in_order), format!("0b ff ffffffff {PACKET_HEX}")),
        (numbered(first), format!("0f fd 0a0b 0c0d {PACKET_HEX}")),
        (fragment, "01 00000009 81 010203".to_owned()),
        (again, format!("02 00000007 fffffffe {PACKET_HEX}")),
        (
            compressed(Framing::Once { bucket: 7, sequence: 0x0102_0304 }),
            "29 0008  07 01020304 01 aa bb".to_owned(),
        ),
        (
            compressed(Framing::InOrder { bucket: 7, sequence: 0x0102_0304 }),
            "2b 0008  07 01020304 01 aa bb".to_owned(),
        ),
        (
            compressed(Framing::First { bucket: 7, epoch: 0x0102, end: 0x0304 }),
            "2f 0008  07 0102 0304 01 aa bb".to_owned(),
        ),
        (
            Frame::Advanced { bucket: 0x7f, from: 0xffff_fffe, to: 3 },
            "18 0009  7f fffffffe 00000003".to_owned(),
        ),
    ]);
}

#[test]
fn frames_of_compact_packets() {
    let compact = |framing| {
        let head = CompactHead::new(framing, 0xa1b2).unwrap();
        Frame::Compact { head, body: &[1, 2, 3] }
    };
    compare(&[
        (compact(Framing::Plain), "24 0005  a1b2 010203".to_owned()),
        (
            compact(Framing::Once { bucket: 254, sequence: 0x0a0b_0c0d }),
            "25 0009  fe 0b0c0d a1b2 010203".to_owned(),
        ),
        (
            compact(Framing::InOrder { bucket: 255, sequence: 0xffff_ffff }),
            "27 0009  ff ffffff a1b2 010203".to_owned(),
        ),
    ]);
    assert_eq!(CompactHead::new(Framing::First { bucket: 0, epoch: 1, end: 2 }, 3), None);
    assert_eq!(
        Frames::new(&bytes("25 0005  fe 0b0c0d a1")).next(),
        Some(Err(DropReason::BadFrame))
    );
    assert_eq!(Frames::new(&bytes("26 0001 00")).next(), Some(Ok(Frame::Unknown)));
}

/// A packet as it is sent, its context, and what is left of it.
#[test]
fn compact_packets_and_their_contexts() {
    let vectors = [
        (
            // TCP over IPv4 with timestamps.
            "45 02 0038 1234 4000 40 06 f400 0a4d0002 c6336407
             9c40 01bb 00000001 00000002 80 18 01f5 c96a 0000
             0101 080a 00000003 00000004  64617461",
            "45 00 0000 0000 4000 40 06 0000 0a4d0002 c6336407
             9c40 01bb 00000000 00000000 80 00 0000 0000 0000 0101 080a 00000000 00000000",
            "02 1234  18 00000001 00000002 01f5  00000003 00000004  64617461",
            0,
        ),
        (
            // TCP over IPv6 with one SACK block.
            "6b a abcde 0020 06 40 fd770000000000000000000000000002 20010db8000000000000000000000007
             9c40 01bb 00000001 00000002 80 10 01f5 ae89 0000 0101 050a 00000003 00000004",
            "60 0 abcde 0000 06 40 fd770000000000000000000000000002 20010db8000000000000000000000007
             9c40 01bb 00000000 00000000 00 00 0000 0000 0000",
            "ba  10 00000001 00000002 01f5  01 00000003 00000004",
            1,
        ),
        (
            // RTP over UDP over IPv4.
            "45 b8 002a 0007 0000 3f 11 467b 0a4d0002 c6336407
             9c40 9c42 0016 0dae  80 60 0001 000000a0 01020304  ffff",
            "45 00 0000 0000 0000 3f 11 0000 0a4d0002 c6336407
             9c40 9c42 0000 0000  80 00 0000 00000000 01020304",
            "b8 0007  60 0001 000000a0  ffff",
            2,
        ),
        (
            // UDP over IPv4 without a checksum.
            "45 00 001d ffff 4000 40 11 0647 0a4d0002 c6336407  9c40 01bb 0009 0000  2a",
            "45 00 0000 0000 4000 40 11 0000 0a4d0002 c6336407  9c40 01bb 0000 0000",
            "00 ffff  2a",
            4,
        ),
    ];
    for (packet, header, body, form) in vectors {
        let (packet, header, body) = (bytes(packet), bytes(header), bytes(body));
        let template = Template::of(&packet, form == 2).unwrap();
        assert_eq!((template.form(), template.header()), (form, &header[..]));
        let mut compact = Vec::new();
        let pieces = Pieces::whole(&packet);
        template.elide(pieces).expect("right checksums").append(pieces, &mut compact);
        assert_eq!(compact, body);
        let (template, mut head) = (Template::parse(form, &header).unwrap(), Vec::new());
        assert_eq!(template.restore(&body, &mut head).unwrap().to_vec(), packet);
    }
}

#[test]
fn flags_that_mean_nothing_together_are_refused() {
    for kind in [0x0a, 0x0c, 0x0d, 0x0e] {
        let frame = bytes(&format!("{kind:02x} fe 0a0b0c0d {PACKET_HEX}"));
        assert_eq!(Frames::new(&frame).next(), Some(Err(DropReason::BadFrame)), "{kind:#x}");
        assert_eq!((Framing::of(&frame), packet_of(&frame)), (None, None));
    }
}

/// A packet with a number leaves again as it was. One without is named by its datagram.
#[test]
fn packets_that_leave_again() {
    let again = |frame: &str| {
        let (mut out, frame) = (Vec::new(), bytes(frame));
        emit_again(&mut out, PathSerial(7), 0xffff_fffe, &frame);
        assert_eq!(packet_of(&frame), packet_of(&out));
        assert_eq!(packet_of(&out), Some(&PACKET[..]));
        out
    };
    let plain = format!("08 {PACKET_HEX}");
    let repeated = format!("02 00000007 fffffffe {PACKET_HEX}");
    assert_eq!(again(&plain), bytes(&repeated));
    for kind in ["09", "0b", "0f"] {
        let numbered = format!("{kind} fe 0a0b0c0d {PACKET_HEX}");
        assert_eq!(again(&numbered), bytes(&numbered));
    }
    assert_eq!(again(&repeated), bytes(&repeated));
}

#[test]
fn feedback_of_paths() {
    let mut runs = [(0, 0); FEEDBACK_RUNS_MAX];
    (runs[0], runs[1]) = ((3, 1), (2, 0));
    let feedback = Feedback {
        serial: PathSerial(7),
        largest: 0x0102_0304_0506,
        delay_us: 1_000,
        arrived_us: 0x0102_0304,
        received: 5,
        bytes: 6_000,
        runs,
    };
    compare(&[
        (
            Frame::Feedback(feedback),
            // 0x0102_0304_0506 + 1 - 5 are missing.
            "10 001e  07 c000010203040506 43e8 01020304 c000010203040502 5770 02 03 01 02 00"
                .to_owned(),
        ),
        (
            Frame::Feedback(Feedback {
                largest: 70_000,
                received: 69_999,
                bytes: 1 << 30,
                ..feedback
            }),
            "10 0019  07 80011170 43e8 01020304 02 c000000040000000 02 03 01 02 00".to_owned(),
        ),
        (
            Frame::LastFeedback(Feedback { runs: [(0, 0); FEEDBACK_RUNS_MAX], ..feedback }),
            "17 001a  07 c000010203040506 43e8 01020304 c000010203040502 5770 00".to_owned(),
        ),
    ]);
}

#[test]
fn frames_of_paths() {
    let response = Response { token: 1, observed: ([192, 0, 2, 1], 4_433).into() };
    let v6 = "[2001:db8::1]:53".parse().expect("an address");
    compare(&[
        (
            Frame::Challenge(Challenge {
                prefer: false,
                abandon_others: false,
                beside: false,
                token: 2,
                moves: 0,
            }),
            "11 000d  00 0000000000000002 00000000".to_owned(),
        ),
        (
            Frame::Challenge(Challenge {
                prefer: true,
                abandon_others: true,
                beside: false,
                token: u64::MAX,
                moves: 0x0102_0304,
            }),
            "11 000d  03 ffffffffffffffff 01020304".to_owned(),
        ),
        (
            Frame::Challenge(Challenge {
                prefer: false,
                abandon_others: false,
                beside: true,
                token: 0x0102,
                moves: 7,
            }),
            "11 000d  04 0000000000000102 00000007".to_owned(),
        ),
        (
            Frame::Response(response),
            "12 001b  0000000000000001 04 c0000201000000000000000000000000 1151".to_owned(),
        ),
        (
            Frame::Response(Response { token: 1, observed: v6 }),
            "12 001b  0000000000000001 06 20010db8000000000000000000000001 0035".to_owned(),
        ),
    ]);
}

#[test]
fn frames_of_the_session() {
    compare(&[
        (Frame::Close(CloseCode::Requested), "13 0001 00".to_owned()),
        (Frame::Close(CloseCode::Revoked), "13 0001 01".to_owned()),
        (Frame::Close(CloseCode::Restarting), "13 0001 02".to_owned()),
        (Frame::Close(CloseCode::Protocol), "13 0001 03".to_owned()),
        (Frame::Control { number: 3, body: &[2, 0] }, "14 0006  00000003 02 00".to_owned()),
        (
            Frame::ControlAck(ControlAck { next: 4, beyond: 0x8000_0001 }),
            "15 0008  00000004 80000001".to_owned(),
        ),
    ]);
}

fn compare(vectors: &[(Frame<'_>, String)]) {
    for (frame, hex) in vectors {
        let mut emitted = Vec::new();
        frame.emit(&mut emitted);
        assert_eq!(emitted, bytes(hex), "{frame:?}");
        assert_eq!(Frames::new(&emitted).next(), Some(Ok(*frame)), "{hex}");
    }
}

#[test]
fn only_an_inner_packet_is_sent_again() {
    let frame = format!("08 {PACKET_HEX}");
    for within in ["13 0001 00", "01 00000009 81 010203", "02 00000007 00000001", &frame, "00", ""]
    {
        let hostile = bytes(&format!("02 00000007 00000001 {within}"));
        let first = Frames::new(&hostile).next();
        assert_eq!(first, Some(Err(DropReason::BadFrame)), "{within}");
    }
}

#[test]
fn frames_of_later_versions() {
    // One that may be skipped, with what is behind it; one that must not be.
    let skipped = bytes("20 0002 ffff 13 0001 00");
    let frames: Vec<_> = Frames::new(&skipped).collect();
    assert_eq!(frames, [Ok(Frame::Unknown), Ok(Frame::Close(CloseCode::Requested))]);
    let critical = bytes("a0 0000");
    assert_eq!(Frames::new(&critical).next(), Some(Ok(Frame::UnknownCritical(0xa0))));
    // Padding ends the datagram.
    assert_eq!(Frames::new(&bytes("00 13 0001 00")).next(), None);
}

#[test]
fn control_messages() {
    let prefix = |address: &str, bits| Prefix { address: address.parse().expect("one"), bits };
    let lease = Lease {
        addresses: vec![prefix("10.77.0.2", 24), prefix("fd77::2", 64)],
        gateway: vec![[10, 77, 0, 1].into()],
        dns: vec![[9, 9, 9, 9].into()],
    };
    let indices = Control::Indices {
        first: PathSerial(8),
        indices: vec![SessionIndex(0x0102_0304), SessionIndex(0xffff_ffff)],
    };
    let early = Control::Early(vec![
        End { network: prefix("192.0.2.0", 24), port: None },
        End { network: prefix("2001:db8::7", 128), port: Some(27_015) },
    ]);
    let vectors = [
        (
            Control::Lease(lease),
            "01  02 18 04 0a4d0002000000000000000000000000 40 06 fd770000000000000000000000000002
             01 04 0a4d0001000000000000000000000000  01 04 09090909000000000000000000000000",
        ),
        (
            Control::Routes(vec![prefix("192.168.7.0", 24)]),
            "02  01 18 04 c0a80700000000000000000000000000",
        ),
        (indices, "03  00000008 02 01020304 ffffffff"),
        (
            early,
            "06  02 18 04 c0000200000000000000000000000000 0000
             80 06 20010db8000000000000000000000007 6987",
        ),
        (Control::Scheduler(Scheduler::Redundant.number()), "07  03"),
        (Control::Recovery(Recovery::Latency.number()), "08  01"),
        (Control::Taken { next: PathSerial(9) }, "09  00000009"),
        (
            Control::Networks(vec![prefix("10.20.0.0", 16), prefix("fd20::", 32)]),
            "0c  02 10 04 0a140000000000000000000000000000 20 06 fd200000000000000000000000000000",
        ),
        (Control::Networks(Vec::new()), "0c  00"),
        (Control::Policed { serial: PathSerial(9), kbps: 950 }, "0d  00000009 000003b6"),
        (
            Control::Context { id: 0x0102, form: 4, header: vec![0x45, 0, 7] },
            "0e  0102 04 03 450007",
        ),
    ];
    compare_controls(vectors);
    assert_eq!(Control::parse(&[0x7f, 1, 2]), Ok(Control::Unknown(0x7f)));
    assert_eq!(Control::parse(&[7]), Err(DropReason::BadFrame));
    assert_eq!(Control::parse(&[8]), Err(DropReason::BadFrame));
    assert_eq!(Control::parse(&[12, 57]), Err(DropReason::BadFrame), "too many networks");
    let too_long = [&[14, 0, 1, 0, 101][..], &[0; 101]].concat();
    assert_eq!(Control::parse(&too_long), Err(DropReason::BadFrame));
    assert_eq!(Control::parse(&[7, 200, 1]), Ok(Control::Scheduler(200)), "of a later version");
}

#[test]
fn control_messages_about_compression() {
    let prefix = |address: &str, bits| Prefix { address: address.parse().expect("one"), bits };
    let end = |network, port| End { network, port };
    let compress = Control::Compress {
        pads: true,
        frugal: false,
        rules: vec![
            (end(prefix("192.0.2.0", 24), None), 1),
            (end(prefix("2001:db8::7", 128), Some(1_883)), 0x12),
        ],
    };
    compare_controls([
        (
            compress,
            "0f  01 02 18 04 c0000200000000000000000000000000 0000 01
             80 06 20010db8000000000000000000000007 075b 12",
        ),
        (Control::Compress { pads: false, frugal: false, rules: Vec::new() }, "0f  00 00"),
        (Control::Compress { pads: false, frugal: true, rules: Vec::new() }, "0f  02 00"),
        (Control::Dictionaries(vec![(1, [1, 2, 3, 4, 5, 6, 7, 8])]), "10  01 01 0102030405060708"),
    ]);
    assert_eq!(Control::parse(&[15, 0, 33]), Err(DropReason::BadFrame), "too many rules");
    assert_eq!(Control::parse(&[16, 16]), Err(DropReason::BadFrame), "too many dictionaries");
}

/// Each message is these bytes, and these bytes are the message.
fn compare_controls<const N: usize>(vectors: [(Control, &str); N]) {
    for (control, hex) in vectors {
        let mut emitted = Vec::new();
        control.emit(&mut emitted);
        assert_eq!(emitted, bytes(hex), "{control:?}");
        assert_eq!(Control::parse(&emitted), Ok(control), "{hex}");
    }
}
