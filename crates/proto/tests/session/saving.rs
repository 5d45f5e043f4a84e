//! Bytes saved on inner packets: compression of the flows that a user named, packets that share a
//! datagram, and the repair of each.

use std::cell::RefCell;
use std::rc::Rc;

use crate::pair::bulk::{self, arrived};
use crate::pair::{Datagram, Pair, links, udp};
use rove_proto::codec::SavingConfig;
use rove_proto::codec::allowed::{Allowed, Rule};
use rove_proto::codec::coding::Coding;
use rove_proto::node::Command;
use rove_proto::path::Saved;
use rove_proto::time::Duration;
use rove_proto::wire::control::{End, Prefix};

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
/// The server that the user names.
const SERVER: [u8; 4] = [198, 51, 100, 7];
/// A port without a meaning.
const PORT: u16 = 9_000;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The client wants the flows of the server compressed so.
fn rule(coding: Coding) -> SavingConfig {
    let network = Prefix { address: SERVER.into(), bits: 32 };
    let rules = [Rule { end: End { network, port: None }, coding }];
    SavingConfig { compress: Allowed::new(&rules), ..SavingConfig::default() }
}

/// A session whose client has asked for this.
fn asked(mut pair: Pair, saving: SavingConfig) -> Pair {
    pair.tell_client(Command::SetSaving(saving));
    pair.run(ms(200));
    pair.client_inner.clear();
    pair.gateway_inner.clear();
    pair
}

/// The `number`th packet of a flow of text: it begins with its number.
fn text(number: u32, len: usize, back: bool) -> Vec<u8> {
    let mut payload = b"{\"temperature\":21.5,\"humidity\":40},".repeat(len / 35 + 1);
    payload.truncate(len);
    payload[..4].copy_from_slice(&number.to_be_bytes());
    let ports = if back { (PORT, 40_000) } else { (40_000, PORT) };
    udp(ports, &payload, back)
}

/// Bytes that cannot be compressed (xorshift, Marsaglia 2003).
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// Sends such packets both ways, one each `pause`. Returns the bytes that left at layer 3.
fn exchange(pair: &mut Pair, numbers: std::ops::Range<u32>, len: usize, pause: Duration) -> usize {
    let before = pair.bytes;
    for number in numbers {
        pair.send(&text(number, len, false));
        pair.send_back(&text(number, len, true));
        pair.run(pause);
    }
    pair.run(ms(100));
    pair.bytes - before
}

/// Everything that was sent arrived as it was, in its order.
fn assert_arrived(pair: &Pair, numbers: std::ops::Range<u32>, len: usize) {
    for (inner, back) in [(&pair.gateway_inner, false), (&pair.client_inner, true)] {
        let arrived: Vec<_> = inner.iter().map(|(_, packet)| packet.clone()).collect();
        let sent: Vec<_> = numbers.clone().map(|number| text(number, len, back)).collect();
        assert_eq!(arrived.len(), sent.len());
        assert!(arrived == sent, "something arrived otherwise than it was sent");
    }
}

/// Notes the length of each datagram from now on.
fn lengths(pair: &mut Pair) -> Rc<RefCell<Vec<usize>>> {
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&lengths);
    pair.filter = Box::new(move |datagram: &Datagram| {
        seen.borrow_mut().push(datagram.bytes.len());
        true
    });
    lengths
}

#[test]
fn flows_that_the_user_named_are_compressed_in_both_directions() {
    let plain = exchange(&mut Pair::up(), 0..200, 1_200, ms(1));
    for coding in [Coding::LZ4, Coding::ZSTD, Coding::with_dictionary(1)] {
        for pads in [false, true] {
            let mut pair = asked(Pair::up(), SavingConfig { pads, ..rule(coding) });
            let bytes = exchange(&mut pair, 0..200, 1_200, ms(1));
            assert_arrived(&pair, 0..200, 1_200);
            assert!(bytes * 5 < plain, "{bytes} of {plain} by {coding:?}");
            for status in
                [pair.client.status(pair.gateway_key), pair.gateway.status(pair.client_key)]
            {
                let saved = status.unwrap().saved;
                assert!(saved.compression > 150_000 && saved.aggregation > 5_000, "{saved:?}");
            }
        }
    }
}

