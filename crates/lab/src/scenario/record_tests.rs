//! Verdicts follow from limits and measured values, and from nothing else.

use super::*;
use serde_json::json;

fn record(measured: Value, limits: Vec<Limit>) -> Record {
    let mut record = Record {
        scenario: "test",
        seed: Some(7),
        seeds: None,
        rove_version: Some("0.1.0".to_owned()),
        rove_sha256: Some("ab".to_owned()),
        place: "virtual",
        grid: "default",
        settings: BTreeMap::new(),
        paper: Paper::of("a paper").cite("still", 222, "ms", "Table 1").beside("still_ms"),
        measured: Values::new(),
        not_measured: BTreeMap::new(),
        worst: None,
        samples: BTreeMap::new(),
        baseline: None,
        baseline_reason: None,
        lateness: None,
        machine: None,
        attempts: 1,
        limits,
        pass: None,
        reason: None,
    };
    let measured = serde_json::from_value(measured).unwrap();
    record.judge(Outcome { measured, ..Outcome::default() }, &[]);
    record
}

fn limits() -> Vec<Limit> {
    vec![
        Limit::at_most("still_ms", 50.0),
        Limit::at_least("share", 0.9),
        Limit::equal("checksum_ok", true),
        Limit::equal("lost", 0),
    ]
}

#[test]
fn a_pass_needs_every_limit() {
    let good = json!({"still_ms": 50.0, "share": 0.9, "checksum_ok": true, "lost": 0.0});
    assert_eq!(record(good.clone(), limits()).pass, Some(true));
    let bad = [
        ("still_ms", json!(50.1)),
        ("share", json!(0.899)),
        ("checksum_ok", json!(false)),
        ("lost", json!(1)),
        ("still_ms", Value::Null),
        ("still_ms", json!("fast")),
        ("checksum_ok", json!(1)),
    ];
    for (key, value) in bad {
        let mut measured = good.clone();
        measured[key] = value;
        let record = record(measured, limits());
        assert_eq!(record.pass, Some(false), "{:?}", record.measured);
        assert_eq!(record.exit_status(), 1);
        assert!(record.reason.unwrap().contains(key));
    }
    let mut missing = good.clone();
    missing.as_object_mut().unwrap().remove("lost");
    assert_eq!(record(missing, limits()).pass, Some(false), "a missing key is no pass");
    let mut asked = record(good, limits());
    for _ in 0..2 {
        let measured = asked.measured.clone();
        let limits = vec![Limit::at_least("share", 0.99)];
        asked.judge(Outcome { measured, limits, ..Outcome::default() }, &[]);
    }
    assert_eq!((asked.pass, asked.limits.len()), (Some(false), 5), "a story asks once for more");
}

#[test]
fn a_summary_judges_medians_and_shows_the_worst() {
    let keys = [Key::lower_is_better("still_ms"), Key::higher_is_better("share")];
    let runs: Vec<Record> = [(40.0, 0.95, true), (45.0, 0.91, true), (90.0, 0.5, true)]
        .map(|(still, share, ok)| {
            let measured = json!({"still_ms": still, "share": share, "checksum_ok": ok, "lost": 0});
            record(measured, limits())
        })
        .into();
    assert_eq!(runs[2].pass, Some(false));
    let summary = Record::summary(&runs, &keys).unwrap();
    assert_eq!(summary.pass, Some(true), "the medians hold: {:?}", summary.reason);
    assert_eq!((summary.seed, summary.seeds), (None, Some(3)));
    assert_eq!(summary.measured["still_ms"], json!(45.0));
    let worst = summary.worst.unwrap();
    assert_eq!((&worst["still_ms"], &worst["share"]), (&json!(90.0), &json!(0.5)));
}

#[test]
fn a_summary_holds_medians_against_the_medians_of_what_the_seeds_ask() {
    let run = |(still, bound): (f64, f64)| {
        let limits = vec![Limit::at_most("still_ms", bound), Limit::equal("lost", 0)];
        record(json!({"still_ms": still, "lost": 0}), limits)
    };
    let summary = |runs: [(f64, f64); 3]| Record::summary(&runs.map(run), &[]).unwrap();
    let good = summary([(33.0, 42.0), (53.0, 58.0), (47.0, 50.0)]);
    assert_eq!(good.pass, Some(true), "{:?}", good.reason);
    let limits = serde_json::to_value(&good.limits).unwrap();
    assert_eq!(limits, json!([["still_ms", "<=", 50.0], ["lost", "==", 0]]));
    let bad = summary([(33.0, 42.0), (61.0, 58.0), (52.0, 50.0)]);
    assert_eq!(bad.reason.unwrap(), "still_ms is 52.0, must be <= 50.0");
}

