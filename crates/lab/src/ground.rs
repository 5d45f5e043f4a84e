//! What a story stands on: the acts and measurements of which every scenario is made.
//!
//! A scenario is told once, over a [`Ground`]. One ground is real hosts between namespaces with the
//! real binary, the other the production core in virtual time; both return the same plain values,
//! so that a figure means the same wherever it was taken.
//!
//! What this decides: what there is to do and to measure, and how figures follow from arrivals.
//! What it refuses to know: who carries it out, and what a scenario makes of it. Times are in
//! nanoseconds on the ground's own clock.

mod act;
mod call;
mod connection;
mod datagrams;
mod terrain;
mod transfer;

pub use act::{Act, Blockade, Cue, FIRST_LINK, Moment, Transport};
pub use call::{Call, CallRun, Talk};
pub use connection::{Congestion, Connections, KeepAlive, Pace, Patience, Session, SessionRun};
pub use datagrams::{Datagrams, DatagramsRun, What};
pub use terrain::{
    Assist, Edge, Families, Known, Load, Mode, SCHEDULERS, Spread, TRANSPORTS, Terrain,
};
pub use transfer::{Segments, Transfer, WhileUp};

use crate::arrivals::Gap;
use crate::emu::{MS, SECOND};

/// Where a story is told.
pub trait Ground {
    /// Whether time costs time.
    fn clock(&self) -> Clock;

    /// Lets time pass in which the story does nothing.
    ///
    /// # Errors
    /// See [`Trouble`]; so for all that follows.
    fn pause(&mut self, length_ns: u64) -> Result<(), Trouble>;

    /// Measures round trips from the client to the server on each of these routes, at the same
    /// time, so that what befalls one befalls the others.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn ping(&mut self, routes: &[Route], pings: Pings) -> Result<Vec<RoundTrips>, Trouble>;

    /// Lets steady flows run at the same time through the tunnel, and acts in them at the times of
    /// the script, which are in order and count from when the last of the flows is taken up. An act
    /// that is due after the longest flow's end is not done. One result for each flow; the acts
    /// stand in each of them.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn flows(&mut self, flows: &[Flow], script: &[Cue]) -> Result<Vec<FlowRun>, Trouble>;

