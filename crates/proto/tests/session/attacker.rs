//! An attacker who alters a move, repeats it, races it, reflects it, floods it, or answers
//! challenges late: a session is never stolen, never redirected to an address that did not prove
//! itself, and never makes an end amplify more than three times.
//!
//! Each test ends by showing that what was attacked would have worked: that the datagrams were the
//! right ones.

use std::net::{IpAddr, SocketAddr};

use crate::eve::insider::{INNER, Insider};
use crate::eve::{EVE, Eve, Fate, Seen, at, carries, pass, quiet, used};
use crate::pair::{DELAY, Datagram, GATEWAY, Pair, links, packet};
use rove_proto::path::PATHS_MAX;
use rove_proto::path::Trust;
use rove_proto::time::Duration;
use rove_proto::wire::Kind;

const SECOND: Duration = Duration::from_secs(1);
/// Where the client goes.
const MOVED: [u8; 4] = [203, 0, 113, 9];

fn to_gateway(datagram: &Datagram) -> bool {
    datagram.to == at(GATEWAY)
}

fn withhold_if(which: impl Fn(&Datagram) -> bool + 'static) -> impl FnMut(&Datagram) -> Fate {
    move |datagram| if which(datagram) { Fate::Withheld } else { Fate::Passes }
}

/// The client has moved, and its first flight is in Eve's hands.
fn flight(pair: &mut Pair, eve: &Eve) -> Vec<Seen> {
    eve.change(pair, withhold_if(to_gateway));
    eve.take();
    pair.tell_client(links(&[MOVED]));
    pair.send(&packet(150, false));
    let flight: Vec<_> = eve.take().into_iter().filter(|seen| seen.to == at(GATEWAY)).collect();
    assert!(flight.len() >= 6 && flight.iter().all(|seen| seen.from.ip() == IpAddr::from(MOVED)));
    flight
}

/// The move that was in Eve's hands goes its way.
fn let_go(pair: &mut Pair, eve: &Eve, flight: &[Seen]) {
    eve.change(pair, pass);
    let moved = flight[0].from;
    eve.trust(moved);
    for Seen { from, to, bytes } in flight {
        eve.send(pair, *from, *to, bytes);
    }
    pair.run(SECOND);
    assert_eq!(used(pair), moved, "the true move counts");
}

/// What the gateway thinks of the client's session.
fn view(pair: &Pair) -> String {
    format!("{:?}", pair.gateway.status(pair.client_key))
}

#[test]
fn an_altered_move_moves_nothing() {
    let (mut pair, eve) = quiet();
    let flight = flight(&mut pair, &eve);
    let (before, home) = (view(&pair), used(&pair));
    for seen in &flight {
        for bit in (0..seen.bytes.len() * 8).step_by(97) {
            let mut bytes = seen.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            eve.send(&mut pair, seen.from, seen.to, &bytes);
            eve.send(&mut pair, at(EVE), seen.to, &bytes);
            eve.send(&mut pair, home, seen.to, &bytes[..bit / 8]);
        }
    }
    assert_eq!(view(&pair), before);
    eve.check(&pair);
    let_go(&mut pair, &eve, &flight);
    carries(&mut pair, 300..320);
}

#[test]
fn a_move_repeated_from_elsewhere_moves_nothing() {
    let (mut pair, eve) = quiet();
    let flight = flight(&mut pair, &eve);
    let_go(&mut pair, &eve, &flight);
    carries(&mut pair, 300..320);
    pair.run(SECOND);
    let (before, all) = (view(&pair), eve.take());
    for _ in 0..3 {
        for Seen { to, bytes, .. } in flight.iter().chain(&all).filter(|s| s.to == at(GATEWAY)) {
            eve.send(&mut pair, at(EVE), *to, bytes);
        }
    }
    assert_eq!(view(&pair), before);
    assert_eq!(eve.sent_to(at(EVE)), 0);
    carries(&mut pair, 320..340);
}

