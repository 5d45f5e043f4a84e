//! Rates, delays, queues and losses of one pipe, exact where they can be.

use super::super::frame::Datagram;
use super::super::trace::Trace;
use super::*;

/// A datagram whose layer-3 length is `bytes` and whose payload begins with `number`.
fn frame(bytes: usize, number: u16) -> Datagram {
    let mut payload = vec![0; bytes - 28];
    payload[..2].copy_from_slice(&number.to_be_bytes());
    let end = "192.0.2.1:1".parse().unwrap();
    Datagram { source: end, destination: end, payload }
}

fn number(frame: &Datagram) -> u16 {
    u16::from_be_bytes([frame.payload[0], frame.payload[1]])
}

fn pipe(config: PipeConfig) -> Pipe<Datagram> {
    Pipe::new(config, Rng::new(1))
}

/// Everything that comes out, with when.
fn drain(pipe: &mut Pipe<Datagram>) -> Vec<(u64, u16)> {
    std::iter::from_fn(|| {
        let due_ns = pipe.poll_timeout()?;
        Some(pipe.poll_arrival(due_ns).map(|(at, frame)| (at, number(&frame))))
    })
    .flatten()
    .collect()
}

#[test]
fn the_rate_is_exact_however_long_the_train() {
    // 7 Mbit/s and 999 bytes do not divide: one packet takes 1,141,714.28... ns.
    let mut pipe = pipe(PipeConfig {
        queue_bytes: 1 << 30,
        delay_ns: 5 * MS,
        ..PipeConfig::clean(7_000_000, 0)
    });
    let count = 7_000u64;
    for n in 0..count {
        pipe.push(0, frame(999, n as u16));
    }
    let arrivals = drain(&mut pipe);
    assert_eq!(arrivals.len() as u64, count);
    for (n, (at_ns, _)) in arrivals.iter().enumerate() {
        let exact_ns = (n as u64 + 1) * 999 * 8 * SECOND / 7_000_000 + 5 * MS;
        assert_eq!(*at_ns, exact_ns, "packet {n}");
    }
}

#[test]
fn an_unlimited_pipe_delays_exactly_and_keeps_order() {
    let mut pipe = pipe(PipeConfig { delay_ns: 20 * MS, ..PipeConfig::default() });
    for n in 0..100u16 {
        pipe.push(u64::from(n) * 10, frame(100, n));
    }
    let expected: Vec<_> = (0..100u16).map(|n| (u64::from(n) * 10 + 20 * MS, n)).collect();
    assert_eq!(drain(&mut pipe), expected);
}

#[test]
fn a_full_queue_drops_the_tail_and_counts_it() {
    let mut pipe = pipe(PipeConfig { queue_bytes: 3_000, ..PipeConfig::clean(8_000_000, 0) });
    for n in 0..10 {
        pipe.push(0, frame(1_000, n));
    }
    // One is being sent, three wait.
    assert_eq!(pipe.stats().dropped_queue, 6);
    assert_eq!(pipe.stats().queue_bytes_max, 3_000);
    let numbers: Vec<_> = drain(&mut pipe).iter().map(|arrival| arrival.1).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
}

#[test]
fn a_packet_longer_than_the_queue_still_passes() {
    let mut pipe = pipe(PipeConfig { queue_bytes: 10, ..PipeConfig::clean(8_000_000, 0) });
    pipe.push(0, frame(1_000, 1));
    pipe.push(0, frame(1_000, 2));
    pipe.push(0, frame(1_000, 3));
    assert_eq!(drain(&mut pipe), [(MS, 1), (2 * MS, 2)]);
}

#[test]
fn what_is_lost_has_used_its_air_time() {
    let lossy = PipeConfig { loss: Loss::Bernoulli(0.5), ..PipeConfig::clean(8_000_000, 0) };
    let mut pipe = pipe(PipeConfig { queue_bytes: 1 << 20, ..lossy });
    for n in 0..100 {
        pipe.push(0, frame(1_000, n));
    }
    let arrivals = drain(&mut pipe);
    assert!(arrivals.len() < 100 && pipe.stats().lost == 100 - arrivals.len() as u64);
    for (at_ns, n) in arrivals {
        assert_eq!(at_ns, (u64::from(n) + 1) * MS, "sent in its own millisecond");
    }
}

