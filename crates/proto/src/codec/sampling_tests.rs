//! The decision against the text of Alshalan 2017, section 5.5.1, sentence by sentence.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A flow of a packet of 1,000 bytes each millisecond, of which `saved` bytes are saved. Returns
/// the times in milliseconds at which it goes on or off, from `from` until `to`.
fn run(
    sampling: &mut Sampling,
    (from, to): (u32, u32),
    saved: impl Fn(u32) -> usize,
) -> Vec<(u32, bool)> {
    let mut changes = Vec::new();
    for ms in from..to {
        let was = sampling.is_on();
        let left = if was { 1_000 - saved(ms) } else { 1_000 };
        sampling.left(Instant::ZERO + MS * ms, (1_000, left), Scarce::Nothing);
        if sampling.is_on() != was {
            changes.push((ms, sampling.is_on()));
        }
    }
    changes
}

#[test]
fn a_new_flow_is_on_for_a_sample_and_off_for_2_4_8_16_and_16_seconds() {
    let mut flow = Sampling::new(Instant::ZERO);
    assert!(flow.is_on());
    let changes = run(&mut flow, (0, 50_000), |_| 0);
    let expected = [
        (200, false),
        (2_200, true),
        (2_400, false),
        (6_400, true),
        (6_600, false),
        (14_600, true),
        (14_800, false),
        (30_800, true),
        (31_000, false),
        (47_000, true),
        (47_200, false),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn five_percent_stay_on_and_less_do_not() {
    let mut flow = Sampling::new(Instant::ZERO);
    assert_eq!(run(&mut flow, (0, 10_000), |_| 50), []);
    let mut flow = Sampling::new(Instant::ZERO);
    assert_eq!(run(&mut flow, (0, 1_000), |_| 49), [(200, false)]);
}

#[test]
fn a_flow_that_stays_on_is_off_for_two_seconds_again_afterwards() {
    let mut flow = Sampling::new(Instant::ZERO);
    // Off twice, on from 6,400 to 7,000, and incompressible again.
    let saves = |ms| if (6_400..7_000).contains(&ms) { 500 } else { 0 };
    let changes = run(&mut flow, (0, 12_000), saves);
    assert_eq!(changes[..4], [(200, false), (2_200, true), (2_400, false), (6_400, true)]);
    let (off, on) = (changes[4].0, changes[5].0);
    assert!((7_000..7_500).contains(&off), "{changes:?}");
    assert_eq!(on - off, 2_000, "{changes:?}");
}

#[test]
fn each_sample_counts_for_itself() {
    let mut flow = Sampling::new(Instant::ZERO);
    // The first sample saves half; the second nothing: what the first saved does not carry over.
    let changes = run(&mut flow, (0, 1_000), |ms| if ms <= 200 { 500 } else { 0 });
    assert_eq!(changes, [(400, false)]);
}

#[test]
fn all_other_flows_together_are_sampled_for_two_seconds() {
    let mut flow = Sampling::generic(Instant::ZERO);
    assert_eq!(run(&mut flow, (0, 5_000), |_| 0), [(2_000, false), (4_000, true)]);
}

#[test]
fn the_threshold_knows_what_is_scarce() {
    let judged = |scarce, saved: usize| {
        let mut flow = Sampling::new(Instant::ZERO);
        flow.left(Instant::ZERO + SAMPLE, (1_000, 1_000 - saved), scarce);
        flow.is_on()
    };
    assert!(!judged(Scarce::of(true, false), 199) && judged(Scarce::of(true, false), 200));
    assert!(!judged(Scarce::of(false, true), 19) && judged(Scarce::of(false, true), 20));
    for both in [true, false] {
        assert!(!judged(Scarce::of(both, both), 49) && judged(Scarce::of(both, both), 50));
    }
}

proptest! {
    /// What does not pay is compressed for a sample in each time off, whatever the gaps.
    #[test]
    fn an_incompressible_flow_is_seldom_compressed(gaps in prop::collection::vec(1u32..40, 3_000)) {
        let (mut now, mut operations) = (Instant::ZERO, 0u32);
        let mut flow = Sampling::new(now);
        for gap in gaps {
            now = now + MS * gap;
            operations += u32::from(flow.is_on());
            flow.left(now, (1_000, 1_000), Scarce::Nothing);
        }
        // About 60 s: at most 6 samples of 200 ms and the packet that ends each.
        prop_assert!(operations < 150, "{operations} of 3,000");
    }

    /// Larger results count as no saving: the sums never wrap.
    #[test]
    fn a_larger_result_saves_nothing(len in 1usize..1_500, more in 0usize..100) {
        let mut flow = Sampling::new(Instant::ZERO);
        flow.left(Instant::ZERO + SAMPLE, (len, len + more), Scarce::Bandwidth);
        prop_assert!(!flow.is_on());
    }
}
