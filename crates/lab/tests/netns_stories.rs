//! Stories told to their end on namespaces, most of them through the real binary, and what the
//! lab leaves behind when it is ended in the middle of one.
//!
//! The machine may be busy, so nothing here judges milliseconds: checksums, counts, what the JSON
//! holds, and that every control fails. So a story is told once, however late the emulator is, and
//! many two at a time. Only what compares real time with virtual is alone, and told again.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it prints"
)]

use rove_lab::scenario::SCENARIOS;
use rove_lab::scenario::binary::{Binary, Profile};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

#[path = "netns_stories/outages.rs"]
mod outages;
#[path = "netns_stories/refusals.rs"]
mod refusals;

const LAB: &str = env!("CARGO_BIN_EXE_rove-lab");

/// No figure is judged, so none has to be right.
const ONCE: &str = "attempts=1";

/// Tests that tell stories take turns.
static TURN: Mutex<()> = Mutex::new(());

fn lab(arguments: &[&str]) -> Output {
    Command::new(LAB).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits for a turn, or says why there can be none.
fn turn() -> Option<MutexGuard<'static, ()>> {
    let probe = lab(&["probe"]);
    if probe.status.success() {
        return Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
    }
    skip("namespaces", text(&probe.stderr).trim());
    None
}

/// Something is missing that a test needs: visible, and a failure where everything must be there.
fn skip(what: &str, why: &str) {
    println!("SKIP {what}: {why}");
    let required = std::env::var("ROVE_TEST_REQUIRE").is_ok_and(|value| value == "all");
    assert!(!required, "ROVE_TEST_REQUIRE=all forbids to skip");
}

/// The binary of these sources, quickly built: no figure is judged here.
fn rove() -> &'static Binary {
    static ROVE: OnceLock<Binary> = OnceLock::new();
    ROVE.get_or_init(|| Binary::of_this_lab(Profile::Dev).unwrap())
}

/// Runs a scenario with `--json` and returns its objects and exit status.
fn run(scenario: &str, options: &[&str], settings: &[&str]) -> (Vec<Value>, i32) {
    let mut arguments = [&["run", scenario, "--json"], options].concat();
    for setting in settings {
        arguments.extend(["--set", *setting]);
    }
    let output = lab(&arguments);
    let said = text(&output.stderr);
    assert!(said.is_empty(), "{said}");
    let objects = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    (objects, output.status.code().unwrap())
}

/// The settings of a scenario that make it short, over the real binary.
fn quick(scenario: &str) -> Vec<String> {
    let short: &[&str] = match scenario {
        "tunnel" => &["seconds=2"],
        "roam-client" => &["moves=2", "megabytes=2", "known=1", "baseline=false"],
        "blackhole" => &["outage=1", "late=0", "holes=1"],
        "nat-rebind" => &["changes=1", "idle=1"],
        "family" => &["moves=2"],
        "resume-loss" | "both-move" => &["moves=1"],
        "idle" => &["seconds=2", "learning=0", "listening=0"],
        "restart-gateway" => &["restarts=1"],
        "subnets" => &["megabytes=8"],
        "hop" => &["hops=1"],
        "roam-gateway" => &[],
        "udp-blocked" => &["starts=1", "cell=only-proxy"],
        "persist" => &["mode=off", "gap=1", "megabytes=10", "baseline=false"],
        "disconnects" => &["mode=off", "outages=1", "seconds=1", "megabytes=14"],
        "commute" => &["mode=off", "outages=1", "megabytes=14"],
        "ssh-lid" => &["mode=off", "seconds=2"],
        "many-flows" => &["mode=off", "connections=40", "seconds=1"],
        "symmetric" => &["rtt=20", "loss=0", "flow=tcp", "seconds=6", "megabytes=2"],
        "asymmetric" => &["pair=40/10+10/60", "loss=0", "flow=tcp", "seconds=6", "megabytes=4"],
        "subflows" => &["rtt=20", "loss=0", "subflows=2", "seconds=6", "megabytes=2"],
        "voip" | "priority" => &["seconds=10"],
        "latency-qos" => &["seconds=10", "links=lossless"],
        "bond" => &["loss=0", "flow=tcp", "seconds=6", "megabytes=1"],
        "shared-bottleneck" => &["beside=cubic", "paths=2-links", "seconds=20"],
        "competition" => &["beside=cubic", "queue=40", "seconds=20"],
        "failover" => &["pair=10/20+10/20", "dies=first", "down=1", "up=3"],
        "mesh" => &["links=10/20+10/20+10/20+10/20", "loss=0", "seconds=6", "megabytes=2"],
        other => panic!("{other} needs its quick settings here"),
    };
    let more = [format!("rove={}", rove().path.display()), ONCE.to_owned()];
    short.iter().map(|setting| (*setting).to_owned()).chain(more).collect()
}

