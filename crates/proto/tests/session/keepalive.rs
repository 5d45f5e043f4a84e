//! What an idle session costs: nothing in the open, and behind a NAT little more than the NAT asks
//! for, however long it remembers. Who is silent for days rests, and is called.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use aws_lc_rs::hmac;

use crate::pair::{DELAY, Datagram, ELSEWHERE, Nat, Pair, packet, secrets, syn};
use rove_proto::crypto::{RestartKey, Rng, SeededRng};
use rove_proto::error::{CloseCode, DropReason};
use rove_proto::id::{LinkId, SessionIndex};
use rove_proto::multipath::Mode;
use rove_proto::node::{Command, Link, PeerState};
use rove_proto::time::Duration;
use rove_proto::wire::Kind;

const DAY_S: u32 = 86_400;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A session that begins behind a NAT which forgets after so many seconds.
fn behind_nat(forgets: u64) -> Pair {
    let mut pair = Pair::new(None);
    pair.nat = Some(Nat::new(seconds(forgets)));
    pair.admit_client();
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(seconds(1));
    assert_eq!(pair.state(), PeerState::Up);
    pair
}

/// Bytes at layer 3, both ways, of the first idle day.
fn day(pair: &mut Pair) -> usize {
    let before = pair.bytes;
    for _ in 0..24 {
        pair.run(Duration::from_secs(1) * (DAY_S / 24));
    }
    pair.bytes - before
}

/// The gateway has something to say at moments that nobody can foresee, and is heard.
fn is_always_reached(pair: &mut Pair) {
    let mut rng = SeededRng::new(11);
    for round in 0..100 {
        let mut bytes = [0; 2];
        rng.fill(&mut bytes);
        pair.run(Duration::from_millis(u64::from(u16::from_be_bytes(bytes)) * 5));
        let before = pair.client_inner.len();
        pair.send_back(&packet(100, true));
        pair.run(DELAY * 2);
        assert_eq!(pair.client_inner.len(), before + 1, "round {round}");
    }
}

#[test]
fn a_nat_that_remembers_for_two_minutes_costs_at_most_60_kb_a_day() {
    let mut pair = behind_nat(120);
    let bytes = day(&mut pair);
    assert!((30_000..=60_000).contains(&bytes), "{bytes} bytes");
    assert_eq!(pair.epochs(), 1, "no new keys without traffic");
    is_always_reached(&mut pair);
}

#[test]
fn a_nat_that_remembers_for_half_a_minute_costs_at_most_250_kb_a_day() {
    let mut pair = behind_nat(30);
    let bytes = day(&mut pair);
    assert!((100_000..=250_000).contains(&bytes), "{bytes} bytes");
    is_always_reached(&mut pair);
}

/// The gateway is gone, and nobody has anything to say. The client waits for its next keepalive,
/// and three round trips and 200 ms for the answer to that and to a challenge.
#[test]
fn a_silent_client_notices_within_one_interval_that_the_gateway_is_gone() {
    for (forgets, hours, longest) in [(120, 0, 25), (120, 2, 114), (30, 2, 29), (300, 2, 285)] {
        for moment in [3, 17, 31, 64, 99] {
            let mut pair = behind_nat(forgets);
            pair.run(seconds(hours * 3_600 + moment));
            assert_eq!(pair.state(), PeerState::Up);
            pair.filter = Box::new(|_| false);
            let since = pair.now;
            while pair.state() == PeerState::Up && pair.now < since + seconds(600) {
                pair.run(Duration::from_millis(100));
            }
            let took = pair.now.saturating_since(since);
            let noticed = took <= seconds(longest + 1);
            assert!(noticed, "{took:?}: a NAT of {forgets} s, {moment} s after {hours} h");
        }
    }
}

