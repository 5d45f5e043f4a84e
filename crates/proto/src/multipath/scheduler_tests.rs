use super::*;
use crate::blocks::Blocks;
use crate::multipath::path_queues::{Numbered, PathQueues};
use crate::multipath::snapshot::AHEAD;
use crate::packet::{Checksum, PacketRecord};

const NOW: Instant = Instant::from_nanos(1_000_000_000);
const LEN: usize = 1_000;

fn way(path: u32, mbps: f64, trip_ms: u64) -> PathSnapshot {
    PathSnapshot::free(path, NOW, mbps, Duration::from_millis(trip_ms))
}

fn closed(way: PathSnapshot) -> PathSnapshot {
    PathSnapshot { room: 0, ..way }
}

/// Which gets a packet if all are as far as they are.
fn choose(scheduler: Scheduler, ways: &mut [PathSnapshot]) -> Option<usize> {
    scheduler.choose(NOW, ways, LEN, Duration::ZERO)
}

/// How many of `count` packets each of these gets that carry for as long as it takes: what was
/// given has left before the next is asked for.
fn shares(scheduler: Scheduler, ways: &mut [PathSnapshot], count: usize) -> Vec<usize> {
    let mut shares = vec![0; ways.len()];
    for _ in 0..count {
        shares[choose(scheduler, ways).unwrap()] += 1;
    }
    shares
}

/// Gives packets as long as a path has need, and says which got which.
fn given(scheduler: Scheduler, ways: &mut [PathSnapshot]) -> Vec<usize> {
    let (mut lines, mut blocks, mut given) = (PathQueues::default(), Blocks::default(), Vec::new());
    lines.settle(ways);
    while scheduler.needs(NOW, ways) {
        let place = choose(scheduler, ways).unwrap();
        let what = Numbered::new(PacketRecord::of_bucket(0), 0);
        let packet = blocks.parcel((&[0; LEN], &[]), Checksum::Unchecked).unwrap();
        lines.push(&mut ways[place], what, packet);
        given.push(place);
    }
    given
}

#[test]
fn numbers_and_names_lead_there_and_back() {
    for (number, scheduler) in (0u8..).zip(Scheduler::ALL) {
        assert_eq!(scheduler.number(), number);
        assert_eq!(Scheduler::numbered(number), Some(scheduler));
        assert_eq!(Scheduler::named(scheduler.name()), Some(scheduler));
    }
    assert_eq!((Scheduler::numbered(7), Scheduler::named("Rtt")), (None, None));
}

#[test]
fn what_is_closed_gets_nothing_and_needs_nothing() {
    for scheduler in Scheduler::ALL {
        let mut one = [closed(way(1, 8.0, 20))];
        assert!(!scheduler.needs(NOW, &one), "{scheduler:?}");
        assert_eq!(choose(scheduler, &mut one), None, "{scheduler:?}");
    }
    let mut ways = [closed(way(1, 8.0, 0)), way(2, 1.0, 1_800)];
    assert_eq!(choose(Scheduler::Earliest, &mut ways), Some(1));
    assert_eq!(quickest(NOW, &ways, LEN), Some(0), "it does not wait");
}

#[test]
fn rtt_fills_the_nearest_and_then_the_next() {
    let mut ways = [way(1, 8.0, 60), way(2, 8.0, 10)];
    // 2 ms are two packets at 8 Mbit/s.
    assert_eq!(given(Scheduler::Rtt, &mut ways), [1, 1, 0, 0]);
    let mut ways = [way(1, 8.0, 60), closed(way(2, 8.0, 10))];
    assert_eq!(given(Scheduler::Rtt, &mut ways), [0, 0]);
}

#[test]
fn what_finds_all_equally_far_is_spread_by_what_they_carry() {
    let mut ways = [way(1, 10.0, 10), way(2, 40.0, 60)];
    assert_eq!(choose(Scheduler::Earliest, &mut ways), Some(0));
    let mut spread = [0; 2];
    for _ in 0..100 {
        let floor = Duration::from_millis(30);
        let place = Scheduler::Earliest.choose(NOW, &mut ways, LEN, floor).unwrap();
        spread[place] += 1;
        ways[place].waiting += LEN;
    }
    assert_eq!(spread, [20, 80]);
}

#[test]
fn latency_has_one_path_and_waits_for_it() {
    let mut ways = [way(1, 80.0, 60), way(2, 8.0, 10), way(3, 80.0, 11)];
    assert_eq!(given(Scheduler::Latency, &mut ways), [1, 1]);
    let mut ways = [way(1, 80.0, 60), closed(way(2, 8.0, 10))];
    assert!(!Scheduler::Latency.needs(NOW, &ways));
    assert_eq!(choose(Scheduler::Latency, &mut ways), None);
}