#[test]
fn a_move_that_is_overtaken_by_copies_from_elsewhere_is_not_stolen() {
    let (mut pair, eve) = quiet();
    eve.change(&mut pair, withhold_if(to_gateway));
    eve.take();
    pair.tell_client(links(&[MOVED]));
    let mut late: Vec<(u32, Seen)> = Vec::new();
    for ms in 0..600 {
        if ms % 10 == 0 {
            pair.send(&packet(200 + ms as usize, false));
            pair.send_back(&packet(200 + ms as usize, true));
        }
        for seen in eve.take().into_iter().filter(|seen| seen.to == at(GATEWAY)) {
            eve.trust(seen.from);
            eve.send(&mut pair, at(EVE), seen.to, &seen.bytes);
            late.push((ms + 30, seen));
        }
        while late.first().is_some_and(|(due, _)| *due <= ms) {
            let Seen { from, to, bytes } = late.remove(0).1;
            eve.send(&mut pair, from, to, &bytes);
        }
        eve.watch(&mut pair, Duration::from_millis(1));
    }
    assert!(eve.sent_to(at(EVE)) > 0, "her copies were the first: they claim");
    eve.change(&mut pair, pass);
    eve.watch(&mut pair, SECOND * 2);
    assert_eq!(used(&pair).ip(), IpAddr::from(MOVED));
    carries(&mut pair, 900..920);
    let mut lengths: Vec<_> = pair.gateway_inner.iter().map(|(_, packet)| packet.len()).collect();
    lengths.sort_unstable();
    lengths.dedup();
    assert_eq!(lengths.len(), pair.gateway_inner.len(), "nothing came twice");
}

#[test]
fn what_is_reflected_moves_nothing() {
    let (mut pair, eve) = quiet();
    carries(&mut pair, 300..340);
    let home = used(&pair);
    let client = |pair: &Pair| format!("{:?}", pair.client.status(pair.gateway_key));
    let before = (view(&pair), client(&pair), pair.gateway_inner.len(), pair.client_inner.len());
    let (gateway, all) = (at(GATEWAY), eve.take());
    // The index is in clear, and nothing vouches for it: she translates it.
    let index = |towards: SocketAddr| {
        let last = all.iter().rfind(|seen| seen.to == towards).unwrap();
        <[u8; 4]>::try_from(&last.bytes[1..5]).unwrap()
    };
    let (at_gateway, at_client) = (index(gateway), index(home));
    for Seen { from, to, bytes } in &all {
        let (back, elsewhere, other) =
            if *from == gateway { (gateway, home, at_gateway) } else { (home, *to, at_client) };
        let mut translated = bytes.clone();
        translated[1..5].copy_from_slice(&other);
        for bytes in [bytes, &translated] {
            eve.send(&mut pair, elsewhere, back, bytes);
            eve.send(&mut pair, at(EVE), back, bytes);
        }
    }
    let after = (view(&pair), client(&pair), pair.gateway_inner.len(), pair.client_inner.len());
    assert_eq!(after, before);
    eve.check(&pair);
    carries(&mut pair, 340..360);
}

#[test]
fn a_flood_of_moves_claims_two_addresses_and_keeps_nobody_out() {
    let (mut pair, eve) = quiet();
    let mut flight = flight(&mut pair, &eve);
    for len in 200..600 {
        pair.send(&packet(len, false));
    }
    flight.extend(eve.take().into_iter().filter(|seen| seen.to == at(GATEWAY)));
    let home = used(&pair);
    let crowd = |number: usize| SocketAddr::from(([100, 64, (number >> 8) as u8, number as u8], 9));
    let (head, rest) = flight.split_at(flight.len() - 100);
    for (number, seen) in head.iter().enumerate() {
        eve.send(&mut pair, crowd(number), seen.to, &seen.bytes);
        eve.check(&pair);
    }
    let answered = (0..head.len()).filter(|&number| eve.sent_to(crowd(number)) > 0).count();
    assert!((1..=2).contains(&answered), "{answered} addresses got something");
    let paths = pair.gateway.status(pair.client_key).unwrap().paths;
    assert!(paths.len() <= PATHS_MAX, "{} paths", paths.len());
    assert_eq!(used(&pair), home);
    // Claims end, and who is really there asks again.
    eve.change(&mut pair, pass);
    eve.trust(rest[0].from);
    for Seen { from, to, bytes } in rest {
        eve.send(&mut pair, *from, *to, bytes);
    }
    eve.watch(&mut pair, SECOND * 8);
    assert_eq!(used(&pair).ip(), IpAddr::from(MOVED));
    carries(&mut pair, 700..720);
}

