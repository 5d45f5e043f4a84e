//! What nodes owe to the ends of open connections, as their hosts have it on their disks: it
//! outlives a process and a machine that starts anew, and the next process breaks off what its
//! predecessor could not deliver.

use std::collections::BTreeSet;

use rove_proto::flow::tuple::Tuple;
use rove_proto::id::PeerKey;
use rove_proto::node::Command;

use super::engine::World;
use super::host::Power;
use super::laws::Breach;
use super::parcel::HostId;

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

    /// How many lines were ever written.
    pub(super) const fn written(&self) -> u32 {
        self.written
    }
}

impl World {
    /// Something will be owed: once it is on the disk, the node hears of it. What a host that is
    /// not there any more wanted to write is lost.
    pub(super) fn write_down(
        &mut self,
        host: HostId,
        peer: PeerKey,
        tuple: Tuple,
    ) -> Result<(), Breach> {
        if self.hosts[host].power != Power::On {
            return Ok(());
        }
        self.owed.written += 1;
        self.owed.lines.insert((host, peer, tuple));
        self.command(host, Command::Recorded { peer, tuple })
    }

    /// Nothing is owed any more.
    pub(super) fn strike_out(&mut self, host: HostId, peer: PeerKey, tuple: Tuple) {
        self.owed.lines.remove(&(host, peer, tuple));
    }

    /// A process begins, and hears what the one before it owed.
    pub(super) fn inherit_owed(&mut self, host: HostId) -> Result<(), Breach> {
        let inherited: Vec<_> =
            self.owed.lines.iter().filter(|line| line.0 == host).copied().collect();
        inherited
            .into_iter()
            .try_for_each(|(_, peer, tuple)| self.command(host, Command::BreakOff { peer, tuple }))
    }
}
