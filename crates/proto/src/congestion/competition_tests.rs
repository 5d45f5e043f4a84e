use super::super::Controller;
use super::super::model::{Link, World};
use super::*;

/// Mbit/s, milliseconds, and seconds of what the queue holds.
const LINKS: [(f64, u64, f64); 6] = [
    (20.0, 40, 0.04),
    (20.0, 40, 0.1),
    (10.0, 20, 0.05),
    (50.0, 30, 0.03),
    (5.0, 60, 0.1),
    (100.0, 20, 0.05),
];

fn link((mbits, trip_ms, buffer_s): (f64, u64, f64)) -> Link {
    let link = Link::new(mbits, trip_ms);
    Link { buffer: link.rate * buffer_s, ..link }
}

/// Goes on to that second and returns for how many of them it was sent as others do.
fn competes(world: &mut World, until_s: u32) -> f64 {
    let mut seconds = 0.0;
    while world.now.as_nanos() < u64::from(until_s) * 1_000_000_000 {
        #[expect(clippy::cast_precision_loss, reason = "less than 2^52 nanoseconds")]
        world.run(world.now.as_nanos() as f64 / 1e9 + 0.05);
        seconds += if world.flows[0].controller.competes() { 0.05 } else { 0.0 };
    }
    seconds
}

/// A sender like Reno comes after five seconds, and ends after sixty: the parts of the link that
/// are taken in the last forty of them.
fn beside(world: &mut World, heeds: bool) -> (f64, f64) {
    world.heeds = heeds;
    world.run(5.0);
    world.begin_elastic();
    world.run(60.0);
    let rate = world.link.rate;
    (world.arrived(0, 20.0, 60.0) / rate, world.elastic_arrived(20.0, 60.0) / rate)
}

#[test]
fn beside_one_who_fills_the_queue_each_has_its_part() {
    for kind in LINKS {
        let (without, _) = beside(&mut World::new(link(kind), &[0]), false);
        let mut world = World::new(link(kind), &[0]);
        let (taken, left) = beside(&mut world, true);
        println!("{kind:?}: {taken:.2} and {left:.2}; {without:.2} where it is not heeded");
        assert!((0.33..0.75).contains(&taken) && left > 0.25);
        assert!(taken + left > 0.97, "nothing is wasted");
        assert!(without < 0.33, "the test tells nothing");
    }
}

#[test]
fn when_the_other_has_gone_the_queue_is_short_again() {
    for kind in LINKS {
        let mut world = World::new(link(kind), &[0]);
        beside(&mut world, true);
        world.end_elastic();
        let still = competes(&mut world, 80);
        let arrived = world.arrived(0, 61.0, 80.0) / world.link.rate;
        let [queue, most] = [0.5, 0.95].map(|part| world.queue(72.0, 80.0, part));
        println!("{kind:?}: {still:.1} s, {arrived:.3} of the rate, {queue:.1} ms, {most:.1}");
        assert!(still < 11.0 && arrived > 0.98);
        assert!(queue < 2.0 + 40.0 / kind.0 && most < 10.0 + 40.0 / kind.0, "queue");
    }
}

#[test]
fn where_nobody_else_is_it_is_never_sent_as_others_do() {
    for (mbits, trip_ms, _) in LINKS {
        for (loss, jitter_ms) in [(0.0, 0), (0.01, 0), (0.05, 5), (0.0, 10)] {
            for buffer_s in [0.01, 0.05, 1.0] {
                let link = link((mbits, trip_ms, buffer_s));
                let jitter = Duration::from_millis(jitter_ms);
                let mut world = World::new(Link { loss, jitter, ..link }, &[0]);
                let seconds = competes(&mut world, 20);
                assert!(seconds == 0.0, "{mbits} {trip_ms} {loss} {jitter_ms} {buffer_s}");
            }
        }
    }
}

