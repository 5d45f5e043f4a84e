//! One change of a plan that may be in place, and the state that this process keeps of it.

use serde_json::Value;

use super::{contest::Contest, item::Item, journal::Entry};

/// An entry of the journal, and this process's knowledge of it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) entry: Entry,
    /// This process made the change. A change by an earlier process may be incomplete.
    pub(super) confirmed: bool,
    /// The change may have been made, by this process or an earlier one.
    pub(super) tried: bool,
    /// The listing of its nftables table, taken right after it was written.
    pub(super) listing: Option<Value>,
    /// Its interface was created again.
    pub(super) is_stale: bool,
    pub(super) contest: Contest,
}

impl Held {
    pub(super) fn new(entry: Entry, confirmed: bool) -> Self {
        let contest = Contest::default();
        Self { entry, confirmed, tried: true, listing: None, is_stale: false, contest }
    }

    pub(super) fn leads_past(&self) -> bool {
        self.entry.item.leads_past()
    }

    pub(super) fn is_kill_switch(&self) -> bool {
        matches!(self.entry.item, Item::KillSwitch(_))
    }
}
