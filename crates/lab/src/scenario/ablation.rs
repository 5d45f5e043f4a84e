//! The worth of each heuristic of the tunnel: the same random links with everything and without
//! each heuristic, one after the other, as a table with a verdict for each.
//!
//! Decides the verdict: a heuristic pays if the draws that go otherwise without it lose by that in
//! the mean, more surely than by chance. If a draw never asks for a heuristic, it is the same
//! without it and does not run again. `random_links` decides what a draw is and what its run
//! measures.

mod text;

use super::jobs::in_order;
use super::kept::Kept;
use super::random_links::{Draw, Had, Story};
use super::settings::Settings;
use super::statistics::quantile;
use super::{Grid, Stage};
use crate::emu::{Rng, SECOND};
use crate::world::{ABLATES, Heuristic};
use anyhow::ensure;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Instant;
pub use text::{TEXT, text};

/// How long what counts of a draw lasts, in seconds. With 10 s a draw takes 1.7 times as long.
const LENGTH_S: u64 = 5;
/// The change of a draw's chance in the run that shows what chance alone does.
const OTHER_CHANCE: u64 = 0x6368_616e_6365;
/// How often the draws that differ are drawn again from themselves, to tell how sure a verdict is.
const RESAMPLES: usize = 1_000;
/// The label of the chance for that.
const RESAMPLED: u64 = 0x626f_6f74;
/// The keys of a kept line that say which draw it is.
const SAME: &[&str] = &["seed", "draw"];

thread_local! {
    /// The heuristics that the story of this thread has asked for, a bit for each.
    static ASKED: Cell<u32> = const { Cell::new(0) };
}

/// The draws that are asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// The seeds 1 to this number,
    pub seeds: u64,
    /// and so many draws of each.
    pub draws: u64,
    /// How many draws run at once.
    pub jobs: usize,
    /// A file that keeps the figures. A draw that it has does not run again.
    pub keep: Option<PathBuf>,
    /// Whether a draw counts in that file that another build of this program measured.
    pub any_build: bool,
    /// No further draw is begun from then on.
    pub until: Option<Instant>,
}

/// The figures of one run of a draw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Figures {
    share_of_sum: Option<f64>,
    p99_over_idle_ms: Option<f64>,
    fairness: Option<f64>,
    /// The law that was broken, or what came other than it was sent, if anything did.
    broke: Option<String>,
}

/// The figures of a draw without one heuristic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Without {
    heuristic: String,
    /// `None` if the draw never reached the heuristic's place.
    reached: Option<Figures>,
    /// Whether the run was another than with everything.
    differs: bool,
}

/// The figures of all runs of a draw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    seed: u64,
    draw: u64,
    everything: Figures,
    /// With everything, and with other chance.
    chance: Figures,
    without: Vec<Without>,
}

/// Measures draws, the first of all seeds before the second of any, and hands over in order what
/// each measured. Those that were not begun in time are missing.
///
/// # Errors
/// A build that leaves out nothing, a file that cannot be kept, or a draw that could not be told.
pub fn measure(request: &Request, tell: &dyn Fn(&str)) -> anyhow::Result<Vec<Measured>> {
    ensure!(ABLATES, "build the lab with --features rove-lab/ablation");
    let kept = request.keep.as_deref().map(Kept::open).transpose()?;
    let numbers = 1..=request.draws;
    let all: Vec<(u64, u64)> =
        numbers.flat_map(|draw| (1..=request.seeds).map(move |seed| (seed, draw))).collect();
    let work = |at: usize| {
        let (seed, draw) = all[at];
        let asked = json!({"seed": seed, "draw": draw});
        if let Some(line) =
            kept.as_ref().and_then(|kept| kept.find_line(&asked, SAME, request.any_build))
        {
            return Ok(Some(serde_json::from_value(line.clone())?));
        }
        if request.until.is_some_and(|until| Instant::now() >= until) {
            return Ok(None);
        }
        let measured = measure_draw(seed, draw)?;
        if let Some(kept) = &kept {
            kept.add_line(serde_json::to_value(&measured)?)?;
        }
        Ok(Some(measured))
    };
    let mut measured: Vec<Measured> = Vec::new();
    in_order(all.len(), request.jobs, work, |one: Option<Measured>| {
        if let Some(one) = &one {
            tell(&one.line());
        }
        measured.extend(one);
        Ok(())
    })?;
    Ok(measured)
}

