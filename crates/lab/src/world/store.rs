//! What survives the end of a process.

use std::collections::{BTreeMap, BTreeSet};

use rove_proto::crypto::{Status, Token};
use rove_proto::id::{PeerKey, SessionIndex};
use rove_proto::outbox::Route;

/// How far ahead of the counter in use a client writes the one to begin with: a write for every
/// handshake would put a disk into the path, and after a crash the numbers between are lost, not
/// repeated.
const RESERVE: u64 = 64;

/// How long an invite is good for, in seconds.
const INVITE_S: i64 = 86_400;

/// A client's store.
#[derive(Clone, Debug)]
pub(super) struct ClientStore {
    /// The handshake counter to begin with after a restart; above every one that was used.
    pub(super) counter: u64,
    /// The right to enrol, until it was used.
    pub(super) token: Option<Token>,
}

impl ClientStore {
    /// The store of a client that was just invited.
    pub(super) const fn invited(token: Token) -> Self {
        Self { counter: 1, token: Some(token) }
    }

    /// A handshake uses `counter`: called before its message leaves.
    pub(super) fn reserve(&mut self, counter: u64) {
        if counter >= self.counter {
            self.counter = counter + RESERVE;
        }
    }
}

/// The gateway's store.
#[derive(Clone, Debug, Default)]
pub(super) struct GatewayStore {
    /// By which way each client was reached last.
    pub(super) journal: BTreeMap<PeerKey, (Route, SessionIndex)>,
    enrolled: BTreeMap<PeerKey, usize>,
    revoked: BTreeSet<PeerKey>,
    tokens: BTreeMap<Vec<u8>, Invite>,
}

#[derive(Clone, Copy, Debug)]
struct Invite {
    /// By the gateway's wall clock, in seconds.
    expires_s: i64,
    user: Option<PeerKey>,
}

impl GatewayStore {
    /// The operator makes an invite, when the gateway's wall clock shows `wall_s`.
    pub(super) fn invite(&mut self, wall_s: i64, token: &Token) {
        let invite = Invite { expires_s: wall_s + INVITE_S, user: None };
        self.tokens.entry(token.as_bytes().to_vec()).or_insert(invite);
    }

    /// A peer shows a token: enrols it, or says why not. A stranger is no `client`.
    pub(super) fn enrol(
        &mut self,
        wall_s: i64,
        peer: PeerKey,
        client: Option<usize>,
        token: &Token,
    ) -> Result<(), Status> {
        self.judge(wall_s, peer, token)?;
        // Every good invite is a client's, and no stranger can guess it.
        let client = client.ok_or(Status::TokenUnknown)?;
        let invite = self.tokens.get_mut(token.as_bytes()).ok_or(Status::TokenUnknown)?;
        invite.user = Some(peer);
        self.enrolled.insert(peer, client);
        Ok(())
    }

    /// What the desk says to `peer` with `token`.
    pub(super) fn judge(&self, wall_s: i64, peer: PeerKey, token: &Token) -> Result<(), Status> {
        if self.revoked.contains(&peer) {
            return Err(Status::Revoked);
        }
        if self.enrolled.contains_key(&peer) {
            return Ok(());
        }
        match self.tokens.get(token.as_bytes()) {
            None => Err(Status::TokenUnknown),
            Some(Invite { user: Some(user), .. }) if *user != peer => Err(Status::TokenUsed),
            Some(invite) if wall_s >= invite.expires_s => Err(Status::TokenExpired),
            Some(_) => Ok(()),
        }
    }

    /// Whether somebody came in with `token`.
    pub(super) fn is_used(&self, token: &Token) -> bool {
        self.tokens.get(token.as_bytes()).is_some_and(|invite| invite.user.is_some())
    }

    /// Who may come in.
    pub(super) fn enrolled(&self) -> impl Iterator<Item = (PeerKey, usize)> + '_ {
        self.enrolled.iter().map(|(&peer, &client)| (peer, client))
    }

    /// How many may come in.
    pub(super) fn enrolled_count(&self) -> usize {
        self.enrolled.len()
    }

    /// Whether `peer` may come in.
    pub(super) fn is_enrolled(&self, peer: PeerKey) -> bool {
        self.enrolled.contains_key(&peer)
    }

    /// The operator takes a peer's access away.
    pub(super) fn revoke(&mut self, peer: PeerKey) {
        self.enrolled.remove(&peer);
        self.revoked.insert(peer);
    }

    /// The revoked peers.
    pub(super) fn revoked(&self) -> impl Iterator<Item = PeerKey> + '_ {
        self.revoked.iter().copied()
    }

    /// The operator gives a revoked peer its access back.
    pub(super) fn readmit(&mut self, peer: PeerKey, client: usize) {
        if self.revoked.remove(&peer) {
            self.enrolled.insert(peer, client);
        }
    }
}
