//! Two ends on an emulated link in virtual time, with a stream each way, and somebody who watches
//! that nothing is lost, altered, doubled or out of order and no window violated.

use std::fmt;

use super::end::{Config, End, Ending, State};
use super::segment::Segment;
use super::side::Side;
use super::stream::{Sink, Source, Spoiled};
use super::witness::Witness;
use crate::emu::{
    Carrier, End as LinkEnd, Internet, IpPacket, LinkConfig, LinkId, NodeId, earliest,
};

/// Bytes that are handed to an end at a time.
const CHUNK: usize = 64 << 10;

/// What two ends are to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What lies between them; up is from the client.
    pub link: LinkConfig,
    /// The end that opens.
    pub client: Config,
    /// The other.
    pub server: Config,
    /// Bytes from the client, and from the server.
    pub upload: u64,
    /// See `upload`.
    pub download: u64,
    /// Each end closes after its last byte.
    pub closes: bool,
    /// All chance of the link, and the streams, follow from it.
    pub seed: u64,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A stream that did not arrive as it was sent.
    Stream(Side, Spoiled),
    /// A window was violated.
    Window(String),
    /// An end wants to be called for what it has just done.
    Restless(Side),
    /// The plan was not carried out in time, in nanoseconds.
    Late(u64),
}

/// A packet that passed the client's card, as a capture there shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// It left; else it arrived.
    pub out: bool,
    /// The packet.
    pub packet: Vec<u8>,
}

/// The two ends and what is between them.
#[derive(Debug)]
pub struct Trial {
    net: Internet<IpPacket>,
    link: LinkId,
    now_ns: u64,
    client: Party,
    server: Party,
    witness: Witness,
    passed: Option<Vec<Passed>>,
}

#[derive(Debug)]
struct Party {
    end: End,
    host: NodeId,
    source: Source,
    length: u64,
    /// Made, but there was no room for it.
    waiting: Vec<u8>,
    closes: bool,
    sink: Sink,
    reads: bool,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stream(side, spoiled) => write!(f, "at the {side:?}: {spoiled}"),
            Self::Window(what) => f.write_str(what),
            Self::Restless(side) => write!(f, "the {side:?} is due again at once"),
            Self::Late(at_ns) => write!(f, "not done after {} ms", at_ns / crate::emu::MS),
        }
    }
}

impl std::error::Error for Violation {}

impl Trial {
    /// Both ends, before anything has left.
    pub fn new(plan: &Plan) -> Self {
        let mut net = Internet::new(plan.seed);
        let (client, server) = (net.host(), net.host());
        let link = net.connect(client, server, plan.link.clone());
        let (up, down) = (plan.seed ^ 1, plan.seed ^ 2);
        let party = |end, host, length, sends, expects| Party {
            end,
            host,
            source: Source::new(sends),
            length,
            waiting: Vec::new(),
            closes: plan.closes,
            sink: Sink::new(expects),
            reads: true,
        };
        let (opens, waits) = (End::connect(plan.client, 0), End::listen(plan.server));
        Self {
            net,
            link,
            now_ns: 0,
            client: party(opens, client, plan.upload, up, down),
            server: party(waits, server, plan.download, down, up),
            witness: Witness::default(),
            passed: None,
        }
    }

    /// Keeps what passes the client's card from now on, for [`Trial::take_passed`].
    pub fn capture(&mut self) {
        self.passed.get_or_insert_default();
    }

