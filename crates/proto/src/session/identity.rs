//! How handshakes with one peer name it, and the epochs that they would begin.

use zeroize::Zeroizing;

use super::index::{EpochId, Slot};
use crate::id::PeerKey;

/// The peer as handshakes know it.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Its place in the node.
    pub(crate) slot: Slot,
    /// Its public key.
    pub(crate) key: PeerKey,
    psk: Option<Zeroizing<[u8; 32]>>,
    /// The epoch that was named last.
    last_epoch: u32,
}

impl Identity {
    pub(crate) const fn new(slot: Slot, key: PeerKey, psk: Option<Zeroizing<[u8; 32]>>) -> Self {
        Self { slot, key, psk, last_epoch: 0 }
    }

    /// The static secret shared with it beforehand, if there is one.
    pub(crate) fn psk(&self) -> Option<&[u8; 32]> {
        self.psk.as_deref()
    }

    /// A name for the epoch of a handshake that begins.
    pub(crate) const fn next_epoch(&mut self) -> EpochId {
        self.last_epoch += 1;
        EpochId(self.last_epoch)
    }
}
