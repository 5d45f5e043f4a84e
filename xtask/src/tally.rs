//! Reads what `cargo test` prints: how many tests ran, which failed, and what they skipped.
//!
//! A test that lacks something it needs (a TUN device, `nft`, user namespaces) prints
//! `SKIP <what>: <why>`, and fails instead when `ROVE_TEST_REQUIRE=all`. The test harness shows
//! what a passing test printed only under `--show-output`, in a block of its own; here that block
//! is taken out of what the reader sees and the skips in it are counted.

use std::collections::{BTreeMap, BTreeSet};

/// What the lines of one or more `cargo test` runs said.
#[derive(Default, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed.
    pub(crate) failed: usize,
    /// `what: why`, and how often.
    pub(crate) skipped: BTreeMap<String, usize>,
    /// The harness's closing lines, as printed, of every binary that had a test.
    pub(crate) results: Vec<String>,
    /// The names of those that failed.
    pub(crate) failures: BTreeSet<String>,
    /// Test programs that did not end well, as cargo counts them.
    broken_targets: usize,
    in_successes: bool,
}

impl Tally {
    /// Takes the next line; true when a reader should see it.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        if line == "successes:" {
            self.in_successes = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.in_successes = false;
        }
        if let Some(skip) = skip_in(line) {
            *self.skipped.entry(skip.to_owned()).or_default() += 1;
        }
        if let Some(result) = line.strip_prefix("test result: ") {
            self.read_result(line, result);
        }
        let failure = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"));
        self.failures.extend(failure.map(str::to_owned));
        self.broken_targets += usize::from(line.starts_with("    `-p "));
        !self.in_successes
    }

    /// Adds what another run said.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.results.extend(other.results);
        self.failures.extend(other.failures);
        self.broken_targets += other.broken_targets;
        for (skip, count) in other.skipped {
            *self.skipped.entry(skip).or_default() += count;
        }
    }

    /// Whether everything that did not end well is a test whose name is known: not a program that
    /// was killed, nor one that could not be built.
    pub(crate) fn is_explained(&self) -> bool {
        let failed = self.results.iter().filter(|line| line.contains(" FAILED.")).count();
        !self.failures.is_empty()
            && self.failures.len() == self.failed
            && self.broken_targets == failed
    }

    /// A test that failed was told again and passed. What it skipped then is counted too.
    pub(crate) fn passed_after_all(&mut self, name: &str, again: Self) {
        if self.failures.remove(name) {
            self.failed -= 1;
            self.add(again);
        }
    }

    /// How many skips there were.
    pub(crate) fn skips(&self) -> usize {
        self.skipped.values().sum()
    }

    /// The closing line about skips.
    pub(crate) fn skip_line(&self) -> String {
        if self.skipped.is_empty() {
            return "skipped: nothing".to_owned();
        }
        let reasons: Vec<String> =
            self.skipped.iter().map(|(skip, count)| format!("{count} x {skip}")).collect();
        format!("skipped: {} ({})", self.skips(), reasons.join("; "))
    }

    fn read_result(&mut self, line: &str, result: &str) {
        let (passed, failed) = (number_before(result, " passed"), number_before(result, " failed"));
        self.passed += passed;
        self.failed += failed;
        if passed + failed > 0 {
            self.results.push(line.to_owned());
        }
    }
}

/// The `what: why` of a skip. With `--nocapture` and one thread the harness has already begun the
/// line, hence the second form.
fn skip_in(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("SKIP ").or_else(|| {
        let (test, rest) = line.split_once(" ... SKIP ")?;
        test.starts_with("test ").then_some(rest)
    })?;
    rest.contains(": ").then_some(rest)
}

fn number_before(text: &str, label: &str) -> usize {
    let Some((before, _)) = text.split_once(label) else { return 0 };
    before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Tally, Vec<&str>) {
        let mut tally = Tally::default();
        let seen = text.lines().filter(|line| tally.read(line)).collect();
        (tally, seen)
    }

    const RUN: &str = "\
running 2 tests
test tun ... ok
test nft ... ok

successes:

---- nft stdout ----
SKIP nft: the program is not installed
chatter

successes:
    nft
    tun

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s";

    #[test]
    fn skips_inside_the_output_of_passing_tests_are_counted_and_the_block_is_hidden() {
        let (tally, seen) = read(RUN);
        assert_eq!((tally.passed, tally.failed, tally.skips()), (2, 0, 1));
        assert_eq!(tally.skip_line(), "skipped: 1 (1 x nft: the program is not installed)");
        assert!(seen.iter().all(|line| !line.contains("chatter")));
        assert_eq!(seen.len(), 5);
    }

    #[test]
    fn failures_stay_visible() {
        let (tally, seen) = read(
            "successes:\nhidden\nfailures:\n---- a stdout ----\nwhy\n\
             test result: FAILED. 1 passed; 3 failed; 0 ignored",
        );
        assert_eq!((tally.passed, tally.failed), (1, 3));
        assert_eq!(seen.first(), Some(&"failures:"));
        assert!(seen.contains(&"why"));
    }

    #[test]
    fn failures_are_known_by_name_unless_a_program_was_killed() {
        let failed = "test a::b ... FAILED\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n\
                      error: 1 target failed:\n    `-p rove --test netns_a`";
        let (mut tally, _) = read(failed);
        assert!(tally.is_explained());
        let (again, _) = read("SKIP nft: none\ntest result: ok. 1 passed; 0 failed; 0 ignored");
        tally.passed_after_all("a::b", again);
        assert_eq!((tally.passed, tally.failed, tally.failures.len()), (2, 0, 0));
        assert_eq!(tally.skips(), 1, "one that skips when told again does not do so silently");
        let killed = format!("{failed}\n    `-p rove --test netns_b`");
        assert!(!read(&killed).0.is_explained());
        assert!(!read("error: could not compile").0.is_explained());
    }

    #[test]
    fn uncaptured_skips_are_counted_and_other_text_is_not() {
        let (tally, _) = read("test a ... SKIP tun: refused\nSKIP me\nwe SKIP this: no\nSKIP b: c");
        assert_eq!(tally.skipped.keys().collect::<Vec<_>>(), ["b: c", "tun: refused"]);
    }

    #[test]
    fn tallies_add_up() {
        let (mut all, _) = read(RUN);
        all.add(read(RUN).0);
        assert_eq!((all.passed, all.skips(), all.results.len()), (4, 2, 2));
        assert_eq!(Tally::default().skip_line(), "skipped: nothing");
    }
}
