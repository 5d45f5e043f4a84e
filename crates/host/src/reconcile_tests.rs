use super::*;

#[test]
fn plans_are_made_at_once_and_rest_while_links_change_all_the_time() {
    let mut host = Host::default();
    let start = Instant::now();
    let (mut now, mut made) = (start, Vec::new());
    // Links change every 5 ms for ten seconds.
    while now < start + Duration::from_secs(10) {
        host.owe_at(now).replan = true;
        if host.take_due(now).is_some_and(|owed| owed.replan) {
            made.push(now);
        }
        now += Duration::from_millis(5);
    }
    assert_eq!(made[0], start);
    assert!((15..30).contains(&made.len()), "{} plans in ten seconds", made.len());
    // The last change is not forgotten.
    if host.due().is_some() {
        assert!(host.take_due(now + REPLAN_REST_MAX).is_some_and(|owed| owed.replan));
    }
    let later = now + REPLAN_REST_MAX + REPLAN_QUIET;
    host.owe_at(later).replan = true;
    assert!(host.take_due(later).is_some_and(|owed| owed.replan), "peace forgets");
}

#[test]
fn a_report_of_links_starts_no_nft() {
    let mut host = Host::default();
    let change = |area| Change { area, by: None };
    let later = || Instant::now() + LINKS_FIRST;
    host.owe(BTreeSet::from([change(Area::Routing)]));
    assert_eq!(host.take_due(later()).unwrap().scope, Scope::AllButFilters);
    host.owe(BTreeSet::from([change(Area::Routing)]));
    host.owe(BTreeSet::from([change(Area::Filter)]));
    assert_eq!(host.take_due(later()).unwrap().scope, Scope::All);
    host.owe(BTreeSet::new());
    assert_eq!(host.take_due(later()).unwrap().scope, Scope::All);
    assert!(host.take_due(later()).is_none());
}

#[test]
fn an_item_that_waits_is_due_without_a_report() {
    let now = Instant::now();
    let mut host = Host { again: Some(now), ..Host::default() };
    assert_eq!(host.due(), Some(now));
    assert_eq!(host.take_due(now).unwrap().scope, Scope::All);
    assert!(host.take_due(now).is_none());
}

#[test]
fn the_log_counts_the_repairs_that_it_leaves_out() {
    let (mut lines, now) = (Lines::default(), Instant::now());
    for _ in 0..LINES_MAX {
        assert_eq!(lines.take(now), Some(0));
    }
    assert_eq!([lines.take(now), lines.take(now)], [None, None]);
    assert_eq!(lines.take(now + LINES_WITHIN), Some(2));
}
