//! `split`: one connection over two links of 10 Mbit/s, which share a sum of delay and a sum of
//! loss: evenly, about 40 to 60, or about 25 to 75 (Table 3.3 of Lukaszewski's thesis).
//!
//! Delays are round trips, as in the thesis (section 3.1.2). `links` selects any two links, each
//! with its own rate, round trip and loss.

use super::links::{
    self, ASSIST, CONGESTION, Carried, Cells, FILE, GRID, KEYS, Link, MODE, Pair, SCHEDULER,
    SECONDS, TRANSFER, name,
};
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::{TABLE, least};
use super::{About, Grid, Key, Outcome, Scenario, Stage};
use crate::ground::{Known, Spread};
use anyhow::Context as _;
use serde_json::Value;

/// The least share of the sum.
const SHARE_OF_SUM_MIN: f64 = 0.95;
/// Goodput of the cells with a figure in the thesis.
const SEVERE: &str = "severe_lossy_mbps_min";

/// Table 3.3: the sums of delay in milliseconds, the sums of loss in per cent, and how they are
/// split.
const DELAYS: [&str; 2] = ["20", "40"];
const LOSSES: [&str; 4] = ["0", "0.1", "0.5", "1"];
const SPLITS: [&str; 3] = ["even", "moderate", "severe"];
/// The delays of the two links in milliseconds, by sum and split.
const SPLIT_MS: [[[u64; 2]; 3]; 2] = [[[10, 10], [8, 12], [5, 15]], [[20, 20], [15, 25], [10, 30]]];
/// Their losses in hundredths of a per cent, by sum and split.
const SPLIT_LOSS: [[[u32; 2]; 3]; 4] = [
    [[0, 0], [0, 0], [0, 0]],
    [[5, 5], [3, 7], [0, 10]],
    [[25, 25], [15, 35], [0, 50]],
    [[50, 50], [30, 70], [0, 100]],
];

/// The cells that represent the table, by positions in these lists: delay, loss, split.
const FEW: [(usize, usize, usize); 6] =
    [(0, 1, 1), (0, 3, 1), (0, 3, 2), (1, 3, 1), (1, 2, 2), (1, 3, 2)];

/// The grid is made of pairs, which have their own losses; that of a control comes first.
const CELLS: Cells = Cells {
    pairs: &[pair(0, 0, 0)],
    to: &[],
    known: Known::ByAddress,
    spreads: &[Spread::ONE],
    losses: &["0"],
    few: &[(0, 0)],
    carried: Carried::TCP,
    few_others: &[],
    also: &[],
};

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    SCHEDULER,
    ASSIST,
    TRANSFER,
    CONGESTION,
    Setting::choice("sum_delay", &[GRID, "20", "40"], "sum of both round trips in milliseconds"),
    Setting::choice("sum_loss", &[GRID, "0", "0.1", "0.5", "1"], "sum of both losses in per cent"),
    Setting::choice(
        "split",
        &[GRID, "even", "moderate", "severe"],
        "how delay and loss are split: alike, about 40 to 60, about 25 to 75",
    ),
    Setting::text(
        "links",
        "two links in place of all that, each as Mbit/s, milliseconds of round trip and per cent \
         of loss: 10/8/0.3+10/12/0.7",
    ),
    SECONDS,
    FILE,
];

/// The keys at least.
const KEYS_OF_SPLIT: &[Key] =
    &Key::with::<{ KEYS.len() + 1 }>(KEYS, &[Key::higher_is_better(SEVERE)]);

/// The scenario.
#[derive(Debug)]
pub(super) struct Split;

impl Scenario for Split {
    fn about(&self) -> About {
        About {
            name: "split",
            summary: "one connection over two links between which delay and loss are split",
            settings: SETTINGS,
            keys: KEYS_OF_SPLIT,
        }
    }

