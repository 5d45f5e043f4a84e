//! TCP connections between a client and the server behind the gateway, whose ends are a model of
//! the kernel's ([`crate::tcp`]).
//!
//! Each end stands behind a host's TUN, or at an end of the bare link: it makes whole packets and
//! takes whole packets, and knows nothing of what carries them. Over each runs a [`Program`] at
//! either end, which compares every byte with what was sent.
//!
//! Decides whose turn it is and which packet belongs to whom. What it refuses to know: what carries
//! packets. A machine that sleeps does so with its programs and its kernel: their timers stand
//! still, as those of Linux do. The server never sleeps, also while the gateway before it does.

mod capture;
mod crossing;
mod heard;
mod ports;
mod program;
mod sent;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use super::inner::{address, address_by, server, server_by};
use super::laws::{Breach, Law, Promised};
use crate::emu::{Endpoints, Frame as _, IpPacket, Protocol, Rng, earliest};
use crate::ground::Version;
use crate::tcp::{Config, End, Ending, State};
use capture::Capture;
use crossing::Crossing;
pub(super) use heard::Heard;
pub(super) use ports::SERVER_PORT;
use ports::{number, ports};
pub(super) use program::{Carrier, Program, Reading, Saying};
pub(super) use session::{Shell, Terminal};

/// What a packet of the server's may have: it knows nothing of the tunnel.
const SERVER_MTU: u16 = 1_500;
/// Bytes of the headers of IPv4 and IPv6, and of the fixed part of TCP's.
const IP_HEADERS: [usize; 2] = [20, 40];
const TCP_HEADER: usize = 20;
/// How a packet of IPv6 begins.
const FIRST_V6: u8 = 0x60;

/// A connection by number: the first is 0.
pub(super) type Number = u32;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// The client, which opens it.
    Client,
    /// The server.
    Server,
}

/// What stands at one end.
#[derive(Debug)]
pub(super) struct Party {
    /// How its TCP is set up.
    pub(super) config: Config,
    /// What uses it.
    pub(super) program: Program,
}

/// Every connection that was ever opened.
#[derive(Debug)]
pub(super) struct Connections {
    seed: Rng,
    next: Number,
    open: BTreeMap<Number, Connection>,
    /// Whose turn is when.
    due: BTreeSet<(u64, Number, Side)>,
    /// Those that have neither ended nor broken.
    going_on: BTreeSet<Number>,
    /// What has come to an end's machine and not to the end.
    crossing: Crossing,
    /// Clients that sleep, and since when.
    asleep: BTreeMap<usize, u64>,
    /// How long each has slept before.
    slept_ns: BTreeMap<usize, u64>,
    capture: Option<Capture>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    client: usize,
    /// It goes beside the tunnel.
    is_open: bool,
    ends: [AtEnd; 2],
    outcome: Option<Outcome>,
    /// Nobody is left who could tell the server what became of the gateway's promise.
    is_given_up: bool,
}

/// What became of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// When.
    pub(super) at_ns: u64,
    /// What broke it, in the words of the end that noticed; `None` when both ends have heard all.
    pub(super) broke: Option<&'static str>,
}

#[derive(Debug)]
struct AtEnd {
    end: End,
    program: Program,
    due_ns: Option<u64>,
    /// Bytes that had arrived before the machine began anew.
    arrived_before: u64,
}

/// A packet that leaves an end.
#[derive(Debug)]
pub(super) struct Leaving {
    /// The client whose connection it is.
    pub(super) client: usize,
    /// Which end it leaves.
    pub(super) side: Side,
    /// It goes beside the tunnel.
    pub(super) is_open: bool,
    /// IP header first.
    pub(super) packet: Vec<u8>,
}

impl Side {
    const BOTH: [Self; 2] = [Self::Client, Self::Server];
}

