//! A session's path in use never becomes an address that its peer did not send from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rove_proto::node::PeerStatus;

use super::{Breach, Law};
use crate::world::host_id::HostId;

/// From where each host was honestly heard by each other.
#[derive(Debug, Default)]
pub(in crate::world) struct Hijack {
    honest: BTreeSet<(HostId, HostId, SocketAddr)>,
    /// When each host last sent from there, by [`Self::count`].
    sent: BTreeMap<(HostId, SocketAddr), u64>,
    /// When each process began.
    began: BTreeMap<HostId, u64>,
    /// What was sent so far.
    count: u64,
}

impl Hijack {
    /// `at` received from `remote` what `from` sent, or was told to find it there.
    pub(in crate::world) fn honest(&mut self, at: HostId, from: HostId, remote: SocketAddr) {
        self.honest.insert((at, from, remote));
    }

    /// `from` sends from `remote`: a copy of that may be anywhere at once.
    pub(in crate::world) fn sent(&mut self, from: HostId, remote: SocketAddr) {
        self.count += 1;
        self.sent.insert((from, remote), self.count);
    }

    /// A new process of `at` begins, which has heard nobody.
    pub(in crate::world) fn restarted(&mut self, at: HostId) {
        self.honest.retain(|(host, ..)| *host != at);
        self.count += 1;
        self.began.insert(at, self.count);
    }

    fn is_honest(&self, at: HostId, from: HostId, remote: SocketAddr) -> bool {
        let began = self.began.get(&at).copied().unwrap_or(0);
        self.sent.get(&(from, remote)).is_some_and(|sent| *sent >= began)
            || self.honest.contains(&(at, from, remote))
    }

    /// Looks at the session of `at` with `peer`.
    pub(in crate::world) fn check(
        &self,
        at: HostId,
        peer: HostId,
        status: &PeerStatus,
    ) -> Result<(), Breach> {
        for path in status.paths.iter().filter(|path| path.in_use) {
            if !self.is_honest(at, peer, path.remote()) {
                let what = format!("{at} sends to {peer} at {}", path.remote());
                return Err(Breach::new(Law::Hijack, what));
            }
        }
        Ok(())
    }
}
