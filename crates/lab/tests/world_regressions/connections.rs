//! The same about open connections.

use rove_lab::emu::Carrier;
use rove_lab::tcp::CongestionControl;
use rove_lab::world::{Attack, Found, Machine, Network, Op, Quality, Talk, Way};

use super::{holds, move_gateway, plug, quality, restart_client, send_up, settle, wait};

#[test]
fn a_connection_that_may_not_be_spoken_for_yet_keeps_nobody_awake() {
    let one_way = Op::Network(Network::OneWay { client: 2, access: 0, way: Way::Down });
    let ops = [
        wait(6_296),
        Op::Network(Network::Plug { client: 0, card: 0, access: None }),
        Op::Send { client: 0, way: Way::Down, packets: 10, len: 0, gap_us: 300_000 },
        wait(21_195),
        Op::Syn { client: 0, way: Way::Down, mss: 1_461 },
        plug(0, 1, 0),
        one_way,
        Op::Machine(Machine::Sleep { client: 1, seconds: 25_355 }),
    ];
    holds(182, &ops);
}

#[test]
fn a_place_that_a_client_left_is_not_asked_eagerly_whenever_a_program_tries_again() {
    let download = Talk {
        up: 0,
        down: 947_352,
        every_ms: 0,
        congestion: CongestionControl::Bbr,
        keeps_alive: true,
        sips: false,
    };
    let ops = [
        Op::Connect { client: 0, talk: download },
        wait(433),
        plug(0, 1, 0),
        Op::Machine(Machine::Sleep { client: 2, seconds: 28_177 }),
    ];
    holds(50_022, &ops);
}

#[test]
fn what_is_owed_to_a_program_whose_tunnel_began_anew_is_struck_out() {
    let damaging = Quality {
        delay_ms: 126,
        jitter_ms: 0,
        loss: 221,
        duplicate: 131,
        reorder: 94,
        bit_errors: 8,
        rate_kbps: 300,
    };
    let both_ways = Talk {
        up: 391_637,
        down: 39_424,
        every_ms: 0,
        congestion: CongestionControl::Bbr,
        keeps_alive: false,
        sips: false,
    };
    let ops = [
        wait(104_186),
        quality(0, 0, damaging),
        Op::Connect { client: 1, talk: both_ways },
        wait(1_000),
        Op::Network(Network::Carrier { client: 0, access: 0, carrier: Carrier::BlackHole }),
        wait(300_000),
        restart_client(0, Found::Latest, false, 10_000),
        settle(false),
    ];
    holds(51_124, &ops);
}

#[test]
fn what_is_owed_by_a_client_whose_gateway_began_anew_is_struck_out() {
    let lossy = Quality { delay_ms: 26, loss: 234, rate_kbps: 300, ..Quality::CLEAN };
    let slow = Talk {
        up: 12_467,
        down: 79_761,
        every_ms: 20,
        congestion: CongestionControl::Reno,
        keeps_alive: false,
        sips: false,
    };
    let ops = [
        wait(669),
        quality(1, 1, lossy),
        send_up(1, 60, 1_420, 200),
        wait(31),
        Op::Connect { client: 1, talk: slow },
        wait(1_000),
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 0 }),
        wait(946),
        settle(true),
    ];
    holds(55_118, &ops);
}

#[test]
fn who_waits_for_a_new_path_does_not_fill_the_link_with_questions() {
    let mixed = Quality {
        delay_ms: 21,
        jitter_ms: 19,
        reorder: 249,
        bit_errors: 16,
        rate_kbps: 300,
        ..Quality::CLEAN
    };
    let move_ahead = |told_after_ms, ahead_ms| {
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms })
    };
    let ops = [
        quality(0, 0, mixed),
        wait(56),
        wait(603),
        move_ahead(6_475, 5_000),
        Op::Send { client: 2, way: Way::Down, packets: 5, len: 0, gap_us: 0 },
        Op::Syn { client: 2, way: Way::Down, mss: 1_165 },
        wait(720),
        restart_client(2, Found::Latest, true, 10_000),
        move_gateway(5_840),
        wait(20_906),
        Op::Syn { client: 2, way: Way::Up, mss: 978 },
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 10_000 }),
        move_ahead(10_447, 300),
        wait(308_706),
    ];
    holds(54_670, &ops);
}

/// Each address of the gateway by each link is a path, and all of them were asked eagerly.
#[test]
fn who_has_many_paths_does_not_fill_a_link_with_questions_for_all_of_them() {
    let poor = Quality {
        delay_ms: 75,
        loss: 291,
        duplicate: 88,
        reorder: 73,
        rate_kbps: 300,
        ..Quality::CLEAN
    };
    let move_ahead = |told_after_ms| {
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms: 5_000 })
    };
    let ops = [
        quality(1, 1, poor),
        send_up(1, 7, 0, 20_000),
        move_ahead(10_123),
        wait(204_588),
        move_ahead(13_854),
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 10_000 }),
        Op::Syn { client: 1, way: Way::Up, mss: 1_642 },
        Op::Attack(Attack::Cut { client: 0 }),
        wait(135_587),
    ];
    holds(64_836, &ops);
}

#[test]
fn what_is_broken_off_when_a_session_is_revoked_is_struck_out() {
    let little = Talk {
        up: 1_288,
        down: 72_188,
        every_ms: 200,
        congestion: CongestionControl::Reno,
        keeps_alive: true,
        sips: false,
    };
    let ops = [
        Op::Connect { client: 0, talk: little },
        Op::Network(Network::Depart { client: 1, card: 0, ahead_ms: 5_000 }),
        wait(135_686_668),
        Op::Revoke { client: 2 },
        settle(false),
    ];
    holds(61_443, &ops);
}

#[test]
fn who_was_promised_something_before_a_crash_is_told_although_the_client_is_revoked_at_once() {
    let download = Talk {
        up: 1_449,
        down: 465_999,
        every_ms: 0,
        congestion: CongestionControl::Reno,
        keeps_alive: false,
        sips: false,
    };
    let ops = [
        Op::Connect { client: 1, talk: download },
        wait(200),
        Op::Network(Network::Carrier { client: 0, access: 0, carrier: Carrier::BlackHole }),
        wait(3_000),
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 200 }),
        Op::Revoke { client: 2 },
        settle(true),
    ];
    holds(62_419, &ops);
}

#[test]
fn beside_one_that_was_revoked_and_is_not_gone_yet_nobody_is_overlooked() {
    let talk = Talk {
        up: 0,
        down: 76_305,
        every_ms: 200,
        congestion: CongestionControl::Bbr,
        keeps_alive: true,
        sips: false,
    };
    let hole = Carrier::BlackHole;
    let ops = [
        Op::Connect { client: 2, talk },
        wait(200),
        Op::Network(Network::Carrier { client: 0, access: 0, carrier: hole }),
        wait(30_000),
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 0 }),
        Op::Revoke { client: 0 },
        Op::Syn { client: 2, way: Way::Up, mss: 1_683 },
    ];
    holds(30_424, &ops);
}
