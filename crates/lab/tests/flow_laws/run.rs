//! One run of a plan: programs, their ends, two nodes and what lies between, in virtual time, and
//! the laws that hold after every step and in the end.

use std::fmt;

use rove_lab::emu::{
    Carrier, Delivery, End as LinkEnd, Internet, IpPacket, LinkConfig, LinkId, MS, NodeId, Rate,
    SECOND,
};
use rove_lab::tcp::{End, Ending, Spoiled};
use rove_proto::flow::tuple::Tuple;
use rove_proto::flow::{Hold, Output};
use rove_proto::wire::inner::TCP;

use super::node::{Fault, Node};
use super::plan::{Air, Event, Plan, SIDES};
use super::program::Program;
use super::tell::tell;

/// After everything has happened, all is over by then.
const REST_NS: u64 = 4_000 * SECOND;
/// Things that may happen at one moment.
const STEPS_MAX: u32 = 100_000;
/// Turns of a node in one second at which it says nothing: it paces by the millisecond.
const IDLE_TURNS_MAX: u64 = 2_000;
/// What a connection needs beside two round trips to go on after the way is back: what was sent
/// twice on its way to who had it already goes first.
const GOES_ON_NS: u64 = 400 * MS;
/// How long a reset may be on its way to whom it tells that what was promised will not happen.
const RESET_NS: u64 = 2 * SECOND;
/// How much later the way back is seen by one that dawdles.
const DAWDLES_NS: u64 = 5 * SECOND;

/// A law that was broken, by which connection and side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A program read what was not written.
    Stream(usize, usize, Spoiled),
    /// Bytes were acknowledged, never arrived, and their sender does not know: so many, of so many.
    Lost(usize, usize, u64, u64),
    /// Bytes were acknowledged by a node that is to acknowledge nothing.
    Acknowledged(usize, usize),
    /// Bytes were acknowledged before that was written down.
    Unwritten(usize, usize),
    /// An end was acknowledged that the other has not heard of.
    EndedAlone(usize, usize),
    /// A connection ended that a patient path would have kept.
    Died(usize, usize, Ending),
    /// A connection did not go on after the way was back.
    Stuck(usize, usize),
    /// It never came to its end: so much arrived, of so much.
    Unfinished(usize, usize, u64, u64),
    /// More memory was held than allowed, or some in the end: side and bytes.
    Memory(usize, usize),
    /// Something is written down of which nothing is owed.
    Unstruck(usize, Tuple),
    /// A packet that is none.
    Malformed(usize, usize),
    /// It never comes to rest.
    Restless(usize),
}

/// What was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Report {
    /// The most bytes that somebody was told had arrived, and had not.
    pub(super) owed_max: u64,
    /// Connections that were reset.
    pub(super) resets: u32,
    /// Connections on which everything arrived and both sides closed.
    pub(super) finished: u32,
    /// Returns of the way after which it was watched that a connection goes on.
    pub(super) watched: u32,
    /// Connections that a process found written down by the one before.
    pub(super) broken_off: u32,
    /// Virtual time that it took.
    pub(super) took_ns: u64,
}

/// The run.
#[derive(Debug)]
pub(super) struct Run<'a> {
    plan: &'a Plan,
    fault: Option<Fault>,
    net: Internet<IpPacket>,
    /// Where programs are, where nodes are, and what joins them.
    places: [[NodeId; 2]; 2],
    legs: [LinkId; 2],
    tunnel: LinkId,
    now_ns: u64,
    programs: Vec<[Program; 2]>,
    nodes: [Node; 2],
    is_cut: bool,
    agenda: Vec<(u64, Event)>,
    watches: Vec<Watch>,
    /// Since when somebody relies on a side's node that would not know after a crash.
    unsure_ns: Vec<[Option<u64>; 2]>,
    /// Connections of which one end gave up while its own node took a lost way for a way, or had
    /// done so until a moment ago, or heard nothing of it: nobody could have spoken for the other.
    died_unseen: Vec<bool>,
    /// When a side's node noticed last that the way is lost.
    noticed_ns: [u64; 2],
    /// Since when idle turns are counted, and how many there were before.
    second: (u64, [u64; 2]),
    report: Report,
    /// Prints what happens.
    tells: bool,
}

