//! A program that never sleeps: what keeps a core busy while something else is tested.

use super::report::{Report, Reporter};
use anyhow::{Context as _, ensure};
use std::time::{Duration, Instant};

/// How long it spins between two looks at the clock, in rounds.
const ROUNDS: u32 = 1 << 20;

/// Occupies a core at the niceness `nice` until it is ended, or for so many seconds at most.
///
/// # Errors
/// When it runs at another niceness.
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
