//! What the tests of stories on namespaces share: telling one shortly, and what its object holds.
//!
//! The machine may be busy, so nothing here judges milliseconds: checksums, counts and what the
//! JSON holds. So a story is told once, however late the emulator is, and several at a time.

#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod rows;

use rove_lab::scenario::binary::{Binary, Profile};
use rows::row;
use serde_json::Value;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) const LAB: &str = env!("CARGO_BIN_EXE_rove-lab");

/// No figure is judged, so none has to be right.
pub(crate) const ONCE: &str = "attempts=1";

/// Tests that tell stories take turns.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn lab(arguments: &[&str]) -> Output {
    Command::new(LAB).args(arguments).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits for a turn, or says why there can be none.
pub(crate) fn turn() -> Option<MutexGuard<'static, ()>> {
    let probe = lab(&["probe"]);
    if probe.status.success() {
        return Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
    }
    skip("namespaces", text(&probe.stderr).trim());
    None
}

/// Something is missing that a test needs: visible, and a failure where everything must be there.
pub(crate) fn skip(what: &str, why: &str) {
    println!("SKIP {what}: {why}");
    let required = std::env::var("ROVE_TEST_REQUIRE").is_ok_and(|value| value == "all");
    assert!(!required, "ROVE_TEST_REQUIRE=all forbids to skip");
}

/// The binary of these sources, quickly built: no figure is judged here.
pub(crate) fn rove() -> &'static Binary {
    static ROVE: OnceLock<Binary> = OnceLock::new();
    ROVE.get_or_init(|| Binary::of_this_lab(Profile::Dev).unwrap())
}

/// Runs a scenario with `--json` and returns its objects and exit status.
pub(crate) fn run(scenario: &str, options: &[&str], settings: &[&str]) -> (Vec<Value>, i32) {
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
pub(crate) fn quick(scenario: &str) -> Vec<String> {
    let more = [format!("rove={}", rove().path.display()), ONCE.to_owned()];
    row(scenario).quick.iter().map(|setting| (*setting).to_owned()).chain(more).collect()
}

/// So many stories may be told at a time: each waits for real time more than it computes.
pub(crate) const AT_A_TIME: usize = 4;

/// Tells these, the first ones first, so many at a time.
pub(crate) fn side_by_side<T: Copy + Sync>(
    at_a_time: usize,
    stories: &[T],
    tell: impl Fn(T) + Sync,
) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(story) = stories.get(next.fetch_add(1, Ordering::Relaxed)) {
                    tell(*story);
                }
            });
        }
    });
}

/// The one object of a quick run over the real binary, and the exit status.
pub(crate) fn run_quick(scenario: &str, more: &[&str]) -> (Value, i32) {
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
pub(crate) fn assert_schema(object: &Value, scenario: &str, bare: bool) {
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
pub(crate) fn assert_verdict_follows(object: &Value, status: i32) {
    let mut limits = object["limits"].as_array().unwrap().iter();
    let all_hold = limits.all(|limit| holds(object, limit[0].as_str().unwrap()));
    match object["pass"].as_bool() {
        Some(pass) => assert_eq!((pass, status), (all_hold, i32::from(!all_hold)), "{object}"),
        // Lateness voids the run.
        None => assert_eq!((object["attempts"].as_u64(), status), (Some(1), 3), "{object}"),
    }
}

/// Whether the limit on a key holds.
pub(crate) fn holds(object: &Value, key: &str) -> bool {
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
