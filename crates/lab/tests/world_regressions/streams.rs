//! The same about streams: where they lead, and what they carry when they end.

use rove_lab::emu::{Carrier, Filter};
use rove_lab::world::{
    Attack, Intercept, Machine, Manager, Mode, Network, Op, Quality, Spread, Way,
};

use super::{filter_all, holds, move_gateway, plug, send_up, settle, wait};

const fn filter(client: u8, access: u8, filter: Filter) -> Op {
    Op::Network(Network::Filter { client, access: Some(access), filter: Some(filter) })
}

#[test]
fn udp_is_asked_where_the_gateway_is_while_data_goes_by_a_stream() {
    let proxy = Filter::End("198.18.0.2:3128".parse().unwrap());
    let sleep = Op::Machine(Machine::Sleep { client: 2, seconds: 24 });
    let ops = [filter(0, 0, proxy), wait(46), sleep, wait(49), move_gateway(15_805), settle(true)];
    holds(100_089, &ops);
    // And with as many paths to where it was as there may be.
    let announced =
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms: 13_290, ahead_ms: 300 });
    let ops = [
        wait(182),
        move_gateway(12_686),
        wait(22_650),
        move_gateway(13_860),
        filter(1, 1, Filter::NoUdp),
        wait(123_598),
        announced,
        move_gateway(2_277),
        settle(false),
    ];
    holds(747, &ops);
}

#[test]
fn a_goodbye_by_a_stream_that_stood_still_ends_no_session_that_was_made_since() {
    let send = Op::Send { client: 2, way: Way::Up, packets: 1, len: 0, gap_us: 0 };
    let before = [filter_all(1, Filter::NoUdp), wait(2_921), settle(false), send];
    let revoke = Op::Revoke { client: 0 };
    let after = [filter_all(2, Filter::TlsPort(443)), wait(584), revoke, settle(false)];
    holds(2_002_119, &[&before[..], &after].concat());
}

#[test]
fn who_is_decided_on_too_late_is_not_answered_by_a_stream_that_failed() {
    let slow = Quality {
        delay_ms: 1,
        jitter_ms: 18,
        loss: 47,
        duplicate: 0,
        reorder: 0,
        bit_errors: 0,
        rate_kbps: 300,
    };
    let unplug = Op::Network(Network::Plug { client: 0, card: 0, access: None });
    let all = |filter| Op::Network(Network::Filter { client: 0, access: None, filter });
    let clock = Op::Machine(Machine::StepClock { gateway: 0, by_s: 336_684_729 });
    let quality = Op::Network(Network::Quality { client: 2, access: 0, quality: slow });
    let before = [unplug, wait(38), all(Some(Filter::Port(443))), clock, quality];
    let free = Op::Network(Network::Filter { client: 2, access: None, filter: None });
    let after = [plug(2, 1, 0), free, wait(114), wait(541)];
    holds(800_391, &[&before[..], &after].concat());
}

#[test]
fn streams_go_to_where_the_name_leads_though_no_address_is_new() {
    // After a loss of two datagrams data goes by the other family; after one the name is asked for.
    let after_loss = |datagrams, ms| {
        let how = Intercept::Drop;
        let lose = Attack::Intercept { client: 0, way: Way::Up, how, datagrams };
        [Op::Attack(lose), send_up(0, 1, 0, 0), wait(ms)]
    };
    let all = |filter| Op::Network(Network::Filter { client: 0, access: None, filter });
    let ahead =
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms: 30_000, ahead_ms: 300 });
    let unplug = Op::Network(Network::Plug { client: 0, card: 0, access: None });
    let ops = [
        &[all(None), plug(0, 0, 1), wait(6_000)][..],
        &after_loss(2, 6_000),
        &after_loss(2, 6_000),
        &[ahead, wait(6_000)],
        &after_loss(2, 6_000),
        &after_loss(1, 46_000),
        &[unplug, all(Some(Filter::Port(443))), settle(false)],
    ];
    holds(2_000_488, &ops.concat());
}

/// Paths to where a gateway was take no index that one to where it is would need.
#[test]
fn udp_is_asked_where_a_handshake_was_answered_whatever_else_was_asked() {
    let ops = [
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms: 2_954, ahead_ms: 300 }),
        wait(2_390),
        filter_all(2, Filter::NoUdp),
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms: 19_992, ahead_ms: 5_000 }),
        plug(2, 1, 1),
        wait(4_538),
        settle(false),
    ];
    holds(1_607, &ops);
}

/// Not a byte, not even one that keeps a connection of its own alive.
#[test]
fn no_stream_stays_beside_udp_that_carries_by_its_link() {
    let spread = Spread { manager: Manager::FullMesh, subflows: 2 };
    let ops = [
        plug(0, 1, 1),
        Op::SetMode { client: 0, mode: Mode::Full },
        Op::SetSpread { client: 0, spread },
        filter(0, 1, Filter::TlsPort(443)),
        Op::Network(Network::Depart { client: 0, card: 0, ahead_ms: 300 }),
        settle(true),
    ];
    holds(1_280, &ops);
}

#[test]
fn udp_is_asked_where_the_gateway_says_it_is_when_a_proxy_led_to_it() {
    let moves = |told_after_ms, ahead_ms| {
        Op::Network(Network::MoveGateway { gateway: 0, told_after_ms, ahead_ms })
    };
    let sleep = |client, seconds| Op::Machine(Machine::Sleep { client, seconds });
    let proxy = Filter::End("198.18.0.2:3128".parse().unwrap());
    let ops = [
        plug(1, 1, 2),
        Op::SetMode { client: 1, mode: Mode::Single },
        Op::Network(Network::Carrier { client: 0, access: 0, carrier: Carrier::Down }),
        wait(2_506),
        moves(19_880, 300),
        sleep(1, 86),
        filter_all(1, proxy),
        moves(7_976, 0),
        send_up(1, 8, 0, 300_000),
        sleep(2, 3_801),
        settle(false),
    ];
    holds(3_769, &ops);
    // And where it began anew, behind all the places that it has left.
    let send = Op::Send { client: 1, way: Way::Down, packets: 3, len: 0, gap_us: 500 };
    let hold = Attack::Intercept {
        client: 2,
        way: Way::Up,
        how: Intercept::Hold { ms: 1_523 },
        datagrams: 17,
    };
    let ops = [
        wait(18_222),
        move_gateway(16_037),
        settle(false),
        moves(13_119, 300),
        wait(33_964),
        send,
        filter_all(1, Filter::NoUdp),
        move_gateway(14_784),
        wait(222_193),
        Op::Network(Network::Filter { client: 2, access: None, filter: None }),
        send_up(2, 7, 0, 300_000),
        wait(810),
        Op::Attack(hold),
        wait(927),
        Op::SetMode { client: 2, mode: Mode::Full },
        Op::Machine(Machine::RestartGateway { gateway: 0, reboot: true, down_ms: 10_000 }),
        filter_all(2, proxy),
        settle(false),
    ];
    holds(3_247, &ops);
}