#[test]
fn a_client_that_forges_where_it_is_makes_nobody_a_victim() {
    let (mut pair, eve) = quiet();
    let home = at("198.51.100.9:7000");
    let mut insider = Insider::new(&mut pair, &eve, home);
    // She has much to get, and says from everywhere that she is there.
    let mut download = packet(1_200, true);
    download[16..20].copy_from_slice(&INNER);
    let victim =
        |number: usize| SocketAddr::from(([100, 64, (number >> 8) as u8, number as u8], 9));
    let mut reached = 0;
    for number in 0..600 {
        if number % 3 == 0 {
            insider.connect(&mut pair, &eve); // she would run out of indices
            let here = insider.say(&[], 100);
            eve.send(&mut pair, home, at(GATEWAY), &here);
        }
        let len = [27, 64, 1_200][(number / 3) % 3];
        let datagram = insider.say(&[], len);
        eve.send(&mut pair, victim(number), at(GATEWAY), &datagram);
        for _ in 0..20 {
            pair.send_back(&download);
            eve.check(&pair);
        }
        // Claims are forgotten, which makes room for new ones.
        pair.run(if number % 3 == 2 { SECOND * 6 } else { Duration::from_millis(5) });
        eve.check(&pair);
        reached += usize::from(eve.sent_to(victim(number)) > 0);
    }
    assert!(reached > 300, "{reached} victims were there to be amplified at");
    assert!(eve.sent_to(home) > 100 * 1_200, "where she is she gets it");
    carries(&mut pair, 300..320);
}

/// Eve's address is claimed for the client's session, and the challenge that went there is hers.
/// The client's own answers to anybody are withheld.
fn claimed(pair: &mut Pair, eve: &Eve) -> Seen {
    eve.change(pair, withhold_if(to_gateway));
    eve.take();
    pair.send(&packet(200, false));
    let first = eve.take().remove(0);
    eve.send(pair, at(EVE), first.to, &first.bytes);
    let challenge = eve.take().into_iter().find(|seen| seen.to == at(EVE)).unwrap();
    assert_eq!(Kind::of(&challenge.bytes), Some(Kind::Data));
    challenge
}

/// The client's answers to what Eve passes on to it.
fn answers(pair: &mut Pair, eve: &Eve, challenge: &Seen, client: SocketAddr) -> Vec<Seen> {
    eve.take();
    eve.send(pair, challenge.from, client, &challenge.bytes);
    let answers: Vec<_> = eve.take().into_iter().filter(|seen| seen.to == at(GATEWAY)).collect();
    assert!(!answers.is_empty(), "the client answers what is authentic");
    answers
}

#[test]
fn an_answer_after_the_claim_has_ended_proves_nothing() {
    let (mut pair, eve) = quiet();
    let home = used(&pair);
    let challenge = claimed(&mut pair, &eve);
    let answers = answers(&mut pair, &eve, &challenge, home);
    eve.watch(&mut pair, SECOND * 6);
    for Seen { to, bytes, .. } in &answers {
        eve.send(&mut pair, at(EVE), *to, bytes);
    }
    eve.watch(&mut pair, SECOND);
    assert_eq!(used(&pair), home);
    eve.change(&mut pair, pass);
    eve.watch(&mut pair, SECOND * 10);
    assert_eq!(used(&pair), home);
    carries(&mut pair, 300..320);
}

