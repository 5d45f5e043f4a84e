//! Several links as one: what is much goes by all of them and arrives in order, what is lost leaves
//! again, and one that dies takes nothing with it.

#![allow(clippy::unwrap_used, reason = "a test: a panic is the report")]

mod pair;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use pair::{Datagram, Pair, links, udp};
use rove_proto::bond::Mode;
use rove_proto::id::LinkId;
use rove_proto::node::{Command, Link};
use rove_proto::time::Duration;

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
const MODEM: [u8; 4] = [198, 51, 100, 200];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A session by these links, which share what there is.
fn new(addresses: &[[u8; 4]]) -> Pair {
    let mut pair = Pair::up();
    pair.tell_client(links(addresses));
    pair.tell_client(Command::SetMode(Mode::Full));
    pair.run(ms(500));
    pair
}

/// The same, when it is known how much they carry.
fn bonded(addresses: &[[u8; 4]]) -> Pair {
    let mut pair = new(addresses);
    flow(&mut pair, 0..4_000);
    pair.run(ms(200));
    pair.client_inner.clear();
    pair.gateway_inner.clear();
    pair
}

/// The `number`th packet of a flow that is much, and of which order matters.
fn packet(number: u32, back: bool) -> Vec<u8> {
    let mut payload = vec![0; 1_200];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    udp((40_000, 40_001), &payload, back)
}

/// One packet both ways each 500 us, 2.4 MB/s.
fn flow(pair: &mut Pair, numbers: std::ops::Range<u32>) {
    for number in numbers {
        pair.send(&packet(number, false));
        pair.send_back(&packet(number, true));
        pair.run(Duration::from_micros(500));
    }
}

/// What arrived, up and down.
fn arrived(pair: &Pair) -> [Vec<u32>; 2] {
    [&pair.gateway_inner, &pair.client_inner].map(|inner| {
        let number = |packet: &[u8]| u32::from_be_bytes(packet[28..32].try_into().unwrap());
        inner.iter().map(|(_, packet)| number(packet)).collect()
    })
}

/// Counts datagrams that are long by the client's address, up and down.
fn counted(pair: &mut Pair) -> Rc<RefCell<BTreeMap<(IpAddr, bool), u32>>> {
    let counts = Rc::new(RefCell::new(BTreeMap::new()));
    let seen = Rc::clone(&counts);
    let gateway = pair.gateway_at[0];
    pair.filter = Box::new(move |datagram: &Datagram| {
        let up = datagram.to == gateway;
        let client = if up { datagram.from } else { datagram.to };
        if datagram.bytes.len() > 1_000 {
            *seen.borrow_mut().entry((client.ip(), up)).or_default() += 1;
        }
        true
    });
    counts
}

#[test]
fn what_is_much_goes_by_several_links_and_arrives_in_order() {
    let mut pair = new(&[WIFI, CABLE, MODEM]);
    let counts = counted(&mut pair);
    flow(&mut pair, 0..400); // nobody knows yet how much any of them carries
    pair.run(ms(500));
    for numbers in arrived(&pair) {
        assert_eq!(numbers, Vec::from_iter(0..400));
    }
    // No link of this world is ever full: how much each gets is for the lab to say.
    for up in [true, false] {
        let used = counts.borrow().keys().filter(|(_, way)| *way == up).count();
        assert!(used > 1, "{:?}", counts.borrow());
    }
}

#[test]
fn one_that_was_a_spare_carries_nothing_unless_told_to() {
    let mut pair = bonded(&[WIFI, CABLE]);
    pair.tell_client(Command::SetMode(Mode::Backup));
    pair.run(ms(200));
    let counts = counted(&mut pair);
    flow(&mut pair, 0..1_000);
    pair.run(ms(500));
    let used: Vec<_> = counts.borrow().keys().map(|(address, _)| *address).collect();
    assert_eq!(used, [IpAddr::from(WIFI), IpAddr::from(WIFI)]);
    let counts = counted(&mut pair);
    pair.tell_client(Command::SetMode(Mode::Full));
    pair.run(ms(200));
    flow(&mut pair, 1_000..3_000);
    pair.run(ms(500));
    assert!(counts.borrow().len() > 2, "{:?}", counts.borrow());
    for numbers in arrived(&pair) {
        assert_eq!(numbers, Vec::from_iter(0..3_000));
    }
}

#[test]
fn what_is_lost_leaves_again_and_arrives_in_its_turn() {
    let mut pair = bonded(&[WIFI, CABLE]);
    let mut count = 0;
    pair.filter = Box::new(move |datagram| {
        count += usize::from(datagram.bytes.len() > 1_000);
        datagram.bytes.len() < 1_000 || count % 50 != 0
    });
    flow(&mut pair, 0..3_000);
    flow(&mut pair, 3_000..3_020); // the last of them are not missed before others follow
    pair.run(ms(500));
    for numbers in arrived(&pair) {
        assert!(numbers.is_sorted(), "out of order");
        assert!(numbers.len() >= 3_015, "{} of 3,020", numbers.len());
        assert!(numbers.iter().zip(0..3_000).all(|(&number, expected)| number == expected));
    }
}

