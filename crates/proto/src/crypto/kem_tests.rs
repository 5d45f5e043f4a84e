use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, EncapsulationKey, ML_KEM_768};

use super::*;
use crate::crypto::SeededRng;

/// A second implementation must find the same secrets, both ways.
#[test]
fn agrees_with_another_implementation() {
    let mut rng = SeededRng::new(1);
    for _ in 0..8 {
        let ours = KemSecret::generate(&mut rng);
        let theirs = EncapsulationKey::new(&ML_KEM_768, &ours.encapsulation_key()).unwrap();
        let (ciphertext, secret) = theirs.encapsulate().unwrap();
        let ciphertext = ciphertext.as_ref().try_into().unwrap();
        assert_eq!(ours.decapsulate(&ciphertext).as_ref(), secret.as_ref());

        let theirs = DecapsulationKey::generate(&ML_KEM_768).unwrap();
        let ek = theirs.encapsulation_key().unwrap().key_bytes().unwrap();
        let ours = KemPublic::new(ek.as_ref().try_into().unwrap()).unwrap();
        let (ciphertext, secret) = ours.encapsulate(&mut rng);
        let found = theirs.decapsulate(Ciphertext::from(ciphertext.as_slice())).unwrap();
        assert_eq!(found.as_ref(), secret.as_ref());
    }
}

/// FIPS 203, 7.2: every coefficient must be below q = 3329.
#[test]
fn refuses_a_key_out_of_range() {
    let ek = KemSecret::generate(&mut SeededRng::new(2)).encapsulation_key();
    assert!(KemPublic::new(ek).is_some());
    // 12 bits a coefficient; the last 32 bytes are a seed, where everything is allowed.
    for at in [0, 600, EK_LEN - 32 - 3] {
        let mut bad = ek;
        bad[at..at + 3].copy_from_slice(&[0xff; 3]);
        assert!(KemPublic::new(bad).is_none(), "coefficient at byte {at}");
    }
    let mut other_seed = ek;
    other_seed[EK_LEN - 1] ^= 1;
    assert!(KemPublic::new(other_seed).is_some());
}

#[test]
fn a_changed_ciphertext_gives_another_secret() {
    let mut rng = SeededRng::new(3);
    let ours = KemSecret::generate(&mut rng);
    let (ciphertext, secret) =
        KemPublic::new(ours.encapsulation_key()).unwrap().encapsulate(&mut rng);
    assert_eq!(*ours.decapsulate(&ciphertext), *secret);
    for at in [0, CT_LEN / 2, CT_LEN - 1] {
        let mut changed = ciphertext;
        changed[at] ^= 1;
        assert_ne!(*ours.decapsulate(&changed), *secret);
    }
}

/// Each input must matter, and an absent static key is the same as one of zeros.
#[test]
fn every_input_reaches_the_psk() {
    let secret = Zeroizing::new([1; 32]);
    let base = || Exchange {
        h1: &[2; 32],
        ek_hash: &[3; 32],
        ciphertext: &[4; CT_LEN],
        sender: SessionIndex(5),
        receiver: SessionIndex(6),
    };
    let psk = base().psk(None, &secret);
    assert_eq!(*psk, *base().psk(Some(&[0; 32]), &secret));
    let others = [
        base().psk(Some(&[9; 32]), &secret),
        base().psk(None, &Zeroizing::new([9; 32])),
        Exchange { h1: &[9; 32], ..base() }.psk(None, &secret),
        Exchange { ek_hash: &[9; 32], ..base() }.psk(None, &secret),
        Exchange { ciphertext: &[9; CT_LEN], ..base() }.psk(None, &secret),
        Exchange { sender: SessionIndex(9), ..base() }.psk(None, &secret),
        Exchange { receiver: SessionIndex(9), ..base() }.psk(None, &secret),
    ];
    for other in others {
        assert_ne!(*psk, *other);
    }
}
