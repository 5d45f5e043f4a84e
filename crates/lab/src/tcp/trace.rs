//! What a transfer looked like from its sender's card, in numbers: small enough to be committed,
//! and made alike from a capture of the kernel and from a [`super::Trial`].
//!
//! Of the packets only those are kept that tell something: the ends of the connection, what was
//! sent again, probes, what broke a silence, and windows that closed or opened. The rest is a curve
//! of how much was acknowledged when.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use super::segment::Segment;

/// Between two points of the curve, in microseconds.
pub const POINT_US: u64 = 20_000;
/// A silence that is worth telling of, in microseconds.
const SILENCE_US: u64 = 100_000;
/// A window below this many bytes is as good as closed.
const CLOSED: u32 = 1_500;

/// A packet, its numbers counted from the beginnings of its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Microseconds since the SYN left.
    pub at_us: u64,
    /// It left; else it arrived.
    pub out: bool,
    /// The sequence number, from that of the SYN of its direction.
    pub sequence: u32,
    /// The acknowledgment number, from the SYN of the other direction.
    pub acknowledgment: u32,
    /// The window in bytes.
    pub window: u32,
    /// SACK blocks, counted like the acknowledgment number.
    pub sacks: Vec<(u32, u32)>,
    /// Payload in bytes.
    pub length: u32,
    /// `S`, `F` and `R` for SYN, FIN and RST, `A` for what left before, or `.`.
    pub flags: String,
}

/// A transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The packets that tell something.
    pub rows: Vec<Row>,
    /// Bytes acknowledged at each multiple of [`POINT_US`].
    pub acknowledged: Vec<u32>,
    /// Microseconds until everything was acknowledged.
    pub end_us: u64,
}

/// Makes a trace of packets in the order in which they passed.
#[derive(Debug, Default)]
pub struct Tracer {
    start_ns: Option<u64>,
    /// First sequence number and window shift of what leaves and of what arrives.
    initial: [Option<u32>; 2],
    shifts: [Option<u8>; 2],
    last_us: [u64; 2],
    highest: u32,
    acknowledged: u32,
    closed: bool,
    trace: Trace,
}

impl Tracer {
    /// A packet leaves or arrives; what is no TCP is passed over.
    pub fn note(&mut self, at_ns: u64, out: bool, packet: &[u8]) {
        let Ok(segment) = Segment::parse(packet) else { return };
        let at_us = (at_ns - *self.start_ns.get_or_insert(at_ns)) / 1_000;
        let (here, there) = (usize::from(!out), usize::from(out));
        if segment.flags.syn {
            self.initial[here] = Some(segment.sequence);
            self.shifts[here] = segment.options.window_scale;
        }
        let mut row = self.row(&segment, at_us, out, (here, there));
        if out && row.length > 0 && row.sequence + row.length <= self.highest {
            row.flags = format!("{}A", row.flags.trim_matches('.'));
        }
        self.fill_curve(at_us);
        let news = self.is_news(&row, here);
        self.last_us[here] = at_us;
        if out {
            self.highest = self.highest.max(row.sequence + row.length);
        } else if row.acknowledgment > self.acknowledged {
            self.acknowledged = row.acknowledgment;
            self.trace.end_us = at_us;
        }
        if news {
            self.trace.rows.push(row);
        }
    }

    /// The trace so far.
    pub fn finish(self) -> Trace {
        self.trace
    }

    fn row(&self, segment: &Segment, at_us: u64, out: bool, ways: (usize, usize)) -> Row {
        let (here, there) = ways;
        let from = |way: usize| self.initial[way].unwrap_or(0);
        let scaled = self.shifts[0].is_some() && self.shifts[1].is_some() && !segment.flags.syn;
        let shift = self.shifts[here].filter(|_| scaled).unwrap_or(0);
        let theirs = |wire: u32| wire.wrapping_sub(from(there));
        let flags = [(segment.flags.syn, 'S'), (segment.flags.fin, 'F'), (segment.flags.rst, 'R')];
        let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        Row {
            at_us,
            out,
            sequence: segment.sequence.wrapping_sub(from(here)),
            acknowledgment: segment.acknowledgment.map_or(0, theirs),
            window: u32::from(segment.window) << shift,
            sacks: segment.options.sacks.iter().map(|(a, b)| (theirs(*a), theirs(*b))).collect(),
            length: segment.payload.len() as u32,
            flags: if flags.is_empty() { ".".to_owned() } else { flags },
        }
    }

    fn is_news(&mut self, row: &Row, here: usize) -> bool {
        let silent = row.at_us >= self.last_us[here] + SILENCE_US;
        if row.out {
            let probe = row.length == 0 && row.sequence < self.highest;
            return silent || probe || row.flags != ".";
        }
        let closed = row.window < CLOSED && row.flags == ".";
        let changed = closed != self.closed;
        self.closed = closed;
        silent || changed || row.flags != "."
    }

