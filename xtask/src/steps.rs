//! The steps of the test command, one function each.
//!
//! All test steps select the whole workspace and differ only in the test targets they name: so
//! the features of every dependency resolve alike, each thing is built once, and no test runs in
//! two steps.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;

use crate::run::{cargo, root, run, run_tests};
use crate::skips::Tally;
use crate::{report, tidy};

/// The integration test of the simulated world.
const WORLD: &str = "world";
/// The integration test that replays the corpora.
const REPLAY: &str = "replay";
/// How the names of integration tests begin that build network namespaces.
const NETNS: &str = "netns";

/// The one that loads the machine to its limit.
const FLOOD: &str = "netns_flood";
/// Where those are that are told in real time.
const STORIES: &str = "crates/lab/tests";

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// `cargo fmt --check`.
    Fmt,
    /// Clippy over every target.
    Lint,
    /// The house rules.
    Tidy,
    /// Rustdoc over the workspace.
    Doc,
    /// Unit tests, vectors, laws, documentation examples.
    Test,
    /// The simulated world.
    Sim,
    /// Real programs in namespaces.
    Netns,
    /// The committed corpora.
    FuzzReplay,
}

impl Step {
    /// In the order of the test command: what fails fastest comes first.
    pub(crate) const ALL: &'static [Self] = &[
        Self::Fmt,
        Self::Lint,
        Self::Tidy,
        Self::Doc,
        Self::Test,
        Self::Sim,
        Self::Netns,
        Self::FuzzReplay,
    ];

    /// The subcommand.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Lint => "lint",
            Self::Tidy => "tidy",
            Self::Doc => "doc",
            Self::Test => "test",
            Self::Sim => "sim",
            Self::Netns => "netns",
            Self::FuzzReplay => "fuzz-replay",
        }
    }

    /// What it shows, in a few words.
    pub(crate) const fn purpose(self) -> &'static str {
        match self {
            Self::Fmt => "the code is formatted",
            Self::Lint => "clippy has nothing to say",
            Self::Tidy => "the house rules hold",
            Self::Doc => "the documentation builds",
            Self::Test => "unit tests, vectors, laws",
            Self::Sim => "the simulated world at fixed seeds",
            Self::Netns => "the real programs in network namespaces",
            Self::FuzzReplay => "the corpora replayed",
        }
    }

    /// The step of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|step| step.name() == name)
    }

    /// Whether it ends with a count of tests.
    pub(crate) const fn runs_tests(self) -> bool {
        matches!(self, Self::Test | Self::Sim | Self::Netns | Self::FuzzReplay)
    }

    /// Runs it.
    ///
    /// # Errors
    /// What failed.
    pub(crate) fn run(self) -> Result<Tally, String> {
        match self {
            Self::Fmt => run(cargo(&["fmt", "--all", "--check"])).map(no_tests),
            Self::Lint => lint().map(no_tests),
            Self::Tidy => tidy::run(&root()).map(no_tests),
            Self::Doc => doc().map(no_tests),
            Self::Test => test(),
            Self::Sim => targets(&|name| name == WORLD, false),
            Self::Netns => netns(),
            Self::FuzzReplay => targets(&|name| name == REPLAY, false),
        }
    }
}

fn no_tests((): ()) -> Tally {
    Tally::default()
}

fn lint() -> Result<(), String> {
    run(cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))
}

fn doc() -> Result<(), String> {
    let mut command = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run(command)
}

/// Everything that no other step runs.
fn test() -> Result<Tally, String> {
    let others = |name: &str| name != WORLD && name != REPLAY && !name.starts_with(NETNS);
    let mut arguments = vec!["test", "--workspace", "--locked", "--no-fail-fast"];
    let names = integration_tests()?;
    arguments.extend(["--lib", "--bins"]);
    for name in names.iter().filter(|name| others(name)) {
        arguments.extend(["--test", name]);
    }
    arguments.extend(["--", "--show-output"]);
    let mut tally = run_tests(cargo(&arguments))?;
    tally.add(run_tests(cargo(&["test", "--workspace", "--locked", "--doc"]))?);
    Ok(tally)
}

