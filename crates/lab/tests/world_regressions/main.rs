//! What once broke a law in the simulated world, as few operations as show it.
//!
//! A new one: `rove-lab world` prints the operations of a failure; put them here under a name that
//! says what was wrong, see the test fail, then mend the core.

mod connections;
mod modes;
mod streams;

use rove_lab::emu::{Carrier, Filter};
use rove_lab::world::{
    Attack, Found, Intercept, Machine, Network, Op, Quality, Way, replay, shrink,
};

fn holds(seed: u64, ops: &[Op]) {
    if let Err(failure) = replay(seed, ops) {
        panic!("{}", shrink(failure));
    }
}

fn send_up(client: u8, packets: u16, len: u16, gap_us: u32) -> Op {
    Op::Send { client, way: Way::Up, packets, len, gap_us }
}

const fn wait(ms: u32) -> Op {
    Op::Wait { ms }
}

const fn settle(quiet: bool) -> Op {
    Op::Settle { quiet }
}

const fn plug(client: u8, card: u8, access: u8) -> Op {
    Op::Network(Network::Plug { client, card, access: Some(access) })
}

const fn move_gateway(told_after_ms: u32) -> Op {
    Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms: 0 })
}

const fn restart_client(client: u8, found: Found, reboot: bool, down_ms: u32) -> Op {
    Op::Machine(Machine::RestartClient { client, found, reboot, down_ms })
}

const fn quality(client: u8, access: u8, quality: Quality) -> Op {
    Op::Network(Network::Quality { client, access, quality })
}

const fn redirect(client: u8, datagrams: u16) -> Op {
    Op::Attack(Attack::Intercept { client, way: Way::Up, how: Intercept::Move, datagrams })
}

const fn filter_all(client: u8, filter: Filter) -> Op {
    Op::Network(Network::Filter { client, access: None, filter: Some(filter) })
}

/// A slow network that loses nothing.
const SLOW: Quality = Quality { delay_ms: 147, jitter_ms: 20, rate_kbps: 300, ..Quality::CLEAN };

#[test]
fn a_packet_whole_by_one_path_and_in_pieces_by_another_is_one_packet() {
    let reboot = Op::Network(Network::RebootNat { client: 1, access: 2, readdress: true });
    let sleep = Op::Machine(Machine::Sleep { client: 1, seconds: 322 });
    holds(5, &[sleep, plug(1, 0, 2), wait(160), reboot, settle(false)]);
}

#[test]
fn a_refused_client_does_not_ask_at_every_round_trip() {
    let restart =
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 10_000 });
    let sleep = Op::Machine(Machine::Sleep { client: 2, seconds: 53 });
    let revoke = Op::Revoke { client: 0 };
    holds(14, &[wait(944), restart, revoke, plug(2, 0, 0), wait(749), wait(939), sleep]);
}

#[test]
fn a_goodbye_that_crosses_a_connect_is_no_end() {
    holds(15, &[settle(false), Op::Revoke { client: 2 }, settle(false)]);
}

#[test]
fn a_dead_spare_path_is_not_asked_for_ever() {
    holds(15, &[wait(170), move_gateway(19_894), settle(true)]);
}

#[test]
fn a_late_challenge_takes_no_newer_path_away() {
    let lossy = Quality { delay_ms: 1, jitter_ms: 40, loss: 191, duplicate: 52, ..SLOW };
    let ops = [
        wait(3_151),
        send_up(2, 9, 0, 500),
        quality(2, 2, lossy),
        send_up(2, 2, 0, 20_000),
        plug(2, 1, 0),
        wait(2_034),
        settle(false),
    ];
    holds(24, &ops);
}

#[test]
fn a_late_challenge_under_old_keys_prefers_nothing() {
    let ops = [
        plug(0, 1, 2),
        wait(420),
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: true, down_ms: 0 }),
        send_up(2, 4, 0, 20_000),
        Op::Machine(Machine::Sleep { client: 1, seconds: 57 }),
        quality(2, 2, SLOW),
        plug(2, 0, 1),
        wait(28),
        restart_client(0, Found::Backup, false, 200),
        settle(true),
    ];
    holds(1_281, &ops);
}

