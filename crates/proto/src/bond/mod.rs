//! Many links as one: what waits for a turn, who goes where, and how it becomes a sequence again.
//!
//! Out: packets wait at the tunnel's `entry`, each flow in a queue of its own, until a path has
//! need of one; `choice` says which path gets it, by the scheduler that the client asked for, and
//! `schedule` keeps it until that one may carry it. In: `reorder` puts in sequence what came by
//! several paths, or a second time. Knows packets, times and rates, not addresses or keys: the peer
//! says which paths there are, and each path's congestion controller how much it carries.

pub mod bottleneck;
pub mod choice;
pub mod codel;
pub mod entry;
pub mod far;
pub mod reorder;
pub mod schedule;

use crate::blocks::Blocks;
use crate::path::PathId;
use crate::time::{Duration, Instant};
use bottleneck::Bottlenecks;
use choice::Scheduler;
use codel::Bound;
use entry::Entry;
use far::Far;
use schedule::{Lines, Way};

/// What is made of the links that a client has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mode {
    /// One path carries, and no other is prepared: where it dies, one is looked for then.
    Single,
    /// One path carries; by every other link one is proven ahead of need.
    Backup,
    /// What every link can carry, together.
    #[default]
    Full,
}

/// What a flow has by having its losses mended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Recovery {
    /// What the links carry in sum: as much of it may wait at the entry as lasts until a gap is
    /// mended.
    #[default]
    Throughput,
    /// A short queue at the entry, as if nothing were mended, and less of the sum where something
    /// is lost.
    Latency,
}

impl Recovery {
    /// Its number on the wire (docs/spec/wire.md, section 4).
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The one with that number on the wire; `None` for one of a later version.
    pub const fn numbered(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Throughput),
            1 => Some(Self::Latency),
            _ => None,
        }
    }
}

/// Which paths carry together, where the mode is [`Mode::Full`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// From which links to which of the gateway's addresses.
    pub manager: Manager,
    /// How many paths lead from one address to the other, each by a port of its own; 1 to
    /// [`SUBFLOWS_MAX`].
    pub subflows: u8,
}

/// What decides which paths there are (Lukaszewski's thesis, 2.2.2: the path managers of MPTCP).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Manager {
    /// Each link has its best.
    #[default]
    OnePerLink,
    /// Each link has one to each of the gateway's addresses.
    FullMesh,
}

/// Paths from one address to another.
pub const SUBFLOWS_MAX: u8 = 4;

impl Default for Spread {
    fn default() -> Self {
        Self { manager: Manager::default(), subflows: 1 }
    }
}

/// Flow buckets in one direction of a session.
pub const BUCKETS: usize = 256;

/// What one end of a session has to send by several paths.
#[derive(Debug, Default)]
pub struct Bond {
    /// Which path gets the next packet.
    pub scheduler: Scheduler,
    /// What flows shall have by repair.
    pub recovery: Recovery,
    /// Whether any path was told to carry a share: else nothing of this concerns a packet.
    pub is_shared: bool,
    /// What waits for any of them.
    pub entry: Entry,
    /// What was given to one.
    pub lines: Lines,
    /// When one may carry again; `None` while nothing waits for that.
    pub due: Option<Instant>,
    /// There is no room for what arrived in sequence before.
    pub rests_until: Instant,
    /// When something last came whose turn had been given up, and how long a gap is held open
    /// because of that.
    pub lateness: Option<(Instant, Duration)>,
    /// Since when no path carries anything.
    pub idle_since: Option<Instant>,
    /// Room for one packet that comes out of the sequence.
    pub packet: Vec<u8>,
    /// The paths that carry, as they were when they were looked at last,
    pub ways: Vec<Way>,
    /// how long what they carry may stand at the entry,
    pub standing: Bound,
    /// which of them count as as far as others,
    pub far: Far,
    /// and when that was, and after how many changes to paths.
    pub looked: Option<(Instant, u64)>,
    /// What the last path carried that has no share any more, bytes per second.
    pub carried: Option<f64>,
    /// When a path took the place of one that carried.
    pub replaced_at: Option<Instant>,
    /// Which of them lead through one queue.
    pub bottlenecks: Bottlenecks,
    /// Whether something waits because as much is on its way by some path as may be.
    pub is_closed: bool,
    /// Whether something waited when the paths were looked at last.
    pub is_wanted: bool,
}

impl Bond {
    /// Whether nothing waits.
    pub fn is_idle(&self) -> bool {
        self.entry.is_empty() && self.lines.is_empty()
    }

    /// So many bytes have left by a path, which may carry another datagram at `next_at`.
    pub fn left(&mut self, path: PathId, next_at: Instant, bytes: usize) {
        if let Some(way) = self.ways.iter_mut().find(|way| way.path == path) {
            way.next_at = next_at;
            way.room = way.room.saturating_sub(bytes as u64);
        }
    }

    /// Forgets what waits of which `is_useless` says so.
    pub fn forget(&mut self, blocks: &mut Blocks, mut is_useless: impl FnMut(&[u8]) -> bool) {
        self.entry.forget(blocks, &mut is_useless);
        self.lines.forget(blocks, &mut is_useless);
        self.looked = None;
    }

    /// The session ends: what waits is forgotten, and what is known of paths, whose names begin
    /// anew. What the client asked for stays. Returns how many packets waited.
    pub fn clear(&mut self, blocks: &mut Blocks) -> usize {
        let waited = self.entry.clear(blocks) + self.lines.clear(blocks);
        *self = Self { scheduler: self.scheduler, recovery: self.recovery, ..Self::default() };
        waited
    }
}

/// The next number of each bucket's sequence, in one direction of an epoch.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    next: Vec<u32>,
}

impl Numbers {
    /// The number of the bucket's next packet.
    pub fn take(&mut self, bucket: u8) -> u32 {
        self.next.resize(BUCKETS, 0);
        let next = &mut self.next[usize::from(bucket)];
        let number = *next;
        *next = number.wrapping_add(1);
        number
    }

    /// How many numbers of the bucket were taken; wraps.
    pub fn taken(&self, bucket: u8) -> u32 {
        self.next.get(usize::from(bucket)).copied().unwrap_or(0)
    }
}
