//! The backend of real hosts: the testbed's programs, and the deployed tunnel.
//!
//! This module turns acts and measurements into commands, captures and reports, and decides which
//! failure is the lab's. Everything is in real time: an act that is late is late.

mod call;
mod connections;
mod everybody;
mod offload;
mod pour;
mod transfer;

use super::deploy::{Deployment, How};
use super::testbed::{Move, Testbed};
use crate::emu::{BitErrors, Carrier, End, LinkConfig, MS, Protocol};
use crate::ground::{
    Act, Beside, Call, Called, Calling, Clock, Connections, Cue, Datagrams, DatagramsRun, Download,
    FIRST_LINK, Flow, FlowRun, Ground, Harm, Heard, Moment, Overheard, Pings, Receiver, Reported,
    RoundTrips, Route, Session, SessionRun, Terrain, Transfer, Transport, Trouble, Work,
};
use crate::netns::{Capture, Captured, Direction, Process, monotonic_ns};
use crate::programs::{FlowRequest, Report, report};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// How long after its regular end the report on a flow is awaited.
const REPORT: Duration = Duration::from_secs(10);
/// IPv4 and UDP header of the flow inside the tunnel.
const INNER_HEADERS: usize = 28;
/// How often the client is asked whether it knows that a link does not carry.
const ASKING_NS: u64 = 20 * MS;

/// Hosts with something deployed on them.
#[derive(Debug)]
pub struct Hosts {
    testbed: Testbed,
    deployment: Deployment,
    link: LinkConfig,
    beyond_ns: u64,
    /// The content of downloads follows from it.
    seed: u64,
    /// Whether every network that the client moves to drops all packets.
    dead_ends: bool,
    /// The most bytes that the tunnel ends kept since the last question.
    held_bytes_max: Option<u64>,
    /// Lengths of datagrams that left the gateway, while they are noted.
    noted: Option<Vec<usize>>,
}

impl Hosts {
    /// A testbed in networks like `terrain`, and what was deployed on it.
    pub fn new(testbed: Testbed, deployment: Deployment, terrain: &Terrain, seed: u64) -> Self {
        let (link, beyond_ns) = (terrain.link.clone(), terrain.beyond_ns);
        let (dead_ends, held_bytes_max, noted) = (false, None, None);
        Self { testbed, deployment, link, beyond_ns, seed, dead_ends, held_bytes_max, noted }
    }

    /// The testbed.
    pub const fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Fails if a part of the deployed tunnel has ended.
    ///
    /// # Errors
    /// With its last output.
    pub fn check(&mut self) -> Result<(), Trouble> {
        self.deployment.check().map_err(|error| Trouble::UnderTest(error.to_string()))
    }

