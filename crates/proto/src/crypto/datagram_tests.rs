use proptest::prelude::*;

use super::*;
use crate::crypto::schedule::{EpochKeys, Finished, Role};
use crate::crypto::vectors::Vectors;
use crate::wire::features::Features;

const CIPHERS: [HeaderCipher; 2] = [HeaderCipher::Aes, HeaderCipher::ChaCha20];
const INDEX: SessionIndex = SessionIndex(0x0102_0304);

/// The features without and with redrawn IDs.
const FORMS: [Features; 2] = [Features::NONE, Features::PROFILES];

fn ends(header_cipher: HeaderCipher, floor: Floor) -> (EpochKeys, EpochKeys) {
    ends_with(header_cipher, floor, Features::NONE)
}

fn ends_with(
    header_cipher: HeaderCipher,
    floor: Floor,
    features: Features,
) -> (EpochKeys, EpochKeys) {
    let (handshake_hash, split) = (&[0xaa; 32], &[0xbb; 64]);
    let finished = Finished { handshake_hash, split, header_cipher, floor, features };
    let derive = |role| EpochKeys::derive(role, &finished);
    (derive(Role::Initiator), derive(Role::Responder))
}

/// The profiles that sessions with these features have.
fn profiles(features: Features) -> impl Iterator<Item = Profile> {
    let has_all = features.has(Features::PROFILES);
    Profile::ALL.into_iter().filter(move |profile| has_all || !profile.is_padded())
}

/// The frames, with padding if the profile has any.
fn plaintext(profile: Profile, frames: &[u8], padding: usize) -> Vec<u8> {
    let mut plaintext = frames.to_vec();
    if profile.is_padded() {
        padding::append(&mut plaintext, padding);
    }
    plaintext
}

fn sealed(keys: &EpochKeys, profile: Profile, nonce: Nonce, plaintext: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; HEADER_LEN];
    datagram.extend_from_slice(plaintext);
    datagram.resize(OVERHEAD + plaintext.len(), 0);
    keys.seal.seal(INDEX, profile, nonce, &mut datagram);
    datagram
}

fn nonce(serial: u32, number: u64) -> Nonce {
    Nonce { serial: PathSerial(serial), number }
}

#[test]
fn what_is_sealed_opens_at_the_other_end_only() {
    for (cipher, features) in CIPHERS.into_iter().flat_map(|c| FORMS.map(|form| (c, form))) {
        let (a, b) = ends_with(cipher, Floor::BITS_128, features);
        for profile in profiles(features) {
            for (from, to) in [(&a, &b), (&b, &a)] {
                for (number, len) in [(0, 1), (7, 2), (u64::from(u32::MAX) + 9, 1_400)] {
                    let frames = vec![0x5a; len];
                    let plaintext = plaintext(profile, &frames, 9);
                    let mut datagram = sealed(from, profile, nonce(3, number), &plaintext);
                    assert_eq!(datagram[..5], [0x10, 1, 2, 3, 4]);
                    let unmasked = to.open.unmask(&datagram).unwrap();
                    assert_eq!(unmasked.number, number as u32);
                    let mut reflected = datagram.clone();
                    let opened =
                        to.open.open(PathSerial(3), number, &unmasked, &mut datagram).unwrap();
                    assert_eq!(opened, frames);
                    let unmasked = from.open.unmask(&reflected).unwrap();
                    let opened = from.open.open(PathSerial(3), number, &unmasked, &mut reflected);
                    assert!([DropReason::BadTag, DropReason::Decoy].map(Err).contains(&opened));
                }
            }
        }
    }
}

