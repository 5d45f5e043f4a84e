//! Many links as one: what waits for a turn, who goes where, and how it becomes a sequence again.
//!
//! Out: packets wait at the tunnel's `entry`, each flow in a queue of its own, until a path has
//! need of one; the `scheduler` that the client asked for says which path gets it, `numbers` what
//! its place in the sequence is, and `lines` keep it until that path may carry it; what is small
//! waits for none of this. In: `reorder` puts in sequence what came by several paths, or a second
//! time. Knows packets, times and rates, not addresses or keys: `bonding` says which paths
//! there are, and each path's congestion controller how much it carries.

mod abandoned;
pub mod bottleneck;
pub mod codel;
pub mod far;
pub mod fq_codel;
mod numbers;
pub mod path_queues;
mod progress;
pub mod reorder;
pub mod scheduler;
mod settings;
pub mod snapshot;

use crate::ablation::Ablation;
use crate::blocks::Blocks;
use crate::recovery::lateness::Lateness;
use crate::time::{Duration, Instant};
use bottleneck::Bottlenecks;
use codel::Bound;
use far::Far;
use fq_codel::FqCodel;
pub use numbers::Numbers;
use path_queues::PathQueues;
use scheduler::Scheduler;
pub use settings::{Manager, Mode, Recovery, SUBFLOWS_MAX, Spread};

/// Flow buckets in one direction of a session.
pub(crate) const BUCKETS: usize = 256;

/// What one end of a session has to send by several paths, and what it needs of them for that.
#[derive(Debug, Default)]
pub(crate) struct Multipath {
    /// Which path gets the next packet.
    pub scheduler: Scheduler,
    /// What flows shall have by repair.
    pub recovery: Recovery,
    /// The heuristics that it goes without.
    pub ablation: Ablation,
    /// Whether any path was told to carry a share: else nothing of this concerns a packet.
    pub is_shared: bool,

    /// What waits for any of them.
    pub entry: FqCodel,
    /// How long what the paths carry may stand at the entry.
    pub standing: Bound,
    /// What was given to one.
    pub lines: PathQueues,
    /// When one may carry again; `None` while nothing waits for that.
    pub due: Option<Instant>,
    /// Whether something waits because as much is on its way by some path as may be.
    pub is_closed: bool,

    /// Which of those count as as far as others.
    pub far: Far,
    /// When they were looked at last, and after how many changes to paths; `None` while that is no
    /// longer true.
    pub looked: Option<(Instant, u64)>,
    /// Whether something waited then.
    pub is_wanted: bool,
    /// Which of the paths lead through one queue.
    pub bottlenecks: Bottlenecks,

    /// Since when no path carries anything.
    pub idle_since: Option<Instant>,
    /// What the last path carried that has no share any more, bytes per second.
    pub carried: Option<f64>,

    /// How late this host's turns are.
    pub late: Lateness,

    /// What comes out of the sequence here.
    pub inbound: Inbound,
}

/// How packets come out of the sequence at this end.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// There is no room for what arrived in sequence before.
    pub rests_until: Instant,
    /// When something last came whose turn had been given up, and how long a gap is held open
    /// because of that.
    pub lateness: Option<(Instant, Duration)>,
    /// Room for one packet that comes out.
    pub packet: Vec<u8>,
}

impl Multipath {
    /// Whether nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.entry.is_empty() && self.lines.is_empty()
    }

    /// Forgets what waits of which `is_useless` says so.
    pub(crate) fn forget(
        &mut self,
        blocks: &mut Blocks,
        mut is_useless: impl FnMut(&[u8]) -> bool,
    ) {
        self.entry.forget(blocks, &mut is_useless);
        self.lines.forget(blocks, &mut is_useless);
        self.looked = None;
    }

    /// The session ends: what waits is forgotten, and what is known of paths, whose names begin
    /// anew. What the client asked for stays. Returns how many packets waited.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) -> usize {
        let waited = self.entry.clear(blocks) + self.lines.clear(blocks);
        let Self { scheduler, recovery, ablation, .. } = *self;
        *self = Self { scheduler, recovery, ablation, ..Self::default() };
        waited
    }
}
