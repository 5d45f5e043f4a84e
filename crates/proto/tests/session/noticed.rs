//! The behaviours of a session that people notice, one test each, over a link with a delay and
//! nothing else. Trouble of every kind is the simulated world's business.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use crate::pair::{DELAY, Datagram, GATEWAY, Pair, lease, links, packet};
use rove_proto::crypto::{Status, Token};
use rove_proto::error::{CloseCode, DropReason};
use rove_proto::flow::report::Why;
use rove_proto::node::{Command, Event, PeerState};
use rove_proto::time::Duration;
use rove_proto::wire::Kind;
use rove_proto::wire::icmp::{Unreachable, Unreached};
use rove_proto::wire::inner::InnerPacket;
use rove_proto::wire::tcp::{Ends, Flags, Made, Seq};

#[test]
fn a_session_in_one_round_trip_and_data_right_behind() {
    let mut pair = Pair::new(None);
    pair.admit_client();
    let start = pair.now;
    pair.send(&packet(100, false));
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(Duration::from_secs(1));
    let took = Some(2 * DELAY);
    let established = Event::Established { peer: pair.gateway_key, first: true, took };
    assert!(pair.client_events.contains(&established));
    let (at, inner) = &pair.gateway_inner[0];
    assert_eq!((at.saturating_since(start), inner), (3 * DELAY, &packet(100, false)));
    let leased = |e: &Event| matches!(e, Event::Leased { lease: l, .. } if *l == lease());
    assert!(pair.client_events.iter().any(leased));
    assert_eq!(pair.state(), PeerState::Up);
}

#[test]
fn packets_of_every_size_both_ways() {
    let mut pair = Pair::up();
    for len in [20, 28, 100, 1_205, 1_206, 1_400, 1_420, 1_500] {
        pair.send(&packet(len, false));
        pair.send_back(&packet(len, true));
        pair.run(Duration::from_millis(100));
        assert_eq!(pair.gateway_inner.last().unwrap().1, packet(len, false), "{len} out");
        assert_eq!(pair.client_inner.last().unwrap().1, packet(len, true), "{len} back");
    }
    let status = pair.client.status(pair.gateway_key).unwrap();
    assert_eq!(status.paths[0].mtu, 1_452);
    assert_eq!(status.paths[0].split, 1, "the one of 1,500 bytes");
    assert_eq!(status.paths[0].rtt, Some(2 * DELAY));
}

#[test]
fn an_idle_session_is_silent() {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(10));
    let sent = pair.sent;
    pair.run(Duration::from_secs(3_600));
    assert_eq!(pair.sent, sent, "nothing to say, and no NAT");
}

#[test]
fn a_client_that_moves_is_back_in_one_round_trip() {
    let mut pair = Pair::up();
    pair.send(&packet(100, false));
    pair.run(Duration::from_secs(1));
    pair.tell_client(links(&[[203, 0, 113, 99]]));
    let moved = pair.now;
    pair.send(&packet(200, false));
    pair.run(Duration::from_millis(21));
    assert_eq!(pair.gateway_inner.last().unwrap().1, packet(200, false), "data at once");
    pair.send_back(&packet(300, true));
    pair.run(Duration::from_millis(21));
    let (at, inner) = pair.client_inner.last().unwrap();
    assert_eq!(inner, &packet(300, true), "the answer follows");
    assert!(at.saturating_since(moved) <= Duration::from_millis(42));
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.state(), PeerState::Up);
    let status = pair.gateway.status(pair.client_key).unwrap();
    assert_eq!(status.paths[0].remote().ip(), IpAddr::from([203, 0, 113, 99]));
    assert_eq!(pair.client_inner.len(), 1, "copies are delivered once");
}

#[test]
fn many_moves_never_run_out_of_indices() {
    let mut pair = Pair::up();
    for i in 0..60u8 {
        pair.tell_client(links(&[[203, 0, 113, 10 + i]]));
        pair.send(&packet(100 + usize::from(i), false));
        pair.run(Duration::from_millis(300));
        assert_eq!(pair.gateway_inner.len(), usize::from(i) + 1, "move {i}");
    }
    assert_eq!(pair.epochs(), 1, "no handshake needed");
}

#[test]
fn keys_are_replaced_while_traffic_flows_and_nothing_is_lost() {
    let mut pair = Pair::up();
    for i in 0..400 {
        pair.send(&packet(100 + i, false));
        pair.send_back(&packet(100 + i, true));
        pair.run(Duration::from_secs(1));
    }
    assert_eq!(pair.epochs(), 4);
    assert_eq!((pair.gateway_inner.len(), pair.client_inner.len()), (400, 400));
}

