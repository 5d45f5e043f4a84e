//! What uses an end of a connection: it says something, and compares what it hears.

use super::heard::{Heard, is_open};
use super::session::{Shell, Terminal};
use crate::emu::earliest;
use crate::ground::Pace;
use crate::tcp::{Content, End, Sink, Source};

/// Bytes that are handed to TCP at a time.
const CHUNK: u64 = 64 << 10;

/// A program at one end.
#[derive(Debug)]
pub(in crate::world) enum Program {
    /// None: there was one.
    None,
    /// It says a stream, or hears one, or both.
    Carrier(Carrier),
    /// Somebody types, and sees lines.
    Terminal(Terminal),
    /// It sends every line back, and says lines of its own.
    Shell(Shell),
}

/// Says a stream, or hears one, or both; and ends the connection when all is said, or all heard
/// where it has nothing to say.
#[derive(Debug)]
pub(in crate::world) struct Carrier {
    /// What it says.
    pub(in crate::world) says: Option<Saying>,
    /// What it expects, and how many bytes of it.
    pub(in crate::world) expects: Option<(Sink, u64)>,
    heard: Heard,
    reading: Reading,
    /// Bytes that TCP has taken.
    said: u64,
}

/// How what has come is read.
#[derive(Clone, Copy, Debug)]
pub(in crate::world) struct Reading {
    most: usize,
    every_ns: u64,
    next_ns: u64,
}

/// A stream that is being said.
#[derive(Debug)]
pub(in crate::world) struct Saying {
    source: Source,
    length: u64,
    pace: Pace,
    begun_ns: Option<u64>,
}

impl Program {
    /// Does what there is to do now.
    ///
    /// # Errors
    /// What is not as it was sent.
    pub(super) fn run(&mut self, now_ns: u64, end: &mut End) -> Result<(), String> {
        match self {
            Self::None => Ok(()),
            Self::Carrier(carrier) => carrier.run(now_ns, end),
            Self::Terminal(terminal) => terminal.run(now_ns, end),
            Self::Shell(shell) => {
                shell.run(now_ns, end);
                Ok(())
            }
        }
    }

    /// When it has something to say that nobody has to ask for.
    pub(super) fn due_ns(&self, end: &End) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Carrier(carrier) => carrier.due_ns(end),
            Self::Terminal(terminal) => terminal.due_ns(end),
            Self::Shell(shell) => shell.due_ns(end),
        }
    }

    /// Whether nothing is to come that it waits for.
    pub(super) fn has_heard_all(&self) -> bool {
        match self {
            Self::None => false,
            Self::Carrier(carrier) => carrier.has_heard_all(),
            Self::Terminal(terminal) => terminal.has_heard_all(),
            Self::Shell(_) => true,
        }
    }

    /// What it heard, if it keeps that.
    pub(super) const fn heard(&self) -> Option<&Heard> {
        match self {
            Self::Carrier(Carrier { heard, expects: Some(_), .. }) => Some(heard),
            Self::Terminal(terminal) => Some(terminal.heard()),
            Self::None | Self::Carrier(_) | Self::Shell(_) => None,
        }
    }

    /// Bytes that it has said, if it keeps count.
    pub(super) const fn said(&self) -> u64 {
        match self {
            Self::Carrier(carrier) => carrier.said,
            Self::None | Self::Terminal(_) | Self::Shell(_) => 0,
        }
    }

    /// The connection is over: nothing more is said.
    pub(super) fn rest(&mut self) {
        match self {
            Self::Carrier(carrier) => carrier.says = None,
            Self::None | Self::Terminal(_) | Self::Shell(_) => {}
        }
    }
}

impl Carrier {
    /// What says this and expects a stream of a seed with so many bytes.
    pub(in crate::world) fn new(says: Option<Saying>, expects: Option<(u64, u64)>) -> Self {
        let expects = expects.map(|(seed, length)| (Sink::new(seed), length));
        Self { says, expects, heard: Heard::default(), reading: Reading::AT_ONCE, said: 0 }
    }

