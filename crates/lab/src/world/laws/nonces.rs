//! No pair of key and nonce is used twice.
//!
//! Keys are told apart by what they make of a fixed datagram, so that a key which was derived twice
//! counts as one. Numbers of one key and path serial must grow: that is more than the law asks,
//! and needs one number a lane to check.

use std::collections::BTreeMap;
use std::sync::Arc;

use rove_proto::crypto::{Nonce, SealKey};
use rove_proto::id::{PacketNumber, PathSerial, SessionIndex};
use rove_proto::outbox::RunSeal;
use rove_proto::policy;

use super::{Breach, Law};

/// A nonce that no session reaches.
const PROBE: Nonce = Nonce { serial: PathSerial(u32::MAX), number: u64::MAX };
/// Header, plaintext and tag of the probe.
const PROBE_LEN: usize = 10 + 16 + 16;

type Fingerprint = [u8; PROBE_LEN];

/// Every key that was sealed with, and the highest number of each of its lanes.
#[derive(Debug, Default)]
pub(in crate::world) struct Nonces {
    /// By address; held, so that no other key can have the same.
    keys: BTreeMap<usize, (Arc<SealKey>, Fingerprint)>,
    highest: BTreeMap<(Fingerprint, PathSerial), PacketNumber>,
}

impl Nonces {
    /// A datagram is sealed.
    pub(in crate::world) fn sealed(
        &mut self,
        seal: &RunSeal,
        number: PacketNumber,
    ) -> Result<(), Breach> {
        let address = Arc::as_ptr(&seal.key).addr();
        let (_, key) = self
            .keys
            .entry(address)
            .or_insert_with(|| (Arc::clone(&seal.key), fingerprint(&seal.key)));
        let before = self.highest.insert((*key, seal.serial), number);
        if before.is_some_and(|before| number <= before) {
            let what = format!("{:?}: {number} after {before:?}", seal.serial);
            return Err(Breach::new(Law::Nonces, what));
        }
        Ok(())
    }
}

fn fingerprint(key: &SealKey) -> Fingerprint {
    let mut datagram = [0; PROBE_LEN];
    key.seal(SessionIndex(1), policy::profile(key), PROBE, &mut datagram);
    datagram
}