/// The namespaces' tests, in two lanes: the laboratory tells its stories in real time and waits for
/// most of it, and the daemon's and the system's tests run meanwhile. Each lane is one test at a
/// time. What loads the machine to its limit comes before, and so does all that is to be built, the
/// laboratory's `rove` too: no lane is to wait for the other's compiler.
fn netns() -> Result<Tally, String> {
    let names = integration_tests()?;
    let names: Vec<&String> = names.iter().filter(|name| name.starts_with(NETNS)).collect();
    let mut build = vec!["test", "--workspace", "--locked", "--no-run"];
    for name in &names {
        build.extend(["--test", name]);
    }
    run(cargo(&build))?;
    run(cargo(&["build", "--locked", "--bin", "rove"]))?;
    let stories = root().join(STORIES);
    let lane = |name: &str| match name {
        _ if !name.starts_with(NETNS) => None,
        FLOOD => Some(Lane::Before),
        _ if stories.join(format!("{name}.rs")).is_file() => Some(Lane::Stories),
        _ => Some(Lane::Beside),
    };
    let run = |wanted: Lane| targets(&|name| lane(name) == Some(wanted), true);
    let before = run(Lane::Before);
    let (told, beside) = thread::scope(|scope| {
        let told = scope.spawn(|| run(Lane::Stories));
        let beside = run(Lane::Beside);
        let panicked = |_| Err("the lane of the stories panicked".to_owned());
        (told.join().unwrap_or_else(panicked), beside)
    });
    let (mut tally, mut errors) = (Tally::default(), Vec::new());
    for outcome in [before, told, beside] {
        match outcome {
            Ok(of_lane) => tally.add(of_lane),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(tally) } else { Err(errors.join("; ")) }
}

/// Which tests of namespaces run when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    /// With the machine to itself.
    Before,
    /// Those that are told in real time.
    Stories,
    /// The rest, beside the stories.
    Beside,
}

/// The integration tests that `wanted` picks; one thread at a time where they share the machine.
fn targets(wanted: &dyn Fn(&str) -> bool, alone: bool) -> Result<Tally, String> {
    let names: Vec<String> = integration_tests()?.into_iter().filter(|name| wanted(name)).collect();
    if names.is_empty() {
        return nothing_to_run();
    }
    let mut arguments = vec!["test", "--workspace", "--locked", "--no-fail-fast"];
    for name in &names {
        arguments.extend(["--test", name]);
    }
    arguments.extend(["--", "--show-output"]);
    if alone {
        arguments.push("--test-threads=1");
    }
    let tally = run_tests(cargo(&arguments))?;
    if tally.passed + tally.failed == 0 {
        return Err("no test ran: a step that tests nothing proves nothing".to_owned());
    }
    Ok(tally)
}

/// A step without a test is a skip like any other: visible, and a failure where all is required.
fn nothing_to_run() -> Result<Tally, String> {
    let what = "step: no integration test of that name exists";
    if std::env::var("ROVE_TEST_REQUIRE").is_ok_and(|value| value == "all") {
        return Err(format!("{what}, and ROVE_TEST_REQUIRE=all"));
    }
    let mut tally = Tally::default();
    let line = format!("SKIP {what}");
    tally.read(&line);
    report::line(line);
    Ok(tally)
}

/// The names of all integration tests, as cargo finds them: `tests/NAME.rs`, `tests/NAME/main.rs`.
fn integration_tests() -> Result<BTreeSet<String>, String> {
    let mut packages = vec![root().join("fuzz"), root().join("xtask")];
    for entry in list(&root().join("crates"))? {
        packages.push(entry);
    }
    let mut names = BTreeSet::new();
    for tests in packages.iter().map(|package| package.join("tests")).filter(|t| t.is_dir()) {
        for entry in list(&tests)? {
            let is_test = entry.extension().is_some_and(|extension| extension == "rs")
                || entry.join("main.rs").is_file();
            if let (true, Some(stem)) = (is_test, entry.file_stem()) {
                names.insert(stem.to_string_lossy().into_owned());
            }
        }
    }
    Ok(names)
}

fn list(folder: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| format!("{}: {error}", folder.display()))?.path());
    }
    paths.sort();
    Ok(paths)
}
