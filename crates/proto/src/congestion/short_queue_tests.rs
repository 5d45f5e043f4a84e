use super::super::model::{Link, SIZE, World};
use super::super::pacer;
use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A world of one sender, after `seconds`.
fn after(seconds: f64, link: Link) -> World {
    let mut world = World::new(link, &[0]);
    world.run(seconds);
    world
}

/// The queue in milliseconds that is allowed on a link.
fn short(link: &Link) -> f64 {
    1.5 + 3.0 * SIZE / link.rate * 1e3 + link.trip.as_secs_f64() * 10.0
}

/// One link of the grid: prints what it carries, and fails where that is too little.
fn grid(mbits: f64, trip_ms: u64, loss: f64) {
    let world = after(30.0, Link { loss, ..Link::new(mbits, trip_ms) });
    let rate = world.link.rate * (1.0 - loss);
    let share = world.arrived(0, 10.0, 30.0) / rate;
    let (queue, most) = (world.queue(10.0, 30.0, 0.5), world.queue(10.0, 30.0, 0.95));
    let time = world.reaches(0, 0.0, 0.9 * rate);
    println!(
        "{mbits:3} Mbit/s {trip_ms:3} ms {loss:5} loss: {share:.3} of the rate, {time:3.1} s to \
         nine tenths, queue {queue:5.1} ms, {most:5.1} in 95 %"
    );
    assert!(share >= 0.98, "share");
    assert!(queue <= short(&world.link), "queue");
    assert!(time <= 1.0 + 12.0 * world.link.trip.as_secs_f64(), "time");
}

/// All of it when optimised, a part of it otherwise.
#[test]
fn a_path_is_filled_with_a_short_queue_whatever_it_loses() {
    let all = !cfg!(debug_assertions);
    let rates: &[f64] = if all { &[1.0, 10.0, 100.0, 300.0] } else { &[1.0, 10.0, 40.0] };
    let trips: &[u64] = if all { &[2, 20, 60, 200, 300, 600] } else { &[2, 60, 300] };
    let losses: &[f64] = if all { &[0.0, 0.005, 0.01, 0.05] } else { &[0.0, 0.05] };
    for &mbits in rates {
        for &trip_ms in trips {
            for &loss in losses {
                grid(mbits, trip_ms, loss);
            }
        }
    }
}

#[test]
fn jitter_is_no_queue() {
    for (mbits, trip_ms) in [(20.0, 40), (20.0, 10), (5.0, 60)] {
        for jitter_ms in [5, 10] {
            let link = Link { jitter: ms(jitter_ms), ..Link::new(mbits, trip_ms) };
            let world = after(20.0, link);
            let share = world.arrived(0, 10.0, 20.0) / world.link.rate;
            let queue = world.queue(10.0, 20.0, 0.5);
            println!(
                "{mbits} Mbit/s {trip_ms} ms, jitter {jitter_ms} ms: {share:.3}, {queue:.1} ms"
            );
            assert!(share >= 0.95, "share");
            assert!(queue <= short(&world.link) + ms(jitter_ms).as_secs_f64() * 1e3, "queue");
        }
    }
}

/// Runs for 30 seconds. Returns what arrived and the lost part of what was sent in the last 20.
fn overfull(link: Link) -> (f64, f64) {
    let mut world = after(10.0, link);
    let before = (world.flows[0].dropped, world.flows[0].datagrams);
    world.run(30.0);
    let after = (world.flows[0].dropped, world.flows[0].datagrams);
    let share = world.arrived(0, 10.0, 30.0) / world.link.rate / (1.0 - link.loss);
    #[expect(clippy::cast_precision_loss, reason = "counts of a test")]
    let lost = (after.0 - before.0) as f64 / (after.1 - before.1) as f64;
    println!(
        "{:.0} Mbit/s {:?} loss {}, {}: {share:.3}, {lost:.4} too much",
        link.rate / 125_000.0,
        link.trip,
        link.loss,
        if link.polices { "policed" } else { "10 ms of buffer" }
    );
    (share, lost)
}