#[test]
fn redirected_datagrams_leave_the_true_path_alone() {
    let held = Quality { delay_ms: 147, jitter_ms: 27, reorder: 182, rate_kbps: 300, ..SLOW };
    let ops = [
        wait(236_044),
        send_up(0, 6, 0, 300_000),
        quality(2, 0, held),
        send_up(0, 7, 0, 0),
        redirect(0, 16),
        wait(775),
        settle(false),
    ];
    holds(27, &ops);
}

#[test]
fn the_first_datagram_under_new_keys_proves_no_address_of_somebody_else() {
    let sleep = Op::Machine(Machine::Sleep { client: 1, seconds: 317 });
    let syn = Op::Syn { client: 2, way: Way::Up, mss: 1_135 };
    holds(62, &[sleep, send_up(2, 4, 0, 0), redirect(2, 23), syn, wait(764), settle(false)]);
}

#[test]
fn a_lost_probe_of_the_mtu_is_no_silence() {
    let shrink = Op::Network(Network::Mtu { client: 0, access: 0, mtu: 1_280 });
    holds(48, &[shrink, settle(true)]);
}

#[test]
fn a_shrunk_path_is_found_out_while_small_packets_pass() {
    let shrink = Op::Network(Network::Mtu { client: 2, access: 1, mtu: 1_300 });
    holds(322, &[wait(25_375), plug(0, 0, 1), shrink, settle(true)]);
}

#[test]
fn a_path_that_falls_silent_again_is_asked_anew() {
    let rebind = Op::Network(Network::RebindNat { client: 0, access: 0 });
    let lossy = Quality { delay_ms: 1, jitter_ms: 17, loss: 211, duplicate: 158, ..SLOW };
    let gone = Op::Network(Network::Carrier { client: 0, access: 0, carrier: Carrier::BlackHole });
    let ops = [wait(731), rebind, settle(false), quality(2, 0, lossy), gone, wait(390_793)];
    holds(263, &ops);
}

#[test]
fn a_gateway_that_moves_often_leaves_room_for_paths() {
    let readdress = |client| Op::Network(Network::Readdress { client, card: 0 });
    let ops = [
        wait(56_591),
        move_gateway(5_563),
        settle(false),
        plug(1, 1, 2),
        Op::Enrol { client: 1 },
        settle(false),
        readdress(2),
        Op::Machine(Machine::Sleep { client: 1, seconds: 51 }),
        wait(47),
        Op::Enrol { client: 0 },
        wait(25_704),
        readdress(1),
        wait(7_056),
        move_gateway(3_832),
        settle(true),
    ];
    holds(307, &ops);
}

#[test]
fn links_that_come_and_go_while_nobody_answers_leave_no_sockets() {
    let dead = |access| Op::Network(Network::OneWay { client: 0, access, way: Way::Down });
    let mut ops = vec![dead(0), dead(1), dead(2)];
    for place in 0..60 {
        ops.extend([plug(0, 0, place % 3), wait(10_000)]);
    }
    ops.push(settle(false));
    holds(1, &ops);
}

#[test]
fn lanes_that_were_seen_at_one_address_part_again() {
    let dead = Op::Network(Network::OneWay { client: 2, access: 1, way: Way::Up });
    let unplugged = Op::Network(Network::Carrier { client: 2, access: 2, carrier: Carrier::Down });
    let replayed = Op::Attack(Attack::Replay {
        count: 54,
        own_address: true,
        altered: false,
        chance: 4_447_990_948_368_925_950,
    });
    let ops = [
        plug(2, 1, 1),
        dead,
        wait(15_817),
        unplugged,
        move_gateway(9_574),
        Op::Machine(Machine::Sleep { client: 2, seconds: 44 }),
        wait(10_100),
        replayed,
        settle(true),
    ];
    holds(4_001_113, &ops);
}

