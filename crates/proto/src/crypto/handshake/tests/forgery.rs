//! Messages that an attacker changed, made up, or sent to the wrong place. He knows every public
//! key and saw every message, so he can always make a right mac1: each change is tried with and
//! without.

use proptest::prelude::*;

use super::*;
use crate::wire::handshake::{EK_LEN, VERSION};

/// Passes over message bytes in steps that are coprime to every field's length.
const STEP: usize = 7;

/// What a responder makes of two messages.
fn accepts(pair: &mut Pair, a: &[u8], b: &[u8]) -> bool {
    let gate = Gate::new(pair.responder.public(), &mut SeededRng::new(1), Instant::ZERO);
    if [a, b].iter().any(|m| gate.check(m, observed(), false) != Verdict::Pass) {
        return false;
    }
    pair.open(a).and_then(|mut pending| pending.complete(b)).is_ok()
}

#[test]
fn every_bit_of_message_1_counts() {
    let mut pair = Pair::new(21);
    let (_, messages) = pair.start(&hello());
    assert!(accepts(&mut pair, &messages.a, &messages.b));
    let key = Mac1Key::of_responder(pair.responder.public());
    for (step, at) in (0..A_LEN - 2 * MAC_LEN).step_by(STEP).chain(0..7).enumerate() {
        let mut a = messages.a.clone();
        a[at] ^= 1 << (step % 8);
        assert!(!accepts(&mut pair, &a, &messages.b), "A, byte {at}, old MAC");
        put_mac1(&key, &mut a, MAC_LEN);
        assert!(pair.open(&a).is_err(), "A, byte {at}, new MAC");
    }
    for (step, at) in (0..B_LEN - 2 * MAC_LEN).step_by(STEP).chain(0..22).enumerate() {
        let mut b = messages.b.clone();
        b[at] ^= 1 << (step % 8);
        assert!(!accepts(&mut pair, &messages.a, &b), "B, byte {at}, old MAC");
        put_mac1(&key, &mut b, MAC_LEN);
        assert!(!accepts(&mut pair, &messages.a, &b), "B, byte {at}, new MAC");
    }
}

#[test]
fn every_bit_of_the_response_counts_and_a_forgery_destroys_nothing() {
    let mut pair = Pair::new(22);
    let (mut initiator, messages) = pair.start(&hello());
    let (response, theirs) = pair.respond(&messages, &welcome());
    let key = Mac1Key::of_exchange(initiator.h1());
    for (step, at) in (0..RESPONSE_LEN).step_by(STEP).chain(0..9).enumerate() {
        let mut changed = response.clone();
        changed[at] ^= 1 << (step % 8);
        assert!(initiator.finish(&changed).is_err(), "byte {at}, old MAC");
        if at >= RESPONSE_LEN - MAC_LEN {
            continue;
        }
        put_mac1(&key, &mut changed, 0);
        assert!(initiator.finish(&changed).is_err(), "byte {at}, new MAC");
    }
    for len in 0..RESPONSE_LEN {
        assert_eq!(initiator.finish(&response[..len]).unwrap_err(), DropReason::Malformed);
    }
    let (_, ours) = initiator.finish(&response).expect("the true one is still accepted");
    talk(&ours.unwrap(), &theirs.unwrap());
}

/// A responder that lies: everything is authentic, and still not what was offered.
#[test]
fn a_responder_cannot_take_what_was_not_offered() {
    let mut pair = Pair::new(23);
    let strict = Hello {
        floor: Floor::BITS_256,
        has_aes: false,
        features: Features::from_bits(0b101),
        ..hello()
    };
    let honest = Welcome {
        floor: Floor::BITS_256,
        header_cipher: HeaderCipher::ChaCha20,
        features: Features::from_bits(0b100),
        ..welcome()
    };
    let lies = [
        Welcome { floor: Floor::BITS_128, ..honest },
        Welcome { floor: Floor(2), ..honest },
        Welcome { header_cipher: HeaderCipher::Aes, ..honest },
        Welcome { features: Features::from_bits(0b110), ..honest },
    ];
    for lie in lies {
        let (mut initiator, messages) = pair.start(&strict);
        let complete = pair.complete(&messages);
        let (response, _) = complete.write(&mut pair.rng, Some(&PSK), &lie).unwrap();
        assert_eq!(initiator.finish(&response).unwrap_err(), DropReason::BadHandshake);
    }
    let (mut initiator, messages) = pair.start(&strict);
    let complete = pair.complete(&messages);
    let (response, _) = complete.write(&mut pair.rng, Some(&PSK), &honest).unwrap();
    assert!(initiator.finish(&response).unwrap().1.is_some());
}

