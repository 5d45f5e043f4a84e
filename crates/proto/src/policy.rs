//! Which profile a packet uses. Policy picks, mechanism obeys.
//!
//! Today one profile seals all packets of an epoch: the strongest suite that is fast on both ends.
//! This module is below `flow` and does not know classes. A choice by class belongs into
//! `flow::treatment` and goes with the packet to where it is sealed: through the queues
//! (`path_queues::Given`), `tunnel::datagram::Load`, and the copies for repair
//! (`recovery::flight::KeptFrame`). It must respect `SealKey::floor`.

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