#[test]
fn new_paths_do_not_push_each_other_out_for_dead_ones() {
    let drop = Op::Attack(Attack::Intercept {
        client: 1,
        way: Way::Up,
        how: Intercept::Drop,
        datagrams: 29,
    });
    let reboot = Op::Network(Network::RebootNat { client: 1, access: 2, readdress: true });
    let unplug = Op::Network(Network::Plug { client: 1, card: 0, access: None });
    let ops = [
        restart_client(1, Found::Latest, false, 200),
        plug(1, 1, 2),
        wait(566),
        send_up(1, 12, 0, 500),
        wait(1),
        drop,
        wait(7_592),
        plug(1, 0, 1),
        move_gateway(10_554),
        settle(false),
        reboot,
        unplug,
        wait(776),
        plug(1, 0, 1),
        move_gateway(10_322),
        settle(true),
    ];
    holds(7_003_718, &ops);
}

#[test]
fn a_client_that_stays_with_its_path_under_new_keys_says_so() {
    holds(307, &[plug(1, 1, 2), wait(7_056), move_gateway(3_832), settle(true)]);
}

#[test]
fn what_was_received_with_the_end_of_its_socket_makes_no_path_there() {
    let ops = [
        wait(32_367),
        send_up(2, 60, 1_420, 200),
        Op::Machine(Machine::Sleep { client: 0, seconds: 27_615 }),
        send_up(0, 6, 0, 500),
        wait(27),
        Op::Send { client: 2, way: Way::Down, packets: 1, len: 0, gap_us: 500 },
        Op::Machine(Machine::Late { host: 1, by_us: 20_000 }),
        wait(4_491),
        settle(false),
    ];
    holds(8_301_077, &ops);
}

#[test]
fn a_client_that_is_let_in_again_has_used_its_old_handshakes() {
    let replayed = Op::Attack(Attack::Replay {
        count: 52,
        own_address: false,
        altered: false,
        chance: 4_922_506_960_872_532_681,
    });
    let send_down =
        |client, packets, len, gap_us| Op::Send { client, way: Way::Down, packets, len, gap_us };
    let unplugged = Op::Network(Network::Carrier { client: 1, access: 1, carrier: Carrier::Down });
    let ops = [
        send_up(2, 60, 1_420, 200),
        restart_client(2, Found::Latest, false, 200),
        wait(559),
        unplugged,
        send_down(0, 11, 0, 0),
        wait(38_052),
        Op::Syn { client: 2, way: Way::Down, mss: 1_493 },
        send_up(0, 12, 0, 300_000),
        Op::Revoke { client: 2 },
        wait(5_786),
        send_up(2, 7, 0, 20_000),
        send_up(0, 11, 0, 500),
        restart_client(0, Found::Backup, false, 0),
        send_up(1, 60, 1_420, 200),
        send_down(0, 1, 0, 0),
        send_down(0, 1, 0, 500),
        send_up(2, 3, 0, 20_000),
        Op::Readmit { client: 2 },
        wait(675),
        send_down(1, 6, 0, 20_000),
        Op::Syn { client: 2, way: Way::Down, mss: 1_304 },
        send_up(2, 1, 0, 300_000),
        replayed,
    ];
    holds(8_303_706, &ops);
}

#[test]
fn the_goodbye_to_one_revoked_client_is_not_data_for_another() {
    // The attacker repeats the datagrams of both from one address of his own.
    let send = |client, way, packets| Op::Send { client, way, packets, len: 0, gap_us: 500 };
    let ops = [
        wait(705),
        redirect(1, 21),
        send(1, Way::Down, 5),
        wait(978),
        Op::Revoke { client: 1 },
        redirect(0, 11),
        send(0, Way::Up, 4),
        Op::Revoke { client: 0 },
    ];
    holds(544, &ops);
}