#[test]
fn named_datagrams_leave_after_an_outage_however_old_they_are() {
    let sent: Vec<_> = (21..51).map(|number| text(number, 600, false)).collect();
    let arrived_of = |saving: SavingConfig, is_silent: bool| {
        let mut pair = asked(Pair::up(), saving);
        exchange(&mut pair, 0..20, 600, ms(1));
        if is_silent {
            pair.filter = Box::new(|_| false);
            // What leaves before the outage is noticed may be lost.
            pair.send(&text(20, 600, false));
            pair.run(Duration::from_secs(2));
        } else {
            pair.tell_client(links(&[]));
        }
        for number in 21..51 {
            pair.send(&text(number, 600, false));
            pair.run(Duration::from_secs(1));
        }
        pair.filter = Box::new(|_| true);
        pair.tell_client(links(&[WIFI]));
        pair.run(Duration::from_secs(5));
        let arrived = pair.gateway_inner.iter().map(|(_, packet)| packet.clone());
        arrived.filter(|packet| sent.contains(packet)).collect::<Vec<_>>()
    };
    for is_silent in [true, false] {
        assert!(arrived_of(rule(Coding::LZ4), is_silent) == sent, "each once, in order");
        let others = arrived_of(SavingConfig::default(), is_silent);
        assert!(others.len() <= 1, "datagrams of other flows are too late: {}", others.len());
    }
}

#[test]
fn what_nobody_named_is_not_compressed() {
    let mut pair = Pair::up();
    let plain = exchange(&mut pair, 0..100, 1_200, ms(1));
    assert!(plain > 2 * 100 * 1_200);
    assert_eq!(pair.client.status(pair.gateway_key).unwrap().compressions, 0);
    // A list that is taken back is taken back at both ends.
    let mut pair = asked(Pair::up(), rule(Coding::LZ4));
    pair.tell_client(Command::SetSaving(SavingConfig::default()));
    pair.run(ms(200));
    assert_eq!(exchange(&mut pair, 0..100, 1_200, ms(1)), plain);
}

#[test]
fn new_keys_change_nothing() {
    let mut pair = asked(Pair::up(), rule(Coding::with_dictionary(1)));
    let before = exchange(&mut pair, 0..100, 1_200, ms(1));
    pair.run(Duration::from_secs(150));
    exchange(&mut pair, 100..110, 1_200, ms(1));
    pair.run(ms(500));
    assert!(pair.epochs() > 1, "keys were not due");
    let after = exchange(&mut pair, 110..210, 1_200, ms(1));
    assert!(after < before + before / 4, "{after} of {before}");
    assert_arrived(&pair, 0..210, 1_200);
}

#[test]
fn a_packet_waits_ten_milliseconds_for_others_and_no_longer() {
    let mut pair = asked(Pair::up(), rule(Coding::LZ4));
    let sent_at = pair.now;
    pair.send(&text(0, 600, false));
    pair.run(ms(5));
    pair.send(&text(1, 600, false));
    pair.run(ms(100));
    let arrived = pair.gateway_inner.iter().map(|(at, _)| at.saturating_since(sent_at));
    let arrived: Vec<_> = arrived.collect();
    assert_eq!(arrived, [ms(30), ms(30)], "ten to wait, twenty under way");
}

#[test]
fn compressed_packets_fill_datagrams() {
    let mut pair = asked(Pair::up(), rule(Coding::LZ4));
    let lengths = lengths(&mut pair);
    for number in 0..600 {
        pair.send(&text(number, 1_200, false));
    }
    pair.run(ms(100));
    let full: Vec<_> = lengths.borrow().iter().copied().filter(|&len| len > 300).collect();
    let mean = full.iter().sum::<usize>() / full.len();
    assert!(full.len() < 60 && mean > 1_000, "{} datagrams of {mean} bytes", full.len());
    assert_eq!(pair.gateway_inner.len(), 600);
}

#[test]
fn each_of_several_lost_packets_is_repaired() {
    for saving in [SavingConfig::default(), rule(Coding::LZ4), rule(Coding::NONE)] {
        let mut pair = asked(bulk::bonded(Pair::up(), &[WIFI, CABLE]), saving);
        let mut count = 0;
        pair.filter = Box::new(move |datagram| {
            count += usize::from(datagram.bytes.len() > 500);
            datagram.bytes.len() <= 500 || count % 20 != 0
        });
        for number in (0..2_000).step_by(20) {
            for number in number..number + 20 {
                pair.send(&text(number, 310, false));
                pair.send_back(&text(number, 310, true));
            }
            pair.run(ms(2));
        }
        pair.run(ms(500));
        for numbers in arrived(&pair) {
            assert_eq!(numbers, Vec::from_iter(0..2_000));
        }
    }
}

#[test]
fn packets_that_wait_for_a_path_share_datagrams() {
    let count = |aggregates| {
        let saving = SavingConfig { aggregates, ..SavingConfig::default() };
        let mut pair = asked(bulk::bonded(Pair::up(), &[WIFI, CABLE]), saving);
        let before = (pair.sent, pair.bytes);
        for number in (0..3_000).step_by(100) {
            for number in number..number + 100 {
                pair.send(&text(number, 320, false));
            }
            pair.run(ms(5));
        }
        pair.run(ms(500));
        let [up, _] = arrived(&pair);
        assert_eq!(up, Vec::from_iter(0..3_000));
        (pair.sent - before.0, pair.bytes - before.1)
    };
    let (shared, alone) = (count(true), count(false));
    // Those that find a path free leave alone.
    assert!(shared.0 * 4 < alone.0 * 3, "{shared:?} datagrams and bytes in place of {alone:?}");
    assert!(shared.1 + 28 * 1_000 < alone.1, "{shared:?} datagrams and bytes, not {alone:?}");
}

