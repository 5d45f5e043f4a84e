use super::super::crowd::Crowd;
use super::super::engine::World;
use super::super::host::Holding;
use super::super::host_id::{CLIENT_HOST, GATEWAY};
use super::super::inner::LEN_MAX;
use super::super::op::{ACCESSES, Op};
use super::super::watch::Watch;
use super::crossing::CROSSING_NS;
use super::ports::CLIENT_PORTS;
use super::*;
use crate::emu::{MS, SECOND};
use crate::ground::Pace;
use rove_proto::flow::rules::Assist;
use rove_proto::multipath::Mode;

#[test]
fn ports_and_numbers_belong_together() {
    for one in [0, 1, 39_999, 40_000, 100_000] {
        let (server, client) = ports(one);
        assert_eq!(number(client, server), Some(one));
    }
    assert_eq!(number(CLIENT_PORTS.0 - 1, SERVER_PORT), None);
    assert_eq!(number(CLIENT_PORTS.0, SERVER_PORT - 1), None);
    assert_eq!(number(60_000, SERVER_PORT), None);
}

fn world() -> World {
    let mut world = World::of(1, 7, Watch::default()).unwrap();
    world.advance(2 * SECOND).unwrap();
    world
}

/// So many bytes each way.
fn open(world: &mut World, bytes: u64) -> Number {
    world.open_connection((0, 0), |[client, server]| {
        let carrier = |says, expects| {
            let says = Saying::new(says, bytes, Pace::Full);
            Program::Carrier(Carrier::new(Some(says), Some((expects, bytes))))
        };
        [
            Party { config: client, program: carrier(1, 2) },
            Party { config: server, program: carrier(2, 1) },
        ]
    })
}

fn outcome(world: &World, number: Number) -> Option<Outcome> {
    world.connections.get(number).unwrap().outcome().cloned()
}

#[test]
fn what_is_said_at_either_end_is_heard_at_the_other() {
    let mut world = world();
    let begun_ns = world.now_ns;
    let number = open(&mut world, 300_000);
    world.advance(10 * SECOND).unwrap();
    let one = world.connections.get(number).unwrap();
    assert!(one.outcome().is_some_and(|it| it.broke.is_none()), "{one:?}");
    for heard in one.heard() {
        assert_eq!(heard.bytes(), 300_000);
        assert!(heard.opened_ns.is_some_and(|at_ns| at_ns > begun_ns));
    }
    assert!(!world.connections.any_goes_on() && world.connections.next_ns().is_none());
    let ends = &one.ends;
    assert!(ends.iter().all(|at| at.end.ending() == Some(Ending::Finished)), "{ends:?}");
}

#[test]
fn a_machine_that_sleeps_for_long_loses_no_connection_and_no_time() {
    let mut world = world();
    let number = open(&mut world, 30_000_000);
    world.advance(SECOND).unwrap();
    world.fall_asleep(CLIENT_HOST);
    world.advance(200 * SECOND).unwrap();
    let before = outcome(&world, number);
    assert_eq!(before, None, "the server waits, and the client's clock stands still");
    world.power_on(CLIENT_HOST, false).unwrap();
    for _ in 0..60 {
        world.advance(SECOND).unwrap();
    }
    assert!(outcome(&world, number).is_some_and(|it| it.broke.is_none()));
}

#[test]
fn a_machine_that_begins_anew_refuses_what_it_does_not_know() {
    let mut world = world();
    let number = open(&mut world, 30_000_000);
    world.advance(SECOND).unwrap();
    world.hosts[CLIENT_HOST].stop();
    world.power_on(CLIENT_HOST, true).unwrap();
    world.advance(30 * SECOND).unwrap();
    let broke = outcome(&world, number).and_then(|it| it.broke);
    assert_eq!(broke, Some("connection reset by peer"));
}

#[test]
fn what_a_process_owed_is_broken_off_by_the_next() {
    let mut world = world();
    let number = open(&mut world, 30_000_000);
    world.advance(SECOND).unwrap();
    for access in 0..usize::from(ACCESSES) {
        world.place.set_carrier(world.now_ns, 0, access, crate::emu::Carrier::BlackHole);
    }
    world.advance(10 * SECOND).unwrap();
    assert!(
        world.owed.has(CLIENT_HOST) && world.owed.has(GATEWAY),
        "both sides were promised something"
    );
    assert_eq!(outcome(&world, number), None);
    world.hosts[CLIENT_HOST].stop();
    world.power_on(CLIENT_HOST, false).unwrap();
    world.advance(10 * SECOND).unwrap();
    let broke = outcome(&world, number).and_then(|it| it.broke);
    assert_eq!(broke, Some("connection reset by peer"), "by the process that was to send it");
    assert!(world.owed.has(CLIENT_HOST), "the other end was not told yet");
    for access in 0..usize::from(ACCESSES) {
        world.place.set_carrier(world.now_ns, 0, access, crate::emu::Carrier::Up);
    }
    world.advance(120 * SECOND).unwrap();
    assert!(!world.owed.has(CLIENT_HOST) && !world.owed.has(GATEWAY));
}

