//! A newcomer's first sight: one download that survives a change of address.
//!
//! Decides what is shown and in which order. Every figure it prints was measured in the run.

mod picture;
mod screen;

use crate::emu::{LinkConfig, MS, SECOND};
use crate::netns::{Entered, Process, monotonic_ns};
use crate::programs::{Download, Gap, Report, sha256_of};
use crate::scenario::addresses::Family;
use crate::scenario::binary::Binary;
use crate::scenario::deploy::Deployment;
use crate::scenario::settings::Settings;
use crate::scenario::statistics::median;
use crate::scenario::testbed::{Address, Move, Route, Testbed, report};
use crate::scenario::{self, Grid};
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
/// The longest standstill that counts as not noticed: what a download makes of a lost flight, some
/// round trips and a retransmission timeout, and less than a person notices.
const UNNOTICED_NS: u64 = 500 * MS;
/// How long the download may be silent before the demonstration gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells the story, through Rove or, without a binary, over the bare link; returns whether the
/// download arrived unharmed.
///
/// # Errors
/// What kept the story from being told.
pub fn run(entered: &Entered, rove: Option<&Binary>, screen: &mut Screen) -> anyhow::Result<bool> {
    screen.title("Rove: one download, two networks");
    picture::draw(screen);
    if let Some(note) = entered.priority_note() {
        screen.note(note);
    }
    let link = LinkConfig::lossless(RATE, ROUND_TRIP_NS);
    let mut testbed = Testbed::new(entered, &link, Family::V4, SEED)?;
    screen.step("hosts", "client, gateway and server are up, each in a namespace of its own");
    let mut deployment = Deployment::start(&testbed, rove)?;
    introduce(&testbed, rove, screen)?;
    let mut download = testbed.download(Route::Tunnelled, SEED, LENGTH)?;
    screen.step("download", &format!("{} MB over HTTP", LENGTH / 1_000_000));
    let told = follow(&mut testbed, &mut download, deployment.on_move(), screen)?;
    deployment.check()?;
    let intact = told.download.sha256 == sha256_of(SEED, LENGTH);
    conclude(&told, intact, screen);
    let lateness = testbed.network.take_lateness()?;
    let late_ms = lateness.quantile_ns(0.99) as f64 / MS as f64;
    screen.note(&format!("the emulated links were at most {late_ms:.2} ms late (p99)"));
    Ok(intact)
}

/// Tells the same story in virtual time, for machines that refuse namespaces, and returns whether
/// it ended well; `None` when it cannot be told so.
pub fn run_simulated(screen: &mut Screen) -> Option<anyhow::Result<bool>> {
    let scenario = scenario::find("roam-client")?;
    let settings = Settings::parse(scenario.settings(), &[]).ok()?;
    let outcome = match scenario.run_virtual(SEED, Grid::Default, &settings)? {
        Ok(outcome) => outcome,
        Err(error) => return Some(Err(error)),
    };
    screen
        .title("Rove: one download, two networks (simulated: the real protocol, no real packets)");
    picture::draw(screen);
    for key in scenario.keys() {
        if let Some(value) = outcome.measured.get(key.name).filter(|value| !value.is_null()) {
            screen.step(key.name, &value.to_string());
        }
    }
    let good = scenario.limits(&settings).iter().all(|limit| limit.holds(&outcome.measured));
    let text = if good { "In virtual time it holds." } else { "In virtual time it does NOT hold." };
    screen.line("");
    screen.verdict(good, text);
    Some(Ok(good))
}

/// What happened.
struct Told {
    download: Download,
    gaps: Vec<Gap>,
    moved: Move,
}

/// Says what carries the traffic, and how far away the server is.
fn introduce(testbed: &Testbed, rove: Option<&Binary>, screen: &mut Screen) -> anyhow::Result<()> {
    match rove {
        Some(binary) => {
            screen.step("gateway", "runs, and has let one client in by an invite");
            let version = format!("rove {}, SHA-256 {:.16}...", binary.version, binary.sha256);
            screen.step("binary", &version);
        }
        None => screen.step("bare", "no tunnel: the Internet itself lets the address follow"),
    }
    let trips = testbed.ping(Route::Tunnelled, 10, 20_000)?.finish()?.round_trips_ms();
    let trip = median(&trips).context("the server does not answer")?;
    screen.step("ping", &format!("{trip:.1} ms to the server and back"));
    Ok(())
}

/// Watches the download, and moves the client when half of it has arrived.
fn follow(
    testbed: &mut Testbed,
    download: &mut Process,
    address: Address,
    screen: &mut Screen,
) -> anyhow::Result<Told> {
    let start_ns = monotonic_ns();
    let mut gaps = Vec::new();
    let mut moved = None;
    loop {
        let next = download.line_where(PATIENCE, report).context("the download died")?;
        match next {
            Report::Progress { at_ns, bytes, length, gaps: mut new, .. } => {
                gaps.append(&mut new);
                screen.progress(at_ns, bytes, length);
                if moved.is_none() && bytes >= length / 2 {
                    let one = testbed.relocate(address)?;
                    let seconds = (one.usable_ns - start_ns) as f64 / SECOND as f64;
                    let text = format!(
                        "after {seconds:.1} s the client leaves home for the cafe; its address is \
                         now {}",
                        one.address
                    );
                    screen.event("move", &text);
                    moved = Some(one);
                }
            }
            Report::Downloaded(mut download) => {
                screen.progress_done();
                gaps.append(&mut download.gaps);
                let moved = moved.context("the download ended before the client could move")?;
                return Ok(Told { download, gaps, moved });
            }
            Report::Ready
            | Report::Connected { .. }
            | Report::Pinged(_)
            | Report::Flowing { .. }
            | Report::Flowed(_) => {}
        }
    }
}

/// Says what it came to.
fn conclude(told: &Told, intact: bool, screen: &mut Screen) {
    let Told { download, gaps, moved } = told;
    let seconds = (download.end_ns - download.start_ns) as f64 / SECOND as f64;
    let rate = download.bytes as f64 * 8.0 / 1e6 / seconds;
    let megabytes = download.bytes as f64 / 1e6;
    screen.step("arrived", &format!("{megabytes:.0} MB in {seconds:.1} s, {rate:.1} Mbit/s"));
    let content = if intact { "just what the server holds" } else { "NOT what the server holds" };
    screen.step("sha-256", &format!("{:.32}..., {content}", download.sha256));
    let still_ns = Gap::longest_after(gaps, moved.usable_ns, download.end_ns);
    let still_ms = still_ns as f64 / MS as f64;
    let round_trip_ms = ROUND_TRIP_NS / MS;
    screen.step(
        "standstill",
        &format!("{still_ms:.0} ms after the move; the link's round trip is {round_trip_ms} ms"),
    );
    screen.line("");
    let (good, text) = verdict(intact, still_ns);
    screen.verdict(good, text);
}

/// What may be claimed.
const fn verdict(intact: bool, still_ns: u64) -> (bool, &'static str) {
    if !intact {
        return (false, "The file is damaged: this must not happen.");
    }
    if still_ns > UNNOTICED_NS {
        return (true, "The connection survived, but stood still for longer than it should.");
    }
    (true, "The connection never noticed: same download, same TCP connection, two networks.")
}

#[cfg(test)]
mod tests {
    use super::{SECOND, UNNOTICED_NS, verdict};

    #[test]
    fn nothing_is_claimed_that_was_not_measured() {
        assert!(verdict(true, UNNOTICED_NS).1.contains("never noticed"));
        assert!(verdict(true, 9 * SECOND).1.contains("survived"));
        assert!(!verdict(false, 0).0);
    }
}
