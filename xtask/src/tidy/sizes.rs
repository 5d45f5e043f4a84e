//! Sizes: lines of a file, lines of a function, columns of a line.

use super::{Finding, Tree};
use crate::tidy::source::is_test_file;

/// Lines of a Rust file.
const FILE_LINES: usize = 600;
/// Lines of a function that hold code.
const FUNCTION_LINES: usize = 70;
/// Characters of a line.
const COLUMNS: usize = 100;

/// All three sizes; functions in tests are free.
pub(crate) fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.rust() {
        let lines = text.lines().count();
        if lines > FILE_LINES {
            findings.push(Finding {
                path: path.to_owned(),
                line: FILE_LINES + 1,
                what: format!("{lines} lines in one file, {FILE_LINES} allowed"),
                why: "a file is read in one sitting",
                cure: if is_test_file(path) {
                    "split the tests by what they test"
                } else {
                    "find the second subject in it and give that its own file"
                },
            });
        }
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
        for function in source.functions() {
            if function.lines > FUNCTION_LINES && !function.in_test {
                let (name, lines) = (function.name, function.lines);
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
