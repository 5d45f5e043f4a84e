//! The gateway's end moves: to another address, announced or not, and into another process.

use std::cell::RefCell;
use std::rc::Rc;

use crate::pair::{DELAY, Datagram, ELSEWHERE, GATEWAY, Pair, packet};
use rove_proto::node::{Command, Event, PeerState, StreamTo};
use rove_proto::time::Duration;
use rove_proto::wire::Kind;
use rove_proto::wire::restart::RESTART_NOTICE_LEN;

const SECOND: Duration = Duration::from_secs(1);

/// Where the client's path in use leads.
fn followed(pair: &Pair) -> String {
    pair.client.status(pair.gateway_key).unwrap().paths[0].remote().to_string()
}

fn announce(pair: &mut Pair, addresses: &[&str]) {
    let addresses = addresses.iter().map(|at| at.parse().unwrap()).collect();
    pair.tell_gateway(Command::Announce(addresses));
}

#[test]
fn clients_follow_ahead_of_a_move_and_nothing_is_lost() {
    let mut pair = Pair::up();
    pair.run(SECOND);
    pair.move_gateway(&[GATEWAY, ELSEWHERE]);
    announce(&mut pair, &[ELSEWHERE, GATEWAY]);
    let mut sent = 0;
    for round in 0..100 {
        if round == 50 {
            pair.move_gateway(&[ELSEWHERE]);
        }
        pair.send(&packet(200, false));
        pair.send_back(&packet(300, true));
        sent += 1;
        pair.run(Duration::from_millis(10));
    }
    pair.run(SECOND);
    assert_eq!(followed(&pair), ELSEWHERE);
    assert_eq!((pair.gateway_inner.len(), pair.client_inner.len()), (sent, sent));
    assert_eq!(pair.state(), PeerState::Up);
    assert_eq!(pair.epochs(), 1, "no handshake was needed");
    let told = |e: &Event| matches!(e, Event::Announced { addresses, .. } if addresses.len() == 2);
    assert!(pair.client_events.iter().any(told), "the shell can remember it");
}

#[test]
fn an_idle_client_follows_as_well_and_is_silent_again() {
    let mut pair = Pair::up();
    pair.run(SECOND * 600);
    pair.move_gateway(&[GATEWAY, ELSEWHERE]);
    announce(&mut pair, &[ELSEWHERE]);
    pair.run(SECOND);
    assert_eq!(followed(&pair), ELSEWHERE);
    pair.move_gateway(&[ELSEWHERE]);
    pair.run(SECOND * 30);
    let sent = pair.sent;
    pair.run(SECOND * 3_600);
    assert_eq!(pair.sent, sent);
    pair.send_back(&packet(300, true));
    pair.run(DELAY * 2);
    assert_eq!(pair.client_inner.len(), 1);
}

#[test]
fn an_address_that_does_not_answer_changes_nothing() {
    let mut pair = Pair::up();
    announce(&mut pair, &[ELSEWHERE]);
    for _ in 0..100 {
        pair.send(&packet(200, false));
        pair.run(Duration::from_millis(100));
    }
    pair.run(SECOND);
    assert_eq!(followed(&pair), GATEWAY);
    assert_eq!(pair.gateway_inner.len(), 100);
}

#[test]
fn what_was_announced_is_tried_when_the_address_in_use_dies() {
    let mut pair = Pair::up();
    pair.move_gateway(&[GATEWAY, ELSEWHERE]);
    announce(&mut pair, &[GATEWAY, ELSEWHERE]);
    pair.run(SECOND);
    assert_eq!(followed(&pair), GATEWAY);
    pair.filter = Box::new(|d: &Datagram| {
        let dead = GATEWAY.parse().unwrap();
        d.from != dead && d.to != dead
    });
    for _ in 0..10 {
        pair.send(&packet(200, false));
        pair.run(Duration::from_millis(100));
    }
    assert_eq!(followed(&pair), ELSEWHERE);
}

