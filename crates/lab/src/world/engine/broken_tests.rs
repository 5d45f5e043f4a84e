//! Every law is broken in a running world, and says so: by a node that is made to misbehave, or by
//! telling the reference model something else than the nodes.

use std::net::SocketAddr;

use rove_proto::flow::tuple::Tuple;
use rove_proto::id::{LinkId, SocketId};
use rove_proto::role::Access;
use rove_proto::wire::Kind;
use rove_proto::wire::inner::TCP;

use super::rest::Rest;
use super::*;
use crate::emu::{Carrier, Datagram, SECOND};
use crate::ground::Pace;
use crate::tcp::CongestionControl;
use crate::world::addresses::bystander;
use crate::world::connections::{Carrier as Talker, Party, Program, Saying};
use crate::world::host::Outgoing;
use crate::world::host_id::{CLIENT_HOST, GATEWAY};
use crate::world::op::{Op, Overreach};
use crate::world::talk::Talk;

/// A way to break a law, told in a few words.
type Crime = (&'static str, fn() -> Result<(), Breach>);

/// A law that is added needs one here, or this does not compile.
fn crimes(law: Law) -> &'static [Crime] {
    match law {
        Law::Delivery => &[
            ("a packet of nobody's", out_of_nothing),
            ("a packet that is not allowed", a_packet_too_many),
            ("a packet for another gateway", a_packet_for_another_gateway),
        ],
        Law::Nonces => &[
            ("a number that was used", a_number_that_was_used),
            ("the same datagram twice", the_same_datagram_twice),
        ],
        Law::Floor => &[("a gateway that asks for too little", a_gateway_without_a_floor)],
        Law::Amplification => &[
            ("data to a stranger", data_to_a_stranger),
            ("more than noise came in", more_than_came_in),
        ],
        Law::Timeout => &[
            ("a timer that is not heeded", a_timer_not_heeded),
            ("a world that never rests", never_at_rest),
        ],
        Law::AlwaysBack => &[
            ("a gateway that stays away", a_gateway_that_stays_away),
            ("half of all packets lost", half_is_lost),
        ],
        Law::Hijack => &[
            ("a relay that was let in", a_relay),
            ("packets lost during a race", lost_during_a_race),
        ],
        Law::Unauthenticated => &[
            ("a datagram that nobody sent", a_datagram_of_nobody),
            ("a handshake that nobody sent", a_handshake_of_nobody),
            ("a datagram of another gateway's", a_datagram_of_another_gateway),
        ],
        Law::Bounds => {
            &[("too many sockets", too_many_sockets), ("too many handshakes", too_many_handshakes)]
        }
        Law::Silence => &[
            ("a packet while idle", a_packet_while_idle),
            ("too much for a NAT", too_much_for_a_nat),
            ("a NAT that forgot", a_nat_that_forgot),
        ],
        Law::Revocation => &[
            ("a packet after it", a_packet_after_revocation),
            ("data to where it was", data_after_revocation),
        ],
        Law::Alarm => &[("an alarm without a cause", an_alarm)],
        Law::Restart => &[("a counter again", a_counter_again)],
        Law::Enrolment => &[
            ("a stranger that is let in", a_stranger),
            ("one that is forgotten", one_that_is_forgotten),
            ("one that is asked again", one_that_is_asked_again),
        ],
        Law::Sockets => &[("a socket that is closed", a_closed_socket)],
        Law::Order => &[
            ("the other link in use", the_other_link_in_use),
            ("packets lost at a departure", packets_lost_at_a_departure),
        ],
        Law::Promise => &[
            ("a book that burns with what is owed", what_is_owed_is_forgotten),
            ("a line that nobody strikes out", a_line_that_stays),
            ("a byte that was never said", a_byte_that_was_never_said),
        ],
        Law::Unlinkable => &[("an index in two networks", an_index_in_two_networks)],
    }
}

