use super::*;
use crate::scenario::Grid;

/// What a seed measures in a short run with these settings.
fn told(seed: u64, set: &[&str]) -> Outcome {
    let short = ["draws=2", "seconds=2"].iter().chain(set).map(|text| (*text).to_owned());
    let settings = Settings::parse(SETTINGS, &short.collect::<Vec<_>>()).unwrap();
    RandomLinks.run(&Stage::quiet(seed, &settings, Grid::Default)).unwrap()
}

#[test]
fn two_seeds_are_two_stories_and_one_seed_is_one() {
    let [first, again, other] = [3, 3, 4].map(|seed| told(seed, &[]));
    assert_eq!(first.measured, again.measured);
    assert_ne!(first.measured, other.measured);
    // Some draw of these has other traffic, or something happens to its links.
    assert_ne!(first.measured, told(3, &["traffic=mixed"]).measured);
    // A draw alone is what it is among others.
    let [_, second] = first.measured[TABLE].as_array().unwrap().as_slice() else { panic!() };
    assert_eq!(told(3, &["draw=2"]).measured[TABLE].as_array().unwrap()[0], *second);
}

#[cfg(not(feature = "ablation"))]
#[test]
fn a_usual_lab_leaves_out_nothing_and_says_what_would() {
    let settings = Settings::parse(SETTINGS, &["without=far".to_owned()]).unwrap();
    let refused = RandomLinks.run(&Stage::quiet(1, &settings, Grid::Default)).unwrap_err();
    assert!(refused.to_string().contains("rove-lab/ablation"), "{refused}");
}

#[cfg(feature = "ablation")]
#[test]
fn what_is_left_out_changes_what_is_measured() {
    let with = told(3, &[]);
    assert_ne!(with.measured, told(3, &["without=realtime"]).measured);
    assert_ne!(with.measured, told(3, &["without=emptying"]).measured);
}

#[test]
fn what_never_came_took_as_long_as_anybody_waits() {
    let mut run = CallRun { up: vec![Some(25 * MS); 100], ..CallRun::default() };
    run.down.clone_from(&run.up);
    assert_eq!(heard(&run, 20.0), (Some(5.0), Some(0.0)));
    run.down[..3].fill(None);
    run.up[7] = Some(171 * MS);
    assert_eq!(heard(&run, 20.0), (Some(980.0), Some(0.02)));
    assert_eq!(heard(&CallRun::default(), 20.0), (None, None));
}

#[test]
fn shares_are_of_the_sum_and_of_the_better_link_and_fairness_is_jains() {
    let had = Had { mbps: vec![6.0, 2.0], could_mbps: 10.0, better_mbps: 6.0, ..Had::default() };
    assert_eq!(had.share_of_sum(), Some(0.8));
    assert_eq!(had.better_link_share(), Some(8.0 / 6.0));
    assert_eq!(had.fairness(), Some(0.8));
    // Whoever is beside the tunnel counts as much as all in it.
    let starved = Had { beside_mbps: Some(0.0), ..had.clone() };
    assert_eq!(starved.fairness(), Some(0.5));
    assert_eq!(Had { beside_mbps: Some(8.0), ..had.clone() }.fairness(), Some(0.8));
    let other = Had { mbps: vec![6.0], other_mbps: 3.0, ..had };
    assert_eq!((other.share_of_sum(), other.fairness()), (Some(0.9), None));
    assert_eq!(Had::default().share_of_sum(), None);
}
