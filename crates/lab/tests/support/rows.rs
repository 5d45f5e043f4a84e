//! What the tests say of each scenario: one row. A new scenario needs one here and nowhere else.

#![allow(dead_code, reason = "each test program reads its own part")]

use rove_lab::scenario::SCENARIOS;

/// A scenario as the tests know it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// What `rove-lab list` says.
    pub(crate) summary: &'static str,
    /// Agreed keys, with commas: whoever reads the JSON relies on them.
    pub(crate) keys: &'static str,
    /// Settings that make it short in virtual time.
    pub(crate) short: &'static [&'static str],
    /// Keys of cells that it does not tell in what is short: without losses, of others than TCP, of
    /// recorded networks; and processor time, which virtual time has none of.
    pub(crate) not_in_short: &'static [&'static str],
    /// What its control breaks in virtual time.
    pub(crate) broken: &'static [&'static str],
    /// Settings that make it short over the real binary.
    pub(crate) quick: &'static [&'static str],
    /// What its control breaks there, whatever else the machine does; nothing where nobody knows.
    pub(crate) broken_quick: &'static [&'static str],
}

/// The row of a scenario.
pub(crate) fn row(name: &str) -> &'static Row {
    let row = ROWS.iter().find(|row| row.name == name);
    row.unwrap_or_else(|| panic!("{name} needs a row in tests/support/rows.rs"))
}

/// The row of each scenario, in the order in which they are listed.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    SCENARIOS.iter().map(|scenario| row(scenario.about().name))
}

