//! Checks the dependencies: licences, sources and bans by `deny.toml`, and known vulnerabilities by
//! the RustSec advisory database.
//!
//! This module decides how cargo-deny is called, and when advisories cannot be checked. `deny.toml`
//! contains the rules. Limits: licences, sources and bans need no network. If the advisory database
//! cannot be fetched, an older copy is used and its age is printed. Without any copy, the advisory
//! check is skipped by name, even with `ROVE_TEST_REQUIRE=all`, so that the other checks run on a
//! machine without the Internet.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::report;
use crate::run::{cargo, run};
use crate::tally::Tally;

/// Where cargo-deny keeps copies of advisory databases, in cargo's home.
const DATABASES: &str = "advisory-dbs";
/// The git arguments that print the date of a copy's last change: `2026-11-27`.
const LAST_CHANGE: &[&str] = &["log", "-1", "--format=%cs"];

/// The step.
///
/// # Errors
/// The findings of cargo-deny, or that it is not installed although everything is required.
pub(crate) fn judge() -> Result<Tally, String> {
    if !succeeds(cargo(&["deny", "--version"])) {
        return absent();
    }
    run(check(&[], &["licenses", "bans", "sources"]))?;
    if succeeds(cargo(&["deny", "fetch", "db"])) {
        run(check(&[], &["advisories"]))?;
        return Ok(Tally::default());
    }
    let Some(copy) = database() else {
        return Ok(skip(
            "cargo deny advisories: not judged, the RustSec database cannot be fetched",
        ));
    };
    report::line(format_args!("the advisory database cannot be fetched: {}", age(copy)));
    run(check(&["--offline"], &["advisories"]))?;
    Ok(Tally::default())
}

/// The check of these subjects. Duplicate versions are warnings: `-L error` leaves them out.
fn check(how: &[&str], subjects: &[&str]) -> Command {
    let mut command = cargo(&["deny", "--locked", "-L", "error"]);
    command.args(how).args(["check", "--hide-inclusion-graph"]).args(subjects);
    command
}

/// The result without cargo-deny: a skip, or a failure if everything is required.
fn absent() -> Result<Tally, String> {
    let what = "cargo deny: cargo-deny is not installed (cargo install --locked cargo-deny)";
    if std::env::var("ROVE_TEST_REQUIRE").is_ok_and(|value| value == "all") {
        return Err(format!("{what}, and ROVE_TEST_REQUIRE=all"));
    }
    Ok(skip(what))
}

fn skip(what: &str) -> Tally {
    let line = format!("SKIP {what}");
    report::line(&line);
    counted(&line)
}

fn counted(line: &str) -> Tally {
    let mut tally = Tally::default();
    tally.read(line);
    tally
}

/// A copy of an advisory database that an earlier fetch left.
fn database() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME").map(PathBuf::from)?;
        Some(home.join(".cargo"))
    })?;
    let mut copies = fs::read_dir(home.join(DATABASES)).ok()?.flatten().map(|entry| entry.path());
    copies.find(|copy| copy.join("crates").is_dir())
}

fn age(copy: PathBuf) -> String {
    let output = Command::new("git").args(LAST_CHANGE).current_dir(copy).output();
    let date = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match date {
        Ok(date) if !date.is_empty() => format!("judged by a copy whose last change is of {date}"),
        Ok(_) | Err(_) => "judged by a copy of unknown age".to_owned(),
    }
}

/// Whether a command succeeds. Its output is ignored.
fn succeeds(mut command: Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advisories_that_nobody_judged_are_counted_as_a_skip() {
        // Not printed: it would be counted as a skip of this test.
        let tally = counted("SKIP a check: not judged");
        assert_eq!(tally.skip_line(), "skipped: 1 (1 x a check: not judged)");
    }
}
