//! Somebody who is not the gateway says where the gateway is: from outside, or as a client of it.
//! No client follows, nobody is told, and the true word counts.

use std::net::SocketAddr;

use crate::eve::insider::{INNER, Insider};
use crate::eve::{EVE, Eve, Fate, Seen, at, carries, pass, quiet, used};
use crate::pair::{ELSEWHERE, GATEWAY, Pair, packet};
use rove_proto::id::SessionIndex;
use rove_proto::node::{Command, Event};
use rove_proto::time::Duration;
use rove_proto::wire::control::Control;
use rove_proto::wire::frame::{Frame, Framing};

const SECOND: Duration = Duration::from_secs(1);

/// Where the client sends to.
fn followed(pair: &Pair) -> SocketAddr {
    pair.client.status(pair.gateway_key).unwrap().paths[0].remote()
}

/// What the client was told, the last word last.
fn told(pair: &Pair) -> Vec<SocketAddr> {
    let announced = |event: &Event| {
        let Event::Announced { addresses, .. } = event else { return None };
        addresses.first().copied()
    };
    pair.client_events.iter().filter_map(announced).collect()
}

fn announce(pair: &mut Pair, address: &str) {
    pair.tell_gateway(Command::Announce(vec![at(address)]));
}

/// The datagrams with an announcement of `address` that Eve withholds.
fn withheld(pair: &mut Pair, eve: &Eve, address: &str) -> Vec<Seen> {
    eve.change(
        pair,
        |datagram| {
            if datagram.from == at(GATEWAY) { Fate::Withheld } else { Fate::Passes }
        },
    );
    eve.take();
    announce(pair, address);
    let seen = eve.take();
    assert!(!seen.is_empty());
    seen
}

#[test]
fn an_altered_announcement_is_noise_wherever_it_comes_from() {
    let (mut pair, eve) = quiet();
    let home = used(&pair);
    let announced = withheld(&mut pair, &eve, ELSEWHERE);
    let (before, sent) = (format!("{:?}", pair.client.status(pair.gateway_key)), pair.sent);
    for seen in &announced {
        for bit in 0..seen.bytes.len() * 8 {
            let mut bytes = seen.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            for from in [GATEWAY, ELSEWHERE, EVE] {
                eve.send(&mut pair, at(from), home, &bytes);
            }
        }
    }
    assert_eq!(format!("{:?}", pair.client.status(pair.gateway_key)), before);
    assert_eq!((pair.sent, told(&pair)), (sent, vec![]), "nobody hears of it");
    for seen in &announced {
        eve.send(&mut pair, seen.from, home, &seen.bytes);
    }
    assert_eq!(told(&pair), [at(ELSEWHERE)], "the true one was there");
}

#[test]
fn a_true_announcement_from_elsewhere_leads_to_no_stranger() {
    let (mut pair, eve) = quiet();
    let home = used(&pair);
    let announced = withheld(&mut pair, &eve, ELSEWHERE);
    for seen in &announced {
        eve.send(&mut pair, at(EVE), home, &seen.bytes);
    }
    eve.change(&mut pair, pass);
    eve.take();
    for len in 200..260 {
        pair.send(&packet(len, false));
        pair.run(Duration::from_millis(50));
    }
    // Nobody answers at the announced address, and her own was never named by the gateway.
    assert_eq!((followed(&pair), told(&pair)), (at(GATEWAY), vec![at(ELSEWHERE)]));
    let inner = pair.gateway_inner.len();
    assert_eq!(inner, 60, "all went to the gateway");
    let to_eve: usize = eve.take().iter().filter(|s| s.to == at(EVE)).map(|s| s.bytes.len()).sum();
    let from_eve: usize = announced.iter().map(|seen| seen.bytes.len()).sum();
    assert!(to_eve <= 3 * from_eve, "{to_eve} B for {from_eve}");
}

