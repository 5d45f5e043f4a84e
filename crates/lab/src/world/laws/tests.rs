//! What each law's bookkeeping accepts and refuses. That the world asks it, and that every law
//! speaks when a node breaks it, is `broken_tests`.

use std::net::{Ipv4Addr, SocketAddr};

use rove_proto::crypto::{Floor, Profile};
use rove_proto::id::PacketNumber;
use rove_proto::node::PeerStatus;
use rove_proto::outbox::RunSeal;
use rove_proto::wire::icmp;
use rove_proto::wire::inner::InnerPacket;

use super::*;
use crate::emu::SECOND;
use crate::world::engine::World;
use crate::world::host_id::{CLIENT_HOST, GATEWAY, HostId};
use crate::world::inner::{self, Body, Inner};
use crate::world::op::{Overreach, Way};
use crate::world::watch::Watch;

fn remote(last: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, last], 4433))
}

fn law<T>(result: Result<T, Breach>) -> Option<Law> {
    result.err().map(|breach| breach.law)
}

#[test]
fn a_packet_arrives_once_whole_and_where_it_should() {
    let mut delivery = Delivery::default();
    let inner = delivery.send(0, GATEWAY, 0, Way::Up, Body::Data(100));
    let packet = inner.bytes();
    assert_eq!(law(delivery.arrived(1, CLIENT_HOST, &packet)), Some(Law::Delivery), "wrong end");
    let mut altered = packet.clone();
    altered[50] ^= 1;
    assert_eq!(law(delivery.arrived(1, GATEWAY, &altered)), Some(Law::Delivery), "altered");
    assert_eq!(law(delivery.arrived(1, GATEWAY, &packet[..90])), Some(Law::Delivery), "cut");
    assert_eq!(law(delivery.arrived(1, GATEWAY, &packet)), None);
    assert_eq!(law(delivery.arrived(2, GATEWAY, &packet)), Some(Law::Delivery), "twice");
    assert_eq!(law(delivery.arrived(2, GATEWAY, &[0x45; 60])), Some(Law::Delivery), "never sent");
}

#[test]
fn what_was_acknowledged_has_arrived_or_its_sender_knows() {
    let promised = |acknowledged, arrived, knows| {
        let who = "connection 0".to_owned();
        law(check_promise(&Promised { who, acknowledged, arrived, knows }))
    };
    assert_eq!(promised(100, 99, false), Some(Law::Promise));
    assert_eq!(promised(100, 99, true), None, "it was reset");
    assert_eq!(promised(100, 100, false), None);
    assert_eq!(promised(99, 100, false), None, "the acknowledgement is lost or on its way");
}

#[test]
fn what_is_held_of_connections_has_a_bound() {
    assert_eq!(law(check_held(100, 100)), None);
    assert_eq!(law(check_held(101, 100)), Some(Law::Bounds));
}

#[test]
fn what_a_client_may_not_send_never_arrives() {
    for what in crate::world::op::Overreach::ALL {
        let mut delivery = Delivery::default();
        let packet = delivery.send(0, GATEWAY, 0, Way::Up, Body::Forbidden(what)).bytes();
        assert_eq!(law(delivery.arrived(1, GATEWAY, &packet)), Some(Law::Delivery), "{what:?}");
    }
}

#[test]
fn a_client_is_told_once_of_what_it_may_not_send() {
    let mut delivery = Delivery::default();
    let told = |by: Ipv4Addr, inner: &Inner| {
        let (packet, mut out) = (inner.bytes(), Vec::new());
        icmp::prohibit(by.into(), &InnerPacket::whole(&packet).unwrap(), &mut out);
        out
    };
    let refused = delivery.send(0, GATEWAY, 0, Way::Up, Body::Forbidden(Overreach::Private));
    let word = told(inner::GATEWAY, &refused);
    assert_eq!(delivery.is_refusal(1, &word).err().map(|b| b.law), Some(Law::Delivery), "not its");
    assert!(delivery.is_refusal(0, &told(inner::SERVER, &refused)).is_err(), "by another");
    assert_eq!(delivery.is_refusal(0, &word).ok(), Some(true));
    assert!(delivery.is_refusal(0, &word).is_err(), "twice");
    let welcome = delivery.send(0, GATEWAY, 0, Way::Up, Body::Data(100));
    assert!(delivery.is_refusal(0, &told(inner::GATEWAY, &welcome)).is_err(), "it may be sent");
    assert_eq!(delivery.is_refusal(0, &welcome.bytes()).ok(), Some(false));
    assert_eq!(delivery.refused(), 1);
}