#[test]
fn every_bit_but_the_index_is_protected() {
    for (cipher, features) in CIPHERS.into_iter().flat_map(|c| FORMS.map(|form| (c, form))) {
        let (a, b) = ends_with(cipher, Floor::BITS_128, features);
        for profile in profiles(features) {
            let plaintext = plaintext(profile, b"inner packet", 4);
            let whole = sealed(&a, profile, nonce(1, 77), &plaintext);
            for bit in 0..whole.len() * 8 {
                let mut datagram = whole.clone();
                datagram[bit / 8] ^= 1 << (bit % 8);
                let result = b.open.unmask(&datagram).and_then(|unmasked| {
                    let number = u64::from(unmasked.number);
                    b.open.open(PathSerial(1), number, &unmasked, &mut datagram).map(|_| ())
                });
                let in_index = (8..40).contains(&bit);
                assert_eq!(result.is_ok(), in_index, "{profile:?} {cipher:?} bit {bit}");
            }
        }
    }
}

#[test]
fn path_and_the_untransmitted_half_of_the_number_are_authentic() {
    let (a, b) = ends(HeaderCipher::Aes, Floor::BITS_128);
    let number = (5 << 32) + 1;
    let whole = sealed(&a, Profile::whole(Suite::Aes256Gcm), nonce(1, number), b"inner");
    let unmasked = b.open.unmask(&whole).unwrap();
    let open = |serial, number| {
        let mut datagram = whole.clone();
        b.open
            .open(PathSerial(serial), number, &unmasked, &mut datagram)
            .map(|inner| inner.to_vec())
    };
    assert_eq!(open(1, number), Ok(b"inner".to_vec()));
    assert_eq!(open(2, number), Err(DropReason::BadTag));
    assert_eq!(open(1, 1), Err(DropReason::BadTag));
    assert_eq!(open(1, (6 << 32) + 1), Err(DropReason::BadTag));
}

#[test]
fn short_datagrams_and_other_kinds_are_malformed() {
    let (a, b) = ends(HeaderCipher::Aes, Floor::BITS_128);
    let whole = sealed(&a, Profile::whole(Suite::Aes256Gcm), nonce(0, 0), b"inner");
    let unmasked = b.open.unmask(&whole).unwrap();
    for len in 0..MIN_LEN {
        assert_eq!(b.open.unmask(&whole[..len]), Err(DropReason::Malformed));
    }
    for len in 0..whole.len() {
        let mut cut = whole[..len].to_vec();
        assert!(b.open.open(PathSerial(0), 0, &unmasked, &mut cut).is_err(), "{len} bytes");
    }
    let mut other = whole;
    other[0] = 3;
    assert_eq!(b.open.unmask(&other), Err(DropReason::Malformed));
}

/// What becomes of a datagram under each of the 256 profile IDs: how often it opens, fails to
/// verify, is a decoy, is below the floor.
fn by_id(receiver: &EpochKeys, datagram: &[u8]) -> [usize; 4] {
    let mut counts = [0; 4];
    for change in 0..=255 {
        let mut changed = datagram.to_vec();
        changed[5] ^= change;
        let unmasked = receiver.open.unmask(&changed).unwrap();
        let opened = receiver.open.open(PathSerial(0), 0, &unmasked, &mut changed);
        let place = match opened {
            Ok(_) => 0,
            Err(DropReason::BadTag) => 1,
            Err(DropReason::Decoy) => 2,
            Err(DropReason::BelowFloor) => 3,
            Err(reason) => panic!("{reason:?}"),
        };
        counts[place] += 1;
    }
    counts
}

/// An attacker who knows the keys of header protection can give a datagram any ID: none lowers
/// the strength, and redrawn IDs cannot even name a suite below the floor.
#[test]
fn no_id_leads_below_the_floor() {
    let expected = [
        (Floor::BITS_128, FORMS[0], [1, 11, 244, 0]),
        (Floor::BITS_256, FORMS[0], [1, 7, 244, 4]),
        (Floor::BITS_128, FORMS[1], [1, 255, 0, 0]),
        (Floor::BITS_256, FORMS[1], [1, 255, 0, 0]),
    ];
    for (floor, features, expected) in expected {
        let (a, b) = ends_with(HeaderCipher::ChaCha20, floor, features);
        let datagram = sealed(&a, Profile::whole(Suite::Aes256Gcm), nonce(0, 0), b"inner");
        assert_eq!(by_id(&b, &datagram), expected, "{floor:?} {features:?}");
    }
}

