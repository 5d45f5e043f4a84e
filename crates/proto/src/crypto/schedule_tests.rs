use std::collections::BTreeSet;

use super::*;
use crate::crypto::vectors::Vectors;
use crate::id::{ProfileId, SessionIndex};
use crate::wire::keepalive::Keepalive;

const DIRECTIONS: [(Direction, &str); 2] =
    [(Direction::FromInitiator, "initiator"), (Direction::FromResponder, "responder")];

#[test]
fn key_schedule_vector() {
    let mut vectors = Vectors::new(include_str!("vectors/schedule.txt"));
    let hash: [u8; 32] = vectors.array("handshake_hash");
    let split: [u8; 64] = vectors.array("split");
    let epoch = kdf::extract(&hash, &split);
    for (direction, name) in DIRECTIONS {
        for suite in Suite::ALL {
            let key = aead_key_bytes(&epoch, direction, suite, Zone::Whole);
            let key = &key[..suite.algorithm().key_len()];
            vectors.output(&format!("{name}_{suite:?}"), key);
        }
        for cipher in [HeaderCipher::Aes, HeaderCipher::ChaCha20] {
            let key = mask_key_bytes(&epoch, HEADER_LABEL, direction, cipher);
            vectors.output(&format!("{name}_header_{cipher:?}"), key.as_ref());
        }
        let table = ProfileTable::derive(&epoch, &[b"rove v1 profiles", &[direction as u8]]);
        let ids = ProfileIds::fixed(table, 0, Floor::BITS_128);
        let numbers: Vec<u8> =
            (0..=255).map(|id| ids.fixed_number(ProfileId(id)).unwrap_or(0xff)).collect();
        vectors.output(&format!("{name}_profile_of_id"), &numbers);
        vectors.output(&format!("{name}_aliases_of_profile_0"), &ids.fixed_ids(0));
    }
    vectors.output("keepalive", crate::crypto::keepalive::key_bytes(&epoch).as_ref());
    let keepalive = Keepalive { index: SessionIndex(0x0102_0304), number: 0x0506 };
    let answer = KeepaliveKey::derive(&epoch).answer(keepalive);
    vectors.output("answer_to_keepalive_0506_of_01020304", &answer.emit());
    vectors.verify();
}

#[test]
fn no_two_uses_share_a_key() {
    let epoch = kdf::extract(&[1; 32], &[2; 64]);
    let mut keys = BTreeSet::new();
    for (direction, _) in DIRECTIONS {
        for suite in Suite::ALL {
            let key = aead_key_bytes(&epoch, direction, suite, Zone::Whole);
            assert!(keys.insert(key[..16].to_vec()), "{suite:?}");
        }
        for cipher in [HeaderCipher::Aes, HeaderCipher::ChaCha20] {
            for label in [HEADER_LABEL, REDRAW_LABEL] {
                let key = mask_key_bytes(&epoch, label, direction, cipher);
                assert!(keys.insert(key[..16].to_vec()), "{cipher:?}");
            }
        }
    }
    assert!(keys.insert(crate::crypto::keepalive::key_bytes(&epoch).as_ref()[..16].to_vec()));
    assert_eq!(keys.len(), 15);
}

#[test]
fn keys_are_shared_between_threads_and_shown_to_nobody() {
    const fn shared<T: Send + Sync + 'static>() {}
    const fn moved<T: Send + 'static>() {}
    shared::<EpochKeys>();
    moved::<crate::crypto::Initiator>();
    moved::<crate::crypto::PendingA>();
    moved::<crate::crypto::Complete>();
    let finished = Finished {
        handshake_hash: &[1; 32],
        split: &[2; 64],
        header_cipher: HeaderCipher::Aes,
        floor: Floor::BITS_128,
        features: Features::PROFILES,
    };
    let keys = EpochKeys::derive(Role::Initiator, &finished);
    assert_eq!(
        format!("{keys:?}"),
        "EpochKeys { seal: SealKey(..), open: OpenKey(..), keepalive: KeepaliveKey(..) }"
    );
}
