use std::net::SocketAddr;

use super::*;
use crate::crypto::handshake::{Initiator, MessagePair};
use crate::crypto::vectors::{Script, Vectors};
use crate::crypto::{Features, Floor, Hello, SeededRng, StaticSecret};
use crate::wire::handshake::{COOKIE_REPLY_LEN, INDEX_COUNT};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn started(seed: u64, remote: PeerKey) -> (Initiator, MessagePair) {
    let hello = Hello {
        counter: 1,
        features: Features::NONE,
        floor: Floor::BITS_128,
        has_aes: true,
        token: None,
        indices: std::array::from_fn::<_, INDEX_COUNT, _>(|at| SessionIndex(at as u32 + 1)),
    };
    let mut rng = SeededRng::new(seed);
    let own = StaticSecret::generate(&mut rng);
    Initiator::start(&mut rng, &own, remote, None, &hello).unwrap()
}

fn responder() -> PeerKey {
    StaticSecret::new([0x77; 32]).public()
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

#[test]
fn without_load_mac1_is_enough_and_needed() {
    let gate = Gate::new(responder(), &mut SeededRng::new(1), at(0));
    let (_, messages) = started(2, responder());
    let (_, elsewhere) = started(2, StaticSecret::new([0x78; 32]).public());
    let source = address("192.0.2.1:1000");
    for message in [&messages.a, &messages.b] {
        assert_eq!(gate.check(message, source, false), Verdict::Pass);
        for at in 0..message.len() - MAC_LEN {
            let mut flipped = message.clone();
            flipped[at] ^= 1;
            let dropped = matches!(gate.check(&flipped, source, false), Verdict::Drop(_));
            assert!(dropped, "byte {at}");
        }
    }
    for message in [&elsewhere.a, &elsewhere.b] {
        assert_eq!(gate.check(message, source, false), Verdict::Drop(DropReason::BadMac));
    }
}

#[test]
fn only_a_and_b_are_looked_at() {
    let gate = Gate::new(responder(), &mut SeededRng::new(1), at(0));
    let source = address("192.0.2.1:1000");
    for kind in 0..=255 {
        for len in [0, 1, 5, COOKIE_REPLY_LEN, B_LEN - 1, B_LEN + 1, A_LEN - 1, A_LEN + 1] {
            let mut message = vec![0; len];
            message.iter_mut().take(1).for_each(|byte| *byte = kind);
            let verdict = gate.check(&message, source, true);
            assert_eq!(verdict, Verdict::Drop(DropReason::Malformed), "{kind} of {len} bytes");
            assert!(gate.cookie_reply(&mut SeededRng::new(9), &message, source).is_err());
        }
    }
}

#[test]
fn under_load_a_cookie_opens_the_gate_from_its_address_only() {
    let gate = Gate::new(responder(), &mut SeededRng::new(1), at(0));
    let (mut initiator, messages) = started(2, responder());
    let source = address("192.0.2.1:1000");
    assert_eq!(gate.check(&messages.a, source, true), Verdict::Challenge);
    assert_eq!(gate.check(&messages.b, source, true), Verdict::Challenge);

    let reply = gate.cookie_reply(&mut SeededRng::new(3), &messages.a, source).unwrap();
    assert!(reply.len() < messages.b.len(), "no amplification");
    let cookie = initiator.open_cookie_reply(&reply).unwrap();
    let proven = initiator.add_cookie(&cookie).clone();
    for message in [&proven.a, &proven.b] {
        assert_eq!(gate.check(message, source, true), Verdict::Pass);
        for other in ["192.0.2.1:1001", "192.0.2.2:1000", "[2001:db8::1]:1000"] {
            assert_eq!(gate.check(message, address(other), true), Verdict::Challenge);
        }
        for at in message.len() - MAC_LEN..message.len() {
            let mut flipped = message.clone();
            flipped[at] ^= 1;
            assert_eq!(gate.check(&flipped, source, true), Verdict::Challenge, "byte {at}");
        }
    }
    let unchanged = proven.a.len() - MAC_LEN;
    assert_eq!(proven.a[..unchanged], messages.a[..unchanged]);
}

#[test]
fn a_reply_to_either_half_opens_and_no_other_does() {
    let gate = Gate::new(responder(), &mut SeededRng::new(1), at(0));
    let (initiator, messages) = started(2, responder());
    let (other, others) = started(4, responder());
    let source = address("[2001:db8::1]:1000");
    let mut rng = SeededRng::new(3);
    let to_a = gate.cookie_reply(&mut rng, &messages.a, source).unwrap();
    let to_b = gate.cookie_reply(&mut rng, &messages.b, source).unwrap();
    assert_eq!(initiator.open_cookie_reply(&to_a), initiator.open_cookie_reply(&to_b));
    assert!(initiator.open_cookie_reply(&to_a).is_ok());

    // Same session index, another exchange: the mac1 in the associated data tells.
    assert_eq!(other.open_cookie_reply(&to_a), Err(DropReason::BadMac));
    let to_other = gate.cookie_reply(&mut rng, &others.a, source).unwrap();
    assert_eq!(initiator.open_cookie_reply(&to_other), Err(DropReason::BadMac));
    for at in 0..to_a.len() {
        let mut flipped = to_a.clone();
        flipped[at] ^= 0x10;
        assert!(initiator.open_cookie_reply(&flipped).is_err(), "byte {at}");
    }
    assert!(initiator.open_cookie_reply(&to_a[1..]).is_err());
}

#[test]
fn a_cookie_lives_between_one_and_two_rotations() {
    let source = address("192.0.2.1:1000");
    let passes_at = |issued: u64, checks: &[u64]| {
        let mut rng = SeededRng::new(5);
        let mut gate = Gate::new(responder(), &mut rng, at(0));
        let (mut initiator, messages) = started(2, responder());
        gate.rotate(&mut rng, at(issued));
        let reply = gate.cookie_reply(&mut rng, &messages.a, source).unwrap();
        let cookie = initiator.open_cookie_reply(&reply).unwrap();
        let proven = initiator.add_cookie(&cookie).clone();
        for &seconds in checks {
            gate.rotate(&mut rng, at(seconds));
        }
        gate.check(&proven.a, source, true) == Verdict::Pass
    };
    assert!(passes_at(0, &[119]));
    assert!(passes_at(0, &[120, 239]), "made with the previous secret");
    assert!(!passes_at(0, &[120, 240]), "two rotations later");
    assert!(!passes_at(0, &[240]), "nobody asked for two rotations");
    assert!(passes_at(119, &[120, 238]));
    assert!(!passes_at(0, &[100_000]));
}

#[test]
fn cookie_reply_vector() {
    let mut vectors = Vectors::new(include_str!("vectors/cookie.txt"));
    let responder = PeerKey(vectors.array("responder_public"));
    let secret: [u8; 32] = vectors.array("cookie_secret");
    let mut message_b = vectors.input("message");
    let gate = Gate::new(responder, &mut Script(secret.to_vec()), at(0));
    let end = message_b.len() - 2 * MAC_LEN;
    let mac1 = gate.mac1.mac(&message_b[..end]);
    message_b[end..end + MAC_LEN].copy_from_slice(&mac1);
    vectors.output("mac1", &mac1);
    for (name, source) in [("v4", "192.0.2.1:51820"), ("v6", "[2001:db8::1]:443")] {
        let source = address(source);
        let nonce = vectors.array::<16>(&format!("nonce_{name}"));
        let reply = gate.cookie_reply(&mut Script(nonce.to_vec()), &message_b, source).unwrap();
        vectors.output(&format!("reply_{name}"), &reply);
        let cookie = Cookie::of(&gate.secret, source);
        let mac2 = cookie.mac(&message_b[..end + MAC_LEN]);
        vectors.output(&format!("mac2_{name}"), &mac2);
        let opened = Cookie::open(responder, &nonce, &mac1, reply[21..].try_into().unwrap());
        assert_eq!(opened, Ok(cookie));
    }
    vectors.verify();
}
