//! One end of a tunnel, as far as it concerns connections: the machine under test, the book that
//! outlives its process, and ways to break it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use rove_lab::emu::{MS, Rng};
use rove_proto::flow::tuple::Tuple;
use rove_proto::flow::{Assists, Entrance, Flows, Hold, Memory, Output, Verdict};
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::checksum::Sum;
use rove_proto::wire::inner::{Headers, Home, InnerPacket, Pieces};
use rove_proto::wire::tcp::Segment;

/// Packets that a node keeps for when the path they left by is found to have been dead.
const KEPT_MAX: usize = 64;
/// One that assists ends that, or begins again, or begins no more, at one packet of so many.
const ASSIST_TURNS: u64 = 500;
/// The tunnel's entry: nothing waits there, all leaves at once.
const ENTRANCE: Entrance =
    Entrance { carried: 65_536, longest: Duration::from_millis(40), target: 16_384 };
/// The longest IP and TCP headers: what the shell hands over in one piece at least.
const HEADERS_MAX: usize = 120;

/// A node whose process may die.
#[derive(Debug)]
pub(super) struct Node {
    hold: Hold,
    bytes_max: usize,
    /// It assists connections, now and then.
    assists: bool,
    rng: Rng,
    fault: Option<Fault>,
    /// `None` while no process runs, and when the session is over for good.
    pub(super) process: Option<Process>,
    /// The session is over for good.
    pub(super) is_over: bool,
    /// Connections that are written down.
    pub(super) book: BTreeSet<Tuple>,
}

/// What dies with it.
#[derive(Debug)]
pub(super) struct Process {
    /// The machine under test.
    pub(super) flows: Flows,
    /// What it may hold.
    pub(super) memory: Memory,
    /// What is being written down, and when that is done.
    writing: VecDeque<(u64, Tuple)>,
    /// What left last, for the time that it leaves again.
    kept: VecDeque<Vec<u8>>,
    /// How often it wanted its turn and said nothing.
    pub(super) idle_turns: u64,
}

/// A packet, and where it goes.
pub(super) type Said = (Output, Vec<u8>);

/// A defect that a law has to find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Nothing is written down.
    WritesNothing,
    /// Nothing is struck out.
    StrikesNothing,
    /// What is owed is forgotten when there is a way again.
    Forgets,
    /// The same, and that some of it was held.
    Leaks,
    /// What was owed when the process died is not broken off.
    BreaksNothing,
    /// When the session ends nobody hears of it.
    EndsSilently,
    /// A byte of what is sent again is another.
    Alters,
    /// A node that is to acknowledge nothing does.
    Holds,
    /// A node that is to hold answers nobody.
    IsSilent,
    /// The way back is seen five seconds late.
    Dawdles,
    /// A node wants its turn for what it has just done.
    Fidgets,
}

impl Node {
    pub(super) fn new(
        (hold, assists): (Hold, bool),
        bytes_max: usize,
        seed: u64,
        fault: Option<Fault>,
    ) -> Self {
        let hold = if fault == Some(Fault::Holds) { Hold::Full } else { hold };
        let mut node = Self {
            hold,
            bytes_max,
            assists,
            rng: Rng::new(seed),
            fault,
            process: None,
            is_over: false,
            book: BTreeSet::new(),
        };
        node.start(0);
        if let Some(process) = &mut node.process {
            process.flows.resume(Instant::ZERO, &mut process.memory, Duration::from_millis(40));
        }
        node
    }

    /// A process begins, and breaks off what the one before owed.
    pub(super) fn start(&mut self, now_ns: u64) {
        let mut flows = Flows::new(self.hold, self.rng.next_u64());
        flows.set_assist(if self.assists { Assists::All } else { Assists::None });
        let mut memory = Memory::new(self.bytes_max);
        if self.fault != Some(Fault::BreaksNothing) {
            let now = time(now_ns);
            self.book.iter().for_each(|&owed| flows.break_off(now, &mut memory, owed));
        }
        self.process = Some(Process {
            flows,
            memory,
            writing: VecDeque::new(),
            kept: VecDeque::new(),
            idle_turns: 0,
        });
    }

    /// The process dies. What was being written may be.
    pub(super) fn crash(&mut self) {
        let Some(process) = self.process.take() else { return };
        let written = process.writing.iter().filter(|_| self.rng.chance(0.5));
        self.book.extend(written.map(|(_, tuple)| *tuple));
    }

