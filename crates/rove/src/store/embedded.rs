//! The embedded store: one redb file, readable by its owner alone.
//!
//! Decides which file it accepts: one that redb opens, whose every page has the right checksum, and
//! whose `about` record names the role and a known version. A file with arbitrary bytes is one
//! clear error; redb asserts some things about its pages, so opening runs behind a guard that turns
//! an assertion into the same error.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use serde::{Deserialize, Serialize};

use super::{Records, Store, StoreError, Table, Write};
use crate::files::PRIVATE;
use crate::quiet;

/// The version of the records' format; older ones are read for ever.
const VERSION: u32 = 1;
/// The first bytes of every redb file.
const MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";
/// Pages kept in memory: a gateway's whole store is smaller, and memory is budgeted.
const CACHE_BYTES: usize = 1 << 20;
const ABOUT: &[u8] = b"about";

/// What a store says about itself.
#[derive(Serialize, Deserialize)]
struct About {
    format: u32,
    role: String,
}

/// A redb file.
pub struct EmbeddedStore {
    path: PathBuf,
    database: Database,
}

impl EmbeddedStore {
    /// A new store for `role` at `path`, where no file may be.
    pub fn create(path: &Path, role: &str) -> Result<Self, StoreError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(PRIVATE);
        let file = options.open(path).map_err(|cause| system(path, cause))?;
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.create_file(file).map_err(|cause| refused(path, cause))?;
        let mut store = Self { path: path.to_owned(), database };
        let about = About { format: VERSION, role: role.to_owned() };
        let about = serde_json::to_vec(&about).map_err(|cause| system(path, cause))?;
        store.commit(&[Write::put(Table::Facts, ABOUT, about)])?;
        Ok(store)
    }

    /// The store for `role` at `path`.
    pub fn open(path: &Path, role: &str) -> Result<Self, StoreError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let mut file = match file {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Missing(path.to_owned()));
            }
            opened => opened.map_err(|cause| system(path, cause))?,
        };
        let mut magic = [0; MAGIC.len()];
        // redb would take an empty file for a new one.
        if file.read_exact(&mut magic).is_err() || magic != MAGIC {
            return Err(StoreError::Foreign(path.to_owned()));
        }
        file.rewind().map_err(|cause| system(path, cause))?;
        let open = || {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE_BYTES);
            let mut database = builder.create_file(file).map_err(|cause| refused(path, cause))?;
            database.check_integrity().map_err(|cause| refused(path, cause))?;
            let store = Self { path: path.to_owned(), database };
            // Every record is read once, so that a damaged page shows now and not in a year.
            for table in Table::ALL {
                store.read(table)?;
            }
            Ok(store)
        };
        let opened =
            quiet::catching(open).unwrap_or_else(|| Err(damaged(path, "an impossible page")));
        let store = opened?;
        store.check_about(role)?;
        Ok(store)
    }

    fn check_about(&self, role: &str) -> Result<(), StoreError> {
        let facts = self.read(Table::Facts)?;
        let about = facts.get(ABOUT).ok_or_else(|| StoreError::Foreign(self.path.clone()))?;
        let about: About = serde_json::from_slice(about)
            .map_err(|_| damaged(&self.path, "no readable description of itself"))?;
        if about.format > VERSION {
            return Err(StoreError::Newer(self.path.clone()));
        }
        if about.role != role {
            return Err(StoreError::Foreign(self.path.clone()));
        }
        Ok(())
    }
}

impl Store for EmbeddedStore {
    fn read(&self, table: Table) -> Result<Records, StoreError> {
        let fail = |cause: redb::Error| refused(&self.path, cause);
        let transaction = self.database.begin_read().map_err(|cause| fail(cause.into()))?;
        let opened = match transaction.open_table(definition(table)) {
            Ok(opened) => opened,
            Err(TableError::TableDoesNotExist(_)) => return Ok(Records::new()),
            Err(cause) => return Err(fail(cause.into())),
        };
        let mut records = Records::new();
        for entry in opened.iter().map_err(|cause| fail(cause.into()))? {
            let (key, value) = entry.map_err(|cause| fail(cause.into()))?;
            records.insert(key.value().to_vec(), value.value().to_vec());
        }
        Ok(records)
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let commit = || -> Result<(), redb::Error> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            for write in writes {
                let mut table = transaction.open_table(definition(write.table))?;
                match &write.value {
                    Some(value) => drop(table.insert(&write.key[..], &value[..])?),
                    None => drop(table.remove(&write.key[..])?),
                }
            }
            Ok(transaction.commit()?)
        };
        commit().map_err(|cause| refused(&self.path, cause))
    }
}

const fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

fn damaged(path: &Path, what: impl ToString) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), what: what.to_string() }
}

fn system(path: &Path, cause: impl ToString) -> StoreError {
    StoreError::System { path: path.to_owned(), what: cause.to_string() }
}

fn refused(path: &Path, cause: impl Into<redb::Error>) -> StoreError {
    use redb::Error;
    let cause = cause.into();
    if matches!(cause, Error::DatabaseAlreadyOpen) {
        return StoreError::InUse(path.to_owned());
    }
    if let Error::Io(cause) = &cause
        && !matches!(cause.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
    {
        return system(path, cause);
    }
    damaged(path, cause)
}