#[test]
fn eight_hours_asleep_and_back_in_one_round_trip() {
    let mut pair = Pair::up();
    pair.now = pair.now + Duration::from_secs(8 * 3_600);
    pair.send(&packet(100, false));
    pair.run(Duration::from_millis(25));
    assert_eq!(pair.gateway_inner.len(), 1, "the old keys still hold");
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.epochs(), 2, "and are replaced in the background");
}

#[test]
fn a_silent_path_is_noticed_and_found_again() {
    let mut pair = Pair::up();
    pair.filter = Box::new(|_| false);
    pair.send(&packet(100, false));
    pair.run(Duration::from_millis(400));
    assert_eq!(pair.state(), PeerState::Suspended);
    pair.run(Duration::from_secs(30));
    pair.filter = Box::new(|_| true);
    pair.run(Duration::from_millis(1_100));
    assert_eq!(pair.state(), PeerState::Up);
    pair.send(&packet(100, false));
    pair.run(Duration::from_millis(100));
    assert!(!pair.gateway_inner.is_empty());
}

#[test]
fn a_gateway_that_forgot_everything_is_found_by_a_handshake() {
    let mut pair = Pair::up();
    pair.restart_gateway();
    pair.send(&packet(100, false));
    pair.run(Duration::from_secs(8));
    assert_eq!(pair.state(), PeerState::Up);
    pair.send(&packet(100, false));
    pair.run(Duration::from_millis(100));
    assert!(!pair.gateway_inner.is_empty());
}

#[test]
fn enrolment_waits_for_the_shell() {
    let mut pair = Pair::new(Token::new(b"let me in"));
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(Duration::from_millis(50));
    let asked = pair.gateway_events.iter().any(|event| {
        matches!(event, Event::EnrolmentRequested { token, .. } if token.as_bytes() == b"let me in")
    });
    assert!(asked);
    pair.admit_client();
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.state(), PeerState::Up);
}

#[test]
fn refusals_say_why() {
    let mut pair = Pair::new(Token::new(b"old"));
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(Duration::from_millis(50));
    let peer = pair.client_key;
    pair.tell_gateway(Command::RefuseEnrolment { peer, status: Status::TokenExpired });
    pair.run(Duration::from_millis(100));
    let refused = Event::Refused { peer: pair.gateway_key, status: Status::TokenExpired };
    assert!(pair.client_events.contains(&refused));
    assert!(matches!(pair.state(), PeerState::Down(_)));

    let mut pair = Pair::new(None);
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(Duration::from_secs(1));
    let refused = Event::Refused { peer: pair.gateway_key, status: Status::NotEnrolled };
    assert!(pair.client_events.contains(&refused));
}

#[test]
fn a_busy_gateway_is_asked_again_and_the_reason_is_kept() {
    let mut pair = Pair::new(Token::new(b"good"));
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(Duration::from_millis(50));
    let peer = pair.client_key;
    let why = |pair: &Pair| pair.client.status(pair.gateway_key).unwrap().refused;
    assert_eq!(why(&pair), None);
    pair.tell_gateway(Command::RefuseEnrolment { peer, status: Status::Busy });
    pair.run(Duration::from_millis(100));
    assert_eq!(why(&pair), Some(Status::Busy));
    assert_eq!(pair.state(), PeerState::Unestablished, "it goes on asking");
}

#[test]
fn a_revoked_client_is_cut_off_at_once() {
    let mut pair = Pair::up();
    pair.tell_gateway(Command::RevokePeer(pair.client_key));
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.state(), PeerState::Down(CloseCode::Revoked));
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(Duration::from_secs(1));
    let refused = Event::Refused { peer: pair.gateway_key, status: Status::Revoked };
    assert!(pair.client_events.contains(&refused));
}

#[test]
fn a_goodbye_that_is_late_ends_no_session_that_was_made_since() {
    let mut pair = Pair::up();
    let held = pair.hold([203, 0, 113, 5]);
    pair.tell_gateway(Command::RevokePeer(pair.client_key));
    pair.filter = Box::new(|_| true);
    pair.admit_client();
    pair.send(&packet(100, false));
    pair.run(Duration::from_secs(1));
    assert_eq!((pair.state(), pair.epochs(), held.borrow().len()), (PeerState::Up, 2, 1));
    for late in held.take() {
        pair.arrive(late);
    }
    pair.send(&packet(200, false));
    pair.run(Duration::from_secs(1));
    assert_eq!((pair.state(), pair.epochs()), (PeerState::Up, 2));
    assert_eq!(pair.gateway_inner.last().map(|(_, inner)| inner.len()), Some(200));
}

#[test]
fn who_is_revoked_while_keys_are_replaced_is_told_all_the_same() {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(121));
    pair.send(&packet(100, false));
    for _ in 0..100 {
        if pair.epochs() == 1 {
            pair.run(Duration::from_millis(1));
        }
    }
    assert_eq!(pair.epochs(), 2, "the client has the new keys, the gateway does not know yet");
    pair.tell_gateway(Command::RevokePeer(pair.client_key));
    pair.run(Duration::from_secs(3));
    assert_eq!(pair.state(), PeerState::Down(CloseCode::Revoked));
}

