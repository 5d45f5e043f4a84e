//! The goodput matrix: loss x round trip x pair x inner congestion control x scheduler, in virtual
//! time, as a text in which a change of any cell is a changed line.
//!
//! This module decides the cells and their form. `links` measures a cell; [`picture`] draws the
//! matrix.

pub mod picture;

use super::jobs::in_order;
use super::links::{Cell, Link, Pair, SCHEDULER, SECONDS, is_recorded, name};
use super::settings::{Setting, Settings};
use super::{Grid, Outcome, Stage, asymmetric, symmetric};
use crate::ground::{Congestion, SCHEDULERS};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The file name of the text in the directory of results,
pub const TEXT: &str = "goodput-matrix.txt";
/// and that of the drawing.
pub const PICTURE: &str = "goodput-matrix.svg";
/// The seed of all chance in the matrix.
pub const SEED: u64 = 1;
/// Length of each connection in seconds,
const LENGTH_S: u64 = 10;
/// and its beginning, which does not count.
const FIRST_S: u64 = 5;
const FIRST: Setting =
    Setting::number("first", FIRST_S, (1, LENGTH_S - 1), "seconds that do not count");
/// Loss of the links in each direction, as the scenarios call it.
const LOSSES: &[&str] = &["0", "0.5", "1", "bursty"];
/// The losses with which the other schedulers are measured,
const LOSSES_COMPARED: &[&str] = &["0", "1"];
/// up to this sum of both links in Mbit/s: fast ones take long.
const COMPARED_MBPS: u64 = 200;
const CONGESTIONS: [Congestion; 3] = [Congestion::Cubic, Congestion::Reno, Congestion::Bbr];
/// The congestion control with which those schedulers are measured.
const CONGESTION_COMPARED: Congestion = Congestion::Cubic;
/// A missing figure.
const NONE: &str = "-";

/// Links, their loss, and the congestion control of a connection over them: cells that differ only
/// in the scheduler. The better link alone is the same for all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    pair: Pair,
    loss: &'static str,
    congestion: Congestion,
}

/// A cell, measured or read.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The links, each with its Mbit/s and the milliseconds of its round trip.
    pub pair: String,
    /// Loss of each in each direction, in per cent, or `bursty`.
    pub loss: String,
    /// Congestion control of the connection.
    pub congestion: String,
    /// The scheduler.
    pub scheduler: String,
    /// Goodput; `None` if the connection failed.
    pub mbps: Option<f64>,
    /// As a share of both links' capacity.
    pub of_sum: Option<f64>,
    /// As a share of the same connection's rate on the better link alone, repaired if it is lossy.
    pub of_best: Option<f64>,
}

impl Conditions {
    /// All of them, in the order of the text.
    pub fn all() -> Vec<Self> {
        let pairs = symmetric::PAIRS.iter().chain(asymmetric::PAIRS).copied();
        let foreseeable = pairs.filter(|pair| !is_recorded(*pair));
        let mut all = Vec::new();
        for pair in foreseeable {
            for &loss in LOSSES {
                all.extend(CONGESTIONS.map(|congestion| Self { pair, loss, congestion }));
            }
        }
        all
    }

    /// The links, as rows call them.
    pub fn pair(&self) -> String {
        name(&self.pair)
    }