/// By then more than that has to have arrived of what a side sends.
#[derive(Clone, Copy, Debug)]
struct Watch {
    connection: usize,
    sender: usize,
    by_ns: u64,
    arrived: u64,
    /// Whether it was put off by what was sent since.
    is_late: bool,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl<'a> Run<'a> {
    pub(super) fn new(plan: &'a Plan, fault: Option<Fault>) -> Self {
        let mut net = Internet::new(plan.seed);
        let places = SIDES.map(|_| [net.host(), net.host()]);
        let legs = SIDES.map(|side| {
            let [programs, node] = places[side];
            net.connect(programs, node, plan.legs[side].clone())
        });
        let tunnel = net.connect(places[0][1], places[1][1], plan.tunnel.clone());
        let seed = |side: usize| plan.seed ^ (side as u64 + 11);
        let nodes = SIDES.map(|side| {
            let holds = (plan.holds[side], plan.assists);
            Node::new(holds, plan.memory[side], seed(side), fault)
        });
        let mut agenda = plan.agenda.clone();
        agenda.reverse();
        let second = (0, [0; 2]);
        Self {
            plan,
            fault,
            net,
            places,
            legs,
            tunnel,
            now_ns: 0,
            programs: Vec::new(),
            nodes,
            is_cut: false,
            agenda,
            watches: Vec::new(),
            unsure_ns: vec![[None; 2]; plan.connections.len()],
            died_unseen: vec![false; plan.connections.len()],
            noticed_ns: [0; 2],
            second,
            report: Report::default(),
            tells: false,
        }
        .with_programs()
    }

    /// The same, which prints every packet.
    pub(super) fn telling(self) -> Self {
        Self { tells: true, ..self }
    }

    fn with_programs(mut self) -> Self {
        for (nth, connection) in self.plan.connections.iter().enumerate() {
            let stream = |side: usize| self.plan.seed ^ ((nth as u64 + 1) << 8) ^ side as u64;
            self.programs.push(SIDES.map(|side| {
                let party = &connection.parties[side];
                let end = if side == connection.opener {
                    End::connect(party.config, connection.opens_ns)
                } else {
                    End::listen(party.config)
                };
                Program::new(party, end, (stream(side), stream(1 - side)))
            }));
        }
        self
    }

    /// Runs it to its end.
    pub(super) fn finish(mut self) -> Result<Report, Broken> {
        let end_ns = self.plan.calm_ns() + REST_NS;
        let (mut steps, mut before_ns) = (0, 0);
        while let Some(next_ns) = self.next_ns().filter(|&next_ns| next_ns <= end_ns) {
            self.now_ns = self.now_ns.max(next_ns);
            steps = if self.now_ns == before_ns { steps + 1 } else { 0 };
            before_ns = self.now_ns;
            if steps > STEPS_MAX {
                return Err(Broken::Restless(2));
            }
            self.step()?;
            if self.is_at_rest() {
                break;
            }
        }
        self.judge_the_end()?;
        self.report.took_ns = self.now_ns;
        Ok(self.report)
    }

    fn next_ns(&self) -> Option<u64> {
        let mut due = vec![self.net.poll_timeout(), self.agenda.last().map(|&(at_ns, _)| at_ns)];
        due.extend(self.nodes.iter().map(Node::due_ns));
        for (connection, programs) in self.plan.connections.iter().zip(&self.programs) {
            if self.now_ns < connection.opens_ns {
                due.push(Some(connection.opens_ns));
            } else {
                due.extend(programs.iter().map(|program| program.due_ns(self.now_ns)));
            }
        }
        due.extend(self.watches.iter().map(|watch| Some(watch.by_ns)));
        due.into_iter().flatten().min()
    }

    /// All there is to do at this moment.
    fn step(&mut self) -> Result<(), Broken> {
        while self.agenda.last().is_some_and(|&(at_ns, _)| at_ns <= self.now_ns) {
            let event = self.agenda.pop().map(|(_, event)| event);
            event.into_iter().for_each(|event| self.happens(event));
        }
        while let Some(Delivery { host, link, frame, .. }) = self.net.poll_delivery(self.now_ns) {
            self.delivered(host, link, frame.bytes().to_vec());
        }
        for side in SIDES {
            self.serve_programs(side)?;
            self.serve_node(side)?;
        }
        self.judge()
    }

    fn happens(&mut self, event: Event) {
        let now_ns = self.now_ns;
        if self.tells {
            println!("{:>12} us  *** {event:?}", now_ns / 1_000);
        }
        match event {
            Event::Cut => {
                self.is_cut = true;
                self.watches.clear();
                self.net.set_link(now_ns, self.tunnel, Carrier::BlackHole);
            }
            Event::Mend(other) => {
                self.is_cut = false;
                self.net.set_link(now_ns, self.tunnel, Carrier::Up);
                other.iter().for_each(|other| self.set_link(self.tunnel, other));
            }
            Event::Lost(side) => {
                self.watches.clear();
                self.noticed_ns[side] = now_ns;
                self.nodes[side].suspend(now_ns);
            }
            Event::Back(side) if self.fault == Some(Fault::Dawdles) => {
                let late = (now_ns + DAWDLES_NS, Event::Back(side));
                self.agenda.push(late);
                self.agenda.sort_by_key(|&(at_ns, _)| std::cmp::Reverse(at_ns));
                self.fault = None;
                self.watch();
            }
            Event::Back(side) => self.comes_back(side),
            Event::Asks(side) => {
                let news = self.nodes[side].news();
                news.into_iter().for_each(|packet| self.send_on(side, packet));
            }
            Event::Crash(side) => {
                self.watches.clear();
                self.nodes[side].crash();
            }
            Event::Restart(side) => {
                self.report.broken_off += self.nodes[side].book.len() as u32;
                self.nodes[side].start(now_ns);
            }
            Event::End(side) => {
                // The last word is said once: what the leg made of it would be nobody's fault.
                self.calm_link(self.legs[side]);
                let last = self.nodes[side].end();
                last.into_iter().for_each(|packet| self.hand_out(side, packet));
            }
            Event::Calm => self.calm(),
        }
    }

    /// A side knows of a way again.
    fn comes_back(&mut self, side: usize) {
        let trip_ns = self.trip_ns(self.tunnel);
        let again = self.nodes[side].resume(self.now_ns, trip_ns);
        again.into_iter().for_each(|packet| self.send_on(side, packet));
        if self.nodes.iter().all(Node::is_up) {
            self.watch();
        }
    }

    /// There is a way again on both sides: what waits has to go on.
    fn watch(&mut self) {
        if self.plan.air != Air::Clean || self.plan.breaks() || self.is_cut {
            return;
        }
        let links = [self.tunnel, self.legs[0], self.legs[1]];
        let trip_ns = links.iter().map(|&link| self.trip_ns(link)).sum::<u64>();
        let trip_ns = trip_ns + self.backlog_ns(self.tunnel); // what the outage left in its queues
        let by_ns = self.now_ns + 2 * trip_ns + GOES_ON_NS;
        for (nth, programs) in self.programs.iter().enumerate() {
            for sender in SIDES {
                let (from, to) = (&programs[sender], &programs[1 - sender]);
                let holds = self.plan.holds[sender] == Hold::Full;
                let arrived = to.arrived();
                let waits = from.acknowledged() > arrived && !from.has_failed();
                if holds && waits && to.reads_freely(self.now_ns) {
                    self.report.watched += 1;
                    let watch = Watch { connection: nth, sender, by_ns, arrived, is_late: false };
                    self.watches.push(watch);
                }
            }
        }
    }

    fn calm(&mut self) {
        for link in [self.tunnel, self.legs[0], self.legs[1]] {
            self.calm_link(link);
        }
        self.programs.iter_mut().flatten().for_each(Program::calm);
    }

    /// From now on a link does nothing to what it carries.
    fn calm_link(&mut self, link: LinkId) {
        let mut config = LinkConfig {
            up: self.net.config(link, LinkEnd::A).clone(),
            down: self.net.config(link, LinkEnd::B).clone(),
        };
        for pipe in [&mut config.up, &mut config.down] {
            pipe.loss = rove_lab::emu::Loss::None;
            pipe.bit_errors = rove_lab::emu::BitErrors::None;
            pipe.duplicate = 0.0;
            pipe.reorder = rove_lab::emu::Reorder::default();
        }
        self.set_link(link, &config);
    }

    fn set_link(&mut self, link: LinkId, config: &LinkConfig) {
        self.net.set_config(self.now_ns, link, LinkEnd::A, config.up.clone());
        self.net.set_config(self.now_ns, link, LinkEnd::B, config.down.clone());
    }

    fn trip_ns(&self, link: LinkId) -> u64 {
        [LinkEnd::A, LinkEnd::B].map(|end| self.net.config(link, end).delay_ns).iter().sum()
    }

    /// How long what waits for a link will take, both directions together.
    fn backlog_ns(&self, link: LinkId) -> u64 {
        let of = |end| match self.net.config(link, end).rate {
            Rate::BitsPerSecond(rate) => {
                self.net.queued_bytes(link, end) * 8 * 1_000 * MS / rate.max(1)
            }
            Rate::Unlimited | Rate::Trace(_) | Rate::Changing(_) => 0,
        };
        [LinkEnd::A, LinkEnd::B].map(of).iter().sum()
    }

    /// A packet has arrived at a place.
    fn delivered(&mut self, host: NodeId, link: LinkId, packet: Vec<u8>) {
        let now_ns = self.now_ns;
        for side in SIDES {
            let [programs, node] = self.places[side];
            if host == programs {
                self.tell(side, "program <", &packet);
                for [client, gateway] in &mut self.programs {
                    let end = if side == 0 { &mut client.end } else { &mut gateway.end };
                    // The others count it as none of theirs.
                    end.arrives(now_ns, &packet);
                }
                return;
            }
            if host == node && link == self.legs[side] {
                self.tell(side, "node < program", &packet);
                self.programs.iter_mut().for_each(|both| both[side].heard_if_its_own(&packet));
                if let Some(packet) = self.nodes[side].outgoing(now_ns, packet) {
                    self.send_on(side, packet);
                }
                return;
            }
            if host == node {
                self.tell(side, "node < tunnel", &packet);
                if let Some(packet) = self.nodes[side].incoming(now_ns, packet) {
                    self.hand_out(side, packet);
                }
                if self.plan.hears && !self.is_cut {
                    self.comes_back(side);
                }
                return;
            }
        }
    }

    fn send_on(&mut self, side: usize, packet: Vec<u8>) {
        let node = self.places[side][1];
        self.net.push(self.now_ns, node, self.tunnel, IpPacket::new(packet));
    }

    fn hand_out(&mut self, side: usize, packet: Vec<u8>) {
        let node = self.places[side][1];
        self.net.push(self.now_ns, node, self.legs[side], IpPacket::new(packet));
    }

    fn serve_programs(&mut self, side: usize) -> Result<(), Broken> {
        let now_ns = self.now_ns;
        let noticed_ns = now_ns.saturating_sub(self.noticed_ns[side]);
        let is_new = noticed_ns < self.trip_ns(self.legs[side]);
        for (nth, connection) in self.plan.connections.iter().enumerate() {
            if now_ns < connection.opens_ns {
                continue;
            }
            let program = &mut self.programs[nth][side];
            let before = program.end.ending();
            program.turn(now_ns).map_err(|spoiled| Broken::Stream(nth, side, spoiled))?;
            if program.end.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                for packet in program.end.leaving(now_ns) {
                    if self.tells {
                        tell(now_ns, side, "program >", &packet);
                    }
                    program.said();
                    let from = self.places[side][0];
                    self.net.push(now_ns, from, self.legs[side], IpPacket::new(packet));
                }
            }
            let ending = program.end.ending();
            if ending == before {
                continue;
            }
            let unknown = self.nodes[side].is_up() || is_new || program.is_unheard();
            if ending == Some(Ending::TimedOut) && self.is_cut && unknown {
                self.died_unseen[nth] = true;
            }
            if self.tells {
                println!("{:>12} us  {side} connection {nth} is over: {ending:?}", now_ns / 1_000);
            }
        }
        Ok(())
    }

