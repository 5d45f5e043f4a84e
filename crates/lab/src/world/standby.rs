//! A link that stands by while another carries, and what a host sends by it all the same.

use std::net::IpAddr;

use super::host_id::HostId;
use super::place::Place;

/// Layer-3 bytes of a question that is padded, by IPv4 and by IPv6. Where a gateway has left many
/// addresses each is asked so for a while, once a second: that is not counted.
const ASKED: [u64; 2] = [1_228, 1_248];

/// What is counted of a link that stands by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standby {
    client: usize,
    access: usize,
    bytes: u64,
}

impl Standby {
    /// Nothing was counted of the link by which a client is in an access network.
    pub(super) const fn new(client: usize, access: usize) -> Self {
        Self { client, access, bytes: 0 }
    }

    /// Layer-3 bytes that went by it, both ways.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A datagram of `len` bytes of or for the client `of` leaves `host` for `to`, by the access
    /// network `by` if the host is a client.
    pub(super) fn count(
        &mut self,
        place: &Place,
        of: Option<HostId>,
        (host, by): (HostId, usize),
        to: IpAddr,
        len: u64,
    ) {
        let is_there = match host {
            HostId::Gateway(_) => place.is_of(self.client, self.access, to),
            HostId::Client(_) | HostId::Proxy => by == self.access,
        };
        let is_its = of == Some(HostId::Client(self.client));
        if is_its && is_there && len != ASKED[usize::from(to.is_ipv6())] {
            self.bytes += len;
        }
    }
}
