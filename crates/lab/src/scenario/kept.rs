//! What seeds have measured, kept in a file: a run of hours may be interrupted, and goes on where
//! it was. Virtual time gives the same again and again, so long as the code is the same; nobody
//! sees from here whether it is, so whoever changes it removes the file.

use super::record::Record;
use anyhow::Context as _;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A file with a record a line.
#[derive(Debug)]
pub(super) struct Kept {
    before: Vec<Value>,
    file: Mutex<File>,
}

impl Kept {
    /// What a file keeps, which need not be there yet. A line that was cut off counts as nothing.
    ///
    /// # Errors
    /// It cannot be read or written, or holds something else.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::read(path).with_context(|| format!("cannot keep anything in {}", path.display()))
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let (whole, cut_off) = text.rsplit_once('\n').unwrap_or(("", &text));
        let before = whole.lines().enumerate().map(|(at, line)| {
            serde_json::from_str(line).with_context(|| format!("line {} is no record", at + 1))
        });
        let before = before.collect::<anyhow::Result<_>>()?;
        file.set_len((text.len() - cut_off.len()) as u64)?;
        Ok(Self { before, file: Mutex::new(file) })
    }

    /// What was measured of what this record is to be about; the last, if it was more than once.
    pub(super) fn find(&self, record: &Record) -> Option<&Value> {
        let asked = serde_json::to_value(record).ok()?;
        let same = ["scenario", "seed", "where", "grid", "settings", "rove_sha256"];
        let mut before = self.before.iter().rev();
        before.find(|line| same.iter().all(|key| line.get(key) == asked.get(key)))
    }

    /// Keeps one more.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&self, record: &Record) -> anyhow::Result<()> {
        let line = serde_json::to_string(record)? + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).context("what was measured cannot be kept")
    }
}