/// A peer whose copy of the keys has a lower floor than was agreed: it has the right key of the
/// weak suite, and what it seals is dropped all the same.
#[test]
fn a_suite_below_the_floor_is_neither_opened_nor_sealed() {
    let weak = Profile::whole(Suite::Aes128Gcm);
    for (features, reason) in FORMS.into_iter().zip([DropReason::BelowFloor, DropReason::BadTag]) {
        let (low, honest) = ends_with(HeaderCipher::Aes, Floor::BITS_128, features);
        let (high, receiver) = ends_with(HeaderCipher::Aes, Floor::BITS_256, features);
        let open = |end: &EpochKeys, profile, number| {
            let mut datagram = sealed(&low, profile, nonce(0, number), b"inner");
            let unmasked = end.open.unmask(&datagram).unwrap();
            end.open.open(PathSerial(0), number, &unmasked, &mut datagram).map(|_| ())
        };
        for number in 0..600 {
            assert_eq!(open(&honest, weak, number), Ok(()));
            assert_eq!(open(&receiver, weak, number), Err(reason));
        }
        assert_eq!(receiver.open.floor(), Floor::BITS_256);
        assert_eq!((low.seal.floor(), low.seal.header_cipher()), (Floor(0), HeaderCipher::Aes));
        let attempt = std::panic::catch_unwind(|| sealed(&high, weak, nonce(0, 0), b"inner"));
        assert!(attempt.is_err(), "the sender's mistake must not reach the wire");
    }
}

#[test]
fn padding_that_leaves_no_frame_is_refused() {
    let (a, b) = ends_with(HeaderCipher::Aes, Floor::BITS_256, Features::PROFILES);
    let padded = Profile::whole(Suite::Aes256Gcm).padded();
    for (plaintext, frames) in [(&[7u8, 0, 2], Some(1)), (&[7, 0, 3], None), (&[7, 9, 9], None)] {
        let mut datagram = sealed(&a, padded, nonce(0, 5), plaintext);
        let unmasked = b.open.unmask(&datagram).unwrap();
        let opened = b.open.open(PathSerial(0), 5, &unmasked, &mut datagram);
        assert_eq!(opened.map(|frames| frames.len()), frames.ok_or(DropReason::BadFrame));
    }
}

#[test]
fn sealed_datagram_vectors() {
    let mut vectors = Vectors::new(include_str!("vectors/datagram.txt"));
    let handshake_hash = vectors.array("handshake_hash");
    let split = vectors.array("split");
    let plaintext = vectors.input("plaintext");
    let [index, serial] = ["index", "serial"].map(|name| u32::from_be_bytes(vectors.array(name)));
    let number = u64::from_be_bytes(vectors.array("number"));
    for header_cipher in CIPHERS {
        let (floor, features) = (Floor::BITS_128, Features::NONE);
        let (handshake_hash, split) = (&handshake_hash, &split);
        let finished = Finished { handshake_hash, split, header_cipher, floor, features };
        let sender = EpochKeys::derive(Role::Initiator, &finished);
        let receiver = EpochKeys::derive(Role::Responder, &finished);
        for suite in Suite::ALL {
            let mut datagram = vec![0; OVERHEAD + plaintext.len()];
            datagram[HEADER_LEN..HEADER_LEN + plaintext.len()].copy_from_slice(&plaintext);
            let nonce = nonce(serial, number);
            sender.seal.seal(SessionIndex(index), Profile::whole(suite), nonce, &mut datagram);
            vectors.output(&format!("{suite:?}_header_{header_cipher:?}"), &datagram);
            let unmasked = receiver.open.unmask(&datagram).unwrap();
            let opened = receiver.open.open(nonce.serial, number, &unmasked, &mut datagram);
            assert_eq!(opened.unwrap(), plaintext);
        }
    }
    vectors.verify();
}