#[test]
fn every_law_speaks_when_it_is_broken() {
    for law in Law::ALL {
        for (name, commit) in crimes(law) {
            match commit() {
                Err(breach) => assert_eq!(breach.law, law, "{name}: {breach}"),
                Ok(()) => panic!("{law:?}: {name}: nobody said anything"),
            }
        }
    }
}

fn an_alarm() -> Result<(), Breach> {
    let mut world = world();
    let peer = world.clients[0].key;
    world.react(GATEWAY, Event::KeyIsShared { peer })
}

/// A world in which everybody is connected and nothing is under way.
fn world() -> World {
    let mut world = World::of(1, 1, Watch::default()).unwrap();
    world.advance(3 * SECOND).unwrap();
    world
}

/// The same with the client where no NAT is.
fn open_world() -> World {
    let mut world = world();
    world.plug(0, 0, Some(1)).unwrap();
    world.advance(3 * SECOND).unwrap();
    world
}

/// Where the gateway reaches the client.
fn outside(world: &World) -> SocketAddr {
    let status = world.hosts[GATEWAY].node().status(world.clients[0].key).unwrap();
    status.paths[0].remote()
}

fn gateway_at(world: &World) -> SocketAddr {
    world.gateway_addresses(GATEWAY)[0]
}

/// The engine reads a packet from its device.
fn read(engine: &mut MemoryEngine, packet: Vec<u8>) {
    engine.device.push(packet);
    engine.read_tun();
}

/// What the client's node makes of a packet, behind the back of every law.
fn secretly(world: &mut World) -> Vec<Outgoing> {
    let packet = world.delivery.send(world.now_ns, GATEWAY, 0, Way::Up, Body::Data(100)).bytes();
    let now_ns = world.now_ns;
    world.hosts[CLIENT_HOST].turn(now_ns, |engine| read(engine, packet)).sends
}

fn out_of_nothing() -> Result<(), Breach> {
    let mut world = world();
    let mut model = Delivery::default();
    let packet =
        (0..1_000).map(|_| model.send(0, GATEWAY, 0, Way::Up, Body::Data(100))).last().unwrap();
    let packet = packet.bytes();
    world.act(CLIENT_HOST, |engine| read(engine, packet))?;
    world.advance(SECOND)
}

fn a_packet_too_many() -> Result<(), Breach> {
    let mut world = world();
    let (peer, access) = (world.clients[0].key, Access::Unrestricted);
    world.command(GATEWAY, Command::SetAccess { peer, access })?;
    world.apply(&Op::Overreach { client: 0, what: Overreach::Source })?;
    world.advance(SECOND)
}

fn a_number_that_was_used() -> Result<(), Breach> {
    let (mut world, mut twin) = (world(), world());
    // The twin has the same keys and is some numbers ahead.
    let packet = twin.delivery.send(twin.now_ns, GATEWAY, 0, Way::Up, Body::Data(100)).bytes();
    let now_ns = twin.now_ns;
    let often = |engine: &mut MemoryEngine| {
        for _ in 0..9 {
            read(engine, packet.clone());
        }
    };
    for (seal, number, _) in twin.hosts[CLIENT_HOST].turn(now_ns, often).sealed {
        world.nonces.sealed(&seal, number)?;
    }
    world.send_now(0, Way::Up, Body::Data(100)).map(drop)
}

fn a_gateway_without_a_floor() -> Result<(), Breach> {
    let holding = Holding { ciphers: Ciphers::weak(0), ..Holding::USUAL };
    let mut world = World::gathering(Crowd::usual(1, holding), 1, Watch::default())?;
    world.advance(3 * SECOND)?;
    world.floor = Floor::BITS_256;
    world.send_now(0, Way::Up, Body::Data(100)).map(drop)
}

fn the_same_datagram_twice() -> Result<(), Breach> {
    let mut world = world();
    for outgoing in secretly(&mut world) {
        let Outgoing { link, access, from, to, ref payload, segment } = outgoing;
        let again = Outgoing { link, access, from, to, payload: payload.clone(), segment };
        world.transmit(CLIENT_HOST, outgoing)?;
        world.transmit(CLIENT_HOST, again)?;
    }
    Ok(())
}

