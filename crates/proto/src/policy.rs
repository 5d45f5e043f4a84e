//! Which profile a packet uses. Policy picks, mechanism obeys.
//!
//! Today one profile serves all flows: the strongest suite that is fast on both ends. The choice
//! per class of flow will be made here.

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
