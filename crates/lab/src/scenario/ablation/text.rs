//! The table of heuristics as a page for people.

use super::{FIGURES, Figure, LENGTH_S, Measured, Paired, RESAMPLES, Row, SURE, Turn, UNHEARD_MS};
use crate::world::Heuristic;
use std::collections::BTreeSet;

/// How the page is called, in the directory of results.
pub const TEXT: &str = "ablation.md";
/// With fewer draws, the page says that its verdicts are provisional.
const DRAWS_MIN: usize = 200;
/// With fewer draws that differ, the verdict says how few there are.
const DIFFER_MIN: usize = 20;

/// The page of all draws that were measured.
pub fn text(all: &[Measured]) -> String {
    let seeds: BTreeSet<u64> = all.iter().map(|one| one.seed).collect();
    let draws = all.iter().map(|one| one.draw).max().unwrap_or_default();
    // Those of the draws: they may be older than this program, and know heuristics that are gone.
    let without = all.first().map(|one| one.without.as_slice()).unwrap_or_default();
    let tests = FIGURES.len() * without.len();
    let mut text = format!(
        "# The worth of each heuristic\n\n\
         {count} random draws of links and traffic, pooled over the seeds {seeds}, in virtual \
         time. Each draw\nruns with everything and without each heuristic. Each run is \
         measured for {LENGTH_S} s, after 5 s of\nstartup. \
         Call delay is the 99th percentile beyond an \
         idle path.\n\n\
         | column | meaning |\n|---|---|\n\
         | verdict | a heuristic pays if its removal makes a figure of the draws that differ worse \
         in the mean, in {SURE} of {RESAMPLES} resamples of them |\n\
         | asked | draws that came to the place of the heuristic |\n\
         | differ | draws that went otherwise without it |\n\
         | median, worst tenth | how the figure of all draws changes without it, in per cent |\n\
         | worse, better | draws in which the figure is worse or better without it, by 1 % |\n\
         | sure | the part of the resamples in which the figure is worse without it |\n\n\
         The row `(chance)` removes nothing: its draws lose other packets. {UNHEARD_MS} ms are \
         added to call delays before\nthey are compared. With {tests} figures to test, about \
         {by_chance:.0} pay by chance.{provisional}\n\n\
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
        by_chance = (1.0 - SURE) * tests as f64,
    );
    let columns = FIGURES
        .map(|figure| format!(" {}, median | worst tenth | worse, better | sure |", figure.name()));
    text.push_str(&format!("| heuristic | verdict | asked | differ |{}\n", columns.concat()));
    text.push_str(&format!("|{}\n", "---|".repeat(4 + 4 * FIGURES.len())));
    for name in without.iter().map(|one| one.heuristic.as_str()) {
        let row = Row::of(Turn::Without(name), all);
        let is_gone = Heuristic::named(name).is_none();
        let verdict = if is_gone { "removed: " } else { "" }.to_owned() + &verdict(&row);
        text.push_str(&line(&format!("`{name}`"), &verdict, &row));
    }
    text.push_str(&line("(chance)", "-", &Row::of(Turn::Chance, all)));
    let broke = all.iter().filter_map(|one| {
        let why = one.everything.broke.as_ref()?;
        Some(format!("\nDraw {} of seed {} broke: {}\n", one.draw, one.seed, first_line(why)))
    });
    text.extend(broke);
    text
}

fn line(name: &str, verdict: &str, row: &Row) -> String {
    let per_cent = |change: &Option<f64>| match change {
        Some(change) => format!(" {:+.1} |", change * 100.0),
        None => " - |".to_owned(),
    };
    let figures = row.changes.iter().zip(&row.paired).map(|(changes, paired)| {
        let Paired { worse, better, sure } = paired;
        let changes: String = changes.iter().map(per_cent).collect();
        format!("{changes} {worse}, {better} | {sure:.3} |")
    });
    let figures: String = figures.collect();
    format!("| {name} | {verdict} | {} | {} |{figures}\n", row.reached, row.differ)
}

/// The verdict in words, with the figures that decide it.
fn verdict(row: &Row) -> String {
    let pays: Vec<_> = row.pays().map(Figure::name).collect();
    let mut said = match (row.differ, pays.as_slice()) {
        (0, _) => return "does not pay: no draw differs".to_owned(),
        (_, []) => "does not pay".to_owned(),
        (_, pays) => format!("pays: {}", pays.join("; ")),
    };
    if row.differ < DIFFER_MIN {
        said.push_str(&format!(" ({} draws)", row.differ));
    }
    if row.broke > 0 {
        said.push_str(&format!(". {} runs broke without it", row.broke));
    }
    said
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
