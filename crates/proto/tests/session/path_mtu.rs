//! What a path's largest datagram does to packets: none is cut that would have fitted, also when
//! loss makes the path look smaller than it is, and also when it has far less room than is offered.

use std::cell::Cell;
use std::rc::Rc;

use crate::pair::{Datagram, Pair, bulk, packet};
use rove_proto::node::PeerState;
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
        // Large packets are of 1,400 bytes, small ones of 100, and challenges of 1,200 and more.
        counted.set(counted.get() + usize::from((600..1_100).contains(&datagram.bytes.len())));
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
        let is_half = is_out && (600..1_100).contains(&datagram.bytes.len());
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
