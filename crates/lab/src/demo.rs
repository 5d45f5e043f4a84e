//! A newcomer's first sight: one download that survives a change of address.
//!
//! Decides what is shown and in which order. Every figure it prints was measured in the run.

mod picture;
mod screen;

use crate::emu::{LinkConfig, MS, SECOND};
use crate::ground::{
    Act, Clock, Cue, Download, Ground, Heard, Pings, Route, Terrain, Transfer, Trouble,
};
use crate::netns::Entered;
use crate::scenario::addresses::Family;
use crate::scenario::binary::Binary;
use crate::scenario::deploy::Deployment;
use crate::scenario::hosts::Hosts;
use crate::scenario::statistics::median;
use crate::scenario::testbed::Testbed;
use crate::world::Journey;
use anyhow::{Context as _, bail};
pub use screen::Screen;

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
const UNNOTICED_MS: f64 = 500.0;
/// How long the download may take.
const LIMIT_NS: u64 = 60 * SECOND;
/// Round trips measured before.
const PINGS: Pings = Pings { count: 10, interval_ns: 20 * MS };

/// Tells the story, through Rove or, without a binary, over the bare link; returns whether the
/// download arrived unharmed.
///
/// # Errors
/// What kept the story from being told.
pub fn run(entered: &Entered, rove: Option<&Binary>, screen: &mut Screen) -> anyhow::Result<bool> {
    screen.title("Rove: one download, two networks");
    picture::draw(screen, picture::Addresses::Shown);
    if let Some(note) = entered.priority_note() {
        screen.note(note);
    }
    let testbed = Testbed::new(entered, &Terrain::of(link()), Family::V4, SEED)?;
    screen.step("hosts", "client, gateway and server are up, each in a namespace of its own");
    let deployment = Deployment::start(&testbed, rove)?;
    match rove {
        Some(binary) => {
            screen.step("gateway", "runs, and has let one client in by an invite");
            let version = format!("rove {}, SHA-256 {:.16}...", binary.version, binary.sha256);
            screen.step("binary", &version);
        }
        None => screen.step("bare", "no tunnel: the Internet itself lets the address follow"),
    }
    let mut hosts = Hosts::new(testbed, deployment, &Terrain::of(link()), SEED);
    let good = tell(&mut hosts, screen).and_then(|good| hosts.check().map(|()| good));
    let good = good.map_err(anyhow::Error::from)?;
    let timekeeping = hosts.testbed().network.take_timekeeping()?;
    let late_ms = timekeeping.all.quantile_ns(0.99) as f64 / MS as f64;
    screen.note(&format!("the emulated links were at most {late_ms:.2} ms late (p99)"));
    Ok(good)
}

/// Tells the same story in virtual time, for machines that refuse namespaces.
///
/// # Errors
/// A breach of a law of the simulated world.
pub fn run_simulated(screen: &mut Screen) -> anyhow::Result<bool> {
    screen.title("Rove: one download, two networks (simulated)");
    picture::draw(screen, picture::Addresses::Hidden);
    screen.note("the real protocol in virtual time: no host, no socket, no real packet");
    let told =
        Journey::new(SEED, &Terrain::of(link())).and_then(|mut journey| tell(&mut journey, screen));
    Ok(told?)
}

fn link() -> LinkConfig {
    LinkConfig::lossless(RATE, ROUND_TRIP_NS)
}

/// The story: a download, and a move when half of it has arrived.
fn tell(ground: &mut dyn Ground, screen: &mut Screen) -> Result<bool, Trouble> {
    let series = ground.ping(&[Route::Tunnelled], PINGS)?;
    let trips: Vec<f64> = series.iter().flat_map(|one| one.milliseconds()).collect();
    let trip = median(&trips).context("the server does not answer")?;
    screen.step("ping", &format!("{trip:.1} ms to the server and back"));
    let how = match ground.clock() {
        Clock::Real => "over HTTP",
        Clock::Virtual => "over a simulated TCP connection",
    };
    screen.step("download", &format!("{} MB {how}", LENGTH / 1_000_000));
    let script = [Cue { at_ns: LIMIT_NS, at_bytes: LENGTH / 2, act: Act::Relocate }];
    let download = Download::tunnelled(LENGTH, LIMIT_NS);
    let mut first_ns = None;
    let transfer = ground.download(download, &script, &mut |news| match news {
        Heard::Progress { at_ns, bytes } => {
            first_ns.get_or_insert(at_ns);
            screen.progress(at_ns, bytes, LENGTH);
        }
        Heard::Done(moved) => {
            let start_ns = first_ns.unwrap_or(moved.began_ns);
            let seconds = (moved.done_ns - start_ns) as f64 / SECOND as f64;
            let address = moved.address.map_or_else(String::new, |address| address.to_string());
            let text = format!(
                "after {seconds:.1} s the client leaves home for the cafe; its address is now \
                 {address}"
            );
            screen.event("move", &text);
        }
    })?;
    screen.progress_done();
    Ok(conclude(&transfer, screen)?)
}

/// Says what it came to.
fn conclude(transfer: &Transfer, screen: &mut Screen) -> anyhow::Result<bool> {
    let Some(seconds) = transfer.seconds() else { bail!("the download died") };
    let still_ms =
        transfer.still_ms().context("the download ended before the client could move")?;
    let rate = LENGTH as f64 * 8.0 / 1e6 / seconds;
    let megabytes = LENGTH as f64 / 1e6;
    screen.step("arrived", &format!("{megabytes:.0} MB in {seconds:.1} s, {rate:.1} Mbit/s"));
    if let Some(sha256) = &transfer.sha256 {
        let content = if transfer.intact {
            "just what the server holds"
        } else {
            "NOT what the server holds"
        };
        screen.step("sha-256", &format!("{sha256:.32}..., {content}"));
    }
    let round_trip_ms = ROUND_TRIP_NS / MS;
    screen.step(
        "standstill",
        &format!("{still_ms:.0} ms after the move; the link's round trip is {round_trip_ms} ms"),
    );
    screen.line("");
    let (good, text) = verdict(transfer.intact, still_ms);
    screen.verdict(good, text);
    Ok(good)
}

/// What may be claimed.
fn verdict(intact: bool, still_ms: f64) -> (bool, &'static str) {
    if !intact {
        return (false, "The file is damaged: this must not happen.");
    }
    if still_ms > UNNOTICED_MS {
        return (true, "The connection survived, but stood still for longer than it should.");
    }
    (true, "The connection never noticed: same download, same TCP connection, two networks.")
}

#[cfg(test)]
mod tests {
    use super::{UNNOTICED_MS, verdict};

    #[test]
    fn nothing_is_claimed_that_was_not_measured() {
        assert!(verdict(true, UNNOTICED_MS).1.contains("never noticed"));
        assert!(verdict(true, 9_000.0).1.contains("survived"));
        assert!(!verdict(false, 0.0).0);
    }
}