/// Guesses at where the gateway is took all indices, and nothing of the client's arrived for an
/// hour. When it does again, the gateway is heard from its new address, and is answered.
#[test]
fn a_gateway_that_speaks_from_where_no_index_is_left_for_is_asked_by_a_handshake() {
    let mut pair = Pair::up();
    pair.run(SECOND);
    let (peer, elsewhere) = (pair.gateway_key, ELSEWHERE.parse().unwrap());
    let asked = Rc::new(RefCell::new(0));
    let count = Rc::clone(&asked);
    pair.filter = Box::new(move |d: &Datagram| {
        let asks = d.to == elsewhere && d.bytes[0] == Kind::HandshakeA as u8;
        *count.borrow_mut() += u32::from(asks);
        d.to.ip() == std::net::IpAddr::from([203, 0, 113, 5])
    });
    pair.send(&packet(200, false));
    pair.run(SECOND);
    for of in [100, 101] {
        let nobody = (1..=8).map(|last| ([198, 51, of, last], 4_433).into());
        let remotes = [GATEWAY.parse().unwrap(), elsewhere].into_iter().chain(nobody).collect();
        pair.tell_client(Command::SetRemotes { peer, remotes });
        pair.run(SECOND * 1_800);
    }
    pair.move_gateway(&[ELSEWHERE]);
    let before = *asked.borrow();
    for _ in 0..1_200 {
        pair.send_back(&packet(300, true));
        pair.run(Duration::from_millis(100));
    }
    let times = *asked.borrow() - before;
    assert!(times <= 120 / 5 + 3, "{times} times in two minutes");
    let before = *asked.borrow();
    for _ in 0..5_000 {
        if *asked.borrow() == before {
            pair.run(Duration::from_millis(100)); // the next of its own pauses begins
        }
    }
    assert!(*asked.borrow() > before, "it asks no more");
    pair.filter = Box::new(|_| true);
    for _ in 0..12 {
        pair.send_back(&packet(300, true));
        pair.run(SECOND);
    }
    assert_eq!((pair.state(), followed(&pair).as_str()), (PeerState::Up, ELSEWHERE));
    pair.send(&packet(201, false));
    pair.run(SECOND);
    assert_eq!(pair.gateway_inner.last().unwrap().1, packet(201, false));
}

#[test]
fn every_epoch_is_told_again_and_only_the_last_word_counts() {
    let mut pair = Pair::up();
    pair.run(SECOND);
    pair.filter = Box::new(|_| false);
    for port in 5_000..5_100 {
        announce(&mut pair, &[&format!("192.0.2.1:{port}")]);
    }
    announce(&mut pair, &[ELSEWHERE, GATEWAY]);
    pair.filter = Box::new(|_| true);
    pair.run(SECOND * 10);
    let mut told = Vec::new();
    for event in &pair.client_events {
        if let Event::Announced { addresses, .. } = event {
            told.push(addresses[0].to_string());
        }
    }
    assert_eq!(told.last().map(String::as_str), Some(ELSEWHERE));
    assert!(told.len() <= 2, "{told:?}");
}

/// The way by which the gateway says that it reaches the client.
fn reached(pair: &Pair) -> Command {
    let mut found = None;
    for event in &pair.gateway_events {
        if let Event::Reached { route, index, .. } = event {
            found = Some((*route, *index));
        }
    }
    let (route, index) = found.unwrap();
    Command::Recall { route, index }
}

#[test]
fn a_quiet_client_is_called_back_by_a_gateway_that_begins_anew() {
    let mut pair = Pair::up();
    pair.run(SECOND * 600);
    let recall = reached(&pair);
    pair.restart_gateway();
    pair.run(SECOND * 60);
    assert_eq!(pair.epochs(), 1, "it had no reason to speak");
    pair.tell_gateway(recall);
    pair.run(DELAY * 4);
    assert_eq!(pair.epochs(), 2, "one handshake, one round trip after the notice");
    pair.send_back(&packet(300, true));
    pair.run(DELAY * 2);
    assert_eq!(pair.client_inner.len(), 1);
}

#[test]
fn a_client_that_speaks_to_a_gateway_without_sessions_is_told_at_once() {
    let mut pair = Pair::up();
    pair.run(SECOND);
    pair.restart_gateway();
    for _ in 0..10 {
        pair.send(&packet(200, false));
    }
    pair.run(DELAY * 4);
    assert_eq!(pair.epochs(), 2, "one handshake for all of them");
    pair.send(&packet(201, false));
    pair.run(DELAY * 2);
    assert_eq!(pair.gateway_inner.last().unwrap().1, packet(201, false));
    pair.run(SECOND * 60);
    assert_eq!(pair.epochs(), 2);
}

