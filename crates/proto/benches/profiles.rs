//! What profiles cost: nanoseconds to seal and to open a datagram with fixed profile IDs, with
//! redrawn ones, and with another suite in every datagram. `cargo bench -p rove-proto --bench
//! profiles`.
//!
//! The shortest of all rounds is what an operation costs on this machine. With AES instructions, a
//! redrawn ID must cost each end less than 150 ns more than a fixed one, or the benchmark fails.
//! *Keys* is the whole of a handshake, so the keys of all profiles are ready within that time.

#![allow(clippy::unwrap_used, reason = "a benchmark: a panic is the report")]
#![allow(clippy::print_stdout, reason = "what it is for")]
#![allow(clippy::cast_precision_loss, reason = "figures for people")]
#![allow(clippy::cast_possible_truncation, reason = "small and positive")]

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Instant as Clock;

use rove_proto::crypto::{
    EpochKeys, Features, Floor, HeaderCipher, Hello, Initiator, Nonce, PendingA, Profile,
    SeededRng, StaticSecret, Status, Suite, Welcome,
};
use rove_proto::id::{PathSerial, SessionIndex};
use rove_proto::wire::data::{HEADER_LEN, TAG_LEN};

/// Bytes of frames in a datagram.
const FRAMES: usize = 1_400;
/// Datagrams of one round, and rounds.
const DATAGRAMS: u64 = 100;
const ROUNDS: u64 = 4_000;
/// What a redrawn ID may cost each end, in nanoseconds.
const REDRAW_NS_MAX: f64 = 150.0;

const AES_256: Profile = Profile::whole(Suite::Aes256Gcm);
const AES_128: Profile = Profile::whole(Suite::Aes128Gcm);
const CHACHA: Profile = Profile::whole(Suite::ChaCha20Poly1305);

fn main() -> ExitCode {
    let mut is_cheap = true;
    for (name, cipher) in [("AES", HeaderCipher::Aes), ("ChaCha20", HeaderCipher::ChaCha20)] {
        let [fixed, redrawn] =
            [Features::NONE, Features::PROFILES].map(|features| handshake(cipher, features));
        println!("header protection with {name}: nanoseconds a datagram      seal    open");
        let usual = if cipher == HeaderCipher::Aes { AES_256 } else { CHACHA };
        let before = told("one suite, fixed IDs", &fixed, &[usual]);
        let after = told("one suite, redrawn IDs", &redrawn, &[usual]);
        for other in [AES_256, AES_128, CHACHA] {
            told(&format!("only {}", other.suite().label()), &redrawn, &[other]);
        }
        told("both AES suites in turn", &redrawn, &[AES_256, AES_128]);
        told("all suites in turn", &redrawn, &[AES_256, AES_128, CHACHA]);
        let more = [after[0] - before[0], after[1] - before[1]];
        println!("  redrawn IDs cost more by {:32.1} {:7.1}", more[0], more[1]);
        is_cheap &= cipher != HeaderCipher::Aes || more.iter().all(|more| *more < REDRAW_NS_MAX);
    }
    for (name, features) in [("fixed", Features::NONE), ("redrawn", Features::PROFILES)] {
        let took = (0..50).map(|_| {
            let began = Clock::now();
            black_box(handshake(HeaderCipher::Aes, features));
            began.elapsed()
        });
        println!("keys by a handshake, {name} IDs: {:?}", took.min().unwrap());
    }
    if is_cheap { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints what a datagram costs to seal and to open, if datagrams have these profiles in turn.
fn told(name: &str, keys: &(EpochKeys, EpochKeys), profiles: &[Profile]) -> [f64; 2] {
    let [seal, open] = cost(keys, profiles);
    println!("  {name:55} {seal:7.1} {open:7.1}");
    [seal, open]
}

fn cost((from, to): &(EpochKeys, EpochKeys), profiles: &[Profile]) -> [f64; 2] {
    let mut datagrams = vec![vec![0; HEADER_LEN + FRAMES + TAG_LEN]; DATAGRAMS as usize];
    let mut least = [f64::MAX; 2];
    for round in 0..ROUNDS {
        let first = round * DATAGRAMS;
        let began = Clock::now();
        for (turn, (number, datagram)) in (first..).zip(&mut datagrams).enumerate() {
            let nonce = Nonce { serial: PathSerial(1), number };
            let profile = profiles[turn % profiles.len()];
            from.seal.seal(SessionIndex(7), profile, nonce, datagram);
        }
        let sealed = Clock::now();
        for (number, datagram) in (first..).zip(&mut datagrams) {
            let unmasked = to.open.unmask(datagram).unwrap();
            black_box(to.open.open(PathSerial(1), number, &unmasked, datagram).unwrap());
        }
        for (least, took) in least.iter_mut().zip([sealed - began, sealed.elapsed()]) {
            *least = least.min(took.as_nanos() as f64 / DATAGRAMS as f64);
        }
    }
    least
}

/// The keys of both ends after a handshake.
fn handshake(header_cipher: HeaderCipher, features: Features) -> (EpochKeys, EpochKeys) {
    let mut rng = SeededRng::new(1);
    let (client, gateway) = (StaticSecret::generate(&mut rng), StaticSecret::generate(&mut rng));
    let floor = Floor::BITS_128;
    let indices = [1, 2, 3, 4, 5, 6, 7, 8].map(SessionIndex);
    let hello = Hello { counter: 1, features, floor, has_aes: true, token: None, indices };
    let observed = SocketAddr::from((Ipv4Addr::LOCALHOST, 4_433));
    let indices = indices.map(|SessionIndex(index)| SessionIndex(index + 10));
    let status = Status::Accepted;
    let welcome = Welcome { status, features, floor, header_cipher, observed, indices };
    let started = Initiator::start(&mut rng, &client, gateway.public(), None, &hello);
    let (mut initiator, messages) = started.unwrap();
    let mut pending = PendingA::open(&mut rng, &gateway, &messages.a).unwrap();
    let complete = pending.complete(&messages.b).unwrap();
    let (response, theirs) = complete.respond(&mut rng, None, &welcome).unwrap();
    let (_, ours) = initiator.finish(&response).unwrap();
    (ours.unwrap(), theirs.unwrap())
}