#[test]
fn what_waits_survives_the_end_of_its_path() {
    let mut pair = asked(bulk::bonded(Pair::up(), &[WIFI, CABLE]), rule(Coding::LZ4));
    for number in 0..50 {
        pair.send(&text(number, 1_200, false));
    }
    pair.tell_client(crate::pair::links(&[CABLE]));
    pair.run(ms(500));
    assert_eq!(arrived(&pair)[0], Vec::from_iter(0..50));
}

#[test]
fn web_traffic_is_never_compressed() {
    let mut pair = asked(Pair::up(), rule(Coding::LZ4));
    for (port, first) in [(443, &b"plain"[..]), (PORT, b"GET / HTTP/1.1\r\n")] {
        pair.send(&udp((40_000, port), first, false));
        for _ in 0..20 {
            pair.send(&udp((40_000, port), &[b'a'; 1_000], false));
            pair.run(ms(1));
        }
    }
    assert_eq!(pair.client.status(pair.gateway_key).unwrap().compressions, 0);
}

#[test]
fn a_packet_that_no_datagram_has_room_for_is_not_counted_as_compressed() {
    let mut pair = asked(Pair::up(), rule(Coding::LZ4));
    let mut payload = noise(1_420);
    payload.extend([b'a'; 52]);
    let packet = udp((40_000, PORT), &payload, false);
    pair.send(&packet);
    pair.run(ms(100));
    assert!(pair.gateway_inner.iter().map(|(_, came)| came).eq([&packet]));
    let status = pair.client.status(pair.gateway_key).unwrap();
    assert_eq!((status.compressions, status.saved), (1, Saved::default()));
}

#[test]
fn packets_of_compressed_flows_find_more_room_while_there_is_no_path() {
    let outage = |saving| {
        let mut pair = asked(Pair::up(), saving);
        pair.tell_client(crate::pair::links(&[]));
        pair.run(ms(100));
        for number in 0..200 {
            pair.send(&text(number, 1_200, false));
            pair.run(ms(1));
        }
        pair.tell_client(crate::pair::links(&[WIFI]));
        pair.run(ms(500));
        let spared = pair.client.status(pair.gateway_key).unwrap().spared;
        (pair, spared)
    };
    let (pair, spared) = outage(SavingConfig::default());
    assert!(pair.gateway_inner.len() < 100 && spared == 0, "as many as there is room for");
    let (pair, spared) = outage(rule(Coding::LZ4));
    let came: Vec<_> = pair.gateway_inner.iter().map(|(_, packet)| packet.clone()).collect();
    assert!(came == Vec::from_iter((0..200).map(|number| text(number, 1_200, false))));
    assert!(spared > 100_000, "{spared}");
}

#[test]
fn what_compression_saves_on_repairs_counts() {
    let pair = asked(bulk::bonded(Pair::up(), &[WIFI, CABLE]), rule(Coding::LZ4));
    let mut pair = asked(pair, SavingConfig::default());
    let mut count = 0;
    pair.filter = Box::new(move |datagram| {
        count += usize::from(datagram.bytes.len() > 500);
        datagram.bytes.len() <= 500 || count % 5 != 0
    });
    for number in 0..100 {
        pair.send(&text(number, 1_000, false));
    }
    // A rule names the flow before the losses are known. One packet is compressed, and all repairs.
    pair.tell_client(Command::SetSaving(rule(Coding::LZ4)));
    pair.send(&text(100, 1_000, false));
    pair.run(ms(500));
    assert_eq!(arrived(&pair)[0], Vec::from_iter(0..101));
    let saved = pair.client.status(pair.gateway_key).unwrap().saved;
    assert!(saved.compression > 5_000, "{saved:?}");
}

#[test]
fn packets_that_share_a_datagram_leave_without_headers_that_the_peer_has() {
    let mut pair = asked(Pair::up(), rule(Coding::NONE));
    exchange(&mut pair, 0..200, 60, ms(1));
    assert_arrived(&pair, 0..200, 60);
    for status in [pair.client.status(pair.gateway_key), pair.gateway.status(pair.client_key)] {
        let saved = status.unwrap().saved;
        // IPv4 and UDP have 28 bytes, of which three travel; the frame has two less.
        assert!(saved.elision > 150 * 20 && saved.aggregation > 100 * 54, "{saved:?}");
    }
}
