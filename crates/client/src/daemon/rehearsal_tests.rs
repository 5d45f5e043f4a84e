//! What a connection felt, and how a rehearsal ends.

use super::*;

use rove_host::samples::{path, peer, report};
use rove_proto::node::PeerState;
use rove_proto::path::Health;

use crate::config::{LinkTerms, LinkUse};
use crate::ranking::Standing;

const MS: Duration = Duration::from_millis(1);

/// A connection that has got as far as this.
fn flow(sent: u32, received: u32) -> FlowReport {
    FlowReport { sent, received, ..report(4_000) }
}

/// A watch that sees one, and when that began.
fn watching(first: &FlowReport) -> (Watch, Instant) {
    let begun = Instant::now();
    let mut watch = Watch::new(begun);
    watch.see(begun, std::slice::from_ref(first), true);
    (watch, begun)
}

fn only(watch: &Watch) -> (&Watched, [Felt; 3]) {
    let watched = watch.flows.values().next().unwrap();
    (watched, watched.felt)
}

fn felt(sent: u64, received: u64, pause: Duration) -> Felt {
    Felt { is_known: true, sent, received, pause }
}

#[test]
fn a_pause_belongs_to_the_stage_in_which_it_was_felt() {
    let (mut watch, begun) = watching(&flow(u32::MAX, 7));
    watch.see(begun + 10 * MS, &[flow(99, 7)], true);
    watch.see(begun + 20 * MS, &[flow(99, 7)], true);
    watch.see(begun + 30 * MS, &[flow(98, 8)], true);
    watch.turn(begun + 35 * MS, Stage::Without);
    watch.see(begun + 95 * MS, &[flow(98, 1_008)], true);
    let (_, [before, without, after]) = only(&watch);
    assert_eq!(before, felt(100, 1, 20 * MS));
    assert_eq!(without, felt(0, 1_000, 60 * MS));
    assert_eq!(after, Felt::default());
}

#[test]
fn who_stands_still_all_the_time_has_a_pause_as_long() {
    let (mut watch, begun) = watching(&flow(5, 7));
    watch.turn(begun + 30 * MS, Stage::Without);
    watch.turn(begun + 90 * MS, Stage::After);
    let (_, [before, without, after]) = only(&watch);
    assert_eq!([before, without], [felt(0, 0, 30 * MS), felt(0, 0, 60 * MS)]);
    assert_eq!(after, felt(0, 0, Duration::ZERO));
}

#[test]
fn who_has_ended_pauses_no_more() {
    let closed = FlowReport { stage: FlowStage::Closed, ..flow(900, 7) };
    for gone in [[].as_slice(), &[closed]] {
        let (mut watch, begun) = watching(&flow(5, 7));
        watch.turn(begun + 10 * MS, Stage::Without);
        watch.see(begun + 20 * MS, &[flow(900, 7)], true);
        watch.see(begun + 50 * MS, gone, true);
        watch.see(begun + 60 * MS, gone, true);
        watch.turn(begun + 900 * MS, Stage::After);
        watch.turn(begun + 950 * MS, Stage::Over);
        let (watched, [_, without, after]) = only(&watch);
        assert!(!watched.is_open);
        assert_eq!((without, after), (felt(895, 0, 30 * MS), Felt::default()));
    }
}

#[test]
fn another_connection_between_the_same_ends_begins_anew() {
    let (mut watch, begun) = watching(&flow(5, 7));
    watch.see(begun + 10 * MS, &[], true);
    watch.see(begun + 500 * MS, &[flow(70_000, 90_000)], true);
    watch.see(begun + 510 * MS, &[flow(70_001, 90_000)], true);
    let (watched, [before, ..]) = only(&watch);
    assert!(watched.is_open);
    assert_eq!(before, felt(1, 0, 10 * MS));
    // Who did not see all of them does not know that one is gone.
    watch.see(begun + 520 * MS, &[], false);
    assert!(only(&watch).0.is_open);
}

#[test]
fn of_datagrams_only_those_that_come_are_a_sign() {
    let datagrams = |sent, received| {
        let of_tcp = flow(sent, received);
        let tuple = Tuple { protocol: rove_proto::wire::inner::UDP, ..of_tcp.tuple };
        FlowReport { tuple, ..of_tcp }
    };
    let (mut watch, begun) = watching(&datagrams(0, 0));
    for step in 1..=10 {
        watch.see(begun + step * 10 * MS, &[datagrams(step * 200, 200)], true);
    }
    watch.see(begun + 110 * MS, &[datagrams(2_200, 400)], true);
    assert_eq!(only(&watch).1[0], felt(2_200, 400, 100 * MS));
}

