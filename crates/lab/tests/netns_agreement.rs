//! Virtual time against real time. It needs the machine to itself, and each figure some tellings.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it prints"
)]

mod support;

use rove_lab::scenario::statistics::median;
use serde_json::Value;
use support::{ONCE, rove, run, side_by_side, turn};

/// How often a story is told on namespaces. The median is judged: one late telling fails nothing.
const TELLINGS: usize = 3;
/// How often so many are added to them while the median of all disagrees.
const ROUNDS: usize = 3;
/// How far the median may be from virtual time, as a share of that.
const APART: f64 = 0.05;
/// What a kernel and a busy processor take whatever is measured, in milliseconds: virtual time has
/// neither. The longest of some can wait for a whole slice of a processor.
const HOST_MS: f64 = 3.0;
const HOST_MAX_MS: f64 = 10.0;
/// The packets that leave in that time: a count of packets may be apart by as many.
const HOST_PACKETS: f64 = 2.0;

/// Figures that are not compared, and why.
const APART_FOR_A_REASON: &[(&str, &[&str], &str)] = &[
    (
        "blackhole",
        &["noticed_ms", "noticed_ms_max", "found_ms_max"],
        "they depend on which packet was the last before the hole, and the first after it",
    ),
    ("blackhole", &["status_ms"], "`rove status` looks at the host's rules, which takes time"),
    ("disconnects", &["restart_ms_median", "restart_ms_max"], "one outage is one draw"),
    ("resume-loss", &["announced_still_ms_max"], "a host takes time to tell of a changed route"),
    ("roam-client", &["known_link_still_ms"], "a host takes time to tell of a changed route"),
    (
        "roam-client",
        &["cut_down_still_ms", "cut_up_still_ms"],
        "a kernel takes time to tell of a pulled cable, and Rove notices meanwhile",
    ),
];

/// A scenario, and settings that make it short.
type Compared<'a> = (&'a str, &'a [&'a str]);

/// What a scenario shows in virtual time or on namespaces.
fn told(scenario: &str, place: &str, settings: &[&str]) -> Value {
    let (mut objects, _) = run(scenario, &["--where", place], settings);
    objects.remove(0)
}

/// Fails unless each figure that both places have is in the median the same.
fn must_agree((scenario, short): Compared<'_>) {
    let rove = format!("rove={}", rove().path.display());
    let on_namespaces = [short, &[&*rove, ONCE]].concat();
    let simulated = told(scenario, "virtual", short);
    let mut real = Vec::new();
    for round in 1..=ROUNDS {
        real.extend((0..TELLINGS).map(|_| told(scenario, "netns", &on_namespaces)));
        let apart = apart(scenario, &simulated, &real);
        if apart.is_empty() {
            return;
        }
        // The lab gives no verdict where its emulator was late.
        let late = real.iter().filter(|telling| telling["pass"].is_null()).count();
        let (told, apart) = (real.len(), apart.join("\n"));
        println!("{scenario}: {late} of {told} tellings late\n{apart}");
        assert!(round < ROUNDS || late > 0, "{scenario} shows another thing in real time");
    }
    // Counted by name among the skips, and no failure: Rove was not to blame.
    println!("SKIP {scenario} in real time: not judged, the emulator was late");
}

/// The figures that are not the same, a line each.
fn apart(scenario: &str, simulated: &Value, real: &[Value]) -> Vec<String> {
    let mut compared = 0;
    let mut apart = Vec::new();
    for (key, expected) in simulated["measured"].as_object().unwrap() {
        let is_excepted =
            |(of, keys, _): &(&str, &[&str], &str)| *of == scenario && keys.contains(&key.as_str());
        let seen = real.iter().map(|telling| telling["measured"][key].as_f64());
        let (Some(expected), Some(seen)) = (expected.as_f64(), seen.collect::<Option<Vec<f64>>>())
        else {
            continue;
        };
        if APART_FOR_A_REASON.iter().any(is_excepted) {
            continue;
        }
        compared += 1;
        let middle = median(&seen).unwrap();
        if (middle - expected).abs() > (APART * expected.abs()).max(host(key)) {
            apart.push(format!("{key} is {expected} in virtual time, {middle} of {seen:?}"));
        }
    }
    assert!(compared > 0, "{scenario}: nothing to compare");
    apart
}

/// How far a figure of this name may be apart whatever its size.
fn host(key: &str) -> f64 {
    let unit = |unit: &str| key.split('_').any(|word| word == unit);
    match key {
        _ if unit("ms") && unit("max") => HOST_MAX_MS,
        _ if unit("ms") => HOST_MS,
        _ if unit("us") => HOST_MS * 1e3,
        _ if unit("lost") || unit("packets") => HOST_PACKETS,
        _ => 0.0,
    }
}

#[test]
fn virtual_time_agrees_with_namespaces_within_5_percent() {
    let Some(_turn) = turn() else { return };
    // Little goes by most of these, and three at a time disturb nobody.
    let little: [Compared<'_>; 7] = [
        ("roam-client", &["moves=8", "megabytes=2", "baseline=false", "known=3"]),
        ("blackhole", &["outage=3", "late=0", "holes=1"]),
        ("nat-rebind", &["changes=4", "idle=1", "listening=0"]),
        ("family", &["moves=4"]),
        ("resume-loss", &["moves=2"]),
        ("restart-gateway", &["restarts=1"]),
        ("roam-gateway", &[]),
    ];
    side_by_side(3, &little, must_agree);
    let quic = ["pair=10/10+40/60", "loss=0", "flow=quic", "cc=cubic", "seconds=6"];
    let many = ["rtt=20", "loss=0", "flow=tcp", "seconds=6", "megabytes=1", "compare=none"];
    let much: [Compared<'_>; 4] = [
        ("symmetric", &many),
        ("disconnects", &["outages=1", "seconds=3", "megabytes=25"]),
        ("tunnel", &["seconds=6"]),
        ("asymmetric", &quic),
    ];
    side_by_side(4, &much, must_agree);
}