#[test]
fn every_length_has_a_number_and_a_smaller_segment_size_is_no_alteration() {
    let mut delivery = Delivery::default();
    for len in [20, 21, 27, 28, 1_420] {
        let inner = delivery.send(0, GATEWAY, 1, Way::Down, Body::Data(len));
        assert_eq!(
            law(delivery.arrived(1, HostId::Client(1), &inner.bytes())),
            None,
            "{len} bytes"
        );
    }
    let syn = delivery.send(0, GATEWAY, 1, Way::Down, Body::Syn(1_460));
    let mut clamped = syn.bytes();
    rove_proto::wire::tcp::clamp(&mut clamped, 20, 1_205);
    assert_ne!(clamped, syn.bytes());
    assert!(syn.may_arrive_as(&clamped));
    clamped[36] ^= 1;
    assert!(!syn.may_arrive_as(&clamped), "the checksum must fit");
}

#[test]
fn a_revoked_client_gets_nothing_through() {
    let mut delivery = Delivery::default();
    let before = delivery.send(0, GATEWAY, 0, Way::Down, Body::Data(100)).bytes();
    let up = delivery.send(0, GATEWAY, 0, Way::Up, Body::Data(100)).bytes();
    delivery.revoke(SECOND, 0, [remote(1)].into());
    assert_eq!(law(delivery.sent_to_nobody(remote(1))), Some(Law::Revocation));
    assert_eq!(law(delivery.sent_to_nobody(remote(2))), None);
    assert_eq!(law(delivery.arrived(2 * SECOND, CLIENT_HOST, &before)), None, "it was on its way");
    assert_eq!(law(delivery.arrived(2 * SECOND, GATEWAY, &up)), Some(Law::Revocation));
    let after = delivery.send(2 * SECOND, GATEWAY, 0, Way::Down, Body::Data(100)).bytes();
    assert_eq!(law(delivery.arrived(3 * SECOND, CLIENT_HOST, &after)), Some(Law::Revocation));
    delivery.readmit(0);
    assert_eq!(law(delivery.sent_to_nobody(remote(1))), None);
    let again = delivery.send(4 * SECOND, GATEWAY, 0, Way::Up, Body::Data(100)).bytes();
    assert_eq!(law(delivery.arrived(4 * SECOND, GATEWAY, &again)), None);
}

#[test]
fn three_times_what_came_and_no_more() {
    let mut tallies = Amplification::default();
    assert_eq!(
        law(tallies.sent(GATEWAY, remote(1), 1, true)),
        Some(Law::Amplification),
        "for nothing"
    );
    let mut tallies = Amplification::default();
    tallies.received(GATEWAY, remote(1), 100, Some(5));
    assert_eq!(law(tallies.sent(GATEWAY, remote(1), 300, true)), None);
    tallies.reached(10, GATEWAY, remote(1));
    tallies.received(GATEWAY, remote(1), 100, Some(9));
    assert_eq!(
        law(tallies.sent(GATEWAY, remote(1), 301, true)),
        Some(Law::Amplification),
        "too early"
    );
    tallies.received(GATEWAY, remote(1), 100, Some(10));
    assert_eq!(law(tallies.sent(GATEWAY, remote(1), 9_000, true)), None, "it has answered");
    tallies.restarted(GATEWAY);
    assert_eq!(
        law(tallies.sent(GATEWAY, remote(1), 1, true)),
        Some(Law::Amplification),
        "forgotten"
    );
    tallies.chosen(CLIENT_HOST, remote(2));
    tallies.restarted(CLIENT_HOST);
    assert_eq!(
        law(tallies.sent(CLIENT_HOST, remote(2), 9_000, true)),
        None,
        "by the user's choice"
    );
}

#[test]
fn noise_buys_an_answer_of_its_own_length_and_nothing_sealed() {
    let mut tallies = Amplification::default();
    tallies.received(GATEWAY, remote(1), 1_000, None);
    assert_eq!(law(tallies.sent(GATEWAY, remote(1), 1_000, false)), None);
    assert_eq!(law(tallies.sent(GATEWAY, remote(1), 1, false)), Some(Law::Amplification));
    let mut tallies = Amplification::default();
    tallies.received(GATEWAY, remote(1), 1_000, None);
    assert_eq!(law(tallies.sent(GATEWAY, remote(1), 1, true)), Some(Law::Amplification));
}