    fn serve_node(&mut self, side: usize) -> Result<(), Broken> {
        let now_ns = self.now_ns;
        for (output, packet) in self.nodes[side].turn(now_ns) {
            self.tell(side, &format!("node says {output:?}"), &packet);
            match output {
                Output::ToLocal => self.hand_out(side, packet),
                Output::ToRemote => self.send_on(side, packet),
            }
        }
        let idle = |node: &Node| node.process.as_ref().map_or(0, |process| process.idle_turns);
        let (since_ns, before) = self.second;
        if idle(&self.nodes[side]).saturating_sub(before[side]) > IDLE_TURNS_MAX {
            return Err(Broken::Restless(side));
        }
        if now_ns >= since_ns + SECOND {
            self.second = (now_ns, SIDES.map(|side| idle(&self.nodes[side])));
        }
        Ok(())
    }

    fn tell(&self, side: usize, what: &str, packet: &[u8]) {
        if self.tells {
            tell(self.now_ns, side, what, packet);
        }
    }

    /// The ends of a connection, as a side's node names them.
    fn tuple(&self, nth: usize, side: usize) -> Tuple {
        let config = self.plan.connections[nth].parties[side].config;
        let (local, remote) = (config.local, config.remote);
        let end = |address: std::net::SocketAddr| (address.ip(), address.port());
        Tuple { local: end(local), remote: end(remote), protocol: TCP }
    }