/// Tells stories two at a time: each waits for real time more than it computes.
fn side_by_side(stories: &[&str], tell: impl Fn(&str) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(story) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    tell(story);
                }
            });
        }
    });
}

/// The one object of a quick run over the real binary, and the exit status.
fn run_quick(scenario: &str, more: &[&str]) -> (Value, i32) {
    let quick = quick(scenario);
    let settings: Vec<&str> =
        quick.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let (mut objects, status) = run(scenario, &[], &settings);
    assert_eq!(objects.len(), 1);
    let object = objects.remove(0);
    assert_schema(&object, scenario, false);
    assert_verdict_follows(&object, status);
    (object, status)
}

/// Every key that the specification of the JSON names, with what its value may be.
fn assert_schema(object: &Value, scenario: &str, bare: bool) {
    assert_eq!(object["scenario"], scenario);
    assert_eq!(object["where"], "netns");
    assert!(object["seed"].is_u64());
    for key in ["rove_version", "rove_sha256"] {
        assert_eq!(object[key].is_null(), bare, "which binary took part: {}", object[key]);
    }
    assert!(object["measured"].is_object() && object["samples"].is_object());
    assert!(object["baseline"].is_object() != object["baseline_reason"].is_string());
    assert!(object["paper"].is_object());
    for key in ["p99_ms", "max_ms", "after_moves_p99_ms"] {
        assert!(object["lateness"][key].is_number(), "{key}");
    }
    for limit in object["limits"].as_array().unwrap() {
        let [key, operator, _bound] = limit.as_array().unwrap().as_slice() else {
            panic!("{limit} is no triple")
        };
        assert!(object["measured"].get(key.as_str().unwrap()).is_some(), "{key}");
        assert!(["<=", ">=", "=="].contains(&operator.as_str().unwrap()));
    }
    for (key, value) in object["measured"].as_object().unwrap() {
        let single = value.is_null() || value.is_number() || value.is_boolean();
        assert!(single || (key == "table" && value.is_array()), "{key}: {value}");
    }
}

/// The verdict follows from limits and measured values. What those are in milliseconds is not for
/// this suite to judge: the machine may be busy.
fn assert_verdict_follows(object: &Value, status: i32) {
    let mut limits = object["limits"].as_array().unwrap().iter();
    let all_hold = limits.all(|limit| holds(object, limit[0].as_str().unwrap()));
    match object["pass"].as_bool() {
        Some(pass) => assert_eq!((pass, status), (all_hold, i32::from(!all_hold)), "{object}"),
        // Lateness voids the run.
        None => assert_eq!((object["attempts"].as_u64(), status), (Some(1), 3), "{object}"),
    }
}

