//! The table of heuristics as a page for people.

use super::{COLUMNS, Column, Figure, LENGTH_S, LIMITS, Measured, RESAMPLES, Row, Turn};
use crate::world::Heuristic;
use std::collections::BTreeSet;

/// How the page is called, in the directory of results.
pub const TEXT: &str = "ablation.md";
/// A verdict is sure if this part of the resamples has it.
const SURE: f64 = 0.9;
/// With fewer draws, the page says that its verdicts are provisional: over 31 draws, chance
/// alone would have paid in half of the resamples.
const DRAWS_MIN: usize = 200;
/// A denial is sure if no more than this part of them has it.
const UNSURE: f64 = 0.1;

/// The page of all draws that were measured.
pub fn text(all: &[Measured]) -> String {
    let seeds: BTreeSet<u64> = all.iter().map(|one| one.seed).collect();
    let draws = all.iter().map(|one| one.draw).max().unwrap_or_default();
    let mut text = format!(
        "# The worth of each heuristic\n\n\
         {count} random draws of links and traffic, pooled over the seeds {seeds}, in virtual \
         time. Each draw\nruns with everything and without each heuristic. What counts of a draw \
         lasts {LENGTH_S} s, after 5 s of\nstartup.\n\n\
         The columns say how a figure of all draws changes without the heuristic, in per cent. A \
         lower share,\na lower fairness or a longer delay is what the heuristic is good for. Call \
         delay is the 99th percentile\nbeyond an idle path. The last two columns have the median \
         change in the draws that differ.\n\n\
         | column | meaning |\n|---|---|\n\
         | verdict | a heuristic pays if its removal costs at least {median} % of a median or \
         {tenth} % of a worst tenth |\n\
         | sure | the part of {RESAMPLES} resamples of the draws in which it pays: {SURE} is a \
         sure yes, {UNSURE} a sure no |\n\
         | asked | draws that came to the place of the heuristic |\n\
         | differ | draws that went otherwise without it |\n\n\
         The row `(chance)` removes nothing: its draws lose other packets. It shows what chance \
         alone does, so a\nheuristic whose `sure` is no higher than that of `(chance)` has not \
         proved anything.{provisional}\n\n\
         Made by `cargo ablate ablation --seeds {last} --draws {draws}`.\n\n",
        count = all.len(),
        provisional = if all.len() < DRAWS_MIN {
            format!(
                " All verdicts are\nprovisional: {DRAWS_MIN} draws are the least for a decision."
            )
        } else {
            String::new()
        },
        seeds = range(&seeds),
        last = seeds.last().copied().unwrap_or_default(),
        median = LIMITS.0 * 100.0,
        tenth = LIMITS.1 * 100.0,
    );
    let columns = COLUMNS.map(|column| format!(" {} |", column.head())).concat();
    text.push_str(&format!(
        "| heuristic | verdict | sure | asked | differ |{columns} share where it differs | call \
         delay where it differs |\n"
    ));
    text.push_str(&format!("|{}\n", "---|".repeat(COLUMNS.len() + 7)));
    for &name in Heuristic::NAMES {
        text.push_str(&line(&format!("`{name}`"), &Row::of(Turn::Without(name), all)));
    }
    text.push_str(&line("(chance)", &Row::of(Turn::Chance, all)));
    let broke = all.iter().filter_map(|one| {
        let why = one.everything.broke.as_ref()?;
        Some(format!("\nDraw {} of seed {} broke: {}\n", one.draw, one.seed, first_line(why)))
    });
    text.extend(broke);
    text
}

fn line(name: &str, row: &Row) -> String {
    let cell = |change: &Option<f64>| match change {
        Some(change) => format!(" {:+.1} |", change * 100.0),
        None => " - |".to_owned(),
    };
    let changes: String = row.changes.iter().chain(&row.where_differs).map(cell).collect();
    let Row { reached, differ, sure, .. } = row;
    format!("| {name} | {} | {sure:.2} | {reached} | {differ} |{changes}\n", verdict(name, row))
}

/// The verdict in words, with the figures that decide it.
fn verdict(name: &str, row: &Row) -> String {
    if name == "(chance)" {
        return "-".to_owned();
    }
    let mut said = if row.differ == 0 {
        "does not pay: no draw differs".to_owned()
    } else if row.pays() {
        let costs = |(column, change): (&Column, &Option<f64>)| {
            change.filter(|change| column.pays(*change)).map(|_| column.head())
        };
        let costs: Vec<_> = COLUMNS.iter().zip(&row.changes).filter_map(costs).collect();
        format!("pays: {}", costs.join("; "))
    } else {
        "does not pay".to_owned()
    };
    if row.differ > 0 && row.sure > UNSURE && row.sure < SURE {
        said.push_str(" (unsure)");
    }
    if row.broke > 0 {
        said.push_str(&format!(". {} runs broke without it", row.broke));
    }
    said
}

impl Column {
    /// Its head in the table.
    fn head(&self) -> String {
        format!("{}, {}", self.figure.name(), if self.is_median { "median" } else { "worst tenth" })
    }
}

impl Figure {
    const fn name(self) -> &'static str {
        match self {
            Self::Share => "share of sum",
            Self::Delay => "call delay",
            Self::Fairness => "fairness",
        }
    }
}

/// Seeds in words: `1 to 10`, or each of them.
fn range(seeds: &BTreeSet<u64>) -> String {
    match (seeds.first(), seeds.last()) {
        (Some(first), Some(last)) if (last - first + 1) == seeds.len() as u64 && last > first => {
            format!("{first} to {last}")
        }
        _ => seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
