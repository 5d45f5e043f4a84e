//! The same about what clients make of their links: several of them at once, or one alone.

use rove_lab::emu::{Carrier, Filter};
use rove_lab::world::{
    Attack, Intercept, Machine, Manager, Mode, Network, Op, Overreach, Quality, Saves, Scheduler,
    Spread, Start, Way, replay, shrink,
};

use super::{filter_all, holds, move_gateway, plug, quality, send_up, settle, wait};

const fn full(client: u8) -> Op {
    Op::SetMode { client, mode: Mode::Full }
}

const fn send_down(client: u8, packets: u16, len: u16, gap_us: u32) -> Op {
    Op::Send { client, way: Way::Down, packets, len, gap_us }
}

const fn hold_up(client: u8, ms: u16, datagrams: u16) -> Op {
    Op::Attack(Attack::Intercept { client, way: Way::Up, how: Intercept::Hold { ms }, datagrams })
}

#[test]
fn after_a_silence_nothing_goes_by_a_path_that_a_nat_has_forgotten() {
    holds(1, &[full(2), plug(2, 1, 0), settle(true)]);
    // Also where it is the only one that got a share.
    let restart = Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 200 });
    let ops = [
        plug(1, 1, 2),
        full(1),
        wait(6_846),
        Op::Overreach { client: 1, what: Overreach::Private },
        restart,
        Op::Machine(Machine::Sleep { client: 2, seconds: 163 }),
        move_gateway(3_732),
        Op::Network(Network::Readdress { client: 1, card: 0 }),
        Op::Network(Network::Mtu { client: 1, access: 1, mtu: 1_280 }),
        settle(true),
    ];
    holds(333, &ops);
}

#[test]
fn what_leaves_while_there_is_little_to_send_says_nothing_of_what_a_path_carries() {
    holds(2, &[full(1), plug(1, 1, 0), settle(true)]);
    holds(41, &[plug(2, 1, 0), full(2), wait(292_457), settle(true)]);
}

#[test]
fn what_waits_at_the_entry_is_given_to_a_path_when_that_may_carry_it() {
    let ops = [
        plug(1, 0, 2),
        full(1),
        wait(7_140),
        hold_up(1, 2_777, 26),
        send_up(1, 60, 1_420, 200),
        wait(5_765),
        hold_up(1, 2_927, 28),
        send_up(1, 60, 1_420, 200),
        wait(14_535),
        settle(false),
    ];
    holds(272, &ops);
}

#[test]
fn what_waited_too_long_goes_bit_by_bit_and_the_rest_is_not_due_at_once() {
    let how = Intercept::Drop;
    let drop = Attack::Intercept { client: 2, way: Way::Down, how, datagrams: 26 };
    let syn = Op::Syn { client: 2, way: Way::Down, mss: 1_643 };
    let ops = [
        full(2),
        wait(41_926),
        send_down(1, 2, 0, 500),
        syn,
        send_down(2, 302, 1_420, 0),
        Op::Attack(drop),
        send_down(2, 12, 0, 20_000),
        wait(7_097),
    ];
    holds(56, &ops);
}

#[test]
fn a_path_that_gets_a_share_when_another_falls_silent_is_judged_at_once() {
    let bad = Quality { delay_ms: 136, jitter_ms: 34, loss: 185, ..Quality::CLEAN };
    let bad = Quality { bit_errors: 17, rate_kbps: 14_700, ..bad };
    let slow = Quality { delay_ms: 1, loss: 66, rate_kbps: 300, ..Quality::CLEAN };
    let sleep = Op::Machine(Machine::Sleep { client: 1, seconds: 9_045 });
    holds(205, &[plug(2, 1, 0), full(2), quality(2, 2, bad), quality(2, 0, slow), sleep]);
}

#[test]
fn what_waits_for_several_paths_leaves_by_the_one_that_carries_from_now_on() {
    for mode in [Mode::Backup, Mode::Single] {
        let ops = [
            plug(0, 1, 1),
            full(0),
            wait(5_000),
            send_up(0, 300, 1_200, 100),
            send_down(0, 300, 1_200, 100),
            wait(30),
            Op::SetMode { client: 0, mode },
            wait(10_000),
        ];
        let report = replay(1, &ops).unwrap_or_else(|broken| panic!("{broken}"));
        assert_eq!((report.sent, report.delivered), (600, 600), "{mode:?}: {:?}", report.drops);
    }
}

