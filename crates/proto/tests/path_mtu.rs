//! What a path's largest datagram does to packets: none is cut that would have fitted, also when
//! loss makes the path look smaller than it is.

mod pair;

use std::cell::Cell;
use std::rc::Rc;

use pair::{Datagram, Pair, packet};
use rove_proto::node::PeerState;
use rove_proto::time::Duration;

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
