//! The mechanisms of the five systems that Rove builds on, a row each, with their judges.
//!
//! M is MobiVPN (Alshalan 2017), T the multipath transport of Lukaszewski 2017, A is AdamVPN
//! (Hussain, Bertino, Nirjon), L the layered IPsec of Choi et al., B the Multilink VPN of Springate
//! and Newman. Decides which cells of a scenario are a row's claim. The scenario decides which
//! limits hold.

use super::run::Where;

/// A mechanism of one of the systems.
#[derive(Debug)]
pub struct Row {
    /// Its letter and number.
    pub name: &'static str,
    /// Its function.
    pub mechanism: &'static str,
    /// The paper's value, if no scenario cites it; empty if one does, or the paper has none.
    pub paper: &'static str,
    /// Its judges, in the order of the table.
    pub judges: &'static [Judge],
}

/// A judge of a mechanism.
#[derive(Debug)]
pub enum Judge {
    /// A scenario.
    Run(Run),
    /// A test, by its file from the root of the repository and its name.
    Test(&'static str, &'static str),
    /// Nothing: it is not built, or only this part of it.
    NotBuilt(&'static str),
}

/// A scenario under these settings, of which these keys stand in the table.
#[derive(Debug)]
pub struct Run {
    /// Its name.
    pub scenario: &'static str,
    /// Its settings.
    pub set: &'static [&'static str],
    /// The measured keys that the row is about.
    pub keys: &'static [&'static str],
    /// The only place where it can be told, if there is one.
    pub only: Option<Where>,
}

impl Row {
    /// The scenarios that judge it.
    pub(super) fn runs(&self) -> impl Iterator<Item = &'static Run> {
        self.judges.iter().filter_map(|judge| match judge {
            Judge::Run(run) => Some(run),
            Judge::Test(..) | Judge::NotBuilt(_) => None,
        })
    }
}

impl Run {
    /// What tells it from other runs.
    pub(super) const fn key(&self) -> (&'static str, &'static [&'static str]) {
        (self.scenario, self.set)
    }

    /// Whether it can be told there.
    pub(super) fn is_told(&self, place: Where) -> bool {
        self.only.is_none_or(|only| only == place)
    }

    /// As it is typed after `rove-lab run`.
    pub(super) fn command(&self) -> String {
        let set = self.set.iter().map(|text| format!(" --set {text}"));
        [self.scenario.to_owned()].into_iter().chain(set).collect()
    }
}

/// A row that something judges.
const fn row(name: &'static str, mechanism: &'static str, judges: &'static [Judge]) -> Row {
    Row { name, mechanism, paper: "", judges }
}

/// The same with what the paper prints.
const fn printed(
    name: &'static str,
    mechanism: &'static str,
    paper: &'static str,
    judges: &'static [Judge],
) -> Row {
    Row { name, mechanism, paper, judges }
}

/// A run in any place.
const fn run(
    scenario: &'static str,
    set: &'static [&'static str],
    keys: &'static [&'static str],
) -> Judge {
    Judge::Run(Run { scenario, set, keys, only: None })
}

