//! Networks that drop UDP and not TCP: a stream is tried and kept if it carries clearly more.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::pair::{GATEWAY, Pair, links, udp};
use rove_proto::crypto::{Rng, SeededRng};
use rove_proto::id::Transport;
use rove_proto::multipath::Mode;
use rove_proto::node::{Command, PathStatus, Remedy, StreamTo};
use rove_proto::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// Inner packets leave this far apart: 10 Mbit/s.
const EVERY: Duration = Duration::from_millis(1);
/// Packets of a second.
const PACKETS: usize = 1_000;
/// Bytes per second and at once that a policer lets by.
const POLICED: (f64, f64) = (125_000.0, 30_000.0);

/// Which way data flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Up,
    Down,
}

/// A token bucket.
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// What a network does.
#[derive(Clone, Copy)]
struct Network {
    /// Bytes per second and at once of UDP, if that is policed,
    udp: Option<(f64, f64)>,
    /// and the same of a stream: TCP over a lossy link collapses.
    stream: Option<(f64, f64)>,
    /// Of a thousand UDP datagrams so many are lost.
    loss: u64,
}

impl Network {
    const FREE: Self = Self { udp: None, stream: None, loss: 0 };
    const POLICED: Self = Self { udp: Some(POLICED), ..Self::FREE };
    const RADIO: Self = Self { stream: Some((60_000.0, 20_000.0)), loss: 100, ..Self::FREE };
}

/// From now on the networks of these links are like this, each way by itself.
fn set(pair: &mut Pair, networks: &[([u8; 4], Network)]) -> Rc<RefCell<usize>> {
    let networks = networks.to_vec();
    let (mut buckets, mut rng) = (BTreeMap::<_, Bucket>::new(), SeededRng::new(3));
    let udp_bytes = Rc::new(RefCell::new(0));
    let counted = Rc::clone(&udp_bytes);
    pair.filter = Box::new(move |datagram| {
        let outwards = datagram.to == GATEWAY.parse().unwrap();
        let inside = if outwards { datagram.from } else { datagram.to };
        let there =
            networks.iter().find(|(address, _)| inside.ip() == std::net::IpAddr::from(*address));
        let Some((address, network)) = there else { return true };
        let is_udp = datagram.is_udp();
        *counted.borrow_mut() += if is_udp { datagram.bytes.len() } else { 0 };
        let mut random = [0; 8];
        rng.fill(&mut random);
        if is_udp && u64::from_be_bytes(random) % 1_000 < network.loss {
            return false;
        }
        let Some((rate, burst)) = (if is_udp { network.udp } else { network.stream }) else {
            return true;
        };
        let full = Bucket { tokens: burst, at: datagram.at };
        let bucket = buckets.entry((*address, outwards, is_udp)).or_insert(full);
        let passed = datagram.at.saturating_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * rate).min(burst);
        bucket.at = bucket.at.max(datagram.at);
        let bytes = (datagram.bytes.len() + 28) as f64;
        let passes = bytes <= bucket.tokens;
        bucket.tokens -= if passes { bytes } else { 0.0 };
        passes
    });
    udp_bytes
}

const FIRST: [u8; 4] = [203, 0, 113, 5];
const OTHER: [u8; 4] = [203, 0, 113, 77];

fn up(mode: Mode, addresses: &[[u8; 4]], streams: bool) -> Pair {
    let mut pair = Pair::new(None);
    pair.admit_client();
    pair.tell_client(links(addresses));
    pair.tell_client(Command::SetMode(mode));
    let stream = StreamTo { remote: GATEWAY.parse().unwrap(), method: 3 };
    let streams = if streams { vec![stream] } else { vec![] };
    pair.tell_client(Command::SetStreams { peer: pair.gateway_key, streams, alone: false });
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(SECOND * 2);
    pair
}

/// Data for so many seconds. Returns the part of it that arrived in each.
fn carry(pair: &mut Pair, way: Way, seconds: usize) -> Vec<f64> {
    let packet = udp((40_000, 40_001), &[7; 1_222], way == Way::Down);
    let mut parts = Vec::new();
    for _ in 0..seconds {
        let before = pair.gateway_inner.len() + pair.client_inner.len();
        for _ in 0..PACKETS {
            match way {
                Way::Up => pair.send(&packet),
                Way::Down => pair.send_back(&packet),
            }
            pair.run(EVERY);
        }
        let came = pair.gateway_inner.len() + pair.client_inner.len() - before;
        parts.push(came as f64 / PACKETS as f64);
        pair.gateway_inner.clear();
        pair.client_inner.clear();
    }
    parts
}

fn in_use(pair: &Pair) -> Vec<(Transport, [u8; 4])> {
    let status = pair.client.status(pair.gateway_key).unwrap();
    let carries = |path: &&PathStatus| path.in_use || path.is_shared;
    let told = |path: &PathStatus| {
        let by = path.route.local.filter(|local| *local == std::net::IpAddr::from(OTHER));
        (path.route.socket.transport(), by.map_or(FIRST, |_| OTHER))
    };
    status.paths.iter().filter(carries).map(told).collect()
}

fn remedies(pair: &Pair) -> Vec<Remedy> {
    let policed = pair.client.status(pair.gateway_key).unwrap().policed;
    policed.iter().filter(|one| one.lasts(pair.now)).map(|one| one.remedy).collect()
}

fn mean(parts: &[f64]) -> f64 {
    parts.iter().sum::<f64>() / parts.len() as f64
}

const WAYS: [Way; 2] = [Way::Up, Way::Down];

