//! Who belongs to a service: invites, peers, their leases and allow-lists, and what happened.
//!
//! The rules are pure ([`registry`]): from the present state, a request and the wall clock they
//! make a [`Change`] or a refusal. The [`Ledger`] makes a change durable in the store first, and
//! true in memory after, so that nobody is admitted whom a crash would forget; a revocation is
//! true at once, so that nobody stays whom a full disk would keep. Both the running gateway and the
//! offline commands act through it.
//!
//! The wall clock of this gateway is used only for times that people read and for the expiry of
//! invites. Invites expire by a time that never goes back ([`clock`]).

mod clock;
mod records;
mod registry;
mod ring;
mod snapshot;

use std::collections::BTreeMap;
use std::time::Instant;

use rove_host::store::{Records, Store, StoreError, Table, Write};
use rove_host::time::UnixSeconds;
use rove_host::values::Networks;
use rove_proto::id::PeerKey;

use clock::Clock;
use ring::Ring;

pub(crate) use clock::Behind;
pub(crate) use records::{AuditEntry, AuditEvent, InviteRecord, Peer, Reach, Standing};
pub(crate) use registry::{
    Change, Enrolment, InviteTerms, Refusal, Registry, RevokeError, SUBNETS_IN_ALL_MAX,
};
pub use snapshot::Dropped;
pub(crate) use snapshot::LedgerSnapshot;

/// How many entries of the audit log are kept; the oldest go first.
pub(crate) const AUDIT_ENTRIES_MAX: u64 = 100_000;
/// How many refusals are kept. They are strangers' doing, so they have a ring of their own and push
/// out nothing but each other.
pub(crate) const REFUSALS_MAX: u64 = 10_000;
/// How many refusals a minute are written down: a stranger must not keep the disk busy.
const REFUSALS_PER_MINUTE_MAX: u32 = 30;
/// The store's key for the latest time that this gateway saw.
const LATEST_TIME: &[u8] = b"latest-time";

/// The registry and the store that remembers it.
pub(crate) struct Ledger {
    registry: Registry,
    store: Box<dyn Store>,
    audit: Ring,
    refusals: Ring,
    budget: RefusalBudget,
    clock: Clock,
    /// What is true in memory already and could not be stored: it goes along with the next writes.
    /// Revocations alone get here, so that it is bounded by the number of peers and invites.
    owed: Vec<Write>,
}

/// Refusals written in the present minute.
#[derive(Clone, Copy, Default)]
struct RefusalBudget {
    minute: u64,
    written: u32,
}

impl Ledger {
    /// Reads everything in `store`.
    pub(crate) fn open(store: Box<dyn Store>, networks: Networks) -> Result<Self, LedgerError> {
        let peers = decode(&store.read(Table::Peers)?, Table::Peers)?;
        let invites = decode(&store.read(Table::Invites)?, Table::Invites)?;
        let audit = Ring::open(&*store, Table::Audit, AUDIT_ENTRIES_MAX)?;
        let refusals = Ring::open(&*store, Table::Refusals, REFUSALS_MAX)?;
        let registry = Registry::new(networks, peers, invites);
        let (budget, owed) = (RefusalBudget::default(), Vec::new());
        // An unreadable time must not lock out all clients.
        let latest = store.read(Table::Facts)?.remove(LATEST_TIME);
        let latest = latest.and_then(|bytes| Some(u64::from_be_bytes(bytes.try_into().ok()?)));
        let clock = Clock::new(latest.map(UnixSeconds));
        Ok(Self { registry, store, audit, refusals, budget, clock, owed })
    }

    /// The present state.
    pub(crate) const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Makes `change` durable, then true.
    pub(crate) fn make(&mut self, change: Change, now: UnixSeconds) -> Result<(), LedgerError> {
        let before = (self.audit, self.refusals, self.owed.len());
        let stored = self.owe(&change, now).and_then(|()| self.settle());
        if stored.is_err() {
            let owed;
            (self.audit, self.refusals, owed) = before;
            self.owed.truncate(owed);
            return stored;
        }
        self.registry.apply(change);
        Ok(())
    }