#[test]
fn the_index_that_a_handshake_showed_is_used_on_no_other_network() {
    let ops = [
        plug(0, 1, 0),
        wait(22_607),
        send_up(1, 7, 0, 500),
        plug(1, 0, 2),
        wait(315_733),
        Op::Readmit { client: 0 },
        Op::Machine(Machine::Sleep { client: 0, seconds: 134 }),
        wait(327_707),
    ];
    holds(9_100_205, &ops);
}

#[test]
fn a_path_that_was_given_up_by_a_word_from_elsewhere_is_not_waited_for() {
    let send = |client, way, packets, len, gap_us| Op::Send { client, way, packets, len, gap_us };
    let ops = [
        wait(836),
        Op::Network(Network::RebindNat { client: 2, access: 0 }),
        send_up(0, 1, 0, 0),
        send(0, Way::Down, 10, 0, 300_000),
        send(1, Way::Down, 6, 0, 20_000),
        wait(804),
        Op::Network(Network::Carrier { client: 1, access: 1, carrier: Carrier::BlackHole }),
        Op::Syn { client: 1, way: Way::Up, mss: 1_383 },
        send(1, Way::Down, 12, 0, 500),
        wait(47_555),
        wait(681),
        send_up(0, 1, 0, 0),
        wait(2_301),
        send(1, Way::Down, 8, 0, 20_000),
        send_up(1, 3, 0, 500),
        send_up(1, 60, 1_420, 200),
        send(2, Way::Down, 60, 1_420, 200),
        Op::Revoke { client: 2 },
        Op::Syn { client: 2, way: Way::Up, mss: 1_636 },
        Op::Syn { client: 1, way: Way::Up, mss: 480 },
        wait(736),
        Op::Attack(Attack::Replay {
            count: 46,
            own_address: true,
            altered: false,
            chance: 5_558_021_695_293_482_060,
        }),
        settle(true),
    ];
    holds(1_006_546, &ops);
}

#[test]
fn an_address_that_was_announced_long_ago_is_not_gone_to() {
    let ahead = |told_after_ms, ahead_ms| {
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms })
    };
    let restart = Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 0 });
    let moves = [ahead(15_443, 5_000), wait(29_501), restart, wait(123), ahead(19_547, 0)];
    holds(9_001_613, &[&moves[..], &[wait(164_316), settle(true)]].concat());
}

#[test]
fn a_nat_is_not_asked_about_by_the_path_in_use() {
    let lossy = Quality {
        delay_ms: 117,
        jitter_ms: 13,
        loss: 254,
        bit_errors: 2,
        rate_kbps: 13_100,
        ..Quality::CLEAN
    };
    let send = |way, packets, gap_us| Op::Send { client: 2, way, packets, len: 0, gap_us };
    let packets = [send(Way::Down, 3, 500), send(Way::Up, 11, 20_000)];
    let before = [plug(2, 0, 0), wait(56_277), quality(2, 0, lossy)];
    holds(1_177, &[&before[..], &packets, &[wait(5_353), settle(true)]].concat());
}

#[test]
fn a_quiet_client_on_a_path_that_the_gateway_gave_up_is_reached() {
    let deaf = Op::Network(Network::OneWay { client: 1, access: 1, way: Way::Down });
    let send = Op::Send { client: 1, way: Way::Up, packets: 60, len: 1_420, gap_us: 200 };
    let sleep = Op::Machine(Machine::Sleep { client: 2, seconds: 55 });
    let before = [wait(32_873), move_gateway(19_135), wait(473), deaf, send, sleep, wait(55_699)];
    holds(13_656, &[&before[..], &[redirect(1, 25), wait(6_183), settle(false)]].concat());
}

