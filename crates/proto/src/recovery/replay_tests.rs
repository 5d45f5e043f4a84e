use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::id::PathSerial;
use crate::wire::frame::Feedback;

fn accept(window: &mut ReplayWindow, number: u64) -> bool {
    let fresh = window.check(number).is_ok();
    if fresh {
        window.commit(Instant::ZERO, number);
    }
    fresh
}

#[test]
fn each_number_once() {
    let mut window = ReplayWindow::default();
    for number in [0, 1, 3, 2, 9_000, 8_999] {
        assert!(accept(&mut window, number), "{number}");
        assert!(!accept(&mut window, number), "{number} again");
    }
}

#[test]
fn what_is_behind_the_window_is_refused() {
    let mut window = ReplayWindow::default();
    assert!(accept(&mut window, 100_000));
    assert!(!accept(&mut window, 100_000 - WINDOW_MIN));
    assert!(accept(&mut window, 100_001 - WINDOW_MIN));
}

#[test]
fn what_the_newest_word_pushes_out_is_behind_the_window() {
    for ahead in 0..64 {
        let mut window = ReplayWindow::default();
        let highest = 7 * WINDOW_MIN + ahead;
        let inside = highest + 1 - WINDOW_MIN..highest;
        inside.clone().for_each(|number| assert!(accept(&mut window, number), "{number}"));
        assert!(accept(&mut window, highest), "none of those stands in its place");
        for number in inside {
            assert!(!accept(&mut window, number), "{number} again, {highest} being the highest");
        }
    }
}

#[test]
fn a_fast_path_widens_the_window() {
    let mut window = ReplayWindow::default();
    for number in 0..3 * WINDOW_MIN {
        assert!(accept(&mut window, number * 2));
    }
    assert!(window.span() >= 2 * WINDOW_MIN, "span {}", window.span());
    assert!(accept(&mut window, 6 * WINDOW_MIN - 3 - 2 * WINDOW_MIN), "an odd one far behind");
    assert!(!accept(&mut window, 6 * WINDOW_MIN - 2), "an even one was received");
}

#[test]
fn the_window_has_a_largest_size() {
    let mut window = ReplayWindow::default();
    for number in 0..3 * WINDOW_MAX {
        window.commit(Instant::ZERO, number);
    }
    assert_eq!(window.span(), WINDOW_MAX);
}

proptest! {
    /// Against a set that remembers everything.
    #[test]
    fn like_a_set(steps in proptest::collection::vec((0u64..40, any::<u16>()), 1..400)) {
        let mut window = ReplayWindow::default();
        let mut seen = BTreeSet::new();
        let mut base = 0u64;
        for (advance, back) in steps {
            base += advance * advance * 3;
            let number = base.saturating_sub(u64::from(back) % 9_000);
            let highest = seen.last().copied();
            let inside = highest.is_none_or(|h| number > h || h - number < WINDOW_MIN);
            let expected = inside && !seen.contains(&number);
            prop_assert_eq!(accept(&mut window, number), expected);
            if expected {
                seen.insert(number);
            }
        }
    }

    /// What the runs acknowledge was received, and near the top all that was received is there.
    #[test]
    fn runs_tell_the_truth(
        numbers in proptest::collection::btree_set(0u64..300, 1..200),
        enough in 0u64..300,
    ) {
        let mut window = ReplayWindow::default();
        for &number in &numbers {
            window.commit(Instant::ZERO, number);
        }
        let largest = window.highest().unwrap();
        let runs = window.runs(enough);
        let serial = PathSerial(0);
        let feedback = Feedback {
            serial, largest, delay_us: 0, arrived_us: 0, received: 0, bytes: 0, runs,
        };
        let reach: u64 = runs.iter().map(|r| u64::from(r.0) + u64::from(r.1)).sum();
        let full = runs.iter().all(|run| run.0 > 0);
        // All but what is missing at the very end, of which nobody waits to hear.
        let far = reach >= largest.saturating_sub(enough);
        prop_assert!(full || far, "{} of {}", reach, largest);
        for number in 0..=largest + 2 {
            let told = feedback.acknowledges(number);
            if told {
                prop_assert!(numbers.contains(&number), "{} was not received", number);
            }
            if number <= largest && largest - number < reach && numbers.contains(&number) {
                prop_assert!(told, "{} was received", number);
            }
        }
    }
}