#[test]
fn nobody_sends_from_anothers_address() {
    let mut pair = Pair::up();
    let mut forged = packet(100, false);
    forged[15] = 77;
    pair.send(&forged);
    pair.run(Duration::from_millis(100));
    assert!(pair.gateway_inner.is_empty());
    assert_eq!(pair.gateway.drops().of(DropReason::NotAllowed), 1);
    assert!(pair.client_inner.is_empty(), "whoever it was is not told");
}

/// A SYN of the client's to port 80 of a host that it may not reach.
fn to_a_private_host() -> Vec<u8> {
    let ends =
        Ends { source: ([10, 9, 0, 2].into(), 40_000), destination: ([192, 168, 7, 1].into(), 80) };
    let flags = Flags::SYN;
    let syn = Made { ends, seq: Seq(7), ack: Seq(0), flags, window: 1_000, timestamps: None };
    let mut packet = Vec::new();
    syn.emit((&[], &[]), &mut packet);
    packet
}

#[test]
fn who_sends_where_it_may_not_is_told_and_so_are_its_people() {
    let mut pair = Pair::up();
    pair.send(&to_a_private_host());
    pair.run(Duration::from_millis(100));
    assert!(pair.gateway_inner.is_empty());
    assert_eq!(pair.gateway.drops().of(DropReason::NotAllowed), 1);
    let [(_, told)] = &pair.client_inner[..] else { panic!("{:?}", pair.client_inner) };
    let told = Unreached::parse(&InnerPacket::whole(told).unwrap()).unwrap();
    assert_eq!((told.by, told.why), ([10, 9, 0, 1].into(), Unreachable::Prohibited));
    assert_eq!(told.quoted, to_a_private_host());
    let flows = pair.client.flows(pair.now, None).flows;
    let [(_, flow)] = &flows[..] else { panic!("{flows:?}") };
    assert_eq!(flow.why, Why::Refused);
}

#[test]
fn who_is_told_too_often_is_not_told() {
    let mut pair = Pair::up();
    for _ in 0..1_000 {
        pair.send(&to_a_private_host());
    }
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.gateway.drops().of(DropReason::NotAllowed), 1_000);
    assert!((1..20).contains(&pair.client_inner.len()), "{}", pair.client_inner.len());
}

#[test]
fn a_replayed_session_changes_nothing() {
    let mut pair = Pair::new(None);
    pair.admit_client();
    let log = Rc::new(RefCell::new(Vec::new()));
    let tap = Rc::clone(&log);
    pair.filter = Box::new(move |datagram| {
        tap.borrow_mut().push((datagram.to, datagram.bytes.clone()));
        true
    });
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.send(&packet(100, false));
    pair.run(Duration::from_secs(1));
    pair.filter = Box::new(|_| true);
    let before = pair.gateway.status(pair.client_key).unwrap();
    let inner = pair.gateway_inner.len();
    for (to, bytes) in log.borrow().iter() {
        let from = "198.51.100.66:666".parse().unwrap();
        pair.arrive(Datagram { at: pair.now, from, to: *to, bytes: bytes.clone() });
    }
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.gateway_inner.len(), inner);
    assert_eq!(pair.gateway.status(pair.client_key).unwrap().paths, before.paths);
}

#[test]
fn a_session_that_timed_out_is_made_again() {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(10)); // nothing is on the way
    pair.now = pair.now + Duration::from_secs(100_000);
    pair.run(Duration::from_secs(2));
    pair.send(&packet(100, false));
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.state(), PeerState::Up);
    assert_eq!(pair.epochs(), 2, "one handshake, not one a round trip");
    assert_eq!(pair.gateway_inner.len(), 1);
}

#[test]
fn the_moment_of_a_loss_is_when_it_was_noticed() {
    let mut pair = Pair::up();
    pair.send(&packet(100, false));
    let lost_at = |pair: &Pair| pair.client.status(pair.gateway_key).unwrap().lost_at;
    pair.run(Duration::from_secs(1_800));
    assert_eq!((pair.state(), lost_at(&pair)), (PeerState::Up, None), "idle is not lost");
    let gone = pair.now;
    pair.tell_client(links(&[]));
    pair.run(Duration::from_secs(20));
    assert_eq!((pair.state(), lost_at(&pair)), (PeerState::Suspended, Some(gone)));
    pair.tell_client(links(&[[203, 0, 113, 99]]));
    pair.run(Duration::from_secs(5));
    assert_eq!((pair.state(), lost_at(&pair)), (PeerState::Up, None));
}