/// A process that is to end is told to assist nobody any more, and waits until nothing is owed.
#[test]
fn who_is_not_assisted_any_more_is_owed_nothing_soon_and_survives_a_restart() {
    let holding = Holding { assist: Assist::On, ..Holding::USUAL };
    let crowd = Crowd { mode: Mode::Full, ..Crowd::usual(1, holding) };
    let mut world = World::gathering(crowd, 7, Watch::default()).unwrap();
    world.plug(0, 1, Some(1)).unwrap();
    world.advance(3 * SECOND).unwrap();
    let number = open(&mut world, 30_000_000);
    world.advance(SECOND).unwrap();
    assert!(world.owed.has(CLIENT_HOST) && world.owed.has(GATEWAY), "much is on its way both ways");
    for host in 0..2 {
        world.apply(&Op::SetAssist { host, assist: Assist::Off }).unwrap();
    }
    world.advance(SECOND / 2).unwrap();
    assert!(!world.owed.has(CLIENT_HOST) && !world.owed.has(GATEWAY));
    world.hosts[CLIENT_HOST].stop();
    world.power_on(CLIENT_HOST, false).unwrap();
    for _ in 0..90 {
        world.advance(SECOND).unwrap();
    }
    let outcome = outcome(&world, number);
    assert!(outcome.as_ref().is_some_and(|it| it.broke.is_none()), "{outcome:?}");
}

#[test]
fn a_byte_that_is_not_what_was_sent_is_a_breach() {
    let mut world = world();
    let number = world.open_connection((0, 0), |[client, server]| {
        let says = Saying::new(1, 100, Pace::Pieces { bytes: 10, every_ns: 100 * MS });
        let hears = Carrier::new(None, Some((2, 100)));
        [
            Party { config: client, program: Program::Carrier(Carrier::new(Some(says), None)) },
            Party { config: server, program: Program::Carrier(hears) },
        ]
    });
    let breach = world.advance(10 * SECOND).unwrap_err();
    assert_eq!(breach.law, Law::Promise);
    assert!(breach.what.contains(&format!("connection {number}")), "{breach}");
}

#[test]
fn what_belongs_to_no_connection_is_none_of_its_business() {
    let mut world = world();
    let number = open(&mut world, 10);
    let [client, server] = world.connections.get(number).unwrap().ends.each_ref();
    let packet = |from: &AtEnd, to: &AtEnd| {
        let (source, destination) = (from.end.config().local, to.end.config().local);
        IpPacket::new(
            crate::tcp::Segment {
                source,
                destination,
                sequence: 1,
                acknowledgment: None,
                flags: Default::default(),
                window: 0,
                options: Default::default(),
                payload: Vec::new(),
            }
            .emit(),
        )
    };
    let (up, down) = (packet(client, server), packet(server, client));
    let connections = &world.connections;
    assert_eq!(connections.whose(None, &up), Some((number, Side::Server)));
    assert_eq!(connections.whose(Some(0), &down), Some((number, Side::Client)));
    assert_eq!(connections.whose(Some(1), &down), None, "another client");
    assert_eq!((connections.whose(None, &down), connections.whose(Some(0), &up)), (None, None));
}

#[test]
fn who_reads_slowly_hears_everything() {
    let mut world = world();
    let number = world.open_connection((0, 0), |[client, server]| {
        let says = Saying::new(1, 100_000, Pace::Full);
        let hears = Carrier::new(None, Some((1, 100_000))).reading(Reading::sips(2_000, 20 * MS));
        let of_server = Config { receive_buffer: 10_000, ..server };
        [
            Party { config: client, program: Program::Carrier(Carrier::new(Some(says), None)) },
            Party { config: of_server, program: Program::Carrier(hears) },
        ]
    });
    world.advance(SECOND / 2).unwrap();
    let heard = |world: &World| {
        let one = world.connections.get(number).unwrap();
        one.heard().next().unwrap().bytes()
    };
    assert!((1..=50_000).contains(&heard(&world)), "{} bytes", heard(&world));
    world.advance(10 * SECOND).unwrap();
    assert_eq!(heard(&world), 100_000);
    assert!(outcome(&world, number).is_some_and(|it| it.broke.is_none()));
    assert!(world.connections.promised().all(|it| it.acknowledged == it.arrived));
}

/// None yet but one that the client opens, and its first packet.
fn opened() -> (Connections, Number, IpPacket) {
    let mut connections = Connections::new(7);
    let parties = connections.configs(0, 0, LEN_MAX);
    let parties = parties.map(|config| Party { config, program: Program::None });
    let number = connections.open(0, 0, parties);
    let first = connections.leaving(0).unwrap().pop().unwrap();
    (connections, number, IpPacket::new(first.packet))
}

#[test]
fn nothing_is_answered_in_no_time() {
    let (mut connections, number, first) = opened();
    connections.arrives(SECOND, number, Side::Server, first);
    let answered_ns = SECOND + CROSSING_NS;
    assert_eq!(connections.next_ns(), Some(answered_ns));
    assert!(connections.leaving(answered_ns - 1).unwrap().is_empty());
    let answer = connections.leaving(answered_ns).unwrap().pop().unwrap();
    assert_eq!(answer.side, Side::Server);
    // A machine that falls asleep has what came to it when it wakes.
    connections.arrives(answered_ns, number, Side::Client, IpPacket::new(answer.packet));
    connections.sleeps(answered_ns, 0);
    assert!(connections.leaving(2 * SECOND).unwrap().iter().all(|it| it.side == Side::Server));
    connections.wakes(3 * SECOND, 0);
    let last = connections.leaving(3 * SECOND).unwrap();
    assert!(last.iter().any(|it| it.side == Side::Client), "{last:?}");
}

#[test]
fn what_has_come_to_a_machine_that_begins_anew_is_lost() {
    let (mut connections, number, first) = opened();
    connections.arrives(0, number, Side::Server, first);
    let answer = connections.leaving(CROSSING_NS).unwrap().pop().unwrap();
    connections.arrives(CROSSING_NS, number, Side::Client, IpPacket::new(answer.packet));
    connections.begins_anew(0);
    assert!(connections.leaving(MS).unwrap().is_empty());
}
