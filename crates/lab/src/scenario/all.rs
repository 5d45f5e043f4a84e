//! `run all`: every mechanism of the five systems in one table, judged by a scenario or by a test.
//!
//! Decides how the verdict of a row follows from its judges, and how the table reads. The scenarios
//! decide what is measured and which limits hold. A run that two rows share runs once.

use super::find;
use super::jobs::in_order;
use super::paper::Cited;
use super::record::Record;
use super::rows::{Judge, ROWS, Row, Run};
use super::run::{Bench, Request, Where};
use super::settings::Settings;
use super::text::bounds;
use super::values::shown;
use anyhow::Context as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The file of the table, in the directory of results.
pub const TEXT: &str = "seeds.md";
/// The names of all rows.
const NAMES: &str = "M1 to M13, T1 to T9, A1 to A10, L1 to L7 and B1 to B10";
/// The columns of the table.
const COLUMNS: [&str; 7] = ["row", "mechanism", "scenario", "paper", "ours", "bound", "verdict"];

/// The verdict of a row, or of one of its judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All that was measured is within its bounds.
    Pass,
    /// Something is not.
    Miss,
    /// The machine was too late for a verdict.
    Void,
    /// A test judges it, elsewhere.
    ByTest,
    /// It is not judged here.
    NotJudged,
    /// There is nothing to judge.
    NotBuilt,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Miss => "MISS",
            Self::Void => "VOID",
            Self::ByTest => "judged by test",
            Self::NotJudged => "not judged",
            Self::NotBuilt => "not built",
        }
    }

    /// The exit status that it asks for: 0 unless something was measured and is not good.
    const fn exit_status(self) -> u8 {
        match self {
            Self::Miss => 1,
            Self::Void => 3,
            Self::Pass | Self::ByTest | Self::NotJudged | Self::NotBuilt => 0,
        }
    }

    /// The verdict of a row, from those of its judges. Measured verdicts count first, the worst of
    /// them before the others.
    fn of_row(all: &[Self]) -> Self {
        let order =
            [Self::Miss, Self::Void, Self::Pass, Self::ByTest, Self::NotJudged, Self::NotBuilt];
        order.into_iter().find(|one| all.contains(one)).unwrap_or(Self::NotBuilt)
    }
}

