//! What is of no use late: it leaves by one path and stays with it, by two where one loses some,
//! and is delivered once; questions for names go by all of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use crate::pair::{Datagram, Pair, links, udp};
use rove_proto::codec::SavingConfig;
use rove_proto::flow::classify::Class;
use rove_proto::flow::live::Early;
use rove_proto::flow::overrides::{Asks, Copies, Override, Overrides, Selector};
use rove_proto::flow::report::Why;
use rove_proto::multipath::Mode;
use rove_proto::node::Command;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::control::{End, Prefix};

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
/// Between two packets of a voice.
const VOICE: Duration = Duration::from_millis(20);
/// The server of `pair`.
const SERVER: [u8; 4] = [198, 51, 100, 7];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A session by two links that share what there is.
fn bonded() -> Pair {
    bonded_by(None)
}

/// The same, and one of them is farther.
fn bonded_by(farther: Option<(IpAddr, Duration)>) -> Pair {
    let mut pair = Pair::up();
    pair.farther = farther;
    pair.tell_client(links(&[WIFI, CABLE]));
    pair.tell_client(Command::SetMode(Mode::Full));
    pair.run(ms(500));
    for number in 0..100 {
        let bulk = udp((50_000, 50_001), &[0; 1_000], false);
        let back = udp((50_000, 50_001), &[0; 1_000], true);
        pair.send(&bulk);
        pair.send_back(&back);
        pair.run(ms(number % 3));
    }
    pair.run(ms(200));
    pair.client_inner.clear();
    pair.gateway_inner.clear();
    pair
}

/// The `number`th packet of a voice, as RTP; the same port both ways.
fn voice(number: u16, back: bool) -> Vec<u8> {
    let mut payload = vec![0; 172];
    payload[0] = 0x80;
    payload[2..4].copy_from_slice(&number.to_be_bytes());
    payload[4..8].copy_from_slice(&(u32::from(number) * 160).to_be_bytes());
    payload[11] = 1 + u8::from(back);
    udp((40_000, 40_000), &payload, back)
}

/// Both ends speak, and each packet's time of leaving is returned.
fn speak(pair: &mut Pair, numbers: std::ops::Range<u16>) -> Vec<Instant> {
    let each = |number| {
        let left_at = pair.now;
        pair.send(&voice(number, false));
        pair.send_back(&voice(number, true));
        pair.run(VOICE);
        left_at
    };
    numbers.map(each).collect()
}

/// When each packet of the voice arrived, up and down; none may arrive twice.
fn heard(pair: &Pair) -> [BTreeMap<u16, Instant>; 2] {
    [&pair.gateway_inner, &pair.client_inner].map(|inner| {
        let mut heard = BTreeMap::new();
        for (at, packet) in inner.iter().filter(|(_, packet)| packet.len() == 200) {
            let number = u16::from_be_bytes(packet[30..32].try_into().unwrap());
            assert_eq!(heard.insert(number, *at), None, "{number} came twice");
        }
        heard
    })
}

/// Counts datagrams by the client's address, up and down, that are so long.
fn counted(
    pair: &mut Pair,
    len: std::ops::Range<usize>,
) -> Rc<RefCell<BTreeMap<(IpAddr, bool), u32>>> {
    let counts = Rc::new(RefCell::new(BTreeMap::new()));
    let seen = Rc::clone(&counts);
    let gateway = pair.gateway_at[0];
    pair.filter = Box::new(move |datagram: &Datagram| {
        let up = datagram.to == gateway;
        let client = if up { datagram.from } else { datagram.to };
        if len.contains(&datagram.bytes.len()) {
            *seen.borrow_mut().entry((client.ip(), up)).or_default() += 1;
        }
        true
    });
    counts
}

#[test]
fn a_call_stays_with_one_path_both_ways_and_is_sent_once() {
    let mut pair = bonded();
    speak(&mut pair, 0..20);
    let counts = counted(&mut pair, 200..300);
    speak(&mut pair, 20..320);
    pair.run(ms(200));
    let counts = counts.borrow();
    let clients: Vec<_> = counts.keys().map(|&(address, _)| address).collect();
    assert_eq!(counts.len(), 2, "one path, two ways: {counts:?}");
    assert_eq!(clients[0], clients[1], "{counts:?}");
    assert!(counts.values().all(|&count| count == 300), "{counts:?}");
    assert!(heard(&pair).iter().all(|heard| heard.len() == 320));
    assert_eq!(copied(&pair), [0, 0]);
}

