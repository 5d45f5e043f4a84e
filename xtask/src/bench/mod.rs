//! Rove beside wireguard-go and beside the bare link, on one machine in one run.
//!
//! Two hosts in network namespaces, one veth pair, and between them in turn: nothing, wireguard-go,
//! Rove. The contenders take turns round by round, each time the other way about, so that what else
//! the machine does meets all of them; medians are printed, and ratios. Decides what is measured
//! and how; how each tunnel is started is in [`tunnels`]. Figures of different runs are not
//! comparable, ratios are.

mod measure;
mod place;
mod programs;
mod table;
mod traffic;
mod tunnels;

use std::fs;
use std::process::Command;

use crate::report;
use crate::run::{cargo, root, run};
use measure::Figures;
use place::Place;
use table::Rounds;
use tunnels::{Bare, CACHE, Rove, Tunnel, WireguardGo};

/// Rounds when nothing is said; the medians are over these.
const ROUNDS: u32 = 5;
/// The most rounds: an hour or so.
const ROUNDS_MAX: u32 = 50;
/// Seconds of each TCP flow when nothing is said.
const SECONDS: u32 = 5;
/// The longest TCP flow, in seconds.
const SECONDS_MAX: u32 = 60;
/// Idle clients of the crowded gateway.
const CROWD: usize = 1_000;

/// Open files that a thousand clients need.
const FILES: &str = "--nofile=8192:8192";

/// The Go module that pins wireguard-go.
const MODULE: &str = "bench/wireguard-go";

/// What was asked for.
#[derive(Clone, Debug)]
struct Settings {
    rounds: u32,
    seconds: u32,
    /// Only Rove, with holding and without.
    only_holding: bool,
    /// Only Rove, beside this binary of an earlier one.
    before: Option<String>,
}

/// `bench [--rounds N] [--seconds N] [--only-holding] [--before BINARY]`: builds the
/// contenders, then runs them in namespaces of their own, where nothing can be left behind.
///
/// # Errors
/// When something that is needed is missing, or a contender that was built does not carry.
pub(crate) fn run_bench(words: &[&str]) -> Result<(), String> {
    parse(words)?;
    build()?;
    // Before other programs of the machine where that is allowed; `nice` goes on where it is not.
    let mut command = Command::new("nice");
    command.args(["-n", "-20", "prlimit", FILES, "unshare"]);
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().map_err(|error| format!("own path: {error}"))?)
        .arg("bench-inside")
        .args(words);
    run(command).map_err(|error| {
        format!(
            "{error}; bench needs prlimit, unshare, ip, /dev/net/tun, and root or user namespaces"
        )
    })
}

/// The same, already in a place of its own.
///
/// # Errors
/// As [`run_bench`].
pub(crate) fn inside(words: &[&str]) -> Result<(), String> {
    let settings = parse(words)?;
    if fs::write("/proc/self/autogroup", "-20").is_err() {
        report::line("no right to run before other programs: they may disturb the figures");
    }
    Place::prepare()?;
    let rove = Rove { name: tunnels::OWN, hold: "full", program: tunnels::rove() };
    let holding_nothing = Rove { name: tunnels::HOLDING_NOTHING, hold: "off", ..rove.clone() };
    let before = |program| Rove { name: tunnels::BEFORE, hold: rove.hold, program };
    let before = settings.before.map(before);
    let contenders: &[&dyn Tunnel] = match (&before, settings.only_holding) {
        (Some(before), _) => &[before, &rove],
        (None, true) => &[&rove, &holding_nothing],
        (None, false) => &[&Bare, &WireguardGo, &rove, &holding_nothing],
    };
    let is_whole = contenders.len() > 2;
    let mut given: Vec<_> = contenders.iter().map(|one| (one.name(), Rounds::new())).collect();
    for round in 1..=settings.rounds {
        let mut turns: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 0 {
            turns.reverse();
        }
        for turn in turns {
            let name = contenders[turn].name();
            // Fresh hosts for each: a tunnel may leave on purpose what its restart needs.
            let figures = measure::round(contenders[turn], &Place::new()?, settings.seconds)
                .map_err(|error| format!("{name}: {error}"))?;
            report::line(format_args!("round {round}, {name}: {figures}"));
            given[turn].1.push(figures);
        }
    }
    let mut crowds = Vec::new();
    let crowded: &[&dyn Tunnel] = if is_whole { &[&WireguardGo, &rove] } else { &[] };
    for tunnel in crowded {
        if let Some(kilobytes) = tunnel.crowd(&Place::new()?, CROWD)? {
            crowds.push((tunnel.name(), kilobytes));
        }
    }
    let medians: Vec<(&str, Figures)> =
        given.iter().map(|(name, rounds)| (*name, table::median(rounds))).collect();
    report::line(table::render(&medians, &crowds, settings.rounds, settings.seconds));
    report::line(table::bounds(&given, &crowds));
    Ok(())
}

/// The hidden programs that bench runs inside its hosts.
///
/// # Errors
/// When a program's words make no sense or its sockets fail.
pub(crate) fn program(words: &[&str]) -> Result<(), String> {
    match words {
        ["sink", address] => traffic::sink(address),
        ["source", address, seconds] => traffic::source(address, seconds),
        ["echo", address] => traffic::echo(address),
        ["ping", address, count, size, gap_us] => traffic::ping(address, count, size, gap_us),
        ["forward", listen, to] => traffic::forward(listen, to),
        _ => Err("these programs are started by bench".to_owned()),
    }
}

fn parse(words: &[&str]) -> Result<Settings, String> {
    let mut settings =
        Settings { rounds: ROUNDS, seconds: SECONDS, only_holding: false, before: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (field, max) = match *word {
            "--rounds" => (&mut settings.rounds, ROUNDS_MAX),
            "--seconds" => (&mut settings.seconds, SECONDS_MAX),
            "--only-holding" => {
                settings.only_holding = true;
                continue;
            }
            "--before" => {
                let path = words.next().ok_or("--before: the path of a binary is wanted")?;
                settings.before = Some((*path).to_owned());
                continue;
            }
            _ => {
                let usage = "cargo xtask bench [--rounds N] [--seconds N] [--only-holding] \
                             [--before BINARY]";
                return Err(format!("usage: {usage}"));
            }
        };
        let value = words.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        if value == 0 || value > max {
            return Err(format!("{word}: a number from 1 to {max} is wanted"));
        }
        *field = value;
    }
    Ok(settings)
}

/// wireguard-go at the pinned version, the crowd of clients, and Rove, all optimised.
fn build() -> Result<(), String> {
    let cache = root().join(CACHE);
    fs::create_dir_all(&cache).map_err(|error| format!("{CACHE}: {error}"))?;
    for (name, package) in [("wireguard-go", "golang.zx2c4.com/wireguard"), ("crowd", "./crowd")] {
        let mut command = Command::new("go");
        command
            .args(["build", "-trimpath", "-o"])
            .arg(cache.join(name))
            .arg(package)
            .env("CGO_ENABLED", "0")
            .current_dir(root().join(MODULE));
        run(command).map_err(|error| format!("{error}; bench needs the Go toolchain"))?;
    }
    run(cargo(&["build", "--release", "--locked", "--bin", "rove"]))
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}
