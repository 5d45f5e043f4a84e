//! Where text for people goes. A reader who closed the pipe is no reason to die.

use std::fmt::Display;
use std::io::Write as _;

/// One line (or block) on standard output.
pub(crate) fn line(text: impl Display) {
    let mut out = std::io::stdout().lock();
    // A closed pipe: the reader has seen enough, and the exit code still tells the outcome.
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// One line (or block) on standard error.
pub(crate) fn error(text: &impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "xtask: {text}");
}