#[test]
fn a_link_that_changes_is_nobody_else() {
    for (from, to) in [(20.0, 5.0), (5.0, 20.0), (50.0, 10.0)] {
        let mut world = World::new(link((from, 40, 0.2)), &[0]);
        let mut seconds = competes(&mut world, 8);
        for turn in 0..8_u32 {
            world.link.rate = if turn % 2 == 0 { to } else { from } * 125_000.0;
            seconds += competes(&mut world, 12 + 4 * turn);
        }
        assert!(seconds == 0.0, "{from} and {to} Mbit/s in turn: {seconds:.1} s");
    }
    for more in [5, 10, 20, 50, 100] {
        let mut world = World::new(Link::new(20.0, 40), &[0]);
        world.run(10.0);
        world.link.trip = Duration::from_millis(40 + more);
        let seconds = competes(&mut world, 50);
        assert!(seconds == 0.0, "{more} ms longer: {seconds:.1} s");
    }
}

#[test]
fn what_others_send_at_their_own_rate_is_nobody_to_compete_with() {
    for part in [0.3, 0.6] {
        let mut world = World::new(link((20.0, 40, 0.1)), &[0]);
        world.run(5.0);
        world.link.others = part * world.link.rate;
        let seconds = competes(&mut world, 30);
        assert!(seconds == 0.0, "{part} of the link: {seconds:.1} s");
    }
}

/// Two senders of this kind that are no paths of one peer, and one like Reno that comes after five
/// seconds and ends after forty: after how many more seconds the queue is short and stays so, the
/// parts of the link that each has then, and the queue in milliseconds that is there mostly.
fn two_that_competed(kind: (f64, u64, f64), begins_s: &[u64]) -> (f64, [f64; 2], f64) {
    let mut world = World::new(link(kind), begins_s);
    world.run(5.0);
    world.begin_elastic();
    world.run(40.0);
    world.end_elastic();
    let (mut calm_s, mut at_s) = (40.0, 40.0);
    while at_s < 100.0 {
        at_s += 0.5;
        world.run(at_s);
        if world.flows.iter().any(|flow| flow.controller.competes()) {
            calm_s = at_s;
        }
    }
    let shares = [0, 1].map(|flow| world.arrived(flow, 80.0, 100.0) / world.link.rate);
    (calm_s - 40.0, shares, world.queue(80.0, 100.0, 0.95))
}

#[test]
fn two_who_competed_with_another_do_not_go_on_with_each_other() {
    let mut calm = 0;
    for kind in LINKS {
        for begins_s in [[0, 0], [0, 1], [2, 0], [0, 4]] {
            let (calm_s, shares, queue) = two_that_competed(kind, &begins_s);
            let squares = shares[0].powi(2) + shares[1].powi(2);
            let jain = (shares[0] + shares[1]).powi(2) / (2.0 * squares);
            println!(
                "{kind:?} {begins_s:?}: {calm_s:.1} s, {shares:.2?}, {jain:.3}; {queue:.1} ms"
            );
            assert!(jain > 0.9, "each has its part");
            if calm_s < 35.0 {
                calm += 1;
                assert!(queue < 6.0 + 60.0 / kind.0, "queue");
            }
        }
    }
    // Chance has a part in it; by now they would find each other in the rest as well.
    assert!(calm >= 22, "{calm} of 24");
}

#[test]
fn what_is_on_its_way_beyond_the_window_is_that_of_all_paths_of_a_queue_together() {
    let beyond = |paths: f64| {
        let (rate, of) = ((125_000.0, Suspicion::default()), (1_400.0, 1.0 / paths));
        let it = Competition::new(Instant::ZERO, rate, (0.1, 0.0), 0, of);
        paths * (it.window(of.0, of.1) - it.cubic.window() * of.0) + (paths - 1.0) * of.0 / 2.0
    };
    for paths in [1.0, 2.0, 4.0] {
        assert!((beyond(paths) - 5_500.0).abs() < 1e-6, "{paths}: {}", beyond(paths));
    }
}