#[test]
fn what_was_lost_under_old_keys_is_not_sent_again_under_new_ones() {
    let deaf = Op::Network(Network::OneWay { client: 2, access: 0, way: Way::Up });
    let links = [plug(0, 0, 0), deaf, wait(6_952), plug(2, 1, 1)];
    let restart = restart_client(0, Found::Latest, false, 200);
    holds(601_332, &[&[settle(false)], &links[..], &[restart, settle(false)]].concat());
}

#[test]
fn a_gateway_full_of_old_paths_has_room_for_two_claims() {
    let readdress = || Op::Network(Network::Readdress { client: 0, card: 1 });
    let before = [plug(0, 1, 1), wait(242_064), readdress(), settle(false), readdress()];
    let reflect = Op::Attack(Attack::Reflect { client: 1 });
    holds(601_461, &[&before[..], &[reflect, settle(true)]].concat());
}

#[test]
fn a_path_that_was_held_up_once_learns_soon_that_it_shrank() {
    let hold = |client, way, ms, datagrams| {
        let how = Intercept::Hold { ms };
        Op::Attack(Attack::Intercept { client, way, how, datagrams })
    };
    let mtu = |client, access, mtu| Op::Network(Network::Mtu { client, access, mtu });
    let shrunk = [wait(2_787), mtu(2, 0, 1_280), settle(false)];
    holds(901_324, &[&[hold(0, Way::Up, 2_487, 18)], &shrunk[..]].concat());
    let shrunk = [wait(25_587), plug(1, 1, 0), mtu(1, 1, 1_400), settle(false)];
    holds(902_324, &[&[hold(1, Way::Down, 2_335, 20)], &shrunk[..]].concat());
}

#[test]
fn a_better_link_is_proven_by_an_address_that_answers() {
    holds(15, &[move_gateway(178), settle(true)]);
}

#[test]
fn a_better_link_is_proven_by_where_the_gateway_was_found() {
    holds(13, &[wait(2_458), move_gateway(1_956), wait(351_619), settle(true)]);
}

#[test]
fn an_address_that_is_claimed_again_and_again_uses_up_no_indices() {
    let deaf = Op::Network(Network::OneWay { client: 0, access: 0, way: Way::Down });
    let send = Op::Send { client: 0, way: Way::Up, packets: 1, len: 0, gap_us: 0 };
    let rebind = Op::Network(Network::RebindNat { client: 0, access: 0 });
    let sleep = Op::Machine(Machine::Sleep { client: 2, seconds: 18_574 });
    let before = [wait(1_581), deaf, send, wait(11_105), rebind, wait(9_726), sleep];
    holds(21_199, &[&before[..], &[settle(true)]].concat());
}

#[test]
fn a_spare_path_that_was_given_up_carries_again_when_the_client_comes_by_it() {
    let race = Op::Attack(Attack::Intercept {
        client: 0,
        way: Way::Up,
        how: Intercept::Race,
        datagrams: 14,
    });
    let send = Op::Send { client: 0, way: Way::Up, packets: 12, len: 0, gap_us: 0 };
    let readdress = Op::Network(Network::Readdress { client: 0, card: 0 });
    let before = [plug(0, 1, 2), wait(366_209), Op::Readmit { client: 0 }, wait(37_925), race];
    holds(5_618, &[&before[..], &[send, readdress, settle(true)]].concat());
}

#[test]
fn a_path_that_shrank_while_another_carried_is_measured_when_data_comes_back() {
    let before = [wait(38_453), filter_all(0, Filter::Port(443)), wait(211_136)];
    let shrinks = Op::Network(Network::Mtu { client: 0, access: 0, mtu: 1_300 });
    // Data comes back before what must not be lost, or in the midst of it.
    for answers in [wait(210_342), wait(458_000)] {
        let after = [answers, shrinks.clone(), plug(0, 1, 1), settle(false)];
        holds(2_001_202, &[&before[..], &after].concat());
    }
}