    /// A packet from the programs' side; it goes on if it comes back.
    pub(super) fn outgoing(&mut self, now_ns: u64, packet: Vec<u8>) -> Option<Vec<u8>> {
        let process = self.process.as_mut()?;
        if self.assists {
            match self.rng.below(ASSIST_TURNS) {
                0 => process.flows.set_assist(Assists::None),
                1..4 => process.flows.set_assist(Assists::All),
                4 => process.flows.set_assist(Assists::Begun),
                _ => {}
            }
        }
        let headers = Headers::parse(&packet, packet.len()).ok()?;
        let cut = match self.rng.below(3) {
            0 => HEADERS_MAX.min(packet.len()),
            _ => packet.len(),
        };
        let (head, tail) = packet.split_at(cut);
        let buffer: Arc<[u8]> = Arc::from(&packet[..]);
        let home = Home { buffer: &buffer, at: cut };
        let home = Some(home).filter(|_| self.rng.below(2) == 0 && is_sound(&packet));
        let inner = InnerPacket::read(headers, Pieces { home, ..Pieces::cut(head, tail) });
        let record = process.flows.outgoing(time(now_ns), &mut process.memory, &inner, true);
        let record = record.filter(|_| !self.is_over)?;
        let kept = usize::from(record.kept);
        let (headers, payload) = packet.split_at(packet.len() - kept);
        if kept > 0 {
            let found = process.flows.payload(record.flow?, headers, kept);
            let found = found.map(|(front, back)| [front, back].concat());
            assert_eq!(found.as_deref(), Some(payload), "not kept as it was said");
        }
        Some(process.keep(packet))
    }

    /// A packet from the tunnel; it goes on if it comes back.
    pub(super) fn incoming(&mut self, now_ns: u64, mut packet: Vec<u8>) -> Option<Vec<u8>> {
        let process = self.process.as_mut().filter(|_| !self.is_over)?;
        let inner = InnerPacket::whole(&packet).ok()?;
        match process.flows.incoming(time(now_ns), &mut process.memory, &inner) {
            Verdict::Pass => {}
            Verdict::Keep => return None,
            Verdict::Change(change) => change.apply(&mut packet),
        }
        Some(packet)
    }

    /// The last path is lost.
    pub(super) fn suspend(&mut self, now_ns: u64) {
        let Some(process) = &mut self.process else { return };
        if process.flows.is_up() {
            process.flows.suspend(time(now_ns), &mut process.memory);
        }
    }

    /// There is one again. Returns what left by the dead one and leaves once more.
    pub(super) fn resume(&mut self, now_ns: u64, trip_ns: u64) -> Vec<Vec<u8>> {
        let fault = self.fault;
        let Some(process) = &mut self.process else { return Vec::new() };
        if process.flows.is_up() || self.is_over {
            return Vec::new();
        }
        if matches!(fault, Some(Fault::Forgets | Fault::Leaks)) {
            process.flows = Flows::new(self.hold, 1);
            if fault == Some(Fault::Forgets) {
                process.memory = Memory::new(self.bytes_max);
            }
        }
        let trip = Duration::from_nanos(trip_ns);
        process.flows.resume(time(now_ns), &mut process.memory, trip);
        let mut again = Vec::new();
        for packet in std::mem::take(&mut process.kept) {
            let Ok(whole) = InnerPacket::whole(&packet) else { continue };
            let flow = process.flows.record_of(time(now_ns), &whole, false).flow;
            if !process.flows.sends_again(time(now_ns), flow, &whole) && self.rng.chance(0.7) {
                again.push(packet);
            }
        }
        again
    }

    /// What goes with a question for the path.
    pub(super) fn news(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let Some(process) = &self.process else { return all };
        let mut packet = Vec::new();
        for nth in 0.. {
            packet.clear();
            if process.flows.news(nth, &mut packet).is_none() {
                break;
            }
            if !packet.is_empty() {
                all.push(packet.clone());
            }
        }
        all
    }

    /// The session is over for good. Returns what the programs hear.
    pub(super) fn end(&mut self) -> Vec<Vec<u8>> {
        self.is_over = true;
        let Some(mut process) = self.process.take() else { return Vec::new() };
        if self.fault == Some(Fault::EndsSilently) {
            return Vec::new();
        }
        let (mut packets, mut ends) = (Vec::new(), Vec::new());
        process.flows.terminate(&mut process.memory, &mut packets, &mut ends);
        assert_eq!(process.memory.used(), 0, "a session is over and holds something");
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let all = starts.zip(&ends).map(|(start, &end)| packets[start..end].to_vec()).collect();
        self.process = Some(process);
        self.write_and_strike(0);
        self.leave();
        all
    }

