//! A way by which a client may reach its gateway. `connector` and `plan` choose among them.

use std::net::{IpAddr, SocketAddr};

use crate::id::{LinkId, Transport};

/// A way to reach the gateway: from a link's address to one of the gateway's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) link: LinkId,
    pub(crate) local: IpAddr,
    pub(crate) remote: SocketAddr,
    /// How a stream there is made; `None` for UDP.
    pub(crate) stream: Option<u8>,
}

impl Candidate {
    /// What carries datagrams there.
    pub(crate) const fn transport(&self) -> Transport {
        match self.stream {
            Some(_) => Transport::Stream,
            None => Transport::Udp,
        }
    }
}
