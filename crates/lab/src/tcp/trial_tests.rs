//! What two ends do with each other, over links whose every effect is known.

use super::*;
use crate::emu::{BitErrors, LinkConfig, Loss, MS, SECOND};
use crate::tcp::end::KeepAlive;
use crate::tcp::segment::{Flags, Options};
use crate::tcp::{CongestionControl, Repairing};

const RATE: u64 = 20_000_000;
const TRIP_NS: u64 = 40 * MS;

fn plan(upload: u64, download: u64) -> Plan {
    let (client, server) = ("192.0.2.1:5000".parse().unwrap(), "198.51.100.7:80".parse().unwrap());
    Plan {
        link: LinkConfig::lossless(RATE, TRIP_NS),
        client: Config::new(client, server, 3),
        server: Config::new(server, client, 4),
        upload,
        download,
        closes: true,
        seed: 1,
    }
}

fn with(congestion: CongestionControl, upload: u64) -> Plan {
    let mut plan = plan(upload, 0);
    plan.client.congestion = congestion;
    plan
}

const ALL: [CongestionControl; 3] =
    [CongestionControl::Reno, CongestionControl::Cubic, CongestionControl::Bbr];

#[test]
fn a_connection_opens_in_a_round_trip_and_closes_in_order() {
    let mut plan = plan(1_000, 2_000);
    plan.client.time_wait_ns = 2 * SECOND;
    let mut trial = Trial::new(&plan);
    trial.pass(TRIP_NS - MS).unwrap();
    assert_eq!(trial.end(Side::Client).state(), State::SynSent);
    assert_eq!(trial.end(Side::Server).state(), State::SynReceived);
    trial.finish(SECOND).unwrap();
    assert!(trial.now_ns() < 3 * TRIP_NS, "{} ms", trial.now_ns() / MS);
    trial.pass(5 * SECOND).unwrap();
    for side in [Side::Client, Side::Server] {
        assert_eq!(trial.end(side).ending(), Some(Ending::Finished));
        assert_eq!(trial.end(side).sender_stats().retransmissions, 0);
    }
}

#[test]
fn ipv6_and_an_end_without_options_get_along() {
    let mut plan = plan(300_000, 300_000);
    let (client, server) = ("[2001:db8::1]:5".parse().unwrap(), "[2001:db8::2]:6".parse().unwrap());
    plan.client = Config::new(client, server, u64::from(u32::MAX) << 8);
    plan.server = Config {
        timestamps: false,
        sack: false,
        window_scaling: false,
        ..Config::new(server, client, 4)
    };
    plan.link = plan.link.loss(Loss::Bernoulli(0.02));
    let mut trial = Trial::new(&plan);
    trial.finish(60 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).mss(), 1_440);
    assert!(trial.end(Side::Client).sender_stats().retransmissions > 0);
}

#[test]
fn every_congestion_control_fills_a_link() {
    for congestion in ALL {
        let mut trial = Trial::new(&with(congestion, 20_000_000));
        trial.finish(60 * SECOND).unwrap();
        let mbps = 160.0 * SECOND as f64 / trial.now_ns() as f64;
        assert!((17.5..19.4).contains(&mbps), "{congestion:?}: {mbps} of 20 Mbit/s");
    }
}

#[test]
fn random_loss_costs_reno_and_cubic_much_and_bbr_little() {
    let rate = |congestion| {
        let mut plan = with(congestion, 10_000_000);
        plan.link = plan.link.loss(Loss::Bernoulli(0.01));
        let mut trial = Trial::new(&plan);
        trial.finish(200 * SECOND).unwrap();
        80.0 * SECOND as f64 / trial.now_ns() as f64
    };
    let [reno, cubic, bbr] = ALL.map(rate);
    // Mathis et al. 1997: 1.22 / sqrt(loss) segments a round trip, about 3.5 Mbit/s.
    assert!((2.0..6.0).contains(&reno), "{reno}");
    assert!((2.0..7.0).contains(&cubic), "{cubic}");
    assert!(bbr > 16.0, "{bbr}");
}

/// When the client sent again what it had sent, in nanoseconds since `since_ns`.
fn retransmissions(trial: &mut Trial, since_ns: u64) -> Vec<u64> {
    let mut highest = None;
    let mut times = Vec::new();
    for passed in trial.take_passed() {
        let Ok(segment) = Segment::parse(&passed.packet) else { continue };
        if !passed.out || segment.sequence_length() == 0 {
            continue;
        }
        let end = segment.sequence.wrapping_add(segment.sequence_length() as u32);
        let new = highest.is_none_or(|old: u32| end.wrapping_sub(old).cast_signed() > 0);
        if new {
            highest = Some(end);
        } else if passed.at_ns >= since_ns {
            times.push(passed.at_ns - since_ns);
        }
    }
    times
}