#[test]
fn where_udp_is_policed_a_stream_carries_within_ten_seconds() {
    for way in WAYS {
        let mut pair = up(Mode::Full, &[FIRST], true);
        set(&mut pair, &[(FIRST, Network::POLICED)]);
        let parts = carry(&mut pair, way, 14);
        assert!(mean(&parts[10..]) >= 0.98, "{way:?}: {parts:.2?}");
        assert_eq!(in_use(&pair), [(Transport::Stream, FIRST)], "{way:?}");
        assert_eq!(remedies(&pair), [Remedy::Stream]);
    }
}

#[test]
fn two_policed_links_have_a_trial_each() {
    for way in WAYS {
        let mut pair = up(Mode::Full, &[FIRST, OTHER], true);
        let half = Network { stream: Some((700_000.0, 30_000.0)), ..Network::POLICED };
        set(&mut pair, &[(FIRST, half), (OTHER, half)]);
        let parts = carry(&mut pair, way, 24);
        let mut by = in_use(&pair);
        by.sort_by_key(|(_, local)| *local);
        let streams = [FIRST, OTHER].map(|local| (Transport::Stream, local));
        assert_eq!(by, streams, "{way:?}: {parts:.2?}");
        assert!(mean(&parts[18..]) >= 0.9, "{way:?}: {parts:.2?}");
    }
}

#[test]
fn a_stream_that_carries_less_is_left_and_seldom_tried() {
    for way in WAYS {
        let mut pair = up(Mode::Full, &[FIRST], true);
        let slow = Some((60_000.0, 20_000.0));
        set(&mut pair, &[(FIRST, Network { stream: slow, ..Network::POLICED })]);
        let parts = carry(&mut pair, way, 60);
        // What is policed carries a tenth.
        assert!(mean(&parts[2..]) >= 0.085, "{way:?}: {parts:.2?}");
        assert_eq!(in_use(&pair), [(Transport::Udp, FIRST)], "{way:?}");
        assert_eq!(remedies(&pair), [Remedy::InVain]);
    }
}

#[test]
fn random_loss_begins_no_trial() {
    for way in WAYS {
        let mut pair = up(Mode::Full, &[FIRST], true);
        set(&mut pair, &[(FIRST, Network::RADIO)]);
        let parts = carry(&mut pair, way, 50);
        assert!(mean(&parts) >= 0.85, "{way:?}: {parts:.2?}");
        assert_eq!(in_use(&pair), [(Transport::Udp, FIRST)], "{way:?}");
        assert_eq!(remedies(&pair), []);
    }
}

#[test]
fn a_link_beside_goes_on_as_before() {
    for way in WAYS {
        let mut pair = up(Mode::Full, &[FIRST, OTHER], true);
        // It loses what is too much for it, whatever carries that.
        let most = Some((600_000.0, 100_000.0));
        let other = Network { udp: most, stream: most, ..Network::FREE };
        set(&mut pair, &[(FIRST, Network::POLICED), (OTHER, other)]);
        let parts = carry(&mut pair, way, 24);
        assert!(mean(&parts[18..]) >= 0.95, "{way:?}: {parts:.2?}");
        assert!(in_use(&pair).contains(&(Transport::Stream, FIRST)), "{way:?}");
    }
}

#[test]
fn without_a_stream_udp_stays_and_the_status_says_so() {
    let mut pair = up(Mode::Full, &[FIRST], false);
    set(&mut pair, &[(FIRST, Network::POLICED)]);
    carry(&mut pair, Way::Down, 8);
    assert_eq!(in_use(&pair), [(Transport::Udp, FIRST)]);
    assert_eq!(remedies(&pair), [Remedy::None]);
    set(&mut pair, &[(FIRST, Network::FREE)]);
    carry(&mut pair, Way::Down, 70);
    assert_eq!(remedies(&pair), [], "it is over");
}

#[test]
fn udp_is_asked_again_without_harm_and_taken_when_it_is_free() {
    let mut pair = up(Mode::Full, &[FIRST], true);
    let udp_bytes = set(&mut pair, &[(FIRST, Network::POLICED)]);
    carry(&mut pair, Way::Down, 12);
    *udp_bytes.borrow_mut() = 0;
    let parts = carry(&mut pair, Way::Down, 70);
    let least = parts.iter().copied().fold(1.0, f64::min);
    assert!(least >= 0.95, "{parts:.2?}");
    let asked = *udp_bytes.borrow();
    assert!((100_000..400_000).contains(&asked), "{asked} bytes");
    assert_eq!(in_use(&pair), [(Transport::Stream, FIRST)]);
    set(&mut pair, &[(FIRST, Network::FREE)]);
    let parts = carry(&mut pair, Way::Down, 130);
    assert!(mean(&parts) >= 0.99, "{parts:.2?}");
    assert_eq!(in_use(&pair), [(Transport::Udp, FIRST)]);
    assert_eq!(remedies(&pair), []);
}

#[test]
fn another_network_begins_anew() {
    let mut pair = up(Mode::Full, &[FIRST], true);
    set(&mut pair, &[(FIRST, Network::POLICED)]);
    carry(&mut pair, Way::Up, 12);
    assert_eq!(in_use(&pair), [(Transport::Stream, FIRST)]);
    pair.tell_client(links(&[[203, 0, 113, 77]]));
    carry(&mut pair, Way::Up, 4);
    assert_eq!(in_use(&pair).first().unwrap().0, Transport::Udp);
    assert_eq!(remedies(&pair), []);
}