#[test]
fn a_keepalive_that_is_lost_costs_one_challenge_and_no_session() {
    let mut pair = behind_nat(120);
    pair.run(seconds(7_200));
    let count = Rc::new(RefCell::new(0));
    let lost = Rc::clone(&count);
    pair.filter = Box::new(move |datagram| {
        let is_keepalive = datagram.bytes[0] == Kind::Keepalive as u8;
        *lost.borrow_mut() += usize::from(is_keepalive);
        !is_keepalive
    });
    let before = pair.sent;
    pair.run(seconds(3_600));
    let lost = *count.borrow();
    assert!(lost >= 30, "{lost} keepalives");
    assert_eq!((pair.state(), pair.epochs()), (PeerState::Up, 1));
    assert_eq!(pair.sent - before, lost * 3);
    is_always_reached(&mut pair);
}

/// Whoever saw a keepalive gets no answer elsewhere, and an answer holds once.
#[test]
fn keepalives_change_nothing_at_a_gateway_and_answers_hold_once() {
    let mut pair = behind_nat(120);
    pair.run(seconds(7_200));
    let seen = Rc::new(RefCell::new(Vec::<Datagram>::new()));
    let see = Rc::clone(&seen);
    pair.filter = Box::new(move |datagram| {
        see.borrow_mut().push(datagram.clone());
        true
    });
    pair.run(seconds(120));
    let seen = seen.borrow_mut().split_off(0);
    let of = |kind: Kind| seen.iter().find(|datagram| datagram.bytes[0] == kind as u8).unwrap();
    let (asked, answer) = (of(Kind::Keepalive), of(Kind::KeepaliveAnswer));
    let before = pair.sent;
    for _ in 0..100 {
        let (at, from) = (pair.now, ELSEWHERE.parse().unwrap());
        pair.arrive(Datagram { at, from, ..asked.clone() });
        pair.arrive(Datagram { at, ..answer.clone() });
    }
    assert_eq!(pair.sent, before, "nobody is answered elsewhere");
    assert_eq!(pair.client.drops().of(DropReason::BadMac), 100);
    // The gateway is gone, and somebody repeats its answer.
    pair.filter = Box::new(|_| false);
    for _ in 0..1_150 {
        pair.run(Duration::from_millis(100));
        pair.arrive(answer.clone());
    }
    assert_ne!(pair.state(), PeerState::Up);
}

/// A gateway tells the restart token of an index that leads nowhere to whoever asks. An attacker
/// who knows the token of the client's index cannot answer in place of a gateway that is gone.
#[test]
fn who_knows_restart_tokens_answers_no_keepalive() {
    let mut pair = behind_nat(120);
    pair.run(seconds(7_200));
    let tokens = RestartKey::of(&secrets().1);
    let asked = Rc::new(RefCell::new(Vec::<Datagram>::new()));
    let see = Rc::clone(&asked);
    pair.filter = Box::new(move |datagram| {
        see.borrow_mut().push(datagram.clone());
        true
    });
    pair.run(seconds(120));
    let seen = asked.borrow_mut().split_off(0);
    let is_answer = |datagram: &&Datagram| datagram.bytes[0] == Kind::KeepaliveAnswer as u8;
    let true_answer = seen.iter().find(is_answer).unwrap().clone();
    // The gateway is gone from now on.
    let see = Rc::clone(&asked);
    pair.filter = Box::new(move |datagram| {
        if datagram.bytes[0] == Kind::Keepalive as u8 {
            see.borrow_mut().push(datagram.clone());
        }
        false
    });
    let mut forged = 0;
    for _ in 0..1_150 {
        pair.run(Duration::from_millis(100));
        for keepalive in asked.borrow_mut().split_off(0) {
            let index = u32::from_be_bytes(keepalive.bytes[1..5].try_into().unwrap());
            let token = hmac::Key::new(hmac::HMAC_SHA256, &tokens.token(SessionIndex(index)).0);
            let proof = hmac::sign(&token, &keepalive.bytes);
            let bytes = [&[Kind::KeepaliveAnswer as u8], &proof.as_ref()[..4]].concat();
            pair.arrive(Datagram { at: pair.now, bytes, ..true_answer.clone() });
            forged += 1;
        }
    }
    assert!(forged > 0);
    assert_ne!(pair.state(), PeerState::Up, "a forged answer hid that the gateway is gone");
    assert_eq!(pair.client.drops().of(DropReason::BadMac), forged);
}

