//! Where each client is reached, and which handshake counters it has used, written down for the
//! process that comes after this one; and what a process that begins anew does with the first: it
//! calls everybody back. With the second it refuses a handshake that was recorded and repeated.
//!
//! A client that has nothing to say would not notice that its gateway lost the session. The notice
//! that it gets makes it ask for a new one at once (docs/spec/wire.md#7-restart-notice); it
//! only counts where it comes from the address that the client sends to, so it leaves from there
//! or not at all.
//!
//! Limits: what changed within the last [`WRITE_EVERY`] before a crash is not known. Such a client
//! is told when it next sends something, and its last handshake can be repeated once: that gets a
//! session whose keys nobody has.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rove_proto::id::{PeerKey, SessionIndex, SocketId};
use rove_proto::node::Command;
use rove_proto::outbox::Route;

use super::listening::Listening;
use crate::ledger::{Ledger, LedgerError, Reach};

/// How long a change waits for others that are written along with it.
const WRITE_EVERY: Duration = Duration::from_secs(2);
/// When clients are called back, after the start: the first time all, later those who did not
/// come. The second time is for those who had asked just before the first, in vain: they take a
/// notice for the answer to that, and wait.
const ROUNDS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(8),
];
/// Clients called back at once, and the pause until the next: 1,000 in half a second. Each answers
/// with a handshake, which costs this host some 0.2 ms.
const RECALLED_AT_ONCE: usize = 20;
const RECALL_PAUSE: Duration = Duration::from_millis(10);

/// What the store has yet to learn.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// One entry a peer: how it is reached, or that it is not.
    changes: BTreeMap<PeerKey, Option<Reach>>,
    /// The highest handshake counter accepted from a peer.
    counters: BTreeMap<PeerKey, u64>,
    write_at: Option<Instant>,
}

impl Journal {
    /// A peer is reached by `route` and `index` from now on.
    pub(super) fn reached(
        &mut self,
        peer: PeerKey,
        route: Route,
        index: SessionIndex,
        listening: &Listening,
    ) {
        let Some(bound) = listening.local(route.socket) else { return };
        let local = (route.local.unwrap_or_else(|| bound.ip()), bound.port()).into();
        self.note(peer, Some(Reach { local, remote: route.remote, index: index.0 }));
    }

    /// A peer has no session any more, and waits for none.
    pub(super) fn left(&mut self, peer: PeerKey) {
        self.note(peer, None);
    }

    /// A handshake with this counter was accepted from a peer.
    pub(super) fn accepted(&mut self, peer: PeerKey, counter: u64) {
        self.counters.insert(peer, counter);
        self.write_soon();
    }

    fn note(&mut self, peer: PeerKey, reach: Option<Reach>) {
        self.changes.insert(peer, reach);
        self.write_soon();
    }

    fn write_soon(&mut self) {
        self.write_at.get_or_insert_with(|| Instant::now() + WRITE_EVERY);
    }

    /// When something is to be written.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.write_at
    }

    /// Writes what is due. What cannot be written now is tried again with what comes next.
    pub(super) fn write_due(&mut self, ledger: &mut Ledger, now: Instant) {
        if self.write_at.is_some_and(|due| due <= now)
            && let Err(error) = self.write(ledger)
        {
            tracing::warn!(%error, "where clients are reached cannot be stored");
            self.write_at = Some(now + WRITE_EVERY);
        }
    }

    /// Writes everything.
    pub(super) fn write(&mut self, ledger: &mut Ledger) -> Result<(), LedgerError> {
        if !self.changes.is_empty() || !self.counters.is_empty() {
            ledger.note_sessions(&self.changes, &self.counters)?;
        }
        self.changes.clear();
        self.counters.clear();
        self.write_at = None;
        Ok(())
    }
}

/// Clients to be called back, in rounds.
#[derive(Debug)]
pub(super) struct Recalls {
    started: Instant,
    /// Who did not come back yet.
    missing: BTreeMap<PeerKey, Reach>,
    /// Who is still to be called in this round.
    queue: VecDeque<PeerKey>,
    /// Rounds that have begun.
    rounds: usize,
    next: Instant,
}

impl Recalls {
    /// Everybody who was reached by an earlier process.
    pub(super) const fn of(missing: BTreeMap<PeerKey, Reach>, now: Instant) -> Self {
        Self { started: now, missing, queue: VecDeque::new(), rounds: 0, next: now }
    }

