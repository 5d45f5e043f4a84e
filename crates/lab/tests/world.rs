//! The simulated world at fixed seeds: every law holds, and a seed means the same every time.
//!
//! `ROVE_WORLD_SECONDS=3600` goes on with further seeds for that long; `ROVE_WORLD_SEED` says from
//! which. A failure prints the operations that lead to it.

use std::time::{Duration, Instant};

use rove_lab::world::{self, STEPS};

/// Seeds that every test run goes through.
const SEEDS: std::ops::Range<u64> = 0..40;

fn holds(seed: u64) -> world::Report {
    match world::run(seed, STEPS) {
        Ok(report) => report,
        Err(failure) => panic!("{}", world::shrink(failure)),
    }
}

#[test]
fn every_law_holds_at_fixed_seeds() {
    let reports: Vec<_> = SEEDS.map(holds).collect();
    let delivered: u32 = reports.iter().map(|report| report.delivered).sum();
    assert!(delivered > 1_000, "{delivered} packets: not much of a world");
}

#[test]
fn a_seed_means_the_same_every_time() {
    for seed in 0..3 {
        assert_eq!(holds(seed), holds(seed));
    }
    assert_ne!(holds(0).trace, holds(1).trace);
}

#[test]
fn further_seeds_for_as_long_as_asked() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let time = Duration::from_secs(number("ROVE_WORLD_SECONDS").unwrap_or(0));
    let (start, mut seed) = (Instant::now(), number("ROVE_WORLD_SEED").unwrap_or(SEEDS.end));
    while start.elapsed() < time {
        holds(seed);
        seed += 1;
    }
}
