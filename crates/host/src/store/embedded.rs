//! The embedded store: one redb file, readable by its owner alone.
//!
//! Decides which file it accepts: one that redb opens, whose every page has the right checksum, and
//! whose `about` record names the role and a known version. A file with arbitrary bytes is one
//! clear error; redb asserts some things about its pages, so opening runs behind a guard that turns
//! an assertion into the same error.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable};
use redb::{TableDefinition, TableError};
use rove_os::plain;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{Ends, Records, Store, StoreError, Table, Write};
use crate::files::{self, PRIVATE};
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

/// Renames a file, but replaces none (renameat2(2), RENAME_NOREPLACE). A file system without that
/// gets a second name for the file, which replaces none either.
fn move_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        moved => Ok(moved?),
    }
}

/// A redb file.
pub struct EmbeddedStore {
    path: PathBuf,
    /// None when it could not be opened again after a failure.
    database: Option<Database>,
}

/// One table, as it was when a transaction began.
type Opened = ReadOnlyTable<&'static [u8], &'static [u8]>;

impl EmbeddedStore {
    /// A new store for `role` at `path`, where no file may be. It is made beside its place, so that
    /// a full disk or a crash leaves no part of a store there. Of two processes that do so at once,
    /// one fails.
    pub fn create(path: &Path, role: &str) -> Result<Self, StoreError> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(system(path, io::Error::from(io::ErrorKind::AlreadyExists)));
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".made-{}", std::process::id()));
        let beside = PathBuf::from(beside);
        // A crash of an earlier process with this number may have left it there.
        let _ = fs::remove_file(&beside);
        let made = Self::make(&beside, role).and_then(|store| {
            move_to_free(&beside, path).map_err(|cause| system(path, cause))?;
            files::sync_parent(path).map_err(|cause| system(path, io::Error::other(cause)))?;
            Ok(Self { path: path.to_owned(), ..store })
        });
        if made.is_err() {
            let _ = fs::remove_file(&beside);
        }
        made
    }

    fn make(path: &Path, role: &str) -> Result<Self, StoreError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(PRIVATE);
        let file = options.open(path).map_err(|cause| system(path, cause))?;
        let database = database(path, file)?;
        let mut store = Self { path: path.to_owned(), database: Some(database) };
        let about = About { format: VERSION, role: role.to_owned() };
        let about = serde_json::to_vec(&about).map_err(|cause| system(path, cause))?;
        store.commit(&[Write::put(Table::Facts, ABOUT, about)])?;
        Ok(store)
    }

    /// The store for `role` at `path`.
    pub fn open(path: &Path, role: &str) -> Result<Self, StoreError> {
        let file = open_file(path)?;
        let open = || {
            let mut database = database(path, file)?;
            database.check_integrity().map_err(|cause| refused(path, cause))?;
            let store = Self { path: path.to_owned(), database: Some(database) };
            // Every record is read once, so that a damaged page shows now and not in a year.
            for table in Table::ALL {
                let Some(opened) = store.table(table)? else { continue };
                let mut records = opened.iter().map_err(|cause| refused(path, cause))?;
                records.try_for_each(|record| {
                    record.map(drop).map_err(|cause| refused(path, cause))
                })?;
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

impl EmbeddedStore {
    /// A table to read; none before its first record.
    fn table(&self, table: Table) -> Result<Option<Opened>, StoreError> {
        let fail = |cause: redb::Error| refused(&self.path, cause);
        let database = self.database.as_ref().ok_or_else(|| closed(&self.path))?;
        let transaction = database.begin_read().map_err(|cause| fail(cause.into()))?;
        match transaction.open_table(definition(table)) {
            Ok(opened) => Ok(Some(opened)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(cause) => Err(fail(cause.into())),
        }
    }

    /// After a failed write redb refuses everything until its file is opened again, which takes
    /// back what was half written.
    fn open_again(&mut self) -> Result<&mut Database, StoreError> {
        self.database = None;
        let file = open_file(&self.path)?;
        Ok(self.database.insert(database(&self.path, file)?))
    }
}

impl Store for EmbeddedStore {
    fn read(&self, table: Table) -> Result<Records, StoreError> {
        self.last(table, usize::MAX)
    }

    fn last(&self, table: Table, count: usize) -> Result<Records, StoreError> {
        let Some(opened) = self.table(table)? else { return Ok(Records::new()) };
        let mut records = Records::new();
        for entry in opened.iter().map_err(|cause| refused(&self.path, cause))?.rev().take(count) {
            let (key, value) = entry.map_err(|cause| refused(&self.path, cause))?;
            records.insert(key.value().to_vec(), value.value().to_vec());
        }
        Ok(records)
    }

    fn ends(&self, table: Table) -> Result<Option<Ends>, StoreError> {
        let Some(opened) = self.table(table)? else { return Ok(None) };
        let first = opened.first().map_err(|cause| refused(&self.path, cause))?;
        let last = opened.last().map_err(|cause| refused(&self.path, cause))?;
        let key = |(key, _): (redb::AccessGuard<'_, &[u8]>, _)| key.value().to_vec();
        Ok(first.map(key).zip(last.map(key)))
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let database = match self.database.as_mut() {
            Some(database) => database,
            None => self.open_again()?,
        };
        let Err(cause) = commit(database, writes) else { return Ok(()) };
        let refused = refused(&self.path, cause);
        if let Err(error) = self.open_again() {
            tracing::debug!(%error, "the store is not open");
        }
        Err(refused)
    }
}

fn commit(database: &Database, writes: &[Write]) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    for write in writes {
        let mut table = transaction.open_table(definition(write.table))?;
        match &write.value {
            Some(value) => drop(table.insert(&write.key[..], &value[..])?),
            None => drop(table.remove(&write.key[..])?),
        }
    }
    Ok(transaction.commit()?)
}

/// A file that is there and that redb wrote: it would take an empty one for a new one.
fn open_file(path: &Path) -> Result<File, StoreError> {
    let file = plain::open(path, OpenOptions::new().read(true).write(true));
    let mut file = match file {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            return Err(StoreError::Missing(path.to_owned()));
        }
        opened => opened.map_err(|cause| system(path, cause))?,
    };
    let mut magic = [0; MAGIC.len()];
    if file.read_exact(&mut magic).is_err() || magic != MAGIC {
        return Err(StoreError::Foreign(path.to_owned()));
    }
    file.rewind().map_err(|cause| system(path, cause))?;
    Ok(file)
}

fn database(path: &Path, file: File) -> Result<Database, StoreError> {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    builder.create_file(file).map_err(|cause| refused(path, cause))
}

const fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name())
}

fn damaged(path: &Path, what: impl ToString) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), what: what.to_string() }
}

fn closed(path: &Path) -> StoreError {
    system(path, "it could not be opened again after a failure")
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