    /// The same with one flow.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn flow(&mut self, flow: Flow, script: &[Cue]) -> Result<FlowRun, Trouble> {
        Ok(self.flows(&[flow], script)?.pop().unwrap_or_default())
    }

    /// Downloads from the server to the client and acts on the way; `listen` hears how it goes.
    ///
    /// # Errors
    /// See [`Trouble`]. A download that does not end is none.
    fn download(
        &mut self,
        download: Download,
        script: &[Cue],
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Transfer, Trouble>;

    /// Opens TCP connections of several kinds at the same time and acts meanwhile, until each has
    /// ended or broken, or `limit_ns` have passed. A list for each kind. An outage that has begun
    /// by then is ended, if the script would have.
    ///
    /// # Errors
    /// See [`Trouble`]. A connection that breaks is none.
    fn connect(
        &mut self,
        kinds: &[Connections],
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<Vec<Vec<Transfer>>, Trouble>;

    /// Lets client and server talk, with TCP connections of several kinds beside, and acts
    /// meanwhile. It ends with the talk: connections that go on then are given up. Times of the
    /// script count from the beginning.
    ///
    /// # Errors
    /// See [`Trouble`]. A connection that breaks is none, nor is a talk in which nothing is heard.
    fn call(
        &mut self,
        call: Call,
        beside: &[Connections],
        script: &[Cue],
    ) -> Result<(CallRun, Vec<Vec<Transfer>>), Trouble> {
        let (run, transfers, _) = self.call_and_pour(call, beside, None, script)?;
        Ok((run, transfers))
    }

    /// The same with one flow of datagrams beside, if there is one. It begins with the call.
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

    /// Carries one flow of datagrams through the tunnel, as long as it is asked for.
    ///
    /// # Errors
    /// See [`Trouble`]. One of which nothing is ever heard is none.
    fn pour(&mut self, datagrams: Datagrams) -> Result<DatagramsRun, Trouble>;

    /// The same as [`Self::connect`] with an interactive session.
    ///
    /// # Errors
    /// As above.
    fn session(
        &mut self,
        session: Session,
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<SessionRun, Trouble>;

    /// The most bytes that both ends of the tunnel together held for others in the outages since
    /// the last call; `None` where nobody can be asked.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn held_bytes_max(&mut self) -> Result<Option<u64>, Trouble>;

    /// Breaks something on purpose, from now on.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn harm(&mut self, harm: Harm) -> Result<(), Trouble>;

    /// Lets time pass and counts what passes the client's cards meanwhile.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn listen(&mut self, length_ns: u64) -> Result<Overheard, Trouble>;

    /// Does something while nobody says anything; from then on the server calls every client of the
    /// ground.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn call_everybody(&mut self, calling: Calling) -> Result<Vec<Called>, Trouble>;

    /// The gateway's packets and processor time so far.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn gateway_work(&mut self) -> Result<Work, Trouble>;

    /// Lets the client end and begin anew, as after a start of its host: how long, in nanoseconds,
    /// until the server has answered it through the tunnel; `None` if not within the limit.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn begin_anew(&mut self, limit_ns: u64) -> Result<Option<u64>, Trouble>;

    /// What the client says that its data goes by; `None` when by nothing.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn transport(&mut self) -> Result<Option<Transport>, Trouble>;

    /// What came to one end of the tunnel so far by each path of the session, and what telling the
    /// other end of it has cost; by all paths together where that end does not say it of each, and
    /// nothing where nobody can be asked.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn reported(&mut self, at: Receiver) -> Result<Vec<Reported>, Trouble>;

    /// Does something while nothing flows.
    ///
    /// # Errors
    /// See [`Trouble`].
    fn act(&mut self, act: Act) -> Result<Moment, Trouble>;
}

/// A talk, the connections beside it by their kinds, and the flow of datagrams if there was one.
pub type Beside = (CallRun, Vec<Vec<Transfer>>, Option<DatagramsRun>);

/// What passed the client's cards, both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overheard {
    /// Packets of the tunnel.
    pub packets: u64,
    /// Their layer-3 lengths, in bytes.
    pub bytes: u64,
}

/// What came and left by a path, and what telling the other end of it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// What names the path at its end.
    pub path: u64,
    /// What came by it, in bytes of UDP payload.
    pub came_bytes: u64,
    /// What left by it.
    pub left_bytes: u64,
    /// Inner packets among that which had left before, by this path or another.
    pub left_again: u64,
    /// Layer-3 bytes of the datagrams that did nothing but tell of it.
    pub feedback_bytes: u64,
    /// For how long it has sent without segmentation, or with a short last segment, because
    /// segmented sends lost more; in nanoseconds.
    pub fallback_ns: Option<u64>,
}

/// Packets and processor time of a gateway since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Packets of the tunnel that it sent to its clients or they to it.
    pub packets: u64,
    /// Its processor time, in nanoseconds; `None` in virtual time, where work takes none.
    pub cpu_ns: Option<u64>,
}

/// A client that was called by the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// How long after the first call the first one came, in nanoseconds, if one did.
    pub reached_ns: Option<u64>,
    /// Calls that never came.
    pub lost: u64,
}

/// How everybody is called. Times are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Calling {
    /// What is done just before the first call.
    pub act: Act,
    /// Time between two calls.
    pub every_ns: u64,
    /// For how long.
    pub length_ns: u64,
    /// How long after the first call each client says a word of its own, if it does.
    pub word_ns: Option<u64>,
}

/// Whether time costs time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// It does: stories are short.
    Real,
    /// It does not: a silence may last as long as it does in life.
    Virtual,
}