#[test]
fn a_short_buffer_and_a_policer_are_not_overfilled() {
    for (mbits, trip_ms) in [(20.0, 10), (20.0, 200), (40.0, 40)] {
        for loss in [0.0, 0.01] {
            let link = Link { loss, ..Link::new(mbits, trip_ms) };
            let (share, lost) = overfull(Link { buffer: link.rate * 0.010, ..link });
            assert!(share >= 0.98 && lost < 0.002);
            let (share, lost) = overfull(Link { buffer: link.rate * 0.010, polices: true, ..link });
            assert!(share >= 0.95 && lost < 0.04);
        }
    }
}

#[test]
fn a_link_that_becomes_faster_or_slower_is_followed() {
    let steps = [(10.0, 100.0, 40), (5.0, 50.0, 20), (1.0, 10.0, 40), (20.0, 40.0, 100)];
    for (from, to, trip_ms) in steps {
        let mut world = after(10.0, Link::new(from, trip_ms));
        world.link.rate = to * 125_000.0;
        world.run(20.0);
        let time = world.reaches(0, 10.0, 0.9 * world.link.rate);
        println!("{from} to {to} Mbit/s {trip_ms} ms: {time:.1} s");
        assert!(time < 3.0);
    }
    for (from, to, trip_ms) in [(100.0, 10.0, 40), (50.0, 5.0, 20), (40.0, 20.0, 100)] {
        let mut world = after(10.0, Link::new(from, trip_ms));
        world.link.rate = to * 125_000.0;
        world.run(11.0);
        let rate = world.flows[0].controller.rate().unwrap() / world.link.rate;
        world.run(20.0);
        let share = world.arrived(0, 11.0, 20.0) / world.link.rate;
        let queue = world.queue(12.0, 20.0, 0.5);
        println!("{from} to {to} Mbit/s {trip_ms} ms: {rate:.2}, {share:.3}, queue {queue:.1} ms");
        assert!((0.9..1.1).contains(&rate), "after a second");
        assert!(share > 0.95 && queue < 2.0 * short(&world.link));
    }
}

/// A link of 10 Mbit/s in the mean, whose rate changes every tenth of a second for a minute: the
/// part of it that is used in the last 50 seconds, and the queue in milliseconds at the mean and
/// below which it was 95 % of the time. In every tenth the controller is told something.
fn changing(tell: impl Fn(&mut ShortQueue, Instant)) -> (f64, f64, f64) {
    const RATES: [f64; 7] = [5.0, 14.0, 10.0, 7.0, 12.0, 15.0, 8.0];
    let mut world = World::new(Link::new(RATES[0], 50), &[0]);
    let mut offered = 0.0;
    for tenth in 0..600_u32 {
        // Its steps are none of the period's.
        world.link.rate = RATES[(tenth * tenth / 3 + tenth) as usize % 7] * 125_000.0;
        offered += if tenth >= 100 { world.link.rate / 10.0 } else { 0.0 };
        let now = world.now;
        tell(&mut world.flows[0].controller, now);
        world.run(f64::from(tenth + 1) / 10.0);
    }
    let share = world.arrived(0, 10.0, 60.0) * 50.0 / offered;
    (share, world.queue(10.0, 60.0, 0.5), world.queue(10.0, 60.0, 0.95))
}

#[test]
fn of_a_path_that_varies_little_is_left_and_its_queue_is_short_where_that_is_wanted() {
    let (share, median, long) = changing(|_, _| {});
    println!("{share:.3} of what it carries, queue {median:.0} ms, 95 % below {long:.0} ms");
    assert!(share > 0.92 && median < 100.0, "{share:.3}, {median:.0} ms");
    let (_, calm, _) = changing(ShortQueue::keep_calm);
    let (usual, short, _) = changing(|controller, _| controller.variation = Variation::default());
    println!("while calls share it {calm:.0} ms, else {short:.0} ms and {usual:.3}");
    assert!(calm < median / 2.0 && short < median / 2.0 && usual < share);
}