#[test]
fn an_answer_for_an_address_that_was_left_brings_nobody_back_there() {
    let (mut pair, eve) = quiet();
    let home = used(&pair);
    // The client's datagrams come from another port from now on, as behind a NAT that maps anew;
    // the old one is Eve's.
    let other = SocketAddr::new(home.ip(), 1_024);
    eve.trust(other);
    eve.change(&mut pair, withhold_if(|_| true));
    let mut challenges = Vec::new();
    let mut round = |pair: &mut Pair| {
        for Seen { from, to, bytes } in eve.take() {
            if to == at(GATEWAY) {
                eve.send(pair, other, to, &bytes);
            } else if to == home {
                challenges.push(Seen { from, to, bytes });
            } else {
                eve.send(pair, from, home, &bytes);
            }
        }
    };
    eve.take();
    for len in 200..240 {
        pair.send(&packet(len, false));
        for _ in 0..4 {
            round(&mut pair);
        }
        pair.run(Duration::from_millis(10));
    }
    assert_eq!(used(&pair), other, "it was replaced");
    assert!(!challenges.is_empty(), "the old address was asked too");
    eve.take();
    let late: Vec<Seen> =
        challenges.iter().flat_map(|one| answers_of(&mut pair, &eve, one, home)).collect();
    for Seen { to, bytes, .. } in &late {
        eve.send(&mut pair, home, *to, bytes);
        assert_eq!(used(&pair), other);
    }
    let status = pair.gateway.status(pair.client_key).unwrap();
    let back = status.paths.iter().find(|path| path.remote() == home);
    assert!(back.is_none_or(|path| !path.in_use), "{back:?}");
    pair.run(DELAY * 2);
    assert_eq!(used(&pair), other);
}

/// The same as [`answers`], of a client that may have nothing to say to it.
fn answers_of(pair: &mut Pair, eve: &Eve, challenge: &Seen, client: SocketAddr) -> Vec<Seen> {
    eve.take();
    eve.send(pair, challenge.from, client, &challenge.bytes);
    eve.take().into_iter().filter(|seen| seen.to == at(GATEWAY)).collect()
}

#[test]
fn an_answer_under_keys_that_were_replaced_proves_nothing() {
    let (mut pair, eve) = quiet();
    let home = used(&pair);
    let challenge = claimed(&mut pair, &eve);
    let answers = answers(&mut pair, &eve, &challenge, home);
    eve.change(&mut pair, pass);
    // From elsewhere on, so that nothing newer is said by where the answer would be from. Then
    // traffic until there are new keys, and the old ones are forgotten.
    pair.tell_client(links(&[MOVED]));
    eve.trust(SocketAddr::from((MOVED, 9)));
    let epochs = pair.epochs();
    for _ in 0..200 {
        pair.send(&packet(100, false));
        pair.send_back(&packet(100, true));
        pair.run(SECOND);
        eve.check(&pair);
    }
    assert!(pair.epochs() > epochs, "there are new keys");
    let before = view(&pair);
    for Seen { to, bytes, .. } in &answers {
        eve.send(&mut pair, at(EVE), *to, bytes);
    }
    assert_eq!(view(&pair), before);
    eve.watch(&mut pair, SECOND);
    assert_eq!(used(&pair).ip(), IpAddr::from(MOVED));
    carries(&mut pair, 300..320);
}

#[test]
fn forged_addresses_leave_an_index_for_a_link_that_comes() {
    const HOME: [u8; 4] = [203, 0, 113, 5];
    let (mut pair, eve) = quiet();
    let forged = |number: u8| SocketAddr::from(([100, 64, 0, number], 9));
    for number in 0..12 {
        eve.change(&mut pair, withhold_if(to_gateway));
        eve.take();
        pair.send(&packet(200, false));
        let first = eve.take().remove(0);
        eve.send(&mut pair, forged(number), first.to, &first.bytes);
        eve.change(&mut pair, pass);
        eve.watch(&mut pair, SECOND * 6);
    }
    let answered = (0..12).filter(|&number| eve.sent_to(forged(number)) > 0).count();
    assert_eq!(answered, 6, "8 indices, and two are kept");
    pair.tell_client(links(&[HOME, MOVED]));
    pair.run(SECOND);
    let paths = pair.client.status(pair.gateway_key).unwrap().paths;
    assert!(paths.len() == 2 && paths.iter().all(|path| path.trust == Trust::Proven), "{paths:?}");
    assert_eq!(pair.epochs(), 1, "no new keys were needed");
    carries(&mut pair, 300..320);
}