#[test]
fn the_client_is_reached_while_it_learns() {
    for forgets in [30, 60, 120, 300, 900] {
        let mut pair = behind_nat(forgets);
        is_always_reached(&mut pair);
        assert_eq!(pair.state(), PeerState::Up, "{forgets} s");
    }
}

#[test]
fn no_nat_costs_nothing() {
    let mut pair = Pair::up();
    pair.run(seconds(10));
    let before = pair.bytes;
    for _ in 0..10 {
        pair.run(seconds(24 * 3_600));
    }
    assert_eq!(pair.bytes, before);
    assert_eq!((pair.state(), pair.epochs()), (PeerState::Resting, 1));
}

#[test]
fn who_rests_is_called_and_loses_nothing() {
    let mut pair = Pair::up();
    // The gateway gives a session up after a day, its client an hour later.
    // The notice, both messages of the handshake, its first use, and then the packet.
    for (hours, epochs, trips) in [(23, 2, 1), (25, 3, 5), (240, 4, 5)] {
        pair.run(seconds(hours * 3_600));
        let (before, since) = (pair.client_inner.len(), pair.now);
        for _ in 0..20 {
            pair.send_back(&packet(100, true));
            pair.run(Duration::from_millis(5));
        }
        pair.run(DELAY * 5);
        assert_eq!(pair.client_inner.len(), before + 20, "after {hours} hours");
        let took = pair.client_inner[before].0.saturating_since(since);
        assert!(took <= DELAY * trips, "{took:?} after {hours} hours");
        assert_eq!((pair.state(), pair.epochs()), (PeerState::Up, epochs));
    }
}

#[test]
fn who_rests_has_keys_within_a_round_trip_when_there_is_something_to_send() {
    let mut pair = Pair::up();
    for (hours, state) in [(25, PeerState::Up), (48, PeerState::Resting)] {
        pair.run(seconds(hours * 3_600));
        assert_eq!(pair.state(), state);
        let before = pair.gateway_inner.len();
        for _ in 0..20 {
            pair.send(&packet(100, false));
            pair.run(Duration::from_millis(5));
        }
        pair.run(DELAY);
        assert_eq!((pair.gateway_inner.len(), pair.state()), (before + 20, PeerState::Up));
        assert!(pair.gateway_inner[before].0.saturating_since(pair.now - DELAY * 6) <= DELAY * 3);
    }
}

#[test]
fn who_rests_is_woken_by_what_is_held_as_well() {
    let mut pair = Pair::up();
    pair.run(seconds(48 * 3_600));
    assert_eq!(pair.state(), PeerState::Resting);
    pair.send(&syn(false));
    pair.run(DELAY * 6);
    assert_eq!((pair.state(), pair.gateway_inner.len()), (PeerState::Up, 1));
}

#[test]
fn a_silent_client_is_asked_again_for_what_is_held() {
    let mut pair = Pair::up();
    pair.run(seconds(10));
    pair.filter = Box::new(|_| false);
    pair.send_back(&syn(true));
    // The gateway asks in vain, and stops; the client has nothing to say, and does not know.
    pair.run(seconds(300));
    let before = pair.sent;
    pair.run(seconds(300));
    assert_eq!((pair.sent, pair.state()), (before, PeerState::Up));
    pair.filter = Box::new(|_| true);
    pair.send_back(&syn(true));
    pair.run(DELAY * 4);
    assert_eq!(pair.client_inner.len(), 1);
}

