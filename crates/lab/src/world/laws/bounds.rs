//! Nothing grows without bound: paths, queues, sockets, indices, what is held of connections, the
//! rate of handshakes.

use std::collections::VecDeque;

use rove_proto::flow::waiting::WAITING_MAX;
use rove_proto::multipath::{fq_codel, reorder};
use rove_proto::node::PeerStatus;
use rove_proto::path::PATHS_MAX;
use rove_proto::session::epoch::{INDICES_AHEAD, LANES_MAX};
use rove_proto::session::epochs::PENDING_MAX;
use rove_proto::wire::control::INDICES_MAX;
use rove_proto::wire::handshake::INDEX_COUNT;

use super::{Breach, Law};
use crate::emu::SECOND;

/// Handshakes that a client may begin in a minute, whatever happens: a round of eight candidates
/// every five seconds, and a fresh start for each of a few changes of its links.
const PER_MINUTE_MAX: usize = 400;
/// Handshakes of one client that can be answered at once.
const ATTEMPTS_MAX: usize = 16;
/// Sockets of a client: one a path, and one for each handshake that can still be answered.
pub(super) const SOCKETS_MAX: usize = PATHS_MAX + ATTEMPTS_MAX;
/// What waits at the entry of a tunnel of several paths, and at its exit with one packet more.
const QUEUED_BYTES_MAX: usize = fq_codel::BYTES_MAX;
const EARLY_BYTES_MAX: usize = reorder::BYTES_MAX + (2 << 10);
/// Indices of one peer: current, previous and pending epochs, and a client's attempts.
pub(super) const INDICES_PER_PEER: usize = (2 + PENDING_MAX)
    * (LANES_MAX + INDICES_AHEAD as usize + INDICES_MAX + INDEX_COUNT)
    + ATTEMPTS_MAX * INDEX_COUNT;

/// Checks one session, and the sockets of its host.
pub(in crate::world) fn check_status(status: &PeerStatus, sockets: usize) -> Result<(), Breach> {
    if status.paths.len() > PATHS_MAX {
        return breach(format!("{} paths", status.paths.len()));
    }
    if status.waiting > WAITING_MAX {
        return breach(format!("{} packets wait", status.waiting));
    }
    if status.queued_bytes > QUEUED_BYTES_MAX {
        return breach(format!("{} bytes wait for their turn", status.queued_bytes));
    }
    if status.early_bytes > EARLY_BYTES_MAX {
        return breach(format!("{} bytes wait for what comes before", status.early_bytes));
    }
    if sockets > SOCKETS_MAX {
        return breach(format!("{sockets} sockets"));
    }
    Ok(())
}

/// Checks a node that has `issued` session indices to `peers` peers.
pub(in crate::world) fn check_indices(issued: usize, peers: usize) -> Result<(), Breach> {
    if issued > peers * INDICES_PER_PEER {
        return breach(format!("{issued} session indices for {peers} peers"));
    }
    Ok(())
}

/// Checks a node that holds so many bytes of connections, of so many.
pub(in crate::world) fn check_held(held: usize, max: usize) -> Result<(), Breach> {
    if held > max {
        return breach(format!("{held} bytes are held of connections, {max} allowed"));
    }
    Ok(())
}

const fn breach(what: String) -> Result<(), Breach> {
    Err(Breach::new(Law::Bounds, what))
}

/// When a client began its latest handshakes, and with which counters.
#[derive(Debug, Default)]
pub(in crate::world) struct Handshakes {
    recent_ns: VecDeque<u64>,
    highest: Option<u64>,
    total: u64,
}

impl Handshakes {
    /// A handshake begins.
    pub(in crate::world) fn begin(&mut self, now_ns: u64, counter: u64) -> Result<(), Breach> {
        if self.highest.is_some_and(|highest| counter <= highest) {
            let what = format!("counter {counter} after {:?}", self.highest);
            return Err(Breach::new(Law::Restart, what));
        }
        self.highest = Some(counter);
        self.total += 1;
        self.recent_ns.push_back(now_ns);
        while self.recent_ns.front().is_some_and(|&at| at + 60 * SECOND < now_ns) {
            self.recent_ns.pop_front();
        }
        if self.recent_ns.len() > PER_MINUTE_MAX {
            return breach(format!("{} handshakes in a minute", self.recent_ns.len()));
        }
        Ok(())
    }

    /// The store went back in time: counters may repeat, and the gateway will say so.
    pub(in crate::world) const fn forget_counter(&mut self) {
        self.highest = None;
    }

    /// Handshakes so far.
    pub(in crate::world) const fn total(&self) -> u64 {
        self.total
    }
}
