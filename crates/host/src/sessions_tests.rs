//! What people are told of paths is what is known.

use rove_proto::recovery::loss::Loss;

use super::*;
use crate::samples::{NOW, path, peer};

#[test]
fn a_share_is_a_part_of_what_gets_through() {
    let rate = |bytes_per_second: u64| {
        let mut rate = Rate::default();
        for ms in 0..=1_000u32 {
            rate.sample(NOW, ms * 1_000, u64::from(ms) * bytes_per_second / 1_000);
        }
        rate
    };
    let shared = |up, down| PathStatus {
        is_shared: true,
        tx_rate: rate(up),
        rx_rate: rate(down),
        ..path(Health::Good, Some(0), None)
    };
    let beside = PathStatus { in_use: false, ..shared(100_000, 200_000) };
    let standby = PathStatus { is_shared: false, ..beside };
    let [first, second, third] =
        shares(&[shared(400_000, 300_000), beside, standby.clone()], NOW)[..]
    else {
        panic!()
    };
    let near = |share: Option<f64>, expected: f64| (share.unwrap() - expected).abs() < 0.01;
    assert!(near(first, 0.7) && near(second, 0.3), "{first:?} {second:?}");
    assert_eq!(third, Some(0.0));
    assert_eq!(shares(&[path(Health::Good, None, None), standby], NOW), [Some(1.0), Some(0.0)]);
    let silent = Health::Silent { since: NOW };
    assert_eq!(shares(&[path(silent, None, None)], NOW), [Some(1.0)], "there is no other");
    let later = NOW + Duration::from_secs(9);
    let both = [shared(400_000, 300_000), shared(100_000, 200_000)];
    assert_eq!(shares(&both, later), [None, None], "nothing goes by either");
}

#[test]
fn what_was_not_measured_is_not_told() {
    let told = |loss: Loss, now| {
        let shared = PathStatus { is_shared: true, loss, ..path(Health::Good, None, None) };
        let told = told_paths(
            &peer(PeerState::Up, vec![shared.clone(), shared]),
            now,
            &BTreeMap::new(),
            &[],
        );
        let Path { loss, share, rtt_us, rate_mbps, queue_ms, .. } = told[0];
        (loss, share, rtt_us, rate_mbps, queue_ms)
    };
    let mut loss = Loss::default();
    assert_eq!(told(loss, NOW), (None, None, None, None, None));
    loss.sample(NOW, 1_000, 900);
    assert!((told(loss, NOW).0.unwrap() - 0.05).abs() < 1e-9);
    assert_eq!(told(loss, NOW + Duration::from_secs(2)).0, None, "any more");
}
