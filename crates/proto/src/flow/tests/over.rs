//! That a connection is sent on from here is over after a few round trips, whatever its sender says
//! meanwhile and whatever is lost.

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::recovery::packet::{LostPacket, SpaceId};
use crate::wire::frame::Framing;
use crate::wire::tcp::Rewrite;

/// So many segments the local side lets be on their way, whatever is lost.
const WINDOW: u32 = 60;
/// One of so many segments is lost that leave for the first time.
const LOST: u32 = 29;

/// What the remote side has, and beyond what it misses the newest of it.
type Word = (Seq, Option<(Seq, Seq)>);

/// A local side that has always something to say, a remote one with selective acknowledgements,
/// and what is on its way to either.
struct Bulk {
    scene: Scene,
    /// Up to where the local side knows that its bytes arrived, and has room.
    heard: (Seq, Seq),
    /// How often it heard the same again.
    again: u32,
    /// What is on its way to the remote side, and what that said: each with when it is there.
    there: VecDeque<(Instant, Seq, u32)>,
    back: VecDeque<(Instant, Word)>,
    /// What the remote side has beyond what it misses.
    beyond: BTreeSet<u32>,
    /// What waits to leave, a segment in a millisecond.
    waits: VecDeque<(Seq, u32)>,
    /// How many have left, and up to where.
    left: u32,
    left_to: Seq,
}

impl Bulk {
    fn new() -> Self {
        let scene = Scene::new(Hold::Full);
        let heard = (scene.local.0, scene.local.0.plus(ROOM.into()));
        Self {
            scene,
            heard,
            again: 0,
            there: VecDeque::new(),
            back: VecDeque::new(),
            beyond: BTreeSet::new(),
            waits: VecDeque::new(),
            left: 0,
            left_to: LOCAL_START,
        }
    }

    /// A millisecond passes. Of what leaves one of `lost` segments is lost, if any is.
    fn pass(&mut self, lost: Option<u32>) {
        let edge = self.heard.1.min(self.heard.0.plus(WINDOW * MSS));
        while !edge.is_before(self.scene.local.0.plus(MSS)) {
            let seq = self.scene.local.0;
            if self.scene.send(1) {
                self.waits.push_back((seq, MSS));
            }
        }
        for said in self.scene.said() {
            match said.output {
                Output::ToLocal => self.hear(said.ack, said.window),
                Output::ToRemote if said.payload.is_empty() => {}
                Output::ToRemote => self.waits.push_back((said.seq, said.payload.len() as u32)),
            }
        }
        let now = self.scene.now;
        if let Some((seq, len)) = self.waits.pop_front() {
            let end = seq.plus(len);
            self.left += u32::from(self.left_to.is_before(end));
            let is_lost = lost.is_some_and(|lost| self.left.is_multiple_of(lost));
            if !(is_lost && self.left_to.is_before(end)) {
                self.there.push_back((now + TRIP / 2, seq, len));
            }
            self.left_to = self.left_to.max(end);
        }
        while let Some((at, seq, len)) = self.there.pop_front_if(|(at, ..)| *at <= now) {
            self.arrive(at, seq, len);
        }
        while let Some((_, (ack, sack))) = self.back.pop_front_if(|(at, ..)| *at <= now) {
            self.answer(ack, sack);
        }
        self.scene.wait(Duration::from_millis(1));
    }

    fn arrive(&mut self, at: Instant, seq: Seq, len: u32) {
        let mut acked = self.back.back().map_or(self.scene.remote.1, |&(_, (ack, _))| ack);
        if !seq.is_before(acked) {
            self.beyond.insert(seq.0);
        }
        while self.beyond.remove(&acked.0) {
            acked = acked.plus(len);
        }
        let newest = (seq, seq.plus(len));
        let is_beyond = acked.is_before(seq);
        self.back.push_back((at + TRIP / 2, (acked, is_beyond.then_some(newest))));
    }

    /// The remote side's word is here.
    fn answer(&mut self, ack: Seq, sack: Option<(Seq, Seq)>) {
        self.scene.remote.1 = ack;
        let told = match sack {
            Some((from, to)) => match self.scene.sack(from, to) {
                Verdict::Pass => Some((ack, ROOM.into())),
                Verdict::Keep => None,
                Verdict::Change(change) => {
                    let Rewrite { ack, window, .. } = change.rewrite;
                    ack.zip(window.map(|window| u32::from(window) << self.scene.scale))
                }
            },
            None => self.scene.acknowledge(ack).map(|told| (told.ack, told.window)),
        };
        if let Some((ack, window)) = told {
            self.hear(ack, window);
        }
    }

