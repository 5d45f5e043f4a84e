//! Where a gateway says that it is reached, and which networks lie behind it.

use std::net::SocketAddr;

use crate::session::index::EpochId;
use crate::wire::control::{ADDRESSES_MAX, Prefix};

/// Where a gateway says that it is reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Announced {
    /// One more with every change.
    version: u32,
    addresses: Vec<SocketAddr>,
}

impl Announced {
    /// Changes what is said. Beyond [`ADDRESSES_MAX`] the last are left out.
    pub(crate) fn set(&mut self, mut addresses: Vec<SocketAddr>) {
        addresses.truncate(ADDRESSES_MAX);
        if self.addresses != addresses {
            self.addresses = addresses;
            self.version = self.version.wrapping_add(1);
        }
    }

    /// One more with every change.
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// The addresses, best first.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// The gateway's networks, as its client knows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networks {
    known: Vec<Prefix>,
    /// The epoch in which they were told last.
    told_in: Option<EpochId>,
}

impl Networks {
    /// The networks as they were told last.
    pub(crate) fn known(&self) -> &[Prefix] {
        &self.known
    }

    /// Whether they were told in `epoch`.
    pub(crate) fn is_told_in(&self, epoch: EpochId) -> bool {
        self.told_in == Some(epoch)
    }

    /// They are told in `epoch`. Returns those that were known before.
    pub(crate) fn replace(&mut self, epoch: EpochId, networks: Vec<Prefix>) -> Vec<Prefix> {
        self.told_in = Some(epoch);
        std::mem::replace(&mut self.known, networks)
    }
}
