//! TCP over a wire that is told which segments it loses.

use super::*;
use crate::emu::MS;

const MSS: usize = 1_000;
/// One way.
const DELAY_NS: u64 = 20 * MS;

/// Two ends and what is on its way between them.
struct Pair {
    now_ns: u64,
    ends: [Tcp; 2],
    /// When it arrives, at which end, and what.
    wire: Vec<(u64, usize, Header, Vec<u8>)>,
    read: [Vec<u8>; 2],
    sent: usize,
    /// Bytes that are read whenever something arrives.
    reads: usize,
    /// Whether the so many-th segment gets through.
    passes: fn(usize) -> bool,
}

impl Pair {
    fn new() -> Self {
        Self {
            now_ns: SECOND,
            ends: [Tcp::connect(SECOND), Tcp::accept()],
            wire: Vec::new(),
            read: [Vec::new(), Vec::new()],
            sent: 0,
            reads: usize::MAX,
            passes: |_| true,
        }
    }

    /// Two ends that know of each other.
    fn open() -> Self {
        let mut pair = Self::new();
        pair.run(2 * DELAY_NS);
        assert!(pair.ends[0].is_open(), "a round trip after it was asked for");
        pair
    }

    fn run(&mut self, length_ns: u64) {
        let end_ns = self.now_ns + length_ns;
        loop {
            // The accepting end exists once it was asked.
            for end in 0..1 + usize::from(self.sent > 0) {
                for (header, bytes) in self.ends[end].leaving(self.now_ns, MSS) {
                    self.sent += 1;
                    if (self.passes)(self.sent) {
                        self.wire.push((self.now_ns + DELAY_NS, 1 - end, header, bytes));
                    }
                }
            }
            self.wire.sort_by_key(|one| one.0);
            let arrival = self.wire.first().map(|one| one.0);
            let timers = self.ends.iter().filter_map(Tcp::due_ns);
            let next = timers.chain(arrival).min().unwrap_or(u64::MAX).max(self.now_ns);
            if next > end_ns {
                self.now_ns = end_ns;
                return;
            }
            self.now_ns = next;
            if arrival.is_some_and(|at| at <= next) {
                let (_, at, header, bytes) = self.wire.remove(0);
                self.ends[at].arrives(next, &header, bytes);
                self.read[at].extend(self.ends[at].read(self.reads));
            }
        }
    }
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

#[test]
fn bytes_arrive_in_order_both_ways() {
    let mut pair = Pair::open();
    let (up, down) = (bytes(5_000), bytes(777));
    pair.ends[0].write(&up);
    pair.run(DELAY_NS * 2);
    assert!(pair.read[1] == up && pair.ends[0].is_drained());
    pair.ends[1].write(&down);
    pair.run(DELAY_NS);
    assert!(pair.read[0] == down);
    let before = pair.sent;
    pair.run(100 * SECOND);
    assert!(pair.sent <= before + 1, "an end that has nothing to say is silent");
}

#[test]
fn it_opens_although_what_asks_and_what_grants_is_lost() {
    for lost in [|sent| sent != 1, |sent| sent != 2, |sent| sent != 3] {
        let mut pair = Pair::new();
        pair.passes = lost;
        pair.ends[0].write(b"early");
        pair.run(3 * SECOND);
        assert!(pair.read[1] == b"early");
    }
}

#[test]
fn what_is_behind_a_lost_segment_waits_for_it_one_round_trip() {
    let mut pair = Pair::open();
    let sent = bytes(8_000);
    pair.passes = |number| number != 4;
    assert_eq!(pair.sent, 3, "asked, granted, and told so");
    pair.ends[0].write(&sent);
    pair.run(DELAY_NS * 3 - 1);
    assert!(pair.read[1].is_empty(), "it is the first that is missing");
    pair.run(1);
    assert!(pair.read[1] == sent, "{} bytes", pair.read[1].len());
}

#[test]
fn every_third_segment_lost_loses_no_byte() {
    let mut pair = Pair::open();
    let sent = bytes(300_000);
    pair.passes = |number| number % 3 != 0;
    pair.ends[0].write(&sent);
    pair.run(60 * SECOND);
    assert!(pair.read[1] == sent, "{} of {} bytes", pair.read[1].len(), sent.len());
}

#[test]
fn a_wire_that_is_dead_for_a_while_is_asked_every_second_and_then_given_up() {
    let mut pair = Pair::open();
    pair.passes = |_| false;
    pair.ends[0].write(b"anybody?");
    pair.run(USER_TIMEOUT_NS - SECOND);
    assert!(!pair.ends[0].is_broken(pair.now_ns));
    assert!((28..34).contains(&pair.sent), "{}", pair.sent);
    pair.run(2 * SECOND);
    assert!(pair.ends[0].is_broken(pair.now_ns));
    pair.passes = |_| true;
    pair.run(2 * SECOND);
    assert!(pair.read[1] == b"anybody?");
    assert!(!pair.ends[0].is_broken(pair.now_ns), "it was answered");
}

#[test]
fn who_does_not_read_is_sent_no_more_than_there_is_room_for() {
    let mut pair = Pair::open();
    let sent = bytes(1_000_000);
    pair.reads = 0;
    pair.ends[0].write(&sent);
    pair.run(10 * SECOND);
    let held = sent.len() - pair.ends[0].unsent();
    assert!((UNREAD_MAX..3 * UNREAD_MAX).contains(&held), "{held}");
    pair.reads = 100_000;
    pair.run(10 * SECOND);
    assert!(pair.read[1] == sent, "{} bytes", pair.read[1].len());
}
