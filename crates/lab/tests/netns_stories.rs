//! Stories told to their end on namespaces, most of them through the real binary, and what the
//! lab leaves behind when it is ended in the middle of one.
//!
//! What links that go and come back do to connections is in `netns_outages`, what others measure
//! beside Rove in `netns_compared`, that every control fails in `netns_controls`, that virtual time
//! agrees in `netns_agreement`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it prints"
)]

#[path = "netns_stories/refusals.rs"]
mod refusals;
mod support;

use rove_lab::scenario::SCENARIOS;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{
    AT_A_TIME, LAB, ONCE, assert_schema, assert_verdict_follows, lab, rove, run, run_quick,
    side_by_side, text, turn,
};

#[test]
fn a_tunnel_loses_nothing_and_costs_27_bytes_a_packet() {
    let Some(_turn) = turn() else { return };
    let (object, _) = run_quick("tunnel", &[]);
    let measured = &object["measured"];
    assert_eq!(measured["checksum_ok"], true, "{object}");
    assert_eq!(measured["lost_packets"], 0, "{object}");
    assert_eq!(measured["overhead_bytes"], 27.0, "{object}");
    let number = |key: &str| measured[key].as_f64().unwrap();
    assert!(number("goodput_mbps") < 20.0, "no faster than the link: {object}");
    assert!(number("rtt_us") >= 40_000.0, "no shorter than the link: {object}");
    assert_eq!(object["rove_sha256"], rove().sha256.as_str());
    assert_eq!(object["settings"]["seconds"], "2");
}

#[test]
fn a_tunnel_needs_no_program_for_packet_filters() {
    let Some(_turn) = turn() else { return };
    // What is for root alone is hidden, nft with it, and the tunnel is there all the same.
    let script = "mount -t tmpfs none /usr/sbin && export PATH=/usr/bin:/bin && \
         ! command -v nft && exec \"$0\" run tunnel --json --set seconds=2 --set attempts=1 \
         --set \"$1\"";
    let (namespaces, rove) = (["--user", "--map-root-user", "--mount"], rove());
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["sh", "-c", script, LAB]);
    let output = command.arg(format!("rove={}", rove.path.display())).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    let object: Value = serde_json::from_str(said.trim()).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(object["measured"]["checksum_ok"], true, "{said}");
}

