//! Several links: what is proven ahead, who carries, and what leaving a link costs.

use std::net::IpAddr;

use crate::pair::{self, Pair, packet};
use rove_proto::codec::SavingConfig;
use rove_proto::id::LinkId;
use rove_proto::multipath::Mode;
use rove_proto::node::{Command, Link, PathStatus};
use rove_proto::path::{Health, Trust};
use rove_proto::time::{Duration, Instant};

const WIFI: (u32, [u8; 4]) = (1, [203, 0, 113, 5]);
const CABLE: (u32, [u8; 4]) = (2, [192, 0, 2, 9]);
const MODEM: (u32, [u8; 4]) = (3, [198, 51, 100, 77]);
/// Time between the packets of a flow, in each direction.
const PACE: Duration = Duration::from_millis(2);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The client's links, best first.
fn links(order: &[(u32, [u8; 4])]) -> Command {
    let link = |&(id, address): &(u32, [u8; 4])| Link {
        id: LinkId(id),
        addresses: vec![address.into()],
        stands_by: false,
    };
    Command::SetLinks(order.iter().map(link).collect())
}

/// Both ends with a session, and time for what is proven ahead.
fn up(order: &[(u32, [u8; 4])]) -> Pair {
    let mut pair = Pair::up();
    pair.tell_client(links(order));
    pair.run(ms(1_500));
    pair
}

fn paths(pair: &Pair) -> Vec<PathStatus> {
    pair.client.status(pair.gateway_key).unwrap().paths
}

fn in_use(pair: &Pair) -> u32 {
    let paths = paths(pair);
    paths.iter().find(|path| path.in_use).and_then(|path| path.link).unwrap().0
}

/// A packet that carries its number.
fn numbered(number: u32, back: bool) -> Vec<u8> {
    let mut packet = packet(200, back);
    packet[40..44].copy_from_slice(&number.to_be_bytes());
    packet
}

/// A flow in both directions for a while; packet numbers go on from `first`.
fn flow(pair: &mut Pair, first: u32, time: Duration) -> u32 {
    let packets = u32::try_from(time.as_nanos() / PACE.as_nanos()).unwrap();
    for number in first..first + packets {
        pair.send(&numbered(number, false));
        pair.send_back(&numbered(number, true));
        pair.run(PACE);
    }
    first + packets
}

/// What arrived, each way: numbers that are missing, that came more than once, and the longest
/// pause in milliseconds.
fn judge(pair: &Pair, sent: u32) -> [(usize, usize, u128); 2] {
    [&pair.gateway_inner, &pair.client_inner].map(|arrived| {
        let number = |packet: &Vec<u8>| u32::from_be_bytes(packet[40..44].try_into().unwrap());
        let mut seen = vec![0; sent as usize];
        for (_, packet) in arrived {
            seen[number(packet) as usize] += 1;
        }
        let pause = arrived.windows(2).map(|pair| pair[1].0.saturating_since(pair[0].0)).max();
        let missing = seen.iter().filter(|&&times| times == 0).count();
        let repeated = seen.iter().filter(|&&times| times > 1).count();
        (missing, repeated, pause.unwrap().as_millis())
    })
}

/// How late the latest packet was that came down, of a flow without pauses that began at `start`.
fn latest(pair: &Pair, start: Instant) -> u128 {
    let late = pair.client_inner.iter().map(|(at, packet)| {
        let number = u32::from_be_bytes(packet[40..44].try_into().unwrap());
        at.saturating_since(start + PACE * number).as_millis()
    });
    late.max().unwrap()
}

#[test]
fn a_path_by_every_link_is_proven_ahead() {
    let pair = up(&[WIFI, CABLE, MODEM]);
    let paths = paths(&pair);
    assert_eq!(paths.len(), 3);
    for path in paths {
        assert_eq!((path.trust, path.health), (Trust::Proven, Health::Good), "{path:?}");
    }
    assert_eq!(in_use(&pair), WIFI.0);
}

#[test]
fn data_leaves_a_link_that_is_no_longer_first_and_nothing_is_lost() {
    let mut pair = up(&[WIFI, CABLE]);
    let sent = flow(&mut pair, 0, ms(100));
    pair.tell_client(links(&[CABLE, WIFI]));
    let sent = flow(&mut pair, sent, ms(300));
    assert_eq!(in_use(&pair), CABLE.0);
    pair.tell_client(links(&[CABLE]));
    pair.filter = Box::new(|datagram| !touches(datagram, WIFI.1));
    let sent = flow(&mut pair, sent, ms(300));
    pair.run(ms(200));
    for (missing, repeated, pause) in judge(&pair, sent) {
        assert_eq!((missing, repeated), (0, 0));
        assert!(pause <= 10, "still for {pause} ms");
    }
}

