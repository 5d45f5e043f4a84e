//! That no scenario on namespaces can but pass: with its mechanism broken, what that was for fails.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it prints"
)]

mod support;

use rove_lab::scenario::SCENARIOS;
use support::{AT_A_TIME, holds, run_quick, side_by_side, turn};

#[test]
fn every_control_fails() {
    let Some(_turn) = turn() else { return };
    // Those of several links are the last, and the longest: nobody is to wait for one at the end.
    let all = SCENARIOS.iter().rev().map(|scenario| scenario.about().name);
    // Nobody knows whether this machine carries what is drawn: virtual time shows that control.
    let all: Vec<&str> = all.filter(|name| *name != "random-links").collect();
    side_by_side(AT_A_TIME, &all, |name| {
        let broken: &[&str] = match name {
            "tunnel" => &["goodput_over_bare", "checksum_ok"],
            "hop" => &["lost_packets"],
            "roam-client" => &["still_ms_median", "checksum_ok"],
            "blackhole" => &["return_ms_max"],
            "nat-rebind" | "family" | "resume-loss" => &["lost_beyond_flight"],
            "idle" => &["lost_afterwards"],
            "restart-gateway" => &["lost_beyond_absence"],
            "subnets" => &["checksum_ok"],
            "roam-gateway" => &["last_back_ms", "lost_packets"],
            "udp-blocked" => &["connect_ms", "transports_ok"],
            "udp-policed" => &["policed_share_min", "transports_ok"],
            "both-move" => &["still_ms_max"],
            "persist" => &["died"],
            "disconnects" | "commute" => &["goodput_share", "checksum_ok"],
            "ssh-lid" | "many-flows" => &["survived"],
            "symmetric" | "asymmetric" | "split" | "subflows" | "mesh" | "bond" => {
                &["share_of_sum_min"]
            }
            "shared-bottleneck" => &["ratio_to_one_flow"],
            "competition" => &["share_of_bare_min"],
            "gso-mangled" => &["goodput_share"],
            "voip" | "latency-qos" => &["p99_over_idle_ms"],
            "priority" => &["share_ratio"],
            "modes" => &["full_recovery_ms"],
            "schedulers" => &["redundant_few_bytes"],
            "failover" => &["silent_stall_over_ms_max", "voip_late_packets"],
            other => panic!("{other}: name here what its control breaks"),
        };
        let (object, _) = run_quick(name, &["control=true"]);
        // Not by the verdict, which a late emulator withdraws.
        let held: Vec<_> = broken.iter().filter(|key| holds(&object, key)).collect();
        assert!(held.is_empty(), "{held:?} should not hold: {object}");
    });
}
