use super::*;

/// Takes runs of these fates, each segmented or not, and one datagram after them that is compared
/// with nothing.
fn evidence(runs: &[(bool, &[bool])]) -> Option<Evidence> {
    let mut all = Runs::default();
    for (number, &(is_segmented, fates)) in (0..).zip(runs) {
        for &is_lost in fates {
            all.settle(Tag::new(number, false, is_segmented), is_lost);
        }
    }
    all.settle(Tag::NONE, true);
    all.take()
}

#[test]
fn a_lost_run_counts_against_the_way_it_was_sent() {
    let lost = evidence(&[(true, &[true; 8])]).unwrap();
    assert!((lost.capital() - 1.9).abs() < 1e-9);
    let other = evidence(&[(false, &[true; 8])]).unwrap();
    assert!((other.capital() - 0.1).abs() < 1e-9);
    let last = evidence(&[(true, &[false, false, false, true])]).unwrap();
    assert!((last.capital() - f64::midpoint(1.0 + 0.9 / 4.0, 1.9)).abs() < 1e-9);
    let nothing = evidence(&[(true, &[false; 8]), (false, &[false; 8])]).unwrap();
    assert_eq!((nothing.runs, nothing.capital().to_bits()), (2, 1f64.to_bits()));
}

#[test]
fn what_is_sent_alone_says_nothing() {
    assert_eq!(evidence(&[(true, &[true]), (false, &[true])]), None);
    assert_eq!(evidence(&[]), None);
}

#[test]
fn runs_that_follow_each_other_are_told_apart() {
    let mut runs = Runs::default();
    for number in 0..=255 {
        runs.settle(Tag::new(number, true, true), false);
        runs.settle(Tag::new(number, true, true), false);
    }
    runs.settle(Tag::NONE, false);
    let evidence = runs.take().unwrap();
    assert_eq!((evidence.runs, evidence.is_second), (256, true));
    assert_eq!(runs.take(), None);
}

#[test]
fn a_comparison_takes_nothing_over_from_the_one_before() {
    let mut runs = Runs::default();
    let mut run = |is_second, is_lost| {
        runs.settle(Tag::new(0, is_second, true), is_lost);
        runs.settle(Tag::new(0, is_second, true), is_lost);
        runs.settle(Tag::new(1, is_second, true), false);
        runs.settle(Tag::new(1, is_second, true), false);
    };
    run(false, true);
    run(true, false);
    runs.settle(Tag::NONE, false);
    let evidence = runs.take().unwrap();
    assert_eq!((evidence.runs, evidence.capital().to_bits()), (2, 1f64.to_bits()));
    assert!(evidence.is_second);
}
