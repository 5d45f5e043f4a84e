//! What there is of a gateway outside of its node, and which gateway serves which client.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rove_proto::crypto::Token;
use rove_proto::id::PeerKey;

use super::addresses::gateway_addresses;
use super::host_id::HostId;
use super::store::GatewayStore;
use crate::emu::{self, LinkId};

/// What its operator, its host and its name server know.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) host: HostId,
    pub(super) key: PeerKey,
    pub(super) store: GatewayStore,
    /// Its link to the Internet.
    pub(super) link: LinkId,
    /// What its name stands for.
    pub(super) name: Vec<SocketAddr>,
    /// Whether it has announced its addresses at least once.
    pub(super) announces: bool,
    /// What its wall clock is wrong by, in seconds.
    pub(super) wall_error_s: i64,
    /// The clients that belong to it.
    pub(super) clients: Vec<usize>,
    /// Its number among gateways.
    pub(super) number: usize,
    /// How often it has got addresses.
    moves: u16,
    /// Where it last found that a client is, by address.
    whereabouts: BTreeMap<SocketAddr, usize>,
    /// Whose session was looked at last: the place among its clients.
    inspected: usize,
}

impl Gateway {
    /// One that knows nobody.
    const fn new(number: usize, key: PeerKey, link: LinkId, store: GatewayStore) -> Self {
        Self {
            host: HostId::Gateway(number),
            key,
            store,
            link,
            name: Vec::new(),
            announces: false,
            wall_error_s: 0,
            clients: Vec::new(),
            number,
            moves: 0,
            whereabouts: BTreeMap::new(),
            inspected: 0,
        }
    }

    /// What its wall clock shows, in seconds.
    pub(super) const fn wall_s(&self, now_ns: u64) -> i64 {
        (now_ns / emu::SECOND) as i64 + self.wall_error_s
    }

    /// The operator gives out an invite.
    pub(super) fn invite(&mut self, now_ns: u64, token: &Token) {
        self.store.invite(self.wall_s(now_ns), token);
    }

    /// The addresses that it has next, one of each family.
    pub(super) fn next_addresses(&mut self) -> Vec<IpAddr> {
        self.moves = self.moves % 250 + 1;
        gateway_addresses(self.number, self.moves)
    }

    /// The client whose session is looked at next, if it has any.
    pub(super) fn next_inspected(&mut self) -> Option<usize> {
        self.inspected = (self.inspected + 1) % self.clients.len().max(1);
        self.clients.get(self.inspected).copied()
    }

    /// The client at `remote`: mostly whoever was there the last time.
    pub(super) fn client_at(
        &mut self,
        remote: SocketAddr,
        is_there: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let known = self.whereabouts.get(&remote).copied().filter(|&client| is_there(client));
        let found = || self.clients.iter().copied().find(|&client| is_there(client));
        let client = known.or_else(found)?;
        self.whereabouts.insert(remote, client);
        Some(client)
    }
}

/// All gateways. Clients belong to them in turn: the first to the first, the second to the second.
#[derive(Debug)]
pub(super) struct Gateways(Vec<Gateway>);

impl Gateways {
    /// Gateways with these keys and links, and so many clients.
    pub(super) fn new(gateways: impl Iterator<Item = (PeerKey, LinkId)>, clients: usize) -> Self {
        let new = |(number, (key, link))| Gateway::new(number, key, link, GatewayStore::default());
        let mut all = Self(gateways.enumerate().map(new).collect());
        for client in 0..clients {
            all.of_mut(HostId::Client(client)).clients.push(client);
        }
        all
    }

    /// The gateway that serves a client.
    pub(super) fn serving(&self, client: usize) -> &Gateway {
        self.of(HostId::Client(client))
    }

    /// The gateway that a host is, or that serves it.
    pub(super) fn of(&self, host: HostId) -> &Gateway {
        &self.0[self.place(host)]
    }

    /// The same, to change.
    pub(super) fn of_mut(&mut self, host: HostId) -> &mut Gateway {
        let place = self.place(host);
        &mut self.0[place]
    }

    fn place(&self, host: HostId) -> usize {
        match host {
            HostId::Gateway(gateway) => gateway,
            HostId::Client(client) => client % self.0.len(),
            HostId::Proxy => unreachable!("no gateway serves the proxy"),
        }
    }

    /// Another gateway than the one that serves a client, if there is another.
    pub(super) fn not_serving(&self, client: usize) -> Option<HostId> {
        let other = self.hosts().nth((self.place(HostId::Client(client)) + 1) % self.0.len())?;
        (other != self.serving(client).host).then_some(other)
    }

    /// Whether two hosts may speak to each other at all.
    pub(super) fn share(&self, one: HostId, other: HostId) -> bool {
        self.place(one) == self.place(other)
    }

    /// The gateway at this place in the order, which wraps around.
    pub(super) fn at(&self, place: u8) -> &Gateway {
        &self.0[usize::from(place) % self.0.len()]
    }

    /// All of them as hosts, in order.
    pub(super) fn hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.0.len()).map(HostId::Gateway)
    }
}

#[cfg(test)]
#[path = "gateway_tests.rs"]
mod tests;
