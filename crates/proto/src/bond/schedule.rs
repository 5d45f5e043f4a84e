//! Which packet goes by which path: the one by which it arrives first.
//!
//! Each path has a line of packets that were given to it and wait until it may carry them; a packet
//! joins the line at whose end it arrives first, by the path's rate and delay and by what stands
//! there already (earliest delivery path first; Kurant, and section 4 of the design). So the line
//! of a short path grows to as long as what a long one takes more, and what leaves by both arrives
//! in the order in which it was given, nearly. Lines are filled no further than to keep every path
//! busy: what waits beyond that does so at the tunnel's entry, where its flow is known.

use std::collections::VecDeque;

use crate::blocks::{Blocks, Queue};
use crate::path::PathId;
use crate::time::{Duration, Instant};

/// How long a line keeps its path busy before another packet is given to any.
pub const AHEAD: Duration = Duration::from_millis(2);
/// Bytes that one line holds at most: half a second at 130 Mbit/s, so much may one path be longer
/// than another.
const LINE_BYTES_MAX: usize = 8 << 20;

/// A path as far as the choice goes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Way {
    /// Its name.
    pub path: PathId,
    /// When it may carry another datagram.
    pub next_at: Instant,
    /// Bytes per second that it carries.
    pub rate: f64,
    /// How much longer it takes from end to end than the shortest.
    pub delay: Duration,
    /// Whether its window has room.
    pub is_open: bool,
}

impl Way {
    /// How long so many bytes take.
    fn time(&self, bytes: usize) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "bytes of a line")]
        let seconds = bytes as f64 / self.rate.max(1.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// A packet that was given to a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Given {
    /// The bucket of its flow.
    pub bucket: u8,
    /// Its place in the sequence of that.
    pub sequence: u32,
    /// Bytes of it.
    pub len: usize,
    /// How many of them, at its end, are kept with its connection.
    pub elsewhere: usize,
}

/// The packets that were given to one path, in the order in which they leave.
#[derive(Clone, Debug)]
struct Line {
    path: PathId,
    packets: Queue,
    given: VecDeque<Given>,
}

/// The lines of all paths of one session.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    lines: Vec<Line>,
}

impl Lines {
    /// Whether nothing waits in any line.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.given.is_empty())
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.lines.iter().map(|line| line.packets.len()).sum()
    }

    /// Whether some path will soon have nothing to carry.
    pub fn starve(&self, now: Instant, ways: &[Way]) -> bool {
        ways.iter().any(|way| {
            way.is_open && way.next_at.max(now) + way.time(self.waiting(way.path)) < now + AHEAD
        })
    }

    /// The path by which a packet of `len` bytes arrives first; `None` when none has room.
    pub fn choose(&self, now: Instant, ways: &[Way], len: usize) -> Option<PathId> {
        let open = ways.iter().filter(|way| way.is_open);
        let open = open.map(|way| (way, self.waiting(way.path)));
        let roomy = open.filter(|(_, waiting)| waiting + len <= LINE_BYTES_MAX);
        let arrival = |&(way, waiting): &(&Way, usize)| {
            (way.next_at.max(now) + way.time(waiting + len) + way.delay, way.path)
        };
        roomy.min_by_key(arrival).map(|(way, _)| way.path)
    }

    /// The path by which something that leaves before all lines arrives first.
    pub fn quickest(now: Instant, ways: &[Way], len: usize) -> Option<PathId> {
        let arrival = |way: &&Way| (way.next_at.max(now) + way.time(len) + way.delay, way.path);
        ways.iter().min_by_key(arrival).map(|way| way.path)
    }

    /// Gives `packet` to `path`.
    pub fn push(&mut self, blocks: &mut Blocks, path: PathId, given: Given, packet: &[u8]) {
        debug_assert_eq!(given.len, packet.len());
        let place = self.lines.iter().position(|line| line.path == path);
        let place = place.unwrap_or_else(|| {
            let line = Line { path, packets: Queue::default(), given: VecDeque::new() };
            self.lines.push(line);
            self.lines.len() - 1
        });
        let line = &mut self.lines[place];
        line.packets.push(blocks, packet);
        line.given.push_back(given);
    }

    /// The next packet of a path, and its bytes in the two parts in which they lie.
    pub fn front(&self, path: PathId) -> Option<(Given, &[u8], &[u8])> {
        let line = self.line(path)?;
        let given = *line.given.front()?;
        let (front, back) = line.packets.slices(0, given.len);
        Some((given, front, back))
    }

    /// Forgets the next packet of a path: it has left.
    pub fn pop(&mut self, blocks: &mut Blocks, path: PathId) {
        let line = self.lines.iter_mut().find(|line| line.path == path);
        if let Some(line) = line
            && let Some(given) = line.given.pop_front()
        {
            line.packets.forget_first(blocks, given.len);
        }
    }

    /// A packet in the line of a path that is none of `ways`, appended to `packet`; to be given to
    /// another.
    pub fn take_stranded(
        &mut self,
        blocks: &mut Blocks,
        ways: &[Way],
        packet: &mut Vec<u8>,
    ) -> Option<Given> {
        let carries = |line: &Line| ways.iter().any(|way| way.path == line.path);
        let place = self.lines.iter().position(|line| !carries(line))?;
        let line = &mut self.lines[place];
        let Some(given) = line.given.pop_front() else {
            self.lines.swap_remove(place);
            return self.take_stranded(blocks, ways, packet);
        };
        line.packets.append_to(0, given.len, packet);
        line.packets.forget_first(blocks, given.len);
        Some(given)
    }

    /// The sequences begin anew: what waits is numbered by `next`, in the order that it had.
    pub fn renumber(&mut self, mut next: impl FnMut(u8) -> u32) {
        let mut all: Vec<&mut Given> =
            self.lines.iter_mut().flat_map(|line| line.given.iter_mut()).collect();
        all.sort_by(|a, b| {
            let ahead = a.sequence.wrapping_sub(b.sequence).cast_signed();
            (a.bucket, ahead).cmp(&(b.bucket, 0))
        });
        all.into_iter().for_each(|given| given.sequence = next(given.bucket));
    }

    /// Forgets everything. Returns how many packets that were.
    pub fn clear(&mut self, blocks: &mut Blocks) -> usize {
        let packets = self.lines.iter().map(|line| line.given.len()).sum();
        self.lines.drain(..).for_each(|mut line| line.packets.truncate(blocks, 0));
        packets
    }

    fn line(&self, path: PathId) -> Option<&Line> {
        self.lines.iter().find(|line| line.path == path)
    }

    fn waiting(&self, path: PathId) -> usize {
        self.line(path).map_or(0, |line| line.packets.len())
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