#[test]
fn in_an_outage_the_time_between_two_tries_doubles() {
    for congestion in ALL {
        let mut trial = Trial::new(&with(congestion, 10_000_000));
        trial.capture();
        trial.pass(2 * SECOND).unwrap();
        trial.set_link(Carrier::BlackHole);
        let start_ns = trial.now_ns();
        trial.pass(start_ns + 10 * SECOND).unwrap();
        let tries = retransmissions(&mut trial, start_ns + SECOND);
        assert!((2..=4).contains(&tries.len()), "{congestion:?}: {tries:?}");
        for pair in tries.windows(3) {
            // Twice, but for the coarse ticks of the wheel.
            let ratio = (pair[2] - pair[1]) as f64 / (pair[1] - pair[0]) as f64;
            assert!((1.75..2.25).contains(&ratio), "{congestion:?}: {tries:?}");
        }
        trial.set_link(Carrier::Up);
        trial.finish(60 * SECOND).unwrap();
    }
}

#[test]
fn a_dead_path_kills_after_the_retries_and_not_before() {
    let mut plan = plan(10_000_000, 0);
    plan.client.retries = 6;
    let mut trial = Trial::new(&plan);
    trial.pass(2 * SECOND).unwrap();
    trial.set_link(Carrier::BlackHole);
    trial.pass(26 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).ending(), None);
    trial.pass(60 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).ending(), Some(Ending::TimedOut));
}

#[test]
fn with_a_user_timeout_a_dead_path_is_tried_every_second_and_then_given_up() {
    let mut plan = plan(10_000_000, 0);
    (plan.client.user_timeout_ns, plan.client.rto_max_ns) = (Some(30 * SECOND), SECOND);
    let mut trial = Trial::new(&plan);
    trial.capture();
    trial.pass(2 * SECOND).unwrap();
    trial.set_link(Carrier::BlackHole);
    let start_ns = trial.now_ns();
    trial.pass(start_ns + 29 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).ending(), None);
    let tries = retransmissions(&mut trial, start_ns);
    assert!((25..34).contains(&tries.len()), "{} tries", tries.len());
    trial.pass(start_ns + 33 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).ending(), Some(Ending::TimedOut));
}

#[test]
fn nobody_there_is_found_out() {
    let mut trial = Trial::new(&plan(1, 0));
    trial.set_link(Carrier::BlackHole);
    trial.pass(200 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).ending(), Some(Ending::Unanswered));
}

#[test]
fn keep_alives_find_a_dead_peer_and_leave_a_live_one() {
    let mut plan = Plan { closes: false, ..plan(10, 0) };
    plan.server.keep_alive =
        Some(KeepAlive { idle_ns: 10 * SECOND, interval_ns: 5 * SECOND, probes: 3 });
    let mut trial = Trial::new(&plan);
    trial.pass(600 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Server).ending(), None, "answered");
    trial.set_link(Carrier::BlackHole);
    // Within 10 s the first probe, 5 s between three, and 5 s more.
    trial.pass(614 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Server).ending(), None);
    trial.pass(626 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Server).ending(), Some(Ending::KeepAlive));
}

#[test]
fn a_closed_window_is_asked_for_and_opens_at_once() {
    let mut plan = plan(5_000_000, 0);
    plan.server.receive_buffer = 200_000;
    let mut trial = Trial::new(&plan);
    trial.set_reading(Side::Server, false);
    trial.pass(600 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).peer_window(), 0);
    let probes = trial.end(Side::Client).sender_stats().window_probes;
    assert!((8..=16).contains(&probes), "{probes} in ten minutes");
    let delivered = trial.end(Side::Server).delivered();
    assert!((190_000..=200_128).contains(&delivered), "{delivered}");
    trial.set_reading(Side::Server, true);
    trial.pass(600 * SECOND + TRIP_NS + 5 * MS).unwrap();
    assert!(trial.end(Side::Server).delivered() > delivered);
    trial.finish(700 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).sender_stats().timeouts, 0);
}

#[test]
fn a_closed_window_of_which_nobody_speaks_any_more_ends() {
    let mut plan = plan(5_000_000, 0);
    plan.server.receive_buffer = 200_000;
    plan.client.retries = 6;
    let mut trial = Trial::new(&plan);
    trial.set_reading(Side::Server, false);
    trial.pass(5 * SECOND).unwrap();
    trial.set_link(Carrier::BlackHole);
    trial.pass(300 * SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).ending(), Some(Ending::TimedOut));
}