/// Bytes that each end says it sent by a second path.
fn copied(pair: &Pair) -> [u64; 2] {
    [(&pair.client, pair.gateway_key), (&pair.gateway, pair.client_key)]
        .map(|(node, peer)| node.status(peer).unwrap().paths.iter().map(|path| path.copied).sum())
}

/// One datagram of `part` is lost by one of the links.
fn lose_by_wifi(pair: &mut Pair, part: u32) {
    let mut count = 0u32;
    pair.filter = Box::new(move |datagram| {
        let lossy = IpAddr::from(WIFI);
        let is_lossy = datagram.from.ip() == lossy || datagram.to.ip() == lossy;
        count += u32::from(is_lossy);
        !is_lossy || !count.wrapping_mul(0x9e37_79b9).rotate_left(8).is_multiple_of(part)
    });
}

#[test]
fn what_would_be_late_by_another_path_follows_by_its_own() {
    let mut pair = bonded_by(Some((CABLE.into(), ms(15))));
    speak(&mut pair, 0..20);
    lose_by_wifi(&mut pair, 20);
    let left = speak(&mut pair, 20..1_020);
    pair.run(ms(300));
    for heard in heard(&pair) {
        let took = |number: u16| heard[&number].saturating_since(left[usize::from(number) - 20]);
        // By the farther link it takes 35 ms, and 25 of these are lost by the nearer.
        let late = (520..1_020).filter(|&number| took(number) > ms(22)).count();
        assert!(late <= 10, "{late} of 500");
        assert!((520..1_020).all(|number| took(number) <= ms(36)), "and none is lost");
    }
}

#[test]
fn what_a_path_loses_arrives_by_another_and_its_bytes_are_told() {
    let mut pair = bonded();
    speak(&mut pair, 0..20);
    lose_by_wifi(&mut pair, 10);
    let left = speak(&mut pair, 20..1_020);
    pair.run(ms(300));
    for heard in heard(&pair) {
        let is_late = |number: &u16| {
            let left_at = left[usize::from(*number) - 20];
            heard.get(number).is_none_or(|at| at.saturating_since(left_at) > ms(80))
        };
        let late = (520..1_020).filter(is_late).count();
        assert!(late <= 2, "{late} of 500");
    }
    // Some packets of 200 bytes, until the call goes by the path that loses nothing.
    for bytes in copied(&pair) {
        assert!((5 * 200..100 * 260).contains(&bytes), "{bytes}");
    }
}

#[test]
fn when_its_path_dies_a_call_goes_on() {
    for lost in [WIFI, CABLE] {
        let mut pair = bonded();
        speak(&mut pair, 0..100);
        pair.filter = Box::new(move |datagram| {
            let dead = IpAddr::from(lost);
            datagram.from.ip() != dead && datagram.to.ip() != dead
        });
        let left = speak(&mut pair, 100..300);
        pair.run(ms(200));
        for heard in heard(&pair) {
            assert_eq!(heard.len(), 300, "all of it arrives");
            for (number, left_at) in (100..).zip(&left) {
                let took = heard[&number].saturating_since(*left_at);
                // 20 ms is the way, 60 ms what a player waits.
                assert!(took <= ms(80), "{number} took {took:?}");
            }
        }
    }
}

#[test]
fn when_its_link_is_taken_away_nothing_that_was_on_its_way_is_missed() {
    for lost in [WIFI, CABLE] {
        let mut pair = bonded();
        speak(&mut pair, 0..100);
        pair.filter = Box::new(move |datagram| {
            let dead = IpAddr::from(lost);
            datagram.from.ip() != dead && datagram.to.ip() != dead
        });
        // Much else is lost with it, and is repaired in its turn.
        for _ in 0..400 {
            pair.send(&udp((50_000, 50_001), &[0; 1_000], false));
        }
        let left_at = speak(&mut pair, 100..101)[0];
        let Command::SetLinks(mut left) = links(&[WIFI, CABLE]) else { unreachable!() };
        left.retain(|link| link.addresses != [IpAddr::from(lost)]);
        pair.tell_client(Command::SetLinks(left));
        speak(&mut pair, 101..110);
        pair.run(ms(200));
        for heard in heard(&pair) {
            assert_eq!(heard.len(), 110, "all of it arrives");
            assert!(heard[&100].saturating_since(left_at) <= ms(80));
        }
    }
}

