use aws_lc_rs::aead::quic;
use proptest::prelude::*;

use super::*;
use crate::id::PathSerial;

const FLOORS: [Floor; 2] = [Floor::BITS_128, Floor::BITS_256];

fn table(seed: u32) -> ProfileTable {
    ProfileTable::derive(&kdf::extract(&seed.to_be_bytes(), b"secret"), &[b"test"])
}

fn fixed(floor: Floor) -> ProfileIds {
    ProfileIds::fixed(table(0), 0x1234, floor)
}

fn redrawn(seed: u8, floor: Floor) -> ProfileIds {
    let key = HeaderProtectionKey::new(&quic::AES_256, &[seed; 32]).unwrap();
    ProfileIds::redrawn(table(u32::from(seed)), u64::from(seed), floor, key)
}

fn nonce(serial: u32, number: u64) -> Nonce {
    Nonce { serial: PathSerial(serial), number }
}

/// How many IDs mean each profile in one datagram.
fn shares(ids: &ProfileIds, nonce: Nonce) -> [usize; Profile::COUNT] {
    let meanings: Vec<_> =
        (0..=255).filter_map(|id| ids.profile(ProfileId(id), nonce).ok()).collect();
    Profile::ALL.map(|profile| meanings.iter().filter(|meaning| **meaning == profile).count())
}

#[test]
fn every_profile_has_a_place_of_its_own() {
    for (place, profile) in Profile::ALL.into_iter().enumerate() {
        let suite = Suite::ALL[place % Suite::ALL.len()];
        assert_eq!((profile.suite(), profile.is_padded()), (suite, place >= Suite::ALL.len()));
    }
}

#[test]
fn a_suite_owns_four_fixed_ids_and_the_others_are_decoys() {
    let reasons = |floor| {
        let ids = fixed(floor);
        let results = (0..=255).map(|id| ids.profile(ProfileId(id), nonce(0, 0)));
        let refused: Vec<_> = results.filter_map(Result::err).collect();
        [DropReason::Decoy, DropReason::BelowFloor]
            .map(|reason| refused.iter().filter(|refusal| **refusal == reason).count())
    };
    assert_eq!(reasons(Floor::BITS_128), [244, 0]);
    assert_eq!(reasons(Floor::BITS_256), [244, 4]);
    assert_eq!(shares(&fixed(Floor::BITS_128), nonce(0, 0)), [4, 4, 4, 0, 0, 0]);
    assert_eq!(shares(&fixed(Floor::BITS_256), nonce(0, 0)), [4, 0, 4, 0, 0, 0]);
}

#[test]
fn fixed_ids_mean_their_suite_and_are_all_used() {
    let ids = fixed(Floor::BITS_128);
    for suite in Suite::ALL {
        let mut counts = [0; 256];
        for number in 0..4_000 {
            let id = ids.id(Profile::whole(suite), nonce(0, number)).unwrap();
            assert_eq!(ids.profile(id, nonce(7, 7)), Ok(Profile::whole(suite)));
            counts[usize::from(id.0)] += 1;
        }
        let used: Vec<u32> = counts.into_iter().filter(|&count| count > 0).collect();
        assert_eq!(used.len(), 4);
        assert!(used.iter().all(|count| (800..1_200).contains(count)), "{used:?}");
        assert_eq!(ids.id(Profile::whole(suite).padded(), nonce(0, 0)), None);
    }
}

#[test]
fn all_redrawn_ids_have_a_meaning_and_none_is_below_the_floor() {
    for number in 0..100 {
        let nonce = nonce(3, number);
        let low = redrawn(1, Floor::BITS_128);
        assert!((0..=255).all(|id| low.profile(ProfileId(id), nonce).is_ok()));
        assert_eq!(shares(&low, nonce), [43, 43, 43, 43, 42, 42]);
        let high = redrawn(1, Floor::BITS_256);
        assert!((0..=255).all(|id| high.profile(ProfileId(id), nonce).is_ok()));
        assert_eq!(shares(&high, nonce), [64, 0, 64, 64, 0, 64]);
    }
}

/// The sum of squared deviations from an even distribution over 256 values. It follows chi-square
/// with 255 degrees of freedom if the distribution is even: mean 255, standard deviation 22.6.
fn chi_square(values: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    values.iter().for_each(|&value| counts[usize::from(value)] += 1);
    let expected = values.len() as f64 / 256.0;
    counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum()
}

