//! Where a gateway says that it is reached, and what it grants: a lease, and the networks that lie
//! behind it.

use std::net::SocketAddr;

use crate::session::index::EpochId;
use crate::wire::control::{ADDRESSES_MAX, Lease, Prefix};

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

/// What the gateway grants its client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granted {
    pub(crate) lease: Option<Lease>,
    /// Networks that it leads to.
    known: Vec<Prefix>,
    /// The epoch in which they were told last.
    told_in: Option<EpochId>,
}

impl Granted {
    /// The networks as they were told last.
    pub(crate) fn networks(&self) -> &[Prefix] {
        &self.known
    }

    /// Whether they were told in `epoch`.
    pub(crate) fn are_networks_told_in(&self, epoch: EpochId) -> bool {
        self.told_in == Some(epoch)
    }

    /// The networks are told in `epoch`. Returns those that were known before.
    pub(crate) fn replace_networks(
        &mut self,
        epoch: EpochId,
        networks: Vec<Prefix>,
    ) -> Vec<Prefix> {
        self.told_in = Some(epoch);
        std::mem::replace(&mut self.known, networks)
    }
}
