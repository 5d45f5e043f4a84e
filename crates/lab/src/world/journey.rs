//! The ground of virtual time: the production core under a client that moves, and the bare link
//! beside it. All laws of the world hold meanwhile; a breach ends the story.
//!
//! Goodput and times over emulated links are valid here, since nothing is late; what a processor
//! bounds is not: there is none. TCP is a model of the kernel's ([`super::connections`]).

mod acts;
mod call;
mod carry;
mod pour;

use std::collections::{BTreeMap, BTreeSet};

use rove_proto::flow::Hold;
use rove_proto::wire::Kind;

use super::agenda::Task;
use super::busy::Busy;
use super::host_id::{CLIENT_HOST, GATEWAY};
use super::inner::Body;
use super::laws::Breach;
use super::op::Way;
use super::road::{Bare, Road, Tunnelled};
use super::streams::Known as StreamsKnown;
use super::traffic::Passed;
use crate::arrivals::Arrivals;
use crate::emu::{LinkConfig, MS, Rng, SECOND};
use crate::ground::{
    Act, Beside, Call, Called, Calling, Clock, Connections, Cue, Datagrams, DatagramsRun, Download,
    Flow, FlowRun, Ground, Harm, Heard, Load, Moment, Overheard, Pings, Receiver, Reported,
    RoundTrips, Route, Session, SessionRun, Terrain, Transfer, Transport, Trouble, Work,
};
use acts::Client;

/// Bytes of an inner packet of the steady flow: payload, IPv4 and UDP header.
const FLOW_LEN: u16 = Flow::BYTES + 28;
/// Bytes of a ping.
const PING_LEN: u16 = 84;
/// Bytes of the IPv4 and UDP headers around a datagram.
const OUTER_HEADERS: usize = 28;
/// How long an answer to a ping may take.
const ECHO_NS: u64 = 2 * SECOND;
/// The label of the random numbers for busy machines.
const BUSY: u64 = 0x6275;
/// Time between two calls of who waits for an answer.
const CALL_NS: u64 = 10 * MS;

/// A client with a tunnel, and the link that it has without.
#[derive(Debug)]
pub struct Journey {
    tunnelled: Tunnelled,
    client: Client,
    bare: Bare,
    link: LinkConfig,
    seed: u64,
    /// The most bytes that both ends of the tunnel held in an outage, since it was asked for.
    held_bytes_max: Option<u64>,
    /// Lengths of datagrams that left the gateway, while they are noted.
    noted: Option<Vec<usize>>,
}

impl Journey {
    /// How long a session is kept without a word unless something else is said, in seconds.
    pub const DAY_S: u64 = 86_400;

    /// A session that carries, in networks like this, and holds open connections as well as it can.
    ///
    /// # Errors
    /// A breach of a law.
    pub fn new(seed: u64, terrain: &Terrain) -> Result<Self, Trouble> {
        Self::holding(seed, terrain, Hold::Full, Self::DAY_S)
    }

    /// The same where both ends hold open connections like this, and a session for so many seconds
    /// without a word.
    ///
    /// # Errors
    /// A breach of a law.
    pub fn holding(
        seed: u64,
        terrain: &Terrain,
        hold: Hold,
        timeout_s: u64,
    ) -> Result<Self, Trouble> {
        let link = terrain.link.clone();
        if terrain.beside.len() > Terrain::BESIDE_MAX {
            let what = format!("more than {} links beside the first", Terrain::BESIDE_MAX);
            return Err(Trouble::Lab(anyhow::Error::msg(what)));
        }
        let mut tunnelled = Tunnelled::new(seed, terrain, hold, timeout_s)?;
        let client = Client::settle(&mut tunnelled, terrain)?;
        let mut whole = link.clone();
        for pipe in [&mut whole.up, &mut whole.down] {
            pipe.delay_ns += terrain.beyond_ns;
        }
        let bare = Bare::new(seed, &whole);
        let (held_bytes_max, noted) = (None, None);
        Ok(Self { tunnelled, client, bare, link, seed, held_bytes_max, noted })
    }