/// Within five standard deviations.
fn is_flat(values: &[u8]) -> bool {
    (142.0..368.0).contains(&chi_square(values))
}

/// What an observer without header protection sees of 25,600 datagrams, of which `mix` says the
/// profile by their number.
fn seen(ids: &ProfileIds, mix: impl Fn(u64) -> Profile) -> Vec<u8> {
    (0..25_600).map(|number| ids.id(mix(number), nonce(0, number)).unwrap().0).collect()
}

#[test]
fn ids_are_flat_whatever_the_mix_of_profiles() {
    let [first, second, .., last] = Profile::ALL;
    let mixes: [fn(u64) -> Profile; 4] = [
        |_| Profile::ALL[0],
        |number| Profile::ALL[(number % 6) as usize],
        |number| Profile::ALL[usize::from(number % 10 == 9)],
        |number| Profile::ALL[(number / 5_120) as usize],
    ];
    for (place, mix) in mixes.into_iter().enumerate() {
        let ids = redrawn(5, Floor::BITS_128);
        let seen = seen(&ids, mix);
        assert!(is_flat(&seen), "mix {place}: {}", chi_square(&seen));
        let changes: Vec<u8> = seen.windows(2).map(|pair| pair[0] ^ pair[1]).collect();
        assert!(is_flat(&changes), "changes of mix {place}: {}", chi_square(&changes));
    }
    // Each profile alone as well: an ID says nothing about its profile.
    for profile in [first, second, last] {
        assert!(is_flat(&seen(&redrawn(6, Floor::BITS_128), |_| profile)), "{profile:?}");
    }
    // The control: fixed IDs show how many suites are in use.
    let control = seen(&fixed(Floor::BITS_128), |_| Profile::ALL[0]);
    assert!(chi_square(&control) > 1e6, "{}", chi_square(&control));
}

/// Where a value lands must not depend on the value: over 2,000 tables each of the 256 IDs should
/// be the first about 7.8 times.
#[test]
fn the_permutation_is_not_skewed() {
    let firsts: Vec<u8> = (0..2_000).map(|seed| table(seed).id(0).0).collect();
    assert!(is_flat(&firsts), "chi-square {:.1}", chi_square(&firsts));
    for seed in 0..20 {
        let table = table(seed);
        assert!((0..=255).all(|position| table.position(table.id(position)) == position));
    }
}

proptest! {
    /// Datagrams of several paths are lost and arrive in any order: each is understood by itself.
    #[test]
    fn both_ends_agree_whatever_is_lost_or_reordered(
        seed: u8,
        floor in 0usize..2,
        sent in proptest::collection::vec((0u32..3, any::<u64>(), 0usize..Profile::COUNT), 1..60),
        order in any::<prop::sample::Index>(),
        lost in any::<u64>(),
    ) {
        let (sender, receiver) = (redrawn(seed, FLOORS[floor]), redrawn(seed, FLOORS[floor]));
        let mut wire = Vec::new();
        for (serial, number, profile) in sent {
            let (profile, nonce) = (Profile::ALL[profile], nonce(serial, number));
            let id = sender.id(profile, nonce);
            prop_assert_eq!(id.is_some(), profile.suite().meets(FLOORS[floor]));
            wire.extend(id.map(|id| (id, nonce, profile)));
        }
        if !wire.is_empty() {
            let by = order.index(wire.len());
            wire.rotate_left(by);
            wire.reverse();
        }
        for (place, (id, nonce, profile)) in wire.into_iter().enumerate() {
            if lost >> (place % 64) & 1 == 0 {
                prop_assert_eq!(receiver.profile(id, nonce), Ok(profile));
            }
        }
    }

    #[test]
    fn any_id_means_a_profile_that_reaches_the_floor(
        seed: u8, floor in 0usize..2, id: u8, serial: u32, number: u64,
    ) {
        let meaning = redrawn(seed, FLOORS[floor]).profile(ProfileId(id), nonce(serial, number));
        prop_assert!(meaning.is_ok_and(|profile| profile.suite().meets(FLOORS[floor])));
    }
}