/// A run in virtual time alone, as it is by default.
const fn run_virtual(scenario: &'static str, keys: &'static [&'static str]) -> Judge {
    Judge::Run(Run { scenario, set: &[], keys, only: Some(Where::Virtual) })
}

use Judge::{NotBuilt, Test};

/// All of them, in the order of the systems.
pub const ROWS: &[Row] = &[
    row(
        "M1",
        "client changes address: session resumed without a handshake",
        &[
            run(
                "roam-client",
                &[],
                &["still_with_detection_ms", "signalling_ms", "still_ms_median", "transfer_s"],
            ),
            run("roam-client", &["place=local"], &["still_with_detection_ms", "signalling_ms"]),
        ],
    ),
    row(
        "M2",
        "gateway changes address: all clients follow",
        &[run("roam-gateway", &[], &["last_back_ms", "lost_packets"])],
    ),
    row(
        "M3",
        "connection monitor; idle sessions stay silent",
        &[
            run("blackhole", &[], &["noticed_ms", "noticed_ms_max"]),
            run("idle", &[], &["packets_60s", "bytes_per_day_nat"]),
        ],
    ),
    row(
        "M4",
        "tunnel state machine with fall back to a full handshake",
        &[
            run("restart-gateway", &[], &["back_ms_max", "lost_beyond_absence"]),
            Test(
                "crates/lab/tests/world.rs",
                "every_law_holds_at_fixed_seeds_which_reach_what_they_are_for",
            ),
        ],
    ),
    row(
        "M5",
        "the move message resists replay and a man in the middle",
        &[
            Test("crates/proto/src/recovery/replay_tests.rs", "each_number_once"),
            Test(
                "crates/lab/tests/world_regressions/main.rs",
                "redirected_datagrams_leave_the_true_path_alone",
            ),
        ],
    ),
    row(
        "M6",
        "TCP connections persist across any outage",
        &[run("persist", &[], &["survived", "died"])],
    ),
    row(
        "M7",
        "flow table and cache, local ACKs, share of memory per flow",
        &[
            run("many-flows", &[], &["survived", "restart_ms_max"]),
            Test("crates/proto/src/flow/pep/share.rs", "the_equations_of_the_thesis"),
        ],
    ),
    row(
        "M8",
        "zero-window suspend; answers to window probes and keepalives",
        &[
            run("ssh-lid", &[], &["survived", "restart_ms_max"]),
            Test(
                "crates/proto/src/flow/tests/held.rs",
                "probes_and_keepalives_are_answered_however_long_it_takes",
            ),
        ],
    ),
    row(
        "M9",
        "resume: cached data is sent again, paced",
        &[
            run("disconnects", &[], &["gain_percent", "gain_3x15s_percent", "goodput_share"]),
            run("commute", &[], &["outages", "goodput_share"]),
        ],
    ),
    row(
        "M10",
        "no byte is acknowledged and then lost",
        &[
            Test(
                "crates/lab/tests/flow_laws/main.rs",
                "every_law_holds_at_fixed_seeds_which_reach_what_they_are_for",
            ),
            Test(
                "crates/rove/tests/netns_hold.rs",
                "what_was_acknowledged_for_another_is_delivered",
            ),
        ],
    ),
    row(
        "M11",
        "buffer or not by the RTT of networks visited before",
        &[Test("crates/proto/src/flow/pep/worth.rs", "the_equation_of_the_thesis")],
    ),
    printed(
        "M12",
        "adaptive compression per flow",
        "-17.58 % bytes, 66.55 % fewer compressions (Table 5.1)",
        &[
            run_virtual("compress", &["bytes_against_none", "operations_share"]),
            Test("crates/rove/tests/netns_saving.rs", "bytes_are_saved_where_the_user_said_so"),
        ],
    ),
    printed(
        "M13",
        "several compressed packets in one datagram",
        "94.44 % saved, 91.9 % without (section 5.5.2)",
        &[run_virtual("compress", &["letter_saved_share", "mean_datagram_bytes"])],
    ),
    row(
        "T1",
        "one session over several UDP paths",
        &[run("symmetric", &[], &["over_one_link_min", "share_of_sum_min", "share_of_best_min"])],
    ),
    row(
        "T2",
        "path managers: full mesh, several sub-flows per address pair",
        &[
            run(
                "subflows",
                &[],
                &["gain_over_tcp_percent", "gain_over_udp_percent", "share_of_sum_min"],
            ),
            run("mesh", &[], &["share_of_sum_min"]),
        ],
    ),
    row(
        "T3",
        "schedulers: lowest RTT, round robin, redundant",
        &[
            run(
                "schedulers",
                &[],
                &["rtt_burst_near", "round_robin_few_near", "redundant_few_bytes", "mistaken"],
            ),
            Test(
                "crates/proto/src/multipath/scheduler_tests.rs",
                "rtt_fills_the_nearest_and_then_the_next",
            ),
            Test(
                "crates/proto/src/multipath/scheduler_tests.rs",
                "round_robin_gives_each_its_turn_and_leaves_out_who_has_no_room",
            ),
            Test(
                "crates/proto/src/multipath/scheduler_tests.rs",
                "redundant_is_as_fast_as_the_fastest_that_has_room",
            ),
        ],
    ),
    row(
        "T4",
        "paths are probed for RTT and congestion",
        &[
            run("shared-bottleneck", &["beside=cubic", "seconds=30"], &["ratio_to_one_flow"]),
            Test("crates/lab/src/world/journey_tests.rs", "an_idle_path_is_probed_rarely"),
        ],
    ),
    row(
        "T5",
        "modes full, backup and single",
        &[
            run("modes", &[], &["backup_after_full_ms", "single_after_backup_ms", "standby_bytes"]),
            run("failover", &[], &["stall_ms_max", "silent_stall_ms_max", "share_back_s"]),
        ],
    ),
    row(
        "T6",
        "TCP and MPTCP carry the tunnel; chosen where UDP is blocked",
        &[
            run("udp-blocked", &[], &["connect_ms", "back_to_udp_ms"]),
            Judge::Run(Run {
                scenario: "symmetric",
                set: &["flow=tcp", "loss=1"],
                keys: &["mptcp_over_tcp_min"],
                only: Some(Where::Netns),
            }),
        ],
    ),
    row(
        "T7",
        "asymmetric links: delay and loss split 40/60 and 25/75",
        &[
            run("split", &[], &["severe_lossy_mbps_min", "share_of_sum_min"]),
            run("asymmetric", &[], &["share_of_sum_min", "share_of_best_min"]),
        ],
    ),
    row(
        "T8",
        "mobility across three subnets without losing a download",
        &[run("subnets", &[], &["still_ms_max", "checksum_ok"])],
    ),
    row(
        "T9",
        "falls back to one path; nothing else on the host is disturbed",
        &[
            Test(
                "crates/os/tests/netns_plan.rs",
                "a_full_tunnel_takes_all_but_marked_packets_and_undo_leaves_nothing",
            ),
            Test(
                "crates/rove/tests/netns_tunnel.rs",
                "everything_goes_through_and_everything_is_taken_back",
            ),
        ],
    ),
    printed(
        "A1",
        "the configuration changes per packet without a reset",
        "a hard reset costs 2.35 to 3.82 s of RTT and 6,449 bytes (section IV-C)",
        &[
            Test(
                "crates/proto/tests/session/profiles.rs",
                "the_suite_changes_with_every_datagram_and_nothing_is_lost",
            ),
            NotBuilt("what a change costs is not measured"),
        ],
    ),
    printed(
        "A2",
        "strength in use = max(base, application policy)",
        "",
        &[
            Test(
                "crates/proto/tests/session/profiles.rs",
                "the_strength_in_use_is_the_maximum_of_both_floors_and_the_wish",
            ),
            Test("crates/proto/tests/session/profiles.rs", "no_profile_id_leads_below_the_floor"),
            Test(
                "crates/proto/tests/session/overrides.rs",
                "a_rule_raises_the_datagrams_of_its_flow_and_no_others",
            ),
        ],
    ),
    printed(
        "A3",
        "traffic classifier by a decision tree",
        "99.1 % accuracy (Table II)",
        &[NotBuilt("RTP alone is recognised")],
    ),
    printed(
        "A4",
        "network context: link type, signal class, throughput",
        "",
        &[NotBuilt("they rank links and choose no configuration")],
    ),
    printed(
        "A5",
        "table of configurations, tested and updated",
        "resolution 10.2 kB/s with 500 clusters (Table III)",
        &[NotBuilt("no such table")],
    ),
    printed(
        "A6",
        "fake configuration changes and reallocated IDs",
        "",
        &[
            Test(
                "crates/proto/src/crypto/profile_tests.rs",
                "ids_are_flat_whatever_the_mix_of_profiles",
            ),
            Test("crates/proto/tests/session/profiles.rs", "padding_leaves_few_lengths"),
            NotBuilt("no cover traffic"),
        ],
    ),
    printed(
        "A7",
        "overhead of adaptation",
        "2.88 to 4.21 us per packet, at most 5 bytes (section V-B)",
        &[NotBuilt("nothing adapts")],
    ),
    printed(
        "A8",
        "throughput beside OpenVPN",
        "2.75 to 3.0 times on Wi-Fi, 1.8 to 2.16 cellular (Figures 8 and 9)",
        &[NotBuilt("nothing adapts")],
    ),
    printed(
        "A9",
        "formal verification",
        "no counterexample (section VI-B)",
        &[NotBuilt("no symbolic model")],
    ),
    row(
        "A10",
        "the client is a gateway for devices behind it",
        &[
            Test(
                "crates/rove/tests/netns_tunnel.rs",
                "a_subnet_behind_a_client_is_reached_if_the_invite_says_so",
            ),
            Test(
                "crates/rove/tests/netns_rules.rs",
                "rules_and_devices_are_shown_and_change_while_connections_go_on",
            ),
        ],
    ),
    printed(
        "L1",
        "zones: headers and payload under separate keys",
        "4 % below IPsec, 9 % below clear (section V-A)",
        &[NotBuilt("no relay")],
    ),
    printed(
        "L2",
        "key distribution to gateway, client and relay",
        "650 to 665 ms (Figure 4)",
        &[NotBuilt("no relay")],
    ),
    printed(
        "L3",
        "proactive key distribution to neighbour relays",
        "handoff 56 ms (section IV-B)",
        &[NotBuilt("no relay")],
    ),
    printed(
        "L4",
        "directed key migration from the old relay",
        "105 ms (section IV-C)",
        &[NotBuilt("no relay")],
    ),
    printed(
        "L5",
        "rekey and revocation of relays without disturbing traffic",
        "",
        &[NotBuilt("no relay; sessions rekey and clients are revoked")],
    ),
    printed(
        "L6",
        "SNOOP on the relay",
        "+165 % over TCP/IPsec in the mean (section V-A2)",
        &[NotBuilt("no relay")],
    ),
    row(
        "L7",
        "a moving host keeps its inner address in any access network",
        &[run("family", &[], &["still_ms_median", "lost_beyond_flight"])],
    ),
    row(
        "B1",
        "several uplinks aggregated",
        &[run("bond", &[], &["down_mbps", "up_mbps", "share_of_sum_min"])],
    ),
    row(
        "B2",
        "link weights by loss, by byte counting, by lowest latency",
        &[
            run("bond", &[], &["latency_over_best", "rate_over_best", "latency_over_rate"]),
            run("schedulers", &[], &["loss_lossy", "rate_known_near", "latency_much_near"]),
            Test(
                "crates/proto/src/multipath/scheduler_tests.rs",
                "loss_gives_turns_by_what_arrives",
            ),
        ],
    ),
    row(
        "B3",
        "reordering",
        &[
            run("bond", &[], &["share_of_sum_min", "gain_down_min", "gain_up_min"]),
            run("symmetric", &[], &["retransmitted_percent_max"]),
            Test(
                "crates/proto/src/multipath/reorder_tests.rs",
                "a_gap_waits_from_the_first_that_came_after_it",
            ),
        ],
    ),
    row(
        "B4",
        "links are monitored, added and removed at run time; failover",
        &[
            run("failover", &[], &["stall_ms_max", "silent_stall_ms_max", "checksum_ok"]),
            Test(
                "crates/rove/tests/netns_bonding.rs",
                "links_come_and_go_and_carry_within_two_seconds",
            ),
        ],
    ),
    row(
        "B5",
        "priority of destinations by the advertised window",
        &[run("priority", &[], &["share_ratio", "preferred_of_due_min"])],
    ),
    row(
        "B6",
        "low-latency destinations",
        &[run("latency-qos", &[], &["average_ms", "mdev_ms", "max_ms", "average_ratio"])],
    ),
    printed(
        "B7",
        "VoIP recognised by RTP, sent on the lowest-latency link",
        "Discord yes, DNS no (VOIP Extension)",
        &[
            run("voip", &[], &["p99_over_idle_ms", "mos"]),
            Test(
                "crates/proto/tests/rtp_captures.rs",
                "every_call_is_found_and_nothing_else_is_taken_for_one",
            ),
        ],
    ),
    row(
        "B8",
        "gateway with NAT; default route through the tunnel",
        &[
            Test(
                "crates/rove/tests/netns_tunnel.rs",
                "a_gateway_translates_for_clients_that_the_world_does_not_know",
            ),
            Test(
                "crates/os/tests/netns_plan.rs",
                "packets_of_clients_leave_with_the_gateways_address",
            ),
        ],
    ),
    printed(
        "B9",
        "a client without any link stays known and comes back",
        "download continues (Mobility)",
        &[run("disconnects", &[], &["restart_ms_max", "checksum_ok"])],
    ),
    printed(
        "B10",
        "losses hidden from TCP: link-layer retransmission, selective ACKs",
        "tried, failed (Challenges)",
        &[run("symmetric", &[], &["share_of_best_min", "retransmitted_percent_max"])],
    ),
];

#[cfg(test)]
mod tests {
    use super::{Judge, ROWS};
    use crate::scenario::find;
    use crate::scenario::settings::Settings;
    use std::path::Path;

    #[test]
    fn the_rows_are_those_of_the_five_systems() {
        let systems = [("M", 13), ("T", 9), ("A", 10), ("L", 7), ("B", 10)];
        let names = |(letter, count)| (1..=count).map(move |number| format!("{letter}{number}"));
        let expected: Vec<String> = systems.into_iter().flat_map(names).collect();
        assert_eq!(ROWS.iter().map(|row| row.name).collect::<Vec<_>>(), expected);
        for row in ROWS {
            assert!(!row.judges.is_empty() && !row.mechanism.contains('|'), "{}", row.name);
        }
    }

    #[test]
    fn every_run_is_one_of_a_scenario_and_every_test_is_in_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for row in ROWS {
            for judge in row.judges {
                match judge {
                    Judge::Run(run) => {
                        let about = find(run.scenario).expect(row.name).about();
                        let set: Vec<String> = run.set.iter().map(|&text| text.into()).collect();
                        Settings::parse(about.settings, &set).unwrap();
                        let known = |key: &str| about.keys.iter().any(|one| one.name == key);
                        assert!(!run.keys.is_empty(), "{}", row.name);
                        assert!(run.keys.iter().all(|key| known(key)), "{}", row.name);
                    }
                    Judge::Test(file, name) => {
                        let text = std::fs::read_to_string(root.join(file)).expect(file);
                        let is_test = text.contains(&format!("#[test]\nfn {name}()"))
                            || text.contains(&format!("#[test]\n    fn {name}()"));
                        assert!(is_test, "{}: there is no test {name} in {file}", row.name);
                    }
                    Judge::NotBuilt(what) => assert!(!what.is_empty(), "{}", row.name),
                }
            }
        }
    }
}