    /// Keeps what passes the ends of the tunnel's TCP connections, for [`Self::captured`].
    pub fn capture(&mut self) {
        self.tunnelled.world.connections.capture();
    }

    /// What has passed the client's end, and the server's, each as a pcap file.
    pub fn captured(&self) -> Option<[Vec<u8>; 2]> {
        self.tunnelled.world.connections.captured()
    }

    /// From now on, other programs keep the machines of client and gateway busy, each with its own
    /// random numbers.
    pub fn keep_busy(&mut self, load: Load) {
        let rng = Rng::new(self.seed).fork(BUSY);
        let world = &mut self.tunnelled.world;
        for host in [GATEWAY, CLIENT_HOST] {
            world.hosts[host].set_busy(Busy::new(load, rng.fork(host.number())));
            world.rearm(host);
        }
    }

    /// From its next start on, clients know of these streams; of those to the gateway, unless it is
    /// said.
    pub fn know_streams(&mut self, known: StreamsKnown) {
        self.tunnelled.world.streams.set_known(known);
    }

    /// Lets time pass and looks on as long as there is something to be noticed.
    fn pass(&mut self, until_ns: u64) -> Result<(), Breach> {
        let road = &mut self.tunnelled;
        while self.client.is_watching()
            && let Some(next_ns) = road.next_ns().filter(|&next| next <= until_ns)
        {
            road.pass(next_ns)?;
            self.client.look(road);
        }
        road.pass(until_ns)
    }
}

impl Ground for Journey {
    fn clock(&self) -> Clock {
        Clock::Virtual
    }

    fn pause(&mut self, length_ns: u64) -> Result<(), Trouble> {
        Ok(self.pass(self.tunnelled.now_ns() + length_ns)?)
    }

    fn ping(&mut self, routes: &[Route], pings: Pings) -> Result<Vec<RoundTrips>, Trouble> {
        let mut all = Vec::new();
        for route in routes {
            all.push(match route {
                Route::Tunnelled => ping(&mut self.tunnelled, pings)?,
                Route::Open => ping(&mut self.bare, pings)?,
            });
        }
        Ok(all)
    }

    fn flows(&mut self, flows: &[Flow], script: &[Cue]) -> Result<Vec<FlowRun>, Trouble> {
        self.tunnelled.arrivals();
        self.tunnelled.eavesdrop();
        self.client.forget();
        let start_ns = self.tunnelled.now_ns();
        let mut running = Running::new(start_ns, flows);
        let end_ns = running.end_ns();
        let mut moments = Vec::new();
        let mut script = script.iter().take_while(|cue| start_ns + cue.at_ns <= end_ns).peekable();
        loop {
            let cue_ns = script.peek().map_or(u64::MAX, |cue| start_ns + cue.at_ns);
            let due_ns = running.next_ns().min(cue_ns);
            self.pass(due_ns.min(end_ns))?;
            running.take(&mut self.tunnelled);
            if let Some(cue) = script.next_if(|_| cue_ns == due_ns) {
                moments.push(self.client.act(&mut self.tunnelled, cue.act)?);
            } else if due_ns == u64::MAX {
                break;
            } else {
                running.send(&mut self.tunnelled, due_ns)?;
            }
        }
        self.pass(end_ns + Flow::PATIENCE_NS)?;
        running.take(&mut self.tunnelled);
        self.client.tell(&mut moments);
        let passed = self.tunnelled.overheard();
        note(&mut self.noted, &passed);
        Ok(running.end(&moments, &passed))
    }

