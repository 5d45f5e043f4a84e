//! Everything that a ledger knows as one value: what a backup carries.

use std::collections::BTreeMap;

use rove_host::encoding::KeyText;
use rove_host::invite::TokenHash;
use rove_host::store::{Store, Table, Write};
use rove_host::time::UnixSeconds;
use rove_host::values::PeerName;
use serde::{Deserialize, Serialize};

use super::records::{InviteRecord, Peer};
use super::{AuditEntry, AuditEvent, LedgerError};

/// Every record about peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LedgerSnapshot {
    /// Peers, revoked ones included.
    pub peers: Vec<Peer>,
    /// Invites, spent ones included.
    pub invites: Vec<InviteRecord>,
    /// The audit log, oldest first.
    pub audit: Vec<AuditEntry>,
    /// Who was refused, oldest first.
    #[serde(default)]
    pub refusals: Vec<AuditEntry>,
    /// The latest time that the gateway saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<UnixSeconds>,
}

/// What the present state had and a restored one has not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Peers that enrolled since the backup.
    pub peers: Vec<PeerName>,
    /// Open invites that were issued since.
    pub invites: Vec<PeerName>,
}

impl LedgerSnapshot {
    /// Restores this snapshot over a state that changed since. Restoring must not undo
    /// restrictions: revocations, shorter allow-lists, spent uses, and withdrawn and expired
    /// invites stay. The log continues. Peers that enrolled since are dropped and named.
    pub(crate) fn over(self, present: Self, now: UnixSeconds) -> (Self, Dropped) {
        let mut dropped = Dropped::default();
        let mut peers: BTreeMap<KeyText, Peer> =
            self.peers.into_iter().map(|peer| (peer.key, peer)).collect();
        for peer in present.peers {
            if !peer.is_enrolled() {
                peers.insert(peer.key, peer);
                continue;
            }
            match peers.get_mut(&peer.key).filter(|restored| restored.is_enrolled()) {
                // Name and address are those of the backup, which gave each of them out once.
                Some(restored) => {
                    (restored.allowed, restored.subnets) = (peer.allowed, peer.subnets);
                }
                None => dropped.peers.push(peer.name),
            }
        }
        let mut invites: BTreeMap<TokenHash, InviteRecord> =
            self.invites.into_iter().map(|invite| (invite.token, invite)).collect();
        for invite in present.invites {
            match invites.get_mut(&invite.token) {
                Some(restored) => {
                    restored.used = restored.used.max(invite.used);
                    restored.expires = restored.expires.min(invite.expires);
                    restored.allowed = invite.allowed;
                }
                None if invite.is_open(now) => dropped.invites.push(invite.name),
                None => {}
            }
        }
        let mut audit = if present.audit.is_empty() { self.audit } else { present.audit };
        audit.push(AuditEntry { at: now, event: AuditEvent::Restored });
        let refusals = if present.refusals.is_empty() { self.refusals } else { present.refusals };
        let (peers, invites) = (peers.into_values().collect(), invites.into_values().collect());
        let latest = self.latest.max(present.latest);
        (Self { peers, invites, audit, refusals, latest }, dropped)
    }

    /// Fills an empty store.
    pub(crate) fn write_to(&self, store: &mut dyn Store) -> Result<(), LedgerError> {
        let mut writes = Vec::new();
        for peer in &self.peers {
            writes.push(Write::put(Table::Peers, peer.key.0, super::encode(peer)?));
        }
        for invite in &self.invites {
            writes.push(Write::put(Table::Invites, invite.token.0, super::encode(invite)?));
        }
        for (table, entries) in [(Table::Audit, &self.audit), (Table::Refusals, &self.refusals)] {
            for (number, entry) in (0u64..).zip(entries) {
                writes.push(Write::put(table, number.to_be_bytes(), super::encode(entry)?));
            }
        }
        writes.extend(self.latest.map(super::put_time));
        Ok(store.commit(&writes)?)
    }
}