#[test]
fn an_ordinary_user_sees_a_tunnel_too() {
    let Some(_turn) = turn() else { return };
    if !rustix::process::getuid().is_root() {
        return; // every other test here is told by an ordinary user then
    }
    // Where root builds, nobody may not go; and where only root may open the device, he may.
    let dir = std::env::temp_dir().join(format!("rove-lab-user-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::copy(LAB, dir.join("rove-lab")).unwrap();
    std::fs::copy(&rove().path, dir.join("rove")).unwrap();
    let script = "cd \"$0\" && mknod tun c 10 200 && chmod 666 tun && \
         mount --bind tun /dev/net/tun && HOME=/ exec nice setpriv --reuid=65534 --regid=65534 \
         --clear-groups ./rove-lab run tunnel --json --set seconds=2 --set rove=./rove \
         --set attempts=1";
    let output = Command::new("unshare").args(["-m", "sh", "-c", script]).arg(&dir).output();
    std::fs::remove_dir_all(&dir).unwrap();
    let output = output.unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    let object: Value = serde_json::from_str(said.trim()).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(object["measured"]["checksum_ok"], true, "{said}");
}

#[test]
fn a_client_that_moves_keeps_its_download() {
    let Some(_turn) = turn() else { return };
    let (object, _) = run_quick("roam-client", &[]);
    let measured = &object["measured"];
    assert_eq!(measured["checksum_ok"], true, "{object}");
    let round_trip_ms = object["samples"]["drawn_ms"][0].as_f64().unwrap();
    for key in ["still_ms_median", "idle_still_ms"] {
        let still_ms = measured[key].as_f64().unwrap();
        assert!(still_ms >= round_trip_ms, "not faster than a round trip can be: {object}");
    }
    assert_eq!(object["samples"]["still_ms"].as_array().unwrap().len(), 2);
}

#[test]
fn a_move_over_the_bare_link_costs_half_a_round_trip_and_seeds_have_a_summary() {
    let Some(_turn) = turn() else { return };
    let settings = ["bare=true", "moves=1", "megabytes=1", ONCE];
    let (objects, status) = run("roam-client", &["--seeds", "1"], &settings);
    let [object, summary] = objects.as_slice() else { panic!("{} objects", objects.len()) };
    assert_schema(object, "roam-client", true);
    assert_eq!(object["measured"]["checksum_ok"], true);
    let still = |object: &Value| object["measured"]["still_ms_median"].as_f64().unwrap();
    let round_trip_ms = object["samples"]["drawn_ms"][0].as_f64().unwrap();
    let half = round_trip_ms / 2.0..500.0;
    assert!(half.contains(&still(object)), "the address follows: {object}");
    assert_eq!((&summary["seeds"], &summary["seed"]), (&1.into(), &Value::Null));
    assert_eq!((still(summary), &summary["pass"]), (still(object), &object["pass"]));
    assert_eq!(summary["worst"]["still_ms_median"], object["measured"]["still_ms_median"]);
    assert_verdict_follows(object, status);
}

/// In each of the four networks, whatever the figures are: a stream carries, and UDP afterwards.
#[test]
fn streams_stand_in_where_udp_is_blocked() {
    let Some(_turn) = turn() else { return };
    let (object, _) = run_quick("udp-blocked", &["cell=all"]);
    let measured = &object["measured"];
    assert_eq!(measured["alive"], true, "{object}");
    assert_eq!(
        (&measured["transports_ok"], &measured["checksum_ok"]),
        (&true.into(), &true.into())
    );
    let scenario =
        SCENARIOS.iter().find(|scenario| scenario.about().name == "udp-blocked").unwrap();
    for key in scenario.about().keys {
        assert!(measured[key.name].is_number() || measured[key.name].is_boolean(), "{object}");
    }
}

/// What a scenario tells only of cells that its quick story has not, or of a TCP that counts what
/// it sends again: the kernel's is not asked.
fn told_of_some(scenario: &str) -> &'static [&'static str] {
    match scenario {
        "symmetric" => &[
            "retransmitted_percent_max",
            "of_mqvpn_hybrid_lossy_min",
            "others_share_of_sum_min",
            "queues_ok",
            "over_one_link_min",
            "mptcp_over_tcp_min",
        ],
        "asymmetric" => &[
            "retransmitted_percent_max",
            "others_share_of_sum_min",
            "queues_ok",
            "share_of_offered_min",
            "share_of_offered_lossy_min",
            "feedback_percent_recorded_max",
        ],
        "mesh" => &["retransmitted_percent_max"],
        _ => &[],
    }
}

/// Whatever the figures are on a busy machine: the story has an end, the session is alive then,
/// and there is a figure for every key.
#[test]
fn stories_are_told_to_their_end() {
    let Some(_turn) = turn() else { return };
    let moves = ["roam-gateway", "nat-rebind", "family", "resume-loss", "subnets", "hop"];
    let others =
        ["idle", "restart-gateway", "both-move", "symmetric", "asymmetric", "failover", "mesh"];
    let stories = [&moves[..], &others].concat();
    side_by_side(AT_A_TIME, &stories, |name| {
        let (object, _) = run_quick(name, &[]);
        assert_eq!(object["measured"]["alive"], true, "{object}");
        let scenario = SCENARIOS.iter().find(|scenario| scenario.about().name == name).unwrap();
        for key in scenario.about().keys {
            let is_told = !object["measured"][key.name].is_null();
            assert_eq!(is_told, !told_of_some(name).contains(&key.name), "{}: {object}", key.name);
        }
    });
}

/// Nobody tells the client, nobody can reach it, and it has nothing to say but its first keepalive.
#[test]
fn a_quiet_client_finds_a_gateway_that_moved_unannounced() {
    let Some(_turn) = turn() else { return };
    let settings = ["announced=false", "nat=port", "says=keepalive"];
    let (object, _) = run_quick("roam-gateway", &settings);
    let measured = &object["measured"];
    assert_eq!(
        (&measured["alive"], &measured["never_back"]),
        (&true.into(), &0.into()),
        "{object}"
    );
}

/// A `rove` whose client dies three seconds after it was started.
fn mortal_rove() -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("rove-lab-mortal-{}", std::process::id()));
    let rove = rove().path.display();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = up ] || exec {rove} \"$@\"\n{rove} \"$@\" &\nsleep 3\nkill -9 $!\n\
         echo it is dead >&2\nexit 1\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_rove_that_dies_is_a_result() {
    let Some(_turn) = turn() else { return };
    let path = mortal_rove();
    let rove = format!("rove={}", path.display());
    let (objects, status) = run("tunnel", &[], &["seconds=2", &rove, ONCE]);
    std::fs::remove_file(path).unwrap();
    let object = &objects[0];
    assert_eq!((object["pass"].as_bool(), status), (Some(false), 1), "{object}");
    assert_eq!(
        (&object["measured"]["alive"], &object["measured"]["checksum_ok"]),
        (&Value::Bool(false), &Value::Bool(false))
    );
    assert!(object["measured"]["goodput_mbps"].is_null(), "{object}");
    let reason = object["reason"].as_str().unwrap();
    assert!(reason.starts_with("rove up on client ended; it said: "), "{reason}");
    assert!(reason.contains("it is dead"), "its last words: {reason}");
}

