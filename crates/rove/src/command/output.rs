//! Printing: to standard output, as lines, tables or JSON.

use std::io::{self, Write};

use anyhow::Result;
use rove_api::{Problem, Saved};
use rove_host::log;
use rove_host::values::spelt;
use serde::Serialize;

/// Prints one line.
pub(super) fn line(text: &str) -> Result<()> {
    print(&format!("{text}\n"))
}

/// Tells of something beside the answer, on standard error.
pub(super) fn warning(text: &str) {
    // With standard error gone nobody is left to tell.
    let _ = log::print(io::stderr(), &log::printable(&format!("rove: {text}"), "\n"));
}

/// Prints a value as JSON on one line.
pub(super) fn json(value: &impl Serialize) -> Result<()> {
    line(&json_text(value)?)
}

/// A value as JSON, its keys in alphabetical order.
pub(super) fn json_text(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_value(value)?.to_string())
}

/// Prints text; a terminal obeys nothing in it but ends of lines and tabs. A reader that has gone
/// away has read what it wanted.
pub(super) fn print(text: &str) -> Result<()> {
    print_on(text).map(|_| ())
}

/// The same. Returns whether there is a reader for more.
pub(super) fn print_on(text: &str) -> Result<bool> {
    put(&log::printable(text, "\n\t"))
}

/// Clears the screen of a terminal, so that what follows stands at its top (ECMA-48: CUP, ED).
pub(super) fn clear() -> Result<bool> {
    put("\x1b[H\x1b[2J")
}

fn put(text: &str) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// How many bytes were saved, in all and by what, and how much memory; `None` if none were.
pub(super) fn saved(saved: &Saved) -> Option<String> {
    let parts = [
        ("headers", saved.elision),
        ("compression", saved.compression),
        ("shared datagrams", saved.aggregation),
    ];
    let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
    let parts: Vec<_> = parts.map(|(name, bytes)| format!("{name} {}", size(*bytes))).collect();
    let sent =
        (!parts.is_empty()).then(|| format!("{} ({})", size(saved.total()), parts.join(", ")));
    let waited = (saved.waiting > 0)
        .then(|| format!("{} of memory while packets waited for a path", size(saved.waiting)));
    let all: Vec<_> = sent.into_iter().chain(waited).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// A number of bytes in a unit that people read.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 * 1e-6),
        _ => format!("{:.2} GB", bytes as f64 * 1e-9),
    }
}

/// Columns as wide as their widest cell; empty cells show as a hyphen.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&head.map(str::to_owned)).chain(rows) {
        let cells = row.iter().zip(widths).map(|(cell, width)| {
            let cell = if cell.is_empty() { "-" } else { cell };
            format!("{cell:width$}")
        });
        let cells: Vec<String> = cells.collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The values, joined by commas.
pub(super) fn list<T: ToString>(values: &[T]) -> String {
    spelt(values).join(",")
}

/// The problems, one line each: the problem, since when, the cause, and the cure.
pub(super) fn problems(problems: &[Problem]) -> impl Iterator<Item = String> + '_ {
    problems.iter().map(problem)
}

/// One problem as a line.
pub(super) fn problem(problem: &Problem) -> String {
    let Problem { what, since, cause, cure, .. } = problem;
    format!("{what} (since {}): {cause}. Cure: {cure}", moment(*since))
}

/// Seconds since 1970 as a date and time in UTC, in the proleptic Gregorian calendar (the
/// days-from-civil algorithm turned round: years begin in March, so that leap days end them).
pub(super) fn moment(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0), "1970-01-01 00:00:00Z");
        assert_eq!(moment(951_782_399), "2000-02-28 23:59:59Z");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00:00Z");
        assert_eq!(moment(1_767_225_599), "2025-12-31 23:59:59Z");
        assert_eq!(moment(4_107_542_400), "2100-03-01 00:00:00Z");
    }

    #[test]
    fn a_terminal_obeys_nothing_but_lines_and_tabs() {
        let hostile = "a\u{1b}]0;root\u{7}\u{9b}2J\r\u{7f}\u{202e}b\tc\n";
        let printed = "a\\u001b]0;root\\u0007\\u009b2J\\u000d\\u007f\\u202eb\tc\n";
        assert_eq!(log::printable(hostile, "\n\t"), printed);
    }

    #[test]
    fn tables_align() {
        let rows = [["a".to_owned(), String::new()], ["long".to_owned(), "x".to_owned()]];
        assert_eq!(table(["N", "COLUMN"], &rows), "N     COLUMN\na     -\nlong  x\n");
    }

    #[test]
    fn saved_memory_is_told_apart_from_what_did_not_leave() {
        let both = Saved { compression: 2_000, waiting: 3_000_000, ..Saved::default() };
        let text = "2 kB (compression 2 kB); 3.0 MB of memory while packets waited for a path";
        assert_eq!(saved(&both).as_deref(), Some(text));
        assert_eq!(saved(&Saved::default()), None);
    }
}
