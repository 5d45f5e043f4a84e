//! Hosts that mangle segmented sends: both ends find out, send in another way, and say so.

use std::cell::Cell;
use std::net::IpAddr;

use rove_proto::node::{Command, PathStatus};
use rove_proto::outbox::Sending;
use rove_proto::time::Duration;

use crate::pair::{Mangled, Pair, links, udp};

/// Packets of one burst, and the time between two: 18 Mbit/s.
const BURST: usize = 8;
const EVERY: Duration = Duration::from_millis(4);
/// Bursts of two seconds.
const SOON: u32 = 500;
/// The client's.
const LINKS: [[u8; 4]; 2] = [[203, 0, 113, 5], [192, 0, 2, 130]];

/// The path by which the client sends, or the gateway.
fn path(pair: &Pair, is_gateways: bool) -> PathStatus {
    let (node, peer) = match is_gateways {
        true => (&pair.gateway, pair.client_key),
        false => (&pair.client, pair.gateway_key),
    };
    node.status(peer).unwrap().paths[0].clone()
}

fn sends(pair: &Pair, is_gateways: bool) -> Option<Sending> {
    path(pair, is_gateways).fallback.map(|(sending, _)| sending)
}

/// Sends so many bursts, each with a single packet behind it as those of TCP and QUIC have;
/// returns the part of all packets that arrived.
fn bursts(pair: &mut Pair, count: u32, back: bool) -> f64 {
    let inner = |pair: &mut Pair| match back {
        true => std::mem::take(&mut pair.client_inner).len(),
        false => std::mem::take(&mut pair.gateway_inner).len(),
    };
    inner(pair);
    for _ in 0..count {
        for count in [BURST, 1] {
            pair.burst(&udp((40_000, 40_001), &[7; 1_000], back), count, back);
            pair.run(EVERY / 2);
        }
    }
    pair.run(Duration::from_millis(100));
    inner(pair) as f64 / (count as usize * (BURST + 1)) as f64
}

#[test]
fn sound_offload_is_left_alone() {
    let mut pair = Pair::up();
    for back in [false, true] {
        assert!(bursts(&mut pair, SOON, back) > 0.999);
        assert_eq!(sends(&pair, back), None);
    }
    assert!(pair.segmented >= 2 * SOON, "{} of the bursts", pair.segmented);
}

#[test]
fn full_last_segments_that_are_mangled_are_avoided() {
    for mangled in [Mangled::EqualRuns, Mangled::FullLast] {
        for back in [false, true] {
            let mut pair = Pair::up();
            pair.mangled = Some(mangled);
            let began = pair.now;
            bursts(&mut pair, SOON, back);
            let (sending, since) = path(&pair, back).fallback.expect("noticed");
            assert_eq!(sending, Sending::ShortLast, "{mangled:?}, {back}");
            assert!(since.saturating_since(began) < Duration::from_secs(2), "{mangled:?}, {back}");
            assert!(bursts(&mut pair, SOON, back) > 0.999, "{mangled:?}, {back}");
            assert_eq!(sends(&pair, !back), None, "the other end sends no bursts");
        }
    }
}

#[test]
fn where_any_segmented_send_may_be_lost_none_is_sent() {
    for every in [1, 5] {
        for back in [false, true] {
            let mut pair = Pair::up();
            pair.mangled = Some(Mangled::EveryNth(every));
            bursts(&mut pair, 6 * SOON, back);
            assert_eq!(sends(&pair, back), Some(Sending::Single), "{every}, {back}");
            let before = pair.segmented;
            assert!(bursts(&mut pair, SOON, back) > 0.999, "{every}, {back}");
            assert_eq!(pair.segmented, before, "{every}, {back}");
        }
    }
}

/// The client's first link mangles, then the client goes to its second.
#[test]
fn a_link_that_does_not_mangle_is_sent_on_as_ever() {
    let mut pair = Pair::up();
    pair.tell_client(links(&LINKS));
    pair.run(Duration::from_secs(1));
    pair.mangled = Some(Mangled::EqualRuns);
    pair.mangled_from = Some(LINKS[0].into());
    let fallen_back = |pair: &Pair| -> Vec<_> {
        let paths = pair.client.status(pair.gateway_key).unwrap().paths;
        let fallen_back = paths.iter().filter(|path| path.fallback.is_some());
        fallen_back.filter_map(|path| path.route.local).collect()
    };
    bursts(&mut pair, SOON, false);
    assert_eq!(fallen_back(&pair), [IpAddr::from(LINKS[0])]);
    let Command::SetLinks(mut order) = links(&LINKS) else { unreachable!() };
    order.reverse();
    pair.tell_client(Command::SetLinks(order));
    assert!(bursts(&mut pair, SOON, false) > 0.999);
    assert_eq!(fallen_back(&pair), [IpAddr::from(LINKS[0])]);
}

/// A policer lets through so many bytes, and drops what else a burst has; and beside it each
/// twentieth datagram is lost.
#[test]
fn what_a_network_loses_is_not_put_down_to_offload() {
    for (room, each) in [(5, usize::MAX), (BURST, 20), (6, 20)] {
        for back in [false, true] {
            let mut pair = Pair::up();
            let (at, left, count) = (Cell::new(pair.now), Cell::new(room), Cell::new(0));
            pair.filter = Box::new(move |datagram| {
                if datagram.bytes.len() < 1_000 {
                    return true;
                }
                if at.replace(datagram.at) != datagram.at {
                    left.set(room);
                }
                count.set(count.get() + 1);
                let has_room = left.get() > 0;
                left.set(left.get().saturating_sub(1));
                has_room && count.get() % each != 0
            });
            let part = bursts(&mut pair, 8 * SOON, back);
            assert!(part < 0.97, "{part} arrived");
            assert_eq!(sends(&pair, back), None, "{room}, {each}, {back}");
        }
    }
}