#[test]
fn the_demonstration_shows_a_download_that_survives_within_40_s() {
    let Some(_turn) = turn() else { return };
    let path = &rove().path;
    let start = Instant::now();
    let output = lab(&["demo", "--rove", &path.display().to_string()]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    assert!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    let expected =
        ["gateway", "of 30.0 MB", "leaves home for the cafe", "just what the server holds"];
    for part in expected.iter().chain(&["standstill", "The connection "]) {
        assert!(shown.contains(part), "{part} is missing:\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "no colour where there is no terminal");
}

/// Starts the demonstration and waits until its download runs.
fn start_demo() -> (std::process::Child, Vec<u32>) {
    let mut child = Command::new(LAB)
        .args(["demo", "--bare"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let begun = lines.any(|line| line.unwrap().contains(" of 30.0 MB"));
    assert!(begun, "the demonstration ended early");
    std::thread::spawn(move || lines.for_each(drop));
    let children = children_of(child.id());
    assert!(children.len() >= 7, "six servers and a download: {children:?}");
    (child, children)
}

/// The fields of `/proc/ID/stat` after the name: state, parent, ... Empty when it is gone.
fn status_of(id: u32) -> Vec<String> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or("");
    after_name.split_whitespace().map(str::to_owned).collect()
}

fn children_of(parent: u32) -> Vec<u32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|id| status_of(*id).get(1) == Some(&parent.to_string()))
        .collect()
}

fn assert_gone(processes: &[u32]) {
    let end = Instant::now() + Duration::from_secs(5);
    // A zombie that nobody has reaped yet is gone for our purposes.
    let alive = |id: &u32| status_of(*id).first().is_some_and(|state| state != "Z");
    while processes.iter().any(alive) {
        assert!(Instant::now() < end, "still there: {processes:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn directory_of(lab: u32) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("rove-lab-{lab}"))
}

#[test]
fn a_killed_lab_leaves_no_process_behind() {
    let Some(_turn) = turn() else { return };
    let (mut demo, children) = start_demo();
    demo.kill().unwrap();
    demo.wait().unwrap();
    assert_gone(&children);
    // Its empty directory is swept by the next lab.
    assert!(lab(&["probe"]).status.success());
    assert!(!directory_of(demo.id()).exists());
}

#[test]
fn an_interrupted_lab_cleans_up_and_says_so_by_its_status() {
    let Some(_turn) = turn() else { return };
    let (mut demo, children) = start_demo();
    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130));
    assert_gone(&children);
    assert!(!directory_of(demo.id()).exists());
}
