use super::*;
use crate::crypto::{Features, test_keys};

const NONE: Strength = Strength::Bits128;

const FLOORS: [Floor; 2] = [Floor::BITS_128, Floor::BITS_256];
const CIPHERS: [HeaderCipher; 2] = [HeaderCipher::Aes, HeaderCipher::ChaCha20];

/// Every session and every wish.
fn all(mut check: impl FnMut(&SealKey, Sealing)) {
    for (cipher, floor) in CIPHERS.into_iter().flat_map(|c| FLOORS.map(|floor| (c, floor))) {
        for features in [Features::NONE, Features::PROFILES] {
            let key = test_keys(cipher, floor, features).seal;
            for (strength, bits) in FLOORS.into_iter().flat_map(|s| [0, 1, 2, 3].map(|b| (s, b))) {
                let (changes, pads) = (bits & 1 != 0, bits & 2 != 0);
                check(&key, Sealing { strength, changes, pads });
            }
        }
    }
}

#[test]
fn the_strength_in_use_is_the_maximum_of_floor_and_wish() {
    all(|key, sealing| {
        let least = sealing.strength.max(key.floor());
        let profiles = Profiles::new(key, sealing);
        for number in 0..12 {
            assert!(
                profiles.of(number, NONE).suite().meets(least),
                "{sealing:?}, {:?}",
                key.floor()
            );
        }
    });
    let fast = test_keys(HeaderCipher::Aes, Floor::BITS_128, Features::NONE).seal;
    assert_eq!(suite(&fast, Floor::BITS_128), Suite::Aes128Gcm, "a lower wish has an effect");
    let raised = test_keys(HeaderCipher::Aes, Floor::BITS_256, Features::NONE).seal;
    assert_eq!(suite(&raised, Floor::BITS_128), Suite::Aes256Gcm, "the floor raises it");
}

/// Every session, every wish of the end, and everything that a flow may ask for.
#[test]
fn a_flow_raises_the_strength_of_its_own_datagrams_and_lowers_none() {
    let mut raised = 0;
    all(|key, sealing| {
        let profiles = Profiles::new(key, sealing);
        for (number, asked) in (0..12).flat_map(|number| Strength::ALL.map(|it| (number, it))) {
            let (without, with) = (profiles.of(number, NONE), profiles.of(number, asked));
            let least = key.floor().max(sealing.strength).max(asked.into());
            assert!(with.suite().meets(least), "{sealing:?}, {:?}, {asked:?}", key.floor());
            if key.floor().max(sealing.strength) >= Floor::from(asked) {
                assert_eq!(with, without, "a rule below what holds anyway changes nothing");
            }
            assert_eq!(
                super::raised(profiles.usual().suite(), asked),
                profiles.of(0, asked).suite()
            );
            raised += u32::from(with.suite().strength() > without.suite().strength());
        }
        assert_eq!(profiles.usual(), profiles.of(0, NONE), "status shows the end's own");
    });
    assert!(raised > 0, "a rule has an effect somewhere");
}

#[test]
fn a_peer_without_the_feature_gets_one_suite_and_no_padding() {
    all(|key, sealing| {
        let profiles = Profiles::new(key, sealing);
        let mut used: Vec<_> = (0..12).map(|number| profiles.of(number, NONE)).collect();
        assert_eq!(used[0], profiles.usual());
        assert_eq!(used[..6], used[6..], "in turn");
        used.sort();
        used.dedup();
        let may_change = sealing.changes && key.has_all_profiles();
        let least = sealing.strength.max(key.floor());
        let allowed = Suite::ALL.into_iter().filter(|suite| suite.meets(least)).count();
        assert_eq!(used.len(), if may_change { allowed } else { 1 });
        let pads = sealing.pads && key.has_all_profiles();
        assert_eq!(profiles.padding(100, 1_400) > 0, pads);
    });
}

#[test]
fn padding_fills_up_to_a_step_or_to_what_the_path_carries() {
    let key = test_keys(HeaderCipher::Aes, Floor::BITS_256, Features::PROFILES).seal;
    let profiles = Profiles::new(&key, Sealing { pads: true, ..Sealing::default() });
    for (len, most, padded) in [
        (27, 1_472, 128),
        (126, 1_472, 128),
        (127, 1_472, 256),
        (128, 1_472, 256),
        (1_400, 1_472, 1_408),
        (1_407, 1_472, 1_472),
        (1_470, 1_472, 1_472),
        (1_471, 1_472, 1_471),
        (1_472, 1_472, 1_472),
        (1_090, 1_096, 1_096),
    ] {
        assert_eq!(len + profiles.padding(len, most), padded, "{len} of {most}");
    }
}

#[test]
fn by_default_one_strong_suite_seals_everything() {
    all(|key, _| {
        let profiles = Profiles::new(key, Sealing::default());
        assert!((0..100).all(|number| profiles.of(number, NONE) == profile(key)));
        assert!(profile(key).suite().meets(Floor::BITS_256) && profiles.padding(50, 1_400) == 0);
    });
}
