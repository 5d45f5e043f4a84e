//! What is due at a time, and doing it: everything that does not happen by a packet or a timer.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rove_proto::crypto::Token;
use rove_proto::flow::tuple::Tuple;
use rove_proto::id::{PeerKey, SocketId};

use super::host_id::HostId;
use super::inner::Body;
use super::op::Way;
use super::parcel::Parcel;
use crate::emu;

/// What is due at a time.
#[derive(Debug)]
pub(super) enum Task {
    /// An inner packet is sent.
    Send { client: usize, way: Way, body: Body },
    /// A datagram that was held goes its way.
    Release { host: HostId, link: emu::LinkId, parcel: Parcel },
    /// A gateway's desk has decided about an enrolment.
    Decide { gateway: HostId, peer: PeerKey, client: Option<usize>, token: Token },
    /// A gateway's name stands for where it is now.
    Rename { gateway: HostId },
    /// A client asks for the name, if nothing carries.
    AskName { client: usize, at_ns: u64 },
    /// And is answered.
    Resolved { client: usize },
    /// A client was told by the gateway where it is reached.
    Announced { client: usize, addresses: Vec<SocketAddr> },
    /// It is written down that bytes of a connection are owed.
    Recorded { host: HostId, peer: PeerKey, tuple: Tuple },
    /// A card is plugged out.
    Unplug { client: usize, card: usize },
    /// A gateway gives up the addresses that it had before those.
    Retire { gateway: HostId, kept: Vec<IpAddr> },
    /// A gateway that began anew calls back who was reached by its predecessor.
    Recall { gateway: HostId, peer: PeerKey },
    /// A node is told that a socket of its is of no use any more.
    SocketFailed { host: HostId, socket: SocketId },
    /// A busy host's shell gets its turn.
    Turn { host: HostId },
    /// A host wakes up or starts.
    PowerOn { host: HostId, reboot: bool },
}

/// What is due, in the order of time and then of asking.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    tasks: BTreeMap<(u64, u64), Task>,
    scheduled: u64,
}

impl Agenda {
    /// Puts a task on it.
    pub(super) fn schedule(&mut self, at_ns: u64, task: Task) {
        self.scheduled += 1;
        self.tasks.insert((at_ns, self.scheduled), task);
    }

    /// When the next one is due.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.tasks.first_key_value().map(|(&(at_ns, _), _)| at_ns)
    }

    /// Takes one that is due.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Task> {
        let first = self.tasks.first_entry()?;
        (first.key().0 <= now_ns).then(|| first.remove())
    }

    /// Takes all, also what is not due.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Task> + use<> {
        std::mem::take(&mut self.tasks).into_values()
    }
}