#[test]
fn who_has_little_to_send_does_not_forget_what_the_path_carries() {
    for (mbits, trip_ms) in [(20.0, 40), (40.0, 20), (5.0, 100)] {
        let mut world = after(5.0, Link::new(mbits, trip_ms));
        world.flows[0].load = world.link.rate / 2.0;
        world.run(25.0);
        let rate = world.flows[0].controller.rate().unwrap() / world.link.rate;
        assert!((0.97..1.05).contains(&rate), "{rate}");
        assert!(world.queue(8.0, 25.0, 0.5) < 0.1, "no queue");
        world.flows[0].load = f64::INFINITY;
        world.run(30.0);
        assert!(world.reaches(0, 25.0, 0.95 * world.link.rate) < 1.0);
        assert!(world.queue(25.0, 30.0, 0.95) < 3.0 * short(&world.link));
    }
}

/// The sender has a burst in each round trip, less than the path carries in that time. So it never
/// fills a round, and while the path is in startup each burst overruns the buffer.
#[test]
fn a_sender_of_bursts_does_not_overrun_a_short_buffer_for_long() {
    for (mbits, trip_ms, part) in [(100.0, 80, 0.9), (300.0, 80, 0.8), (200.0, 300, 0.5)] {
        let link = Link::new(mbits, trip_ms);
        let mut world = World::new(Link { buffer: link.rate * 0.02, ..link }, &[0]);
        let (trip, burst) = (link.trip.as_secs_f64(), 0.002);
        let mut before = (0, 0);
        for round in 0..60 {
            let from = f64::from(round) * trip;
            world.flows[0].load = link.rate * trip * part / burst;
            world.run(from + burst);
            world.flows[0].load = 0.0;
            world.run(from + trip);
            if round == 29 {
                before = (world.flows[0].dropped, world.flows[0].datagrams);
            }
        }
        let lost = world.flows[0].dropped - before.0;
        let sent = world.flows[0].datagrams - before.1;
        println!("{mbits} Mbit/s {trip_ms} ms: {lost} of {sent} lost");
        assert!(sent > 5_000 && lost * 30 < sent);
    }
}

#[test]
fn after_a_long_silence_a_path_is_begun_with_ten_datagrams() {
    let mut world = after(5.0, Link::new(20.0, 100));
    world.flows[0].load = 0.0;
    world.run(16.0);
    let before = world.flows[0].datagrams;
    world.flows[0].load = f64::INFINITY;
    world.run(16.09);
    assert!((5..=10).contains(&(world.flows[0].datagrams - before)));
    assert!(world.flows[0].controller.rate().unwrap() > 2_000_000.0, "a hint");
    world.run(20.0);
    assert!(world.reaches(0, 16.0, 0.9 * world.link.rate) < 1.5);
}

#[test]
fn two_share_a_link() {
    for (mbits, trip_ms, begins_s) in [(20.0, 40, 0), (20.0, 40, 5), (5.0, 40, 5), (20.0, 10, 5)] {
        let mut world = World::new(Link::new(mbits, trip_ms), &[0, begins_s]);
        world.run(45.0);
        let (first, second) = (world.arrived(0, 35.0, 45.0), world.arrived(1, 35.0, 45.0));
        let (part, sum) = (first / (first + second), (first + second) / world.link.rate);
        let queue = world.queue(35.0, 45.0, 0.95);
        println!("{mbits} Mbit/s {trip_ms} ms: first {part:.2}, sum {sum:.3}, {queue:.1} ms");
        assert!((0.35..=0.65).contains(&part) && sum > 0.98);
        assert!(queue < 3.0 * short(&world.link));
    }
}

#[test]
fn what_others_leave_is_used_and_found_again_when_they_end() {
    for (mbits, trip_ms) in [(20.0, 40), (20.0, 100)] {
        let mut world = after(5.0, Link::new(mbits, trip_ms));
        world.link.others = world.link.rate / 2.0;
        world.run(15.0);
        assert!(world.arrived(0, 7.0, 15.0) > 0.97 * world.link.rate / 2.0);
        assert!(world.queue(7.0, 15.0, 0.5) < 2.0 * short(&world.link));
        world.link.others = 0.0;
        world.run(20.0);
        assert!(world.arrived(0, 17.0, 20.0) > 0.95 * world.link.rate);
    }
}

