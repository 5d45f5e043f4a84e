//! `rove-lab`: lists and runs scenarios, and shows newcomers what Rove does.

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use rove_lab::demo::{self, Screen};
use rove_lab::netns;
use rove_lab::programs::Program;
use rove_lab::scenario::ablation;
use rove_lab::scenario::binary::{Binary, Profile};
use rove_lab::scenario::matrix::{self, Conditions, Row};
use rove_lab::scenario::run::{Request, Where};
use rove_lab::scenario::settings::{self, Setting, Settings};
use rove_lab::scenario::{self, SCENARIOS, all};
use rove_lab::world::{self, Hunt, Saves, Start};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A scenario failed, or the demonstration did.
const FAILED: u8 = 1;
/// The command line makes no sense.
const USAGE: u8 = 2;
/// The story could not be told, or lateness voids it.
const COULD_NOT_RUN: u8 = 3;
/// How every complaint begins.
const COMPLAINT: &str = "rove-lab: ";
/// The name that stands for the table of all mechanisms in place of a scenario.
const ALL: &str = "all";
/// The most seeds of one command.
const MAX_SEEDS: u64 = 10_000;

#[derive(Parser)]
#[command(version, about = "Emulated networks on which every claim about Rove is shown")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Name every scenario
    List,
    /// Show what Rove does: a download that survives a change of address
    Demo {
        /// Without Rove, over a link that lets the address follow the client.
        #[arg(long, hide = true)]
        bare: bool,
        /// Another binary than the one that belongs to this lab.
        #[arg(long, hide = true, value_name = "PATH", conflicts_with = "bare")]
        rove: Option<PathBuf>,
    },
    /// Run a scenario and print what it measured, beside the paper's own number
    ///
    /// `all` runs the scenarios that judge the mechanisms of the five systems that Rove builds on,
    /// and prints a table with a row for each mechanism.
    ///
    /// Exit status: 0 it passed, 1 it did not, 2 usage, 3 it could not be run.
    #[command(after_long_help = settings_help())]
    Run(Run),
    /// Let random operations happen in the simulated world, seed after seed, and check every law
    ///
    /// Exit status: 0 every law held, 1 one was broken: the operations that lead to it are printed.
    World(World),
    /// Measure the goodput matrix anew: loss x round trip x pair x congestion control x scheduler
    ///
    /// Takes some minutes. Writes goodput-matrix.txt and, drawn, goodput-matrix.svg.
    ///
    /// Exit status: 0 they are written (with --check: nothing differs), 1 something differs, 3 it
    /// could not be measured.
    Matrix(Matrix),
    /// Measure what each heuristic of the tunnel is worth over random links
    ///
    /// Takes an hour on two cores. Needs a lab that is built with the cargo feature `ablation`.
    /// Writes ablation.md.
    ///
    /// Exit status: 0 it is written, 3 it could not be measured.
    Ablation(Ablation),
    /// Say whether there can be namespaces and network devices here; exit status 3 if not
    Probe,
    /// A program that runs in a host of the lab
    #[command(hide = true, subcommand)]
    Program(Program),
}

#[derive(Args)]
struct Run {
    /// Name of a scenario (`rove-lab list` names them), or `all` for the table of mechanisms
    scenario: String,
    /// Real binaries in namespaces, or the production core in virtual time
    #[arg(long = "where", value_enum, default_value = "netns")]
    told: Where,
    /// All chance follows from it
    #[arg(long, default_value_t = 1, conflicts_with = "seeds")]
    seed: u64,
    /// Run the seeds 1 to N; a last object has the median and the worst of each key
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_SEEDS))]
    seeds: Option<u64>,
    /// How many seeds at once, in virtual time; as many as there are cores unless it is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_024))]
    jobs: Option<u64>,
    /// Keep what each seed measured in this file, and do not run again what is there: a run of
    /// hours goes on where it was interrupted. What another build of this program has kept there
    /// counts as nothing
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// How much of the grid of conditions to cover
    #[arg(long, value_enum, default_value = "default")]
    grid: scenario::Grid,
    /// Print one JSON object a line and nothing else
    #[arg(long)]
    json: bool,
    /// Change a setting of the scenario; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Judge only this row of `all`, such as M1; may be repeated
    #[arg(long = "row", value_name = "ROW")]
    rows: Vec<String>,
    /// Write the table of `all` to seeds.md in this directory
    #[arg(long = "in", value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Args)]
struct World {
    /// Go on with further seeds for this long
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=604_800))]
    seconds: u64,
    /// Gateways of each world, each with clients of its own
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=i64::from(world::GATEWAYS_MAX)))]
    gateways: u8,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Operations of each run
    #[arg(long, default_value_t = world::STEPS, value_name = "N")]
    steps: usize,
    /// Run one seed and tell everything that happens in it
    #[arg(long, conflicts_with = "seconds")]
    watch: bool,
    /// Let all nodes save bytes in every way: by headers, compression and shared datagrams
    #[arg(long)]
    save: bool,
}

