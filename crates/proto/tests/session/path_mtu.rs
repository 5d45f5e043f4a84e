//! What a path's largest datagram does to packets: none is cut that would have fitted, also when
//! loss makes the path look smaller than it is, and also when it has far less room than is offered.

use std::cell::Cell;
use std::rc::Rc;

use crate::pair::{self, Datagram, Pair, bulk, packet};
use rove_proto::node::{Command, PeerState};
use rove_proto::time::{Duration, Instant};

/// A pair between which packets of 1,400 bytes travel whole.
fn wide() -> Pair {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(1));
    assert_eq!(mtu(&pair), 1_452);
    pair
}

fn mtu(pair: &Pair) -> usize {
    pair.client.status(pair.gateway_key).expect("a known peer").paths[0].mtu
}

/// Sends large packets and small ones for a second, over a path that loses what `lost` says;
/// returns how many halves of a large packet were sent.
fn pieces(pair: &mut Pair, mut lost: impl FnMut(&Datagram) -> bool + 'static) -> usize {
    let halves = Rc::new(Cell::new(0));
    let counted = halves.clone();
    pair.filter = Box::new(move |datagram| {
        // Large packets are of 1,400 bytes, small ones of 100, and challenges of 1,096 and more.
        counted.set(counted.get() + usize::from((600..1_000).contains(&datagram.bytes.len())));
        !lost(datagram)
    });
    for _ in 0..50 {
        pair.send(&packet(1_400, false));
        pair.send(&packet(100, false));
        pair.run(Duration::from_millis(20));
    }
    halves.get()
}

#[test]
fn an_outage_cuts_no_packet_that_fits() {
    let mut pair = wide();
    assert_eq!(pieces(&mut pair, |_| true), 0);
    assert_eq!(pieces(&mut pair, |_| false), 0);
    assert_eq!(mtu(&pair), 1_452);
}

#[test]
fn a_burst_of_loss_cuts_no_packet_that_fits() {
    for burst in [500, 550, 600, 650].map(Duration::from_millis) {
        let mut pair = wide();
        let end = pair.now + burst;
        let lost = move |datagram: &Datagram| datagram.at < end && datagram.bytes.len() > 1_300;
        assert_eq!(pieces(&mut pair, lost), 0);
        assert_eq!(mtu(&pair), 1_452);
    }
}

/// A queue in front of a link of 2 Mbit/s, which takes what it has room for.
struct Queue {
    bytes: f64,
    at: Instant,
}

impl Queue {
    const ROOM: f64 = 65_536.0;
    const BYTES_A_SECOND: f64 = 250_000.0;
    /// Around a datagram: IPv4 and UDP.
    const HEADERS: usize = 28;

    fn takes(&mut self, datagram: &Datagram) -> bool {
        let passed = datagram.at.saturating_since(self.at).as_secs_f64();
        self.at = datagram.at;
        self.bytes = (self.bytes - passed * Self::BYTES_A_SECOND).max(0.0);
        let len = (datagram.bytes.len() + Self::HEADERS) as f64;
        let has_room = self.bytes + len <= Self::ROOM;
        self.bytes += if has_room { len } else { 0.0 };
        has_room
    }
}

/// Offers a link of 2 Mbit/s so many times what it carries, for a while, in packets that no path
/// carries unless more than the least is known of it; returns what part of the link they have, and
/// how many halves of one were sent.
fn flood(pair: &mut Pair, times: f64) -> (f64, usize) {
    const SECONDS: f64 = 30.0;
    let halves = Rc::new(Cell::new(0));
    let counted = halves.clone();
    let mut queue = Queue { bytes: 0.0, at: pair.now };
    pair.filter = Box::new(move |datagram| {
        let is_out = datagram.to.port() == 4_433;
        let is_half = is_out && (600..1_000).contains(&datagram.bytes.len());
        counted.set(counted.get() + usize::from(is_half));
        !is_out || queue.takes(datagram)
    });
    pair.gateway_inner.clear();
    let packet = packet(1_228, false);
    let pause = Duration::from_secs_f64(1_281.0 / Queue::BYTES_A_SECOND / times);
    let end = pair.now + Duration::from_secs_f64(SECONDS);
    while pair.now < end {
        pair.send(&packet);
        pair.run(pause);
    }
    let carried = (pair.gateway_inner.len() * 1_281) as f64;
    (carried / SECONDS / Queue::BYTES_A_SECOND, halves.get())
}

