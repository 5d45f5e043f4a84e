//! What was lost and does not leave again, since its receiver has it, is not waited for.

use crate::pair::bulk::bonded;
use crate::pair::{Datagram, Pair};
use rove_proto::time::Duration;
use rove_proto::wire::tcp::{Ends, Flags, Made, Seq};

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
const CLIENT: ([u8; 4], u16) = ([10, 9, 0, 2], 40_000);
const SERVER: ([u8; 4], u16) = ([198, 51, 100, 7], 443);
const START: Seq = Seq(1_000);
const SEGMENT: [u8; 1_000] = [7; 1_000];
/// A round trip is 40 ms. A gap is held open for 3.5 of them and 30 ms; what will not come is told
/// after a round trip and a half, and what feedback waits for.
const TOLD_WITHIN: Duration = Duration::from_millis(100);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One end of a connection says something.
fn say(pair: &mut Pair, by_client: bool, flags: Flags, seq: Seq, ack: Seq, payload: &[u8]) {
    let here = |(address, port): ([u8; 4], u16)| (address.into(), port);
    let (source, destination) = if by_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let ends = Ends { source: here(source), destination: here(destination) };
    let mut packet = Vec::new();
    let made = Made { ends, seq, ack, flags, window: 60_000, timestamps: None };
    made.emit((payload, &[]), &mut packet);
    if by_client { pair.send(&packet) } else { pair.send_back(&packet) }
}

#[test]
fn a_segment_that_was_said_twice_and_lost_once_is_not_waited_for() {
    let mut pair = bonded(Pair::up(), &[WIFI, CABLE]);
    let first = START.plus(1);
    say(&mut pair, true, Flags::SYN, START, Seq(0), &[]);
    pair.run(ms(30));
    say(&mut pair, false, Flags::SYN.and(Flags::ACK), START, first, &[]);
    pair.run(ms(30));
    say(&mut pair, true, Flags::ACK, first, first, &SEGMENT);
    pair.run(ms(30));
    say(&mut pair, false, Flags::ACK, first, first.plus(1_000), &[]);
    pair.run(ms(30));

    // Its sender says it again, for nothing, and that is lost.
    let gateway = pair.gateway_at[0];
    pair.filter = Box::new(move |datagram: &Datagram| datagram.to != gateway);
    say(&mut pair, true, Flags::ACK, first, first, &SEGMENT);
    pair.run(ms(1));
    pair.filter = Box::new(|_| true);
    pair.gateway_inner.clear();
    for number in 1..=8 {
        say(&mut pair, true, Flags::ACK, first.plus(number * 1_000), first, &SEGMENT);
    }
    let since = pair.now;
    while pair.gateway_inner.len() < 8 && pair.now < since + ms(1_000) {
        pair.run(ms(1));
    }
    let after = pair.now.saturating_since(since);
    println!("{} segments after {after:?}", pair.gateway_inner.len());
    assert!(pair.gateway_inner.len() == 8 && after < TOLD_WITHIN, "{after:?}");
}