#[test]
fn a_path_that_was_only_slow_costs_no_window() {
    for congestion in [CongestionControl::Reno, CongestionControl::Cubic] {
        let mut trial = Trial::new(&with(congestion, 10_000_000));
        trial.pass(1_500 * MS).unwrap();
        let before = trial.end(Side::Client).congestion_window();
        let undone = trial.end(Side::Client).sender_stats().undone;
        let slow = LinkConfig::lossless(RATE, TRIP_NS + 2 * SECOND);
        trial.set_config(&LinkConfig { up: slow.up, ..LinkConfig::lossless(RATE, TRIP_NS) });
        trial.pass(2_400 * MS).unwrap();
        assert_eq!(trial.end(Side::Client).repairing(), Repairing::Loss, "{congestion:?}");
        trial.set_config(&LinkConfig::lossless(RATE, TRIP_NS));
        let mut at_ns = trial.now_ns();
        while trial.end(Side::Client).sender_stats().undone == undone && at_ns < 4 * SECOND {
            at_ns += MS;
            trial.pass(at_ns).unwrap();
        }
        // What the next acknowledgments say is that nothing else was lost either.
        trial.pass(at_ns + 5 * MS).unwrap();
        let after = trial.end(Side::Client).congestion_window();
        assert!(after >= before, "{congestion:?}: {before} before, {after} after");
        assert!(trial.end(Side::Client).sender_stats().undone > undone, "{congestion:?}");
        trial.finish(60 * SECOND).unwrap();
    }
}

#[test]
fn a_lost_tail_is_probed_for() {
    let mut trial = Trial::new(&Plan { closes: false, ..plan(10_000, 0) });
    trial.pass(TRIP_NS + 5 * MS).unwrap();
    // The only flight is lost: nothing but time tells.
    trial.set_link(Carrier::Down);
    trial.set_link(Carrier::Up);
    trial.pass(SECOND).unwrap();
    let stats = trial.end(Side::Client).sender_stats();
    assert_eq!((stats.probes, stats.timeouts), (1, 0), "{stats:?}");
    assert_eq!(trial.read(Side::Server), 10_000);
    let probe_ns = TRIP_NS + 2 * TRIP_NS;
    assert!(trial.end(Side::Client).rto_ns() > probe_ns);
}

/// A forged packet that claims to be from the client.
fn forged(trial: &Trial, change: impl FnOnce(&mut Segment)) -> Vec<u8> {
    let end = trial.end(Side::Client);
    let mut segment = Segment {
        sequence: end.sender.numbering.wire(end.sender.next),
        acknowledgment: Some(end.receiver.numbering.wire(end.receiver.next)),
        window: 500,
        flags: Flags::default(),
        options: Options::default(),
        ..end.blank()
    };
    change(&mut segment);
    segment.emit()
}

#[test]
fn only_the_right_reset_ends_a_connection() {
    let mut trial = Trial::new(&Plan { closes: false, ..plan(1_000_000, 0) });
    trial.pass(200 * MS).unwrap();
    let rst = |segment: &mut Segment| segment.flags.rst = true;
    let near = forged(&trial, |segment| {
        rst(segment);
        segment.sequence = segment.sequence.wrapping_add(1_000);
    });
    trial.inject(Side::Server, &near);
    assert_eq!(trial.end(Side::Server).ending(), None);
    assert_eq!(trial.end(Side::Server).stats().challenges, 1);
    trial.pass(250 * MS).unwrap();
    let exact = forged(&trial, |segment| {
        rst(segment);
        let server = trial.end(Side::Server);
        segment.sequence = server.receiver.numbering.wire(server.receiver.next);
    });
    trial.inject(Side::Server, &exact);
    assert_eq!(trial.end(Side::Server).ending(), Some(Ending::ResetByPeer));
    // The other learns of it as soon as it says anything.
    trial.pass(SECOND).unwrap();
    assert_eq!(trial.end(Side::Client).ending(), Some(Ending::ResetByPeer));
}

#[test]
fn damage_is_noticed_and_repaired() {
    let mut plan = plan(2_000_000, 2_000_000);
    plan.link.up.bit_errors = BitErrors::Delivered(1e-6);
    plan.link.down.bit_errors = BitErrors::Delivered(1e-6);
    let mut trial = Trial::new(&plan);
    trial.finish(60 * SECOND).unwrap();
    let malformed = trial.end(Side::Server).stats().malformed;
    assert!(malformed > 3, "{malformed}");
}

#[test]
fn after_silence_the_window_is_small_again() {
    let mut plan = plan(4_000_000, 0);
    plan.server.receive_buffer = 1_000_000;
    let mut trial = Trial::new(&plan);
    trial.pass(800 * MS).unwrap();
    let before = trial.end(Side::Client).congestion_window();
    trial.set_reading(Side::Server, false);
    trial.pass(10 * SECOND).unwrap();
    trial.set_reading(Side::Server, true);
    trial.pass(10 * SECOND + TRIP_NS).unwrap();
    let after = trial.end(Side::Client).congestion_window();
    assert!(before > 50 && after < 25, "{before}, {after}");
    trial.finish(60 * SECOND).unwrap();
}