/// The gateway sends `len` bytes of `kind` to the attacker.
fn to_the_attacker(world: &mut World, kind: u8, len: usize) -> Result<(), Breach> {
    let to = SocketAddr::new(bystander(66), 666);
    let (link, from) = (world.gateways.of(GATEWAY).link, gateway_at(world));
    world.transmit(
        GATEWAY,
        Outgoing { link, access: 0, from, to, payload: vec![kind; len], segment: None },
    )
}

fn noise(world: &mut World, len: usize) {
    let source = SocketAddr::new(bystander(66), 666);
    world.inject(Datagram { source, destination: gateway_at(world), payload: vec![1; len] });
    world.advance(SECOND).unwrap();
}

fn data_to_a_stranger() -> Result<(), Breach> {
    let mut world = world();
    noise(&mut world, 1_000); // buys no data
    to_the_attacker(&mut world, Kind::Data as u8, 1)
}

fn more_than_came_in() -> Result<(), Breach> {
    let mut world = world();
    noise(&mut world, 100);
    to_the_attacker(&mut world, Kind::CookieReply as u8, 100).expect("as much as came");
    to_the_attacker(&mut world, Kind::CookieReply as u8, 1)
}

fn a_timer_not_heeded() -> Result<(), Breach> {
    let mut world = world();
    world.now_ns = world.hosts[CLIENT_HOST].wake_ns().expect("a client behind a NAT wakes up");
    world.wake(CLIENT_HOST, |_| {})
}

fn never_at_rest() -> Result<(), Breach> {
    let mut world = world();
    for after_ns in 0..=u64::from(EVENTS_MAX) {
        world.schedule(after_ns, Task::Rename { gateway: GATEWAY });
    }
    world.advance(SECOND)
}

fn a_gateway_that_stays_away() -> Result<(), Breach> {
    let mut world = world();
    world.hosts[GATEWAY].stop();
    Rest::of(&mut world).always_back()
}

fn half_is_lost() -> Result<(), Breach> {
    let mut world = world();
    world.place.set_quality(world.now_ns, 0, 0, Quality { loss: 500, ..Quality::CLEAN });
    Rest::of(&mut world).nothing_is_lost()
}

fn lost_during_a_race() -> Result<(), Breach> {
    let mut world = world();
    world.place.set_quality(world.now_ns, 0, 0, Quality { loss: 500, ..Quality::CLEAN });
    Rest::of(&mut world).nothing_is_lost_to_a_race(0)
}

/// Nobody can tell a relay from a path: the core takes it, and the law says so.
fn a_relay() -> Result<(), Breach> {
    let mut world = open_world();
    let at_client = outside(&world);
    for _ in 0..100 {
        world.attacker.relay(CLIENT_HOST);
        world.send_now(0, Way::Up, Body::Data(100))?;
        world.advance(10 * emu::MS)?;
        for datagram in world.attacker.reflect(world.now_ns, at_client) {
            world.inject(datagram);
        }
    }
    Ok(())
}

fn a_datagram_of_nobody() -> Result<(), Breach> {
    let mut world = world();
    let (source, destination) = (outside(&world), gateway_at(&world));
    for Outgoing { payload, .. } in secretly(&mut world) {
        world.inject(Datagram { source, destination, payload });
    }
    world.advance(SECOND)
}

/// Two gateways, and a client for each.
fn two_gateways() -> World {
    let crowd = Crowd { gateways: 2, ..Crowd::usual(2, Holding::USUAL) };
    let mut world = World::gathering(crowd, 1, Watch::default()).unwrap();
    world.advance(3 * SECOND).unwrap();
    world
}

/// A node takes a datagram that was sent, as far as the law knows, by a client that is not its.
fn a_datagram_of_another_gateway() -> Result<(), Breach> {
    let mut world = two_gateways();
    let (source, destination) = (outside(&world), gateway_at(&world));
    world.trust(1, &[destination]);
    for Outgoing { payload, .. } in secretly(&mut world) {
        let datagram = Datagram { source, destination, payload };
        world.leaves(HostId::Client(1), None, &datagram)?;
        world.inject(datagram);
    }
    world.advance(SECOND)
}

