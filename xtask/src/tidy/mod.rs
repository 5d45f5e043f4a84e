//! The house rules that a program can check: the import table, sizes, names, bans, links.
//!
//! Each rule is a function from the tree of files to findings, so that each is tested on a tree of
//! a few lines. Every finding names file, line, what is wrong, why it matters and what to do. What
//! the compiler, clippy and rustfmt check is left to them.

mod bans;
mod crates;
mod cycles;
mod layers;
mod lex;
mod links;
mod sizes;
mod source;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::report;
use source::Source;

/// A place where a rule is broken. Ordered by file and line.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    path: String,
    /// From 1.
    line: usize,
    what: String,
    why: &'static str,
    cure: &'static str,
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
    files: BTreeMap<String, Option<String>>,
}

/// A rule adds what it finds.
type Rule = fn(&Tree, &mut Vec<Finding>);

const RULES: &[Rule] = &[
    crates::import_table,
    crates::lock_file,
    layers::proto_modules,
    layers::lab_knows_the_protocol_in_its_world_only,
    bans::names,
    bans::the_core_is_told,
    bans::unsafe_code,
    bans::stubs,
    cycles::check,
    sizes::check,
    text::module_docs,
    text::spaces,
    text::paths_of_a_machine,
    links::markdown,
];

/// Checks the files of the repository at `root`: those git knows and those it would add.
///
/// # Errors
/// When a rule is broken, after each finding is printed, or when the files cannot be read.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::load(root)?;
    let findings = check(&tree);
    for hint in sizes::hints(&tree) {
        report::line(format_args!("hint: {hint}"));
    }
    for finding in &findings {
        report::line(finding);
    }
    match findings.len() {
        0 => {
            report::line(format_args!("{} files, {} rules: tidy", tree.files.len(), RULES.len()));
            Ok(())
        }
        count => Err(format!("{count} findings")),
    }
}

/// Every finding, in order.
fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        rule(tree, &mut findings);
    }
    findings.sort();
    findings.dedup();
    findings
}

impl Tree {
    fn load(root: &Path) -> Result<Self, String> {
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
    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Every Rust file: path, text.
    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// Every Rust file below `folder`, read into tokens.
    fn sources<'t>(&'t self, folder: &str) -> impl Iterator<Item = (&'t str, Source<'t>)> {
        let below = self.rust().filter(move |(path, _)| path.starts_with(folder));
        below.map(|(path, text)| (path, Source::new(path, text)))
    }

    /// Whether a file or a folder with files stands at `path`.
    fn holds(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        let from = self.files.range(folder.clone()..).next();
        path.is_empty()
            || self.files.contains_key(path)
            || from.is_some_and(|(next, _)| next.starts_with(&folder))
    }
}

/// Whether a file is data that must stay as it was recorded.
fn is_data(path: &str) -> bool {
    const FOLDERS: &[&str] =
        &["corpus", "golden", "testdata", "vectors", "compat", "proptest-regressions"];
    path.split('/').any(|part| FOLDERS.contains(&part))
}
