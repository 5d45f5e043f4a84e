//! The test backend of a scenario: the actions and measurements of which every scenario is made.
//!
//! A scenario is written once, over the trait [`Ground`]. One backend runs the real binary on real
//! hosts in namespaces. The other runs the production core in virtual time. Both return the same
//! plain values, so a figure has the same meaning in both.
//!
//! This module defines the actions and measurements, and computes figures from arrivals. It does
//! not know which backend runs, nor the scenario's verdict. Times are in nanoseconds on the
//! backend's own clock.

mod act;
mod call;
mod connection;
mod datagrams;
mod terrain;
mod transfer;

pub use act::{Act, Blockade, Cue, FIRST_LINK, Moment, Transport};
pub use call::{Call, CallRun, Talk};
pub use connection::{
    Congestion, Connections, KeepAlive, Pace, Patience, Session, SessionRun, Version,
};
pub use datagrams::{Datagrams, DatagramsRun, What};
pub use terrain::{
    Assist, Compress, Edge, Families, Known, Load, Mode, SCHEDULERS, Spread, TRANSPORTS, Terrain,
};
pub use transfer::{Segments, Transfer, WhileUp};

use crate::arrivals::Gap;
use crate::emu::{MS, SECOND};

/// A backend that runs scenarios.
pub trait Ground {
    /// Whether the backend runs in real time.
    fn clock(&self) -> Clock;

    /// Waits without traffic.
    ///
    /// # Errors
    /// See [`Trouble`], as for all methods below.
    fn pause(&mut self, length_ns: u64) -> Result<(), Trouble>;

    /// Measures round trips from the client to the server on each of these routes at the same time,
    /// so that they see the same conditions.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn ping(&mut self, routes: &[Route], pings: Pings) -> Result<Vec<RoundTrips>, Trouble>;

    /// Runs steady flows at the same time through the tunnel, and does the acts of the script at
    /// their times. The times are in order and count from the moment when the last flow has begun.
    /// An act that is due after the end of the longest flow is not done. Returns one result for
    /// each flow; each result contains the acts.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn flows(&mut self, flows: &[Flow], script: &[Cue]) -> Result<Vec<FlowRun>, Trouble>;