    /// Their loss, as rows call it.
    pub const fn loss(&self) -> &'static str {
        self.loss
    }

    /// The sum of both links' rates, in Mbit/s.
    pub fn mbps(&self) -> u64 {
        self.pair.iter().map(Link::mbps).sum()
    }

    /// The number of its cells.
    pub fn cells(&self) -> usize {
        self.schedulers().len()
    }

    /// The schedulers of its cells.
    fn schedulers(&self) -> &'static [&'static str] {
        let at = LOSSES_COMPARED.contains(&self.loss) && self.congestion == CONGESTION_COMPARED;
        if at && self.mbps() <= COMPARED_MBPS { SCHEDULERS } else { &SCHEDULERS[..1] }
    }

    /// Measures the cells.
    ///
    /// # Errors
    /// The reason why one could not be measured, or what failed in one.
    pub fn measure(&self) -> anyhow::Result<Vec<Row>> {
        let cell = Cell::down(self.pair, self.loss, self.congestion);
        let mut outcome = Outcome::default();
        let settings = settings(SCHEDULERS[0])?;
        let best_mbps = cell.alone(&stage(&settings), &mut outcome)?.best_mbps;
        let mut rows = Vec::new();
        for scheduler in self.schedulers() {
            let settings = self::settings(scheduler)?;
            let (mbps, sum_mbps) = cell.rates_mbps(&stage(&settings), &mut outcome)?;
            let share = |of: Option<f64>| Some(mbps? / of?);
            rows.push(Row {
                pair: name(&self.pair),
                loss: self.loss.to_owned(),
                congestion: self.congestion.name().to_owned(),
                scheduler: (*scheduler).to_owned(),
                mbps,
                of_sum: share(sum_mbps),
                of_best: share(best_mbps),
            });
        }
        match outcome.broke {
            Some(what) => anyhow::bail!("{}, loss {}: {what}", self.pair(), self.loss),
            None => Ok(rows),
        }
    }
}

fn settings(scheduler: &str) -> anyhow::Result<Settings> {
    let set = [format!("scheduler={scheduler}"), format!("seconds={LENGTH_S}")];
    Ok(Settings::parse(&[SCHEDULER, SECONDS, FIRST], &set)?)
}

fn stage(settings: &Settings) -> Stage<'_> {
    Stage::quiet(SEED, settings, Grid::Full)
}

/// Measures the selected cells on this number of threads, and calls `tell` with the rows of each
/// when they are ready. The number of threads does not change virtual time.
///
/// # Errors
/// The first error.
pub fn measure(
    conditions: &[Conditions],
    threads: usize,
    tell: &(dyn Fn(&[Row]) + Sync),
) -> anyhow::Result<Vec<Row>> {
    let mut measured = Vec::new();
    // The last ones take longest: they must not begin last.
    let work = |nth: usize| {
        let rows = conditions[conditions.len() - 1 - nth].measure()?;
        tell(&rows);
        Ok(rows)
    };
    in_order(conditions.len(), threads, work, |rows| {
        measured.push(rows);
        Ok(())
    })?;
    Ok(measured.into_iter().rev().flatten().collect())
}

/// Earlier rows, except those of pairs that were measured again, in the order of the text.
pub fn renewed(before: Vec<Row>, measured: Vec<Row>) -> Vec<Row> {
    let again: BTreeSet<String> = measured.iter().map(|row| row.pair.clone()).collect();
    let old = before.into_iter().filter(|row| !again.contains(&row.pair));
    let mut rows: Vec<Row> = old.chain(measured).collect();
    let mut order: Vec<String> = Conditions::all().iter().map(Conditions::pair).collect();
    order.dedup();
    // Stable: the rows of one pair stay as they are.
    rows.sort_by_key(|row| order.iter().position(|pair| *pair == row.pair));
    rows
}

/// The whole text, with its description and the command that makes it.
pub fn text(rows: &[Row]) -> String {
    let mut text = format!(
        "# Goodput of one connection over two links, to the client, in virtual time: seed {SEED},\n\
         # {LENGTH_S} s each, of which the first {FIRST_S} do not count. Links are Mbit/s / \
         ms of\n\
         # round trip; loss is in per cent each way, each packet by itself, or 2 % in bursts of \
         3.\n\
         # Shares are of what both links can carry, and of the same by the better one alone, \
         which is\n\
         # repaired where it loses something.\n\
         # Made by `cargo lab matrix`.\n#\n\
         # {:<15} {:<7} {:<6} {:<12} {:>7} {:>7} {:>7}\n",
        "pair", "loss", "cc", "scheduler", "mbit/s", "of_sum", "of_best",
    );
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", row.line());
    }
    text
}

