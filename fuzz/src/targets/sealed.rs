//! Sealed data datagrams under every profile, with fixed and with redrawn profile IDs: noise never
//! opens, and of a true one no byte may differ. Padding, whatever it says, gives frames or nothing.
//!
//! The input is `profile 1 | path serial 4 | number 8 | where to change 2 | change 1 | plaintext`.

use std::sync::LazyLock;

use rove_proto::crypto::{EpochKeys, Features, Nonce, Profile, Suite};
use rove_proto::id::{PathSerial, SessionIndex};
use rove_proto::wire::data::{HEADER_LEN, MAX_DATAGRAM, OVERHEAD, TAG_LEN};

use super::exchange::session;
use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "sealed", run, seeds, mutations: 50_000 };

/// The keys of a session's two ends, with fixed IDs and with redrawn ones.
static KEYS: LazyLock<[(EpochKeys, EpochKeys); 2]> =
    LazyLock::new(|| [Features::NONE, Features::PROFILES].map(session));

/// The bytes of a datagram that are not authenticated: a relay may translate the index, and the
/// receiver finds the keys by it.
const INDEX: std::ops::Range<usize> = 1..5;

fn run(data: &[u8]) {
    // The input as a datagram: nobody without the key can make one that opens.
    for (_, gateway) in &*KEYS {
        assert!(opened(gateway, PathSerial(0), 0, data).is_none(), "noise opened");
    }

    let Some((head, plaintext)) = data.split_first_chunk::<16>() else { return };
    if plaintext.is_empty() || plaintext.len() + OVERHEAD > MAX_DATAGRAM {
        return;
    }
    let (form, profile) = choice(head[0]);
    let (client, gateway) = &KEYS[form];
    let number = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let serial = PathSerial(u32::from_be_bytes([head[1], head[2], head[3], head[4]]));
    let nonce = Nonce { serial, number: number(&head[5..13]) };

    let mut datagram = vec![0; HEADER_LEN];
    datagram.extend_from_slice(plaintext);
    datagram.resize(datagram.len() + TAG_LEN, 0);
    client.seal.seal(SessionIndex(7), profile, nonce, &mut datagram);
    let back = opened(gateway, nonce.serial, nonce.number, &datagram);
    assert_eq!(back.as_deref(), frames(profile, plaintext), "what was sealed opens");

    let elsewhere = nonce.serial.0.wrapping_add(1);
    assert!(opened(gateway, PathSerial(elsewhere), nonce.number, &datagram).is_none(), "path");
    assert!(opened(client, nonce.serial, nonce.number, &datagram).is_none(), "reflected");
    let at = (usize::from(head[13]) << 8 | usize::from(head[14])) % datagram.len();
    datagram[at] ^= head[15];
    if head[15] != 0 && !INDEX.contains(&at) {
        let altered = opened(gateway, nonce.serial, nonce.number, &datagram);
        assert!(altered.is_none(), "byte {at} was changed and nobody noticed");
    }
}

/// The form of the IDs and the profile: the suites with fixed IDs, then all profiles.
fn choice(byte: u8) -> (usize, Profile) {
    let suites = Suite::ALL.map(|suite| (0, Profile::whole(suite)));
    let mut all = suites.into_iter().chain(Profile::ALL.map(|profile| (1, profile)));
    let count = Suite::ALL.len() + Profile::COUNT;
    let chosen = all.nth(usize::from(byte) % count);
    chosen.expect("a place within the list")
}

/// The frames of a plaintext: in a padded profile, what its last two bytes leave.
fn frames(profile: Profile, plaintext: &[u8]) -> Option<&[u8]> {
    if !profile.is_padded() {
        return Some(plaintext);
    }
    let [.., high, low] = plaintext else { return None };
    let padding = usize::from(*high) << 8 | usize::from(*low);
    let frames = plaintext.len().checked_sub(padding)?;
    (padding >= 2 && frames > 0).then(|| &plaintext[..frames])
}

/// What a receiver gets out of a datagram, its number known but for what the header says.
fn opened(keys: &EpochKeys, serial: PathSerial, number: u64, datagram: &[u8]) -> Option<Vec<u8>> {
    let unmasked = keys.open.unmask(datagram).ok()?;
    let number = number & !0xffff_ffff | u64::from(unmasked.number);
    let mut datagram = datagram.to_vec();
    let plaintext = keys.open.open(serial, number, &unmasked, &mut datagram).ok()?;
    Some(plaintext.to_vec())
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |profile: u8, at: u8, plaintext: &[u8]| {
        let mut seed = vec![profile, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 0, at, 1];
        seed.extend_from_slice(plaintext);
        seed
    };
    vec![
        seed(0, 0, b"x"),
        seed(1, 5, b"a profile ID"),
        seed(2, 9, b"a number"),
        seed(0, 12, &[0x45; 200]),
        seed(2, 3, b"an index"),
        seed(3, 5, b"a redrawn profile ID"),
        seed(4, 11, &[0x45; 90]),
        seed(6, 12, b"frames\0\0\0\x05"),
        seed(7, 16, b"no frame\0\x0a"),
        seed(8, 17, b"more padding than there is\xff\xff"),
        vec![0x10; 64],
    ]
}