/// Where all links carry their order says little: one that will go is for when no other carries.
#[test]
fn data_leaves_a_link_that_will_go_where_all_carry_and_nothing_is_lost() {
    let mut pair = up(&[WIFI, CABLE]);
    pair.tell_client(Command::SetMode(Mode::Full));
    let sent = flow(&mut pair, 0, ms(500));
    let Command::SetLinks(mut order) = links(&[CABLE, WIFI]) else { unreachable!() };
    order[1].stands_by = true;
    pair.tell_client(Command::SetLinks(order));
    let sent = flow(&mut pair, sent, ms(300));
    assert_eq!(in_use(&pair), CABLE.0);
    assert!(paths(&pair).iter().all(|path| path.is_shared == (path.link == Some(LinkId(CABLE.0)))));
    pair.tell_client(links(&[CABLE]));
    pair.filter = Box::new(|datagram| !touches(datagram, WIFI.1));
    let sent = flow(&mut pair, sent, ms(300));
    pair.run(ms(200));
    for (missing, repeated, pause) in judge(&pair, sent) {
        assert_eq!((missing, repeated), (0, 0));
        assert!(pause <= 10, "still for {pause} ms");
    }
}

#[test]
fn an_idle_session_leaves_such_a_link_as_well() {
    let mut pair = up(&[WIFI, CABLE]);
    pair.run(Duration::from_secs(600));
    pair.tell_client(links(&[CABLE, WIFI]));
    pair.run(ms(300));
    assert_eq!(in_use(&pair), CABLE.0);
    pair.filter = Box::new(|datagram| !touches(datagram, WIFI.1));
    pair.tell_client(links(&[CABLE]));
    pair.send_back(&packet(100, true));
    pair.run(ms(25));
    assert_eq!(pair.client_inner.len(), 1);
}

#[test]
fn a_link_that_is_cut_costs_a_round_trip_and_no_packet() {
    let mut pair = up(&[WIFI, CABLE, MODEM]);
    let start = pair.now;
    let sent = flow(&mut pair, 0, ms(100));
    pair.filter = Box::new(|datagram| !touches(datagram, WIFI.1));
    let sent = flow(&mut pair, sent, ms(6)); // nobody knows yet
    pair.cut(WIFI.1);
    pair.tell_client(links(&[CABLE, MODEM]));
    let sent = flow(&mut pair, sent, ms(300));
    pair.run(ms(200));
    assert_eq!(in_use(&pair), CABLE.0);
    let [(up_missing, up_repeated, up_still), (missing, repeated, still)] = judge(&pair, sent);
    assert_eq!((up_missing, up_repeated, missing, repeated), (0, 0, 0, 0));
    assert!(up_still <= 20, "upwards still for {up_still} ms");
    assert!(still <= 40, "downwards still for {still} ms");
    // What was on its way when the link was cut: half a round trip old, and a whole one to repair.
    assert!(latest(&pair, start) <= 75, "late by {} ms", latest(&pair, start));
    let path = paths(&pair).into_iter().find(|path| path.in_use).unwrap();
    assert!((3..=60).contains(&path.retransmitted), "{} sent again", path.retransmitted);
}

#[test]
fn a_move_to_another_network_loses_nothing_that_was_on_its_way() {
    let mut pair = up(&[WIFI]);
    let sent = flow(&mut pair, 0, ms(100));
    pair.filter = Box::new(|datagram| !touches(datagram, WIFI.1));
    pair.cut(WIFI.1);
    pair.tell_client(links(&[MODEM]));
    let sent = flow(&mut pair, sent, ms(300));
    pair.run(ms(200));
    for (missing, repeated, still) in judge(&pair, sent) {
        assert_eq!((missing, repeated), (0, 0));
        assert!(still <= 50, "still for {still} ms");
    }
}

#[test]
fn a_hole_is_left_by_the_other_link_and_loses_nothing() {
    let mut pair = up(&[WIFI, CABLE]);
    let sent = flow(&mut pair, 0, ms(100));
    pair.filter = Box::new(|datagram| !touches(datagram, WIFI.1));
    let sent = flow(&mut pair, sent, ms(600));
    pair.run(ms(400));
    assert_eq!(in_use(&pair), CABLE.0);
    for (missing, repeated, still) in judge(&pair, sent) {
        assert_eq!((missing, repeated), (0, 0));
        assert!(still <= 400, "still for {still} ms");
    }
    // It carries again, and nothing comes twice or is missed on the way back.
    pair.filter = Box::new(|_| true);
    let sent = flow(&mut pair, sent, ms(3_000));
    pair.run(ms(400));
    assert_eq!(in_use(&pair), WIFI.0);
    assert_eq!(judge(&pair, sent).map(|(missing, repeated, _)| (missing, repeated)), [(0, 0); 2]);
}