#[derive(Args)]
struct Ablation {
    /// Draw the links of the seeds 1 to N
    #[arg(long, default_value_t = 10, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=MAX_SEEDS))]
    seeds: u64,
    /// How many draws of each seed
    #[arg(long, default_value_t = 20, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1_000))]
    draws: u64,
    /// Where the table is, or shall be
    #[arg(long = "in", value_name = "DIR", default_value = "bench/results")]
    directory: PathBuf,
    /// On how many cores; all of them unless it is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_024))]
    jobs: Option<u64>,
    /// Keep the figures of each draw in this file, and skip the draws that it has. Draws of another
    /// build of this program do not count
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Count the draws of every build: only where these builds are known to measure the same
    #[arg(long, requires = "keep")]
    any_build: bool,
    /// Begin no further draw after so many minutes, and write the table of those that there are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    minutes: Option<u64>,
}

#[derive(Args)]
struct Matrix {
    /// Where both are, or shall be
    #[arg(long = "in", value_name = "DIR", default_value = "bench/results")]
    directory: PathBuf,
    /// On how many cores; all of them unless it is said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_024))]
    jobs: Option<u64>,
    /// Only this pair of links, as the text calls it, and leave the others as they are; may be
    /// repeated
    #[arg(long = "pair", value_name = "PAIR")]
    pairs: Vec<String>,
    /// Write nothing: print every cell that is not as it was
    #[arg(long)]
    check: bool,
    /// Measure nothing: draw what is written there
    #[arg(long, conflicts_with_all = ["jobs", "pairs", "check"])]
    draw: bool,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::List => list(),
        Command::Demo { bare, rove } => finish(show(bare, rove.as_deref()), FAILED),
        Command::Run(run) => start(run),
        Command::World(world) => finish(simulate(&world), COULD_NOT_RUN),
        Command::Matrix(matrix) => finish(measure(&matrix), COULD_NOT_RUN),
        Command::Ablation(asked) => finish(ablate(asked), COULD_NOT_RUN),
        Command::Probe => finish(probe(), COULD_NOT_RUN),
        Command::Program(program) => finish(program.run().map(|()| 0), FAILED),
    }
}

/// The names, one a line. A reader who has closed the pipe has seen enough.
fn list() -> ExitCode {
    let mut out = std::io::stdout().lock();
    for scenario in SCENARIOS {
        let _ = writeln!(out, "{:<17} {}", scenario.about().name, scenario.about().summary);
    }
    ExitCode::SUCCESS
}

fn show(bare: bool, rove: Option<&Path>) -> anyhow::Result<u8> {
    let mut screen = Screen::stdout();
    if let Some(refusal) = refusal()? {
        complain(&refusal);
        let good = demo::run_simulated(&mut screen)?;
        return Ok(if good { 0 } else { FAILED });
    }
    // The build comes before the namespaces: inside them nothing but the lab's network exists.
    let rove = match rove {
        _ if bare => None,
        Some(path) => Some(Binary::at(path)?),
        None => Some(Binary::of_this_lab(Profile::Lab)?),
    };
    let entered = netns::enter()?;
    let good = demo::run(&entered, rove.as_ref(), &mut screen)?;
    Ok(if good { 0 } else { FAILED })
}

/// Why there can be no namespaces here, if so. Asked of a process of its own, because there is no
/// way back from them, and before anything is built.
fn refusal() -> anyhow::Result<Option<String>> {
    let lab = std::env::current_exe().context("cannot find out where this lab lies")?;
    let probe = std::process::Command::new(lab).arg("probe").output()?;
    let said = String::from_utf8_lossy(&probe.stderr);
    let said = said.trim().trim_start_matches(COMPLAINT).to_owned();
    Ok((!probe.status.success()).then_some(said))
}

fn simulate(asked: &World) -> anyhow::Result<u8> {
    let World { seconds, gateways, seed, steps, watch, save } = *asked;
    let saves = if save { Saves::All } else { Saves::Usual };
    let out = &mut std::io::stdout();
    let held = if watch {
        world::watch(Start { seed, saves, gateways }, steps, out)?
    } else {
        let time = Duration::from_secs(seconds);
        world::hunt(&Hunt { gateways, seed, saves, time, steps }, out)?
    };
    Ok(if held { 0 } else { FAILED })
}