    /// What holds after every step.
    fn judge(&mut self) -> Result<(), Broken> {
        for (nth, programs) in self.programs.iter().enumerate() {
            for side in SIDES {
                let (from, to) = (&programs[side], &programs[1 - side]);
                let owed = from.acknowledged().saturating_sub(to.arrived());
                self.report.owed_max = self.report.owed_max.max(owed);
                let node = &self.nodes[side];
                if owed == 0 || from.has_failed() {
                    self.unsure_ns[nth][side] = None;
                } else {
                    if self.plan.holds[side] != Hold::Full {
                        return Err(Broken::Acknowledged(nth, side));
                    }
                    // Or it was reset, and is about to hear of it.
                    let is_sure = !node.is_over && node.book.contains(&self.tuple(nth, side));
                    let since_ns = *self.unsure_ns[nth][side].get_or_insert(self.now_ns);
                    if is_sure {
                        self.unsure_ns[nth][side] = None;
                    } else if self.now_ns > since_ns + RESET_NS {
                        let (arrived, told) = (to.arrived(), from.acknowledged());
                        return Err(match node.is_over {
                            true => Broken::Lost(nth, side, arrived, told),
                            false => Broken::Unwritten(nth, side),
                        });
                    }
                }
                if from.has_ended() && !to.end.is_read_closed() && !to.has_failed() {
                    return Err(Broken::EndedAlone(nth, side));
                }
                if self.plan.air == Air::Clean && from.end.stats().malformed > 0 {
                    return Err(Broken::Malformed(nth, side));
                }
            }
        }
        for side in SIDES {
            let Some(process) = &self.nodes[side].process else { continue };
            let used = process.memory.used();
            if used > self.plan.memory[side] {
                return Err(Broken::Memory(side, used));
            }
        }
        let due = |watch: &Watch| watch.by_ns <= self.now_ns;
        while let Some(place) = self.watches.iter().position(due) {
            let watch = self.watches.swap_remove(place);
            let Watch { connection, sender, arrived, is_late, .. } = watch;
            let [from, to] = [sender, 1 - sender].map(|side| &self.programs[connection][side]);
            if to.arrived() == arrived && !from.has_failed() && !to.has_failed() {
                // What others send meanwhile stands before it, and some of it may be lost there.
                let backlog_ns = self.backlog_ns(self.tunnel);
                if !is_late && backlog_ns > 0 {
                    let by_ns = self.now_ns + 2 * backlog_ns;
                    self.watches.push(Watch { by_ns, is_late: true, ..watch });
                    continue;
                }
                return Err(Broken::Stuck(connection, sender));
            }
        }
        Ok(())
    }