    fn perform(&mut self, act: Act) -> Result<Moment, Trouble> {
        let began_ns = monotonic_ns();
        let mut moment = Moment::new(act, began_ns, began_ns);
        moment.address = self.testbed.address(0);
        match act {
            Act::Relocate => {
                let carrier = if self.dead_ends { Carrier::BlackHole } else { Carrier::Up };
                self.testbed.set_next_network(carrier)?;
                let Move { usable_ns, address } =
                    self.testbed.relocate(self.deployment.on_move())?;
                (moment.done_ns, moment.address) = (usable_ns, Some(address));
            }
            Act::PlugSpare => {
                let Move { usable_ns, address } = self.testbed.plug_spare()?;
                (moment.done_ns, moment.address) = (usable_ns, Some(address));
            }
            Act::AnnounceDeparture => self.testbed.announce_departure()?,
            Act::Depart => moment.done_ns = self.testbed.depart()?,
            Act::ChangeCard => {
                if self.dead_ends {
                    self.testbed.set_mobile_network(Carrier::BlackHole)?;
                }
                let Move { usable_ns, address } = self.testbed.change_card()?;
                (moment.done_ns, moment.address) = (usable_ns, Some(address));
            }
            Act::UnplugSpare => self.testbed.unplug_spare()?,
            Act::Swallow(link) => self.testbed.set_network(link, Carrier::BlackHole)?,
            Act::Return(link) => self.testbed.set_network(link, Carrier::Up)?,
            Act::Unplug(link) => moment.done_ns = self.testbed.unplug(link)?,
            Act::Replug(link) => moment.done_ns = self.testbed.replug(link)?,
            Act::CloseLid => {
                self.deployment.pause_client(true);
                moment.done_ns = self.testbed.unplug(FIRST_LINK)?;
            }
            Act::OpenLid => {
                self.deployment.pause_client(false);
                moment.done_ns = self.testbed.replug(FIRST_LINK)?;
            }
            Act::RebindNat => self.testbed.rebind_nat()?,
            Act::RebootNat => self.testbed.reboot_nat()?,
            Act::MoveGateway => moment.done_ns = self.testbed.move_gateway()?,
            Act::AnnounceGateway => {
                let address = self.testbed.add_gateway_address()?;
                self.deployment.move_gateway(&self.testbed, address)?;
                moment.done_ns = monotonic_ns();
            }
            Act::RetireGateway => self.testbed.retire_gateway_address()?,
            Act::ReviveGateway => self.testbed.revive_gateway_address()?,
            Act::ReturnGateway => moment.done_ns = self.testbed.return_gateway()?,
            Act::Block(blockade) => self.testbed.block(Some(blockade))?,
            Act::Unblock => self.testbed.block(None)?,
            Act::KillGateway => self.deployment.end_gateway(How::Killed)?,
            Act::StopGateway => {
                self.deployment.end_gateway(How::Asked)?;
                moment.done_ns = monotonic_ns();
            }
            Act::StartGateway => {
                self.deployment.start_gateway(&self.testbed)?;
                moment.done_ns = monotonic_ns();
            }
        }
        Ok(moment)
    }

    /// The growth of the flow's packets in the tunnel, without outer headers.
    fn added_bytes(&self, captured: &Captures) -> Vec<f64> {
        let inner = usize::from(Flow::BYTES) + INNER_HEADERS;
        let headers = self.testbed.family().udp_headers();
        let is_v4 = self.testbed.gateway_address().is_ipv4();
        let mut gateways = self.testbed.gateway_addresses();
        gateways.retain(|gateway| gateway.is_ipv4() == is_v4); // the headers are of one length
        let packets = captured.cards.iter().flat_map(|card| &card.packets);
        let of_flow = packets
            .filter(|packet| packet.direction == Direction::In && packet.bytes > inner + headers)
            .filter(|packet| {
                packet.endpoints.is_some_and(|ends| gateways.contains(&ends.source.ip()))
            });
        match self.deployment {
            Deployment::Bare => vec![0.0],
            Deployment::Rove(_) | Deployment::OpenVpn(_) => {
                of_flow.map(|packet| (packet.bytes - headers - inner) as f64).collect()
            }
        }
    }

    fn run_flows(&mut self, flows: &[Flow], script: &[Cue]) -> Result<Vec<FlowRun>, Trouble> {
        let mut running = Vec::new();
        for flow in flows {
            let asked_ns = monotonic_ns();
            let subscriber = self.testbed.subscribe(flow.to, &request(flow))?;
            // The answer was on its way for as long as the link takes.
            let delay_ns = self.beyond_ns
                + match flow.to {
                    Receiver::Client => self.link.down.delay_ns,
                    Receiver::Server => self.link.up.delay_ns,
                };
            let start_ns = monotonic_ns() - delay_ns;
            let start_ns = if subscriber.is_some() { start_ns } else { asked_ns };
            running.push((subscriber, start_ns, start_ns + flow.length_ns()));
        }
        let start_ns = running.iter().map(|one| one.1).max().unwrap_or_default();
        let end_ns = running.iter().map(|one| one.2).max().unwrap_or_default();
        let moments = self.play(script, start_ns, end_ns)?;
        let mut runs = Vec::new();
        for (flow, (subscriber, start_ns, end_ns)) in flows.iter().zip(running) {
            let run = match subscriber {
                Some(subscriber) => finish(subscriber, start_ns, end_ns)?,
                None => {
                    let lost = flow.count.into();
                    FlowRun { lost, ..FlowRun::new(start_ns, end_ns, None, Vec::new()) }
                }
            };
            runs.push(FlowRun { moments: moments.clone(), ..run });
        }
        Ok(runs)
    }