#[test]
fn counters_only_grow_and_handshakes_have_a_rate() {
    let mut handshakes = Handshakes::default();
    assert_eq!(law(handshakes.begin(0, 7)), None);
    assert_eq!(law(handshakes.begin(0, 7)), Some(Law::Restart), "repeated");
    handshakes.forget_counter();
    assert_eq!(law(handshakes.begin(0, 3)), None, "the store went back in time");
    let mut storm = (4..1_000).map(|counter| law(handshakes.begin(1, counter)));
    assert!(storm.any(|broken| broken == Some(Law::Bounds)));
}

/// Sealed datagrams are to be had from a world only.
fn a_sealed_datagram() -> (RunSeal, PacketNumber, Profile) {
    let mut world = World::of(1, 1, Watch::default()).unwrap();
    world.advance(SECOND).unwrap();
    let packet = world.delivery.send(world.now_ns, GATEWAY, 0, Way::Up, Body::Data(100)).bytes();
    let turn = world.hosts[CLIENT_HOST].turn(world.now_ns, |engine| {
        engine.device.push(packet);
        engine.read_tun();
    });
    turn.sealed.into_iter().next().unwrap()
}

#[test]
fn numbers_of_a_lane_only_grow_whoever_holds_the_key() {
    let (seal, number, profile) = a_sealed_datagram();
    assert_eq!(law(check_floor(profile, Floor::BITS_256)), None);
    let (same, ..) = a_sealed_datagram();
    assert!(!std::sync::Arc::ptr_eq(&seal.key, &same.key), "derived twice");
    let mut nonces = Nonces::default();
    assert_eq!(law(nonces.sealed(&seal, number)), None);
    assert_eq!(law(nonces.sealed(&seal, number)), Some(Law::Nonces));
    assert_eq!(law(nonces.sealed(&same, number)), Some(Law::Nonces), "another copy of the key");
}

#[test]
fn paths_queues_sockets_and_indices_have_bounds() {
    let mut world = World::of(1, 1, Watch::default()).unwrap();
    world.advance(SECOND).unwrap();
    let status = world.hosts[CLIENT_HOST].node().status(world.gateways.of(GATEWAY).key).unwrap();
    assert_eq!(law(check_status(&status, 1)), None);
    let mut crowded = status.clone();
    crowded.paths = vec![status.paths[0].clone(); rove_proto::path::PATHS_MAX];
    assert_eq!(law(check_status(&crowded, 1)), None);
    crowded.paths.push(status.paths[0].clone());
    assert_eq!(law(check_status(&crowded, 1)), Some(Law::Bounds), "paths");
    let waiting = rove_proto::flow::waiting::WAITING_MAX + 1;
    assert_eq!(law(check_status(&PeerStatus { waiting, ..status.clone() }, 1)), Some(Law::Bounds));
    let queued_bytes = rove_proto::multipath::fq_codel::BYTES_MAX + 1;
    let full = PeerStatus { queued_bytes, ..status.clone() };
    assert_eq!(law(check_status(&full, 1)), Some(Law::Bounds), "the entry");
    let early_bytes = rove_proto::multipath::reorder::BYTES_MAX + 4_096;
    let full = PeerStatus { early_bytes, ..status.clone() };
    assert_eq!(law(check_status(&full, 1)), Some(Law::Bounds), "the exit");
    assert_eq!(law(check_status(&status, bounds::SOCKETS_MAX + 1)), Some(Law::Bounds), "sockets");
    assert_eq!(law(check_indices(bounds::INDICES_PER_PEER, 1)), None);
    assert_eq!(law(check_indices(bounds::INDICES_PER_PEER + 1, 1)), Some(Law::Bounds), "indices");
    assert_eq!(law(check_indices(1, 0)), Some(Law::Bounds), "of nobody");
}

#[test]
fn a_path_in_use_is_one_that_the_peer_has_sent_from() {
    let mut world = World::of(1, 1, Watch::default()).unwrap();
    world.advance(SECOND).unwrap();
    let status = world.hosts[CLIENT_HOST].node().status(world.gateways.of(GATEWAY).key).unwrap();
    let mut hijack = Hijack::default();
    assert_eq!(law(hijack.check(CLIENT_HOST, GATEWAY, &status)), Some(Law::Hijack));
    hijack.honest(CLIENT_HOST, GATEWAY, remote(9));
    assert_eq!(law(hijack.check(CLIENT_HOST, GATEWAY, &status)), Some(Law::Hijack), "elsewhere");
    hijack.honest(CLIENT_HOST, GATEWAY, status.paths[0].remote());
    assert_eq!(law(hijack.check(CLIENT_HOST, GATEWAY, &status)), None);
    hijack.restarted(CLIENT_HOST);
    assert_eq!(law(hijack.check(CLIENT_HOST, GATEWAY, &status)), Some(Law::Hijack), "forgotten");
}
