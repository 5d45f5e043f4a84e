//! Rules of plain text: what a module says first, spaces at line ends, paths of someone's machine.

use super::source::is_test_file;
use super::tree::{Finding, Tree, is_data};

/// Every Rust file says first what it is for. Tests beside a module need not: it says what they
/// test.
pub(crate) fn module_docs(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.rust() {
        let beside = path.contains("/src/") && is_test_file(path);
        if !text.starts_with("//!") && !beside {
            findings.push(Finding {
                path: path.to_owned(),
                line: 1,
                what: "the file does not begin with `//!`".to_owned(),
                why: "a newcomer reads first what it decides and what it refuses to know",
                cure: "write that in its first lines",
            });
        }
    }
}

/// No space at the end of a line, and an end to the last line.
pub(crate) fn spaces(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.texts().filter(|(path, _)| !is_data(path)) {
        let mut found = |line: usize, what: &str| {
            findings.push(Finding {
                path: path.to_owned(),
                line,
                what: what.to_owned(),
                why: "it shows up in every later diff",
                cure: "let the editor take care of it",
            });
        };
        for (number, line) in (1..).zip(text.lines()) {
            if line.ends_with([' ', '\t']) {
                found(number, "space at the end of the line");
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            found(text.lines().count(), "the last line has no end");
        }
    }
}

/// No path that exists on the writer's machine only.
pub(crate) fn paths_of_a_machine(tree: &Tree, findings: &mut Vec<Finding>) {
    // Put together here, so that this file does not find itself. Of root's own folder only hidden
    // files (toolchains, caches) count: a page for administrators may name the others.
    let roots = ["home/", "root/.", "Users/", "work/"].map(|root| format!("/{root}"));
    for (path, text) in tree.texts() {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(root) = roots.iter().find(|root| names_root(line, root)) {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: number,
                    what: format!("an absolute path below `{root}`"),
                    why: "it exists on one machine only",
                    cure: "write it relative to the repository, or with `~`",
                });
            }
        }
    }
}

/// Whether `root` begins a path in the line, and is not the middle of a longer one or of a URL.
fn names_root(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~}>/".contains(c))
    })
}
