//! A program that never sleeps and keeps a core busy during a test.

use super::report::{Report, Reporter};
use anyhow::{Context as _, ensure};
use std::time::{Duration, Instant};

/// Rounds between two readings of the clock.
const ROUNDS: u32 = 1 << 20;

/// Occupies a core with the niceness `nice` until it is killed, for `seconds` at most.
///
/// # Errors
/// The program runs with another niceness.
pub fn spin(nice: i32, seconds: u64, reporter: &Reporter) -> anyhow::Result<()> {
    let is = rustix::process::getpriority_process(None).context("cannot read the niceness")?;
    ensure!(is == nice, "cannot run at niceness {nice}, only at {is}: run the lab as root");
    reporter.tell(&Report::Ready)?;
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        for _ in 0..ROUNDS {
            std::hint::spin_loop();
        }
    }
    Ok(())
}
