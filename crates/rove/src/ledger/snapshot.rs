//! Everything that a ledger knows as one value: what a backup carries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::records::{InviteRecord, Peer};
use super::{AuditEntry, AuditEvent, LedgerError, UnixSeconds};
use crate::encoding::KeyText;
use crate::invite::TokenHash;
use crate::store::{Store, Table, Write};

/// Every record about peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Peers, revoked ones included.
    pub peers: Vec<Peer>,
    /// Invites, spent ones included.
    pub invites: Vec<InviteRecord>,
    /// The audit log, oldest first.
    pub audit: Vec<AuditEntry>,
}

impl Snapshot {
    /// This snapshot put over a state that lived on after it was taken. It must not give back what
    /// was taken since: revocations stay, spent uses stay spent, withdrawn invites stay withdrawn,
    /// and the log goes on.
    pub fn over(self, present: Self, now: UnixSeconds) -> Self {
        let mut peers: BTreeMap<KeyText, Peer> =
            self.peers.into_iter().map(|peer| (peer.key, peer)).collect();
        for peer in present.peers {
            if !peer.is_enrolled() {
                peers.insert(peer.key, peer);
            }
        }
        let mut invites: BTreeMap<TokenHash, InviteRecord> =
            self.invites.into_iter().map(|invite| (invite.token, invite)).collect();
        for invite in present.invites {
            if let Some(restored) = invites.get_mut(&invite.token) {
                restored.used = restored.used.max(invite.used);
                restored.expires = restored.expires.min(invite.expires);
            }
        }
        let mut audit = if present.audit.is_empty() { self.audit } else { present.audit };
        audit.push(AuditEntry { at: now, event: AuditEvent::Restored });
        let peers = peers.into_values().collect();
        Self { peers, invites: invites.into_values().collect(), audit }
    }

    /// Fills an empty store.
    pub fn write_to(&self, store: &mut dyn Store) -> Result<(), LedgerError> {
        let mut writes = Vec::new();
        for peer in &self.peers {
            writes.push(Write::put(Table::Peers, peer.key.0, super::encode(peer)?));
        }
        for invite in &self.invites {
            writes.push(Write::put(Table::Invites, invite.token.0, super::encode(invite)?));
        }
        for (number, entry) in (0u64..).zip(&self.audit) {
            writes.push(Write::put(Table::Audit, number.to_be_bytes(), super::encode(entry)?));
        }
        Ok(store.commit(&writes)?)
    }
}