#[test]
fn who_is_offered_more_than_it_carries_cuts_no_packet_that_fits() {
    for times in [1.1, 1.5, 2.0, 3.0, 5.5] {
        let mut pair = wide();
        let (share, halves) = flood(&mut pair, times);
        assert_eq!(halves, 0, "at {times} of what it carries, which had {share:.2} of it");
        assert!(share > 0.97, "{share:.2} of the link at {times} of what it carries");
    }
}

#[test]
fn a_path_that_shrinks_is_measured_anew_and_one_that_grows_again_is_found_out() {
    let mut pair = wide();
    for _ in 0..4 {
        pieces(&mut pair, |datagram| datagram.bytes.len() > 1_380);
    }
    let large = pair.gateway_inner.iter().filter(|(_, inner)| inner.len() == 1_400).count();
    assert!(large > 140, "{large} of 200 large packets arrived");
    assert_eq!(mtu(&pair), 1_372);
    assert_eq!(pair.state(), PeerState::Up);
    for _ in 0..60 {
        pieces(&mut pair, |_| false);
    }
    assert_eq!(mtu(&pair), 1_452, "looked at again within a minute");
}

/// The packet that begins a connection from this port and would have segments of 8,960 bytes, with
/// so much of what it has to say.
fn beginning(port: u16, payload: usize) -> Vec<u8> {
    let mut packet = packet(20 + 24 + payload, false);
    packet[9] = 6;
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[22..24].copy_from_slice(&443_u16.to_be_bytes());
    (packet[32], packet[33]) = (6 << 4, 2);
    packet[40..44].copy_from_slice(&[2, 4, 0x23, 0x00]);
    packet
}

#[test]
fn a_beginning_that_waits_is_told_how_long_segments_may_be_as_well() {
    let mut pair = bulk::bonded(Pair::up(), &[[203, 0, 113, 5], [192, 0, 2, 130]]);
    pair.send(&beginning(1, 0)); // waits for nobody
    pair.send(&beginning(2, 100));
    (0..200).for_each(|number| pair.send(&bulk::packet(number, false)));
    pair.send(&beginning(3, 100)); // behind others
    pair.run(Duration::from_millis(500));
    let begins = |packet: &&Vec<u8>| packet[9] == 6;
    let packets = pair.gateway_inner.iter().map(|(_, packet)| packet);
    let told = packets.filter(begins).map(|packet| u16::from_be_bytes([packet[42], packet[43]]));
    let told: Vec<u16> = told.collect();
    assert!(
        told.len() == 3 && told[0] < 1_460 && told.iter().all(|&mss| mss == told[0]),
        "{told:?}"
    );
}

/// UDP payload that a path of 1,124 bytes carries with IPv4, and one of 1,280 with IPv6.
const NARROW: [usize; 2] = [1_096, 1_232];
/// Large packets arrive within this time after a path has become narrow, at 40 ms round trip.
const SOON: Duration = Duration::from_secs(3);

fn carries(most: usize) -> impl FnMut(&Datagram) -> bool + 'static {
    move |datagram| datagram.bytes.len() <= most
}

/// Sends large and small packets both ways until large ones arrive at both ends. Returns how long
/// that takes, and checks that it lasts.
fn large_arrive(pair: &mut Pair) -> Duration {
    let began = pair.now;
    let mut arrived = [false; 2];
    while arrived != [true; 2] {
        assert!(pair.now.saturating_since(began) < SOON, "no large packet: {arrived:?}");
        arrived = talk(pair, 1).map(|arrived| arrived > 0);
    }
    let took = pair.now.saturating_since(began);
    let arrived = talk(pair, 50);
    assert!(arrived.iter().all(|&arrived| arrived >= 48), "{arrived:?} of 50");
    took
}

