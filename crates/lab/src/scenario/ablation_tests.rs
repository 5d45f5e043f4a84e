use super::*;

fn figures(share: f64, p99_ms: f64) -> Figures {
    let (share_of_sum, p99_over_idle_ms) = (Some(share), Some(p99_ms));
    Figures { share_of_sum, p99_over_idle_ms, ..Figures::default() }
}

/// Draws of which this part, the first ones, reached a heuristic and had this share without it.
fn draws(part: f64, share: f64) -> Vec<Measured> {
    let draw = |number: u64| {
        let everything = figures(0.9, 10.0);
        let reached = (number as f64 <= 100.0 * part).then(|| figures(share, 10.0));
        let without = Without { heuristic: "far".to_owned(), differs: reached.is_some(), reached };
        let chance = everything.clone();
        Measured { seed: 1, draw: number, everything, chance, without: vec![without] }
    };
    (1..=100).map(draw).collect()
}

#[test]
fn a_heuristic_pays_if_the_median_or_the_worst_tenth_needs_it() {
    let row = |part, share| Row::of(Turn::Without("far"), &draws(part, share));
    let all = row(1.0, 0.88);
    assert!(all.pays() && all.sure == 1.0 && (all.reached, all.differ) == (100, 100));
    assert!((all.changes[0].unwrap() + 0.02 / 0.9).abs() < 1e-9);
    let tenth = row(0.1, 0.8);
    assert!(tenth.pays() && tenth.changes[0] == Some(0.0));
    assert!(
        tenth.sure > 0.2 && tenth.sure < 0.9,
        "half of the resamples have more: {}",
        tenth.sure
    );
    let few = row(0.02, 0.1);
    assert!(!few.pays() && few.sure < 0.1 && (few.reached, few.differ) == (2, 2));
    assert!(!row(1.0, 0.95).pays(), "it does better without");
    assert!(!row(1.0, 0.892).pays(), "less than one per cent");
}

#[test]
fn a_longer_delay_is_a_cost_and_a_broken_run_is_none() {
    let mut all = draws(1.0, 0.9);
    for one in &mut all {
        one.without[0].reached = Some(figures(0.9, 10.2));
    }
    let row = Row::of(Turn::Without("far"), &all);
    assert!(row.pays() && row.changes[2].unwrap() > 0.0199);
    for one in &mut all {
        let broke = Some("a law".to_owned());
        one.without[0].reached = Some(Figures { broke, ..Figures::default() });
    }
    let row = Row::of(Turn::Without("far"), &all);
    assert_eq!((row.broke, row.pays(), row.changes), (100, false, [None; COLUMNS.len()]));
}

#[test]
fn the_page_has_a_row_for_each_heuristic_and_says_what_it_is_of() {
    let page = text(&draws(1.0, 0.8));
    assert!(page.contains("100 random draws") && page.contains("--seeds 1 --draws 100"), "{page}");
    assert!(page.contains("provisional"), "{page}");
    let rows = |start: &str| page.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(rows("| `"), Heuristic::ALL.len());
    assert_eq!(rows("| (chance)"), 1);
    assert!(page.contains("| 1.00 | 100 | 100 | -11.1 | -11.1 | +0.0 |"), "{page}");
    assert!(page.contains("pays: share of sum, median; share of sum, worst tenth"), "{page}");
}

#[cfg(feature = "ablation")]
#[test]
fn a_draw_is_measured_once_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let keep = Some(directory.path().join("kept.jsonl"));
    let request = Request { seeds: 1, draws: 1, jobs: 1, keep, any_build: false, until: None };
    let first = measure(&request, &|_| {}).unwrap();
    let [one] = first.as_slice() else { panic!() };
    assert_eq!(one.without.len(), Heuristic::ALL.len());
    assert!(one.without.iter().any(|one| one.differs));
    assert!(one.everything.broke.is_none() && one.everything.share_of_sum > Some(0.0));
    // What is there is not measured again, and nothing is measured too late.
    let late = Request { until: Some(Instant::now()), ..request };
    assert_eq!(measure(&late, &|_| {}).unwrap(), first);
    assert!(measure(&Request { keep: None, ..late }, &|_| {}).unwrap().is_empty());
}

#[cfg(not(feature = "ablation"))]
#[test]
fn a_usual_lab_measures_nothing_and_says_what_would() {
    let request =
        Request { seeds: 1, draws: 1, jobs: 1, keep: None, any_build: false, until: None };
    let refused = measure(&request, &|_| {}).unwrap_err();
    assert!(refused.to_string().contains("rove-lab/ablation"), "{refused}");
}