#[test]
fn an_older_announcement_that_comes_late_or_again_is_not_the_last_word() {
    let (mut pair, eve) = quiet();
    let home = used(&pair);
    pair.move_gateway(&[GATEWAY, ELSEWHERE]);
    let mut older = withheld(&mut pair, &eve, ELSEWHERE);
    eve.change(&mut pair, pass);
    pair.run(SECOND * 5);
    assert_eq!(followed(&pair), at(ELSEWHERE), "it was told again until it heard");
    older.extend(eve.take().into_iter().filter(|seen| seen.to == home));
    announce(&mut pair, GATEWAY);
    pair.run(SECOND * 5);
    assert_eq!(followed(&pair), at(GATEWAY));
    let events = told(&pair).len();
    for seen in &older {
        for from in [GATEWAY, ELSEWHERE, EVE] {
            eve.send(&mut pair, at(from), home, &seen.bytes);
        }
    }
    eve.watch(&mut pair, SECOND * 2);
    assert_eq!((followed(&pair), told(&pair).len()), (at(GATEWAY), events));
    carries(&mut pair, 300..320);
}

/// What a client would have to say to be the gateway.
fn lie() -> Vec<u8> {
    let mut body = Vec::new();
    Control::Addresses(vec![at(EVE)]).emit(&mut body);
    body
}

#[test]
fn a_client_that_says_where_the_gateway_is_is_not_heard() {
    let (mut pair, eve) = quiet();
    let home = at("198.51.100.9:7000");
    let mut insider = Insider::new(&mut pair, &eve, home);
    let own = packet_of_hers();
    let hello = insider.say(&[Frame::Packet { framing: Framing::Plain, packet: &own }], 0);
    eve.send(&mut pair, home, at(GATEWAY), &hello);
    assert_eq!(pair.gateway_inner.len(), 1, "she is a client like any other");
    let client = format!("{:?}", pair.client.status(pair.gateway_key));
    let gateway = format!("{:?}", pair.gateway.status(pair.client_key));
    eve.take();
    let body = lie();
    for number in 0..50 {
        let datagram = insider.say(&[Frame::Control { number, body: &body }], 0);
        eve.send(&mut pair, home, at(GATEWAY), &datagram);
    }
    pair.run(SECOND * 5);
    let astray: Vec<_> = eve.take().into_iter().filter(|seen| seen.to == at(EVE)).collect();
    assert!(astray.is_empty(), "{} datagrams went to where she said", astray.len());
    assert_eq!(format!("{:?}", pair.client.status(pair.gateway_key)), client);
    assert_eq!(format!("{:?}", pair.gateway.status(pair.client_key)), gateway);
    let heard = |e: &Event| matches!(e, Event::Announced { .. });
    assert!(!pair.gateway_events.iter().any(heard) && told(&pair).is_empty());
    carries(&mut pair, 300..320);
}

#[test]
fn a_client_that_speaks_to_another_as_the_gateway_is_not_heard() {
    let (mut pair, eve) = quiet();
    let home = used(&pair);
    carries(&mut pair, 300..320);
    // She hears by which indices the other client is reached.
    let to_client = eve.take().into_iter().filter(|seen| seen.to == home);
    let index = |seen: Seen| u32::from_be_bytes(seen.bytes[1..5].try_into().unwrap());
    let mut indices: Vec<u32> = to_client.map(index).collect();
    indices.sort_unstable();
    indices.dedup();
    let mut insider = Insider::new(&mut pair, &eve, at("198.51.100.9:7000"));
    let body = lie();
    let before = format!("{:?}", pair.client.status(pair.gateway_key));
    for number in 0..64 {
        for &index in &indices {
            let frames = [Frame::Control { number, body: &body }];
            let datagram = insider.say_to(SessionIndex(index), &frames, 0);
            for from in [GATEWAY, EVE] {
                eve.send(&mut pair, at(from), home, &datagram);
            }
        }
    }
    assert_eq!(format!("{:?}", pair.client.status(pair.gateway_key)), before);
    assert_eq!((told(&pair), followed(&pair)), (vec![], at(GATEWAY)));
    carries(&mut pair, 320..340);
}

/// An inner packet from her own address.
fn packet_of_hers() -> Vec<u8> {
    let mut packet = packet(100, false);
    packet[12..16].copy_from_slice(&INNER);
    packet
}
