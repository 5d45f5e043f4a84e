//! Who is in a world: how many gateways and clients, and what they make of what they have.

use rove_proto::crypto::{SeededRng, StaticSecret};
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Mode, Spread};

use super::host::Holding;
use super::host_id::{HostId, PerHost};
use super::streams::Known;

/// The key of every gateway and of every client number is the same in all worlds.
const KEY_SEED: u64 = 7;

/// Who is in a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowd {
    /// Each has clients of its own ([`super::gateway::Gateways`]).
    pub(super) gateways: usize,
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
    /// One gateway, and so many clients who come at once, know of no streams and have no links but
    /// the usual ones.
    pub(super) fn usual(clients: usize, holding: Holding) -> Self {
        let (streams, mode, scheduler) = (Known::None, Mode::Backup, Scheduler::Earliest);
        let spread = Spread::default();
        Self {
            gateways: 1,
            clients,
            apart_ns: 0,
            streams,
            holding,
            beside: 0,
            mode,
            scheduler,
            spread,
        }
    }

    /// The secret of every host, which has the same one in each world. Gateways other than the
    /// first have chance of their own, so that clients keep theirs however many gateways there are.
    pub(super) fn secrets(&self) -> PerHost<StaticSecret> {
        let mut usual = SeededRng::new(KEY_SEED);
        PerHost::of(self.gateways, self.clients, |id| match id {
            HostId::Gateway(number @ 1..) => {
                StaticSecret::generate(&mut SeededRng::new(KEY_SEED + number as u64))
            }
            HostId::Gateway(_) | HostId::Client(_) | HostId::Proxy => {
                StaticSecret::generate(&mut usual)
            }
        })
    }
}
