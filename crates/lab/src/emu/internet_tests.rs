//! Whole networks: routes, NAT boxes on the way, order, and the same again from the same seed.

use super::super::frame::Datagram;
use super::super::nat::NatKind;
use super::super::pipe::{PipeConfig, Rate, Reorder};
use super::super::{Loss, MS, SECOND};
use super::*;

const HOME: &str = "10.0.0.2:4000";
const SERVER: &str = "192.0.2.2:51820";

fn datagram(source: &str, destination: &str, mark: u32) -> Datagram {
    let payload = mark.to_be_bytes().to_vec();
    Datagram { source: source.parse().unwrap(), destination: destination.parse().unwrap(), payload }
}

fn prefix(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// client -- home router with NAT -- core -- server
struct World {
    internet: Internet<Datagram>,
    client: NodeId,
    server: NodeId,
    nat: NodeId,
    access: LinkId,
    hosting: LinkId,
}

fn world(config: LinkConfig, seed: u64) -> World {
    let mut internet = Internet::new(seed);
    let (client, server, core) = (internet.host(), internet.host(), internet.router());
    let outside = vec!["203.0.113.9".parse().unwrap()];
    let nat = internet.nat(NatConfig::new(NatKind::PortRestricted, outside));
    let uplink = internet.connect(nat, core, LinkConfig::ideal());
    let access = internet.connect(client, nat, config);
    let hosting = internet.connect(server, core, LinkConfig::lossless(1_000_000_000, 2 * MS));
    internet.route(nat, prefix("10.0.0.0/24"), access);
    internet.route(core, prefix("203.0.113.9/32"), uplink);
    internet.route(core, prefix("192.0.2.0/24"), hosting);
    World { internet, client, server, nat, access, hosting }
}

fn drain(internet: &mut Internet<Datagram>, until_ns: u64) -> Vec<Delivery<Datagram>> {
    let mut all = Vec::new();
    while let Some(next_ns) = internet.poll_timeout().filter(|next| *next <= until_ns) {
        while let Some(delivery) = internet.poll_delivery(next_ns) {
            all.push(delivery);
        }
        assert!(internet.poll_timeout().is_none_or(|later| later > next_ns), "the law");
    }
    all
}

#[test]
fn a_request_and_its_answer_cross_a_nat_box_both_ways() {
    let mut w = world(LinkConfig::lossless(8_000_000, 40 * MS), 1);
    w.internet.push(0, w.client, w.access, datagram(HOME, SERVER, 1));
    let there = drain(&mut w.internet, SECOND);
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].host, w.server);
    assert_eq!(there[0].frame.source, "203.0.113.9:4000".parse().unwrap());
    // 32 bytes at 8 Mbit/s and 20 ms, then 1 ms and 256 ns to the server.
    assert_eq!(there[0].at_ns, 20 * MS + 32_000 + MS + 256);

    let answer = datagram(SERVER, "203.0.113.9:4000", 2);
    w.internet.push(50 * MS, w.server, w.hosting, answer);
    let back = drain(&mut w.internet, SECOND);
    assert_eq!((back[0].host, back[0].link), (w.client, w.access));
    assert_eq!(back[0].frame.destination, HOME.parse().unwrap());

    w.internet.rebind_nat(w.nat);
    w.internet.push(90 * MS, w.server, w.hosting, datagram(SERVER, "203.0.113.9:4000", 3));
    assert_eq!(drain(&mut w.internet, SECOND), [], "the old port is closed");
    assert_eq!(w.internet.drops().nat, 1);
}

#[test]
fn the_longest_prefix_wins_and_an_unknown_address_is_counted() {
    let mut internet = Internet::new(1);
    let (a, b, c, core) = (internet.host(), internet.host(), internet.host(), internet.router());
    let from = internet.connect(a, core, LinkConfig::ideal());
    let wide = internet.connect(b, core, LinkConfig::ideal());
    let narrow = internet.connect(c, core, LinkConfig::ideal());
    internet.route(core, prefix("198.51.0.0/16"), wide);
    internet.route(core, prefix("198.51.100.0/24"), narrow);
    let sent = [("198.51.1.1:1", b), ("198.51.100.1:1", c)];
    for (to, host) in sent {
        internet.push(0, a, from, datagram(HOME, to, 0));
        assert_eq!(drain(&mut internet, 0)[0].host, host);
    }
    internet.route(core, prefix("198.51.100.0/24"), wide);
    internet.push(0, a, from, datagram(HOME, "198.51.100.1:1", 0));
    assert_eq!(drain(&mut internet, 0)[0].host, b);
    for nowhere in ["8.8.8.8:53", "[2001:db8::1]:53"] {
        internet.push(0, a, from, datagram(HOME, nowhere, 0));
    }
    internet.push(0, a, from, datagram(HOME, "224.0.0.1:53", 0));
    assert_eq!(drain(&mut internet, SECOND), []);
    assert_eq!(internet.drops(), DropCounts { no_route: 2, unroutable: 1, ..Default::default() });
}

