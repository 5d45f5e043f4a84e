//! Who belongs to a service: invites, peers, their leases and allow-lists, and what happened.
//!
//! The rules are pure ([`registry`]): from the present state, a request and the wall clock they
//! make a [`Change`] or a refusal. The [`Ledger`] makes a change durable in the store first, and
//! true in memory after, so that nobody is admitted whom a crash would forget. Both the running
//! gateway and the offline commands act through it.
//!
//! The wall clock is used for what people read and for the expiry of invites only; it is always
//! this gateway's own.

mod records;
mod registry;
mod snapshot;

use std::time::{SystemTime, UNIX_EPOCH};

use rove_proto::id::PeerKey;

use crate::store::{Store, StoreError, Table, Write};
use crate::values::Networks;

pub use records::{AuditEntry, AuditEvent, InviteRecord, Peer, Standing, UnixSeconds};
pub use registry::{Change, Enrolment, InviteTerms, Refusal, Registry};
pub use snapshot::Snapshot;

/// How many entries of the audit log are kept; the oldest go first.
pub const AUDIT_ENTRIES_MAX: u64 = 100_000;
/// How many refusals a minute are written down: a stranger must not be able to fill the disk, nor
/// to push what matters out of the log.
const REFUSALS_PER_MINUTE_MAX: u32 = 30;

/// The registry and the store that remembers it.
pub struct Ledger {
    registry: Registry,
    store: Box<dyn Store>,
    audit: AuditWindow,
    refusals: RefusalBudget,
}

/// The numbers of the first audit entry kept and of the next one.
#[derive(Clone, Copy)]
struct AuditWindow {
    first: u64,
    next: u64,
}

/// Refusals written in the present minute.
#[derive(Clone, Copy, Default)]
struct RefusalBudget {
    minute: u64,
    written: u32,
}

impl Ledger {
    /// Reads everything in `store`.
    pub fn open(store: Box<dyn Store>, networks: Networks) -> Result<Self, LedgerError> {
        let peers = decode(&*store, Table::Peers)?;
        let invites = decode(&*store, Table::Invites)?;
        let numbers = store.read(Table::Audit)?;
        let number = |key: &Vec<u8>| key.as_slice().try_into().map(u64::from_be_bytes).ok();
        let first = numbers.keys().next().and_then(number).unwrap_or(0);
        let last = numbers.keys().next_back().and_then(number);
        let audit = AuditWindow { first, next: last.map_or(0, |last| last.saturating_add(1)) };
        let registry = Registry::new(networks, peers, invites);
        Ok(Self { registry, store, audit, refusals: RefusalBudget::default() })
    }

    /// The present state.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Makes `change` durable, then true.
    pub fn make(&mut self, change: Change, now: UnixSeconds) -> Result<(), LedgerError> {
        let mut writes = Vec::new();
        for peer in &change.peers {
            writes.push(Write::put(Table::Peers, peer.key.0, encode(peer)?));
        }
        for invite in &change.invites {
            writes.push(Write::put(Table::Invites, invite.token.0, encode(invite)?));
        }
        for token in &change.forgotten {
            writes.push(Write::remove(Table::Invites, token.0));
        }
        let mut audit = self.audit;
        for event in &change.audit {
            let entry = encode(&AuditEntry { at: now, event: event.clone() })?;
            writes.push(Write::put(Table::Audit, audit.next.to_be_bytes(), entry));
            audit.next += 1;
        }
        while audit.next - audit.first > AUDIT_ENTRIES_MAX {
            writes.push(Write::remove(Table::Audit, audit.first.to_be_bytes()));
            audit.first += 1;
        }
        self.store.commit(&writes)?;
        self.audit = audit;
        self.registry.apply(change);
        Ok(())
    }

    /// Writes down that somebody was refused, unless too many were within this minute.
    pub fn note_refusal(
        &mut self,
        key: PeerKey,
        refusal: Refusal,
        now: UnixSeconds,
    ) -> Result<(), LedgerError> {
        if self.refusals.minute != now.0 / 60 {
            self.refusals = RefusalBudget { minute: now.0 / 60, written: 0 };
        }
        if self.refusals.written >= REFUSALS_PER_MINUTE_MAX {
            return Ok(());
        }
        self.refusals.written += 1;
        let event = AuditEvent::Refused { key: key.into(), why: refusal.to_string() };
        self.make(Change { audit: vec![event], ..Change::default() }, now)
    }

    /// The newest `count` entries of the audit log, oldest first.
    pub fn audit(&self, count: usize) -> Result<Vec<AuditEntry>, LedgerError> {
        let records = self.store.read(Table::Audit)?;
        let newest = records.values().rev().take(count);
        let entries = newest.map(|bytes| serde_json::from_slice(bytes));
        let mut entries: Vec<AuditEntry> = entries
            .collect::<Result<_, _>>()
            .map_err(|_| LedgerError::Record(Table::Audit.name()))?;
        entries.reverse();
        Ok(entries)
    }

    /// Everything that it knows, for a backup.
    pub fn snapshot(&self) -> Result<Snapshot, LedgerError> {
        let audit = self.audit(usize::try_from(AUDIT_ENTRIES_MAX).unwrap_or(usize::MAX))?;
        Ok(self.registry.snapshot(audit))
    }
}

/// Now, by the wall clock. A clock before 1970 counts as 1970.
pub fn wall_clock() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |since| since.as_secs()))
}

/// Why the ledger failed; the rules' own refusals are other types.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record does not read.
    #[error(
        "the store's table `{0}` holds a record that does not read: restore a backup with \
         `rove gateway restore FILE`"
    )]
    Record(&'static str),
}

fn encode(record: &impl serde::Serialize) -> Result<Vec<u8>, LedgerError> {
    serde_json::to_vec(record).map_err(|_| LedgerError::Record("new"))
}

fn decode<T: serde::de::DeserializeOwned>(
    store: &dyn Store,
    table: Table,
) -> Result<Vec<T>, LedgerError> {
    let records = store.read(table)?;
    let decoded = records.values().map(|bytes| serde_json::from_slice(bytes));
    decoded.collect::<Result<_, _>>().map_err(|_| LedgerError::Record(table.name()))
}

#[cfg(test)]
mod tests;
