//! The state of a path: how far its other end is trusted, and whether it carries. The tables
//! docs/spec/paths.md#trust and docs/spec/paths.md#health have every event and what follows from
//! it; a test goes through their rows.
//!
//! Decides nothing: it knows neither keys nor times, and which event happened others find out.

use crate::id::PathId;
use crate::time::Instant;

/// How far the other end of a path is trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// Somebody answered a challenge there, or only the peer could have sent from there.
    Proven,
    /// An address that this node chose itself: it may be sent to, but has not answered yet.
    Chosen,
    /// An address that a datagram came from: it gets three times what it sent.
    Claimed {
        /// Bytes received from it.
        received: u64,
        /// Bytes sent to it.
        sent: u64,
        /// The path whose lane the datagram arrived by, when it was not a fresh one: if that path
        /// still answers, the change was forged.
        instead_of: Option<PathId>,
    },
}

/// Whether a path carries data, as far as its answers tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// Nothing is owed, or answers come in time.
    Good,
    /// Answers are overdue since the given moment.
    Silent {
        /// When the silence was noticed.
        since: Instant,
    },
    /// Given up: its address is gone, or the peer says so. A gateway that hears of it again takes
    /// it back.
    Gone,
}

/// What is known of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State {
    pub(super) trust: Trust,
    pub(super) health: Health,
}

/// What may be sent to an unproven address for each byte that came from it (RFC 9000, 8.1).
const AMPLIFICATION: u64 = 3;

impl State {
    /// A path of which nothing bad is known.
    pub(super) const fn new(trust: Trust) -> Self {
        Self { trust, health: Health::Good }
    }

    /// Somebody answered there, or only the peer could have sent from there.
    pub(super) const fn move_to_proven(&mut self) {
        self.trust = Trust::Proven;
    }

    /// It leads to another address, which this node chose, and which has not answered yet.
    pub(super) const fn move_to_chosen(&mut self) {
        *self = Self::new(Trust::Chosen);
    }

    /// An answer is overdue.
    pub(super) const fn move_to_silent(&mut self, now: Instant) {
        if matches!(self.health, Health::Good) {
            self.health = Health::Silent { since: now };
        }
    }

    /// An answer has come. Returns whether it was silent.
    pub(super) const fn move_from_silent(&mut self) -> bool {
        let was_silent = matches!(self.health, Health::Silent { .. });
        if was_silent {
            self.health = Health::Good;
        }
        was_silent
    }

    /// It is given up.
    pub(super) const fn move_to_gone(&mut self) {
        self.health = Health::Gone;
    }

    /// The peer is there after all.
    pub(super) const fn move_from_gone(&mut self) {
        if matches!(self.health, Health::Gone) {
            self.health = Health::Good;
        }
    }

    /// A datagram of `len` bytes came from there.
    pub(super) const fn received(&mut self, len: usize) {
        if let Trust::Claimed { received, .. } = &mut self.trust {
            *received += len as u64;
        }
    }

    /// A datagram of `len` bytes left.
    pub(super) const fn sent(&mut self, len: usize) {
        if let Trust::Claimed { sent, .. } = &mut self.trust {
            *sent += len as u64;
        }
    }

    /// Whether `len` bytes may be sent there now.
    pub(super) const fn allows(&self, len: usize) -> bool {
        match self.trust {
            Trust::Proven | Trust::Chosen => true,
            Trust::Claimed { received, sent, .. } => {
                len as u64 <= (received * AMPLIFICATION).saturating_sub(sent)
            }
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
