//! The steps of the test command, one function each.
//!
//! All test steps select the whole workspace and differ only in the test targets they name: so
//! the features of every dependency resolve alike, each thing is built once, and no test runs in
//! two steps.

use std::process::Command;

use crate::integration::{NETNS, cargo_test, integration_tests};
use crate::run::{cargo, root, run, run_tests};
use crate::tally::Tally;
use crate::{deny, netns, report, tidy};

/// The integration test of the simulated world.
const WORLD: &str = "world";
/// The integration test that replays the corpora.
const REPLAY: &str = "replay";

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// `cargo fmt --check`.
    Fmt,
    /// Clippy over every target.
    Lint,
    /// The house rules.
    Tidy,
    /// Licences, sources and known vulnerabilities of the dependencies.
    Deny,
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
    /// The formal model of the protocol.
    Models,
}

impl Step {
    /// In the order of the test command: what fails fastest comes first.
    pub(crate) const ALL: &'static [Self] = &[
        Self::Fmt,
        Self::Lint,
        Self::Tidy,
        Self::Deny,
        Self::Doc,
        Self::Test,
        Self::Sim,
        Self::Netns,
        Self::FuzzReplay,
        Self::Models,
    ];

    /// The subcommand.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Lint => "lint",
            Self::Tidy => "tidy",
            Self::Deny => "deny",
            Self::Doc => "doc",
            Self::Test => "test",
            Self::Sim => "sim",
            Self::Netns => "netns",
            Self::FuzzReplay => "fuzz-replay",
            Self::Models => "models",
        }
    }

    /// What it shows, in a few words.
    pub(crate) const fn purpose(self) -> &'static str {
        match self {
            Self::Fmt => "the code is formatted",
            Self::Lint => "clippy has nothing to say",
            Self::Tidy => "the house rules hold",
            Self::Deny => "licences, sources and advisories of the dependencies",
            Self::Doc => "the documentation builds",
            Self::Test => "unit tests, vectors, laws",
            Self::Sim => "the simulated world at fixed seeds",
            Self::Netns => "the real programs in network namespaces",
            Self::FuzzReplay => "the corpora replayed",
            Self::Models => "the formal model, where ProVerif is installed",
        }
    }

    /// The step of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|step| step.name() == name)
    }

    /// Whether it ends with a count of tests.
    pub(crate) const fn runs_tests(self) -> bool {
        matches!(self, Self::Test | Self::Sim | Self::Netns | Self::FuzzReplay | Self::Models)
    }

    /// Runs it. `is_final`: whether what is a hint at a desk is a failure.
    ///
    /// # Errors
    /// What failed.
    pub(crate) fn run(self, is_final: bool) -> Result<Tally, String> {
        match self {
            Self::Fmt => run(cargo(&["fmt", "--all", "--check"])).map(no_tests),
            Self::Lint => lint().map(no_tests),
            Self::Tidy => tidy::run(&root(), is_final).map(no_tests),
            Self::Deny => deny::judge(),
            Self::Doc => doc().map(no_tests),
            Self::Test => test(),
            Self::Sim => targets(&|name| name == WORLD),
            Self::Netns => netns::run(),
            Self::FuzzReplay => targets(&|name| name == REPLAY),
            Self::Models => models(),
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

/// The integration tests that `wanted` picks.
fn targets(wanted: &dyn Fn(&str) -> bool) -> Result<Tally, String> {
    let names: Vec<String> = integration_tests()?.into_iter().filter(|name| wanted(name)).collect();
    if names.is_empty() {
        return nothing_to_run();
    }
    let tally = run_tests(cargo_test(&names, &[]))?;
    if tally.passed + tally.failed == 0 {
        return Err("no test ran: a step that tests nothing proves nothing".to_owned());
    }
    Ok(tally)
}

/// Each verdict counts as a test. Without ProVerif the script skips. No package has it, so the skip
/// is no failure even if `ROVE_TEST_REQUIRE=all`.
fn models() -> Result<Tally, String> {
    let mut command = Command::new("sh");
    command.arg("models/run").current_dir(root());
    run_tests(command)
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