#[test]
fn a_way_that_becomes_longer_is_no_queue_of_ours() {
    for more in [5, 30, 100] {
        let mut world = after(10.0, Link::new(20.0, 40));
        world.link.trip = ms(40 + more);
        world.run(20.0);
        let share = world.arrived(0, 15.0, 20.0) / world.link.rate;
        assert!(share > 0.97, "{more} ms: {share}");
    }
}

#[test]
fn a_fast_path_is_not_paced() {
    let mut world = World::new(Link::new(2_000.0, 2), &[0]);
    world.flows[0].load = 100e6; // 800 Mbit/s: the inner flows send no more
    world.flows[0].conditions.is_alone = true;
    world.run(3.0);
    let controller = &world.flows[0].controller;
    assert_eq!(controller.pacing_rate(), RATE_RANGE.1);
    assert!(controller.window() >= fast::WINDOW);
    assert!(world.arrived(0, 1.0, 3.0) >= 0.99 * 100e6);
    // After a silence it begins anew, and is fast again as soon as it shows.
    world.flows[0].load = 0.0;
    world.run(15.0);
    world.flows[0].load = 100e6;
    world.run(17.0);
    assert_eq!(world.flows[0].controller.pacing_rate(), RATE_RANGE.1, "after a silence");
    world.flows[0].conditions.is_alone = false;
    world.run(18.0);
    assert!(world.flows[0].controller.pacing_rate() < 10.0 * 100e6, "another path carries");
    // Slower ones are: their queues are long enough to be the network's.
    let mut world = World::new(Link::new(300.0, 2), &[0]);
    world.flows[0].conditions.is_alone = true;
    world.run(3.0);
    assert!(world.flows[0].controller.pacing_rate() < 1.5 * 37.5e6);
}

#[test]
fn a_fast_path_with_a_standing_queue_is_paced_again_for_a_minute() {
    let mut world = World::new(Link::new(700.0, 10), &[0]);
    world.flows[0].conditions.is_alone = true;
    world.run(8.0);
    assert!(world.queue(0.0, 8.0, 1.0) > 30.0, "it was tried");
    assert!(!world.flows[0].controller.fast.is_fast);
    assert!(world.queue(4.0, 8.0, 0.95) <= short(&world.link), "and not again");
    assert!(world.arrived(0, 4.0, 8.0) >= 0.98 * world.link.rate);
}

#[test]
fn timers_with_a_grain_cost_nothing() {
    for (mbits, trip_ms) in [(20.0, 40), (100.0, 10), (0.3, 60)] {
        let mut world = World::new(Link::new(mbits, trip_ms), &[0]);
        world.grain = ms(1);
        world.run(15.0);
        let share = world.arrived(0, 5.0, 15.0) / world.link.rate;
        assert!(share > 0.98, "{share}");
        assert!(world.queue(5.0, 15.0, 0.5) < 1.0 + short(&world.link));
    }
}

#[test]
fn a_pause_gives_credit_for_a_datagram_and_a_debt_has_an_end() {
    let mut controller = ShortQueue::new(at(0), Some(ms(140)));
    let pace = controller.pacing_rate();
    assert!((pace - 100_000.0).abs() < 1.0, "ten datagrams in a round trip");
    let mut sent = 0;
    while controller.next_at() <= at(5_000) {
        controller.sent(at(5_000), 1_400);
        sent += 1;
    }
    assert_eq!(sent, 2);
    for _ in 0..1_000 {
        controller.sent(at(5_000), 1_400);
    }
    assert_eq!(controller.next_at(), at(5_000) + pacer::DEBT);
}

#[test]
fn after_a_silence_it_begins_with_what_it_carried() {
    let mut world = after(5.0, Link::new(20.0, 40));
    let now = world.now;
    let controller = &mut world.flows[0].controller;
    assert!(controller.allows(100_000) && controller.rate().unwrap() > 2_400_000.0);
    assert!(controller.trip.least < ms(41), "and what it takes to send one");
    let carried = controller.rate().unwrap();
    controller.lost_all(now);
    assert_eq!((controller.rate(), controller.pacing_rate()), (Some(carried), carried));
    assert!(!controller.allows(104_000) && controller.allows(96_000), "a round trip of that");
    // Nothing showed yet that this was right.
    let mut doubted = controller.clone();
    doubted.lost_all(now);
    assert_eq!(doubted.pacing_rate(), carried / 2.0);
    world.run(6.0);
    assert!(world.arrived(0, 5.2, 6.0) > 0.9 * world.link.rate);
    assert!(world.queue(5.2, 6.0, 1.0) < 20.0, "{} ms", world.queue(5.2, 6.0, 1.0));
}

