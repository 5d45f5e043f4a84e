//! A machine's memory is copied, and keys are not used twice; a gateway's process starts anew, and
//! a handshake that was recorded before is refused.

use std::cell::RefCell;
use std::rc::Rc;

use crate::pair::{DELAY, Datagram, Pair, packet};
use rove_proto::error::DropReason;
use rove_proto::node::{Command, Event, PeerState};
use rove_proto::time::Duration;
use rove_proto::wire::Kind;

/// Keeps every datagram that leaves from now on.
fn record(pair: &mut Pair) -> Rc<RefCell<Vec<Datagram>>> {
    let seen = Rc::new(RefCell::new(Vec::<Datagram>::new()));
    let see = Rc::clone(&seen);
    pair.filter = Box::new(move |datagram| {
        see.borrow_mut().push(datagram.clone());
        true
    });
    seen
}

/// The session indices of data datagrams.
fn indices(seen: &[Datagram]) -> Vec<[u8; 4]> {
    let data = seen.iter().filter(|datagram| datagram.bytes[0] == Kind::Data as u8);
    data.map(|datagram| datagram.bytes[1..5].try_into().unwrap()).collect()
}

fn both_ways(pair: &mut Pair, count: usize) {
    for _ in 0..count {
        pair.send(&packet(200, false));
        pair.send_back(&packet(200, true));
        pair.run(Duration::from_millis(5));
    }
}

/// Whoever of the two forgets its keys, nothing more is sealed under them by that end, the session
/// goes on under new ones, and what is sent meanwhile arrives.
#[test]
fn forgotten_keys_seal_nothing_and_are_replaced() {
    for of_client in [true, false] {
        let mut pair = Pair::up();
        let seen = record(&mut pair);
        both_ways(&mut pair, 50);
        pair.run(DELAY * 4);
        let before = indices(&seen.borrow_mut().split_off(0));
        let epochs = pair.epochs();
        let arrived = (pair.gateway_inner.len(), pair.client_inner.len());
        assert!(before.len() >= 100 && arrived.0 >= 50, "{arrived:?}");
        let since = pair.now;
        if of_client {
            pair.tell_client(Command::ForgetKeys);
        } else {
            pair.tell_gateway(Command::ForgetKeys);
        }
        // The end that forgot sends nothing by an index of before, from its first datagram on.
        let gateway = pair.gateway_at[0];
        both_ways(&mut pair, 20);
        while pair.state() != PeerState::Up || pair.epochs() == epochs {
            pair.run(Duration::from_millis(5));
            let took = pair.now.saturating_since(since);
            assert!(took <= Duration::from_secs(1), "no new keys after {took:?}");
        }
        both_ways(&mut pair, 20);
        pair.run(DELAY * 4);
        let seen = seen.borrow_mut().split_off(0);
        let mine: Vec<Datagram> =
            seen.into_iter().filter(|sent| (sent.from != gateway) == of_client).collect();
        for index in indices(&mine) {
            assert!(!before.contains(&index), "sealed under forgotten keys, client: {of_client}");
        }
        assert!(pair.gateway_inner.len() >= arrived.0 + 20, "client: {of_client}");
        assert!(pair.client_inner.len() >= arrived.1 + 20, "client: {of_client}");
    }
}

/// The client has new keys one round trip after it forgot the old ones, and what it sends meanwhile
/// is not lost.
#[test]
fn a_client_that_forgets_its_keys_has_others_within_a_round_trip() {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(10));
    let arrived = pair.gateway_inner.len();
    pair.tell_client(Command::ForgetKeys);
    for _ in 0..8 {
        pair.send(&packet(200, false));
    }
    pair.run(DELAY * 2);
    assert_eq!(pair.state(), PeerState::Up);
    pair.run(DELAY * 2);
    assert_eq!((pair.gateway_inner.len(), pair.epochs()), (arrived + 8, 2));
}

#[test]
fn an_exchange_under_way_brings_no_keys_to_who_forgets() {
    let mut pair = Pair::new(None);
    pair.admit_client();
    pair.tell_client(Command::Connect(pair.gateway_key));
    // The answer is on its way.
    pair.run(DELAY + Duration::from_millis(5));
    pair.tell_client(Command::ForgetKeys);
    pair.run(DELAY);
    assert_ne!(pair.state(), PeerState::Up, "the old answer was taken");
    pair.run(DELAY * 2);
    assert_eq!(pair.state(), PeerState::Up);
}

/// With the counter that the process before has told, a new process refuses what was recorded.
#[test]
fn a_recorded_handshake_is_refused_by_a_gateway_that_began_anew() {
    for is_known in [false, true] {
        let mut pair = Pair::new(None);
        pair.admit_client();
        let seen = record(&mut pair);
        pair.tell_client(Command::Connect(pair.gateway_key));
        pair.run(Duration::from_secs(1));
        assert_eq!(pair.state(), PeerState::Up);
        let counter = |event: &Event| {
            if let Event::HandshakeCounter { peer, counter } = event {
                Some((*peer, *counter))
            } else {
                None
            }
        };
        let told = pair.gateway_events.iter().rev().find_map(counter);
        let (peer, highest) = told.expect("the gateway tells which counter it accepted");
        assert_eq!(peer, pair.client_key);
        let kinds = [Kind::HandshakeA as u8, Kind::HandshakeB as u8];
        let recorded: Vec<Datagram> = seen.borrow().iter().cloned().collect();
        let recorded = recorded.into_iter().filter(|sent| kinds.contains(&sent.bytes[0]));
        pair.restart_gateway();
        if is_known {
            pair.tell_gateway(Command::SetCounter { peer, highest });
        }
        let sent = pair.sent;
        for datagram in recorded {
            pair.arrive(Datagram { at: pair.now, ..datagram });
        }
        assert_eq!(pair.sent > sent, !is_known, "only a new process without the counter answers");
        let stale = pair.gateway.drops().of(DropReason::StaleCounter);
        assert_eq!(stale > 0, is_known);
    }
}