#[test]
fn a_dead_path_is_noticed_after_a_sleep_with_feedback_in_flight() {
    let mut pair = Pair::up();
    pair.send(&packet(100, false));
    pair.now = pair.now + Duration::from_secs(8 * 3_600);
    pair.run(Duration::from_secs(5));
    pair.filter = Box::new(|_| false);
    pair.send(&packet(100, false));
    pair.run(Duration::from_secs(3));
    assert_eq!(pair.state(), PeerState::Suspended);
}

#[test]
fn packets_for_a_client_that_does_not_come_are_given_up() {
    let mut pair = Pair::new(None);
    pair.admit_client();
    for _ in 0..10 {
        pair.send_back(&packet(100, true));
    }
    let waiting = |pair: &Pair| pair.gateway.status(pair.client_key).unwrap().waiting;
    assert_eq!(waiting(&pair), 10);
    pair.run(Duration::from_secs(4));
    assert_eq!(waiting(&pair), 0);
    assert_eq!(pair.gateway.poll_timeout(), None);
}

#[test]
fn a_movers_first_flight_buys_the_answer_room() {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(1));
    let flight = Rc::new(RefCell::new(Vec::new()));
    let seen = flight.clone();
    let new: IpAddr = [198, 51, 100, 7].into();
    pair.filter = Box::new(move |datagram| {
        if datagram.from.ip() == new {
            seen.borrow_mut().push(datagram.bytes.len());
        }
        true
    });
    pair.tell_client(links(&[[198, 51, 100, 7]]));
    let flight = flight.borrow();
    assert!((4..=8).contains(&flight.len()), "{flight:?}");
    assert!(flight.iter().all(|&len| len >= 1_096), "{flight:?}");
}

#[test]
fn with_no_index_left_a_move_is_a_handshake() {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(1));
    let handshakes = Rc::new(RefCell::new(0));
    let seen = handshakes.clone();
    // Nothing comes back, so no further index is issued.
    pair.filter = Box::new(move |datagram| {
        *seen.borrow_mut() += usize::from(Kind::of(&datagram.bytes) == Some(Kind::HandshakeA));
        datagram.from != GATEWAY.parse().unwrap()
    });
    for moves in 1..=9 {
        assert_eq!(*handshakes.borrow(), 0, "after {moves} moves, 8 indices were issued ahead");
        pair.tell_client(links(&[[198, 51, 100, moves]]));
        pair.run(Duration::from_millis(10));
    }
    assert_eq!(*handshakes.borrow(), 1);
    pair.filter = Box::new(|_| true);
    pair.run(Duration::from_secs(5));
    assert_eq!((pair.state(), pair.epochs()), (PeerState::Up, 2));
    pair.send(&packet(100, false));
    pair.run(Duration::from_millis(100));
    assert_eq!(pair.gateway_inner.len(), 1);
}

#[test]
fn every_address_of_the_gateway_has_its_turn() {
    let mut pair = Pair::new(None);
    pair.admit_client();
    let dead = (1..=20).map(|n| format!("192.0.2.{n}:9").parse().unwrap());
    let remotes = dead.chain([GATEWAY.parse().unwrap()]).collect();
    pair.tell_client(Command::SetRemotes { peer: pair.gateway_key, remotes });
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(Duration::from_secs(3));
    assert_eq!(pair.state(), PeerState::Up);
}

/// A datagram between the client and another one of the same gateway, 10.9.0.3.
fn between_clients(to_client: bool, client_port: u16, other_port: u16) -> Vec<u8> {
    let (client, other) = ([10, 9, 0, 2], [10, 9, 0, 3]);
    let (from, to) = if to_client { (other, client) } else { (client, other) };
    let ports = if to_client { [other_port, client_port] } else { [client_port, other_port] };
    let mut packet = vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0];
    packet.extend([from, to].concat());
    packet.extend(ports.map(u16::to_be_bytes).concat());
    packet.extend([0, 8, 0, 0]);
    packet
}

#[test]
fn a_client_that_others_may_contact_replies_and_begins_nothing() {
    let mut pair = Pair::up();
    pair.send(&between_clients(false, 53, 40_000));
    pair.run(Duration::from_millis(100));
    assert!(pair.gateway_inner.is_empty(), "nobody asked yet");
    // The other client was allowed to, so that its packet is on the gateway's device.
    pair.send_back(&between_clients(true, 53, 40_000));
    pair.run(Duration::from_millis(100));
    pair.send(&between_clients(false, 53, 40_000));
    pair.send(&between_clients(false, 53, 40_001));
    pair.run(Duration::from_millis(100));
    let [(_, reply)] = &pair.gateway_inner[..] else { panic!("{:?}", pair.gateway_inner) };
    assert_eq!(*reply, between_clients(false, 53, 40_000));
    assert_eq!(pair.gateway.drops().of(DropReason::NotAllowed), 2);
}
