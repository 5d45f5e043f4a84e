//! The test command: every step in order, stopping at the first that fails, and at the end the
//! count of tests and one line saying what was skipped and why.

use std::time::{Duration, Instant};

use crate::report;
use crate::steps::Step;
use crate::tally::Tally;

/// Runs every step.
///
/// # Errors
/// The first step that fails.
pub(crate) fn run() -> Result<(), String> {
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut times = Vec::new();
    for step in Step::ALL {
        let (of_step, took) = timed(*step, true)?;
        tally.add(of_step);
        times.push(format!("{} {}", step.name(), seconds(took)));
    }
    report::line(format_args!("\n== done in {}: {}", seconds(start.elapsed()), times.join(", ")));
    close(&tally);
    Ok(())
}

/// Runs one step.
///
/// # Errors
/// When it fails.
pub(crate) fn run_one(step: Step) -> Result<(), String> {
    let (tally, took) = timed(step, std::env::var_os("CI").is_some())?;
    report::line(format_args!("\n== done in {}", seconds(took)));
    if step.runs_tests() {
        close(&tally);
    }
    Ok(())
}

fn timed(step: Step, is_final: bool) -> Result<(Tally, Duration), String> {
    report::line(format_args!("\n== {}: {}", step.name(), step.purpose()));
    let start = Instant::now();
    let tally = step.run(is_final).map_err(|error| {
        let name = step.name();
        let took = seconds(start.elapsed());
        format!("step `{name}` failed after {took}: {error}\nto run it alone: cargo xtask {name}")
    })?;
    Ok((tally, start.elapsed()))
}

/// The closing lines: those of the test harness again, so that the end of a long log says it all.
fn close(tally: &Tally) {
    for result in &tally.results {
        report::line(result);
    }
    report::line(tally.skip_line());
    report::line(format_args!(
        "{} passed, {} failed, {} skipped",
        tally.passed,
        tally.failed,
        tally.skips()
    ));
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
