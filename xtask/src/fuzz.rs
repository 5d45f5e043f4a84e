//! Grows the corpus of one fuzz target with libFuzzer, on the stable toolchain.
//!
//! Decides the compiler's coverage flags and where the inputs go; refuses to know the targets.
//! Limit: no sanitizer. The targets are safe Rust, whose faults are panics.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::report;
use crate::run::{cargo, root, run};

/// Seconds for which a target runs when nothing is said.
const SECONDS: u64 = 60;
/// The longest run, in seconds: a working day.
const SECONDS_MAX: u64 = 8 * 3_600;
/// The longest input, in bytes: more than any datagram.
const INPUT_MAX: usize = 2_048;
/// Memory of the target before libFuzzer calls it a leak, in MB.
const MEMORY_MB: usize = 2_048;

/// How long one input may take before libFuzzer calls it a hang, in seconds: a thousand times the
/// slowest input's time.
const INPUT_SECONDS_MAX: u64 = 20;

/// What libFuzzer needs the compiler to put in: the edges taken and the operands compared
/// (Clang's SanitizerCoverage documentation), and the checks of a debug build.
const COVERAGE_FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Cdebug-assertions=on",
    "-Coverflow-checks=on",
];

/// `fuzz TARGET [--for SECONDS]`.
///
/// # Errors
/// When the words make no sense, the target does not exist, the build fails or an input breaks the
/// target.
pub(crate) fn grow(words: &[&str]) -> Result<(), String> {
    let (target, seconds) = match words {
        [target] => (*target, SECONDS),
        [target, "--for", seconds] => (*target, parse_seconds(seconds)?),
        _ => return Err("usage: cargo xtask fuzz TARGET [--for SECONDS]".to_owned()),
    };
    let committed = format!("fuzz/corpus/{target}");
    if !root().join(&committed).is_dir() {
        return Err(format!("there is no folder {committed}; its name is that of the target"));
    }
    let program = build()?;
    let found = format!("target/fuzz/corpus/{target}");
    let broken = format!("fuzz/artifacts/{target}/");
    for folder in [&found, &broken] {
        fs::create_dir_all(root().join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    }
    run(cargo(&["run", "--quiet", "--package", "rove-fuzz", "--bin", "seeds", target, &found]))?;
    let start = |arguments: &[&str]| {
        let mut command = Command::new(root().join(&program));
        command.args(arguments).env("ROVE_FUZZ_TARGET", target).current_dir(root());
        command
    };
    let time = format!("-max_total_time={seconds}");
    let length = format!("-max_len={INPUT_MAX}");
    let hang = format!("-timeout={INPUT_SECONDS_MAX}");
    let memory = format!("-rss_limit_mb={MEMORY_MB}");
    let prefix = format!("-artifact_prefix={broken}");
    run(start(&[
        &time,
        &length,
        &hang,
        &memory,
        &prefix,
        "-print_final_stats=1",
        &found,
        &committed,
    ]))
    .map_err(|error| format!("{error}\nthe input that broke it is in {broken}"))?;
    let before = count(&committed)?;
    run(start(&["-set_cover_merge=1", &length, &prefix, &committed, &found]))?;
    let after = count(&committed)?;
    report::line(format_args!("{committed}: {before} inputs before, {after} now; commit them"));
    Ok(())
}

/// Builds the program in a folder of its own, so that the coverage flags spoil no other build;
/// with `--target`, so that build scripts go without them.
fn build() -> Result<String, String> {
    let host = host()?;
    let mut command =
        cargo(&["build", "--locked", "--release", "--package", "rove-fuzz", "--bin", "grow"]);
    command
        .args(["--features", "libfuzzer", "--target", &host, "--target-dir", "target/fuzz"])
        .env("RUSTFLAGS", COVERAGE_FLAGS.join(" "))
        .env("CARGO_PROFILE_RELEASE_LTO", "false");
    run(command)?;
    Ok(format!("target/fuzz/{host}/release/grow"))
}

/// The platform that this toolchain builds for.
fn host() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output();
    let output = output.map_err(|error| format!("cannot start rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

fn parse_seconds(text: &str) -> Result<u64, String> {
    let seconds = text.trim_end_matches('s').parse().unwrap_or(0);
    if (1..=SECONDS_MAX).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("--for {text}: a number of seconds from 1 to {SECONDS_MAX} is wanted"))
    }
}

fn count(folder: &str) -> Result<usize, String> {
    let path: &Path = &root().join(folder);
    fs::read_dir(path).map(Iterator::count).map_err(|error| format!("{folder}: {error}"))
}