    /// Like [`Self::flows`], for one flow.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn flow(&mut self, flow: Flow, script: &[Cue]) -> Result<FlowRun, Trouble> {
        Ok(self.flows(&[flow], script)?.pop().unwrap_or_default())
    }

    /// Downloads from the server to the client and does the acts of the script. `listen` is called
    /// with the progress.
    ///
    /// # Errors
    /// See [`Trouble`]. A download that does not end is no error.
    fn download(
        &mut self,
        download: Download,
        script: &[Cue],
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Transfer, Trouble>;

    /// Opens TCP connections of several kinds at the same time and does the acts of the script,
    /// until each connection has ended or broken, or `limit_ns` have passed. Returns a list for
    /// each kind. If an outage lasts beyond that time, it is ended as the script would end it.
    ///
    /// # Errors
    /// See [`Trouble`]. A connection that breaks is no error.
    fn connect(
        &mut self,
        kinds: &[Connections],
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<Vec<Vec<Transfer>>, Trouble>;

    /// Runs a call between client and server, with TCP connections of several kinds beside it, and
    /// does the acts of the script. It ends with the call: connections that are still open then are
    /// given up. Times of the script count from the beginning.
    ///
    /// # Errors
    /// See [`Trouble`]. A connection that breaks is no error, nor is a call in which no
    /// packet arrives.
    fn call(
        &mut self,
        call: Call,
        beside: &[Connections],
        script: &[Cue],
    ) -> Result<(CallRun, Vec<Vec<Transfer>>), Trouble> {
        let (run, transfers, _) = self.call_and_pour(call, beside, None, script)?;
        Ok((run, transfers))
    }

    /// Like [`Self::call`], with at most one flow of datagrams beside it, which begins with the
    /// call.
    ///
    /// # Errors
    /// As above.
    fn call_and_pour(
        &mut self,
        call: Call,
        beside: &[Connections],
        poured: Option<Datagrams>,
        script: &[Cue],
    ) -> Result<Beside, Trouble>;

    /// Runs one flow of datagrams through the tunnel, for its whole length.
    ///
    /// # Errors
    /// See [`Trouble`]. A flow of which no datagram arrives is no error.
    fn pour(&mut self, datagrams: Datagrams) -> Result<DatagramsRun, Trouble>;

    /// Like [`Self::connect`], with an interactive session.
    ///
    /// # Errors
    /// As above.
    fn session(
        &mut self,
        session: Session,
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<SessionRun, Trouble>;

    /// The most bytes that both tunnel ends together kept for connections in the outages since the
    /// last call; `None` if the backend cannot tell.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn held_bytes_max(&mut self) -> Result<Option<u64>, Trouble>;

    /// Breaks something on purpose from now on.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn harm(&mut self, harm: Harm) -> Result<(), Trouble>;

    /// Waits, and counts the packets that pass the client's interfaces meanwhile.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn listen(&mut self, length_ns: u64) -> Result<Overheard, Trouble>;

    /// Notes from now on the length of each datagram that leaves the gateway for the client.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn note_lengths(&mut self) -> Result<(), Trouble>;

    /// The noted lengths at layer 3, in bytes. Notes none from now on.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn noted_lengths(&mut self) -> Result<Vec<usize>, Trouble>;

    /// Does an act while there is no traffic. From then on the server calls every client.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn call_everybody(&mut self, calling: Calling) -> Result<Vec<Called>, Trouble>;

    /// The gateway's packets and processor time so far.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn gateway_work(&mut self) -> Result<Work, Trouble>;

    /// Restarts the client, as after a reboot of its host. Returns the nanoseconds until the server
    /// has answered it through the tunnel; `None` if that took longer than the limit.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn begin_anew(&mut self, limit_ns: u64) -> Result<Option<u64>, Trouble>;

    /// The transport that the client reports for its data; `None` if it reports none.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn transport(&mut self) -> Result<Option<Transport>, Trouble>;

    /// Bytes that arrived at one tunnel end so far on each path of the session, and the cost of
    /// feedback about them. One entry for all paths together if that end does not count each; an
    /// empty list if the backend cannot tell.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn reported(&mut self, at: Receiver) -> Result<Vec<Reported>, Trouble>;

    /// Does an act while there is no traffic.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn act(&mut self, act: Act) -> Result<Moment, Trouble>;
}

/// A call, the connections beside it by their kinds, and the flow of datagrams if there was one.
pub type Beside = (CallRun, Vec<Vec<Transfer>>, Option<DatagramsRun>);

/// Packets that passed the client's interfaces in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overheard {
    /// Packets of the tunnel.
    pub packets: u64,
    /// Their layer-3 lengths, in bytes.
    pub bytes: u64,
}

/// Traffic of a path, and the cost of feedback about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Identifies the path at its end.
    pub path: u64,
    /// Received bytes of UDP payload.
    pub came_bytes: u64,
    /// Sent bytes of UDP payload.
    pub left_bytes: u64,
    /// Datagrams of `left_bytes`; 0 if that end does not count them.
    pub left_datagrams: u64,
    /// Inner packets in `left_bytes` that were retransmissions, of this path or another.
    pub left_again: u64,
    /// Layer-3 bytes of the datagrams that carried nothing but feedback.
    pub feedback_bytes: u64,
    /// Time without segmented sends, or with a short last segment, because segmented sends lost
    /// more; in nanoseconds.
    pub fallback_ns: Option<u64>,
}

/// Packets and processor time of a gateway since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Packets of the tunnel between it and its clients.
    pub packets: u64,
    /// Its processor time, in nanoseconds; `None` in virtual time, where work takes no time.
    pub cpu_ns: Option<u64>,
    /// Inner packets that it compressed, whether they got smaller or not; 0 if it does not count
    /// them.
    pub compressions: u64,
}

/// A client that was called by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// Time from the first call to the first call that arrived, in nanoseconds, if one did.
    pub reached_ns: Option<u64>,
    /// Calls that never arrived.
    pub lost: u64,
}

/// How the server calls all clients. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Calling {
    /// The act just before the first call.
    pub act: Act,
    /// Time between two calls.
    pub every_ns: u64,
    /// For this time.
    pub length_ns: u64,
    /// Time from the first call until each client sends a packet of its own, if it does.
    pub word_ns: Option<u64>,
}

/// Whether a backend runs in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// It does: scenarios are short.
    Real,
    /// It does not: a silence may last as long as in real life.
    Virtual,
}

/// The reason why a scenario could not be run to its end.
#[derive(Debug)]
pub enum Trouble {
    /// The program under test failed: a bad result, but a result.
    UnderTest(String),
    /// The lab itself failed: no result.
    Lab(anyhow::Error),
}

/// The route of packets to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through the tunnel.
    Tunnelled,
    /// Over the same link, without the tunnel.
    Open,
}

/// A fault that can be caused on purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Harm {
    /// The link flips this share of the bits that it delivers.
    BitErrors(f64),
    /// Every network that the client moves to drops all packets.
    DeadEnds,
    /// The gateway's name always resolves to its present address, even after a move.
    StaleName,
    /// Both ends of the tunnel mangle segmented sends.
    Segments(Mangled),
}

