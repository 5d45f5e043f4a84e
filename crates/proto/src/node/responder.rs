//! What the responder of handshakes remembers: half-open exchanges, counters, budgets, load.
//!
//! Decides when a first half needs a cookie and when there are too many. Knows no keys and no
//! sessions: `respond` opens the halves and answers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::budget::{Budgets, Regulars};
use super::half_open::HalfOpenTable;
use crate::crypto::{Gate, Rng};
use crate::error::DropReason;
use crate::id::{PeerKey, SocketId};
use crate::time::{Duration, Instant};
use crate::tunnel::Config;

/// The period over which first halves are counted.
const LOAD_TIME: Duration = Duration::from_millis(100);
/// First halves opened in [`LOAD_TIME`] before cookies are required. Each costs two Diffie-Hellman
/// operations, some 120 us, so this limits them to a sixth of a core.
const LOAD_MAX: u32 = 128;
/// First halves in [`LOAD_TIME`] after which all are dropped, with or without a cookie, because
/// existing sessions need the processor too.
const LOAD_LAST: u32 = 256;
/// The same for recent sources of known peers. Newcomers cannot use up the difference.
const LOAD_LAST_REGULAR: u32 = 320;
/// First halves of unknown peers in [`LOAD_TIME`] before cookies are required of them. Fewer would
/// cost honest newcomers a round trip. More would give an attacker that many without a budget.
const UNKNOWN_MAX: u32 = 8;
/// Peers whose revocation is remembered here; the store knows all of them, and a key that is
/// forgotten is refused as unknown.
const REVOKED_MAX: usize = 4_096;

/// What the answering end remembers.
pub(super) struct Responder {
    pub(super) gate: Gate,
    pub(super) half_open: HalfOpenTable,
    pub(super) counters: BTreeMap<PeerKey, Counters>,
    pub(super) revoked: BTreeSet<PeerKey>,
    /// First halves that were opened.
    load: Load,
    /// First halves of unknown peers.
    pub(super) unknown: Load,
    pub(super) budgets: Budgets,
    pub(super) regulars: Regulars,
}

/// The number of messages in the present [`LOAD_TIME`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    since: Instant,
    pub(super) count: u32,
}

impl Load {
    /// Begins a new period when this one is over. After a flood of `max` the new period begins half
    /// full, because the flood probably continues.
    fn roll(&mut self, now: Instant, max: u32) {
        let age = now.saturating_since(self.since);
        if age >= LOAD_TIME {
            let goes_on = self.count >= max && age < 2 * LOAD_TIME;
            *self = Self { since: now, count: if goes_on { max / 2 } else { 0 } };
        }
    }
}

/// The counters accepted from one peer: the highest, and which of the 64 below it (candidates are
/// raced, so counters arrive out of order).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) highest: u64,
    seen: u64,
}

impl Counters {
    /// Every counter up to `highest` may have been accepted.
    const fn up_to(highest: u64) -> Self {
        Self { highest, seen: u64::MAX }
    }

    pub(super) fn accept(&mut self, counter: u64) -> Result<(), u64> {
        if self.seen == 0 || counter > self.highest {
            let ahead = counter.saturating_sub(self.highest);
            let shift = u32::try_from(ahead).unwrap_or(u32::MAX);
            self.seen = self.seen.checked_shl(shift).unwrap_or(0) | 1;
            self.highest = counter;
            return Ok(());
        }
        let behind = self.highest - counter;
        if behind >= 64 || self.seen & (1 << behind) != 0 {
            return Err(self.highest);
        }
        self.seen |= 1 << behind;
        Ok(())
    }
}

impl Responder {
    pub(super) fn new(now: Instant, config: &Config, rng: &mut dyn Rng) -> Self {
        Self {
            gate: Gate::new(config.secret.public(), rng, now),
            half_open: HalfOpenTable::default(),
            counters: BTreeMap::new(),
            revoked: BTreeSet::new(),
            load: Load::default(),
            unknown: Load::default(),
            budgets: Budgets::default(),
            regulars: Regulars::default(),
        }
    }

    /// Forgets what waited too long.
    pub(super) fn expire(&mut self, now: Instant) {
        self.half_open.expire(now);
    }

    /// Nobody can be answered by `socket` any more.
    pub(super) fn forget_socket(&mut self, socket: SocketId) {
        self.half_open.forget_socket(socket);
    }

    /// An earlier process accepted counters up to `highest` from this peer.
    pub(super) fn set_counter(&mut self, peer: PeerKey, highest: u64) {
        let counters = self.counters.entry(peer).or_default();
        if counters.seen == 0 || counters.highest < highest {
            *counters = Counters::up_to(highest);
        }
    }

    /// A key is welcome (again).
    pub(super) fn known(&mut self, key: PeerKey) {
        self.revoked.remove(&key);
    }

    /// A key is refused from now on.
    pub(super) fn revoke(&mut self, key: PeerKey) {
        self.half_open.forget_peer(key);
        if self.revoked.len() < REVOKED_MAX {
            self.revoked.insert(key); // and its counters stay: it may be let in again
        } else {
            self.counters.remove(&key);
        }
    }

    /// Whether all peers need a cookie: there were many expensive messages lately, or half of the
    /// known peers' places are in use.
    pub(super) fn is_loaded(&mut self, now: Instant) -> bool {
        self.load.roll(now, LOAD_MAX);
        self.load.count >= LOAD_MAX || self.half_open.is_crowded_by_known()
    }

    /// Whether unknown peers need a cookie and a budget.
    pub(super) fn is_crowded(&mut self, now: Instant) -> bool {
        self.unknown.roll(now, UNKNOWN_MAX);
        self.unknown.count >= UNKNOWN_MAX || self.half_open.is_crowded_by_unknown()
    }

    /// Counts one expensive message.
    ///
    /// # Errors
    /// [`DropReason::QueueFull`] if there were too many, with or without a cookie.
    pub(super) fn count_load(&mut self, source: SocketAddr) -> Result<(), DropReason> {
        let last = if self.load.count < LOAD_LAST || !self.regulars.has(source.ip()) {
            LOAD_LAST
        } else {
            LOAD_LAST_REGULAR
        };
        if self.load.count >= last {
            return Err(DropReason::QueueFull);
        }
        self.load.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_accepted_once_and_may_be_raced() {
        let mut counters = Counters::default();
        assert_eq!(counters.accept(100), Ok(()));
        assert_eq!(counters.accept(100), Err(100));
        assert_eq!(counters.accept(102), Ok(()));
        assert_eq!(counters.accept(101), Ok(()));
        assert_eq!(counters.accept(101), Err(102));
        assert_eq!(counters.accept(102 - 64), Err(102), "too old to tell");
        assert_eq!(counters.accept(5_000), Ok(()));
        assert_eq!(counters.accept(4_990), Ok(()));
    }
}