fn a_packet_for_another_gateway() -> Result<(), Breach> {
    let mut world = two_gateways();
    let gateway = HostId::Gateway(1);
    let packet = world.delivery.send(world.now_ns, gateway, 0, Way::Up, Body::Data(100)).bytes();
    world.act(CLIENT_HOST, |engine| read(engine, packet))?;
    world.advance(SECOND)
}

/// A handshake is no more than a pending epoch: the indices tell.
fn a_handshake_of_nobody() -> Result<(), Breach> {
    let mut world = world();
    let (source, destination) = (outside(&world), gateway_at(&world));
    let mut double = World::of(1, 1, Watch::default()).unwrap();
    double.clients[0].store.counter = 1_000_000;
    double.hosts[CLIENT_HOST].stop();
    double.power_on(CLIENT_HOST, false).unwrap();
    double.advance(SECOND).unwrap();
    let halves = [Kind::HandshakeA, Kind::HandshakeB].map(|kind| {
        let mut recorded = double.attacker.recorded().rev();
        recorded.find(|datagram| Kind::of(&datagram.payload) == Some(kind)).unwrap().payload.clone()
    });
    for payload in halves {
        world.inject(Datagram { source, destination, payload });
    }
    world.advance(SECOND)
}

fn too_many_sockets() -> Result<(), Breach> {
    let mut world = world();
    let local = world.hosts[CLIENT_HOST].cards[0].as_ref().unwrap().addresses[0];
    for number in 0..100 {
        world.hosts[CLIENT_HOST].open(SocketId(10_000 + number), LinkId(1), local);
    }
    world.send_now(0, Way::Up, Body::Data(100)).map(drop)
}

fn too_many_handshakes() -> Result<(), Breach> {
    let mut world = world();
    let peer = world.gateways.of(GATEWAY).key;
    let counters = 1_000..2_000;
    counters
        .into_iter()
        .try_for_each(|counter| world.react(CLIENT_HOST, Event::HandshakeCounter { peer, counter }))
}

fn a_packet_while_idle() -> Result<(), Breach> {
    let mut world = open_world();
    let body = Body::Data(100);
    world.schedule(600 * SECOND, Task::Send { client: 0, way: Way::Up, body });
    Rest::of(&mut world).silence()
}

fn too_much_for_a_nat() -> Result<(), Breach> {
    let mut world = world();
    for number in 0..8 {
        let body = Body::Data(1_400);
        world.schedule((600 + number) * SECOND, Task::Send { client: 0, way: Way::Up, body });
    }
    Rest::of(&mut world).silence()
}

fn a_nat_that_forgot() -> Result<(), Breach> {
    let mut world = world();
    // What keeps the mapping goes nowhere; nothing is owed, so the client cannot know.
    world.place.set_carrier(world.now_ns, 0, 0, Carrier::BlackHole);
    Rest::of(&mut world).silence()
}

fn a_packet_after_revocation() -> Result<(), Breach> {
    let mut world = world();
    world.delivery.revoke(world.now_ns, 0, [].into()); // and nobody tells the gateway
    world.send_now(0, Way::Up, Body::Data(100))?;
    world.advance(SECOND)
}

fn data_after_revocation() -> Result<(), Breach> {
    let mut world = world();
    let (link, from, to) = (world.gateways.of(GATEWAY).link, gateway_at(&world), outside(&world));
    world.apply(&Op::Revoke { client: 0 })?;
    let payload = vec![Kind::Data as u8; 40];
    world.transmit(GATEWAY, Outgoing { link, access: 0, from, to, payload, segment: None })
}

fn a_stranger() -> Result<(), Breach> {
    let mut world = world();
    let peer = world.clients[0].key;
    world.gateways.of_mut(GATEWAY).store.revoke(peer); // and nobody tells the gateway
    world.send_now(0, Way::Down, Body::Data(100)).map(drop)
}