    /// Captures the packets that pass the client's interfaces and the gateway's from now on.
    fn start_captures(&self) -> Result<(), Trouble> {
        let (network, cards) = (&self.testbed.network, &self.testbed.cards);
        for card in cards.iter().chain([&self.testbed.uplink]) {
            network.start_capture(*card)?;
        }
        Ok(())
    }

    /// The packets since then.
    fn take_captures(&mut self) -> Result<Captures, Trouble> {
        let network = &self.testbed.network;
        let cards = self.testbed.cards.iter().map(|card| network.take_capture(*card));
        let cards = cards.collect::<Result<Vec<_>, _>>()?;
        let uplink = network.take_capture(self.testbed.uplink)?;
        self.note_left(&uplink);
        Ok(Captures { cards, uplink })
    }

    /// Notes the lengths of datagrams that left the gateway, if they are asked for.
    fn note_left(&mut self, uplink: &Capture) {
        let leaves = |packet: &&Captured| {
            let is_udp = packet.endpoints.is_some_and(|ends| ends.protocol == Protocol::Udp);
            packet.direction == Direction::Out && is_udp
        };
        if let Some(noted) = &mut self.noted {
            noted.extend(uplink.packets.iter().filter(leaves).map(|packet| packet.bytes));
        }
    }

    /// Does the acts that are due, and asks the client meanwhile what it knows of them.
    fn play(&mut self, script: &[Cue], start_ns: u64, end_ns: u64) -> Result<Vec<Moment>, Trouble> {
        let mut moments: Vec<Moment> = Vec::new();
        for cue in script.iter().take_while(|cue| start_ns + cue.at_ns <= end_ns) {
            self.ask_until(start_ns + cue.at_ns, &mut moments)?;
            moments.push(self.perform(cue.act)?);
        }
        if moments.last().is_some_and(|moment| is_told_of(moment.act)) {
            self.ask_until(end_ns, &mut moments)?;
        }
        Ok(moments)
    }

    /// Waits. If the client cannot see the last act, asks it until it reports the act's effect.
    fn ask_until(&mut self, until_ns: u64, moments: &mut [Moment]) -> Result<(), Trouble> {
        if let Some(moment) = moments.last_mut().filter(|moment| is_told_of(moment.act)) {
            while moment.told_ns.is_none() && monotonic_ns() + ASKING_NS < until_ns {
                let asked_ns = monotonic_ns();
                if self.client_tells_of(moment.act)? {
                    moment.told_ns = Some(monotonic_ns());
                }
                sleep_until(asked_ns + ASKING_NS);
            }
        }
        sleep_until(until_ns);
        Ok(())
    }

    /// Whether the client's own status shows the act.
    fn client_tells_of(&self, act: Act) -> Result<bool, Trouble> {
        let (deployment, testbed) = (&self.deployment, &self.testbed);
        if act == Act::Swallow(FIRST_LINK) {
            return Ok(deployment.says_carries(testbed)? == Some(false));
        }
        Ok(deployment.transport(testbed)? == Some(Transport::Udp))
    }