    /// Whether nothing will happen any more but what keeps connections alive.
    fn is_at_rest(&self) -> bool {
        let done = |programs: &[Program; 2]| {
            let closed = programs.iter().all(Program::is_over);
            let content = programs[0].arrived() == programs[1].bytes()
                && programs[1].arrived() == programs[0].bytes()
                && programs.iter().all(|program| program.is_content() && program.stays());
            closed || content
        };
        self.agenda.is_empty()
            && self.net.poll_timeout().is_none()
            && self.nodes.iter().all(|node| node.due_ns().is_none())
            && self.programs.iter().all(done)
    }

    /// What holds in the end.
    fn judge_the_end(&mut self) -> Result<(), Broken> {
        let ideal = !self.plan.breaks() && self.plan.holds == [Hold::Full; 2];
        for (nth, programs) in self.programs.iter().enumerate() {
            let aborts = programs.iter().any(Program::aborts);
            let lives = ideal && !aborts && !self.died_unseen[nth];
            for side in SIDES {
                let (from, to) = (&programs[side], &programs[1 - side]);
                let (acknowledged, arrived) = (from.acknowledged(), to.arrived());
                if acknowledged > arrived && !from.has_failed() {
                    return Err(Broken::Lost(nth, side, arrived, acknowledged));
                }
                self.report.resets += u32::from(from.has_failed());
                if let Some(ending) = from.end.ending()
                    && from.has_failed()
                    && lives
                {
                    return Err(Broken::Died(nth, side, ending));
                }
                let whole = arrived == from.bytes();
                if lives && !whole {
                    return Err(Broken::Unfinished(nth, side, arrived, from.bytes()));
                }
                self.report.finished += u32::from(whole && from.has_ended());
            }
        }
        let silent = |program: &Program| program.end.ending() == Some(Ending::TimedOut);
        let unseen = self.programs.iter().flatten().any(silent);
        for side in SIDES {
            let node = &self.nodes[side];
            let Some(process) = &node.process else { continue };
            let used = process.memory.used();
            if used > 0 && !unseen {
                return Err(Broken::Memory(side, used));
            }
            if let Some(&tuple) = node.book.first() {
                return Err(Broken::Unstruck(side, tuple));
            }
        }
        Ok(())
    }
}