fn one_that_is_forgotten() -> Result<(), Breach> {
    let mut world = world();
    let peer = world.clients[0].key;
    world.command(GATEWAY, Command::RevokePeer(peer))?; // and nobody tells the operator
    world.knows_everybody(GATEWAY)
}

fn one_that_is_asked_again() -> Result<(), Breach> {
    let mut world = world();
    let (peer, token) = (world.clients[0].key, world.token(0, 0));
    world.react(GATEWAY, Event::EnrolmentRequested { peer, token })
}

fn a_counter_again() -> Result<(), Breach> {
    let mut world = world();
    let peer = world.gateways.of(GATEWAY).key;
    world.react(CLIENT_HOST, Event::HandshakeCounter { peer, counter: 1_000 })?;
    world.react(CLIENT_HOST, Event::HandshakeCounter { peer, counter: 1_000 })
}

fn a_closed_socket() -> Result<(), Breach> {
    let mut world = world();
    world.hosts[CLIENT_HOST].stop();
    world.hosts[CLIENT_HOST].power = Power::On;
    world.send_now(0, Way::Up, Body::Data(100)).map(drop)
}

fn an_index_in_two_networks() -> Result<(), Breach> {
    let mut world = world();
    for outgoing in secretly(&mut world) {
        let from = SocketAddr::new(bystander(7), outgoing.from.port());
        world.transmit(CLIENT_HOST, Outgoing { access: 1, from, ..outgoing })?;
    }
    Ok(())
}

/// Two cards, of which the node knows the other order than the law.
fn the_other_link_in_use() -> Result<(), Breach> {
    let mut world = world();
    world.plug(0, 1, Some(1))?;
    world.rank(0, 1)?;
    world.advance(10 * SECOND)?;
    Rest::of(&mut world).goes_by(0, 0, "a lie")
}

/// Packets that are lost while the law thinks that a departure was announced.
fn packets_lost_at_a_departure() -> Result<(), Breach> {
    let mut world = world();
    world.place.set_carrier(world.now_ns, 0, 0, Carrier::BlackHole);
    let from = Rest::of(&mut world).mark();
    Rest::of(&mut world).flow(0, SECOND)?;
    world.plug(0, 0, None)?;
    Rest::of(&mut world).all_came(from, 0, "over a departure that was not announced")
}

/// Somebody was promised something, and the way is gone.
fn owing_world() -> World {
    let mut world = world();
    let congestion = CongestionControl::Cubic;
    let talk =
        Talk { up: 500_000, down: 0, every_ms: 0, congestion, keeps_alive: false, sips: false };
    world.connect(0, talk);
    world.advance(SECOND / 5).unwrap();
    world.place.set_carrier(world.now_ns, 0, 0, Carrier::BlackHole);
    world.advance(10 * SECOND).unwrap();
    assert!(world.owed.has(CLIENT_HOST), "something is owed");
    world
}

/// The next process does not know what the one before has promised.
fn what_is_owed_is_forgotten() -> Result<(), Breach> {
    let mut world = owing_world();
    world.hosts[CLIENT_HOST].stop();
    world.owed.burn();
    Rest::of(&mut world).settle(false)
}

fn a_line_that_stays() -> Result<(), Breach> {
    let mut world = owing_world();
    let end = |last| (std::net::IpAddr::from([10, 0, 0, last]), 1);
    let tuple = Tuple { local: end(1), remote: end(2), protocol: TCP };
    world.owed.forge(CLIENT_HOST, world.gateways.of(GATEWAY).key, tuple);
    Rest::of(&mut world).settle(false)
}

fn a_byte_that_was_never_said() -> Result<(), Breach> {
    let mut world = world();
    world.open_connection((0, 0), |[client, server]| {
        let says = Saying::new(1, 100, Pace::Full);
        [(client, Talker::new(Some(says), None)), (server, Talker::new(None, Some((2, 100))))]
            .map(|(config, carrier)| Party { config, program: Program::Carrier(carrier) })
    });
    world.advance(SECOND)
}
