//! Stories in which a link goes and comes back under open connections.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it prints"
)]

mod support;

use support::{AT_A_TIME, run_quick, side_by_side, skip, turn};

#[test]
fn a_hole_is_noticed_while_data_flows_and_passes() {
    let Some(_turn) = turn() else { return };
    let (object, _) = run_quick("blackhole", &[]);
    let measured = &object["measured"];
    for key in ["noticed_ms", "still_ms_max", "return_ms_max", "rtt_ms"] {
        assert!(measured[key].is_number(), "{key}: {object}");
    }
    let number = |key: &str| measured[key].as_f64().unwrap();
    assert!(number("noticed_ms") < 2_000.0 && number("return_ms_max") < 2_000.0, "{object}");
}

/// A gap that is shorter than any patience: every connection is there after it, and every byte as
/// it was sent, whatever Rove does with it meanwhile.
#[test]
fn connections_are_there_after_a_short_gap_and_nothing_in_them_is_altered() {
    let Some(_turn) = turn() else { return };
    side_by_side(
        AT_A_TIME,
        &["persist", "disconnects", "commute", "ssh-lid", "many-flows"],
        |name| {
            let (object, _) = run_quick(name, &[]);
            let measured = &object["measured"];
            let intact = if name == "ssh-lid" { "lines_ok" } else { "checksum_ok" };
            assert_eq!((&measured["alive"], &measured[intact]), (&true.into(), &true.into()));
            let restarts = object["samples"]["restart_ms"].as_array().unwrap();
            assert!(!restarts.is_empty(), "the link went and came back: {object}");
            match name {
                "persist" => {
                    assert_eq!((&measured["cases"], &measured["died"]), (&3.into(), &0.into()))
                }
                "ssh-lid" => assert_eq!(measured["survived"], true, "{object}"),
                "many-flows" => {
                    assert_eq!((&measured["survived"], restarts.len()), (&40.into(), 40))
                }
                _ => {
                    let share = measured["goodput_share"].as_f64().unwrap();
                    assert!((0.02..2.0).contains(&share), "{object}");
                }
            }
        },
    );
}

/// Both ways in which a link goes, and all ways in which ends control their rate.
#[test]
fn an_event_and_every_congestion_control_can_be_told() {
    let Some(_turn) = turn() else { return };
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let known = std::fs::read_to_string(path).unwrap();
    let (known, unknown): (Vec<&str>, Vec<&str>) = ["cubic", "reno", "bbr"]
        .iter()
        .partition(|one| known.split(' ').any(|it| it.trim() == **one));
    if !unknown.is_empty() {
        skip("congestion control", &format!("the kernel does not know {}", unknown.join(", ")));
    }
    side_by_side(AT_A_TIME, &known, |control| {
        let plot = std::env::temp_dir().join(format!("rove-lab-{}-{control}", std::process::id()));
        let more = [
            "by=event".to_owned(),
            "transfer=down".to_owned(),
            format!("cc={control}"),
            format!("plot={}", plot.display()),
        ];
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let (object, _) = run_quick("disconnects", &more);
        assert_eq!(object["measured"]["checksum_ok"], true, "{object}");
        let drawn = std::fs::read_to_string(&plot).unwrap();
        std::fs::remove_file(&plot).unwrap();
        assert!(drawn.contains("1 x 1 s"), "{drawn}");
    });
}