#[test]
fn paths_to_where_the_gateway_was_leave_room_for_a_better_link() {
    let moves = |told_after_ms, ahead_ms| {
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms })
    };
    let ops = [
        moves(6_148, 300),
        moves(16_618, 0),
        wait(19_817),
        plug(1, 1, 2),
        wait(55),
        moves(18_243, 0),
        wait(4_860),
        moves(14_123, 300),
        wait(178),
        moves(19_928, 5_000),
        wait(1_172),
        moves(16_341, 5_000),
        settle(false),
        moves(4_163, 300),
        settle(true),
    ];
    holds(800_249, &ops);
}

#[test]
fn a_gateway_that_speaks_from_where_no_index_is_left_for_is_asked_by_a_handshake() {
    let moves = |told_after_ms, ahead_ms| {
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms })
    };
    let ops = [
        wait(1_045),
        move_gateway(15_747),
        wait(125_088),
        moves(13_286, 300),
        Op::Network(Network::OneWay { client: 1, access: 1, way: Way::Up }),
        moves(8_132, 300),
        wait(289_176),
        moves(16_194, 5_000),
        Op::Machine(Machine::Sleep { client: 2, seconds: 6_049 }),
        Op::Machine(Machine::Sleep { client: 1, seconds: 355 }),
        Op::Syn { client: 1, way: Way::Down, mss: 1_378 },
        wait(3_329),
        settle(false),
    ];
    holds(2_000_602, &ops);
}

#[test]
fn who_waits_eagerly_for_a_path_does_not_ask_anew_with_every_notice() {
    let ops = [
        Op::Syn { client: 0, way: Way::Up, mss: 963 },
        wait(1_915),
        Op::Send { client: 2, way: Way::Up, packets: 2, len: 0, gap_us: 500 },
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms: 4_628, ahead_ms: 300 }),
        move_gateway(11_462),
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: false, down_ms: 0 }),
        wait(109_747),
    ];
    holds(8_100_434, &ops);
}

#[test]
fn a_spare_link_follows_to_where_the_gateway_is_and_needs_no_new_index() {
    let moves = |told_after_ms, ahead_ms| {
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms })
    };
    let readdress = || Op::Network(Network::Readdress { client: 0, card: 0 });
    let black_hole =
        Op::Network(Network::Carrier { client: 0, access: 1, carrier: Carrier::BlackHole });
    let ops = [
        wait(921),
        moves(13_717, 0),
        wait(157_266),
        moves(8_281, 5_000),
        wait(5_586),
        plug(0, 1, 1),
        moves(1_129, 0),
        black_hole,
        readdress(),
        wait(233_352),
        readdress(),
        wait(4_093),
        moves(19_731, 0),
        send_up(0, 2, 0, 20_000),
        wait(989),
        moves(7_432, 5_000),
        wait(48),
        settle(true),
    ];
    holds(8_300_529, &ops);
}

#[test]
fn mappings_that_a_nat_forgot_leave_indices_for_an_address_that_is_claimed() {
    let ops = [
        Op::Machine(Machine::Sleep { client: 0, seconds: 10_567 }),
        restart_client(2, Found::Latest, false, 0),
        wait(311_447),
        plug(2, 1, 0),
        send_up(2, 235, 1_200, 0),
        wait(1_000),
        Op::Network(Network::Carrier { client: 2, access: 2, carrier: Carrier::Down }),
        wait(649),
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms: 1_727, ahead_ms: 300 }),
        settle(true),
    ];
    holds(33_094, &ops);
}

#[test]
fn two_answers_to_keepalives_of_the_same_bytes_by_chance_are_two_answers() {
    let lossy = Quality {
        delay_ms: 75,
        jitter_ms: 5,
        loss: 61,
        duplicate: 111,
        bit_errors: 11,
        rate_kbps: 300,
        ..Quality::CLEAN
    };
    let ops = [
        quality(0, 0, lossy),
        wait(187),
        Op::Network(Network::Carrier { client: 0, access: 2, carrier: Carrier::Down }),
        wait(136_933_990),
    ];
    holds(1_028, &ops);
}
