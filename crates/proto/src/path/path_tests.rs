use std::collections::VecDeque;
use std::net::SocketAddr;

use super::*;
use crate::blocks::Blocks;
use crate::id::{PathSerial, SocketId};
use crate::recovery::packet::Load;
use crate::recovery::sent_packets::SentPackets;
use crate::wire::frame::FEEDBACK_RUNS_MAX;

/// UDP payload of each datagram.
const SIZE: u64 = 1_400;
/// Each way.
const DELAY: Duration = Duration::from_millis(10);
const TOLD_EVERY: Duration = Duration::from_millis(10);

/// What arrived of one lane.
#[derive(Default)]
struct Lane {
    flight: SentPackets,
    sent: u64,
    arrived: u64,
    arrived_at: Instant,
}

/// A path over a link with a rate, and the lanes that lead by it, one after the other.
struct Scene {
    path: Path,
    blocks: Blocks,
    lanes: Vec<Lane>,
    /// Bytes per second.
    rate: f64,
    free_at: Instant,
    /// When each will be there, and of which lane it is.
    flying: VecDeque<(Instant, usize)>,
    now: Instant,
    tells_at: Instant,
}

impl Scene {
    fn new(rate: f64) -> Self {
        let remote = SocketAddr::from(([192, 0, 2, 1], 4_433));
        let route = Route { socket: SocketId(0), local: None, remote };
        let mut path = Path::new(PathId(1), route, None, Instant::ZERO, Trust::Proven);
        path.set_shared(Instant::ZERO, true);
        let (blocks, lanes) = (Blocks::default(), vec![Lane::default()]);
        let (free_at, now) = (Instant::ZERO, Instant::ZERO);
        Self { path, blocks, lanes, rate, free_at, flying: VecDeque::new(), now, tells_at: now }
    }

    fn in_flight(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.flight.in_flight()).sum()
    }

    /// As much leaves as may, until then.
    fn run(&mut self, until: Duration) {
        while self.now < Instant::ZERO + until {
            self.now = self.now + Duration::from_micros(200);
            while let Some(&(at, lane)) = self.flying.front().filter(|(at, _)| *at <= self.now) {
                self.flying.pop_front();
                (self.lanes[lane].arrived, self.lanes[lane].arrived_at) =
                    (self.lanes[lane].arrived + 1, at);
            }
            if self.tells_at <= self.now {
                self.tells_at = self.now + TOLD_EVERY;
                (0..self.lanes.len()).for_each(|lane| self.tell(lane));
            }
            self.send();
        }
    }

    fn send(&mut self) {
        let controller = |path: &Path| path.congestion.as_deref().map(|c| c.next_at());
        while controller(&self.path).is_some_and(|at| at <= self.now)
            && self.path.congestion.as_ref().is_some_and(|c| c.allows(self.in_flight()))
        {
            let newest = self.lanes.len() - 1;
            let lane = &mut self.lanes[newest];
            let datagram = (lane.sent, SIZE as usize);
            lane.flight.sent(self.now, &mut self.blocks, datagram, Load::Eliciting, [&[]; 3]);
            lane.sent += 1;
            self.path.sent(self.now, SIZE as usize);
            let time = Duration::from_secs_f64(SIZE as f64 / self.rate);
            self.free_at = self.free_at.max(self.now) + time;
            self.flying.push_back((self.free_at + DELAY, newest));
        }
    }

    /// The peer tells what arrived of a lane, which is there at once.
    fn tell(&mut self, number: usize) {
        let all = self.in_flight();
        let lane = &mut self.lanes[number];
        let Some(largest) = lane.arrived.checked_sub(1) else { return };
        let mut runs = [(0, 0); FEEDBACK_RUNS_MAX];
        runs[0] = (lane.arrived as u32, 0);
        let feedback = Feedback {
            serial: PathSerial(number as u32),
            largest,
            delay_us: 0,
            arrived_us: lane.arrived_at.wrapping_micros(),
            received: lane.arrived,
            bytes: lane.arrived * SIZE,
            runs,
        };
        let before = lane.flight.in_flight();
        let rtt = &mut self.path.rtt;
        let news = lane.flight.acknowledged(self.now, &mut self.blocks, &feedback, rtt, None);
        if let Some(news) = news {
            let left = all - before + lane.flight.in_flight();
            let news = Acknowledged { in_flight: left, ..news };
            let conditions = Conditions::default();
            let _ = self.path.delivered(self.now, &feedback, &news, conditions);
        }
    }

    /// How long what leaves now waits.
    fn queue(&self) -> Duration {
        self.free_at.saturating_since(self.now)
    }
}

#[test]
fn new_keys_are_no_new_path() {
    let mut scene = Scene::new(2.5e6);
    scene.run(Duration::from_secs(10));
    let usual = scene.queue();
    assert!(usual < Duration::from_millis(10), "{usual:?}");
    scene.lanes.push(Lane::default());
    scene.run(Duration::from_secs(11));
    scene.rate *= 0.8; // too little to be seen before a round is over
    scene.run(Duration::from_secs(14));
    let queue = scene.queue();
    println!("{usual:?} before, {queue:?} under new keys on a slower link");
    assert!(queue < Duration::from_millis(10), "{queue:?}");
    let told = scene.path.rates.0.at(scene.now);
    assert!(told.is_some_and(|rate| (1.9e6..2.05e6).contains(&rate)), "{told:?}");
}
