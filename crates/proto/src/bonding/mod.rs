//! Paths with a share, one or several, used as one: chooses the path of each packet and the time
//! when it leaves, sends copies of realtime packets, and repairs losses.
//!
//! [`Bonding::send`] (in `dispatch`) sends a packet through the tunnel at once, or puts it into the
//! queues of `multipath`. [`Bonding::serve`] empties these queues. A file calls only files of the
//! groups below its own:
//! - `dispatch` (the path of a packet, and when it leaves);
//! - `live` (realtime packets and their copies), `retransmit` (lost packets), `share` (the paths
//!   that carry together);
//! - `snapshots` (these paths as the scheduler sees them), `coupling` (shared bottlenecks),
//!   `settings` (the scheduler and the kind of repair that a client asks for).

use crate::ablation::Ablation;
use crate::blocks::Blocks;
use crate::multipath::scheduler::Scheduler;
use crate::multipath::{Multipath, Recovery};
use crate::tunnel::Tunnel;
use live::Live;

mod coupling;
pub(crate) mod dispatch;
pub(crate) mod live;
mod retransmit;
mod settings;
mod share;
mod snapshots;

/// One end of a tunnel that sends by several paths.
#[derive(Debug, Default)]
pub(crate) struct Bonding {
    pub(crate) multipath: Multipath,
    /// Realtime packets, and the budgets for their copies.
    live: Live,
    /// Client: the scheduler that the gateway was asked for in this epoch.
    scheduler_told: Option<Scheduler>,
    /// Client: the kind of repair that the gateway uses in this epoch. It uses the default until it
    /// is asked for another.
    recovery_told: Recovery,
}

impl Bonding {
    /// Goes without these heuristics from now on.
    pub(crate) const fn leave_out(&mut self, ablation: Ablation) {
        self.multipath.ablation = ablation;
    }

    /// The session has new keys. A gateway uses the default repair until it is asked for another
    /// under them.
    pub(crate) fn begin_epoch(&mut self, tunnel: &Tunnel) {
        self.scheduler_told = None;
        self.recovery_told = Recovery::default();
        if tunnel.paths.at_gateway() {
            self.multipath.recovery = Recovery::default();
        }
    }

    /// Notes whether any path has a share. If none has, new packets do not come here.
    pub(crate) fn note_shares(&mut self, tunnel: &Tunnel) {
        self.multipath.is_shared = tunnel.paths.list.iter().any(|path| path.congestion.is_some());
    }

    /// Drops all waiting packets, because the session ends. Returns how many there were. Copies in
    /// `live` stay: they name their epoch and are not sent under another.
    pub(crate) fn forget(&mut self, blocks: &mut Blocks) -> usize {
        self.multipath.clear(blocks)
    }
}