/// The segmented sends that are mangled, and what is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mangled {
    /// Sends whose last segment is as long as the others are lost whole.
    EqualRuns,
    /// The same sends lose their last segment.
    FullLast,
    /// One send in this number is lost whole.
    EveryNth(u32),
}

/// A series of pings.
#[derive(Clone, Copy, Debug)]
pub struct Pings {
    /// Number of pings.
    pub count: u32,
    /// Time between two pings, in nanoseconds.
    pub interval_ns: u64,
}

/// A steady flow of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// The receiver.
    pub to: Receiver,
    /// Silence of the sender before the first datagram.
    pub silence_ns: u64,
    /// Number of datagrams.
    pub count: u32,
    /// Time between two datagrams.
    pub interval_ns: u64,
}

/// The receiver of a flow; the other side sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The client, over its downlink.
    Client,
    /// The server, over the client's uplink.
    Server,
}

/// A download.
#[derive(Clone, Copy, Debug)]
pub struct Download {
    /// The route.
    pub route: Route,
    /// Bytes.
    pub length: u64,
    /// Time after which it is given up, in nanoseconds.
    pub limit_ns: u64,
    /// The downloading program.
    pub by: Downloader,
}

/// The downloading program. In virtual time it is always one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downloader {
    /// One connection, one request.
    Fetch,
    /// As a browser does: several persistent connections, each with one request after the other for
    /// a part of the file. If one breaks, the download ends.
    Browser,
}

/// News of a download in progress.
#[derive(Clone, Copy, Debug)]
pub enum Heard<'a> {
    /// Its progress.
    Progress {
        /// When.
        at_ns: u64,
        /// Bytes so far.
        bytes: u64,
    },
    /// An act was done.
    Done(&'a Moment),
}

/// Round trips in the order of sending, in nanoseconds; `None` where the answer was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips(pub Vec<Option<u64>>);

/// The result of a flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRun {
    /// Datagrams that never arrived.
    pub lost: u64,
    /// Periods without arrivals, from the beginning to the end.
    pub gaps: Vec<Gap>,
    /// When it should have ended.
    pub end_ns: u64,
    /// Acts in it.
    pub moments: Vec<Moment>,
    /// Bytes that the tunnel adds to each datagram; outer IP and UDP headers are not counted.
    pub added_bytes: Vec<f64>,
}

impl Flow {
    /// Payload of each datagram in bytes, as in the papers.
    pub const BYTES: u16 = 125;
    /// The usual time between two datagrams: with 125 bytes, the 1 Mbit/s of the papers.
    pub const INTERVAL_NS: u64 = MS;
    /// How long after its regular end late datagrams are awaited.
    pub const PATIENCE_NS: u64 = SECOND;

    /// A flow to the client of this length.
    pub const fn lasting(length_ns: u64) -> Self {
        Self::after(0, length_ns)
    }

    /// A flow to the client of this length after this silence.
    pub const fn after(silence_ns: u64, length_ns: u64) -> Self {
        let (to, interval_ns) = (Receiver::Client, Self::INTERVAL_NS);
        Self { to, silence_ns, count: (length_ns / interval_ns) as u32, interval_ns }
    }

    /// The same flow in the other direction.
    pub const fn upwards(self) -> Self {
        Self { to: Receiver::Server, ..self }
    }

    /// A flow of the same length with this time between datagrams.
    pub const fn every(self, interval_ns: u64) -> Self {
        let length_ns = self.count as u64 * self.interval_ns;
        Self { count: (length_ns / interval_ns) as u32, interval_ns, ..self }
    }

    /// The time from its beginning to its regular end.
    pub const fn length_ns(self) -> u64 {
        self.silence_ns + self.count as u64 * self.interval_ns
    }
}

impl Download {
    /// Through the tunnel, over one connection.
    pub const fn tunnelled(length: u64, limit_ns: u64) -> Self {
        Self { route: Route::Tunnelled, length, limit_ns, by: Downloader::Fetch }
    }
}

impl RoundTrips {
    /// Those that arrived, in microseconds.
    pub fn microseconds(&self) -> Vec<f64> {
        self.0.iter().flatten().map(|ns| *ns as f64 / 1e3).collect()
    }

    /// Those that arrived, in milliseconds.
    pub fn milliseconds(&self) -> Vec<f64> {
        self.0.iter().flatten().map(|ns| ms(*ns)).collect()
    }

    /// The difference of each to its counterpart in another series, in microseconds. Pairs with a
    /// lost ping are left out.
    pub fn longer_than(&self, other: &Self) -> Vec<f64> {
        let pairs = self.0.iter().zip(&other.0);
        pairs
            .filter_map(|pair| Some((*pair.0)? as f64 - (*pair.1)? as f64))
            .map(|ns| ns / 1e3)
            .collect()
    }
}