const ROWS: &[Row] = &[
    Row {
        name: "tunnel",
        summary: "one client, one gateway: goodput, round trip and overhead beside the bare link",
        keys: "goodput_mbps, bare_goodput_mbps, rtt_us, bare_rtt_us, overhead_bytes, lost_packets",
        short: &["seconds=3"],
        not_in_short: &[],
        broken: &["goodput_over_bare", "checksum_ok"],
        quick: &["seconds=2"],
        broken_quick: &["goodput_over_bare", "checksum_ok"],
    },
    Row {
        name: "roam-client",
        summary: "the client changes its address, busy, idle and during a download",
        keys: "still_ms_median, still_ms_max, still_with_detection_ms, rtt_ms, resumption_ms, \
            signalling_ms, idle_still_ms, known_link_still_ms, known_link_lost, transfer_s, \
            lost_packets, checksum_ok",
        short: &["moves=4", "megabytes=8", "known=2"],
        not_in_short: &[],
        broken: &["still_ms_median", "checksum_ok"],
        quick: &["moves=2", "megabytes=2", "known=1", "baseline=false"],
        broken_quick: &["still_ms_median", "checksum_ok"],
    },
    Row {
        name: "roam-gateway",
        summary: "the gateway changes its address under quiet clients",
        keys: "clients, announced, last_back_ms, lost_packets",
        short: &["clients=8"],
        not_in_short: &["gateway_cpu_ms"],
        broken: &["never_back", "lost_packets"],
        quick: &[],
        broken_quick: &["last_back_ms", "lost_packets"],
    },
    Row {
        name: "blackhole",
        summary: "a link that is up carries nothing: who notices when, and how soon all is well \
                  again",
        keys: "noticed_ms, rtt_ms, status_ms",
        short: &["outage=3", "late=120", "holes=3"],
        not_in_short: &[],
        broken: &["return_ms_max"],
        quick: &["outage=1", "late=0", "holes=1"],
        broken_quick: &["return_ms_max"],
    },
    Row {
        name: "nat-rebind",
        summary: "the NAT box before the client changes its ports or starts anew, busy and idle",
        keys: "lost_packets, still_ms_max",
        short: &["changes=12", "idle=4"],
        not_in_short: &[],
        broken: &["still_ms_median", "lost_beyond_flight"],
        quick: &["changes=1", "idle=1"],
        broken_quick: &["lost_beyond_flight"],
    },
    Row {
        name: "family",
        summary: "the client goes from IPv4 to IPv6 and back",
        keys: "lost_packets, still_ms_max",
        short: &["moves=4"],
        not_in_short: &[],
        broken: &["still_ms_median", "lost_beyond_flight"],
        quick: &["moves=2"],
        broken_quick: &["lost_beyond_flight"],
    },
    Row {
        name: "resume-loss",
        summary: "what a steady flow loses in one to five moves, announced and not",
        keys: "lost_packets, still_ms_max",
        short: &["moves=3"],
        not_in_short: &[],
        broken: &["lost_beyond_flight"],
        quick: &["moves=1"],
        broken_quick: &["lost_beyond_flight"],
    },
    Row {
        name: "idle",
        summary: "what a silent session costs a day, behind NAT boxes and without one",
        keys: "bytes_per_day_nat, bytes_per_day_open, packets_60s",
        short: &["hours=24"],
        not_in_short: &[],
        broken: &["lost_afterwards"],
        quick: &["seconds=2", "learning=0", "listening=0"],
        broken_quick: &["lost_afterwards"],
    },
    Row {
        name: "restart-gateway",
        summary: "the gateway's process is gone for a second, killed or in order",
        keys: "lost_packets, still_ms_max",
        short: &["restarts=2"],
        not_in_short: &[],
        broken: &["back_ms_max", "lost_beyond_absence"],
        quick: &["restarts=1"],
        broken_quick: &["lost_beyond_absence"],
    },
    Row {
        name: "subnets",
        summary: "a browser downloads across three subnets",
        keys: "still_ms_max, checksum_ok",
        short: &[],
        not_in_short: &[],
        broken: &["checksum_ok"],
        quick: &["megabytes=8"],
        broken_quick: &["checksum_ok"],
    },
    Row {
        name: "hop",
        summary: "the gateway changes its address every 5 s for a minute, under load",
        keys: "lost_packets, still_ms_max",
        short: &["hops=4"],
        not_in_short: &[],
        broken: &["still_ms_median", "lost_packets"],
        quick: &["hops=1"],
        broken_quick: &["lost_packets"],
    },
    Row {
        name: "udp-blocked",
        summary: "a network blocks UDP, or more: streams stand in, and UDP takes over again",
        keys: "connect_ms, back_to_udp_ms",
        short: &["starts=2"],
        not_in_short: &[],
        broken: &["connect_ms", "transports_ok"],
        quick: &["starts=1", "cell=only-proxy"],
        broken_quick: &["connect_ms", "transports_ok"],
    },
    Row {
        name: "udp-policed",
        summary: "a network limits UDP and not TCP: a TCP path takes over",
        keys: "policed_share_min, checksum_ok, transports_ok",
        short: &[],
        not_in_short: &[],
        broken: &["policed_share_min", "transports_ok"],
        quick: &["network=policed", "transfer=down"],
        broken_quick: &["policed_share_min", "transports_ok"],
    },
    Row {
        name: "both-move",
        summary: "client and gateway move in the same moment, and nobody is told",
        keys: "lost_packets, still_ms_max",
        short: &["moves=2"],
        not_in_short: &[],
        broken: &["still_ms_max", "checksum_ok"],
        quick: &["moves=1"],
        broken_quick: &["still_ms_max"],
    },
    Row {
        name: "persist",
        summary: "open connections outlive gaps in which their server would give them up",
        keys: "cases, survived, held_bytes_max, checksum_ok",
        short: &["gap=45", "megabytes=10"],
        not_in_short: &[],
        broken: &["died"],
        quick: &["mode=off", "gap=1", "megabytes=10", "baseline=false"],
        broken_quick: &["died"],
    },
    Row {
        name: "disconnects",
        summary: "a transfer over a link that is gone for seconds, up to three times",
        keys: "goodput_share, restart_ms_median, restart_ms_max, gain_percent, gain_3x15s_percent",
        short: &["outages=1", "seconds=5"],
        not_in_short: &["gain_3x15s_percent"],
        broken: &["goodput_share", "checksum_ok"],
        quick: &["mode=off", "outages=1", "seconds=1", "megabytes=14"],
        broken_quick: &["goodput_share", "checksum_ok"],
    },
    Row {
        name: "commute",
        summary: "a transfer over a link that is there for 5 s and gone for 7 s, each time a new \
                  one",
        keys: "goodput_share, restart_ms_median, restart_ms_max",
        short: &["outages=2"],
        not_in_short: &[],
        broken: &["goodput_share", "checksum_ok"],
        quick: &["mode=off", "outages=1", "megabytes=14"],
        broken_quick: &["goodput_share", "checksum_ok"],
    },
    Row {
        name: "ssh-lid",
        summary: "an interactive session while the lid of its laptop is closed",
        keys: "survived, restart_ms_max",
        short: &["seconds=28800"],
        not_in_short: &[],
        broken: &["survived", "restart_ms_max"],
        quick: &["mode=off", "seconds=2"],
        broken_quick: &["survived"],
    },
    Row {
        name: "many-flows",
        summary: "500 connections are suspended and resumed at once",
        keys: "survived, restart_ms_max",
        short: &["connections=100"],
        not_in_short: &[],
        broken: &["survived", "restart_ms_max"],
        quick: &["mode=off", "connections=40", "seconds=1"],
        broken_quick: &["survived"],
    },
    Row {
        name: "symmetric",
        summary: "one connection over two links of 10 Mbit/s, beside one of them and their sum",
        keys: "share_of_sum_min, over_one_link_min, mptcp_over_tcp_min, share_of_best_min, \
            of_mqvpn_hybrid_min, of_mqvpn_hybrid_lossy_min, file_share_min, \
            feedback_percent_max, retransmitted_percent_max, table",
        short: &["seconds=6", "loss=1"],
        not_in_short: &[
            "of_mqvpn_hybrid_min",
            "others_share_of_sum_min",
            "queues_ok",
            "mptcp_over_tcp_min",
        ],
        broken: &["share_of_sum_min"],
        quick: &["rtt=20", "loss=0", "flow=tcp", "seconds=6", "megabytes=2", "compare=none"],
        broken_quick: &["share_of_sum_min"],
    },
    Row {
        name: "asymmetric",
        summary: "one connection over two links of different kinds, beside the better one",
        keys: "share_of_sum_min, share_of_best_min, share_of_offered_min, \
            share_of_offered_lossy_min, file_share_min, feedback_percent_max, \
            feedback_percent_recorded_max, retransmitted_percent_max, table",
        short: &["seconds=10", "loss=bursty"], // one burst in six seconds would turn it
        not_in_short: &[
            "others_share_of_sum_min",
            "queues_ok",
            "share_of_offered_min",
            "share_of_offered_lossy_min",
            "feedback_percent_recorded_max",
        ],
        broken: &["share_of_sum_min"],
        quick: &["pair=40/10+10/60", "loss=0", "flow=tcp", "seconds=6", "megabytes=4"],
        broken_quick: &["share_of_sum_min"],
    },
    Row {
        name: "split",
        summary: "one connection over two links between which delay and loss are split",
        keys: "share_of_sum_min, share_of_best_min, severe_lossy_mbps_min, file_share_min, \
            feedback_percent_max, retransmitted_percent_max, table",
        short: &["seconds=6", "links=10/8/0.3+10/12/0.7", "megabytes=2"],
        not_in_short: &["severe_lossy_mbps_min"],
        broken: &["share_of_sum_min"],
        quick: &["links=10/8/0.3+10/12/0.7", "seconds=6", "megabytes=2"],
        broken_quick: &["share_of_sum_min"],
    },
    Row {
        name: "failover",
        summary: "one of two links dies under a transfer and a call, announced and not, and \
                  returns",
        keys: "stall_ms_max, silent_stall_ms_max, later_pause_ms_max, before_share_min, \
            share_back_s, voip_late_packets, voip_extra_share, table",
        short: &["pair=10/20+10/20", "dies=first"],
        not_in_short: &[],
        broken: &["silent_stall_over_ms_max", "voip_late_packets", "before_share_min"],
        quick: &["pair=10/20+10/20", "dies=first", "down=1", "up=3"],
        broken_quick: &["silent_stall_over_ms_max", "voip_late_packets"],
    },
    Row {
        name: "modes",
        summary: "how soon a transfer recovers from the death of a link in each mode",
        keys: "full_recovery_ms, backup_recovery_ms, single_recovery_ms, backup_after_full_ms, \
            single_after_backup_ms, standby_bytes, table",
        short: &[],
        not_in_short: &[],
        broken: &["backup_after_full_ms", "single_after_backup_ms"],
        quick: &["by=event"],
        broken_quick: &["full_recovery_ms"],
    },
    Row {
        name: "schedulers",
        summary: "what each scheduler does with two links that no other does",
        keys: "mistaken, table",
        short: &[],
        not_in_short: &[],
        broken: &["rtt_burst_near", "latency_much_near", "mistaken"],
        quick: &["scheduler=redundant", "seconds=2"],
        broken_quick: &["redundant_few_bytes"],
    },
    Row {
        name: "subflows",
        summary: "one connection by 1 to 4 paths of each of two links, or of one",
        keys: "gain_over_tcp_percent, gain_over_udp_percent, share_of_sum_min, share_of_best_min, \
            file_share_min, feedback_percent_max, retransmitted_percent_max, table",
        short: &["seconds=6", "loss=0"],
        not_in_short: &["gain_over_tcp_percent"],
        broken: &["share_of_sum_min"],
        quick: &["rtt=20", "loss=0", "subflows=2", "seconds=6", "megabytes=2"],
        broken_quick: &["share_of_sum_min"],
    },
    Row {
        name: "mesh",
        summary: "one connection over four links to a gateway with two addresses",
        keys: "share_of_sum_min, share_of_best_min, file_share_min, feedback_percent_max, \
            retransmitted_percent_max, table",
        short: &["seconds=6", "loss=0"],
        not_in_short: &[],
        broken: &["share_of_sum_min"],
        quick: &["links=10/20+10/20+10/20+10/20", "loss=0", "seconds=6", "megabytes=2"],
        broken_quick: &["share_of_sum_min"],
    },
    Row {
        name: "voip",
        summary: "a call beside transfers that take all that two links have",
        keys: "p99_over_idle_ms, lost_packets, jitter_ms, mos, late_share, bulk_share_min, \
            checksum_ok",
        short: &["seconds=10"],
        not_in_short: &[],
        broken: &["p99_over_idle_ms", "bulk_share_min"],
        quick: &["seconds=10"],
        broken_quick: &["p99_over_idle_ms"],
    },
    Row {
        name: "latency-qos",
        summary: "round trips to a destination that is wanted early, beside transfers",
        keys: "p99_over_idle_ms, average_ratio, average_ms, max_ms, mdev_ms, average_without_ms, \
            max_without_ms, mdev_without_ms, lost_packets, jitter_ms, mos, late_share, \
            bulk_share_min, checksum_ok",
        // Of 500 packets the 99th percentile is the fifth worst, which is chance; here the tenth.
        short: &["seconds=20"],
        not_in_short: &[],
        broken: &["p99_over_idle_ms", "average_ratio"],
        quick: &["seconds=10", "links=lossless"],
        broken_quick: &["p99_over_idle_ms"],
    },
    Row {
        name: "priority",
        summary: "transfers from several servers over one link, of which one is preferred",
        keys: "share_ratio, preferred_of_due_min, second_over_third",
        short: &["seconds=20"],
        not_in_short: &[],
        broken: &["share_ratio", "preferred_of_due_min"],
        quick: &["seconds=10"],
        broken_quick: &["share_ratio"],
    },
    Row {
        name: "first-download",
        summary: "the first seconds of a session, over a steady link and a bloated modem",
        keys: "share_of_sum_min, checksum_ok, table",
        short: &["cc=cubic"],
        not_in_short: &[],
        broken: &["share_of_sum_min"],
        quick: &["cc=cubic", "modem=4/1000", "seconds=4"],
        broken_quick: &["share_of_sum_min"],
    },
    Row {
        name: "lossy-uplink",
        summary: "an upload over two links, of which one loses half upwards",
        keys: "share_of_sound_min, checksum_ok, table",
        short: &["cc=cubic"],
        not_in_short: &[],
        broken: &["share_of_sound_min"],
        quick: &["cc=cubic", "pair=10/60+40/20", "seconds=6"],
        broken_quick: &["share_of_sound_min"],
    },
    Row {
        name: "busy-sessions",
        summary: "a new session for each download, over two fast links that lose a little",
        keys: "share_of_sum_min, share_of_sum_median, checksum_ok, table",
        short: &["sessions=1"],
        not_in_short: &[],
        broken: &["share_of_sum_min"],
        quick: &["sessions=1", "seconds=4"],
        broken_quick: &["share_of_sum_min"],
    },
    Row {
        name: "compress",
        summary: "downloads that compression shortens or not: bytes, operations and goodput by who \
                  decides",
        keys: "bytes_share, operations_share, goodput_share, bytes_against_none, \
            incompressible_cost_share, letter_saved_share, incompressible_operations_share, \
            both_bytes_share, both_operations_share, operations, mean_datagram_bytes, \
            checksum_ok, table",
        short: &["megabytes=8"],
        not_in_short: &[],
        broken: &["operations_share"],
        quick: &["megabytes=4"],
        broken_quick: &[],
    },
    Row {
        name: "headers",
        summary: "bytes beyond the inner packet by kind of flow, and a download over two links",
        keys: "bytes_beyond_inner_bulk_v4, bytes_beyond_inner_bulk_v6, \
            bytes_beyond_inner_quic_v4, bytes_beyond_inner_rtp_v4, \
            bytes_beyond_inner_telemetry_v4, goodput_mbps, checksum_ok",
        short: &["seconds=10"],
        not_in_short: &[],
        broken: &[
            "bytes_beyond_inner_bulk_v4",
            "bytes_beyond_inner_bulk_v6",
            "bytes_beyond_inner_quic_v4",
            "bytes_beyond_inner_rtp_v4",
            "goodput_mbps",
        ],
        quick: &["seconds=6"],
        broken_quick: &["bytes_beyond_inner_bulk_v4", "bytes_beyond_inner_rtp_v4"],
    },
    Row {
        name: "bond",
        summary: "one connection each way over the two hotspots of Multilink VPN",
        keys: "down_mbps, up_mbps, latency_over_best, rate_over_best, latency_over_rate, \
            share_of_sum_min, share_of_best_min, file_share_min, feedback_percent_max, \
            retransmitted_percent_max, table",
        // Both losses, and others than TCP.
        short: &["seconds=12", "megabytes=2"],
        not_in_short: &[],
        broken: &["share_of_sum_min"],
        quick: &["loss=0", "flow=tcp", "seconds=6", "megabytes=1"],
        broken_quick: &["share_of_sum_min"],
    },
    Row {
        name: "shared-bottleneck",
        summary: "several paths through one queue, beside somebody who has no tunnel",
        keys: "ratio_to_one_flow, left_share, left_share_min, table",
        short: &["beside=cubic", "seconds=30"],
        not_in_short: &[],
        broken: &["ratio_to_one_flow"],
        quick: &["beside=cubic", "paths=2-links", "seconds=20", "stories=1"],
        broken_quick: &["ratio_to_one_flow"],
    },
    Row {
        name: "competition",
        summary: "one connection beside one of somebody who has no tunnel and fills the queue",
        keys: "share_of_bare, left_share, share_of_bare_min, share_of_bare_max, left_share_min, \
            table",
        // By BBR: what controls inside and what controls the path are the likeliest to fight. Four
        // stories of one cell are chance: they would be 0.7 to 1.1 of a bare one's.
        short: &["beside=grid", "queue=100", "cc=bbr"],
        not_in_short: &[],
        broken: &["share_of_bare"],
        quick: &["beside=cubic", "queue=40", "seconds=20", "stories=1"],
        broken_quick: &["share_of_bare_min"],
    },
    Row {
        name: "gso-mangled",
        summary: "hosts whose segmentation offload loses datagrams: who notices, and how soon",
        keys: "goodput_share, noticed_s, false_alarms, healthy_share, table",
        short: &["seconds=6", "mbps=20"],
        not_in_short: &[],
        broken: &["goodput_share"],
        quick: &["seconds=4", "mbps=20", "to=client", "mangled=every"],
        broken_quick: &["goodput_share"],
    },
    Row {
        name: "random-links",
        summary: "transfers and a call over links drawn at random, that nobody tuned for",
        keys: "share_of_sum_median, share_of_sum_p10, better_link_share_median, \
            p99_over_idle_ms_median, p99_over_idle_ms_p90, late_share_mean, fairness_p10, \
            table",
        short: &["draws=8", "seconds=5"],
        not_in_short: &[],
        broken: &["share_of_sum_median"],
        quick: &["draws=1", "seconds=4"],
        broken_quick: &[],
    },
];
