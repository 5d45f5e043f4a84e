//! The core's settings that client and gateway share.

use std::time::Duration;

use rove_proto::crypto::StaticSecret;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Mode, Recovery, Spread};
use rove_proto::node::Config;

use crate::config::{Persistence, Saving, Security};
use crate::keys::StaticKey;

/// Most NATs forget a UDP mapping after 30 s or more (RFC 4787 REQ-5 asks for two minutes, many
/// home routers use 30 s).
const KEEPALIVE: Duration = Duration::from_secs(25);

/// What holds for all sessions of a node with this key, which are kept as `persistence` says and
/// sealed as `security` says, on links that are not metered.
pub fn config(
    key: &StaticKey,
    persistence: &Persistence,
    saving: &Saving,
    security: &Security,
) -> Config {
    Config {
        secret: StaticSecret::new(*key.secret()),
        floor: security.floor,
        sealing: security.sealing(),
        has_aes: has_aes(),
        keepalive: Some(KEEPALIVE),
        persistence_timeout: persistence.timeout.duration(),
        hold: persistence.rules(),
        hold_memory: persistence.memory,
        mode: Mode::default(),
        scheduler: Scheduler::default(),
        recovery: Recovery::default(),
        spread: Spread::default(),
        couples: true,
        competes: true,
        reorders: true,
        saving: saving.core(false),
        judges_offload: true,
        features: saving.features() | security.features(),
        ablation: Default::default(),
    }
}

/// Whether the processor computes AES by itself.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("aes")
            && std::arch::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes")
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}
