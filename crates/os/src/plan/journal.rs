//! A record of all changes on disk, so that the next process can clean up after one that died.
//!
//! An entry is written before its change is made, and removed after the change is undone. So a
//! change in the journal may be in place, and a change outside the journal is not. The file is
//! replaced as a whole and is on the disk before the write returns.
//!
//! Disks and people damage files. The previous version is kept beside the journal, and is used if
//! the journal cannot be read. A separate marker file records that a kill switch is wanted. The
//! marker has no contents that could be damaged, so a machine that lost its journal boots closed,
//! not open.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::item::Item;
use crate::{dns, error::Error, plain};

const FILE: &str = "plan.json";
const FILE_NEW: &str = "plan.json.new";
const FILE_BEFORE: &str = "plan.json.before";
/// Exists while a kill switch is wanted.
const MARKER: &str = "kill-switch";
const VERSION: u32 = 1;
/// Mode of a file that only its owner may read.
const PRIVATE: u32 = 0o600;
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
    Dns(dns::Way),
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
    /// Why the journal could not be read. The entries are then those of the previous version, or
    /// none.
    pub(crate) damaged: Option<String>,
    /// A kill switch is wanted, regardless of the entries.
    pub(crate) wants_kill_switch: bool,
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
        let wants_kill_switch = self.dir.join(MARKER).exists();
        let (contents, damaged) = match self.read(FILE)? {
            Read::Contents(contents) => (Some(contents), None),
            // The process died between two renames, or there never was one.
            Read::Missing => (self.read(FILE_BEFORE)?.contents(), None),
            Read::Damaged(why) => (self.read(FILE_BEFORE)?.contents(), Some(why)),
        };
        let Some(contents) = contents else {
            // It is unknown whether the machine rebooted since, so no change is assumed to be in
            // place.
            let rebooted = damaged.is_some() || wants_kill_switch;
            return Ok(Left { entries: Vec::new(), rebooted, damaged, wants_kill_switch });
        };
        let mut entries = contents.entries;
        let rebooted = contents.boot != boot();
        if rebooted {
            entries.retain(|entry| {
                let is_gone = matches!(entry.item, Item::MptcpLimit(..) | Item::Subflow(_));
                !is_gone && !matches!(entry.before, Before::Sysctl(_))
            });
        }
        Ok(Left { entries, rebooted, damaged, wants_kill_switch })
    }

    fn read(&self, name: &str) -> Result<Read, Error> {
        let path = self.dir.join(name);
        let file = match plain::open(&path, OpenOptions::new().read(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Read::Missing),
            // A link, a FIFO or the like: no journal that Rove wrote.
            Err(error) if error.kind() == io::ErrorKind::Other => {
                return Ok(Read::Damaged(error.to_string()));
            }
            file => file.map_err(|error| Error::file("read", &path, error))?,
        };
        let mut text = Vec::new();
        let read = file.take(LEN_MAX).read_to_end(&mut text);
        read.map_err(|error| Error::file("read", &path, error))?;
        Ok(parse(&text).map_or_else(Read::Damaged, Read::Contents))
    }

    /// Writes all entries; without any, the files are removed.
    pub(crate) fn store(&self, entries: &[Entry]) -> Result<(), Error> {
        let path = self.dir.join(FILE);
        self.replace(&path, entries).map_err(|error| Error::file("write", &path, error))
    }

    fn replace(&self, path: &Path, entries: &[Entry]) -> io::Result<()> {
        let wants = entries.iter().any(|entry| matches!(entry.item, Item::KillSwitch(_)));
        if wants && !self.dir.join(MARKER).exists() {
            let mut options = OpenOptions::new();
            options.write(true).create(true).mode(PRIVATE);
            plain::open(&self.dir.join(MARKER), &mut options)?;
        }
        let before = self.dir.join(FILE_BEFORE);
        if entries.is_empty() {
            unless_missing(fs::remove_file(&before))?;
            unless_missing(fs::remove_file(path))?;
        } else {
            self.write(path, &before, entries)?;
        }
        if !wants {
            unless_missing(fs::remove_file(self.dir.join(MARKER)))?;
        }
        self.sync_dir()
    }

    fn write(&self, path: &Path, before: &Path, entries: &[Entry]) -> io::Result<()> {
        let contents = Contents { version: VERSION, boot: boot(), entries: entries.to_vec() };
        let text = serde_json::to_vec_pretty(&contents)?;
        let new = self.dir.join(FILE_NEW);
        if let Err(error) = write_new(&new, &text) {
            let is_full = matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT));
            if !is_full {
                return Err(error);
            }
            // On a full disk the copy makes room: a tunnel that cannot follow its network is worse
            // than a journal without a copy.
            unless_missing(fs::remove_file(before))?;
            write_new(&new, &text)?;
        }
        unless_missing(fs::rename(path, before))?;
        fs::rename(&new, path)
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

/// Writes a file and waits until it is on the disk.
fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE);
    let mut file = plain::open(path, &mut options)?;
    file.write_all(text)?;
    file.sync_all()
}

/// The result of reading one file of the journal.
enum Read {
    Missing,
    Damaged(String),
    Contents(Contents),
}

impl Read {
    fn contents(self) -> Option<Contents> {
        match self {
            Self::Contents(contents) => Some(contents),
            Self::Missing | Self::Damaged(_) => None,
        }
    }
}

/// The contents of a file. An error gives only the position, because a damaged file may contain
/// bytes that a terminal must not get.
fn parse(text: &[u8]) -> Result<Contents, String> {
    let contents: Contents = serde_json::from_slice(text)
        .map_err(|error| format!("line {}, column {}", error.line(), error.column()))?;
    if contents.version != VERSION {
        return Err(format!("version {} is not {VERSION}", contents.version));
    }
    Ok(contents)
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn boot() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}
