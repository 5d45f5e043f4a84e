//! Where a client's process looks for its gateway: what the daemon does about it
//! (`crates/client/src/daemon/addresses.rs`), with the same commands.
//!
//! It knows where the gateway answered, what it said itself and what its name stands for. The name
//! is asked for when the process begins, as soon as nothing carries, and then every few seconds
//! until something does. What a client is told is its own affair: this world has one name server,
//! which is right, but for the time that a change takes to reach it, and answers whoever has a
//! network.

use std::net::SocketAddr;

use rove_proto::id::Transport;
use rove_proto::node::{Command, PeerState};

use super::agenda::Task;
use super::engine::World;
use super::host::Power;
use super::laws::Breach;
use crate::emu::{MS, SECOND};

/// How often the name is asked for while nobody answers, in nanoseconds: the daemon's.
const ASK_EVERY_NS: u64 = 5 * SECOND;
/// How long an answer takes, in nanoseconds: the nearest name server is not next door.
const LOOKUP_NS: u64 = 30 * MS;
/// Addresses that are stored of each kind, and those that are tried: the daemon's.
const STORED_MAX: usize = 8;
const TRIED_MAX: usize = 16;

/// What one client knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    /// Where the gateway answered, newest first.
    answered: Vec<SocketAddr>,
    /// Where it said that it is reached.
    announced: Vec<SocketAddr>,
    /// What its name stands for.
    found: Vec<SocketAddr>,
    /// What of all that the node was told.
    told: Vec<SocketAddr>,
    /// Whether a proven path carries, as the node said last.
    is_up: bool,
    /// When the name is asked for next, if it is to be, in nanoseconds.
    due_ns: Option<u64>,
    /// When it was asked for last.
    asked_ns: Option<u64>,
}

impl Directory {
    /// A process begins: what is stored is all that it knows.
    pub(super) fn restart(&mut self) {
        let Self { answered, announced, .. } = std::mem::take(self);
        *self = Self { answered, announced, ..Self::default() };
    }

    /// Where to look, best first.
    pub(super) fn remotes(&self) -> Vec<SocketAddr> {
        let (last, earlier) = self.answered.split_at(self.answered.len().min(1));
        let lists = [&self.announced[..], &self.found[..], earlier];
        let longest = lists.iter().map(|list| list.len()).max().unwrap_or(0);
        let in_turn = (0..longest).flat_map(|n| lists.iter().filter_map(move |list| list.get(n)));
        let mut remotes: Vec<SocketAddr> = Vec::new();
        for remote in last.iter().chain(in_turn) {
            if !remotes.contains(remote) && remotes.len() < TRIED_MAX {
                remotes.push(*remote);
            }
        }
        remotes
    }

    /// Where streams are tried, best first: in turn as the gateway says itself, first in the family
    /// in which it answered last, and as its name says; then where it answered.
    pub(super) fn entrances(&self) -> Vec<SocketAddr> {
        let last = self.answered.first();
        let is_usual = |at: &&SocketAddr| last.is_none_or(|last| last.is_ipv4() == at.is_ipv4());
        let (usual, other): (Vec<_>, Vec<_>) = self.announced.iter().partition(is_usual);
        let announced = usual.into_iter().chain(other).copied().collect();
        let (answered, found) = (Vec::new(), self.found.clone());
        let mut entrances = Self { answered, announced, found, ..Self::default() }.remotes();
        for at in &self.answered {
            if !entrances.contains(at) && entrances.len() < TRIED_MAX {
                entrances.push(*at);
            }
        }
        entrances
    }

    /// The gateway answers at `remote`.
    pub(super) fn note_answered(&mut self, remote: SocketAddr) {
        self.answered.retain(|known| *known != remote);
        self.answered.insert(0, remote);
        self.answered.truncate(STORED_MAX);
    }

    /// When the name is to be asked for, given that nothing carries since `now_ns`.
    fn ask_soon(&mut self, now_ns: u64) -> Option<u64> {
        let at_ns = self.asked_ns.map_or(now_ns, |last_ns| now_ns.max(last_ns + ASK_EVERY_NS));
        let sooner = self.due_ns.is_none_or(|due_ns| due_ns > at_ns);
        sooner.then(|| *self.due_ns.insert(at_ns))
    }
}

impl World {
    /// The client's process begins and asks for the name.
    pub(super) fn begin_directory(&mut self, client: usize) {
        self.clients[client].directory.restart();
        self.ask_soon(client);
    }

    /// The node says how the session is.
    pub(super) fn note_state(&mut self, client: usize, state: PeerState) {
        let rests_or_carries = matches!(state, PeerState::Up | PeerState::Resting);
        self.clients[client].directory.is_up = rests_or_carries;
        if !rests_or_carries {
            self.ask_soon(client);
        }
    }

