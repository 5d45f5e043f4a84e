//! Runs a scenario over seeds, repeats it if the emulator was late, and prints a verdict.

use super::binary::{Binary, Profile};
use super::jobs::in_order;
use super::kept::Kept;
use super::record::{ALIVE, LatenessRecord, Limit, MachineRecord, Record};
use super::settings::Settings;
use super::{About, Grid, Key, Scenario, Stage, statistics, text};
use crate::netns::{self, Entered, Machine};
use anyhow::Context as _;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The greatest p99 lateness of the emulator, as a share of the bound under test.
const LATENESS_SHARE: f64 = 0.1;

/// The backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Where {
    /// Real binaries between network namespaces, in real time.
    Netns,
    /// The production core in virtual time.
    Virtual,
}

impl Where {
    /// Its name on the command line.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Netns => "netns",
            Self::Virtual => "virtual",
        }
    }

    /// Its name in a sentence.
    pub(super) const fn in_words(self) -> &'static str {
        match self {
            Self::Netns => "between namespaces",
            Self::Virtual => "in virtual time",
        }
    }
}

/// The request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The backend.
    pub told: Where,
    /// The seeds to run, at least one.
    pub seeds: Vec<u64>,
    /// Whether a last object summarises all of them.
    pub summarise: bool,
    /// The part of the grid to cover.
    pub grid: Grid,
    /// Print JSON objects and nothing else.
    pub json: bool,
    /// Checked settings.
    pub settings: Settings,
    /// Seeds that run in parallel, in virtual time.
    pub jobs: usize,
    /// A file that keeps the results. Results in it are not measured again.
    pub keep: Option<PathBuf>,
}

/// Runs a scenario and prints the result; returns the exit status of the command: 0 passed, 1
/// failed, 3 void.
///
/// # Errors
/// The reason why it could not run at all.
pub fn over_seeds(
    scenario: &dyn Scenario,
    request: &Request,
    out: &mut dyn Write,
) -> anyhow::Result<u8> {
    let About { keys, .. } = scenario.about();
    let bench = Bench::open(request)?;
    let mut records = Vec::new();
    let seeds = &request.seeds;
    in_order(
        seeds.len(),
        bench.jobs(request),
        |at| bench.measure(scenario, request, seeds[at]),
        |record| {
            print(&record, request.json, out)?;
            records.push(record);
            Ok(())
        },
    )?;
    let verdict = if request.summarise {
        let summary = Record::summary(&records, keys).context("no seed was run")?;
        print(&summary, request.json, out)?;
        summary.exit_status()
    } else {
        records.iter().map(Record::exit_status).max().unwrap_or(3)
    };
    Ok(verdict)
}

/// The binary under test, the kept records and the namespaces of a command.
pub(super) struct Bench {
    rove: Option<Binary>,
    kept: Option<Kept>,
    entered: Option<Entered>,
}

impl Bench {
    /// Prepares them for a request.
    ///
    /// # Errors
    /// A binary, a file or namespaces that are missing.
    pub(super) fn open(request: &Request) -> anyhow::Result<Self> {
        // The build comes before the namespaces, in which only the lab's network exists.
        let rove = binary_under_test(request)?;
        let kept = request.keep.as_deref().map(Kept::open).transpose()?;
        let entered = match request.told {
            Where::Netns => Some(netns::enter()?),
            Where::Virtual => None,
        };
        Ok(Self { rove, kept, entered })
    }

    /// The number of seeds measured at once: one in real time, where runs disturb each other.
    pub(super) const fn jobs(&self, request: &Request) -> usize {
        if self.entered.is_some() { 1 } else { request.jobs }
    }

    /// Measures one seed, unless it was kept.
    ///
    /// # Errors
    /// The reason why it could not run.
    pub(super) fn measure(
        &self,
        scenario: &dyn Scenario,
        request: &Request,
        seed: u64,
    ) -> anyhow::Result<Record> {
        let (rove, entered) = (self.rove.as_ref(), self.entered.as_ref());
        let record = begun(scenario, request, seed, rove);
        let before = self.kept.as_ref().and_then(|kept| kept.find(&record));
        if let Some(before) = before {
            return recalled(record, before, scenario.about().keys);
        }
        let record = run_seed(scenario, request, record, entered, rove)?;
        self.kept.as_ref().map_or(Ok(()), |kept| kept.add(&record))?;
        Ok(record)
    }
}

