//! Handshakes that cannot be answered yet, because the second half is missing or the shell has not
//! yet decided about the enrolment.
//!
//! Decides which of them is evicted if there are too many. Known and unknown peers have separate
//! places, so unknown peers cannot take a known peer's place. Among unknown peers, none keeps
//! another out. The oldest one without a proven address is evicted. If all are proven, it is the
//! oldest of the neighbourhood with the most places.

use std::collections::{BTreeMap, VecDeque};

use super::budget::Network;
use crate::crypto::{Complete, ExchangeId, PendingA};
use crate::error::DropReason;
use crate::id::{PeerKey, SocketId};
use crate::outbox::Route;
use crate::time::{Duration, Instant};

/// Places for known peers.
const KNOWN_MAX: usize = 256;
/// Places for unknown peers, some 2 MB. An unknown peer needs a place until its second half
/// arrives, directly behind the first. At the highest rate at which the responder opens first
/// halves, 512 places leave it 200 ms.
pub(super) const UNKNOWN_MAX: usize = 512;
/// Places of one peer: as many as the candidates that a client races.
const PEER_MAX: usize = 8;
/// How long a first half waits for its second, and an enrolment for the shell.
const WAITING_TIME: Duration = Duration::from_secs(2);

/// A handshake that cannot be answered yet.
pub(super) struct HalfOpen {
    pub(super) since: Instant,
    pub(super) route: Route,
    pub(super) peer: PeerKey,
    pub(super) step: Step,
    /// Whether a cookie has proven its source address.
    pub(super) is_proven: bool,
}

pub(super) enum Step {
    /// Its second half is missing.
    Half(Box<PendingA>),
    /// The shell has not yet decided whether the peer may enrol.
    Enrolment(Box<Complete>),
}

impl HalfOpen {
    fn is_half_of(&self, link: [u8; 16]) -> bool {
        matches!(&self.step, Step::Half(half) if half.link() == ExchangeId(link))
    }

    fn waits_for_shell(&self, peer: PeerKey) -> bool {
        self.peer == peer && matches!(self.step, Step::Enrolment(_))
    }
}

/// All of these handshakes, each queue oldest first.
#[derive(Default)]
pub(super) struct HalfOpenTable {
    known: VecDeque<HalfOpen>,
    unknown: VecDeque<HalfOpen>,
}

impl HalfOpenTable {
    /// Forgets handshakes that waited too long.
    pub(super) fn expire(&mut self, now: Instant) {
        let expired = |waiting: &HalfOpen| now.saturating_since(waiting.since) >= WAITING_TIME;
        for queue in [&mut self.known, &mut self.unknown] {
            while queue.front().is_some_and(expired) {
                queue.pop_front();
            }
        }
    }

    /// Forgets handshakes on a closed socket, which cannot be answered.
    pub(super) fn forget_socket(&mut self, socket: SocketId) {
        self.retain(|waiting| waiting.route.socket != socket);
    }

    /// Forgets the handshakes of this peer.
    pub(super) fn forget_peer(&mut self, peer: PeerKey) {
        self.retain(|waiting| waiting.peer != peer);
    }

    fn retain(&mut self, keeps: impl Fn(&HalfOpen) -> bool) {
        self.known.retain(&keeps);
        self.unknown.retain(&keeps);
    }

    /// Whether half of the known peers' places are in use.
    pub(super) fn is_crowded_by_known(&self) -> bool {
        self.known.len() >= KNOWN_MAX / 2
    }

    /// Whether half of the unknown peers' places are in use.
    pub(super) fn is_crowded_by_unknown(&self) -> bool {
        self.unknown.len() >= UNKNOWN_MAX / 2
    }

    /// Keeps the handshake of a known peer.
    ///
    /// # Errors
    /// [`DropReason::TableFull`] if this peer, or the known peers together, use all their places.
    pub(super) fn keep_known(&mut self, waiting: HalfOpen) -> Result<(), DropReason> {
        self.expire(waiting.since);
        let same = self.known.iter().filter(|other| other.peer == waiting.peer).count();
        if self.known.len() >= KNOWN_MAX || same >= PEER_MAX {
            return Err(DropReason::TableFull);
        }
        self.known.push_back(waiting);
        Ok(())
    }

    /// Keeps the handshake of an unknown peer, and evicts another one if necessary.
    ///
    /// # Errors
    /// [`DropReason::TableFull`] if this peer uses all its places.
    pub(super) fn keep_unknown(&mut self, waiting: HalfOpen) -> Result<(), DropReason> {
        self.expire(waiting.since);
        let same = self.unknown.iter().filter(|other| other.peer == waiting.peer).count();
        if same >= PEER_MAX {
            return Err(DropReason::TableFull);
        }
        if self.unknown.len() >= UNKNOWN_MAX {
            self.give_way();
        }
        self.unknown.push_back(waiting);
        Ok(())
    }

    fn give_way(&mut self) {
        let unproven = self.unknown.iter().position(|waiting| !waiting.is_proven);
        let place = unproven.or_else(|| {
            let network = |waiting: &HalfOpen| Network::neighbourhood(waiting.route.remote.ip());
            let mut places: BTreeMap<Network, usize> = BTreeMap::new();
            for waiting in &self.unknown {
                *places.entry(network(waiting)).or_default() += 1;
            }
            let most = places.values().copied().max();
            let has_most = |w: &HalfOpen| places.get(&network(w)).copied() == most;
            self.unknown.iter().position(has_most)
        });
        place.and_then(|place| self.unknown.remove(place));
    }

    /// The first half with the name `link`.
    pub(super) fn half(&mut self, link: [u8; 16]) -> Option<&mut HalfOpen> {
        let mut all = self.known.iter_mut().chain(&mut self.unknown);
        all.find(|waiting| waiting.is_half_of(link))
    }

    /// Removes the first half with the name `link`.
    pub(super) fn take_half(&mut self, link: [u8; 16]) {
        self.retain(|waiting| !waiting.is_half_of(link));
    }

    /// Whether the shell was asked about this peer.
    pub(super) fn waits_for_shell(&self, peer: PeerKey) -> bool {
        self.unknown.iter().any(|waiting| waiting.waits_for_shell(peer))
    }

    /// Removes and returns the handshakes of this peer that waited for the shell.
    pub(super) fn take_enrolments(&mut self, peer: PeerKey) -> Vec<(Route, Complete)> {
        let mut taken = Vec::new();
        for waiting in std::mem::take(&mut self.unknown) {
            match waiting.step {
                Step::Enrolment(complete) if waiting.peer == peer => {
                    taken.push((waiting.route, *complete));
                }
                Step::Enrolment(_) | Step::Half(_) => self.unknown.push_back(waiting),
            }
        }
        taken
    }
}