#[test]
fn in_the_first_minute_only_a_way_is_asked_for_without_pause() {
    let mut pair = Pair::up();
    pair.run(seconds(10));
    pair.filter = Box::new(|_| false);
    let mut asked = Vec::new();
    for _ in 0..3 {
        let before = pair.sent;
        pair.send_back(&syn(true));
        pair.run(seconds(90));
        asked.push(pair.sent - before);
    }
    assert!(asked[0] > 2_000, "{asked:?}");
    assert!(asked[1..].iter().all(|asked| (20..120).contains(asked)), "{asked:?}");
}

#[test]
fn a_client_that_is_gone_is_called_ever_more_rarely() {
    let mut pair = Pair::up();
    pair.filter = Box::new(|_| false);
    pair.run(seconds(25 * 3_600));
    let before = pair.sent;
    for _ in 0..3_600 {
        pair.send_back(&packet(100, true));
        pair.run(seconds(1));
    }
    let client = pair.sent - before;
    assert!((7 + 3_600 / 128..=7 + 3_600 / 64).contains(&client), "{client} datagrams");
}

#[test]
fn a_client_that_said_goodbye_is_not_called() {
    let mut pair = Pair::up();
    pair.tell_client(Command::Close { peer: pair.gateway_key, code: CloseCode::Requested });
    pair.run(seconds(1));
    let before = pair.sent;
    pair.send_back(&packet(100, true));
    pair.run(seconds(1));
    assert_eq!(pair.sent, before);
}

#[test]
fn a_machine_that_slept_while_it_was_to_rest_asks_for_a_session() {
    let mut pair = Pair::up();
    pair.run(seconds(3_600));
    pair.now = pair.now + seconds(30 * 3_600);
    pair.run(seconds(1));
    assert_eq!((pair.state(), pair.epochs()), (PeerState::Up, 2));
}

#[test]
fn a_nat_that_maps_anew_costs_nothing_however_often() {
    let mut pair = behind_nat(120);
    let mut sent = 0;
    for round in 0..40 {
        for _ in 0..100 {
            pair.send(&packet(200, false));
            pair.send_back(&packet(200, true));
            sent += 1;
            pair.run(Duration::from_millis(20));
        }
        pair.run(seconds(1));
        let lost = (sent - pair.gateway_inner.len(), sent - pair.client_inner.len());
        // What was on the way to the old mapping when it went, and until its silence is noticed.
        assert!(lost.0 == 0 && lost.1 <= (round + 1) * 4, "round {round}: {lost:?}");
        pair.nat.as_mut().unwrap().forget();
    }
}

#[test]
fn the_first_ping_through_a_new_mapping_is_answered() {
    for _ in 0..4 {
        let mut pair = behind_nat(120);
        pair.run(seconds(60));
        pair.nat.as_mut().unwrap().forget();
        pair.send(&packet(84, false));
        pair.run(DELAY);
        pair.send_back(&packet(84, true));
        pair.run(DELAY);
        assert_eq!((pair.gateway_inner.len(), pair.client_inner.len()), (1, 1));
    }
}

/// A receiver behind a NAT gets a packet every `pause` for `time`. Returns the longest gap.
fn listen(pair: &mut Pair, pause: Duration, time: Duration) -> Duration {
    let (first, end) = (pair.client_inner.len(), pair.now + time);
    let mut last = pair.now;
    while pair.now < end {
        pair.send_back(&packet(100, true));
        pair.run(pause);
    }
    let mut longest = Duration::ZERO;
    for (at, _) in &pair.client_inner[first..] {
        longest = longest.max(at.saturating_since(last));
        last = *at;
    }
    longest.max(pair.now.saturating_since(last))
}

/// What stands in front of a listener.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    NewPort,
    SamePort,
    Firewall6,
}

