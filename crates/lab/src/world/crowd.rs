//! Who is in a world: how many clients, and what they make of what they have.

use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Mode, Spread};

use super::host::Holding;
use super::streams::Known;

/// Who is in a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowd {
    pub(super) clients: usize,
    /// They come one after the other, so far apart: a desk takes its time, and lets only so many
    /// wait.
    pub(super) apart_ns: u64,
    /// Of which streams they know.
    pub(super) streams: Known,
    /// What they and the gateway do with open connections.
    pub(super) holding: Holding,
    /// How many networks the first has beside the usual ones, and a card for each.
    pub(super) beside: usize,
    /// What clients make of their links,
    pub(super) mode: Mode,
    /// and how they choose among those that carry together.
    pub(super) scheduler: Scheduler,
    /// Which paths carry together.
    pub(super) spread: Spread,
}

impl Crowd {
    /// So many who come at once, know of no streams and have no links but the usual ones.
    pub(super) fn usual(clients: usize, holding: Holding) -> Self {
        let (streams, mode, scheduler) = (Known::None, Mode::Backup, Scheduler::Earliest);
        let spread = Spread::default();
        Self { clients, apart_ns: 0, streams, holding, beside: 0, mode, scheduler, spread }
    }
}