#[test]
fn void_runs_do_not_count_unless_they_are_most() {
    let run = |still: f64| record(json!({"still_ms": still}), vec![Limit::at_most("still_ms", 50)]);
    let mut runs: Vec<Record> = [70.0, 90.0, 80.0].map(run).into();
    runs[2].void("late".to_owned());
    let summary = Record::summary(&runs, &[]).unwrap();
    assert_eq!((summary.pass, summary.exit_status()), (Some(false), 1), "two clear failures");
    assert_eq!((&summary.measured["still_ms"], summary.seeds), (&json!(80.0), Some(3)));
    runs[1].void("late".to_owned());
    let summary = Record::summary(&runs, &[]).unwrap();
    assert_eq!((summary.pass, summary.exit_status()), (None, 3));
    let mut good: Vec<Record> = [40.0, 41.0].map(run).into();
    good[0].void("late".to_owned());
    let summary = Record::summary(&good, &[]).unwrap();
    assert_eq!((summary.pass, summary.exit_status()), (None, 3), "never true");
}

#[test]
fn what_broke_down_has_not_passed() {
    let mut broken = record(json!({"still_ms": 1}), vec![Limit::equal("alive", true)]);
    assert_eq!(broken.pass, Some(true));
    let broke = Some("rove up on client ended".to_owned());
    broken.judge(Outcome { broke, ..Outcome::default() }, &[Key::lower_is_better("still_ms")]);
    assert_eq!((broken.pass, broken.exit_status()), (Some(false), 1));
    assert_eq!(broken.measured["still_ms"], Value::Null);
    assert!(broken.reason.unwrap().starts_with("rove up on client ended; alive is false"));
    let summary = Record::summary(&[record(json!({}), vec![])], &[]).unwrap();
    assert_eq!(summary.worst.unwrap()["alive"], json!(true));
}

#[test]
fn one_broken_checksum_breaks_the_summary() {
    let runs: Vec<Record> = [true, true, false]
        .map(|ok| record(json!({"checksum_ok": ok}), vec![Limit::equal("checksum_ok", true)]))
        .into();
    let summary = Record::summary(&runs, &[Key::must_hold("checksum_ok")]).unwrap();
    assert_eq!(summary.pass, Some(false));
}

#[test]
fn the_json_has_the_agreed_keys() {
    let text = serde_json::to_string(&record(json!({"still_ms": 1}), limits())).unwrap();
    let object: Value = serde_json::from_str(&text).unwrap();
    for key in [
        "scenario",
        "seed",
        "rove_version",
        "rove_sha256",
        "where",
        "paper",
        "measured",
        "samples",
        "baseline",
        "baseline_reason",
        "limits",
        "pass",
    ] {
        assert!(object.get(key).is_some(), "{key}");
    }
    assert_eq!(object["where"], "virtual");
    assert_eq!(object["limits"][0], json!(["still_ms", "<=", 50.0]));
    assert!(!text.contains('\n'));
}

#[test]
fn baselines_are_summarised_by_their_medians() {
    let runs: Vec<Record> = [1.0, 3.0, 8.0]
        .map(|still| {
            let mut record = record(json!({}), Vec::new());
            let values = [("still_ms", json!(still)), ("version", json!("2.6.14"))];
            let values = values.map(|(key, value)| (key.to_owned(), value)).into();
            record.baseline = Some(BTreeMap::from([("openvpn".to_owned(), values)]));
            record
        })
        .into();
    let summary = Record::summary(&runs, &[]).unwrap();
    let openvpn = &summary.baseline.unwrap()["openvpn"];
    assert_eq!((&openvpn["still_ms"], &openvpn["version"]), (&json!(3.0), &json!("2.6.14")));
    let mut one_without = runs;
    one_without[1].baseline = None;
    let summary = Record::summary(&one_without, &[]).unwrap();
    assert_eq!(summary.baseline.unwrap()["openvpn"]["still_ms"], Value::Null);
}
