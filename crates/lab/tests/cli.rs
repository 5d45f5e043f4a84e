//! The command as people and scripts meet it: what it prints, how it ends, what it leaves behind.
//!
//! Stories are told over the bare link here, so that what fails is the lab's own doing. They run
//! one after the other: each is in real time and must not disturb the next.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LAB: &str = env!("CARGO_BIN_EXE_rove-lab");

/// Stories in real time take turns.
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

/// Runs a scenario with `--json` and returns its objects and exit status.
fn run(arguments: &[&str]) -> (Vec<Value>, i32) {
    let output = lab(&[&["run"], arguments, &["--json"]].concat());
    let objects = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    (objects, output.status.code().unwrap())
}

#[test]
fn list_names_every_scenario() {
    let output = lab(&["list"]);
    assert_eq!(text(&output.stdout), include_str!("golden/list.txt"));
    assert!(output.status.success());
}

#[test]
fn a_command_line_that_makes_no_sense_is_answered_with_2_and_the_cure() {
    for (arguments, said) in [
        (&["run", "x"][..], "no scenario is called x; there are tunnel, roam-client"),
        (&["run", "tunnel", "--set", "x=1"], "the keys are control, bare, rove, seconds"),
        (&["run", "tunnel", "--set", "seconds=0"], "say a number from 2 to 600"),
        (&["run", "tunnel", "--seeds", "0"], "0 is not in 1..=10000"),
        (&["run", "tunnel", "--seed", "1", "--seeds", "2"], "cannot be used with"),
        (&["run", "tunnel", "--where", "moon"], "[possible values: netns, virtual]"),
        (&["fly"], "unrecognized subcommand"),
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
    }
}

/// Every key that the specification of the JSON names, with what its value may be.
fn assert_schema(object: &Value, scenario: &str) {
    assert_eq!(object["scenario"], scenario);
    assert_eq!(object["where"], "netns");
    assert!(object["seed"].is_u64());
    for key in ["rove_version", "rove_sha256"] {
        assert!(object[key].is_null(), "no binary has a part in a bare run");
    }
    assert!(object["measured"].is_object() && object["samples"].is_object());
    assert!(object["baseline"].is_object() != object["baseline_reason"].is_string());
    assert!(object["paper"].is_object() || object["paper"].is_null());
    assert!(object["lateness"]["p99_ms"].is_number() && object["lateness"]["max_ms"].is_number());
    for limit in object["limits"].as_array().unwrap() {
        let [key, operator, _bound] = limit.as_array().unwrap().as_slice() else {
            panic!("{limit} is no triple")
        };
        assert!(object["measured"].get(key.as_str().unwrap()).is_some(), "{key}");
        assert!(["<=", ">=", "=="].contains(&operator.as_str().unwrap()));
    }
    for (key, value) in object["measured"].as_object().unwrap() {
        assert!(value.is_null() || value.is_number() || value.is_boolean(), "{key}: {value}");
    }
}

/// The verdict follows from limits and measured values. What those are in milliseconds is not for
/// this suite to judge: the machine may be busy.
fn assert_verdict_follows(object: &Value, status: i32) {
    let holds = |limit: &Value| {
        let value = &object["measured"][limit[0].as_str().unwrap()];
        let (bound, number) = (&limit[2], value.as_f64());
        match limit[1].as_str().unwrap() {
            "<=" => number.is_some_and(|number| number <= bound.as_f64().unwrap()),
            ">=" => number.is_some_and(|number| number >= bound.as_f64().unwrap()),
            _ => value == bound || number.is_some_and(|number| Some(number) == bound.as_f64()),
        }
    };
    let all_hold = object["limits"].as_array().unwrap().iter().all(holds);
    match object["pass"].as_bool() {
        Some(pass) => assert_eq!((pass, status), (all_hold, i32::from(!all_hold)), "{object}"),
        // Lateness voids the run, after five attempts.
        None => assert_eq!((object["attempts"].as_u64(), status), (Some(5), 3), "{object}"),
    }
}

