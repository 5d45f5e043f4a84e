//! Questions of applications while nothing gets through: names and new QUIC connections. They are
//! heard as soon as something does, so that nobody waits for his own repetition.

use crate::pair::{DELAY, Pair, links, packet, udp};
use rove_proto::error::DropReason;
use rove_proto::node::PeerState;
use rove_proto::time::Duration;

const THERE: [u8; 4] = [198, 18, 0, 9];
/// Until a path's return is noticed by both ends: what is asked every 20 ms has its answer.
const NOTICED: Duration = Duration::from_millis(60);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn name(number: u16, is_answer: bool) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    let flags = if is_answer { 0x81 } else { 1 };
    [high, low, flags, 0, 0, 1, 0, 0, 0, 0, 0, 0, 4, b'r', b'o', b'v', b'e', 0, 0, 1, 0, 1].to_vec()
}

fn question(number: u16) -> Vec<u8> {
    udp((5_300, 53), &name(number, false), false)
}

fn answer(number: u16) -> Vec<u8> {
    udp((53, 5_300), &name(number, true), true)
}

fn initial() -> Vec<u8> {
    let mut payload = vec![7; 1_250];
    payload[..6].copy_from_slice(&[0xc1, 0, 0, 0, 1, 8]);
    udp((6_000, 443), &payload, false)
}

/// A session, and a silence that the client has noticed.
fn silent() -> Pair {
    let mut pair = Pair::up();
    pair.run(seconds(1));
    pair.filter = Box::new(|_| false);
    pair.send(&packet(100, false));
    pair.run(seconds(1));
    assert_eq!(pair.state(), PeerState::Suspended);
    pair
}

#[test]
fn what_is_asked_in_a_silence_is_answered_a_moment_after_it() {
    let mut pair = silent();
    pair.send(&question(1));
    pair.send(&initial());
    pair.send(&packet(200, false)); // a call's
    let waiting = |pair: &Pair| pair.client.status(pair.gateway_key).unwrap().waiting;
    assert_eq!(waiting(&pair), 2);
    pair.run(seconds(3));
    pair.filter = Box::new(|_| true);
    let before = pair.gateway_inner.len();
    pair.run(NOTICED + DELAY);
    let heard: Vec<_> = pair.gateway_inner[before..].iter().map(|(_, packet)| packet).collect();
    assert_eq!(heard, [&question(1), &initial()]);
    assert_eq!(waiting(&pair), 0);
    pair.send_back(&answer(1));
    pair.run(DELAY * 2);
    assert_eq!(pair.client_inner.last().unwrap().1, answer(1));
}

#[test]
fn what_was_asked_just_before_a_silence_is_asked_again() {
    let mut pair = Pair::up();
    pair.run(seconds(1));
    pair.send(&question(1));
    pair.run(DELAY);
    pair.send_back(&answer(1));
    pair.run(DELAY);
    pair.filter = Box::new(|_| false);
    pair.send(&question(2));
    pair.run(seconds(2));
    assert_eq!((pair.state(), pair.gateway_inner.len()), (PeerState::Suspended, 1));
    pair.filter = Box::new(|_| true);
    pair.run(NOTICED + DELAY);
    let heard: Vec<_> = pair.gateway_inner[1..].iter().map(|(_, packet)| packet).collect();
    assert_eq!(heard, [&question(2)], "and not what was answered");
}

#[test]
fn the_gateway_does_the_same_for_those_behind_it() {
    let mut pair = silent();
    pair.send_back(&packet(100, true));
    pair.run(seconds(1));
    let question = udp((5_300, 53), &name(9, false), true);
    pair.send_back(&question);
    pair.run(seconds(2));
    pair.filter = Box::new(|_| true);
    pair.run(NOTICED + DELAY);
    let heard: Vec<_> = pair.client_inner.iter().map(|(_, packet)| packet).collect();
    assert_eq!(heard, [&question]);
}

#[test]
fn without_any_link_it_waits_longer_than_other_packets_and_is_heard_once() {
    let mut pair = Pair::up();
    pair.run(seconds(1));
    pair.filter = Box::new(|_| false);
    pair.send(&question(1)); // leaves, and never arrives
    pair.run(Duration::from_millis(10));
    pair.tell_client(links(&[]));
    pair.filter = Box::new(|_| true);
    pair.send(&question(2));
    pair.send(&packet(200, false));
    pair.run(seconds(4));
    pair.tell_client(links(&[THERE]));
    pair.run(DELAY * 3);
    let heard: Vec<_> = pair.gateway_inner.iter().map(|(_, packet)| packet).collect();
    assert_eq!(heard, [&question(1), &question(2)]);
}

#[test]
fn who_moves_asks_once() {
    for gap in [0, 500] {
        let mut pair = Pair::up();
        pair.run(seconds(1));
        pair.filter = Box::new(|_| false);
        pair.send(&question(1));
        pair.run(Duration::from_millis(10));
        pair.filter = Box::new(|_| true);
        if gap > 0 {
            pair.tell_client(links(&[]));
            pair.send(&question(2));
            pair.run(Duration::from_millis(gap));
        }
        pair.tell_client(links(&[THERE]));
        pair.send(&question(3));
        pair.run(seconds(1));
        let mut heard: Vec<_> = pair.gateway_inner.iter().map(|(_, packet)| packet).collect();
        heard.sort();
        let mut asked = vec![question(1), question(3)];
        asked.extend((gap > 0).then(|| question(2)));
        asked.sort();
        assert_eq!(heard, asked.iter().collect::<Vec<_>>(), "after {gap} ms");
    }
}

#[test]
fn few_wait_and_not_for_long() {
    let mut pair = silent();
    let before = pair.client.drops().of(DropReason::QueueFull);
    for number in 0..1_000 {
        pair.send(&question(number));
    }
    assert_eq!(pair.client.drops().of(DropReason::QueueFull) - before, 1_000 - 64);
    let before = pair.client.drops().of(DropReason::NoRoute);
    pair.run(seconds(6));
    assert_eq!(pair.client.drops().of(DropReason::NoRoute) - before, 64);
    pair.filter = Box::new(|_| true);
    let before = pair.gateway_inner.len();
    pair.run(seconds(2));
    assert_eq!((pair.state(), pair.gateway_inner.len()), (PeerState::Up, before));
}

#[test]
fn the_first_question_opens_the_session_and_goes_by_it() {
    let mut pair = Pair::up();
    for _ in 0..2 {
        pair.run(seconds(48 * 3_600));
        assert_eq!(pair.state(), PeerState::Resting);
        let before = pair.gateway_inner.len();
        pair.send(&question(1));
        pair.run(DELAY * 3);
        assert_eq!(pair.gateway_inner.len(), before + 1);
    }
}