    /// Notes when an end first used the spare link because the other one drops all packets: while
    /// data flows, packets on it have no other reason.
    fn see_who_noticed(&self, captured: &Captures, moments: &mut [Moment]) {
        let spare = self.testbed.address(1);
        let left = |packet: &&Captured| packet.direction == Direction::Out;
        let for_spare = |packet: &&Captured| {
            packet.endpoints.is_some_and(|ends| Some(ends.destination.ip()) == spare)
        };
        let by_client = captured.cards[1].packets.iter().filter(left);
        let by_gateway = captured.uplink.packets.iter().filter(left).filter(for_spare);
        let turned: BTreeSet<u64> = by_client.chain(by_gateway).map(|one| one.at_ns).collect();
        for moment in moments.iter_mut().filter(|moment| moment.act == Act::Swallow(FIRST_LINK)) {
            moment.noticed_ns = turned.range(moment.done_ns..).next().copied();
        }
    }
}

impl Ground for Hosts {
    fn clock(&self) -> Clock {
        Clock::Real
    }

    fn pause(&mut self, length_ns: u64) -> Result<(), Trouble> {
        std::thread::sleep(Duration::from_nanos(length_ns));
        Ok(())
    }

    fn ping(&mut self, routes: &[Route], pings: Pings) -> Result<Vec<RoundTrips>, Trouble> {
        let start = |route: &Route| {
            self.testbed.ping(*route, pings.count, (pings.interval_ns / 1_000).max(1))
        };
        let running = routes.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        let mut all = Vec::new();
        for pinging in running {
            all.push(RoundTrips(pinging.finish()?.round_trips_ns));
        }
        Ok(all)
    }

    fn flows(&mut self, flows: &[Flow], script: &[Cue]) -> Result<Vec<FlowRun>, Trouble> {
        self.start_captures()?;
        let runs = self.run_flows(flows, script);
        let captured = self.take_captures()?;
        let mut runs = runs?;
        for run in &mut runs {
            run.see(|moment| captured.of(moment.address));
            run.added_bytes = self.added_bytes(&captured);
            self.see_who_noticed(&captured, &mut run.moments);
        }
        Ok(runs)
    }

