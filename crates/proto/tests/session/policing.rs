//! Networks that drop UDP beyond a rate: the client is told of it, whichever end notices.

use std::collections::BTreeMap;

use crate::pair::{GATEWAY, Pair, links, udp};
use rove_proto::crypto::{Rng, SeededRng};
use rove_proto::multipath::Mode;
use rove_proto::node::Command;
use rove_proto::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// Inner packets leave this far apart: 10 Mbit/s.
const EVERY: Duration = Duration::from_millis(1);
/// Packets of a second.
const PACKETS: usize = 1_000;
/// Bytes per second and at once that the policer lets by.
const POLICER: (f64, f64) = (125_000.0, 30_000.0);
const WAYS: [Way; 2] = [Way::Up, Way::Down];
const FIRST: [u8; 4] = [203, 0, 113, 5];
const OTHER: [u8; 4] = [203, 0, 113, 77];

/// Which way data flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Up,
    Down,
}

/// What a network does with UDP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Network {
    Free,
    Polices,
    /// It loses a tenth at random.
    Radio,
}

/// From now on the network is like this, each way by itself.
fn set(pair: &mut Pair, network: Network) {
    let (mut buckets, mut rng) = (BTreeMap::<_, (f64, Instant)>::new(), SeededRng::new(3));
    let (rate, burst) = POLICER;
    pair.filter = Box::new(move |datagram| {
        let mut random = [0; 8];
        rng.fill(&mut random);
        if network == Network::Radio && u64::from_be_bytes(random).is_multiple_of(10) {
            return false;
        }
        if network != Network::Polices {
            return true;
        }
        let outwards = datagram.to == GATEWAY.parse().unwrap();
        let (tokens, at) = buckets.entry(outwards).or_insert((burst, datagram.at));
        let passed = datagram.at.saturating_since(*at).as_secs_f64();
        (*tokens, *at) = ((*tokens + passed * rate).min(burst), datagram.at.max(*at));
        let bytes = (datagram.bytes.len() + 28) as f64;
        let passes = bytes <= *tokens;
        *tokens -= if passes { bytes } else { 0.0 };
        passes
    });
}

fn up() -> Pair {
    let mut pair = Pair::new(None);
    pair.admit_client();
    pair.tell_client(links(&[FIRST]));
    pair.tell_client(Command::SetMode(Mode::Full));
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

/// What passes, in kilobits per second, on each link that is said to police UDP.
fn policed(pair: &Pair) -> Vec<u32> {
    let policed = pair.client.status(pair.gateway_key).unwrap().policed;
    policed.iter().filter(|one| one.lasts(pair.now)).map(|one| one.kbps).collect()
}

#[test]
fn a_client_is_told_of_a_policer_in_either_direction_until_it_is_gone() {
    for way in WAYS {
        let mut pair = up();
        set(&mut pair, Network::Polices);
        carry(&mut pair, way, 8);
        let told = policed(&pair);
        assert!(matches!(told[..], [900..=1_100]), "{way:?}: {told:?}");
        set(&mut pair, Network::Free);
        carry(&mut pair, way, 70);
        assert_eq!(policed(&pair), [], "{way:?}: it is over");
    }
}

#[test]
fn random_loss_is_no_policer() {
    for way in WAYS {
        let mut pair = up();
        set(&mut pair, Network::Radio);
        let parts = carry(&mut pair, way, 50);
        assert!(parts.iter().sum::<f64>() >= 0.85 * 50.0, "{way:?}: {parts:.2?}");
        assert_eq!(policed(&pair), []);
    }
}

#[test]
fn a_link_with_another_address_is_another_link() {
    let mut pair = up();
    set(&mut pair, Network::Polices);
    carry(&mut pair, Way::Up, 8);
    assert_eq!(policed(&pair).len(), 1);
    pair.tell_client(links(&[OTHER]));
    carry(&mut pair, Way::Up, 2);
    assert_eq!(policed(&pair), []);
}