/// A path that takes the place of one that carried 20 Mbit/s: as fast, half, and twice as fast.
#[test]
fn a_path_in_anothers_place_begins_as_if_it_were_like_that() {
    for (mbits, trip_ms) in [(20.0, 40), (10.0, 40), (40.0, 40), (20.0, 200)] {
        let [guessed, anew] = [true, false].map(|is_guessed| {
            let mut world = World::new(Link::new(mbits, trip_ms), &[0]);
            if is_guessed {
                let controller = &mut world.flows[0].controller;
                controller.guess(2.5e6);
                assert!((1.24e6..1.26e6).contains(&controller.pacing_rate()));
            }
            world.run(5.0);
            let time = world.reaches(0, 0.0, 0.9 * world.link.rate);
            let (queue, share) = (world.queue(0.0, 1.0, 1.0), world.arrived(0, 2.0, 5.0));
            (time, queue, share / world.link.rate)
        });
        println!("{mbits} Mbit/s {trip_ms} ms: s, ms, share: {guessed:?}, anew {anew:?}");
        assert!(guessed.0 <= anew.0, "time");
        assert!(guessed.1 <= 150.0, "queue");
        assert!(guessed.2 >= 0.98, "share");
        if (mbits, trip_ms) == (20.0, 40) {
            assert!(guessed.1 <= anew.1 / 2.0, "it is not sent on to see whether it carries more");
        }
    }
}

/// A late turn sends the datagrams that could have left meanwhile, limited by the usual lateness
/// and the room of the path.
#[test]
fn what_could_have_left_while_a_turn_was_late_leaves_with_it() {
    let trip = Duration::from_millis(20);
    // Ten datagrams in 20 ms: one each 2 ms.
    let leave = |late_ms| {
        let mut controller = ShortQueue::new(at(0), Some(trip));
        controller.conditions.turns_late = Duration::from_millis(late_ms);
        controller.sent(at(0), 1_400);
        let mut count = 0;
        while controller.next_at() <= at(60) {
            controller.sent(at(60), 1_400);
            count += 1;
        }
        count
    };
    assert_eq!([0, 4, 8].map(leave), [2, 3, 5]);
    assert_eq!(leave(500), 6, "half a round trip at most");
}

/// If reports come later, more data is in flight without a report. A path stays busy while a turn
/// is late.
#[test]
fn a_path_of_busy_hosts_has_a_longer_queue_and_a_larger_window() {
    let known = |late_ms: (u64, u64)| {
        let mut controller = ShortQueue::new(at(0), Some(Duration::from_millis(40)));
        (controller.rate, controller.phase) = (1e6, Phase::Steady);
        let [turns_late, reports_late] = [late_ms.0, late_ms.1].map(Duration::from_millis);
        controller.conditions = Conditions { turns_late, reports_late, ..Conditions::default() };
        (controller.target(), controller.window())
    };
    let quiet = known((0, 0));
    assert_eq!(known((10, 0)), (quiet.0 + 0.010, quiet.1));
    assert_eq!(known((0, 10)), (quiet.0, quiet.1 + WINDOW_GAIN * 1e6 * 0.010));
    assert!((known((90, 0)).0 - quiet.0 - 0.020).abs() < 1e-9, "half a round trip at most");
}

