//! An open connection through both ends of a tunnel whose way is cut, in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::pair::{DELAY, GATEWAY, Pair, links};
use rove_proto::error::CloseCode;
use rove_proto::multipath::Mode;
use rove_proto::node::{Command, Event, PeerState};
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::inner::InnerPacket;
use rove_proto::wire::tcp::{Ends, Flags, Made, Segment, Seq};

const CLIENT: ([u8; 4], u16) = ([10, 9, 0, 2], 40_000);
const SERVER: ([u8; 4], u16) = ([198, 51, 100, 7], 443);
const START: Seq = Seq(1_000);
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// What the return of a silent path may cost beside a round trip, while connections wait for it.
const FOUND_WITHIN: Duration = Duration::from_millis(20);
const SEGMENT: [u8; 1_000] = [7; 1_000];

/// Who sends; the other one receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sender {
    Client,
    Server,
}

/// A connection through a tunnel that carries. Its ends are told by hand.
struct Scene {
    pair: Pair,
    sender: Sender,
}

impl Scene {
    fn new(sender: Sender) -> Self {
        let mut scene = Self { pair: Pair::up(), sender };
        scene.say(true, Flags::SYN, START, Seq(0), &[]);
        scene.run(DELAY);
        scene.say(false, Flags::SYN.and(Flags::ACK), START, START.plus(1), &[]);
        scene.run(DELAY);
        scene.say(true, Flags::ACK, START.plus(1), START.plus(1), &[]);
        scene.run(ROUND_TRIP);
        scene
    }

    /// One end says something: the sender or the receiver.
    fn say(&mut self, by_sender: bool, flags: Flags, seq: Seq, ack: Seq, payload: &[u8]) {
        let here = |(address, port): ([u8; 4], u16)| (address.into(), port);
        let by_client = by_sender == (self.sender == Sender::Client);
        let (source, destination) = if by_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let ends = Ends { source: here(source), destination: here(destination) };
        let mut packet = Vec::new();
        let made = Made { ends, seq, ack, flags, window: 60_000, timestamps: None };
        made.emit((payload, &[]), &mut packet);
        if by_client {
            self.pair.send(&packet);
        } else {
            self.pair.send_back(&packet);
        }
    }

    /// Lets time pass, and has everything written down at once.
    fn run(&mut self, time: Duration) {
        let end = self.pair.now + time;
        while self.pair.now < end {
            self.pair.run(Duration::from_millis(1).min(end.saturating_since(self.pair.now)));
            let owing = |events: &mut Vec<Event>| {
                let mut recorded = Vec::new();
                for event in events.drain(..) {
                    if let Event::Owing { peer, tuple } = event {
                        recorded.push(Command::Recorded { peer, tuple });
                    }
                }
                recorded
            };
            for command in owing(&mut self.pair.client_events) {
                self.pair.tell_client(command);
            }
            for command in owing(&mut self.pair.gateway_events) {
                self.pair.tell_gateway(command);
            }
        }
    }

    /// Nothing gets through from now on, and nobody is told.
    fn cut(&mut self) {
        self.pair.filter = Box::new(|_| false);
    }

    fn mend(&mut self) {
        self.pair.filter = Box::new(|_| true);
    }

    /// Segments that came out at the sender's end, or at the receiver's, and when.
    fn heard(&self, by_sender: bool) -> Vec<(Instant, Segment)> {
        let by_client = by_sender == (self.sender == Sender::Client);
        let packets = if by_client { &self.pair.client_inner } else { &self.pair.gateway_inner };
        let read = |(at, packet): &(Instant, Vec<u8>)| {
            Some((*at, Segment::parse(&InnerPacket::whole(packet).ok()?)?))
        };
        packets.iter().filter_map(read).collect()
    }
}

