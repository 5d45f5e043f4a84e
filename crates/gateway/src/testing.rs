//! The parsers of records in a gateway's store, for the fuzz targets (feature `testing`).

use rove_host::testing::is_stable;

use crate::ledger::{AuditEntry, InviteRecord, LedgerSnapshot, Peer, Reach};

/// The kinds of record of a gateway's store that these bytes form: peers, invites, the addresses
/// where peers were reached, the audit log, and a whole store in a backup.
pub fn store_record(bytes: &[u8]) -> [bool; 5] {
    [
        is_stable::<Peer>(bytes),
        is_stable::<InviteRecord>(bytes),
        is_stable::<Reach>(bytes),
        is_stable::<AuditEntry>(bytes),
        serde_json::from_slice::<LedgerSnapshot>(bytes).is_ok(),
    ]
}
