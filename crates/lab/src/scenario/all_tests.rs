//! Verdicts of rows follow from those of their judges, and a run that rows share is told once.

use super::super::Grid;
use super::super::rows::ROWS;
use super::*;

fn request(seeds: u64) -> Request {
    Request {
        told: Where::Virtual,
        seeds: (1..=seeds).collect(),
        summarise: seeds > 1,
        grid: Grid::Default,
        json: false,
        settings: Settings::default(),
        jobs: 2,
        keep: None,
    }
}

fn of(names: &[&str]) -> Vec<&'static Row> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    rows(&names).unwrap()
}

#[test]
fn a_miss_comes_before_a_pass_and_a_pass_before_a_test() {
    use Verdict::{ByTest, Miss, NotBuilt, NotJudged, Pass, Void};
    assert_eq!(Verdict::of_row(&[Pass, Miss, Void]), Miss);
    assert_eq!(Verdict::of_row(&[Pass, Void]), Void);
    assert_eq!(Verdict::of_row(&[NotJudged, ByTest, Pass]), Pass);
    assert_eq!(Verdict::of_row(&[ByTest, NotBuilt]), ByTest);
    assert_eq!([Pass, Miss, Void, NotBuilt].map(Verdict::exit_status), [0, 1, 3, 0]);
}

#[test]
fn what_no_run_judges_has_a_line_that_says_so() {
    let mut out = Vec::new();
    let status = over_rows(&of(&["M10", "A8"]), &request(1), None, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(status, 0, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 + 2 + 1, "{text}");
    assert!(lines[2].starts_with("| M10 | no byte is acknowledged and then lost"), "{text}");
    assert!(lines[2].contains("judged by test: every_law_holds_at_fixed_seeds"), "{text}");
    assert!(
        lines[4].contains("| 2.75 to 3.0 times on Wi-Fi") && lines[4].contains("| not built: ")
    );
    assert!(rows(&["X1".to_owned()]).unwrap_err().to_string().contains("no row X1"));
}

#[test]
fn the_table_in_the_repository_has_a_line_for_every_row() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
    let text = std::fs::read_to_string(results.join(TEXT)).unwrap();
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = text.lines().map(cells).collect();
    for row in ROWS {
        let is_there = lines.iter().any(|line| {
            line.get(1).is_some_and(|name| name == row.name) && line[2] == row.mechanism
        });
        assert!(
            is_there,
            "{} is missing: run `rove-lab run all` with --in bench/results",
            row.name
        );
    }
}

#[test]
fn a_run_stands_beside_the_paper_and_in_every_row_that_shares_it() {
    let directory = tempfile::tempdir().unwrap();
    let keep = directory.path().join("kept");
    let two = of(&["T8", "L7"]);
    let request = Request { keep: Some(keep.clone()), ..request(2) };
    let mut out = Vec::new();
    assert_eq!(over_rows(&two, &request, Some(directory.path()), &mut out).unwrap(), 0);
    let text = String::from_utf8(out).unwrap();
    let line = text.lines().find(|line| line.contains("still_ms_max")).unwrap();
    assert!(line.contains("| subnets ") && line.contains("30000 ms at least (Figure 3.11)"));
    assert!(line.contains("| <= ") && line.trim_end().ends_with("pass |"), "{line}");
    assert_eq!(std::fs::read_to_string(&keep).unwrap().lines().count(), 4, "two runs, two seeds");
    let written = std::fs::read_to_string(directory.path().join(TEXT)).unwrap();
    assert!(written.contains("Rows: 2 pass, 0 MISS") && written.ends_with(&text), "{written}");
    let mut out = Vec::new();
    let request = Request { json: true, ..request };
    over_rows(&two, &request, None, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let objects: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 2, "one object a row");
    assert_eq!((&objects[0]["row"], &objects[0]["verdict"]), (&json!("T8"), &json!("pass")));
    let key = &objects[0]["judges"][0]["keys"][0];
    assert_eq!(key["paper"][0]["unit"], "ms at least", "{key}");
    assert!(key["ours"].is_number() && key["worst"].is_number(), "{key}");
}

#[test]
fn what_is_told_between_namespaces_only_is_not_judged_in_virtual_time() {
    let row = ROWS.iter().find(|row| row.name == "T6").unwrap();
    let lines = lines(row, Where::Virtual, &Measured::new());
    assert_eq!(lines.last().unwrap()[6], "not judged: told between namespaces only");
    assert_eq!(verdict(row, Where::Virtual, &Measured::new()), Verdict::NotJudged);
}