fn measure(asked: &Matrix) -> anyhow::Result<u8> {
    let [text, picture] = [matrix::TEXT, matrix::PICTURE].map(|name| asked.directory.join(name));
    let written = || {
        let text = std::fs::read_to_string(&text);
        let rows = text.with_context(|| format!("cannot read {}", asked.directory.display()))?;
        matrix::read(&rows)
    };
    // What is drawn is what is written, with as many digits.
    let draw = || -> anyhow::Result<()> {
        let drawn = matrix::picture::draw(&written()?);
        std::fs::write(&picture, drawn).with_context(|| cannot_write(&picture))
    };
    if asked.draw {
        return draw().map(|()| 0);
    }
    let jobs = jobs(asked.jobs);
    let tell = |rows: &[Row]| {
        let mut err = std::io::stderr().lock();
        rows.iter().for_each(|row| drop(writeln!(err, "{}", row.line())));
    };
    let is_asked = |pair: &String| asked.pairs.is_empty() || asked.pairs.contains(pair);
    let mut conditions = Conditions::all();
    if let Some(pair) =
        asked.pairs.iter().find(|&pair| conditions.iter().all(|one| one.pair() != *pair))
    {
        anyhow::bail!("--pair {pair}: there is no such pair in the matrix");
    }
    conditions.retain(|one| is_asked(&one.pair()));
    let mut rows = matrix::measure(&conditions, jobs, &tell)?;
    if asked.check {
        let mut before = written()?;
        before.retain(|row| is_asked(&row.pair));
        let differs = matrix::differences(&before, &rows);
        differs.iter().for_each(|line| drop(writeln!(std::io::stdout(), "{line}")));
        return Ok(if differs.is_empty() { 0 } else { FAILED });
    }
    if !asked.pairs.is_empty() {
        rows = matrix::renewed(written()?, rows);
    }
    std::fs::create_dir_all(&asked.directory)?;
    std::fs::write(&text, matrix::text(&rows)).with_context(|| cannot_write(&text))?;
    draw().map(|()| 0)
}

fn ablate(asked: Ablation) -> anyhow::Result<u8> {
    let Ablation { seeds, draws, directory, jobs: cores, keep, any_build, minutes } = asked;
    let until = minutes.map(|minutes| Instant::now() + Duration::from_secs(minutes * 60));
    let request = ablation::Request { seeds, draws, jobs: jobs(cores), keep, any_build, until };
    let tell = |line: &str| drop(writeln!(std::io::stderr(), "  {line}"));
    let measured = ablation::measure(&request, &tell)?;
    std::fs::create_dir_all(&directory)?;
    let path = directory.join(ablation::TEXT);
    std::fs::write(&path, ablation::text(&measured)).with_context(|| cannot_write(&path))?;
    Ok(0)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn probe() -> anyhow::Result<u8> {
    let entered = netns::enter()?;
    netns::Network::rehearse(&entered)?;
    let note = entered.priority_note().map_or_else(String::new, |note| format!("; {note}"));
    let _ = writeln!(std::io::stdout(), "namespaces and network devices can be had{note}");
    Ok(0)
}

fn start(run: Run) -> ExitCode {
    if run.scenario == ALL {
        return start_all(run);
    }
    if !run.rows.is_empty() || run.directory.is_some() {
        complain(&format!("--row and --in are for `run {ALL}`"));
        return ExitCode::from(USAGE);
    }
    let Some(scenario) = scenario::find(&run.scenario) else {
        let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.about().name).collect();
        complain(&format!(
            "no scenario is called {}; there are {ALL}, {}",
            run.scenario,
            names.join(", ")
        ));
        return ExitCode::from(USAGE);
    };
    let settings = match Settings::parse(scenario.about().settings, &run.settings) {
        Ok(settings) => settings,
        Err(bad) => {
            complain(&bad.to_string());
            return ExitCode::from(USAGE);
        }
    };
    let request = run.request(settings);
    finish(scenario::run::over_seeds(scenario, &request, &mut std::io::stdout()), COULD_NOT_RUN)
}

/// Judges the mechanisms of the five systems.
fn start_all(run: Run) -> ExitCode {
    let rows = match all::rows(&run.rows) {
        _ if !run.settings.is_empty() => Err(anyhow::anyhow!("--set is for one scenario")),
        rows => rows,
    };
    let rows = match rows {
        Ok(rows) => rows,
        Err(bad) => {
            complain(&bad.to_string());
            return ExitCode::from(USAGE);
        }
    };
    let directory = run.directory.clone();
    let request = run.request(Settings::default());
    let out = &mut std::io::stdout();
    finish(all::over_rows(&rows, &request, directory.as_deref(), out), COULD_NOT_RUN)
}

impl Run {
    /// The same with checked settings.
    fn request(self, settings: Settings) -> Request {
        Request {
            told: self.told,
            seeds: self.seeds.map_or_else(|| vec![self.seed], |count| (1..=count).collect()),
            summarise: self.seeds.is_some(),
            grid: self.grid,
            json: self.json,
            settings,
            jobs: jobs(self.jobs),
            keep: self.keep,
        }
    }
}

/// On how many cores: on all of them unless it is said.
fn jobs(asked: Option<u64>) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    asked.map_or(cores, |jobs| usize::try_from(jobs).unwrap_or(cores))
}

/// Every key that `--set` understands.
fn settings_help() -> String {
    let lines = |settings: &[Setting]| -> String {
        settings.iter().map(|one| format!("  {:<28} {}\n", one.usage(), one.help)).collect()
    };
    let mut text = format!("Settings of every scenario:\n{}", lines(settings::EVERYWHERE));
    for scenario in SCENARIOS {
        let own = lines(scenario.about().settings);
        text.push_str(&format!("\nSettings of {}:\n{own}", scenario.about().name));
    }
    text
}

fn finish(result: anyhow::Result<u8>, on_error: u8) -> ExitCode {
    result.map_or_else(
        |error| {
            complain(&format!("{error:#}"));
            ExitCode::from(on_error)
        },
        ExitCode::from,
    )
}

fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{COMPLAINT}{text}");
}