/// Sends `count` large packets each way, each with a small one. Returns how many large ones arrive.
fn talk(pair: &mut Pair, count: usize) -> [usize; 2] {
    let large =
        |inner: &[(Instant, Vec<u8>)]| inner.iter().filter(|it| it.1.len() == 1_400).count();
    let before = [large(&pair.gateway_inner), large(&pair.client_inner)];
    for _ in 0..count {
        for len in [1_400, 100] {
            pair.send(&packet(len, false));
            pair.send_back(&packet(len, true));
        }
        pair.run(Duration::from_millis(20));
    }
    pair.run(Duration::from_millis(40));
    let after = [large(&pair.gateway_inner), large(&pair.client_inner)];
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn a_session_begins_on_a_narrow_path_and_gets_new_keys_there() {
    for most in NARROW {
        let mut pair = Pair::new(None);
        pair.admit_client();
        pair.filter = Box::new(carries(most));
        pair.tell_client(Command::Connect(pair.gateway_key));
        pair.run(Duration::from_secs(2));
        assert_eq!(pair.state(), PeerState::Up, "{most} bytes");
        large_arrive(&mut pair);
        assert!(mtu(&pair) <= most);
        for _ in 0..140 {
            pair.run(Duration::from_secs(1));
            assert_eq!(talk(&mut pair, 1), [1; 2]);
        }
        assert_eq!((pair.epochs(), mtu(&pair)), (2, most));
    }
}

#[test]
fn a_move_to_a_narrow_path_carries_at_once() {
    for most in NARROW {
        let mut pair = wide();
        pair.filter = Box::new(carries(most));
        pair.tell_client(pair::links(&[[198, 51, 100, 7]]));
        let took = large_arrive(&mut pair);
        assert!(took < Duration::from_millis(500), "{most} bytes: {took:?}");
        assert_eq!(pair.state(), PeerState::Up);
    }
}

#[test]
fn a_path_that_becomes_narrow_in_the_midst_carries_on() {
    for most in NARROW {
        for idle in [0, 30, 300] {
            let mut pair = wide();
            large_arrive(&mut pair);
            pair.run(Duration::from_secs(idle));
            pair.filter = Box::new(carries(most));
            large_arrive(&mut pair);
            assert_eq!(pair.state(), PeerState::Up, "{most} bytes");
        }
    }
}

#[test]
fn several_paths_of_which_one_becomes_narrow_carry_on() {
    let links = [[203, 0, 113, 5], [192, 0, 2, 130]];
    let mut pair = bulk::bonded(Pair::up(), &links);
    large_arrive(&mut pair);
    let narrow = std::net::IpAddr::from(links[1]);
    pair.filter = Box::new(move |datagram| {
        let is_narrow = [datagram.from, datagram.to].iter().any(|at| at.ip() == narrow);
        !is_narrow || datagram.bytes.len() <= NARROW[0]
    });
    large_arrive(&mut pair);
}

#[test]
fn forged_parts_of_a_response_do_not_keep_the_true_ones_out() {
    let mut pair = Pair::new(None);
    pair.admit_client();
    let (mut carries, mut forged) = (carries(NARROW[0]), 0);
    let seen: Rc<Cell<Option<Datagram>>> = Rc::default();
    let kept = seen.clone();
    pair.filter = Box::new(move |datagram| {
        if datagram.bytes[0] == 6 && forged < 3 {
            forged += 1;
            kept.set(Some(datagram.clone()));
        }
        carries(datagram)
    });
    pair.tell_client(Command::Connect(pair.gateway_key));
    let mut changed = 0;
    for _ in 0..2_000 {
        pair.run(Duration::from_millis(1));
        if let Some(mut part) = seen.take() {
            for byte in 6..9 {
                part.bytes[byte] ^= 1;
                pair.arrive(part.clone());
                changed += 1;
            }
        }
    }
    assert!(changed > 2, "{changed} parts forged");
    assert_eq!(pair.state(), PeerState::Up);
}
