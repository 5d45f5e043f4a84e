use super::{Delays, End, Quic, Side, Sink, Source};
use crate::emu::{MS, SECOND};
use crate::ground::Congestion;
use std::collections::VecDeque;

/// Lets two ends talk over a way that takes 10 ms, and loses every so-manieth of what the second
/// sends, until then; returns how much that was.
fn talk(ends: &mut [End; 2], loses: Option<usize>, until_ns: u64) -> usize {
    let mut ways: [VecDeque<(u64, Vec<u8>)>; 2] = Default::default();
    let (mut now_ns, mut sent, mut out) = (0, 0, Vec::new());
    while now_ns < until_ns {
        for side in 0..2 {
            if ends[side].due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                ends[side].leaving(now_ns, &mut out).unwrap();
                for payload in out.drain(..) {
                    sent += side;
                    let is_lost = side == 1 && loses.is_some_and(|every| sent % every == 0);
                    if !is_lost {
                        ways[1 - side].push_back((now_ns + 10 * MS, payload));
                    }
                }
            }
            while ways[side].front().is_some_and(|(at_ns, _)| *at_ns <= now_ns) {
                let (_, payload) = ways[side].pop_front().unwrap();
                ends[side].arrives(now_ns, &payload).unwrap();
            }
        }
        let due_ns = ends.iter_mut().filter_map(End::due_ns);
        let comes_ns = ways.iter().filter_map(|way| way.front().map(|one| one.0));
        now_ns = due_ns.chain(comes_ns).min().unwrap_or(until_ns).max(now_ns);
    }
    sent
}

fn connection(seed: u64) -> [End; 2] {
    [(Side::Client, false), (Side::Server, true)].map(|(side, says)| {
        let end = Quic::new(side, says, Congestion::Cubic, seed, 0).unwrap();
        End::Quic(Box::new(end))
    })
}

#[test]
fn a_stream_comes_whole_although_some_of_it_is_lost() {
    for loses in [None, Some(50)] {
        let mut ends = connection(1);
        talk(&mut ends, loses, SECOND);
        let heard = ends[0].heard().unwrap();
        // A round trip for the keys.
        assert_eq!(heard.opened_ns, Some(20 * MS), "{loses:?}");
        assert!(heard.bytes > 100_000, "{loses:?}: {}", heard.bytes);
        assert_eq!(heard.progress.last().unwrap().1, heard.bytes);
    }
}

#[test]
fn a_connection_goes_the_same_way_each_time() {
    let heard = |seed| {
        let mut ends = connection(seed);
        talk(&mut ends, Some(50), SECOND / 2);
        ends[0].heard().unwrap().clone()
    };
    assert_eq!(heard(3), heard(3));
}

#[test]
fn datagrams_leave_by_the_clock_and_each_is_counted_once() {
    // 1,000 of 1,250 bytes with their headers are 10 Mbit.
    let source = |begun_ns| End::Source(Source::new(10_000, 1_222, begun_ns));
    let mut ends = [End::Sink(Box::new(Sink::new(1_222, None, 0))), source(Some(0))];
    let sent = talk(&mut ends, Some(10), SECOND);
    let heard = ends[0].heard().unwrap();
    assert_eq!(sent, 1_000);
    // The last ten milliseconds are on their way.
    assert!((890 * 1_222..=892 * 1_222).contains(&heard.bytes), "{}", heard.bytes);
    assert_eq!((heard.overtaken, heard.delays.within_ms(1.0)), (0, Some(10.1)));
    // Who is asked begins then.
    let sink = Sink::new(1_222, Some(500 * MS), 0);
    let mut ends = [End::Sink(Box::new(sink)), source(None)];
    assert_eq!(talk(&mut ends, None, SECOND), 490);
    assert_eq!(ends[0].heard().unwrap().opened_ns, Some(520 * MS));
}

#[test]
fn what_comes_twice_or_altered_is_no_goodput() {
    let mut out = Vec::new();
    Source::new(1_000, 100, Some(0)).leaving(SECOND / 100, &mut out);
    let mut sink = Sink::new(100, None, 0);
    sink.arrives(SECOND, &out[3]).unwrap();
    sink.arrives(SECOND, &out[1]).unwrap();
    assert_eq!((sink.heard().overtaken, sink.heard().bytes), (1, 200));
    assert_eq!(sink.arrives(SECOND, &out[3]).unwrap_err(), "datagram 3 came twice");
    out[2][50] ^= 1;
    assert!(sink.arrives(SECOND, &out[2]).unwrap_err().contains("altered"));
    assert!(sink.arrives(SECOND, &out[4][..99]).is_err() && sink.arrives(SECOND, &[1]).is_err());
}

#[test]
fn a_share_of_all_came_within_so_long() {
    let mut delays = Delays::default();
    assert_eq!(delays.within_ms(0.5), None);
    (1..=100).for_each(|ms| delays.note(ms * MS));
    assert_eq!(
        [0.0, 0.5, 0.99, 1.0].map(|share| delays.within_ms(share).unwrap()),
        [1.1, 50.1, 99.1, 100.1]
    );
}