/// A session through `what`, by one link or by two that carry together.
fn listener(what: Ahead, mode: Mode) -> Pair {
    let mut pair = Pair::new(None);
    let mut nat = Nat::new(seconds(120));
    nat.keeps_ports = !matches!(what, Ahead::NewPort);
    if let Ahead::Firewall6 = what {
        let at: SocketAddr = "[2001:db8::1]:4433".parse().unwrap();
        pair.gateway_at = vec![at];
        let link = Link {
            id: LinkId(1),
            addresses: vec!["2001:db8:5::5".parse().unwrap()],
            stands_by: false,
        };
        pair.tell_client(Command::SetLinks(vec![link]));
        pair.tell_client(Command::SetRemotes { peer: pair.gateway_key, remotes: vec![at] });
    }
    pair.nat = Some(nat);
    pair.admit_client();
    pair.tell_client(Command::SetMode(mode));
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(seconds(1));
    assert_eq!(pair.state(), PeerState::Up, "{what:?}");
    pair
}

/// However often a mapping is lost, and however soon again.
#[test]
fn a_listener_whose_mapping_is_lost_hears_again_within_five_seconds() {
    for what in [Ahead::NewPort, Ahead::SamePort, Ahead::Firewall6] {
        for mode in [Mode::Backup, Mode::Full] {
            for pause in [20, 100, 500, 1_000, 2_000, 5_000, 10_000].map(Duration::from_millis) {
                let mut pair = listener(what, mode);
                let heard = listen(&mut pair, pause, seconds(40));
                assert!(heard <= pause + DELAY, "{heard:?} before anything was lost");
                for (round, after) in [40, 3, 2, 1, 0, 5, 4, 30, 7, 6].into_iter().enumerate() {
                    pair.nat.as_mut().unwrap().forget();
                    let time = seconds(after).max(Duration::from_millis(300));
                    let silent = listen(&mut pair, pause, time);
                    // One packet of a slow stream is lost, and the next one arrives.
                    let most = (pause + seconds(5)).max(pause * 2) + DELAY;
                    assert!(silent <= most, "{silent:?}: {what:?}, {mode:?}, {pause:?}, {round}");
                }
                pair.run(seconds(5));
                let silent = listen(&mut pair, pause, seconds(40));
                assert!(silent <= pause + DELAY, "{silent:?} at last: {what:?}, {pause:?}");
            }
        }
    }
}

/// For ten minutes, at moments that nobody can foresee.
#[test]
fn a_listener_behind_a_nat_that_forgets_all_the_time_hears_again_each_time() {
    let mut rng = SeededRng::new(5);
    for pause in [100, 1_000, 10_000].map(Duration::from_millis) {
        let mut pair = listener(Ahead::NewPort, Mode::Backup);
        listen(&mut pair, pause, seconds(40));
        let mut last = (pair.now, pair.client_inner.len());
        let end = pair.now + seconds(600);
        let mut forgets_at = pair.now;
        while pair.now < end {
            if pair.now >= forgets_at {
                pair.nat.as_mut().unwrap().forget();
                let mut bytes = [0; 2];
                rng.fill(&mut bytes);
                let random = Duration::from_millis(u16::from_be_bytes(bytes).into());
                forgets_at = pair.now + pause * 2 + seconds(5) + random / 4;
            }
            pair.send_back(&packet(100, true));
            pair.run(pause);
            if pair.client_inner.len() > last.1 {
                last = (pair.now, pair.client_inner.len());
            }
            let silent = pair.now.saturating_since(last.0);
            let most = (pause + seconds(5)).max(pause * 2) + DELAY;
            assert!(silent <= most, "{silent:?}, {pause:?} apart");
        }
    }
}

#[test]
fn streams_that_end_cost_little_however_many_there_are() {
    let mut pair = Pair::up();
    let mut asked = 0;
    let mut streams = 0;
    for _ in 0..24 * 60 {
        let before = pair.bytes;
        listen(&mut pair, Duration::from_millis(100), seconds(4));
        pair.run(Duration::from_millis(500)); // what is owed for it
        streams += pair.bytes - before;
        let before = pair.bytes;
        pair.run(seconds(55));
        asked += pair.bytes - before;
    }
    assert!(asked > 0 && asked * 33 <= streams, "{asked} of {streams} bytes in a day");
}