#[test]
fn round_robin_gives_each_its_turn_and_leaves_out_who_has_no_room() {
    let mut ways = [way(1, 80.0, 10), way(2, 80.0, 60), way(3, 80.0, 0)];
    let order: Vec<_> = (0..6).map(|_| choose(Scheduler::RoundRobin, &mut ways).unwrap()).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    ways[1].room = 0;
    assert_eq!(shares(Scheduler::RoundRobin, &mut ways, 10), [5, 0, 5]);
    ways[1].room = 9;
    assert_eq!(choose(Scheduler::RoundRobin, &mut ways), Some(1));
}

#[test]
fn loss_gives_turns_by_what_arrives() {
    let mut ways = [way(1, 80.0, 10), way(2, 80.0, 10)];
    ways[1].measured.loss = 0.5;
    assert_eq!(shares(Scheduler::Loss, &mut ways, 300), [200, 100]);
    ways[1].measured.loss = 1.0;
    let shares = shares(Scheduler::Loss, &mut ways, 1_010);
    assert!((9..=11).contains(&shares[1]), "{shares:?}: it is found out when it carries again");
    // Who could not carry does not get everything at once afterwards.
    ways[0].room = 0;
    for _ in 0..100 {
        assert_eq!(choose(Scheduler::Loss, &mut ways), Some(1));
    }
    (ways[0].room, ways[1].measured.loss) = (9, 0.0);
    assert_eq!(self::shares(Scheduler::Loss, &mut ways, 10), [5, 5]);
}

#[test]
fn rate_fills_the_fastest_up_to_what_it_carries_and_shares_out_the_rest() {
    // 80 and 40 Mbit/s: 3,000 and 1,500 packets in 300 ms.
    let mut ways = [way(1, 40.0, 10), way(2, 80.0, 10)];
    assert_eq!(shares(Scheduler::Rate, &mut ways, 3_000), [0, 3_000]);
    assert_eq!(shares(Scheduler::Rate, &mut ways, 1_500), [1_500, 0]);
    assert_eq!(shares(Scheduler::Rate, &mut ways, 300), [100, 200]);
}

#[test]
fn rate_follows_what_arrives_where_that_is_more_or_something_was_lost() {
    let mut ways = [way(1, 40.0, 10), way(2, 80.0, 10)];
    let carried =
        |ways: &[PathSnapshot]| ways.iter().map(|way| way.tally.carried).collect::<Vec<_>>();
    let mut now = NOW;
    let mut pass = |ways: &mut [PathSnapshot]| {
        now = now + COUNTED;
        ways.iter_mut().for_each(|way| way.next_at = now);
        Scheduler::Rate.choose(now, ways, LEN, Duration::ZERO);
    };
    pass(&mut ways);
    assert_eq!(carried(&ways), [5e6, 10e6]);
    ways[0].measured.arrives = Some(13e6);
    ways[1].measured.arrives = Some(2e6);
    pass(&mut ways);
    assert_eq!(carried(&ways), [7e6, 10e6], "less may arrive because less was given");
    ways[1].measured.loss = 0.01;
    pass(&mut ways);
    assert_eq!(carried(&ways), [8.5e6, 8e6]);
}

#[test]
fn redundant_is_as_fast_as_the_fastest_that_has_room() {
    let mut ways = [way(1, 8.0, 10), way(2, 80.0, 60)];
    assert!(Scheduler::Redundant.copies());
    assert_eq!(choose(Scheduler::Redundant, &mut ways), Some(1));
    ways[1].next_at = NOW + AHEAD;
    assert!(!Scheduler::Redundant.needs(NOW, &ways), "the slower one alone needs nothing");
    ways[1].room = 0;
    assert_eq!(choose(Scheduler::Redundant, &mut ways), Some(0));
}

#[test]
fn what_leaves_again_does_so_where_there_is_room() {
    let (near, far) = (way(1, 10.0, 20), way(2, 10.0, 60));
    assert_eq!(surest_open(NOW, &[near, far], LEN), Some(0));
    assert_eq!(surest_open(NOW, &[closed(near), far], LEN), Some(1));
    assert_eq!(surest_open(NOW, &[closed(near), closed(far)], LEN), Some(0));
    assert_eq!(quickest(NOW, &[closed(near), far], LEN), Some(0), "what waits for nobody");
}

#[test]
fn a_repair_takes_a_farther_path_if_the_nearer_one_loses_much() {
    let (mut near, far) = (way(1, 10.0, 20), way(2, 10.0, 60));
    for (loss, place) in [(0.0, 0), (0.01, 0), (0.02, 0), (0.1, 0), (0.3, 1), (0.5, 1), (1.0, 1)] {
        near.measured.loss = loss;
        assert_eq!(surest_open(NOW, &[near, far], LEN), Some(place), "{loss}");
        let both = [near, PathSnapshot { measured: near.measured, ..far }];
        assert_eq!(surest_open(NOW, &both, LEN), Some(0), "as much on both: {loss}");
    }
}
