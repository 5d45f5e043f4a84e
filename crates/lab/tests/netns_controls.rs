//! That no scenario on namespaces can but pass: with its mechanism broken, what that was for fails.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it prints"
)]

mod support;

use support::rows::{Row, rows};
use support::{AT_A_TIME, holds, run_quick, side_by_side, turn};

#[test]
fn every_control_fails() {
    let Some(_turn) = turn() else { return };
    // Those of several links are the last, and the longest: nobody is to wait for one at the end.
    let all: Vec<&Row> = rows().filter(|row| !row.broken_quick.is_empty()).collect();
    let all: Vec<&Row> = all.into_iter().rev().collect();
    side_by_side(AT_A_TIME, &all, |row| {
        let (object, _) = run_quick(row.name, &["control=true"]);
        // Not by the verdict, which a late emulator withdraws.
        let held: Vec<_> = row.broken_quick.iter().filter(|key| holds(&object, key)).collect();
        assert!(held.is_empty(), "{held:?} should not hold: {object}");
    });
}
