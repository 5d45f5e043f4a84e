//! Seed after seed for as long as asked: what a test run is too short for.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::{Failure, Report, Saves, Start, generate_among, replay_told, run, shrink};
use crate::emu::SECOND;

/// Failures after which a hunt ends: more of the same kind tell nothing new.
const FAILURES_MAX: usize = 5;
/// Time between two lines on how far it is.
const TELL: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Hunt {
    /// Gateways of each world.
    pub gateways: u8,
    /// The first seed.
    pub seed: u64,
    /// How the nodes save bytes.
    pub saves: Saves,
    /// For how long to go on; at least one seed is run.
    pub time: Duration,
    /// Operations of each run.
    pub steps: usize,
}

/// What was run so far.
#[derive(Default)]
struct Tally {
    seeds: u64,
    failures: usize,
    time_ns: u64,
    datagrams: u64,
    delivered: u64,
    back_ns: u64,
}

/// Runs seeds one after the other, with a line a minute; every failure is shrunk and printed.
/// Returns whether there was none.
///
/// # Errors
/// When `out` cannot be written to.
pub fn hunt(hunt: &Hunt, out: &mut dyn Write) -> io::Result<bool> {
    let began = Instant::now();
    let (mut tally, mut told) = (Tally::default(), began);
    for seed in hunt.seed.. {
        let start = Start { seed, saves: hunt.saves, gateways: hunt.gateways };
        tally.seeds += 1;
        match catch_unwind(AssertUnwindSafe(|| run(start, hunt.steps))) {
            Ok(Ok(report)) => tally.add(&report),
            Ok(Err(failure)) => {
                tally.failures += 1;
                writeln!(out, "{}", shrink(failure))?;
            }
            Err(_) => {
                tally.failures += 1;
                writeln!(
                    out,
                    "seed {seed}: panic, see above; --seed {seed} --watch shows the way"
                )?;
            }
        }
        let over = began.elapsed() >= hunt.time || tally.failures >= FAILURES_MAX;
        if over || told.elapsed() >= TELL {
            told = Instant::now();
            tally.tell(began.elapsed(), out)?;
        }
        if over {
            break;
        }
    }
    Ok(tally.failures == 0)
}

/// Runs one seed and tells every step of it. Returns whether all laws held.
///
/// # Errors
/// When `out` cannot be written to.
pub fn watch(start: Start, steps: usize, out: &mut dyn Write) -> io::Result<bool> {
    let ops = generate_among(start.gateways, start.seed, steps);
    let teller = Box::new(|line: &str| {
        let _ = writeln!(io::stderr(), "{line}");
    });
    match replay_told(start, &ops, teller) {
        Ok(report) => writeln!(out, "{report:#?}").map(|()| true),
        Err(failure) => {
            let Failure { step, law, what, .. } = failure;
            writeln!(out, "operation {step}: {law:?}: {what}").map(|()| false)
        }
    }
}

impl Tally {
    fn add(&mut self, report: &Report) {
        self.time_ns += report.time_ns;
        self.datagrams += report.datagrams;
        self.delivered += u64::from(report.delivered);
        self.back_ns = self.back_ns.max(report.back_ns);
    }

    fn tell(&self, elapsed: Duration, out: &mut dyn Write) -> io::Result<()> {
        let seconds = elapsed.as_secs_f64();
        writeln!(
            out,
            "{seconds:.0} s: {} seeds ({:.1} a second), {} h of virtual time, {} datagrams, {} \
             packets delivered, back within {:.1} s, {} failures",
            self.seeds,
            self.seeds as f64 / seconds.max(0.001),
            self.time_ns / SECOND / 3_600,
            self.datagrams,
            self.delivered,
            self.back_ns as f64 / SECOND as f64,
            self.failures,
        )?;
        out.flush()
    }
}
