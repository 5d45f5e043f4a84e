//! What happens when keys are used up, with counters set close to their limits.

use std::net::SocketAddr;

use super::*;
use crate::node::{Config, Event, PeerState};
use crate::packet::Strength;
use crate::peer::pair::{Pair, packet};
use crate::wire::Kind;

/// A pair whose client has sealed and opened so many datagrams already.
fn worn(sealed: u64, forged: u64) -> Pair {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(1));
    let epoch = pair.client.epoch_of(pair.gateway_key).unwrap();
    (epoch.sealed, epoch.forged) = (sealed, forged);
    pair
}

fn talk(pair: &mut Pair, packets: usize) {
    for _ in 0..packets {
        pair.send(&packet(100, false));
        pair.run(Duration::from_millis(10));
    }
    pair.run(Duration::from_millis(50));
}

#[test]
fn new_keys_come_before_the_old_are_used_up() {
    let mut pair = worn(REKEY_DATAGRAMS - 10, 0);
    talk(&mut pair, 5);
    assert_eq!(pair.epochs(), 1);
    talk(&mut pair, 50);
    assert_eq!((pair.epochs(), pair.gateway_inner.len()), (2, 55));
}

#[test]
fn forgeries_bring_new_keys_and_at_their_limit_nothing_is_opened() {
    let mut pair = worn(0, FORGERIES_MAX / 2);
    talk(&mut pair, 50);
    assert_eq!((pair.epochs(), pair.gateway_inner.len()), (2, 50));

    let mut pair = worn(0, FORGERIES_MAX);
    pair.send_back(&packet(100, true));
    pair.run(Duration::from_millis(100));
    assert!(pair.client_inner.is_empty());
}

#[test]
fn used_up_keys_seal_nothing_and_lose_nothing() {
    let mut pair = worn(SEAL_DATAGRAMS_MAX - 20, 0);
    // No handshake is answered, so there are no new keys.
    pair.filter = Box::new(|datagram| Kind::of(&datagram.bytes) == Some(Kind::Data));
    talk(&mut pair, 60);
    let ended = |event: &Event| matches!(event, Event::Ended { .. });
    assert!(pair.client_events.iter().any(ended));
    let before = pair.gateway_inner.len();
    assert!((1..=20).contains(&before), "{before} packets under the last of the keys");
    assert!(pair.client.epoch_of(pair.gateway_key).is_none());
    pair.filter = Box::new(|_| true);
    pair.run(Duration::from_secs(10));
    assert_eq!(pair.state(), PeerState::Up);
    assert_eq!(pair.gateway_inner.len(), 60, "what waited was not lost");
}

#[test]
fn the_wish_for_changes_reaches_the_epochs_of_both_ends() {
    let wish = |config: &mut Config| {
        config.features = config.features | Features::PROFILES;
        config.sealing.changes = true;
    };
    let mut pair = Pair::up_as(wish, wish);
    let keys = (pair.client_key, pair.gateway_key);
    for epoch in [pair.client.epoch_of(keys.1).unwrap(), pair.gateway.epoch_of(keys.0).unwrap()] {
        let of = |number| epoch.profiles.of(number, Strength::default());
        assert_ne!(of(0), of(1));
    }
}

/// How many indices of the peer's are left once 16 silent paths to these places took what they may.
fn left_by_silent(epoch: &mut Epoch, places: impl Fn(u16) -> SocketAddr) -> usize {
    for port in 1..=16 {
        let route = Route { remote: places(port), ..epoch.origin };
        let id = PathId(100 + u32::from(port));
        let mut path = Path::new(id, route, None, epoch.since, Trust::Proven);
        path.move_to_silent(epoch.since);
        if epoch.has_lane_for(&path) {
            assert!(epoch.lane(&path).is_some());
        }
    }
    epoch.theirs.range(epoch.next_tx..).count()
}

#[test]
fn what_a_nat_mapped_before_takes_no_index_that_is_kept_and_the_gateways_host_does() {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(1));
    let epoch = pair.gateway.epoch_of(pair.client_key).unwrap();
    let host = epoch.origin.remote.ip();
    assert_eq!(left_by_silent(epoch, |port| SocketAddr::new(host, port)), INDICES_FOR_HEARD);
    let very = epoch.origin.remote;
    assert_eq!(left_by_silent(epoch, |_| very), INDICES_BESIDE_ORIGIN);

    let epoch = pair.client.epoch_of(pair.gateway_key).unwrap();
    let host = epoch.origin.remote.ip();
    assert_eq!(left_by_silent(epoch, |port| SocketAddr::new(host, port)), INDICES_BESIDE_ORIGIN);
}
