//! Sizes: lines of a function and columns of a line are rules, lines of a file are a hint.

use super::tree::{Finding, Tree};
use crate::tidy::source::is_test_file;

/// Lines of a Rust file beyond which a hint is given.
const FILE_LINES: usize = 600;
/// Lines of a function that hold code.
const FUNCTION_LINES: usize = 70;
/// Characters of a line.
const COLUMNS: usize = 100;

/// Files that may hold a second subject. A long file is no mistake: `figures` finds files
/// that cannot be read alone.
pub(crate) fn hints(tree: &Tree) -> Vec<Finding> {
    let long = tree.rust().filter_map(|(path, text)| {
        let lines = text.lines().count();
        (lines > FILE_LINES).then(|| Finding {
            path: path.to_owned(),
            line: FILE_LINES + 1,
            what: format!("{lines} lines in one file, usually at most {FILE_LINES}"),
            why: "a file is read in one sitting",
            cure: if is_test_file(path) {
                "perhaps split the tests by what they test"
            } else {
                "if there is a second subject in it, give that its own file"
            },
        })
    });
    long.collect()
}

/// Columns, and lines of functions outside tests.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.rust() {
        for (number, line) in (1..).zip(text.lines()) {
            let columns = line.chars().count();
            if columns > COLUMNS {
                findings.push(Finding {
                    path: path.to_owned(),
                    line: number,
                    what: format!("{columns} columns, {COLUMNS} allowed"),
                    why: "two files side by side must fit",
                    cure: "break the line (a long string too: end the line with a backslash)",
                });
            }
        }
    }
    for (path, source) in tree.sources("") {
        for function in &source.functions {
            if function.lines > FUNCTION_LINES {
                let (name, lines) = (&function.name, function.lines);
                findings.push(Finding {
                    path: path.to_owned(),
                    line: function.line,
                    what: format!("`{name}` has {lines} lines of code, {FUNCTION_LINES} allowed"),
                    why: "a function fits a screen",
                    cure: "name its steps and make each a function",
                });
            }
        }
    }
}
