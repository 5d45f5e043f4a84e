//! Laws of the model's TCP ends: over any link that carries now and then, whatever is written
//! arrives byte for byte in both directions, both ends close in order, and no window is violated.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use rove_lab::emu::{BitErrors, Carrier, LinkConfig, Loss, MS, PipeConfig, Rate, Reorder, SECOND};
use rove_lab::tcp::{Config, CongestionControl, Ending, Plan, Side, Trial};

/// Everything is over by then: bursts of losses are counted in packets, and there may be one in two
/// minutes.
const LIMIT_NS: u64 = 100_000 * SECOND;

fn pipe() -> impl Strategy<Value = PipeConfig> {
    let loss = prop_oneof![
        Just(Loss::None),
        (0.0..0.1).prop_map(Loss::Bernoulli),
        (0.0..0.1, 1.0..8.0).prop_map(|(mean, burst)| Loss::bursts(mean, burst)),
    ];
    let rate = prop_oneof![
        Just(Rate::Unlimited),
        (200_000u64..100_000_000).prop_map(Rate::BitsPerSecond),
    ];
    let errors = prop_oneof![Just(0.0), 0.0..2e-6];
    let order = (0.0..0.2, 0..60 * MS, 0.0..0.1);
    (rate, loss, errors, order, 3_000u64..200_000, 0..200 * MS, 0..20 * MS).prop_map(
        |(
            rate,
            loss,
            errors,
            (reordered, hold_ns, duplicate),
            queue_bytes,
            delay_ns,
            jitter_ns,
        )| {
            PipeConfig {
                rate,
                queue_bytes,
                delay_ns,
                jitter_ns,
                loss,
                bit_errors: BitErrors::Delivered(errors),
                duplicate,
                reorder: Reorder { probability: reordered, hold_ns },
                udp: None,
            }
        },
    )
}

prop_compose! {
    fn config(client: bool)(
        seed in any::<u64>(),
        congestion in prop_oneof![
            Just(CongestionControl::Reno),
            Just(CongestionControl::Cubic),
            Just(CongestionControl::Bbr),
        ],
        receive_buffer in prop_oneof![4_000u64..70_000, 70_000u64..2_000_000],
        options in any::<[bool; 4]>(),
        mtu in 576u16..=1_500,
    ) -> Config {
        let (a, b) = ("192.0.2.1:5000".parse().unwrap(), "198.51.100.7:80".parse().unwrap());
        let (local, remote) = if client { (a, b) } else { (b, a) };
        let [timestamps, sack, window_scaling, no_delay] = options;
        Config {
            congestion,
            receive_buffer,
            timestamps,
            sack,
            window_scaling,
            no_delay,
            mtu,
            retries: 500,
            opening_retries: 500,
            time_wait_ns: LIMIT_NS,
            ..Config::new(local, remote, seed)
        }
    }
}

prop_compose! {
    fn plan()(
        up in pipe(),
        down in pipe(),
        client in config(true),
        server in config(false),
        upload in 0u64..300_000,
        download in 0u64..300_000,
        seed in any::<u64>(),
    ) -> Plan {
        Plan { link: LinkConfig { up, down }, client, server, upload, download, closes: true, seed }
    }
}

/// Something happens to the link or to a reader, some milliseconds after what was before.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Carrier(Carrier),
    Reading(Side, bool),
}

fn happening() -> impl Strategy<Value = (u64, Happening)> {
    let side = prop_oneof![Just(Side::Client), Just(Side::Server)];
    let what = prop_oneof![
        Just(Happening::Carrier(Carrier::Up)),
        Just(Happening::Carrier(Carrier::Down)),
        Just(Happening::Carrier(Carrier::BlackHole)),
        (side, any::<bool>()).prop_map(|(side, reads)| Happening::Reading(side, reads)),
    ];
    (1u64..3_000, what)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_written_arrives(
        plan in plan(),
        happenings in proptest::collection::vec(happening(), 0..8),
    ) {
        let mut trial = Trial::new(&plan);
        let mut at_ns = 0;
        for (after_ms, happening) in happenings {
            at_ns += after_ms * MS;
            prop_assert_eq!(trial.pass(at_ns), Ok(()));
            match happening {
                Happening::Carrier(carrier) => trial.set_link(carrier),
                Happening::Reading(side, reads) => trial.set_reading(side, reads),
            }
        }
        trial.set_link(Carrier::Up);
        trial.set_reading(Side::Client, true);
        trial.set_reading(Side::Server, true);
        let finished = trial.finish(LIMIT_NS);
        let (client, server) = (trial.end(Side::Client), trial.end(Side::Server));
        prop_assert_eq!(finished, Ok(()), "{:#?} {:#?}", client, server);
        prop_assert_eq!(trial.read(Side::Server), plan.upload);
        prop_assert_eq!(trial.read(Side::Client), plan.download);
        for side in [Side::Client, Side::Server] {
            let ending = trial.end(side).ending();
            prop_assert!(matches!(ending, None | Some(Ending::Finished)), "{:?}", ending);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_packets(plan in plan()) {
        let run = || {
            let mut trial = Trial::new(&plan);
            trial.capture();
            let _ = trial.pass(20 * SECOND);
            trial.take_passed()
        };
        prop_assert_eq!(run(), run());
    }
}
