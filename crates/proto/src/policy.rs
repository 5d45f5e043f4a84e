//! Which profile a packet uses. Policy picks, mechanism obeys.
//!
//! Today one profile seals all packets of an epoch: the strongest suite that is fast on both ends.
//! This module is below `flow` and does not know classes. A choice by class belongs into
//! `flow::treatment` and goes with the packet to where it is sealed: through the queues
//! (`fq_codel::Slot`, `path_queues::Given`, `flow::waiting`), `recovery::packet`, and the
//! copies (`bonding::live`). It must respect
//! `SealKey::floor`. Bytes that are changed before they are sealed, as by compression (`pack`), can
//! no longer be kept `elsewhere`.

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
