//! The integration tests of the workspace: which there are, and how cargo runs some of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{cargo, root};

/// How the names of integration tests begin that build network namespaces.
pub(crate) const NETNS: &str = "netns";

/// The names of all integration tests, as cargo finds them: `tests/NAME.rs`, `tests/NAME/main.rs`.
pub(crate) fn integration_tests() -> Result<BTreeSet<String>, String> {
    let mut packages = vec![root().join("fuzz"), root().join("xtask")];
    for entry in list(&root().join("crates"))? {
        packages.push(entry);
    }
    let mut names = BTreeSet::new();
    for tests in packages.iter().map(|package| package.join("tests")).filter(|t| t.is_dir()) {
        for entry in list(&tests)? {
            let is_test = entry.extension().is_some_and(|extension| extension == "rs")
                || entry.join("main.rs").is_file();
            if let (true, Some(stem)) = (is_test, entry.file_stem()) {
                names.insert(stem.to_string_lossy().into_owned());
            }
        }
    }
    Ok(names)
}

/// `cargo test` of these integration tests; `harness` goes to each of them.
pub(crate) fn cargo_test(names: &[String], harness: &[&str]) -> Command {
    let mut arguments = vec!["test", "--workspace", "--locked", "--no-fail-fast"];
    for name in names {
        arguments.extend(["--test", name]);
    }
    arguments.extend(["--", "--show-output"]);
    arguments.extend(harness);
    cargo(&arguments)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| format!("{}: {error}", folder.display()))?.path());
    }
    paths.sort();
    Ok(paths)
}