#[test]
fn what_is_lost_under_old_keys_is_not_repaired_under_the_new_ones() {
    let bad = Quality { delay_ms: 1, jitter_ms: 4, loss: 236, duplicate: 160, ..Quality::CLEAN };
    let bad = Quality { reorder: 102, rate_kbps: 5_200, ..bad };
    let ops = [
        full(1),
        plug(1, 1, 1),
        send_up(0, 11, 0, 0),
        plug(1, 0, 0),
        quality(1, 2, bad),
        wait(700),
        plug(1, 1, 2),
        send_down(1, 114, 1_200, 500),
        Op::Machine(Machine::Sleep { client: 2, seconds: 515 }),
        send_up(1, 382, 0, 200),
        wait(325),
    ];
    holds(374, &ops);
}

#[test]
fn what_a_silent_path_lost_does_not_fill_its_window_for_ever() {
    let mtu = Op::Network(Network::Mtu { client: 1, access: 0, mtu: 1_400 });
    holds(380, &[settle(false), full(1), mtu, send_up(1, 60, 1_420, 200), settle(false)]);
}

#[test]
fn a_path_that_no_index_is_left_for_is_not_taken_for_one_that_carries() {
    let moved = |told_after_ms, ahead_ms| {
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms })
    };
    let ops = [
        plug(2, 1, 0),
        full(2),
        Op::Network(Network::Mtu { client: 2, access: 2, mtu: 1_280 }),
        wait(364),
        moved(8_044, 300),
        settle(false),
        moved(7_046, 300),
        moved(12_553, 5_000),
        wait(1_839),
        moved(17_829, 300),
        wait(84),
        moved(19_854, 0),
        settle(false),
    ];
    holds(862, &ops);
}

#[test]
fn paths_that_fell_silent_leave_an_index_for_one_that_is_heard_of() {
    let depart = Network::Depart { client: 0, card: 1, ahead_ms: 300 };
    let reboot = Network::RebootNat { client: 0, access: 0, readdress: true };
    let only_tls = Filter::TlsPort(443);
    let filter = Network::Filter { client: 0, access: Some(0), filter: Some(only_tls) };
    let ops = [
        plug(0, 1, 1),
        full(0),
        Op::SetSpread { client: 0, spread: Spread { manager: Manager::FullMesh, subflows: 3 } },
        wait(299_184),
        Op::Network(filter),
        Op::Network(depart),
        Op::Network(reboot),
        Op::Syn { client: 0, way: Way::Up, mss: 987 },
        settle(false),
    ];
    holds(60, &ops);
}

#[test]
fn both_families_of_a_link_are_one_link() {
    let mesh = Spread { manager: Manager::FullMesh, subflows: 2 };
    holds(448, &[full(1), Op::SetSpread { client: 1, spread: mesh }, settle(true)]);
}

#[test]
fn what_a_path_says_of_what_came_by_it_does_not_fill_its_window() {
    let mesh = Spread { manager: Manager::FullMesh, subflows: 2 };
    let scheduler = Op::SetScheduler { client: 0, scheduler: Scheduler::Latency };
    let spread = Op::SetSpread { client: 0, spread: mesh };
    holds(547, &[spread, scheduler, full(0), settle(true)]);
    holds(462, &[full(1), plug(2, 1, 0), full(2), wait(263_974), settle(true)]);
}

#[test]
fn a_path_that_only_one_end_remembers_carries_nothing_of_a_link_that_stands_by() {
    let of_each = Spread { manager: Manager::OnePerLink, subflows: 3 };
    let replayed = Attack::Replay {
        count: 55,
        own_address: false,
        altered: false,
        chance: 6526516492560644407,
    };
    let ops = [
        Op::SetSpread { client: 2, spread: of_each },
        wait(57),
        full(2),
        Op::Attack(Attack::Cut { client: 2 }),
        plug(0, 1, 1),
        Op::Attack(replayed),
        Op::Network(Network::Depart { client: 0, card: 0, ahead_ms: 0 }),
        wait(740),
        settle(true),
    ];
    holds(20_022, &ops);
    let mesh =
        Op::SetSpread { client: 0, spread: Spread { manager: Manager::FullMesh, subflows: 2 } };
    holds(547, &[full(0), plug(2, 1, 0), mesh, plug(0, 1, 1), wait(216_395), settle(true)]);
}

