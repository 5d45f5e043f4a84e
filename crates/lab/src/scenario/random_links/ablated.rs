//! What each heuristic of the tunnel is worth: the same draws with everything, and without each
//! heuristic, one after the other.
//!
//! Decides what a row says. Ratios are of the figure without the heuristic to the figure with
//! everything: a heuristic earns its place where the ratio of a share is below 1, or that of a
//! delay above 1. Ratios of medians hide draws that gain and lose as much, so a row also has the
//! worst and the best ratio of a single draw.

use super::draw::Draw;
use super::{Figures, Had, Story, report, tell};
use crate::scenario::statistics::{max, min};
use crate::scenario::table::{self, Row, TABLE, figure};
use crate::scenario::{Outcome, Stage};
use crate::world::Heuristic;
use serde_json::Value;

/// What a draw's story is without: nothing first, then each heuristic.
fn turns() -> impl Iterator<Item = Option<&'static str>> {
    [None].into_iter().chain(Heuristic::NAMES.iter().copied().map(Some))
}

/// Tells all draws with everything and without each heuristic.
///
/// # Errors
/// What kept a story from being told.
pub(super) fn tell_all(stage: &Stage<'_>, draws: &[Draw]) -> anyhow::Result<Outcome> {
    let of_turn = |without| draws.iter().map(move |draw| Story { draw, without });
    let stories: Vec<Story<'_>> = turns().flat_map(of_turn).collect();
    let mut outcome = Outcome::default();
    let (mut everything, mut turn) = (Vec::new(), Vec::new());
    let mut rows = Vec::new();
    tell(stage, &stories, &mut |story, told, had| {
        outcome.absorb(told);
        turn.push(had);
        let Some(name) = story.without else {
            if let Some(had) = turn.pop() {
                (stage.tell)(&table::line(&had.row(story.draw)));
                everything.push(had);
            }
            return;
        };
        if turn.len() == draws.len() {
            let row = row(name, &everything, &std::mem::take(&mut turn));
            (stage.tell)(&table::line(&row));
            rows.push(Value::Object(row));
        }
    })?;
    report(&mut outcome, &everything);
    outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
    Ok(outcome)
}

/// The row of a heuristic, by what each draw had with everything and without it.
fn row(name: &str, with: &[Had], without: &[Had]) -> Row {
    let (before, after) = (Figures::of(with), Figures::of(without));
    let ratio = |of: fn(&Figures) -> Option<f64>| ratio(of(&after), of(&before));
    let pairs = || with.iter().zip(without);
    let shares: Vec<f64> = pairs()
        .filter_map(|(with, without)| self::ratio(without.share_of_sum(), with.share_of_sum()))
        .collect();
    let differ = pairs().filter(|(with, without)| with != without).count();
    table::row([
        ("without", name.into()),
        ("draws_that_differ", differ.into()),
        ("share_of_sum_median", figure(ratio(|it| it.share_median))),
        ("share_of_sum_p10", figure(ratio(|it| it.share_p10))),
        ("share_of_sum_worst_draw", figure(min(&shares))),
        ("share_of_sum_best_draw", figure(max(&shares))),
        ("p99_over_idle_ms_median", figure(ratio(|it| it.p99_median_ms))),
        ("p99_over_idle_ms_p90", figure(ratio(|it| it.p99_p90_ms))),
        ("late_share_mean", figure(after.late_mean)),
        ("fairness_p10", figure(ratio(|it| it.fairness_p10))),
    ])
}

/// How many times as much; `None` of nothing.
fn ratio(part: Option<f64>, of: Option<f64>) -> Option<f64> {
    part.zip(of.filter(|of| *of > 0.0)).map(|(part, of)| part / of)
}