/// Why a story could not be told to its end.
#[derive(Debug)]
pub enum Trouble {
    /// What is under test broke down: a bad result, but a result.
    UnderTest(String),
    /// The lab itself could not: no result.
    Lab(anyhow::Error),
}

/// Which way packets take to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through the tunnel.
    Tunnelled,
    /// Over the very same link, without it.
    Open,
}

/// What can be broken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Harm {
    /// The link turns this share of the bits it delivers.
    BitErrors(f64),
    /// Every network that the client moves to swallows everything.
    DeadEnds,
    /// The gateway's name leads for ever to where it is now.
    StaleName,
    /// Both ends of the tunnel mangle segmented sends.
    Segments(Mangled),
}

/// Which segmented sends are mangled, and what is lost by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mangled {
    /// Those whose last segment is as long as the others are lost whole.
    EqualRuns,
    /// Those lose their last segment.
    FullLast,
    /// Each send of so many is lost whole.
    EveryNth(u32),
}

/// A series of pings.
#[derive(Clone, Copy, Debug)]
pub struct Pings {
    /// How many.
    pub count: u32,
    /// Time between two, in nanoseconds.
    pub interval_ns: u64,
}

/// A steady flow of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Who receives it.
    pub to: Receiver,
    /// How long its sender is silent before the first.
    pub silence_ns: u64,
    /// How many.
    pub count: u32,
    /// Time between two.
    pub interval_ns: u64,
}

/// Who receives a flow; the other one sends it.
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
    /// Over which route.
    pub route: Route,
    /// Bytes.
    pub length: u64,
    /// After what time it is given up, in nanoseconds.
    pub limit_ns: u64,
    /// What downloads.
    pub by: Downloader,
}

/// What downloads. In virtual time it is one connection, whatever is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downloader {
    /// One connection, one request.
    Fetch,
    /// As a browser does: several connections at once that are kept alive, each with one request
    /// after the other for a part of the file. One that breaks ends the download.
    Browser,
}

/// What is heard of a download while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum Heard<'a> {
    /// It has come this far.
    Progress {
        /// When.
        at_ns: u64,
        /// Bytes so far.
        bytes: u64,
    },
    /// Something was done.
    Done(&'a Moment),
}

/// Round trips in the order of sending, in nanoseconds; `None` where the answer was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundTrips(pub Vec<Option<u64>>);

/// How a flow went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowRun {
    /// Datagrams that never arrived.
    pub lost: u64,
    /// When nothing arrived, from the beginning to the end.
    pub gaps: Vec<Gap>,
    /// When it should have ended.
    pub end_ns: u64,
    /// What was done in it.
    pub moments: Vec<Moment>,
    /// What the tunnel adds to each datagram, in bytes; outer IP and UDP headers are not counted.
    pub added_bytes: Vec<f64>,
}

impl Flow {
    /// Payload of each datagram in bytes: that of the papers.
    pub const BYTES: u16 = 125;
    /// The usual time between two: with 125 bytes, the 1 Mbit/s of the papers.
    pub const INTERVAL_NS: u64 = MS;
    /// How long after its regular end late datagrams are waited for.
    pub const PATIENCE_NS: u64 = SECOND;

    /// A flow to the client that lasts so long.
    pub const fn lasting(length_ns: u64) -> Self {
        Self::after(0, length_ns)
    }

    /// A flow to the client that lasts so long after so much silence.
    pub const fn after(silence_ns: u64, length_ns: u64) -> Self {
        let (to, interval_ns) = (Receiver::Client, Self::INTERVAL_NS);
        Self { to, silence_ns, count: (length_ns / interval_ns) as u32, interval_ns }
    }

    /// The same flow the other way.
    pub const fn upwards(self) -> Self {
        Self { to: Receiver::Server, ..self }
    }

