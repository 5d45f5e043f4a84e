//! Profiles: the suite may change with every datagram, padding hides lengths, and nothing lowers
//! the strength below the floor of either end.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::pair::bulk::{self, arrived, flow};
use crate::pair::{Datagram, GATEWAY, Pair, packet};
use rove_proto::crypto::{Features, Floor, Suite};
use rove_proto::error::DropReason;
use rove_proto::node::Config;
use rove_proto::policy::Sealing;
use rove_proto::time::Duration;

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
const FLOORS: [Floor; 2] = [Floor::BITS_128, Floor::BITS_256];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An end that understands all profiles, and uses them so.
fn seals(sealing: Sealing) -> impl Fn(&mut Config) {
    move |config| {
        config.features = config.features | Features::PROFILES;
        config.sealing = sealing;
    }
}

fn changing() -> Sealing {
    Sealing { changes: true, strength: Floor::BITS_128, ..Sealing::default() }
}

fn padding() -> Sealing {
    Sealing { pads: true, ..Sealing::default() }
}

/// No end could not read what the other one sealed.
#[track_caller]
fn assert_understood(pair: &Pair) {
    use DropReason::{BadFrame, BadTag, BelowFloor, Decoy};
    for (name, node) in [("client", &pair.client), ("gateway", &pair.gateway)] {
        for reason in [BadTag, Decoy, BelowFloor, BadFrame] {
            assert_eq!(node.drops().of(reason), 0, "{reason:?} at the {name}");
        }
    }
}

/// The lengths of the datagrams that carry packets of all lengths to the gateway.
fn lengths(pair: &mut Pair) -> BTreeSet<usize> {
    pair.run(ms(3_000)); // the path's size is known
    let lengths = Rc::new(RefCell::new(BTreeSet::new()));
    let (seen, gateway) = (Rc::clone(&lengths), GATEWAY.parse().unwrap());
    pair.filter = Box::new(move |datagram: &Datagram| {
        if datagram.to == gateway && datagram.bytes.len() > 200 {
            seen.borrow_mut().insert(datagram.bytes.len());
        }
        true
    });
    let before = pair.gateway_inner.len();
    let packets: Vec<_> = (200..1_400).step_by(17).collect();
    for &len in &packets {
        pair.send(&packet(len, false));
        pair.run(ms(10));
    }
    pair.run(ms(500));
    assert_eq!(pair.gateway_inner.len() - before, packets.len());
    lengths.take()
}

/// Datagrams of two paths are lost and repaired while each uses another suite than the one before.
#[test]
fn the_suite_changes_with_every_datagram_and_nothing_is_lost() {
    let pair = Pair::up_as(seals(changing()), seals(changing()));
    let mut pair = bulk::bonded(pair, &[WIFI, CABLE]);
    let mut count = 0;
    pair.filter = Box::new(move |_| {
        count += 1;
        count % 13 != 0
    });
    flow(&mut pair, 0..3_000);
    pair.filter = Box::new(|_| true);
    flow(&mut pair, 3_000..3_020);
    pair.run(ms(800));
    for numbers in arrived(&pair) {
        assert_eq!(numbers, Vec::from_iter(0..3_020));
    }
    assert_understood(&pair);
    assert_eq!(pair.epochs(), 1, "no change takes a handshake");
}

#[test]
fn padding_leaves_few_lengths() {
    let mut pair = Pair::up_as(seals(padding()), seals(padding()));
    let padded = lengths(&mut pair);
    assert_understood(&pair);
    let most = pair.client.status(pair.gateway_key).unwrap().paths[0].mtu;
    assert!(padded.iter().all(|len| len % 128 == 0 || *len == most), "{padded:?}");
    let bare = lengths(&mut Pair::up());
    assert!(bare.len() > 60 && padded.len() <= 11, "{} and {}", bare.len(), padded.len());
}

#[test]
fn an_end_without_the_feature_gets_no_padding_and_one_suite() {
    let all = Sealing { pads: true, ..changing() };
    let mut pair = Pair::up_as(seals(all), |_| {});
    assert_eq!(lengths(&mut pair), lengths(&mut Pair::up()));
    assert_understood(&pair);
}

#[test]
fn the_strength_in_use_is_the_maximum_of_both_floors_and_the_wish() {
    for (mine, theirs) in FLOORS.into_iter().flat_map(|mine| FLOORS.map(|it| (mine, it))) {
        for strength in FLOORS {
            let wish = Sealing { strength, ..Sealing::default() };
            let mut pair = Pair::up_as(
                |config| (config.floor, config.sealing) = (mine, wish),
                |config| config.floor = theirs,
            );
            pair.send(&packet(300, false));
            pair.send_back(&packet(300, true));
            pair.run(ms(200));
            assert_eq!((pair.gateway_inner.len(), pair.client_inner.len()), (1, 1));
            let profile = pair.client.status(pair.gateway_key).unwrap().profile.unwrap();
            assert_eq!(profile.suite().strength(), mine.max(theirs).max(strength));
            let of_gateway = pair.gateway.status(pair.client_key).unwrap().profile.unwrap();
            assert_eq!(of_gateway.suite(), Suite::Aes256Gcm, "its wish is its own");
        }
    }
}

/// A keyed peer gives its datagram every profile ID, under a session whose floor the gateway
/// raised: nothing opens under another suite, and the session goes on.
#[test]
fn no_profile_id_leads_below_the_floor() {
    for (features, expected) in [(Features::NONE, [7, 244, 4]), (Features::PROFILES, [255, 0, 0])] {
        let strict = move |config: &mut Config| {
            (config.floor, config.features) = (Floor::BITS_256, features);
        };
        let mut pair = Pair::up_as(move |config| config.features = features, strict);
        pair.run(ms(2_000));
        let held = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&held);
        pair.filter = Box::new(move |datagram: &Datagram| {
            let is_held = datagram.bytes.len() > 400;
            if is_held {
                kept.borrow_mut().push(datagram.clone());
            }
            !is_held
        });
        pair.send(&packet(500, false));
        pair.filter = Box::new(|_| true);
        let honest = held.take().remove(0);
        let count = |pair: &Pair| {
            [DropReason::BadTag, DropReason::Decoy, DropReason::BelowFloor]
                .map(|reason| pair.gateway.drops().of(reason))
        };
        assert_eq!(count(&pair), [0; 3]);
        for change in 1..=255 {
            let mut changed = honest.clone();
            changed.bytes[5] ^= change;
            pair.arrive(changed);
        }
        assert_eq!(count(&pair), expected, "{features:?}");
        assert!(pair.gateway_inner.is_empty());
        pair.arrive(honest);
        assert_eq!(pair.gateway_inner.len(), 1, "the datagram was right");
    }
}
