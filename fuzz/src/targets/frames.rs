//! The frames of an opened datagram: a peer that authenticated may still be hostile.

use std::net::{Ipv4Addr, SocketAddr};

use rove_proto::error::CloseCode;
use rove_proto::id::PathSerial;
use rove_proto::wire::frame::{
    Challenge, CompactHead, ControlAck, FEEDBACK_RUNS_MAX, Feedback, Frame, Frames, Framing,
    Response, emit_padding,
};

use super::inner_packet::udp_v4;
use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "frames", run, seeds, mutations: 100_000 };

fn run(data: &[u8]) {
    let mut read = 0;
    let mut frames = Frames::new(data);
    while let Some(frame) = frames.next() {
        read += 1;
        assert!(read <= data.len(), "more frames than bytes: this would never end");
        match frame {
            Ok(frame) => said_again_it_is_the_same(&frame),
            Err(_) => assert!(frames.next().is_none(), "nothing may follow an error"),
        }
    }
}

fn said_again_it_is_the_same(frame: &Frame<'_>) {
    if matches!(frame, Frame::Unknown | Frame::UnknownCritical(_)) {
        return;
    }
    let mut bytes = Vec::new();
    frame.emit(&mut bytes);
    let again = Frames::new(&bytes).next();
    match (frame, again) {
        (Frame::Feedback(one), Some(Ok(Frame::Feedback(two))))
        | (Frame::LastFeedback(one), Some(Ok(Frame::LastFeedback(two)))) => {
            same_meaning(one, &two);
        }
        (one, Some(Ok(two))) => assert_eq!(*one, two),
        (one, two) => panic!("{one:?} became {two:?}"),
    }
}

/// Runs after the first empty one mean nothing, and are not said again.
fn same_meaning(one: &Feedback, two: &Feedback) {
    assert_eq!(Feedback { runs: two.runs, ..*one }, *two);
    let mut number = one.largest;
    for (received, missing) in one.runs {
        for near in [number, number.saturating_add(1), number.saturating_sub(1)] {
            assert_eq!(one.acknowledges(near), two.acknowledges(near), "number {near}");
        }
        number = number.saturating_sub(u64::from(received) + u64::from(missing));
    }
    assert!(!one.acknowledges(one.largest.saturating_add(1)) || one.largest == u64::MAX);
}

fn seeds() -> Vec<Vec<u8>> {
    let packet = udp_v4(b"ping");
    let mut runs = [(0, 0); FEEDBACK_RUNS_MAX];
    runs[0] = (3, 1);
    runs[1] = (90, 0);
    let serial = PathSerial(2);
    let numbered = |framing| Frame::Packet { framing, packet: &packet };
    let compact = |framing| {
        let head = CompactHead::new(framing, 0x0102).expect("not the first of a sequence");
        Frame::Compact { head, body: &packet[20..] }
    };
    let compressed = |framing| Frame::Compressed { framing, result: &[1, 0x10, b'x'] };
    let feedback = Feedback {
        serial,
        largest: 96,
        delay_us: 250,
        arrived_us: 7,
        received: 93,
        bytes: 120_000,
        runs,
    };
    let observed = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 7), 4433));
    let frames = [
        numbered(Framing::Plain),
        numbered(Framing::Once { bucket: 3, sequence: 77 }),
        Frame::Fragment { packet_id: 9, index: 1, piece: &packet[..20] },
        Frame::Feedback(feedback),
        Frame::Challenge(Challenge {
            prefer: true,
            abandon_others: false,
            beside: true,
            token: 0x0123_4567,
            moves: 2,
        }),
        Frame::Response(Response { token: 0x0123_4567, observed }),
        Frame::Close(CloseCode::Requested),
        Frame::Control { number: 4, body: &[3, 0, 0, 0, 8, 1, 0, 0, 0, 9] },
        Frame::ControlAck(ControlAck { next: 5, beyond: 2 }),
        Frame::Retransmission { serial, number: 95, packet: &packet },
        Frame::LastFeedback(feedback),
        numbered(Framing::InOrder { bucket: 200, sequence: 78 }),
        numbered(Framing::First { bucket: 200, epoch: 0x1234, end: 79 }),
        Frame::Advanced { bucket: 200, from: 0, to: 80 },
        Frame::Advanced { bucket: 200, from: 81, to: 82 },
        compact(Framing::Plain),
        compact(Framing::Once { bucket: 3, sequence: 77 }),
        compact(Framing::InOrder { bucket: 200, sequence: 0xff_ffff }),
        compressed(Framing::Once { bucket: 3, sequence: 79 }),
        compressed(Framing::InOrder { bucket: 200, sequence: 80 }),
    ];
    let bytes = |frames: &[Frame<'_>]| {
        let mut out = Vec::new();
        for frame in frames {
            frame.emit(&mut out);
        }
        out
    };
    let mut seeds: Vec<Vec<u8>> =
        frames.iter().map(|frame| bytes(std::slice::from_ref(frame))).collect();
    // What a real datagram looks like: feedback, acknowledgement, then packets; and a padded probe.
    seeds.push(bytes(&[frames[3], frames[8], frames[0], frames[0]]));
    let mut probe = bytes(&[frames[4]]);
    emit_padding(&mut probe, 1_000);
    seeds.push(probe);
    seeds.push(vec![0x7f, 0, 2, 1, 1, 0xff, 0, 0]);
    seeds
}
