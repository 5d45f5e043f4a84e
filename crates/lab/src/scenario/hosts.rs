//! The ground of real hosts: the testbed's programs, and what was deployed on it.
//!
//! Decides how acts and measurements become commands, captures and reports, and which failure is
//! the lab's. Everything is in real time: an act that is late is late.

use super::deploy::Deployment;
use super::testbed::{Move, Testbed};
use crate::arrivals::Gap;
use crate::emu::{BitErrors, Carrier, End, LinkConfig, SECOND};
use crate::ground::{
    Act, Clock, Cue, Download, Flow, FlowRun, Ground, Harm, Heard, Moment, Pings, RoundTrips,
    Route, Transfer, Trouble, enclosed,
};
use crate::netns::{Capture, Direction, Process, monotonic_ns};
use crate::programs::{FlowRequest, Report, report, sha256_of};
use std::time::Duration;

/// How long a transfer may be silent before it counts as dead, in nanoseconds.
const SILENCE_NS: u64 = 20 * SECOND;
/// How long after its regular end the report on a flow is waited for.
const REPORT: Duration = Duration::from_secs(10);
/// IPv4 and UDP header of the flow inside the tunnel.
const INNER_HEADERS: usize = 28;

/// Hosts with something deployed on them.
#[derive(Debug)]
pub struct Hosts {
    testbed: Testbed,
    deployment: Deployment,
    link: LinkConfig,
    /// The content of downloads follows from it.
    seed: u64,
    /// Every network that the client moves to swallows everything.
    dead_ends: bool,
}

impl Hosts {
    /// A testbed whose access networks are like `link`, and what was deployed on it.
    pub const fn new(
        testbed: Testbed,
        deployment: Deployment,
        link: LinkConfig,
        seed: u64,
    ) -> Self {
        Self { testbed, deployment, link, seed, dead_ends: false }
    }

    /// The testbed.
    pub const fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Notices that a part of what was deployed has ended.
    ///
    /// # Errors
    /// With its last words.
    pub fn check(&mut self) -> Result<(), Trouble> {
        self.deployment.check().map_err(|error| Trouble::UnderTest(error.to_string()))
    }

    fn act(&mut self, act: Act) -> Result<Moment, Trouble> {
        let began_ns = monotonic_ns();
        let mut moment = Moment {
            act,
            began_ns,
            done_ns: began_ns,
            address: None,
            left_ns: None,
            came_ns: None,
        };
        match act {
            Act::Relocate => {
                if self.dead_ends {
                    let next = self.testbed.next_access();
                    self.testbed.network.set_access(next, Carrier::BlackHole)?;
                }
                let Move { usable_ns, address } =
                    self.testbed.relocate(self.deployment.on_move())?;
                (moment.done_ns, moment.address) = (usable_ns, Some(address));
            }
            Act::AnnounceDeparture => self.testbed.announce_departure()?,
            Act::Depart => self.testbed.network.set_carrier(self.testbed.wlan, false)?,
        }
        Ok(moment)
    }

    /// What the packets of the flow grew by on the way, outer headers not counted.
    fn added_bytes(&self, capture: &Capture) -> Vec<f64> {
        let inner = usize::from(Flow::BYTES) + INNER_HEADERS;
        let headers = self.testbed.family().udp_headers();
        let gateway = self.testbed.gateway_address();
        let of_flow = capture
            .packets
            .iter()
            .filter(|packet| packet.direction == Direction::In && packet.bytes > inner + headers)
            .filter(|packet| packet.endpoints.is_some_and(|ends| ends.source.ip() == gateway));
        match self.deployment {
            Deployment::Bare => vec![0.0],
            Deployment::Rove(_) | Deployment::OpenVpn(_) => {
                of_flow.map(|packet| (packet.bytes - headers - inner) as f64).collect()
            }
        }
    }

    fn run_flow(&mut self, flow: Flow, script: &[Cue]) -> Result<FlowRun, Trouble> {
        let request = FlowRequest {
            interval_us: Flow::INTERVAL_NS / 1_000,
            size: Flow::BYTES,
            wait_ms: flow.silence_ns / 1_000_000,
            count: flow.count,
        };
        let asked_ns = monotonic_ns();
        let Some(mut subscriber) = self.testbed.subscribe(Route::Tunnelled, &request)? else {
            let end_ns = monotonic_ns();
            let lost = flow.count.into();
            return Ok(FlowRun { lost, ..FlowRun::new(asked_ns, end_ns, None, Vec::new()) });
        };
        // The answer was under way for as long as the link is.
        let start_ns = monotonic_ns() - self.link.down.delay_ns;
        let mut moments = Vec::new();
        for cue in script.iter().take_while(|cue| cue.at_ns <= flow.length_ns()) {
            sleep_until(start_ns + cue.at_ns);
            moments.push(self.act(cue.act)?);
        }
        let end_ns = start_ns + flow.length_ns();
        let left_ns = (end_ns + Flow::PATIENCE_NS).saturating_sub(monotonic_ns());
        let stats = subscriber.line_where(Duration::from_nanos(left_ns) + REPORT, |line| {
            if let Report::Flowed(stats) = report(line)? { Some(stats) } else { None }
        })?;
        let arrived = (stats.first_ns > 0).then_some((stats.first_ns, stats.last_ns));
        let run = FlowRun::new(start_ns, end_ns, arrived, stats.gaps);
        Ok(FlowRun { lost: stats.lost, moments, ..run })
    }

