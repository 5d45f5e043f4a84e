//! The text of a configuration file, and errors that point into it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::files::{self, FileError};

/// A configuration file that was read.
pub struct Source {
    path: PathBuf,
    text: String,
}

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It reads, and means nothing valid.
    #[error("{}:{line}: {key}: {what}", .path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, with its table.
        key: String,
        /// Cause and cure.
        what: String,
    },
}

impl Source {
    /// The text of the file at `path`.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Ok(Self::new(path, &files::read_text(path)?))
    }

    /// The text of a file that lies, or shall lie, at `path`.
    pub fn new(path: &Path, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The text itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A path that the file names: relative to the file's directory, unless it is absolute.
    pub fn beside(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or_else(|| Path::new(".")).join(path)
    }

    /// The file's values in their raw shape.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(&self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let mut message = error.message().lines().collect::<Vec<_>>().join(", ");
            // The parser does not know which kind of value the key has.
            if message.starts_with("string values must be quoted") {
                "a value is true, false, a number, a list, or a text in quotes"
                    .clone_into(&mut message);
            }
            self.invalid(&span, &key_at(&self.text, span.start), message)
        })
    }

    /// One value of type `T`.
    pub fn value<T>(&self, key: &str, raw: &Spanned<String>) -> Result<T, ConfigError>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        raw.get_ref().parse().map_err(|error: T::Err| self.invalid(&raw.span(), key, error))
    }

    /// A list of values of type `T`, at most `max` of them.
    pub fn list<T>(
        &self,
        key: &str,
        raw: &Spanned<Vec<Spanned<String>>>,
        max: usize,
    ) -> Result<Vec<T>, ConfigError>
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        if raw.get_ref().len() > max {
            let message = format!("has more than {max} entries: leave some out");
            return Err(self.invalid(&raw.span(), key, message));
        }
        raw.get_ref().iter().map(|entry| self.value(key, entry)).collect()
    }

    /// An error about the value at `span`.
    pub fn invalid(&self, span: &Range<usize>, key: &str, what: impl ToString) -> ConfigError {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
        let (path, key) = (self.path.clone(), key.to_owned());
        ConfigError::Invalid { path, line, key, what: what.to_string() }
    }
}

/// The key whose value, or which itself, stands at `offset`: the last `key =` at or above it within
/// its table, behind the table's name.
fn key_at(text: &str, offset: usize) -> String {
    let end = text.get(offset..).and_then(|rest| rest.find('\n')).map(|length| offset + length);
    let upto = text.get(..end.unwrap_or(text.len())).unwrap_or(text);
    let mut table = "";
    let mut key = "";
    for line in upto.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            // One of several tables has two brackets.
            (table, key) = (header.trim_matches(['[', ']']), "");
        } else if let Some((name, _)) = line.split_once('=') {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
            let name = name.trim();
            if name.bytes().all(plain) {
                key = name;
            }
        }
    }
    match (table, key) {
        ("", "") => "file".to_owned(),
        ("", key) => key.to_owned(),
        (table, "") => table.to_owned(),
        (table, key) => format!("{table}.{key}"),
    }
}
