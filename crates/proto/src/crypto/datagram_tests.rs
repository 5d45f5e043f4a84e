use proptest::prelude::*;

use super::*;
use crate::crypto::schedule::{EpochKeys, Finished, Role};
use crate::crypto::vectors::Vectors;

const CIPHERS: [HeaderCipher; 2] = [HeaderCipher::Aes, HeaderCipher::ChaCha20];
const INDEX: SessionIndex = SessionIndex(0x0102_0304);

fn ends(header_cipher: HeaderCipher, floor: Floor) -> (EpochKeys, EpochKeys) {
    let finished =
        Finished { handshake_hash: &[0xaa; 32], split: &[0xbb; 64], header_cipher, floor };
    let derive = |role| EpochKeys::derive(role, &finished);
    (derive(Role::Initiator), derive(Role::Responder))
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
    for cipher in CIPHERS {
        let (a, b) = ends(cipher, Floor::BITS_128);
        for suite in Suite::ALL {
            for (from, to) in [(&a, &b), (&b, &a)] {
                for (number, len) in [(0, 1), (7, 2), (u64::from(u32::MAX) + 9, 1_400)] {
                    let plaintext = vec![0x5a; len];
                    let profile = Profile::whole(suite);
                    let mut datagram = sealed(from, profile, nonce(3, number), &plaintext);
                    assert_eq!(datagram[..5], [0x10, 1, 2, 3, 4]);
                    let unmasked = to.open.unmask(&datagram).unwrap();
                    assert_eq!((unmasked.profile, unmasked.number), (profile, number as u32));
                    let mut reflected = datagram.clone();
                    let opened =
                        to.open.open(PathSerial(3), number, &unmasked, &mut datagram).unwrap();
                    assert_eq!(opened, plaintext);
                    if let Ok(unmasked) = from.open.unmask(&reflected) {
                        let opened =
                            from.open.open(PathSerial(3), number, &unmasked, &mut reflected);
                        assert_eq!(opened, Err(DropReason::BadTag));
                    }
                }
            }
        }
    }
}

#[test]
fn every_bit_but_the_index_is_protected() {
    for cipher in CIPHERS {
        let (a, b) = ends(cipher, Floor::BITS_128);
        for suite in Suite::ALL {
            let whole = sealed(&a, Profile::whole(suite), nonce(1, 77), b"inner packet");
            for bit in 0..whole.len() * 8 {
                let mut datagram = whole.clone();
                datagram[bit / 8] ^= 1 << (bit % 8);
                let result = b.open.unmask(&datagram).and_then(|unmasked| {
                    let number = u64::from(unmasked.number);
                    b.open.open(PathSerial(1), number, &unmasked, &mut datagram).map(|_| ())
                });
                let in_index = (8..40).contains(&bit);
                assert_eq!(result.is_ok(), in_index, "{suite:?} {cipher:?} bit {bit}");
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

/// The mask hides which profile a datagram has; without it, IDs without meaning are decoys.
#[test]
fn ids_without_a_profile_are_decoys() {
    let (a, b) = ends(HeaderCipher::ChaCha20, Floor::BITS_128);
    let datagram = sealed(&a, Profile::whole(Suite::Aes256Gcm), nonce(0, 0), b"inner");
    let mut known = 0;
    for id in 0..=255 {
        let mut changed = datagram.clone();
        changed[5] ^= id;
        match b.open.unmask(&changed) {
            Ok(_) => known += 1,
            Err(reason) => assert_eq!(reason, DropReason::Decoy),
        }
    }
    assert_eq!(known, 3 * 4, "three profiles of four aliases");
}

#[test]
fn a_suite_below_the_floor_is_neither_opened_nor_sealed() {
    let (low, _) = ends(HeaderCipher::Aes, Floor::BITS_128);
    let (high, receiver) = ends(HeaderCipher::Aes, Floor::BITS_256);
    let weak = Profile::whole(Suite::Aes128Gcm);
    let datagram = sealed(&low, weak, nonce(0, 0), b"inner");
    assert_eq!(receiver.open.unmask(&datagram), Err(DropReason::Decoy));
    assert_eq!(receiver.open.floor(), Floor::BITS_256);
    assert_eq!((low.seal.floor(), low.seal.header_cipher()), (Floor(0), HeaderCipher::Aes));
    let attempt = std::panic::catch_unwind(|| sealed(&high, weak, nonce(0, 0), b"inner"));
    assert!(attempt.is_err(), "the sender's mistake must not reach the wire");
}

#[test]
fn aliases_are_all_used() {
    let (a, _) = ends(HeaderCipher::Aes, Floor::BITS_128);
    let profile = Profile::whole(Suite::Aes256Gcm);
    let mut counts = [0; 256];
    for number in 0..4_000 {
        counts[usize::from(a.seal.profile_id(profile, number).0)] += 1;
    }
    let used: Vec<u32> = counts.into_iter().filter(|&count| count > 0).collect();
    assert_eq!(used.len(), 4);
    assert!(used.iter().all(|count| (800..1_200).contains(count)), "{used:?}");
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
        let floor = Floor::BITS_128;
        let finished =
            Finished { handshake_hash: &handshake_hash, split: &split, header_cipher, floor };
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

proptest! {
    #[test]
    fn no_bytes_panic_or_open(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (_, b) = ends(HeaderCipher::Aes, Floor::BITS_128);
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = 0x10;
        }
        if let Ok(unmasked) = b.open.unmask(&bytes) {
            let opened = b.open.open(PathSerial(0), 0, &unmasked, &mut bytes);
            prop_assert_eq!(opened, Err(DropReason::BadTag));
        }
    }

    #[test]
    fn any_plaintext_comes_back(
        plaintext in proptest::collection::vec(any::<u8>(), 1..1_446),
        serial: u32,
        number: u64,
        suite in 0usize..3,
        aes: bool,
    ) {
        let (a, b) = ends(CIPHERS[usize::from(aes)], Floor::BITS_128);
        let profile = Profile::whole(Suite::ALL[suite]);
        let mut datagram = sealed(&a, profile, nonce(serial, number), &plaintext);
        let unmasked = b.open.unmask(&datagram).unwrap();
        prop_assert_eq!(unmasked.number, number as u32);
        let opened = b.open.open(PathSerial(serial), number, &unmasked, &mut datagram).unwrap();
        prop_assert_eq!(&*opened, &plaintext[..]);
    }
}