impl Connections {
    /// None yet. All chance follows from `seed`.
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed: Rng::new(seed).fork(0x7463_7063),
            next: 0,
            open: BTreeMap::new(),
            due: BTreeSet::new(),
            going_on: BTreeSet::new(),
            crossing: Crossing::default(),
            asleep: BTreeMap::new(),
            slept_ns: BTreeMap::new(),
            capture: None,
        }
    }

    /// How both ends of the next connection of a client, to this one of the server's addresses, are
    /// set up where nobody wants it otherwise: as Linux is, without Nagle's delay.
    pub(super) fn configs(&self, client: usize, number: u8, client_mtu: u16) -> [Config; 2] {
        let (server_port, client_port) = ports(self.next);
        let here = SocketAddr::from((address(client), client_port));
        let there = SocketAddr::from((server(number), server_port));
        let mut seed = self.seed.fork(u64::from(self.next));
        let mut config = |local, remote, mtu| Config {
            mtu,
            no_delay: true,
            ..Config::new(local, remote, seed.next_u64())
        };
        [config(here, there, client_mtu), config(there, here, SERVER_MTU)]
    }

    /// The same by another version of IP.
    pub(super) fn configs_by(
        &self,
        version: Version,
        client: usize,
        number: u8,
        client_mtu: u16,
    ) -> [Config; 2] {
        let [mut here, mut there] = self.configs(client, number, client_mtu);
        let (of_client, of_server) = (address_by(version, client), server_by(version, number));
        for (config, local, remote) in
            [(&mut here, of_client, of_server), (&mut there, of_server, of_client)]
        {
            config.local.set_ip(local);
            config.remote.set_ip(remote);
        }
        [here, there]
    }

    /// The client opens a connection. The parties' addresses are those of [`Self::configs`], asked
    /// for since the last one was opened.
    pub(super) fn open(&mut self, now_ns: u64, client: usize, parties: [Party; 2]) -> Number {
        let number = self.next;
        self.next += 1;
        let [opens, waits] = parties;
        let since_ns = self.clock(now_ns, client, Side::Client);
        let at = |end, program| AtEnd { end, program, due_ns: None, arrived_before: 0 };
        let ends = [
            at(End::connect(opens.config, since_ns), opens.program),
            at(End::listen(waits.config), waits.program),
        ];
        let (outcome, is_open, is_given_up) = (None, false, false);
        self.open.insert(number, Connection { client, is_open, ends, outcome, is_given_up });
        self.going_on.insert(number);
        Side::BOTH.into_iter().for_each(|side| self.arm(number, side));
        number
    }

    /// A connection that was just opened goes beside the tunnel.
    pub(super) fn set_open(&mut self, number: Number) {
        if let Some(one) = self.open.get_mut(&number) {
            one.is_open = true;
        }
    }

    /// Both ends give a connection up, if they have not ended it.
    pub(super) fn abort(&mut self, now_ns: u64, number: Number) {
        let Some(client) = self.open.get(&number).map(|one| one.client) else { return };
        for side in Side::BOTH {
            let clock_ns = self.clock(now_ns, client, side);
            if let Some(one) = self.open.get_mut(&number) {
                one.ends[side as usize].end.abort(clock_ns);
            }
            self.arm(number, side);
        }
        self.going_on.remove(&number);
    }

    /// The same with every one that has not ended at both ends.
    pub(super) fn abort_all(&mut self, now_ns: u64) {
        let open = |(number, one): (&Number, &Connection)| (!one.is_forgotten()).then_some(*number);
        let open: Vec<Number> = self.open.iter().filter_map(open).collect();
        open.into_iter().for_each(|number| self.abort(now_ns, number));
    }

    /// A client was revoked while the gateway's process was not there: what that had promised for
    /// it, no other one can take back.
    pub(super) fn give_up(&mut self, client: usize) {
        let of_it = self.open.values_mut().filter(|one| one.client == client);
        of_it.for_each(|one| one.is_given_up = true);
    }

    /// What the ends believe, and what is so, in both directions of every connection.
    pub(super) fn promised(&self) -> impl Iterator<Item = Promised> {
        let directions = [(Side::Client, Side::Server), (Side::Server, Side::Client)];
        self.open.iter().flat_map(move |(number, one)| {
            directions.map(|(from, to)| {
                let [sender, receiver] = [from, to].map(|side| &one.ends[side as usize]);
                Promised {
                    who: format!("connection {number} of client {}, from the {from:?}", one.client),
                    acknowledged: sender.acknowledged(),
                    arrived: receiver.arrived(),
                    knows: (one.is_given_up && from == Side::Server)
                        || sender.end.ending().is_some_and(|ending| why(ending).is_some()),
                }
            })
        })
    }

    /// One of them.
    pub(super) fn get(&self, number: Number) -> Option<&Connection> {
        self.open.get(&number)
    }

    /// From now on what passes the ends is kept.
    pub(super) fn capture(&mut self) {
        self.capture.get_or_insert_default();
    }

    /// What has passed the clients' ends, and the servers', as pcap files.
    pub(super) fn captured(&self) -> Option<[Vec<u8>; 2]> {
        self.capture.as_ref().map(Capture::files)
    }

    /// How many there ever were.
    pub(super) const fn opened(&self) -> u32 {
        self.next
    }

    /// Whether there ever was one.
    pub(super) const fn were_any(&self) -> bool {
        self.next > 0
    }

    /// Whether any has neither ended nor broken.
    pub(super) fn any_goes_on(&self) -> bool {
        !self.going_on.is_empty()
    }

    /// When an end has something to do next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let due_ns = self.due.first().map(|&(due_ns, _, _)| due_ns);
        earliest([due_ns, self.crossing.next_ns()])
    }

    /// What leaves now; the ends that are due have their turn, after what has come to them.
    ///
    /// # Errors
    /// A byte that is not what was sent, or an end that never rests.
    pub(super) fn leaving(&mut self, now_ns: u64) -> Result<Vec<Leaving>, Breach> {
        while let Some((number, side, packet)) = self.crossing.pop(now_ns) {
            self.reaches(now_ns, number, side, &packet);
        }
        let mut leaving = Vec::new();
        let later = self.due.split_off(&(now_ns + 1, 0, Side::Client));
        let due = std::mem::replace(&mut self.due, later);
        for (_, number, side) in due {
            self.take_turn(now_ns, number, side, &mut leaving)?;
        }
        Ok(leaving)
    }

    fn take_turn(
        &mut self,
        now_ns: u64,
        number: Number,
        side: Side,
        leaving: &mut Vec<Leaving>,
    ) -> Result<(), Breach> {
        let Some(client) = self.open.get(&number).map(|one| one.client) else { return Ok(()) };
        let clock_ns = self.clock(now_ns, client, side);
        let Some(one) = self.open.get_mut(&number) else { return Ok(()) };
        let at = &mut one.ends[side as usize];
        at.due_ns = None;
        at.program.run(now_ns, &mut at.end).map_err(|what| {
            let what = format!("connection {number} of client {client}, at the {side:?}: {what}");
            Breach::new(Law::Promise, what)
        })?;
        if at.end.due_ns().is_some_and(|due_ns| due_ns <= clock_ns) {
            let packets = at.end.leaving(clock_ns);
            if let Some(capture) = &mut self.capture {
                packets.iter().for_each(|packet| capture.note(now_ns, side, packet));
            }
            let is_open = one.is_open;
            let packets = packets.into_iter();
            leaving.extend(packets.map(|packet| Leaving { client, side, is_open, packet }));
        }
        if at.end.due_ns().is_some_and(|due_ns| due_ns <= clock_ns) {
            let what = format!("connection {number}: the {side:?} is due again at once");
            return Err(Breach::new(Law::Timeout, what));
        }
        if one.outcome.is_none()
            && let Some(broke) = one.is_over()
        {
            one.outcome = Some(Outcome { at_ns: now_ns, broke });
            self.going_on.remove(&number);
        }
        if one.is_forgotten() {
            one.ends.iter_mut().for_each(|at| at.program.rest());
        }
        self.arm(number, side);
        Ok(())
    }

    /// Whether a packet belongs to a connection: it came out at a client, or at the gateway.
    pub(super) fn whose(&self, at: Option<usize>, packet: &IpPacket) -> Option<(Number, Side)> {
        let Endpoints { protocol: Protocol::Tcp, source, destination } = packet.endpoints()? else {
            return None;
        };
        let (side, here, there) = match at {
            Some(_) => (Side::Client, destination, source),
            None => (Side::Server, source, destination),
        };
        let number = number(here.port(), there.port())?;
        let one = self.open.get(&number)?;
        let of_client = at.is_none_or(|client| client == one.client);
        let Config { local, remote, .. } = one.ends[Side::Client as usize].end.config();
        let ends = [local.ip(), remote.ip()];
        (of_client && [here.ip(), there.ip()] == ends).then_some((number, side))
    }

    /// A packet arrives at an end's machine.
    pub(super) fn arrives(&mut self, now_ns: u64, number: Number, side: Side, packet: IpPacket) {
        self.crossing.begin(now_ns, number, side, packet);
    }

    /// And comes to the end.
    fn reaches(&mut self, now_ns: u64, number: Number, side: Side, packet: &IpPacket) {
        let Some(client) = self.open.get(&number).map(|one| one.client) else { return };
        let clock_ns = self.clock(now_ns, client, side);
        let Some(one) = self.open.get_mut(&number) else { return };
        if let Some(capture) = &mut self.capture {
            capture.note(now_ns, side, packet.bytes());
        }
        let at = &mut one.ends[side as usize];
        at.end.arrives(clock_ns, packet.bytes());
        self.set_due(number, side, Some(now_ns));
    }

    /// A client goes to sleep. What its machine has by then does not have to come again.
    pub(super) fn sleeps(&mut self, now_ns: u64, client: usize) {
        for (number, packet) in self.take_crossing(client) {
            self.reaches(now_ns, number, Side::Client, &packet);
        }
        self.asleep.entry(client).or_insert(now_ns);
        self.arm_client(client);
    }

    /// And wakes up.
    pub(super) fn wakes(&mut self, now_ns: u64, client: usize) {
        if let Some(since_ns) = self.asleep.remove(&client) {
            *self.slept_ns.entry(client).or_default() += now_ns - since_ns;
        }
        self.arm_client(client);
    }

    /// A client's machine begins anew: it knows of no connection, and refuses what is said to it.
    pub(super) fn begins_anew(&mut self, client: usize) {
        self.asleep.remove(&client);
        self.take_crossing(client);
        let ours =
            |(number, one): (&Number, &Connection)| (one.client == client).then_some(*number);
        let ours: Vec<Number> = self.open.iter().filter_map(ours).collect();
        for number in ours {
            if let Some(one) = self.open.get_mut(&number) {
                let at = &mut one.ends[Side::Client as usize];
                at.arrived_before = at.arrived();
                at.end = End::listen(*at.end.config());
                at.program = Program::None;
            }
            self.arm(number, Side::Client);
        }
    }

    /// What has come to a client's machine and not to its ends.
    fn take_crossing(&mut self, client: usize) -> Vec<(Number, IpPacket)> {
        let open = &self.open;
        let is_its = |number| open.get(&number).is_some_and(|one| one.client == client);
        self.crossing.take(|number, side| side == Side::Client && is_its(number))
    }

    fn arm_client(&mut self, client: usize) {
        let ours =
            |(number, one): (&Number, &Connection)| (one.client == client).then_some(*number);
        let ours: Vec<Number> = self.open.iter().filter_map(ours).collect();
        ours.into_iter().for_each(|number| self.arm(number, Side::Client));
    }

    /// What the clock of an end's kernel shows: it stands still while its machine sleeps.
    fn clock(&self, now_ns: u64, client: usize, side: Side) -> u64 {
        now_ns - self.behind_ns(client, side)
    }

    fn behind_ns(&self, client: usize, side: Side) -> u64 {
        match side {
            Side::Client => self.slept_ns.get(&client).copied().unwrap_or(0),
            Side::Server => 0,
        }
    }

    /// Sees to it that an end has its turn when it wants it.
    fn arm(&mut self, number: Number, side: Side) {
        let Some(one) = self.open.get(&number) else { return };
        let AtEnd { end, program, .. } = &one.ends[side as usize];
        let behind_ns = self.behind_ns(one.client, side);
        let of_end = end.due_ns().map(|due_ns| due_ns.saturating_add(behind_ns));
        let due_ns = earliest([of_end, program.due_ns(end)]);
        let sleeps = side == Side::Client && self.asleep.contains_key(&one.client);
        self.set_due(number, side, due_ns.filter(|_| !sleeps));
    }

    fn set_due(&mut self, number: Number, side: Side, due_ns: Option<u64>) {
        let Some(one) = self.open.get_mut(&number) else { return };
        let before = std::mem::replace(&mut one.ends[side as usize].due_ns, due_ns);
        if let Some(before_ns) = before {
            self.due.remove(&(before_ns, number, side));
        }
        self.due.extend(due_ns.map(|due_ns| (due_ns, number, side)));
    }
}

