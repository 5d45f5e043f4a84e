//! A session's path in use never becomes an address that its peer did not send from.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use rove_proto::node::PeerStatus;

use super::{Breach, Law};
use crate::world::parcel::HostId;

/// From where each host was honestly heard by each other.
#[derive(Debug, Default)]
pub(in crate::world) struct Hijack {
    honest: BTreeSet<(HostId, HostId, SocketAddr)>,
}

impl Hijack {
    /// `at` received from `remote` what `from` sent, or was told to find it there.
    pub(in crate::world) fn honest(&mut self, at: HostId, from: HostId, remote: SocketAddr) {
        self.honest.insert((at, from, remote));
    }

    /// A new process of `at` begins, which has heard nobody.
    pub(in crate::world) fn restarted(&mut self, at: HostId) {
        self.honest.retain(|(host, ..)| *host != at);
    }

    /// Looks at the session of `at` with `peer`.
    pub(in crate::world) fn check(
        &self,
        at: HostId,
        peer: HostId,
        status: &PeerStatus,
    ) -> Result<(), Breach> {
        for path in status.paths.iter().filter(|path| path.in_use) {
            if !self.honest.contains(&(at, peer, path.remote())) {
                let what = format!("host {at} sends to host {peer} at {}", path.remote());
                return Err(Breach::new(Law::Hijack, what));
            }
        }
        Ok(())
    }
}
