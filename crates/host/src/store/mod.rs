//! What a node must still know after a crash: a few tables of small records, changed as a whole.
//!
//! A [`Store`] keeps bytes under bytes and decides nothing: what the records mean is the ledger's
//! business. It is never on the packet path: its changes reach the core as commands, so tunnels
//! run on while a store is slow, full or dead. The embedded store is one redb file; others come
//! behind the same trait.

mod embedded;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use embedded::EmbeddedStore;

/// The tables of a store. Their names are part of the file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// One record per peer, under its public key.
    Peers,
    /// One record per invite, under the hash of its token.
    Invites,
    /// 8 bytes big-endian, under a public key. On a client: the lowest handshake counter never used
    /// with a gateway. On a gateway: the highest accepted from a peer.
    Counters,
    /// What happened, under a number that only grows, 8 bytes big-endian.
    Audit,
    /// Who was refused, likewise: apart, so that strangers cannot push anything else out.
    Refusals,
    /// Single records by name.
    Facts,
    /// By which way each peer was reached last, under its public key.
    Reach,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 7] = [
        Self::Peers,
        Self::Invites,
        Self::Counters,
        Self::Audit,
        Self::Refusals,
        Self::Facts,
        Self::Reach,
    ];

    /// Its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peers => "peers",
            Self::Invites => "invites",
            Self::Counters => "counters",
            Self::Audit => "audit",
            Self::Refusals => "refusals",
            Self::Facts => "facts",
            Self::Reach => "reach",
        }
    }
}

/// One change: a record put, or removed when `value` is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The table.
    pub table: Table,
    /// The record's key.
    pub key: Vec<u8>,
    /// The record, or none to remove it.
    pub value: Option<Vec<u8>>,
}

impl Write {
    /// Puts a record.
    pub fn put(table: Table, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { table, key: key.into(), value: Some(value.into()) }
    }

    /// Removes a record.
    pub fn remove(table: Table, key: impl Into<Vec<u8>>) -> Self {
        Self { table, key: key.into(), value: None }
    }
}

/// The records of one table, in the order of their keys.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// The lowest and the highest key of a table.
pub type Ends = (Vec<u8>, Vec<u8>);

/// Durable tables of records.
pub trait Store: Send {
    /// Every record of `table`.
    fn read(&self, table: Table) -> Result<Records, StoreError>;

    /// The `count` records of `table` with the highest keys.
    fn last(&self, table: Table, count: usize) -> Result<Records, StoreError>;

    /// The lowest and the highest key of `table`; none when it is empty.
    fn ends(&self, table: Table) -> Result<Option<Ends>, StoreError>;

    /// Makes all of `writes`, in their order, or none; durable on return. One that failed, because
    /// the disk was full, may be tried again.
    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError>;
}

/// Why a store cannot be used. The message names the file and the cure.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is none.
    #[error("{} does not exist: run `rove gateway init`, or restore a backup", .0.display())]
    Missing(PathBuf),
    /// Another process has it open.
    #[error("{} is in use by another rove: stop it first", .0.display())]
    InUse(PathBuf),
    /// It is something else.
    #[error("{} is no store of Rove: restore a backup with `rove gateway restore FILE`",
        .0.display())]
    Foreign(PathBuf),
    /// It was a store.
    #[error("{} is damaged ({what}): restore a backup with `rove gateway restore FILE`",
        .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// A later version wrote it.
    #[error("{} was written by a later version: install a newer rove", .0.display())]
    Newer(PathBuf),
    /// The system refused to read or write.
    #[error("{}: {what}: check the disk's space and permissions", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        what: String,
    },
}

#[cfg(test)]
mod tests;
