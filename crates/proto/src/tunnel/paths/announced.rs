//! Where a gateway says that it is reached, and what it grants: a lease, and the networks that lie
//! behind it.

use std::net::{IpAddr, SocketAddr};

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
    /// The gateway's own inner addresses.
    pub(crate) fn gateway(&self) -> &[IpAddr] {
        self.lease.as_ref().map_or(&[], |lease| &lease.gateway)
    }

    /// The networks as they were told last.
    pub(crate) fn networks(&self) -> &[Prefix] {
        &self.known
    }

    /// The gateway names its networks in `epoch`. Returns whether they are others than before.
    pub(crate) fn take_networks(&mut self, epoch: EpochId, networks: Vec<Prefix>) -> bool {
        self.told_in = Some(epoch);
        let is_news = self.known != networks;
        self.known = networks;
        is_news
    }

    /// The gateway has said all that it says before a lease. If it named no networks in `epoch`,
    /// there are none. Returns whether that is news.
    pub(crate) fn end_networks(&mut self, epoch: EpochId) -> bool {
        self.told_in != Some(epoch) && self.take_networks(epoch, Vec::new())
    }
}