    /// The same length of flow with a datagram every so often.
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
    /// Those that there are, in microseconds.
    pub fn microseconds(&self) -> Vec<f64> {
        self.0.iter().flatten().map(|ns| *ns as f64 / 1e3).collect()
    }

    /// Those that there are, in milliseconds.
    pub fn milliseconds(&self) -> Vec<f64> {
        self.0.iter().flatten().map(|ns| ms(*ns)).collect()
    }

    /// What each is longer than its counterpart of another series, in microseconds; pairs of which
    /// one was lost are left out.
    pub fn longer_than(&self, other: &Self) -> Vec<f64> {
        let pairs = self.0.iter().zip(&other.0);
        pairs
            .filter_map(|pair| Some((*pair.0)? as f64 - (*pair.1)? as f64))
            .map(|ns| ns / 1e3)
            .collect()
    }
}

impl FlowRun {
    /// A flow of which `gaps` are the standstills between the `first` and the `last` arrival.
    pub fn new(start_ns: u64, end_ns: u64, arrived: Option<(u64, u64)>, gaps: Vec<Gap>) -> Self {
        let gaps = enclosed(start_ns, end_ns, arrived, gaps);
        Self { gaps, end_ns, ..Self::default() }
    }

    /// How long data stood still after each act, in milliseconds, up to the next act at most.
    pub fn still_ms(&self) -> Vec<f64> {
        let still = |(at, until): (usize, u64)| {
            ms(Gap::longest_within(&self.gaps, self.moments[at].done_ns, until))
        };
        self.windows().map(still).collect()
    }

    /// How long data stood still around each act, in milliseconds, from when the old address
    /// carried no more: it contains the time in which the client notices.
    pub fn still_from_loss_ms(&self) -> Vec<f64> {
        let still = |(at, until): (usize, u64)| {
            ms(Gap::longest_within(&self.gaps, self.moments[at].began_ns, until))
        };
        self.windows().map(still).collect()
    }

    /// How long it took until the first datagram after each act, in milliseconds.
    pub fn back_ms(&self) -> Vec<f64> {
        let back = |(at, until): (usize, u64)| {
            let from_ns = self.moments[at].done_ns;
            let open = |gap: &&Gap| gap.from_ns <= from_ns && from_ns < gap.to_ns;
            let gap = self.gaps.iter().find(open);
            ms(gap.map_or(0, |gap| gap.to_ns.min(until).saturating_sub(from_ns)))
        };
        self.windows().map(back).collect()
    }

    /// From the new address being usable to the first packet of the tunnel that comes there, for
    /// each act, in milliseconds; where none came, up to the next act.
    pub fn resumption_ms(&self) -> Vec<f64> {
        let seen = |(at, until): (usize, u64)| {
            let moment = &self.moments[at];
            ms(moment.came_ns.unwrap_or(until).saturating_sub(moment.done_ns))
        };
        self.windows().map(seen).collect()
    }

    /// From the first packet of the tunnel that leaves from there to the first that comes; where
    /// none came, up to the next act.
    pub fn signalling_ms(&self) -> Vec<f64> {
        let seen = |(at, until): (usize, u64)| {
            let moment = &self.moments[at];
            let left_ns = moment.left_ns.unwrap_or(moment.done_ns);
            ms(moment.came_ns.unwrap_or(until).saturating_sub(left_ns))
        };
        self.windows().map(seen).collect()
    }

    /// Notes for each act the first packets that left and came after it. `passed` says when each
    /// packet of the tunnel passed the client's card, in order, and whether it came.
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

    /// Each act, and when what it is to blame for ends.
    fn windows(&self) -> impl Iterator<Item = (usize, u64)> {
        (0..self.moments.len()).map(|at| {
            let next = self.moments.get(at + 1);
            (at, next.map_or(self.end_ns, |next| next.began_ns))
        })
    }
}

/// The standstills between arrivals, with those before the first and after the last.
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