#[test]
fn questions_for_names_go_by_every_path_and_arrive_once() {
    let mut pair = bonded();
    let counts = counted(&mut pair, 200..300);
    let question = [7; 200];
    pair.send(&udp((40_000, 53), &question, false));
    pair.run(ms(100));
    pair.send_back(&udp((53, 40_000), &question, true));
    pair.run(ms(100));
    assert_eq!(counts.borrow().len(), 4, "both ways by both: {:?}", counts.borrow());
    assert!(counts.borrow().values().all(|&count| count == 1), "{:?}", counts.borrow());
    assert_eq!((pair.gateway_inner.len(), pair.client_inner.len()), (1, 1));
}

/// A flow that is wanted early, beside others; returns on how many links it travelled up and down.
fn play(pair: &mut Pair) -> [usize; 2] {
    let counts = counted(pair, 800..900);
    for _ in 0..200 {
        pair.send(&udp((40_000, 27_015), &[7; 800], false));
        pair.send_back(&udp((27_015, 40_000), &[7; 800], true));
        // Much else is sent, with which it shares both links otherwise.
        for _ in 0..15 {
            pair.send(&udp((50_000, 50_001), &[0; 1_000], false));
            pair.send_back(&udp((50_000, 50_001), &[0; 1_000], true));
        }
        pair.run(ms(5));
    }
    pair.run(ms(100));
    let counts = counts.borrow();
    [true, false].map(|up| counts.keys().filter(|&&(_, way)| way == up).count())
}

fn wanted_early(port: u16) -> Early {
    Early::new(&[End { network: Prefix::host(SERVER.into()), port: Some(port) }])
}

#[test]
fn what_is_wanted_early_is_so_both_ways() {
    let mut pair = bonded();
    assert_ne!(play(&mut pair), [1, 1]);
    pair.tell_client(Command::SetEarly(wanted_early(27_015)));
    pair.run(ms(200));
    assert_eq!(play(&mut pair), [1, 1]);
    pair.run(Duration::from_secs(125)); // new keys
    assert_eq!(play(&mut pair), [1, 1]);
}

/// The list was sent after the routes of its epoch. It must not count as sent before those of the
/// next, which another process begins.
#[test]
fn what_a_restarted_client_does_not_want_early_is_not() {
    let mut pair = bonded();
    pair.tell_client(Command::SetEarly(wanted_early(27_015)));
    pair.run(ms(200));
    pair.restart_client();
    pair.tell_client(links(&[WIFI, CABLE]));
    pair.tell_client(Command::SetMode(Mode::Full));
    pair.run(ms(500));
    let [_, down] = play(&mut pair);
    assert_eq!(down, 2);
}

#[test]
fn what_is_carried_is_told_of_with_why_it_goes_where_it_goes() {
    let mut pair = bonded();
    speak(&mut pair, 0..20);
    pair.send(&udp((40_001, 53), &[7; 200], false));
    pair.run(ms(100));
    let told = |pair: &Pair| {
        let page = pair.client.flows(pair.now, None);
        let each = page.flows.into_iter().map(|(_, flow)| (flow.tuple.local.1, flow));
        each.collect::<BTreeMap<_, _>>()
    };
    let flows = told(&pair);
    assert_eq!(flows.keys().copied().collect::<Vec<_>>(), [40_000, 40_001, 50_000, 50_001]);
    let (call, name, bulk) = (&flows[&40_000], &flows[&40_001], &flows[&50_000]);
    assert_eq!((call.class, call.why), (Class::RealTime, Why::Spoken));
    assert!(call.path.is_some());
    assert_eq!((call.sent, call.received), (4_000, 4_000));
    assert_eq!((name.class, name.why, name.path), (Class::Names, Why::Raced, None));
    assert_eq!((bulk.class, bulk.why, bulk.path), (Class::Bulk, Why::InTurn, None));
    assert_eq!((bulk.sent, bulk.received), (100 * 1_028, 0));
    assert_eq!((flows[&50_001].sent, flows[&50_001].received), (0, 100 * 1_028), "the other way");
    let network = Prefix::host(SERVER.into());
    pair.tell_client(Command::SetEarly(Early::new(&[End { network, port: Some(50_001) }])));
    assert_eq!(told(&pair)[&50_000].why, Why::Wanted);
    pair.run(Duration::from_secs(61));
    assert!(told(&pair).is_empty(), "nobody has said anything for a minute");
}

