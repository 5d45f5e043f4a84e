//! The identity of a host, and a table with one entry per host.
//!
//! Only this file knows how hosts are ordered and numbered. What is kept per host is asked for by
//! identity, so another role (a relay) is another variant and another column.

use std::fmt;
use std::ops::{Index, IndexMut};

/// A host of the world. The order is that of turns: gateways first, then clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostId {
    /// The gateway with this number.
    Gateway(usize),
    /// The client with this number.
    Client(usize),
    /// The HTTP proxy. It has no node and no power switch, so no [`PerHost`] has an entry for it.
    Proxy,
}

/// The gateway that stories are about: the first.
pub(super) const GATEWAY: HostId = HostId::Gateway(0);
/// The client that stories are about: the first.
pub(super) const CLIENT: usize = 0;
/// Its host.
pub(super) const CLIENT_HOST: HostId = HostId::Client(CLIENT);

impl HostId {
    /// The first of all in order.
    pub(super) const FIRST: Self = Self::Gateway(0);

    /// Whether it is a gateway.
    pub(super) const fn is_gateway(self) -> bool {
        matches!(self, Self::Gateway(_))
    }

    /// The client's number, if it is a client.
    pub(super) const fn client(self) -> Option<usize> {
        match self {
            Self::Client(client) => Some(client),
            Self::Gateway(_) | Self::Proxy => None,
        }
    }

    /// A number that no other host has, for trace hashes and seeds.
    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Gateway(0) => 0,
            Self::Client(client) => client as u64 + 1,
            Self::Gateway(gateway) => u64::MAX - gateway as u64,
            Self::Proxy => u64::MAX,
        }
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway(gateway) => write!(f, "gateway {gateway}"),
            Self::Client(client) => write!(f, "client {client}"),
            Self::Proxy => f.write_str("proxy"),
        }
    }
}

/// One `T` for each host that has a node.
#[derive(Clone, Debug, Default)]
pub(super) struct PerHost<T> {
    gateways: Vec<T>,
    clients: Vec<T>,
}

impl<T> PerHost<T> {
    /// One for each of so many gateways and clients, made in order.
    pub(super) fn of(gateways: usize, clients: usize, make: impl FnMut(HostId) -> T) -> Self {
        let mut all = ids(gateways, clients).map(make);
        let gateways = all.by_ref().take(gateways).collect();
        Self { gateways, clients: all.collect() }
    }

    /// One more client, whose entry this is.
    pub(super) fn add_client(&mut self, entry: T) -> HostId {
        self.clients.push(entry);
        HostId::Client(self.clients.len() - 1)
    }

    /// How many hosts there are.
    pub(super) const fn len(&self) -> usize {
        self.gateways.len() + self.clients.len()
    }

    /// All hosts, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = HostId> + use<T> {
        ids(self.gateways.len(), self.clients.len())
    }

    /// The host at this place in the order, which wraps around.
    pub(super) fn at(&self, place: usize) -> HostId {
        let (place, gateways) = (place % self.len().max(1), self.gateways.len());
        place.checked_sub(gateways).map_or(HostId::Gateway(place), HostId::Client)
    }

    /// All entries, in the order of hosts.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.gateways.iter().chain(&self.clients)
    }

    /// The same, to change.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.gateways.iter_mut().chain(&mut self.clients)
    }
}

fn ids(gateways: usize, clients: usize) -> impl Iterator<Item = HostId> {
    (0..gateways).map(HostId::Gateway).chain((0..clients).map(HostId::Client))
}

impl<T> Index<HostId> for PerHost<T> {
    type Output = T;

    fn index(&self, host: HostId) -> &T {
        match host {
            HostId::Gateway(gateway) => &self.gateways[gateway],
            HostId::Client(client) => &self.clients[client],
            HostId::Proxy => unreachable!("the proxy has no node"),
        }
    }
}

impl<T> IndexMut<HostId> for PerHost<T> {
    fn index_mut(&mut self, host: HostId) -> &mut T {
        match host {
            HostId::Gateway(gateway) => &mut self.gateways[gateway],
            HostId::Client(client) => &mut self.clients[client],
            HostId::Proxy => unreachable!("the proxy has no node"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_come_first_and_every_host_has_its_own_number() {
        let hosts = PerHost::of(2, 3, |host| host);
        let ids: Vec<HostId> = hosts.ids().collect();
        assert!(ids.is_sorted() && ids.len() == hosts.len());
        assert!(ids.iter().copied().eq(hosts.values().copied()), "each has its own entry");
        for (place, &id) in ids.iter().enumerate() {
            assert_eq!((hosts.at(place), hosts.at(place + 5), hosts[id]), (id, id, id));
        }
        let numbers: std::collections::BTreeSet<_> = ids.iter().map(|id| id.number()).collect();
        assert_eq!(numbers.len(), ids.len());
        assert!(!numbers.contains(&HostId::Proxy.number()));
    }

    #[test]
    fn with_one_gateway_a_client_is_one_more_than_its_number() {
        let hosts = PerHost::of(1, 3, |host| host.number());
        assert!(hosts.values().copied().eq(0..4), "trace hashes stay what they were");
    }
}
