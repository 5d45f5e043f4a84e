//! The way from outcomes to exit statuses, on a scenario that does what the test says.

use super::super::paper::Paper;
use super::super::record::Limit;
use super::super::{Key, Outcome};
use super::*;
use crate::emu::MS;
use crate::netns::Timekeeping;
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};

/// Measures `still_ms`, the seed, against a bound of 10, with an emulator that is late in its
/// first runs.
#[derive(Debug, Default)]
struct Fake {
    late_runs: AtomicU32,
}

impl Scenario for Fake {
    fn about(&self) -> About {
        const KEYS: &[Key] = &[Key::lower_is_better("still_ms"), Key::must_hold("checksum_ok")];
        About { name: "fake", summary: "does what the test says", settings: &[], keys: KEYS }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("a paper, by hand")
            .cite("still", 222, "ms", "Table 1")
            .beside("still_ms")
            .cite("transfer_s", 24, "s", "Table 1")
            .note("over real links")
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::at_most("still_ms", 10)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        10.0
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let late = self.late_runs.load(Ordering::Relaxed) > 0;
        if late {
            self.late_runs.fetch_sub(1, Ordering::Relaxed);
        }
        let mut timekeeping = Timekeeping::default();
        // One tenth of the bound is allowed, a sixteenth of the histogram's grain aside.
        // Many packets on time do not excuse a move that was not.
        (0..1_000).for_each(|_| timekeeping.all.record(MS / 2));
        timekeeping.after_moves.record(if late { 2 * MS } else { MS / 2 });
        let mut outcome = Outcome { timekeeping: Some(timekeeping), ..Outcome::default() };
        outcome.measured.insert("still_ms".to_owned(), json!(stage.seed));
        outcome.skip("checksum_ok", "nothing was carried");
        Ok(outcome)
    }
}

/// The objects and the exit status of a run in virtual time.
fn run_fake(late_runs: u32, seeds: Vec<u64>, summarise: bool) -> (Vec<Value>, u8) {
    run_kept(late_runs, seeds, summarise, None)
}

/// The same where what is measured is kept.
fn run_kept(
    late_runs: u32,
    seeds: Vec<u64>,
    summarise: bool,
    keep: Option<PathBuf>,
) -> (Vec<Value>, u8) {
    let fake = Fake { late_runs: AtomicU32::new(late_runs) };
    let settings = Settings::parse(fake.about().settings, &[]).unwrap();
    let (told, grid) = (Where::Virtual, Grid::Default);
    let jobs = 2;
    let request = Request { told, seeds, summarise, grid, json: true, settings, jobs, keep };
    let mut out = Vec::new();
    let status = over_seeds(&fake, &request, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), status)
}

#[test]
fn people_read_each_key_with_its_bound_and_the_papers_value() {
    let fake = Fake::default();
    let settings = Settings::parse(fake.about().settings, &[]).unwrap();
    let (told, grid, json, jobs, keep) = (Where::Virtual, Grid::Default, false, 1, None);
    let (seeds, summarise) = (vec![12], false);
    let request = Request { told, seeds, summarise, grid, json, settings, jobs, keep };
    let mut out = Vec::new();
    over_seeds(&fake, &request, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    let line = |words: &str| lines.iter().any(|line| line.join(" ") == words);
    for words in [
        "fake, virtual, seed 12",
        "still_ms 12 NOT <= 10 paper 222 ms (Table 1)",
        "checksum_ok - not measured: nothing was carried",
        "alive true ok == true",
        "paper: transfer_s 24 s (Table 1): over real links",
        "paper: a paper, by hand",
        "no baseline: nothing to compare with",
        "FAIL: still_ms is 12, must be <= 10",
    ] {
        assert!(line(words), "{words}: {text}");
    }
}

#[test]
fn the_exit_status_is_the_verdict() {
    let (objects, status) = run_fake(0, vec![10], false);
    assert_eq!((objects[0]["pass"].as_bool(), status), (Some(true), 0));
    assert_eq!(objects[0]["measured"]["checksum_ok"], Value::Null, "not measured, but there");
    let (objects, status) = run_fake(0, vec![11], false);
    assert_eq!((objects[0]["pass"].as_bool(), status), (Some(false), 1));
    assert_eq!(objects[0]["reason"], "still_ms is 11, must be <= 10");
}

#[test]
fn a_late_run_is_told_again_and_at_last_void() {
    let (objects, status) = run_fake(4, vec![1], false);
    assert_eq!((objects[0]["attempts"].as_u64(), status), (Some(5), 0));
    assert_eq!(objects[0]["pass"], true);
    let (objects, status) = run_fake(5, vec![1], false);
    assert_eq!((&objects[0]["pass"], status), (&Value::Null, 3), "never true");
    assert!(objects[0]["reason"].as_str().unwrap().starts_with("void: the emulator's p99"));
}

#[test]
fn over_several_seeds_the_medians_judge() {
    let (objects, status) = run_fake(0, vec![9, 10, 99], true);
    assert_eq!((objects.len(), status), (4, 0), "one object a seed and a last one");
    assert_eq!(objects[2]["pass"], false);
    assert_eq!((&objects[3]["pass"], &objects[3]["seeds"]), (&json!(true), &json!(3)));
    assert_eq!(objects[3]["worst"]["still_ms"], 99.0);
    let (objects, status) = run_fake(0, vec![9, 99, 99], true);
    assert_eq!((&objects[3]["pass"], status), (&json!(false), 1));
}

#[test]
fn what_another_program_kept_is_measured_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kept");
    let keep = || Some(file.clone());
    let attempts =
        |late_runs| run_kept(late_runs, vec![9], false, keep()).0[0]["attempts"].as_u64().unwrap();
    assert_eq!([attempts(2), attempts(0)], [3, 3], "the second time it is recalled");
    let mut line: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(line["lab_sha256"].as_str().unwrap().len(), 64);
    line["lab_sha256"] = "0".repeat(64).into();
    std::fs::write(&file, format!("{line}\n")).unwrap();
    assert_eq!([attempts(0), attempts(2)], [1, 1]);
    // A line that does not say who wrote it, as there once were.
    line.as_object_mut().unwrap().remove("lab_sha256");
    std::fs::write(&file, format!("{line}\n")).unwrap();
    assert_eq!(attempts(1), 2);
}

#[test]
fn what_is_kept_is_not_measured_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kept");
    let keep = || Some(file.clone());
    let (first, _) = run_kept(4, vec![9], false, keep());
    assert_eq!(first[0]["attempts"], 5);
    // Interrupted while it wrote.
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{whole}{{\"scenario\":\"fa")).unwrap();
    let (objects, status) = run_kept(0, vec![9, 10, 11], true, keep());
    assert_eq!((&objects[0], objects[1]["attempts"].as_u64()), (&first[0], Some(1)));
    assert_eq!((&objects[3]["pass"], status), (&json!(true), 0));
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 3);
    // A void run stays void.
    let (void, _) = run_kept(5, vec![12], false, keep());
    assert_eq!(run_kept(0, vec![12], false, keep()), (void, 3));
    std::fs::write(&file, "what is this\n").unwrap();
    let error = Kept::open(&file).unwrap_err();
    assert!(format!("{error:#}").contains("line 1 is no record"), "{error:#}");
}
