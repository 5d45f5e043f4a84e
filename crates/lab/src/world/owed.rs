//! What nodes owe to the ends of open connections, as their hosts have it on their disks: it
//! outlives a process and a machine that starts anew, and the next process breaks off what its
//! predecessor could not deliver.

use std::collections::BTreeSet;

use rove_proto::flow::tuple::Tuple;
use rove_proto::id::PeerKey;

use super::host_id::HostId;

/// The lines of all hosts' books.
#[derive(Debug, Default)]
pub(super) struct Owed {
    lines: BTreeSet<(HostId, PeerKey, Tuple)>,
    written: u32,
}

impl Owed {
    /// Whether a host has a line for a connection.
    #[cfg(test)]
    pub(super) fn has(&self, host: HostId) -> bool {
        self.lines.iter().any(|&(one, ..)| one == host)
    }

    /// All books are lost.
    #[cfg(test)]
    pub(super) fn burn(&mut self) {
        self.lines.clear();
    }

    /// A line gets in that no node wanted.
    #[cfg(test)]
    pub(super) fn forge(&mut self, host: HostId, peer: PeerKey, tuple: Tuple) {
        self.lines.insert((host, peer, tuple));
    }

    /// Whether anything is owed.
    pub(super) fn any(&self) -> bool {
        !self.lines.is_empty()
    }

    /// A line, for people.
    pub(super) fn first(&self) -> Option<String> {
        let &(host, _, tuple) = self.lines.first()?;
        Some(format!("at host {host}, {tuple:?}"))
    }

    /// The next process of a host will know nobody of this name, and lets its lines go.
    pub(super) fn give_up(&mut self, host: HostId, peer: PeerKey) {
        self.lines.retain(|&(at, whose, _)| (at, whose) != (host, peer));
    }

    /// A host writes a line.
    pub(super) fn write(&mut self, host: HostId, peer: PeerKey, tuple: Tuple) {
        self.written += 1;
        self.lines.insert((host, peer, tuple));
    }

    /// And strikes it out.
    pub(super) fn strike_out(&mut self, host: HostId, peer: PeerKey, tuple: Tuple) {
        self.lines.remove(&(host, peer, tuple));
    }

    /// What stands in a host's book.
    pub(super) fn of(&self, host: HostId) -> Vec<(PeerKey, Tuple)> {
        let of_host = self.lines.iter().filter(|line| line.0 == host);
        of_host.map(|&(_, peer, tuple)| (peer, tuple)).collect()
    }

    /// How many lines were ever written.
    pub(super) const fn written(&self) -> u32 {
        self.written
    }
}
