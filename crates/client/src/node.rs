//! The core's settings of a client.

use rove_host::keys::StaticKey;
use rove_host::node;
use rove_proto::node::Config as CoreConfig;

use crate::config::Config;

/// The settings of the core for a client with this key, from its configuration.
pub(crate) fn config(key: &StaticKey, client: &Config) -> CoreConfig {
    let (mode, spread) = (client.paths.core_mode(), client.paths.spread());
    let (scheduler, recovery) = (client.paths.scheduler.0, client.paths.core_recovery());
    CoreConfig {
        mode,
        scheduler,
        recovery,
        spread,
        ..node::config(key, &client.persistence, &client.saving, &client.security)
    }
}
