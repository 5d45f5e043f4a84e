//! What the data thread reports: events of the core, and the sessions at one moment.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use rove_os::stream::Subflow;
use rove_proto::id::SocketId;
use rove_proto::node::{Event, PeerStatus};
use rove_proto::time::Instant;

/// How long a refusal to send counts. A client that gets no answer asks again within some seconds.
/// Half as long would end the problem between two tries. Twice as long would keep it after its
/// cure.
const FORBIDDEN_LASTS: Duration = Duration::from_secs(30);

/// The sessions at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// That moment.
    pub now: Instant,
    /// One entry per peer that was asked for and is known.
    pub peers: Vec<PeerStatus>,
    /// What was thrown away so far, by the core and by the kernel, by name; without what never was.
    pub drops: Vec<(&'static str, u64)>,
    /// What carries the paths that are streams.
    pub streams: BTreeMap<SocketId, Carried>,
    /// For how long packets for the tunnel's interface have not been joined, because the kernel
    /// refused joined ones.
    pub merging_off: Option<Duration>,
    /// A destination to which this host does not let datagrams out.
    pub forbidden: Option<Forbidden>,
}

/// A firewall of this host drops what goes to this destination: the kernel answers EPERM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forbidden {
    /// The destination that was refused last.
    pub remote: SocketAddr,
    /// Since when nothing has left for it.
    pub since: std::time::Instant,
    /// When the kernel refused last.
    pub last: std::time::Instant,
}

impl Forbidden {
    /// Whether that is still so, as far as is known: a client asks a gateway that does not answer
    /// more often.
    pub fn lasts(&self) -> bool {
        self.last.elapsed() < FORBIDDEN_LASTS
    }
}

/// What carries a path that is a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Carried {
    /// `tcp` or `mptcp`, and `+tls` if that is around it.
    pub transport: &'static str,
    /// What one of MPTCP goes by.
    pub subflows: Vec<Subflow>,
}

/// What the data thread tells.
#[derive(Debug)]
pub enum News {
    /// Something happened in the core.
    Event(Event),
    /// The thread has ended without being told to: why.
    Ended(String),
}