/// Tells a draw with everything, with other chance, and without each heuristic whose place it
/// reached.
fn measure_draw(seed: u64, number: u64) -> anyhow::Result<Measured> {
    let draw = Draw::new(seed, number, LENGTH_S * SECOND, true);
    let usual = draw.story();
    ASKED.set(0);
    let (had, everything) = run(&Story { asks: Some(note), ..usual })?;
    let asked = ASKED.get();
    let (_, chance) = run(&Story { chance: usual.chance ^ OTHER_CHANCE, ..usual })?;
    let mut without = Vec::new();
    for &heuristic in Heuristic::ALL {
        let name = heuristic.name();
        let mut one = Without { heuristic: name.to_owned(), reached: None, differs: false };
        if asked & bit(heuristic) != 0 {
            let (without, figures) = run(&Story { without: Some(name), ..usual })?;
            one = Without { reached: Some(figures), differs: without != had, ..one };
        }
        without.push(one);
    }
    Ok(Measured { seed, draw: number, everything, chance, without })
}

/// Notes that the story of this thread has asked for a heuristic.
fn note(heuristic: Heuristic) {
    ASKED.set(ASKED.get() | bit(heuristic));
}

const fn bit(heuristic: Heuristic) -> u32 {
    1 << heuristic as u8
}

/// Tells one story.
fn run(story: &Story<'_>) -> anyhow::Result<(Had, Figures)> {
    let settings = Settings::parse(&[], &[])?;
    let stage = Stage::quiet(story.chance, &settings, Grid::Default);
    let (told, had) = story.tell(&stage)?;
    let broke = told
        .broke
        .or_else(|| (!had.is_intact()).then(|| "something came other than it was sent".to_owned()));
    let figures = Figures {
        share_of_sum: had.share_of_sum(),
        p99_over_idle_ms: had.p99_ms(),
        fairness: had.fairness(),
        broke,
    };
    Ok((had, figures))
}

impl Measured {
    /// In one line, for people who follow.
    fn line(&self) -> String {
        let runs = self.without.iter().filter(|one| one.reached.is_some()).count();
        let differ = self.without.iter().filter(|one| one.differs).count();
        let Self { seed, draw, everything, .. } = self;
        let share = everything.share_of_sum.unwrap_or_default();
        format!(
            "draw {draw} of seed {seed}: share of the sum {share:.3}, {runs} heuristics reached, \
             {differ} make a difference"
        )
    }

    /// The figures with everything and those of a turn, if neither broke.
    fn pair(&self, turn: Turn<'_>) -> Option<(&Figures, &Figures)> {
        let other = match turn {
            Turn::Chance => &self.chance,
            Turn::Without(name) => {
                let without = self.without.iter().find(|one| one.heuristic == name)?;
                without.reached.as_ref().unwrap_or(&self.everything)
            }
        };
        let both = (&self.everything, other);
        (both.0.broke.is_none() && both.1.broke.is_none()).then_some(both)
    }
}

/// The difference between the two runs that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn<'a> {
    /// Only chance.
    Chance,
    /// The heuristic of this name.
    Without(&'a str),
}

/// A figure that is measured of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Share,
    Delay,
    Fairness,
}

/// The figures, in the order of the table.
const FIGURES: [Figure; 3] = [Figure::Share, Figure::Delay, Figure::Fairness];
/// Added to each call delay before two are compared, in milliseconds: nobody hears less.
const UNHEARD_MS: f64 = 5.0;
/// The least logarithm of a ratio that counts as a change, up or down.
const CHANGED: f64 = 0.01;
/// A change of one draw counts as this logarithm of a ratio at most, so that none decides alone.
const CHANGE_MAX: f64 = 1.0;
/// A heuristic pays if this part of the resamples of the draws that differ lose without it.
const SURE: f64 = 0.975;