impl Row {
    /// Its form in the text.
    pub fn line(&self) -> String {
        let figure =
            |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), |one| format!("{one:.3}"));
        format!(
            "{:<17} {:<7} {:<6} {:<12} {:>7} {:>7} {:>7}",
            self.pair,
            self.loss,
            self.congestion,
            self.scheduler,
            figure(self.mbps),
            figure(self.of_sum),
            figure(self.of_best),
        )
    }

    /// Reads a row.
    ///
    /// # Errors
    /// The line is no row.
    fn read(line: &str) -> anyhow::Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [pair, loss, congestion, scheduler, mbps, of_sum, of_best] = words[..] else {
            anyhow::bail!("no row of the matrix: {line}");
        };
        let figure = |word: &str| match word {
            NONE => Ok(None),
            word => word.parse().map(Some).with_context(|| format!("no figure: {word}")),
        };
        Ok(Self {
            pair: pair.to_owned(),
            loss: loss.to_owned(),
            congestion: congestion.to_owned(),
            scheduler: scheduler.to_owned(),
            mbps: figure(mbps)?,
            of_sum: figure(of_sum)?,
            of_best: figure(of_best)?,
        })
    }
}

/// Reads the output of [`text`].
///
/// # Errors
/// The first line that is neither a row nor a comment.
pub fn read(text: &str) -> anyhow::Result<Vec<Row>> {
    text.lines().filter(|line| !line.starts_with('#')).map(Row::read).collect()
}

/// The lines of each that the other lacks: first the earlier ones, then the present ones.
pub fn differences(before: &[Row], now: &[Row]) -> Vec<String> {
    let lines = |rows: &[Row]| rows.iter().map(Row::line).collect::<Vec<_>>();
    let (before, now) = (lines(before), lines(now));
    let gone = before.iter().filter(|line| !now.contains(line)).map(|line| format!("- {line}"));
    let new = now.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        Conditions, LOSSES, LOSSES_COMPARED, Row, SCHEDULERS, differences, read, renewed, text,
    };
    use std::collections::BTreeSet;

    #[test]
    fn what_is_written_is_read() {
        let row = Row {
            pair: "10/20+10/20".to_owned(),
            loss: "bursty".to_owned(),
            congestion: "cubic".to_owned(),
            scheduler: "round-robin".to_owned(),
            mbps: Some(18.25),
            of_sum: Some(0.975),
            of_best: None,
        };
        let all = [row.clone(), Row { loss: "0.5".to_owned(), ..row }];
        let written = text(&all);
        assert_eq!(read(&written).unwrap(), all);
        assert!(differences(&all, &all).is_empty());
        let lines = [format!("- {}", all[1].line()), format!("+ {}", all[0].line())];
        assert_eq!(differences(&all[1..], &all[..1]), lines);
        let [first, second] = [&all[0], &all[1]].map(Row::clone);
        let other = Row { pair: "10/1+10/1".to_owned(), ..first.clone() };
        let now = Row { mbps: Some(1.0), ..first };
        let renewed = renewed(vec![other.clone(), second], vec![now.clone()]);
        assert_eq!(renewed, [now, other], "in order, and nothing of a pair is left");
        assert!(written.lines().all(|line| line.len() <= 100), "{written}");
        assert!(read("10/20+10/20 0 cubic earliest 18 1").is_err());
        assert!(read("10/20+10/20 0 cubic earliest 18 1 x").is_err());
    }

    #[test]
    fn every_dimension_is_covered() {
        let all = Conditions::all();
        let pairs: BTreeSet<String> = all.iter().map(Conditions::pair).collect();
        assert_eq!((pairs.len(), all.len()), (9, 9 * LOSSES.len() * 3));
        for pair in &pairs {
            for &loss in LOSSES {
                let of = all.iter().filter(|one| one.pair() == *pair && one.loss == loss);
                let schedulers: Vec<usize> = of.map(|one| one.schedulers().len()).collect();
                assert_eq!(schedulers.len(), 3, "{pair}, {loss}");
                let all = schedulers.contains(&SCHEDULERS.len());
                let wanted = LOSSES_COMPARED.contains(&loss) && !pair.starts_with("300/");
                assert_eq!(all, wanted, "{pair}, {loss}: {schedulers:?}");
            }
        }
        assert!(all.iter().all(|one| one.schedulers()[0] == "earliest"));
    }
}
