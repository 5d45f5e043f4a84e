use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::*;
use crate::crypto::mac::Mac1Key;
use crate::crypto::vectors::{Script, Vectors};
use crate::crypto::{
    EpochKeys, Floor, Gate, HeaderCipher, Hello, Nonce, Profile, SeededRng, StaticSecret, Status,
    Suite, Token, Verdict, Welcome,
};
use crate::id::{PathSerial, PeerKey, SessionIndex};
use crate::time::Instant;
use crate::wire::data::OVERHEAD;
use crate::wire::features::Features;
use crate::wire::handshake::{A_LEN, B_LEN, INDEX_COUNT, RESPONSE_LEN, ResponsePart};

mod forgery;
mod order;

const PSK: [u8; 32] = [0x99; 32];

/// Two identities, and everything a handshake between them needs.
struct Pair {
    initiator: StaticSecret,
    responder: StaticSecret,
    rng: SeededRng,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let initiator = StaticSecret::generate(&mut rng);
        let responder = StaticSecret::generate(&mut rng);
        Self { initiator, responder, rng }
    }

    fn start(&mut self, hello: &Hello) -> (Initiator, MessagePair) {
        let remote = self.responder.public();
        Initiator::start(&mut self.rng, &self.initiator, remote, Some(&PSK), hello).unwrap()
    }

    fn open(&mut self, a: &[u8]) -> Result<PendingA, DropReason> {
        PendingA::open(&mut self.rng, &self.responder, a)
    }

    fn complete(&mut self, messages: &MessagePair) -> Complete {
        self.open(&messages.a).unwrap().complete(&messages.b).unwrap()
    }

    fn respond(
        &mut self,
        messages: &MessagePair,
        welcome: &Welcome,
    ) -> (Vec<u8>, Option<EpochKeys>) {
        let complete = self.complete(messages);
        complete.respond(&mut self.rng, Some(&PSK), welcome).unwrap()
    }
}

fn indices(first: u32) -> [SessionIndex; INDEX_COUNT] {
    std::array::from_fn(|at| SessionIndex(first + at as u32))
}

fn hello() -> Hello {
    Hello {
        counter: 41,
        features: Features::from_bits(0b101),
        floor: Floor::BITS_128,
        has_aes: true,
        token: Token::new(b"invited"),
        indices: indices(100),
    }
}

fn welcome() -> Welcome {
    Welcome {
        status: Status::Accepted,
        features: Features::from_bits(0b110),
        floor: Floor::BITS_128,
        header_cipher: HeaderCipher::Aes,
        observed: observed(),
        indices: indices(200),
    }
}

fn observed() -> SocketAddr {
    "[2001:db8::7]:4500".parse().unwrap()
}

/// Sends a datagram each way, to see that both ends hold the same keys.
fn talk(left: &EpochKeys, right: &EpochKeys) {
    for (from, to) in [(left, right), (right, left)] {
        for suite in Suite::ALL.into_iter().filter(|suite| suite.meets(left.seal.floor())) {
            let mut datagram = vec![7; OVERHEAD + 3];
            let nonce = Nonce { serial: PathSerial(1), number: 5 };
            from.seal.seal(SessionIndex(9), Profile::whole(suite), nonce, &mut datagram);
            let unmasked = to.open.unmask(&datagram).unwrap();
            let opened = to.open.open(PathSerial(1), 5, &unmasked, &mut datagram);
            assert_eq!(opened.unwrap(), [7; 3]);
        }
    }
}

