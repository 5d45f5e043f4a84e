//! One change of a plan that may be in place, with what this process knows of it.

use serde_json::Value;

use super::{contest::Contest, item::Item, journal::Entry};

/// An entry of the journal, and what this process knows about it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) entry: Entry,
    /// This process put it in place; what an earlier one left may be half there.
    pub(super) confirmed: bool,
    /// The nftables table that it is, as the kernel listed it first.
    pub(super) listing: Option<Value>,
    /// The interface that it belongs to was made anew.
    pub(super) is_stale: bool,
    pub(super) contest: Contest,
}

impl Held {
    pub(super) fn new(entry: Entry, confirmed: bool) -> Self {
        let contest = Contest::default();
        Self { entry, confirmed, listing: None, is_stale: false, contest }
    }

    pub(super) fn is_kill_switch(&self) -> bool {
        matches!(self.entry.item, Item::KillSwitch(_))
    }
}