    /// The local side hears this, and repeats what it hears is missing.
    fn hear(&mut self, ack: Seq, window: u32) {
        let is_new = self.heard.0.is_before(ack);
        self.again = if is_new { 0 } else { self.again + 1 };
        self.heard = (self.heard.0.max(ack), self.heard.1.max(ack.plus(window)));
        let is_missing = self.again == 3 && ack.is_before(self.scene.local.0);
        if is_missing && self.scene.out(Flags::ACK, ack, &bytes(ack, MSS)) {
            self.waits.push_back((ack, MSS));
        }
    }

    fn pass_all(&mut self, time: Duration, lost: Option<u32>) {
        let end = self.scene.now + time;
        while self.scene.now < end {
            self.pass(lost);
        }
    }

    fn state(&self) -> report::FlowState {
        let mut reports = Vec::new();
        self.scene.flows.report(self.scene.now, 0, 10, &mut reports);
        reports[0].state
    }
}

/// There is no way for a short while, and a sender that goes on as before: it has the connection
/// for itself again although something is lost in each round trip.
#[test]
fn who_goes_on_after_a_silence_is_its_own_sender_again_whatever_is_lost() {
    let mut bulk = Bulk::new();
    bulk.pass_all(TRIP * 10, None);
    bulk.scene.suspend();
    bulk.there.clear();
    bulk.waits.clear();
    bulk.pass_all(Duration::from_millis(300), None);
    bulk.scene.resume();
    bulk.left_to = bulk.scene.remote.1;
    assert_eq!(bulk.state(), report::FlowState::Resuming);
    bulk.pass_all(TRIP * 20, Some(LOST));
    let mut resuming = 0;
    for _ in 0..20 {
        bulk.pass_all(TRIP, Some(LOST));
        resuming += u32::from(bulk.state() != report::FlowState::Normal);
    }
    assert_eq!(resuming, 0, "round trips of twenty");
}

/// What has left since there is a way is the tunnel's to repair, and what left before is not.
#[test]
fn only_what_left_before_there_was_a_way_is_sent_from_here() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(10);
    let left_at = scene.now;
    let seq = scene.local.0.minus(MSS);
    scene.suspend();
    scene.said();
    scene.wait(Duration::from_secs(1));
    scene.resume();
    let packet = scene.packet(Direction::Out, Flags::ACK, seq, &bytes(seq, MSS));
    let packet = InnerPacket::whole(&packet).unwrap();
    let flow = scene.flows.record_of(scene.now, &packet, true).flow;
    assert!(scene.flows.sends_again(left_at, flow, &packet));
    assert!(scene.flows.sends_again(scene.now, flow, &packet));
    assert!(!scene.flows.sends_again(scene.now + Duration::from_millis(1), flow, &packet));
}

#[test]
fn a_lost_packet_gets_its_payload_from_its_connection_as_long_as_that_has_not_arrived() {
    let mut scene = Scene::new(Hold::Full);
    scene.send(10);
    let seq = scene.local.0.minus(MSS);
    let packet = scene.packet(Direction::Out, Flags::ACK, seq, &bytes(seq, MSS));
    let (mut frame, kept) = (Vec::new(), MSS as usize);
    Framing::Plain.emit(&mut frame);
    frame.extend_from_slice(&packet);
    let inner = InnerPacket::whole(&packet).unwrap();
    let flow = scene.flows.record_of(scene.now, &inner, true).flow;
    let mut lost = LostPacket {
        space: SpaceId::default(),
        number: 0,
        at: scene.now,
        first_at: scene.now,
        attempts: 0,
        flow,
        kept: kept as u16,
        frame: frame[..frame.len() - kept].to_vec(),
    };
    let mut again = lost.clone();
    assert!(scene.flows.needs(&mut again, true), "it is not realtime");
    assert_eq!((again.frame, again.kept), (frame, 0));
    scene.acknowledge(scene.local.0);
    assert!(!scene.flows.needs(&mut lost, false));
}
