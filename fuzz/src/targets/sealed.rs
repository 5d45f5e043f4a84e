//! Sealed data datagrams: noise never opens, and of a true one no byte may differ.
//!
//! The input is `profile 1 | path serial 4 | number 8 | where to change 2 | change 1 | plaintext`.

use std::sync::LazyLock;

use rove_proto::crypto::{EpochKeys, Nonce, Profile, Suite};
use rove_proto::id::{PathSerial, SessionIndex};
use rove_proto::wire::data::{HEADER_LEN, MAX_DATAGRAM, OVERHEAD, TAG_LEN};

use super::exchange::session;
use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "sealed", run, seeds, mutations: 50_000 };

/// The keys of a session's two ends.
static KEYS: LazyLock<(EpochKeys, EpochKeys)> = LazyLock::new(session);

/// The bytes of a datagram that are not authenticated: a relay may translate the index, and the
/// receiver finds the keys by it.
const INDEX: std::ops::Range<usize> = 1..5;

fn run(data: &[u8]) {
    let (client, gateway) = &*KEYS;
    // The input as a datagram: nobody without the key can make one that opens.
    assert!(opened(gateway, PathSerial(0), 0, data).is_none(), "noise opened");

    let Some((head, plaintext)) = data.split_first_chunk::<16>() else { return };
    if plaintext.is_empty() || plaintext.len() + OVERHEAD > MAX_DATAGRAM {
        return;
    }
    let suites = [Suite::Aes256Gcm, Suite::Aes128Gcm, Suite::ChaCha20Poly1305];
    let profile = Profile::whole(suites[usize::from(head[0] % 3)]);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let serial = PathSerial(u32::from_be_bytes([head[1], head[2], head[3], head[4]]));
    let nonce = Nonce { serial, number: number(&head[5..13]) };

    let mut datagram = vec![0; HEADER_LEN];
    datagram.extend_from_slice(plaintext);
    datagram.resize(datagram.len() + TAG_LEN, 0);
    client.seal.seal(SessionIndex(7), profile, nonce, &mut datagram);
    let back = opened(gateway, nonce.serial, nonce.number, &datagram);
    assert_eq!(back.as_deref(), Some(plaintext), "what was sealed opens");

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
        vec![0x10; 64],
    ]
}