    /// A client has a session, or must not get one.
    pub(super) fn settled(&mut self, peer: PeerKey) {
        self.missing.remove(&peer);
    }

    /// When somebody is to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        let over = self.queue.is_empty() && self.rounds == ROUNDS.len();
        (!self.missing.is_empty() && !over).then_some(self.next)
    }

    /// Who is to be called now.
    fn take_due(&mut self, now: Instant) -> Vec<Reach> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        if self.queue.is_empty() {
            self.rounds += 1;
            self.queue = self.missing.keys().copied().collect();
        }
        let at_once = self.queue.len().min(RECALLED_AT_ONCE);
        let called: Vec<PeerKey> = self.queue.drain(..at_once).collect();
        self.next = now + RECALL_PAUSE;
        if self.queue.is_empty()
            && let Some(&after) = ROUNDS.get(self.rounds)
        {
            self.next = self.next.max(self.started + after);
        }
        called.into_iter().filter_map(|peer| self.missing.get(&peer).copied()).collect()
    }

    /// The calls that are due. One that cannot leave from the address that its client knows is left
    /// out.
    pub(super) fn calls_due(&mut self, listening: &Listening, now: Instant) -> Vec<Command> {
        let call = |reach: Reach| {
            let socket: SocketId = listening.socket_of(reach.local)?;
            let route = Route { socket, local: Some(reach.local.ip()), remote: reach.remote };
            Some(Command::Recall { route, index: SessionIndex(reach.index) })
        };
        self.take_due(now).into_iter().filter_map(call).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recalls(count: u32, now: Instant) -> Recalls {
        let reach = |index| {
            let (local, remote) = ("192.0.2.1:4500".parse(), "203.0.113.2:9".parse());
            Reach { local: local.unwrap(), remote: remote.unwrap(), index }
        };
        let mut key = [0; 32];
        let missing = (0..count).map(|n| {
            key[..4].copy_from_slice(&n.to_be_bytes());
            (PeerKey(key), reach(n))
        });
        Recalls::of(missing.collect(), now)
    }

    /// Calls until nothing is due before `until`; how many, and when the last one was.
    fn call(recalls: &mut Recalls, until: Instant) -> (usize, Instant) {
        let (mut called, mut last) = (0, recalls.started);
        while let Some(due) = recalls.due().filter(|due| *due < until) {
            let now = recalls.take_due(due);
            assert!(now.len() <= RECALLED_AT_ONCE);
            (called, last) = (called + now.len(), due);
        }
        (called, last)
    }

    #[test]
    fn a_thousand_are_called_within_half_a_second_and_who_does_not_come_five_times() {
        let start = Instant::now();
        let mut recalls = recalls(1_000, start);
        let mut called = 0;
        while called < 1_000 {
            let due = recalls.due().unwrap();
            assert!(due - start <= Duration::from_millis(500), "{called} within {:?}", due - start);
            let now = recalls.take_due(due);
            assert!(now.len() <= RECALLED_AT_ONCE);
            called += now.len();
        }
        let came: Vec<PeerKey> = recalls.missing.keys().copied().take(990).collect();
        came.into_iter().for_each(|peer| recalls.settled(peer));
        let (called, last) = call(&mut recalls, start + ROUNDS[3]);
        assert_eq!((called, last), (20, start + ROUNDS[2]));
        let (called, last) = call(&mut recalls, start + ROUNDS[4] * 1_000);
        assert_eq!((called, last), (20, start + ROUNDS[4]));
        assert_eq!(recalls.due(), None, "never again");
    }

    #[test]
    fn nobody_is_called_who_came() {
        let start = Instant::now();
        let mut recalls = recalls(100, start);
        assert_eq!(recalls.take_due(start).len(), RECALLED_AT_ONCE);
        let all: Vec<PeerKey> = recalls.missing.keys().copied().collect();
        all.into_iter().for_each(|peer| recalls.settled(peer));
        assert_eq!(recalls.due(), None);
        assert!(recalls.take_due(start + ROUNDS[4]).is_empty());
    }

    #[test]
    fn rounds_of_many_do_not_overlap() {
        let start = Instant::now();
        let mut recalls = recalls(10_000, start);
        let (called, last) = call(&mut recalls, start + ROUNDS[4] * 1_000);
        assert_eq!(called, 50_000);
        assert!(last - start <= Duration::from_secs(26), "{:?}", last - start);
    }
}