#[test]
fn what_was_late_and_not_lost_is_delivered_once() {
    let mut pair = up(&[WIFI, CABLE]);
    let sent = flow(&mut pair, 0, ms(100));
    let held = pair.hold(WIFI.1);
    let sent = flow(&mut pair, sent, ms(600));
    assert_eq!(in_use(&pair), CABLE.0);
    let late = held.take();
    assert!(late.len() > 50, "{} datagrams late", late.len());
    for datagram in late {
        pair.arrive(datagram);
    }
    let sent = flow(&mut pair, sent, ms(300));
    pair.run(ms(400));
    assert_eq!(judge(&pair, sent).map(|(missing, repeated, _)| (missing, repeated)), [(0, 0); 2]);
}

#[test]
fn a_farewell_under_old_keys_ends_no_path_of_the_new_ones() {
    let mut pair = up(&[WIFI, CABLE, MODEM]);
    let sent = flow(&mut pair, 0, ms(100));
    let held = pair.hold(CABLE.1);
    pair.tell_client(links(&[CABLE, MODEM])); // says what arrived by the link that is gone
    pair.run(ms(5));
    pair.filter = Box::new(|_| true);
    pair.tell_client(links(&[MODEM, CABLE]));
    for number in (sent..).take(200) {
        if pair.epochs() == 1 {
            pair.send(&numbered(number, false));
            pair.send_back(&numbered(number, true));
            pair.run(Duration::from_secs(1));
        }
    }
    assert_eq!((in_use(&pair), pair.epochs()), (MODEM.0, 2));
    let before = pair.gateway.status(pair.client_key).unwrap().paths;
    assert!(!held.borrow().is_empty());
    for late in held.take() {
        pair.arrive(late);
    }
    let after = pair.gateway.status(pair.client_key).unwrap().paths;
    let health = |paths: &[PathStatus]| paths.iter().map(|path| path.health).collect::<Vec<_>>();
    assert_eq!(health(&after), health(&before));
}

#[test]
fn data_returns_to_the_first_link_when_it_carries_again() {
    let mut pair = up(&[WIFI, CABLE]);
    pair.tell_client(links(&[CABLE]));
    let sent = flow(&mut pair, 0, ms(300));
    assert_eq!(in_use(&pair), CABLE.0);
    pair.tell_client(links(&[WIFI, CABLE]));
    let sent = flow(&mut pair, sent, ms(300));
    pair.run(ms(200));
    assert_eq!(in_use(&pair), WIFI.0);
    assert_eq!(judge(&pair, sent).map(|(missing, repeated, _)| (missing, repeated)), [(0, 0); 2]);
}

#[test]
fn a_path_that_shrank_while_another_carried_is_measured_when_data_comes_back() {
    let mut pair = up(&[WIFI, CABLE]);
    pair.tell_client(links(&[CABLE, WIFI]));
    pair.run(Duration::from_secs(30));
    assert_eq!(in_use(&pair), CABLE.0);
    pair.filter = Box::new(|datagram| !touches(datagram, WIFI.1) || datagram.bytes.len() <= 1_380);
    pair.tell_client(links(&[WIFI, CABLE]));
    pair.run(ms(1_000));
    assert_eq!(in_use(&pair), WIFI.0);
    for _ in 0..20 {
        pair.send(&packet(1_400, false));
        pair.send_back(&packet(1_400, true));
        pair.run(ms(20));
    }
    pair.run(ms(200));
    assert_eq!((pair.gateway_inner.len(), pair.client_inner.len()), (20, 20));
}

#[test]
fn a_link_that_does_not_answer_is_not_used_and_found_when_it_does() {
    let mut pair = Pair::up();
    pair.filter = Box::new(|datagram| !touches(datagram, CABLE.1));
    pair.tell_client(links(&[CABLE, WIFI]));
    let mut sent = 0;
    for _ in 0..60 {
        sent = flow(&mut pair, sent, ms(100));
        pair.run(ms(900));
    }
    assert_eq!(in_use(&pair), WIFI.0);
    assert_eq!(judge(&pair, sent).map(|(missing, repeated, _)| (missing, repeated)), [(0, 0); 2]);
    pair.filter = Box::new(|_| true);
    for _ in 0..3 {
        sent = flow(&mut pair, sent, ms(100));
        pair.run(ms(900));
    }
    assert_eq!(in_use(&pair), CABLE.0);
}