#[test]
fn a_middlebox_drops_silently_both_ways_until_it_is_gone() {
    let mut w = world(LinkConfig::lossless(8_000_000, 40 * MS), 1);
    w.internet.push(0, w.client, w.access, datagram(HOME, SERVER, 1));
    w.internet.set_filter(w.access, Some(Filter::NoUdp));
    w.internet.push(0, w.client, w.access, datagram(HOME, SERVER, 2));
    let there = drain(&mut w.internet, SECOND);
    assert_eq!(there.len(), 1, "what was on its way has passed");
    w.internet.push(SECOND, w.server, w.hosting, datagram(SERVER, "203.0.113.9:4000", 3));
    assert_eq!(drain(&mut w.internet, 2 * SECOND), []);
    assert_eq!(w.internet.drops(), DropCounts { filtered: 2, ..Default::default() });
    w.internet.set_filter(w.access, None);
    w.internet.push(2 * SECOND, w.server, w.hosting, datagram(SERVER, "203.0.113.9:4000", 4));
    assert_eq!(drain(&mut w.internet, 3 * SECOND).len(), 1);
}

#[test]
fn a_loop_of_routers_ends() {
    let mut internet = Internet::new(1);
    let (host, left, right) = (internet.host(), internet.router(), internet.router());
    let from = internet.connect(host, left, LinkConfig::ideal());
    let between = internet.connect(left, right, LinkConfig::ideal());
    internet.route(left, prefix("0.0.0.0/0"), between);
    internet.route(right, prefix("0.0.0.0/0"), between);
    internet.push(0, host, from, datagram(HOME, SERVER, 0));
    assert_eq!(drain(&mut internet, SECOND), []);
    assert_eq!(internet.drops().loops, 1);
}

/// A link on which everything that can happen does.
fn messy() -> LinkConfig {
    let pipe = PipeConfig {
        rate: Rate::BitsPerSecond(3_000_000),
        queue_bytes: 4_000,
        delay_ns: 7 * MS,
        jitter_ns: 9 * MS,
        loss: Loss::bursts(0.05, 3.0),
        bit_errors: super::super::BitErrors::Delivered(1e-4),
        duplicate: 0.05,
        reorder: Reorder { probability: 0.1, hold_ns: 20 * MS },
        udp: None,
    };
    LinkConfig { up: pipe.clone(), down: pipe }
}

fn messy_history(seed: u64) -> Vec<Delivery<Datagram>> {
    let mut w = world(messy(), seed);
    let mut all = Vec::new();
    for n in 0..2_000u32 {
        let now_ns = u64::from(n) * MS / 7;
        all.extend(drain(&mut w.internet, now_ns));
        w.internet.push(now_ns, w.client, w.access, datagram(HOME, SERVER, n));
    }
    all.extend(drain(&mut w.internet, u64::MAX));
    all
}

#[test]
fn the_same_seed_tells_the_same_story_and_another_another() {
    assert_eq!(messy_history(42), messy_history(42));
    assert_ne!(messy_history(42), messy_history(43));
}

#[test]
fn deliveries_come_in_the_order_of_their_times() {
    let history = messy_history(42);
    assert!(history.len() > 500);
    assert!(history.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
}

proptest::proptest! {
    /// Nothing is lost or made without being counted, whatever happens to the link.
    #[test]
    fn every_packet_is_accounted_for(
        seed in proptest::num::u64::ANY,
        events in proptest::collection::vec((0u64..5 * MS, 0u8..12, 28usize..1500), 1..300),
    ) {
        let mut w = world(messy(), seed);
        let mut now_ns = 0;
        for (step_ns, what, bytes) in events {
            now_ns += step_ns;
            drain(&mut w.internet, now_ns);
            match what {
                0 => w.internet.set_link(now_ns, w.access, Carrier::Down),
                1 => w.internet.set_link(now_ns, w.access, Carrier::BlackHole),
                2 | 3 => w.internet.set_link(now_ns, w.access, Carrier::Up),
                4 => {
                    let config = PipeConfig::clean(bytes as u64 * 10_000, step_ns);
                    w.internet.set_config(now_ns, w.access, End::A, config);
                }
                _ => {
                    let mut packet = datagram(HOME, SERVER, 0);
                    packet.payload.resize(bytes - 28, 0);
                    w.internet.push(now_ns, w.client, w.access, packet);
                }
            }
        }
        drain(&mut w.internet, u64::MAX);
        let stats = w.internet.stats(w.access, End::A);
        // Damaged packets are delivered on this link.
        let gone = stats.dropped_queue + stats.lost + stats.dropped_down + stats.swallowed;
        proptest::prop_assert_eq!(stats.pushed + stats.duplicated, stats.delivered + gone);
        proptest::prop_assert_eq!(w.internet.queued_bytes(w.access, End::A), 0);
    }
}