    /// Once its session is over the process goes when nobody is left to be told.
    fn leave(&mut self) {
        let is_left = |process: &mut Process| self.is_over && !process.flows.is_breaking_off();
        if self.process.as_mut().is_some_and(is_left) {
            self.process = None;
        }
    }

    /// Whether it takes the way for one that carries.
    pub(super) fn is_up(&self) -> bool {
        !self.is_over && self.process.as_ref().is_some_and(|process| process.flows.is_up())
    }

    /// When it wants its turn.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let process = self.process.as_ref()?;
        if self.fault == Some(Fault::Fidgets) {
            return Some(0);
        }
        let flows = process.flows.due().map(Instant::as_nanos);
        [flows, process.writing.front().map(|&(at_ns, _)| at_ns)].into_iter().flatten().min()
    }

    /// Its turn.
    pub(super) fn turn(&mut self, now_ns: u64) -> Vec<Said> {
        let mut said = Vec::new();
        self.finish_writing(now_ns);
        let Some(process) = &mut self.process else { return said };
        process.flows.heed_entry(time(now_ns), false, || ENTRANCE, |_| 0);
        let wanted = process.flows.due().is_some_and(|due| due <= time(now_ns));
        loop {
            if self.rng.chance(0.02) {
                // The outbox is full.
                process.flows.rest(time(now_ns + MS));
                break;
            }
            let mut packet = Vec::new();
            match process.flows.poll(time(now_ns), &mut process.memory, &mut packet) {
                Some(output) => said.push((output, packet)),
                None => break,
            }
        }
        process.idle_turns += u64::from(wanted && said.is_empty());
        self.write_and_strike(now_ns);
        self.leave();
        self.spoil(&mut said);
        said
    }

    /// What has to be written down takes its time, and then the machine hears of it.
    fn write_and_strike(&mut self, now_ns: u64) {
        let Some(process) = &mut self.process else { return };
        while let Some(tuple) = process.flows.poll_record() {
            let before_ns = process.writing.back().map_or(0, |&(at_ns, _)| at_ns);
            let most_ms = if self.rng.chance(0.1) { 500 } else { 10 };
            let takes_ns = self.rng.below(most_ms) * MS;
            process.writing.push_back((before_ns.max(now_ns + takes_ns), tuple));
        }
        while let Some(tuple) = process.flows.poll_settled() {
            process.writing.retain(|(_, other)| *other != tuple);
            if self.fault != Some(Fault::StrikesNothing) {
                self.book.remove(&tuple);
            }
        }
    }

    fn finish_writing(&mut self, now_ns: u64) {
        let Some(process) = &mut self.process else { return };
        while let Some(&(at_ns, tuple)) = process.writing.front()
            && at_ns <= now_ns
        {
            process.writing.pop_front();
            if self.fault != Some(Fault::WritesNothing) {
                self.book.insert(tuple);
            }
            process.flows.recorded(&tuple);
        }
    }

    fn spoil(&self, said: &mut Vec<Said>) {
        match self.fault {
            Some(Fault::IsSilent) => said.retain(|(output, _)| *output == Output::ToRemote),
            Some(Fault::Alters) => said
                .iter_mut()
                .filter(|(output, packet)| *output == Output::ToRemote && packet.len() > 200)
                .for_each(|(_, packet)| alter(packet)),
            Some(_) | None => {}
        }
    }
}

impl Process {
    fn keep(&mut self, packet: Vec<u8>) -> Vec<u8> {
        self.kept.push_back(packet.clone());
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_front();
        }
        packet
    }
}

/// The time of the core.
pub(super) fn time(now_ns: u64) -> Instant {
    Instant::from_nanos(now_ns)
}

/// Turns a payload over by two bytes that leave the checksum as it is.
fn alter(packet: &mut [u8]) {
    let last = packet.len() & !1;
    packet.swap(last - 2, last - 4);
    packet.swap(last - 1, last - 3);
}

/// Whether the payload is what the checksum declares.
fn is_sound(packet: &[u8]) -> bool {
    InnerPacket::whole(packet).is_ok_and(|whole| {
        Segment::parse(&whole).is_some_and(|segment| {
            let payload = Sum::default().bytes(&packet[segment.payload()]);
            payload.folded() == segment.declared_sum(&whole)
        })
    })
}