#[test]
fn what_is_proven_ahead_costs_an_idle_session_nothing() {
    let mut pair = up(&[WIFI, CABLE, MODEM]);
    pair.run(Duration::from_secs(120));
    let before = pair.sent;
    pair.run(Duration::from_secs(3_600));
    assert_eq!(pair.sent, before);
}

#[test]
fn a_link_that_never_answers_costs_an_idle_session_a_minute_of_asking() {
    let mut pair = Pair::up();
    pair.filter = Box::new(|datagram| !touches(datagram, CABLE.1));
    pair.tell_client(links(&[CABLE, WIFI]));
    pair.run(Duration::from_secs(120));
    let before = pair.sent;
    pair.run(Duration::from_secs(3_600));
    assert_eq!(pair.sent, before);
}

fn touches(datagram: &pair::Datagram, address: [u8; 4]) -> bool {
    [datagram.from, datagram.to].iter().any(|at| at.ip() == std::net::IpAddr::from(address))
}

#[test]
fn a_link_that_loses_more_and_more_is_left_before_it_is_cut() {
    let mut pair = up(&[WIFI, CABLE]);
    let mut count = 0u32;
    pair.filter = Box::new(move |datagram| {
        count += u32::from(touches(datagram, WIFI.1));
        !(touches(datagram, WIFI.1) && count.is_multiple_of(4))
    });
    let sent = flow(&mut pair, 0, ms(4_000));
    assert_eq!(in_use(&pair), CABLE.0, "a quarter is lost");
    // It is tried again, for less and less of the time.
    let (mut sent, mut by_wifi) = (sent, 0);
    for _ in 0..60 {
        sent = flow(&mut pair, sent, ms(1_000));
        by_wifi += u32::from(in_use(&pair) == WIFI.0);
    }
    assert!((1..=25).contains(&by_wifi), "{by_wifi} of 60 seconds by the bad link");
    pair.filter = Box::new(|_| true);
    flow(&mut pair, sent, Duration::from_secs(70));
    assert_eq!(in_use(&pair), WIFI.0, "it loses nothing any more");
}

#[test]
fn a_link_that_comes_and_goes_unseen_is_used_less_and_less() {
    let mut pair = up(&[WIFI, CABLE]);
    let (mut sent, mut moves) = (0, Vec::new());
    for second in 0..60 {
        let dead = second % 2 == 0;
        pair.filter = Box::new(move |datagram| !(dead && touches(datagram, WIFI.1)));
        let before = in_use(&pair);
        sent = flow(&mut pair, sent, ms(1_000));
        if before != in_use(&pair) {
            moves.push(second);
        }
    }
    pair.run(ms(200));
    assert!(moves.len() <= 12 && moves.len() >= 2, "went over in the seconds {moves:?}");
    for (missing, repeated, _) in judge(&pair, sent) {
        // What a hole swallows is not repeated on the link that comes out of it.
        assert!(missing <= 300 && repeated == 0, "{missing} of {sent} missing");
    }
}

#[test]
fn the_only_link_is_used_however_bad_it_is() {
    let mut pair = up(&[WIFI]);
    let mut count = 0u32;
    pair.filter = Box::new(move |_| {
        count += 1;
        !count.is_multiple_of(3)
    });
    flow(&mut pair, 0, ms(5_000));
    assert_eq!((in_use(&pair), pair.epochs()), (WIFI.0, 1));
}

#[test]
fn a_client_that_saves_data_asks_a_spare_path_more_rarely() {
    let asked = |frugal| {
        let mut pair = up(&[WIFI, CABLE]);
        pair.tell_client(Command::SetSaving(SavingConfig { frugal, ..SavingConfig::default() }));
        pair.run(ms(1_000));
        let by_spare = |pair: &Pair| pair.sent_from[&IpAddr::from(CABLE.1)];
        let before = by_spare(&pair);
        for _ in 0..100 {
            pair.send(&packet(100, false));
            pair.run(ms(1_000));
        }
        assert!(paths(&pair).iter().all(|path| path.health == Health::Good));
        by_spare(&pair) - before
    };
    let (often, rarely) = (asked(false), asked(true));
    assert!(rarely > 0 && rarely * 3 < often, "{rarely} datagrams, {often} otherwise");
}