#[test]
fn a_client_with_one_path_tells_of_datagrams_too() {
    let mut pair = bonded();
    pair.tell_client(Command::SetMode(Mode::Backup));
    pair.run(ms(500));
    let told = |node: &rove_proto::node::Node, now| {
        let flows = node.flows(now, None).flows.into_iter();
        flows.map(|(_, flow)| flow).find(|flow| flow.tuple.local.1 == 40_000)
    };
    speak(&mut pair, 0..20);
    pair.run(ms(100));
    let call = told(&pair.client, pair.now).expect("it is observed");
    assert_eq!((call.sent, call.received), (4_000, 4_000));
    assert_eq!((call.class, call.why, call.path), (Class::RealTime, Why::AtOnce, None));
}

#[test]
fn a_client_that_saves_data_neither_sends_nor_gets_copies() {
    // By how many links a question and its answer travel, together.
    let ask = |pair: &mut Pair| {
        let counts = counted(pair, 200..300);
        pair.send(&udp((40_000, 53), &[7; 200], false));
        pair.run(ms(100));
        pair.send_back(&udp((53, 40_000), &[7; 200], true));
        pair.run(ms(100));
        counts.borrow().values().sum::<u32>()
    };
    let saving = |frugal| Command::SetSaving(SavingConfig { frugal, ..SavingConfig::default() });
    let mut pair = bonded();
    assert_eq!(ask(&mut pair), 4);
    pair.tell_client(saving(true));
    pair.run(ms(200));
    assert_eq!(ask(&mut pair), 2);
    // It says so again under new keys.
    pair.run(Duration::from_secs(150));
    speak(&mut pair, 0..50);
    assert!(pair.epochs() > 1, "keys were not due");
    assert_eq!(ask(&mut pair), 2);
    pair.tell_client(saving(false));
    pair.run(ms(200));
    assert_eq!(ask(&mut pair), 4);
}

/// For every call, a rule of the client's.
fn rule(copies: Copies) -> Command {
    let of = Selector { class: Some(Class::RealTime), ..Selector::default() };
    let asks = Asks { copies: Some(copies), ..Asks::default() };
    Command::SetOverrides(Overrides::new(&[Override { of, asks }]))
}

#[test]
fn a_rule_has_every_packet_of_a_call_copied_also_while_data_is_saved() {
    let mut pair = bonded();
    pair.tell_client(Command::SetSaving(SavingConfig { frugal: true, ..SavingConfig::default() }));
    speak(&mut pair, 0..50);
    let before = copied(&pair);
    pair.tell_client(rule(Copies::Always));
    speak(&mut pair, 50..150);
    let after = copied(&pair);
    assert!(after[0] - before[0] >= 100 * 200, "{before:?} {after:?}");
    assert_eq!(after[1], before[1], "the gateway has no such rule");
}

#[test]
fn a_rule_has_no_packet_of_a_call_copied() {
    let mut pair = bonded();
    let mut count = 0u32;
    pair.filter = Box::new(move |_| {
        count += 1;
        !count.wrapping_mul(0x9e37_79b9).rotate_left(8).is_multiple_of(8)
    });
    speak(&mut pair, 0..300);
    let without = copied(&pair);
    assert!(without[0] > 0, "both paths lose packets: {without:?}");
    pair.tell_client(rule(Copies::Never));
    pair.run(ms(500));
    let before = copied(&pair);
    speak(&mut pair, 300..600);
    assert_eq!(copied(&pair)[0], before[0]);
}