    /// What expects a stream with this content.
    pub(in crate::world) fn expecting(content: Content, seed: u64, length: u64) -> Self {
        Self { expects: Some((Sink::of(content, seed), length)), ..Self::new(None, None) }
    }

    /// The same that reads like this.
    pub(in crate::world) fn reading(self, reading: Reading) -> Self {
        Self { reading, ..self }
    }

    fn due_ns(&self, end: &End) -> Option<u64> {
        let says_ns = self.says.as_ref().and_then(|says| says.due_ns(end));
        let reads_ns = (end.unread() > 0).then_some(self.reading.next_ns);
        earliest([says_ns, reads_ns])
    }

    fn run(&mut self, now_ns: u64, end: &mut End) -> Result<(), String> {
        self.heard.note_open(now_ns, end);
        if end.unread() > 0 && self.reading.next_ns <= now_ns {
            self.reading.next_ns = now_ns + self.reading.every_ns;
            let bytes = end.read(self.reading.most);
            let (sink, _) = self.expects.as_mut().ok_or("nobody was to say anything")?;
            sink.check(&bytes).map_err(|spoiled| spoiled.to_string())?;
            self.heard.note(now_ns, bytes.len() as u64);
        }
        let said_all = self.says.as_mut().is_none_or(|says| says.run(now_ns, end));
        self.said = self.says.as_ref().map_or(self.said, |says| says.source.position());
        if said_all && (self.says.is_some() || self.has_heard_all()) {
            end.close();
        }
        Ok(())
    }

    fn has_heard_all(&self) -> bool {
        self.expects.as_ref().is_none_or(|(sink, length)| sink.position() >= *length)
    }
}

impl Reading {
    /// All of it as soon as it is there.
    const AT_ONCE: Self = Self { most: usize::MAX, every_ns: 0, next_ns: 0 };

    /// At most so many bytes every so many nanoseconds.
    pub(in crate::world) const fn sips(most: usize, every_ns: u64) -> Self {
        Self { most, every_ns, next_ns: 0 }
    }
}

impl Saying {
    /// So many bytes of the stream of a seed.
    pub(in crate::world) const fn new(seed: u64, length: u64, pace: Pace) -> Self {
        Self { source: Source::new(seed), length, pace, begun_ns: None }
    }

    /// The same with this content.
    pub(in crate::world) const fn with(self, content: Content, seed: u64) -> Self {
        Self { source: Source::of(content, seed), ..self }
    }

    const fn left(&self) -> u64 {
        self.length - self.source.position()
    }

    /// Says what there is room for and time; returns whether that was all.
    fn run(&mut self, now_ns: u64, end: &mut End) -> bool {
        if !is_open(end) {
            return false;
        }
        self.begun_ns.get_or_insert(now_ns);
        while self.left() > 0 && self.next_ns().is_none_or(|next_ns| next_ns <= now_ns) {
            let piece = self.piece();
            if (end.writable() as u64) < piece {
                return false;
            }
            end.write(&self.source.take(piece as usize));
        }
        self.left() == 0
    }

    fn piece(&self) -> u64 {
        let most = match self.pace {
            Pace::Full => CHUNK,
            Pace::Pieces { bytes, .. } => bytes.into(),
        };
        most.min(self.left())
    }

    /// When the next piece is due; nothing where that is as soon as there is room.
    fn next_ns(&self) -> Option<u64> {
        match self.pace {
            Pace::Full => None,
            Pace::Pieces { bytes, every_ns } => {
                let said = self.source.position() / u64::from(bytes.max(1));
                Some(self.begun_ns? + said * every_ns)
            }
        }
    }

    /// Room comes with what arrives: there is nothing to wait for by the clock.
    fn due_ns(&self, end: &End) -> Option<u64> {
        let waits_for_time = self.left() > 0 && end.writable() as u64 >= self.piece();
        self.next_ns().filter(|_| waits_for_time && is_open(end))
    }
}
