//! Where a client's process looks for its gateway: what the daemon does about it
//! (`crates/client/src/daemon/addresses.rs`), with the same commands.
//!
//! It knows where the gateway answered, what it said itself and what its name stands for. The name
//! is asked for when the process begins, as soon as nothing carries, and then every few seconds
//! until something does. What a client is told is its own affair: this world has one name server,
//! which is right, but for the time that a change takes to reach it, and answers whoever has a
//! network.

use std::net::SocketAddr;

use crate::emu::SECOND;

/// How often the name is asked for while nobody answers, in nanoseconds: the daemon's.
const ASK_EVERY_NS: u64 = 5 * SECOND;
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

    /// The gateway says that it is reached there.
    pub(super) fn announce(&mut self, addresses: &[SocketAddr]) {
        self.announced = addresses.iter().copied().take(STORED_MAX).collect();
    }

    /// The name stands for these.
    pub(super) fn find(&mut self, addresses: &[SocketAddr]) {
        self.found = addresses.to_vec();
    }

    /// All addresses, which the node is told now.
    pub(super) fn tell(&mut self) -> Vec<SocketAddr> {
        self.told = self.remotes();
        self.told.clone()
    }

    /// The same if they are others than it was told last.
    pub(super) fn news(&mut self) -> Option<Vec<SocketAddr>> {
        (self.remotes() != self.told).then(|| self.tell())
    }

    /// Whether a proven path carries.
    pub(super) const fn set_up(&mut self, is_up: bool) {
        self.is_up = is_up;
    }

    /// Whether the name is asked for by other links at once, because nothing carries.
    pub(super) const fn asks_again(&mut self) -> bool {
        if !self.is_up {
            self.asked_ns = None;
        }
        !self.is_up
    }

    /// Whether the name is asked for now, as it was to be at `at_ns`; `None` where nobody can ask.
    pub(super) fn asks(&mut self, at_ns: u64, now_ns: Option<u64>) -> bool {
        if self.due_ns != Some(at_ns) {
            return false; // it was asked for meanwhile
        }
        self.due_ns = None;
        let Some(now_ns) = now_ns.filter(|_| !self.is_up) else { return false };
        self.asked_ns = Some(now_ns);
        true
    }

    /// When the name is to be asked for, given that nothing carries since `now_ns`.
    pub(super) fn ask_soon(&mut self, now_ns: u64) -> Option<u64> {
        let at_ns = self.asked_ns.map_or(now_ns, |last_ns| now_ns.max(last_ns + ASK_EVERY_NS));
        let sooner = self.due_ns.is_none_or(|due_ns| due_ns > at_ns);
        sooner.then(|| *self.due_ns.insert(at_ns))
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