#[test]
fn nothing_that_is_told_makes_it_stop() {
    let mut random = 7_u64;
    let mut next = move |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % bound
    };
    let mut controller = ShortQueue::new(at(0), Some(Duration::ZERO));
    for step in 0..100_000 {
        let now = at(step * next(20));
        #[expect(clippy::cast_precision_loss, reason = "any number does")]
        let rate = [0.0, f64::NAN, f64::INFINITY, -1.0, next(1 << 31) as f64][next(5) as usize];
        let told = AckSample {
            delivered: [0, next(100_000), u64::MAX][next(3) as usize],
            arrived: next(u64::MAX),
            lost: [0, next(100_000), u64::MAX][next(3) as usize],
            in_flight: next(1 << 30),
            rate: (next(3) > 0).then_some(RateSample {
                bytes_per_second: rate,
                left_per_second: [rate, 0.0, f64::NAN, 2.0 * rate][next(4) as usize],
                is_limited: next(2) > 0,
                prior_delivered: next(u64::MAX),
            }),
            trip: (next(3) > 0).then(|| Duration::from_nanos(next(1 << 31))),
            queue: (next(3) > 0).then(|| Duration::from_nanos(next(1 << 31))),
        };
        let _ = controller.on_ack(now, &told, &Conditions::default());
        controller.sent(now, next(65_536) as usize);
        if next(100) == 0 {
            controller.lost_all(now);
        }
        let pace = controller.pacing_rate();
        assert!((RATE_RANGE.0..=RATE_RANGE.1).contains(&pace), "{pace}");
        assert!(controller.allows(13_999) && controller.next_at() <= now + pacer::DEBT);
    }
}

/// So many paths of a peer beside a sender like Reno, whose queue holds so many seconds: the parts
/// of the link that they take together and that it takes, in the last 60 of 90 seconds.
fn beside_elastic(link: Link, paths: usize, together: bool) -> (f64, f64) {
    let mut world = World::new(link, &vec![0; paths]);
    world.together = together;
    world.run(2.0);
    world.begin_elastic();
    world.run(90.0);
    let taken: f64 = (0..paths).map(|path| world.arrived(path, 30.0, 90.0)).sum();
    (taken / link.rate, world.elastic_arrived(30.0, 90.0) / link.rate)
}

#[test]
fn paths_through_one_queue_take_beside_another_what_one_takes() {
    let mut sums = [0.0; 4];
    for (mbits, trip_ms, buffer_s) in
        [(20.0, 40, 0.04), (20.0, 40, 0.1), (10.0, 20, 0.05), (50.0, 30, 0.03), (5.0, 60, 0.1)]
    {
        let link = Link::new(mbits, trip_ms);
        let link = Link { buffer: link.rate * buffer_s, ..link };
        let (one, one_left) = beside_elastic(link, 1, true);
        for paths in [2, 4, 8] {
            let (apart, _) = beside_elastic(link, paths, false);
            let (taken, left) = beside_elastic(link, paths, true);
            println!(
                "{mbits} Mbit/s {trip_ms} ms, {buffer_s} s of queue, {paths} paths: {taken:.3}, \
                 {apart:.3} each for itself, one {one:.3}; left {left:.3}"
            );
            assert!(taken <= 1.2 * one && left >= 0.75 * one_left && left > 0.2);
            assert!(taken + left > 0.98, "nothing is wasted");
            [taken, one, apart, left].iter().zip(&mut sums).for_each(|(it, sum)| *sum += it);
        }
    }
    // What becomes of one of them is chance: whose loss is when.
    let [taken, one, apart, left] = sums;
    println!("all: {:.3} of one, {:.3} of each for itself", taken / one, taken / apart);
    assert!((0.8..1.05).contains(&(taken / one)) && left > 0.35 * 15.0);
    assert!(taken < 0.8 * apart, "the test tells nothing");
}

/// A path of 50 Mbit/s, of which it is known, and 11 Mbit/s that somebody wants to send by it.
fn hardly_used() -> World {
    let mut world = World::new(Link { buffer: 62_500.0, ..Link::new(50.0, 2) }, &[0]);
    world.run(3.0);
    world.flows[0].load = 11.0 * 125_000.0;
    world.run(4.0);
    assert!(world.flows[0].controller.rate().unwrap() > 45.0 * 125_000.0);
    world
}

#[test]
fn a_way_that_became_longer_carries_as_much_as_before_soon_after_it_is_used_again() {
    let mut world = hardly_used();
    world.link.trip = Duration::from_millis(30);
    world.run(30.0);
    world.flows[0].load = f64::INFINITY;
    world.run(35.0);
    let arrived = world.arrived(0, 32.0, 35.0) / world.link.rate;
    assert!(arrived > 0.9, "{arrived:.2}");
}
