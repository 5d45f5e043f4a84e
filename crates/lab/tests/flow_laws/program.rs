//! A program on one side of the tunnel: what it writes, reads and closes, and what it can tell.

use rove_lab::emu::MS;
use rove_lab::tcp::{End, Ending, Segment, Sink, Source, Spoiled, State};

use super::plan::{Closes, Party};

/// Who reads little at a time does so this often.
const READS_EVERY_NS: u64 = 10 * MS;
/// Nobody can know of a program of which so many packets in a row were lost before its own node.
const UNHEARD_MAX: u32 = 3;

#[derive(Debug)]
pub(super) struct Program {
    pub(super) end: End,
    party: Party,
    source: Source,
    sink: Sink,
    /// Made, but there was no room for it.
    waiting: Vec<u8>,
    writes_ns: u64,
    reads_ns: u64,
    has_closed: bool,
    /// Packets that it has sent since its own node heard it last.
    unheard: u32,
    /// Reads whatever there is, from now on.
    is_calm: bool,
}

impl Program {
    /// A program that talks over `end`; `streams` are the seeds of what it sends and expects.
    pub(super) fn new(party: &Party, end: End, streams: (u64, u64)) -> Self {
        Self {
            end,
            party: party.clone(),
            source: Source::new(streams.0),
            sink: Sink::new(streams.1),
            waiting: Vec::new(),
            writes_ns: 0,
            reads_ns: 0,
            has_closed: false,
            unheard: 0,
            is_calm: false,
        }
    }

    /// Bytes that the other end has, as far as this one knows.
    pub(super) fn acknowledged(&self) -> u64 {
        let taken = self.source.position() - self.waiting.len() as u64;
        taken.saturating_sub(self.end.unacknowledged() as u64)
    }

    /// Bytes that were taken from the program.
    pub(super) fn written(&self) -> u64 {
        self.source.position() - self.waiting.len() as u64
    }

    /// Bytes that have arrived in order.
    pub(super) const fn arrived(&self) -> u64 {
        self.end.delivered()
    }

    /// Whether everything it has to say was said, and it has read what came.
    pub(super) fn is_content(&self) -> bool {
        self.written() == self.party.bytes
            && self.end.unacknowledged() == 0
            && self.sink.position() == self.arrived()
    }

    /// A packet of its leaves.
    pub(super) const fn said(&mut self) {
        self.unheard = self.unheard.saturating_add(1);
    }

    /// A packet has come as far as its own node.
    pub(super) fn heard_if_its_own(&mut self, packet: &[u8]) {
        let config = self.party.config;
        if Segment::parse(packet)
            .is_ok_and(|it| (it.source, it.destination) == (config.local, config.remote))
        {
            self.unheard = 0;
        }
    }

    /// Whether what it said last was lost before its own node, all of it.
    pub(super) const fn is_unheard(&self) -> bool {
        self.unheard >= UNHEARD_MAX
    }

    /// Whether it ended other than in order, and so knows that something may be lost.
    pub(super) const fn has_failed(&self) -> bool {
        matches!(
            self.end.ending(),
            Some(
                Ending::ResetByPeer
                    | Ending::Aborted
                    | Ending::Refused
                    | Ending::Unanswered
                    | Ending::TimedOut
                    | Ending::KeepAlive
            )
        )
    }

    /// Whether it is over, or only remembers.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.end.state(), State::TimeWait | State::Closed)
    }

    /// Whether its FIN was acknowledged.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.end.state(), State::FinWait2 | State::TimeWait)
            || self.end.ending() == Some(Ending::Finished)
    }

    /// Whether it never closes by itself.
    pub(super) fn stays(&self) -> bool {
        self.party.closes == Closes::Never
    }

    /// Whether it breaks the connection off.
    pub(super) fn aborts(&self) -> bool {
        self.party.closes == Closes::Aborts
    }

    /// Whether it reads everything at once.
    pub(super) fn reads_freely(&self, now_ns: u64) -> bool {
        self.is_calm || (self.party.reads == usize::MAX && !self.dozes(now_ns))
    }

    /// Bytes that it is to send in all.
    pub(super) const fn bytes(&self) -> u64 {
        self.party.bytes
    }

    /// From now on it reads whatever there is.
    pub(super) const fn calm(&mut self) {
        self.is_calm = true;
    }

    /// When it does something of its own accord.
    pub(super) fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let open = !matches!(self.end.state(), State::Closed | State::TimeWait);
        let writes = (open && self.written() < self.party.bytes && self.writes_ns > now_ns)
            .then_some(self.writes_ns);
        let wakes = if self.dozes(now_ns) { self.party.dozes_ns.1 } else { self.reads_ns };
        let reads = (self.end.unread() > 0 && !self.is_calm && wakes > now_ns).then_some(wakes);
        [self.end.due_ns(), writes, reads].into_iter().flatten().min()
    }

    /// Its turn: reads, writes, closes.
    pub(super) fn turn(&mut self, now_ns: u64) -> Result<(), Spoiled> {
        self.read(now_ns)?;
        self.write(now_ns);
        self.close(now_ns);
        Ok(())
    }

    fn read(&mut self, now_ns: u64) -> Result<(), Spoiled> {
        let may = self.is_calm || (!self.dozes(now_ns) && self.reads_ns <= now_ns);
        if !may || self.end.unread() == 0 {
            return Ok(());
        }
        let most = if self.is_calm { usize::MAX } else { self.party.reads };
        if most != usize::MAX {
            self.reads_ns = now_ns + READS_EVERY_NS;
        }
        let bytes = self.end.read(most);
        self.sink.check(&bytes)
    }

    fn write(&mut self, now_ns: u64) {
        loop {
            if self.waiting.is_empty() {
                let left = self.party.bytes - self.source.position();
                if left == 0 || now_ns < self.writes_ns {
                    return;
                }
                self.waiting = self.source.take(left.min(self.party.chunk as u64) as usize);
                self.writes_ns = now_ns + self.party.gap_ns;
            }
            let taken = self.end.write(&self.waiting);
            self.waiting.drain(..taken);
            if taken == 0 || !self.waiting.is_empty() {
                return;
            }
        }
    }

    fn close(&mut self, now_ns: u64) {
        if self.has_closed || self.written() < self.party.bytes {
            return;
        }
        let open = !matches!(self.end.state(), State::Listen | State::SynSent | State::SynReceived);
        match self.party.closes {
            Closes::First if open => self.end.close(),
            Closes::Second if self.end.is_read_closed() => self.end.close(),
            Closes::Aborts if open => self.end.abort(now_ns),
            Closes::First | Closes::Second | Closes::Never | Closes::Aborts => return,
        }
        self.has_closed = true;
    }

    fn dozes(&self, now_ns: u64) -> bool {
        let (from, to) = self.party.dozes_ns;
        !self.is_calm && from <= now_ns && now_ns < to
    }
}
