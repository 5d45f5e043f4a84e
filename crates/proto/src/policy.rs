//! Which profile a packet uses. Policy picks, mechanism obeys.
//!
//! Today one profile seals all packets of an epoch: the strongest suite that is fast on both ends.
//! This module is below `flow` and does not know classes. A choice by class would touch:
//! - [`PacketRecord`](crate::packet::PacketRecord), `flow/record.rs` and `flow/classify.rs`: the
//!   field, and who decides it;
//! - `draft_datagram` (`tunnel/draft.rs`), which takes the epoch's profile today;
//! - repairs (`tunnel/retransmit.rs`), which know the flow and no record, and copies
//!   (`peer/live.rs`), which know neither; pieces of a packet (`send_split`);
//! - what both ends know: a feature in `wire/handshake.rs`, and its specification;
//! - status (`crates/host/src/flows.rs`), which shows the session's profile.
//!
//! Padding also changes the room for a packet (`send_framed`, `send_split`). A choice must respect
//! `SealKey::floor`. Bytes that are changed before they are sealed, as by compression (`pack`), can
//! no longer be kept by the packet's connection.

use crate::crypto::{HeaderCipher, Profile, SealKey, Suite};

/// The profile of an epoch's packets. AES where both ends compute it in hardware, ChaCha20
/// elsewhere (four to five times slower with AES units, several times faster without); both meet
/// every security floor.
pub const fn profile(key: &SealKey) -> Profile {
    match key.header_cipher() {
        HeaderCipher::Aes => Profile::whole(Suite::Aes256Gcm),
        HeaderCipher::ChaCha20 => Profile::whole(Suite::ChaCha20Poly1305),
    }
}
