//! A table of numbered entries of which the newest are kept.

use rove_host::store::{Store, Table, Write};

use super::{AuditEntry, LedgerError};

/// How many old entries one new entry may push out: a ring that was larger shrinks, step by step.
const PUSHED_OUT_MAX: usize = 2;

/// Which entries a table holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    table: Table,
    keeps: u64,
    first: u64,
    next: u64,
}

impl Ring {
    /// The entries of `table`, of which the newest `keeps` stay.
    pub(super) fn open(store: &dyn Store, table: Table, keeps: u64) -> Result<Self, LedgerError> {
        let Some((first, last)) = store.ends(table)? else {
            return Ok(Self { table, keeps, first: 0, next: 0 });
        };
        let number = |key: Vec<u8>| key.as_slice().try_into().map(u64::from_be_bytes).ok();
        let next = || number(last)?.checked_add(1);
        let window = number(first).zip(next());
        let (first, next) = window.ok_or_else(|| LedgerError::Record(table.name()))?;
        Ok(Self { table, keeps, first, next })
    }

    /// Adds to `writes` what appends `entry`. The ring is as it will be once they are made.
    pub(super) fn append(
        &mut self,
        entry: &AuditEntry,
        writes: &mut Vec<Write>,
    ) -> Result<(), LedgerError> {
        let record = super::encode(entry)?;
        writes.push(Write::put(self.table, self.next.to_be_bytes(), record));
        self.next += 1;
        for _ in 0..PUSHED_OUT_MAX {
            if self.next - self.first > self.keeps {
                writes.push(Write::remove(self.table, self.first.to_be_bytes()));
                self.first += 1;
            }
        }
        Ok(())
    }

    /// The newest `count` entries, oldest first.
    pub(super) fn last(
        &self,
        store: &dyn Store,
        count: usize,
    ) -> Result<Vec<AuditEntry>, LedgerError> {
        super::decode(&store.last(self.table, count)?, self.table)
    }
}