#[test]
fn a_silent_way_that_is_back_is_found_within_a_round_trip_and_20_ms() {
    for sender in [Sender::Client, Sender::Server] {
        for outage in [400, 1_000, 1_437, 5_003, 15_011, 29_990, 45_001, 58_000] {
            let mut scene = Scene::new(sender);
            let first = START.plus(1);
            scene.cut();
            scene.say(true, Flags::ACK, first, START.plus(1), &SEGMENT);
            scene.run(Duration::from_millis(outage));
            let told = scene.heard(true);
            scene.mend();
            let back = scene.pair.now;
            scene.run(Duration::from_secs(3));
            let arrived = scene.heard(false).into_iter().find(|(_, segment)| segment.len == 1_000);
            let after = arrived.unwrap().0.saturating_since(back);
            let due = ROUND_TRIP + FOUND_WITHIN;
            assert!(after <= due, "{sender:?}, {outage} ms: {after:?}, answered {told:?}");
        }
    }
}

/// Where links carry together, what is sent again has a place behind what was lost.
#[test]
fn what_was_lost_with_the_last_way_is_not_waited_for() {
    for sender in [Sender::Client, Sender::Server] {
        for outage in [400, 1_000, 1_437, 5_003, 15_011] {
            let mut scene = Scene::new(sender);
            scene.pair.tell_client(Command::SetMode(Mode::Full));
            scene.run(ROUND_TRIP * 2);
            scene.cut();
            for nth in 0..3 {
                scene.say(true, Flags::ACK, START.plus(1 + nth * 1_000), START.plus(1), &SEGMENT);
            }
            scene.run(Duration::from_millis(outage));
            scene.mend();
            let back = scene.pair.now;
            scene.run(ROUND_TRIP * 4); // nobody answers: later it leaves again
            let heard = scene.heard(false).into_iter().filter(|(_, segment)| segment.len > 0);
            let (at, numbers): (Vec<_>, Vec<_>) = heard.map(|(at, it)| (at, it.seq)).unzip();
            assert_eq!(numbers, [1, 1_001, 2_001].map(|nth| START.plus(nth)));
            // Its sender alone asks whether the way is back: the answer is waited for.
            let due = ROUND_TRIP + FOUND_WITHIN + DELAY;
            let after = at[0].saturating_since(back);
            assert!(after <= due, "{sender:?}, {outage} ms: {after:?}");
        }
    }
}

/// A download that is cut for so long, and when the client sent something by another socket since.
fn cut_download(outage: Duration) -> (Scene, Vec<Duration>) {
    let mut scene = Scene::new(Sender::Server);
    let cut_at = scene.pair.now;
    let sent = Rc::new(RefCell::new(Vec::new()));
    let first = Cell::new(None);
    let seen = Rc::clone(&sent);
    scene.pair.filter = Box::new(move |datagram| {
        if datagram.to.to_string() == GATEWAY {
            let usual = first.get().unwrap_or(datagram.from);
            first.set(Some(usual));
            let since = datagram.at.saturating_since(cut_at + DELAY);
            seen.borrow_mut().extend((datagram.from != usual).then_some(since));
        }
        false
    });
    scene.say(true, Flags::ACK, START.plus(1), START.plus(1), &SEGMENT);
    scene.say(false, Flags::ACK, START.plus(1), START.plus(1), &SEGMENT);
    scene.run(outage);
    let sent = sent.take();
    (scene, sent)
}

/// Else what is in flight when the answer to a handshake comes is on its way to a socket that is
/// closed by then.
#[test]
fn a_path_that_is_back_is_not_left_for_one_that_was_asked_for_meanwhile() {
    let (_, asked) = cut_download(Duration::from_secs(30));
    assert!(asked.len() > 8, "{asked:?}");
    // Just before it is asked for, so that the question gets through, and at other times.
    let before =
        asked.iter().flat_map(|at| [2, 6, 10, 14].map(|ms| *at - Duration::from_millis(ms)));
    let others = (5_000..9_000).step_by(131).map(Duration::from_millis);
    for outage in before.chain(others) {
        let (mut scene, _) = cut_download(outage);
        let path = |scene: &Scene| {
            scene.pair.gateway.status(scene.pair.client_key).map(|status| status.paths[0].remote())
        };
        let before = path(&scene);
        scene.mend();
        scene.run(Duration::from_secs(3));
        assert_eq!(path(&scene), before, "after {outage:?}");
    }
}