    /// All numbers in the text of section 3.1.6.
    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Lukaszewski 2017, section 3.1.6, conditions of Table 3.3, MPTCP with BALIA")
            .cite("severe_mbps", 10, "Mbit/s", "Figure 3.9b")
            .beside(SEVERE)
            .note("about; 40 ms, severe, 0.5 and 1 %: one of the two links")
            .cite("over_single_tcp", "every split is above a single TCP tunnel", "", "section 3.3")
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        links::limits(settings, Some(SHARE_OF_SUM_MIN))
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        links::bound_ms(CELLS.pairs)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = CELLS.tell(stage, &chosen(stage)?)?;
        let severe: Vec<String> = [2, 3].map(|loss| name(&pair(1, loss, 2))).into();
        let rows = outcome.measured.get(TABLE).and_then(Value::as_array).cloned();
        let mut rows = rows.unwrap_or_default();
        rows.retain(|row| severe.iter().any(|name| row["pair"] == name.as_str()));
        match least(&rows, "goodput_mbps") {
            None if rows.is_empty() => outcome.skip(SEVERE, "none of these cells was asked for"),
            least => outcome.measure(SEVERE, least),
        }
        Ok(outcome)
    }
}

/// The pairs to run; none for that of a control.
fn chosen(stage: &Stage<'_>) -> anyhow::Result<Vec<Pair>> {
    let settings = stage.settings;
    if stage.control() {
        return Ok(Vec::new());
    }
    let text = settings.text("links");
    if !text.is_empty() {
        let parsed = parse(text);
        let pair = parsed.with_context(|| format!("links={text}: write 10/8/0.3+10/12/0.7"))?;
        return Ok(vec![pair]);
    }
    let places = |key: &str, words: &[&str]| -> Vec<usize> {
        let set = settings.text(key);
        (0..words.len()).filter(|at| set == GRID || set == words[*at]).collect()
    };
    let delays = places("sum_delay", &DELAYS);
    let losses = places("sum_loss", &LOSSES);
    let splits = places("split", &SPLITS);
    let is_all = delays.len() * losses.len() * splits.len() == 24;
    if is_all && stage.grid == Grid::Default {
        return Ok(FEW.map(|(delay, loss, split)| pair(delay, loss, split)).into());
    }
    let mut pairs = Vec::new();
    for &delay in &delays {
        for &loss in &losses {
            pairs.extend(splits.iter().map(|&split| pair(delay, loss, split)));
        }
    }
    Ok(pairs)
}

/// The links that a text names.
fn parse(text: &str) -> Option<Pair> {
    let links: Option<Vec<Link>> = text.split('+').map(Link::parse).collect();
    links?.try_into().ok()
}

/// The links of a cell of the table, by its positions.
const fn pair(delay: usize, loss: usize, split: usize) -> Pair {
    let ([near_ms, far_ms], [near, far]) = (SPLIT_MS[delay][split], SPLIT_LOSS[loss][split]);
    // A hundredth of a per cent is 100 parts per million.
    [Link::of(10, near_ms).losing(near * 100), Link::of(10, far_ms).losing(far * 100)]
}

#[cfg(test)]
mod tests {
    use super::{SETTINGS, chosen, name, pair, parse};
    use crate::scenario::settings::Settings;
    use crate::scenario::{Grid, Stage};

    fn told(grid: Grid, set: &[&str]) -> Vec<String> {
        let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let settings = Settings::parse(SETTINGS, &set).unwrap();
        let pairs = chosen(&Stage::quiet(1, &settings, grid)).unwrap();
        pairs.iter().map(name).collect()
    }

    #[test]
    fn the_cells_are_those_of_the_table() {
        assert_eq!(name(&pair(0, 3, 1)), "10/8/0.3+10/12/0.7");
        assert_eq!(name(&pair(1, 2, 2)), "10/10+10/30/0.5");
        let all = told(Grid::Full, &[]);
        assert_eq!(all.len(), 24);
        assert_eq!((all[0].as_str(), all[23].as_str()), ("10/10+10/10", "10/10+10/30/1"));
        assert_eq!(told(Grid::Default, &[]).len(), 6);
        let some = told(Grid::Default, &["sum_loss=0.1", "split=moderate"]);
        assert_eq!(some, ["10/8/0.03+10/12/0.07", "10/15/0.03+10/25/0.07"]);
    }

    #[test]
    fn any_two_links_can_be_told_of() {
        assert_eq!(told(Grid::Full, &["links=2.5/8+10/12/0.7"]), ["2.5/8+10/12/0.7"]);
        for text in ["10/8", "10/8+10/12+10/9", "10/8+10", "10/8+10/12/51", "0/8+10/12", "a/8+1/1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