    /// Makes `change` true, and durable if that can be had: for what is taken away from somebody,
    /// which must not wait for a disk. After an error it holds until the process ends, unless
    /// [`Ledger::settle`] or any later change succeeds.
    pub(crate) fn make_in_any_case(
        &mut self,
        change: Change,
        now: UnixSeconds,
    ) -> Result<(), LedgerError> {
        let stored = self.owe(&change, now).and_then(|()| self.settle());
        self.registry.apply(change);
        stored
    }

    /// Whether something is true that the store does not know.
    pub(crate) const fn is_in_debt(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Stores changes that could not be stored when they were made, and the time with them.
    pub(crate) fn settle(&mut self) -> Result<(), LedgerError> {
        let now = Instant::now();
        let time = self.clock.unwritten(now);
        self.owed.extend(time.map(put_time));
        if let Err(error) = self.store.commit(&self.owed) {
            self.owed.truncate(self.owed.len() - usize::from(time.is_some()));
            return Err(error.into());
        }
        self.owed.clear();
        if let Some(time) = time {
            self.clock.wrote(time, now);
        }
        Ok(())
    }

    /// The time by which invites expire, if the wall clock reads `wall`.
    pub(crate) fn time(&mut self, wall: UnixSeconds) -> UnixSeconds {
        self.clock.read(wall, Instant::now())
    }

    /// How far the wall clock is behind that time, if that must be reported.
    pub(crate) const fn behind(&self) -> Option<Behind> {
        self.clock.behind()
    }

    /// When [`Ledger::keep_time`] is due.
    pub(crate) fn time_due(&self) -> Option<Instant> {
        self.clock.due()
    }

    /// Reads the wall clock, and writes the time if that is due.
    pub(crate) fn keep_time(&mut self, wall: UnixSeconds) -> Result<(), LedgerError> {
        let now = Instant::now();
        if self.clock.due().is_some_and(|due| now < due) {
            return Ok(());
        }
        self.clock.read(wall, now);
        let settled = self.settle();
        if settled.is_err() {
            self.clock.put_off(now);
        }
        settled
    }

    /// Accepts the wall clock as right, whatever time was seen before.
    pub(crate) fn reset_time(&mut self, wall: UnixSeconds) -> Result<(), LedgerError> {
        self.clock.reset(wall, Instant::now());
        self.settle()
    }

    /// Adds to what is owed the writes that make `change` durable.
    fn owe(&mut self, change: &Change, now: UnixSeconds) -> Result<(), LedgerError> {
        let writes = &mut self.owed;
        for peer in &change.peers {
            writes.push(Write::put(Table::Peers, peer.key.0, encode(peer)?));
        }
        for invite in &change.invites {
            writes.push(Write::put(Table::Invites, invite.token.0, encode(invite)?));
        }
        for token in &change.forgotten {
            writes.push(Write::remove(Table::Invites, token.0));
        }
        for event in &change.audit {
            let entry = AuditEntry { at: now, event: event.clone() };
            let ring = match event {
                AuditEvent::Refused { .. } => &mut self.refusals,
                AuditEvent::Invited { .. }
                | AuditEvent::Enrolled { .. }
                | AuditEvent::Revoked { .. }
                | AuditEvent::Withdrawn { .. }
                | AuditEvent::Allowed { .. }
                | AuditEvent::Restored => &mut self.audit,
            };
            ring.append(&entry, writes)?;
        }
        Ok(())
    }

    /// Writes down that somebody was refused, unless too many were within this minute.
    pub(crate) fn note_refusal(
        &mut self,
        key: PeerKey,
        refusal: Refusal,
        now: UnixSeconds,
    ) -> Result<(), LedgerError> {
        if self.budget.minute != now.0 / 60 {
            self.budget = RefusalBudget { minute: now.0 / 60, written: 0 };
        }
        if self.budget.written >= REFUSALS_PER_MINUTE_MAX {
            return Ok(());
        }
        self.budget.written += 1;
        let event = AuditEvent::Refused { key: key.into(), why: refusal.to_string() };
        self.make(Change { audit: vec![event], ..Change::default() }, now)
    }

    /// By which way each peer that is enrolled was reached last. What does not read is left out:
    /// it spares a round trip, and nothing depends on it.
    pub(crate) fn reaches(&self) -> Result<BTreeMap<PeerKey, Reach>, LedgerError> {
        let records = self.store.read(Table::Reach)?;
        let read = |(key, bytes): (Vec<u8>, Vec<u8>)| {
            let key = PeerKey(key.try_into().ok()?);
            let reach = serde_json::from_slice(&bytes).ok()?;
            self.registry.peer(key).filter(|peer| peer.is_enrolled()).map(|_| (key, reach))
        };
        Ok(records.into_iter().filter_map(read).collect())
    }

    /// The highest handshake counter that was accepted from each enrolled peer.
    pub(crate) fn counters(&self) -> Result<BTreeMap<PeerKey, u64>, LedgerError> {
        let read = |(key, bytes): (Vec<u8>, Vec<u8>)| {
            let key = PeerKey(key.try_into().ok()?);
            let counter = u64::from_be_bytes(bytes.try_into().ok()?);
            self.registry.peer(key).filter(|peer| peer.is_enrolled()).map(|_| (key, counter))
        };
        Ok(self.store.read(Table::Counters)?.into_iter().filter_map(read).collect())
    }

    /// Writes down by which way peers are reached from now on, or that they are not any more, and
    /// which handshake counters were accepted. There is one record of each for each peer at most,
    /// and none for a peer that is not enrolled.
    pub(crate) fn note_sessions(
        &mut self,
        changes: &BTreeMap<PeerKey, Option<Reach>>,
        counters: &BTreeMap<PeerKey, u64>,
    ) -> Result<(), LedgerError> {
        let write = |(key, reach): (&PeerKey, &Option<Reach>)| {
            let enrolled = self.registry.peer(*key).is_some_and(Peer::is_enrolled);
            match reach.as_ref().filter(|_| enrolled) {
                Some(reach) => Ok(Write::put(Table::Reach, key.0, encode(reach)?)),
                None => Ok(Write::remove(Table::Reach, key.0)),
            }
        };
        let mut writes: Vec<Write> =
            changes.iter().map(write).collect::<Result<_, LedgerError>>()?;
        writes.extend(counters.iter().map(|(key, counter)| {
            let enrolled = self.registry.peer(*key).is_some_and(Peer::is_enrolled);
            if enrolled {
                Write::put(Table::Counters, key.0, counter.to_be_bytes())
            } else {
                Write::remove(Table::Counters, key.0)
            }
        }));
        Ok(self.store.commit(&writes)?)
    }

    /// The newest `count` entries of the audit log and of the refusals, oldest first.
    pub(crate) fn audit(&self, count: usize) -> Result<Vec<AuditEntry>, LedgerError> {
        let mut entries = self.audit.last(&*self.store, count)?;
        entries.extend(self.refusals.last(&*self.store, count)?);
        entries.sort_by_key(|entry| entry.at);
        let surplus = entries.len().saturating_sub(count);
        Ok(entries.split_off(surplus))
    }

    /// Everything that it knows, for a backup.
    pub(crate) fn snapshot(&self) -> Result<LedgerSnapshot, LedgerError> {
        Ok(LedgerSnapshot {
            peers: self.registry.peers().cloned().collect(),
            invites: self.registry.invites().cloned().collect(),
            audit: self.audit.last(&*self.store, usize::MAX)?,
            refusals: self.refusals.last(&*self.store, usize::MAX)?,
            latest: self.clock.latest(Instant::now()),
        })
    }
}

/// Why the ledger failed; the rules' own refusals are other types.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
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

fn put_time(time: UnixSeconds) -> Write {
    Write::put(Table::Facts, LATEST_TIME, time.0.to_be_bytes())
}

fn encode(record: &impl serde::Serialize) -> Result<Vec<u8>, LedgerError> {
    serde_json::to_vec(record).map_err(|_| LedgerError::Record("new"))
}

fn decode<T: serde::de::DeserializeOwned>(
    records: &Records,
    table: Table,
) -> Result<Vec<T>, LedgerError> {
    let decoded = records.values().map(|bytes| serde_json::from_slice(bytes));
    decoded.collect::<Result<_, _>>().map_err(|_| LedgerError::Record(table.name()))
}

#[cfg(test)]
mod tests;
