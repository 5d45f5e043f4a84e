//! Paths with a share, one or several, used as one: chooses the path of each packet and the time
//! when it leaves, and the paths of a realtime packet's copies.
//!
//! A packet leaves in one of three ways: by [`Bonding::choose_live`], by [`Bonding::may_hurry`], or
//! in its turn, by the queues of `multipath` ([`Bonding::enter`]) and [`Bonding::take`]. A file
//! calls only files of the groups below its own:
//! - `dispatch` (the path of a packet, and when it leaves);
//! - `live` (realtime packets and their copies);
//! - `choice` (the path of a realtime packet and of its copies, among values),
//!   `snapshots` (these paths as the scheduler sees them), `settings` (the scheduler and the kind
//!   of repair that a client asks for).

use crate::ablation::Ablation;
use crate::blocks::Blocks;
use crate::blocks::parcel::Parcel;
use crate::codec::sampling::Scarce;
use crate::multipath::bucket::BUCKETS;
use crate::multipath::codel::Bound;
use crate::multipath::far::Far;
use crate::multipath::fq_codel::{FqCodel, WAIT_MAX};
use crate::multipath::path_queues::{Numbered, PathQueues};
use crate::multipath::snapshot::PathSnapshot;
use crate::outbox::REST;
use crate::packet::{Instance, PacketRecord};
use crate::recovery::lateness::Lateness;
use crate::time::{Duration, Instant};
use choice::Live;
use settings::Settings;

pub(crate) mod choice;
mod dispatch;
pub(crate) mod live;
mod settings;
pub(crate) mod snapshots;

/// Turns that are usually later than this are a busy processor's: a path queue runs empty then.
const BUSY: Duration = Duration::from_millis(2);

/// One end of a tunnel that sends by several paths.
#[derive(Debug, Default)]
pub(crate) struct Bonding {
    /// What the client asked for.
    pub(crate) settings: Settings,
    /// The heuristics that it goes without.
    ablation: Ablation,

    /// Some path was told to carry a share. Otherwise no packet passes here.
    pub(crate) is_shared: bool,
    /// Packets that wait for any path.
    pub(crate) entry: FqCodel,
    /// How long what the paths carry may stand at the entry.
    standing: Bound,
    /// Packets that were given to one path.
    lines: PathQueues,
    /// The paths with a share that may carry now.
    ways: Vec<PathSnapshot>,
    /// When a path may carry again; `None` while nothing waits for that.
    due: Option<Instant>,
    /// Something waits because the window of some path is full.
    is_closed: bool,
    /// Something waited for a path when that was noted last.
    is_wanted: bool,
    /// Since when no path carries anything.
    idle_since: Option<Instant>,

    /// When the paths were looked at last, and after how many changes to them; `None` if they have
    /// to be looked at anew.
    looked: Option<(Instant, u64)>,
    /// Which paths count as as far as others.
    far: Far,
    /// How late this host's turns are.
    pub(crate) late: Lateness,
    /// Realtime packets, and the budgets for their copies.
    live: Live,
}

/// A packet that waits while no path has a share.
pub(crate) enum Unsent {
    /// It has its place in a sequence.
    Given(Numbered),
    /// It has none.
    Entered(PacketRecord),
}

impl Bonding {
    /// Sends nothing yet, and will go without the heuristics of `ablation`.
    pub(crate) fn new(ablation: Ablation) -> Self {
        Self { ablation, ..Self::default() }
    }

    /// Whether nothing waits.
    fn is_idle(&self) -> bool {
        self.entry.is_empty() && self.lines.is_empty()
    }

    /// What is short at this end, which decides whether compression pays: the processor, if turns
    /// are usually later than what a path queue is filled for, or the paths, if packets wait.
    pub(crate) fn scarce(&self) -> Scarce {
        Scarce::of(self.late.usual() > BUSY, !self.entry.is_empty())
    }

    /// Drops what waits of which `is_useless` says so.
    pub(crate) fn drop_useless(
        &mut self,
        blocks: &mut Blocks,
        mut is_useless: impl FnMut(PacketRecord, &[u8]) -> bool,
    ) {
        self.entry.forget(blocks, &mut is_useless);
        self.lines.forget(blocks, &mut is_useless);
        self.looked = None;
    }

    /// The first number under the current keys that waits for a path, of each bucket.
    pub(crate) fn first_numbers(&self) -> [Option<u32>; BUCKETS] {
        self.lines.firsts()
    }

    /// No path carries. What was given to one waits no longer than at the entry. Returns how many
    /// packets were dropped.
    pub(crate) fn wait_for_path(&mut self, blocks: &mut Blocks, now: Instant) -> usize {
        let due = *self.idle_since.get_or_insert(now) + WAIT_MAX;
        if self.lines.is_empty() {
            return 0;
        }
        if now < due {
            self.due = Some(due);
            return 0;
        }
        self.lines.clear(blocks)
    }

    /// No path has a share any more: the next packet that waits, for the one path that there is, if
    /// there is room for it.
    pub(crate) fn next_unsent(
        &mut self,
        now: Instant,
        has_room: bool,
        blocks: &mut Blocks,
    ) -> Option<(Unsent, Parcel)> {
        self.idle_since = None;
        if !has_room {
            self.due = Some(now + REST);
            return None;
        }
        while let Some((given, packet)) = self.lines.take_stranded(&[]) {
            if given.record.instance != Instance::Duplicate {
                return Some((Unsent::Given(given), packet));
            }
            blocks.discard(packet);
        }
        let (record, packet) = self.entry.pop(blocks, now)?;
        Some((Unsent::Entered(record), packet))
    }

    /// The session ends: what waits is dropped, and what is known of paths is forgotten, since
    /// their names begin anew. What the client asked for stays. Copies in `live` stay as well: they
    /// name their epoch and are not sent under another. Returns how many packets waited.
    pub(crate) fn forget(&mut self, blocks: &mut Blocks) -> usize {
        let waited = self.entry.clear(blocks) + self.lines.clear(blocks);
        let Self { settings, ablation, .. } = *self;
        let live = std::mem::take(&mut self.live);
        *self = Self { settings, ablation, live, ..Self::default() };
        waited
    }
}

#[cfg(test)]
#[path = "bonding_tests.rs"]
mod tests;