    fn download(
        &mut self,
        download: Download,
        script: &[Cue],
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Transfer, Trouble> {
        self.fetch(download, script, listen)
    }

    fn connect(
        &mut self,
        kinds: &[Connections],
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<Vec<Vec<Transfer>>, Trouble> {
        self.carry(kinds, limit_ns, script)
    }

    fn call_and_pour(
        &mut self,
        call: Call,
        beside: &[Connections],
        poured: Option<Datagrams>,
        script: &[Cue],
    ) -> Result<Beside, Trouble> {
        self.talk(call, beside, poured, script)
    }

    fn pour(&mut self, datagrams: Datagrams) -> Result<DatagramsRun, Trouble> {
        self.pour(datagrams)
    }

    fn session(
        &mut self,
        session: Session,
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<SessionRun, Trouble> {
        self.hold_session(session, limit_ns, script)
    }

    fn held_bytes_max(&mut self) -> Result<Option<u64>, Trouble> {
        Ok(self.held_bytes_max.take())
    }

    fn harm(&mut self, harm: Harm) -> Result<(), Trouble> {
        match harm {
            Harm::DeadEnds => self.client.dead_ends = true,
            Harm::StaleName => self.client.named = false,
            Harm::Segments(mangled) => self.tunnelled.world.offload.mangle(mangled),
            Harm::BitErrors(share) => {
                let mut link = self.link.clone();
                for pipe in [&mut link.up, &mut link.down] {
                    pipe.bit_errors = crate::emu::BitErrors::Delivered(share);
                }
                self.tunnelled.set_link(&link);
            }
        }
        Ok(())
    }

    fn listen(&mut self, length_ns: u64) -> Result<Overheard, Trouble> {
        let sent = |road: &Tunnelled| road.world.bytes.values().sum::<u64>();
        self.tunnelled.eavesdrop();
        let before = sent(&self.tunnelled);
        self.pause(length_ns)?;
        let passed = self.tunnelled.overheard();
        note(&mut self.noted, &passed);
        let packets = passed.iter().filter(|one| one.is_at_client()).count() as u64;
        Ok(Overheard { packets, bytes: sent(&self.tunnelled) - before })
    }

    fn call_everybody(&mut self, calling: Calling) -> Result<Vec<Called>, Trouble> {
        let Calling { act, every_ns, length_ns, word_ns } = calling;
        let road = &mut self.tunnelled;
        road.arrivals();
        self.client.act(road, act)?;
        let start_ns = road.now_ns();
        let mut called = vec![Called::default(); road.world.clients.len()];
        let mut calls = BTreeMap::new();
        if let Some(after_ns) = word_ns {
            for client in 0..called.len() {
                let (way, body) = (Way::Up, Body::Data(PING_LEN));
                road.world.schedule(after_ns, Task::Send { client, way, body });
            }
        }
        for due_ns in (start_ns..start_ns + length_ns).step_by(every_ns as usize) {
            road.pass(due_ns)?;
            for (client, one) in called.iter_mut().enumerate() {
                one.lost += 1;
                let id = road.world.send_now(client, Way::Down, Body::Data(PING_LEN))?;
                calls.extend(id.map(|id| (id, client)));
            }
            take_calls(road, start_ns, &mut calls, &mut called);
        }
        road.pass(start_ns + length_ns + Flow::PATIENCE_NS)?;
        take_calls(road, start_ns, &mut calls, &mut called);
        Ok(called)
    }

    fn gateway_work(&mut self) -> Result<Work, Trouble> {
        let compressions = acts::compressions(&self.tunnelled);
        Ok(Work { packets: self.tunnelled.world.packets, cpu_ns: None, compressions })
    }

    fn begin_anew(&mut self, limit_ns: u64) -> Result<Option<u64>, Trouble> {
        let road = &mut self.tunnelled;
        road.arrivals();
        road.world.hosts[CLIENT_HOST].stop();
        road.world.power_on(CLIENT_HOST, false)?;
        Ok(reach(road, limit_ns)?)
    }

    fn transport(&mut self) -> Result<Option<Transport>, Trouble> {
        Ok(acts::transport(&self.tunnelled))
    }

    fn reported(&mut self, at: Receiver) -> Result<Vec<Reported>, Trouble> {
        Ok(acts::reported(&self.tunnelled, at))
    }

    fn note_lengths(&mut self) -> Result<(), Trouble> {
        self.tunnelled.eavesdrop();
        self.noted = Some(Vec::new());
        Ok(())
    }

    fn noted_lengths(&mut self) -> Result<Vec<usize>, Trouble> {
        let passed = self.tunnelled.overheard();
        note(&mut self.noted, &passed);
        Ok(self.noted.take().unwrap_or_default())
    }

    fn act(&mut self, act: Act) -> Result<Moment, Trouble> {
        self.client.act(&mut self.tunnelled, act)
    }
}

/// Notes the lengths of what left the gateway, if they are asked for.
fn note(noted: &mut Option<Vec<usize>>, passed: &[Passed]) {
    let is_noted =
        |one: &&Passed| one.leaves && one.way == Way::Down && one.kind == Some(Kind::Data);
    if let Some(noted) = noted {
        noted.extend(passed.iter().filter(is_noted).map(|one| one.len + OUTER_HEADERS));
    }
}

fn added_bytes(passed: &Passed) -> Option<f64> {
    let Passed { way, kind, len, leaves, .. } = *passed;
    let of_flow =
        way == Way::Down && !leaves && kind == Some(Kind::Data) && len > usize::from(FLOW_LEN);
    of_flow.then(|| (len - usize::from(FLOW_LEN)) as f64)
}

fn ping<R: Road>(road: &mut R, pings: Pings) -> Result<RoundTrips, Trouble> {
    let mut trips = Vec::new();
    road.arrivals();
    for _ in 0..pings.count {
        let sent_ns = road.now_ns();
        trips.push(ping_once(road, sent_ns + ECHO_NS)?.map(|back_ns| back_ns - sent_ns));
        road.pass((sent_ns + pings.interval_ns).max(road.now_ns()))?;
    }
    Ok(RoundTrips(trips))
}

/// Sends a packet and its answer; returns when that came, if it did before `end_ns`.
fn ping_once<R: Road>(road: &mut R, end_ns: u64) -> Result<Option<u64>, Trouble> {
    let mut awaited = road.send(Way::Up, PING_LEN)?;
    let mut back = false;
    while let Some(next_ns) = road.next_ns().filter(|&next| next <= end_ns) {
        road.pass(next_ns)?;
        let Some(arrival) = road.arrivals().into_iter().find(|a| a.id == awaited) else {
            continue;
        };
        if back {
            return Ok(Some(arrival.at_ns));
        }
        awaited = road.send(Way::Down, PING_LEN)?;
        back = true;
    }
    Ok(None)
}

/// Calls the server every so often until it answers: how long that took, if it was not too long.
fn reach(road: &mut Tunnelled, limit_ns: u64) -> Result<Option<u64>, Breach> {
    let start_ns = road.now_ns();
    let (mut calls, mut answers) = (BTreeSet::new(), BTreeSet::new());
    while road.now_ns() < start_ns + limit_ns {
        calls.insert(road.send(Way::Up, PING_LEN)?);
        let next_call_ns = road.now_ns() + CALL_NS;
        while let Some(next_ns) = road.next_ns().filter(|&next| next < next_call_ns) {
            road.pass(next_ns)?;
            for arrival in road.arrivals() {
                if answers.contains(&arrival.id) {
                    return Ok(Some(arrival.at_ns - start_ns));
                }
                if calls.remove(&arrival.id) {
                    answers.insert(road.send(Way::Down, PING_LEN)?);
                }
            }
        }
        road.pass(next_call_ns)?;
    }
    Ok(None)
}

/// Notes which calls have come.
fn take_calls(
    road: &mut Tunnelled,
    start_ns: u64,
    calls: &mut BTreeMap<u32, usize>,
    called: &mut [Called],
) {
    for arrival in road.arrivals() {
        if let Some(client) = calls.remove(&arrival.id) {
            called[client].lost -= 1;
            called[client].reached_ns.get_or_insert(arrival.at_ns - start_ns);
        }
    }
}

/// Flows under way.
#[derive(Debug)]
struct Running {
    flows: Vec<UnderWay>,
    /// Which flow each packet belongs to that has not come.
    sent: BTreeMap<u32, usize>,
    start_ns: u64,
}

/// One of them, and when those of its packets came that have.
#[derive(Debug)]
struct UnderWay {
    flow: Flow,
    sent: u64,
    arrived: u64,
    first_ns: Option<u64>,
    arrivals: Arrivals,
}

impl Running {
    fn new(start_ns: u64, flows: &[Flow]) -> Self {
        let begun = |flow: &Flow| UnderWay {
            flow: *flow,
            sent: 0,
            arrived: 0,
            first_ns: None,
            arrivals: Arrivals::default(),
        };
        Self { flows: flows.iter().map(begun).collect(), sent: BTreeMap::new(), start_ns }
    }

    /// When the longest should have ended.
    fn end_ns(&self) -> u64 {
        let lengths = self.flows.iter().map(|one| one.flow.length_ns());
        self.start_ns + lengths.max().unwrap_or(0)
    }

    /// When the next packet is due; the maximum after the last.
    fn next_ns(&self) -> u64 {
        self.flows.iter().map(|one| one.due_ns(self.start_ns)).min().unwrap_or(u64::MAX)
    }

    fn send(&mut self, road: &mut Tunnelled, due_ns: u64) -> Result<(), Breach> {
        let start_ns = self.start_ns;
        for (number, one) in self.flows.iter_mut().enumerate() {
            if one.due_ns(start_ns) == due_ns {
                one.sent += 1;
                let way = match one.flow.to {
                    Receiver::Client => Way::Down,
                    Receiver::Server => Way::Up,
                };
                self.sent.insert(road.send(way, FLOW_LEN)?, number);
            }
        }
        Ok(())
    }

    fn take(&mut self, road: &mut Tunnelled) {
        for arrival in road.arrivals() {
            if let Some(number) = self.sent.remove(&arrival.id) {
                let one = &mut self.flows[number];
                one.arrived += 1;
                one.first_ns.get_or_insert(arrival.at_ns);
                one.arrivals.note(arrival.at_ns);
            }
        }
    }

    fn end(self, moments: &[Moment], passed: &[Passed]) -> Vec<FlowRun> {
        let start_ns = self.start_ns;
        let ended = |one: UnderWay| {
            let UnderWay { flow, arrived, first_ns, mut arrivals, .. } = one;
            let end_ns = start_ns + flow.length_ns();
            let span = first_ns.map(|first_ns| (first_ns, arrivals.latest_ns()));
            let run = FlowRun::new(start_ns, end_ns, span, arrivals.take_gaps());
            let lost = u64::from(flow.count) - arrived;
            let mut run = FlowRun { lost, moments: moments.to_vec(), ..run };
            let at_client = || passed.iter().filter(|one| one.is_at_client());
            run.see(|_| at_client().map(|one| (one.at_ns, one.way == Way::Down)).collect());
            run.added_bytes = passed.iter().filter_map(added_bytes).collect();
            run
        };
        self.flows.into_iter().map(ended).collect()
    }
}

impl UnderWay {
    fn due_ns(&self, start_ns: u64) -> u64 {
        if self.sent == u64::from(self.flow.count) {
            return u64::MAX;
        }
        start_ns + self.flow.silence_ns + self.sent * self.flow.interval_ns
    }
}

impl From<Breach> for Trouble {
    fn from(breach: Breach) -> Self {
        Self::UnderTest(format!("a law was broken: {breach}"))
    }
}

#[cfg(test)]
#[path = "journey_tests.rs"]
mod tests;
