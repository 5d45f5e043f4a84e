//! What seeds have measured, kept in a file: a run of hours may be interrupted, and goes on where
//! it was. Virtual time gives the same again and again, so long as the code is the same: each line
//! says which program wrote it, and those of another count as nothing.

use super::binary::sha256;
use super::record::Record;
use anyhow::Context as _;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Under which key a kept line has the SHA-256 of the lab that measured it.
const LAB: &str = "lab_sha256";
/// The program that runs: also where its file has been replaced meanwhile.
const THIS_LAB: &str = "/proc/self/exe";

/// A file with a record a line.
#[derive(Debug)]
pub(super) struct Kept {
    before: Vec<Value>,
    /// SHA-256 of this program.
    lab: String,
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
        Ok(Self { before, lab: sha256(Path::new(THIS_LAB))?, file: Mutex::new(file) })
    }

    /// What this very program measured of what this record is to be about; the last, if it was more
    /// than once.
    pub(super) fn find(&self, record: &Record) -> Option<&Value> {
        let asked = serde_json::to_value(record).ok()?;
        let same = ["scenario", "seed", "where", "grid", "settings", "rove_sha256"];
        self.find_line(&asked, &same, false)
    }

    /// The last line that has the same under these keys and that this very program wrote, or, on
    /// demand, any program.
    pub(super) fn find_line(&self, asked: &Value, same: &[&str], any: bool) -> Option<&Value> {
        let is_ours = |line: &&Value| line.get(LAB).and_then(Value::as_str) == Some(&self.lab);
        let mut before = self.before.iter().rev().filter(|line| any || is_ours(line));
        before.find(|line| same.iter().all(|key| line.get(key) == asked.get(key)))
    }

    /// Keeps one more.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add(&self, record: &Record) -> anyhow::Result<()> {
        self.add_line(serde_json::to_value(record)?)
    }

    /// Keeps one more line, an object.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn add_line(&self, mut line: Value) -> anyhow::Result<()> {
        line[LAB] = self.lab.as_str().into();
        let line = line.to_string() + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).context("what was measured cannot be kept")
    }
}