#[test]
fn what_was_promised_to_a_client_that_left_is_broken_off_when_it_does_not_come_back() {
    let mut scene = Scene::new(Sender::Server);
    scene.cut();
    scene.say(true, Flags::ACK, START.plus(1), START.plus(1), &SEGMENT);
    let lost = scene.pair.now;
    scene.run(Duration::from_secs(5));
    let (_, told) = *scene.heard(true).last().unwrap();
    assert_eq!(told.ack, START.plus(1_001), "it was promised");
    scene.mend();
    let peer = scene.pair.gateway_key;
    scene.pair.tell_client(Command::Close { peer, code: CloseCode::Requested });
    scene.run(ROUND_TRIP);
    assert_ne!(scene.pair.gateway.status(scene.pair.client_key).unwrap().state, PeerState::Up);
    let is_reset = |scene: &Scene| {
        let resets = scene.heard(true).into_iter();
        resets.filter(|(_, segment)| segment.flags.has(Flags::RST)).map(|(at, _)| at).next()
    };
    assert_eq!(is_reset(&scene), None);
    scene.pair.run(Duration::from_secs(90_000));
    let after = is_reset(&scene).unwrap().saturating_since(lost);
    let kept = Duration::from_secs(86_400);
    assert!(kept <= after && after <= kept + Duration::from_secs(5), "{after:?}");
}

/// The payload of a segment that is on its way is kept with its connection, the rest by its path.
#[test]
fn what_a_dying_link_took_with_it_of_a_connection_leaves_again_by_the_other() {
    let mut scene = Scene::new(Sender::Client);
    let (dies, stays) = ([203, 0, 113, 5], [192, 0, 2, 130]);
    scene.pair.tell_client(links(&[dies, stays]));
    scene.run(Duration::from_secs(1));
    for nth in 0..5 {
        scene.say(true, Flags::ACK, START.plus(1 + nth * 1_000), START.plus(1), &SEGMENT);
    }
    scene.pair.cut(dies);
    scene.pair.tell_client(links(&[stays]));
    scene.run(ROUND_TRIP * 2);
    let heard = scene.heard(false);
    let segments: Vec<_> = heard.iter().filter(|(_, segment)| segment.len > 0).collect();
    let numbers: Vec<_> = segments.iter().map(|(_, segment)| segment.seq).collect();
    assert_eq!(numbers, [1, 1_001, 2_001, 3_001, 4_001].map(|nth| START.plus(nth)));
}

/// What was acknowledged at the entry is broken off by a crash: with one path, nothing is.
#[test]
fn who_sends_much_is_assisted_where_several_paths_carry() {
    for (addresses, is_assisted) in
        [(&[[203, 0, 113, 5]][..], false), (&[[203, 0, 113, 5], [192, 0, 2, 130]], true)]
    {
        for sender in [Sender::Client, Sender::Server] {
            let mut scene = Scene::new(sender);
            scene.pair.tell_client(Command::SetMode(Mode::Full));
            scene.pair.tell_client(links(addresses));
            scene.run(Duration::from_millis(500));
            for number in 0..12 {
                let seq = START.plus(1 + 1_000 * number);
                scene.say(true, Flags::ACK, seq, START.plus(1), &SEGMENT);
            }
            scene.run(Duration::from_millis(5));
            let told = scene.heard(true).iter().any(|(_, told)| told.ack != START.plus(1));
            assert_eq!(told, is_assisted, "{sender:?}, by {} paths", addresses.len());
        }
    }
}