impl AtEnd {
    /// Bytes that the other end has, as far as this one knows.
    fn acknowledged(&self) -> u64 {
        self.program.said().saturating_sub(self.end.unacknowledged() as u64)
    }

    /// Bytes that have arrived here in order, ever.
    fn arrived(&self) -> u64 {
        self.arrived_before.max(self.end.delivered())
    }
}

impl Connection {
    /// Whose it is.
    pub(super) const fn client(&self) -> usize {
        self.client
    }

    /// What its programs have heard, if they keep it.
    pub(super) fn heard(&self) -> impl Iterator<Item = &Heard> {
        self.ends.iter().filter_map(|at| at.program.heard())
    }

    /// What runs at one end.
    pub(super) const fn program(&self, side: Side) -> &Program {
        &self.ends[side as usize].program
    }

    /// What became of it, if it is over.
    pub(super) const fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// Whether it is over, and if so what broke it.
    fn is_over(&self) -> Option<Option<&'static str>> {
        if self.ends.iter().all(|at| at.program.has_heard_all()) {
            return Some(None);
        }
        let broken = self.ends.iter().find_map(|at| why(at.end.ending()?));
        broken.map(Some)
    }

    fn is_forgotten(&self) -> bool {
        self.ends.iter().all(|at| at.end.state() == State::Closed)
    }
}

/// What broke a connection, as the kernel says it; nothing where it ended in order.
const fn why(ending: Ending) -> Option<&'static str> {
    match ending {
        Ending::Finished => None,
        Ending::ResetByPeer => Some("connection reset by peer"),
        Ending::Aborted => Some("connection aborted"),
        Ending::Refused => Some("connection refused"),
        Ending::Unanswered => Some("connection never opened"),
        Ending::TimedOut => Some("connection timed out"),
        Ending::KeepAlive => Some("connection timed out: keep-alives were not answered"),
    }
}

/// A packet as a tunnel device hands it over, and the bytes of its first part: all of them, or
/// those of the headers.
pub(super) fn in_parts(packet: Vec<u8>) -> (Vec<u8>, usize) {
    let ip = IP_HEADERS[usize::from(packet.first() >= Some(&FIRST_V6))];
    let headers =
        packet.get(ip + TCP_HEADER / 2 + 2).map_or(0, |words| ip + usize::from(words >> 4) * 4);
    // Either happens; which one follows from the packet.
    let is_odd = packet.get(ip + 7).is_some_and(|sequence| sequence % 2 == 1);
    let head = if is_odd { headers.min(packet.len()) } else { packet.len() };
    (packet, head)
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
