//! The goodput matrix in the repository is what the code has now: some of its cells are measured
//! again, and it is drawn again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking and shows what it prints")]

use rove_lab::scenario::matrix::{self, Conditions, PICTURE, Row, TEXT};
use std::path::Path;

/// What to do about it.
const CURE: &str = "look at it, then run `cargo lab matrix`";
/// Conditions whose cells do not take long in a debug build: every scheduler, every congestion
/// control, and losses of both kinds.
const QUICK: &[(&str, &str)] = &[("10/20+10/20", "1"), ("10/60+10/60", "bursty")];

fn written(name: &str) -> String {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
    std::fs::read_to_string(results.join(name)).unwrap()
}

fn rows() -> Vec<Row> {
    matrix::read(&written(TEXT)).unwrap()
}

#[test]
fn cells_that_are_measured_again_are_as_they_are_written() {
    let is_quick = |one: &Conditions| {
        QUICK.iter().any(|&(pair, loss)| pair == one.pair() && loss == one.loss())
    };
    let quick: Vec<Conditions> = Conditions::all().into_iter().filter(is_quick).collect();
    assert_eq!(quick.len(), QUICK.len() * 3, "each with every congestion control");
    let measured = matrix::measure(&quick, 2, &|_| {}).unwrap();
    let is_again =
        |row: &Row| quick.iter().any(|one| one.pair() == row.pair && one.loss() == row.loss);
    let before: Vec<Row> = rows().into_iter().filter(is_again).collect();
    let differs = matrix::differences(&before, &measured);
    assert!(
        differs.is_empty() && before.len() == measured.len(),
        "{CURE}:\n{}",
        differs.join("\n")
    );
}

#[test]
fn the_matrix_is_whole_and_drawn_as_it_is_written() {
    let rows = rows();
    assert_eq!(written(TEXT), matrix::text(&rows), "{CURE}");
    let all = Conditions::all();
    let known = |row: &Row| all.iter().any(|one| one.pair() == row.pair && one.loss() == row.loss);
    assert!(rows.iter().all(known), "{CURE}");
    for one in &all {
        let of = |two: &&Conditions| two.pair() == one.pair();
        let cells: usize = all.iter().filter(of).map(Conditions::cells).sum();
        let there = rows.iter().filter(|row| row.pair == one.pair()).count();
        assert_eq!(there, cells, "{one:?}: {CURE}");
    }
    let drawn = "run `cargo lab matrix --draw`";
    assert!(written(PICTURE) == matrix::picture::draw(&rows), "the picture is old: {drawn}");
}