impl FlowRun {
    /// A flow whose `gaps` are the pauses between the `first` and the `last` arrival.
    pub fn new(start_ns: u64, end_ns: u64, arrived: Option<(u64, u64)>, gaps: Vec<Gap>) -> Self {
        let gaps = enclosed(start_ns, end_ns, arrived, gaps);
        Self { gaps, end_ns, ..Self::default() }
    }

    /// The longest pause after each act, in milliseconds, up to the next act at most.
    pub fn still_ms(&self) -> Vec<f64> {
        let still = |(at, until): (usize, u64)| {
            ms(Gap::longest_within(&self.gaps, self.moments[at].done_ns, until))
        };
        self.windows().map(still).collect()
    }

    /// The pause around each act, in milliseconds, from the moment when the old address carried no
    /// more. It includes the time in which the client notices.
    pub fn still_from_loss_ms(&self) -> Vec<f64> {
        let still = |(at, until): (usize, u64)| {
            ms(Gap::longest_within(&self.gaps, self.moments[at].began_ns, until))
        };
        self.windows().map(still).collect()
    }

    /// Time from each act to the first datagram after it, in milliseconds.
    pub fn back_ms(&self) -> Vec<f64> {
        let back = |(at, until): (usize, u64)| {
            let from_ns = self.moments[at].done_ns;
            let open = |gap: &&Gap| gap.from_ns <= from_ns && from_ns < gap.to_ns;
            let gap = self.gaps.iter().find(open);
            ms(gap.map_or(0, |gap| gap.to_ns.min(until).saturating_sub(from_ns)))
        };
        self.windows().map(back).collect()
    }

    /// For each act, time from when the new address is usable to the first tunnel packet that
    /// arrives there, in milliseconds. If none arrived, up to the next act.
    pub fn resumption_ms(&self) -> Vec<f64> {
        let seen = |(at, until): (usize, u64)| {
            let moment = &self.moments[at];
            ms(moment.came_ns.unwrap_or(until).saturating_sub(moment.done_ns))
        };
        self.windows().map(seen).collect()
    }

    /// Time from the first tunnel packet that leaves the new address to the first that arrives
    /// there. If none arrived, up to the next act.
    pub fn signalling_ms(&self) -> Vec<f64> {
        let seen = |(at, until): (usize, u64)| {
            let moment = &self.moments[at];
            let left_ns = moment.left_ns.unwrap_or(moment.done_ns);
            ms(moment.came_ns.unwrap_or(until).saturating_sub(left_ns))
        };
        self.windows().map(seen).collect()
    }

    /// Notes for each act the first packets that left and arrived after it. `passed` returns when
    /// each tunnel packet passed the client's interface, in order, and whether it arrived.
    pub fn see(&mut self, mut passed: impl FnMut(&Moment) -> Vec<(u64, bool)>) {
        let windows: Vec<_> = self.windows().collect();
        for (at, until) in windows {
            let moment = &mut self.moments[at];
            let within = moment.done_ns..until;
            let passed = passed(moment);
            let first = |came: bool| {
                let mut all = passed.iter().filter(|one| within.contains(&one.0));
                all.find(|one| one.1 == came).map(|one| one.0)
            };
            (moment.left_ns, moment.came_ns) = (first(false), first(true));
        }
    }

    /// Each act, and the end of the time that counts as its effect.
    fn windows(&self) -> impl Iterator<Item = (usize, u64)> {
        (0..self.moments.len()).map(|at| {
            let next = self.moments.get(at + 1);
            (at, next.map_or(self.end_ns, |next| next.began_ns))
        })
    }
}

/// The pauses between arrivals, with those before the first and after the last.
pub(crate) fn enclosed(
    start_ns: u64,
    end_ns: u64,
    arrived: Option<(u64, u64)>,
    mut gaps: Vec<Gap>,
) -> Vec<Gap> {
    let (first_ns, last_ns) = arrived.unwrap_or((end_ns, end_ns));
    gaps.insert(0, Gap { from_ns: start_ns, to_ns: first_ns });
    if last_ns < end_ns {
        gaps.push(Gap { from_ns: last_ns, to_ns: end_ns });
    }
    gaps
}

fn ms(ns: u64) -> f64 {
    ns as f64 / MS as f64
}

impl From<Trouble> for anyhow::Error {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::UnderTest(what) => Self::msg(what),
            Trouble::Lab(error) => error,
        }
    }
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::Lab(error)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Lab(error.into())
    }
}

#[cfg(test)]
#[path = "ground_tests.rs"]
mod tests;