    fn fill_curve(&mut self, at_us: u64) {
        while self.trace.acknowledged.len() as u64 * POINT_US <= at_us {
            self.trace.acknowledged.push(self.acknowledged);
        }
    }
}

impl Trace {
    /// Bytes acknowledged by then.
    pub fn acknowledged_at(&self, at_us: u64) -> u32 {
        let index = (at_us / POINT_US) as usize;
        self.acknowledged.get(index).or_else(|| self.acknowledged.last()).copied().unwrap_or(0)
    }

    /// When this many bytes were acknowledged, to within [`POINT_US`].
    pub fn reached(&self, bytes: u32) -> Option<u64> {
        let index = self.acknowledged.iter().position(|acknowledged| *acknowledged >= bytes)?;
        Some(index as u64 * POINT_US)
    }

    /// When something left again, in microseconds.
    pub fn retransmissions(&self) -> impl Iterator<Item = u64> + '_ {
        self.rows.iter().filter(|row| row.flags.contains('A')).map(|row| row.at_us)
    }

    /// When more was acknowledged for the first time after `from_us`, to within [`POINT_US`].
    pub fn moves_again(&self, from_us: u64) -> Option<u64> {
        let before = self.acknowledged_at(from_us);
        let after = self.acknowledged.iter().enumerate().skip((from_us / POINT_US) as usize);
        let mut moved = after.filter(|(_, bytes)| **bytes > before);
        moved.next().map(|(index, _)| index as u64 * POINT_US)
    }

    /// When, after `from_us`, this many bytes a second were acknowledged over a fifth of a second.
    pub fn reaches(&self, from_us: u64, rate: f64) -> Option<u64> {
        let span = (200_000 / POINT_US) as usize;
        let first = (from_us / POINT_US) as usize;
        let curve = &self.acknowledged;
        (first..curve.len().saturating_sub(span))
            .find(|&at| f64::from(curve[at + span] - curve[at]) >= rate / 5.0)
            .map(|at| at as u64 * POINT_US)
    }
}

impl FromStr for Trace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut trace = Self::default();
        for line in text.lines() {
            let bad = || format!("not a line of a trace: {line}");
            let mut words = line.split_whitespace();
            match words.next() {
                Some("end_us") => {
                    let end = words.next().and_then(|word| word.parse().ok());
                    trace.end_us = end.ok_or_else(bad)?;
                }
                Some("acknowledged") => {
                    for word in words {
                        trace.acknowledged.push(word.parse().map_err(|_| bad())?);
                    }
                }
                Some("packet") => trace.rows.push(Row::read(words).ok_or_else(bad)?),
                Some(_) | None => {}
            }
        }
        Ok(trace)
    }
}

impl Row {
    fn read<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let at_us = words.next()?.parse().ok()?;
        let out = words.next()? == "out";
        let flags = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        let (sequence, acknowledgment, window, length) =
            (number()?, number()?, number()?, number()?);
        let block = |word: &str| {
            let (from, to) = word.split_once('-')?;
            Some((from.parse().ok()?, to.parse().ok()?))
        };
        let sacks = words.map(block).collect::<Option<Vec<_>>>()?;
        Some(Self { at_us, out, sequence, acknowledgment, window, sacks, length, flags })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "end_us {}", self.end_us)?;
        for points in self.acknowledged.chunks(16) {
            let points: Vec<String> = points.iter().map(u32::to_string).collect();
            writeln!(f, "acknowledged {}", points.join(" "))?;
        }
        for row in &self.rows {
            let way = if row.out { "out" } else { "in" };
            let mut sacks = String::new();
            for (from, to) in &row.sacks {
                write!(sacks, " {from}-{to}")?;
            }
            let Row { at_us, sequence, acknowledgment, window, length, flags, .. } = row;
            writeln!(
                f,
                "packet {at_us} {way} {flags} {sequence} {acknowledgment} {window} {length}{sacks}"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let row = Row {
            at_us: 17,
            out: true,
            sequence: 1,
            acknowledgment: 2,
            window: 3,
            sacks: vec![(4, 5), (6, 7)],
            length: 8,
            flags: "FA".to_owned(),
        };
        let plain = Row { flags: ".".to_owned(), ..Row::default() };
        let trace = Trace { rows: vec![row, plain], acknowledged: (0..40).collect(), end_us: 99 };
        assert_eq!(trace.to_string().parse(), Ok(trace));
        assert!("packet 1 out S 2".parse::<Trace>().is_err());
    }
}