#[test]
fn both_ends_agree() {
    let mut pair = Pair::new(1);
    let (mut initiator, messages) = pair.start(&hello());
    assert_eq!((messages.a.len(), messages.b.len()), (A_LEN, B_LEN));
    assert_eq!(initiator.messages(), &messages);
    assert_eq!(initiator.index(), SessionIndex(100));

    let mut pending = pair.open(&messages.a).unwrap();
    assert_eq!(pending.peer(), pair.initiator.public());
    assert_eq!(pending.hello(), &hello());
    let complete = pending.complete(&messages.b).unwrap();
    assert_eq!((complete.peer(), complete.hello()), (pair.initiator.public(), &hello()));
    let (response, theirs) = complete.respond(&mut pair.rng, Some(&PSK), &welcome()).unwrap();
    assert_eq!(response.len(), RESPONSE_LEN);

    let (said, ours) = initiator.finish(&response).unwrap();
    assert_eq!(said, Welcome { features: Features::from_bits(0b100), ..welcome() });
    talk(&ours.unwrap(), &theirs.unwrap());
    assert_eq!(initiator.finish(&response).unwrap_err(), DropReason::BadHandshake, "once only");
}

#[test]
fn the_size_tells_nothing() {
    let mut pair = Pair::new(2);
    for token in [None, Token::new(&[1]), Token::new(&[1; 32])] {
        let (_, messages) = pair.start(&Hello { token, ..hello() });
        assert_eq!((messages.a.len(), messages.b.len()), (A_LEN, B_LEN));
        let (response, _) = pair.respond(&messages, &welcome());
        assert_eq!(response.len(), RESPONSE_LEN);
    }
}

#[test]
fn a_refusal_is_read_and_carries_no_session() {
    let refusals = [
        Status::NotEnrolled,
        Status::TokenUsed,
        Status::TokenExpired,
        Status::TokenUnknown,
        Status::Revoked,
        Status::StaleCounter { highest: 77 },
        Status::Busy,
        Status::Unsupported,
        Status::Other(200),
    ];
    let mut pair = Pair::new(3);
    for status in refusals {
        let (mut initiator, messages) = pair.start(&hello());
        let (response, theirs) = pair.respond(&messages, &Welcome { status, ..welcome() });
        assert!(theirs.is_none());
        assert_eq!(response[1..5], [0; 4], "no index is given away");
        let (said, ours) = initiator.finish(&response).unwrap();
        assert_eq!(said.status, status);
        assert_eq!(said.indices, [SessionIndex(0); INDEX_COUNT]);
        assert!(ours.is_none());
    }
}

#[test]
fn the_static_psk_must_be_the_same() {
    let mut pair = Pair::new(4);
    for psk in [None, Some(&[0x98; 32])] {
        let (mut initiator, messages) = pair.start(&hello());
        let (wrong, _) = pair.complete(&messages).respond(&mut pair.rng, psk, &welcome()).unwrap();
        assert_eq!(initiator.finish(&wrong).unwrap_err(), DropReason::BadHandshake);
        let (right, theirs) = pair.respond(&messages, &welcome());
        let (_, ours) = initiator.finish(&right).unwrap();
        talk(&ours.unwrap(), &theirs.unwrap());
    }
}

#[test]
fn the_higher_floor_holds_whoever_asks() {
    let mut pair = Pair::new(5);
    for (mine, yours) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (mut initiator, messages) = pair.start(&Hello { floor: Floor(mine), ..hello() });
        let offer = Welcome { floor: Floor(yours), ..welcome() };
        let (response, theirs) = pair.respond(&messages, &offer);
        let (said, ours) = initiator.finish(&response).unwrap();
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        let higher = Floor(mine.max(yours));
        for floor in [said.floor, ours.seal.floor(), ours.open.floor(), theirs.seal.floor()] {
            assert_eq!(floor, higher);
        }
        talk(&ours, &theirs);
    }
}

#[test]
fn a_floor_that_nothing_reaches_is_refused() {
    let mut pair = Pair::new(6);
    for (mine, yours) in [(2, 0), (0, 255)] {
        let (mut initiator, messages) = pair.start(&Hello { floor: Floor(mine), ..hello() });
        let offer = Welcome { floor: Floor(yours), ..welcome() };
        let (response, theirs) = pair.respond(&messages, &offer);
        assert!(theirs.is_none());
        let (said, ours) = initiator.finish(&response).unwrap();
        assert_eq!(said.status, Status::Unsupported);
        assert!(ours.is_none());
    }
}