impl Figure {
    const fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Share => figures.share_of_sum,
            Self::Delay => figures.p99_over_idle_ms,
            Self::Fairness => figures.fairness,
        }
    }

    const fn higher_is_better(self) -> bool {
        match self {
            Self::Share | Self::Fairness => true,
            Self::Delay => false,
        }
    }

    /// By what part the median and the worst tenth of these draws change.
    fn changes(self, pairs: &[(&Figures, &Figures)]) -> [Option<f64>; 2] {
        let both = pairs.iter().filter_map(|(with, other)| self.of(with).zip(self.of(other)));
        let (with, other): (Vec<f64>, Vec<f64>) = both.unzip();
        let tenth = if self.higher_is_better() { 0.1 } else { 0.9 };
        [0.5, tenth].map(|place| {
            let (with, other) = (quantile(&with, place)?, quantile(&other, place)?);
            (with > 0.0).then(|| other / with - 1.0)
        })
    }

    /// The gain of one draw without the heuristic: the logarithm of a ratio, -1 to 1. Below 0 the
    /// draw is worse without it.
    fn gain(self, (with, other): (&Figures, &Figures)) -> Option<f64> {
        let (with, other) = (self.of(with)?, self.of(other)?);
        let gain = if self.higher_is_better() {
            other.ln() - with.ln()
        } else {
            (with + UNHEARD_MS).ln() - (other + UNHEARD_MS).ln()
        };
        // Two figures of 0 have no ratio.
        (!gain.is_nan()).then(|| gain.clamp(-CHANGE_MAX, CHANGE_MAX))
    }
}

/// The gains and losses of the draws that differ in one figure, each compared with itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Paired {
    /// Draws that are worse and better without the heuristic.
    worse: usize,
    better: usize,
    /// The part of the resamples whose mean is worse without it.
    sure: f64,
}

impl Paired {
    fn of(figure: Figure, differ: &[(&Figures, &Figures)]) -> Self {
        let gains: Vec<f64> = differ.iter().filter_map(|&pair| figure.gain(pair)).collect();
        if gains.is_empty() {
            return Self::default();
        }
        let mut rng = Rng::new(RESAMPLED);
        let mut loses = || {
            let drawn = gains.iter().map(|_| gains[rng.below(gains.len() as u64) as usize]);
            drawn.sum::<f64>() < 0.0
        };
        let lost = (0..RESAMPLES).filter(|_| loses()).count();
        Self {
            worse: gains.iter().filter(|gain| **gain <= -CHANGED).count(),
            better: gains.iter().filter(|gain| **gain >= CHANGED).count(),
            sure: lost as f64 / RESAMPLES as f64,
        }
    }

    /// Whether the figure is what the heuristic is good for.
    fn pays(&self) -> bool {
        self.worse > 0 && self.sure >= SURE
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    /// Draws that reached the heuristic, and in which it made a difference.
    reached: usize,
    differ: usize,
    /// The change of the median and of the worst tenth of all draws, for each figure.
    changes: [[Option<f64>; 2]; FIGURES.len()],
    /// The gains and losses in each figure.
    paired: [Paired; FIGURES.len()],
    /// Runs without it that broke.
    broke: usize,
}

impl Row {
    /// The row of a turn over all draws.
    fn of(turn: Turn<'_>, all: &[Measured]) -> Self {
        let pairs: Vec<_> = all.iter().filter_map(|one| one.pair(turn)).collect();
        let differ: Vec<_> = pairs.iter().copied().filter(|(with, other)| with != other).collect();
        let of_turn = || {
            all.iter().flat_map(|one| &one.without).filter(|one| match turn {
                Turn::Chance => false,
                Turn::Without(name) => one.heuristic == name,
            })
        };
        let chance = if turn == Turn::Chance { all } else { &[] };
        let chance_differs = chance.iter().filter(|one| one.chance != one.everything).count();
        let broke =
            of_turn().filter(|one| one.reached.as_ref().is_some_and(|it| it.broke.is_some()));
        Self {
            reached: of_turn().filter(|one| one.reached.is_some()).count() + chance.len(),
            differ: of_turn().filter(|one| one.differs).count() + chance_differs,
            changes: FIGURES.map(|figure| figure.changes(&pairs)),
            paired: FIGURES.map(|figure| Paired::of(figure, &differ)),
            broke: broke.count() + chance.iter().filter(|one| one.chance.broke.is_some()).count(),
        }
    }

    /// The figures that the heuristic is good for. None: it does not pay.
    fn pays(&self) -> impl Iterator<Item = Figure> + '_ {
        let pays = FIGURES.iter().zip(&self.paired).filter(|(_, paired)| paired.pays());
        pays.map(|(figure, _)| *figure)
    }
}

#[cfg(test)]
#[path = "ablation_tests.rs"]
mod tests;