#[test]
fn where_another_path_by_its_link_fell_silent_an_address_may_have_had_its_turn() {
    let far = Quality { delay_ms: 124, reorder: 9, bit_errors: 10, ..Quality::CLEAN };
    let far = Quality { rate_kbps: 6_400, ..far };
    let carrier = |client, access| {
        Op::Network(Network::Carrier { client, access, carrier: Carrier::BlackHole })
    };
    let mtu = |client, access, mtu| Op::Network(Network::Mtu { client, access, mtu });
    let ops = [
        plug(2, 1, 0),
        full(2),
        carrier(2, 2),
        wait(3_000),
        mtu(2, 2, 1_400),
        mtu(1, 1, 1_280),
        send_down(2, 12, 0, 500),
        wait(241),
        filter_all(0, Filter::Port(443)),
        carrier(1, 1),
        carrier(2, 2),
        settle(false),
        quality(2, 2, far),
        send_down(1, 9, 0, 500),
        send_up(0, 9, 0, 0),
        wait(21_947),
        send_down(2, 2, 0, 300_000),
        wait(38),
        send_up(2, 10, 0, 300_000),
        wait(109_969),
        carrier(2, 2),
        wait(300_000),
    ];
    holds(546, &ops);
}

#[test]
fn what_a_link_carries_by_itself_is_learnt_when_the_other_stands_by() {
    let bad = Quality { delay_ms: 1, loss: 114, bit_errors: 19, ..Quality::CLEAN };
    let bad = Quality { rate_kbps: 2_500, ..bad };
    let far = Quality { delay_ms: 148, jitter_ms: 22, bit_errors: 12, ..Quality::CLEAN };
    let far = Quality { rate_kbps: 17_000, ..far };
    let ops = [
        full(0),
        send_down(1, 7, 0, 20_000),
        quality(0, 0, bad),
        wait(46),
        send_down(0, 11, 0, 20_000),
        wait(140_117),
        quality(0, 0, far),
        wait(59_489),
        settle(true),
    ];
    holds(544, &ops);
}

#[test]
fn a_stream_through_a_proxy_is_no_link_that_stands_by() {
    let proxy = Filter::End(([198, 18, 0, 2], 3_128).into());
    let mesh = Spread { manager: Manager::FullMesh, subflows: 2 };
    let spread = Op::SetSpread { client: 0, spread: mesh };
    holds(679, &[full(0), filter_all(0, proxy), spread, settle(true)]);
}

#[test]
fn who_has_no_index_left_gets_others_before_the_next_link_is_needed() {
    let moves = |told_after_ms, ahead_ms| {
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms })
    };
    let ops = [
        Op::SetMode { client: 0, mode: Mode::Full },
        plug(1, 1, 2),
        Op::SetMode { client: 1, mode: Mode::Single },
        moves(18_314, 300),
        Op::Send { client: 1, way: Way::Down, packets: 9, len: 0, gap_us: 300_000 },
        wait(14_593),
        moves(14_969, 0),
        moves(8_172, 0),
        wait(51),
        wait(57),
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 10_000 }),
        moves(4_486, 5_000),
        settle(true),
    ];
    holds(813, &ops);
}

#[test]
fn new_keys_leave_the_other_paths_between_the_same_addresses_alone() {
    let three = Spread { manager: Manager::OnePerLink, subflows: 3 };
    let ops = [
        full(2),
        Op::Network(Network::OneWay { client: 2, access: 0, way: Way::Up }),
        plug(0, 1, 2),
        wait(3_157),
        plug(2, 1, 0),
        Op::SetSpread { client: 0, spread: three },
        wait(84_413),
        send_up(2, 7, 0, 0),
        wait(58),
        Op::SetScheduler { client: 0, scheduler: Scheduler::Latency },
        settle(true),
    ];
    holds(1_457, &ops);
}

#[test]
fn what_left_by_four_paths_of_one_link_that_is_cut_leaves_by_another() {
    let three = Spread { manager: Manager::FullMesh, subflows: 3 };
    let spread = Op::SetSpread { client: 1, spread: three };
    holds(30_318, &[spread, full(1), settle(true)]);
}

/// The MTU of a new path is searched for. Beside compressed packets the lost probes were most of
/// the bytes that left, and counted as congestion: the path was taken for a slow one.
#[test]
fn lost_probes_of_the_mtu_slow_no_path() {
    let ops = [
        Op::SetMode { client: 2, mode: Mode::Full },
        wait(101),
        Op::Network(Network::Mtu { client: 0, access: 2, mtu: 1300 }),
        Op::Machine(Machine::Sleep { client: 2, seconds: 26_640 }),
        plug(0, 0, 2),
        settle(false),
    ];
    let start = Start { saves: Saves::All, ..Start::from(1006) };
    if let Err(failure) = replay(start, &ops) {
        panic!("{}", shrink(failure));
    }
}