/// The record of a seed without results.
fn begun(scenario: &dyn Scenario, request: &Request, seed: u64, rove: Option<&Binary>) -> Record {
    Record {
        scenario: scenario.about().name,
        seed: Some(seed),
        seeds: None,
        rove_version: rove.map(|rove| rove.version.clone()),
        rove_sha256: rove.map(|rove| rove.sha256.clone()),
        place: request.told.name(),
        grid: request.grid.name(),
        settings: request.settings.set().clone(),
        paper: scenario.paper(&request.settings),
        measured: Default::default(),
        not_measured: Default::default(),
        worst: None,
        samples: Default::default(),
        baseline: None,
        baseline_reason: None,
        lateness: None,
        machine: None,
        attempts: 0,
        limits: limits(scenario, &request.settings),
        pass: None,
        reason: None,
    }
}

/// The same with earlier results.
fn recalled(mut record: Record, before: &Value, keys: &[Key]) -> anyhow::Result<Record> {
    let (scenario, seed) = (record.scenario, record.seed.unwrap_or_default());
    record
        .recall(before, keys)
        .with_context(|| format!("what is kept of {scenario}, seed {seed}, is no record"))?;
    Ok(record)
}

/// Runs one seed, again while the emulator is late.
fn run_seed(
    scenario: &dyn Scenario,
    request: &Request,
    mut record: Record,
    entered: Option<&Entered>,
    rove: Option<&Binary>,
) -> anyhow::Result<Record> {
    let seed = record.seed.unwrap_or_default();
    let allowed_ms = scenario.bound_ms(&request.settings) * LATENESS_SHARE;
    // Several run in parallel.
    let of = if request.seeds.len() > 1 { format!("seed {seed}: ") } else { String::new() };
    let tell = |text: &str| {
        if !request.json {
            let _ = writeln!(std::io::stderr(), "  {of}{text}");
        }
    };
    let (settings, grid) = (&request.settings, request.grid);
    let captured = Default::default();
    let stage = Stage { seed, settings, grid, entered, rove, captured, tell: &tell };
    let attempts_max = settings.number("attempts");
    while u64::from(record.attempts) < attempts_max {
        record.attempts += 1;
        let machine = entered.map(|_| Machine::watch()).transpose()?;
        let outcome = scenario.run(&stage)?;
        record.machine = machine.map(|machine| MachineRecord::from(&machine.took()));
        // No lateness excuses a crash.
        let broke = outcome.broke.is_some();
        record.judge(outcome, scenario.about().keys);
        if broke {
            return Ok(record);
        }
        match record.lateness.filter(|lateness| lateness.judged_ms() > allowed_ms) {
            None => return Ok(record),
            Some(late) => record.void(too_late(&late, allowed_ms)),
        }
        tell("the emulator was late; once more");
    }
    Ok(record)
}

/// The scenario's own limits, and that the program under test is alive at the end.
fn limits(scenario: &dyn Scenario, settings: &Settings) -> Vec<Limit> {
    let mut limits = scenario.limits(settings);
    limits.push(Limit::equal(ALIVE.name, true));
    limits
}

fn too_late(late: &LatenessRecord, allowed_ms: f64) -> String {
    let allowed_ms = statistics::rounded(allowed_ms);
    format!(
        "void: the emulator's p99 lateness was {} ms, {allowed_ms} ms are allowed; run it on a \
         quieter machine",
        late.judged_ms()
    )
}

/// The binary that the settings name, or the one that belongs to this lab; `None` for the bare link
/// and in virtual time, which runs the linked core.
fn binary_under_test(request: &Request) -> anyhow::Result<Option<Binary>> {
    if request.told == Where::Virtual || request.settings.flag("bare") {
        return Ok(None);
    }
    match request.settings.text("rove") {
        "" => Binary::of_this_lab(Profile::Lab).map(Some),
        path => Binary::at(Path::new(path)).map(Some),
    }
}

/// Prints a record: one line of JSON, or a line for each key.
fn print(record: &Record, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        writeln!(out, "{}", serde_json::to_string(record)?)?;
        return Ok(());
    }
    text::print(record, out)
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
