//! A client's side of things outside of its node.

use rove_proto::crypto::{Status, Token};
use rove_proto::id::PeerKey;

use super::directory::Directory;
use super::laws::Handshakes;
use super::store::ClientStore;

/// What its user, its disk and the laws know.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) key: PeerKey,
    pub(super) store: ClientStore,
    pub(super) backup: ClientStore,
    pub(super) directory: Directory,
    pub(super) handshakes: Handshakes,
    /// What the gateway last said when it refused.
    pub(super) refused: Option<Status>,
    /// Whether the user wants it connected.
    pub(super) wanted: bool,
    /// When a packet last got through, either way.
    pub(super) carried_ns: u64,
    /// When its data last took another path, and when the gateway's for it did.
    pub(super) moved_ns: (Option<u64>, Option<u64>),
    /// When something first disturbed it since all trouble ended.
    pub(super) troubled_ns: Option<u64>,
    /// Invites made for it.
    pub(super) invites: u32,
}

impl Client {
    /// One that was just invited, with this token.
    pub(super) fn invited(now_ns: u64, key: PeerKey, token: Token) -> Self {
        let store = ClientStore::invited(token);
        Self {
            key,
            backup: store.clone(),
            store,
            directory: Directory::default(),
            handshakes: Handshakes::default(),
            refused: None,
            wanted: true,
            carried_ns: now_ns,
            moved_ns: (None, None),
            troubled_ns: None,
            invites: 0,
        }
    }
}