/// The record of each run, by its scenario and settings.
type Measured = BTreeMap<(&'static str, &'static [&'static str]), Record>;

/// The rows of these names; all where none is named.
///
/// # Errors
/// A name that no row has.
pub fn rows(names: &[String]) -> anyhow::Result<Vec<&'static Row>> {
    let known = |name: &&String| ROWS.iter().any(|row| row.name == **name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        anyhow::bail!("there is no row {name}; the rows are {NAMES}");
    }
    let is_asked = |row: &&Row| names.is_empty() || names.iter().any(|name| name == row.name);
    Ok(ROWS.iter().filter(is_asked).collect())
}

/// Judges rows and prints their table; writes it to the directory of results if there is one.
/// Returns the exit status of the command: 0 nothing was missed, 1 something was, 3 something is
/// void.
///
/// # Errors
/// A run that could not start, or a table that could not be written.
pub fn over_rows(
    rows: &[&'static Row],
    request: &Request,
    results: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let measured = measure(rows, request)?;
    if request.json {
        for row in rows {
            writeln!(out, "{}", object(row, request.told, &measured))?;
        }
    } else {
        write!(out, "{}", table(rows, request.told, &measured))?;
    }
    if let Some(directory) = results {
        std::fs::create_dir_all(directory)?;
        let path = directory.join(TEXT);
        let text = document(rows, request, &measured);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let status = |row: &&Row| verdict(row, request.told, &measured).exit_status();
    Ok(rows.iter().map(status).max().unwrap_or(0))
}

/// Measures every run of these rows once, as many seeds at a time as there are jobs.
fn measure(rows: &[&'static Row], request: &Request) -> anyhow::Result<Measured> {
    let mut runs: Vec<&'static Run> = Vec::new();
    for run in rows.iter().flat_map(|row| row.runs()).filter(|run| run.is_told(request.told)) {
        if !runs.iter().any(|other| other.key() == run.key()) {
            runs.push(run);
        }
    }
    let mut told = Vec::new();
    for run in &runs {
        let scenario = find(run.scenario).context(run.scenario)?;
        let set: Vec<String> = run.set.iter().map(|&text| text.to_owned()).collect();
        let settings = Settings::parse(scenario.about().settings, &set)?;
        // Nobody follows a story among so many.
        told.push((scenario, Request { settings, json: true, ..request.clone() }));
    }
    let Some((_, first)) = told.first() else { return Ok(Measured::new()) };
    let bench = Bench::open(first)?;
    let (count, seeds) = (runs.len(), &request.seeds);
    let mut records: Vec<Vec<Record>> = vec![Vec::new(); count];
    let work = |unit: usize| {
        let ((scenario, request), seed) = (&told[unit % count], seeds[unit / count]);
        Ok((unit % count, bench.measure(*scenario, request, seed)?))
    };
    in_order(count * seeds.len(), bench.jobs(first), work, |(at, record)| {
        let verdict = if record.pass == Some(true) { "pass" } else { "no pass" };
        let seed = record.seed.unwrap_or_default();
        tell(request, &format!("{}, seed {seed}: {verdict}", runs[at].command()));
        records[at].push(record);
        Ok(())
    })?;
    let mut measured = Measured::new();
    for (at, records) in records.iter().enumerate() {
        let (scenario, _) = told[at];
        let record = match records.as_slice() {
            [one] => one.clone(),
            all => Record::summary(all, scenario.about().keys).context("no seed was run")?,
        };
        measured.insert(runs[at].key(), record);
    }
    Ok(measured)
}

/// Reports progress, unless only JSON is wanted.
fn tell(request: &Request, text: &str) {
    if !request.json {
        let _ = writeln!(std::io::stderr(), "  {text}");
    }
}

/// The verdict of a judge, with its reason.
fn judged(judge: &Judge, place: Where, measured: &Measured) -> (Verdict, String) {
    match judge {
        Judge::Test(_, name) => (Verdict::ByTest, (*name).to_owned()),
        Judge::NotBuilt(what) => (Verdict::NotBuilt, (*what).to_owned()),
        Judge::Run(run) => match measured.get(&run.key()) {
            _ if !run.is_told(place) => {
                let only = run.only.map_or("", Where::in_words);
                (Verdict::NotJudged, format!("told {only} only"))
            }
            None => (Verdict::NotJudged, "it was not run".to_owned()),
            Some(record) => {
                let verdict = match record.pass {
                    Some(true) => Verdict::Pass,
                    Some(false) => Verdict::Miss,
                    None => Verdict::Void,
                };
                (verdict, record.reason.clone().unwrap_or_default())
            }
        },
    }
}

/// The verdict of a row.
fn verdict(row: &Row, place: Where, measured: &Measured) -> Verdict {
    let all = row.judges.iter().map(|judge| judged(judge, place, measured).0);
    Verdict::of_row(&all.collect::<Vec<_>>())
}

/// A row as a JSON object.
fn object(row: &Row, place: Where, measured: &Measured) -> Value {
    let judges = row.judges.iter().map(|judge| {
        let (verdict, reason) = judged(judge, place, measured);
        let mut object = json!({"verdict": verdict.name(), "reason": reason});
        match judge {
            Judge::Run(run) => {
                object["scenario"] = run.scenario.into();
                object["set"] = run.set.into();
                let record = measured.get(&run.key());
                object["keys"] = run.keys.iter().map(|&key| of_key(record, key)).collect();
            }
            Judge::Test(file, name) => object["test"] = json!({"file": file, "name": name}),
            Judge::NotBuilt(_) => {}
        }
        object
    });
    json!({
        "row": row.name,
        "mechanism": row.mechanism,
        "paper": row.paper,
        "verdict": verdict(row, place, measured).name(),
        "judges": judges.collect::<Vec<_>>(),
    })
}

/// A key as a JSON object: the paper's values, ours, the worst and the limits.
fn of_key(record: Option<&Record>, key: &str) -> Value {
    let cited = record.map(|record| record.paper.beside_key(key).collect::<Vec<_>>());
    let limits = record.map(|record| {
        let limits = record.limits.iter().filter(|limit| limit.key() == key);
        limits.map(|limit| json!(limit)).collect::<Vec<_>>()
    });
    let worst = record.and_then(|record| record.worst.as_ref()?.get(key));
    json!({
        "key": key,
        "paper": cited,
        "ours": record.and_then(|record| record.measured.get(key)),
        "worst": worst,
        "limits": limits,
    })
}

/// The lines of a row, one for each key and each judge without any.
fn lines(row: &Row, place: Where, measured: &Measured) -> Vec<[String; 7]> {
    let mut lines: Vec<[String; 7]> = Vec::new();
    for judge in row.judges {
        let (verdict, reason) = judged(judge, place, measured);
        let about = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let mut said = format!("{}{about}", verdict.name());
        let keys = match judge {
            Judge::Run(run) => run.keys,
            Judge::Test(..) | Judge::NotBuilt(_) => &[""],
        };
        for (at, key) in keys.iter().enumerate() {
            let mut line: [String; 7] = Default::default();
            if let Judge::Run(run) = judge {
                line[2] = if at == 0 { run.command() } else { String::new() };
                [line[3], line[4], line[5]] = figures(measured.get(&run.key()), key);
            }
            line[6] = std::mem::take(&mut said);
            lines.push(line);
        }
    }
    if let Some(first) = lines.first_mut() {
        (first[0], first[1]) = (row.name.to_owned(), row.mechanism.to_owned());
        if first[3].is_empty() {
            row.paper.clone_into(&mut first[3]);
        }
    }
    lines
}

/// The paper's value, ours and the bound of a key.
fn figures(record: Option<&Record>, key: &str) -> [String; 3] {
    let Some(record) = record else { return [String::new(), format!("{key} -"), String::new()] };
    let papers = record.paper.beside_key(key).map(Cited::short);
    let worst = record.worst.as_ref().and_then(|worst| worst.get(key));
    let worst = worst.map_or_else(String::new, |worst| format!(" ({})", shown(worst)));
    let value = record.measured.get(key).unwrap_or(&Value::Null);
    let missing = record.not_measured.get(key).map(|why| format!(": {why}"));
    let ours = match missing.filter(|_| value.is_null()) {
        Some(why) => format!("{key} -{why}"),
        None => format!("{key} {}{worst}", shown(value)),
    };
    [papers.collect::<Vec<_>>().join("; "), ours, bounds(record, key)]
}

/// The table, its columns aligned.
fn table(rows: &[&'static Row], place: Where, measured: &Measured) -> String {
    let head = COLUMNS.map(str::to_owned);
    let body = rows.iter().flat_map(|row| lines(row, place, measured));
    let all: Vec<[String; 7]> = [head].into_iter().chain(body).collect();
    let widths: [usize; 7] = std::array::from_fn(|column| {
        all.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)
    });
    // The last column has whole sentences.
    let cell = |line: &[String; 7], at: usize| {
        let width = if at == COLUMNS.len() - 1 { 0 } else { widths[at] };
        format!(" {:<width$} |", line[at])
    };
    let mut text = String::new();
    for (number, line) in all.iter().enumerate() {
        let cells: String = (0..COLUMNS.len()).map(|at| cell(line, at)).collect();
        text.push_str(&format!("|{cells}\n"));
        if number == 0 {
            text.push_str(&format!("|{}\n", "---|".repeat(COLUMNS.len())));
        }
    }
    text
}

/// The table with what it is and how it is made anew.
fn document(rows: &[&'static Row], request: &Request, measured: &Measured) -> String {
    let count = |wanted: Verdict| {
        let is_wanted = |row: &&&Row| verdict(row, request.told, measured) == wanted;
        format!("{} {}", rows.iter().filter(is_wanted).count(), wanted.name())
    };
    let counts = [
        Verdict::Pass,
        Verdict::Miss,
        Verdict::Void,
        Verdict::ByTest,
        Verdict::NotJudged,
        Verdict::NotBuilt,
    ];
    format!(
        "# The mechanisms of the five systems\n\n\
         Each row is a mechanism of MobiVPN (M), of Lukaszewski's multipath transport (T), of \
         AdamVPN (A),\nof the layered IPsec of Choi et al. (L) or of the Multilink VPN (B). \
         `paper` \
         has the value that the\npaper prints, with its table, figure or section. `ours` has the \
         median of {seeds} seeds {place},\nand the worst of them in brackets. `bound` is what must \
         hold of the median. A scenario misses as a whole\nif any of its bounds is broken; the \
         verdict then names it.\n\n\
         Rows: {counts}.\n\n\
         Made by `cargo lab run all --where {where_} --seeds {seeds} --in \
         bench/results`.\n\n{table}",
        seeds = request.seeds.len(),
        place = request.told.in_words(),
        where_ = request.told.name(),
        counts = counts.map(count).join(", "),
        table = table(rows, request.told, measured),
    )
}

#[cfg(test)]
#[path = "all_tests.rs"]
mod tests;