#[test]
fn tunnel_measures_the_bare_link_and_prints_one_object() {
    let Some(_turn) = turn() else { return };
    let (objects, status) = run(&["tunnel", "--set", "bare=true", "--set", "seconds=2"]);
    let [object] = objects.as_slice() else { panic!("{} objects", objects.len()) };
    assert_schema(object, "tunnel");
    assert_verdict_follows(object, status);
    assert_eq!(object["measured"]["checksum_ok"], true);
    let measured = |key: &str| object["measured"][key].as_f64().unwrap();
    assert!((5.0..20.0).contains(&measured("goodput_mbps")), "no faster than the link: {object}");
    assert!(measured("rtt_us") >= 40_000.0, "no shorter than the link: {object}");
    assert_eq!(object["settings"]["seconds"], "2");
}

#[test]
fn roam_client_over_the_bare_link_costs_half_a_round_trip() {
    let Some(_turn) = turn() else { return };
    let settings = ["--set", "bare=true", "--set", "moves=2", "--set", "megabytes=2"];
    let (objects, status) = run(&[&["roam-client", "--seeds", "1"][..], &settings].concat());
    let [object, summary] = objects.as_slice() else { panic!("{} objects", objects.len()) };
    assert_schema(object, "roam-client");
    assert_verdict_follows(object, status);
    let still_ms = object["measured"]["still_ms_median"].as_f64().unwrap();
    assert!((20.0..500.0).contains(&still_ms), "half a round trip at least: {object}");
    assert_eq!(object["measured"]["checksum_ok"], true);
    assert_eq!((&summary["seeds"], &summary["seed"]), (&1.into(), &Value::Null));
    assert_eq!(summary["measured"]["still_ms_median"], object["measured"]["still_ms_median"]);
    assert!(summary["worst"]["still_ms_median"].is_number());
}

#[test]
fn every_control_fails() {
    let Some(_turn) = turn() else { return };
    let names = text(&lab(&["list"]).stdout);
    let quick = |name: &str| match name {
        "tunnel" => vec!["--set", "seconds=2"],
        "roam-client" => vec!["--set", "megabytes=2"],
        other => panic!("{other} needs its quick settings here"),
    };
    for name in names.lines().filter_map(|line| line.split_whitespace().next()) {
        let common = ["--set", "bare=true", "--set", "control=true"];
        let (objects, status) = run(&[&[name][..], &common, &quick(name)].concat());
        assert_schema(&objects[0], name);
        assert_verdict_follows(&objects[0], status);
        assert_eq!((objects[0]["pass"].as_bool(), status), (Some(false), 1), "{}", objects[0]);
    }
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
    let begun = lines.any(|line| line.unwrap().contains("MB over HTTP"));
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

#[test]
fn a_refused_device_is_named_with_its_cure() {
    let device = std::fs::metadata("/dev/net/tun");
    let mode = device.map(|device| std::os::unix::fs::PermissionsExt::mode(&device.permissions()));
    let root = rustix::process::getuid().is_root();
    if !root || !mode.as_ref().is_ok_and(|mode| mode & 0o006 == 0) {
        return skip_quietly("the device is open to everyone here, as it usually is");
    }
    // The nobody user may not be able to reach the binary where it was built.
    let directory = std::env::temp_dir().join(format!("rove-lab-test-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let copy = directory.join("rove-lab");
    std::fs::copy(LAB, &copy).unwrap();
    let output = std::os::unix::process::CommandExt::uid(&mut Command::new(&copy), 65_534)
        .arg("probe")
        .output();
    std::fs::remove_dir_all(&directory).unwrap();
    let output = output.unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3));
    assert!(said.contains("/dev/net/tun may not be opened"), "{said}");
    assert!(said.contains("sudo chmod 666 /dev/net/tun"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Nothing is missing: the condition under test does not exist here, and cannot be required.
fn skip_quietly(why: &str) {
    println!("SKIP refusal: {why}");
}
