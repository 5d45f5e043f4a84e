//! Sessions over streams, in worlds with a middlebox.

use super::*;
use crate::emu::{Carrier, Filter, MS, SECOND};
use crate::world::crowd::Crowd;
use crate::world::engine::World;
use crate::world::engine::rest::Rest;
use crate::world::host::{Holding, PORT};
use crate::world::host_id::{CLIENT_HOST, GATEWAY};
use crate::world::inner::Body;
use crate::world::op::{Quality, Way};
use crate::world::watch::Watch;
use rove_proto::flow::Hold;
use rove_proto::id::Transport;

/// A client that is in the open network from the start, behind a middlebox.
fn behind(filter: Filter) -> World {
    let holding = Holding { hold: Hold::Off, memory: 0, ..Holding::USUAL };
    let crowd = Crowd { streams: Known::Proxy, ..Crowd::usual(1, holding) };
    let mut world = World::gathering(crowd, 1, Watch::default()).unwrap();
    world.advance(3 * SECOND).unwrap();
    for access in 0..3 {
        world.place.set_filter(0, access, Some(filter));
    }
    world.plug(0, 0, Some(1)).unwrap();
    begin_anew(&mut world);
    world
}

fn begin_anew(world: &mut World) {
    world.hosts[CLIENT_HOST].stop();
    world.power_on(CLIENT_HOST, false).unwrap();
    world.advance(SECOND).unwrap();
}

/// What the client sends by, and to which port.
fn used(world: &World) -> (Transport, u16) {
    let status = world.hosts[CLIENT_HOST].node().status(world.gateways.of(GATEWAY).key).unwrap();
    let path = status.paths.iter().find(|path| path.in_use).unwrap();
    (path.route.socket.transport(), path.route.remote.port())
}

/// Whether packets of all sizes get through within that time, both ways.
fn carries(world: &mut World, within_ns: u64) -> bool {
    let lens = [20, 600, 1_420].into_iter();
    let kinds: Vec<_> = lens.flat_map(|len| [(Way::Up, len), (Way::Down, len)]).collect();
    let send = |(way, len)| world.send_now(0, way, Body::Data(len)).unwrap().unwrap();
    let sent: Vec<_> = kinds.into_iter().map(send).collect();
    world.advance(within_ns).unwrap();
    sent.into_iter().all(|id| world.delivery.has_arrived(id))
}

#[test]
fn a_client_finds_the_stream_that_its_network_lets_by() {
    for (filter, port) in [
        (Filter::NoUdp, HTTPS),
        (Filter::Port(HTTPS), HTTPS),
        (Filter::TlsPort(HTTPS), HTTPS),
        (Filter::Port(PORT), PORT),
        (Filter::End(LISTENS), LISTENS.port()),
    ] {
        let mut world = behind(filter);
        assert_eq!(used(&world).0, Transport::Stream, "{filter:?}");
        assert!(used(&world).1 == port || filter == Filter::NoUdp, "{filter:?}");
        assert!(carries(&mut world, 60 * MS), "{filter:?}");
    }
    assert_eq!(used(&behind(Filter::NoBytes)).0, Transport::Udp, "a stream that carries nothing");
}

#[test]
fn nothing_gets_by_where_neither_udp_nor_a_stream_does() {
    let mut world = behind(Filter::TlsPort(PORT));
    assert!(!carries(&mut world, 10 * SECOND), "a plain stream is no TLS");
}

#[test]
fn udp_takes_over_and_the_stream_ends_at_both_ends() {
    let mut world = behind(Filter::NoUdp);
    assert!(world.streams.count(CLIENT_HOST) > 0 && world.streams.count(GATEWAY) > 0);
    world.place.set_filter(0, 1, None);
    for _ in 0..20 {
        assert!(carries(&mut world, 100 * MS));
    }
    assert_eq!(used(&world).0, Transport::Udp);
    world.advance(60 * SECOND).unwrap();
    assert_eq!((world.streams.count(CLIENT_HOST), world.streams.count(GATEWAY)), (0, 0));
}

#[test]
fn a_stream_that_is_cut_is_replaced_at_once() {
    let mut world = behind(Filter::NoUdp);
    world.cut_streams(0).unwrap();
    // UDP is given its 250 ms; a connection, TLS and the handshake are a round trip each.
    world.advance(SECOND / 2).unwrap();
    assert!(carries(&mut world, 60 * MS));
    assert_eq!(used(&world).0, Transport::Stream);
}

#[test]
fn a_nat_that_forgets_a_stream_costs_a_new_one() {
    let mut world = behind(Filter::NoUdp);
    world.plug(0, 0, Some(0)).unwrap();
    world.advance(SECOND).unwrap();
    assert!(carries(&mut world, 60 * MS));
    world.place.reboot_nat(0, 0, true);
    carries(&mut world, SECOND);
    assert!(carries(&mut world, 60 * MS), "the gateway's kernel knows no such connection");
}

#[test]
fn what_has_no_room_is_lost_and_a_lossy_link_delays_everything_behind() {
    let mut world = behind(Filter::NoUdp);
    let slow = Quality { rate_kbps: 1_000, ..Quality::CLEAN };
    world.place.set_quality(world.now_ns, 0, 1, slow);
    let from = Rest::of(&mut world).mark();
    let burst = 400; // half a megabyte
    for _ in 0..burst {
        world.send_now(0, Way::Down, Body::Data(1_400)).unwrap();
    }
    world.advance(20 * SECOND).unwrap();
    let came = (from..from + burst).filter(|&id| world.delivery.has_arrived(id)).count();
    assert!((60..200).contains(&came), "{came} of {burst}");

    let lossy = Quality { loss: 50, ..Quality::CLEAN };
    world.place.set_quality(world.now_ns, 0, 1, lossy);
    let from = Rest::of(&mut world).mark();
    Rest::of(&mut world).flow(0, 10 * SECOND).unwrap();
    world.advance(5 * SECOND).unwrap();
    let last = world.delivery.totals().0;
    let lost = (from..=last).filter(|&id| !world.delivery.has_arrived(id)).count();
    assert!(lost <= 20, "{lost} of {}: TCP sends again", last - from);
}

#[test]
fn a_black_hole_breaks_a_stream_in_the_end() {
    let mut world = behind(Filter::NoUdp);
    world.place.set_carrier(world.now_ns, 0, 1, Carrier::BlackHole);
    carries(&mut world, 100 * SECOND);
    let before = world.streams.count(GATEWAY);
    world.advance(1_400 * SECOND).unwrap();
    assert!(world.streams.count(GATEWAY) == 0, "{before} before it asked");
    world.place.set_carrier(world.now_ns, 0, 1, Carrier::Up);
    Rest::of(&mut world).always_back().unwrap();
}