    fn follow(
        &mut self,
        fetch: &Process,
        download: Download,
        script: &[Cue],
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Transfer, Trouble> {
        let start_ns = monotonic_ns();
        let give_up_ns = start_ns + download.limit_ns;
        let mut followed = Followed::new(start_ns, script);
        loop {
            let silent_ns = followed.heard_ns + SILENCE_NS;
            let wake_ns = followed.next_cue_ns().min(silent_ns).min(give_up_ns);
            let wait = Duration::from_nanos(wake_ns.saturating_sub(monotonic_ns()));
            match fetch.line(wait) {
                Ok(Some(line)) => {
                    let Some(report) = report(&line) else { continue };
                    if let Some(done) = followed.take(report, listen) {
                        let expected = sha256_of(self.seed, download.length);
                        return Ok(followed.ended(done, &expected));
                    }
                }
                Ok(None) if monotonic_ns() >= silent_ns.min(give_up_ns) => break,
                Ok(None) => {}
                // It has ended early, with an error of its own.
                Err(_) => break,
            }
            if let Some(cue) = followed.take_due() {
                let moment = self.act(cue.act)?;
                listen(Heard::Done(&moment));
                followed.transfer.moments.push(moment);
            }
        }
        Ok(followed.given_up())
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

    fn flow(&mut self, flow: Flow, script: &[Cue]) -> Result<FlowRun, Trouble> {
        self.testbed.network.start_capture(self.testbed.wlan)?;
        let run = self.run_flow(flow, script);
        let capture = self.testbed.network.take_capture(self.testbed.wlan)?;
        let mut run = run?;
        run.see(|moment| {
            let here = |packet: &crate::netns::Captured| {
                let ends = packet.endpoints?;
                let came = packet.direction == Direction::In;
                let end = if came { ends.destination } else { ends.source };
                (Some(end.ip()) == moment.address).then_some((packet.at_ns, came))
            };
            capture.packets.iter().filter_map(here).collect()
        });
        run.added_bytes = self.added_bytes(&capture);
        Ok(run)
    }

    fn download(
        &mut self,
        download: Download,
        script: &[Cue],
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Transfer, Trouble> {
        let fetch = self.testbed.download(download.route, self.seed, download.length)?;
        self.follow(&fetch, download, script, listen)
    }

    fn harm(&mut self, harm: Harm) -> Result<(), Trouble> {
        match harm {
            Harm::DeadEnds => self.dead_ends = true,
            Harm::BitErrors(share) => {
                let LinkConfig { up, down } = self.link.clone();
                for (end, mut pipe) in [(End::A, up), (End::B, down)] {
                    pipe.bit_errors = BitErrors::Delivered(share);
                    self.testbed.network.set_pipe(self.testbed.home, end, pipe)?;
                }
            }
        }
        Ok(())
    }

    fn add_spare(&mut self) -> Result<(), Trouble> {
        self.testbed.add_spare()?;
        Ok(())
    }
}

/// A download that is being followed.
struct Followed<'a> {
    transfer: Transfer,
    script: std::iter::Peekable<std::slice::Iter<'a, Cue>>,
    /// When something was last heard of it, and how far it was.
    heard_ns: u64,
    bytes: u64,
    arrived: Option<(u64, u64)>,
}

impl<'a> Followed<'a> {
    fn new(start_ns: u64, script: &'a [Cue]) -> Self {
        let transfer = Transfer { start_ns, ..Transfer::default() };
        let script = script.iter().peekable();
        Self { transfer, script, heard_ns: start_ns, bytes: 0, arrived: None }
    }

    fn next_cue_ns(&mut self) -> u64 {
        let start_ns = self.transfer.start_ns;
        self.script.peek().map_or(u64::MAX, |cue| start_ns.saturating_add(cue.at_ns))
    }

    /// The next act, if its time or its bytes have come.
    fn take_due(&mut self) -> Option<Cue> {
        let due_ns = self.next_cue_ns();
        let bytes = self.bytes;
        let now_ns = monotonic_ns();
        self.script.next_if(|cue| now_ns >= due_ns || bytes >= cue.at_bytes).copied()
    }

    /// Takes a report; returns the last one.
    fn take(
        &mut self,
        report: Report,
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Option<crate::programs::Download> {
        match report {
            Report::Connected { at_ns } => {
                (self.transfer.start_ns, self.heard_ns) = (at_ns, at_ns);
            }
            Report::Progress { at_ns, bytes, latest_ns, gaps } => {
                listen(Heard::Progress { at_ns, bytes });
                self.heard_ns = at_ns;
                self.progress(latest_ns, bytes, gaps);
            }
            Report::Downloaded(done) => return Some(done),
            Report::Ready | Report::Unanswered | Report::Pinged(_) | Report::Flowed(_) => {}
        }
        None
    }

    fn progress(&mut self, latest_ns: u64, bytes: u64, mut gaps: Vec<Gap>) {
        let first_ns = self.arrived.map_or(latest_ns, |(first_ns, _)| first_ns);
        (self.arrived, self.bytes) = (Some((first_ns, latest_ns)), bytes);
        self.transfer.progress.push((latest_ns, bytes));
        self.transfer.gaps.append(&mut gaps);
    }

    fn ended(mut self, done: crate::programs::Download, expected: &str) -> Transfer {
        let crate::programs::Download { end_ns, bytes, sha256, gaps } = done;
        self.progress(end_ns, bytes, gaps);
        self.transfer.complete = true;
        self.transfer.intact = sha256 == expected;
        self.transfer.sha256 = Some(sha256);
        self.close(end_ns)
    }

    /// It died, or took too long.
    fn given_up(self) -> Transfer {
        self.close(monotonic_ns())
    }

    fn close(self, end_ns: u64) -> Transfer {
        let Self { transfer, arrived, .. } = self;
        let gaps = enclosed(transfer.start_ns, end_ns, arrived, transfer.gaps);
        Transfer { end_ns, gaps, ..transfer }
    }
}

fn sleep_until(at_ns: u64) {
    std::thread::sleep(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
}
