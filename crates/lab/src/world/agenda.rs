//! What is due at a time, and doing it: everything that does not happen by a packet or a timer.

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
    /// The gateway's desk has decided about an enrolment.
    Decide { peer: PeerKey, client: Option<usize>, token: Token },
    /// The gateway's name stands for where it is now.
    Rename,
    /// A client asks for the name, if nothing carries.
    AskName { client: usize, at_ns: u64 },
    /// And is answered.
    Resolved { client: usize },
    /// A client was told by the gateway where it is reached.
    Announced { client: usize, addresses: Vec<SocketAddr> },
    /// It is written down that bytes of a connection are owed.
    Recorded { host: usize, peer: PeerKey, tuple: Tuple },
    /// A card is plugged out.
    Unplug { client: usize, card: usize },
    /// The gateway gives up the addresses that it had before those.
    Retire { kept: Vec<IpAddr> },
    /// The gateway that began anew calls back who was reached by its predecessor.
    Recall { peer: PeerKey },
    /// A node is told that a socket of its is of no use any more.
    SocketFailed { host: HostId, socket: SocketId },
    /// A busy host's shell gets its turn.
    Turn { host: HostId },
    /// A host wakes up or starts.
    PowerOn { host: HostId, reboot: bool },
}
