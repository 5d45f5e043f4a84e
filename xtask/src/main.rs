//! The project's chores. Each step of the test command is a subcommand of the same name, so that
//! what the test command says and what a person types are one thing.
//!
//! Decides how the tools are called; refuses to know what the tests test. Needs nothing but the
//! Rust toolchain and git (`bench` says what more it needs).

#![forbid(unsafe_code)]

use std::process::ExitCode;

mod bench;
mod ci;
mod deny;
mod fuzz;
mod integration;
mod netns;
mod report;
mod run;
mod starved;
mod steps;
mod tally;
mod tidy;

const USAGE: &str = "\
usage: cargo xtask COMMAND

the steps of the test command, in its order:
  fmt            formatting, checked
  lint           clippy, every warning an error
  tidy           the house rules: import table, sizes, names, bans, links, limits
  deny           licences, sources and known vulnerabilities of the dependencies
  doc            the documentation builds without a warning
  test           unit tests, vectors and laws
  sim            the simulated world at fixed seeds
  netns          the real programs in network namespaces
  fuzz-replay    every committed corpus, on the stable toolchain
  models         the formal model, where ProVerif is installed (models/README.md)

  ci             all of the above in that order, then what was skipped and why

by hand:
  fuzz TARGET [--for SECONDS]            grows a corpus with libFuzzer (fuzz/README.md)
  tidy --figures                         the figures of the structure, and what they are made of
  tidy --tighten                         sets limits above their figure to it (xtask/limits.toml)
  bench [--rounds N] [--seconds N]       Rove beside wireguard-go (bench/README.md)
";

/// The exit code for a command line that makes no sense.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["ci"] => ci::run(),
        ["help" | "--help" | "-h"] => {
            report::line(USAGE.trim_end());
            return ExitCode::SUCCESS;
        }
        ["bench", rest @ ..] => bench::run_bench(rest),
        ["bench-inside", rest @ ..] => bench::inside(rest),
        ["bench-program", rest @ ..] => bench::program(rest),
        ["tidy", "--figures"] => tidy::figures(&run::root()),
        ["tidy", "--tighten"] => tidy::tighten(&run::root()),
        ["fuzz", rest @ ..] => fuzz::grow(rest),
        [name] => match steps::Step::named(name) {
            Some(step) => ci::run_one(step),
            None => return usage(&format!("there is no step `{name}`")),
        },
        [] => return usage("a command is missing"),
        [first, ..] => return usage(&format!("`{first}` takes no such arguments")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn usage(problem: &str) -> ExitCode {
    report::error(&format!("{problem}\n\n{}", USAGE.trim_end()));
    ExitCode::from(EXIT_USAGE)
}