    fn download(
        &mut self,
        download: Download,
        script: &[Cue],
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Transfer, Trouble> {
        let fetch = self.testbed.download(self.seed, &download)?;
        self.follow(&fetch, download, script, listen)
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
        self.pour_datagrams(datagrams)
    }

    fn session(
        &mut self,
        session: Session,
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<SessionRun, Trouble> {
        self.hold_session(&session, limit_ns, script)
    }

    fn held_bytes_max(&mut self) -> Result<Option<u64>, Trouble> {
        Ok(self.held_bytes_max.take())
    }

    fn harm(&mut self, harm: Harm) -> Result<(), Trouble> {
        match harm {
            Harm::DeadEnds => self.dead_ends = true,
            Harm::StaleName => self.testbed.forget_names(),
            Harm::Segments(mangled) => offload::mangle(&self.testbed, mangled)?,
            Harm::BitErrors(share) => {
                let LinkConfig { up, down } = self.link.clone();
                for (end, mut pipe) in [(End::A, up), (End::B, down)] {
                    pipe.bit_errors = BitErrors::Delivered(share);
                    self.testbed.set_home_pipe(end, pipe)?;
                }
            }
        }
        Ok(())
    }

    fn listen(&mut self, length_ns: u64) -> Result<Overheard, Trouble> {
        let (network, cards) = (&self.testbed.network, &self.testbed.cards);
        for card in cards {
            network.start_capture(*card)?;
        }
        std::thread::sleep(Duration::from_nanos(length_ns));
        let gateways = self.testbed.gateway_addresses();
        let mut heard = Overheard::default();
        for card in cards {
            // A kernel sends packets of its own to its network.
            let of_tunnel = |packet: &&Captured| {
                packet.endpoints.is_some_and(|ends| {
                    let ends = [ends.source.ip(), ends.destination.ip()];
                    ends.iter().any(|end| gateways.contains(end))
                })
            };
            for packet in network.take_capture(*card)?.packets.iter().filter(of_tunnel) {
                heard.packets += 1;
                heard.bytes += packet.bytes as u64;
            }
        }
        Ok(heard)
    }

    fn call_everybody(&mut self, calling: Calling) -> Result<Vec<Called>, Trouble> {
        self.call_all(calling)
    }

    fn gateway_work(&mut self) -> Result<Work, Trouble> {
        let packets = self.testbed.gateway_packets()?;
        Ok(Work { packets, cpu_ns: self.deployment.gateway_cpu_ns()?, compressions: 0 })
    }

    fn begin_anew(&mut self, limit_ns: u64) -> Result<Option<u64>, Trouble> {
        // The server calls only the new client: the old one would answer at once.
        self.testbed.rest(true);
        let ended = self.deployment.end_client();
        self.testbed.rest(false);
        ended?;
        let mut calling = self.testbed.reach(limit_ns / MS)?;
        let started_ns = self.deployment.start_client(&self.testbed)?;
        let patience = Duration::from_nanos(limit_ns) + REPORT;
        let reached_ns = calling.line_where(patience, |line| {
            if let Report::Reached { at_ns } = report(line)? { Some(at_ns) } else { None }
        })?;
        Ok(reached_ns.map(|at_ns| at_ns.saturating_sub(started_ns)))
    }

    fn transport(&mut self) -> Result<Option<Transport>, Trouble> {
        Ok(self.deployment.transport(&self.testbed)?)
    }

    fn reported(&mut self, at: Receiver) -> Result<Vec<Reported>, Trouble> {
        Ok(self.deployment.reported(&self.testbed, at)?)
    }

    fn note_lengths(&mut self) -> Result<(), Trouble> {
        self.noted = Some(Vec::new());
        Ok(self.testbed.network.start_capture(self.testbed.uplink)?)
    }

    fn noted_lengths(&mut self) -> Result<Vec<usize>, Trouble> {
        let uplink = self.testbed.network.take_capture(self.testbed.uplink)?;
        self.note_left(&uplink);
        Ok(self.noted.take().unwrap_or_default())
    }

    fn act(&mut self, act: Act) -> Result<Moment, Trouble> {
        self.perform(act)
    }
}

/// Whether the client is asked about it: it cannot see the act, and its user wants to know.
const fn is_told_of(act: Act) -> bool {
    matches!(act, Act::Swallow(FIRST_LINK) | Act::Unblock)
}

/// Packets that passed the client's interfaces and the gateway's during flows.
struct Captures {
    cards: Vec<Capture>,
    uplink: Capture,
}

impl Captures {
    /// When packets left the client from an address, or arrived there, in order.
    fn of(&self, address: Option<IpAddr>) -> Vec<(u64, bool)> {
        let here = |packet: &Captured| {
            let ends = packet.endpoints?;
            let came = packet.direction == Direction::In;
            let end = if came { ends.destination } else { ends.source };
            (Some(end.ip()) == address).then_some((packet.at_ns, came))
        };
        let packets = self.cards.iter().flat_map(|card| &card.packets);
        let mut all: Vec<_> = packets.filter_map(here).collect();
        all.sort_unstable();
        all
    }
}

/// The request of a flow's receiver.
fn request(flow: &Flow) -> FlowRequest {
    FlowRequest {
        interval_us: flow.interval_ns / 1_000,
        size: Flow::BYTES,
        wait_ms: flow.silence_ns / MS,
        begin_ns: None,
        count: flow.count,
    }
}

/// The result of a flow.
fn finish(mut subscriber: Process, start_ns: u64, end_ns: u64) -> Result<FlowRun, Trouble> {
    let left_ns = (end_ns + Flow::PATIENCE_NS).saturating_sub(monotonic_ns());
    let stats = subscriber.line_where(Duration::from_nanos(left_ns) + REPORT, |line| {
        if let Report::Flowed(stats) = report(line)? { Some(stats) } else { None }
    })?;
    let arrived = (stats.first_ns > 0).then_some((stats.first_ns, stats.last_ns));
    let run = FlowRun::new(start_ns, end_ns, arrived, stats.gaps);
    Ok(FlowRun { lost: stats.lost, ..run })
}

fn sleep_until(at_ns: u64) {
    std::thread::sleep(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
}