/// Redrawn IDs: what each means in one datagram under either floor, and a datagram of each profile.
#[test]
fn redrawn_datagram_vectors() {
    let mut vectors = Vectors::new(include_str!("vectors/profiles.txt"));
    let handshake_hash = vectors.array("handshake_hash");
    let split = vectors.array("split");
    let frames = vectors.input("frames");
    let [index, serial] = ["index", "serial"].map(|name| u32::from_be_bytes(vectors.array(name)));
    let number = u64::from_be_bytes(vectors.array("number"));
    let nonce = nonce(serial, number);
    for (header_cipher, floor) in
        CIPHERS.into_iter().flat_map(|c| [Floor::BITS_128, Floor::BITS_256].map(|f| (c, f)))
    {
        let (handshake_hash, split, features) = (&handshake_hash, &split, Features::PROFILES);
        let finished = Finished { handshake_hash, split, header_cipher, floor, features };
        let sender = EpochKeys::derive(Role::Initiator, &finished);
        let receiver = EpochKeys::derive(Role::Responder, &finished);
        let name = format!("floor_{}_header_{header_cipher:?}", floor.0);
        let place = |id| {
            let meaning = receiver.open.0.ids.profile(ProfileId(id), nonce).unwrap();
            Profile::ALL.iter().position(|profile| *profile == meaning).unwrap() as u8
        };
        vectors.output(&format!("profile_of_id_{name}"), &(0..=255).map(place).collect::<Vec<_>>());
        for (place, profile) in Profile::ALL.into_iter().enumerate() {
            if !profile.suite().meets(floor) {
                continue;
            }
            let plaintext = plaintext(profile, &frames, 5);
            let mut datagram = vec![0; HEADER_LEN];
            datagram.extend_from_slice(&plaintext);
            datagram.resize(OVERHEAD + plaintext.len(), 0);
            sender.seal.seal(SessionIndex(index), profile, nonce, &mut datagram);
            vectors.output(&format!("profile_{place}_{name}"), &datagram);
            let unmasked = receiver.open.unmask(&datagram).unwrap();
            let opened = receiver.open.open(nonce.serial, number, &unmasked, &mut datagram);
            assert_eq!(opened.unwrap(), frames);
        }
    }
    vectors.verify();
}

proptest! {
    #[test]
    fn no_bytes_panic_or_open(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        form in 0usize..2,
    ) {
        let (_, b) = ends_with(HeaderCipher::Aes, Floor::BITS_128, FORMS[form]);
        if let Some(first) = bytes.first_mut() {
            *first = 0x10;
        }
        if let Ok(unmasked) = b.open.unmask(&bytes) {
            let opened = b.open.open(PathSerial(0), 0, &unmasked, &mut bytes);
            prop_assert!([DropReason::BadTag, DropReason::Decoy].map(Err).contains(&opened));
        }
    }

    #[test]
    fn any_plaintext_comes_back(
        frames in proptest::collection::vec(any::<u8>(), 1..1_400),
        padding in 2usize..46,
        serial: u32,
        number: u64,
        profile in 0..Profile::COUNT,
        aes: bool,
    ) {
        let profile = Profile::ALL[profile];
        let features = FORMS[usize::from(profile.is_padded())];
        let (a, b) = ends_with(CIPHERS[usize::from(aes)], Floor::BITS_128, features);
        let plaintext = plaintext(profile, &frames, padding);
        let mut datagram = sealed(&a, profile, nonce(serial, number), &plaintext);
        let unmasked = b.open.unmask(&datagram).unwrap();
        prop_assert_eq!(unmasked.number, number as u32);
        let opened = b.open.open(PathSerial(serial), number, &unmasked, &mut datagram).unwrap();
        prop_assert_eq!(&*opened, &frames[..]);
    }
}