/// Whether the limit on a key holds.
fn holds(object: &Value, key: &str) -> bool {
    let mut limits = object["limits"].as_array().unwrap().iter();
    let limit = limits.find(|limit| limit[0] == key).unwrap();
    let value = &object["measured"][key];
    let (bound, number) = (&limit[2], value.as_f64());
    match limit[1].as_str().unwrap() {
        "<=" => number.is_some_and(|number| number <= bound.as_f64().unwrap()),
        ">=" => number.is_some_and(|number| number >= bound.as_f64().unwrap()),
        _ => value == bound || number.is_some_and(|number| Some(number) == bound.as_f64()),
    }
}

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
    for key in ["still_ms_median", "idle_still_ms"] {
        let still_ms = measured[key].as_f64().unwrap();
        assert!(still_ms >= 40.0, "not faster than a round trip can be: {object}");
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
    assert!((20.0..500.0).contains(&still(object)), "the address follows: {object}");
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

/// Whatever the figures are on a busy machine: the story has an end, the session is alive then,
/// and there is a figure for every key.
/// What a story tells only of cells that this one has not, or of a TCP that counts what it sends
/// again: the kernel's is not asked.
const TOLD_OF_SOME: [&str; 6] = [
    "retransmitted_percent_max",
    "of_mqvpn_hybrid_min",
    "of_mqvpn_hybrid_lossy_min",
    "share_of_offered_min",
    "share_of_offered_lossy_min",
    "feedback_percent_recorded_max",
];

#[test]
fn stories_are_told_to_their_end() {
    let Some(_turn) = turn() else { return };
    let moves = ["roam-gateway", "nat-rebind", "family", "resume-loss", "subnets", "hop"];
    let others =
        ["idle", "restart-gateway", "both-move", "symmetric", "asymmetric", "failover", "mesh"];
    let stories = [&moves[..], &others].concat();
    side_by_side(&stories, |name| {
        let (object, _) = run_quick(name, &[]);
        assert_eq!(object["measured"]["alive"], true, "{object}");
        let scenario = SCENARIOS.iter().find(|scenario| scenario.about().name == name).unwrap();
        let told = |name: &str| !TOLD_OF_SOME.contains(&name);
        let counted = scenario.about().keys.iter().filter(|key| told(key.name));
        for key in counted {
            assert!(!object["measured"][key.name].is_null(), "{}: {object}", key.name);
        }
    });
}

#[test]
fn every_control_fails() {
    let Some(_turn) = turn() else { return };
    let all: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.about().name).collect();
    side_by_side(&all, |name| {
        let (object, _) = run_quick(name, &["control=true"]);
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
            "both-move" => &["still_ms_max"],
            "persist" => &["died"],
            "disconnects" | "commute" => &["goodput_share", "checksum_ok"],
            "ssh-lid" | "many-flows" => &["survived"],
            "symmetric" | "asymmetric" | "subflows" | "mesh" | "bond" => &["share_of_sum_min"],
            "shared-bottleneck" => &["ratio_to_one_flow"],
            "competition" => &["share_of_bare_min"],
            "voip" | "latency-qos" => &["p99_over_idle_ms"],
            "priority" => &["share_ratio"],
            "failover" => &["silent_stall_over_ms_max", "voip_late_packets"],
            other => panic!("{other}: name here what its control breaks"),
        };
        // Not by the verdict, which a late emulator withdraws.
        for key in broken {
            assert!(!holds(&object, key), "{key} should not hold: {object}");
        }
    });
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

/// What a scenario measures in virtual time or on namespaces.
fn measured(scenario: &str, key: &str, place: &str, settings: &[&str]) -> f64 {
    let (objects, _) = run(scenario, &["--where", place], settings);
    objects[0]["measured"][key].as_f64().unwrap()
}

#[test]
fn virtual_time_agrees_with_namespaces_within_5_percent() {
    let Some(_turn) = turn() else { return };
    let rove = format!("rove={}", rove().path.display());
    let moves = ["moves=8", "megabytes=2", "baseline=false"];
    for (scenario, key, short) in [
        ("tunnel", "goodput_mbps", &["seconds=6"][..]),
        ("roam-client", "still_ms_median", &moves[..]),
        ("blackhole", "status_ms", &["outage=3", "late=0", "holes=1"][..]),
        ("nat-rebind", "still_ms_median", &["changes=4", "idle=1"][..]),
        ("family", "still_ms_median", &["moves=4"][..]),
        ("resume-loss", "still_ms_median", &["moves=2"][..]),
        ("restart-gateway", "back_ms_max", &["restarts=1"][..]),
        ("roam-gateway", "last_back_ms", &[][..]),
        ("disconnects", "goodput_mbps", &["outages=1", "seconds=3", "megabytes=25"][..]),
    ] {
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
}
