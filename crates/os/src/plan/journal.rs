//! What was changed, on disk, so that a process that died can be cleaned up after.
//!
//! An entry is written before its change is made and removed after it was taken back: what is in
//! the journal may be in place, what is not in it is not. The file is replaced as a whole and
//! reaches the disk before the write returns.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::item::Item;
use crate::{dns, error::Error};

const FILE: &str = "plan.json";
const FILE_NEW: &str = "plan.json.new";
const VERSION: u32 = 1;
/// Bytes that a journal may have: a plan at its limits stays below.
const LEN_MAX: u64 = 4 << 20;
/// Changes with every boot of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// One change, and what was there before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) item: Item,
    pub(crate) before: Before,
}

/// What a change replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Before {
    Nothing,
    Sysctl(String),
    Limit(u32),
    Dns(dns::Saved),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    /// In which life of the machine the entries were made.
    boot: String,
    entries: Vec<Entry>,
}

/// What the last process left.
#[derive(Debug, Default)]
pub(crate) struct Left {
    pub(crate) entries: Vec<Entry>,
    /// The entries were made in an earlier life of the machine.
    pub(crate) rebooted: bool,
}

/// The journal in a directory.
#[derive(Debug)]
pub(crate) struct Journal {
    dir: PathBuf,
}

impl Journal {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The entries that the last process left. Those that cannot have outlived a reboot are left
    /// out: their present value is somebody else's.
    pub(crate) fn load(&self) -> Result<Left, Error> {
        let path = self.dir.join(FILE);
        let damaged = |why: String| Error::JournalDamaged { path: path.clone(), why };
        let mut text = String::new();
        match File::open(&path) {
            Ok(file) => file
                .take(LEN_MAX)
                .read_to_string(&mut text)
                .map_err(|error| damaged(error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Left::default()),
            Err(error) => return Err(Error::os(format!("read {}", path.display()), error)),
        };
        let contents: Contents =
            serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if contents.version != VERSION {
            return Err(damaged(format!("version {} is not {VERSION}", contents.version)));
        }
        let mut entries = contents.entries;
        let rebooted = contents.boot != boot();
        if rebooted {
            entries.retain(|entry| {
                let is_gone = matches!(entry.item, Item::MptcpLimit(..) | Item::Subflow(_));
                !is_gone && !matches!(entry.before, Before::Sysctl(_))
            });
        }
        Ok(Left { entries, rebooted })
    }

    /// Writes all entries; without any, the file is removed.
    pub(crate) fn store(&self, entries: &[Entry]) -> Result<(), Error> {
        let path = self.dir.join(FILE);
        self.replace(&path, entries)
            .map_err(|error| Error::os(format!("write {}", path.display()), error))
    }

    fn replace(&self, path: &Path, entries: &[Entry]) -> io::Result<()> {
        if entries.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => self.sync_dir(),
            };
        }
        let contents = Contents { version: VERSION, boot: boot(), entries: entries.to_vec() };
        let text = serde_json::to_vec_pretty(&contents)?;
        let new = self.dir.join(FILE_NEW);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        self.sync_dir()
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

fn boot() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}