/// Which of `count` packets arrive under a loss model.
fn survivors(loss: Loss, count: usize) -> Vec<bool> {
    let mut pipe = Pipe::new(PipeConfig { loss, ..PipeConfig::default() }, Rng::new(7));
    (0..count)
        .map(|_| {
            pipe.push(0, frame(100, 0));
            pipe.poll_arrival(0).is_some()
        })
        .collect()
}

#[test]
fn losses_have_the_mean_and_the_bursts_asked_for() {
    let count = 200_000;
    let cases = [
        (Loss::Bernoulli(0.01), 0.01, 1.01),
        (Loss::bursts(0.01, 5.0), 0.01, 5.0),
        (Loss::bursts(0.2, 3.0), 0.2, 3.0),
        (
            Loss::GilbertElliott {
                good_to_bad: 0.02,
                bad_to_good: 0.18,
                loss_good: 0.001,
                loss_bad: 0.5,
            },
            0.0509,
            1.8,
        ),
    ];
    for (loss, mean, burst) in cases {
        let arrived = survivors(loss, count);
        let lost = arrived.iter().filter(|arrived| !**arrived).count() as f64;
        let starts = arrived.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
        assert!((lost / count as f64 / mean - 1.0).abs() < 0.1, "{loss:?}: {lost} of {count}");
        assert!((loss.mean() / mean - 1.0).abs() < 0.01, "{loss:?}: {}", loss.mean());
        assert!((lost / starts / burst - 1.0).abs() < 0.15, "{loss:?}: {}", lost / starts);
    }
}

#[test]
fn long_packets_meet_more_bit_errors() {
    let errors = BitErrors::Dropped(1e-5);
    assert!((errors.hit(1_500) - 0.113).abs() < 0.001, "1 - (1 - 1e-5)^12000");
    assert!((errors.hit(60) - 0.0048).abs() < 0.0001);
    let mut pipe = pipe(PipeConfig { bit_errors: errors, ..PipeConfig::default() });
    (0..20_000).for_each(|_| pipe.push(0, frame(1_500, 0)));
    let share = pipe.stats().damaged as f64 / 20_000.0;
    assert!((share / 0.113 - 1.0).abs() < 0.1, "{share}");
    assert_eq!(drain(&mut pipe).len() as u64, 20_000 - pipe.stats().damaged);
}

#[test]
fn damaged_packets_can_be_delivered_with_one_bit_turned() {
    let config = PipeConfig { bit_errors: BitErrors::Delivered(1.0), ..PipeConfig::default() };
    let mut pipe = pipe(config);
    let original = frame(1_500, 0);
    pipe.push(0, original.clone());
    let (_, damaged) = pipe.poll_arrival(0).unwrap();
    let turned: u32 = original
        .payload
        .iter()
        .zip(&damaged.payload)
        .map(|(before, after)| (before ^ after).count_ones())
        .sum();
    // A bit of the headers, which a datagram does not have, may have been meant.
    assert!(turned <= 1);
    assert_eq!(pipe.stats().damaged, 1);
}

#[test]
fn doubles_arrive_twice_and_held_packets_are_overtaken() {
    let mut doubling = pipe(PipeConfig { duplicate: 1.0, ..PipeConfig::default() });
    doubling.push(0, frame(100, 1));
    assert_eq!(drain(&mut doubling), [(0, 1), (0, 1)]);

    let reorder = Reorder { probability: 0.1, hold_ns: 5 * MS };
    let mut pipe = pipe(PipeConfig { reorder, delay_ns: MS, ..PipeConfig::default() });
    for n in 0..1_000 {
        pipe.push(u64::from(n) * MS, frame(100, n));
    }
    let arrivals = drain(&mut pipe);
    let held = arrivals.iter().filter(|(at, n)| *at == u64::from(*n) * MS + 6 * MS).count() as u64;
    assert_eq!(held, pipe.stats().held_back);
    assert!((70..130).contains(&held), "{held}");
    assert!(arrivals.windows(2).any(|pair| pair[0].1 > pair[1].1), "someone was overtaken");
}