    /// The links changed: with another network the name may be found that was not.
    pub(super) fn ask_by_new_links(&mut self, client: usize) {
        let directory = &mut self.clients[client].directory;
        if !directory.is_up {
            directory.asked_ns = None;
            self.ask_soon(client);
        }
    }

    fn ask_soon(&mut self, client: usize) {
        if let Some(at_ns) = self.clients[client].directory.ask_soon(self.now_ns) {
            self.schedule(at_ns - self.now_ns, Task::AskName { client, at_ns });
        }
    }

    /// The name is asked for, unless the session carries by now.
    pub(super) fn ask_name(&mut self, client: usize, at_ns: u64) {
        let directory = &mut self.clients[client].directory;
        if directory.due_ns != Some(at_ns) {
            return; // it was asked for meanwhile
        }
        directory.due_ns = None;
        if directory.is_up || self.hosts[client + 1].power != Power::On {
            return;
        }
        directory.asked_ns = Some(self.now_ns);
        if self.has_network(client) {
            self.schedule(LOOKUP_NS, Task::Resolved { client });
        }
        self.ask_soon(client);
    }

    /// The name server answers.
    pub(super) fn resolved(&mut self, client: usize) -> Result<(), Breach> {
        self.clients[client].directory.found.clone_from(&self.name);
        self.set_remotes(client)
    }

    /// The gateway says where it is reached.
    pub(super) fn take_announced(
        &mut self,
        client: usize,
        addresses: &[SocketAddr],
    ) -> Result<(), Breach> {
        let kept = addresses.iter().copied().take(STORED_MAX).collect();
        self.clients[client].directory.announced = kept;
        self.set_remotes(client)
    }

    /// The session goes by a path to wherever it goes now.
    pub(super) fn note_where(&mut self, client: usize) {
        let status = self.hosts[client + 1].node().status(self.gateway_key);
        let path = status.and_then(|status| status.paths.into_iter().find(|path| path.in_use));
        if let Some(path) = path.filter(|path| path.route.socket.transport() == Transport::Udp) {
            self.clients[client].directory.note_answered(path.remote());
        }
    }

    /// Tells the node of all addresses, if they have changed, and of the streams, which may be
    /// others even so.
    fn set_remotes(&mut self, client: usize) -> Result<(), Breach> {
        let remotes = self.clients[client].directory.remotes();
        if self.hosts[client + 1].power != Power::On {
            return Ok(());
        }
        if remotes != self.clients[client].directory.told {
            self.trust(client, &remotes);
            self.clients[client].directory.told.clone_from(&remotes);
            let peer = self.gateway_key;
            self.command(client + 1, Command::SetRemotes { peer, remotes })?;
        }
        self.tell_streams(client)
    }

    /// What the node of a process that begins is told.
    pub(super) fn first_remotes(&mut self, client: usize) -> Vec<SocketAddr> {
        let remotes = self.clients[client].directory.remotes();
        self.trust(client, &remotes);
        self.clients[client].directory.told.clone_from(&remotes);
        remotes
    }

    fn has_network(&self, client: usize) -> bool {
        let cards = self.hosts[client + 1].cards.iter().flatten();
        cards.into_iter().any(|card| self.place.access(client, card.access).carrier)
    }

    /// From now on the gateway's name stands for where it is.
    pub(super) fn rename(&mut self) {
        self.name = self.gateway_addresses();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: &[u8]) -> Vec<SocketAddr> {
        last.iter().map(|&last| ([192, 0, 2, last], 4_433).into()).collect()
    }

    #[test]
    fn a_process_that_begins_knows_what_is_stored() {
        let mut directory = Directory {
            answered: at(&[1]),
            announced: at(&[10, 1, 11]),
            found: at(&[20, 10]),
            is_up: true,
            ..Directory::default()
        };
        directory.note_answered(at(&[2])[0]);
        assert_eq!(directory.remotes(), at(&[2, 10, 20, 1, 11]));
        directory.restart();
        assert_eq!(directory.remotes(), at(&[2, 10, 1, 11]));
        assert!(!directory.is_up);
    }

    #[test]
    fn the_name_is_asked_for_at_once_and_then_every_five_seconds() {
        let mut directory = Directory::default();
        assert_eq!(directory.ask_soon(7), Some(7));
        assert_eq!(directory.ask_soon(8), None, "it will be");
        (directory.due_ns, directory.asked_ns) = (None, Some(9));
        assert_eq!(directory.ask_soon(10), Some(9 + ASK_EVERY_NS));
    }
}
