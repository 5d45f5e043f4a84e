//! The files of the repository as the rules see them, and what a rule finds in one.
//!
//! Decides which files count: those that git knows and those that it would add. Refuses to know any
//! rule.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::source::Source;

/// A place where a rule is broken. Ordered by file and line.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// From 1.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) why: &'static str,
    pub(crate) cure: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, why, cure } = self;
        write!(f, "{path}:{line}: {what}: {why}; {cure}")
    }
}

/// The files of the repository: path from its root, with slashes, and content. Files that are not
/// text are known by name only.
#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, Option<String>>,
    /// The Rust files, read when the first rule asks for one.
    sources: OnceCell<BTreeMap<String, Source>>,
}

impl Tree {
    pub(crate) fn load(root: &Path) -> Result<Self, String> {
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("cannot start git: {error}; install git"))?;
        if !listing.status.success() {
            let said = String::from_utf8_lossy(&listing.stderr);
            return Err(format!("git ls-files: {}; tidy needs a git checkout", said.trim()));
        }
        let mut tree = Self::default();
        for name in String::from_utf8_lossy(&listing.stdout).split_terminator('\0') {
            // Listed but gone: deleted in the work tree and not yet committed.
            if let Ok(bytes) = fs::read(root.join(name)) {
                tree.files.insert(name.to_owned(), String::from_utf8(bytes).ok());
            }
        }
        Ok(tree)
    }

    /// Every text file.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Every Rust file: path, text.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// Every Rust file below `folder`, read.
    pub(crate) fn sources(&self, folder: &str) -> impl Iterator<Item = (&str, &Source)> {
        let all = self.all_sources().range(folder.to_owned()..);
        let below = all.take_while(move |(path, _)| path.starts_with(folder));
        below.map(|(path, source)| (path.as_str(), source))
    }

    /// The Rust file at `path`.
    pub(crate) fn source(&self, path: &str) -> Option<(&str, &Source)> {
        self.all_sources().get_key_value(path).map(|(path, source)| (path.as_str(), source))
    }

    fn all_sources(&self) -> &BTreeMap<String, Source> {
        let read = |(path, text): (&str, &str)| (path.to_owned(), Source::new(path, text));
        self.sources.get_or_init(|| self.rust().map(read).collect())
    }

    /// The text of a file; nothing if it is no text file.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.files.get(path).and_then(Option::as_deref).unwrap_or_default()
    }

    /// Whether a file or a folder with files stands at `path`.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let from = self.files.range(folder.clone()..).next();
        path.is_empty()
            || self.files.contains_key(path)
            || from.is_some_and(|(next, _)| next.starts_with(&folder))
    }
}

/// Whether a file is data that must stay as it was recorded.
pub(crate) fn is_data(path: &str) -> bool {
    const FOLDERS: &[&str] =
        &["corpus", "golden", "testdata", "vectors", "compat", "proptest-regressions"];
    path.split('/').any(|part| FOLDERS.contains(&part))
}
