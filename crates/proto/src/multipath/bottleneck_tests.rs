use super::*;

const PATHS: [PathId; 3] = [PathId(1), PathId(2), PathId(5)];

/// Tells for so many seconds what waits on each path, in milliseconds, by the time in seconds.
fn tell(all: &mut Bottlenecks, from_s: f64, to_s: f64, queue: impl Fn(usize, f64) -> f64) {
    let mut at_s = from_s;
    while at_s < to_s {
        let now = Instant::ZERO + Duration::from_secs_f64(at_s);
        for (place, path) in PATHS.into_iter().enumerate() {
            all.note(now, path, Duration::from_secs_f64(queue(place, at_s).max(0.0) / 1e3));
        }
        all.compare(now);
        at_s += 0.02;
    }
}

fn are_one(all: &Bottlenecks, at_s: f64, one: usize, other: usize) -> bool {
    let now = Instant::ZERO + Duration::from_secs_f64(at_s);
    assert_eq!(
        all.are_companions(now, PATHS[one], PATHS[other]),
        all.are_companions(now, PATHS[other], PATHS[one])
    );
    all.are_companions(now, PATHS[one], PATHS[other])
}

/// What a sender like Reno makes of a queue: it fills in `period` seconds and is drained at once.
fn teeth(at_s: f64, period: f64) -> f64 {
    40.0 * (at_s / period).fract()
}

#[test]
fn paths_whose_queues_rise_and_fall_together_are_companions_whatever_else_they_have() {
    let mut all = Bottlenecks::default();
    tell(&mut all, 0.0, 10.0, |place, at| match place {
        0 => teeth(at, 1.7),
        // With a queue of its own beside, and heard of later.
        1 => teeth(at - 0.03, 1.7) + 2.0 + (at * 30.0).sin(),
        _ => teeth(at, 0.9),
    });
    assert!(are_one(&all, 10.0, 0, 1));
    assert!(!are_one(&all, 10.0, 0, 2) && !are_one(&all, 10.0, 1, 2), "each has others of its own");
}

#[test]
fn where_nobody_else_fills_them_queues_say_nothing() {
    let mut all = Bottlenecks::default();
    // All the same, but short: emptied together, say.
    tell(&mut all, 0.0, 20.0, |_, at| if at % 5.0 < 0.1 { 0.0 } else { 3.0 });
    assert!(!are_one(&all, 20.0, 0, 1));
    // One of them alone is in need.
    tell(&mut all, 20.0, 40.0, |place, at| if place == 0 { teeth(at, 1.1) } else { 3.0 });
    assert!(!are_one(&all, 40.0, 0, 1));
}

#[test]
fn companions_part_when_their_queues_do_and_are_forgotten_in_time() {
    let mut all = Bottlenecks::default();
    tell(&mut all, 0.0, 10.0, |_, at| teeth(at, 1.3));
    assert!(are_one(&all, 10.0, 0, 1) && are_one(&all, 10.0, 0, 2));
    tell(
        &mut all,
        10.0,
        20.0,
        |place, at| if place == 2 { teeth(at, 0.7) } else { teeth(at, 1.3) },
    );
    assert!(are_one(&all, 20.0, 0, 1) && !are_one(&all, 20.0, 0, 2));
    // The others have left: for a while that is believed to be no proof.
    tell(&mut all, 20.0, 35.0, |_, _| 3.0);
    assert!(are_one(&all, 35.0, 0, 1));
    tell(&mut all, 35.0, 80.0, |_, _| 3.0);
    assert!(!are_one(&all, 80.0, 0, 1));
    // A path that is silent is not compared, nor kept.
    let mut all = Bottlenecks::default();
    for path in 0..40 {
        all.note(Instant::ZERO, PathId(path), Duration::from_millis(3));
    }
    assert!(all.compare(Instant::ZERO) && !all.compare(Instant::ZERO));
    assert_eq!((all.paths.len(), all.pairs.len()), (PATHS_MAX, PATHS_MAX * (PATHS_MAX - 1) / 2));
    all.compare(Instant::ZERO + REMEMBERED);
    assert!(all.paths.is_empty() && all.pairs.is_empty());
}