#[test]
fn a_client_whose_session_ended_with_a_goodbye_is_called_back() {
    let mut pair = Pair::up();
    pair.run(SECOND);
    let recall = reached(&pair);
    let (peer, code) = (pair.client_key, rove_proto::error::CloseCode::Restarting);
    pair.tell_gateway(Command::Close { peer, code });
    pair.filter = Box::new(|d: &Datagram| d.to != GATEWAY.parse().unwrap());
    pair.run(SECOND * 60);
    pair.filter = Box::new(|_| true);
    pair.restart_gateway();
    pair.tell_gateway(recall);
    pair.run(DELAY * 4);
    assert_eq!(pair.state(), PeerState::Up, "it does not wait for its next try");
}

/// While nobody answers a client tries streams as well, and what they wait for is slower.
#[test]
fn a_client_that_has_just_begun_a_stream_is_called_back_over_udp() {
    let mut pair = Pair::up();
    let streams = vec![StreamTo { remote: GATEWAY.parse().unwrap(), method: 3 }];
    pair.tell_client(Command::SetStreams { peer: pair.gateway_key, streams, alone: false });
    pair.run(SECOND);
    let recall = reached(&pair);
    let (peer, code) = (pair.client_key, rove_proto::error::CloseCode::Restarting);
    pair.tell_gateway(Command::Close { peer, code });
    pair.filter = Box::new(|d: &Datagram| d.to != GATEWAY.parse().unwrap());
    let begun = |e: &Event| matches!(e, Event::OpenSocket { stream: Some(_), .. });
    for _ in 0..5_000 {
        if !pair.client_events.iter().any(begun) {
            pair.run(Duration::from_millis(1));
        }
    }
    assert!(pair.client_events.iter().any(begun), "no stream was tried");
    pair.filter = Box::new(|datagram| datagram.is_udp());
    pair.restart_gateway();
    pair.tell_gateway(recall);
    pair.run(DELAY * 4);
    assert_eq!(pair.state(), PeerState::Up, "one handshake after the notice");
}

#[test]
fn a_forged_notice_and_one_for_another_index_change_nothing() {
    let mut pair = Pair::up();
    pair.run(SECOND);
    let Command::Recall { route, index } = reached(&pair) else { unreachable!() };
    let (from, before) = (GATEWAY.parse().unwrap(), pair.sent);
    for guess in 0..100u8 {
        let mut bytes = vec![Kind::RestartNotice as u8];
        bytes.extend(index.0.to_be_bytes());
        bytes.extend([guess; RESTART_NOTICE_LEN - 5]);
        pair.arrive(Datagram { at: pair.now, from, to: route.remote, bytes });
    }
    pair.run(SECOND);
    assert_eq!((pair.epochs(), pair.sent), (1, before));
    // Nor does the true one, if it comes from elsewhere.
    let caught = Rc::new(RefCell::new(Vec::new()));
    let catch = Rc::clone(&caught);
    pair.filter = Box::new(move |datagram| {
        catch.borrow_mut().push(datagram.bytes.clone());
        false
    });
    pair.tell_gateway(Command::Recall { route, index });
    pair.filter = Box::new(|_| true);
    let bytes = caught.borrow_mut().pop().unwrap();
    let elsewhere = ELSEWHERE.parse().unwrap();
    let moved = Datagram { at: pair.now, from: elsewhere, to: route.remote, bytes };
    pair.arrive(moved);
    pair.run(SECOND);
    assert_eq!(pair.epochs(), 1);
    // Nor one of an index that is not in use.
    let other = rove_proto::id::SessionIndex(index.0 ^ 1);
    pair.tell_gateway(Command::Recall { route, index: other });
    pair.run(SECOND);
    assert_eq!(pair.epochs(), 1);
}

#[test]
fn notices_are_few_and_shorter_than_what_asks_for_them() {
    let mut pair = Pair::up();
    pair.run(SECOND);
    let (to, from) = (GATEWAY.parse().unwrap(), "198.51.100.66:9".parse().unwrap());
    let before = pair.sent;
    for number in 0..10_000u32 {
        let mut bytes = vec![Kind::Data as u8];
        bytes.extend(number.to_be_bytes());
        bytes.resize(27, 0);
        pair.arrive(Datagram { at: pair.now, from, to, bytes });
    }
    assert!(pair.sent - before <= 256, "{} notices", pair.sent - before);
    // A client is no gateway, and says nothing.
    let Command::Recall { route, .. } = reached(&pair) else { unreachable!() };
    let before = pair.sent;
    let mut bytes = vec![Kind::Data as u8];
    bytes.resize(27, 7);
    pair.arrive(Datagram { at: pair.now, from: to, to: route.remote, bytes });
    assert_eq!(pair.sent, before);
}