#[test]
fn aes_protects_headers_only_where_both_have_it() {
    let mut pair = Pair::new(7);
    let both = [HeaderCipher::Aes, HeaderCipher::ChaCha20];
    for (has_aes, header_cipher) in
        both.map(|c| (true, c)).into_iter().chain(both.map(|c| (false, c)))
    {
        let (mut initiator, messages) = pair.start(&Hello { has_aes, ..hello() });
        let (response, theirs) = pair.respond(&messages, &Welcome { header_cipher, ..welcome() });
        let (said, ours) = initiator.finish(&response).unwrap();
        let expected = if has_aes { header_cipher } else { HeaderCipher::ChaCha20 };
        assert_eq!(said.header_cipher, expected);
        assert_eq!(ours.as_ref().unwrap().seal.header_cipher(), expected);
        talk(&ours.unwrap(), &theirs.unwrap());
    }
}

#[test]
fn nothing_shows_a_secret() {
    let mut pair = Pair::new(8);
    let (initiator, messages) = pair.start(&hello());
    let mut pending = pair.open(&messages.a).unwrap();
    let complete = pending.complete(&messages.b).unwrap();
    assert!(!format!("{:?}", hello()).contains("invited"));
    for shown in [format!("{initiator:?}"), format!("{pending:?}"), format!("{complete:?}")] {
        assert!(shown.len() < 120 && shown.ends_with(".. }"), "{shown}");
    }
}

#[test]
fn handshake_vectors() {
    let mut vectors = Vectors::new(include_str!("../vectors/handshake.txt"));
    let initiator_secret = StaticSecret::new(vectors.array("initiator_secret"));
    let responder_secret = StaticSecret::new(vectors.array("responder_secret"));
    let psk = vectors.array("static_psk");
    let mut ours = Script(vectors.input("initiator_random"));
    let theirs = vectors.input("responder_random");
    let token = Token::new(&vectors.input("token"));

    vectors.output("initiator_public", &initiator_secret.public().0);
    vectors.output("responder_public", &responder_secret.public().0);
    let remote = responder_secret.public();
    let hello = Hello { token, ..hello() };
    let (mut initiator, messages) =
        Initiator::start(&mut ours, &initiator_secret, remote, Some(&psk), &hello).unwrap();
    assert!(ours.0.is_empty(), "nothing else is drawn");
    vectors.output("a", &messages.a);
    vectors.output("b", &messages.b);

    let stale = Welcome { status: Status::StaleCounter { highest: 0x0102_0304 }, ..welcome() };
    let v4 = Welcome { observed: "192.0.2.1:51820".parse().unwrap(), ..welcome() };
    for (name, answer) in [("refused", &stale), ("response", &v4)] {
        let mut theirs = Script(theirs.clone());
        let mut pending = PendingA::open(&mut theirs, &responder_secret, &messages.a).unwrap();
        let complete = pending.complete(&messages.b).unwrap();
        let (response, keys) = complete.respond(&mut theirs, Some(&psk), answer).unwrap();
        assert!(theirs.0.is_empty(), "nothing else is drawn");
        vectors.output(name, &response);
        for (number, part) in ResponsePart::both(&response).unwrap().iter().enumerate() {
            vectors.output(&format!("{name}_part_{number}"), part);
            let view = ResponsePart::parse(part).unwrap();
            assert_eq!((view.receiver, view.number), (SessionIndex(100), number));
        }
        let Some(keys) = keys else { continue };
        let (_, held) = initiator.finish(&response).unwrap();
        let held = held.unwrap();
        talk(&held, &keys);
        for (name, sender) in [("from_initiator", &held), ("from_responder", &keys)] {
            let mut datagram = vec![0; OVERHEAD + 1];
            let nonce = Nonce { serial: PathSerial(0), number: 0 };
            let profile = Profile::whole(Suite::Aes256Gcm);
            sender.seal.seal(SessionIndex(1), profile, nonce, &mut datagram);
            vectors.output(name, &datagram);
        }
    }
    vectors.verify();
}