#[test]
fn a_link_that_dies_takes_nothing_with_it() {
    let mut pair = bonded(&[WIFI, CABLE]);
    flow(&mut pair, 0..1_000);
    pair.filter = Box::new(|datagram| {
        let dead = IpAddr::from(WIFI);
        datagram.from.ip() != dead && datagram.to.ip() != dead
    });
    pair.cut(WIFI);
    let died = pair.now;
    flow(&mut pair, 1_000..5_000);
    pair.run(ms(800));
    for numbers in arrived(&pair) {
        assert_eq!(numbers, Vec::from_iter(0..5_000));
    }
    // Two round trips of 40 ms, and what the issue allows beside.
    for inner in [&pair.gateway_inner, &pair.client_inner] {
        let since = inner.iter().filter(|(at, _)| *at >= died).map(|(at, _)| *at);
        let times: Vec<_> = std::iter::once(died).chain(since).collect();
        let still = times.windows(2).map(|two| two[1].saturating_since(two[0])).max();
        assert!(still < Some(ms(130)), "still for {still:?}");
    }
}

#[test]
fn a_link_that_is_said_to_be_gone_costs_one_round_trip_also_beside_the_one_in_use() {
    let mut pair = bonded(&[WIFI, CABLE]);
    let link = |id, address| Link { id: LinkId(id), addresses: vec![IpAddr::from(address)] };
    pair.tell_client(Command::SetLinks(vec![link(2, CABLE), link(1, WIFI)]));
    pair.run(ms(200));
    let paths = pair.client.status(pair.gateway_key).unwrap().paths;
    assert_eq!(paths[0].link, Some(LinkId(2)), "the other one is in use now");
    let (dead, counts) = (IpAddr::from(WIFI), counted(&mut pair));
    flow(&mut pair, 0..1_000);
    assert!(counts.borrow().contains_key(&(dead, false)), "it carries: {:?}", counts.borrow());
    pair.filter = Box::new(move |datagram| datagram.from.ip() != dead && datagram.to.ip() != dead);
    pair.cut(WIFI);
    pair.tell_client(Command::SetLinks(vec![link(2, CABLE)]));
    let died = pair.now;
    flow(&mut pair, 1_000..3_000);
    pair.run(ms(500));
    for numbers in arrived(&pair) {
        assert_eq!(numbers, Vec::from_iter(0..3_000));
    }
    // Half a round trip to be told, half of one for what was lost to come, and 30 ms.
    let since = pair.client_inner.iter().filter(|(at, _)| *at >= died).map(|(at, _)| *at);
    let times: Vec<_> = std::iter::once(died).chain(since).collect();
    let still = times.windows(2).map(|two| two[1].saturating_since(two[0])).max();
    assert!(still < Some(ms(70)), "still for {still:?}");
}

#[test]
fn what_leaves_again_keeps_the_pace_of_the_path_that_is_left() {
    let mut pair = bonded(&[WIFI, CABLE]);
    flow(&mut pair, 0..1_000);
    let (times, gateway) = (Rc::new(RefCell::new(Vec::new())), pair.gateway_at[0]);
    let seen = Rc::clone(&times);
    pair.filter = Box::new(move |datagram| {
        let is_dead = [datagram.from, datagram.to].iter().any(|at| at.ip() == IpAddr::from(WIFI));
        if datagram.to == gateway && datagram.bytes.len() > 1_000 && !is_dead {
            seen.borrow_mut().push(datagram.at);
        }
        !is_dead
    });
    pair.cut(WIFI);
    flow(&mut pair, 1_000..2_000);
    pair.run(ms(500));
    assert_eq!(arrived(&pair)[0], Vec::from_iter(0..2_000));
    // Half of 2.4 MB/s was on its way by the dead link for 40 ms: some 40 packets.
    let times = times.borrow();
    let at_once = times.chunk_by(|a, b| a == b).map(<[_]>::len).max();
    assert!(at_once < Some(15), "{at_once:?} in the same moment");
}

#[test]
fn new_keys_do_not_stop_it() {
    let mut pair = bonded(&[WIFI, CABLE]);
    pair.run(Duration::from_secs(125));
    flow(&mut pair, 0..3_000);
    pair.run(ms(1_800));
    assert!(pair.epochs() > 1);
    for numbers in arrived(&pair) {
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), numbers.len(), "repeated");
        assert_eq!(numbers.len(), 3_000);
    }
}
