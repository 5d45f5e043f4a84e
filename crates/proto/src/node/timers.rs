//! When each peer wants to be woken.
//!
//! A timer is moved forward at once and backward only when it rings: most packets push some
//! deadline back, and a tree update for each would cost more than the rare early wake-up.

use std::collections::{BTreeMap, BTreeSet};

use crate::peer::Reason;
use crate::session::index::Slot;
use crate::time::Instant;

/// One timer a peer.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BTreeSet<(Instant, Slot)>,
    set: BTreeMap<Slot, (Instant, Reason)>,
}

impl Timers {
    /// The peer wants to be woken at `wanted`, if at all.
    pub(super) fn set(&mut self, slot: Slot, wanted: Option<(Instant, Reason)>) {
        let Some((at, reason)) = wanted else { return };
        match self.set.get(&slot) {
            Some(&(earlier, _)) if earlier <= at => {}
            Some(&(later, _)) => {
                self.queue.remove(&(later, slot));
                self.insert(slot, at, reason);
            }
            None => self.insert(slot, at, reason),
        }
    }

    /// A peer whose time has come by `now`; its timer is stopped.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Slot> {
        let &(at, slot) = self.queue.first().filter(|(at, _)| *at <= now)?;
        self.queue.remove(&(at, slot));
        self.set.remove(&slot);
        Some(slot)
    }

    /// The peer is gone.
    pub(super) fn stop(&mut self, slot: Slot) {
        if let Some((at, _)) = self.set.remove(&slot) {
            self.queue.remove(&(at, slot));
        }
    }

    /// The earliest timer.
    pub(super) fn next(&self) -> Option<(Instant, Reason)> {
        let (_, slot) = self.queue.first()?;
        self.set.get(slot).copied()
    }

    fn insert(&mut self, slot: Slot, at: Instant, reason: Reason) {
        self.queue.insert((at, slot));
        self.set.insert(slot, (at, reason));
    }
}
