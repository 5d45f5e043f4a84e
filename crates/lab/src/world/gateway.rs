//! The gateway's side of things outside of its node.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rove_proto::crypto::Token;
use rove_proto::id::PeerKey;

use super::store::GatewayStore;
use crate::emu;

/// What its operator, its host and its name server know.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) key: PeerKey,
    pub(super) store: GatewayStore,
    /// What its name stands for.
    pub(super) name: Vec<SocketAddr>,
    /// Whether it has announced its addresses at least once.
    pub(super) announces: bool,
    /// What its wall clock is wrong by, in seconds.
    pub(super) wall_error_s: i64,
    /// Where it last found that a client is, by address.
    whereabouts: BTreeMap<SocketAddr, usize>,
}

impl Gateway {
    /// One that knows nobody.
    pub(super) fn new(key: PeerKey) -> Self {
        Self {
            key,
            store: GatewayStore::default(),
            name: Vec::new(),
            announces: false,
            wall_error_s: 0,
            whereabouts: BTreeMap::new(),
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

    /// The client at `remote`, of so many: mostly whoever was there the last time.
    pub(super) fn client_at(
        &mut self,
        remote: SocketAddr,
        clients: usize,
        is_there: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let known = self.whereabouts.get(&remote).copied().filter(|&client| is_there(client));
        let client = known.or_else(|| (0..clients).find(|&client| is_there(client)))?;
        self.whereabouts.insert(remote, client);
        Some(client)
    }
}
