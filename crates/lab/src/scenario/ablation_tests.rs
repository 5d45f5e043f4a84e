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

fn pays(part: f64, share: f64) -> Vec<Figure> {
    Row::of(Turn::Without("far"), &draws(part, share)).pays().collect()
}

#[test]
fn a_heuristic_pays_if_the_draws_that_differ_lose_without_it() {
    let row = Row::of(Turn::Without("far"), &draws(1.0, 0.88));
    assert_eq!((row.reached, row.differ), (100, 100));
    assert_eq!(row.paired[0], Paired { worse: 100, better: 0, sure: 1.0 });
    assert!((row.changes[0][0].unwrap() + 0.02 / 0.9).abs() < 1e-9);
    assert_eq!(row.pays().collect::<Vec<_>>(), [Figure::Share]);
    // Few draws are enough if all of them lose, though the median and the worst tenth do not.
    let few = Row::of(Turn::Without("far"), &draws(0.05, 0.8));
    assert_eq!((few.changes[0], few.pays().count()), ([Some(0.0); 2], 1));
    assert_eq!(pays(1.0, 0.95), [], "they do better without");
    assert_eq!(pays(1.0, 0.899), [], "no draw is worse by one per cent");
}

#[test]
fn one_draw_that_loses_much_does_not_decide_alone() {
    let mut all = draws(1.0, 0.92);
    all[0].without[0].reached = Some(figures(1e-9, 10.0));
    let row = Row::of(Turn::Without("far"), &all);
    assert_eq!((row.paired[0].worse, row.paired[0].better), (1, 99));
    assert!(row.paired[0].sure < 0.1 && row.pays().next().is_none());
    // Half of them lose and half of them gain as much: chance.
    for (place, one) in all.iter_mut().enumerate() {
        one.without[0].reached = Some(figures(if place % 2 == 0 { 0.8 } else { 1.012 }, 10.0));
    }
    let sure = Row::of(Turn::Without("far"), &all).paired[0].sure;
    assert!((0.1..0.9).contains(&sure), "{sure}");
}

#[test]
fn a_longer_delay_is_a_loss_and_a_broken_run_is_none() {
    let mut all = draws(1.0, 0.9);
    for one in &mut all {
        one.without[0].reached = Some(figures(0.9, 10.2));
    }
    let row = Row::of(Turn::Without("far"), &all);
    assert_eq!(row.pays().collect::<Vec<_>>(), [Figure::Delay]);
    assert!(row.changes[1][0].unwrap() > 0.0199);
    for one in &mut all {
        let broke = Some("a law".to_owned());
        one.without[0].reached = Some(Figures { broke, ..Figures::default() });
    }
    let row = Row::of(Turn::Without("far"), &all);
    assert_eq!((row.broke, row.pays().count(), row.changes), (100, 0, [[None; 2]; 3]));
}

#[test]
fn the_page_has_a_row_for_each_heuristic_of_the_draws_and_says_what_it_is_of() {
    let page = text(&draws(1.0, 0.8));
    assert!(page.contains("100 random draws") && page.contains("--seeds 1 --draws 100"), "{page}");
    assert!(page.contains("provisional"), "{page}");
    let rows = |start: &str| page.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!((rows("| `far`"), rows("| (chance)")), (1, 1));
    let row = "pays: share of sum | 100 | 100 | -11.1 | -11.1 | 100, 0 | 1.000 | +0.0 | +0.0 |";
    assert!(page.contains(row), "{page}");
    // Draws that an older program kept may know of more heuristics than there are now.
    let mut older = draws(1.0, 0.8);
    older.iter_mut().for_each(|one| one.without[0].heuristic = "gone".to_owned());
    assert!(text(&older).contains("| `gone` | removed: pays"), "{}", text(&older));
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