    /// What has passed the client's card since the last call.
    pub fn take_passed(&mut self) -> Vec<Passed> {
        self.passed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The time, in nanoseconds.
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// One of the ends.
    pub const fn end(&self, side: Side) -> &End {
        match side {
            Side::Client => &self.client.end,
            Side::Server => &self.server.end,
        }
    }

    /// One of the ends, to do something with.
    pub const fn end_mut(&mut self, side: Side) -> &mut End {
        &mut self.party(side).end
    }

    /// Plugs, unplugs or blackholes the link.
    pub fn set_link(&mut self, carrier: Carrier) {
        self.net.set_link(self.now_ns, self.link, carrier);
    }

    /// Makes the link like this from now on.
    pub fn set_config(&mut self, config: &LinkConfig) {
        self.net.set_config(self.now_ns, self.link, LinkEnd::A, config.up.clone());
        self.net.set_config(self.now_ns, self.link, LinkEnd::B, config.down.clone());
    }

    /// A packet from nowhere arrives at a side.
    pub fn inject(&mut self, side: Side, packet: &[u8]) {
        let now_ns = self.now_ns;
        self.party(side).end.arrives(now_ns, packet);
    }

    /// Makes a side read what arrives, or leave it.
    pub const fn set_reading(&mut self, side: Side, reads: bool) {
        self.party(side).reads = reads;
    }

    /// Bytes that a side has read, all of them right.
    pub const fn read(&self, side: Side) -> u64 {
        match side {
            Side::Client => self.client.sink.position(),
            Side::Server => self.server.sink.position(),
        }
    }

    /// Whether both ends are closed or only remember.
    pub fn is_over(&self) -> bool {
        let over = |end: &End| matches!(end.state(), State::TimeWait | State::Closed);
        over(&self.client.end) && over(&self.server.end)
    }

    /// Runs until both streams have arrived and both ends are closed in order.
    ///
    /// # Errors
    /// What was violated; [`Violation::Late`] when it is not done by `limit_ns`, or never will be.
    pub fn finish(&mut self, limit_ns: u64) -> Result<(), Violation> {
        while !self.is_over() {
            if !self.step(limit_ns)? {
                return Err(Violation::Late(self.now_ns));
            }
        }
        for side in [Side::Client, Side::Server] {
            self.serve(side)?;
        }
        let complete = |party: &Party, from: &Party| {
            let orderly = party.end.ending().is_none_or(|ending| ending == Ending::Finished);
            orderly && party.sink.position() == from.length
        };
        let both = complete(&self.client, &self.server) && complete(&self.server, &self.client);
        if both { Ok(()) } else { Err(Violation::Late(self.now_ns)) }
    }

    /// Lets time pass until `until_ns`.
    ///
    /// # Errors
    /// What was violated.
    pub fn pass(&mut self, until_ns: u64) -> Result<(), Violation> {
        while self.step(until_ns)? {}
        self.now_ns = self.now_ns.max(until_ns);
        Ok(())
    }

    /// Does all there is to do at this moment and goes on to the next; says whether there is one
    /// by `until_ns`.
    fn step(&mut self, until_ns: u64) -> Result<bool, Violation> {
        for side in [Side::Client, Side::Server] {
            self.serve(side)?;
        }
        let due = [self.client.end.due_ns(), self.server.end.due_ns(), self.net.poll_timeout()];
        let Some(next_ns) = earliest(due).filter(|next| *next <= until_ns) else {
            return Ok(false);
        };
        self.now_ns = self.now_ns.max(next_ns);
        while let Some(delivery) = self.net.poll_delivery(self.now_ns) {
            let at_client = delivery.host == self.client.host;
            let side = if at_client { Side::Client } else { Side::Server };
            let packet = delivery.frame.bytes();
            if let Ok(segment) = Segment::parse(packet) {
                self.witness.arrives(side, &segment);
            }
            self.note(side, false, packet);
            let now_ns = self.now_ns;
            self.party(side).end.arrives(now_ns, packet);
            self.serve(side)?;
        }
        Ok(true)
    }

    /// A side reads, writes, and lets leave what leaves.
    fn serve(&mut self, side: Side) -> Result<(), Violation> {
        let now_ns = self.now_ns;
        let party = self.party(side);
        party.read().map_err(|spoiled| Violation::Stream(side, spoiled))?;
        party.write();
        if party.end.due_ns().is_none_or(|due_ns| due_ns > now_ns) {
            return Ok(());
        }
        let packets = party.end.leaving(now_ns);
        let host = party.host;
        if party.end.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            return Err(Violation::Restless(side));
        }
        for packet in packets {
            if let Ok(segment) = Segment::parse(&packet) {
                self.witness.leaves(side, &segment).map_err(Violation::Window)?;
            }
            self.note(side, true, &packet);
            self.net.push(now_ns, host, self.link, IpPacket::new(packet));
        }
        Ok(())
    }

    fn note(&mut self, side: Side, out: bool, packet: &[u8]) {
        if let (Some(passed), Side::Client) = (&mut self.passed, side) {
            passed.push(Passed { at_ns: self.now_ns, out, packet: packet.to_vec() });
        }
    }

    const fn party(&mut self, side: Side) -> &mut Party {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }
}

impl Party {
    fn read(&mut self) -> Result<(), Spoiled> {
        if self.reads && self.end.unread() > 0 {
            let bytes = self.end.read(usize::MAX);
            self.sink.check(&bytes)?;
        }
        Ok(())
    }

    fn write(&mut self) {
        loop {
            if self.waiting.is_empty() {
                let left = self.length - self.source.position();
                self.waiting = self.source.take(left.min(CHUNK as u64) as usize);
            }
            if self.waiting.is_empty() {
                if self.closes {
                    self.end.close();
                }
                return;
            }
            let taken = self.end.write(&self.waiting);
            self.waiting.drain(..taken);
            if taken == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "trial_tests.rs"]
mod tests;
