//! A newcomer's first sight: one download that survives a change of address.

mod picture;
mod screen;

use crate::emu::{LinkConfig, MS, SECOND};
use crate::netns::{Entered, Process, monotonic_ns};
use crate::programs::{Download, Gap, Report, sha256_of};
use crate::scenario::testbed::{Testbed, report};
use anyhow::Context as _;
pub use screen::Screen;
use std::time::Duration;

/// Rate of the link in bits per second.
const RATE: u64 = 20_000_000;
/// Its round trip in nanoseconds.
const ROUND_TRIP_NS: u64 = 40 * MS;
/// Size of the download: some 13 s at that rate.
const LENGTH: u64 = 30_000_000;
/// Chance plays no part in this story; the content follows from this.
const SEED: u64 = 2;
/// How long the download may be silent before the demonstration gives up.
const PATIENCE: Duration = Duration::from_secs(15);

/// Tells the story and returns whether the download arrived unharmed.
///
/// # Errors
/// What went wrong in the telling: no namespace, a program that failed.
pub fn run(entered: &Entered, screen: &mut Screen) -> anyhow::Result<bool> {
    screen.title("Rove: one download, two networks");
    picture::draw(screen);
    if let Some(note) = entered.priority_note() {
        screen.note(note);
    }
    let link = LinkConfig::lossless(RATE, ROUND_TRIP_NS);
    let mut testbed = Testbed::new(entered, &link, SEED)?;
    screen.step("hosts", "client, gateway and server are up, each in a namespace of its own");
    let start_ns = monotonic_ns();
    let mut download = testbed.download(SEED, LENGTH)?;
    let told = follow(&mut testbed, &mut download, screen)?;
    let lateness = testbed.network.take_lateness()?;
    let seconds = (told.download.end_ns - told.download.start_ns) as f64 / SECOND as f64;
    let megabits = told.download.bytes as f64 * 8.0 / 1e6 / seconds;
    let expected = sha256_of(SEED, LENGTH);
    let intact = told.download.sha256 == expected;
    screen.line("");
    screen.step(
        "download",
        &format!("{} MB in {seconds:.1} s, {megabits:.1} Mbit/s", LENGTH / 1_000_000),
    );
    screen.step(
        "sha-256",
        &format!("{}, {}", told.download.sha256, if intact { "as it should be" } else { "WRONG" }),
    );
    screen.step(
        "emulator",
        &format!(
            "late by at most {:.2} ms in 99 of 100 packets",
            lateness.quantile_ns(0.99) as f64 / MS as f64
        ),
    );
    let _ = start_ns;
    Ok(intact)
}

/// What happened.
struct Told {
    download: Download,
    gaps: Vec<Gap>,
}

fn follow(
    _testbed: &mut Testbed,
    download: &mut Process,
    screen: &mut Screen,
) -> anyhow::Result<Told> {
    let mut gaps = Vec::new();
    loop {
        let next = download.line_where(PATIENCE, report);
        match next.context("the download failed")? {
            Report::Progress { at_ns, bytes, length, gaps: mut new, .. } => {
                gaps.append(&mut new);
                screen.progress(at_ns, bytes, length);
            }
            Report::Downloaded(download) => {
                screen.progress_done();
                gaps.extend(download.gaps.iter().copied());
                return Ok(Told { download, gaps });
            }
            Report::Ready
            | Report::Connected { .. }
            | Report::Pinged(_)
            | Report::Flowing { .. }
            | Report::Flowed(_) => {}
        }
    }
}
