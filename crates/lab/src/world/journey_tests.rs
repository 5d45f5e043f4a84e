use super::*;

const RATE: u64 = 20_000_000;

fn link() -> LinkConfig {
    LinkConfig::lossless(RATE, 40 * MS)
}

fn plan(broken: bool) -> RoamPlan {
    RoamPlan {
        moves: 4,
        pause_ns: 700 * MS,
        idle: (2, 1_200 * MS),
        length: 4_000_000,
        move_at_ns: SECOND,
        broken,
    }
}

#[test]
fn a_tunnel_costs_its_overhead_and_no_time() {
    let tale = tunnel(1, &link(), 10_000_000, SECOND, false).unwrap();
    let [bare, tunnelled] = tale.goodput_mbps.map(Option::unwrap);
    assert!(tunnelled / bare > 0.92, "{tunnelled} of {bare} Mbit/s");
    assert_eq!((tale.lost, tale.intact), (0, true));
    assert!(tale.overhead_bytes.iter().all(|bytes| *bytes == 27.0), "{:?}", tale.overhead_bytes);
    let [bare, tunnelled] = tale.round_trips_us.map(|trips| trips.into_iter().fold(0.0, f64::max));
    assert!(tunnelled - bare < 1_000.0, "{tunnelled} us against {bare} us");
}

#[test]
fn a_broken_tunnel_is_noticed() {
    let tale = tunnel(1, &link(), 10_000_000, SECOND, true).unwrap();
    assert!(tale.lost > 0);
}

#[test]
fn a_client_moves_within_a_round_trip() {
    let tale = roam_client(1, &link(), &plan(false)).unwrap();
    assert_eq!(tale.still_ms.len(), 4);
    assert!(tale.still_ms.iter().all(|ms| *ms <= 50.0), "{:?}", tale.still_ms);
    assert!(tale.idle_still_ms.iter().all(|ms| *ms <= 50.0), "{:?}", tale.idle_still_ms);
    assert!(tale.download.is_some());
}

#[test]
fn a_client_that_moves_into_a_hole_stands_still() {
    let tale = roam_client(1, &link(), &plan(true)).unwrap();
    assert!(tale.still_ms.iter().all(|ms| *ms > 500.0), "{:?}", tale.still_ms);
    assert_eq!(tale.download, None);
}