#[test]
fn it_goes_through_its_stages_and_ends() {
    let begun = Instant::now();
    let mut rehearsal = Rehearsal::new(begun, "eth1", Duration::from_secs(10));
    assert_eq!((rehearsal.unplugged(), rehearsal.due()), (None, Some(begun)));
    assert!(!rehearsal.turn(begun + MS));
    let cut = begun + BESIDE;
    assert!(rehearsal.turn(cut));
    assert_eq!(rehearsal.unplugged(), Some("eth1"));
    let back = cut + Duration::from_secs(10);
    assert!(!rehearsal.turn(back - MS) && rehearsal.turn(back));
    assert_eq!(rehearsal.unplugged(), None);
    assert!(rehearsal.doing().is_some() && rehearsal.turn(back + BESIDE));
    assert_eq!((rehearsal.doing(), rehearsal.due()), (None, None));
    assert!(rehearsal.report().over);
}

#[test]
fn it_ends_soon_after_whoever_began_it_has_gone() {
    let begun = Instant::now();
    let mut rehearsal = Rehearsal::new(begun, "eth1", Duration::from_secs(600));
    let cut = begun + BESIDE;
    let asked_until = begun + Duration::from_secs(5);
    let mut now = begun;
    while !rehearsal.forsake(now) {
        if now <= asked_until {
            rehearsal.unasked = Duration::ZERO;
        }
        rehearsal.turn(now);
        assert_eq!(rehearsal.unplugged().is_some(), now >= cut);
        now += LOOK_EVERY;
    }
    assert_eq!(now, asked_until + UNASKED_MAX, "it takes ten minutes otherwise");
    assert_eq!((rehearsal.unplugged(), rehearsal.due()), (None, None));
    assert!(!rehearsal.forsake(now + BESIDE), "once is enough");
    let report = rehearsal.report();
    assert_eq!((report.over, report.forsaken, report.without_ms), (true, true, 4_000));
}

#[test]
fn while_this_thread_was_busy_nobody_could_ask() {
    let begun = Instant::now();
    let mut rehearsal = Rehearsal::new(begun, "eth1", Duration::from_secs(600));
    assert!(!rehearsal.forsake(begun + Duration::from_secs(30)));
    assert!(rehearsal.unasked <= UNASKED_STEP);
}

#[test]
fn something_else_carries_only_if_that_is_proven() {
    let link = |index: u32, address: &str| Ranked {
        link: Link {
            index,
            name: format!("eth{index}"),
            kind: rove_os::links::LinkKind::Ethernet,
            up: true,
            carrier: true,
            carrier_ups: 0,
            dormant: false,
            mtu: 1_500,
            addresses: vec![address.parse().unwrap()],
            deprecated: false,
            default_v4: Some(100),
            default_v6: None,
            routes: Vec::new(),
            attached: Vec::new(),
        },
        standing: Standing::Sound,
        signal: None,
        terms: LinkTerms::default(),
        usage: LinkUse::Always,
        is_going: false,
    };
    let links = [link(1, "192.0.2.1/24"), link(2, "198.51.100.1/24")];
    let by = |index: u32, health| {
        let link = Some(rove_proto::id::LinkId(index));
        rove_proto::node::PathStatus { link, ..path(health, Some(5), None) }
    };
    let none = BTreeMap::new();
    let carry = |paths: Vec<_>, streams| {
        let session = peer(PeerState::Up, paths);
        links.each_ref().map(|it| carry_without(&it.link, &links, &session, streams))
    };
    let silent = Health::Silent { since: rove_host::samples::NOW };
    assert_eq!(carry(vec![], &none), [false, false]);
    assert_eq!(carry(vec![by(1, Health::Good)], &none), [false, true]);
    assert_eq!(carry(vec![by(1, Health::Good), by(2, silent)], &none), [false, true]);
    assert_eq!(carry(vec![by(1, Health::Good), by(2, Health::Good)], &none), [true, true]);
    assert_eq!(carry(vec![by(7, Health::Good)], &none), [false, false], "none of these");
    let subflow = |local: &str| rove_os::stream::Subflow {
        local: local.parse().unwrap(),
        remote: "203.0.113.1:443".parse().unwrap(),
        tx_bytes: 0,
        rx_bytes: 0,
        rtt: MS,
    };
    let subflows = vec![subflow("192.0.2.1:5000"), subflow("198.51.100.1:5000")];
    let carried = Carried { transport: "mptcp", subflows };
    let streams = BTreeMap::from([(SocketId(0), carried)]);
    assert_eq!(carry(vec![by(1, Health::Good)], &streams), [true, true]);
}