#[test]
fn another_version_is_refused() {
    let mut pair = Pair::new(24);
    let (_, messages) = pair.start(&hello());
    for version in (0..=255).filter(|&version| version != messages.a[5]) {
        let mut a = messages.a.clone();
        a[5] = version;
        put_mac1(&Mac1Key::of_responder(pair.responder.public()), &mut a, MAC_LEN);
        assert_eq!(pair.open(&a).unwrap_err(), DropReason::BadHandshake);
    }
}

#[test]
fn messages_for_another_identity_are_refused() {
    let mut pair = Pair::new(25);
    let (_, messages) = pair.start(&hello());
    let stranger = StaticSecret::generate(&mut pair.rng);
    let opened = PendingA::open(&mut pair.rng, &stranger, &messages.a);
    assert_eq!(opened.unwrap_err(), DropReason::BadHandshake);
    let own_key = pair.responder.public();
    let reflected =
        Initiator::start(&mut pair.rng, &pair.responder, own_key, None, &hello()).unwrap().1;
    assert_eq!(pair.open(&reflected.a).unwrap_err(), DropReason::BadHandshake, "own identity");
}

#[test]
fn a_response_to_another_exchange_is_refused() {
    let mut pair = Pair::new(26);
    let (mut first, _) = pair.start(&hello());
    let (_, second) = pair.start(&hello());
    let (mut response, _) = pair.respond(&second, &welcome());
    assert_eq!(first.finish(&response).unwrap_err(), DropReason::BadMac);
    put_mac1(&Mac1Key::of_exchange(first.h1()), &mut response, 0);
    assert_eq!(first.finish(&response).unwrap_err(), DropReason::BadHandshake);
    let (mut third, messages) = pair.start(&Hello { indices: indices(900), ..hello() });
    assert_eq!(third.finish(&response).unwrap_err(), DropReason::BadHandshake);
    let (response, _) = pair.respond(&messages, &welcome());
    assert!(third.finish(&response).unwrap().1.is_some());
}

#[test]
fn a_key_that_shares_no_secret_is_named() {
    let mut pair = Pair::new(27);
    for unusable in [[0; 32], std::array::from_fn(|at| u8::from(at == 0))] {
        let started =
            Initiator::start(&mut pair.rng, &pair.initiator, PeerKey(unusable), None, &hello());
        assert_eq!(started.map(|_| ()), Err(UnusableKey));
    }
}

/// The encapsulation key must be one, even when its hash is right.
#[test]
fn an_invalid_kem_key_is_refused() {
    let mut pair = Pair::new(28);
    let remote = pair.responder.public();
    let messages = initiator::message_pair_with_ek(
        &mut pair.rng,
        &pair.initiator,
        remote,
        &hello(),
        [0xff; EK_LEN],
    );
    let mut pending = pair.open(&messages.a).unwrap();
    assert_eq!(pending.complete(&messages.b).unwrap_err(), DropReason::BadHandshake);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_panic_or_pass(
        kind in 1u8..6,
        fill in proptest::collection::vec(any::<u8>(), A_LEN),
        len_choice in 0usize..5,
    ) {
        let len = [A_LEN, B_LEN, RESPONSE_LEN, 53, usize::from(fill[0])][len_choice];
        let mut message = fill;
        message.truncate(len);
        if let Some(first) = message.first_mut() {
            *first = kind;
        }
        let mut pair = Pair::new(29);
        let (mut initiator, messages) = pair.start(&hello());
        if len == A_LEN {
            // Past the version and the MAC, so that Noise sees it.
            message[5] = VERSION;
            put_mac1(&Mac1Key::of_responder(pair.responder.public()), &mut message, MAC_LEN);
        }
        if len == RESPONSE_LEN {
            message[5..9].copy_from_slice(&100u32.to_be_bytes());
            put_mac1(&Mac1Key::of_exchange(initiator.h1()), &mut message, 0);
        }
        prop_assert!(pair.open(&message).is_err());
        prop_assert!(initiator.finish(&message).is_err());
        prop_assert!(initiator.open_cookie_reply(&message).is_err());
        prop_assert!(pair.open(&messages.a).unwrap().complete(&message).is_err());
    }
}
