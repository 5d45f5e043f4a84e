//! What a gateway grants its client: a lease, and the networks that lie behind it.

use std::net::IpAddr;

use crate::session::index::EpochId;
use crate::wire::control::{Lease, Prefix};

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

    /// The gateway names its networks in `epoch`. Returns them if they are not the known ones.
    pub(crate) fn take_networks(
        &mut self,
        epoch: EpochId,
        networks: Vec<Prefix>,
    ) -> Option<Vec<Prefix>> {
        self.told_in = Some(epoch);
        if self.known == networks {
            return None;
        }
        self.known.clone_from(&networks);
        Some(networks)
    }

    /// The gateway grants a lease. It names its networks before: if it named none in `epoch`, there
    /// are none. Returns the networks if they changed by that.
    pub(crate) fn take_lease(&mut self, epoch: EpochId, lease: Lease) -> Option<Vec<Prefix>> {
        self.lease = Some(lease);
        if self.told_in == Some(epoch) { None } else { self.take_networks(epoch, Vec::new()) }
    }
}