#[test]
fn jitter_spreads_without_reordering() {
    let config = PipeConfig { delay_ns: 10 * MS, jitter_ns: 4 * MS, ..PipeConfig::default() };
    let mut pipe = pipe(config);
    for n in 0..1_000 {
        pipe.push(u64::from(n) * 3 * MS, frame(100, n));
    }
    let arrivals = drain(&mut pipe);
    assert!(arrivals.windows(2).all(|pair| pair[0].1 < pair[1].1));
    let extra = |&(at, n): &(u64, u16)| at - u64::from(n) * 3 * MS - 10 * MS;
    let mean = arrivals.iter().map(extra).sum::<u64>() / 1_000;
    assert!((19..24).contains(&(mean * 10 / MS)), "half of 4 ms and a little: {mean} ns");
}

#[test]
fn an_unplugged_link_loses_what_waits_and_travels() {
    let mut pipe = pipe(PipeConfig::clean(8_000_000, 10 * MS));
    (0..5).for_each(|n| pipe.push(0, frame(1_000, n)));
    // At 1 ms the first packet is on its way, the second being sent.
    pipe.set_carrier(MS, Carrier::Down);
    pipe.push(2 * MS, frame(1_000, 9));
    assert_eq!(drain(&mut pipe), []);
    assert_eq!(pipe.stats().dropped_down, 6);
    pipe.set_carrier(3 * MS, Carrier::Up);
    pipe.push(4 * MS, frame(1_000, 7));
    assert_eq!(drain(&mut pipe), [(4 * MS + MS + 10 * MS, 7)]);
}

#[test]
fn a_black_hole_looks_like_a_link() {
    let mut pipe = pipe(PipeConfig::clean(8_000_000, 10 * MS));
    pipe.set_carrier(0, Carrier::BlackHole);
    (0..5).for_each(|n| pipe.push(0, frame(1_000, n)));
    assert_eq!(pipe.queued_bytes(), 4_000, "it takes packets, and time");
    assert_eq!(drain(&mut pipe), []);
    assert_eq!(pipe.stats().swallowed, 5);
}

#[test]
fn a_new_rate_holds_from_the_next_packet_on() {
    let mut pipe = pipe(PipeConfig::clean(8_000_000, 0));
    (0..3).for_each(|n| pipe.push(0, frame(1_000, n)));
    pipe.set_config(MS / 2, PipeConfig::clean(800_000, 0));
    assert_eq!(drain(&mut pipe), [(MS, 0), (11 * MS, 1), (21 * MS, 2)]);
}

#[test]
fn recorded_opportunities_carry_1500_bytes_each_and_repeat() {
    let trace = Trace::parse("2\n2\n5\n10\n").unwrap();
    assert_eq!(trace.mean_bits_per_second(), 4_800_000);
    let capacity = |from_ms, to_ms| trace.capacity_bytes(from_ms * MS, to_ms * MS);
    assert_eq!((capacity(0, 9), capacity(0, 11), capacity(2, 5)), (4_500, 6_000, 3_000));
    assert_eq!((capacity(5, 5), capacity(7, 107)), (0, 60_000));
    let config = PipeConfig { rate: Rate::Trace(trace.into()), ..PipeConfig::default() };
    let mut pipe = pipe(config);
    // 1,000 bytes: one and a half packets fit an opportunity, a rest is carried by the next.
    (0..5).for_each(|n| pipe.push(0, frame(1_000, n)));
    assert_eq!(
        drain(&mut pipe),
        [(2 * MS, 0), (2 * MS, 1), (2 * MS, 2), (5 * MS, 3), (10 * MS, 4)]
    );
    // What came while nothing waited is lost; the recording begins again at 10 ms.
    pipe.push(13 * MS, frame(1_500, 5));
    pipe.push(13 * MS, frame(1_500, 6));
    assert_eq!(drain(&mut pipe), [(15 * MS, 5), (20 * MS, 6)]);
}

#[test]
fn bad_recordings_are_refused_with_their_line() {
    use super::super::trace::TraceError;
    assert_eq!(Trace::parse("1\nx\n"), Err(TraceError::NotANumber(2)));
    assert_eq!(Trace::parse("5\n\n4\n"), Err(TraceError::OutOfOrder(3)));
    assert_eq!(Trace::parse("0\n0\n"), Err(TraceError::Empty));
    assert_eq!(Trace::parse(""), Err(TraceError::Empty));
    assert_eq!(Trace::parse("-1"), Err(TraceError::NotANumber(1)));
}
