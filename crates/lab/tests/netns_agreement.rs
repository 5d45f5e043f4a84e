//! Virtual time against real time. It needs the machine to itself, and each figure some tellings.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it prints"
)]

mod support;

use support::{ONCE, rove, run, side_by_side, turn};

/// What a scenario measures in virtual time or on namespaces.
fn measured(scenario: &str, key: &str, place: &str, settings: &[&str]) -> f64 {
    let (objects, _) = run(scenario, &["--where", place], settings);
    objects[0]["measured"][key].as_f64().unwrap()
}

/// A scenario, the figure of it that is compared, and settings that make it short.
type Compared<'a> = (&'a str, &'a str, &'a [&'a str]);

/// Fails unless the figure is the same in virtual time and on namespaces, within 5 %.
fn must_agree((scenario, key, short): Compared<'_>) {
    let rove = format!("rove={}", rove().path.display());
    let simulated = measured(scenario, key, "virtual", short);
    // A busy machine makes real time worse, never better: the best of some must agree. Which of
    // them was late does not matter, so none is told again for that.
    let mut seen = Vec::new();
    let agrees = (0..8).any(|_| {
        let real = measured(scenario, key, "netns", &[short, &[&*rove, ONCE]].concat());
        seen.push(real);
        (real / simulated - 1.0).abs() <= 0.05
    });
    assert!(agrees, "{scenario}: {key} is {simulated} in virtual time, {seen:?} in real time");
}

#[test]
fn virtual_time_agrees_with_namespaces_within_5_percent() {
    let Some(_turn) = turn() else { return };
    // Little goes by most of these, and two at a time disturb nobody.
    let little: [Compared<'_>; 7] = [
        ("nat-rebind", "still_ms_median", &["changes=4", "idle=1", "listening=0"]),
        ("roam-client", "still_ms_median", &["moves=8", "megabytes=2", "baseline=false"]),
        ("blackhole", "status_ms", &["outage=3", "late=0", "holes=1"]),
        ("family", "still_ms_median", &["moves=4"]),
        ("resume-loss", "still_ms_median", &["moves=2"]),
        ("restart-gateway", "back_ms_max", &["restarts=1"]),
        ("roam-gateway", "last_back_ms", &[]),
    ];
    side_by_side(2, &little, must_agree);
    let quic = ["pair=10/10+40/60", "loss=0", "flow=quic", "cc=cubic", "seconds=6"];
    let many = ["rtt=20", "loss=0", "flow=tcp", "seconds=6", "megabytes=1", "compare=none"];
    let much: [Compared<'_>; 4] = [
        ("tunnel", "goodput_mbps", &["seconds=6"]),
        ("symmetric", "share_of_sum_min", &many),
        ("asymmetric", "share_of_best_min", &quic),
        ("disconnects", "goodput_mbps", &["outages=1", "seconds=3", "megabytes=25"]),
    ];
    much.into_iter().for_each(must_agree);
}
